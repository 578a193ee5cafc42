//! SwiGLU, GeGLU, softcap, RMS norm and rotary embedding per instruction set, bit-equal to `ops::swiglu`, `ops::geglu`,
//! `ops::softcap`, `ops::rms_norm` and `ops::rope`, and the exponential that attention shares with them.
//!
//! The arithmetic stands once, in loops over arrays without branches or closures, compiled once per level; lanes are
//! elements. Nothing here may reorder a sum or call a mathematical library.

use super::Level;
use crate::ops::attention::HEAD_MAX;
use crate::ops::exact::{TANH_FAR, TANH_NEAR, canon, fdiv, fsqrt, tanh_polynomial};
use crate::ops::expert_combine::ExpertCombineParams;
use crate::ops::gelu::{argument, exponent, magnitude, weighted};
use crate::ops::rms_norm::RmsNormParams;
use crate::ops::rope::RopeParams;

/// Lanes of RMS norm's sum.
pub(super) const NORM_LANES: usize = 256;

/// The constants of `exact::fexp`.
pub(super) struct Exp {
    /// Adding 1.5 * 2^23 rounds |x| < 2^22 to an integer, half to even, and leaves that integer in the low bits.
    pub(super) magic: f32,
    pub(super) log2_e: f32,
    /// in two parts
    pub(super) ln_2: [f32; 2],
    /// of the polynomial, the highest first
    pub(super) terms: [f32; 6],
}

#[allow(
    clippy::excessive_precision,
    clippy::approx_constant,
    reason = "the constants as docs/exactness.md writes them"
)]
pub(super) const EXP: Exp = Exp {
    magic: 12_582_912.0,
    log2_e: 1.4426950408889634,
    ln_2: [0.693359375, -2.12194440e-4],
    terms: [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1],
};

/// The least number whose `fexp` is 2^-50 or more: -34.657356.
pub(super) const EXP_LEAST: f32 = f32::from_bits(0xc20a_a122);

