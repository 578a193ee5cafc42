// Rows in Q5_K, and below them rows in Q6_K.
#import tile_q5k
#import tile_q6k

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
