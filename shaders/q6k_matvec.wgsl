// y = W a, W in Q6_K, a in Q8K128 blocks.
#import matvec
#import q6k

fn row_words() -> u32 {
    return q6k_row_words();
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    return q6k_value(row, g, a);
}
