// Rows of f32, a word an element, in the frame of matvec_float.
fn row_words() -> u32 {
    return p.k;
}

fn weight(row: u32, e: u32) -> f32 {
    return bitcast<f32>(w[row + e * 32u]);
}
