//! Many rows over keys and values of floats: those of a chunk are widened once, to f32, for all tiles of a block of rows.
//! Row by row the operations are those of [`super::tile`].

use super::{
    BLOCK, CHUNK, Carried, Head, Page, Row, RowLanes, TILE, cap_scores, finish, greater, join_by, probabilities, words,
};
use crate::ops::attention::{AttentionParams, HEAD_MAX};
use crate::ops::cache::{CacheType, POISONED};
use crate::ops::exact::{POISON, canon, flush, ordered};
use crate::simd::avx512::Avx512;
use crate::simd::elementwise::fexp;
use crate::simd::lanes::{Lanes, Word};
use std::arch::x86_64::*;

/// Rows of a block.
pub(super) const ROWS: usize = 4 * TILE;

/// Vectors of positions, and of elements, at a time: of one, a query's element or a weight is an operand in memory of the one
/// multiplication that it meets. Of two it would be copied to all lanes of a register first, which takes Zen 4 as long as an
/// addition does.
const WIDE: usize = 1;

/// What a block needs besides: the greatest of a chunk, without a detour over memory.
pub(crate) trait Most: RowLanes {
    /// The greatest.
    fn most(self, x: &[i32; CHUNK]) -> i32;
}

impl Most for Avx512 {
    #[inline(always)]
    fn most(self, x: &[i32; CHUNK]) -> i32 {
        // SAFETY: a value of the level's type exists only where its `new` was allowed, so the CPU has the instructions; the
        // four loads lie within the array.
        unsafe {
            let x = x.as_ptr();
            let a = _mm512_max_epi32(_mm512_loadu_si512(x.cast()), _mm512_loadu_si512(x.add(16).cast()));
            let b = _mm512_max_epi32(_mm512_loadu_si512(x.add(32).cast()), _mm512_loadu_si512(x.add(48).cast()));
            _mm512_reduce_max_epi32(_mm512_max_epi32(a, b))
        }
    }
}

/// Whether keys, values and heads are such as a block takes.
pub(super) fn takes((kt, vt): (CacheType, CacheType), p: &AttentionParams) -> bool {
    let float = |t| matches!(t, CacheType::F32 | CacheType::F16);
    let hd = p.head_dim as usize;
    float(kt) && float(vt) && hd <= HEAD_MAX && hd.is_multiple_of(BLOCK)
}

/// A chunk of floats: keys position by position of each element, values element by element of each position.
#[repr(align(64))]
struct Chunk<const H: usize> {
    keys: [[f32; CHUNK]; H],
    values: [[f32; H]; CHUNK],
}

