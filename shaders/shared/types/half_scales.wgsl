// f16 scales of a group's blocks, one row: two a word at the group's start.
fn block_scale(group: u32, b: u32) -> f32 {
    return f16_to_f32((w[group + (b >> 1u) * 32u] >> (16u * (b & 1u))) & 0xffffu);
}
