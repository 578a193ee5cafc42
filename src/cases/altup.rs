//! Cases of the streams of alternating updates, and of gates that are left above a bound.

use super::{Case, Fill, all, bits, case, read, replaced, tokens};
use crate::ops::altup_add::AltupAddParams;
use crate::ops::altup_correct::AltupCorrectParams;
use crate::ops::altup_predict::{AltupPredictParams, OTHERS, STREAMS};
use crate::ops::altup_rescale::AltupRescaleParams;
use crate::ops::gaussian_topk::GaussianTopkParams;
use crate::record::{Args, Op};

const FILLS: [Fill; 9] = [
    Fill::Zeros,
    Fill::Full,
    Fill::Extremes,
    Fill::Tiny,
    Fill::Faint,
    Fill::Outliers,
    Fill::Wild,
    Fill::Poison,
    Fill::Large,
];

/// Rows as they are given, and replaced.
fn rows(name: &'static str, fill: Fill, n: usize) -> super::CaseBuffer {
    replaced(name, bits(&fill.make(n)), all(n))
}

pub(super) fn altup_rescale() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, x: Fill, others: Fill| {
        let p = AltupRescaleParams { n_tokens: 0, dim: dim as u32, inv_n: (1.0 / dim as f64) as f32 };
        list.push(case(
            format!("dim={dim} tokens={n} x={} others={}", x.name(), others.name()),
            Op::AltupRescale,
            Args::AltupRescale(p),
            tokens(n),
            vec![read("x", bits(&x.make(n * dim))), rows("others", others, n * OTHERS * dim)],
        ));
    };
    for dim in [1, 255, 256, 257, 1023, 1025, 2048] {
        one(dim, 1, Fill::Prime, Fill::Random(dim as u64));
        one(dim, 3, Fill::Random(dim as u64 + 1), Fill::Sweep);
    }
    for fill in FILLS {
        one(300, 2, fill, Fill::Prime);
        one(300, 2, Fill::Prime, fill);
        one(300, 2, fill, fill);
    }
    // mean squares at 1e-5 and beside it
    for x in [3.162_277e-3, 3.162_278e-3, 3.162_278_6e-3] {
        one(64, 1, Fill::Prime, Fill::First(1, x));
    }
    list
}

pub(super) fn altup_predict() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, c: Fill, x: Fill, others: Fill| {
        list.push(case(
            format!("dim={dim} tokens={n} c={} x={} others={}", c.name(), x.name(), others.name()),
            Op::AltupPredict,
            Args::AltupPredict(AltupPredictParams { n_tokens: 0, dim: dim as u32 }),
            tokens(n),
            vec![
                read("c", bits(&c.make(n * STREAMS * STREAMS))),
                rows("x", x, n * dim),
                rows("others", others, n * OTHERS * dim),
            ],
        ));
    };
    for dim in [1, 255, 256, 257, 1000] {
        one(dim, 1, Fill::Prime, Fill::Random(dim as u64), Fill::Sweep);
        one(dim, 5, Fill::Random(dim as u64), Fill::Prime, Fill::Random(3));
    }
    for fill in FILLS {
        one(300, 3, fill, Fill::Prime, Fill::Random(5));
        one(300, 3, Fill::Prime, fill, Fill::Random(6));
        one(300, 3, Fill::Random(7), Fill::Prime, fill);
        one(300, 3, fill, fill, fill);
    }
    // streams less themselves: what is left is below what can be stored
    one(300, 2, Fill::First(5, -1.0), Fill::Prime, Fill::Faint);
    list
}

pub(super) fn altup_correct() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, [c, scale, a, x, others]: [Fill; 5]| {
        list.push(case(
            format!(
                "dim={dim} tokens={n} c={} scale={} a={} x={} others={}",
                c.name(),
                scale.name(),
                a.name(),
                x.name(),
                others.name()
            ),
            Op::AltupCorrect,
            Args::AltupCorrect(AltupCorrectParams { n_tokens: 0, dim: dim as u32 }),
            tokens(n),
            vec![
                read("c", bits(&c.make(n * STREAMS))),
                read("scale", bits(&scale.make(dim))),
                rows("a", a, n * dim),
                rows("x", x, n * dim),
                rows("others", others, n * OTHERS * dim),
            ],
        ));
    };
    for dim in [1, 255, 256, 257, 1000] {
        one(dim, 1, [Fill::Prime, Fill::Sweep, Fill::Random(dim as u64), Fill::Sweep, Fill::Prime]);
        one(dim, 5, [Fill::Random(2), Fill::Prime, Fill::Sweep, Fill::Random(dim as u64), Fill::Random(3)]);
    }
    for fill in FILLS {
        for changed in 0..5 {
            let mut fills = [Fill::Random(4), Fill::Prime, Fill::Sweep, Fill::Prime, Fill::Random(5)];
            fills[changed] = fill;
            one(300, 3, fills);
        }
        one(300, 3, [fill; 5]);
    }
    // coefficients of -1, and of -1 but for a little, take nothing of the news, or little; scales are any finite numbers
    one(300, 3, [Fill::First(1, -1.0), Fill::Huge, Fill::Prime, Fill::Sweep, Fill::Prime]);
    one(300, 3, [Fill::First(1, -0.999_999_94), Fill::Prime, Fill::Faint, Fill::Zeros, Fill::Faint]);
    list
}

pub(super) fn altup_add() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, y: Fill, others: Fill| {
        list.push(case(
            format!("dim={dim} tokens={n} y={} others={}", y.name(), others.name()),
            Op::AltupAdd,
            Args::AltupAdd(AltupAddParams { n_tokens: 0, dim: dim as u32 }),
            tokens(n),
            vec![read("y", bits(&y.make(n * dim))), rows("others", others, n * OTHERS * dim)],
        ));
    };
    for dim in [1, 85, 86, 255, 256, 257, 1000] {
        one(dim, 1, Fill::Prime, Fill::Random(dim as u64));
        one(dim, 3, Fill::Random(dim as u64), Fill::Sweep);
    }
    for fill in FILLS {
        one(300, 2, fill, Fill::Prime);
        one(300, 2, Fill::Prime, fill);
        one(300, 2, fill, fill);
    }
    list
}

pub(super) fn gaussian_topk() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, factor: f32, x: Fill| {
        let p = GaussianTopkParams { n_tokens: 0, dim: dim as u32, inv_n: (1.0 / dim as f64) as f32, factor };
        list.push(case(
            format!("dim={dim} tokens={n} factor={factor} x={}", x.name()),
            Op::GaussianTopk,
            Args::GaussianTopk(p),
            tokens(n),
            vec![rows("x", x, n * dim)],
        ));
    };
    for dim in [1, 2, 255, 256, 257, 511, 1023, 1025, 4544, 8192] {
        one(dim, 1, 1.644_853_6, Fill::Prime);
        one(dim, 3, 0.5, Fill::Random(dim as u64));
    }
    for fill in FILLS.into_iter().chain([Fill::Sweep, Fill::Ones]) {
        for factor in [1.644_853_6, 0.0, -1.0, 1_048_575.0] {
            one(300, 3, factor, fill);
        }
    }
    list
}
