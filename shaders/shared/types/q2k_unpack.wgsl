// Q2_K: a word of codes has four of each of four words of the group. A byte for each sixteenth, its scale in the low
// nibble and its minimum in the high one.
#import of_256
#import half_scale
#import integer_scales

const BLOCK = 21u; // words of a superblock
const PARTS = 1u;
const RUNS = 8u;
const APART = 1u;
const HEAD = 3u;
const WORDS = 8u;
const WIDE = false;
const LESS = 0;
const MINIMA = true;

fn head_at(half: u32, i: u32) -> u32 {
    return select(2u * half + i, 0u, i == 0u);
}

fn code_at(half: u32, i: u32) -> u32 {
    return 5u + 8u * half + i;
}

fn scales(block: u32, half: u32) -> Scales {
    let mask = vec4<u32>(0x0f0f0f0fu);
    return Scales(head_word(block, half, 1u) & mask, head_word(block, half, 2u) & mask);
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let at = (2u * n) & 7u;
    let shift = vec4<u32>(2u * (n >> 2u));
    let mask = vec4<u32>(0x03030303u);
    return Codes(
        (code_word(block, half, at) >> shift) & mask,
        (code_word(block, half, at + 1u) >> shift) & mask,
    );
}

fn minima_scale(block: u32, half: u32) -> vec4<f32> {
    return f16_to_f32_4(high_half(head_word(block, half, 0u)));
}

fn minimum_of(block: u32, half: u32, run: u32) -> u32 {
    return (head_word(block, half, 1u + (run >> 2u)).x >> (8u * (run & 3u) + 4u)) & 15u;
}
