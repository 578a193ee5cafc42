//! What is left of a row of gates by a bound that as many exceed as would of a normal distribution: y = relu(x - (mean +
//! factor · deviation)), both of the row itself, summed in 256 lanes as those of `layer_norm`.

use crate::ops::exact::{canon, fsqrt, tree_sum};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `gaussian_topk`.
    pub struct GaussianTopkParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
        /// f32(1 / dim), from the CPU
        pub inv_n: f32,
        /// deviations above the mean that the bound is at: the quantile of the normal distribution for the share that is
        /// dropped; 0 or of magnitude 2^-20 to 2^20
        pub factor: f32,
    }
}

impl Params for GaussianTopkParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [1, self.n_tokens]
    }
}

/// `x`: `[row][dim]`, replaced. The deviation is the root of the mean square of what elements differ from the mean by (of all
/// n, not n - 1).
pub fn gaussian_topk(p: &GaussianTopkParams, x: &mut [f32]) {
    for row in x.chunks_exact_mut(p.dim as usize).take(p.n_tokens as usize) {
        rest_of_row(p, row);
    }
}

/// One row.
pub fn rest_of_row(p: &GaussianTopkParams, x: &mut [f32]) {
    let mut lanes = [0f32; 256];
    for (i, v) in x.iter().enumerate() {
        lanes[i % 256] += v;
    }
    let mean = tree_sum(&mut lanes) * p.inv_n;
    let mut lanes = [0f32; 256];
    for (i, v) in x.iter().enumerate() {
        let d = canon(v - mean);
        lanes[i % 256] += d * d;
    }
    let bound = mean + fsqrt(tree_sum(&mut lanes) * p.inv_n) * p.factor;
    for v in x {
        *v = beyond(*v, bound);
    }
}

/// What `x` exceeds `bound` by, or 0; what is no number stays so.
#[inline(always)]
pub fn beyond(x: f32, bound: f32) -> f32 {
    let rest = canon(x - bound);
    if rest < 0.0 { 0.0 } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_bound_in_f64_and_drops_what_is_below() {
        let n = 700;
        let x: Vec<f32> = (0..n).map(|i| ((i * 37 % 251) as f32 - 100.0) * 0.013).collect();
        let p = GaussianTopkParams { n_tokens: 1, dim: n as u32, inv_n: 1.0 / n as f32, factor: 0.8 };
        let mut y = x.clone();
        gaussian_topk(&p, &mut y);
        let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / n as f64;
        let deviation = (x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        for (x, y) in x.iter().zip(&y) {
            let want = (f64::from(*x) - (mean + 0.8 * deviation)).max(0.0);
            assert!((f64::from(*y) - want).abs() < 1e-6, "{x}: {y} for {want}");
        }
        let kept = y.iter().filter(|y| **y > 0.0).count();
        assert!((1..n / 3).contains(&kept), "{kept} of {n}");
    }

    #[test]
    fn what_is_not_finite_makes_its_row_poison_and_no_other() {
        let p = GaussianTopkParams { n_tokens: 2, dim: 3, inv_n: 1.0 / 3.0, factor: 1.0 };
        let mut x = [1.0, f32::NAN, 2.0, 1.0, 3.0, 2.0];
        gaussian_topk(&p, &mut x);
        assert!(x[..3].iter().all(|v| v.to_bits() == 0x7fc0_0000) && x[3..].iter().all(|v| v.is_finite()), "{x:?}");
    }
}