/// Rows of one sequence that share a key-value head, in whole tiles, at most [`ROWS`] of them. `H`: room for that many elements
/// a head; `B`: for as many blocks.
#[inline(always)]
pub(super) fn block<V: Most, const H: usize, const B: usize>(v: V, page: Page, rows: &mut [Row]) {
    let Page { types: (kt, vt), p, k, v: values, .. } = page;
    let (hd, positions) = (p.head_dim as usize, p.page_len as usize);
    assert!(rows.len() <= ROWS && rows.len().is_multiple_of(TILE) && takes(page.types, p) && hd <= H);
    let kv_head = rows[0].row % p.heads as usize / (p.heads / p.kv_heads) as usize;
    let (kwords, vwords) = (words(kt, hd), words(vt, hd));
    let (keys, _) = k[kv_head * positions * kwords..][..positions * kwords].as_chunks::<BLOCK>();
    let values = &values[kv_head * positions * vwords..][..positions * vwords];

    let mut carried = [Carried::<B>::NONE; ROWS];
    // queries of a tile side by side
    let mut queries = [[[0f32; TILE]; H]; ROWS / TILE];
    let (mut from, mut to) = (usize::MAX, 0);
    for (i, row) in rows.iter().enumerate() {
        let c = &mut carried[i];
        c.start(&page, row, hd);
        if c.from < c.to {
            (from, to) = (from.min(c.from), to.max(c.to));
        }
        for (to, &q) in queries[i / TILE].iter_mut().zip(&row.q[..hd]) {
            to[i % TILE] = q;
        }
    }

    let mut floats = Chunk { keys: [[0.0; CHUNK]; H], values: [[0.0; H]; CHUNK] };
    let mut s = [[0f32; CHUNK]; TILE];
    let mut probs = [[0f32; CHUNK]; TILE];
    let mut oc = [Carried::<B>::NONE.o; TILE];
    for chunk in (from / CHUNK * CHUNK..to).step_by(CHUNK) {
        let Some(start) = page.index(rows, chunk) else { continue };
        let keys = &keys[start / BLOCK * kwords..][..2 * kwords];
        widen_keys(v, kt, keys, &mut floats.keys);
        let mut poisoned = [0u32; CHUNK];
        let mut any = 0;
        for l in 0..CHUNK {
            poisoned[l] = (keys[l / BLOCK * kwords][l % BLOCK] == POISONED) as u32;
            any |= poisoned[l];
        }
        // those that some row sees
        let seen = (from.saturating_sub(chunk), (to - chunk).min(CHUNK));
        let words = &values[(start + seen.0) * vwords..(start + seen.1) * vwords];
        for (row, to) in words.chunks_exact(vwords).zip(&mut floats.values[seen.0..seen.1]) {
            widen_values(v, vt, row, &mut to[..hd]);
        }

        for (tile, queries) in queries[..rows.len() / TILE].iter().enumerate() {
            let carried: &mut [Carried<B>; TILE] = carried[tile * TILE..].first_chunk_mut().expect("a tile's rows");
            let (mut live, mut seen) = ([(0, 0); TILE], (CHUNK, 0));
            for t in 0..TILE {
                live[t] = carried[t].within(chunk);
                if live[t].0 < live[t].1 {
                    seen = (seen.0.min(live[t].0), seen.1.max(live[t].1));
                }
            }
            if seen.0 >= seen.1 {
                continue;
            }
            scores(v, &floats.keys[..hd], &queries[..hd], &mut s);
            let mut mc = [0f32; TILE];
            for t in 0..TILE {
                let scale = cap_scores(p, &mut s[t], p.scale);
                mc[t] = match any == 0 && live[t] == (0, CHUNK) {
                    true => all_probabilities(v, &s[t], scale, &mut probs[t]),
                    false => probabilities(&s[t], scale, &poisoned, live[t], &mut probs[t]),
                };
            }
            weigh(v, hd, seen, &floats.values, &probs, &mut oc);
            // the exponentials of all rows side by side; what comes of rows that join nothing is left
            let (mut m, mut factors) = ([0f32; TILE], [[0f32; TILE]; 2]);
            for t in 0..TILE {
                m[t] = greater(carried[t].m, mc[t]);
                factors[0][t] = carried[t].m - m[t];
                factors[1][t] = mc[t] - m[t];
            }
            for x in factors.as_flattened_mut() {
                *x = flush(fexp(*x));
            }
            for t in 0..TILE {
                if live[t].0 < live[t].1 {
                    let factors = (factors[0][t], factors[1][t]);
                    join_by(&mut carried[t], (m[t], mc[t]), factors, &mut probs[t], &oc[t], hd);
                }
            }
        }
    }
    for (row, c) in rows.iter_mut().zip(&carried) {
        finish(v, &page, c, row);
    }
}

#[inline(always)]
fn widen_keys<V: Lanes>(v: V, t: CacheType, keys: &[Word], to: &mut [[f32; CHUNK]]) {
    let n = keys.len() / 2;
    for half in 0..2 {
        for (i, word) in keys[half * n..][..n].iter().enumerate() {
            if t == CacheType::F32 {
                to[i][half * BLOCK..][..BLOCK].copy_from_slice(bytemuck::cast_ref::<_, [f32; BLOCK]>(word));
                continue;
            }
            for part in 0..BLOCK / V::N {
                let (low, high) = v.f16_pair(v.load(word, part));
                v.store(low, of_half(&mut to[2 * i], half), part);
                v.store(high, of_half(&mut to[2 * i + 1], half), part);
            }
        }
    }
}

