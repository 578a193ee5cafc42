// Embedding lookup, bf16 rows.
#import embed

fn row_words() -> u32 {
    return (p.dim + 1u) / 2u;
}

fn element(row: u32, e: u32) -> f32 {
    return bitcast<f32>((w[row + (e >> 1u) * 32u] >> (16u * (e & 1u))) << 16u);
}
