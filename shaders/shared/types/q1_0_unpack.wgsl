// Q1_0: a word has a bit of each code of eight words of the group. Codes are -1 and 1.
#import of_128
#import half_scale
#import no_scales

const GROUP = 5u; // words of a group
const PARTS = 1u;
const RUNS = 4u;
const APART = 1u;
const HEAD = 1u;
const WORDS = 4u;
const WIDE = false;

fn head_at(half: u32, i: u32) -> u32 {
    return 0u;
}

fn code_at(half: u32, i: u32) -> u32 {
    return 1u + i;
}

// The low bit of each byte: twice it, less 1.
fn sign_codes(x: vec4<u32>) -> vec4<u32> {
    return (((x & vec4<u32>(0x01010101u)) << vec4<u32>(1u)) + vec4<u32>(0x7f7f7f7fu)) ^ vec4<u32>(0x80808080u);
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let at = (2u * n) & 3u;
    let shift = vec4<u32>(n >> 1u);
    return Codes(sign_codes(code_word(block, half, at) >> shift), sign_codes(code_word(block, half, at + 1u) >> shift));
}
