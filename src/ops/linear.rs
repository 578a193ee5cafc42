//! What the linear twins share: their parameters, the walk over rows, tokens, segments and groups
//! (`docs/exactness.md` section 4), and the view of one activation group.
//!
//! Not optimised: this and the files of `types` are the text to read. Speed lives in `simd`.

use crate::blocks::pack::words_per_row;
use crate::ops::exact::{canon, i2f};
use crate::ops::params::{At, Params, params};
use crate::ops::types::{Quantised, Weight};

/// Elements of one activation block, and of one step of the sum over k.
pub const GROUP: usize = 128;

/// Rows lying side by side in packed weights.
pub const ROW_BLOCK: usize = 32;

/// Words of one activation block: d, 128 codes of int8, eight int16 sums of 16 codes.
pub const ACT_BLOCK_WORDS: usize = 37;

/// The word of an activation block that the sums of sixteenths begin at, two a word.
pub const ACT_SUMS: usize = 33;

params! {
    /// Parameters of every `*_matvec`, in the order of the shaders' uniform struct.
    pub struct LinearParams {
        /// tokens (columns of the result)
        pub n_tokens: u32,
        /// elements of one row
        pub k: u32,
        /// rows in this weight buffer
        pub rows: u32,
        /// digits of one activation: 1 (8 bits) or 2 (15 bits); 1 for float weights
        pub digits: u32,
        /// words between two tokens in y
        pub y_stride: u32,
        /// where row 0 of this part goes within a token's y
        pub y_offset: u32,
        /// 1: the result is added to what y holds (the residual stream), 0: it replaces it
        pub residual: u32,
    }
}

impl Params for LinearParams {
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

impl LinearParams {
    /// What a row's y becomes, with `total` the sum over its segments and `old` what y holds.
    pub fn store(&self, old: f32, total: f32) -> f32 {
        match self.residual {
            0 => canon(total),
            _ => canon(old + canon(total)),
        }
    }
}

/// Groups of 128 in a row of `k` elements, the last one perhaps short.
pub const fn groups(k: usize) -> usize {
    k.div_ceil(GROUP)
}

/// Groups in one segment of the sum over `k`: at most eight segments, a function of `k` alone.
pub const fn seg_groups(k: usize) -> usize {
    groups(k).div_ceil(8)
}

/// Words of one token's quantised activations.
pub const fn act_words(k: usize, digits: usize) -> usize {
    groups(k) * digits * ACT_BLOCK_WORDS
}

/// One row of a packed matrix: word i of row r is `w[((r/32) * words_per_row + i) * 32 + r%32]`.
pub struct Row<'a> {
    w: &'a [u32],
    words_per_row: usize,
    row: usize,
}

impl<'a> Row<'a> {
    /// Row `row` of a matrix of packed rows.
    pub fn new(w: &'a [u32], words_per_row: usize, row: usize) -> Row<'a> {
        Row { w, words_per_row, row }
    }

    /// Word `i` of this row.
    pub fn word(&self, i: usize) -> u32 {
        self.w[(self.row / ROW_BLOCK * self.words_per_row + i) * ROW_BLOCK + self.row % ROW_BLOCK]
    }

    /// Byte `i` of this row, counted from word 0.
    pub fn byte(&self, i: usize) -> u8 {
        (self.word(i / 4) >> (8 * (i % 4))) as u8
    }

    /// The 16-bit half `i` of this row, counted from word 0, low half first.
    pub fn half(&self, i: usize) -> u16 {
        (self.word(i / 2) >> (16 * (i % 2))) as u16
    }
}

/// The activation blocks of one token and one group: one per digit, the low digit first.
pub struct ActGroup<'a> {
    blocks: &'a [u32],
    digits: usize,
}

impl ActGroup<'_> {
    /// The scale, the same for every digit.
    pub fn d(&self) -> f32 {
        f32::from_bits(self.blocks[0])
    }

    /// Code of element `e` of the group.
    pub fn code(&self, digit: usize, e: usize) -> i32 {
        (self.blocks[digit * ACT_BLOCK_WORDS + 1 + e / 4] >> (8 * (e % 4))) as u8 as i8 as i32
    }

    /// Sum of the codes of sixteenth `i` (elements 16i..16i+16).
    pub fn sum16(&self, digit: usize, i: usize) -> i32 {
        (self.blocks[digit * ACT_BLOCK_WORDS + ACT_SUMS + i / 2] >> (16 * (i % 2))) as u16 as i16 as i32
    }

    /// Sum of the codes of quarter `b` (elements 32b..32b+32).
    pub fn sum32(&self, digit: usize, b: usize) -> i32 {
        self.sum16(digit, 2 * b) + self.sum16(digit, 2 * b + 1)
    }

    /// v(S): the value of an integer sum given for each digit.
    pub fn value(&self, sum: impl Fn(usize) -> i32) -> f32 {
        match self.digits {
            1 => i2f(sum(0)),
            _ => i2f(sum(1)) * 128.0 + i2f(sum(0)),
        }
    }
}

/// `*_matvec` of quantised weights: y = W x.
///
/// `w` packed rows, `act` `[token][group][digit]` blocks of 37 words, `y` `[token]` rows `y_stride` apart.
pub fn quantised<T: Quantised>(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    let (k, digits) = (p.k as usize, p.digits as usize);
    assert!(digits == 1 || digits == 2, "digits is {digits}, expected 1 or 2");
    for token in 0..p.n_tokens as usize {
        for row in 0..p.rows as usize {
            let r = Row::new(w, words_per_row(T::TYPE, k), row);
            let mut total = 0.0;
            let mut first = 0;
            while first < groups(k) {
                let mut acc = 0.0;
                for g in first..groups(k).min(first + seg_groups(k)) {
                    let at = token * act_words(k, digits) + g * digits * ACT_BLOCK_WORDS;
                    let a = ActGroup { blocks: &act[at..at + digits * ACT_BLOCK_WORDS], digits };
                    acc += a.d() * T::group(&r, g, &a);
                }
                total += acc;
                first += seg_groups(k);
            }
            let y = &mut y[token * p.y_stride as usize + p.y_offset as usize + row];
            *y = p.store(*y, total);
        }
    }
}

/// `*_matvec` of float weights: y = W x.
///
/// `w` packed rows, `x` `[token][k]` bits of f32, `y` `[token]` rows `y_stride` apart.
pub fn floats<T: Weight>(p: &LinearParams, w: &[u32], x: &[u32], y: &mut [f32]) {
    let k = p.k as usize;
    for token in 0..p.n_tokens as usize {
        for row in 0..p.rows as usize {
            let r = Row::new(w, words_per_row(T::TYPE, k), row);
            let mut total = 0.0;
            let mut first = 0;
            while first < k {
                let mut acc = 0.0;
                for i in first..k.min(first + seg_groups(k) * GROUP) {
                    acc += T::element(&r, i) * f32::from_bits(x[token * k + i]);
                }
                total += acc;
                first += seg_groups(k) * GROUP;
            }
            let y = &mut y[token * p.y_stride as usize + p.y_offset as usize + row];
            *y = p.store(*y, total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_cut_into_at_most_eight_segments() {
        for (k, g, s) in [(1, 1, 1), (128, 1, 1), (129, 2, 1), (1024, 8, 1), (1025, 9, 2), (2304, 18, 3), (5632, 44, 6)]
        {
            assert_eq!((groups(k), seg_groups(k)), (g, s), "{k}");
            assert!(groups(k).div_ceil(seg_groups(k)) <= 8);
        }
        assert_eq!(act_words(160, 2), 2 * 2 * 37);
    }
}
