//! Gelu of what has no gate: y = x · Φ(x), by its tanh form or as it is.

use crate::ops::exact::{canon, fdiv, fexp, sigmoid};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `gelu`.
    pub struct GeluParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
        /// 1: Φ by the error function; 0: by tanh
        pub erf: u32,
    }
}

impl Params for GeluParams {
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

/// `x`, `y`: `[token][dim]`.
pub fn gelu(p: &GeluParams, x: &[f32], y: &mut [f32]) {
    for i in 0..(p.n_tokens * p.dim) as usize {
        y[i] = element(p.erf == 1, x[i]);
    }
}

/// One element.
pub fn element(erf: bool, x: f32) -> f32 {
    if erf { by_erf(x) } else { canon(x * sigmoid(argument(x))) }
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

/// gelu by the error function.
#[inline(always)]
pub fn by_erf(x: f32) -> f32 {
    let z = magnitude(x);
    let t = fdiv(1.0, 1.0 + 0.5 * z);
    weighted(x, t, fexp(exponent(z, t)))
}

/// z = |x| / sqrt(2), of an x beyond 16, and of a NaN, that of 16.
#[inline(always)]
pub fn magnitude(x: f32) -> f32 {
    near(x).abs() * std::f32::consts::FRAC_1_SQRT_2
}

/// erfc(z) = t · e^(this), t being 1 / (1 + z/2). The polynomial was fitted to ln(erfc(z) / t) + z² for z up to 9.5, at
/// Chebyshev's places.
#[inline(always)]
#[allow(clippy::excessive_precision, reason = "the constants as docs/exactness.md writes them")]
pub fn exponent(z: f32, t: f32) -> f32 {
    let mut p = 0.140507134f32;
    p = p * t + -0.6566158322;
    p = p * t + 1.099438466;
    p = p * t + -0.6195233333;
    p = p * t + -0.1441735023;
    p = p * t + 0.03546786241;
    p = p * t + 0.02287414327;
    p = p * t + 0.3891171466;
    p = p * t + 0.9983414489;
    p = p * t + -1.265433489;
    p - z * z
}

/// x times Φ(x), which of a negative x is erfc(z)/2, and 1 less that of the others; `e`: e to the exponent.
#[inline(always)]
pub fn weighted(x: f32, t: f32, e: f32) -> f32 {
    let half = 0.5 * (t * e);
    // by the bits, a NaN's too
    canon(x * if x.to_bits() >> 31 == 0 { 1.0 - half } else { half })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_the_error_function_follows_it_on_both_sides() {
        let mut between = 0f64;
        for i in -9000..=9000 {
            let x = i as f32 * 0.001;
            let want = f64::from(x) * 0.5 * libm::erfc(-f64::from(x) * std::f64::consts::FRAC_1_SQRT_2);
            let found = f64::from(element(true, x));
            assert!((found - want).abs() <= 1e-5 * want.abs() + 1e-14, "{x}: {found:e} for {want:e}");
            assert!((found - want).abs() < 1e-6, "{x}: {found:e} for {want:e}");
            between = between.max((f64::from(element(false, x)) - found).abs());
        }
        // the forms are not each other
        assert!(between > 4e-4 && between < 6e-4, "{between}");
        for erf in [false, true] {
            assert_eq!((element(erf, 100.0), element(erf, -100.0), element(erf, 0.0)), (100.0, 0.0, 0.0));
            assert!(element(erf, f32::NAN).is_nan());
        }
    }
}
