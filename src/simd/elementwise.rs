//! SwiGLU, GeGLU, RMS norm and rotary embedding per instruction set, bit-equal to `ops::swiglu`, `ops::geglu`,
//! `ops::rms_norm` and `ops::rope`, and the exponential that attention shares with them.
//!
//! The arithmetic stands once, in loops over arrays without branches or closures, compiled once per level; lanes are
//! elements. Nothing here may reorder a sum or call a mathematical library.

use super::Level;
use crate::ops::exact::{canon, fdiv, fsqrt};
use crate::ops::geglu::argument;
use crate::ops::rms_norm::RmsNormParams;
use crate::ops::rope::RopeParams;

/// Lanes of RMS norm's sum.
pub(super) const NORM_LANES: usize = 256;

/// `exact::fexp` of anything but inf and NaN, without branches or calls.
#[allow(
    clippy::excessive_precision,
    clippy::approx_constant,
    reason = "the constants as docs/exactness.md writes them"
)]
#[inline(always)]
pub(super) fn fexp(x: f32) -> f32 {
    /// Adding 1.5 * 2^23 rounds |x| < 2^22 to an integer, half to even, and leaves that integer in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    let clamped = if x > 88.0 { 88.0 } else { x };
    let shifted = clamped * 1.4426950408889634 + MAGIC;
    // +0 where the twin may have -0: both leave r as it is
    let k = shifted - MAGIC;
    let r = (clamped - k * 0.693359375) - k * -2.12194440e-4;
    let mut p = 1.9875691500e-4f32;
    p = p * r + 1.3981999507e-3;
    p = p * r + 8.3334519073e-3;
    p = p * r + 4.1665795894e-2;
    p = p * r + 1.6666665459e-1;
    p = p * r + 5.0000001201e-1;
    let y = (p * (r * r) + r) + 1.0;
    // the bits of MAGIC above the integer are shifted out
    let e = f32::from_bits(y.to_bits().wrapping_add(shifted.to_bits() << 23));
    if x < -87.0 { 0.0 } else { e }
}

/// The halving tree over an array whose length is a power of two.
#[inline(always)]
pub(super) fn tree_sum<const N: usize>(v: &mut [f32; N]) -> f32 {
    const { assert!(N.is_power_of_two()) }
    let mut s = N / 2;
    while s > 0 {
        let (low, high) = v.split_at_mut(s);
        for l in 0..s {
            low[l] += high[l];
        }
        s /= 2;
    }
    v[0]
}

/// `exact::sigmoid` without branches.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    /// 2^-120: quotients below it are 0, as `exact::fdiv` has it.
    const QUOTIENT_MIN: f32 = f32::from_bits((127 - 120) << 23);
    let e = fexp(-x.abs());
    let q = (if x >= 0.0 { 1.0 } else { e }) / (1.0 + e);
    // the quotient lies in 0..=1: fdiv's upper bound is out of reach
    if q < QUOTIENT_MIN { 0.0 } else { q }
}

#[inline(always)]
fn swiglu_body(gate: &[f32], up: &[f32], y: &mut [f32]) {
    for ((y, g), u) in y.iter_mut().zip(gate).zip(up) {
        // whatever the sigmoid is for a NaN, the product with it is one
        *y = canon((g * sigmoid(*g)) * u);
    }
}

#[inline(always)]
fn geglu_body(gate: &[f32], up: &[f32], y: &mut [f32]) {
    for ((y, g), u) in y.iter_mut().zip(gate).zip(up) {
        *y = canon((g * sigmoid(argument(*g))) * u);
    }
}

#[inline(always)]
fn rms_norm_body(p: &RmsNormParams, x: &[f32], w: &[f32], y: &mut [f32]) {
    let mut lanes = [0f32; NORM_LANES];
    let (full, rest) = x.as_chunks::<NORM_LANES>();
    for x in full {
        for l in 0..NORM_LANES {
            lanes[l] += x[l] * x[l];
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += x * x;
    }
    let mean = tree_sum(&mut lanes) * p.inv_n;
    let s = fdiv(1.0, fsqrt(mean + p.eps));
    for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
        *y = canon((x * s) * w);
    }
}

/// Both elements of a pair, turned by the angle whose cosine and sine are given.
#[inline(always)]
fn turned(a: f32, b: f32, [c, s]: [f32; 2]) -> (f32, f32) {
    (canon(a * c - b * s), canon(a * s + b * c))
}

#[inline(always)]
fn rope_body(p: &RopeParams, table: &[f32], x: &mut [f32]) {
    let (heads, hd, n_rot) = (p.heads as usize, p.head_dim as usize, p.n_rot as usize);
    for (x, table) in x.chunks_exact_mut(heads * hd).zip(table.chunks_exact(n_rot)) {
        let (table, _) = table.as_chunks::<2>();
        for head in x.chunks_exact_mut(hd) {
            let head = &mut head[..n_rot];
            if p.half_split == 1 {
                let (low, high) = head.split_at_mut(n_rot / 2);
                for ((a, b), &cs) in low.iter_mut().zip(high).zip(table) {
                    (*a, *b) = turned(*a, *b, cs);
                }
            } else {
                let (pairs, _) = head.as_chunks_mut::<2>();
                for ([a, b], &cs) in pairs.iter_mut().zip(table) {
                    (*a, *b) = turned(*a, *b, cs);
                }
            }
        }
    }
}

/// Functions compiled for a level, from a body that is always inlined.
macro_rules! for_levels {
    ($body:ident => $avx2:ident, $avx512:ident: ($($name:ident: $ty:ty),*)) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,f16c")]
        fn $avx2($($name: $ty),*) {
            $body($($name),*);
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
        fn $avx512($($name: $ty),*) {
            $body($($name),*);
        }
    };
}
pub(super) use for_levels;

