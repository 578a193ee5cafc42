// Rows packed in Q4_1: words of a row, and the value of one group (docs/exactness.md section 4).
#import sum_value

const GROUP = 20u; // words of a group

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

// Sum of the codes of block b times the activations of the block at a.
fn block_sum(group: u32, b: u32, a: u32) -> i32 {
    var s = 0;
    for (var i = 0u; i < 4u; i++) {
        let q = w[group + (4u + 4u * b + i) * 32u];
        s += dot4I8Packed(q & 0x0f0f0f0fu, act[a + 1u + 8u * b + i]);
        s += dot4I8Packed((q >> 4u) & 0x0f0f0f0fu, act[a + 5u + 8u * b + i]);
    }
    return s;
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    let group = row + g * (GROUP * 32u);
    var t = B(0.0);
    for (var b = 0u; b < 4u; b++) {
        let low = block_sum(group, b, a);
        var high = 0;
        if p.digits == 2u {
            high = block_sum(group, b, a + ACT_BLOCK_WORDS);
        }
        let head = w[group + b * 32u];
        let s = B(f16_to_f32(head & 0xffffu) * digits_value(low, high));
        let m = B(f16_to_f32(head >> 16u) * sum_value(a, b));
        t = B(t + B(s + m));
    }
    return t;
}
