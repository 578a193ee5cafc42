// Sums of activation codes, as the block holds them. The importing shader gives act_word.

// Sum of the activation codes of sixteenth i of the block at a.
fn sum16(a: u32, i: u32) -> i32 {
    let pair = bitcast<i32>(act_word(a + ACT_SUMS + (i >> 1u)));
    return select((pair << 16u) >> 16u, pair >> 16u, (i & 1u) == 1u);
}

// Sum of the activation codes of 32-block b of the block at a.
fn sum32(a: u32, b: u32) -> i32 {
    let pair = bitcast<i32>(act_word(a + ACT_SUMS + b));
    return ((pair << 16u) >> 16u) + (pair >> 16u);
}
