// Adds group g to the sum of the segment, where activations belong to pairs that lie anywhere. The importing shader gives
// act_rows.
#import act_word
#import act_digits

fn act_at(t: u32, g: u32) -> u32 {
    return (act_rows[t] * ((p.k + 127u) / 128u) + g) * act_digits * ACT_BLOCK_WORDS;
}

fn add_group(row: u32, g: u32) {
    group_values(row, g);
    add_value(g);
}
