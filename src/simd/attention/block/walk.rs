//! A block of rows over a page: values of a chunk, and keys that are floats, are made f32 once for all its tiles. Row by row the
//! operations are those of [`tile`](super::super::tile).

use super::super::keys::{self, Digits};
use super::super::values::{self, Rows};
use super::super::{
    BLOCK, CHUNK, Carried, Head, Page, Row, Scores, TILE, ask, cap_scores, finish, greatest, is_float, join,
    probabilities, words,
};
use super::lanes::BlockLanes;
use crate::ops::cache::{CacheType, POISONED};
use crate::ops::exact::{CANON_MAX, CANON_MIN, flush, greater, not_finite, ordered};
use crate::simd::elementwise::{EXP, EXP_LEAST, fexp};
use crate::simd::lanes::{Lanes, Word};

/// Vectors of half a chunk at most.
const PARTS: usize = BLOCK / 4;

/// 2^62. What lies below it stays below 2^64 whatever is joined to it of values that are not f32: they are below 2^24, and
/// positions fewer than 2^32.
const BOUND: f32 = f32::from_bits((127 + 62) << 23);

/// A chunk of a head of `B` blocks at most.
#[repr(align(64))]
struct Floats<const B: usize> {
    keys: Keys<B>,
    /// of each block of elements: of each position, the elements
    values: [[[f32; BLOCK]; CHUNK]; B],
}

/// Of half a chunk: of each element, the positions.
type Keys<const B: usize> = [[[[f32; BLOCK]; BLOCK]; B]; CHUNK / BLOCK];

/// The rows of a tile and what they have come to.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Tile<const B: usize> {
    /// of each element, the rows
    queries: [[[f32; TILE]; BLOCK]; B],
    /// in their place where keys are codes
    digits: [Digits<B>; TILE],
    scale: [f32; TILE],
    m: [f32; TILE],
    l: [f32; TILE],
    o: Sums<B>,
    from: [usize; TILE],
    to: [usize; TILE],
    /// whether nothing was joined to a row yet, nor carried to it
    fresh: [bool; TILE],
    joined: [bool; TILE],
    /// whether sums may come to 2^64: those of values of f32, and what was carried from such pages to a ring of f16
    large: bool,
}

/// Of each block of elements: of each row, the elements.
type Sums<const B: usize> = [[[f32; BLOCK]; TILE]; B];

impl<const B: usize> Tile<B> {
    const NONE: Self = Tile {
        queries: [[[0.0; TILE]; BLOCK]; B],
        digits: [Digits::ZERO; TILE],
        scale: [0.0; TILE],
        m: [0.0; TILE],
        l: [0.0; TILE],
        o: [[[0.0; BLOCK]; TILE]; B],
        from: [0; TILE],
        to: [0; TILE],
        fresh: [false; TILE],
        joined: [false; TILE],
        large: false,
    };

    /// What row `t` brings to this page.
    #[inline(always)]
    fn start<V: BlockLanes>(&mut self, v: V, page: &Page, t: usize, row: &Row) {
        let (kt, hd) = (page.types.0, page.p.head_dim as usize);
        let mut c = Carried::<B>::NONE;
        c.start(page, row, hd);
        (self.from[t], self.to[t], self.scale[t]) = (c.from, c.to, page.p.scale);
        self.put(t, &c);
        self.large |= page.types.1 == CacheType::F32;
        for o in c.o.as_flattened() {
            // by bits, what is no number lies above
            self.large |= o.abs().to_bits() >= BOUND.to_bits();
        }
        if is_float(kt) {
            for (to, &q) in self.queries.as_flattened_mut().iter_mut().zip(&row.q[..hd]) {
                to[t] = q;
            }
        } else if c.from < c.to {
            self.digits[t] = v.digits(kt, &row.q[..hd]);
            self.scale[t] = self.digits[t].d * page.p.scale;
        }
    }

    /// What row `t` has come to.
    #[inline(always)]
    fn carried(&self, t: usize) -> Carried<B> {
        let mut c = Carried::<B>::NONE;
        c.o = of_row(&self.o, t);
        (c.m, c.l, c.fresh, c.joined) = (self.m[t], self.l[t], self.fresh[t], self.joined[t]);
        c
    }

