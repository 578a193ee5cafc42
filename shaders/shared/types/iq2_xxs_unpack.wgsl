// IQ2_XXS: for each 32 elements a word of four rows of a codebook and a word of seven of eight signs each, with the
// scale above them.
#import of_256
#import half_scale_eighth
#import integer_scales
#import no_minima
#import spread
#import iq2_xxs_codebook

const BLOCK = 17u; // words of a superblock
const PARTS = 1u;
const RUNS = 4u;
const APART = 1u;
const HEAD = 1u;
const WORDS = 8u;
const WIDE = false;
const LESS = 0;

fn head_at(half: u32, i: u32) -> u32 {
    return 0u;
}

fn code_at(half: u32, i: u32) -> u32 {
    return 1u + 8u * half + i;
}

fn scales(block: u32, half: u32) -> Scales {
    let mask = vec4<u32>(0xf0000000u);
    let a = (code_word(block, half, 1u) & mask) >> vec4<u32>(28u);
    let b = (code_word(block, half, 3u) & mask) >> vec4<u32>(20u);
    let c = (code_word(block, half, 5u) & mask) >> vec4<u32>(12u);
    let d = (code_word(block, half, 7u) & mask) >> vec4<u32>(4u);
    return Scales(odd(a | b | c | d), vec4<u32>());
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let at = 2u * (n >> 2u);
    let row = (code_word(block, half, at) >> vec4<u32>(8u * (n & 3u))) & vec4<u32>(255u);
    let seven = (code_word(block, half, at + 1u) >> vec4<u32>(7u * (n & 3u))) & vec4<u32>(127u);
    return signed_row(row, even_signs(seven));
}
