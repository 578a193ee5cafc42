// Rows packed in Q4_0: words of a row, and the value of one group (docs/exactness.md section 4).
#import four_blocks
#import half_scales
#import nibble_sum

const GROUP = 18u; // words of a group

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn block_sum(group: u32, b: u32, a: u32) -> i32 {
    return nibble_sum(group + 2u * 32u, b, a) - 8 * sum32(a, b);
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    return four_blocks(row + g * (GROUP * 32u), a);
}
