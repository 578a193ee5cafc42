//! Attention per instruction set, bit-equal to `ops::attention` (`docs/exactness.md` section 6) at every level, tiling
//! and thread count.
//!
//! Scores: a lane is a position, since keys lie 32 positions side by side. Values: a lane is an element of the head. So
//! no sum is taken across lanes but the two the page defines as trees, and every float operation is the twin's. A tile of
//! `T` query rows that share a key-value head reads and decodes each key and value once; a row whose query lies before a
//! position gives it the weight +0, which leaves sums that start at +0 as they are (the values being finite).
//!
//! Everything is forced inline, so that it is compiled with the instructions of the level that calls it. For the same
//! reason there are no closures in the kernels.

use super::Level;
use super::elementwise::{canon, fexp, tree_sum};
use super::lanes::{Lanes, Word};
use super::portable::Portable;
use crate::ops::attention::{AttentionParams, CHUNK};
use crate::ops::cache::{CacheType, element};
use crate::ops::exact::{SCALE_MIN, fdiv};
use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Largest head.
const MAX_HEAD: usize = 256;

/// Elements in a block of q8_0 and q4_0, and positions side by side in the keys.
const BLOCK: usize = 32;

/// Query rows of a tile at most.
const TILE: usize = 4;

/// Scores of a chunk, by halves.
type Scores = [[f32; BLOCK]; CHUNK / BLOCK];

/// The elements of a head by 32, as much of them as it has.
type Head = [[f32; BLOCK]; MAX_HEAD / BLOCK];

/// What values need besides [`Lanes`]: the elements of one row side by side. The rows are in memory as
/// `ops::cache::CacheType` lays them out.
trait RowLanes: Lanes {
    /// N words of f32.
    fn f32_row(self, words: &[u32]) -> Self::F;
    /// N finite f16 in N / 2 words.
    fn f16_row(self, words: &[u32]) -> Self::F;
    /// d times N signed bytes in N / 4 words.
    fn q8_row(self, words: &[u32], d: f32) -> Self::F;
    /// d times (code - 8): elements `N * part ..` of the block of q4_0 in four words.
    fn q4_row(self, words: &[u32], part: usize, d: f32) -> Self::F;
    /// Eight f16 in four words. Those that are not finite may give anything.
    fn scales(self, words: &[u32; 4]) -> [f32; MAX_HEAD / BLOCK];
}

impl RowLanes for Portable {
    #[inline(always)]
    fn f32_row(self, words: &[u32]) -> Self::F {
        let mut out = [0.0; Self::N];
        for l in 0..Self::N {
            out[l] = f32::from_bits(words[l]);
        }
        out
    }
    #[inline(always)]
    fn f16_row(self, words: &[u32]) -> Self::F {
        let mut halves = [0u32; Self::N];
        for i in 0..Self::N / 2 {
            halves[2 * i] = words[i] & 0xffff;
            halves[2 * i + 1] = words[i] >> 16;
        }
        let mut out = [0.0; Self::N];
        for l in 0..Self::N {
            // exponent and mantissa in place but for the bias; the product is exact, of subnormals too
            let magnitude = f32::from_bits((halves[l] & 0x7fff) << 13) * f32::from_bits((127 + 127 - 15) << 23);
            out[l] = f32::from_bits(magnitude.to_bits() | (halves[l] & 0x8000) << 16);
        }
        out
    }
    #[inline(always)]
    fn q8_row(self, words: &[u32], d: f32) -> Self::F {
        let bytes = [words[0].to_le_bytes(), words[1].to_le_bytes()];
        let mut out = [0.0; Self::N];
        for l in 0..Self::N {
            out[l] = d * f32::from(bytes[l / 4][l % 4] as i8);
        }
        out
    }
    #[inline(always)]
    fn q4_row(self, words: &[u32], part: usize, d: f32) -> Self::F {
        let (first, shift) = (part % 2 * 2, part / 2 * 4);
        let pair = [words[first] >> shift & 0x0f0f_0f0f, words[first + 1] >> shift & 0x0f0f_0f0f];
        let bytes = [pair[0].to_le_bytes(), pair[1].to_le_bytes()];
        let mut out = [0.0; Self::N];
        for l in 0..Self::N {
            out[l] = d * (i32::from(bytes[l / 4][l % 4]) - 8) as f32;
        }
        out
    }
    #[inline(always)]
    fn scales(self, words: &[u32; 4]) -> [f32; MAX_HEAD / BLOCK] {
        self.f16_row(words)
    }
}

