//! Cases of steps whose tokens are of many sequences, and whose chunks lie anywhere in the pool.

use super::{Case, Fill, Rng, UNSEEN, bits, case, input, read, replaced, rope_table, states, tokens, written};
use crate::ops::attention::{AttentionParams, SCOPE_ALL, SCOPE_OLDER, SCOPE_OWN, SPAN};
use crate::ops::cache::{self, CacheType, CacheWriteParams};
use crate::ops::places::{self, CHUNK, GONE, Page, Places, TABLES, TOKEN, Touches};
use crate::ops::rope_cache_write::RopeCacheWriteParams;
use crate::record::{Args, Op, Scattered, Step};
use std::ops::Range;

/// A sequence's part of a step: position of its first token, and tokens.
type Part = (usize, usize);

/// Parts of sequences, and chunks of the pool and of each page.
type Shape = (&'static [Part], usize, usize);

// one token each; in the middle and at the ends of chunks; slices of prompts between them, over chunk ends; short ones
const SHAPES: [Shape; 6] = [
    (&[(70, 1), (5, 1), (129, 1)], 12, 12),
    (&[(0, 1), (63, 1), (64, 1), (200, 1), (31, 1), (127, 1), (128, 1), (1, 1), (90, 1), (64, 1)], 24, 24),
    (&[(60, 20), (3, 1), (130, 1), (0, 70), (191, 2)], 16, 16),
    (&[(10, 3), (10, 3)], 2, 2),
    (&[(300, 1), (20, 33), (64, 64)], 14, 7),
    (&[(150, 2), (190, 4), (250, 1), (40, 1)], 12, 4),
];

/// Whole texts, every token of which sees all of its text, as those of encoders do: ends of chunks, and one token.
const WHOLE: Shape = (&[(0, 70), (0, 1), (0, 66), (0, 64)], 8, 4);

/// Scope and window, and the shapes that attention is tried with.
const SCOPES: [(u32, usize, &[usize]); 5] = [
    (SCOPE_ALL, 0, &[0, 1, 2, 3, 4, 5]),
    (SCOPE_ALL, 70, &[1, 4]),
    (SCOPE_OLDER, 0, &[2, 5]),
    (SCOPE_OLDER, 100, &[4]),
    (SCOPE_OWN, 0, &[2]),
];

/// Where the parts of a step lie.
struct Layout {
    /// as `ops::places` reads them
    words: Vec<u32>,
    step: Step,
    /// (sequence, position) of each token
    tokens: Vec<(usize, usize)>,
    /// chunks of the ring
    ring: usize,
}

impl Layout {
    /// The parts in a pool of so many chunks and pages of so many, each sequence's chunks anywhere in it, though in pages in
    /// order. What lies before every window is gone.
    fn new(&(parts, pool, page): &Shape, window: usize, rng: &mut Rng) -> Layout {
        let mut free: Vec<u32> = (0..pool as u32).collect();
        let mut own: Vec<(usize, usize)> = Vec::new();
        let (mut at, mut list) = (Vec::new(), Vec::new());
        let n: usize = parts.iter().map(|(_, n)| n).sum();
        let mut tables: Vec<u32> = Vec::new();
        let mut touches = Touches { read: (u32::MAX, 0), written: (u32::MAX, 0) };
        let with = |(from, to): (u32, u32), c: u32| (from.min(c), to.max(c + 1));
        for (sequence, &(pos, n_tokens)) in parts.iter().enumerate() {
            let reach = if window == 0 { 0 } else { (pos + 1).saturating_sub(window) };
            let gone = reach / CHUNK;
            let held = (pos + n_tokens).div_ceil(CHUNK) - gone;
            let mut chunks: Vec<u32> = (0..held).map(|_| free.swap_remove(rng.below(free.len()))).collect();
            chunks.sort_by_key(|c| *c as usize / page);
            let table = (n * TOKEN + tables.len()) as u32;
            tables.extend((0..gone).map(|_| GONE));
            chunks.iter().for_each(|&c| touches.read = with(touches.read, c));
            chunks[pos / CHUNK - gone..].iter().for_each(|&c| touches.written = with(touches.written, c));
            tables.extend(chunks);
            for position in pos..pos + n_tokens {
                let chunk = (sequence, position / CHUNK);
                if !own.contains(&chunk) {
                    own.insert(own.len() / 2, chunk);
                }
                list.push((sequence, position));
                at.push((position as u32, chunk, table));
            }
        }
        let recent = |chunk| own.iter().position(|c| *c == chunk).expect("one for each") as u32;
        let mut words: Vec<u32> =
            at.iter().flat_map(|&(position, chunk, table)| [position, recent(chunk), table, table]).collect();
        words.extend(tables);
        let end = parts.iter().map(|(pos, n)| pos + n).max().unwrap_or(0);
        let scattered = Scattered { words: vec![], end, touches: [touches; TABLES], strands: parts.len() };
        let pos = parts.iter().map(|(pos, _)| *pos).min().unwrap_or(0);
        Layout { words, step: Step { pos, scattered: Some(scattered), ..tokens(n) }, tokens: list, ring: own.len() }
    }

    fn places(&self) -> Places<'_> {
        Places::new(&self.words)
    }
}

