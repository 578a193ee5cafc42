// Rows of Q5_K and below them rows of Q6_K, as matvec_pair asks for them.
#import q5k_group
#import q6k_group

fn first_words() -> u32 {
    return q5k_row_words();
}

fn first_value(row: u32, g: u32, a: u32) -> f32 {
    return q5k_value(row, g, a);
}

fn second_words() -> u32 {
    return q6k_row_words();
}

fn second_value(row: u32, g: u32, a: u32) -> f32 {
    return q6k_value(row, g, a);
}
