//! Cases of the fused operations: the shapes and inputs of the operations they are made of.

use super::attention::{in_order, place};
use super::channels::{offsets, scales};
use super::{
    Case, Fill, Rng, Weights, act_blocks, all, bits, case, input, read, replaced, rope_table, tokens, written,
};
use crate::blocks::BlockType;
use crate::ops::cache::CacheType;
use crate::ops::gate_up::GateUpParams;
use crate::ops::head_norms::HeadNormsParams;
use crate::ops::linear::act_words;
use crate::ops::matvec_pair::LinearPairParams;
use crate::ops::norm_quantize::NormQuantizeParams;
use crate::ops::places::CHUNK;
use crate::ops::rope_cache_write::RopeCacheWriteParams;
use crate::ops::swiglu_quantize::SwigluQuantizeParams;
use crate::record::{Args, Op, Step};

pub(super) fn norm_quantize() -> Vec<Case> {
    let mut list = Vec::new();
    for digits in [1, 2] {
        let mut one = |dim: usize, n: usize, eps: f32, x: Fill, w: Fill| {
            let p = NormQuantizeParams { n_tokens: 0, dim: dim as u32, inv_n: (1.0 / dim as f64) as f32, eps, digits };
            let live = n * act_words(dim, digits as usize);
            list.push(case(
                format!("dim={dim} tokens={n} digits={digits} eps={eps:e} x={} w={}", x.name(), w.name()),
                Op::NormQuantize,
                Args::NormQuantize(p),
                tokens(n),
                vec![
                    read("x", bits(&x.make(n * dim))),
                    read("w", bits(&w.make(dim))),
                    written("blocks", live, all(live)),
                ],
            ));
        };
        // around a group, around the eight groups done at once, and more
        for dim in [1, 4, 127, 128, 129, 257, 1024, 1025, 2048, 2304] {
            one(dim, 1, 1e-5, Fill::Prime, Fill::Random(dim as u64));
            one(dim, 3, 1e-6, Fill::Random(dim as u64 + 1), Fill::Prime);
        }
        for fill in [Fill::Zeros, Fill::Full, Fill::Extremes, Fill::Tiny, Fill::Outliers, Fill::Sweep] {
            one(300, 2, 1e-5, fill, Fill::Prime);
            one(300, 2, 1e-6, Fill::Prime, fill);
        }
        for fill in [Fill::Wild, Fill::Poison, Fill::Large] {
            one(300, 3, 1e-5, fill, Fill::Prime);
        }
        one(300, 2, 1e-5, Fill::Prime, Fill::Huge);
    }
    list
}

pub(super) fn head_norms() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |(heads, kv_heads, dim): (usize, usize, usize), n: usize, eps: f32, x: Fill, w: Fill| {
        let (inv_n, sizes) = ((1.0 / dim as f64) as f32, [heads, kv_heads, dim].map(|n| n as u32));
        let [h, kv, d] = sizes;
        let p = HeadNormsParams { n_tokens: 0, heads: h, kv_heads: kv, dim: d, inv_n, eps };
        let words = n * p.width() as usize;
        list.push(case(
            format!("heads={heads}/{kv_heads} dim={dim} tokens={n} eps={eps:e} x={} w={}", x.name(), w.name()),
            Op::HeadNorms,
            Args::HeadNorms(p),
            tokens(n),
            vec![read("w", bits(&w.make(2 * dim))), replaced("x", bits(&x.make(words)), all(words))],
        ));
    };
    for shape in [(1, 1, 64), (4, 2, 80), (7, 1, 128), (3, 3, 96), (2, 1, 256), (2, 2, 300)] {
        one(shape, 1, 1e-5, Fill::Prime, Fill::Random(shape.2 as u64));
        one(shape, 3, 1e-6, Fill::Random(shape.2 as u64 + 1), Fill::Prime);
    }
    for fill in
        [Fill::Zeros, Fill::Full, Fill::Extremes, Fill::Tiny, Fill::Outliers, Fill::Sweep, Fill::Wild, Fill::Poison]
    {
        one((4, 2, 64), 2, 1e-5, fill, Fill::Prime);
    }
    list
}

pub(super) fn swiglu_quantize() -> Vec<Case> {
    let mut list = Vec::new();
    for digits in [1, 2] {
        let mut one = |dim: usize, n: usize, gate: Fill, up: Fill| {
            let live = n * act_words(dim, digits as usize);
            let (gates, ups) = (gate.make(n * dim), up.make(n * dim));
            let rows = gates.chunks(dim).zip(ups.chunks(dim)).flat_map(|(g, u)| [g, u].concat()).collect::<Vec<f32>>();
            list.push(case(
                format!("dim={dim} tokens={n} digits={digits} gate={} up={}", gate.name(), up.name()),
                Op::SwigluQuantize,
                Args::SwigluQuantize(SwigluQuantizeParams { n_tokens: 0, dim: dim as u32, digits }),
                tokens(n),
                vec![read("gate_up", bits(&rows)), written("blocks", live, all(live))],
            ));
        };
        for dim in [1, 127, 128, 129, 300, 1000] {
            one(dim, 1, Fill::Sweep, Fill::Prime);
            one(dim, 3, Fill::Random(dim as u64), Fill::Random(dim as u64 + 1));
        }
        one(2003, 1, Fill::Sweep, Fill::Full);
        // several tasks of groups, ending within a row
        one(8300, 2, Fill::Sweep, Fill::Random(0x77));
        for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Outliers, Fill::Wild, Fill::Poison, Fill::Large] {
            one(300, 2, fill, Fill::Prime);
            one(300, 2, Fill::Prime, fill);
        }
    }
    list
}

