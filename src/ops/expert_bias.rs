//! Bias of an expert's linear: y = y + b, b being that of the expert which the slot has chosen.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `expert_bias`.
    pub struct ExpertBiasParams {
        /// pairs of token and slot: the command's rows are `Rows::Heads(used)`
        pub n_tokens: u32,
        /// elements of one expert's bias
        pub dim: u32,
        /// words between two pairs in y
        pub y_stride: u32,
        /// where the elements begin within a pair's y
        pub y_offset: u32,
    }
}

impl Params for ExpertBiasParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }
}

/// `b` `[expert][dim]`, `ids` `[pair]`, `y` `[pair]` rows `y_stride` apart.
pub fn expert_bias(p: &ExpertBiasParams, b: &[f32], ids: &[u32], y: &mut [f32]) {
    let dim = p.dim as usize;
    for pair in 0..p.n_tokens as usize {
        let b = &b[ids[pair] as usize * dim..][..dim];
        let y = &mut y[pair * p.y_stride as usize + p.y_offset as usize..][..dim];
        for (y, b) in y.iter_mut().zip(b) {
            *y = canon(*y + b);
        }
    }
}
