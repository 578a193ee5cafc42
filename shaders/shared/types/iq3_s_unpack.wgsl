// IQ3_S: for each eight elements two rows of a codebook, whose ninth bits lie apart, and a byte of signs; a nibble of
// scale to 32.
#import of_256
#import half_scale
#import integer_scales
#import no_minima
#import spread
#import iq3_s_codebook

const BLOCK = 28u; // words of a superblock
const PARTS = 1u;
const RUNS = 4u;
const APART = 1u;
const HEAD = 3u;
const WORDS = 12u;
const WIDE = false;
const LESS = 0;

// The last: ninth bits of the half.
fn head_at(half: u32, i: u32) -> u32 {
    return i + half * (i >> 1u);
}

// Signs, then rows.
fn code_at(half: u32, i: u32) -> u32 {
    return select(8u + 8u * half, 4u + 4u * half, i < 4u) + i;
}

fn scales(block: u32, half: u32) -> Scales {
    let nibbles = (head_word(block, half, 1u) >> vec4<u32>(16u * half)) & vec4<u32>(0xffffu);
    return Scales(odd(spread_nibbles(nibbles)), vec4<u32>());
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let minus = code_word(block, half, n >> 2u) >> vec4<u32>(8u * (n & 3u));
    let rows = code_word(block, half, 4u + (n >> 1u)) >> vec4<u32>(16u * (n & 1u));
    let ninth = head_word(block, half, 2u) >> vec4<u32>(2u * n);
    let mask = vec4<u32>(255u);
    return signed_rows(
        (rows & mask) | ((ninth & vec4<u32>(1u)) << vec4<u32>(8u)),
        ((rows >> vec4<u32>(8u)) & mask) | ((ninth & vec4<u32>(2u)) << vec4<u32>(7u)),
        minus,
    );
}