for_levels!(swiglu_body => swiglu_avx2, swiglu_avx512: (gate: &[f32], up: &[f32], y: &mut [f32]));
for_levels!(geglu_body => geglu_avx2, geglu_avx512: (gate: &[f32], up: &[f32], y: &mut [f32]));
for_levels!(rms_norm_body => rms_norm_avx2, rms_norm_avx512: (p: &RmsNormParams, x: &[f32], w: &[f32], y: &mut [f32]));
for_levels!(rope_body => rope_avx2, rope_avx512: (p: &RopeParams, table: &[f32], x: &mut [f32]));

/// y = silu(gate) · up element by element, with the bits of `ops::swiglu` at every level.
///
/// Panics when the lengths differ, or when this CPU does not have `level`.
pub fn swiglu(level: Level, gate: &[f32], up: &[f32], y: &mut [f32]) {
    assert!(
        gate.len() == y.len() && up.len() == y.len(),
        "swiglu: {} gates and {} ups for {} elements",
        gate.len(),
        up.len(),
        y.len()
    );
    assert!(level.is_available(), "swiglu: this CPU does not have {}", level.name());
    match level {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { swiglu_avx2(gate, up, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { swiglu_avx512(gate, up, y) },
        // the other levels' instructions are always on for their targets
        _ => swiglu_body(gate, up, y),
    }
}

/// y = gelu(gate) · up element by element, with the bits of `ops::geglu` at every level.
///
/// Panics when the lengths differ, or when this CPU does not have `level`.
pub fn geglu(level: Level, gate: &[f32], up: &[f32], y: &mut [f32]) {
    assert!(
        gate.len() == y.len() && up.len() == y.len(),
        "geglu: {} gates and {} ups for {} elements",
        gate.len(),
        up.len(),
        y.len()
    );
    assert!(level.is_available(), "geglu: this CPU does not have {}", level.name());
    match level {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { geglu_avx2(gate, up, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { geglu_avx512(gate, up, y) },
        // as for swiglu
        _ => geglu_body(gate, up, y),
    }
}

/// y = x / sqrt(mean(x²) + eps) · w of one row, with the bits of `ops::rms_norm::row` at every level. `x`, `w`, `y`:
/// `[dim]`; of the parameters only `inv_n` and `eps` are read.
///
/// Panics when the lengths differ, or when this CPU does not have `level`.
pub fn rms_norm_row(level: Level, p: &RmsNormParams, x: &[f32], w: &[f32], y: &mut [f32]) {
    assert!(
        w.len() == x.len() && y.len() == x.len(),
        "rms_norm: {} weights and {} results for {} elements",
        w.len(),
        y.len(),
        x.len()
    );
    assert!(level.is_available(), "rms_norm: this CPU does not have {}", level.name());
    match level {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { rms_norm_avx2(p, x, w, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { rms_norm_avx512(p, x, w, y) },
        // as for swiglu
        _ => rms_norm_body(p, x, w, y),
    }
}

/// Rotary embedding in place, with the bits of `ops::rope` at every level. `table`: `[token][n_rot/2][cos, sin]`, `x`:
/// `[token][heads][head_dim]`.
///
/// Panics when a length does not fit, or when this CPU does not have `level`.
pub fn rope(level: Level, p: &RopeParams, table: &[f32], x: &mut [f32]) {
    let (row, n_rot, n) = ((p.heads * p.head_dim) as usize, p.n_rot as usize, p.n_tokens as usize);
    assert!(n_rot.is_multiple_of(2) && p.n_rot <= p.head_dim, "rope: {n_rot} elements of {} are turned", p.head_dim);
    assert!(
        x.len() >= n * row && table.len() >= n * n_rot,
        "rope: {} elements and {} of the table for {n} tokens",
        x.len(),
        table.len()
    );
    assert!(level.is_available(), "rope: this CPU does not have {}", level.name());
    if row == 0 || n_rot == 0 {
        return;
    }
    let (table, x) = (&table[..n * n_rot], &mut x[..n * row]);
    match level {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { rope_avx2(p, table, x) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { rope_avx512(p, table, x) },
        // as for swiglu
        _ => rope_body(p, table, x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::exact;

    #[test]
    fn the_exponential_has_the_bits_of_its_twin() {
        // every 641st bit pattern of a number, then every tie of k and its neighbours
        let check = |x: f32| assert_eq!(fexp(x).to_bits(), exact::fexp(x).to_bits(), "{x:e} {:08x}", x.to_bits());
        for bits in (0..f32::INFINITY.to_bits()).step_by(641) {
            check(f32::from_bits(bits));
            check(-f32::from_bits(bits));
        }
        for edge in [0.0, 87.0, 88.0, 3.0e38, f32::MIN_POSITIVE] {
            for near in [edge, f32::next_up(edge), f32::next_down(edge)] {
                check(near);
                check(-near);
            }
        }
        check(f32::NEG_INFINITY);
        for k in -300..300 {
            let mut x = k as f32 * (0.5 * std::f32::consts::LN_2);
            for _ in 0..8 {
                x = x.next_down();
            }
            for _ in 0..16 {
                check(x);
                x = x.next_up();
            }
        }
    }

    #[test]
    fn the_trees_agree() {
        let mut a: [f32; 64] = std::array::from_fn(|i| (i as f32 * 0.37).sin() * 10f32.powi(i as i32 % 9));
        let mut b = a;
        assert_eq!(tree_sum(&mut a).to_bits(), exact::tree_sum(&mut b).to_bits());
    }
}
