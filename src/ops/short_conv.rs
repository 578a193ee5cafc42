//! A short causal convolution between two gates: y = c · (w\[0\]·p\[t-2\] + w\[1\]·p\[t-1\] + w\[2\]·p\[t\]), p = b · u of each
//! token. What the two tokens before a step's first gave, their p, lies in the state.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};
use crate::ops::strands::Strands;

/// Tokens a channel looks at.
pub const TAPS: usize = 3;

/// Rows of the state: products of the tokens before, the oldest first.
pub const KEPT: usize = TAPS - 1;

params! {
    /// Parameters of `short_conv`.
    pub struct ShortConvParams {
        /// tokens
        pub n_tokens: u32,
        /// sequences they are of
        pub strands: u32,
        /// channels
        pub dim: u32,
    }
}

impl Params for ShortConvParams {
    const OUTPUTS: usize = 2;

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, strands: step.strands, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(64), self.strands]
    }

    fn replaces(&self, output: usize) -> bool {
        output > 0
    }
}

/// `x` `[token][b, c, u][dim]`, `w` `[dim][3]`; `state` `[slot][2][dim]`; `y` `[token][dim]`.
pub fn short_conv(p: &ShortConvParams, x: &[f32], w: &[f32], strands: Strands, state: &mut [f32], y: &mut [f32]) {
    let dim = p.dim as usize;
    let at = |slot: usize, row: usize, c: usize| (slot * KEPT + row) * dim + c;
    for strand in strands.take(p.strands) {
        for c in 0..dim {
            let mut kept: [f32; KEPT] =
                std::array::from_fn(|row| strand.source.map_or(0.0, |slot| state[at(slot, row, c)]));
            for &t in strand.tokens {
                let t = t as usize;
                let [b, gate, u] = std::array::from_fn(|part| x[(3 * t + part) * dim + c]);
                let seen = [kept[0], kept[1], canon(b * u)];
                y[t * dim + c] = element(seen, std::array::from_fn(|j| w[c * TAPS + j]), gate);
                kept = [seen[1], seen[2]];
            }
            for (row, p) in kept.into_iter().enumerate() {
                state[at(strand.target, row, c)] = p;
            }
        }
    }
}

/// One result.
#[inline(always)]
fn element(seen: [f32; TAPS], w: [f32; TAPS], gate: f32) -> f32 {
    let mut acc = 0.0;
    for (p, w) in seen.into_iter().zip(w) {
        acc += w * p;
    }
    canon(gate * canon(acc))
}
