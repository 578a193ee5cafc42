// Superblocks of Q4_K and Q5_K, four rows at a time. The importing text gives BLOCK, the words of one, and SMALL, whether
// codes have four bits.

// Byte i of each.
fn byte_of(x: vec4<u32>, i: u32) -> vec4<u32> {
    return (x >> vec4<u32>(8u * i)) & vec4<u32>(255u);
}

// A product of 32 bits takes a GPU four times as long as one of 24, and compilers take the short one where masks show that
// factors are that small. So dots of a sub-block start above their value by DOT_ABOVE and sums of activations by SUM_ABOVE,
// which keeps both from being negative: |dot| <= 32 · 31 · 127 < 2^17, |sum| <= 32 · 127 < 2^12. What the products lie
// above their sum for it is known from the bytes alone.
const DOT_ABOVE = 1 << 17u;
const SUM_ABOVE = 1 << 12u;

// What a sum of four products begins with: minus what they lie above it, by the bytes they are multiplied with. (Taken out
// of the words byte by byte they would stay in registers until they are needed.)
fn sum_start(bytes: vec4<u32>, above: i32) -> vec4<i32> {
    return dots(bytes, 0x01010101u) * -above;
}

// Byte j times the dots of sub-block j.
fn scaled(bytes: vec4<u32>, j: u32, dots_above: vec4<i32>) -> vec4<i32> {
    return vec4<i32>(byte_of(bytes, j) * (vec4<u32>(dots_above) & vec4<u32>(2 * DOT_ABOVE - 1)));
}

// Byte j times the sum of the activations of sub-block j of the block at a.
fn lowered(bytes: vec4<u32>, j: u32, a: u32) -> vec4<i32> {
    return vec4<i32>(byte_of(bytes, j) * (u32(sum32(a, j) + SUM_ABOVE) & u32(2 * SUM_ABOVE - 1)));
}

// v(S) of a sum of the scales: what Q4_K's are, at most 128 · 63 · 15 · 127 < 2^24, is a float as it is.
fn scales_value(sum: vec4<i32>) -> vec4<f32> {
    if SMALL {
        return vec4<f32>(sum);
    }
    return i2f4(sum);
}

// The same of the minima: at most 4 · 63 · 4064 < 2^24.
fn minima_value(sum: vec4<i32>) -> vec4<f32> {
    return vec4<f32>(sum);
}

fn k_row_words() -> u32 {
    return p.k / 256u * BLOCK;
}
