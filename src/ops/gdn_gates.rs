//! The gates of a gated delta net, two numbers of each head: how much of what is new is taken, and what share of the state
//! stays.

use crate::ops::exact::{canon, fdiv, fexp, sigmoid};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `gdn_gates`.
    pub struct GdnGatesParams {
        /// tokens
        pub n_tokens: u32,
        /// value heads
        pub heads: u32,
        /// heads whose b stand side by side in a row, before their a: all of them, or those of one key head
        pub group: u32,
        /// what every b is multiplied with, a finite number: the scale of the matrix it is from (NVFP4), or 1
        pub b_scale: f32,
        /// what every a is multiplied with, likewise
        pub a_scale: f32,
    }
}

impl Params for GdnGatesParams {
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

/// Coefficients of the series of [`softplus`], 1/13 to 1/3.
#[allow(clippy::excessive_precision, reason = "the constants as docs/exactness.md writes them")]
pub const SERIES: [f32; 6] = [0.0769230769, 0.0909090909, 0.111111111, 0.142857143, 0.2, 0.333333333];

/// ln(1 + e^x) of what is stored: max(x, 0) + ln(1 + e^-|x|), of which the second is 2·artanh(s), s = e / (2 + e).
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let e = fexp(-x.abs());
    let s = canon(fdiv(e, 2.0 + e));
    let z = s * s;
    let mut p = SERIES[0];
    for c in &SERIES[1..] {
        p = p * z + c;
    }
    p = p * z + 1.0;
    let least = if x.is_sign_negative() { 0.0 } else { x };
    canon(least + 2.0 * (s * p))
}

/// `ba` `[token][heads / group][b, a][group]`, `a` `[heads]` and `dt` `[heads]`; `gates` `[token][beta, gamma][heads]`.
pub fn gdn_gates(p: &GdnGatesParams, ba: &[f32], a: &[f32], dt: &[f32], gates: &mut [f32]) {
    let (heads, group) = (p.heads as usize, p.group as usize);
    for t in 0..p.n_tokens as usize {
        let row = t * 2 * heads;
        for h in 0..heads {
            let at = row + h / group * 2 * group + h % group;
            gates[row + h] = canon(sigmoid(canon(ba[at] * p.b_scale)));
            let open = softplus(canon(canon(ba[at + group] * p.a_scale) + dt[h]));
            gates[row + heads + h] = canon(fexp(canon(a[h] * open)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softplus_follows_the_f64_curve() {
        let mut worst = 0f64;
        for i in -3300..90_000 {
            let x = i as f32 * 0.01;
            let want = if x > 40.0 { f64::from(x) } else { libm::log1p(libm::exp(f64::from(x))) };
            worst = worst.max((f64::from(softplus(x)) - want).abs() / want);
        }
        assert!(worst < 4e-7, "{worst:e}");
        assert_eq!((softplus(-80.0), softplus(1e9)), (0.0, 1e9));
    }
}
