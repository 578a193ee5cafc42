//! `head_norms`: the `rms_norm` of each head of queries and of keys, where they lie beside the values of their token.

use crate::ops::params::{At, Params, params};
use crate::ops::rms_norm::{self, RmsNormParams};

params! {
    /// Parameters of `head_norms`.
    pub struct HeadNormsParams {
        /// tokens
        pub n_tokens: u32,
        /// heads of queries
        pub heads: u32,
        /// heads of keys, and of values
        pub kv_heads: u32,
        /// elements in a head
        pub dim: u32,
        /// f32(1 / dim), from the CPU
        pub inv_n: f32,
        /// added to the mean
        pub eps: f32,
    }
}

impl HeadNormsParams {
    /// The norm of one head.
    pub fn norm(&self) -> RmsNormParams {
        RmsNormParams { n_tokens: 1, dim: self.dim, inv_n: self.inv_n, eps: self.eps }
    }

    /// Words of a token: its queries, keys and values.
    pub fn width(&self) -> u32 {
        (self.heads + 2 * self.kv_heads) * self.dim
    }
}

impl Params for HeadNormsParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.heads + self.kv_heads, self.n_tokens]
    }
}

/// `w`: `[2][dim]`, of queries and of keys; `x`: `[token][heads + 2 kv_heads][dim]`, of which the values stay.
pub fn head_norms(p: &HeadNormsParams, w: &[f32], x: &mut [f32]) {
    for (i, head) in x[..(p.n_tokens * p.width()) as usize].chunks_exact_mut(p.dim as usize).enumerate() {
        if let Some(w) = weights(p, i, w) {
            one(p, w, head);
        }
    }
}

/// One head, in place.
pub fn one(p: &HeadNormsParams, w: &[f32], head: &mut [f32]) {
    let was = head.to_vec();
    rms_norm::row(&p.norm(), &was, w, head);
}

/// The weights of head `i` of all tokens' queries, keys and values; `None` of values.
pub fn weights<'a>(p: &HeadNormsParams, i: usize, w: &'a [f32]) -> Option<&'a [f32]> {
    let (heads, kv_heads, dim) = (p.heads as usize, p.kv_heads as usize, p.dim as usize);
    match i % (heads + 2 * kv_heads) {
        h if h < heads => Some(&w[..dim]),
        h if h < heads + kv_heads => Some(&w[dim..2 * dim]),
        _ => None,
    }
}
