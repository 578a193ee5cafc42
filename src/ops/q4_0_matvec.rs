//! `q4_0_matvec`: y = W x with Q4_0 weights, four blocks of 32 to a group.

use crate::ops::exact::f16_to_f32;
use crate::ops::linear::{LinearParams, groups, quantised};

/// Words of one group: four f16 scales, 4 x 16 bytes of nibbles.
const WORDS: usize = 18;

/// `w` packed rows; `act` blocks of `act_quantize`; `y` `[token]` rows `y_stride` apart.
pub fn q4_0_matvec(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    quantised(p, groups(p.k as usize) * WORDS, w, act, y, |row, g, a| {
        let mut t = 0.0;
        for b in 0..4 {
            let d = f16_to_f32(row.half(2 * WORDS * g + b));
            let s = |digit| {
                let mut s = 0;
                for l in 0..16 {
                    let byte = row.byte(4 * (WORDS * g + 2) + 16 * b + l) as i32;
                    s += ((byte & 15) - 8) * a.code(digit, 32 * b + l);
                    s += ((byte >> 4) - 8) * a.code(digit, 32 * b + 16 + l);
                }
                s
            };
            let u = d * a.value(s);
            t = if b == 0 { u } else { t + u };
        }
        t
    });
}
