// IQ4_XS: nibbles as Q4_0, of sixteen values; scales of six bits, 32 above their value, to 32 elements each.
#import of_256
#import half_scale
#import integer_scales
#import no_minima
#import spread
#import iq4_values

const BLOCK = 34u; // words of a superblock
const PARTS = 1u;
const RUNS = 4u;
const APART = 4u;
const HEAD = 2u;
const WORDS = 16u;
const WIDE = true;
const LESS = 32;

fn head_at(half: u32, i: u32) -> u32 {
    return i;
}

fn code_at(half: u32, i: u32) -> u32 {
    return 2u + 16u * half + i;
}

fn scales(block: u32, half: u32) -> Scales {
    let low = spread_nibbles((head_word(block, half, 1u) >> vec4<u32>(16u * half)) & vec4<u32>(0xffffu));
    let high = spread_pairs((head_word(block, half, 0u) >> vec4<u32>(16u + 8u * half)) & vec4<u32>(255u));
    return Scales(low | (high << vec4<u32>(4u)), vec4<u32>());
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    return nibble_codes(code_word(block, half, n));
}
