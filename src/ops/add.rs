//! Residual add: x = x + y.

use crate::ops::exact::canon;

/// Parameters of `add`.
#[derive(Clone, Copy, Debug, PartialEq, encase::ShaderType)]
pub struct AddParams {
    /// rows
    pub n_tokens: u32,
    /// elements in a row
    pub dim: u32,
}

/// `y`, `x`: `[token][dim]`; the sum replaces x.
pub fn add(p: &AddParams, y: &[f32], x: &mut [f32]) {
    for i in 0..(p.n_tokens * p.dim) as usize {
        x[i] = canon(x[i] + y[i]);
    }
}
