//! `f16_matvec`: y = W x with binary16 weights.

use crate::ops::exact::f16_to_f32;
use crate::ops::linear::{LinearParams, floats};

/// `w` packed rows of ceil(k/2) words; `x` `[token][k]`; `y` `[token]` rows `y_stride` apart.
pub fn f16_matvec(p: &LinearParams, w: &[u32], x: &[f32], y: &mut [f32]) {
    floats(p, p.k.div_ceil(2) as usize, w, x, y, |row, i| f16_to_f32(row.half(i)));
}