/// The pages of a pool, the ring last: (first position, positions, whether it is the ring).
fn pages(&(_, pool, page): &Shape, ring: usize) -> impl Iterator<Item = (usize, usize, bool)> {
    let pages = (0..pool).step_by(page).map(move |first| (first * CHUNK, page * CHUNK, false));
    pages.chain([(0, ring * CHUNK, true)])
}

/// Where a cached row of keys, or of values, has its words.
fn row_words(keys: bool, head: usize, page: usize, at: usize, words: usize) -> impl Iterator<Item = Range<usize>> {
    let base = if keys { ((head * page + at) / 32 * words) * 32 + at % 32 } else { (head * page + at) * words };
    let stride = if keys { 32 } else { 1 };
    (0..words).map(move |i| base + i * stride..base + i * stride + 1)
}

fn title(&(parts, pool, page): &Shape) -> String {
    let parts: Vec<String> = parts.iter().map(|(pos, n)| format!("{n}@{pos}")).collect();
    format!("{} in {pool} chunks, pages of {page}", parts.join(" "))
}

pub(super) fn cache_write(op: Op, t: CacheType) -> Vec<Case> {
    let keys = matches!(op, Op::CacheWriteK(_));
    let mut list = Vec::new();
    for (i, shape) in SHAPES.iter().enumerate() {
        let (kv_heads, hd) = [(2, 64), (1, 96), (3, 32)][i % 3];
        let Some(words) = t.words(hd) else { continue };
        let layout = Layout::new(shape, 0, &mut Rng(i as u64));
        let n = layout.tokens.len();
        for (first, page, ring) in pages(shape, layout.ring) {
            let p = CacheWriteParams {
                n_tokens: 0,
                kv_heads: kv_heads as u32,
                head_dim: hd as u32,
                page_first: first as u32,
                page_len: page as u32,
                ring: ring.into(),
                table: i as u32 % 2,
            };
            let at = (0..n).filter_map(|t| p.page().own(&layout.places(), t));
            let ranges = at.flat_map(|at| (0..kv_heads).flat_map(move |h| row_words(keys, h, page, at, words)));
            let mut buffers = vec![read("x", bits(&Fill::Random(i as u64).make(n * kv_heads * hd)))];
            if keys {
                buffers.push(read("beside", bits(&Fill::Prime.make(n * kv_heads * hd))));
            }
            buffers.push(read("places", layout.words.clone()));
            buffers.push(written("cache", kv_heads * page * words, ranges.collect()));
            let name = format!("kv_heads={kv_heads} head_dim={hd} {}, page {first}, ring {ring}", title(shape));
            list.push(case(name, op, Args::CacheWrite(p), layout.step.clone(), buffers));
        }
    }
    list
}

