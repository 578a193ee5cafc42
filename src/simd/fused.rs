//! The fused operations on the CPU: the operations they are made of, one after the other, over values that stay in the
//! cache. No order changes, so the bits are those of the commands they replace.

use super::scratch::with_scratch;
use super::{
    Act, Kernel, Level, act_quantize, attention, cache_write_k, cache_write_v, matvec, rms_norm_row, rope, swiglu, team,
};
use crate::blocks::BlockType;
use crate::ops::act_quantize::ActQuantizeParams;
use crate::ops::attention_quantize::AttentionQuantizeParams;
use crate::ops::cache::CacheType;
use crate::ops::channel_quantize::channel_quantize;
use crate::ops::channel_scale::channel_scale;
use crate::ops::gate_up::GateUpParams;
use crate::ops::linear::{ACT_BLOCK_WORDS, GROUP, act_words, groups};
use crate::ops::matvec_pair::LinearPairParams;
use crate::ops::norm_quantize::NormQuantizeParams;
use crate::ops::places::Places;
use crate::ops::rope_cache_write::RopeCacheWriteParams;
use crate::ops::rope_channel_cache_write::sides;
use crate::ops::swiglu_quantize::SwigluQuantizeParams;
use std::ops::Range;

/// `ops::norm_quantize`: `x` `[token][dim]`, `w` `[dim]`, `act` `[token]` blocks.
pub fn norm_quantize(level: Level, p: &NormQuantizeParams, x: &[f32], w: &[f32], act: &mut [u32]) {
    let (dim, words) = (p.dim as usize, act_words(p.dim as usize, p.digits as usize));
    team::chunks_mut(&mut act[..p.n_tokens as usize * words], words, 1, |first, act| {
        with_scratch(dim, |normed| {
            for (x, act) in x[first * dim..].chunks_exact(dim).zip(act.chunks_exact_mut(words)) {
                rms_norm_row(level, &p.norm(), x, w, normed);
                act_quantize(level, &p.quantize(), normed, act);
            }
        });
    });
}

/// `ops::swiglu_quantize`: `gate_up` `[token][gate, up][dim]`, `act` `[token]` blocks.
pub fn swiglu_quantize(level: Level, p: &SwigluQuantizeParams, gate_up: &[f32], act: &mut [u32]) {
    /// Groups of one task, at least, and taken at once, at most.
    const TASK: usize = 8;

    let (dim, digits) = (p.dim as usize, p.digits as usize);
    let words = digits * ACT_BLOCK_WORDS;
    team::chunks_mut(&mut act[..p.n_tokens as usize * act_words(dim, digits)], words, TASK, |first, act| {
        let mut mid = [0f32; TASK * GROUP];
        let (mut at, end) = (first, first + act.len() / words);
        while at < end {
            let (t, g) = (at / groups(dim), at % groups(dim));
            let n = (groups(dim) - g).min(end - at).min(TASK);
            let (gate, up) = gate_up[2 * t * dim..][..2 * dim].split_at(dim);
            let elements = g * GROUP..dim.min((g + n) * GROUP);
            let mid = &mut mid[..elements.len()];
            swiglu(level, &gate[elements.clone()], &up[elements], mid);
            let q = ActQuantizeParams { n_tokens: 1, k: mid.len() as u32, digits: p.digits };
            act_quantize(level, &q, mid, &mut act[(at - first) * words..][..n * words]);
            at += n;
        }
    });
}

/// `ops::matvec_pair`: `w` packed rows of both types, `act` blocks, `y` `[token]` rows `y_stride` apart.
pub fn matvec_pair(
    kernel: impl Into<Kernel>,
    (first, second): (BlockType, BlockType),
    p: &LinearPairParams,
    w: &[u32],
    act: &[u32],
    y: &mut [f32],
) {
    let ((a, b, at), kernel) = (p.parts(first), kernel.into());
    matvec(kernel, first, &a, &w[..at], Act::Blocks(act), y);
    matvec(kernel, second, &b, &w[at..], Act::Blocks(act), y);
}

/// `ops::gate_up`: `w` packed gate rows, then up rows; `act` blocks of the input, `mid` of the result.
pub fn gate_up(kernel: impl Into<Kernel>, t: BlockType, p: &GateUpParams, w: &[u32], act: &[u32], mid: &mut [u32]) {
    let (l, kernel) = (p.linear(), kernel.into());
    with_scratch((p.n_tokens * l.y_stride) as usize, |y| {
        matvec(kernel, t, &l, w, Act::Blocks(act), y);
        swiglu_quantize(kernel.level, &p.swiglu(), y, mid);
    });
}

