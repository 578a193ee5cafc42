// y = W a, W in Q5_K, a in Q8K128 blocks.
#import matvec
#import q5k

fn row_words() -> u32 {
    return q5k_row_words();
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    return q5k_value(row, g, a);
}
