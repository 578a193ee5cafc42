//! Cases of recurrent layers: steps of one sequence, and of many whose tokens lie apart.

use super::{Case, Fill, all, bits, case, read, replaced, tokens, written};
use crate::ops::conv_silu::{ConvSiluParams, KEPT, TAPS};
use crate::ops::delta_rule::DeltaRuleParams;
use crate::ops::exact::canon;
use crate::ops::gdn_gates::GdnGatesParams;
use crate::ops::short_conv::{self, ShortConvParams};
use crate::ops::ssm_discretize::SsmDiscretizeParams;
use crate::ops::ssm_scan::SsmScanParams;
use crate::ops::strands::{FRESH, STRAND};
use crate::record::{Args, Op, Scattered, Step};

/// Slots of every state.
const SLOTS: usize = 6;

/// Tokens of a step by sequence, the slot each reads and the one it writes.
type Shape = &'static [(&'static [u32], u32, u32)];

// one token; a text's beginning; its continuation; sequences whose tokens lie between each other's
const SHAPES: [Shape; 5] = [
    &[(&[0], 1, 0)],
    &[(&[0], FRESH, 0)],
    &[(&[0, 1, 2, 3, 4], FRESH, 1)],
    &[(&[0, 1], 0, 1)],
    &[(&[3], 2, 3), (&[0, 1, 4, 6], FRESH, 1), (&[2, 5], 4, 5)],
];

/// The step of a shape, its words, and the slots it writes.
fn step(shape: Shape) -> (Step, Vec<u32>, Vec<usize>) {
    let n = shape.iter().map(|(tokens, ..)| tokens.len()).sum();
    let scattered = Scattered { strands: shape.len(), ..Scattered::default() };
    let (mut words, mut list) = (vec![], vec![]);
    for (tokens, source, target) in shape {
        words.extend([(shape.len() * STRAND + list.len()) as u32, tokens.len() as u32, *source, *target]);
        list.extend_from_slice(tokens);
    }
    words.extend(list);
    let slots = shape.iter().map(|(_, _, target)| *target as usize).collect();
    (Step { scattered: Some(scattered), ..tokens(n) }, words, slots)
}

pub(super) fn conv_silu() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |i: usize, front: usize, channels: usize, u: Fill, w: Fill, biased: bool| {
        let (step, words, slots) = step(SHAPES[i]);
        let (n, rows) = (step.n_tokens, KEPT * channels);
        list.push(case(
            format!("front={front} channels={channels} biased={biased} shape {i} u={} w={}", u.name(), w.name()),
            Op::ConvSilu,
            Args::ConvSilu(ConvSiluParams {
                n_tokens: 0,
                strands: 0,
                front: front as u32,
                channels: channels as u32,
                biased: biased.into(),
            }),
            step,
            vec![
                read("u", bits(&u.make(n * channels))),
                read("w", bits(&w.make((TAPS + usize::from(biased)) * channels))),
                read("strands", words),
                replaced(
                    "state",
                    bits(&u.make(SLOTS * rows + 1)[1..]),
                    slots.iter().map(|slot| slot * rows..(slot + 1) * rows).collect(),
                ),
                written("qk", n * front, all(n * front)),
                written("v", n * (channels - front), all(n * (channels - front))),
            ],
        ));
    };
    for i in 0..SHAPES.len() {
        for (front, channels) in [(1, 2), (32, 64), (40, 65), (128, 257)] {
            one(i, front, channels, Fill::Random((i + channels) as u64), Fill::Prime, i % 2 == 1);
            one(i, front, channels, Fill::Prime, Fill::Random((i + channels) as u64), i % 2 == 0);
        }
    }
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Faint, Fill::Poison, Fill::Large, Fill::Sweep] {
        one(4, 40, 70, fill, Fill::Prime, false);
        one(3, 40, 70, fill, Fill::Faint, true);
        one(2, 40, 70, Fill::Prime, fill, false);
        one(3, 40, 70, Fill::Prime, fill, true);
    }
    for biased in [false, true] {
        one(4, 40, 70, Fill::Prime, Fill::Huge, biased);
        one(4, 40, 70, Fill::Large, Fill::Huge, biased);
    }
    list
}

