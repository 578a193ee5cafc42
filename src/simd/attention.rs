//! Attention per instruction set, bit-equal to `ops::attention` (`docs/exactness.md` section 6) at every level, tiling
//! and thread count.
//!
//! Scores: a lane is a position, since keys lie 32 positions side by side. Values: a lane is an element of the head. So
//! no sum is taken across lanes but the two the page defines as trees, and every float operation is the twin's. A tile of
//! `T` query rows that share a key-value head reads and decodes each key and value once; a row that does not see a
//! position gives it the weight +0, which leaves sums that start at +0 as they are (a cache holding finite values only).
//!
//! Everything is forced inline, so that it is compiled with the instructions of the level that calls it. For the same
//! reason there are no closures in the kernels.

#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128")),
    allow(unused, reason = "the one level there is has no blocks")
)]
mod block;
mod keys;
pub(super) mod rotate;
mod values;

use super::Level;
use super::elementwise::{capped, fexp, tree_sum};
use super::kernels::greatest;
use super::lanes::{Lanes, Word};
use super::portable::Portable;
use super::rows::RowLanes;
use super::team;
use crate::ops::attention::{AttentionParams, CHUNK, HEAD_MAX, Leaves};
use crate::ops::cache::{CacheType, POISONED};
use crate::ops::exact::{POISON, canon, fdiv, flush, greater, ordered, sticky};
use crate::ops::places::Places;
use keys::{Digits, LINE, Next, coded_scores, float_scores};
use values::{Rows, weigh};

#[cfg(target_arch = "aarch64")]
use super::neon::Neon;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use super::wasm::Simd128;
#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512};

/// Elements in a block of every type that has blocks, and positions side by side in the keys.
const BLOCK: usize = 32;

/// Query rows of a tile at most; half of it where registers are few.
const TILE: usize = 8;

/// Scores of a chunk, by halves.
type Scores = [[f32; BLOCK]; CHUNK / BLOCK];

/// Blocks of usual heads at most, which have arrays of their own: they are made and copied for every tile.
const USUAL: usize = 8;

/// Blocks of the largest head.
const LARGE: usize = HEAD_MAX / BLOCK;

/// The elements of a head of `B` blocks at most, as much of them as it has.
type Head<const B: usize> = [[f32; BLOCK]; B];

// ---------------------------------------------------------------- tiles

/// One query row of a command.
struct Row<'a> {
    /// token * heads + head
    row: usize,
    q: &'a [f32],
    state: &'a mut [f32],
    out: &'a mut [f32],
}

/// m, l and o of one row, and how far it sees.
#[derive(Clone, Copy)]
struct Carried<const B: usize> {
    m: f32,
    l: f32,
    o: Head<B>,
    /// positions the row sees, from and to, of whatever page
    from: usize,
    to: usize,
    fresh: bool,
    /// whether any chunk of this page was joined
    joined: bool,
}

impl<const B: usize> Carried<B> {
    const NONE: Self = Carried { m: 0.0, l: 0.0, o: [[0.0; BLOCK]; B], from: 0, to: 0, fresh: false, joined: false };

    /// What a row brings to this page, in the place of [`Carried::NONE`].
    #[inline(always)]
    fn start(&mut self, page: &Page, row: &Row, hd: usize) {
        let (p, token) = (page.p, row.row / page.p.heads as usize);
        let sees = p.sees(&page.places, token);
        (self.from, self.to) = (sees.start, sees.end);
        if sees.is_empty() {
            return;
        }
        // whether the first chunk that the row sees at all is in this page; what is brought to a page that has none of them
        // is not used
        let first = sees.start / CHUNK;
        let begins = first * CHUNK <= p.reach(&page.places, token) && p.sinks == 0;
        self.fresh = begins && p.page().index(&page.places, token, first).is_some();
        if !self.fresh && row.state.len() >= hd + 2 {
            let state = &row.state[..hd + 2];
            (self.m, self.l) = (state[0], state[1]);
            self.o.as_flattened_mut()[..hd].copy_from_slice(&state[2..]);
        }
    }

