// Q4_1 in the frame of embed: words of a row, and the value of one element (docs/exactness.md section 3).

const GROUP = 20u; // words of a group

fn row_words() -> u32 {
    return (p.dim + 127u) / 128u * GROUP;
}

fn element(row: u32, e: u32) -> f32 {
    let group = row + (e >> 7u) * (GROUP * 32u);
    let b = (e & 127u) >> 5u;
    let q = (byte(group, 4u + 4u * b, e & 15u) >> (4u * ((e >> 4u) & 1u))) & 15u;
    return B(B(f32(q) * half_at(group, b, 0u)) + half_at(group, b, 1u));
}
