//! Residual add: x = x + y.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `add`.
    pub struct AddParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
    }
}

impl Params for AddParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }
}

/// `y`, `x`: `[token][dim]`; the sum replaces x.
pub fn add(p: &AddParams, y: &[f32], x: &mut [f32]) {
    for i in 0..(p.n_tokens * p.dim) as usize {
        x[i] = canon(x[i] + y[i]);
    }
}
