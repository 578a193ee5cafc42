//! `*_expert`: a linear whose matrix is that of the expert which a token's slot has chosen.
//!
//! The dot of a row and a token is that of `*_matvec`, whatever is grouped with it.

use crate::blocks::BlockType;
use crate::blocks::pack::packed_words;
use crate::ops::linear::{LinearParams, act_words};
use crate::ops::params::{At, Params, params};
use crate::ops::types::twins;

params! {
    /// Parameters of every `*_expert`, in the order of the shaders' uniform struct.
    pub struct ExpertLinearParams {
        /// pairs of token and slot: the command's rows are `Rows::Heads(used)`
        pub n_tokens: u32,
        /// elements of one row
        pub k: u32,
        /// rows of one expert
        pub rows: u32,
        /// digits of one activation: 1 (8 bits) or 2 (15 bits); 1 for float weights
        pub digits: u32,
        /// words between two pairs in y
        pub y_stride: u32,
        /// where row 0 goes within a pair's y
        pub y_offset: u32,
        /// slots of a token
        pub used: u32,
        /// pairs that meet the same row of activations: `used` where a token has one for all its slots, 1 where every pair
        /// has its own
        pub share: u32,
        /// experts of the model
        pub experts: u32,
        /// first expert in this weight buffer
        pub expert0: u32,
        /// experts in this weight buffer; pairs of others are left as they are
        pub held: u32,
    }
}

impl Params for ExpertLinearParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.rows.div_ceil(32) * self.used, self.n_tokens / self.used]
    }

    fn replaces(&self, _output: usize) -> bool {
        self.held == self.experts && self.y_stride == self.rows
    }
}

impl ExpertLinearParams {
    /// Words of one expert's packed rows, which begin at a block of 32 rows.
    pub fn expert_words(&self, t: BlockType) -> usize {
        packed_words(t, self.rows as usize, self.k as usize)
    }

    /// Words of a row of activations.
    pub fn act_row_words(&self, t: BlockType) -> usize {
        if t.is_float() { self.k as usize } else { act_words(self.k as usize, self.digits as usize) }
    }

    /// The linear of one expert and `n` pairs.
    pub fn linear(&self, n: u32) -> LinearParams {
        LinearParams {
            n_tokens: n,
            k: self.k,
            rows: self.rows,
            digits: self.digits,
            y_stride: self.y_stride,
            y_offset: self.y_offset,
            residual: 0,
        }
    }

    /// The expert's place in this weight buffer; `None`: it is in another.
    pub fn place(&self, id: u32) -> Option<usize> {
        id.checked_sub(self.expert0).filter(|&at| at < self.held).map(|at| at as usize)
    }
}

/// `w` packed rows, expert after expert, each from a block of 32 rows on; `act` `[row of activations]` blocks, or f32 where
/// the type is a float; `ids` `[pair]`; `y` `[pair]` rows `y_stride` apart.
pub fn expert_linear(t: BlockType, p: &ExpertLinearParams, w: &[u32], act: &[u32], ids: &[u32], y: &mut [f32]) {
    let (words, row) = (p.expert_words(t), p.act_row_words(t));
    for pair in 0..p.n_tokens as usize {
        if let Some(at) = p.place(ids[pair]) {
            let act = &act[pair / p.share as usize * row..][..row];
            (twins(t).matvec)(&p.linear(1), &w[at * words..][..words], act, &mut y[pair * p.y_stride as usize..]);
        }
    }
}
