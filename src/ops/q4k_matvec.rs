//! `q4k_matvec`: y = W x with Q4_K weights, two groups of four sub-blocks to a block.

use crate::ops::exact::f16_to_f32;
use crate::ops::linear::{LinearParams, Row, quantised};

/// Words of one block of 256: d and dmin, 12 bytes of scales, 128 bytes of nibbles.
const WORDS: usize = 36;

/// Six-bit scale and minimum of sub-block `j`, from the twelve bytes that start at byte `at` (ggml's
/// `get_scale_min_k4`).
pub(crate) fn scale_min(row: &Row, at: usize, j: usize) -> (i32, i32) {
    let b = |i: usize| row.byte(at + i) as i32;
    if j < 4 {
        (b(j) & 63, b(j + 4) & 63)
    } else {
        ((b(j + 4) & 15) | ((b(j - 4) >> 6) << 4), (b(j + 4) >> 4) | ((b(j) >> 6) << 4))
    }
}

/// `w` packed rows; `act` blocks of `act_quantize`; `y` `[token]` rows `y_stride` apart.
pub fn q4k_matvec(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
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
                    let byte = row.byte(4 * (block + 4) + g % 2 * 64 + j / 2 * 32 + l) as i32;
                    let q = if j % 2 == 0 { byte & 15 } else { byte >> 4 };
                    dot += q * a.code(digit, 32 * j + l);
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