/// Wraps intrinsics. The one reason they are sound is given here.
#[cfg(target_arch = "x86_64")]
macro_rules! intrinsics {
    ($e:expr) => {
        // SAFETY: a value of the level's type exists only where its `new` was allowed, so the CPU has the instructions;
        // what they read or write through pointers is a slice or array of as many bytes.
        unsafe { $e }
    };
}

#[cfg(target_arch = "x86_64")]
impl RowLanes for Avx2 {
    #[inline(always)]
    fn f32_row(self, words: &[u32]) -> __m256 {
        let words = &words[..8];
        intrinsics!(_mm256_loadu_ps(words.as_ptr().cast()))
    }
    #[inline(always)]
    fn f16_row(self, words: &[u32]) -> __m256 {
        let words = &words[..4];
        intrinsics!(_mm256_cvtph_ps(_mm_loadu_si128(words.as_ptr().cast())))
    }
    #[inline(always)]
    fn q8_row(self, words: &[u32], d: f32) -> __m256 {
        let words = &words[..2];
        intrinsics!({
            let codes = _mm256_cvtepi8_epi32(_mm_loadl_epi64(words.as_ptr().cast()));
            _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(codes))
        })
    }
    #[inline(always)]
    fn q4_row(self, words: &[u32], part: usize, d: f32) -> __m256 {
        let words = &words[part % 2 * 2..][..2];
        intrinsics!({
            let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(words.as_ptr().cast()));
            let nibbles =
                if part < 2 { _mm256_and_si256(bytes, _mm256_set1_epi32(15)) } else { _mm256_srli_epi32::<4>(bytes) };
            let codes = _mm256_sub_epi32(nibbles, _mm256_set1_epi32(8));
            _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(codes))
        })
    }
    #[inline(always)]
    fn scales(self, words: &[u32; 4]) -> [f32; MAX_HEAD / BLOCK] {
        scales_f16c(words)
    }
}

#[cfg(target_arch = "x86_64")]
impl RowLanes for Avx512 {
    #[inline(always)]
    fn f32_row(self, words: &[u32]) -> __m512 {
        let words = &words[..16];
        intrinsics!(_mm512_loadu_ps(words.as_ptr().cast()))
    }
    #[inline(always)]
    fn f16_row(self, words: &[u32]) -> __m512 {
        let words = &words[..8];
        intrinsics!(_mm512_cvtph_ps(_mm256_loadu_si256(words.as_ptr().cast())))
    }
    #[inline(always)]
    fn q8_row(self, words: &[u32], d: f32) -> __m512 {
        let words = &words[..4];
        intrinsics!({
            let codes = _mm512_cvtepi8_epi32(_mm_loadu_si128(words.as_ptr().cast()));
            _mm512_mul_ps(_mm512_set1_ps(d), _mm512_cvtepi32_ps(codes))
        })
    }
    #[inline(always)]
    fn q4_row(self, words: &[u32], part: usize, d: f32) -> __m512 {
        let words = &words[..4];
        intrinsics!({
            // the permutation looks at the low four bits only
            let codes = _mm512_setr_ps(-8., -7., -6., -5., -4., -3., -2., -1., 0., 1., 2., 3., 4., 5., 6., 7.);
            let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(words.as_ptr().cast()));
            let nibbles = if part == 0 { bytes } else { _mm512_srli_epi32::<4>(bytes) };
            _mm512_mul_ps(_mm512_set1_ps(d), _mm512_permutexvar_ps(nibbles, codes))
        })
    }
    #[inline(always)]
    fn scales(self, words: &[u32; 4]) -> [f32; MAX_HEAD / BLOCK] {
        scales_f16c(words)
    }
}

/// Only for the methods above, whose levels have F16C.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn scales_f16c(words: &[u32; 4]) -> [f32; MAX_HEAD / BLOCK] {
    let mut out = [0f32; MAX_HEAD / BLOCK];
    intrinsics!(_mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(words.as_ptr().cast()))));
    out
}

// ---------------------------------------------------------------- queries

