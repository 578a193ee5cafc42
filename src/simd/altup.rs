//! Streams of alternating updates and the gates that are left above a bound, per instruction set, bit-equal to
//! `ops::altup_rescale`, `ops::altup_predict`, `ops::altup_correct` and `ops::gaussian_topk`; written as `elementwise` is.

use super::Level;
use super::elementwise::for_levels;
use super::layernormed::mean;
use super::recurrent::Rest;
use super::team;
use crate::ops::altup_correct::AltupCorrectParams;
use crate::ops::altup_predict::{AltupPredictParams, OTHERS, STREAMS};
use crate::ops::altup_rescale::{AltupRescaleParams, ratio};
use crate::ops::exact::{canon, fsqrt};
use crate::ops::gaussian_topk::{GaussianTopkParams, beyond};

#[inline(always)]
fn rescale_body(p: &AltupRescaleParams, x: &[f32], other: &mut [f32]) {
    let s = ratio(mean(p.inv_n, x, |v| v * v), mean(p.inv_n, other, |v| v * v));
    for v in other {
        *v = canon(*v * s);
    }
}

/// One token; `others` `[3][dim]`.
#[inline(always)]
fn predict_body(c: &[f32; STREAMS * STREAMS], x: &mut [f32], others: &mut [f32]) {
    let dim = x.len();
    let (a, rest) = others.split_at_mut(dim);
    let (b, d) = rest.split_at_mut(dim);
    for (((x, a), b), d) in x.iter_mut().zip(a).zip(b).zip(d) {
        let streams = [*x, *a, *b, *d];
        for (i, v) in [x, a, b, d].into_iter().enumerate() {
            let mut acc = streams[i];
            for j in 0..STREAMS {
                acc += c[i * STREAMS + j] * streams[j];
            }
            *v = canon(acc);
        }
    }
}

/// One token; `by`: the coefficients and 1, as they are multiplied with.
#[inline(always)]
fn correct_body(by: &[f32; STREAMS], scale: &[f32], changed: &mut [f32], x: &mut [f32], others: &mut [f32]) {
    let dim = x.len();
    let (a, rest) = others.split_at_mut(dim);
    let (b, d) = rest.split_at_mut(dim);
    let all = changed.iter_mut().zip(scale).zip(x).zip(a).zip(b).zip(d);
    for (((((changed, scale), x), a), b), d) in all {
        let news = canon(*changed - *x);
        for (v, by) in [&mut *x, a, b, d].into_iter().zip(by) {
            *v = canon(*v + by * news);
        }
        *changed = canon(*x * scale);
    }
}

#[inline(always)]
fn gaussian_body(p: &GaussianTopkParams, x: &mut [f32]) {
    let middle = mean(p.inv_n, x, |v| v);
    let square = mean(p.inv_n, x, |v| {
        let d = canon(v - middle);
        d * d
    });
    let bound = middle + fsqrt(square) * p.factor;
    for v in x {
        *v = beyond(*v, bound);
    }
}

for_levels!(rescale_body => rescale_avx2, rescale_avx512: (p: &AltupRescaleParams, x: &[f32], other: &mut [f32]));
for_levels!(
    predict_body => predict_avx2, predict_avx512: (c: &[f32; STREAMS * STREAMS], x: &mut [f32], others: &mut [f32])
);
for_levels!(
    correct_body => correct_avx2, correct_avx512:
        (by: &[f32; STREAMS], scale: &[f32], changed: &mut [f32], x: &mut [f32], others: &mut [f32])
);
for_levels!(gaussian_body => gaussian_avx2, gaussian_avx512: (p: &GaussianTopkParams, x: &mut [f32]));

/// One stream as large as x, with the bits of `ops::altup_rescale::rescale` at every level. `x`, `other`: `[dim]`; of the
/// parameters only `inv_n` is read.
///
/// Panics when the lengths differ, or when this CPU does not have `level`.
pub fn altup_rescale(level: Level, p: &AltupRescaleParams, x: &[f32], other: &mut [f32]) {
    assert!(x.len() == other.len(), "altup_rescale: {} elements beside {}", other.len(), x.len());
    assert!(level.is_available(), "altup_rescale: this CPU does not have {}", level.name());
    match level.vectors() {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { rescale_avx2(p, x, other) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { rescale_avx512(p, x, other) },
        // the other levels' instructions are always on for their targets
        _ => rescale_body(p, x, other),
    }
}

/// `ops::altup_predict`, buffers as there. Panics when a length does not fit, or when this CPU does not have `level`.
pub fn altup_predict(level: Level, p: &AltupPredictParams, c: &[f32], x: &mut [f32], others: &mut [f32]) {
    assert!(level.is_available(), "altup_predict: this CPU does not have {}", level.name());
    let (c, _) = c.as_chunks::<{ STREAMS * STREAMS }>();
    let (dim, x, others) = (p.dim as usize, Rest::new(x), Rest::new(others));
    team::for_each(p.n_tokens as usize, |t| {
        // SAFETY: the rows of a token belong to one task.
        let (x, others) = unsafe { (x.part(t * dim, dim), others.part(t * OTHERS * dim, OTHERS * dim)) };
        match level.vectors() {
            // SAFETY: the level is available, asserted above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => unsafe { predict_avx2(&c[t], x, others) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { predict_avx512(&c[t], x, others) },
            // as for altup_rescale
            _ => predict_body(&c[t], x, others),
        }
    });
}

/// `ops::altup_correct`, buffers as there. Panics when a length does not fit, or when this CPU does not have `level`.
pub fn altup_correct(
    level: Level,
    p: &AltupCorrectParams,
    c: &[f32],
    scale: &[f32],
    a: &mut [f32],
    x: &mut [f32],
    others: &mut [f32],
) {
    assert!(level.is_available(), "altup_correct: this CPU does not have {}", level.name());
    let ((c, _), dim) = (c.as_chunks::<STREAMS>(), p.dim as usize);
    let (scale, a, x, others) = (&scale[..dim], Rest::new(a), Rest::new(x), Rest::new(others));
    team::for_each(p.n_tokens as usize, |t| {
        // SAFETY: the rows of a token belong to one task.
        let (a, x) = unsafe { (a.part(t * dim, dim), x.part(t * dim, dim)) };
        // SAFETY: as above.
        let others = unsafe { others.part(t * OTHERS * dim, OTHERS * dim) };
        let by = c[t].map(|c| canon(c + 1.0));
        match level.vectors() {
            // SAFETY: the level is available, asserted above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => unsafe { correct_avx2(&by, scale, a, x, others) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { correct_avx512(&by, scale, a, x, others) },
            // as for altup_rescale
            _ => correct_body(&by, scale, a, x, others),
        }
    });
}

/// One row, with the bits of `ops::gaussian_topk::rest_of_row` at every level; of the parameters only `inv_n` and `factor`
/// are read.
///
/// Panics when this CPU does not have `level`.
pub fn gaussian_topk_row(level: Level, p: &GaussianTopkParams, x: &mut [f32]) {
    assert!(level.is_available(), "gaussian_topk: this CPU does not have {}", level.name());
    match level.vectors() {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { gaussian_avx2(p, x) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { gaussian_avx512(p, x) },
        // as for altup_rescale
        _ => gaussian_body(p, x),
    }
}
