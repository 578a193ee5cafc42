// Rows of Q6_K alone, as a frame asks for them; the importing text brings the tile (q6k_values.wgsl).
fn row_words() -> u32 {
    return q6k_row_words();
}

fn group_values(row: u32, g: u32) {
    q6k_values(row, g);
}
