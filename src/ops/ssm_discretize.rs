//! The step sizes of a state space layer, one of each head, and what share of its state stays over such a step (the
//! discretisation of Mamba-2: dt = softplus(x + bias) within bounds, gamma = e^(dt·A)).

use crate::ops::exact::{canon, fexp, not_finite};
use crate::ops::gdn_gates::softplus;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `ssm_discretize`.
    pub struct SsmDiscretizeParams {
        /// tokens
        pub n_tokens: u32,
        /// heads
        pub heads: u32,
        /// no step is less, a finite number that is 0 or 2^-50 at least
        pub least: f32,
        /// no step is more, a finite number above `least`
        pub most: f32,
    }
}

impl Params for SsmDiscretizeParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.heads.div_ceil(64), self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

/// `x` `[token][head]`, `a` and `bias` `[head]`; `gates` `[token][dt, gamma][head]`.
pub fn ssm_discretize(p: &SsmDiscretizeParams, x: &[f32], a: &[f32], bias: &[f32], gates: &mut [f32]) {
    let heads = p.heads as usize;
    for t in 0..p.n_tokens as usize {
        let row = t * 2 * heads;
        for h in 0..heads {
            let open = softplus(canon(x[t * heads + h] + bias[h]));
            // none is negative, so that their bits are in the numbers' order
            let held = f32::from_bits(open.to_bits().max(p.least.to_bits()).min(p.most.to_bits()));
            let dt = if not_finite(open) { open } else { held };
            gates[row + h] = dt;
            gates[row + heads + h] = canon(fexp(canon(dt * a[h])));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_the_f64_curve_within_their_bounds() {
        let p = SsmDiscretizeParams { n_tokens: 2, heads: 3, least: 0.05, most: 2.0 };
        let (x, a, bias) = ([-9.0f32, 0.5, 9.0, -1.0, 0.25, 0.0], [-1.5f32, -0.25, -3.0], [0.5f32, -0.25, 0.0]);
        let mut gates = [0f32; 12];
        ssm_discretize(&p, &x, &a, &bias, &mut gates);
        for (i, x) in x.into_iter().enumerate() {
            let (t, h) = (i / 3, i % 3);
            let dt = libm::log1p(libm::exp(f64::from(x + bias[h]))).clamp(f64::from(0.05f32), 2.0);
            let gamma = libm::exp(dt * f64::from(a[h]));
            let far = |got: f32, want: f64| (f64::from(got) - want).abs() / want;
            let got = (gates[t * 6 + h], gates[t * 6 + 3 + h]);
            assert!(far(got.0, dt) < 1e-6 && far(got.1, gamma) < 2e-6, "{i}: {got:?} for {dt} and {gamma}");
        }
        assert_eq!((gates[0], gates[2]), (0.05, 2.0), "both bounds are met");
    }
}
