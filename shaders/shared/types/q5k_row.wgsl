// Rows of Q5_K alone, as matvec and gate_up ask for them.
#import q5k_group

fn row_words() -> u32 {
    return q5k_row_words();
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    return q5k_value(row, g, a);
}
