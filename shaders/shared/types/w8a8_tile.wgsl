// Rows packed in W8A8, four at a time: d and b of the row in front of each group, then its 32 words of codes.

const GROUP = 34u; // words of a group

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn add_group(row: u32, g: u32) {
    let codes = row + (g * GROUP + 2u) * 8u;
    for (var i = 0u; i < 32u; i++) {
        let c = w[codes + i * 8u];
        for (var t = 0u; t < T; t++) {
            sum[t] += dots(c, act_word(act_at(t, g) + 1u + i));
        }
    }
}

fn row_values(row: u32, sums: vec4<i32>, da: f32) -> vec4<f32> {
    let d = bitcast<vec4<f32>>(w[row]);
    return B4(B4(i2f4(sums + bitcast<vec4<i32>>(w[row + 8u])) * da) * d);
}