    /// The positions of the chunk that the row sees, counted from the chunk's first.
    #[inline(always)]
    fn within(&self, chunk: usize) -> (usize, usize) {
        (self.from.saturating_sub(chunk).min(CHUNK), self.to.saturating_sub(chunk).min(CHUNK))
    }
}

/// What all rows of a command share.
#[derive(Clone, Copy)]
struct Page<'a> {
    types: (CacheType, CacheType),
    p: &'a AttentionParams,
    k: &'a [u32],
    v: &'a [u32],
    places: Places<'a>,
}

impl Page<'_> {
    /// Index in the page of the chunk of the rows' sequence that begins at position `chunk`, where the page has it.
    #[inline(always)]
    fn index(&self, rows: &[Row], chunk: usize) -> Option<usize> {
        let page = self.p.page();
        for row in rows {
            let token = row.row / self.p.heads as usize;
            // the ring has the own chunks of its tokens alone
            if !page.ring || self.places.position(token) / CHUNK == chunk / CHUNK {
                return page.index(&self.places, token, chunk / CHUNK);
            }
        }
        None
    }

    /// The words of a head's keys and values in the chunk after `chunk`; none where that is not in the page, or does not begin
    /// before position `to`. `keys` and `values`: of the head, with the words of a row of each.
    #[inline(always)]
    fn after<'a>(
        &self,
        rows: &[Row],
        chunk: usize,
        to: usize,
        (keys, kwords): (&'a [Word], usize),
        (values, vwords): (&'a [u32], usize),
    ) -> (&'a [u32], &'a [u32]) {
        if chunk + CHUNK >= to {
            return (&[], &[]);
        }
        match self.index(rows, chunk + CHUNK) {
            Some(at) => {
                (keys[at / BLOCK * kwords..][..2 * kwords].as_flattened(), &values[at * vwords..][..CHUNK * vwords])
            }
            None => (&[], &[]),
        }
    }
}

