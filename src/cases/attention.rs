//! Cases of the cache and of attention: pages, rings, scopes, head sizes, and every type beside every other.

use super::{Case, Fill, UNSEEN, bits, case, read, replaced, scattered, states, tokens, written};
use crate::ops::attention::{AttentionParams, CHUNK, SCOPE_ALL, SCOPE_OLDER, SCOPE_OWN};
use crate::ops::attention_quantize::AttentionQuantizeParams;
use crate::ops::attention_sinks::AttentionSinksParams;
use crate::ops::cache::{self, CacheType, CacheWriteParams};
use crate::ops::linear::act_words;
use crate::ops::places::{self, Places};
use crate::ops::softcap;
use crate::record::{Args, Op, Step};

/// `ops::places` of tokens of one sequence whose chunks lie in order, beside a ring of so many.
pub(super) fn in_order(pos: usize, n: usize, ring: usize) -> Vec<u32> {
    let mut words = Vec::new();
    places::in_order(pos, n, ring, &mut words);
    words
}

/// Index of a position in a page or ring, where it has one.
pub(super) fn place(ring: u32, first: usize, page: usize, pos: usize) -> Option<usize> {
    if ring == 1 { Some(pos % page) } else { (first..first + page).contains(&pos).then(|| pos - first) }
}

pub(super) fn cache_write(op: Op, t: CacheType) -> Vec<Case> {
    let keys = matches!(op, Op::CacheWriteK(_));
    let mut list = Vec::new();
    let mut with = |ring: u32, kv_heads: usize, hd: usize, first: usize, page: usize, pos: usize, n: usize, x: Fill| {
        let Some(words) = t.words(hd) else { return };
        let p = CacheWriteParams {
            n_tokens: 0,
            kv_heads: kv_heads as u32,
            head_dim: hd as u32,
            page_first: first as u32,
            page_len: page as u32,
            ring,
            table: 0,
        };
        let mut ranges = Vec::new();
        for at in (pos..pos + n).filter_map(|p| place(ring, first, page, p)) {
            for head in 0..kv_heads {
                if keys {
                    let base = ((head * page + at) / 32 * words) * 32 + at % 32;
                    ranges.extend((0..words).map(|i| base + i * 32..base + i * 32 + 1));
                } else {
                    let base = (head * page + at) * words;
                    ranges.push(base..base + words);
                }
            }
        }
        list.push(case(
            format!(
                "kv_heads={kv_heads} head_dim={hd} {}={first}..{} pos={pos} tokens={n} x={}",
                if ring == 1 { "ring" } else { "page" },
                first + page,
                x.name()
            ),
            op,
            Args::CacheWrite(p),
            Step { pos, ..tokens(n) },
            {
                let mut buffers = vec![read("x", bits(&x.make(n * kv_heads * hd)))];
                if keys {
                    // of the values one here and there is not finite where keys are tested for it
                    let beside = if matches!(x, Fill::Wild) { Fill::Poison } else { Fill::Prime };
                    let mut v = beside.make(n * kv_heads * hd);
                    v.rotate_left(n * kv_heads * hd / 3);
                    buffers.push(read("beside", bits(&v)));
                }
                buffers.push(read("places", in_order(pos, n, page / CHUNK)));
                buffers.push(written("cache", kv_heads * page * words, ranges));
                buffers
            },
        ));
    };
    // a ring: its first turn, over its end, a whole turn and more chunks than one
    for (hd, page, pos, n) in [
        (64, 128, 62, 4),
        (2, 64, 64, 1),
        (96, 128, 126, 5),
        (128, 192, 190, 70),
        (256, 128, 300, 65),
        (576, 128, 126, 5),
    ] {
        with(1, 2, hd, 0, page, pos, n, Fill::Random(pos as u64));
    }
    let mut one = |kv_heads, hd, first, page, pos, n, x| with(0, kv_heads, hd, first, page, pos, n, x);
    for hd in [2, 32, 40, 64, 80, 96, 128, 256, 258, 288, 512, 576] {
        one(2, hd, 0, 64, 31, 2, Fill::Random(hd as u64));
        one(3, hd, 64, 128, 100, 1, Fill::Prime);
    }
    // inside, across both ends, around the whole page, before it, after it
    for (first, pos, n) in
        [(0, 0, 5), (0, 62, 4), (64, 62, 4), (64, 126, 5), (64, 60, 72), (64, 59, 5), (64, 128, 3), (128, 128, 64)]
    {
        one(2, 64, first, 64, pos, n, Fill::Prime);
    }
    for x in [
        Fill::Zeros,
        Fill::Full,
        Fill::Extremes,
        Fill::Tiny,
        Fill::Ties(1),
        Fill::NibbleTies,
        Fill::HalfTies,
        Fill::Outliers,
        Fill::Sweep,
    ] {
        one(2, 96, 0, 64, 3, 3, x);
    }
    // rows of keys with something that is not finite are marked, a cache of values must hold numbers
    for x in [Fill::Wild, Fill::Poison, Fill::Large] {
        one(2, 96, 0, 64, 3, 5, x);
        one(2, 32, 0, 64, 3, 9, x);
        one(1, 256, 0, 64, 3, 5, x);
        one(1, 576, 0, 64, 3, 5, x);
    }
    list.extend(scattered::cache_write(op, t));
    list
}

