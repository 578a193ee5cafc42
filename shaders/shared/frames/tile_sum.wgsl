// Adds group g to the sum of the segment, where all rows have one type and activations are read where they lie.
#import act_direct

fn add_group(row: u32, g: u32) {
    group_values(row, g);
    add_value(g);
}