/// `T` rows of one sequence that share a key-value head. `U`: vectors of positions at a time, `W`: of elements; as many as
/// leave the sums in registers. `B`: blocks of a head at most.
#[inline(always)]
fn tile<V: RowLanes, const T: usize, const U: usize, const W: usize, const B: usize>(
    v: V,
    page: Page,
    rows: &mut [Row; T],
) {
    let Page { types: (kt, vt), p, k, v: values, .. } = page;
    let hd = p.head_dim as usize;
    let positions = p.page_len as usize;
    let kv_head = rows[0].row % p.heads as usize / (p.heads / p.kv_heads) as usize;
    let (kwords, vwords) = (words(kt, hd), words(vt, hd));
    let (keys, _) = k[kv_head * positions * kwords..][..positions * kwords].as_chunks::<BLOCK>();
    let values = &values[kv_head * positions * vwords..][..positions * vwords];

    let mut q: [&[f32]; T] = [&[]; T];
    let mut digits = [Digits::<B>::ZERO; T];
    let mut scale = [p.scale; T];
    let mut carried = [Carried::<B>::NONE; T];
    // the positions that any row sees; of each, some row does, since tokens of a tile are neighbours
    let (mut from, mut to) = (usize::MAX, 0);
    for t in 0..T {
        q[t] = rows[t].q;
        let c = &mut carried[t];
        c.start(&page, &rows[t], hd);
        if c.from >= c.to {
            continue;
        }
        (from, to) = (from.min(c.from), to.max(c.to));
        if !is_float(kt) {
            digits[t] = digits_of(v, kt, rows[t].q);
            scale[t] = digits[t].d * p.scale;
        }
    }

    // made once: every chunk writes what it reads of them
    let mut s = [[[0f32; BLOCK]; CHUNK / BLOCK]; T];
    let mut probs = [[0f32; CHUNK]; T];
    let mut oc: [Head<B>; T] = [[[0.0; BLOCK]; B]; T];
    let mut scales = [[0f32; B]; CHUNK];
    for chunk in (from / CHUNK * CHUNK..to).step_by(CHUNK) {
        let Some(start) = page.index(rows, chunk) else { continue };
        let next = page.after(rows, chunk, to, (keys, kwords), (values, vwords));
        let (_, keys) = keys.split_at(start / BLOCK * kwords);
        let keys = [&keys[..kwords], &keys[kwords..][..kwords]];
        let (beside_keys, next_keys) = Next::new::<V>(kt, keys[0].as_flattened(), next.0);
        let (beside_values, next_values) = Next::new::<V>(vt, &values[start * vwords..], next.1);
        ask(v, next_keys, 0, 2);
        match kt {
            CacheType::F32 => float_scores::<V, false, T, U>(v, keys, q, beside_keys, &mut s),
            CacheType::F16 => float_scores::<V, true, T, U>(v, keys, q, beside_keys, &mut s),
            CacheType::Q8_0 | CacheType::Q8_0R | CacheType::C8 => {
                coded_scores::<V, keys::Q8_0, T, B>(v, keys, hd / BLOCK, &digits, &mut s)
            }
            CacheType::Q4_0 | CacheType::Q4_0R => {
                coded_scores::<V, keys::Q4_0, T, B>(v, keys, hd / BLOCK, &digits, &mut s)
            }
            CacheType::TQ3_0 => coded_scores::<V, keys::Tq3_0, T, B>(v, keys, hd / BLOCK, &digits, &mut s),
            CacheType::TQ3_1 => coded_scores::<V, keys::Tq3_1, T, B>(v, keys, hd / BLOCK, &digits, &mut s),
        }
        ask(v, next_keys, 1, 2);
        let mut poisoned = [0u32; CHUNK];
        for half in 0..CHUNK / BLOCK {
            for l in 0..BLOCK {
                poisoned[half * BLOCK + l] = (keys[half][0][l] == POISONED) as u32;
            }
        }
        let (mut mc, mut live) = ([0f32; T], [(0, 0); T]);
        for t in 0..T {
            live[t] = carried[t].within(chunk);
            let scale = cap_scores(p, s[t].as_flattened_mut(), scale[t]);
            mc[t] = probabilities(s[t].as_flattened(), scale, &poisoned, live[t], &mut probs[t]);
        }
        ask(v, next_values, 0, 2);
        let first = from.saturating_sub(chunk);
        let words = &values[(start + first) * vwords..(start + (to - chunk).min(CHUNK)) * vwords];
        let rows = Rows { words, stride: vwords, head_dim: hd, first };
        match vt {
            CacheType::F32 => weigh::<V, values::F32, T, W, B>(v, &rows, &probs, &mut scales, beside_values, &mut oc),
            CacheType::F16 => weigh::<V, values::F16, T, W, B>(v, &rows, &probs, &mut scales, beside_values, &mut oc),
            CacheType::Q8_0 | CacheType::Q8_0R | CacheType::C8 => {
                weigh::<V, values::Q8_0, T, W, B>(v, &rows, &probs, &mut scales, beside_values, &mut oc)
            }
            CacheType::Q4_0 | CacheType::Q4_0R => {
                weigh::<V, values::Q4_0, T, W, B>(v, &rows, &probs, &mut scales, beside_values, &mut oc)
            }
            CacheType::TQ3_0 => {
                weigh::<V, values::Tq3<false>, T, W, B>(v, &rows, &probs, &mut scales, beside_values, &mut oc)
            }
            CacheType::TQ3_1 => {
                weigh::<V, values::Tq3<true>, T, W, B>(v, &rows, &probs, &mut scales, beside_values, &mut oc)
            }
        }
        ask(v, next_values, 1, 2);
        for t in 0..T {
            if live[t].0 < live[t].1 {
                join(&mut carried[t], mc[t], &mut probs[t], &oc[t], hd);
            }
        }
    }

    for t in 0..T {
        finish(v, &page, &carried[t], &mut rows[t]);
    }
}

/// What keys of codes of type `kt` are multiplied with, of the query `q`.
#[inline(always)]
fn digits_of<V: RowLanes, const B: usize>(v: V, kt: CacheType, q: &[f32]) -> Digits<B> {
    let mut rotated: Head<B> = [[0.0; BLOCK]; B];
    let to = &mut rotated.as_flattened_mut()[..q.len()];
    to.copy_from_slice(q);
    rotate::rotate(v, kt, to);
    match kt {
        CacheType::TQ3_0 | CacheType::TQ3_1 => Digits::new::<V, keys::Tq3_1>(to),
        _ => Digits::new::<V, keys::Q8_0>(to),
    }
}