/// A query step against one page: (head_dim, heads, kv_heads, page_first, page_len, pos, n_tokens).
type AttentionShape = (usize, usize, usize, usize, usize, usize, usize);

const SHAPES: [AttentionShape; 39] = [
    // every head size; grouped and plain heads
    (2, 2, 1, 0, 64, 3, 2),
    (32, 4, 2, 0, 64, 7, 1),
    (40, 3, 3, 0, 64, 7, 2),
    (64, 4, 2, 0, 64, 0, 1),
    (96, 6, 2, 0, 64, 40, 2),
    (128, 4, 1, 0, 128, 70, 1),
    (256, 2, 2, 0, 64, 20, 2),
    // from the first position, over chunk boundaries, to the end of the page
    (64, 4, 2, 0, 64, 0, 5),
    (64, 3, 1, 0, 128, 60, 8),
    (64, 2, 1, 0, 128, 127, 1),
    (64, 2, 1, 0, 192, 126, 4),
    // over the end of the first page: some rows finish, others are carried
    (64, 2, 1, 0, 64, 62, 4),
    (96, 2, 1, 0, 64, 100, 2),
    // second page: rows before it, first row, chunk boundary, last row, beyond it
    (64, 2, 1, 64, 64, 62, 4),
    (64, 4, 2, 64, 64, 64, 1),
    (128, 2, 2, 128, 128, 190, 4),
    (256, 2, 1, 64, 64, 126, 4),
    (64, 2, 1, 64, 64, 300, 2),
    // a page that no query has reached
    (64, 2, 1, 64, 64, 20, 2),
    // tiles of tokens: heads of a unit with keys of their own, a unit that is not full, rows that end in another page
    (64, 4, 2, 0, 128, 0, 40),
    (64, 3, 3, 0, 64, 50, 20),
    (32, 6, 2, 64, 64, 50, 30),
    (40, 3, 3, 0, 128, 60, 9),
    (96, 2, 1, 0, 64, 30, 40),
    (128, 4, 1, 64, 64, 60, 35),
    // and of heads over 128
    (256, 2, 1, 0, 64, 30, 40),
    (160, 3, 1, 64, 64, 60, 35),
    // rows enough for blocks of them
    (256, 4, 1, 64, 64, 60, 35),
    (576, 4, 1, 0, 128, 60, 35),
    // large heads: one token and a few, a carried state, a page before, tiles; one that is no multiple of 4, and of 32
    (576, 4, 1, 0, 128, 70, 1),
    (512, 2, 2, 0, 128, 62, 4),
    (576, 3, 1, 64, 64, 126, 4),
    (576, 5, 1, 0, 64, 62, 3),
    (258, 2, 1, 0, 128, 62, 3),
    (288, 3, 1, 0, 128, 50, 20),
    (300, 2, 2, 64, 64, 60, 20),
    (576, 3, 1, 0, 128, 30, 40),
    (512, 2, 1, 64, 64, 60, 35),
    // more chunks than a join asks for at once
    (576, 1, 1, 0, 640, 600, 1),
];

