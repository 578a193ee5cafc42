//! `row_quantize`: f32 activations to blocks of one digit with one scale for all of a row (`docs/exactness.md` section 2):
//! what weights of W8A8 meet.
//!
//! The formulas are those of msModelSlim's W8A8 (input_scale and input_offset) and W8A8_DYNAMIC (a scale for each token).

use crate::ops::exact::{POISON, SCALE_MIN, amax, fdiv, nearest, not_finite};
use crate::ops::linear::{ACT_BLOCK_WORDS, GROUP, act_words, groups};
use crate::ops::params::{At, Params, params};

use super::act_quantize::put_block;

params! {
    /// Parameters of `row_quantize`, in the order of the shader's uniform struct.
    pub struct RowQuantizeParams {
        /// rows of x
        pub n_tokens: u32,
        /// elements of one row
        pub k: u32,
        /// the code of a row's greatest magnitude, 1 to 127; 0: the scale is fixed, and codes go from -128 to 127
        pub limit: u32,
        /// the fixed scale, at least 2^-40; 0 where there is none
        pub scale: f32,
        /// the fixed code of 0, of magnitude 2^15 at most; 0 where there is none
        pub offset: f32,
    }
}

impl Params for RowQuantizeParams {
    const FLOAT_STRIDE: Option<usize> = Some(ACT_BLOCK_WORDS);

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [1, self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

impl RowQuantizeParams {
    /// The scale that stands in the blocks of a row with this greatest magnitude: 1 where a fixed one is in the weights.
    /// Codes are 0 where it is 0 or not finite.
    #[inline(always)]
    pub fn row_scale(&self, amax: f32) -> f32 {
        if not_finite(amax) {
            return POISON;
        }
        if self.limit == 0 {
            return 1.0;
        }
        let d = fdiv(amax, self.limit as f32);
        if d < SCALE_MIN { 0.0 } else { d }
    }

    /// The least and the greatest code.
    #[inline(always)]
    pub fn codes(&self) -> (i32, i32) {
        if self.limit == 0 { (-128, 127) } else { (-(self.limit as i32), self.limit as i32) }
    }
}

/// `x` `[token][k]` to `act` `[token][group]` blocks of 37 words: d, 128 codes, eight sums of 16 codes; d is the same in all
/// blocks of a row. A row with an element that is not finite has the scale `POISON` and codes of 0.
pub fn row_quantize(p: &RowQuantizeParams, x: &[f32], act: &mut [u32]) {
    let k = p.k as usize;
    let (low, high) = p.codes();
    for token in 0..p.n_tokens as usize {
        let x = &x[token * k..][..k];
        let d = p.row_scale(amax(x));
        let divisor = if p.limit == 0 { p.scale } else { d };
        for g in 0..groups(k) {
            let mut codes = [0; GROUP];
            if d != 0.0 && !not_finite(d) {
                for (code, &x) in codes.iter_mut().zip(&x[g * GROUP..]) {
                    *code = nearest(fdiv(x, divisor) + p.offset).clamp(low, high);
                }
            }
            put_block(&mut act[token * act_words(k, 1) + g * ACT_BLOCK_WORDS..][..ACT_BLOCK_WORDS], d, &codes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(act: &[u32], n: usize) -> Vec<i32> {
        let byte = |e: usize| (act[37 * (e / 128) + 1 + e % 128 / 4] >> (8 * (e % 4))) as i8;
        (0..n).map(|e| i32::from(byte(e))).collect()
    }

    #[test]
    fn a_row_has_one_scale_and_halves_go_to_even() {
        let mut x = vec![0f32; 130];
        (x[0], x[1], x[2], x[129]) = (2.5, 3.5, -0.5, -127.0);
        let mut act = vec![u32::MAX; act_words(130, 1)];
        row_quantize(&RowQuantizeParams { n_tokens: 1, k: 130, limit: 127, scale: 0.0, offset: 0.0 }, &x, &mut act);
        assert_eq!((f32::from_bits(act[0]), f32::from_bits(act[37])), (1.0, 1.0));
        let codes = codes(&act, 256);
        assert_eq!((codes[0], codes[1], codes[2], codes[129], codes[130]), (2, 4, 0, -127, 0));
        assert_eq!((act[33] as u16) as i16, 6);
    }

    #[test]
    fn a_fixed_scale_shifts_and_saturates() {
        let x = [0.0, 0.25, -0.25, 1.0e9, -1.0e9, 3.0e18, -30.0, 1.125];
        let p = RowQuantizeParams { n_tokens: 1, k: 8, limit: 0, scale: 0.25, offset: -3.0 };
        let mut act = vec![u32::MAX; act_words(8, 1)];
        row_quantize(&p, &x, &mut act);
        assert_eq!(f32::from_bits(act[0]), 1.0);
        assert_eq!(codes(&act, 9), [-3, -2, -4, 127, -128, 127, -123, 2, 0]);
    }

    #[test]
    fn rows_of_nothing_and_rows_that_overflowed() {
        let p = RowQuantizeParams { n_tokens: 3, k: 2, limit: 7, scale: 0.0, offset: 0.0 };
        let mut act = vec![u32::MAX; 3 * act_words(2, 1)];
        row_quantize(&p, &[1e-12, 0.0, f32::NAN, 1.0, -2.0, 2.0], &mut act);
        assert_eq!((act[0], act[37], f32::from_bits(act[74])), (0, POISON.to_bits(), fdiv(2.0, 7.0)));
        assert!(act[1..37].iter().chain(&act[38..74]).all(|&w| w == 0));
        assert_eq!(codes(&act[74..], 2), [-7, 7]);
    }
}