/// A query head as two int8 digits packed four to a word, as the cached codes are (`ops::attention::QueryDigits`).
#[derive(Clone, Copy)]
struct Digits {
    /// the scale, 0 for a zero query
    d: f32,
    /// low digits of every block
    low: [[u32; BLOCK / 4]; MAX_HEAD / BLOCK],
    /// high digits of every block
    high: [[u32; BLOCK / 4]; MAX_HEAD / BLOCK],
    /// sums of every block's digits, low and high
    sums: [[i32; 2]; MAX_HEAD / BLOCK],
}

impl Digits {
    const ZERO: Digits = Digits { d: 0.0, low: [[0; 8]; 8], high: [[0; 8]; 8], sums: [[0; 2]; 8] };

    #[inline(always)]
    fn new(q: &[f32]) -> Digits {
        let (blocks, _) = q.as_chunks::<BLOCK>();
        let mut most = [0f32; BLOCK];
        for x in blocks {
            for l in 0..BLOCK {
                most[l] = if x[l].abs() > most[l] { x[l].abs() } else { most[l] };
            }
        }
        let d = fdiv(max_of(&mut most), 16256.0);
        let mut r = Digits::ZERO;
        if d < SCALE_MIN {
            return r;
        }
        r.d = d;
        let inv = fdiv(1.0, d);
        for (b, x) in blocks.iter().enumerate() {
            let mut codes = [0i32; BLOCK];
            for l in 0..BLOCK {
                // round_away: |x * inv| is at most 16256 and a little, where the conversion and t - x are exact
                let x = x[l] * inv;
                let t = x as i32;
                let up = (x - t as f32).abs() >= 0.5;
                let c = t + if up { if x < 0.0 { -1 } else { 1 } } else { 0 };
                codes[l] = c.clamp(-16256, 16256);
            }
            let (mut low, mut high) = ([0i32; BLOCK], [0i32; BLOCK]);
            for l in 0..BLOCK {
                high[l] = (codes[l] + 64) >> 7;
                low[l] = codes[l] - 128 * high[l];
                r.sums[b][0] += low[l];
                r.sums[b][1] += high[l];
            }
            for i in 0..BLOCK / 4 {
                for e in 0..4 {
                    r.low[b][i] |= (low[4 * i + e] as u32 & 255) << (8 * e);
                    r.high[b][i] |= (high[4 * i + e] as u32 & 255) << (8 * e);
                }
            }
        }
        r
    }
}

/// The largest, in place.
#[inline(always)]
fn max_of<const N: usize>(v: &mut [f32; N]) -> f32 {
    const { assert!(N.is_power_of_two()) }
    let mut s = N / 2;
    while s > 0 {
        let (low, high) = v.split_at_mut(s);
        for l in 0..s {
            low[l] = if high[l] > low[l] { high[l] } else { low[l] };
        }
        s /= 2;
    }
    v[0]
}

// ---------------------------------------------------------------- scores

/// q · k of a chunk for f32 and f16 keys, `U` vectors of positions at a time; `words` are those of each half's keys.
#[inline(always)]
fn float_scores<V: Lanes, const F16: bool, const T: usize, const U: usize>(
    v: V,
    keys: [&[Word]; 2],
    q: [&[f32]; T],
    s: &mut [Scores; T],
) {
    for at in (0..CHUNK).step_by(U * V::N) {
        // U vectors lie in one half, or in both when they are the whole chunk
        let first = if U * V::N > BLOCK { 0 } else { at / BLOCK };
        let second = if U * V::N > BLOCK { 1 } else { first };
        let offset = at % BLOCK / V::N;
        let n = keys[0].len();
        let (first, second) = (&keys[first][..n], &keys[second][..n]);
        let mut acc = [[v.float(0.0); U]; T];
        for i in 0..n {
            let mut q0 = [0f32; T];
            let mut q1 = [0f32; T];
            for t in 0..T {
                q0[t] = q[t][if F16 { 2 * i } else { i }];
                q1[t] = if F16 { q[t][2 * i + 1] } else { 0.0 };
            }
            for u in 0..U {
                let words = if u * V::N < BLOCK { &first[i] } else { &second[i] };
                let words = v.load(words, offset + u % (BLOCK / V::N));
                if F16 {
                    let (low, high) = v.f16_pair(words);
                    for t in 0..T {
                        acc[t][u] = v.add_f(acc[t][u], v.mul_f(v.float(q0[t]), low));
                        acc[t][u] = v.add_f(acc[t][u], v.mul_f(v.float(q1[t]), high));
                    }
                } else {
                    let k = v.as_f(words);
                    for t in 0..T {
                        acc[t][u] = v.add_f(acc[t][u], v.mul_f(v.float(q0[t]), k));
                    }
                }
            }
        }
        for t in 0..T {
            for u in 0..U {
                let half = if u * V::N < BLOCK { at / BLOCK } else { 1 };
                v.store(acc[t][u], &mut s[t][half], offset + u % (BLOCK / V::N));
            }
        }
    }
}