// some queries in their first chunk, own chunks at and beyond the page's end, several chunks in a step
const OLDER: [AttentionShape; 14] = [
    (64, 4, 2, 0, 128, 66, 3),
    (64, 2, 1, 0, 64, 62, 4),
    (96, 2, 1, 0, 64, 130, 2),
    (96, 6, 2, 64, 64, 126, 4),
    (128, 4, 1, 128, 128, 190, 4),
    (256, 2, 2, 0, 128, 128, 2),
    (256, 2, 1, 64, 64, 300, 2),
    (64, 4, 2, 0, 128, 10, 3),
    (32, 8, 4, 0, 192, 191, 2),
    (40, 3, 3, 0, 64, 70, 2),
    (64, 3, 1, 0, 192, 120, 80),
    (256, 2, 1, 0, 128, 100, 50),
    (576, 2, 1, 0, 128, 100, 50),
    (512, 2, 1, 64, 64, 126, 4),
];

// a ring: the first chunk, over a chunk's end, over the ring's end, several turns on, more chunks than two
const OWN: [AttentionShape; 10] = [
    (64, 4, 2, 0, 64, 0, 5),
    (64, 4, 2, 0, 128, 62, 4),
    (64, 2, 1, 0, 128, 126, 4),
    (96, 6, 2, 0, 192, 190, 70),
    (128, 4, 1, 0, 128, 1000, 1),
    (256, 2, 2, 0, 128, 255, 3),
    (2, 2, 1, 0, 64, 64, 1),
    (40, 3, 3, 0, 64, 127, 1),
    (32, 8, 4, 0, 128, 60, 8),
    (576, 3, 1, 0, 128, 126, 30),
];

// (scope, window): in one chunk, its own position only, over chunk and page ends, pages before the window and pages
// that some rows do not reach back to, longer than everything, more chunks than one masked, none of the older chunks
const WINDOWED: [(u32, u32, AttentionShape); 27] = [
    (SCOPE_ALL, 1, (64, 4, 2, 0, 64, 0, 5)),
    (SCOPE_ALL, 1, (64, 2, 1, 0, 128, 62, 40)),
    (SCOPE_ALL, 10, (64, 4, 2, 0, 64, 40, 2)),
    (SCOPE_ALL, 40, (96, 6, 2, 0, 192, 100, 3)),
    (SCOPE_ALL, 40, (96, 3, 1, 0, 192, 20, 90)),
    (SCOPE_ALL, 64, (64, 4, 2, 0, 192, 127, 2)),
    (SCOPE_ALL, 65, (128, 4, 1, 0, 256, 190, 20)),
    (SCOPE_ALL, 100, (64, 3, 3, 0, 256, 130, 1)),
    (SCOPE_ALL, 128, (256, 2, 2, 0, 256, 190, 3)),
    (SCOPE_ALL, 1000, (64, 4, 2, 0, 128, 66, 3)),
    (SCOPE_ALL, u32::MAX, (32, 8, 4, 0, 128, 66, 18)),
    // pages: left behind by all rows, by some, the window beginning in it, before it, on its first position
    (SCOPE_ALL, 40, (64, 2, 1, 0, 64, 90, 40)),
    (SCOPE_ALL, 40, (64, 2, 1, 64, 64, 90, 40)),
    (SCOPE_ALL, 40, (64, 2, 1, 128, 64, 90, 60)),
    (SCOPE_ALL, 40, (96, 2, 1, 0, 64, 103, 1)),
    (SCOPE_ALL, 64, (128, 2, 1, 64, 64, 127, 2)),
    (SCOPE_ALL, 70, (40, 3, 3, 64, 64, 150, 2)),
    (SCOPE_ALL, 100, (256, 2, 1, 64, 64, 126, 4)),
    // with a ring: the own chunk alone, in part and whole, older chunks in part, some rows with none of them
    (SCOPE_OLDER, 40, (64, 4, 2, 0, 128, 66, 70)),
    (SCOPE_OLDER, 100, (96, 6, 2, 64, 64, 126, 40)),
    (SCOPE_OLDER, 130, (128, 4, 1, 0, 256, 191, 3)),
    (SCOPE_OLDER, 3, (64, 2, 1, 0, 128, 120, 20)),
    (SCOPE_OWN, 40, (64, 4, 2, 0, 192, 62, 70)),
    (SCOPE_OWN, 3, (128, 4, 1, 0, 128, 1000, 1)),
    (SCOPE_OWN, 64, (96, 6, 2, 0, 192, 190, 70)),
    (SCOPE_ALL, 40, (576, 3, 1, 0, 192, 100, 3)),
    (SCOPE_ALL, 100, (512, 2, 1, 0, 192, 110, 40)),
];

