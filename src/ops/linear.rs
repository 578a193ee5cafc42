//! What the linear twins share: their parameters, the walk over rows, tokens, segments and groups
//! (`docs/exactness.md` section 4), and the view of one activation group.
//!
//! Not optimised: this and the files of `types` are the text to read. Speed lives in `simd`.

use crate::blocks::pack::words_per_row;
use crate::ops::exact::canon;
pub use crate::ops::packed::*;
use crate::ops::params::{At, Params, params};

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

/// `*_matvec` of quantised weights: y = W x.
///
/// `w` packed rows, `act` `[token][group][digit]` blocks of 37 words, `y` `[token]` rows `y_stride` apart.
pub fn quantised<T: Quantised>(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    let (k, digits) = (p.k as usize, p.digits as usize);
    assert!(digits == 1 || digits == 2, "digits is {digits}, expected 1 or 2");
    let (n, mut words) = (words_per_row(T::TYPE, k), Vec::new());
    for row in 0..p.rows as usize {
        let r = Row::new(w, n, row).gathered(n, &mut words);
        for token in 0..p.n_tokens as usize {
            let mut total = 0.0;
            let mut first = 0;
            while first < groups(k) {
                let mut acc = 0.0;
                for g in first..groups(k).min(first + seg_groups(k)) {
                    let a = ActGroup::new(act, (token, g), k, digits);
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
    let (n, mut words) = (words_per_row(T::TYPE, k), Vec::new());
    for row in 0..p.rows as usize {
        let r = Row::new(w, n, row).gathered(n, &mut words);
        for token in 0..p.n_tokens as usize {
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
