//! `swiglu_quantize`: `swiglu`, then `act_quantize`, of gate and up values that lie in one buffer.

use crate::ops::act_quantize::{ActQuantizeParams, act_quantize};
use crate::ops::linear::ACT_BLOCK_WORDS;
use crate::ops::linear::act_words;
use crate::ops::params::{At, Params, params};
use crate::ops::swiglu::element;

params! {
    /// Parameters of `swiglu_quantize`, in the order of the shader's uniform struct.
    pub struct SwigluQuantizeParams {
        /// rows
        pub n_tokens: u32,
        /// gate values in a row, and up values after them
        pub dim: u32,
        /// digits of one activation: 1 or 2
        pub digits: u32,
    }
}

impl Params for SwigluQuantizeParams {
    const FLOAT_STRIDE: Option<usize> = Some(ACT_BLOCK_WORDS);

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(128), self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

impl SwigluQuantizeParams {
    /// What the quantisation of one row is given.
    pub fn quantize(&self) -> ActQuantizeParams {
        ActQuantizeParams { n_tokens: 1, k: self.dim, digits: self.digits }
    }
}

/// `gate_up` `[token][gate, up][dim]` to `act` `[token][group][digit]` blocks of 37 words.
pub fn swiglu_quantize(p: &SwigluQuantizeParams, gate_up: &[f32], act: &mut [u32]) {
    let (dim, words) = (p.dim as usize, act_words(p.dim as usize, p.digits as usize));
    let mut mid = vec![0f32; dim];
    for t in 0..p.n_tokens as usize {
        let (gate, up) = gate_up[2 * t * dim..][..2 * dim].split_at(dim);
        for i in 0..dim {
            mid[i] = element(gate[i], up[i]);
        }
        act_quantize(&p.quantize(), &mid, &mut act[t * words..][..words]);
    }
}
