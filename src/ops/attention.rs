//! Causal attention over one page of the cache, in chunks of 64 positions (`docs/exactness.md` section 6).

pub use crate::ops::cache::HEAD_MAX;
use crate::ops::cache::{CacheType, POISONED, element, tq3_block};
use crate::ops::exact::{
    POISON, SCALE_MIN, amax, canon, f16_to_f32, fdiv, fexp, greater, i2f, not_finite, round_away, sticky, tree_sum,
};
use crate::ops::params::{At, Params, params};
pub use crate::ops::places::CHUNK;
use crate::ops::places::{Page, Places, Touches};
use crate::ops::softcap;
use crate::ops::tq3;
use std::ops::Range;

/// `scope`: a query sees every position up to its own.
pub const SCOPE_ALL: u32 = 0;
/// `scope`: a query sees the chunks before its own; what it has gathered stays in the state.
pub const SCOPE_OLDER: u32 = 1;
/// `scope`: a query sees its own chunk, in a ring of `page_len` positions, and joins it to what the state holds.
pub const SCOPE_OWN: u32 = 2;

/// `window`: a query sees the positions from the one that its token's second word of places says.
pub const SPAN: u32 = u32::MAX;

/// Heads that a workgroup of the shader has: neighbours that make 128 outputs, four at most, at least one.
pub fn unit_heads(head_dim: u32) -> u32 {
    (128 / head_dim).clamp(1, 4)
}

params! {
    /// Parameters of `attention`.
    pub struct AttentionParams {
        /// query rows
        pub n_tokens: u32,
        /// the first of their sequences' chunks that any of them sees
        pub chunk0: u32,
        /// how many there are from it on
        pub chunks: u32,
        /// query heads
        pub heads: u32,
        /// key-value heads; `heads / kv_heads` query heads share one
        pub kv_heads: u32,
        /// elements in a head, at most [`HEAD_MAX`]
        pub head_dim: u32,
        /// first position of this page in the pool
        pub page_first: u32,
        /// positions in this page, a multiple of 64
        pub page_len: u32,
        /// f32(1 / sqrt(head_dim))
        pub scale: f32,
        /// which positions a query sees: `SCOPE_ALL`, `SCOPE_OLDER` or `SCOPE_OWN` (whose values are of a type that does not
        /// rotate, and whose page is the ring, `page_first` 0)
        pub scope: u32,
        /// how many positions a query sees at most, the last being its own; 0: no limit. Counted as transformers does
        /// (`kv_idx > q_idx - sliding_window`) and llama.cpp (masked where `p1 - p0 >= n_swa`). [`SPAN`]: where it begins is
        /// said for each token (`places::see_span`), `scope` being `SCOPE_ALL`
        pub window: u32,
        /// which table of its sequence says where chunks lie; a sequence's chunks lie in pages in order, so that what one page
        /// leaves is what comes before the next
        pub table: u32,
        /// cap of scores: s becomes cap · tanh(s / cap), before the maximum; 0: none
        pub softcap: f32,
        /// f32(1 / softcap), or 0
        pub inv_softcap: f32,
        /// 1: the first page that a query sees something of goes on from the state as well, in which `attention_sinks` has left
        /// the query heads' sinks; 0: it starts from the first chunk
        pub sinks: u32,
    }
}

impl Params for AttentionParams {
    /// the state carried from page to page, and the result
    const OUTPUTS: usize = 2;

    fn at(self, step: &At) -> Option<Self> {
        let (chunk0, chunks) = self.meets(step)?;
        Some(Self { n_tokens: step.n, chunk0, chunks, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.heads.div_ceil(unit_heads(self.head_dim)), self.n_tokens]
    }

    fn replaces(&self, output: usize) -> bool {
        // the result, of which the page that holds a row's position writes all; not the carried state
        output == 1
    }
}

/// What is done with what a query has gathered after a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaves {
    /// the output is complete
    Output,
    /// the state, for the next page
    State,
    /// the state, rotated back: no page with older chunks follows
    Unrotated,
}

