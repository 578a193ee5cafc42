//! Searches for scales that several encoders share: ggml's `make_qkx`, `make_qx` and `make_qp`, operation for
//! operation.
//!
//! `J` sub-blocks of `E` elements are searched side by side, which lets the compiler use vectors while every sub-block
//! still sums its elements one after the other, as the reference does: `x[i][j]` is element i of sub-block j.

use super::{nearest_f32, nearest_int};

/// Sub-blocks whose scale is below this are taken as zero, as in the reference.
pub(crate) const EPSILON: f32 = 1e-15;

/// How a format searches for the scale and minimum of a sub-block: inverse scales
/// `(rmin + rdelta * step + nmax) / range` for step in 0..=steps.
pub(crate) struct Search {
    /// the largest code
    pub nmax: f32,
    pub rmin: f32,
    pub rdelta: f32,
    pub steps: usize,
}

impl Search {
    /// That of every format when there are importances.
    pub fn weighted(nmax: f32) -> Search {
        Search { nmax, rmin: -0.9, rdelta: 0.05, steps: 36 }
    }
}

/// What a search for scale and minimum found: value of a code q in sub-block j is about `scale[j] * q - min[j]`.
pub(crate) struct Fit<const E: usize, const J: usize> {
    pub scale: [f32; J],
    pub min: [f32; J],
    pub codes: [[f32; J]; E],
}

/// What a search for a scale alone found: value of a code q in sub-block j is about `scale[j] * (q - nmax)`.
pub(crate) struct Scales<const E: usize, const J: usize> {
    pub scale: [f32; J],
    pub codes: [[f32; J]; E],
}

/// Elements side by side: `E` of each of `J` sub-blocks that follow one another in `x`.
#[inline(always)]
pub(super) fn side_by_side<const E: usize, const J: usize>(x: &[f32]) -> [[f32; J]; E] {
    std::array::from_fn(|i| std::array::from_fn(|j| x[E * j + i]))
}

/// Sums of each sub-block's weights.
#[inline(always)]
pub(super) fn sums<const E: usize, const J: usize>(weight: &[[f32; J]; E]) -> [f32; J] {
    let mut sums = [0.0f32; J];
    for w in weight {
        for j in 0..J {
            sums[j] += w[j];
        }
    }
    sums
}

/// The sum of the squares, left to right.
pub(super) fn sum_of_squares(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, v| sum + v * v)
}

/// Weights of elements from their importances; `s2` is the mean square, or twice that, of what the format takes it
/// over.
#[inline(always)]
pub(super) fn weights<const N: usize>(x: &[f32; N], importances: &[f32; N], s2: f32) -> [f32; N] {
    std::array::from_fn(|i| importances[i] * (s2 + x[i] * x[i]).sqrt())
}

