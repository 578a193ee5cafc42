//! The search for scales of Q4_K, Q5_K and Q6_K with AVX2: `fit_sub_blocks` of `blocks::q4k` and `blocks::q6k`,
//! operation for operation, a lane being a sub-block.
//!
//! Comparisons are ordered, so a lane with a NaN (a sub-block without a range) is never chosen, as in `blocks`; `max` and
//! `min` give their second operand for a NaN, as the comparisons there do. No multiply-add is fused.

use crate::blocks::BlockType;
use crate::blocks::encode_blocks;
use crate::blocks::q4k::{self, BlockQ4K, Search};
use crate::blocks::q5k::BlockQ5K;
use crate::blocks::q6k::{self, BlockQ6K, EPSILON};
use std::arch::x86_64::*;

/// 1.5 * 2^23, as in `blocks`.
const ROUNDER: f32 = 12_582_912.0;

/// Whether the type is encoded here.
pub(super) fn takes(ty: BlockType) -> bool {
    matches!(ty, BlockType::Q4_K | BlockType::Q5_K | BlockType::Q6_K)
}

/// Encodes whole blocks of a type that [`takes`] names.
///
/// # Panics
/// When the lengths do not belong together.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn encode(ty: BlockType, x: &[f32], out: &mut [u8]) {
    match ty {
        BlockType::Q4_K => encode_blocks(ty, x, out, |x| BlockQ4K::encode_with(x, |x, s| fit_eight(x, s))),
        BlockType::Q5_K => encode_blocks(ty, x, out, |x| BlockQ5K::encode_with(x, |x, s| fit_eight(x, s))),
        _ => encode_blocks(ty, x, out, |x| BlockQ6K::encode_with(x, |x| fit_sixteen(x))),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(x: &[f32; 8]) -> __m256 {
    // SAFETY: eight floats are readable; no alignment is needed.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(v: __m256) -> [f32; 8] {
    let mut out = [0.0; 8];
    // SAFETY: eight floats are writable; no alignment is needed.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) };
    out
}

/// `blocks::nearest_f32`.
#[inline]
#[target_feature(enable = "avx2")]
fn nearest(v: __m256) -> __m256 {
    let r = _mm256_set1_ps(ROUNDER);
    _mm256_sub_ps(_mm256_add_ps(v, r), r)
}

/// `q4k::code`.
#[inline]
#[target_feature(enable = "avx2")]
fn code(v: __m256, nmax: __m256) -> __m256 {
    _mm256_min_ps(_mm256_max_ps(nearest(v), _mm256_setzero_ps()), nmax)
}

#[inline]
#[target_feature(enable = "avx2")]
fn abs(v: __m256) -> __m256 {
    _mm256_andnot_ps(_mm256_set1_ps(-0.0), v)
}

/// `b` where the mask is set, else `a`.
#[inline]
#[target_feature(enable = "avx2")]
fn select(a: __m256, b: __m256, mask: __m256) -> __m256 {
    _mm256_blendv_ps(a, b, mask)
}

#[inline]
#[target_feature(enable = "avx2")]
fn less(a: __m256, b: __m256) -> __m256 {
    _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)
}

/// Sum of w * (scale * code + min - x)^2 in the order of the elements.
#[inline]
#[target_feature(enable = "avx2")]
fn error(codes: &[__m256; 32], x: &[__m256; 32], w: &[__m256; 32], scale: __m256, min: __m256) -> __m256 {
    let mut sum = _mm256_setzero_ps();
    for i in 0..32 {
        let diff = _mm256_sub_ps(_mm256_add_ps(_mm256_mul_ps(scale, codes[i]), min), x[i]);
        sum = _mm256_add_ps(sum, _mm256_mul_ps(w[i], _mm256_mul_ps(diff, diff)));
    }
    sum
}

