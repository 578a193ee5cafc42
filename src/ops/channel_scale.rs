//! `channel_scale`: rows of heads times the scale of each channel, as a c8 cache of keys or of values asks for it.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `channel_scale`.
    pub struct ChannelScaleParams {
        /// rows
        pub n_tokens: u32,
        /// heads in a row
        pub heads: u32,
        /// key-value heads; `heads / kv_heads` heads have the channels of one
        pub kv_heads: u32,
        /// elements in a head
        pub head_dim: u32,
        /// 1: less the offsets, for what attention makes of c8 values; 0: the scales alone, for queries of c8 keys
        pub less_offset: u32,
    }
}

impl Params for ChannelScaleParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [(self.heads * self.head_dim).div_ceil(256), self.n_tokens]
    }
}

/// `scale`, `offset`: `[kv_heads][head_dim]`; `x`: `[token][heads][head_dim]`, replaced by (x - offset) * scale, or by
/// x * scale.
pub fn channel_scale(p: &ChannelScaleParams, scale: &[f32], offset: &[f32], x: &mut [f32]) {
    let (heads, hd, sharing) = (p.heads as usize, p.head_dim as usize, (p.heads / p.kv_heads) as usize);
    for i in 0..p.n_tokens as usize * heads * hd {
        let channel = i / hd % heads / sharing * hd + i % hd;
        let from = if p.less_offset == 1 { x[i] - offset[channel] } else { x[i] };
        x[i] = canon(from * scale[channel]);
    }
}
