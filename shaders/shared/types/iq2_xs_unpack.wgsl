// IQ2_XS: for each eight elements 16 bits, nine of them a row of a codebook and seven of eight signs; a nibble of scale
// to 16.
#import of_256
#import half_scale_eighth
#import sixteen_nibbles
#import iq2_xs_codebook

const BLOCK = 19u; // words of a superblock
const PARTS = 1u;
const RUNS = 8u;
const APART = 1u;
const HEAD = 2u;
const WORDS = 8u;
const WIDE = true;
const LESS = 0;

fn head_at(half: u32, i: u32) -> u32 {
    return i * (1u + half);
}

fn code_at(half: u32, i: u32) -> u32 {
    return 3u + 8u * half + i;
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let q = code_word(block, half, n >> 1u) >> vec4<u32>(16u * (n & 1u));
    return signed_row(q & vec4<u32>(511u), even_signs((q >> vec4<u32>(9u)) & vec4<u32>(127u)));
}