    #[inline(always)]
    fn put(&mut self, t: usize, c: &Carried<B>) {
        for (to, o) in self.o.iter_mut().zip(&c.o) {
            to[t] = *o;
        }
        (self.m[t], self.l[t], self.fresh[t], self.joined[t]) = (c.m, c.l, c.fresh, c.joined);
    }

    /// The positions of the chunk that row `t` sees, counted from the chunk's first.
    #[inline(always)]
    fn within(&self, t: usize, chunk: usize) -> (usize, usize) {
        (self.from[t].saturating_sub(chunk).min(CHUNK), self.to[t].saturating_sub(chunk).min(CHUNK))
    }
}

/// Rows of one sequence that share a key-value head, in whole tiles, `TILES` of them at most. `B`: room for that
/// many blocks of a head; `T`, `W`: rows by vectors whose sums are taken at a time.
#[inline(always)]
pub(super) fn block<V: BlockLanes, const B: usize, const TILES: usize, const T: usize, const W: usize>(
    v: V,
    page: Page,
    rows: &mut [Row],
) {
    let Page { types: (kt, vt), p, k, v: values, .. } = page;
    let (hd, positions) = (p.head_dim as usize, p.page_len as usize);
    let n = rows.len() / TILE;
    assert!(n <= TILES && rows.len().is_multiple_of(TILE) && hd <= B * BLOCK);
    let kv_head = rows[0].row % p.heads as usize / (p.heads / p.kv_heads) as usize;
    let (kwords, vwords) = (words(kt, hd), words(vt, hd));
    let (keys, _) = k[kv_head * positions * kwords..][..positions * kwords].as_chunks::<BLOCK>();
    let values = &values[kv_head * positions * vwords..][..positions * vwords];

    let mut tiles = [Tile::<B>::NONE; TILES];
    let tiles = &mut tiles[..n];
    let (mut from, mut to) = (usize::MAX, 0);
    for (i, row) in rows.iter().enumerate() {
        let (tile, t) = (&mut tiles[i / TILE], i % TILE);
        tile.start(v, &page, t, row);
        if tile.from[t] < tile.to[t] {
            (from, to) = (from.min(tile.from[t]), to.max(tile.to[t]));
        }
    }

    let mut floats = Floats { keys: [[[[0.0; BLOCK]; BLOCK]; B]; CHUNK / BLOCK], values: [[[0.0; BLOCK]; CHUNK]; B] };
    let mut scratch = Scratch {
        s: [[[0.0; BLOCK]; CHUNK / BLOCK]; TILE],
        probs: [[0.0; CHUNK]; TILE],
        oc: [[[0.0; BLOCK]; TILE]; B],
    };
    for chunk in (from / CHUNK * CHUNK..to).step_by(CHUNK) {
        let Some(start) = page.index(rows, chunk) else { continue };
        let next = page.after(rows, chunk, to, (keys, kwords), (values, vwords));
        let (_, keys) = keys.split_at(start / BLOCK * kwords);
        let keys = [&keys[..kwords], &keys[kwords..][..kwords]];
        if is_float(kt) {
            widen_keys(v, kt, keys, &mut floats.keys);
        }
        let mut poisoned = [0u32; CHUNK];
        let mut any = 0;
        for l in 0..CHUNK {
            poisoned[l] = (keys[l / BLOCK][0][l % BLOCK] == POISONED) as u32;
            any |= poisoned[l];
        }
        // those that some row sees
        let (first, last) = (from.saturating_sub(chunk), (to - chunk).min(CHUNK));
        let words = &values[(start + first) * vwords..(start + last) * vwords];
        let words = Rows { words, stride: vwords, head_dim: hd, first };
        match vt {
            CacheType::F32 => v.widen::<values::F32, B>(&words, &mut floats.values),
            CacheType::F16 => v.widen::<values::F16, B>(&words, &mut floats.values),
            CacheType::Q8_0 | CacheType::Q8_0R | CacheType::C8 => {
                v.widen::<values::Q8_0, B>(&words, &mut floats.values)
            }
            CacheType::Q4_0 | CacheType::Q4_0R => v.widen::<values::Q4_0, B>(&words, &mut floats.values),
            CacheType::TQ3_0 => v.widen::<values::Tq3<false>, B>(&words, &mut floats.values),
            CacheType::TQ3_1 => v.widen::<values::Tq3<true>, B>(&words, &mut floats.values),
        }
        for (i, tile) in tiles.iter_mut().enumerate() {
            ask(v, next.0, i, n);
            ask(v, next.1, i, n);
            step::<V, B, T, W>(v, &page, chunk, (keys, &floats), (&poisoned, any != 0), &mut scratch, tile);
        }
    }
    for (i, row) in rows.iter_mut().enumerate() {
        finish(v, &page, &tiles[i / TILE].carried(i % TILE), row);
    }
}