/// T_b of one block and one vector of positions: the dots with both digits, joined.
#[inline(always)]
fn block_dots<V: Lanes, const Q8: bool, const T: usize>(
    v: V,
    codes: &[Word],
    part: usize,
    digits: &[Digits; T],
    b: usize,
) -> [V::F; T] {
    let bias = if Q8 { V::SIGNED_BIAS } else { 8 };
    let (mut low, mut high) = ([v.int(0); T], [v.int(0); T]);
    for t in 0..T {
        low[t] = v.int(-bias * digits[t].sums[b][0]);
        high[t] = v.int(-bias * digits[t].sums[b][1]);
    }
    if Q8 {
        for i in 0..BLOCK / 4 {
            let w = v.signed(v.load(&codes[i], part));
            for t in 0..T {
                low[t] = v.dot_signed(low[t], w, digits[t].low[b][i]);
                high[t] = v.dot_signed(high[t], w, digits[t].high[b][i]);
            }
        }
    } else {
        for i in 0..BLOCK / 8 {
            let w = v.load(&codes[i], part);
            let (w0, w1) = (v.and(w, 0x0f0f_0f0f), v.and(v.shr(w, 4), 0x0f0f_0f0f));
            for t in 0..T {
                low[t] = v.dot_unsigned(low[t], w0, digits[t].low[b][i]);
                high[t] = v.dot_unsigned(high[t], w0, digits[t].high[b][i]);
                low[t] = v.dot_unsigned(low[t], w1, digits[t].low[b][i + 4]);
                high[t] = v.dot_unsigned(high[t], w1, digits[t].high[b][i + 4]);
            }
        }
    }
    let mut out = [v.float(0.0); T];
    for t in 0..T {
        out[t] = v.add_f(v.mul_f(v.to_f(high[t]), v.float(128.0)), v.to_f(low[t]));
    }
    out
}

/// The sums over blocks of a chunk for q8_0 and q4_0 keys, one vector of positions at a time.
#[inline(always)]
fn quantised_scores<V: Lanes, const Q8: bool, const T: usize>(
    v: V,
    keys: [&[Word]; 2],
    nb: usize,
    digits: &[Digits; T],
    s: &mut [Scores; T],
) {
    let words = if Q8 { BLOCK / 4 } else { BLOCK / 8 };
    for half in 0..2 {
        let (scales, codes) = keys[half].split_at(nb.div_ceil(2));
        for part in 0..BLOCK / V::N {
            let mut acc = [v.float(0.0); T];
            for pair in 0..scales.len() {
                let (d0, d1) = v.f16_pair(v.load(&scales[pair], part));
                let dots = block_dots::<V, Q8, T>(v, &codes[2 * pair * words..][..words], part, digits, 2 * pair);
                for t in 0..T {
                    acc[t] = v.add_f(acc[t], v.mul_f(d0, dots[t]));
                }
                if 2 * pair + 1 < nb {
                    let b = 2 * pair + 1;
                    let dots = block_dots::<V, Q8, T>(v, &codes[b * words..][..words], part, digits, b);
                    for t in 0..T {
                        acc[t] = v.add_f(acc[t], v.mul_f(d1, dots[t]));
                    }
                }
            }
            for t in 0..T {
                v.store(acc[t], &mut s[t][half], part);
            }
        }
    }
}

// ---------------------------------------------------------------- values

/// A cache type of values.
trait Values {
    const TYPE: CacheType;
    /// The words of a row that hold elements `e..e + n`, `e` a multiple of N; `codes` is where codes begin.
    fn words(row: &[u32], codes: usize, e: usize, n: usize) -> &[u32];
    /// N elements from `e + at` on, of the words that were asked for with `e`.
    fn part<V: RowLanes>(v: V, words: &[u32], e: usize, at: usize, scales: &[f32; MAX_HEAD / BLOCK]) -> V::F;
}

