// Gate and up rows in Q6_K, SwiGLU and quantise: four rows a thread.
#import gate_up4
#import tile_q6k
#import tile_sum

fn row_words() -> u32 {
    return q6k_row_words();
}

fn group_values(row: u32, g: u32) {
    q6k_values(row, g);
}