/// `ops::attention_quantize`, without its allocation: buffers as there. Panics as [`attention()`] and [`act_quantize`] do.
pub fn attention_quantize(
    level: Level,
    types: (CacheType, CacheType),
    p: &AttentionQuantizeParams,
    q: &[f32],
    k: &[u32],
    v: &[u32],
    places: Places,
    state: &mut [f32],
    blocks: &mut [u32],
) {
    let (row, n) = ((p.heads * p.head_dim) as usize, p.n_tokens as usize);
    let (of, page) = (p.attention(), p.attention().page());
    with_scratch(n * row, |out| {
        attention(level, types, &of, q, k, v, places, state, out);
        let mut rows = page.run(&places, 0, n);
        while !rows.is_empty() {
            let (quantize, first) = p.quantize(&rows);
            act_quantize(level, &quantize, &out[rows.start * row..], &mut blocks[first..]);
            rows = page.run(&places, rows.end, n);
        }
    });
}

/// `ops::rope_cache_write`, without its allocations: buffers as there. Panics when this CPU does not have `level`.
pub fn rope_cache_write(
    level: Level,
    types: (CacheType, CacheType),
    p: &RopeCacheWriteParams,
    table: &[f32],
    qkv: &[f32],
    places: Places,
    q: &mut [f32],
    keys: &mut [u32],
    values: &mut [u32],
) {
    rope_write(level, types, p, table, [None; 2], qkv, places, q, keys, values);
}

/// `ops::rope_channel_cache_write`, as [`rope_cache_write`].
pub fn rope_channel_cache_write(
    level: Level,
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
    rope_write(level, types, p, table, sides(types, p, channels), qkv, places, q, keys, values);
}

/// Scales and offsets of keys and of values.
type Channels<'a> = [Option<(&'a [f32], &'a [f32])>; 2];

/// Either, with the scales and offsets of keys and of values where they have any: the rows that the page has, a run of
/// neighbours at a time.
fn rope_write(
    level: Level,
    types: (CacheType, CacheType),
    p: &RopeCacheWriteParams,
    table: &[f32],
    channels: Channels,
    qkv: &[f32],
    places: Places,
    q: &mut [f32],
    keys: &mut [u32],
    values: &mut [u32],
) {
    let (n, page) = (p.n_tokens as usize, p.write(1).page());
    let mut rows = page.run(&places, 0, n);
    while !rows.is_empty() {
        rope_write_run(level, types, p, table, channels, qkv, (places, rows.clone()), q, keys, values);
        rows = page.run(&places, rows.end, n);
    }
}

/// Neighbouring rows that the page has.
fn rope_write_run(
    level: Level,
    (kt, vt): (CacheType, CacheType),
    p: &RopeCacheWriteParams,
    table: &[f32],
    [of_keys, of_values]: Channels,
    qkv: &[f32],
    (places, rows): (Places, Range<usize>),
    q: &mut [f32],
    keys: &mut [u32],
    values: &mut [u32],
) {
    /// Rows a task has at least.
    const TASK: usize = 8;

    let ((width, kv_width), n_rot) = (p.widths(), p.n_rot as usize);
    let (n, row) = (rows.len(), width + 2 * kv_width);
    let (qkv, table) = (&qkv[rows.start * row..rows.end * row], &table[rows.start * n_rot..]);
    // rows of `x` filled from column `from` of qkv, and turned
    let turned = |heads: u32, from: usize, first: usize, x: &mut [f32]| {
        let width = (heads * p.head_dim) as usize;
        for (t, x) in (first..).zip(x.chunks_exact_mut(width)) {
            x.copy_from_slice(&qkv[t * row + from..][..width]);
            rope(level, &p.rope(heads), &table[t * n_rot..], x);
        }
    };
    if p.ring == 0 {
        team::chunks_mut(&mut q[rows.start * width..rows.end * width], width, TASK, |first, q| {
            turned(p.heads, 0, first, q);
            if let Some((scale, offset)) = of_keys {
                channel_scale(&p.scaled(q.len() / width), scale, offset, q);
            }
        });
    }
    with_scratch(2 * n * kv_width, |scratch| {
        let (k, v) = scratch.split_at_mut(n * kv_width);
        team::chunks_mut(k, kv_width, TASK, |first, k| {
            turned(p.kv_heads, width, first, k);
            if let Some((scale, offset)) = of_keys {
                channel_quantize(&p.codes(k.len() / kv_width), scale, offset, k);
            }
        });
        for (v, row) in v.chunks_exact_mut(kv_width).zip(qkv.chunks_exact(row)) {
            v.copy_from_slice(&row[width + kv_width..]);
        }
        if let Some((scale, offset)) = of_values {
            channel_quantize(&p.codes(n), scale, offset, v);
        }
        let (write, places) = (p.write(n), places.from(rows.start));
        cache_write_k(level, kt, &write, places, k, v, keys);
        cache_write_v(level, vt, &write, places, v, values);
    });
}
