//! Layer norm and gelu per instruction set, bit-equal to `ops::layer_norm` and `ops::gelu`; written as `elementwise` is.

use super::Level;
use super::elementwise::{NORM_LANES, for_levels, gelu_erf, sigmoid, tree_sum};
use crate::ops::exact::{canon, fdiv, fsqrt};
use crate::ops::gelu::argument;
use crate::ops::layer_norm::LayerNormParams;

/// The mean over lanes of what `of` makes of each element.
#[inline(always)]
pub(super) fn mean(inv_n: f32, x: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0f32; NORM_LANES];
    let (full, rest) = x.as_chunks::<NORM_LANES>();
    for x in full {
        for l in 0..NORM_LANES {
            lanes[l] += of(x[l]);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += of(*x);
    }
    tree_sum(&mut lanes) * inv_n
}

#[inline(always)]
fn layer_norm_body(p: &LayerNormParams, x: &[f32], w: &[f32], b: &[f32], y: &mut [f32]) {
    let middle = mean(p.inv_n, x, |v| v);
    let variance = mean(p.inv_n, x, |v| {
        let d = canon(v - middle);
        d * d
    });
    let s = fdiv(1.0, fsqrt(variance + p.eps));
    for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
        *y = canon((canon(*x - middle) * s) * w);
    }
    // nothing where there are none
    for (y, b) in y.iter_mut().zip(b) {
        *y = canon(*y + b);
    }
}

#[inline(always)]
fn gelu_tanh_body(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = canon(x * sigmoid(argument(*x)));
    }
}

#[inline(always)]
fn gelu_erf_body(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = gelu_erf(*x);
    }
}

for_levels!(layer_norm_body => layer_norm_avx2, layer_norm_avx512:
    (p: &LayerNormParams, x: &[f32], w: &[f32], b: &[f32], y: &mut [f32]));
for_levels!(gelu_tanh_body => gelu_tanh_avx2, gelu_tanh_avx512: (x: &[f32], y: &mut [f32]));
for_levels!(gelu_erf_body => gelu_erf_avx2, gelu_erf_avx512: (x: &[f32], y: &mut [f32]));

/// One row of a layer norm, with the bits of `ops::layer_norm::row` at every level. `x`, `w`, `y`: `[dim]`; `b`: `[dim]`, or
/// empty where none is added; of the parameters only `inv_n` and `eps` are read.
///
/// Panics when the lengths differ, or when this CPU does not have `level`.
pub fn layer_norm_row(level: Level, p: &LayerNormParams, x: &[f32], w: &[f32], b: &[f32], y: &mut [f32]) {
    let n = x.len();
    assert!(
        w.len() == n && y.len() == n && (b.len() == n || b.is_empty()),
        "layer_norm: {} weights, {} biases and {} results for {n} elements",
        w.len(),
        b.len(),
        y.len()
    );
    assert!(level.is_available(), "layer_norm: this CPU does not have {}", level.name());
    match level.vectors() {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { layer_norm_avx2(p, x, w, b, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { layer_norm_avx512(p, x, w, b, y) },
        // the other levels' instructions are always on for their targets
        _ => layer_norm_body(p, x, w, b, y),
    }
}

/// y = gelu(x) element by element, with the bits of `ops::gelu` at every level; `erf` as its parameter.
///
/// Panics when the lengths differ, or when this CPU does not have `level`.
pub fn gelu(level: Level, erf: bool, x: &[f32], y: &mut [f32]) {
    assert!(x.len() == y.len(), "gelu: {} results for {} elements", y.len(), x.len());
    assert!(level.is_available(), "gelu: this CPU does not have {}", level.name());
    match (level.vectors(), erf) {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2 | Level::AvxVnni, false) => unsafe { gelu_tanh_avx2(x, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2 | Level::AvxVnni, true) => unsafe { gelu_erf_avx2(x, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, false) => unsafe { gelu_tanh_avx512(x, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, true) => unsafe { gelu_erf_avx512(x, y) },
        (_, false) => gelu_tanh_body(x, y),
        (_, true) => gelu_erf_body(x, y),
    }
}
