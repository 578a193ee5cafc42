// Q5_0 in the frame of embed: words of a row, and the value of one element (docs/exactness.md section 3).
#import five_bits_element

const GROUP = 22u; // words of a group

fn row_words() -> u32 {
    return (p.dim + 127u) / 128u * GROUP;
}

fn element(row: u32, e: u32) -> f32 {
    let group = row + (e >> 7u) * (GROUP * 32u);
    let q = five_bits(group, 2u, e & 127u);
    return B(f32(i32(q) - 16) * half_at(group, 0u, (e & 127u) >> 5u));
}
