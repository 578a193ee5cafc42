//! A mixture of experts on the CPU: of a step of few tokens only the rows of the experts chosen are read, all slots side by
//! side; in a step of many the tokens of an expert are gathered and meet its rows together.

use super::scratch::with_scratch;
use super::{Act, FloatsJob, Kernel, Out, QuantisedJob, kernels, matvec, team};
use crate::blocks::BlockType;
use crate::ops::exact::{canon, sigmoid};
use crate::ops::expert_linear::ExpertLinearParams;
use crate::ops::expert_order::{ExpertOrderParams, order_words};
use crate::ops::linear::{ACT_BLOCK_WORDS, LinearParams, ROW_BLOCK};
use crate::ops::router::{EXPERTS_MAX, RouterParams, SIGMOID, weigh};
use crate::ops::top_k::logit_key;
use std::ops::Range;

/// Pairs of an expert from which on they are gathered.
const GATHERED: usize = 4;

/// Experts there is room for.
const MOST: usize = EXPERTS_MAX as usize;

/// `ops::router`, without its allocations: one look at all experts for each slot in place of the place of each expert.
/// Panics when there are more than [`EXPERTS_MAX`] experts, or when a length does not fit.
pub fn router(p: &RouterParams, logits: &[f32], bias: &[f32], ids: &mut [u32], weights: &mut [f32]) {
    let (n, used) = (p.experts as usize, p.used as usize);
    let (mut values, mut scores, mut keys) = ([0f32; MOST], [0f32; MOST], [0u32; MOST]);
    let (values, scores, keys) = (&mut values[..n], &mut scores[..n], &mut keys[..n]);
    for t in 0..p.n_tokens as usize {
        let logits = &logits[t * n..][..n];
        for e in 0..n {
            values[e] = if p.kind == SIGMOID { canon(sigmoid(logits[e])) } else { logits[e] };
            scores[e] = if p.biased == 1 { canon(values[e] + bias[e]) } else { values[e] };
            keys[e] = logit_key(scores[e].to_bits());
        }
        if p.groups > 1 {
            keep_groups(p, scores, keys);
        }
        let ids = &mut ids[t * used..][..used];
        for slot in 0..used {
            let best = first_of(keys, |e| !ids[..slot].contains(&(e as u32)));
            ids[slot] = best as u32;
        }
        weigh(p, logits, values, ids, &mut weights[t * used..][..used]);
    }
}

/// The entry with the greatest key, of equals the one in front, among those that are `open`; the last where none is.
fn first_of(keys: &[u32], open: impl Fn(usize) -> bool) -> usize {
    let mut best = (0u32, keys.len() - 1);
    let mut found = false;
    for (e, &key) in keys.iter().enumerate() {
        if (!found || key > best.0) && open(e) {
            (best, found) = ((key, e), true);
        }
    }
    best.1
}

/// Makes the keys of experts 0 whose groups are not kept.
fn keep_groups(p: &RouterParams, scores: &[f32], keys: &mut [u32]) {
    let size = (p.experts / p.groups) as usize;
    let mut of_groups = [0u32; MOST];
    let of_groups = &mut of_groups[..p.groups as usize];
    for ((group, scores), keys) in of_groups.iter_mut().zip(scores.chunks_exact(size)).zip(keys.chunks_exact(size)) {
        let first = first_of(keys, |_| true);
        *group = keys[first];
        if p.kind == SIGMOID {
            let second = first_of(keys, |e| e != first);
            *group = logit_key((scores[first] + scores[second]).to_bits());
        }
    }
    for (g, keys) in keys.chunks_exact_mut(size).enumerate() {
        let before = |&o: &usize| of_groups[o] > of_groups[g] || of_groups[o] == of_groups[g] && o < g;
        if (0..of_groups.len()).filter(before).count() >= p.groups_used as usize {
            keys.fill(0);
        }
    }
}

/// `ops::expert_order`, in one look at the pairs. Panics when there are more than [`EXPERTS_MAX`] experts, when an id is
/// not one of them, or when a length does not fit.
pub fn expert_order(p: &ExpertOrderParams, ids: &[u32], order: &mut [u32]) {
    let (ids, experts) = (&ids[..p.n_tokens as usize], p.experts as usize);
    let mut at = [0u32; MOST];
    for &id in ids {
        at[..experts][id as usize] += 1;
    }
    let (begins, pairs) = order.split_at_mut(experts + 1);
    let mut sum = 0;
    for (begin, at) in begins.iter_mut().zip(&mut at) {
        *begin = sum;
        sum += std::mem::replace(at, sum);
    }
    begins[experts] = sum;
    for (pair, &id) in ids.iter().enumerate() {
        let at = &mut at[id as usize];
        pairs[*at as usize] = pair as u32;
        *at += 1;
    }
}