/// Weighted least squares for scale and minimum, over several starting scales (ggml's `make_qkx2_quants` and
/// `make_qkx3_quants`). With `ABSOLUTE` errors are compared by magnitude, else by square.
#[inline(always)]
pub(crate) fn affine<const ABSOLUTE: bool, const E: usize, const J: usize>(
    x: &[[f32; J]; E],
    weight: &[[f32; J]; E],
    search: &Search,
) -> Fit<E, J> {
    let nmax = search.nmax;
    let error = |diff: f32| if ABSOLUTE { diff.abs() } else { diff * diff };
    let (mut min, mut max) = (x[0], x[0]);
    let mut sum_w = weight[0];
    let mut sum_x: [f32; J] = std::array::from_fn(|j| weight[0][j] * x[0][j]);
    for (wi, xi) in weight.iter().zip(x).skip(1) {
        for j in 0..J {
            min[j] = if xi[j] < min[j] { xi[j] } else { min[j] };
            max[j] = if xi[j] > max[j] { xi[j] } else { max[j] };
            sum_w[j] += wi[j];
            sum_x[j] += wi[j] * xi[j];
        }
    }
    for m in &mut min {
        if *m > 0.0 {
            *m = 0.0;
        }
    }
    // A sub-block without a range takes no part in the search.
    let flat: [bool; J] = std::array::from_fn(|j| max[j] == min[j]);

    let mut codes = [[0.0f32; J]; E];
    let iscale: [f32; J] = std::array::from_fn(|j| nmax / (max[j] - min[j]));
    let mut scale: [f32; J] = std::array::from_fn(|j| 1.0 / iscale[j]);
    let mut best = [0.0f32; J];
    for ((ci, xi), wi) in codes.iter_mut().zip(x).zip(weight) {
        for j in 0..J {
            ci[j] = code(iscale[j] * (xi[j] - min[j]), nmax);
            best[j] += wi[j] * error(scale[j] * ci[j] + min[j] - xi[j]);
        }
    }

    for step in 0..=search.steps {
        let numerator = search.rmin + search.rdelta * step as f32 + nmax;
        // The range is taken from the best minimum so far, as the reference does.
        let iscale: [f32; J] = std::array::from_fn(|j| numerator / (max[j] - min[j]));
        let mut trial = [[0.0f32; J]; E];
        let (mut sum_l, mut sum_l2, mut sum_xl) = ([0.0f32; J], [0.0f32; J], [0.0f32; J]);
        for ((ti, xi), wi) in trial.iter_mut().zip(x).zip(weight) {
            for j in 0..J {
                let l = code(iscale[j] * (xi[j] - min[j]), nmax);
                ti[j] = l;
                let wl = wi[j] * l;
                sum_l[j] += wl;
                sum_l2[j] += wl * l;
                sum_xl[j] += wl * xi[j];
            }
        }
        let (mut usable, mut this_scale, mut this_min) = ([false; J], [0.0f32; J], [0.0f32; J]);
        for j in 0..J {
            let det = sum_w[j] * sum_l2[j] - sum_l[j] * sum_l[j];
            usable[j] = det > 0.0 && !flat[j];
            this_scale[j] = (sum_w[j] * sum_xl[j] - sum_x[j] * sum_l[j]) / det;
            this_min[j] = (sum_l2[j] * sum_x[j] - sum_l[j] * sum_xl[j]) / det;
            if this_min[j] > 0.0 {
                this_min[j] = 0.0;
                this_scale[j] = sum_xl[j] / sum_l2[j];
            }
        }
        let mut this_error = [0.0f32; J];
        for ((ti, xi), wi) in trial.iter().zip(x).zip(weight) {
            for j in 0..J {
                this_error[j] += wi[j] * error(this_scale[j] * ti[j] + this_min[j] - xi[j]);
            }
        }
        let better: [bool; J] = std::array::from_fn(|j| usable[j] && this_error[j] < best[j]);
        if !better.contains(&true) {
            continue;
        }
        for j in 0..J {
            if better[j] {
                best[j] = this_error[j];
                scale[j] = this_scale[j];
                min[j] = this_min[j];
            }
        }
        take(&mut codes, &trial, &better);
    }
    for j in 0..J {
        if flat[j] {
            scale[j] = 0.0;
            for ci in &mut codes {
                ci[j] = 0.0;
            }
        }
    }
    Fit { scale, min: min.map(|m| -m), codes }
}

/// The nearest code 0..=nmax, as a float. Comparisons rather than `clamp`, because they cost one instruction each.
#[inline(always)]
fn code(v: f32, nmax: f32) -> f32 {
    let r = nearest_f32(v);
    let r = if r > 0.0 { r } else { 0.0 };
    if r < nmax { r } else { nmax }
}

/// Takes over the codes of the sub-blocks for which the trial was better.
#[inline(always)]
fn take<const E: usize, const J: usize>(codes: &mut [[f32; J]; E], trial: &[[f32; J]; E], better: &[bool; J]) {
    for (ci, ti) in codes.iter_mut().zip(trial) {
        for j in 0..J {
            ci[j] = if better[j] { ti[j] } else { ci[j] };
        }
    }
}

