// Embedding lookup, Q5_0 rows.
#import embed
#import embed_five_bits

fn row_words() -> u32 {
    return (p.dim + 127u) / 128u * 22u;
}

fn element(row: u32, e: u32) -> f32 {
    let group = row + (e >> 7u) * (22u * 32u);
    let q = five_bits(group, 2u, e & 127u);
    return B(f32(i32(q) - 16) * half_at(group, 0u, (e & 127u) >> 5u));
}