/// What tiles work with, one after the other; made once.
#[repr(align(64))]
struct Scratch<const B: usize> {
    s: [Scores; TILE],
    probs: [[f32; CHUNK]; TILE],
    oc: Sums<B>,
}

/// A chunk for the rows of a tile. `poisoned`: the keys that are, and whether any is.
#[inline(always)]
fn step<V: BlockLanes, const B: usize, const T: usize, const W: usize>(
    v: V,
    page: &Page,
    chunk: usize,
    (keys, floats): ([&[Word]; 2], &Floats<B>),
    (poisoned, any): (&[u32; CHUNK], bool),
    Scratch { s, probs, oc }: &mut Scratch<B>,
    tile: &mut Tile<B>,
) {
    let (p, hd) = (page.p, page.p.head_dim as usize);
    let (mut live, mut seen) = ([(0, 0); TILE], (CHUNK, 0));
    let (mut rows, mut fresh) = (0, 0);
    for t in 0..TILE {
        live[t] = tile.within(t, chunk);
        if live[t].0 < live[t].1 {
            seen = (seen.0.min(live[t].0), seen.1.max(live[t].1));
            rows += 1;
            fresh += tile.fresh[t] as usize;
        }
    }
    if rows == 0 {
        return;
    }
    let (nb, digits) = (hd / BLOCK, &tile.digits);
    match page.types.0 {
        CacheType::F32 | CacheType::F16 => scores::<V, B, T, W>(v, nb, &floats.keys, &tile.queries, s),
        CacheType::Q8_0 | CacheType::Q8_0R | CacheType::C8 => v.coded::<keys::Q8_0, B>(keys, nb, digits, s),
        CacheType::Q4_0 | CacheType::Q4_0R => v.coded::<keys::Q4_0, B>(keys, nb, digits, s),
        CacheType::TQ3_0 => v.coded::<keys::Tq3_0, B>(keys, nb, digits, s),
        CacheType::TQ3_1 => v.coded::<keys::Tq3_1, B>(keys, nb, digits, s),
    }
    let mut scale = tile.scale;
    for t in 0..TILE {
        scale[t] = cap_scores(p, s[t].as_flattened_mut(), scale[t]);
    }

    // all rows alike and all that is met a number: as nearly always
    let mut mc = [0f32; TILE];
    let alike = !any && rows == TILE && (fresh == 0 || fresh == TILE);
    let usual = alike && numbers(&tile.m) && scaled(v, s, &scale, &live, probs, &mut mc);
    if !usual {
        for t in 0..TILE {
            mc[t] = probabilities(s[t].as_flattened(), scale[t], poisoned, live[t], &mut probs[t]);
        }
        weigh::<V, B, T, W>(v, nb, seen, &floats.values, probs, None, oc);
        for t in 0..TILE {
            if live[t].0 < live[t].1 {
                let mut c = tile.carried(t);
                join(&mut c, mc[t], &mut probs[t], &of_row(oc, t), hd);
                tile.put(t, &c);
            }
        }
        return;
    }
    let lc = exponentials(v, &mc, probs);
    tile.joined = [true; TILE];
    if fresh == TILE {
        (tile.m, tile.l, tile.fresh) = (mc, lc, [false; TILE]);
        weigh::<V, B, T, W>(v, nb, seen, &floats.values, probs, None, &mut tile.o);
        return;
    }
    let (mut a, mut b) = ([0f32; TILE], [0f32; TILE]);
    for t in 0..TILE {
        let m = greater(tile.m[t], mc[t]);
        (a[t], b[t]) = (tile.m[t] - m, mc[t] - m);
        tile.m[t] = m;
    }
    for x in [&mut a, &mut b] {
        for x in x {
            *x = flush(fexp(*x));
        }
    }
    for t in 0..TILE {
        tile.l[t] = tile.l[t] * a[t] + lc[t] * b[t];
    }
    let on = On { a, b, large: tile.large };
    weigh::<V, B, T, W>(v, nb, seen, &floats.values, probs, Some(&on), &mut tile.o);
}

