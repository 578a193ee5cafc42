//! The k best of a row of logits, best first: greatest logit first, then lowest id.
//!
//! Nothing is computed but comparisons of integers. Two commands make a selection: the k best of each slice of the
//! vocabulary, and the k best of those lists. An entry is a pair of words, the logit's bits and its id.

use crate::ops::params::{At, Params, params};

/// Logits of a row that one list is made of.
pub const SLICE: u32 = 4096;

/// Entries of a list, at most.
pub const K_MAX: u32 = 128;

/// The id of an entry that stands for nothing: a list holds k entries even where there are fewer logits.
pub const ABSENT: u32 = u32::MAX;

/// Words of an entry.
pub const PAIR: usize = 2;

params! {
    /// Parameters of `top_k`.
    pub struct TopKParams {
        /// rows
        pub n_tokens: u32,
        /// logits, or entries, in a row of x
        pub n: u32,
        /// entries of a list: a power of two, at most [`K_MAX`]
        pub k: u32,
        /// logits, or entries, that one list of y is made of; entries in whole lists
        pub slice: u32,
        /// 0: x holds logits; else it holds so many lists of k entries in a row, each as this operation makes them
        pub lists: u32,
    }
}

impl Params for TopKParams {
    const FLOAT_STRIDE: Option<usize> = None;

    fn at(self, step: &At) -> Option<Self> {
        if step.select == 0 {
            return None;
        }
        let p = Self { n_tokens: step.n, k: step.select, ..self };
        // a list of lists, each of k entries
        let n = p.lists * p.k;
        Some(if p.lists > 0 { Self { n, slice: n, ..p } } else { p })
    }

    fn groups(&self) -> [u32; 2] {
        [self.n.div_ceil(self.slice), self.n_tokens]
    }
}

/// What entries are ordered by, the greatest first: finite logits in their order, both zeros alike; above them all that
/// is not finite, so that it is seen; below them what stands for nothing.
#[inline(always)]
pub fn key(bits: u32, id: u32) -> u32 {
    if id == ABSENT { 0 } else { logit_key(bits) }
}

/// [`key`] of a logit that is there.
#[inline(always)]
pub fn logit_key(bits: u32) -> u32 {
    // without branches, so that many can be looked at together
    let ordered = bits ^ ((bits as i32 >> 31) as u32 | 0x8000_0000);
    let ordered = if bits == 0x8000_0000 { 0x8000_0000 } else { ordered };
    if bits & 0x7f80_0000 == 0x7f80_0000 { u32::MAX } else { ordered }
}

/// `x`: `[row][n]` logits, or `[row][n]` entries; `y`: `[row][ceil(n / slice)][k]` entries.
pub fn top_k(p: &TopKParams, x: &[u32], y: &mut [u32]) {
    let (n, k, slice) = (p.n as usize, p.k as usize, p.slice as usize);
    let entry = |row: usize, i: usize| match p.lists {
        0 => [x[row * n + i], i as u32],
        _ => [x[(row * n + i) * PAIR], x[(row * n + i) * PAIR + 1]],
    };
    let lists = n.div_ceil(slice);
    for (i, list) in y[..p.n_tokens as usize * lists * k * PAIR].chunks_exact_mut(k * PAIR).enumerate() {
        let (row, first) = (i / lists, i % lists * slice);
        let mut entries: Vec<[u32; PAIR]> = (first..n.min(first + slice)).map(|i| entry(row, i)).collect();
        entries.sort_by_key(|&[bits, id]| (std::cmp::Reverse(key(bits, id)), id));
        entries.resize(k, [0, ABSENT]);
        list.copy_from_slice(entries.as_flattened());
    }
}