/// What attention may have besides: a cap of scores, and whether there are sinks.
type Extra = (f32, u32);

/// A step against one page, where the types can hold such heads.
fn one_page(
    (kt, vt): (CacheType, CacheType),
    (cap, sinks): Extra,
    (scope, window, shape): (u32, u32, AttentionShape),
    [q, k, v]: [Fill; 3],
) -> Option<Case> {
    let (hd, heads, kv_heads, first, page, pos, n) = shape;
    let (kwords, vwords) = (kt.words(hd)?, vt.words(hd)?);
    let p = AttentionParams {
        n_tokens: 0,
        chunk0: 0,
        chunks: 0,
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        head_dim: hd as u32,
        page_first: first as u32,
        page_len: page as u32,
        scale: (1.0 / (hd as f64).sqrt()) as f32,
        scope,
        window,
        table: 1,
        softcap: cap,
        inv_softcap: softcap::inverse(cap),
        sinks,
    };
    let ring = scope == SCOPE_OWN;
    let reach = |query: usize| if window == 0 { 0 } else { (query + 1).saturating_sub(window as usize) };
    // nothing that no row sees: neither what comes after all rows, nor what lies before all windows
    let written_from = (if ring { pos / CHUNK * CHUNK } else { first }).max(reach(pos));
    let end = if ring { pos + n } else { (pos + n).min(first + page) };
    let live = end.saturating_sub(written_from);
    let w = CacheWriteParams {
        n_tokens: live as u32,
        kv_heads: kv_heads as u32,
        head_dim: hd as u32,
        page_first: first as u32,
        page_len: page as u32,
        ring: ring.into(),
        table: 0,
    };
    let at = in_order(written_from, live, page / CHUNK);
    let mut keys = vec![UNSEEN; kv_heads * page * kwords];
    let mut values = vec![UNSEEN; kv_heads * page * vwords];
    let beside = v.make(live * kv_heads * hd);
    cache::cache_write_k(kt, &w, Places::new(&at), &k.make(live * kv_heads * hd), &beside, &mut keys);
    cache::cache_write_v(vt, &w, Places::new(&at), &beside, &mut values);
    let state = states(pos as u64, n * heads, hd);
    let (mut carried, mut out) = (Vec::new(), Vec::new());
    for row in 0..n * heads {
        let query = pos + row / heads;
        let own = query / CHUNK * CHUNK;
        let seen = if scope == SCOPE_OLDER { own.min(first + page) } else { (query + 1).min(first + page) };
        if !ring && reach(query).max(first) >= seen {
            continue;
        } else if !ring && (scope == SCOPE_OLDER || query >= first + page) {
            carried.push(row * (hd + 2)..(row + 1) * (hd + 2));
        } else {
            out.push(row * hd..(row + 1) * hd);
        }
    }
    Some(case(
        format!(
            "head_dim={hd} heads={heads}/{kv_heads} {}={first}..{}{}{}{} pos={pos} tokens={n} q={} k={} v={}",
            ["page", "older", "ring"][scope as usize],
            first + page,
            if window > 0 { format!(" window={window}") } else { String::new() },
            if cap > 0.0 { format!(" cap={cap}") } else { String::new() },
            if sinks > 0 { " sinks" } else { "" },
            q.name(),
            k.name(),
            v.name()
        ),
        Op::Attention(kt, vt),
        Args::Attention(p),
        Step { pos, ..tokens(n) },
        vec![
            read("q", bits(&q.make(n * heads * hd))),
            read("k", keys),
            read("v", values),
            read("places", in_order(pos, n, page / CHUNK)),
            if first == 0 && !ring && sinks == 0 {
                written("carried", n * heads * (hd + 2), carried)
            } else {
                replaced("carried", bits(&state), carried)
            },
            written("out", n * heads * hd, out),
        ],
    ))
}