/// `ops::expert_linear`, on the current team. `w` packed rows, expert after expert; `ids` `[pair]`; `order` as
/// `ops::expert_order` makes it of them; `y` `[pair]` rows `y_stride` apart.
///
/// Panics when a length does not fit, when `act` is of the wrong kind, or when this CPU does not have the level.
pub fn expert_matvec(
    kernel: impl Into<Kernel>,
    t: BlockType,
    p: &ExpertLinearParams,
    w: &[u32],
    act: Act,
    ids: &[u32],
    order: &[u32],
    y: &mut [f32],
) {
    let (kernel, n) = (kernel.into(), p.n_tokens as usize);
    let (rows, stride, offset) = (p.rows as usize, p.y_stride as usize, p.y_offset as usize);
    let experts = p.experts as usize;
    assert!(kernel.level.is_available(), "expert_matvec: this CPU does not have {}", kernel.level.name());
    assert!(offset + rows <= stride, "expert_matvec: rows {offset}+{rows} reach past a stride of {stride}");
    assert!(y.len() >= n * stride, "expert_matvec: y has {} words for {n} pairs of {stride}", y.len());
    assert!(w.len() >= p.held as usize * p.expert_words(t), "expert_matvec: {} words of weights", w.len());
    assert!(ids.len() >= n && order.len() >= order_words(experts, n), "expert_matvec: too few ids for {n} pairs");
    let (ids, y) = (&ids[..n], &mut y[..n * stride]);
    let (begins, pairs) = order.split_at(experts + 1);
    let run = |id: usize| (begins[id + 1] - begins[id]) as usize;
    alone((kernel, t, p), w, act, |pair| ids[pair], |id| run(id) < GATHERED, y);
    for (at, id) in (p.expert0 as usize..).take(p.held as usize).enumerate() {
        if run(id) >= GATHERED {
            let w = &w[at * p.expert_words(t)..][..p.expert_words(t)];
            gathered((kernel, t, p), w, act, &pairs[begins[id] as usize..][..run(id)], y);
        }
    }
}

/// The pairs of one expert, whose rows are `w`.
fn gathered(
    (kernel, t, p): (Kernel, BlockType, &ExpertLinearParams),
    w: &[u32],
    act: Act,
    pairs: &[u32],
    y: &mut [f32],
) {
    let (rows, words, share) = (p.rows as usize, p.act_row_words(t), p.share as usize);
    let linear = LinearParams { y_stride: p.rows, y_offset: 0, ..p.linear(pairs.len() as u32) };
    with_scratch(pairs.len() * (words + rows), |scratch| {
        let (x, out) = scratch.split_at_mut(pairs.len() * words);
        for (x, &pair) in x.chunks_exact_mut(words).zip(pairs) {
            let at = pair as usize / share * words;
            match act {
                Act::Blocks(act) => bytemuck::cast_slice_mut(x).copy_from_slice(&act[at..][..words]),
                Act::Floats(act) => x.copy_from_slice(&act[at..][..words]),
            }
        }
        let x: &[f32] = x;
        let x = match act {
            Act::Blocks(_) => Act::Blocks(bytemuck::cast_slice(x)),
            Act::Floats(_) => Act::Floats(x),
        };
        matvec(kernel, t, &linear, w, x, out);
        for (out, &pair) in out.chunks_exact(rows).zip(pairs) {
            y[pair as usize * p.y_stride as usize + p.y_offset as usize..][..rows].copy_from_slice(out);
        }
    });
}

/// Every pair of the experts that `few` names, by itself: tasks are row blocks of pairs. `y` is `[pair][stride]`, and the
/// rows lie within a pair's words.
fn alone(
    (Kernel { level, fetch }, t, p): (Kernel, BlockType, &ExpertLinearParams),
    w: &[u32],
    act: Act,
    id: impl Fn(usize) -> u32 + Sync,
    few: impl Fn(usize) -> bool + Sync,
    y: &mut [f32],
) {
    let (k, digits, stride) = (p.k as usize, p.digits as usize, p.y_stride as usize);
    let (words, act_words) = (p.expert_words(t), p.act_row_words(t));
    let (n, row_blocks) = (p.n_tokens as usize, (p.rows as usize).div_ceil(ROW_BLOCK));
    let acts = n.div_ceil(p.share as usize) * act_words;
    match act {
        Act::Blocks(act) => assert!(act.len() >= acts && !t.is_float(), "expert_matvec: activations of {}", t.name()),
        Act::Floats(act) => assert!(act.len() >= acts && t.is_float(), "expert_matvec: activations of {}", t.name()),
    }
    assert!(k.is_multiple_of(t.elems()) && (digits == 1 || digits == 2), "expert_matvec: k {k}, digits {digits}");
    assert!(y.len() >= n * stride && p.y_offset as usize + p.rows as usize <= stride, "expert_matvec: y is too short");
    let out = Out { y: y.as_mut_ptr(), stride, offset: p.y_offset as usize, rows: p.rows as usize, residual: false };
    let task = |pair: usize, row_blocks: Range<usize>| {
        let id = id(pair);
        let Some(at) = p.place(id).filter(|_| few(id as usize)) else { return };
        let (w, _) = w[at * words..][..words].as_chunks::<ROW_BLOCK>();
        let out = out.at_token(pair);
        let from = pair / p.share as usize * act_words;
        match act {
            Act::Blocks(act) => {
                let (act, _) = act[from..][..act_words].as_chunks::<ACT_BLOCK_WORDS>();
                let job = QuantisedJob { level: level.vectors(), fetch, w, act, k, digits };
                // SAFETY: every (pair, row block) is part of one task, and its rows lie within the pair's words of y, asserted
                // above.
                unsafe { kernels::with_quantised!(t, F => job.run::<F>(row_blocks, 0..1, &out)) }
            }
            Act::Floats(x) => {
                let job = FloatsJob { level: level.vectors(), w, x: &x[from..][..act_words], k };
                for b in row_blocks {
                    // SAFETY: as above.
                    unsafe { kernels::with_floats!(t, F => job.run::<F>(b, 0..1, &out)) }
                }
            }
        }
    };
    let bytes = words / row_blocks.max(1) * 4;
    team::ranges(n * row_blocks, team::items_of(bytes), |r| {
        let mut at = r.start;
        while at < r.end {
            let (pair, first) = (at / row_blocks, at % row_blocks);
            let count = (row_blocks - first).min(r.end - at);
            task(pair, first..first + count);
            at += count;
        }
    });
}
