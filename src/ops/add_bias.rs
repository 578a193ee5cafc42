//! Bias: y = y + b, the same b for every row.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `add_bias`.
    pub struct AddBiasParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
    }
}

impl Params for AddBiasParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }
}

/// `b`: `[dim]`; `y`: `[token][dim]`; the sum replaces y.
pub fn add_bias(p: &AddBiasParams, b: &[f32], y: &mut [f32]) {
    let dim = p.dim as usize;
    for i in 0..p.n_tokens as usize * dim {
        y[i] = canon(y[i] + b[i % dim]);
    }
}
