// Rows of Q4_K or Q5_K, whose tile the importing shader brings, and below them rows of Q6_K.
#import q6k_tile

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
