// MXFP4: nibbles as Q4_0, of sixteen values; scales are powers of two, a byte each.
#import of_128
#import no_scales
#import fp4_values

const GROUP = 17u; // words of a group
const PARTS = 4u;
const RUNS = 4u;
const APART = 4u;
const HEAD = 1u;
const WORDS = 16u;
const WIDE = false;

fn head_at(half: u32, i: u32) -> u32 {
    return 0u;
}

fn code_at(half: u32, i: u32) -> u32 {
    return 1u + i;
}

// 2^(E - 128), 0 where that is below 2^-50.
fn part_scale(block: u32, half: u32, part: u32) -> vec4<f32> {
    let e = (head_word(block, half, 0u) >> vec4<u32>(8u * part)) & vec4<u32>(255u);
    return bitcast<vec4<f32>>(select((e - vec4<u32>(1u)) << vec4<u32>(23u), vec4<u32>(), e < vec4<u32>(78u)));
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    return nibble_codes(code_word(block, half, n));
}
