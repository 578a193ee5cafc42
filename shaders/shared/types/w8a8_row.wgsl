// Rows packed in W8A8: d and b of the row in front of each group, then its 32 words of codes (docs/exactness.md section 4).

const GROUP = 34u; // words of a group

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn group_sum(row: u32, g: u32, a: u32) -> i32 {
    let codes = row + (g * GROUP + 2u) * 32u;
    var s = 0;
    for (var i = 0u; i < 32u; i++) {
        s += dot4I8Packed(w[codes + i * 32u], act[a + 1u + i]);
    }
    return s;
}

fn row_value(row: u32, sum: i32, da: f32) -> f32 {
    return B(B(i2f(sum + bitcast<i32>(w[row + 32u])) * da) * bitcast<f32>(w[row]));
}
