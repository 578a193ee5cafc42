// IQ3_XXS: for each eight elements two rows of a codebook and seven of eight signs; the scale of 32 elements in the
// word of their signs.
#import of_256
#import integer_scales
#import no_minima
#import spread
#import iq3_xxs_codebook

const BLOCK = 25u; // words of a superblock
const PARTS = 1u;
const RUNS = 4u;
const APART = 1u;
const HEAD = 1u;
const WORDS = 12u;
const WIDE = true;
const LESS = 0;

fn head_at(half: u32, i: u32) -> u32 {
    return 0u;
}

// Signs and scales, then rows.
fn code_at(half: u32, i: u32) -> u32 {
    return select(5u + 8u * half, 1u + 4u * half, i < 4u) + i;
}

fn part_scale(block: u32, half: u32, part: u32) -> vec4<f32> {
    return B4(f16_to_f32_4(low_half(head_word(block, half, 0u))) * 0.25);
}

fn scales(block: u32, half: u32) -> Scales {
    let mask = vec4<u32>(0xf0000000u);
    let a = (code_word(block, half, 0u) & mask) >> vec4<u32>(28u);
    let b = (code_word(block, half, 1u) & mask) >> vec4<u32>(20u);
    let c = (code_word(block, half, 2u) & mask) >> vec4<u32>(12u);
    let d = (code_word(block, half, 3u) & mask) >> vec4<u32>(4u);
    return Scales(odd(a | b | c | d), vec4<u32>());
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let seven = (code_word(block, half, n >> 2u) >> vec4<u32>(7u * (n & 3u))) & vec4<u32>(127u);
    let rows = code_word(block, half, 4u + (n >> 1u)) >> vec4<u32>(16u * (n & 1u));
    let mask = vec4<u32>(255u);
    return signed_rows(rows & mask, (rows >> vec4<u32>(8u)) & mask, even_signs(seven));
}
