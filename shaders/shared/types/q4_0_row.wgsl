// Rows packed in Q4_0: words of a row, and the value of one group (docs/exactness.md section 4).
#import four_blocks

const GROUP = 18u; // words of a group

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn block_sum(group: u32, b: u32, a: u32) -> i32 {
    var s = -8 * sum32(a, b);
    for (var i = 0u; i < 4u; i++) {
        let q = w[group + (2u + 4u * b + i) * 32u];
        s += dot4I8Packed(q & 0x0f0f0f0fu, act[a + 1u + 8u * b + i]);
        s += dot4I8Packed((q >> 4u) & 0x0f0f0f0fu, act[a + 5u + 8u * b + i]);
    }
    return s;
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    return four_blocks(row + g * (GROUP * 32u), a);
}
