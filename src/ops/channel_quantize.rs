//! `channel_quantize`: keys or values to the integers a c8 cache holds, by a scale and an offset of each channel.

use crate::ops::exact::{POISON, fdiv, i2f, too_large};
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `channel_quantize`.
    pub struct ChannelQuantizeParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
    }
}

impl Params for ChannelQuantizeParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }
}

/// `scale`, of at least 2^-40, and `offset`: `[dim]`; `x`: `[token][dim]`, replaced by x / scale + offset, rounded (ties to
/// even) and brought to -128..=127. What is not finite becomes `POISON`, which the cache marks.
pub fn channel_quantize(p: &ChannelQuantizeParams, scale: &[f32], offset: &[f32], x: &mut [f32]) {
    let dim = p.dim as usize;
    for i in 0..p.n_tokens as usize * dim {
        x[i] = code(x[i], scale[i % dim], offset[i % dim]);
    }
}

/// One element.
fn code(x: f32, scale: f32, offset: f32) -> f32 {
    if too_large(x) {
        return POISON;
    }
    let c = fdiv(x, scale) + offset;
    // through an integer, so that there is no -0
    i2f(c.clamp(-128.0, 127.0).round_ties_even() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_rounded_to_even_and_stay_in_a_byte() {
        let of = |x: f32, offset: f32| code(x, 0.5, offset);
        assert_eq!([of(0.25, 0.0), of(0.75, 0.0), of(-0.25, 1.0), of(-1.25, 0.0)], [0.0, 2.0, 0.0, -2.0]);
        assert_eq!([of(1e9, 0.0), of(-1e9, 0.0), of(63.5, 0.5), of(-64.25, 0.0)], [127.0, -128.0, 127.0, -128.0]);
        assert_eq!(of(-0.1, 0.0).to_bits(), 0);
        for x in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, POISON, 2f32.powi(64)] {
            assert_eq!(of(x, 3.0).to_bits(), POISON.to_bits());
        }
    }
}