impl AttentionParams {
    /// The first position that a token's query sees, of whatever page.
    pub fn reach(&self, places: &Places, token: usize) -> usize {
        match self.window {
            SPAN => places.first_seen(token),
            _ => self.reach_of(places.position(token)),
        }
    }

    /// The same for the query at position `query`, where that says it; 0 where it does not.
    pub fn reach_of(&self, query: usize) -> usize {
        if matches!(self.window, 0 | SPAN) { 0 } else { (query + 1).saturating_sub(self.window as usize) }
    }

    /// The positions that a token's query sees, of whatever page; a part of one chunk for `SCOPE_OWN`, and whole chunks but for
    /// the first, which a window may cut, and the last.
    pub fn sees(&self, places: &Places, token: usize) -> Range<usize> {
        self.sees_from(self.reach(places, token), places.position(token))
    }

    /// The same for the query at position `query`, which sees none before `reach`.
    pub fn sees_from(&self, reach: usize, query: usize) -> Range<usize> {
        let own = query / CHUNK * CHUNK;
        let (from, to) = match self.scope {
            SCOPE_OWN => (reach.max(own), query + 1),
            SCOPE_OLDER => (reach, own),
            _ => (reach, query + 1),
        };
        from.min(to)..to
    }

    /// The page that is read.
    pub fn page(&self) -> Page {
        Page { first: self.page_first, len: self.page_len, ring: self.scope == SCOPE_OWN, table: self.table }
    }

    /// The chunks that a step's queries see, the first and how many, as far as they may lie in this page; `None` where
    /// none of them does.
    fn meets(&self, step: &At) -> Option<(u32, u32)> {
        let first = self.reach_of(step.pos as usize) / CHUNK;
        let last = step.end as usize - 1;
        let (first, end) = match (self.scope, step.touches) {
            (SCOPE_OWN, _) => return Some((0, 1)),
            (_, Some(touches)) => {
                let met = Touches::meets(touches[self.table as usize].read, self.page_first, self.page_len);
                let end = if self.scope == SCOPE_OLDER { last / CHUNK } else { last / CHUNK + 1 };
                (first, if met { end } else { 0 })
            }
            (scope, None) => {
                let (start, end) = (self.page_first as usize, (self.page_first + self.page_len) as usize);
                let last = if scope == SCOPE_OLDER { last / CHUNK } else { last / CHUNK + 1 };
                (first.max(start / CHUNK), last.min(end / CHUNK))
            }
        };
        (first < end).then_some((first as u32, end.saturating_sub(first) as u32))
    }

    /// What becomes of a token's queries, which see something of this page.
    pub fn leaves(&self, places: &Places, token: usize) -> Leaves {
        let own = places.position(token) / CHUNK;
        let here = |chunk| self.page().index(places, token, chunk).is_some();
        match self.scope {
            SCOPE_OWN => Leaves::Output,
            SCOPE_OLDER if here(own - 1) => Leaves::Unrotated,
            SCOPE_ALL if here(own) => Leaves::Output,
            _ => Leaves::State,
        }
    }
}

/// `q`: `[token][heads][head_dim]`; `k`, `v`: one page of the cache; `places`: where tokens and chunks lie; `state`:
/// `[token][heads][m, l, o[head_dim]]`, carried from page to page; `out`: `[token][heads][head_dim]`, written by the page
/// that holds the query's position (`SCOPE_OLDER` never writes it).
pub fn attention(
    types: (CacheType, CacheType),
    p: &AttentionParams,
    q: &[f32],
    k: &[u32],
    v: &[u32],
    places: Places,
    state: &mut [f32],
    out: &mut [f32],
) {
    let (heads, hd) = (p.heads as usize, p.head_dim as usize);
    for row in 0..p.n_tokens as usize * heads {
        let carried =
            if state.len() >= (row + 1) * (hd + 2) { &mut state[row * (hd + 2)..][..hd + 2] } else { &mut [] };
        head(types, p, row, &q[row * hd..][..hd], k, v, places, carried, &mut out[row * hd..][..hd]);
    }
}

