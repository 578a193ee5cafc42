//! `f32_matvec`: y = W x with binary32 weights.

use crate::ops::linear::{LinearParams, floats};

/// `w` packed rows of k words; `x` `[token][k]`; `y` `[token]` rows `y_stride` apart.
pub fn f32_matvec(p: &LinearParams, w: &[u32], x: &[f32], y: &mut [f32]) {
    floats(p, p.k as usize, w, x, y, |row, i| f32::from_bits(row.word(i)));
}