#[inline(always)]
fn of_half(x: &mut [f32; CHUNK], half: usize) -> &mut [f32; BLOCK] {
    x[half * BLOCK..].first_chunk_mut().expect("half a chunk")
}

#[inline(always)]
fn widen_values<V: RowLanes>(v: V, t: CacheType, row: &[u32], to: &mut [f32]) {
    for (i, to) in to.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
        for part in 0..BLOCK / V::N {
            let e = i * BLOCK + part * V::N;
            v.store(if t == CacheType::F32 { v.f32_row(&row[e..]) } else { v.f16_row(&row[e / 2..]) }, to, part);
        }
    }
}

#[inline(always)]
fn load<V: RowLanes>(v: V, x: &[f32], at: usize) -> V::F {
    v.f32_row(bytemuck::cast_slice(&x[at..][..V::N]))
}

/// q · k of a chunk, for the rows of a tile.
#[inline(always)]
fn scores<V: RowLanes>(v: V, keys: &[[f32; CHUNK]], queries: &[[f32; TILE]], s: &mut [[f32; CHUNK]; TILE]) {
    for at in (0..CHUNK).step_by(WIDE * V::N) {
        let mut acc = [[v.float(0.0); WIDE]; TILE];
        for (k, q) in keys.iter().zip(queries) {
            let mut x = [v.float(0.0); WIDE];
            for u in 0..WIDE {
                x[u] = load(v, k, at + u * V::N);
            }
            for t in 0..TILE {
                for u in 0..WIDE {
                    acc[t][u] = v.add_f(acc[t][u], v.mul_f(v.float(q[t]), x[u]));
                }
            }
        }
        for t in 0..TILE {
            for u in 0..WIDE {
                let at = at + u * V::N;
                v.store(acc[t][u], of_half(&mut s[t], at / BLOCK), at % BLOCK / V::N);
            }
        }
    }
}

/// [`probabilities`] where every position counts and no key is poisoned.
#[inline(always)]
fn all_probabilities<V: Most>(v: V, s: &[f32; CHUNK], scale: f32, p: &mut [f32; CHUNK]) -> f32 {
    let (mut scaled, mut most) = ([0f32; CHUNK], [0i32; CHUNK]);
    for i in 0..CHUNK {
        scaled[i] = canon(s[i] * scale);
        most[i] = ordered(scaled[i].to_bits() as i32);
    }
    let mc = f32::from_bits(ordered(v.most(&most)) as u32);
    // a poisoned score is the maximum
    if mc.to_bits() == POISON.to_bits() {
        *p = [POISON; CHUNK];
        return mc;
    }
    for i in 0..CHUNK {
        p[i] = flush(fexp(scaled[i] - mc));
    }
    mc
}

/// Sum over positions, in order, of p · v, for the rows of a tile.
#[inline(always)]
fn weigh<V: RowLanes, const H: usize, const B: usize>(
    v: V,
    hd: usize,
    (from, to): (usize, usize),
    values: &[[f32; H]; CHUNK],
    p: &[[f32; CHUNK]; TILE],
    o: &mut [Head<B>; TILE],
) {
    for e in (0..hd).step_by(WIDE * V::N) {
        let mut acc = [[v.float(0.0); WIDE]; TILE];
        for i in from..to {
            let mut x = [v.float(0.0); WIDE];
            for w in 0..WIDE {
                x[w] = load(v, &values[i], e + w * V::N);
            }
            for t in 0..TILE {
                let p = v.float(p[t][i]);
                for w in 0..WIDE {
                    acc[t][w] = v.add_f(acc[t][w], v.mul_f(p, x[w]));
                }
            }
        }
        for t in 0..TILE {
            for w in 0..WIDE {
                let e = e + w * V::N;
                v.store(acc[t][w], &mut o[t][e / BLOCK], e % BLOCK / V::N);
            }
        }
    }
}
