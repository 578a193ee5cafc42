//! What a run over a text showed of the model's activations.

use super::linear::Input;
use std::collections::BTreeMap;

/// The least and the greatest value of each channel of a tensor `[token][channels]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Channels {
    /// 0 or less
    pub min: Vec<f32>,
    /// 0 or more
    pub max: Vec<f32>,
}

impl Channels {
    /// Takes in tokens, `[token][channels]`. Values that are not finite are passed over: the run says so itself.
    pub fn see(&mut self, x: &[f32], channels: usize) {
        self.min.resize(channels, 0.0);
        self.max.resize(channels, 0.0);
        for row in x.chunks_exact(channels.max(1)) {
            for ((v, min), max) in row.iter().zip(&mut self.min).zip(&mut self.max) {
                if v.is_finite() {
                    *min = min.min(*v);
                    *max = max.max(*v);
                }
            }
        }
    }

    /// The greatest magnitude of each channel.
    pub fn peaks(&self) -> Vec<f32> {
        self.min.iter().zip(&self.max).map(|(min, max)| max.max(-min)).collect()
    }

    /// The least and the greatest value of all channels, each divided by its factor.
    pub fn range(&self, factors: Option<&[f32]>) -> (f32, f32) {
        let factor = |i: usize| factors.and_then(|f| f.get(i)).copied().unwrap_or(1.0);
        let min = self.min.iter().enumerate().fold(0f32, |m, (i, v)| m.min(v / factor(i)));
        let max = self.max.iter().enumerate().fold(0f32, |m, (i, v)| m.max(v / factor(i)));
        (min, max)
    }

    /// A scale and an offset for each channel.
    pub fn each(&self) -> Vec<Input> {
        self.min.iter().zip(&self.max).map(|(min, max)| Input::of(*min, *max)).collect()
    }
}

/// Of a whole model. Tensors are known by their index in the container that was run.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// the input of each matrix of the layers
    pub inputs: BTreeMap<usize, Channels>,
    /// keys of each layer as they go into the cache, rotated, `[kv_heads · head_dim]`
    pub keys: BTreeMap<usize, Channels>,
    /// values of each layer
    pub values: BTreeMap<usize, Channels>,
    /// tokens that were run
    pub tokens: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_keep_their_ends_and_a_factor_moves_them() {
        let mut c = Channels::default();
        c.see(&[1.0, -2.0, 0.5, 4.0, f32::NAN, 3.0], 2);
        c.see(&[-0.25, 1.0], 2);
        assert_eq!((&c.min[..], &c.max[..]), (&[-0.25, -2.0][..], &[1.0, 4.0][..]));
        assert_eq!(c.peaks(), [1.0, 4.0]);
        assert_eq!(c.range(None), (-2.0, 4.0));
        assert_eq!(c.range(Some(&[0.1, 8.0])), (-2.5, 10.0));
        assert_eq!(c.each()[1], Input::of(-2.0, 4.0));
    }
}