/// `q4k::fit_sub_blocks`.
#[target_feature(enable = "avx2")]
fn fit_eight(lanes: &[q4k::Lanes; 32], search: &Search) -> q4k::Fit {
    let zero = _mm256_setzero_ps();
    let nmax = _mm256_set1_ps(search.nmax);
    let mut x = [zero; 32];
    let (mut sum_x2, mut min, mut max) = (zero, load(&lanes[0]), load(&lanes[0]));
    for i in 0..32 {
        let v = load(&lanes[i]);
        x[i] = v;
        sum_x2 = _mm256_add_ps(sum_x2, _mm256_mul_ps(v, v));
        min = select(min, v, less(v, min));
        max = select(max, v, less(max, v));
    }
    let average = _mm256_sqrt_ps(_mm256_div_ps(sum_x2, _mm256_set1_ps(32.0)));
    let mut w = [zero; 32];
    for i in 0..32 {
        w[i] = _mm256_add_ps(average, abs(x[i]));
    }
    let (mut sum_w, mut sum_x) = (w[0], _mm256_mul_ps(w[0], x[0]));
    for i in 1..32 {
        sum_w = _mm256_add_ps(sum_w, w[i]);
        sum_x = _mm256_add_ps(sum_x, _mm256_mul_ps(w[i], x[i]));
    }
    min = select(min, zero, less(zero, min));
    let flat = _mm256_cmp_ps::<_CMP_EQ_OQ>(max, min);

    let mut codes = [zero; 32];
    let iscale = _mm256_div_ps(nmax, _mm256_sub_ps(max, min));
    let mut scale = _mm256_div_ps(_mm256_set1_ps(1.0), iscale);
    for i in 0..32 {
        codes[i] = code(_mm256_mul_ps(iscale, _mm256_sub_ps(x[i], min)), nmax);
    }
    let mut best = error(&codes, &x, &w, scale, min);

    let mut trial = [zero; 32];
    for step in 0..=search.steps {
        let numerator = _mm256_set1_ps(search.rmin + search.rdelta * step as f32 + search.nmax);
        let iscale = _mm256_div_ps(numerator, _mm256_sub_ps(max, min));
        let (mut sum_l, mut sum_l2, mut sum_xl) = (zero, zero, zero);
        for i in 0..32 {
            let l = code(_mm256_mul_ps(iscale, _mm256_sub_ps(x[i], min)), nmax);
            trial[i] = l;
            let wl = _mm256_mul_ps(w[i], l);
            sum_l = _mm256_add_ps(sum_l, wl);
            sum_l2 = _mm256_add_ps(sum_l2, _mm256_mul_ps(wl, l));
            sum_xl = _mm256_add_ps(sum_xl, _mm256_mul_ps(wl, x[i]));
        }
        let det = _mm256_sub_ps(_mm256_mul_ps(sum_w, sum_l2), _mm256_mul_ps(sum_l, sum_l));
        let usable = _mm256_andnot_ps(flat, less(zero, det));
        let a = _mm256_sub_ps(_mm256_mul_ps(sum_w, sum_xl), _mm256_mul_ps(sum_x, sum_l));
        let b = _mm256_sub_ps(_mm256_mul_ps(sum_l2, sum_x), _mm256_mul_ps(sum_l, sum_xl));
        let (this_scale, this_min) = (_mm256_div_ps(a, det), _mm256_div_ps(b, det));
        let positive = less(zero, this_min);
        let this_scale = select(this_scale, _mm256_div_ps(sum_xl, sum_l2), positive);
        let this_min = select(this_min, zero, positive);
        let this_error = error(&trial, &x, &w, this_scale, this_min);
        let better = _mm256_and_ps(usable, less(this_error, best));
        if _mm256_movemask_ps(better) == 0 {
            continue;
        }
        best = select(best, this_error, better);
        scale = select(scale, this_scale, better);
        min = select(min, this_min, better);
        for i in 0..32 {
            codes[i] = select(codes[i], trial[i], better);
        }
    }
    q4k::Fit {
        scale: store(_mm256_andnot_ps(flat, scale)),
        min: store(_mm256_xor_ps(min, _mm256_set1_ps(-0.0))),
        codes: std::array::from_fn(|i| store(_mm256_andnot_ps(flat, codes[i]))),
    }
}

