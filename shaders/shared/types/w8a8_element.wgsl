// An element of a row packed in W8A8.

const GROUP = 34u; // words of a group

fn row_words() -> u32 {
    return (p.dim + 127u) / 128u * GROUP;
}

fn element(row: u32, e: u32) -> f32 {
    return B(bitcast<f32>(w[row]) * signed_byte(row + (e >> 7u) * (GROUP * 32u), 2u, e & 127u));
}
