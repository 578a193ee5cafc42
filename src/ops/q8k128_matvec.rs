//! `q8k128_matvec`: y = W x with Q8K128 weights (and Q8_K, which packs into them), one block to a group.

use crate::ops::linear::{LinearParams, quantised};

/// Words of one block of 128: d, the codes.
const WORDS: usize = 33;

/// `w` packed rows; `act` blocks of `act_quantize`; `y` `[token]` rows `y_stride` apart.
pub fn q8k128_matvec(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    quantised(p, p.k as usize / 128 * WORDS, w, act, y, |row, g, a| {
        let d = f32::from_bits(row.word(WORDS * g));
        let s = |digit| {
            let mut s = 0;
            for e in 0..128 {
                s += row.byte(4 * (WORDS * g + 1) + e) as i8 as i32 * a.code(digit, e);
            }
            s
        };
        d * a.value(s)
    });
}
