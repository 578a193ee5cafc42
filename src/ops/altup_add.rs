//! One row added to each of the streams that no layer works on (`altup_predict`).

use crate::ops::altup_predict::OTHERS;
use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `altup_add`.
    pub struct AltupAddParams {
        /// tokens
        pub n_tokens: u32,
        /// elements of a stream
        pub dim: u32,
    }
}

impl Params for AltupAddParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [(OTHERS as u32 * self.dim).div_ceil(256), self.n_tokens]
    }
}

/// `y` `[token][dim]`, added to each of `others` `[token][3][dim]`.
pub fn altup_add(p: &AltupAddParams, y: &[f32], others: &mut [f32]) {
    let dim = p.dim as usize;
    for (i, x) in others[..p.n_tokens as usize * OTHERS * dim].iter_mut().enumerate() {
        *x = canon(*x + y[i / dim / OTHERS * dim + i % dim]);
    }
}