pub(super) fn rope_cache_write(kt: CacheType, vt: CacheType) -> Vec<Case> {
    let mut list = Vec::new();
    for (i, shape) in SHAPES.iter().enumerate() {
        let (heads, kv_heads, hd, n_rot) = [(4, 2, 64, 64), (3, 1, 96, 24), (2, 2, 32, 32)][i % 3];
        let (Some(kw), Some(vw)) = (kt.words(hd), vt.words(hd)) else { continue };
        let layout = Layout::new(shape, 0, &mut Rng(i as u64));
        let n = layout.tokens.len();
        for (first, page, ring) in pages(shape, layout.ring) {
            let p = RopeCacheWriteParams {
                n_tokens: 0,
                heads: heads as u32,
                kv_heads: kv_heads as u32,
                head_dim: hd as u32,
                n_rot,
                half_split: i as u32 % 2,
                page_first: first as u32,
                page_len: page as u32,
                ring: ring.into(),
                table: i as u32 % 2,
            };
            let (mut q, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
            let of = p.write(1).page();
            for (t, at) in (0..n).filter_map(|t| Some(t).zip(of.own(&layout.places(), t))) {
                if !ring {
                    q.push(t * heads * hd..(t + 1) * heads * hd);
                }
                for head in 0..kv_heads {
                    keys.extend(row_words(true, head, page, at, kw));
                    values.extend(row_words(false, head, page, at, vw));
                }
            }
            let x = Fill::Random(i as u64).make(n * (heads + 2 * kv_heads) * hd);
            let buffers = vec![
                input("table", rope_table(n * n_rot as usize / 2)),
                read("qkv", bits(&x)),
                read("places", layout.words.clone()),
                written("q", n * heads * hd, q),
                written("keys", kv_heads * page * kw, keys),
                written("values", kv_heads * page * vw, values),
            ];
            let name = format!("heads={heads}/{kv_heads} head_dim={hd} {}, page {first}, ring {ring}", title(shape));
            let (op, args) = (Op::RopeCacheWrite(kt, vt), Args::RopeCacheWrite(p));
            list.push(case(name, op, args, layout.step.clone(), buffers));
        }
    }
    list
}

/// Keys and values of what any token of the step sees of a page, and nothing else.
fn fill(
    (kt, vt): (CacheType, CacheType),
    layout: &Layout,
    p: &AttentionParams,
    shape: &Shape,
    fills: (Fill, Fill),
) -> (Vec<u32>, Vec<u32>) {
    let (hd, kv_heads, page) = (p.head_dim as usize, p.kv_heads as usize, p.page_len as usize);
    let words = |t: CacheType| vec![UNSEEN; kv_heads * page * t.words(hd).expect("asked before")];
    let (mut keys, mut values) = (words(kt), words(vt));
    let mut token = 0;
    for &(pos, n) in shape.0 {
        let (own, reach) = (pos / CHUNK * CHUNK, p.reach(&layout.places(), token));
        let from = if p.scope == SCOPE_OWN { own.max(reach) } else { reach };
        let positions: Vec<usize> = (from..pos + n).collect();
        // each of them as a token of its own, whose ring is that of the token that is of its chunk
        let table = layout.words[token * TOKEN + 2];
        let recent = |position: usize| {
            let t = (token..token + n).find(|&t| layout.tokens[t].1 / CHUNK == position / CHUNK);
            t.map_or(0, |t| layout.words[t * TOKEN + 1])
        };
        let shift = ((positions.len() * TOKEN) as u32).wrapping_sub((layout.tokens.len() * TOKEN) as u32);
        let table = table.wrapping_add(shift);
        let mut places: Vec<u32> = positions.iter().flat_map(|&at| [at as u32, recent(at), table, table]).collect();
        places.extend(&layout.words[layout.tokens.len() * TOKEN..]);
        let w = CacheWriteParams {
            n_tokens: positions.len() as u32,
            kv_heads: p.kv_heads,
            head_dim: p.head_dim,
            page_first: p.page_first,
            page_len: p.page_len,
            ring: (p.scope == SCOPE_OWN).into(),
            table: 0,
        };
        let (k, v) = (fills.0.make(positions.len() * kv_heads * hd), fills.1.make(positions.len() * kv_heads * hd));
        cache::cache_write_k(kt, &w, Places::new(&places), &k, &v, &mut keys);
        cache::cache_write_v(vt, &w, Places::new(&places), &v, &mut values);
        token += n;
    }
    (keys, values)
}

pub(super) fn attention(kt: CacheType, vt: CacheType) -> Vec<Case> {
    let mut list = Vec::new();
    let heads = [(4, 2, 64), (4, 1, 128), (3, 3, 32), (2, 1, 256), (6, 2, 64), (2, 2, 96)];
    for (i, (heads, kv_heads, hd)) in heads.into_iter().enumerate().chain([(4, (3, 1, 576))]) {
        let shape = &SHAPES[i];
        if kt.words(hd).is_none() || vt.words(hd).is_none() {
            continue;
        }
        for &(scope, window, _) in SCOPES.iter().filter(|s| s.2.contains(&i)) {
            if scope == SCOPE_OWN && vt.rotation(hd) > 0 {
                continue;
            }
            let layout = Layout::new(shape, window, &mut Rng(i as u64));
            for (first, page, ring) in pages(shape, layout.ring).filter(|p| p.2 == (scope == SCOPE_OWN)) {
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
                    window: window as u32,
                    table: i as u32 % 2,
                    softcap: 0.0,
                    inv_softcap: 0.0,
                    sinks: 0,
                };
                let name = format!(
                    "head_dim={hd} heads={heads}/{kv_heads} {} window={window} {}, page {first}, ring {ring}",
                    ["all", "older", "own"][scope as usize],
                    title(shape)
                );
                list.push(one((kt, vt), name, &layout, p, shape));
            }
        }
    }
    list.extend(whole(kt, vt, None));
    // how far a token sees is no matter of types
    let sides: &[u32] = match (kt, vt) {
        (CacheType::F32, CacheType::F32) => &[40, 0, 100],
        _ if kt == vt => &[40],
        _ => &[],
    };
    list.extend(sides.iter().flat_map(|side| whole(kt, vt, Some(*side))));
    list
}

