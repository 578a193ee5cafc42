// Embedding lookup, f16 rows.
#import embed

fn row_words() -> u32 {
    return (p.dim + 1u) / 2u;
}

fn element(row: u32, e: u32) -> f32 {
    return half_at(row, 0u, e);
}