pub(super) fn matvec_pair(ta: BlockType, tb: BlockType) -> Vec<Case> {
    let mut list = Vec::new();
    for digits in [1, 2] {
        let mut one = |(a, b): (usize, usize), k: usize, n: usize, residual: bool, w: Weights, x: Fill| {
            let (stride, offset) = if residual { (a + b + 12, 5) } else { (a + b, 0) };
            let p = LinearPairParams {
                n_tokens: 0,
                k: k as u32,
                rows: (a + b) as u32,
                digits,
                y_stride: stride as u32,
                y_offset: offset as u32,
                residual: residual.into(),
                border: a as u32,
            };
            let ranges = (0..n).map(|i| i * stride + offset..i * stride + offset + a + b).collect();
            let mut words = w.make(ta, a, k);
            words.extend(w.make(tb, b, k));
            list.push(case(
                format!(
                    "rows={a}+{b}{} k={k} tokens={n} digits={digits} w={} x={}",
                    if residual { " residual" } else { "" },
                    w.name(),
                    x.name()
                ),
                Op::MatvecPair(ta, tb),
                Args::LinearPair(p),
                tokens(n),
                vec![
                    read("w", words),
                    read("act", act_blocks(x, n, k, digits)),
                    if residual {
                        replaced("y", bits(&Fill::Random(k as u64).make(n * stride)), ranges)
                    } else {
                        written("y", n * stride, ranges)
                    },
                ],
            ));
        };
        for k in [256, 512, 1024, 1280, 2304, 8448] {
            one((64, 33), k, 2, false, Weights::Raw(k as u64), Fill::Random(k as u64 + 1));
        }
        one((64, 33), 512, 37, true, Weights::Raw(4), Fill::Random(5));
        for rows in [(32, 1), (32, 32), (96, 70), (160, 31)] {
            one(rows, 512, 1, false, Weights::Encoded(Fill::Prime), Fill::Random(rows.0 as u64));
            one(rows, 512, 5, true, Weights::Raw(rows.1 as u64), Fill::Prime);
        }
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            one((32, 32), 512, 2, false, Weights::Byte(byte), Fill::Ones);
        }
        for x in [Fill::Wild, Fill::Large] {
            one((64, 33), 512, 3, false, Weights::Raw(6), x);
            one((64, 33), 512, 37, true, Weights::Raw(7), x);
        }
    }
    list
}

pub(super) fn gate_up(t: BlockType) -> Vec<Case> {
    let few = super::has_few(t);
    let ks: &[usize] = match t.elems() {
        32 if few => &[96, 1056],
        64 => &[192, 1088],
        128 if few => &[384],
        _ if few => &[1280],
        32 => &[32, 96, 128, 160, 1024, 1056, 2304],
        128 => &[128, 384, 1024, 1152, 2304],
        _ => &[256, 512, 1024, 1280, 2304],
    };
    let mut list = Vec::new();
    for digits in [1, 2] {
        let mut one = |dim: usize, k: usize, n: usize, w: Weights, x: Fill| {
            let live = n * act_words(dim, digits as usize);
            list.push(case(
                format!("dim={dim} k={k} tokens={n} digits={digits} w={} x={}", w.name(), x.name()),
                Op::GateUp(t),
                Args::GateUp(GateUpParams { n_tokens: 0, k: k as u32, dim: dim as u32, digits }),
                tokens(n),
                vec![
                    read("w", w.make(t, 2 * dim, k)),
                    read("act", act_blocks(x, n, k, digits)),
                    written("blocks", live, all(live)),
                ],
            ));
        };
        for &k in ks {
            one(160, k, 1, Weights::Raw(k as u64), Fill::Random(k as u64 + 1));
        }
        if few {
            one(288, 512, 2, Weights::Encoded(Fill::Prime), Fill::Random(288));
            one(128, 512, 3, Weights::Raw(0x62), Fill::Wild);
            continue;
        }
        for dim in [32, 96, 128, 256, 288] {
            one(dim, 512, 2, Weights::Encoded(Fill::Prime), Fill::Random(dim as u64));
        }
        one(128, 512, 5, Weights::Encoded(Fill::Random(0x61)), Fill::Outliers);
        for x in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Wild, Fill::Large] {
            one(128, 512, 2, Weights::Raw(0x62), x);
        }
    }
    list
}