pub(super) fn gdn_gates() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |heads: usize, group: usize, n: usize, [b_scale, a_scale]: [f32; 2], ba: Fill, a: Fill, dt: Fill| {
        // as files have it, but for what may be anything
        let a: Vec<f32> = a.make(heads).iter().map(|v| if v.abs() < 100.0 { canon(-v.abs()) } else { *v }).collect();
        list.push(case(
            format!(
                "heads={heads} group={group} tokens={n} scales={b_scale},{a_scale} ba={} a={:?}.. dt={}",
                ba.name(),
                a[0],
                dt.name()
            ),
            Op::GdnGates,
            Args::GdnGates(GdnGatesParams { n_tokens: 0, heads: heads as u32, group: group as u32, b_scale, a_scale }),
            tokens(n),
            vec![
                read("ba", bits(&ba.make(2 * n * heads))),
                read("a", bits(&a)),
                read("dt", bits(&dt.make(heads))),
                written("gates", 2 * n * heads, all(2 * n * heads)),
            ],
        ));
    };
    for (heads, group) in [(1, 1), (32, 32), (32, 2), (48, 3), (65, 65), (130, 2)] {
        one(heads, group, 1, [1.0, 1.0], Fill::Sweep, Fill::Prime, Fill::Prime);
        one(heads, group, 5, [0.37, 1.9], Fill::Random(heads as u64), Fill::Random(group as u64), Fill::Zeros);
    }
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Faint, Fill::Poison, Fill::Large] {
        one(96, 2, 7, [1.0, 1.0], fill, Fill::Prime, Fill::Zeros);
        one(96, 2, 7, [3e-5, 0.7], fill, Fill::Prime, Fill::Prime);
        one(96, 96, 7, [1.0, 1.0], Fill::Sweep, fill, Fill::Prime);
        one(96, 96, 7, [1.0, 1.0], Fill::Sweep, Fill::Prime, fill);
    }
    one(70, 2, 7, [1.0, 1.0], Fill::Sweep, Fill::Huge, Fill::Huge);
    one(70, 2, 7, [1e-15, 3e38], Fill::Sweep, Fill::Prime, Fill::Prime);
    list
}

pub(super) fn delta_rule() -> Vec<Case> {
    let mut list = Vec::new();
    // what the values of a step are, and shares that stay
    let mut one = |i: usize, [heads, keys, size]: [usize; 3], tiled: bool, x: Fill, g: Fill, m: Fill| {
        let (step, words, slots) = step(SHAPES[i]);
        let (n, rows) = (step.n_tokens, heads * size * size);
        // values of other elements than keys have
        let values = x.make(n * (2 * keys + heads) * size);
        let (qk, v) = values.split_at(n * 2 * keys * size);
        let gates: Vec<f32> = g.make(2 * n * heads).iter().map(|v| if *v > 1.0 { *v } else { v.abs() }).collect();
        list.push(case(
            format!(
                "heads={heads}/{keys} size={size} tiled={tiled} shape {i} x={} gates={} state={}",
                x.name(),
                g.name(),
                m.name()
            ),
            Op::DeltaRule,
            Args::DeltaRule(DeltaRuleParams {
                n_tokens: 0,
                strands: 0,
                heads: heads as u32,
                key_heads: keys as u32,
                size: size as u32,
                tiled: tiled.into(),
                scale: (1.0 / libm::sqrt(size as f64)) as f32,
            }),
            step,
            vec![
                read("qk", bits(qk)),
                read("v", bits(v)),
                read("gates", bits(&gates)),
                read("strands", words),
                replaced(
                    "state",
                    bits(&m.make(SLOTS * rows)),
                    slots.iter().map(|slot| slot * rows..(slot + 1) * rows).collect(),
                ),
                written("o", n * heads * size, all(n * heads * size)),
            ],
        ));
    };
    for i in 0..SHAPES.len() {
        for (shape, tiled) in [([1, 1, 32], false), ([4, 2, 32], true), ([4, 2, 32], false), ([3, 1, 64], true)] {
            one(i, shape, tiled, Fill::Outliers, Fill::First(3, 0.75), Fill::Prime);
            one(i, shape, tiled, Fill::Prime, Fill::Outliers, Fill::Random(i as u64));
        }
        one(i, [2, 2, 128], false, Fill::Random(i as u64), Fill::Ones, Fill::Outliers);
    }
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Faint, Fill::Poison, Fill::Large] {
        one(4, [2, 1, 32], false, fill, Fill::Ones, Fill::Prime);
        one(3, [2, 1, 32], false, Fill::Prime, fill, Fill::Outliers);
        one(3, [2, 1, 32], false, fill, Fill::Faint, fill);
        one(4, [2, 1, 32], false, Fill::Outliers, Fill::Ones, fill);
    }
    list
}

pub(super) fn short_conv() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |i: usize, dim: usize, x: Fill, w: Fill, state: Fill| {
        let (step, words, slots) = step(SHAPES[i]);
        let (n, rows) = (step.n_tokens, short_conv::KEPT * dim);
        list.push(case(
            format!("dim={dim} shape {i} x={} w={} state={}", x.name(), w.name(), state.name()),
            Op::ShortConv,
            Args::ShortConv(ShortConvParams { n_tokens: 0, strands: 0, dim: dim as u32 }),
            step,
            vec![
                read("x", bits(&x.make(3 * n * dim))),
                read("w", bits(&w.make(short_conv::TAPS * dim))),
                read("strands", words),
                replaced(
                    "state",
                    bits(&state.make(SLOTS * rows)),
                    slots.iter().map(|slot| slot * rows..(slot + 1) * rows).collect(),
                ),
                written("y", n * dim, all(n * dim)),
            ],
        ));
    };
    for i in 0..SHAPES.len() {
        for dim in [1, 64, 65, 257] {
            one(i, dim, Fill::Random((i + dim) as u64), Fill::Prime, Fill::Outliers);
        }
    }
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Faint, Fill::Poison, Fill::Large, Fill::Sweep] {
        one(4, 70, fill, Fill::Prime, Fill::Prime);
        one(3, 70, fill, Fill::Faint, fill);
        one(2, 70, Fill::Prime, fill, Fill::Zeros);
        one(4, 70, Fill::Outliers, Fill::Prime, fill);
    }
    one(4, 70, Fill::Prime, Fill::Huge, Fill::Prime);
    one(4, 70, Fill::Large, Fill::Huge, Fill::Large);
    list
}

