// NVFP4: two blocks of four sub-blocks of 16, the low nibbles of a sub-block's two words before the high ones; a scale
// of 8 bits to each.
#import of_128
#import no_scales
#import fp4_values

const GROUP = 18u; // words of a group
const PARTS = 8u;
const RUNS = 8u;
const APART = 2u;
const HEAD = 2u;
const WORDS = 16u;
const WIDE = false;

fn head_at(half: u32, i: u32) -> u32 {
    return i;
}

fn code_at(half: u32, i: u32) -> u32 {
    return 2u + i;
}

// Of four bits of exponent and three of mantissa, in units of 2^-10; 7f is 0.
fn part_scale(block: u32, half: u32, part: u32) -> vec4<f32> {
    let byte = (head_word(block, half, part >> 2u) >> vec4<u32>(8u * (part & 3u))) & vec4<u32>(255u);
    let e = (byte >> vec4<u32>(3u)) & vec4<u32>(15u);
    let m = byte & vec4<u32>(7u);
    let normal = (m | vec4<u32>(8u)) << (max(e, vec4<u32>(1u)) - vec4<u32>(1u));
    let units = select(select(normal, m, e == vec4<u32>()), vec4<u32>(), byte == vec4<u32>(0x7fu));
    return B4(vec4<f32>(units) * 0.0009765625);
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    return nibble_codes(code_word(block, half, n));
}
