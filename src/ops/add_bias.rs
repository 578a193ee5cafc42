//! Bias: y = y + b, the same b for every row.

use crate::ops::exact::canon;

/// Parameters of `add_bias`.
#[derive(Clone, Copy, Debug, PartialEq, encase::ShaderType)]
pub struct AddBiasParams {
    /// rows
    pub n_tokens: u32,
    /// elements in a row
    pub dim: u32,
}

/// `b`: `[dim]`; `y`: `[token][dim]`; the sum replaces y.
pub fn add_bias(p: &AddBiasParams, b: &[f32], y: &mut [f32]) {
    let dim = p.dim as usize;
    for i in 0..p.n_tokens as usize * dim {
        y[i] = canon(y[i] + b[i % dim]);
    }
}
