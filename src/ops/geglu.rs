//! GeGLU: y = gelu(gate) · up, gelu by its tanh form or as it is.

use crate::ops::exact::{canon, sigmoid};
use crate::ops::gelu::{argument, by_erf};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `geglu`.
    pub struct GegluParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
        /// 1: gelu by the error function; 0: by tanh
        pub erf: u32,
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
        y[i] = element(p.erf == 1, gate[i], up[i]);
    }
}

/// One element.
#[inline(always)]
pub fn element(erf: bool, g: f32, u: f32) -> f32 {
    canon(if erf { by_erf(g) } else { g * sigmoid(argument(g)) } * u)
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
            let found = f64::from(element(false, x, 1.0));
            assert!((found - want).abs() <= 2e-5 * want.abs() + 1e-14, "{x}: {found:e} for {want:e}");
        }
        for erf in [false, true] {
            assert_eq!((element(erf, 100.0, 2.0), element(erf, -100.0, 2.0)), (200.0, 0.0));
            assert!(element(erf, f32::NAN, 1.0).is_nan() && element(erf, 1.0, f32::NAN).is_nan());
        }
        assert_eq!(element(true, 1.5, -3.0), -3.0 * by_erf(1.5));
    }
}
