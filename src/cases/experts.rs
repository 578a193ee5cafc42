//! Cases of a mixture of experts.

use super::{
    Case, Fill, Rng, Weights, act_blocks, act_rows, all, bits, case, has_few, read, replaced, tokens, written,
};
use crate::blocks::BlockType;
use crate::ops::expert_bias::ExpertBiasParams;
use crate::ops::expert_combine::ExpertCombineParams;
use crate::ops::expert_linear::ExpertLinearParams;
use crate::ops::expert_order::{ExpertOrderParams, expert_order as twin_order, order_words};
use crate::ops::expert_scale::ExpertScaleParams;
use crate::ops::router::{RouterParams, SIGMOID, SOFTMAX, SOFTMAX_CHOSEN};
use crate::ops::sigmoid_gate::SigmoidGateParams;
use crate::ops::swiglu_oai::SwigluOaiParams;
use crate::record::{Args, Op, Rows};

/// Logits whose order is easily got wrong: ties, both zeros, the ends of the range.
const AWKWARD: [f32; 8] = [0.0, -0.0, 1.0, -1.0, 1.0, 1.000_000_1, -2.5e4, 3.0e4];

/// Different experts for each token, some of which nobody meets; the first of every seven tokens begins with the last.
fn ids(experts: usize, used: usize, n: usize, seed: u64) -> Vec<u32> {
    let mut rng = Rng(seed);
    let mut list = Vec::new();
    for t in 0..n {
        let mut own: Vec<u32> = if t.is_multiple_of(7) { vec![experts as u32 - 1] } else { vec![] };
        while own.len() < used {
            // half of all meet the first few
            let most = if rng.below(2) == 0 { experts } else { used.max(experts / 4) };
            let id = rng.below(most) as u32;
            if !own.contains(&id) {
                own.push(id);
            }
        }
        list.extend(own);
    }
    list
}

fn order(experts: usize, ids: &[u32]) -> Vec<u32> {
    let mut order = vec![0; order_words(experts, ids.len())];
    twin_order(&ExpertOrderParams { n_tokens: ids.len() as u32, experts: experts as u32 }, ids, &mut order);
    order
}

