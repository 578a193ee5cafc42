// Rows packed in Q8K128: words of a row, and the value of one group (docs/exactness.md section 4).
#import act_digits

const GROUP = 33u; // words of a group

fn row_words() -> u32 {
    return p.k / 128u * GROUP;
}

fn codes(row: u32, a: u32) -> i32 {
    var s = 0;
    for (var i = 0u; i < 32u; i++) {
        s += dot4I8Packed(w[row + (1u + i) * 32u], act[a + 1u + i]);
    }
    return s;
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    let block = row + g * (GROUP * 32u);
    let low = codes(block, a);
    var high = 0;
    if act_digits == 2u {
        high = codes(block, a + ACT_BLOCK_WORDS);
    }
    return B(bitcast<f32>(w[block]) * digits_value(low, high));
}