/// Whole texts: in the places that attention is given every token is at the last position of its text, or of what it sees of it
/// on either side.
fn whole(kt: CacheType, vt: CacheType, side: Option<u32>) -> Vec<Case> {
    let (heads, kv_heads, hd) = if side.is_none() { (3, 3, 32) } else { (4, 2, 64) };
    let mut layout = Layout::new(&WHOLE, 0, &mut Rng(7));
    let lasts: Vec<u32> = WHOLE.0.iter().flat_map(|&(_, n)| vec![n as u32 - 1; n]).collect();
    match side {
        None => places::see_all(lasts.len(), &mut layout.words, |t| lasts[t]),
        Some(side) => places::see_span(lasts.len(), &mut layout.words, side, |t| lasts[t]),
    }
    let pages = pages(&WHOLE, layout.ring).filter(|p| !p.2);
    let each = pages.map(|(first, page, _)| {
        let p = AttentionParams {
            n_tokens: 0,
            chunk0: 0,
            chunks: 0,
            heads,
            kv_heads,
            head_dim: hd,
            page_first: first as u32,
            page_len: page as u32,
            scale: (1.0 / f64::from(hd).sqrt()) as f32,
            scope: SCOPE_ALL,
            window: side.map_or(0, |_| SPAN),
            table: 0,
            softcap: 0.0,
            inv_softcap: 0.0,
            sinks: 0,
        };
        let seen = side.map_or(String::new(), |side| format!(" {side} on either side"));
        let name = format!("head_dim={hd} heads={heads}/{kv_heads} whole texts{seen} {}, page {first}", title(&WHOLE));
        one((kt, vt), name, &layout, p, &WHOLE)
    });
    each.collect()
}

/// One page of one of them.
fn one(types: (CacheType, CacheType), name: String, layout: &Layout, p: AttentionParams, shape: &Shape) -> Case {
    let (n, heads, hd) = (layout.tokens.len(), p.heads as usize, p.head_dim as usize);
    let (keys, values) = fill(types, layout, &p, shape, (Fill::Prime, Fill::Random(hd as u64)));
    let state = states(n as u64, n * heads, hd);
    let (mut carried, mut out) = (Vec::new(), Vec::new());
    let (places, page): (_, Page) = (layout.places(), p.page());
    for row in 0..n * heads {
        let token = row / heads;
        let (seen, position) = (p.sees(&places, token), places.position(token));
        let mut chunks = (seen.start / CHUNK..seen.end.div_ceil(CHUNK)).filter(|_| !seen.is_empty());
        if p.scope != SCOPE_OLDER && page.own(&places, token).is_some() {
            out.push(row * hd..(row + 1) * hd);
        } else if chunks.any(|c| page.index(&places, token, c).is_some()) {
            assert!(p.scope != SCOPE_OWN, "a token at {position} has its own chunk in the ring");
            carried.push(row * (hd + 2)..(row + 1) * (hd + 2));
        }
    }
    let buffers = vec![
        read("q", bits(&Fill::Prime.make(n * heads * hd))),
        read("k", keys),
        read("v", values),
        read("places", layout.words.clone()),
        replaced("carried", bits(&state), carried),
        written("out", n * heads * hd, out),
    ];
    case(name, Op::Attention(types.0, types.1), Args::Attention(p), layout.step.clone(), buffers)
}
