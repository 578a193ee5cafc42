//! `q5_1_matvec`: y = W x with Q5_1 weights, four blocks of 32 to a group.

use crate::ops::exact::f16_to_f32;
use crate::ops::linear::{LinearParams, groups, quantised};
use crate::ops::q5_0_matvec::block_sum;

/// Words of one group: four words of scale and minimum, 4 words of fifth bits, 4 x 16 bytes of nibbles.
const WORDS: usize = 24;

/// `w` packed rows; `act` blocks of `act_quantize`; `y` `[token]` rows `y_stride` apart.
pub fn q5_1_matvec(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    quantised(p, groups(p.k as usize) * WORDS, w, act, y, |row, g, a| {
        let mut t = 0.0;
        for b in 0..4 {
            let d = f16_to_f32(row.half(2 * (WORDS * g + b)));
            let m = f16_to_f32(row.half(2 * (WORDS * g + b) + 1));
            let s = a.value(|digit| block_sum(row, WORDS * g + 4, b, 0, a, digit));
            let sum = a.value(|digit| a.sum16(digit, 2 * b) + a.sum16(digit, 2 * b + 1));
            let u = d * s + m * sum;
            t = if b == 0 { u } else { t + u };
        }
        t
    });
}
