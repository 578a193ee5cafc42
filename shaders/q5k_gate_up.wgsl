// Gate and up rows in Q5_K, SwiGLU and quantise.
#import gate_up
#import q5k

fn row_words() -> u32 {
    return q5k_row_words();
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    return q5k_value(row, g, a);
}