pub(super) fn router() -> Vec<Case> {
    let mut list = Vec::new();
    let plain = RouterParams {
        n_tokens: 0,
        experts: 0,
        used: 0,
        kind: SOFTMAX,
        normalise: 1,
        scale: 1.0,
        groups: 0,
        groups_used: 0,
        biased: 0,
    };
    let mut one = |p: RouterParams, n: usize, what: &str, x: &[f32], bias: Fill| {
        assert_eq!(p.fault(), None);
        let (e, live) = (p.experts as usize, n * p.used as usize);
        list.push(case(
            format!(
                "experts={e} used={} tokens={n} kind={} normalise={} scale={} groups={}/{} bias={} x={what}",
                p.used,
                p.kind,
                p.normalise,
                p.scale,
                p.groups_used,
                p.groups,
                if p.biased == 1 { bias.name() } else { "none".into() },
            ),
            Op::Router,
            Args::Router(p),
            tokens(n),
            vec![
                read("logits", bits(&x[..n * e])),
                read("bias", bits(&bias.make(e))),
                written("ids", live, all(live)),
                written("weights", live, all(live)),
            ],
        ));
    };
    let awkward: Vec<f32> = (0..2000).map(|i| AWKWARD[i * 5 % 7 + i / 64 % 2]).collect();
    let mut broken = Fill::Random(11).make(3 * 512);
    for (at, x) in [(5, f32::NAN), (17, f32::NAN), (600, f32::NAN)] {
        broken[at] = crate::ops::exact::canon(x);
    }
    for (kind, normalise) in [(SOFTMAX, 1), (SOFTMAX, 0), (SIGMOID, 1), (SIGMOID, 0), (SOFTMAX_CHOSEN, 0)] {
        let p = RouterParams { kind, normalise, ..plain };
        for (experts, used) in [(1, 1), (4, 2), (8, 8), (60, 4), (128, 8), (257, 6), (512, 22)] {
            let p = RouterParams { experts, used, ..p };
            one(p, 3, "random", &Fill::Random(u64::from(experts + kind)).make(3 * 512), Fill::Zeros);
            one(p, 1, "prime", &Fill::Prime.make(512), Fill::Zeros);
        }
        let p = RouterParams { experts: 96, used: 7, scale: 2.5, ..p };
        one(p, 4, "awkward", &awkward, Fill::Zeros);
        for x in [Fill::Zeros, Fill::Extremes, Fill::Sweep, Fill::Faint, Fill::Large, Fill::Poison] {
            one(p, 3, &x.name(), &x.make(288), Fill::Zeros);
        }
        one(RouterParams { experts: 512, ..p }, 3, "not all finite", &broken, Fill::Zeros);
    }
    for (groups, groups_used) in [(8, 3), (2, 1), (128, 5), (4, 4)] {
        let p = RouterParams { normalise: 0, scale: 16.0, experts: 256, used: 8, groups, groups_used, ..plain };
        for x in [Fill::Random(41), Fill::Prime, Fill::Sweep, Fill::Zeros, Fill::Extremes] {
            one(p, 3, &x.name(), &x.make(768), Fill::Zeros);
        }
        one(RouterParams { experts: 512, normalise: 1, ..p }, 3, "awkward", &awkward, Fill::Zeros);
        one(RouterParams { experts: 512, ..p }, 3, "not all finite", &broken, Fill::Zeros);
    }
    let p = RouterParams { normalise: 0, scale: 16.0, experts: 160, used: 6, groups: 8, groups_used: 3, ..plain };
    one(p, 4, "random", &Fill::Random(43).make(640), Fill::Zeros);
    for normalise in [0, 1] {
        let p = RouterParams { kind: SIGMOID, normalise, scale: 1.8, biased: 1, experts: 256, used: 8, ..plain };
        for (groups, groups_used) in [(8, 4), (2, 1), (128, 5), (4, 4)] {
            let p = RouterParams { groups, groups_used, biased: 0, ..p };
            one(p, 2, "awkward", &awkward, Fill::Zeros);
        }
        for bias in [Fill::Prime, Fill::Random(5), Fill::Huge, Fill::Zeros, Fill::Tiny] {
            one(p, 3, "random", &Fill::Random(31).make(768), bias);
            for (groups, groups_used) in [(8, 4), (2, 1), (128, 5), (4, 4)] {
                let p = RouterParams { groups, groups_used, ..p };
                one(p, 3, "sweep", &Fill::Sweep.make(768), bias);
                one(RouterParams { experts: 512, ..p }, 3, "not all finite", &broken, bias);
            }
        }
    }
    list
}

pub(super) fn expert_order() -> Vec<Case> {
    let mut list = Vec::new();
    for (experts, used, n) in
        [(1, 1, 1), (4, 2, 1), (8, 2, 70), (128, 8, 3), (128, 8, 300), (512, 10, 33), (512, 1, 600), (60, 4, 65)]
    {
        let ids = ids(experts, used, n, (experts + n) as u64);
        let live = order_words(experts, ids.len());
        let mut c = case(
            format!("experts={experts} used={used} tokens={n}"),
            Op::ExpertOrder,
            Args::ExpertOrder(ExpertOrderParams { n_tokens: 0, experts: experts as u32 }),
            tokens(n),
            vec![read("ids", ids), written("order", live, all(live))],
        );
        c.rows = Rows::Heads(used as u32);
        list.push(c);
    }
    list
}

/// Experts of a case: of the model, first of the buffer, in the buffer.
type Held = (usize, usize, usize);