pub(super) fn attention(kt: CacheType, vt: CacheType) -> Vec<Case> {
    let mut list = Vec::new();
    let mut extra = |extra: Extra, scope: u32, window: u32, shape: AttentionShape, q: Fill, k: Fill, v: Fill| {
        list.extend(one_page((kt, vt), extra, (scope, window, shape), [q, k, v]));
    };
    // with a cap that scores of a few units meet, and from sinks: all shapes, each with one of the two or both
    let some = |i: usize| [(1.5, 0), (0.0, 1), (0.7, 1)][i % 3];
    let all = |scope: u32, list: &[AttentionShape]| list.iter().map(|s| (scope, 0, *s)).collect::<Vec<_>>();
    let lists = [all(SCOPE_ALL, &SHAPES), all(SCOPE_OLDER, &OLDER), all(SCOPE_OWN, &OWN), WINDOWED.to_vec()];
    for (i, (scope, window, shape)) in lists.concat().into_iter().enumerate() {
        if scope != SCOPE_OWN || vt.rotation(64) == 0 {
            extra(some(i), scope, window, shape, Fill::Prime, Fill::Prime, Fill::Random(0x400 + i as u64));
        }
    }
    for shape in [(64, 4, 2, 0, 128, 66, 3), (64, 4, 2, 0, 128, 0, 70), (256, 2, 1, 0, 64, 30, 40)] {
        extra((1.5, 1), SCOPE_ALL, 0, shape, Fill::Prime, Fill::Wild, Fill::Random(5));
        extra((1.5, 1), SCOPE_ALL, 0, shape, Fill::Wild, Fill::Sweep, Fill::Random(6));
        extra((50.0, 0), SCOPE_ALL, 0, shape, Fill::Large, Fill::Large, Fill::Large);
        extra((50.0, 0), SCOPE_ALL, 0, shape, Fill::Tiny, Fill::Outliers, Fill::Prime);
    }
    let mut with = |scope, window, shape, q, k, v| extra((0.0, 0), scope, window, shape, q, k, v);
    for (i, shape) in (1u64..).zip(OLDER) {
        with(SCOPE_OLDER, 0, shape, Fill::Prime, Fill::Prime, Fill::Random(i));
    }
    for (i, shape) in (1u64..).zip(OWN) {
        if vt.rotation(64) == 0 {
            with(SCOPE_OWN, 0, shape, Fill::Random(0x200 + i), Fill::Prime, Fill::Random(i));
        }
    }
    for (i, (scope, window, shape)) in (1u64..).zip(WINDOWED) {
        if scope != SCOPE_OWN || vt.rotation(64) == 0 {
            with(scope, window, shape, Fill::Random(0x300 + i), Fill::Prime, Fill::Random(i));
        }
    }
    let mut one = |shape, q, k, v| with(SCOPE_ALL, 0, shape, q, k, v);
    for (i, shape) in (1u64..).zip(SHAPES) {
        // scores of a few units, as a model has them: random ones alone would leave one position all the weight
        one(shape, Fill::Prime, Fill::Prime, Fill::Random(i));
        one(shape, Fill::Random(0x100 + i), Fill::Prime, Fill::Prime);
    }
    let plain = (64, 4, 2, 0, 128, 66, 3);
    one(plain, Fill::Zeros, Fill::Prime, Fill::Random(1));
    one(plain, Fill::Prime, Fill::Zeros, Fill::Random(2));
    one(plain, Fill::Full, Fill::Full, Fill::Extremes);
    one(plain, Fill::Extremes, Fill::Sweep, Fill::Sweep);
    one(plain, Fill::Tiny, Fill::Outliers, Fill::Outliers);
    one(plain, Fill::Outliers, Fill::Tiny, Fill::Tiny);
    one(plain, Fill::Sweep, Fill::Extremes, Fill::Zeros);
    // maxima that rise by 30 from chunk to chunk, each making what came before 2^-43 times as large
    let rises = |hd: usize| Fill::First(hd, if hd == 64 { 240.0 } else { 339.4113 });
    for shape in [(64, 2, 1, 0, 256, 230, 2), (64, 2, 1, 0, 256, 190, 40), (128, 2, 1, 0, 256, 255, 1)] {
        one(shape, rises(shape.0), Fill::Rising(shape.0), Fill::Faint);
        one(shape, rises(shape.0), Fill::Rising(shape.0), Fill::Prime);
    }
    // and a page after whose four chunks the values of the first are 2^-130 as large: smaller than what a float holds whole,
    // and what a device that makes such numbers 0 would leave otherwise in the state, if joins did not
    for shape in [(64, 2, 1, 0, 256, 300, 2), (64, 2, 1, 0, 256, 300, 40), (128, 2, 1, 0, 256, 300, 1)] {
        one(shape, rises(shape.0), Fill::Rising(shape.0), Fill::Early(shape.0));
    }
    // some positions poisoned, some queries, and scores that overflow: of few tokens and of a tile, where rows see
    // different positions, over chunks and with a state before them
    for shape in [
        plain,
        (64, 4, 2, 0, 128, 0, 70),
        (128, 4, 1, 64, 64, 60, 35),
        (256, 2, 1, 0, 64, 30, 40),
        (576, 2, 1, 0, 64, 30, 20),
    ] {
        one(shape, Fill::Prime, Fill::Wild, Fill::Random(3));
        one(shape, Fill::Prime, Fill::Prime, Fill::Wild);
        one(shape, Fill::Wild, Fill::Prime, Fill::Random(4));
        one(shape, Fill::Large, Fill::Large, Fill::Large);
    }
    list.extend(scattered::attention(kt, vt));
    list
}

