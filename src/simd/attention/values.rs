//! Weighted sums of values over a chunk: a lane is an element of the head, positions come in order. Must not know where
//! the weights come from.

use super::rows::{RowLanes, TQ3_1_TABLE};
use super::{BLOCK, Head, MAX_HEAD};
use crate::ops::attention::CHUNK;
use crate::ops::cache::{CacheType, element};
use crate::ops::tq3::{TQ3_0_INNER, TQ3_0_OUTER};

/// A cache type of values.
pub(super) trait Values {
    const TYPE: CacheType;
    /// The words of a row that hold elements `e..e + n`, `e` a multiple of N; `codes` is where codes begin.
    fn words(row: &[u32], codes: usize, e: usize, n: usize) -> &[u32];
    /// N elements from `e + at` on, of the words that were asked for with `e`.
    fn part<V: RowLanes>(v: V, words: &[u32], e: usize, at: usize, scales: &[f32; MAX_HEAD / BLOCK]) -> V::F;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Q8_0;
pub(super) struct Q4_0;

impl Values for F32 {
    const TYPE: CacheType = CacheType::F32;
    #[inline(always)]
    fn words(row: &[u32], _: usize, e: usize, n: usize) -> &[u32] {
        &row[e..][..n]
    }
    #[inline(always)]
    fn part<V: RowLanes>(v: V, words: &[u32], _: usize, at: usize, _: &[f32; MAX_HEAD / BLOCK]) -> V::F {
        v.f32_row(&words[at..])
    }
}

impl Values for F16 {
    const TYPE: CacheType = CacheType::F16;
    #[inline(always)]
    fn words(row: &[u32], _: usize, e: usize, n: usize) -> &[u32] {
        &row[e / 2..][..n / 2]
    }
    #[inline(always)]
    fn part<V: RowLanes>(v: V, words: &[u32], _: usize, at: usize, _: &[f32; MAX_HEAD / BLOCK]) -> V::F {
        v.f16_row(&words[at / 2..])
    }
}

impl Values for Q8_0 {
    const TYPE: CacheType = CacheType::Q8_0;
    #[inline(always)]
    fn words(row: &[u32], codes: usize, e: usize, n: usize) -> &[u32] {
        &row[codes + e / 4..][..n / 4]
    }
    #[inline(always)]
    fn part<V: RowLanes>(v: V, words: &[u32], e: usize, at: usize, scales: &[f32; MAX_HEAD / BLOCK]) -> V::F {
        // the remainder changes nothing and spares a check
        v.q8_row(&words[at / 4..], scales[(e + at) / BLOCK % scales.len()])
    }
}

impl Values for Q4_0 {
    const TYPE: CacheType = CacheType::Q4_0;
    #[inline(always)]
    fn words(row: &[u32], codes: usize, e: usize, n: usize) -> &[u32] {
        // of a part of a block, the whole block
        &row[codes + e / BLOCK * 4..][..n.div_ceil(BLOCK) * 4]
    }
    #[inline(always)]
    fn part<V: RowLanes>(v: V, words: &[u32], e: usize, at: usize, scales: &[f32; MAX_HEAD / BLOCK]) -> V::F {
        let inner = if words.len() == 4 { e % BLOCK + at } else { at };
        let d = scales[(e + at) / BLOCK % scales.len()];
        v.q4_row(&words[inner / BLOCK * 4..][..4], inner % BLOCK / V::N, d)
    }
}

/// The value rows of a chunk.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// the words of all positions up to the last that counts
    pub(super) words: &'a [u32],
    /// words of one row
    pub(super) stride: usize,
    pub(super) head_dim: usize,
}

/// Sum over positions, in order, of p · v for elements `e..e + W * N`.
#[inline(always)]
fn weigh_part<V: RowLanes, Y: Values, const T: usize, const W: usize>(
    v: V,
    rows: &Rows,
    e: usize,
    scales: &[[f32; MAX_HEAD / BLOCK]; CHUNK],
    p: &[[f32; CHUNK]; T],
    o: &mut [Head; T],
) {
    let codes = (rows.head_dim / BLOCK).div_ceil(2);
    let mut acc = [[v.float(0.0); W]; T];
    for (i, (row, scales)) in rows.words.chunks_exact(rows.stride).zip(scales).enumerate() {
        let words = Y::words(row, codes, e, W * V::N);
        for w in 0..W {
            let x = Y::part(v, words, e, w * V::N, scales);
            for t in 0..T {
                acc[t][w] = v.add_f(acc[t][w], v.mul_f(v.float(p[t][i % CHUNK]), x));
            }
        }
    }
    for t in 0..T {
        for w in 0..W {
            let e = e + w * V::N;
            v.store(acc[t][w], &mut o[t][e / BLOCK], e % BLOCK / V::N);
        }
    }
}

