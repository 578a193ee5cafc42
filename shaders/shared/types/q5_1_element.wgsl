// Q5_1 in the frame of embed: words of a row, and the value of one element (docs/exactness.md section 3).
#import five_bits_element

const GROUP = 24u; // words of a group

fn row_words() -> u32 {
    return (p.dim + 127u) / 128u * GROUP;
}

fn element(row: u32, e: u32) -> f32 {
    let group = row + (e >> 7u) * (GROUP * 32u);
    let b = (e & 127u) >> 5u;
    let q = five_bits(group, 4u, e & 127u);
    return B(B(f32(q) * half_at(group, b, 0u)) + half_at(group, b, 1u));
}
