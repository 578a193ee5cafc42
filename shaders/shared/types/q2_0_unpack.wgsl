// Q2_0: two blocks of 64; a word of codes has four of each of four words of its block. Codes are -1 to 2.
#import of_128
#import no_scales

const GROUP = 9u; // words of a group
const PARTS = 2u;
const RUNS = 8u;
const APART = 1u;
const HEAD = 1u;
const WORDS = 8u;
const WIDE = false;

fn head_at(half: u32, i: u32) -> u32 {
    return 0u;
}

fn code_at(half: u32, i: u32) -> u32 {
    return 1u + i;
}

fn part_scale(block: u32, half: u32, part: u32) -> vec4<f32> {
    return f16_to_f32_4(low_half(head_word(block, half, 0u) >> vec4<u32>(16u * part)));
}

// Two bits of each byte, less 1.
fn ternary(x: vec4<u32>) -> vec4<u32> {
    return ((x & vec4<u32>(0x03030303u)) + vec4<u32>(0x7f7f7f7fu)) ^ vec4<u32>(0x80808080u);
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let at = 4u * (n >> 3u) + ((2u * n) & 3u);
    let shift = vec4<u32>(2u * ((n & 7u) >> 1u));
    return Codes(ternary(code_word(block, half, at) >> shift), ternary(code_word(block, half, at + 1u) >> shift));
}
