//! What attention starts from in a layer with sinks: for every query head a score of its own, which takes its share of the
//! weights and adds no value. Left in the state that is carried from page to page, as a chunk with that maximum, the sum 1 and
//! values of 0 would be.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `attention_sinks`.
    pub struct AttentionSinksParams {
        /// query rows
        pub n_tokens: u32,
        /// query heads
        pub heads: u32,
        /// elements in a head
        pub head_dim: u32,
    }
}

impl Params for AttentionSinksParams {
    /// what attention carries
    const FLOAT_STRIDE: Option<usize> = None;

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [(self.heads * (self.head_dim + 2)).div_ceil(256), self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

/// `sinks`: `[heads]`; `state`: `[token][heads][m, l, o[head_dim]]`.
pub fn attention_sinks(p: &AttentionSinksParams, sinks: &[f32], state: &mut [f32]) {
    let (heads, words) = (p.heads as usize, p.head_dim as usize + 2);
    for (row, state) in state.chunks_exact_mut(words).take(p.n_tokens as usize * heads).enumerate() {
        state.fill(0.0);
        (state[0], state[1]) = (canon(sinks[row % heads]), 1.0);
    }
}