pub(super) fn expert_matvec(t: BlockType) -> Vec<Case> {
    let float = t.is_float();
    let mut list = Vec::new();
    for digits in if float || t.meets_rows() { 1..=1 } else { 1..=2 } {
        let mut one = |(experts, first, held): Held,
                       used: usize,
                       n: usize,
                       own: bool,
                       rows: usize,
                       k: usize,
                       x: Fill| {
            let (split, acts) = (!rows.is_multiple_of(32), if own { n * used } else { n });
            let (stride, offset) = if split { (rows + 12, 5) } else { (rows, 0) };
            let p = ExpertLinearParams {
                n_tokens: 0,
                k: k as u32,
                rows: rows as u32,
                digits,
                y_stride: stride as u32,
                y_offset: offset as u32,
                used: used as u32,
                share: if own { 1 } else { used as u32 },
                experts: experts as u32,
                expert0: first as u32,
                held: held as u32,
            };
            let act = match t {
                _ if float => bits(&x.make(acts * k)),
                _ if t.meets_rows() => act_rows(x, acts, k),
                _ => act_blocks(x, acts, k, digits),
            };
            let ids = ids(experts, used, n, (experts * k + n) as u64);
            let here = (0..n * used).filter(|&i| (first..first + held).contains(&(ids[i] as usize)));
            let ranges = here.map(|i| i * stride + offset..i * stride + offset + rows).collect();
            let w = (0..held).flat_map(|e| Weights::Raw((e * 77 + k) as u64).make(t, rows, k)).collect();
            let mut c = case(
                format!(
                    "experts={first}..{}/{experts} used={used} rows={rows} k={k} tokens={n} own={own} digits={digits} x={}",
                    first + held,
                    x.name()
                ),
                Op::ExpertMatvec(t),
                Args::ExpertLinear(p),
                tokens(n),
                vec![
                    read("w", w),
                    read(if float { "x" } else { "act" }, act),
                    read("ids", ids.clone()),
                    read("order", order(experts, &ids)),
                    written("y", n * used * stride, ranges),
                ],
            );
            c.rows = Rows::Heads(used as u32);
            list.push(c);
        };
        let k = if float { 301 } else { 256.max(t.elems()) };
        one((4, 0, 4), 2, 1, false, 32, k, Fill::Prime);
        // groups of more tokens than a tile, and of none
        one((5, 0, 5), 2, 45, false, 40, k, Fill::Random(0x61));
        one((9, 2, 5), 3, 7, true, 33, 3 * t.elems().max(64), Fill::Random(0x62));
        if has_few(t) {
            continue;
        }
        // nine groups: segments of two
        one((3, 1, 2), 1, 9, true, 64, if float { 1025 } else { 1280 }, Fill::Random(0x63));
        one((4, 0, 4), 4, 11, false, 1, k, Fill::Poison);
        one((4, 0, 4), 2, 3, true, 70, k, Fill::Extremes);
    }
    list
}

/// Cases of an operation on y by a vector of the slot's expert, which is `what` and has `per(dim)` numbers; `args` of the
/// elements of a slot, the words between two and where the first begins.
fn by_expert(op: Op, what: &'static str, args: fn(u32, u32, u32) -> Args, per: fn(usize) -> usize) -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |experts: usize, used: usize, dim: usize, n: usize, part: bool, of: Fill, y: Fill| {
        let (stride, offset) = if part { (2 * dim + 3, dim) } else { (dim, 0) };
        let ids = ids(experts, used, n, (dim + n) as u64);
        let ranges = (0..n * used).map(|i| i * stride + offset..i * stride + offset + dim).collect();
        let mut c = case(
            format!(
                "experts={experts} used={used} dim={dim} tokens={n} part={part} {what}={} y={}",
                of.name(),
                y.name()
            ),
            op,
            args(dim as u32, stride as u32, offset as u32),
            tokens(n),
            vec![
                read(what, bits(&of.make(experts * per(dim)))),
                read("ids", ids),
                replaced("y", bits(&y.make(n * used * stride)), ranges),
            ],
        );
        c.rows = Rows::Heads(used as u32);
        list.push(c);
    };
    for dim in [1, 255, 256, 257] {
        one(6, 2, dim, 1, false, Fill::Prime, Fill::Random(dim as u64));
        one(33, 4, dim, 3, true, Fill::Random(dim as u64 + 1), Fill::Prime);
    }
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Poison, Fill::Large] {
        one(5, 2, 100, 3, false, Fill::Prime, fill);
        one(5, 2, 100, 3, false, Fill::Huge, fill);
    }
    list
}

