//! SwiGLU: y = silu(gate) · up.

use crate::ops::exact::{canon, sigmoid};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `swiglu`.
    pub struct SwigluParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
    }
}

impl Params for SwigluParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

/// `gate`, `up`, `y`: `[token][dim]`.
pub fn swiglu(p: &SwigluParams, gate: &[f32], up: &[f32], y: &mut [f32]) {
    for i in 0..(p.n_tokens * p.dim) as usize {
        y[i] = element(gate[i], up[i]);
    }
}

/// One element.
#[inline(always)]
pub fn element(g: f32, u: f32) -> f32 {
    canon((g * sigmoid(g)) * u)
}