/// Sum over positions, in order, of p · v for the whole head: in parts of `W` vectors of elements, then smaller ones.
#[inline(always)]
pub(super) fn weigh<V: RowLanes, Y: Values, const T: usize, const W: usize>(
    v: V,
    rows: &Rows,
    p: &[[f32; CHUNK]; T],
    scales: &mut [[f32; MAX_HEAD / BLOCK]; CHUNK],
    o: &mut [Head; T],
) {
    let hd = rows.head_dim;
    if matches!(Y::TYPE, CacheType::Q8_0 | CacheType::Q4_0) {
        read_scales(v, rows, scales);
    }
    let mut e = 0;
    while e + W * V::N <= hd {
        weigh_part::<V, Y, T, W>(v, rows, e, scales, p, o);
        e += W * V::N;
    }
    if W > 4 && e + 4 * V::N <= hd {
        weigh_part::<V, Y, T, 4>(v, rows, e, scales, p, o);
        e += 4 * V::N;
    }
    if W > 2 && e + 2 * V::N <= hd {
        weigh_part::<V, Y, T, 2>(v, rows, e, scales, p, o);
        e += 2 * V::N;
    }
    if e + V::N <= hd {
        weigh_part::<V, Y, T, 1>(v, rows, e, scales, p, o);
        e += V::N;
    }
    // what is left is not a vector: f32 and f16 heads of odd sizes
    for e in e..hd {
        for t in 0..T {
            let mut acc = 0f32;
            for (i, row) in rows.words.chunks_exact(rows.stride).enumerate() {
                acc += p[t][i] * element(Y::TYPE, hd / BLOCK, |w| row[w], e);
            }
            o[t][e / BLOCK][e % BLOCK] = acc;
        }
    }
}

/// Reads the scales of all rows of a type that has them.
#[inline(always)]
fn read_scales<V: RowLanes>(v: V, rows: &Rows, scales: &mut [[f32; MAX_HEAD / BLOCK]; CHUNK]) {
    for (row, scales) in rows.words.chunks_exact(rows.stride).zip(scales) {
        // the row of one block has at least four words, so the first four are there, if not all of scales
        if let Some(words) = row.first_chunk() {
            *scales = v.scales(words);
        }
    }
}

// ---------------------------------------------------------------- tq3

/// tq3_0's levels by two-bit code, for either value of a third bit.
const TQ3_0_TABLE: [f32; 8] =
    [-TQ3_0_OUTER, -TQ3_0_INNER, TQ3_0_INNER, TQ3_0_OUTER, -TQ3_0_OUTER, -TQ3_0_INNER, TQ3_0_INNER, TQ3_0_OUTER];

/// As [`weigh_part`], of tq3_1 where `ONE`, of tq3_0 otherwise: products of weight, scale and level are made per block
/// and looked up by code, since a block has fewer levels than elements.
#[inline(always)]
fn weigh_levels_part<V: RowLanes, const ONE: bool, const T: usize, const W: usize>(
    v: V,
    rows: &Rows,
    e: usize,
    scales: &[[f32; MAX_HEAD / BLOCK]; CHUNK],
    p: &[[f32; CHUNK]; T],
    o: &mut [Head; T],
) {
    let nb = rows.head_dim / BLOCK;
    // where the first vector begins in its block; known at compile time where the vectors are whole blocks
    let inner = if (W * V::N).is_multiple_of(BLOCK) { 0 } else { e % BLOCK };
    // W vectors from the start of a block, or within one
    let blocks = (W * V::N).div_ceil(BLOCK);
    let levels = v.table(if ONE { &TQ3_1_TABLE } else { &TQ3_0_TABLE });
    let mut acc = [[v.float(0.0); W]; T];
    for (i, (row, scales)) in rows.words.chunks_exact(rows.stride).zip(scales).enumerate() {
        let words = &row[nb.div_ceil(2) + e / BLOCK * 3..][..blocks * 3];
        let mut tables = [v.float(0.0); T];
        for w in 0..W {
            let at = inner + w * V::N;
            if w == 0 || at.is_multiple_of(BLOCK) {
                let values = v.mul_f(v.float(scales[(e / BLOCK + at / BLOCK) % scales.len()]), levels);
                for t in 0..T {
                    tables[t] = v.mul_f(v.float(p[t][i % CHUNK]), values);
                }
            }
            let block = &words[at / BLOCK * 3..][..3];
            let codes = v.codes::<ONE>(&[block[0], block[1], block[2]], at % BLOCK / V::N);
            for t in 0..T {
                acc[t][w] = v.add_f(acc[t][w], v.pick(tables[t], codes));
            }
        }
    }
    for t in 0..T {
        for w in 0..W {
            let e = e + w * V::N;
            v.store(acc[t][w], &mut o[t][e / BLOCK], e % BLOCK / V::N);
        }
    }
}

/// As [`weigh`], for tq3_1 where `ONE` and for tq3_0 otherwise.
#[inline(always)]
pub(super) fn weigh_levels<V: RowLanes, const ONE: bool, const T: usize, const W: usize>(
    v: V,
    rows: &Rows,
    p: &[[f32; CHUNK]; T],
    scales: &mut [[f32; MAX_HEAD / BLOCK]; CHUNK],
    o: &mut [Head; T],
) {
    // a head is a whole number of blocks, so nothing is left over below one vector
    const { assert!(BLOCK.is_multiple_of(V::N)) }
    let hd = rows.head_dim;
    read_scales(v, rows, scales);
    let mut e = 0;
    while e + W * V::N <= hd {
        weigh_levels_part::<V, ONE, T, W>(v, rows, e, scales, p, o);
        e += W * V::N;
    }
    if W > 4 && e + 4 * V::N <= hd {
        weigh_levels_part::<V, ONE, T, 4>(v, rows, e, scales, p, o);
        e += 4 * V::N;
    }
    if W > 2 && e + 2 * V::N <= hd {
        weigh_levels_part::<V, ONE, T, 2>(v, rows, e, scales, p, o);
        e += 2 * V::N;
    }
    if e + V::N <= hd {
        weigh_levels_part::<V, ONE, T, 1>(v, rows, e, scales, p, o);
    }
}
