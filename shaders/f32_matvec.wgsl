// y = W x, W in f32.
#import matvec_float

fn row_words() -> u32 {
    return p.k;
}

fn weight(row: u32, e: u32) -> f32 {
    return bitcast<f32>(w[row + e * 32u]);
}
