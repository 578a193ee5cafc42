//! Embedding lookup: one row of a packed matrix, decoded to f32, per token id.

use crate::blocks::pack::words_per_row;
use crate::ops::exact::canon;
use crate::ops::packed::{Row, Weight};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of every `embed_*`.
    pub struct EmbedParams {
        /// token ids
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
        /// vocabulary id of row 0 of this part
        pub row0: u32,
        /// rows in this part; ids outside `row0..row0 + rows` are left alone
        pub rows: u32,
    }
}

impl Params for EmbedParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }
}

/// `embed_*`. `ids`: `[token]`; `w`: packed rows (`docs/exactness.md` section 3); `x`: `[token][dim]`.
pub fn rows<T: Weight>(p: &EmbedParams, ids: &[u32], w: &[u32], x: &mut [f32]) {
    let dim = p.dim as usize;
    for (i, &id) in ids[..p.n_tokens as usize].iter().enumerate() {
        let row = id.wrapping_sub(p.row0);
        if row >= p.rows {
            continue;
        }
        let row = Row::new(w, words_per_row(T::TYPE, dim), row as usize);
        for e in 0..dim {
            x[i * dim + e] = canon(T::element(&row, e));
        }
    }
}
