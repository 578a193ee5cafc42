//! Softcap of every element: x = cap · tanh(x / cap), which lies between -cap and cap.

use crate::ops::exact::{canon, ftanh};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `softcap`.
    pub struct SoftcapParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
        /// the cap, between 1e-6 and 1e6
        pub cap: f32,
        /// f32(1 / cap)
        pub inv_cap: f32,
    }
}

impl Params for SoftcapParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }
}

/// What scores and logits are multiplied with before the tanh: f32(1 / cap), and 0 where there is no cap.
pub fn inverse(cap: f32) -> f32 {
    if cap == 0.0 { 0.0 } else { (1.0 / f64::from(cap)) as f32 }
}

/// `x`: `[token][dim]`.
pub fn softcap(p: &SoftcapParams, x: &mut [f32]) {
    for x in &mut x[..(p.n_tokens * p.dim) as usize] {
        *x = element(*x, p.cap, p.inv_cap);
    }
}

/// One element.
#[inline]
pub fn element(x: f32, cap: f32, inv_cap: f32) -> f32 {
    canon(cap * ftanh(x * inv_cap))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::exact::POISON;

    #[test]
    fn it_follows_the_f64_curve_and_never_leaves_the_cap() {
        for cap in [1e-6f32, 0.3, 30.0, 50.0, 1e6] {
            let inv = inverse(cap);
            for i in -4000..=4000 {
                let x = i as f32 * cap * 0.002;
                let want = f64::from(cap) * libm::tanh(f64::from(x) / f64::from(cap));
                let found = f64::from(element(x, cap, inv));
                assert!((found - want).abs() <= 4e-7 * want.abs() + 1e-14, "{x} of {cap}: {found:e} for {want:e}");
                assert!(found.abs() <= f64::from(cap));
            }
            assert_eq!((element(1e19, cap, inv), element(-1e19, cap, inv)), (cap, -cap));
            assert_eq!(element(POISON, cap, inv).to_bits(), POISON.to_bits());
            assert_eq!(element(-0.0, cap, inv).to_bits(), 0);
        }
    }
}
