// y = W x, W in bf16, two elements a word.
#import matvec_float

fn row_words() -> u32 {
    return (p.k + 1u) / 2u;
}

fn weight(row: u32, e: u32) -> f32 {
    return bitcast<f32>((w[row + (e >> 1u) * 32u] >> (16u * (e & 1u))) << 16u);
}
