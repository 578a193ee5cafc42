// IQ4_NL: nibbles as Q4_0, of sixteen values.
#import of_128
#import no_scales
#import iq4_values

const GROUP = 18u; // words of a group
const PARTS = 4u;
const RUNS = 4u;
const APART = 4u;
const HEAD = 2u;
const WORDS = 16u;
const WIDE = false;

fn head_at(half: u32, i: u32) -> u32 {
    return i;
}

fn code_at(half: u32, i: u32) -> u32 {
    return 2u + i;
}

fn part_scale(block: u32, half: u32, part: u32) -> vec4<f32> {
    return f16_to_f32_4(low_half(head_word(block, half, part >> 1u) >> vec4<u32>(16u * (part & 1u))));
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    return nibble_codes(code_word(block, half, n));
}
