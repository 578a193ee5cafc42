//! Cases of what stands around a c8 cache: keys and values to its integers, queries and outputs times its scales.

use super::{Case, Fill, all, bits, case, read, replaced, tokens};
use crate::ops::channel_quantize::ChannelQuantizeParams;
use crate::ops::channel_scale::ChannelScaleParams;
use crate::ops::exact::SCALE_MIN;
use crate::record::{Args, Op};

/// Scales from the least that is allowed to large ones; a power of two among them, with which halves meet halves.
pub(super) fn scales(n: usize) -> Vec<u32> {
    const SCALES: [f32; 7] = [0.013, 0.25, 1.0, SCALE_MIN, 0.037_5, 3.0e7, 0.5];
    (0..n).map(|i| SCALES[i % 7].to_bits()).collect()
}

/// Offsets, whole and not, to the largest that are allowed.
pub(super) fn offsets(n: usize) -> Vec<u32> {
    const OFFSETS: [f32; 9] = [0.0, -128.0, 0.5, 17.0, -3.25, 127.0, 32768.0, -32768.0, 0.1];
    (0..n).map(|i| OFFSETS[i % 9].to_bits()).collect()
}

const FILLS: [Fill; 9] = [
    Fill::Zeros,
    Fill::Extremes,
    Fill::Tiny,
    Fill::Ties(1),
    Fill::Outliers,
    Fill::Sweep,
    Fill::Wild,
    Fill::Poison,
    Fill::Large,
];

pub(super) fn channel_quantize() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, x: Fill| {
        list.push(case(
            format!("dim={dim} tokens={n} x={}", x.name()),
            Op::ChannelQuantize,
            Args::ChannelQuantize(ChannelQuantizeParams { n_tokens: 0, dim: dim as u32 }),
            tokens(n),
            vec![
                read("scale", scales(dim)),
                read("offset", offsets(dim)),
                replaced("x", bits(&x.make(n * dim)), all(n * dim)),
            ],
        ));
    };
    for dim in [1, 255, 256, 257, 1000] {
        one(dim, 1, Fill::Random(dim as u64));
        one(dim, 3, Fill::Prime);
    }
    for fill in FILLS {
        one(300, 3, fill);
    }
    list
}

pub(super) fn channel_scale() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |(heads, kv_heads, hd): (usize, usize, usize), less_offset: u32, n: usize, x: Fill| {
        let p = ChannelScaleParams {
            n_tokens: 0,
            heads: heads as u32,
            kv_heads: kv_heads as u32,
            head_dim: hd as u32,
            less_offset,
        };
        let width = heads * hd;
        list.push(case(
            format!("heads={heads}/{kv_heads} head_dim={hd} less_offset={less_offset} tokens={n} x={}", x.name()),
            Op::ChannelScale,
            Args::ChannelScale(p),
            tokens(n),
            vec![
                read("scale", scales(kv_heads * hd)),
                read("offset", offsets(kv_heads * hd)),
                replaced("x", bits(&x.make(n * width)), all(n * width)),
            ],
        ));
    };
    for less_offset in [0, 1] {
        for shape in [(1, 1, 32), (4, 2, 64), (6, 2, 96), (7, 1, 128), (3, 3, 160), (8, 4, 256)] {
            one(shape, less_offset, 1, Fill::Prime);
            one(shape, less_offset, 3, Fill::Random(shape.2 as u64));
        }
        for fill in FILLS {
            one((6, 2, 64), less_offset, 2, fill);
        }
    }
    list
}
