//! Weighted sums of values over a chunk: a lane is an element of the head, positions come in order. Must not know where
//! the weights come from.

use super::RowLanes;
use super::keys::Next;
use super::{BLOCK, Head};
use crate::ops::attention::CHUNK;
use crate::ops::cache::{CacheType, element};

/// A cache type of values.
pub(super) trait Values {
    const TYPE: CacheType;
    /// The words of a row that hold elements `e..e + n`, `e` a multiple of N; `codes` is where codes begin.
    fn words(row: &[u32], codes: usize, e: usize, n: usize) -> &[u32];
    /// N elements from `e + at` on, of the words that were asked for with `e`.
    fn part<V: RowLanes, const B: usize>(v: V, words: &[u32], e: usize, at: usize, scales: &[f32; B]) -> V::F;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Q8_0;
pub(super) struct Q4_0;
/// tq3_1 where `ONE`, tq3_0 otherwise.
pub(super) struct Tq3<const ONE: bool>;

impl Values for F32 {
    const TYPE: CacheType = CacheType::F32;
    #[inline(always)]
    fn words(row: &[u32], _: usize, e: usize, n: usize) -> &[u32] {
        &row[e..][..n]
    }
    #[inline(always)]
    fn part<V: RowLanes, const B: usize>(v: V, words: &[u32], _: usize, at: usize, _: &[f32; B]) -> V::F {
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
    fn part<V: RowLanes, const B: usize>(v: V, words: &[u32], _: usize, at: usize, _: &[f32; B]) -> V::F {
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
    fn part<V: RowLanes, const B: usize>(v: V, words: &[u32], e: usize, at: usize, scales: &[f32; B]) -> V::F {
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
    fn part<V: RowLanes, const B: usize>(v: V, words: &[u32], e: usize, at: usize, scales: &[f32; B]) -> V::F {
        let inner = if words.len() == 4 { e % BLOCK + at } else { at };
        let d = scales[(e + at) / BLOCK % scales.len()];
        v.q4_row(&words[inner / BLOCK * 4..][..4], inner % BLOCK / V::N, d)
    }
}

impl<const ONE: bool> Values for Tq3<ONE> {
    const TYPE: CacheType = if ONE { CacheType::TQ3_1 } else { CacheType::TQ3_0 };
    #[inline(always)]
    fn words(row: &[u32], codes: usize, e: usize, n: usize) -> &[u32] {
        &row[codes + e / BLOCK * 3..][..n.div_ceil(BLOCK) * 3]
    }
    #[inline(always)]
    fn part<V: RowLanes, const B: usize>(v: V, words: &[u32], e: usize, at: usize, scales: &[f32; B]) -> V::F {
        let inner = if words.len() == 3 { e % BLOCK + at } else { at };
        let d = scales[(e + at) / BLOCK % scales.len()];
        v.tq3_row::<ONE>(&words[inner / BLOCK * 3..][..3], inner % BLOCK / V::N, d)
    }
}

/// The value rows of a chunk.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// the words of the positions from the first that counts to the last
    pub(super) words: &'a [u32],
    /// words of one row
    pub(super) stride: usize,
    pub(super) head_dim: usize,
    /// that first one's place in the chunk
    pub(super) first: usize,
}

/// Sum over positions, in order, of p · v for elements `e..e + W * N`.
#[inline(always)]
fn weigh_part<V: RowLanes, Y: Values, const T: usize, const W: usize, const B: usize>(
    v: V,
    rows: &Rows,
    e: usize,
    scales: &[[f32; B]; CHUNK],
    p: &[[f32; CHUNK]; T],
    next: Next,
    o: &mut [Head<B>; T],
) {
    let codes = (rows.head_dim / BLOCK).div_ceil(2);
    let mut acc = [[v.float(0.0); W]; T];
    for (i, (row, scales)) in rows.words.chunks_exact(rows.stride).zip(scales).enumerate() {
        let words = Y::words(row, codes, e, W * V::N);
        next.ask_lines(v, words);
        for w in 0..W {
            let x = Y::part(v, words, e, w * V::N, scales);
            for t in 0..T {
                acc[t][w] = v.add_f(acc[t][w], v.mul_f(v.float(p[t][(rows.first + i) % CHUNK]), x));
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
pub(super) fn weigh<V: RowLanes, Y: Values, const T: usize, const W: usize, const B: usize>(
    v: V,
    rows: &Rows,
    p: &[[f32; CHUNK]; T],
    scales: &mut [[f32; B]; CHUNK],
    next: Next,
    o: &mut [Head<B>; T],
) {
    let hd = rows.head_dim;
    if !matches!(Y::TYPE, CacheType::F32 | CacheType::F16) {
        read_scales(v, rows, scales);
    }
    let mut e = 0;
    while e + W * V::N <= hd {
        weigh_part::<V, Y, T, W, B>(v, rows, e, scales, p, next, o);
        e += W * V::N;
    }
    if W > 4 && e + 4 * V::N <= hd {
        weigh_part::<V, Y, T, 4, B>(v, rows, e, scales, p, next, o);
        e += 4 * V::N;
    }
    if W > 2 && e + 2 * V::N <= hd {
        weigh_part::<V, Y, T, 2, B>(v, rows, e, scales, p, next, o);
        e += 2 * V::N;
    }
    if e + V::N <= hd {
        weigh_part::<V, Y, T, 1, B>(v, rows, e, scales, p, next, o);
        e += V::N;
    }
    // what is left is not a vector: f32 and f16 heads of odd sizes
    for e in e..hd {
        for t in 0..T {
            let mut acc = 0f32;
            for (i, row) in rows.words.chunks_exact(rows.stride).enumerate() {
                acc += p[t][rows.first + i] * element(Y::TYPE, hd / BLOCK, |w| row[w], e);
            }
            o[t][e / BLOCK][e % BLOCK] = acc;
        }
    }
}

/// The values of the rows as f32, of each block of elements position by position, at their places in the chunk. Heads are of
/// whole blocks.
#[inline(always)]
pub(super) fn widen<V: RowLanes, Y: Values, const B: usize>(v: V, rows: &Rows, to: &mut [[[f32; BLOCK]; CHUNK]; B]) {
    let nb = rows.head_dim / BLOCK;
    let codes = nb.div_ceil(2);
    let mut scales = [[0f32; B]; CHUNK];
    if !matches!(Y::TYPE, CacheType::F32 | CacheType::F16) {
        read_scales(v, rows, &mut scales);
    }
    for (i, (row, scales)) in rows.words.chunks_exact(rows.stride).zip(&scales).enumerate() {
        for (b, to) in to[..nb].iter_mut().enumerate() {
            let words = Y::words(row, codes, b * BLOCK, BLOCK);
            for part in 0..BLOCK / V::N {
                let x = Y::part(v, words, b * BLOCK, part * V::N, scales);
                v.store(x, &mut to[(rows.first + i) % CHUNK], part);
            }
        }
    }
}

/// Reads the scales of all rows of a type that has them.
#[inline(always)]
fn read_scales<V: RowLanes, const B: usize>(v: V, rows: &Rows, scales: &mut [[f32; B]; CHUNK]) {
    for (row, scales) in rows.words.chunks_exact(rows.stride).zip(scales) {
        for (i, eight) in scales.chunks_mut(8).enumerate() {
            // the row of one block has at least four words, so the first four are there, if not all of scales
            if let Some(words) = row.get(4 * i..).and_then(|words| words.first_chunk()) {
                eight.copy_from_slice(&v.scales(words)[..eight.len()]);
            }
        }
    }
}
