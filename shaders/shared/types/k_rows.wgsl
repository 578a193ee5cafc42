// Rows of Q4_K or Q5_K alone, as a frame asks for them; the importing text brings the tile (k_tile.wgsl).
fn row_words() -> u32 {
    return k_row_words();
}

fn group_values(row: u32, g: u32) {
    k_values(row, g);
}
