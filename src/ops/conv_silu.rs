//! A causal convolution of each channel over four tokens, then silu: y = silu(w\[0\]·u\[t-3\] + … + w\[3\]·u\[t\] + bias), the
//! bias being 0 where there is none. What the three tokens before a step's first gave lies in the state.

use crate::ops::exact::{canon, sigmoid};
use crate::ops::params::{At, Params, params};
use crate::ops::strands::Strands;

/// Tokens a channel looks at.
pub const TAPS: usize = 4;

/// Rows of the state: what the tokens before gave, the oldest first.
pub const KEPT: usize = TAPS - 1;

params! {
    /// Parameters of `conv_silu`.
    pub struct ConvSiluParams {
        /// tokens
        pub n_tokens: u32,
        /// sequences they are of
        pub strands: u32,
        /// channels of the first output: a delta net's queries and keys, the channels of a state space layer
        pub front: u32,
        /// all channels
        pub channels: u32,
        /// 1: the biases of all channels follow the weights; 0: there are none
        pub biased: u32,
    }
}

impl Params for ConvSiluParams {
    const OUTPUTS: usize = 3;

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, strands: step.strands, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.channels.div_ceil(64), self.strands]
    }

    fn replaces(&self, output: usize) -> bool {
        output > 0
    }
}

/// `u` `[token][channel]`, `w` `[channel][4]`, then the biases `[channel]` where there are any; `state` `[slot][3][channel]`; `qk` `[token][front]` and `v`
/// `[token][channels - front]`.
pub fn conv_silu(
    p: &ConvSiluParams,
    u: &[f32],
    w: &[f32],
    strands: Strands,
    state: &mut [f32],
    qk: &mut [f32],
    v: &mut [f32],
) {
    let (channels, front) = (p.channels as usize, p.front as usize);
    let at = |slot: usize, row: usize, c: usize| (slot * KEPT + row) * channels + c;
    for strand in strands.take(p.strands) {
        for c in 0..channels {
            let mut kept: [f32; KEPT] =
                std::array::from_fn(|row| strand.source.map_or(0.0, |slot| state[at(slot, row, c)]));
            for &t in strand.tokens {
                let t = t as usize;
                let [a, b, d] = kept;
                let seen = [a, b, d, u[t * channels + c]];
                let bias = (p.biased == 1).then(|| w[channels * TAPS + c]);
                let y = element(seen, std::array::from_fn(|j| w[c * TAPS + j]), bias);
                match c.checked_sub(front) {
                    Some(c) => v[t * (channels - front) + c] = y,
                    None => qk[t * front + c] = y,
                }
                kept = [seen[1], seen[2], seen[3]];
            }
            for (row, u) in kept.into_iter().enumerate() {
                state[at(strand.target, row, c)] = u;
            }
        }
    }
}

/// One result.
#[inline(always)]
fn element(seen: [f32; TAPS], w: [f32; TAPS], bias: Option<f32>) -> f32 {
    let mut acc = 0.0;
    for (u, w) in seen.into_iter().zip(w) {
        acc += w * u;
    }
    if let Some(bias) = bias {
        acc += bias;
    }
    let x = canon(acc);
    canon(x * sigmoid(x))
}
