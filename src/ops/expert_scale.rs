//! Scale of an expert's matrix, which the file has apart (NVFP4): y = s · y, s being that of the expert which the slot has
//! chosen.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `expert_scale`.
    pub struct ExpertScaleParams {
        /// pairs of token and slot: the command's rows are `Rows::Heads(used)`
        pub n_tokens: u32,
        /// elements that an expert gives
        pub dim: u32,
        /// words between two pairs in y
        pub y_stride: u32,
        /// where the elements begin within a pair's y
        pub y_offset: u32,
    }
}

impl Params for ExpertScaleParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }
}

/// `s` `[expert]`, `ids` `[pair]`, `y` `[pair]` rows `y_stride` apart.
pub fn expert_scale(p: &ExpertScaleParams, s: &[f32], ids: &[u32], y: &mut [f32]) {
    for pair in 0..p.n_tokens as usize {
        let s = s[ids[pair] as usize];
        for y in &mut y[pair * p.y_stride as usize + p.y_offset as usize..][..p.dim as usize] {
            *y = canon(s * *y);
        }
    }
}
