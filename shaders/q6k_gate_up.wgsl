// Gate and up rows in Q6_K, SwiGLU and quantise.
#import gate_up
#import q6k

fn row_words() -> u32 {
    return q6k_row_words();
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    return q6k_value(row, g, a);
}