/// Asks for part `i` of `n` of the words of the next chunk, into the second-level cache. Of a long text a chunk lies far away when
/// its turn comes, and where a page of memory begins a CPU guesses nothing by itself.
#[inline(always)]
fn ask<V: Lanes>(v: V, words: &[u32], i: usize, n: usize) {
    for line in words[words.len() * i / n..words.len() * (i + 1) / n].chunks(LINE) {
        v.prefetch_far(line.as_ptr().cast());
    }
}

/// Leaves what a row has come to: its output, or what it carries to the next page.
#[inline(always)]
fn finish<V: RowLanes, const B: usize>(v: V, page: &Page, c: &Carried<B>, row: &mut Row) {
    let (p, vt, hd) = (page.p, page.types.1, page.p.head_dim as usize);
    let Row { row, state, out, .. } = row;
    if !c.joined {
        return;
    }
    let o = &c.o.as_flattened()[..hd];
    let leaves = p.leaves(&page.places, *row / p.heads as usize);
    if leaves == Leaves::Output {
        let inv = fdiv(1.0, c.l);
        for (out, o) in out.iter_mut().zip(o) {
            *out = canon(o * inv);
        }
        rotate::unrotate(v, vt, out);
        for out in out.iter_mut() {
            *out = canon(*out);
        }
        return;
    }
    (state[0], state[1]) = (c.m, sticky(c.l));
    let state = &mut state[2..hd + 2];
    for (state, o) in state.iter_mut().zip(o) {
        *state = sticky(*o);
    }
    if leaves == Leaves::Unrotated {
        rotate::unrotate(v, vt, state);
        for o in state.iter_mut() {
            *o = canon(*o);
        }
    }
}

/// Whether keys are multiplied, and values weighed, as they lie.
fn is_float(t: CacheType) -> bool {
    matches!(t, CacheType::F32 | CacheType::F16)
}

/// Words of a cached row.
fn words(t: CacheType, head_dim: usize) -> usize {
    t.words(head_dim).unwrap_or_else(|| panic!("attention: {} cannot hold a head of {head_dim}", t.name()))
}

/// Where scores have a cap, makes of sums of products what they come to by it. What is left to multiply them with.
#[inline(always)]
fn cap_scores(p: &AttentionParams, s: &mut [f32], scale: f32) -> f32 {
    if p.softcap == 0.0 {
        return scale;
    }
    for s in s {
        *s = capped(canon(*s * scale), p.softcap, p.inv_softcap);
    }
    1.0
}

/// The chunk's maximum, and p of its 64 positions, of which those from `from` to `to` count; `s` is not scaled yet. The
/// keys of some are `poisoned`.
#[inline(always)]
fn probabilities(
    s: &[f32],
    scale: f32,
    poisoned: &[u32; CHUNK],
    (from, to): (usize, usize),
    p: &mut [f32; CHUNK],
) -> f32 {
    let (mut scaled, mut most) = ([0f32; CHUNK], [0i32; CHUNK]);
    for i in 0..CHUNK {
        let x = if poisoned[i] != 0 { POISON } else { canon(s[i] * scale) };
        scaled[i] = if i >= from && i < to { x } else { f32::MIN };
        most[i] = ordered(scaled[i].to_bits() as i32);
    }
    let mc = f32::from_bits(ordered(greatest(&mut most)) as u32);
    // a poisoned score is the maximum
    let bad = mc.to_bits() == POISON.to_bits();
    for i in 0..CHUNK {
        // of numbers at most as large as the maximum: from 0 to 1
        let x = flush(fexp(scaled[i] - mc));
        let x = if bad { POISON } else { x };
        p[i] = if i >= from && i < to { x } else { 0.0 };
    }
    mc
}