pub(super) fn ssm_discretize() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |heads: usize, n: usize, [least, most]: [f32; 2], x: Fill, a: Fill, bias: Fill| {
        // as files have it, but for what may be anything
        let a: Vec<f32> = a.make(heads).iter().map(|v| if v.abs() < 100.0 { canon(-v.abs()) } else { *v }).collect();
        list.push(case(
            format!(
                "heads={heads} tokens={n} within {least:e}..{most:e} x={} a={:?}.. bias={}",
                x.name(),
                a[0],
                bias.name()
            ),
            Op::SsmDiscretize,
            Args::SsmDiscretize(SsmDiscretizeParams { n_tokens: 0, heads: heads as u32, least, most }),
            tokens(n),
            vec![
                read("x", bits(&x.make(n * heads))),
                read("a", bits(&a)),
                read("bias", bits(&bias.make(heads))),
                written("gates", 2 * n * heads, all(2 * n * heads)),
            ],
        ));
    };
    let (free, narrow) = ([0.0, f32::MAX], [0.01, 1.5]);
    for heads in [1, 24, 64, 65, 130] {
        one(heads, 1, free, Fill::Sweep, Fill::Prime, Fill::Prime);
        one(heads, 5, narrow, Fill::Random(heads as u64), Fill::Random(3), Fill::Zeros);
    }
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Faint, Fill::Poison, Fill::Large] {
        for within in [free, narrow] {
            one(70, 7, within, fill, Fill::Prime, Fill::Zeros);
            one(70, 7, within, Fill::Sweep, fill, Fill::Prime);
            one(70, 7, within, Fill::Sweep, Fill::Prime, fill);
        }
    }
    one(70, 7, free, Fill::Sweep, Fill::Huge, Fill::Huge);
    list
}

pub(super) fn ssm_scan() -> Vec<Case> {
    let mut list = Vec::new();
    // what the values of a step are, steps and shares that stay, and the state
    let mut one = |i: usize, [heads, groups, head_dim, state]: [usize; 4], x: Fill, g: Fill, m: Fill| {
        let (step, words, slots) = step(SHAPES[i]);
        let (n, rows, inner) = (step.n_tokens, heads * head_dim * state, heads * head_dim);
        // channels of other elements than B and C have
        let values = x.make(n * (inner + 2 * groups * state) + heads);
        let (bc, rest) = values.split_at(n * 2 * groups * state);
        let (d, x_values) = rest.split_at(heads);
        let gates: Vec<f32> = g.make(2 * n * heads).iter().map(|v| if *v > 1.0 { *v } else { v.abs() }).collect();
        list.push(case(
            format!(
                "heads={heads}/{groups} of {head_dim} state={state} shape {i} x={} gates={} memory={}",
                x.name(),
                g.name(),
                m.name()
            ),
            Op::SsmScan,
            Args::SsmScan(SsmScanParams {
                n_tokens: 0,
                strands: 0,
                heads: heads as u32,
                groups: groups as u32,
                head_dim: head_dim as u32,
                state: state as u32,
            }),
            step,
            vec![
                read("x", bits(x_values)),
                read("bc", bits(bc)),
                read("gates", bits(&gates)),
                read("d", bits(d)),
                read("strands", words),
                replaced(
                    "memory",
                    bits(&m.make(SLOTS * rows)),
                    slots.iter().map(|slot| slot * rows..(slot + 1) * rows).collect(),
                ),
                written("y", n * inner, all(n * inner)),
            ],
        ));
    };
    // one segment of a channel's state, some, those of a round and of more; channels beside those of a workgroup
    for i in 0..SHAPES.len() {
        for shape in [[1, 1, 1, 16], [4, 2, 16, 32], [3, 1, 20, 48], [2, 2, 64, 128], [3, 3, 33, 144]] {
            one(i, shape, Fill::Outliers, Fill::First(3, 0.75), Fill::Prime);
            one(i, shape, Fill::Prime, Fill::Outliers, Fill::Random(i as u64));
        }
        one(i, [2, 1, 32, 256], Fill::Random(i as u64), Fill::Ones, Fill::Outliers);
    }
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Faint, Fill::Poison, Fill::Large] {
        one(4, [2, 1, 34, 32], fill, Fill::Ones, Fill::Prime);
        one(3, [2, 1, 34, 144], Fill::Prime, fill, Fill::Outliers);
        one(3, [2, 1, 34, 32], fill, Fill::Faint, fill);
        one(4, [2, 1, 34, 144], Fill::Outliers, Fill::Ones, fill);
    }
    list
}
