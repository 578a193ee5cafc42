//! `q6k_matvec`: y = W x with Q6_K weights, two groups of eight sixteenths to a block.

use crate::ops::exact::f16_to_f32;
use crate::ops::linear::{LinearParams, quantised};

/// Words of one block of 256: d, 16 scales, 128 bytes of low nibbles, 64 bytes of high bit pairs.
const WORDS: usize = 53;

/// `w` packed rows; `act` blocks of `act_quantize`; `y` `[token]` rows `y_stride` apart.
pub fn q6k_matvec(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    quantised(p, p.k as usize / 256 * WORDS, w, act, y, |row, g, a| {
        let block = WORDS * (g / 2);
        let (scales, ql, qh) = (4 * (block + 1), 4 * (block + 5), 4 * (block + 37));
        let d = f16_to_f32(row.half(2 * block));
        let s = |digit| {
            let mut s = 0;
            for i in 0..8 {
                let sc = row.byte(scales + g % 2 * 8 + i) as i8 as i32;
                let mut dot = 0;
                for e in 16 * i..16 * i + 16 {
                    let (t, l) = (e / 32, e % 32);
                    let low = row.byte(ql + g % 2 * 64 + t % 2 * 32 + l) as i32 >> (t / 2 * 4) & 15;
                    let high = row.byte(qh + g % 2 * 32 + l) as i32 >> (2 * t) & 3;
                    dot += (low + 16 * high - 32) * a.code(digit, e);
                }
                s += sc * dot;
            }
            s
        };
        d * a.value(s)
    });
}
