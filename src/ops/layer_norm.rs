//! Layer norm. y = (x - mean(x)) / sqrt(var(x) + eps) · w, plus a bias where there is one; both means summed in 256 lanes as
//! those of `rms_norm` (`docs/exactness.md` section 5).

use crate::ops::exact::{canon, fdiv, fsqrt, tree_sum};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `layer_norm`.
    pub struct LayerNormParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
        /// f32(1 / dim), from the CPU
        pub inv_n: f32,
        /// added to the variance
        pub eps: f32,
        /// rows of weights: row r of x goes by row r mod this one
        pub w_rows: u32,
        /// 1: the bias is added; 0: its buffer is not read
        pub biased: u32,
    }
}

impl Params for LayerNormParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [1, self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

impl LayerNormParams {
    /// The weights of row `r`, or its biases, of all rows of them.
    pub fn of_row<'a>(&self, r: usize, all: &'a [f32]) -> &'a [f32] {
        let dim = self.dim as usize;
        &all[r % self.w_rows as usize * dim..][..dim]
    }
}

/// `x`, `y`: `[row][dim]`; `w`, and where it is read `b`: `[w_rows][dim]`.
pub fn layer_norm(p: &LayerNormParams, x: &[f32], w: &[f32], b: &[f32], y: &mut [f32]) {
    let dim = p.dim as usize;
    for r in 0..p.n_tokens as usize {
        let b = if p.biased == 1 { p.of_row(r, b) } else { &[] };
        row(p, &x[r * dim..][..dim], p.of_row(r, w), b, &mut y[r * dim..][..dim]);
    }
}

/// One row, with its weights and, where they are added, its biases.
pub fn row(p: &LayerNormParams, x: &[f32], w: &[f32], b: &[f32], y: &mut [f32]) {
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
    let variance = tree_sum(&mut lanes) * p.inv_n;
    let s = fdiv(1.0, fsqrt(variance + p.eps));
    for i in 0..x.len() {
        y[i] = canon((canon(x[i] - mean) * s) * w[i]);
        if p.biased == 1 {
            y[i] = canon(y[i] + b[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_norm_in_f64() {
        let x: Vec<f32> = (0..700).map(|i| ((i * 37 % 251) as f32 - 100.0) * 0.013).collect();
        let w: Vec<f32> = (0..700).map(|i| 1.0 + (i % 7) as f32 * 0.1).collect();
        let b: Vec<f32> = (0..700).map(|i| (i % 5) as f32 - 2.0).collect();
        let p = LayerNormParams { n_tokens: 1, dim: 700, inv_n: 1.0 / 700.0, eps: 1e-5, w_rows: 1, biased: 1 };
        let mut y = vec![0f32; 700];
        layer_norm(&p, &x, &w, &b, &mut y);
        let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / 700.0;
        let variance = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / 700.0;
        for i in 0..700 {
            let want = (f64::from(x[i]) - mean) / (variance + 1e-5).sqrt() * f64::from(w[i]) + f64::from(b[i]);
            assert!((f64::from(y[i]) - want).abs() < 2e-6, "{i}: {} for {want}", y[i]);
        }
    }

    #[test]
    fn what_is_not_finite_makes_its_row_poison_and_no_other() {
        let p = LayerNormParams { n_tokens: 2, dim: 3, inv_n: 1.0 / 3.0, eps: 1e-5, w_rows: 1, biased: 1 };
        let mut y = [0f32; 6];
        layer_norm(&p, &[1.0, f32::NAN, 2.0, 1.0, 3.0, 2.0], &[1.0; 3], &[0.0; 3], &mut y);
        assert!(y[..3].iter().all(|v| v.to_bits() == 0x7fc0_0000) && y[3..].iter().all(|v| v.is_finite()), "{y:?}");
    }
}
