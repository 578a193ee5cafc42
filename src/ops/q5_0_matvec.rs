//! `q5_0_matvec`: y = W x with Q5_0 weights, four blocks of 32 to a group.

use crate::ops::exact::f16_to_f32;
use crate::ops::linear::{ActGroup, LinearParams, Row, groups, quantised};

/// Words of one group: four f16 scales, 4 words of fifth bits, 4 x 16 bytes of nibbles.
const WORDS: usize = 22;

/// Code 0..=31 of element `e` of the group whose fifth bits start at word `high`; the nibbles follow.
pub(crate) fn code(row: &Row, high: usize, e: usize) -> i32 {
    let (b, e) = (e / 32, e % 32);
    let nibble = row.byte(4 * (high + 4 + 4 * b) + e % 16) >> (4 * (e / 16)) & 15;
    let fifth = row.word(high + b) >> (8 * (e % 4) + e / 4) & 1;
    nibble as i32 + 16 * fifth as i32
}

/// Sum over block `b` of (code - `above`) times the activations.
pub(crate) fn block_sum(row: &Row, high: usize, b: usize, above: i32, a: &ActGroup, digit: usize) -> i32 {
    (32 * b..32 * b + 32).map(|e| (code(row, high, e) - above) * a.code(digit, e)).sum()
}

/// `w` packed rows; `act` blocks of `act_quantize`; `y` `[token]` rows `y_stride` apart.
pub fn q5_0_matvec(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    quantised(p, groups(p.k as usize) * WORDS, w, act, y, |row, g, a| {
        let mut t = 0.0;
        for b in 0..4 {
            let d = f16_to_f32(row.half(2 * WORDS * g + b));
            let u = d * a.value(|digit| block_sum(row, WORDS * g + 2, b, 16, a, digit));
            t = if b == 0 { u } else { t + u };
        }
        t
    });
}
