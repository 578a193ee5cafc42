// Embedding lookup, f32 rows.
#import embed

fn row_words() -> u32 {
    return p.dim;
}

fn element(row: u32, e: u32) -> f32 {
    return bitcast<f32>(w[row + e * 32u]);
}
