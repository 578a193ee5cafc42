// Rows packed in W4A16: words of a row, and the value of one group (docs/exactness.md section 4).
#import four_blocks
#import nibble_sum
#import offset_row

const GROUP = 21u; // words of a group

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn block_sum(group: u32, b: u32, a: u32) -> i32 {
    return sum_start(group, b, a) + nibble_sum(group + 5u * 32u, b, a);
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    return four_blocks(row + g * (GROUP * 32u), a);
}