/// `exact::fexp` of anything but inf and NaN, without branches or calls.
#[inline(always)]
pub(super) fn fexp(x: f32) -> f32 {
    let clamped = if x > 88.0 { 88.0 } else { x };
    let shifted = clamped * EXP.log2_e + EXP.magic;
    // +0 where the twin may have -0: both leave r as it is
    let k = shifted - EXP.magic;
    let r = (clamped - k * EXP.ln_2[0]) - k * EXP.ln_2[1];
    let mut p = EXP.terms[0];
    for i in 1..EXP.terms.len() {
        p = p * r + EXP.terms[i];
    }
    let y = (p * (r * r) + r) + 1.0;
    // the bits of the magic number above the integer are shifted out
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

/// `softcap::element` without branches or calls; of a NaN a NaN, which `canon` makes the one.
#[inline(always)]
pub(super) fn capped(x: f32, cap: f32, inv_cap: f32) -> f32 {
    let x = x * inv_cap;
    let magnitude = x.abs();
    let e = fexp(-2.0 * magnitude);
    // no less than 0.55 and no more than 1: neither of fdiv's bounds is in reach
    let far = ((1.0 - e) / (1.0 + e)).copysign(x);
    let t = if magnitude >= TANH_FAR { far } else { x };
    let between = (TANH_NEAR..TANH_FAR).contains(&magnitude);
    canon(cap * if between { tanh_polynomial(x) } else { t })
}

#[inline(always)]
fn softcap_body(cap: f32, inv_cap: f32, x: &mut [f32]) {
    for x in x {
        *x = capped(*x, cap, inv_cap);
    }
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
fn geglu_erf_body(gate: &[f32], up: &[f32], y: &mut [f32]) {
    for ((y, g), u) in y.iter_mut().zip(gate).zip(up) {
        *y = canon(gelu_erf(*g) * u);
    }
}

/// gelu by the error function, of one element.
#[inline(always)]
pub(super) fn gelu_erf(x: f32) -> f32 {
    let z = magnitude(x);
    // the quotient lies in 0.15..=1: no bound of fdiv is in reach
    let t = 1.0 / (1.0 + 0.5 * z);
    weighted(x, t, fexp(exponent(z, t)))
}

#[inline(always)]
fn swiglu_oai_body(gate: &[f32], up: &[f32], limit: f32, y: &mut [f32]) {
    for ((y, g), u) in y.iter_mut().zip(gate).zip(up) {
        // comparisons with a NaN are false, and it stays
        let g = if *g > limit { limit } else { *g };
        let u = if *u > limit { limit } else { *u };
        let u = if u < -limit { -limit } else { u };
        *y = canon((g * sigmoid(1.702 * g)) * (u + 1.0));
    }
}

/// A gate for each element.
#[inline(always)]
fn sigmoid_gate_body(g: &[f32], y: &mut [f32]) {
    for (y, &g) in y.iter_mut().zip(g) {
        let s = sigmoid(g);
        *y = canon(*y * if g.is_nan() { g } else { s });
    }
}

/// Elements from `first` on of one token's sum over slots; `y` `[slot][dim]`.
#[inline(always)]
fn combine_body(p: &ExpertCombineParams, y: &[f32], weights: &[f32], first: usize, x: &mut [f32]) {
    /// Elements whose sums are under way.
    const WIDE: usize = 64;

    for (at, x) in (first..).step_by(WIDE).zip(x.chunks_mut(WIDE)) {
        let mut acc = [0f32; WIDE];
        for (y, &w) in y.chunks_exact(p.dim as usize).zip(weights) {
            for (acc, y) in acc.iter_mut().zip(&y[at..][..x.len()]) {
                *acc += w * y;
            }
        }
        for (x, &acc) in x.iter_mut().zip(&acc) {
            *x = if p.residual == 1 { canon(*x + canon(acc)) } else { canon(acc) };
        }
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
for_levels!(geglu_erf_body => geglu_erf_avx2, geglu_erf_avx512: (gate: &[f32], up: &[f32], y: &mut [f32]));
for_levels!(swiglu_oai_body => swiglu_oai_avx2, swiglu_oai_avx512: (gate: &[f32], up: &[f32], limit: f32, y: &mut [f32]));
for_levels!(sigmoid_gate_body => sigmoid_gate_avx2, sigmoid_gate_avx512: (g: &[f32], y: &mut [f32]));
for_levels!(
    combine_body => combine_avx2, combine_avx512:
        (p: &ExpertCombineParams, y: &[f32], weights: &[f32], first: usize, x: &mut [f32])
);
for_levels!(softcap_body => softcap_avx2, softcap_avx512: (cap: f32, inv_cap: f32, x: &mut [f32]));
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
    match level.vectors() {
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

/// y = gelu(gate) · up element by element, with the bits of `ops::geglu` at every level; `erf` as its parameter.
///
/// Panics when the lengths differ, or when this CPU does not have `level`.
pub fn geglu(level: Level, erf: bool, gate: &[f32], up: &[f32], y: &mut [f32]) {
    assert!(
        gate.len() == y.len() && up.len() == y.len(),
        "geglu: {} gates and {} ups for {} elements",
        gate.len(),
        up.len(),
        y.len()
    );
    assert!(level.is_available(), "geglu: this CPU does not have {}", level.name());
    match (level.vectors(), erf) {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2 | Level::AvxVnni, false) => unsafe { geglu_avx2(gate, up, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2 | Level::AvxVnni, true) => unsafe { geglu_erf_avx2(gate, up, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, false) => unsafe { geglu_avx512(gate, up, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, true) => unsafe { geglu_erf_avx512(gate, up, y) },
        // as for swiglu
        (_, false) => geglu_body(gate, up, y),
        (_, true) => geglu_erf_body(gate, up, y),
    }
}

/// Clamped gate · sigmoid(1.702 gate) · (up + 1), with the bits of `ops::swiglu_oai` at every level. `gate` and `up`:
/// one row, as it is stored; `limit` is positive.
///
/// Panics when the lengths differ, or when this CPU does not have `level`.
pub fn swiglu_oai(level: Level, gate: &[f32], up: &[f32], limit: f32, y: &mut [f32]) {
    assert!(gate.len() == y.len() && up.len() == y.len(), "swiglu_oai: lengths differ");
    assert!(level.is_available(), "swiglu_oai: this CPU does not have {}", level.name());
    match level.vectors() {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { swiglu_oai_avx2(gate, up, limit, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { swiglu_oai_avx512(gate, up, limit, y) },
        // as for swiglu
        _ => swiglu_oai_body(gate, up, limit, y),
    }
}

/// y = y · sigmoid(g) with a gate for each element, with the bits of `ops::sigmoid_gate` at every level.
///
/// Panics when the lengths differ, or when this CPU does not have `level`.
pub fn sigmoid_gate(level: Level, g: &[f32], y: &mut [f32]) {
    assert!(g.len() == y.len(), "sigmoid_gate: {} gates for {} elements", g.len(), y.len());
    assert!(level.is_available(), "sigmoid_gate: this CPU does not have {}", level.name());
    match level.vectors() {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { sigmoid_gate_avx2(g, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { sigmoid_gate_avx512(g, y) },
        // as for swiglu
        _ => sigmoid_gate_body(g, y),
    }
}

/// Elements from `first` on of one token's results times their weights, with the bits of `ops::expert_combine` at every
/// level. `y` `[slot][dim]`, `weights` `[slot]`, `x` those elements; of the parameters `dim` and `residual` are read.
///
/// Panics when a length does not fit, or when this CPU does not have `level`.
pub fn combine(level: Level, p: &ExpertCombineParams, y: &[f32], weights: &[f32], first: usize, x: &mut [f32]) {
    assert!(y.len() == weights.len() * p.dim as usize, "combine: {} elements of {} slots", y.len(), weights.len());
    assert!(level.is_available(), "combine: this CPU does not have {}", level.name());
    match level.vectors() {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { combine_avx2(p, y, weights, first, x) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { combine_avx512(p, y, weights, first, x) },
        // as for swiglu
        _ => combine_body(p, y, weights, first, x),
    }
}

/// x = cap · tanh(x · inv_cap) element by element, with the bits of `ops::softcap` at every level.
///
/// Panics when this CPU does not have `level`.
pub fn softcap(level: Level, cap: f32, inv_cap: f32, x: &mut [f32]) {
    assert!(level.is_available(), "softcap: this CPU does not have {}", level.name());
    match level.vectors() {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { softcap_avx2(cap, inv_cap, x) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { softcap_avx512(cap, inv_cap, x) },
        // as for swiglu
        _ => softcap_body(cap, inv_cap, x),
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
    match level.vectors() {
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

/// [`rms_norm_row`] of a head, in place. Panics where that does, and of a head with more than [`HEAD_MAX`] elements.
pub fn rms_norm_in_place(level: Level, p: &RmsNormParams, w: &[f32], x: &mut [f32]) {
    let mut was = [0f32; HEAD_MAX];
    let was = &mut was[..x.len()];
    was.copy_from_slice(x);
    rms_norm_row(level, p, was, w, x);
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
    match level.vectors() {
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
    use crate::ops::exact::{self, CANON_MIN, flush};

    #[test]
    fn exponentials_are_2_to_the_minus_50_from_one_number_on() {
        // of numbers below that none is: past -87 they are 0
        for bits in EXP_LEAST.to_bits() + 1..(-88f32).to_bits() {
            assert_eq!(flush(fexp(f32::from_bits(bits))), 0.0, "{bits:08x}");
        }
        for bits in ((-0f32).to_bits()..=EXP_LEAST.to_bits()).rev() {
            if bits.is_multiple_of(61) || bits > EXP_LEAST.to_bits() - (1 << 20) {
                assert!(fexp(f32::from_bits(bits)) >= CANON_MIN, "{bits:08x}");
            }
        }
    }

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
