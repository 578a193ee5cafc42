//! Rotary position embedding, in place, from a table made on the CPU.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `rope`.
    pub struct RopeParams {
        /// rows
        pub n_tokens: u32,
        /// heads in a row
        pub heads: u32,
        /// elements in a head
        pub head_dim: u32,
        /// rotated elements at the start of each head (even)
        pub n_rot: u32,
        /// 0: pairs (2i, 2i+1), as GGUF `llama` files; 1: pairs (i, i + n_rot/2), as Hugging Face files
        pub half_split: u32,
    }
}

impl Params for RopeParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [(self.heads * self.n_rot / 2).div_ceil(64), self.n_tokens]
    }
}

/// `table`: `[token][n_rot/2][cos, sin]`; `x`: `[token][heads][head_dim]`.
pub fn rope(p: &RopeParams, table: &[f32], x: &mut [f32]) {
    let (heads, hd, half) = (p.heads as usize, p.head_dim as usize, p.n_rot as usize / 2);
    for t in 0..p.n_tokens as usize {
        for h in 0..heads {
            let row = &mut x[(t * heads + h) * hd..][..hd];
            for i in 0..half {
                let (ia, ib) = if p.half_split == 1 { (i, i + half) } else { (2 * i, 2 * i + 1) };
                let (a, b) = (row[ia], row[ib]);
                let (c, s) = (table[(t * half + i) * 2], table[(t * half + i) * 2 + 1]);
                row[ia] = canon(a * c - b * s);
                row[ib] = canon(a * s + b * c);
            }
        }
    }
}
