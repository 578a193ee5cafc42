// Q8K128 in the frame of embed: words of a row, and the value of one element (docs/exactness.md section 3).

const GROUP = 33u; // words of a group

fn row_words() -> u32 {
    return p.dim / 128u * GROUP;
}

fn element(row: u32, e: u32) -> f32 {
    let block = row + (e >> 7u) * (GROUP * 32u);
    return B(bitcast<f32>(w[block]) * signed_byte(block, 1u, e & 127u));
}