/// Joins a chunk's (m, l, o) to those of the chunks before it.
#[inline(always)]
fn join<const B: usize>(c: &mut Carried<B>, mc: f32, probs: &mut [f32; CHUNK], oc: &Head<B>, hd: usize) {
    let lc = tree_sum(probs);
    let blocks = hd.div_ceil(BLOCK);
    c.joined = true;
    if c.fresh {
        (c.m, c.l, c.fresh) = (mc, lc, false);
        c.o[..blocks].copy_from_slice(&oc[..blocks]);
        return;
    }
    let m = greater(c.m, mc);
    let bad = m.to_bits() == POISON.to_bits();
    let (a, b) = (flush(fexp(c.m - m)), flush(fexp(mc - m)));
    let (a, b) = if bad { (POISON, POISON) } else { (a, b) };
    c.l = c.l * a + lc * b;
    for (o, oc) in c.o[..blocks].iter_mut().zip(oc) {
        for l in 0..BLOCK {
            o[l] = canon(o[l] * a) + canon(oc[l] * b);
        }
    }
    c.m = m;
}

// ---------------------------------------------------------------- levels

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn tile_avx2<const T: usize, const U: usize, const W: usize, const B: usize>(page: Page, rows: &mut [Row; T]) {
    // SAFETY: this function's own target features.
    let v = unsafe { Avx2::new() };
    tile::<_, T, U, W, B>(v, page, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tile_avx512<const T: usize, const U: usize, const W: usize, const B: usize>(page: Page, rows: &mut [Row; T]) {
    // SAFETY: this function's own target features.
    let v = unsafe { Avx512::new() };
    tile::<_, T, U, W, B>(v, page, rows);
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn tile_neon<const T: usize, const U: usize, const W: usize, const B: usize>(page: Page, rows: &mut [Row; T]) {
    // SAFETY: this function's own target features.
    let v = unsafe { Neon::<false>::new() };
    tile::<_, T, U, W, B>(v, page, rows);
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
fn tile_neon_dot<const T: usize, const U: usize, const W: usize, const B: usize>(page: Page, rows: &mut [Row; T]) {
    // SAFETY: this function's own target features.
    let v = unsafe { Neon::<true>::new() };
    tile::<_, T, U, W, B>(v, page, rows);
}

/// Any number of rows that share a key-value head, in tiles. The caller has checked the level.
fn run(level: Level, page: Page, rows: &mut [Row]) {
    if page.p.head_dim as usize > USUAL * BLOCK {
        return run_large(level, page, rows);
    }
    let rows = block::run(level, page, rows);
    #[cfg(target_arch = "x86_64")]
    let rows = {
        let wide = if level.vectors() == Level::Avx512 { rows.len() / TILE * TILE } else { 0 };
        let (eights, rest) = rows.split_at_mut(wide);
        for rows in eights.as_chunks_mut::<TILE>().0 {
            // SAFETY: the caller checked that the level is available.
            unsafe { tile_avx512::<8, 2, 2, USUAL>(page, rows) }
        }
        rest
    };
    let (fours, rest) = rows.as_chunks_mut::<4>();
    for rows in fours {
        match level.vectors() {
            Level::Portable => tile::<_, 4, 1, 1, USUAL>(Portable, page, rows),
            // SAFETY: the caller checked that the level is available.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => unsafe { tile_avx2::<4, 2, 2, USUAL>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { tile_avx512::<4, 4, 4, USUAL>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { tile_neon::<4, 4, 4, USUAL>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => unsafe { tile_neon_dot::<4, 4, 4, USUAL>(page, rows) },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => tile::<_, 4, 2, 2, USUAL>(Simd128, page, rows),
            _ => unreachable!("only available levels come here"),
        }
    }
    let (twos, rest) = rest.as_chunks_mut::<2>();
    for rows in twos {
        match level.vectors() {
            Level::Portable => tile::<_, 2, 1, 2, USUAL>(Portable, page, rows),
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => unsafe { tile_avx2::<2, 4, 4, USUAL>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { tile_avx512::<2, 4, 8, USUAL>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { tile_neon::<2, 8, 8, USUAL>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => unsafe { tile_neon_dot::<2, 8, 8, USUAL>(page, rows) },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => tile::<_, 2, 4, 4, USUAL>(Simd128, page, rows),
            _ => unreachable!("only available levels come here"),
        }
    }
    let (ones, _) = rest.as_chunks_mut::<1>();
    for rows in ones {
        match level.vectors() {
            Level::Portable => tile::<_, 1, 2, 4, USUAL>(Portable, page, rows),
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => unsafe { tile_avx2::<1, 8, 8, USUAL>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { tile_avx512::<1, 4, 8, USUAL>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { tile_neon::<1, 8, 8, USUAL>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => unsafe { tile_neon_dot::<1, 8, 8, USUAL>(page, rows) },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => tile::<_, 1, 8, 8, USUAL>(Simd128, page, rows),
            _ => unreachable!("only available levels come here"),
        }
    }
}

/// [`run`] of large heads, whose tiles are of two sizes.
fn run_large(level: Level, page: Page, rows: &mut [Row]) {
    let rows = block::run(level, page, rows);
    let (fours, rest) = rows.as_chunks_mut::<4>();
    for rows in fours {
        match level.vectors() {
            Level::Portable => tile::<_, 4, 1, 1, LARGE>(Portable, page, rows),
            // SAFETY: the caller checked that the level is available.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => unsafe { tile_avx2::<4, 2, 2, LARGE>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { tile_avx512::<4, 4, 4, LARGE>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { tile_neon::<4, 4, 4, LARGE>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => unsafe { tile_neon_dot::<4, 4, 4, LARGE>(page, rows) },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => tile::<_, 4, 2, 2, LARGE>(Simd128, page, rows),
            _ => unreachable!("only available levels come here"),
        }
    }
    for rows in rest.as_chunks_mut::<1>().0 {
        match level.vectors() {
            Level::Portable => tile::<_, 1, 2, 4, LARGE>(Portable, page, rows),
            // SAFETY: the caller checked that the level is available.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => unsafe { tile_avx2::<1, 8, 8, LARGE>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { tile_avx512::<1, 4, 8, LARGE>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { tile_neon::<1, 8, 8, LARGE>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => unsafe { tile_neon_dot::<1, 8, 8, LARGE>(page, rows) },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => tile::<_, 1, 8, 8, LARGE>(Simd128, page, rows),
            _ => unreachable!("only available levels come here"),
        }
    }
}

/// What every entry checks.
fn check(level: Level, (kt, vt): (CacheType, CacheType), p: &AttentionParams, k: &[u32], v: &[u32]) {
    assert!(level.is_available(), "attention: this CPU does not have {}", level.name());
    let (hd, page) = (p.head_dim as usize, p.page_len as usize);
    assert!((1..=HEAD_MAX).contains(&hd), "attention: a head of {hd} elements, expected 1..={HEAD_MAX}");
    assert!(page.is_multiple_of(CHUNK), "attention: a page of {page} positions, expected a multiple of 64");
    assert!(
        p.kv_heads > 0 && p.heads.is_multiple_of(p.kv_heads),
        "attention: {} heads over {} key-value heads",
        p.heads,
        p.kv_heads
    );
    let positions = p.kv_heads as usize * page;
    for (name, t, cache) in [("keys", kt, k), ("values", vt, v)] {
        let expected = positions * words(t, hd);
        assert!(cache.len() >= expected, "attention: {} words of {name}, expected {expected}", cache.len());
    }
}

/// One query head over one page, with the bits of `ops::attention::head` at every level: `row` = token * heads + head;
/// `q` and `out` `[head_dim]`; `k` and `v` one page of the cache; `places` of the step; `state` `[m, l, o[head_dim]]`, which
/// may be empty when the whole context is one page and there are no sinks. Allocates nothing.
///
/// Panics when a length does not fit or when this CPU does not have `level`.
pub fn attention_head(
    level: Level,
    types: (CacheType, CacheType),
    p: &AttentionParams,
    row: usize,
    q: &[f32],
    k: &[u32],
    v: &[u32],
    places: Places,
    state: &mut [f32],
    out: &mut [f32],
) {
    check(level, types, p, k, v);
    let hd = p.head_dim as usize;
    run(level, Page { types, p, k, v, places }, &mut [Row { row, q: &q[..hd], state, out: &mut out[..hd] }]);
}

/// The whole command, with the bits of `ops::attention::attention` at every level and thread count: `q` and `out`
/// `[token][heads][head_dim]`; `k` and `v` one page of the cache; `state` `[token][heads][m, l, o[head_dim]]`, or shorter
/// when the whole context is one page. Runs on the current team, in parallel over key-value heads and tiles of rows.
///
/// Panics when a length does not fit or when this CPU does not have `level`.
pub fn attention(
    level: Level,
    types: (CacheType, CacheType),
    p: &AttentionParams,
    q: &[f32],
    k: &[u32],
    v: &[u32],
    places: Places,
    state: &mut [f32],
    out: &mut [f32],
) {
    check(level, types, p, k, v);
    let (hd, heads, kv_heads) = (p.head_dim as usize, p.heads as usize, p.kv_heads as usize);
    let n = p.n_tokens as usize * heads;
    if n == 0 {
        return;
    }
    let carries = state.len() >= n * (hd + 2);
    let (q, out, state) = (&q[..n * hd], Rest(out[..n * hd].as_mut_ptr()), Rest(state.as_mut_ptr()));

    let page = Page { types, p, k, v, places };
    let per_head = n / kv_heads;
    if let Some(size) = block::size(level, p, per_head) {
        return deal::<{ block::ROWS }>(level, page, (per_head, size), q, &state, &out, carries);
    }
    // a smaller tile costs more work in all, so only as small as it takes to give every thread some
    let mut size = TILE;
    while size > 1 && kv_heads * per_head.div_ceil(size) < team::threads() {
        size /= 2;
    }
    deal::<TILE>(level, page, (per_head, size), q, &state, &out, carries);
}

/// Deals the rows of every key-value head, `per_head` of them, out by `size`, at most `MOST`. `out` has all rows, and so has
/// `state` where it `carries` any.
fn deal<const MOST: usize>(
    level: Level,
    page: Page,
    (per_head, size): (usize, usize),
    q: &[f32],
    state: &Rest,
    out: &Rest,
    carries: bool,
) {
    let p = page.p;
    let (hd, heads, kv_heads) = (p.head_dim as usize, p.heads as usize, p.kv_heads as usize);
    let sharing = heads / kv_heads;
    let tiles = per_head.div_ceil(size);
    team::for_each(kv_heads * tiles, |task| {
        // late tokens first: they see most, and a thread should not meet them last
        let (kv_head, end) = (task / tiles, per_head - task % tiles * size);
        let row = |i: usize| (end - 1 - i) / sharing * heads + kv_head * sharing + (end - 1 - i) % sharing;
        let each = |row: usize| {
            // SAFETY: every row belongs to one task, rows lie side by side in `out` and in `state` where it carries
            // them, as `attention` checked, which borrows both exclusively.
            let (out, state) = unsafe {
                let state = if carries { state.row(row, hd + 2) } else { &mut [] };
                (out.row(row, hd), state)
            };
            Row { row, q: &q[row * hd..][..hd], state, out }
        };
        let mut rows: [Row; MOST] = std::array::from_fn(|i| match i < size.min(end) {
            true => each(row(i)),
            false => Row { row: 0, q: &[], state: &mut [], out: &mut [] },
        });
        // rows of one sequence at a time, the last one's first
        let mut rest = &mut rows[..size.min(end)];
        while let Some(first) = rest.first() {
            let of = |r: &Row| page.places.sequence(r.row / heads);
            let n = rest.iter().take_while(|r| of(r) == of(first)).count();
            let (some, others) = rest.split_at_mut(n);
            run(level, page, some);
            rest = others;
        }
    });
}

/// What tasks write to, each its own rows.
struct Rest(*mut f32);

// SAFETY: the pointer is only used through `row`, whose contract forbids two tasks to have the same row.
unsafe impl Sync for Rest {}

impl Rest {
    /// Row `row` of `words`.
    ///
    /// # Safety
    ///
    /// The row lies within what the pointer was made from, and nobody else has it.
    #[allow(clippy::mut_from_ref, reason = "the rows are distinct, as the contract says")]
    unsafe fn row(&self, row: usize, words: usize) -> &mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(row * words), words) }
    }
}
