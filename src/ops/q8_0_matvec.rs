//! `q8_0_matvec`: y = W x with Q8_0 weights, four blocks of 32 to a group.

use crate::ops::exact::f16_to_f32;
use crate::ops::linear::{LinearParams, groups, quantised};

/// Words of one group: four f16 scales, 128 codes.
const WORDS: usize = 34;

/// `w` packed rows; `act` blocks of `act_quantize`; `y` `[token]` rows `y_stride` apart.
pub fn q8_0_matvec(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    quantised(p, groups(p.k as usize) * WORDS, w, act, y, |row, g, a| {
        let mut t = 0.0;
        for b in 0..4 {
            let d = f16_to_f32(row.half(2 * WORDS * g + b));
            let s = |digit| {
                let mut s = 0;
                for e in 32 * b..32 * b + 32 {
                    s += row.byte(4 * (WORDS * g + 2) + e) as i8 as i32 * a.code(digit, e);
                }
                s
            };
            let u = d * a.value(s);
            t = if b == 0 { u } else { t + u };
        }
        t
    });
}
