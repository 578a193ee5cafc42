// Rows of f16, two elements a word, in the frame of matvec_float.
fn row_words() -> u32 {
    return (p.k + 1u) / 2u;
}

fn weight(row: u32, e: u32) -> f32 {
    return f16_to_f32((w[row + (e >> 1u) * 32u] >> (16u * (e & 1u))) & 0xffffu);
}