#[inline(always)]
fn numbers(m: &[f32; TILE]) -> bool {
    let mut all = true;
    for m in m {
        all &= !not_finite(*m);
    }
    all
}

/// `row` of the sums.
#[inline(always)]
fn of_row<const B: usize>(sums: &Sums<B>, row: usize) -> Head<B> {
    let mut head = [[0.0; BLOCK]; B];
    for (to, from) in head.iter_mut().zip(sums) {
        *to = from[row];
    }
    head
}

#[inline(always)]
fn widen_keys<V: Lanes, const B: usize>(v: V, t: CacheType, keys: [&[Word]; 2], to: &mut Keys<B>) {
    for half in 0..2 {
        let to = to[half].as_flattened_mut();
        if t == CacheType::F32 {
            for (to, word) in to.iter_mut().zip(keys[half]) {
                *to = bytemuck::cast(*word);
            }
            continue;
        }
        for (to, word) in to.as_chunks_mut::<2>().0.iter_mut().zip(keys[half]) {
            for part in 0..BLOCK / V::N {
                let (low, high) = v.f16_pair(v.load(word, part));
                v.store(low, &mut to[0], part);
                v.store(high, &mut to[1], part);
            }
        }
    }
}

/// q · k of a chunk, for the rows of a tile, `T` of them by `W` vectors of positions at a time.
#[inline(always)]
fn scores<V: BlockLanes, const B: usize, const T: usize, const W: usize>(
    v: V,
    nb: usize,
    keys: &Keys<B>,
    queries: &[[[f32; TILE]; BLOCK]; B],
    s: &mut [Scores; TILE],
) {
    let queries = queries[..nb].as_flattened();
    for half in 0..2 {
        let keys = keys[half][..nb].as_flattened();
        for first in (0..TILE).step_by(T) {
            for part in (0..BLOCK / V::N).step_by(W) {
                let mut acc = [[v.float(0.0); W]; T];
                for (k, q) in keys.iter().zip(queries) {
                    let mut x = [v.float(0.0); W];
                    for w in 0..W {
                        x[w] = load(v, k, part + w);
                    }
                    for t in 0..T {
                        for w in 0..W {
                            acc[t][w] = v.add_f(acc[t][w], v.mul_f(v.float(q[first + t]), x[w]));
                        }
                    }
                }
                for t in 0..T {
                    for w in 0..W {
                        v.store(acc[t][w], &mut s[first + t][half], part + w);
                    }
                }
            }
        }
    }
}

/// The scores of all rows times their scales, and the greatest of each row; of positions that a row does not see the least
/// number there is. False where one is too large or no number, and then without use.
#[inline(always)]
fn scaled<V: BlockLanes>(
    v: V,
    s: &[Scores; TILE],
    scale: &[f32; TILE],
    live: &[(usize, usize); TILE],
    to: &mut [[f32; CHUNK]; TILE],
    mc: &mut [f32; TILE],
) -> bool {
    let mut top = v.int(0);
    for t in 0..TILE {
        let halves = of_halves(&mut to[t]);
        let mut most = v.float(f32::MIN);
        for half in 0..2 {
            for part in 0..BLOCK / V::N {
                let x = v.mul_f(v.as_f(v.load(bytemuck::cast_ref(&s[t][half]), part)), v.float(scale[t]));
                let magnitude = v.magnitude(x);
                top = v.greater(top, v.bits(magnitude));
                let x = v.unless_below(x, magnitude, CANON_MIN);
                most = v.greater_f(most, x);
                v.store(x, &mut halves[half], part);
            }
        }
        mc[t] = v.greatest_f(most);
        if live[t] != (0, CHUNK) {
            let (from, end) = live[t];
            let mut most = [0i32; CHUNK];
            for i in 0..CHUNK {
                let x = if i >= from && i < end { to[t][i] } else { f32::MIN };
                to[t][i] = x;
                most[i] = ordered(x.to_bits() as i32);
            }
            mc[t] = f32::from_bits(ordered(greatest(&mut most)) as u32);
        }
    }
    !v.any_from(top, CANON_MAX.to_bits() as i32)
}

#[inline(always)]
fn of_halves(x: &mut [f32; CHUNK]) -> &mut [[f32; BLOCK]; 2] {
    x.as_chunks_mut().0.try_into().expect("two halves")
}

