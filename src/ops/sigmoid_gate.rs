//! y = y · sigmoid(g), with a gate for each element or one for a row.

use crate::ops::exact::{canon, sigmoid};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `sigmoid_gate`.
    pub struct SigmoidGateParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
        /// gates of a row: `dim`, or 1 for the whole row
        pub gates: u32,
    }
}

impl Params for SigmoidGateParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }
}

/// `g` `[token][gates]`, `y` `[token][dim]`.
pub fn sigmoid_gate(p: &SigmoidGateParams, g: &[f32], y: &mut [f32]) {
    let (dim, gates) = (p.dim as usize, p.gates as usize);
    for t in 0..p.n_tokens as usize {
        for i in 0..dim {
            let y = &mut y[t * dim + i];
            *y = canon(*y * sigmoid(g[t * gates + if gates == 1 { 0 } else { i }]));
        }
    }
}
