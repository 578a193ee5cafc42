//! What the experts of a token gave, times their weights, added up.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `expert_combine`.
    pub struct ExpertCombineParams {
        /// tokens
        pub n_tokens: u32,
        /// elements of one result
        pub dim: u32,
        /// slots of a token
        pub used: u32,
        /// 1: the sum is added to what x holds (the residual stream), 0: it replaces it
        pub residual: u32,
    }
}

impl Params for ExpertCombineParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        self.residual == 0
    }
}

/// `y` `[token][slot][dim]`, `weights` `[token][slot]`, `x` `[token][dim]`.
pub fn expert_combine(p: &ExpertCombineParams, y: &[f32], weights: &[f32], x: &mut [f32]) {
    let (dim, used) = (p.dim as usize, p.used as usize);
    for t in 0..p.n_tokens as usize {
        row(p, &y[t * used * dim..], &weights[t * used..], &mut x[t * dim..][..dim], 0);
    }
}

/// Elements of one token from `first` on: `y` `[slot][dim]`, `weights` `[slot]`, `x` those elements.
pub fn row(p: &ExpertCombineParams, y: &[f32], weights: &[f32], x: &mut [f32], first: usize) {
    for (i, x) in (first..).zip(x) {
        let mut acc = 0.0;
        for s in 0..p.used as usize {
            acc += weights[s] * y[s * p.dim as usize + i];
        }
        *x = if p.residual == 1 { canon(*x + canon(acc)) } else { canon(acc) };
    }
}
