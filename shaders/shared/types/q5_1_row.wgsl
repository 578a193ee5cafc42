// Rows packed in Q5_1: words of a row, and the value of one group (docs/exactness.md section 4).
#import five_bit_sum
#import sum_value
#import act_digits

const GROUP = 24u; // words of a group

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    let group = row + g * (GROUP * 32u);
    var t = B(0.0);
    for (var b = 0u; b < 4u; b++) {
        let low = five_bit_sum(group + 4u * 32u, b, a);
        var high = 0;
        if act_digits == 2u {
            high = five_bit_sum(group + 4u * 32u, b, a + ACT_BLOCK_WORDS);
        }
        let head = w[group + b * 32u];
        let s = B(f16_to_f32(head & 0xffffu) * digits_value(low, high));
        let m = B(f16_to_f32(head >> 16u) * sum_value(a, b));
        t = B(t + B(s + m));
    }
    return t;
}
