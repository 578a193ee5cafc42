//! `act_quantize`: f32 activations to Q8K128 blocks of one or two digits (`docs/exactness.md` section 2).

use crate::ops::exact::{SCALE_MIN, amax, fdiv, not_finite, round_away};
use crate::ops::linear::{ACT_BLOCK_WORDS, GROUP, act_words, groups};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `act_quantize`, in the order of the shader's uniform struct.
    pub struct ActQuantizeParams {
        /// rows of x
        pub n_tokens: u32,
        /// elements of one row
        pub k: u32,
        /// digits of one activation: 1 (codes of 8 bits) or 2 (15 bits)
        pub digits: u32,
    }
}

impl Params for ActQuantizeParams {
    const FLOAT_STRIDE: Option<usize> = Some(ACT_BLOCK_WORDS);

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.k.div_ceil(128), self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

/// `x` `[token][k]` to `act` `[token][group][digit]` blocks of 37 words: d, 128 codes, eight sums of 16 codes. A group with
/// an element that is not finite has the scale `POISON` and codes of 0.
pub fn act_quantize(p: &ActQuantizeParams, x: &[f32], act: &mut [u32]) {
    let (k, digits) = (p.k as usize, p.digits as usize);
    assert!(digits == 1 || digits == 2, "digits is {digits}, expected 1 or 2");
    let limit = if digits == 1 { 127 } else { 127 * 128 };
    for token in 0..p.n_tokens as usize {
        for g in 0..groups(k) {
            let len = GROUP.min(k - g * GROUP);
            let x = &x[token * k + g * GROUP..][..len];
            let mut d = fdiv(amax(x), limit as f32);
            let mut codes = [0i32; GROUP];
            if d < SCALE_MIN {
                d = 0.0;
            } else if !not_finite(d) {
                let inv = fdiv(1.0, d);
                for i in 0..len {
                    codes[i] = round_away(x[i] * inv).clamp(-limit, limit);
                }
            }

            let at = token * act_words(k, digits) + g * digits * ACT_BLOCK_WORDS;
            if digits == 1 {
                put_block(&mut act[at..at + ACT_BLOCK_WORDS], d, &codes);
            } else {
                let high = codes.map(|c| (c + 64) >> 7);
                let mut low = codes;
                for i in 0..GROUP {
                    low[i] -= 128 * high[i];
                }
                put_block(&mut act[at..at + ACT_BLOCK_WORDS], d, &low);
                put_block(&mut act[at + ACT_BLOCK_WORDS..at + 2 * ACT_BLOCK_WORDS], d, &high);
            }
        }
    }
}

/// One block: d, then codes four to a word, then sums of 16 two to a word.
pub(super) fn put_block(block: &mut [u32], d: f32, codes: &[i32; GROUP]) {
    block[0] = d.to_bits();
    for i in 0..32 {
        let mut word = 0;
        for j in 0..4 {
            word |= (codes[4 * i + j] as u8 as u32) << (8 * j);
        }
        block[1 + i] = word;
    }
    for i in 0..4 {
        let mut word = 0;
        for j in 0..2 {
            let sum: i32 = codes[32 * i + 16 * j..][..16].iter().sum();
            word |= (sum as u16 as u32) << (16 * j);
        }
        block[33 + i] = word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(act: &[u32], e: usize) -> i32 {
        (act[1 + e / 4] >> (8 * (e % 4))) as u8 as i8 as i32
    }

    #[test]
    fn the_largest_element_maps_to_127_and_the_short_group_is_zero_filled() {
        let x: Vec<f32> = (0..130).map(|i| if i == 7 { -254.0 } else { i as f32 }).collect();
        let mut act = vec![u32::MAX; act_words(130, 1)];
        act_quantize(&ActQuantizeParams { n_tokens: 1, k: 130, digits: 1 }, &x, &mut act);
        assert_eq!(f32::from_bits(act[0]), 2.0);
        assert_eq!(code(&act, 7), -127);
        assert_eq!(code(&act, 5), 3, "2.5 rounds away from zero");
        let sum: i32 = (0..16).map(|e| code(&act, e)).sum();
        assert_eq!((act[33] as u16) as i16 as i32, sum);
        let second = &act[37..];
        assert_eq!((code(second, 0), code(second, 1), code(second, 2)), (126, 127, 0));
        assert!(second[2..33].iter().all(|&w| w == 0));
    }

    #[test]
    fn two_digits_join_to_the_code_of_15_bits() {
        let x: Vec<f32> = (0..128).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
        let mut act = vec![0; act_words(128, 2)];
        act_quantize(&ActQuantizeParams { n_tokens: 1, k: 128, digits: 2 }, &x, &mut act);
        let d = f32::from_bits(act[0]);
        assert_eq!(act[0], act[37]);
        for e in 0..128 {
            let (l, h) = (code(&act, e), code(&act[37..], e));
            assert!((-64..=63).contains(&l));
            assert!(((h * 128 + l) as f32 * d - x[e]).abs() <= 0.51 * d, "{e}");
        }
    }

    #[test]
    fn a_group_of_tiny_values_becomes_zero() {
        let mut act = vec![u32::MAX; act_words(128, 2)];
        act_quantize(&ActQuantizeParams { n_tokens: 1, k: 128, digits: 2 }, &[2f32.powi(-30); 128], &mut act);
        assert!(act.iter().all(|&w| w == 0));
    }
}
