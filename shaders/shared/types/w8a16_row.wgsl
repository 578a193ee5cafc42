// Rows packed in W8A16: words of a row, and the value of one group (docs/exactness.md section 4).
#import four_blocks
#import offset_row

const GROUP = 37u; // words of a group

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn block_sum(group: u32, b: u32, a: u32) -> i32 {
    var s = sum_start(group, b, a);
    for (var i = 8u * b; i < 8u * b + 8u; i++) {
        s += dot4I8Packed(w[group + (5u + i) * 32u], act[a + 1u + i]);
    }
    return s;
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    return four_blocks(row + g * (GROUP * 32u), a);
}