pub(super) fn expert_bias() -> Vec<Case> {
    let args = |dim, y_stride, y_offset| Args::ExpertBias(ExpertBiasParams { n_tokens: 0, dim, y_stride, y_offset });
    by_expert(Op::ExpertBias, "b", args, |dim| dim)
}

pub(super) fn expert_scale() -> Vec<Case> {
    let args = |dim, y_stride, y_offset| Args::ExpertScale(ExpertScaleParams { n_tokens: 0, dim, y_stride, y_offset });
    by_expert(Op::ExpertScale, "s", args, |_| 1)
}

pub(super) fn expert_combine() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |used: usize, dim: usize, n: usize, residual: u32, y: Fill, w: Fill| {
        let p = ExpertCombineParams { n_tokens: 0, dim: dim as u32, used: used as u32, residual };
        let x = if residual == 1 {
            replaced("x", bits(&Fill::Random(3).make(n * dim)), all(n * dim))
        } else {
            written("x", n * dim, all(n * dim))
        };
        list.push(case(
            format!("used={used} dim={dim} tokens={n} residual={residual} y={} weights={}", y.name(), w.name()),
            Op::ExpertCombine,
            Args::ExpertCombine(p),
            tokens(n),
            vec![read("y", bits(&y.make(n * used * dim))), read("weights", bits(&w.make(n * used))), x],
        ));
    };
    for residual in [0, 1] {
        for (used, dim) in [(1, 1), (2, 255), (8, 256), (22, 257)] {
            one(used, dim, 1, residual, Fill::Random(dim as u64), Fill::Prime);
            one(used, dim, 3, residual, Fill::Prime, Fill::Random(dim as u64));
        }
        for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Faint, Fill::Poison, Fill::Large] {
            one(4, 300, 2, residual, fill, Fill::Prime);
            one(4, 300, 2, residual, fill, Fill::Faint);
            one(4, 300, 3, residual, Fill::Prime, fill);
        }
    }
    list
}

pub(super) fn sigmoid_gate() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, whole: bool, g: Fill, y: Fill| {
        let gates = if whole { 1 } else { dim };
        list.push(case(
            format!("dim={dim} gates={gates} tokens={n} g={} y={}", g.name(), y.name()),
            Op::SigmoidGate,
            Args::SigmoidGate(SigmoidGateParams { n_tokens: 0, dim: dim as u32, gates: gates as u32 }),
            tokens(n),
            vec![read("g", bits(&g.make(n * gates))), replaced("y", bits(&y.make(n * dim)), all(n * dim))],
        ));
    };
    for whole in [false, true] {
        // of one element both are the same
        for dim in if whole { [2, 255, 256, 257, 1000] } else { [1, 255, 256, 257, 1000] } {
            one(dim, 1, whole, Fill::Sweep, Fill::Prime);
            one(dim, 3, whole, Fill::Random(dim as u64), Fill::Random(dim as u64 + 1));
        }
        for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Outliers, Fill::Poison, Fill::Large] {
            one(300, 7, whole, fill, Fill::Prime);
            one(300, 7, whole, Fill::Sweep, fill);
        }
    }
    list
}

pub(super) fn swiglu_oai() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, limit: f32, x: Fill| {
        list.push(case(
            format!("dim={dim} tokens={n} limit={limit} x={}", x.name()),
            Op::SwigluOai,
            Args::SwigluOai(SwigluOaiParams { n_tokens: 0, dim: dim as u32, limit }),
            tokens(n),
            vec![read("gate_up", bits(&x.make(2 * n * dim))), written("y", n * dim, all(n * dim))],
        ));
    };
    for dim in [1, 255, 256, 257, 1000] {
        one(dim, 1, 7.0, Fill::Sweep);
        one(dim, 3, 7.0, Fill::Random(dim as u64));
    }
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Faint, Fill::Poison, Fill::Large] {
        one(300, 3, 7.0, fill);
        one(300, 3, 1.0e9, fill);
    }
    list
}