/// Weighted least squares over several starting scales (ggml's `make_qx_quants`, error type 1). Codes are -nmax..nmax
/// with nmax added; those of a sub-block that counts as zero are 0.
#[inline(always)]
pub(crate) fn symmetric<const E: usize, const J: usize>(
    x: &[[f32; J]; E],
    weight: &[[f32; J]; E],
    nmax: f32,
) -> Scales<E, J> {
    let (mut amax, mut max) = ([0.0f32; J], [0.0f32; J]);
    for xi in x {
        for j in 0..J {
            let larger = xi[j].abs() > amax[j];
            max[j] = if larger { xi[j] } else { max[j] };
            amax[j] = if larger { xi[j].abs() } else { amax[j] };
        }
    }
    let dead: [bool; J] = std::array::from_fn(|j| amax[j] < EPSILON);

    let first = try_scale(x, weight, &max.map(|m| -nmax / m), nmax);
    let mut codes = first.codes;
    let mut scale = [0.0f32; J];
    let mut best = [0.0f32; J];
    for j in 0..J {
        scale[j] = if first.sum_l2[j] != 0.0 { first.sum_lx[j] / first.sum_l2[j] } else { 0.0 };
        best[j] = scale[j] * first.sum_lx[j];
    }
    for step in (-9..=9).filter(|&step| step != 0) {
        let numerator = -(nmax + 0.1 * step as f32);
        let trial = try_scale(x, weight, &max.map(|m| numerator / m), nmax);
        let mut better = [false; J];
        for j in 0..J {
            let (lx, l2) = (trial.sum_lx[j], trial.sum_l2[j]);
            better[j] = l2 > 0.0 && lx * lx > best[j] * l2;
            if better[j] {
                scale[j] = lx / l2;
                best[j] = scale[j] * lx;
            }
        }
        if better.contains(&true) {
            take(&mut codes, &trial.codes, &better);
        }
    }
    for j in 0..J {
        if dead[j] {
            scale[j] = 0.0;
        }
    }
    for ci in &mut codes {
        for j in 0..J {
            ci[j] = if dead[j] { 0.0 } else { ci[j] + nmax };
        }
    }
    Scales { scale, codes }
}

/// Codes for one inverse scale, and the sums that give the best scale for these codes.
struct Trial<const E: usize, const J: usize> {
    codes: [[f32; J]; E],
    sum_lx: [f32; J],
    sum_l2: [f32; J],
}

#[inline(always)]
fn try_scale<const E: usize, const J: usize>(
    x: &[[f32; J]; E],
    weight: &[[f32; J]; E],
    iscale: &[f32; J],
    nmax: f32,
) -> Trial<E, J> {
    let mut t = Trial { codes: [[0.0; J]; E], sum_lx: [0.0; J], sum_l2: [0.0; J] };
    for ((ci, xi), wi) in t.codes.iter_mut().zip(x).zip(weight) {
        for j in 0..J {
            let l = nearest_f32(iscale[j] * xi[j]);
            let l = if l > -nmax { l } else { -nmax };
            let l = if l < nmax - 1.0 { l } else { nmax - 1.0 };
            ci[j] = l;
            t.sum_lx[j] += wi[j] * xi[j] * l;
            t.sum_l2[j] += wi[j] * l * l;
        }
    }
    t
}

/// Codes and the scale for them, one after the other bettered: a code is changed when that makes the weighted error
/// smaller. Up to five passes.
struct Bettering {
    sum_lx: f32,
    sum_l2: f32,
}