struct F32;
struct F16;
struct Q8_0;
struct Q4_0;

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
struct Rows<'a> {
    /// the words of all positions up to the last that counts
    words: &'a [u32],
    /// words of one row
    stride: usize,
    head_dim: usize,
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
fn weigh<V: RowLanes, Y: Values, const T: usize, const W: usize>(
    v: V,
    rows: &Rows,
    p: &[[f32; CHUNK]; T],
    scales: &mut [[f32; MAX_HEAD / BLOCK]; CHUNK],
    o: &mut [Head; T],
) {
    let hd = rows.head_dim;
    if matches!(Y::TYPE, CacheType::Q8_0 | CacheType::Q4_0) {
        for (row, scales) in rows.words.chunks_exact(rows.stride).zip(&mut *scales) {
            // the row of one block has five words, so the first four are there, if not all of scales
            if let Some(words) = row.first_chunk() {
                *scales = v.scales(words);
            }
        }
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
struct Carried {
    m: f32,
    l: f32,
    o: Head,
    /// positions of this page the row sees
    seen: usize,
    fresh: bool,
}

/// What all rows of a command share.
#[derive(Clone, Copy)]
struct Page<'a> {
    types: (CacheType, CacheType),
    p: &'a AttentionParams,
    k: &'a [u32],
    v: &'a [u32],
}

/// `T` rows that share a key-value head. `U`: vectors of positions at a time, `W`: of elements; as many as leave the
/// sums in registers.
#[inline(always)]
fn tile<V: RowLanes, const T: usize, const U: usize, const W: usize>(v: V, page: Page, rows: &mut [Row; T]) {
    let Page { types: (kt, vt), p, k, v: values } = page;
    let hd = p.head_dim as usize;
    let (positions, first) = (p.page_len as usize, p.page_first as usize);
    let kv_head = rows[0].row % p.heads as usize / (p.heads / p.kv_heads) as usize;
    let (kwords, vwords) = (words(kt, hd), words(vt, hd));
    let (keys, _) = k[kv_head * positions * kwords..][..positions * kwords].as_chunks::<BLOCK>();
    let values = &values[kv_head * positions * vwords..][..positions * vwords];

    let mut q: [&[f32]; T] = [&[]; T];
    let mut digits = [Digits::ZERO; T];
    let mut scale = [p.scale; T];
    let mut carried = [Carried { m: 0.0, l: 0.0, o: [[0.0; BLOCK]; MAX_HEAD / BLOCK], seen: 0, fresh: first == 0 }; T];
    let mut seen_by_any = 0;
    for t in 0..T {
        q[t] = rows[t].q;
        let c = &mut carried[t];
        let query = p.pos as usize + rows[t].row / p.heads as usize;
        c.seen = (query + 1).saturating_sub(first).min(positions);
        seen_by_any = seen_by_any.max(c.seen);
        if c.seen > 0 && !c.fresh {
            let state = &rows[t].state[..hd + 2];
            (c.m, c.l) = (state[0], state[1]);
            c.o.as_flattened_mut()[..hd].copy_from_slice(&state[2..]);
        }
        if matches!(kt, CacheType::Q8_0 | CacheType::Q4_0) {
            digits[t] = Digits::new(q[t]);
            scale[t] = digits[t].d * p.scale;
        }
    }

    // made once: every chunk writes what it reads of them
    let mut s = [[[0f32; BLOCK]; CHUNK / BLOCK]; T];
    let mut probs = [[0f32; CHUNK]; T];
    let mut oc = [[[0f32; BLOCK]; MAX_HEAD / BLOCK]; T];
    let mut scales = [[0f32; MAX_HEAD / BLOCK]; CHUNK];
    for chunk in (0..seen_by_any).step_by(CHUNK) {
        let (_, keys) = keys.split_at(chunk / BLOCK * kwords);
        let keys = [&keys[..kwords], &keys[kwords..][..kwords]];
        match kt {
            CacheType::F32 => float_scores::<V, false, T, U>(v, keys, q, &mut s),
            CacheType::F16 => float_scores::<V, true, T, U>(v, keys, q, &mut s),
            CacheType::Q8_0 => quantised_scores::<V, true, T>(v, keys, hd / BLOCK, &digits, &mut s),
            CacheType::Q4_0 => quantised_scores::<V, false, T>(v, keys, hd / BLOCK, &digits, &mut s),
        }
        let (mut mc, mut n) = ([0f32; T], [0; T]);
        let mut even = true;
        for t in 0..T {
            n[t] = carried[t].seen.saturating_sub(chunk).min(CHUNK);
            mc[t] = probabilities(s[t].as_flattened(), scale[t], n[t], &mut probs[t]);
            even &= n[t] == n[0];
        }
        let values = &values[chunk * vwords..];
        let words = &values[..(seen_by_any - chunk).min(CHUNK) * vwords];
        let rows = Rows { words, stride: vwords, head_dim: hd };
        match vt {
            // only this type can hold an infinity, which +0 would make a NaN of for a row that must not see it
            CacheType::F32 if !even => {
                for t in 0..T {
                    let rows = Rows { words: &values[..n[t] * vwords], ..rows };
                    let (p, o) = (std::array::from_ref(&probs[t]), std::array::from_mut(&mut oc[t]));
                    weigh::<V, F32, 1, W>(v, &rows, p, &mut scales, o);
                }
            }
            CacheType::F32 => weigh::<V, F32, T, W>(v, &rows, &probs, &mut scales, &mut oc),
            CacheType::F16 => weigh::<V, F16, T, W>(v, &rows, &probs, &mut scales, &mut oc),
            CacheType::Q8_0 => weigh::<V, Q8_0, T, W>(v, &rows, &probs, &mut scales, &mut oc),
            CacheType::Q4_0 => weigh::<V, Q4_0, T, W>(v, &rows, &probs, &mut scales, &mut oc),
        }
        for t in 0..T {
            if carried[t].seen > chunk {
                join(&mut carried[t], mc[t], &mut probs[t], &oc[t], hd);
            }
        }
    }

    for t in 0..T {
        let Row { row, state, out, .. } = &mut rows[t];
        let query = p.pos as usize + *row / p.heads as usize;
        let c = &carried[t];
        let o = &c.o.as_flattened()[..hd];
        if c.seen == 0 {
            continue;
        } else if query < first + positions {
            let inv = fdiv(1.0, c.l);
            for (out, o) in out.iter_mut().zip(o) {
                *out = canon(o * inv);
            }
        } else {
            (state[0], state[1]) = (c.m, c.l);
            state[2..hd + 2].copy_from_slice(o);
        }
    }
}

/// Words of a cached row.
fn words(t: CacheType, head_dim: usize) -> usize {
    t.words(head_dim).unwrap_or_else(|| panic!("attention: {} cannot hold a head of {head_dim}", t.name()))
}

/// The chunk's maximum, and p of its 64 positions, of which the first `n` count; `s` is not scaled yet.
#[inline(always)]
fn probabilities(s: &[f32], scale: f32, n: usize, p: &mut [f32; CHUNK]) -> f32 {
    let mut scaled = [0f32; CHUNK];
    for i in 0..CHUNK {
        scaled[i] = if i < n { s[i] * scale } else { f32::MIN };
    }
    let mut most = scaled;
    let mc = max_of(&mut most);
    for i in 0..CHUNK {
        let x = canon(fexp(scaled[i] - mc));
        p[i] = if i < n { x } else { 0.0 };
    }
    mc
}

/// Joins a chunk's (m, l, o) to those of the chunks before it.
#[inline(always)]
fn join(c: &mut Carried, mc: f32, probs: &mut [f32; CHUNK], oc: &Head, hd: usize) {
    let lc = tree_sum(probs);
    if c.fresh {
        (c.m, c.l, c.o, c.fresh) = (mc, lc, *oc, false);
        return;
    }
    let new = if mc > c.m { mc } else { c.m };
    let (a, b) = (canon(fexp(c.m - new)), canon(fexp(mc - new)));
    c.l = c.l * a + lc * b;
    for (o, oc) in c.o[..hd.div_ceil(BLOCK)].iter_mut().zip(oc) {
        for l in 0..BLOCK {
            o[l] = o[l] * a + oc[l] * b;
        }
    }
    c.m = new;
}

// ---------------------------------------------------------------- levels

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn tile_avx2<const T: usize, const U: usize, const W: usize>(page: Page, rows: &mut [Row; T]) {
    // SAFETY: this function's own target features.
    let v = unsafe { Avx2::new() };
    tile::<_, T, U, W>(v, page, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tile_avx512<const T: usize, const U: usize, const W: usize>(page: Page, rows: &mut [Row; T]) {
    // SAFETY: this function's own target features.
    let v = unsafe { Avx512::new() };
    tile::<_, T, U, W>(v, page, rows);
}

/// Any number of rows that share a key-value head, in tiles. The caller has checked the level.
fn run(level: Level, page: Page, rows: &mut [Row]) {
    let (fours, rest) = rows.as_chunks_mut::<TILE>();
    for rows in fours {
        match level {
            Level::Portable => tile::<_, 4, 1, 1>(Portable, page, rows),
            // SAFETY: the caller checked that the level is available.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { tile_avx2::<4, 2, 2>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { tile_avx512::<4, 4, 4>(page, rows) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("only available levels come here"),
        }
    }
    let (twos, rest) = rest.as_chunks_mut::<2>();
    for rows in twos {
        match level {
            Level::Portable => tile::<_, 2, 1, 2>(Portable, page, rows),
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { tile_avx2::<2, 4, 4>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { tile_avx512::<2, 4, 8>(page, rows) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("only available levels come here"),
        }
    }
    let (ones, _) = rest.as_chunks_mut::<1>();
    for rows in ones {
        match level {
            Level::Portable => tile::<_, 1, 2, 4>(Portable, page, rows),
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { tile_avx2::<1, 8, 8>(page, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { tile_avx512::<1, 4, 8>(page, rows) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("only available levels come here"),
        }
    }
}

/// What every entry checks.
fn check(level: Level, (kt, vt): (CacheType, CacheType), p: &AttentionParams, k: &[u32], v: &[u32]) {
    assert!(level.is_available(), "attention: this CPU does not have {}", level.name());
    let (hd, page) = (p.head_dim as usize, p.page_len as usize);
    assert!((1..=MAX_HEAD).contains(&hd), "attention: a head of {hd} elements, expected 1..=256");
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
/// `q` and `out` `[head_dim]`; `k` and `v` one page of the cache; `state` `[m, l, o[head_dim]]`, which may be empty when
/// the whole context is one page. Allocates nothing.
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
    state: &mut [f32],
    out: &mut [f32],
) {
    check(level, types, p, k, v);
    let hd = p.head_dim as usize;
    run(level, Page { types, p, k, v }, &mut [Row { row, q: &q[..hd], state, out: &mut out[..hd] }]);
}

/// The whole command, with the bits of `ops::attention::attention` at every level and thread count: `q` and `out`
/// `[token][heads][head_dim]`; `k` and `v` one page of the cache; `state` `[token][heads][m, l, o[head_dim]]`, or shorter
/// when the whole context is one page. Runs on rayon's current pool, in parallel over key-value heads and tiles of rows.
///
/// Panics when a length does not fit or when this CPU does not have `level`.
pub fn attention(
    level: Level,
    types: (CacheType, CacheType),
    p: &AttentionParams,
    q: &[f32],
    k: &[u32],
    v: &[u32],
    state: &mut [f32],
    out: &mut [f32],
) {
    check(level, types, p, k, v);
    let (hd, heads, kv_heads) = (p.head_dim as usize, p.heads as usize, p.kv_heads as usize);
    let (sharing, n) = (heads / kv_heads, p.n_tokens as usize * heads);
    if n == 0 {
        return;
    }
    let out = out[..n * hd].chunks_exact_mut(hd);
    let mut states = state.chunks_exact_mut(hd + 2);
    let carries = states.len() >= n;
    let mut rows: Vec<Row> = Vec::with_capacity(n);
    for (row, (q, out)) in q[..n * hd].chunks_exact(hd).zip(out).enumerate() {
        let state = if carries { states.next().unwrap_or_default() } else { &mut [] };
        rows.push(Row { row, q, state, out });
    }
    // rows of one key-value head together, late tokens first: they see most, and a thread should not meet them last
    rows.sort_unstable_by_key(|r| (r.row % heads / sharing, std::cmp::Reverse(r.row)));

    let page = Page { types, p, k, v };
    let per_head = n / kv_heads;
    // a smaller tile costs more work in all, so only as small as it takes to give every thread some
    let mut size = TILE;
    while size > 1 && kv_heads * per_head.div_ceil(size) < rayon::current_num_threads() {
        size /= 2;
    }
    rows.par_chunks_mut(per_head).for_each(|rows| rows.par_chunks_mut(size).for_each(|rows| run(level, page, rows)));
}
