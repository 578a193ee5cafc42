//! `norm_quantize`: `rms_norm`, then `act_quantize`, without a buffer in between.

use crate::ops::act_quantize::{ActQuantizeParams, act_quantize};
use crate::ops::linear::ACT_BLOCK_WORDS;
use crate::ops::linear::act_words;
use crate::ops::params::{At, Params, params};
use crate::ops::rms_norm::{self, RmsNormParams};

params! {
    /// Parameters of `norm_quantize`, in the order of the shader's uniform struct.
    pub struct NormQuantizeParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
        /// f32(1 / dim), from the CPU
        pub inv_n: f32,
        /// added to the mean
        pub eps: f32,
        /// digits of one activation: 1 or 2
        pub digits: u32,
    }
}

impl Params for NormQuantizeParams {
    const FLOAT_STRIDE: Option<usize> = Some(ACT_BLOCK_WORDS);

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

impl NormQuantizeParams {
    /// What the norm of one row is given.
    pub fn norm(&self) -> RmsNormParams {
        RmsNormParams { n_tokens: 1, dim: self.dim, inv_n: self.inv_n, eps: self.eps }
    }

    /// What the quantisation of one row is given.
    pub fn quantize(&self) -> ActQuantizeParams {
        ActQuantizeParams { n_tokens: 1, k: self.dim, digits: self.digits }
    }
}

/// `x` `[token][dim]`, `w` `[dim]`, to `act` `[token][group][digit]` blocks of 37 words.
pub fn norm_quantize(p: &NormQuantizeParams, x: &[f32], w: &[f32], act: &mut [u32]) {
    let (dim, words) = (p.dim as usize, act_words(p.dim as usize, p.digits as usize));
    let mut normed = vec![0f32; dim];
    for t in 0..p.n_tokens as usize {
        rms_norm::row(&p.norm(), &x[t * dim..][..dim], w, &mut normed);
        act_quantize(&p.quantize(), &normed, &mut act[t * words..][..words]);
    }
}
