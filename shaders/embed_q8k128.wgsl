// Embedding lookup, Q8K128 rows.
#import embed

fn row_words() -> u32 {
    return p.dim / 128u * 33u;
}

fn element(row: u32, e: u32) -> f32 {
    let block = row + (e >> 7u) * (33u * 32u);
    return B(bitcast<f32>(w[block]) * signed_byte(block, 1u, e & 127u));
}