/// Makes p of scaled scores, `mc` being the greatest of each row. Their sums.
#[inline(always)]
fn exponentials<V: BlockLanes>(v: V, mc: &[f32; TILE], p: &mut [[f32; CHUNK]; TILE]) -> [f32; TILE] {
    let mut sums = [v.float(0.0); TILE];
    for t in 0..TILE {
        let halves = of_halves(&mut p[t]);
        let mut parts = [v.float(0.0); PARTS];
        for part in 0..BLOCK / V::N {
            let x = [load(v, &halves[0], part), load(v, &halves[1], part)];
            let x = [exp(v, v.sub_f(x[0], v.float(mc[t]))), exp(v, v.sub_f(x[1], v.float(mc[t])))];
            v.store(x[0], &mut halves[0], part);
            v.store(x[1], &mut halves[1], part);
            parts[part] = v.add_f(x[0], x[1]);
        }
        // the tree of 32, down to one vector
        let mut n = BLOCK / V::N / 2;
        while n > 0 {
            for i in 0..n {
                parts[i] = v.add_f(parts[i], parts[i + n]);
            }
            n /= 2;
        }
        sums[t] = parts[0];
    }
    v.trees(&sums)
}

/// `flush(fexp(x))` of x at most 0.
#[inline(always)]
fn exp<V: BlockLanes>(v: V, x: V::F) -> V::F {
    let shifted = v.add_f(v.mul_f(x, v.float(EXP.log2_e)), v.float(EXP.magic));
    let k = v.sub_f(shifted, v.float(EXP.magic));
    let r = v.sub_f(v.sub_f(x, v.mul_f(k, v.float(EXP.ln_2[0]))), v.mul_f(k, v.float(EXP.ln_2[1])));
    let mut p = v.float(EXP.terms[0]);
    for i in 1..EXP.terms.len() {
        p = v.add_f(v.mul_f(p, r), v.float(EXP.terms[i]));
    }
    let y = v.add_f(v.add_f(v.mul_f(p, v.mul_f(r, r)), r), v.float(1.0));
    let e = v.as_f(v.add(v.bits(y), v.shl(v.bits(shifted), 23)));
    v.unless_below(e, x, EXP_LEAST)
}

/// What sums are joined to: o becomes o · a + sum · b, of each row. `large`: products may be too large.
struct On {
    a: [f32; TILE],
    b: [f32; TILE],
    large: bool,
}

impl On {
    #[inline(always)]
    fn join<V: BlockLanes>(&self, v: V, row: usize, o: V::F, sum: V::F) -> V::F {
        let (x, y) = (v.mul_f(o, v.float(self.a[row])), v.mul_f(sum, v.float(self.b[row])));
        if self.large {
            return v.add_f(v.canon(x), v.canon(y));
        }
        let x = v.unless_below(x, v.magnitude(x), CANON_MIN);
        v.add_f(x, v.unless_below(y, v.magnitude(y), CANON_MIN))
    }
}

/// Sum over positions, in order, of p · v, for the rows of a tile, `T` of them by `W` vectors of elements at a time.
#[inline(always)]
fn weigh<V: BlockLanes, const B: usize, const T: usize, const W: usize>(
    v: V,
    nb: usize,
    (from, to): (usize, usize),
    values: &[[[f32; BLOCK]; CHUNK]; B],
    p: &[[f32; CHUNK]; TILE],
    on: Option<&On>,
    o: &mut Sums<B>,
) {
    for (values, o) in values[..nb].iter().zip(o) {
        for first in (0..TILE).step_by(T) {
            for part in (0..BLOCK / V::N).step_by(W) {
                let mut acc = [[v.float(0.0); W]; T];
                for i in from..to {
                    let mut x = [v.float(0.0); W];
                    for w in 0..W {
                        x[w] = load(v, &values[i], part + w);
                    }
                    for t in 0..T {
                        for w in 0..W {
                            acc[t][w] = v.add_f(acc[t][w], v.mul_f(v.float(p[first + t][i]), x[w]));
                        }
                    }
                }
                for t in 0..T {
                    for w in 0..W {
                        let row = first + t;
                        let x = match on {
                            Some(on) => on.join(v, row, load(v, &o[row], part + w), acc[t][w]),
                            None => acc[t][w],
                        };
                        v.store(x, &mut o[row], part + w);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn load<V: Lanes>(v: V, x: &[f32; BLOCK], part: usize) -> V::F {
    v.as_f(v.load(bytemuck::cast_ref(x), part))
}
