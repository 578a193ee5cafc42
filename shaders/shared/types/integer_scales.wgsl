// Runs with integer scales. The importing text gives
//   const LESS: i32                                    scales are so much less than their bytes, which are below 64
//   fn scales(block: u32, half: u32) -> Scales         the bytes
#import scales

const SCALED = true;

// As in k_bytes, compilers are shown that factors have less than 24 bits: dots start above their value,
// |dot| <= 32 · 127 · 127 < 2^19, and what the products lie above their sum for it is known from the scales.
const DOT_ABOVE = 1 << 19u;

// What the sum of the products begins with.
fn sum_start(s: Scales) -> vec4<i32> {
    let bytes = dots(s.low, 0x01010101u) + dots(s.high, 0x01010101u);
    return (bytes - vec4<i32>(LESS * i32(RUNS))) * -DOT_ABOVE;
}

fn scale_byte(s: Scales, run: u32) -> vec4<u32> {
    return (select(s.low, s.high, vec4<bool>(run > 3u)) >> vec4<u32>(8u * (run & 3u))) & vec4<u32>(255u);
}

// Scale times the dots of a run, and what that lies above its value.
fn scaled(s: Scales, run: u32, dots_above: vec4<i32>) -> vec4<i32> {
    let product = scale_byte(s, run) * (vec4<u32>(dots_above) & vec4<u32>(2 * DOT_ABOVE - 1));
    return vec4<i32>(product) - LESS * dots_above;
}

// The scale of a run of the first row.
fn scale_of(s: Scales, run: u32) -> i32 {
    return i32(scale_byte(s, run).x) - LESS;
}