pub(super) fn attention_sinks() -> Vec<Case> {
    let mut list = Vec::new();
    for (heads, hd, n) in [(1, 2, 1), (4, 64, 3), (64, 64, 1), (3, 40, 7), (2, 256, 2), (5, 126, 70), (2, 576, 2)] {
        for x in [Fill::Prime, Fill::Random(heads as u64), Fill::Wild] {
            list.push(case(
                format!("heads={heads} head_dim={hd} tokens={n} sinks={}", x.name()),
                Op::AttentionSinks,
                Args::AttentionSinks(AttentionSinksParams { n_tokens: 0, heads: heads as u32, head_dim: hd as u32 }),
                tokens(n),
                vec![
                    read("sinks", bits(&x.make(heads))),
                    written("carried", n * heads * (hd + 2), std::iter::once(0..n * heads * (hd + 2)).collect()),
                ],
            ));
        }
    }
    list
}

/// The cases of `attention` whose heads make whole groups of 128, with one digit and with two.
pub(super) fn attention_quantize(kt: CacheType, vt: CacheType) -> Vec<Case> {
    let mut list = Vec::new();
    for (i, case) in attention(kt, vt).into_iter().enumerate() {
        let Args::Attention(p) = case.args else { unreachable!("of attention") };
        let digits = 1 + i as u32 % 2;
        let Some(fused) = AttentionQuantizeParams::new(&p, digits) else { continue };
        let words = act_words((p.heads * p.head_dim) as usize, digits as usize);
        let mut buffers = case.buffers;
        buffers.pop();
        let places = buffers.iter().find(|b| b.name == "places").expect("attention binds them").words.clone();
        let (places, page) = (Places::new(&places), p.page());
        let finished = (0..case.step.n_tokens).filter(|&t| page.own(&places, t).is_some());
        let ranges = finished.map(|t| t * words..(t + 1) * words).collect();
        buffers.push(written("blocks", case.step.n_tokens * words, ranges));
        list.push(Case {
            name: format!("{} digits={digits}", case.name.replacen("attention[", "attention_quantize[", 1)),
            op: Op::AttentionQuantize(kt, vt),
            args: Args::AttentionQuantize(fused),
            buffers,
            ..case
        });
    }
    list
}
