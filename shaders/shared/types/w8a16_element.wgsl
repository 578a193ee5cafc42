// W8A16 in the frame of embed: words of a row, and the value of one element (docs/exactness.md section 3).

const GROUP = 37u; // words of a group

fn row_words() -> u32 {
    return (p.dim + 127u) / 128u * GROUP;
}

fn element(row: u32, e: u32) -> f32 {
    let group = row + (e >> 7u) * (GROUP * 32u);
    let b = (e & 127u) >> 5u;
    let q = B(signed_byte(group, 5u, e & 127u) - signed_byte(group, 4u, b));
    return B(q * bitcast<f32>(w[group + b * 32u]));
}
