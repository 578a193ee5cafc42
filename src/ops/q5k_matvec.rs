//! `q5k_matvec`: y = W x with Q5_K weights, two groups of four sub-blocks to a block.

use crate::ops::exact::f16_to_f32;
use crate::ops::linear::{LinearParams, quantised};
use crate::ops::q4k_matvec::scale_min;

/// Words of one block of 256: d and dmin, 12 bytes of scales, 32 bytes of high bits, 128 bytes of nibbles.
const WORDS: usize = 44;

/// `w` packed rows; `act` blocks of `act_quantize`; `y` `[token]` rows `y_stride` apart.
pub fn q5k_matvec(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    quantised(p, p.k as usize / 256 * WORDS, w, act, y, |row, g, a| {
        let block = WORDS * (g / 2);
        let d = f16_to_f32(row.half(2 * block));
        let dmin = f16_to_f32(row.half(2 * block + 1));
        let s = |digit| {
            let mut s = 0;
            for j in 0..4 {
                let (sc, _) = scale_min(row, 4 * (block + 1), g % 2 * 4 + j);
                let mut dot = 0;
                for l in 0..32 {
                    let byte = row.byte(4 * (block + 12) + g % 2 * 64 + j / 2 * 32 + l) as i32;
                    let low = if j % 2 == 0 { byte & 15 } else { byte >> 4 };
                    let high = row.byte(4 * (block + 4) + l) as i32 >> (g % 2 * 4 + j) & 1;
                    dot += (low + 16 * high) * a.code(digit, 32 * j + l);
                }
                s += sc * dot;
            }
            s
        };
        let m = |digit| {
            let mut sum = 0;
            for j in 0..4 {
                let (_, m) = scale_min(row, 4 * (block + 1), g % 2 * 4 + j);
                sum += m * (a.sum16(digit, 2 * j) + a.sum16(digit, 2 * j + 1));
            }
            sum
        };
        d * a.value(s) - dmin * a.value(m)
    });
}
