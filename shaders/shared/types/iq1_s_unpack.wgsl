// IQ1_S: for each eight elements a row of a codebook, whose three high bits lie apart; with those of 32 elements three
// bits of scale and whether codes are less.
#import of_256
#import half_scale_eighth
#import integer_scales
#import no_minima
#import shifted_row

const BLOCK = 13u; // words of a superblock
const PARTS = 1u;
const RUNS = 4u;
const APART = 1u;
const HEAD = 1u;
const WORDS = 6u;
const WIDE = false;
const LESS = 0;

fn head_at(half: u32, i: u32) -> u32 {
    return 0u;
}

// High bits, then rows.
fn code_at(half: u32, i: u32) -> u32 {
    return select(3u + 4u * half, 1u + 2u * half, i < 2u) + i;
}

fn scales(block: u32, half: u32) -> Scales {
    let a = code_word(block, half, 0u);
    let b = code_word(block, half, 1u);
    let low = ((a >> vec4<u32>(12u)) & vec4<u32>(0x7u)) | ((a >> vec4<u32>(20u)) & vec4<u32>(0x700u));
    let high = ((b << vec4<u32>(4u)) & vec4<u32>(0x70000u)) | ((b >> vec4<u32>(4u)) & vec4<u32>(0x07000000u));
    return Scales(odd(low | high), vec4<u32>());
}

fn unpack(block: u32, half: u32, n: u32) -> Codes {
    let q = code_word(block, half, n >> 3u) >> vec4<u32>(16u * ((n >> 2u) & 1u));
    let low = (code_word(block, half, 2u + (n >> 2u)) >> vec4<u32>(8u * (n & 3u))) & vec4<u32>(255u);
    let high = (q >> vec4<u32>(3u * (n & 3u))) & vec4<u32>(7u);
    return shifted_row(low | (high << vec4<u32>(8u)), (q >> vec4<u32>(15u)) & vec4<u32>(1u));
}
