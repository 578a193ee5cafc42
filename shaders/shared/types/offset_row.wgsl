// Blocks with an f32 scale and an offset each, one row. At the group's start are the four scales, then a word with the four
// offsets: what the codes of each block lie above their value.
fn block_scale(group: u32, b: u32) -> f32 {
    return bitcast<f32>(w[group + b * 32u]);
}

// Where the sum of block b begins, the block of activations at a.
fn sum_start(group: u32, b: u32, a: u32) -> i32 {
    let offset = bitcast<i32>(w[group + 128u] << (24u - 8u * b)) >> 24u;
    return offset * -sum32(a, b);
}
