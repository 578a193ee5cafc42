//! RMS norm. y = x / sqrt(mean(x²) + eps) · w, summed in 256 lanes (`docs/exactness.md` section 5).

use crate::ops::exact::{canon, fdiv, fsqrt, tree_sum};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `rms_norm`.
    pub struct RmsNormParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
        /// f32(1 / dim), from the CPU
        pub inv_n: f32,
        /// added to the mean
        pub eps: f32,
    }
}

impl Params for RmsNormParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [1, self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

/// `x`, `y`: `[token][dim]`; `w`: `[dim]`.
pub fn rms_norm(p: &RmsNormParams, x: &[f32], w: &[f32], y: &mut [f32]) {
    let dim = p.dim as usize;
    for t in 0..p.n_tokens as usize {
        row(p, &x[t * dim..][..dim], w, &mut y[t * dim..][..dim]);
    }
}

/// One row.
pub fn row(p: &RmsNormParams, x: &[f32], w: &[f32], y: &mut [f32]) {
    let mut lanes = [0f32; 256];
    for (i, v) in x.iter().enumerate() {
        lanes[i % 256] += v * v;
    }
    let mean = tree_sum(&mut lanes) * p.inv_n;
    let s = fdiv(1.0, fsqrt(mean + p.eps));
    for i in 0..x.len() {
        y[i] = canon((x[i] * s) * w[i]);
    }
}
