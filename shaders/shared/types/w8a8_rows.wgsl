// Rows packed in W8A8, four at a time: d and b of the row in front of each group, then its 32 words of codes.

const GROUP = 34u; // words of a group

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn row_values(row: u32, sums: vec4<i32>, da: f32) -> vec4<f32> {
    let d = bitcast<vec4<f32>>(w[row]);
    return B4(B4(i2f4(sums + bitcast<vec4<i32>>(w[row + 8u])) * da) * d);
}
