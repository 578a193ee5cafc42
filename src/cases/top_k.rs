//! Cases of selection: logits, then the lists made of them.

use super::{Case, Fill, Rng, all, bits, case, read, tokens, written};
use crate::ops::top_k::{PAIR, SLICE, TopKParams, top_k as twin};
use crate::record::{Args, Op, Rows, Step};

/// Logits whose order is easily got wrong: equal ones, both zeros, the ends of the range, and what is not finite.
fn awkward(n: usize, seed: u64) -> Vec<u32> {
    const WORDS: [u32; 10] = [
        0x0000_0000,
        0x8000_0000,
        0x7f7f_ffff,
        0xff7f_ffff,
        0x0000_0001,
        0x8000_0001,
        0x3f80_0000,
        0xbf80_0000,
        0x3f80_0001,
        0xbf80_0001,
    ];
    let mut rng = Rng(seed);
    (0..n).map(|_| rng.pick(&WORDS)).collect()
}

/// The same logits with a few that are not finite, the first of them neither the greatest word nor the least.
fn broken(n: usize, seed: u64) -> Vec<u32> {
    let mut words = awkward(n, seed);
    for (i, w) in [0xff80_0000, 0x7fc0_0001, 0x7f80_0000, 0xffff_ffff].into_iter().enumerate() {
        words[n / 3 + i * n / 6] = w;
    }
    words
}

pub(super) fn top_k() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |n: usize, rows: usize, k: u32, what: &str, x: &[u32]| {
        let mut push = |stage: &str, args: TopKParams, x: &[u32]| {
            let p = TopKParams { n_tokens: rows as u32, k, ..args };
            let p = if p.lists > 0 { TopKParams { n: p.lists * k, slice: p.lists * k, ..p } } else { p };
            let live = rows * p.n.div_ceil(p.slice) as usize * k as usize * PAIR;
            let mut c = case(
                format!("{stage} n={n} rows={rows} k={k} x={what}"),
                Op::TopK,
                Args::TopK(args),
                Step { n_out: rows, select: k as usize, ..tokens(rows) },
                vec![read("x", x.to_vec()), written("y", live, all(live))],
            );
            c.rows = Rows::Outputs;
            list.push(c);
            let mut y = vec![0; live];
            twin(&p, x, &mut y);
            y
        };
        let p = TopKParams { n_tokens: 0, n: n as u32, k: 1, slice: SLICE, lists: 0 };
        let y = push("slices", p, x);
        push("lists", TopKParams { n: 0, slice: 0, lists: (n as u32).div_ceil(SLICE), ..p }, &y);
    };
    for k in [1, 2, 16, 64, 128] {
        // fewer than k, around a slice, whole slices and not
        for n in [1, 3, 127, 1023, 4095, 4096, 4097, 9000] {
            one(n, 1, k, "random", &bits(&Fill::Random(n as u64 + u64::from(k)).make(n)));
        }
        one(4500, 2, k, "awkward", &awkward(9000, u64::from(k)));
        one(4500, 1, k, "not all finite", &broken(4500, u64::from(k)));
        // all are taken, in many tiles
        one(4500, 1, k, "equal", &vec![0xc000_0000; 4500]);
        let falling: Vec<f32> = (0..5000).map(|i| 7.0 - i as f32).collect();
        one(5000, 1, k, "falling", &bits(&falling));
        one(5000, 1, k, "rising", &bits(&falling.iter().rev().copied().collect::<Vec<_>>()));
    }
    // more in the lists than a tile holds
    one(40_000, 1, 128, "prime", &bits(&Fill::Prime.make(40_000)));
    one(40_000, 1, 64, "random", &bits(&Fill::Random(5).make(40_000)));
    one(262_144, 1, 1, "random", &bits(&Fill::Random(6).make(262_144)));
    list
}