/// One query head; `row` = token * heads + head. `state` may be empty when the whole context is one page and there are no sinks.
pub fn head(
    (kt, vt): (CacheType, CacheType),
    p: &AttentionParams,
    row: usize,
    q: &[f32],
    k: &[u32],
    v: &[u32],
    places: Places,
    state: &mut [f32],
    out: &mut [f32],
) {
    let hd = p.head_dim as usize;
    let page = p.page_len as usize;
    let kv_head = row % p.heads as usize / (p.heads / p.kv_heads) as usize;
    let token = row / p.heads as usize;
    let seen = p.sees(&places, token);
    let here = |chunk: usize| p.page().index(&places, token, chunk / CHUNK);
    let chunks = (seen.start / CHUNK * CHUNK..seen.end).step_by(CHUNK);
    // the first of them that lies in this page
    let Some(first) = chunks.clone().find(|&chunk| here(chunk).is_some()) else { return };
    let mut rotated = [0f32; HEAD_MAX];
    rotated[..hd].copy_from_slice(q);
    let q = &mut rotated[..hd];
    kt.rotate(q);
    let q = &*q;
    let digits = QueryDigits::new(q);
    let (mut m, mut l, mut o) = (0f32, 0f32, [0f32; HEAD_MAX]);
    // whether it is the first that the query sees at all
    let mut fresh = first <= p.reach(&places, token) && p.sinks == 0;
    if !fresh {
        (m, l) = (state[0], state[1]);
        o[..hd].copy_from_slice(&state[2..]);
    }
    let kwords = kt.words(hd).expect("checked by the model");
    let vwords = vt.words(hd).expect("checked by the model");
    for chunk in chunks {
        let Some(start) = here(chunk) else { continue };
        // the positions of the chunk that the query sees
        let live = seen.start.saturating_sub(chunk)..CHUNK.min(seen.end - chunk);
        let mut s = [0f32; CHUNK];
        let mut mc = f32::MIN;
        for i in live.clone() {
            let at = start + i;
            let base = ((kv_head * page / 32 + at / 32) * kwords) * 32 + at % 32;
            s[i] = if k[base] == POISONED { POISON } else { canon(score(kt, p, q, &digits, |w| k[base + w * 32])) };
            if p.softcap != 0.0 {
                s[i] = softcap::element(s[i], p.softcap, p.inv_softcap);
            }
            mc = greater(mc, s[i]);
        }
        let mut probs = [0f32; CHUNK];
        for i in live.clone() {
            probs[i] = canon(fexp(s[i] - mc));
        }
        let mut oc = [0f32; HEAD_MAX];
        for i in live {
            let base = (kv_head * page + start + i) * vwords;
            for e in 0..hd {
                oc[e] += probs[i] * element(vt, hd / 32, |w| v[base + w], e);
            }
        }
        let lc = tree_sum(&mut probs);
        if fresh {
            (m, l, o) = (mc, lc, oc);
            fresh = false;
        } else {
            let new = greater(m, mc);
            let (a, b) = (canon(fexp(m - new)), canon(fexp(mc - new)));
            l = l * a + lc * b;
            for e in 0..hd {
                // a may be 2^-50: without canon the products would become subnormal after some joins
                o[e] = canon(o[e] * a) + canon(oc[e] * b);
            }
            m = new;
        }
    }
    let leaves = p.leaves(&places, token);
    if leaves == Leaves::Output {
        // one rotation back per output, whatever the number of positions
        let inv = fdiv(1.0, l);
        for e in 0..hd {
            o[e] = canon(o[e] * inv);
        }
        vt.unrotate(&mut o[..hd]);
        for e in 0..hd {
            out[e] = canon(o[e]);
        }
    } else {
        if leaves == Leaves::Unrotated {
            vt.unrotate(&mut o[..hd]);
            o[..hd].iter_mut().for_each(|o| *o = canon(*o));
        }
        (state[0], state[1]) = (m, sticky(l));
        for (state, o) in state[2..].iter_mut().zip(&o[..hd]) {
            *state = sticky(*o);
        }
    }
}

