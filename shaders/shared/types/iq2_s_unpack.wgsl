// IQ2_S: for each eight elements a row of a codebook, whose two high bits lie apart, and a byte of signs; a nibble of
// scale to 16.
#import of_256
#import half_scale_eighth
#import sixteen_nibbles
#import iq2_s_codebook

const BLOCK = 21u; // words of a superblock
const PARTS = 1u;
const RUNS = 8u;
const APART = 1u;
const HEAD = 3u;
const WORDS = 8u;
const WIDE = true;
const LESS = 0;

// d, then the half's word of scales and that of high bits.
fn head_at(half: u32, i: u32) -> u32 {
    return select(2u * i - 1u + half, 0u, i == 0u);
}

// Rows, then signs.
fn code_at(half: u32, i: u32) -> u32 {
    return 5u + 4u * half + i + 4u * (i >> 2u);
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let shift = vec4<u32>(8u * (n & 3u));
    let low = (code_word(block, half, n >> 2u) >> shift) & vec4<u32>(255u);
    let high = (head_word(block, half, 2u) >> vec4<u32>(2u * n)) & vec4<u32>(3u);
    return signed_row(low | (high << vec4<u32>(8u)), code_word(block, half, 4u + (n >> 2u)) >> shift);
}
