// TQ2_0, and TQ1_0 which is packed as it: a word of codes has four of each of four words of the group. Codes are -1 to
// 2.
#import of_256
#import half_scale
#import no_scales

const BLOCK = 17u; // words of a superblock
const PARTS = 1u;
const RUNS = 4u;
const APART = 1u;
const HEAD = 1u;
const WORDS = 8u;
const WIDE = false;

fn head_at(half: u32, i: u32) -> u32 {
    return 0u;
}

fn code_at(half: u32, i: u32) -> u32 {
    return 1u + 8u * half + i;
}

// Two bits of each byte, less 1.
fn ternary(x: vec4<u32>) -> vec4<u32> {
    return ((x & vec4<u32>(0x03030303u)) + vec4<u32>(0x7f7f7f7fu)) ^ vec4<u32>(0x80808080u);
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let at = (2u * n) & 7u;
    let shift = vec4<u32>(2u * (n >> 2u));
    return Codes(ternary(code_word(block, half, at) >> shift), ternary(code_word(block, half, at + 1u) >> shift));
}
