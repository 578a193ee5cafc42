// Gate and up rows in Q5_K, SwiGLU and quantise: four rows a thread.
#import gate_up4
#import tile_q5k
#import tile_sum

fn row_words() -> u32 {
    return k_row_words();
}

fn group_values(row: u32, g: u32) {
    k_values(row, g);
}
