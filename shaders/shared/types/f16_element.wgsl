// F16 in the frame of embed: words of a row, and the value of one element (docs/exactness.md section 3).
fn row_words() -> u32 {
    return (p.dim + 1u) / 2u;
}

fn element(row: u32, e: u32) -> f32 {
    return half_at(row, 0u, e);
}
