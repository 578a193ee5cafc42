//! The streams that no layer works on (`altup_predict`) made as large as the one that layers do.

use crate::ops::altup_predict::OTHERS;
use crate::ops::exact::{canon, fdiv, fsqrt, tree_sum};
use crate::ops::params::{At, Params, params};

/// The least mean square that is divided by (1e-5).
pub const SQUARE_MIN: f32 = 1e-5;

params! {
    /// Parameters of `altup_rescale`.
    pub struct AltupRescaleParams {
        /// tokens
        pub n_tokens: u32,
        /// elements of a stream
        pub dim: u32,
        /// f32(1 / dim), from the CPU
        pub inv_n: f32,
    }
}

impl Params for AltupRescaleParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [OTHERS as u32, self.n_tokens]
    }
}

/// `x` `[token][dim]`; `others` `[token][3][dim]`, each of which becomes as large as x: its root mean square is that of x.
pub fn altup_rescale(p: &AltupRescaleParams, x: &[f32], others: &mut [f32]) {
    let dim = p.dim as usize;
    for (i, other) in others.chunks_exact_mut(dim).take(p.n_tokens as usize * OTHERS).enumerate() {
        rescale(p, &x[i / OTHERS * dim..][..dim], other);
    }
}

/// One stream.
pub fn rescale(p: &AltupRescaleParams, x: &[f32], other: &mut [f32]) {
    let [wanted, found] = [x, &*other].map(|v| {
        let mut lanes = [0f32; 256];
        for (i, v) in v.iter().enumerate() {
            lanes[i % 256] += v * v;
        }
        tree_sum(&mut lanes) * p.inv_n
    });
    let s = ratio(wanted, found);
    for v in other {
        *v = canon(*v * s);
    }
}

/// The ratio of the roots of two mean squares.
pub fn ratio(wanted: f32, found: f32) -> f32 {
    // a NaN stays one
    let found = if found < SQUARE_MIN { SQUARE_MIN } else { found };
    fdiv(fsqrt(wanted), fsqrt(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_gets_the_root_mean_square_of_the_other_and_small_ones_are_not_divided_by() {
        let x: Vec<f32> = (0..300).map(|i| ((i * 37 % 251) as f32 - 100.0) * 0.013).collect();
        let mut others: Vec<f32> = (0..900).map(|i| ((i * 89 % 83) as f32 - 41.0) * 0.7).collect();
        others[600..].iter_mut().for_each(|v| *v *= 1e-5);
        let before = others.clone();
        let p = AltupRescaleParams { n_tokens: 1, dim: 300, inv_n: 1.0 / 300.0 };
        altup_rescale(&p, &x, &mut others);
        let rms = |v: &[f32]| (v.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / 300.0).sqrt();
        for i in 0..2 {
            assert!((rms(&others[i * 300..][..300]) / rms(&x) - 1.0).abs() < 1e-6, "{i}");
        }
        // the mean square of the last is 1.4e-8: it is divided by the root of 1e-5
        let by = rms(&x) / 1e-5f64.sqrt();
        for (found, before) in others[600..].iter().zip(&before[600..]) {
            assert!((f64::from(*found) - f64::from(*before) * by).abs() < 1e-6 * by);
        }
        others[0] = f32::NAN;
        altup_rescale(&p, &x, &mut others);
        assert!(
            others[..300].iter().all(|v| v.to_bits() == 0x7fc0_0000) && others[300..].iter().all(|v| v.is_finite())
        );
    }
}
