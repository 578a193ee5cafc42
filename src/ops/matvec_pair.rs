//! `q4k_q6k_matvec` and `q5k_q6k_matvec`: rows of one type, then rows of another, times the same activations.
//!
//! The mixes llama.cpp writes keep some values matrices in Q6_K beside queries and keys in a smaller type.

use crate::blocks::BlockType;
use crate::blocks::pack::packed_words;
use crate::ops::linear::LinearParams;
use crate::ops::params::{At, Params, params};
use crate::ops::types::twins;

/// The pairs that have kernels, and what these are called.
pub const PAIRS: [(BlockType, BlockType, &str); 2] =
    [(BlockType::Q4_K, BlockType::Q6_K, "q4k_q6k_matvec"), (BlockType::Q5_K, BlockType::Q6_K, "q5k_q6k_matvec")];

/// The stem of a pair's kernel; `None` where there is none.
pub fn stem(first: BlockType, second: BlockType) -> Option<&'static str> {
    PAIRS.iter().find(|(a, b, _)| (*a, *b) == (first, second)).map(|(_, _, stem)| *stem)
}

params! {
    /// Parameters of every pair, in the order of the shaders' uniform struct.
    pub struct LinearPairParams {
        /// tokens (columns of the result)
        pub n_tokens: u32,
        /// elements of one row
        pub k: u32,
        /// rows of both types together
        pub rows: u32,
        /// digits of one activation: 1 (8 bits) or 2 (15 bits)
        pub digits: u32,
        /// words between two tokens in y
        pub y_stride: u32,
        /// where row 0 goes within a token's y
        pub y_offset: u32,
        /// 1: the result is added to what y holds, 0: it replaces it
        pub residual: u32,
        /// rows of the first type, a multiple of 32
        pub border: u32,
    }
}

impl Params for LinearPairParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.rows.div_ceil(32), self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        self.residual == 0
    }
}

impl LinearPairParams {
    /// The two linears, and the word at which the second one's weights begin.
    pub fn parts(&self, first: BlockType) -> (LinearParams, LinearParams, usize) {
        let part = |rows, y_offset| LinearParams {
            n_tokens: self.n_tokens,
            k: self.k,
            rows,
            digits: self.digits,
            y_stride: self.y_stride,
            y_offset,
            residual: self.residual,
        };
        (
            part(self.border, self.y_offset),
            part(self.rows - self.border, self.y_offset + self.border),
            packed_words(first, self.border as usize, self.k as usize),
        )
    }
}

/// `w` packed rows of both types; `act` blocks of `act_quantize`; `y` `[token]` rows `y_stride` apart.
pub fn matvec_pair(
    (first, second): (BlockType, BlockType),
    p: &LinearPairParams,
    w: &[u32],
    act: &[u32],
    y: &mut [f32],
) {
    let (a, b, at) = p.parts(first);
    (twins(first).matvec)(&a, &w[..at], act, y);
    (twins(second).matvec)(&b, &w[at..], act, y);
}
