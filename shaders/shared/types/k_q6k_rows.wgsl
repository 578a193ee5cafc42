// Rows of Q4_K or Q5_K and below them rows of Q6_K, as a frame of pairs asks for them; the importing text brings how each
// type is read.

fn first_words() -> u32 {
    return k_row_words();
}

fn first_values(row: u32, g: u32) {
    k_values(row, g);
}

fn second_words() -> u32 {
    return q6k_row_words();
}

fn second_values(row: u32, g: u32) {
    q6k_values(row, g);
}