/// A query head as two int8 digits: x is about d · (128 · high + low).
pub struct QueryDigits {
    /// the scale, 0 for a zero query, `POISON` for one that is not finite
    pub d: f32,
    /// high digits, -127..=127
    pub high: [i32; HEAD_MAX],
    /// low digits, -64..=63
    pub low: [i32; HEAD_MAX],
}

impl QueryDigits {
    /// Quantises up to [`HEAD_MAX`] elements with one scale.
    pub fn new(q: &[f32]) -> QueryDigits {
        let mut r = QueryDigits { d: 0.0, high: [0; HEAD_MAX], low: [0; HEAD_MAX] };
        let d = fdiv(amax(q), 16256.0);
        if d < SCALE_MIN {
            return r;
        }
        r.d = d;
        if not_finite(d) {
            return r;
        }
        let inv = fdiv(1.0, d);
        for (e, v) in q.iter().enumerate() {
            let c = round_away(v * inv).clamp(-16256, 16256);
            r.high[e] = (c + 64) >> 7;
            r.low[e] = c - 128 * r.high[e];
        }
        r
    }
}

/// The score of one position; `word(i)` are the words of its key.
fn score(t: CacheType, p: &AttentionParams, q: &[f32], digits: &QueryDigits, word: impl Fn(usize) -> u32) -> f32 {
    let nb = q.len() / 32;
    let mut acc = 0f32;
    match t {
        CacheType::F32 | CacheType::F16 => {
            for e in 0..q.len() {
                acc += q[e] * element(t, nb, &word, e);
            }
            acc * p.scale
        }
        _ => {
            for b in 0..nb {
                if let CacheType::TQ3_0 | CacheType::TQ3_1 = t {
                    let block = tq3_block(nb, &word, b);
                    acc += f16_to_f32(block.gamma) * tq3_sum(t, &block, digits, 32 * b);
                    continue;
                }
                let (mut high, mut low) = (0i32, 0i32);
                for e in 32 * b..32 * b + 32 {
                    let code = code(t, nb, &word, e);
                    high += digits.high[e] * code;
                    low += digits.low[e] * code;
                }
                let d = f16_to_f32((word(b / 2) >> (16 * (b % 2))) as u16);
                acc += d * (i2f(high) * 128.0 + i2f(low));
            }
            acc * (digits.d * p.scale)
        }
    }
}

/// The sum over one tq3 block of level times query, in units of gamma and of the query's scale.
fn tq3_sum(t: CacheType, block: &tq3::Block, digits: &QueryDigits, first: usize) -> f32 {
    let (mut high, mut low) = ([0i32; 2], [0i32; 2]);
    for j in 0..32 {
        // tq3_0 keeps the sums of its two levels apart; tq3_1's levels are integers
        let (at, level) = match (t, block.low2(j)) {
            (CacheType::TQ3_0, 0) => (1, -1),
            (CacheType::TQ3_0, 1) => (0, -1),
            (CacheType::TQ3_0, 2) => (0, 1),
            (CacheType::TQ3_0, _) => (1, 1),
            _ => (0, tq3::tq3_1_level(block.code3(j))),
        };
        high[at] += level * digits.high[first + j];
        low[at] += level * digits.low[first + j];
    }
    let value = |at: usize| i2f(high[at]) * 128.0 + i2f(low[at]);
    if t == CacheType::TQ3_1 {
        return value(0);
    }
    tq3::TQ3_0_INNER * value(0) + tq3::TQ3_0_OUTER * value(1)
}

/// The integer code of element `e` of a q8_0 or q4_0 row.
fn code(t: CacheType, nb: usize, word: impl Fn(usize) -> u32, e: usize) -> i32 {
    if t.plain() == CacheType::Q8_0 {
        i32::from((word(nb.div_ceil(2) + e / 4) >> (8 * (e % 4))) as u8 as i8)
    } else {
        let (b, l) = (e / 32, e % 32);
        (word(nb.div_ceil(2) + 4 * b + l % 16 / 4) >> (8 * (l % 4) + 4 * (l / 16)) & 15) as i32 - 8
    }
}
