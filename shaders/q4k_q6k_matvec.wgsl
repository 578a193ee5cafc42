// y = W a, W in Q4_K and below it in Q6_K, a in Q8K128 blocks.
#import matvec_pair
#import q4k
#import q6k

fn first_words() -> u32 {
    return q4k_row_words();
}

fn first_value(row: u32, g: u32, a: u32) -> f32 {
    return q4k_value(row, g, a);
}

fn second_words() -> u32 {
    return q6k_row_words();
}

fn second_value(row: u32, g: u32, a: u32) -> f32 {
    return q6k_value(row, g, a);
}
