//! The activation of gpt-oss: y = g · sigmoid(1.702 g) · (u + 1), gate and up clamped.

use crate::ops::exact::{canon, sigmoid};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `swiglu_oai`.
    pub struct SwigluOaiParams {
        /// rows
        pub n_tokens: u32,
        /// gate values in a row, and up values after them
        pub dim: u32,
        /// the greatest gate and the greatest magnitude of up: positive, 2^63 at most (7 of gpt-oss)
        pub limit: f32,
    }
}

impl Params for SwigluOaiParams {
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

/// `gate_up` `[token][gate, up][dim]`, `y` `[token][dim]`.
pub fn swiglu_oai(p: &SwigluOaiParams, gate_up: &[f32], y: &mut [f32]) {
    let dim = p.dim as usize;
    for t in 0..p.n_tokens as usize {
        let (gate, up) = gate_up[2 * t * dim..][..2 * dim].split_at(dim);
        for i in 0..dim {
            y[t * dim + i] = element(gate[i], up[i], p.limit);
        }
    }
}

/// x, its magnitude `limit` at most; a NaN stays one.
#[inline(always)]
fn within(x: f32, limit: f32) -> f32 {
    let (bits, magnitude) = (x.to_bits(), x.to_bits() & 0x7fff_ffff);
    let beyond = magnitude > limit.to_bits() && magnitude < 0x7f80_0000;
    if beyond { f32::from_bits((bits & 0x8000_0000) | limit.to_bits()) } else { x }
}

/// One element; `gate` and `up` are as they are stored.
#[inline(always)]
pub fn element(gate: f32, up: f32, limit: f32) -> f32 {
    let g = if gate.to_bits() >> 31 == 1 { gate } else { within(gate, limit) };
    let u = within(up, limit);
    canon((g * sigmoid(1.702 * g)) * (u + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_f64_formula_within_and_beyond_the_limit() {
        for i in -200..200 {
            for u in [-9.0f32, -6.5, 0.0, 3.0, 7.0, 8.0] {
                let g = i as f32 * 0.1;
                let (a, b) = (f64::from(g).min(7.0), f64::from(u).clamp(-7.0, 7.0));
                let want = a / (1.0 + (-1.702 * a).exp()) * (b + 1.0);
                let found = f64::from(element(g, u, 7.0));
                assert!((found - want).abs() <= 2e-6 * want.abs() + 1e-9, "{g} {u}: {found} for {want}");
            }
        }
        assert!(element(f32::NAN, 1.0, 7.0).is_nan() && element(1.0, f32::NAN, 7.0).is_nan());
    }
}
