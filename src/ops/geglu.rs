//! GeGLU: y = gelu(gate) · up, gelu in its tanh form.

use crate::ops::exact::{canon, sigmoid};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `geglu`.
    pub struct GegluParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
    }
}

impl Params for GegluParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

/// `gate`, `up`, `y`: `[token][dim]`.
pub fn geglu(p: &GegluParams, gate: &[f32], up: &[f32], y: &mut [f32]) {
    for i in 0..(p.n_tokens * p.dim) as usize {
        y[i] = element(gate[i], up[i]);
    }
}

/// 16, beyond which gelu is the identity or 0.
const FAR: f32 = 16.0;

/// x, its magnitude 16 at most; that is what a NaN's becomes, whose product with the sigmoid is one all the same.
#[inline(always)]
pub fn near(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits & 0x8000_0000) | (bits & 0x7fff_ffff).min(FAR.to_bits()))
}

/// What x is multiplied with is the sigmoid of this: 2·sqrt(2/π)·(t + 0.044715 t³), t being x where that is near 0.
/// ½x(1 + tanh(z)) is x·sigmoid(2z), which loses no digits where x is negative.
#[inline(always)]
#[allow(clippy::excessive_precision, reason = "the constant as docs/exactness.md writes it")]
pub fn argument(x: f32) -> f32 {
    let t = near(x);
    let u = t * (1.0 + 0.044715 * (t * t));
    1.5957691216 * u
}

/// One element.
#[inline(always)]
pub fn element(g: f32, u: f32) -> f32 {
    canon((g * sigmoid(argument(g))) * u)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_follows_the_f64_curve_on_both_sides() {
        for i in -9000..=9000 {
            let x = i as f32 * 0.001;
            let v = f64::from(x);
            // ½(1 + tanh z) without cancellation
            let z = (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v);
            let want = v / (1.0 + (-2.0 * z).exp());
            let found = f64::from(element(x, 1.0));
            assert!((found - want).abs() <= 2e-5 * want.abs() + 1e-14, "{x}: {found:e} for {want:e}");
        }
        assert_eq!(element(100.0, 2.0), 200.0);
        assert_eq!(element(-100.0, 2.0), 0.0);
        assert!(element(f32::NAN, 1.0).is_nan() && element(1.0, f32::NAN).is_nan());
    }
}
