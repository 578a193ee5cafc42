//! `bf16_matvec`: y = W x with bfloat16 weights.

use crate::ops::linear::{LinearParams, floats};

/// `w` packed rows of ceil(k/2) words; `x` `[token][k]`; `y` `[token]` rows `y_stride` apart.
pub fn bf16_matvec(p: &LinearParams, w: &[u32], x: &[f32], y: &mut [f32]) {
    floats(p, p.k.div_ceil(2) as usize, w, x, y, |row, i| f32::from_bits((row.half(i) as u32) << 16));
}
