//! Cases of `layer_norm` and `gelu`.

use super::{Case, Fill, all, bits, case, read, tokens, written};
use crate::ops::gelu::GeluParams;
use crate::ops::layer_norm::LayerNormParams;
use crate::record::{Args, Op};

pub(super) fn layer_norm() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, [n, w_rows]: [usize; 2], biased: bool, eps: f32, x: Fill, w: Fill| {
        let p = LayerNormParams {
            n_tokens: 0,
            dim: dim as u32,
            inv_n: (1.0 / dim as f64) as f32,
            eps,
            w_rows: w_rows as u32,
            biased: biased.into(),
        };
        list.push(case(
            format!("dim={dim} rows={n} of {w_rows} biased={biased} eps={eps:e} x={} w={}", x.name(), w.name()),
            Op::LayerNorm,
            Args::LayerNorm(p),
            tokens(n),
            vec![
                read("x", bits(&x.make(n * dim))),
                read("w", bits(&w.make(w_rows * dim))),
                read("b", bits(&Fill::Sweep.make(if biased { w_rows * dim } else { 1 }))),
                written("y", n * dim, all(n * dim)),
            ],
        ));
    };
    for dim in [1, 2, 64, 80, 255, 256, 257, 511, 513, 1025, 2048, 4544] {
        one(dim, [1, 1], true, 1e-5, Fill::Prime, Fill::Random(dim as u64));
        one(dim, [3, 1], false, 1e-6, Fill::Random(dim as u64 + 1), Fill::Prime);
    }
    for (n, w_rows) in [(6, 2), (7, 3), (4, 4)] {
        one(32, [n, w_rows], true, 1e-5, Fill::Random(n as u64), Fill::Prime);
        one(300, [n, w_rows], false, 1e-5, Fill::Sweep, Fill::Random(7));
    }
    for fill in
        [Fill::Zeros, Fill::Ones, Fill::Full, Fill::Extremes, Fill::Tiny, Fill::Faint, Fill::Outliers, Fill::Sweep]
    {
        one(300, [2, 1], true, 1e-5, fill, Fill::Prime);
        one(300, [2, 1], false, 0.0, fill, Fill::Prime);
        one(300, [2, 1], true, 1e-6, Fill::Prime, fill);
    }
    for fill in [Fill::Wild, Fill::Poison, Fill::Large] {
        one(300, [3, 1], true, 1e-5, fill, Fill::Prime);
    }
    // weights are finite, of any magnitude
    for fill in [Fill::Large, Fill::Huge] {
        one(300, [2, 1], true, 1e-5, Fill::Prime, fill);
    }
    list
}

pub(super) fn gelu() -> Vec<Case> {
    let mut list = Vec::new();
    for erf in [0, 1] {
        let mut one = |dim: usize, n: usize, x: Fill| {
            list.push(case(
                format!("dim={dim} tokens={n} erf={erf} x={}", x.name()),
                Op::Gelu,
                Args::Gelu(GeluParams { n_tokens: 0, dim: dim as u32, erf }),
                tokens(n),
                vec![read("x", bits(&x.make(n * dim))), written("y", n * dim, all(n * dim))],
            ));
        };
        for dim in [1, 255, 256, 257, 1000] {
            one(dim, 1, Fill::Sweep);
            one(dim, 3, Fill::Random(dim as u64));
        }
        one(2003, 1, Fill::Sweep);
        for fill in [
            Fill::Zeros,
            Fill::Full,
            Fill::Extremes,
            Fill::Tiny,
            Fill::Faint,
            Fill::Outliers,
            Fill::Wild,
            Fill::Poison,
            Fill::Large,
        ] {
            one(300, 2, fill);
        }
    }
    list
}
