// Gate and up rows in Q4_K, SwiGLU and quantise.
#import gate_up
#import q4k

fn row_words() -> u32 {
    return q4k_row_words();
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    return q4k_value(row, g, a);
}