/// Codes of eight sub-blocks of Q6_K for one inverse scale, and the sums that give the best scale for them.
#[inline]
#[target_feature(enable = "avx2")]
fn try_scale(x: &[__m256; 16], w: &[__m256; 16], iscale: __m256, codes: &mut [__m256; 16]) -> (__m256, __m256) {
    let (low, high) = (_mm256_set1_ps(-32.0), _mm256_set1_ps(31.0));
    let (mut sum_lx, mut sum_l2) = (_mm256_setzero_ps(), _mm256_setzero_ps());
    for i in 0..16 {
        let l = _mm256_min_ps(_mm256_max_ps(nearest(_mm256_mul_ps(iscale, x[i])), low), high);
        codes[i] = l;
        sum_lx = _mm256_add_ps(sum_lx, _mm256_mul_ps(_mm256_mul_ps(w[i], x[i]), l));
        sum_l2 = _mm256_add_ps(sum_l2, _mm256_mul_ps(_mm256_mul_ps(w[i], l), l));
    }
    (sum_lx, sum_l2)
}

/// Half of `q6k::fit_sub_blocks`: sub-blocks `8 * half ..`.
#[inline]
#[target_feature(enable = "avx2")]
fn fit_half(lanes: &[q6k::Lanes; 16], half: usize) -> ([f32; 8], [[f32; 8]; 16]) {
    let zero = _mm256_setzero_ps();
    let (mut x, mut w) = ([zero; 16], [zero; 16]);
    let (mut amax, mut max) = (zero, zero);
    for i in 0..16 {
        let v = load(&lanes[i].as_chunks::<8>().0[half]);
        let larger = less(amax, abs(v));
        max = select(max, v, larger);
        amax = select(amax, abs(v), larger);
        (x[i], w[i]) = (v, _mm256_mul_ps(v, v));
    }
    let dead = less(amax, _mm256_set1_ps(EPSILON));
    let (mut codes, mut trial) = ([zero; 16], [zero; 16]);
    let (lx, l2) = try_scale(&x, &w, _mm256_div_ps(_mm256_set1_ps(-32.0), max), &mut codes);
    let some = _mm256_cmp_ps::<_CMP_NEQ_UQ>(l2, zero);
    let mut scale = _mm256_and_ps(some, _mm256_div_ps(lx, l2));
    let mut best = _mm256_mul_ps(scale, lx);
    for step in (-9..=9).filter(|&step| step != 0) {
        let numerator = _mm256_set1_ps(-(32.0 + 0.1 * step as f32));
        let (lx, l2) = try_scale(&x, &w, _mm256_div_ps(numerator, max), &mut trial);
        let improves = less(_mm256_mul_ps(best, l2), _mm256_mul_ps(lx, lx));
        let better = _mm256_and_ps(less(zero, l2), improves);
        if _mm256_movemask_ps(better) == 0 {
            continue;
        }
        scale = select(scale, _mm256_div_ps(lx, l2), better);
        best = select(best, _mm256_mul_ps(scale, lx), better);
        for i in 0..16 {
            codes[i] = select(codes[i], trial[i], better);
        }
    }
    let up = _mm256_set1_ps(32.0);
    let stored = std::array::from_fn(|i| store(_mm256_andnot_ps(dead, _mm256_add_ps(codes[i], up))));
    (store(_mm256_andnot_ps(dead, scale)), stored)
}

/// `q6k::fit_sub_blocks`.
#[target_feature(enable = "avx2")]
fn fit_sixteen(lanes: &[q6k::Lanes; 16]) -> q6k::Fit {
    let halves = [fit_half(lanes, 0), fit_half(lanes, 1)];
    q6k::Fit {
        scale: std::array::from_fn(|j| halves[j / 8].0[j % 8]),
        codes: std::array::from_fn(|i| std::array::from_fn(|j| halves[j / 8].1[i][j % 8])),
    }
}
