// IQ1_M: for each eight elements a row of a codebook, whose three high bits lie apart, with whether codes are less;
// three bits of scale to 16 elements, beside which the nibbles of d lie.
#import of_256
#import integer_scales
#import no_minima
#import shifted_row

const BLOCK = 14u; // words of a superblock
const PARTS = 1u;
const RUNS = 8u;
const APART = 1u;
const HEAD = 2u;
const WORDS = 6u;
const WIDE = false;
const LESS = 0;

fn head_at(half: u32, i: u32) -> u32 {
    return i;
}

// High bits, then rows.
fn code_at(half: u32, i: u32) -> u32 {
    return select(4u + 4u * half, 2u + 2u * half, i < 2u) + i;
}

fn part_scale(block: u32, half: u32, part: u32) -> vec4<f32> {
    let a = head_word(block, half, 0u);
    let b = head_word(block, half, 1u);
    let low = ((a >> vec4<u32>(12u)) & vec4<u32>(0xfu)) | ((a >> vec4<u32>(24u)) & vec4<u32>(0xf0u));
    let high = ((b >> vec4<u32>(4u)) & vec4<u32>(0xf00u)) | ((b >> vec4<u32>(16u)) & vec4<u32>(0xf000u));
    return B4(f16_to_f32_4(low | high) * 0.125);
}

// Four fields of three bits, of the low half, to a byte each.
fn spread_threes(x: vec4<u32>) -> vec4<u32> {
    return (x & vec4<u32>(7u)) | ((x & vec4<u32>(0x38u)) << vec4<u32>(5u))
        | ((x & vec4<u32>(0x1c0u)) << vec4<u32>(10u)) | ((x & vec4<u32>(0xe00u)) << vec4<u32>(15u));
}

fn scales(block: u32, half: u32) -> Scales {
    let x = select(head_word(block, half, 0u), head_word(block, half, 1u), vec4<bool>(half == 1u));
    return Scales(odd(spread_threes(x)), odd(spread_threes(x >> vec4<u32>(16u))));
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let q = code_word(block, half, n >> 3u) >> vec4<u32>(4u * (n & 7u));
    let low = (code_word(block, half, 2u + (n >> 2u)) >> vec4<u32>(8u * (n & 3u))) & vec4<u32>(255u);
    return shifted_row(low | ((q & vec4<u32>(7u)) << vec4<u32>(8u)), (q >> vec4<u32>(3u)) & vec4<u32>(1u));
}