pub(super) fn rope_cache_write(kt: CacheType, vt: CacheType) -> Vec<Case> {
    let mut list = Vec::new();
    type Heads = (usize, usize, usize, usize);
    let mut with = |ring: u32,
                    (heads, kv_heads, hd, n_rot): Heads,
                    half_split: u32,
                    first: usize,
                    page: usize,
                    at: (usize, usize),
                    x| {
        let (Some(kw), Some(vw)) = (kt.words(hd), vt.words(hd)) else { return };
        let (pos, n) = at;
        let x: Fill = x;
        let p = RopeCacheWriteParams {
            n_tokens: 0,
            heads: heads as u32,
            kv_heads: kv_heads as u32,
            head_dim: hd as u32,
            n_rot: n_rot as u32,
            half_split,
            page_first: first as u32,
            page_len: page as u32,
            ring,
            table: 0,
        };
        let (mut q, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (t, at) in (0..n).filter_map(|t| Some(t).zip(place(ring, first, page, pos + t))) {
            if ring == 0 {
                q.push(t * heads * hd..(t + 1) * heads * hd);
            }
            for head in 0..kv_heads {
                let base = ((head * page + at) / 32 * kw) * 32 + at % 32;
                keys.extend((0..kw).map(|i| base + i * 32..base + i * 32 + 1));
                let base = (head * page + at) * vw;
                values.push(base..base + vw);
            }
        }
        list.push(case(
            format!(
                "heads={heads}/{kv_heads} head_dim={hd} n_rot={n_rot} half_split={half_split} {}={first}..{} pos={pos} \
                 tokens={n} x={}",
                if ring == 1 { "ring" } else { "page" },
                first + page,
                x.name()
            ),
            Op::RopeCacheWrite(kt, vt),
            Args::RopeCacheWrite(p),
            Step { pos, ..tokens(n) },
            vec![
                input("table", rope_table(n * n_rot / 2)),
                read("qkv", bits(&x.make(n * (heads + 2 * kv_heads) * hd))),
                read("places", in_order(pos, n, page / CHUNK)),
                written("q", n * heads * hd, q),
                written("keys", kv_heads * page * kw, keys),
                written("values", kv_heads * page * vw, values),
            ],
        ));
    };
    for (shape, page, at) in
        [((4, 2, 64, 64), 128, (126, 5)), ((6, 2, 96, 24), 192, (190, 70)), ((2, 2, 256, 256), 64, (64, 1))]
    {
        with(1, shape, 1, 0, page, at, Fill::Random(shape.2 as u64));
    }
    let mut one = |shape, half_split, first, page, at, x| with(0, shape, half_split, first, page, at, x);
    for half_split in [0, 1] {
        for shape in [
            (1, 1, 2, 2),
            (3, 3, 40, 40),
            (4, 2, 64, 64),
            (6, 2, 96, 24),
            (4, 1, 128, 126),
            (8, 4, 32, 32),
            (2, 2, 256, 256),
        ] {
            one(shape, half_split, 0, 64, (31, 2), Fill::Random(shape.2 as u64));
            one(shape, half_split, 64, 128, (100, 1), Fill::Prime);
        }
    }
    // inside, across both ends, around the whole page, before it, after it
    for (first, pos, n) in [(0, 0, 5), (0, 62, 4), (64, 62, 4), (64, 126, 5), (64, 60, 72), (64, 59, 5), (64, 128, 3)] {
        one((4, 2, 64, 64), 0, first, 64, (pos, n), Fill::Prime);
    }
    for x in [Fill::Zeros, Fill::Full, Fill::Extremes, Fill::Tiny, Fill::NibbleTies, Fill::HalfTies, Fill::Outliers] {
        one((2, 2, 96, 64), 1, 0, 64, (3, 3), x);
    }
    // heads with something not finite in keys alone, in values alone, in both and in neither
    for x in [Fill::Poison, Fill::Large] {
        one((2, 2, 64, 48), 0, 0, 64, (3, 9), x);
        one((3, 3, 32, 32), 1, 0, 64, (3, 9), x);
    }
    let mut rng = Rng(0x71);
    let (heads, pos) = (1 + rng.below(9), rng.below(120));
    one((heads, heads, 64, 48), 0, 0, 128, (pos, 1 + rng.below(7)), Fill::Random(0x72));
    list.extend(super::scattered::rope_cache_write(kt, vt));
    list
}

/// The cases of `rope_cache_write` outside a ring, with scales and offsets for the sides that are c8.
pub(super) fn rope_channel_cache_write(kt: CacheType, vt: CacheType) -> Vec<Case> {
    let op = Op::RopeChannelCacheWrite(kt, vt);
    let of_pages = rope_cache_write(kt, vt).into_iter().filter_map(|case| match case.args {
        Args::RopeCacheWrite(p) if p.ring == 0 => Some((case, (p.kv_heads * p.head_dim) as usize)),
        _ => None,
    });
    let with_channels = |(case, width): (Case, usize)| {
        let sides = [kt, vt].into_iter().filter(|t| *t == CacheType::C8);
        let channels = sides.flat_map(|_| [scales(width), offsets(width)]).flatten().collect();
        let mut buffers = case.buffers;
        buffers.insert(1, read("channels", channels));
        let name = case.name.replacen("rope_cache_write[", "rope_channel_cache_write[", 1);
        Case { name, op, buffers, ..case }
    };
    of_pages.map(with_channels).collect()
}
