// Q3_K: a word of low pairs has four of each of four words of the group, a word of high bits one of each of eight, four
// of the other half. Codes are -4 to 3; scales of six bits are 32 above their value.
#import of_256
#import half_scale
#import integer_scales
#import no_minima

const BLOCK = 28u; // words of a superblock
const PARTS = 1u;
const RUNS = 8u;
const APART = 1u;
const HEAD = 4u;
const WORDS = 16u;
const WIDE = false;
const LESS = 32;

fn head_at(half: u32, i: u32) -> u32 {
    return i;
}

// High bits, then low pairs.
fn code_at(half: u32, i: u32) -> u32 {
    return 4u + i + 8u * half * (i >> 3u);
}

fn scales(block: u32, half: u32) -> Scales {
    let shift = vec4<u32>(4u * half);
    let high = head_word(block, half, 3u) >> shift;
    let nibble = vec4<u32>(0x0f0f0f0fu);
    let pair = vec4<u32>(0x03030303u);
    return Scales(
        ((head_word(block, half, 1u) >> shift) & nibble) | ((high & pair) << vec4<u32>(4u)),
        ((head_word(block, half, 2u) >> shift) & nibble) | (((high >> vec4<u32>(2u)) & pair) << vec4<u32>(4u)),
    );
}

// Word i of the eight, four codes of each of four words of the group, of which t is one.
fn codes_of(block: u32, half: u32, i: u32, t: u32) -> vec4<u32> {
    let pairs = (code_word(block, half, 8u + i) >> vec4<u32>(2u * t)) & vec4<u32>(0x03030303u);
    let high = (code_word(block, half, i) >> vec4<u32>(4u * half + t)) & vec4<u32>(0x01010101u);
    // less 4, byte by byte
    return ((pairs | (high << vec4<u32>(2u))) + vec4<u32>(0x7c7c7c7cu)) ^ vec4<u32>(0x80808080u);
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let i = (2u * n) & 7u;
    return Codes(codes_of(block, half, i, n >> 2u), codes_of(block, half, i + 1u, n >> 2u));
}
