// Q8_0 in the frame of embed: words of a row, and the value of one element (docs/exactness.md section 3).

const GROUP = 34u; // words of a group

fn row_words() -> u32 {
    return (p.dim + 127u) / 128u * GROUP;
}

fn element(row: u32, e: u32) -> f32 {
    let group = row + (e >> 7u) * (GROUP * 32u);
    return B(signed_byte(group, 2u, e & 127u) * half_at(group, 0u, (e & 127u) >> 5u));
}
