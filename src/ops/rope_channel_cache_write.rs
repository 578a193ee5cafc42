//! `rope_channel_cache_write`: `rope_cache_write` where keys or values go to a c8 cache, with `channel_quantize` and
//! `channel_scale` between its parts.

use crate::ops::cache::{CacheType, cache_write_k, cache_write_v};
use crate::ops::channel_quantize::{ChannelQuantizeParams, channel_quantize};
use crate::ops::channel_scale::{ChannelScaleParams, channel_scale};
use crate::ops::places::Places;
use crate::ops::rope::rope;
use crate::ops::rope_cache_write::RopeCacheWriteParams;

/// The scales and offsets of keys and of values, `[kv_heads][head_dim]` each, in `channels`, which has those of the sides that
/// are c8, after one another.
pub fn sides<'a>(
    (kt, vt): (CacheType, CacheType),
    p: &RopeCacheWriteParams,
    channels: &'a [f32],
) -> [Option<(&'a [f32], &'a [f32])>; 2] {
    let width = p.widths().1;
    let mut pairs = channels.chunks_exact(2 * width).map(|pair| pair.split_at(width));
    [kt, vt].map(|t| if t == CacheType::C8 { pairs.next() } else { None })
}

impl RopeCacheWriteParams {
    /// `channel_quantize` of so many rows of keys or values.
    pub fn codes(&self, n_tokens: usize) -> ChannelQuantizeParams {
        ChannelQuantizeParams { n_tokens: n_tokens as u32, dim: self.kv_heads * self.head_dim }
    }

    /// `channel_scale` of so many rows of queries.
    pub fn scaled(&self, n_tokens: usize) -> ChannelScaleParams {
        ChannelScaleParams {
            n_tokens: n_tokens as u32,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            less_offset: 0,
        }
    }
}

/// `table` `[token][n_rot/2][cos, sin]`; `channels` as [`sides`] reads them; `qkv` `[token][heads + 2 kv_heads][head_dim]`;
/// `q` `[token][heads][head_dim]`; `keys`, `values`: one page each.
pub fn rope_channel_cache_write(
    types: (CacheType, CacheType),
    p: &RopeCacheWriteParams,
    table: &[f32],
    channels: &[f32],
    qkv: &[f32],
    places: Places,
    q: &mut [f32],
    keys: &mut [u32],
    values: &mut [u32],
) {
    let (width, kv_width) = p.widths();
    let [of_keys, of_values] = sides(types, p, channels);
    let rows = 0..p.n_tokens as usize;
    for t in rows.filter(|&t| p.write(1).page().own(&places, t).is_some()) {
        let row = &qkv[t * (width + 2 * kv_width)..][..width + 2 * kv_width];
        let table = &table[t * p.n_rot as usize..][..p.n_rot as usize];
        let q = &mut q[t * width..][..width];
        q.copy_from_slice(&row[..width]);
        rope(&p.rope(p.heads), table, q);
        let mut key = row[width..width + kv_width].to_vec();
        rope(&p.rope(p.kv_heads), table, &mut key);
        let mut value = row[width + kv_width..].to_vec();
        if let Some((scale, offset)) = of_keys {
            channel_quantize(&p.codes(1), scale, offset, &mut key);
            channel_scale(&p.scaled(1), scale, offset, q);
        }
        if let Some((scale, offset)) = of_values {
            channel_quantize(&p.codes(1), scale, offset, &mut value);
        }
        cache_write_k(types.0, &p.write(1), places.from(t), &key, &value, keys);
        cache_write_v(types.1, &p.write(1), places.from(t), &value, values);
    }
}
