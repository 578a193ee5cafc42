//! Prediction of the streams of a token before a layer. A model with alternating updates (AltUp; Baykal et al., 2023, and
//! Gemma 3n) has four streams a token: one that its layers work on, and others that are predicted before a layer and
//! corrected after it.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

/// Streams of a token.
pub const STREAMS: usize = 4;

/// Those that no layer works on, side by side in the buffer `others`.
pub const OTHERS: usize = STREAMS - 1;

params! {
    /// Parameters of `altup_predict`.
    pub struct AltupPredictParams {
        /// tokens
        pub n_tokens: u32,
        /// elements of a stream
        pub dim: u32,
    }
}

impl Params for AltupPredictParams {
    const OUTPUTS: usize = 2;

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }
}

/// `c` `[token][4][4]`; `x` `[token][dim]` and `others` `[token][3][dim]` are the four streams X, of which stream i becomes
/// X_i + Σ_j c_ij X_j.
pub fn altup_predict(p: &AltupPredictParams, c: &[f32], x: &mut [f32], others: &mut [f32]) {
    let dim = p.dim as usize;
    for t in 0..p.n_tokens as usize {
        let c = &c[t * STREAMS * STREAMS..];
        for e in 0..dim {
            let at = |j: usize| (t * OTHERS + j - 1) * dim + e;
            let streams = [x[t * dim + e], others[at(1)], others[at(2)], others[at(3)]];
            let predicted = |i: usize| {
                let mut acc = streams[i];
                for j in 0..STREAMS {
                    acc += c[i * STREAMS + j] * streams[j];
                }
                canon(acc)
            };
            x[t * dim + e] = predicted(0);
            for i in 1..STREAMS {
                others[at(i)] = predicted(i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_of_a_stream_are_a_row() {
        let p = AltupPredictParams { n_tokens: 1, dim: 2 };
        let (mut x, mut others) = ([1.0, 2.0], [10.0, 20.0, 100.0, 200.0, 1000.0, 2000.0]);
        let mut c = [0f32; 16];
        // stream 0 takes twice the last, stream 2 less itself
        (c[3], c[10]) = (2.0, -1.0);
        altup_predict(&p, &c, &mut x, &mut others);
        assert_eq!((x, others), ([2001.0, 4002.0], [10.0, 20.0, 0.0, 0.0, 1000.0, 2000.0]));
    }
}
