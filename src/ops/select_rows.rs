//! Copies the rows whose logits are wanted.

use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `select_rows`.
    pub struct SelectRowsParams {
        /// rows copied
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
        /// first row copied
        pub first: u32,
    }
}

impl Params for SelectRowsParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, first: step.out_first, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

/// `x`: `[token][dim]`; `y`: `[row][dim]`, row r being token `first + r`.
pub fn select_rows(p: &SelectRowsParams, x: &[f32], y: &mut [f32]) {
    let n = (p.n_tokens * p.dim) as usize;
    y[..n].copy_from_slice(&x[(p.first * p.dim) as usize..][..n]);
}
