// F32 in the frame of embed: words of a row, and the value of one element (docs/exactness.md section 3).
fn row_words() -> u32 {
    return p.dim;
}

fn element(row: u32, e: u32) -> f32 {
    return bitcast<f32>(w[row + e * 32u]);
}