impl Bettering {
    /// `codes` of `x`, within `range`; with `BOTH` a code is left alone where nothing but it has a weight, and codes are
    /// bytes: one below 0 wraps, as in the reference.
    fn run<const BOTH: bool>(&mut self, x: &[f32], weight: &[f32], codes: &mut [i32], range: (i32, i32)) {
        for _ in 0..5 {
            let mut changed = false;
            for ((&x, &w), l) in x.iter().zip(weight).zip(codes.iter_mut()) {
                let mut lx = self.sum_lx - w * x * *l as f32;
                let mut l2 = self.sum_l2 - w * *l as f32 * *l as f32;
                if !(lx > 0.0 && (!BOTH || l2 > 0.0)) {
                    continue;
                }
                let new = nearest_int(x * l2 / lx).clamp(range.0, range.1);
                if new == *l {
                    continue;
                }
                lx += w * x * new as f32;
                l2 += w * new as f32 * new as f32;
                if l2 > 0.0 && lx * lx * self.sum_l2 > self.sum_lx * self.sum_lx * l2 {
                    *l = if BOTH { i32::from(new as u8) } else { new };
                    (self.sum_lx, self.sum_l2) = (lx, l2);
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
    }
}

/// Scale and codes -4..=3 of 16 elements, squares as weights (ggml's `make_q3_quants`). Codes have 4 added; a sub-block
/// that counts as zero has scale 0 and codes 0.
pub(super) fn three_bits(x: &[f32; 16]) -> (f32, [u8; 16]) {
    let max = super::peak(x);
    if max.abs() < EPSILON {
        return (0.0, [0; 16]);
    }
    let iscale = -4.0 / max;
    let weight = x.map(|v| v * v);
    let mut codes = x.map(|v| nearest_int(iscale * v).clamp(-4, 3));
    let mut sums = Bettering { sum_lx: 0.0, sum_l2: 0.0 };
    for ((&x, &w), &l) in x.iter().zip(&weight).zip(&codes) {
        sums.sum_lx += w * x * l as f32;
        sums.sum_l2 += w * l as f32 * l as f32;
    }
    sums.run::<false>(x, &weight, &mut codes, (-4, 3));
    let scale = if sums.sum_l2 > 0.0 { sums.sum_lx / sums.sum_l2 } else { 0.0 };
    (scale, codes.map(|l| (l + 4) as u8))
}

/// Scale and codes 0..=nmax of numbers that are not negative: the scales or minima of sub-blocks, weighted (ggml's
/// `make_qp_quants`). Codes of negative numbers, which IQ2_XXS has a few of, wrap as the reference's bytes do.
pub(super) fn positive<const N: usize>(x: &[f32; N], weight: &[f32; N], nmax: i32) -> (f32, [u8; N]) {
    let max = x.iter().fold(0.0f32, |max, &v| if v > max { v } else { max });
    if max < EPSILON {
        return (0.0, [0; N]);
    }
    let largest = nmax as f32;
    let error = |iscale: f32, code: fn(i32, i32) -> i32| {
        let scale = 1.0 / iscale;
        x.iter().zip(weight).fold(0.0f32, |sum, (&x, &w)| {
            let diff = x - scale * code(nearest_int(iscale * x), nmax) as f32;
            sum + w * diff * diff
        })
    };
    let mut iscale = largest / max;
    let mut best = error(iscale, |l, _| i32::from(l as u8));
    for step in (-4..=4).filter(|&step| step != 0) {
        let this = (0.1 * step as f32 + largest) / max;
        let this_error = error(this, i32::min);
        if this_error < best {
            (best, iscale) = (this_error, this);
        }
    }
    let mut codes = x.map(|v| nearest_int(iscale * v).min(nmax));
    let mut sums = Bettering { sum_lx: 0.0, sum_l2: 0.0 };
    for ((&x, &w), &l) in x.iter().zip(weight).zip(&codes) {
        sums.sum_lx += w * x * l as f32;
        sums.sum_l2 += w * l as f32 * l as f32;
    }
    codes = codes.map(|l| i32::from(l as u8));
    sums.run::<true>(x, weight, &mut codes, (i32::MIN, nmax));
    let scale = if sums.sum_l2 > 0.0 { sums.sum_lx / sums.sum_l2 } else { 0.0 };
    (scale, codes.map(|l| l as u8))
}
