//! Scores of a chunk: a lane is a position. Keys of floats are multiplied as they are; keys of codes with the query's two
//! digits, in exact integer sums per block of 32 elements. Must not scale scores or know where queries come from.

use super::RowLanes;
use super::{BLOCK, Scores, is_float};
use crate::ops::attention::CHUNK;
use crate::ops::cache::CacheType;
use crate::ops::exact::{SCALE_MIN, fdiv, not_finite};
use crate::ops::tq3::{TQ3_0_INNER, TQ3_0_OUTER};
use crate::simd::kernels::greatest;
use crate::simd::lanes::{Lanes, Word};

// ---------------------------------------------------------------- queries

/// A query head of `B` blocks at most as two int8 digits packed four to a word, in the order of the cached codes
/// (`ops::attention::QueryDigits`).
#[derive(Clone, Copy)]
pub(super) struct Digits<const B: usize> {
    /// the scale, 0 for a zero query, `POISON` for one that is not finite
    pub(super) d: f32,
    /// low digits of every block
    low: [[u32; BLOCK / 4]; B],
    /// high digits of every block
    high: [[u32; BLOCK / 4]; B],
    /// both digits as one number, two of them to a word: of the bytes 0 and 2, and 1 and 3, of a word of digits
    pairs: [[[u32; 2]; BLOCK / 4]; B],
    /// sums of every block's digits, low and high
    sums: [[i32; 2]; B],
}

impl<const B: usize> Digits<B> {
    pub(super) const ZERO: Self =
        Digits { d: 0.0, low: [[0; 8]; B], high: [[0; 8]; B], pairs: [[[0; 2]; 8]; B], sums: [[0; 2]; B] };

    /// Of a head, rotated if its keys are; `K` says in which order a block's elements are packed. Made are what the level
    /// multiplies with: the pairs, or the digits apart.
    #[inline(always)]
    pub(super) fn new<V: RowLanes, K: CodedKeys>(q: &[f32]) -> Self {
        let (blocks, _) = q.as_chunks::<BLOCK>();
        // magnitudes in the order of their bits, infinities and NaN above the numbers
        let mut most = [0i32; BLOCK];
        for x in blocks {
            for l in 0..BLOCK {
                most[l] = most[l].max(x[l].to_bits() as i32 & i32::MAX);
            }
        }
        let d = fdiv(f32::from_bits(greatest(&mut most) as u32), 16256.0);
        let mut r = Self::ZERO;
        if d < SCALE_MIN {
            return r;
        }
        r.d = d;
        if not_finite(d) {
            return r;
        }
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
            let (mut low_all, mut high_all) = (0, 0);
            for l in 0..BLOCK {
                high[l] = (codes[l] + 64) >> 7;
                low[l] = codes[l] - 128 * high[l];
                low_all += low[l];
                high_all += high[l];
            }
            r.sums[b] = [low_all, high_all];
            if V::HALVES {
                r.pairs[b] = pairs(&codes, K::TRANSPOSED);
            } else {
                (r.low[b], r.high[b]) = (bytes(&low, K::TRANSPOSED), bytes(&high, K::TRANSPOSED));
            }
        }
        r
    }
}

/// Four to a word: elements 4 i.. in order, or, of each 16, those 4 apart (see [`CodedKeys::TRANSPOSED`]).
#[inline(always)]
fn bytes(digits: &[i32; BLOCK], transposed: bool) -> [u32; BLOCK / 4] {
    let mut out = [0; BLOCK / 4];
    if transposed {
        for (out, x) in out.as_chunks_mut::<4>().0.iter_mut().zip(digits.as_chunks::<16>().0) {
            for e in 0..4 {
                for m in 0..4 {
                    out[m] |= (x[4 * e + m] as u32 & 255) << (8 * e);
                }
            }
        }
    } else {
        for (out, x) in out.iter_mut().zip(digits.as_chunks::<4>().0) {
            *out = u32::from_le_bytes([x[0] as u8, x[1] as u8, x[2] as u8, x[3] as u8]);
        }
    }
    out
}

/// As [`bytes`], of whole numbers: of each word of four, bytes 0 and 2, and 1 and 3, as halves.
#[inline(always)]
fn pairs(codes: &[i32; BLOCK], transposed: bool) -> [[u32; 2]; BLOCK / 4] {
    let mut out = [[0; 2]; BLOCK / 4];
    let (from, next) = if transposed { (16, 4) } else { (4, 1) };
    for i in 0..BLOCK / 4 {
        let first = if transposed { i / 4 * from + i % 4 } else { i * from };
        let half = |e: usize| codes[first + e * next] as u32 & 0xffff;
        out[i] = [half(0) | half(2) << 16, half(1) | half(3) << 16];
    }
    out
}

// ---------------------------------------------------------------- scores

/// Words of a cache line.
pub(super) const LINE: usize = 16;

/// How far behind what is read the same of the next chunk lies, in bytes; that is asked for where it is known, into the
/// second-level cache, line by line beside the work: a core has room for some 24 lines that are on their way, and waits with more.
#[derive(Clone, Copy)]
pub(super) struct Next(Option<isize>);

impl Next {
    /// Of `this` and `next`, in the same page of a cache of type `t`, of which `next` may be empty; and what is left to be asked
    /// for apart. That is all of it where a vector is less than a line, and of codes, which are few lines for much work: then
    /// asking beside the work costs more than it brings.
    #[inline(always)]
    pub(super) fn new<'a, V: Lanes>(t: CacheType, this: &[u32], next: &'a [u32]) -> (Next, &'a [u32]) {
        if V::N < LINE || !is_float(t) {
            return (Next(None), next);
        }
        let distance = next.as_ptr().addr().wrapping_sub(this.as_ptr().addr());
        (Next((!next.is_empty()).then_some(distance as isize)), &[])
    }

    /// Asks for what lies so far behind vector `part` of `word`, which the caller reads.
    #[inline(always)]
    fn ask<V: Lanes>(self, v: V, word: &Word, part: usize) {
        if (part * V::N).is_multiple_of(LINE) {
            self.ask_line(v, &word[part * V::N..]);
        }
    }

    /// The same of the lines of `words`.
    #[inline(always)]
    pub(super) fn ask_lines<V: Lanes>(self, v: V, words: &[u32]) {
        for line in words.chunks(LINE) {
            self.ask_line(v, line);
        }
    }

    #[inline(always)]
    fn ask_line<V: Lanes>(self, v: V, line: &[u32]) {
        if let Next(Some(distance)) = self {
            v.prefetch_far(line.as_ptr().cast::<u8>().wrapping_offset(distance));
        }
    }
}

/// q · k of a chunk for f32 and f16 keys, `U` vectors of positions at a time; `words` are those of each half's keys.
#[inline(always)]
pub(super) fn float_scores<V: Lanes, const F16: bool, const T: usize, const U: usize>(
    v: V,
    keys: [&[Word]; 2],
    q: [&[f32]; T],
    next: Next,
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
                next.ask(v, words, offset + u % (BLOCK / V::N));
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

/// A type of keys that stores codes in blocks of 32 elements.
pub(super) trait CodedKeys {
    /// Words of a block's codes.
    const WORDS: usize;
    /// Byte `e` of word `i` of the query's digits is element 4 i + e of a block, or, where this is set, 16 (i / 4) +
    /// 4 e + i % 4: byte `e` of a word of two-bit codes shifted right by 2 m holds element 4 e + m of the word's 16, so
    /// that the codes need no spreading.
    const TRANSPOSED: bool = false;
    /// What the block's scale is multiplied with, per row, of one block and one vector of positions.
    fn dots<V: RowLanes, const T: usize, const B: usize>(
        v: V,
        codes: &[Word],
        part: usize,
        digits: &[Digits<B>; T],
        b: usize,
    ) -> [V::F; T];
}

pub(super) struct Q8_0;
pub(super) struct Q4_0;
pub(super) struct Tq3_0;
pub(super) struct Tq3_1;

/// The dots with both digits, joined.
#[inline(always)]
fn joined<V: Lanes>(v: V, high: V::I, low: V::I) -> V::F {
    v.add_f(v.mul_f(v.to_f(high), v.float(128.0)), v.to_f(low))
}

/// Dots of the words of a block, as signed halves, with the whole query. The two digits' sums are exact in f32, and so is
/// 128 times the high one: their joining rounds once, as the conversion of the whole sum does.
#[inline(always)]
fn dot_pairs<V: RowLanes, const T: usize, const B: usize>(
    v: V,
    sums: &mut [V::I; T],
    (even, odd): (V::I, V::I),
    digits: &[Digits<B>; T],
    b: usize,
    i: usize,
) {
    for t in 0..T {
        let [q0, q1] = digits[t].pairs[b][i];
        sums[t] = v.dot_halves(v.dot_halves(sums[t], even, q0), odd, q1);
    }
}

#[inline(always)]
fn to_f_all<V: Lanes, const T: usize>(v: V, sums: &[V::I; T]) -> [V::F; T] {
    let mut out = [v.float(0.0); T];
    for t in 0..T {
        out[t] = v.to_f(sums[t]);
    }
    out
}

/// Sums of low and high digits to start from when every weight has `bias` added.
#[inline(always)]
fn start<V: Lanes, const T: usize, const B: usize>(
    v: V,
    bias: i32,
    digits: &[Digits<B>; T],
    b: usize,
) -> ([V::I; T], [V::I; T]) {
    let (mut low, mut high) = ([v.int(0); T], [v.int(0); T]);
    for t in 0..T {
        low[t] = v.int(-bias * digits[t].sums[b][0]);
        high[t] = v.int(-bias * digits[t].sums[b][1]);
    }
    (low, high)
}

#[inline(always)]
fn joined_all<V: Lanes, const T: usize>(v: V, high: &[V::I; T], low: &[V::I; T]) -> [V::F; T] {
    let mut out = [v.float(0.0); T];
    for t in 0..T {
        out[t] = joined(v, high[t], low[t]);
    }
    out
}

impl CodedKeys for Q8_0 {
    const WORDS: usize = BLOCK / 4;
    #[inline(always)]
    fn dots<V: RowLanes, const T: usize, const B: usize>(
        v: V,
        codes: &[Word],
        part: usize,
        digits: &[Digits<B>; T],
        b: usize,
    ) -> [V::F; T] {
        if V::HALVES {
            let mut sums = [v.int(0); T];
            for i in 0..BLOCK / 4 {
                dot_pairs(v, &mut sums, v.halves(v.signed(v.load(&codes[i], part))), digits, b, i);
            }
            return to_f_all(v, &sums);
        }
        let (mut low, mut high) = start(v, V::SIGNED_BIAS, digits, b);
        for i in 0..BLOCK / 4 {
            let w = v.signed(v.load(&codes[i], part));
            for t in 0..T {
                low[t] = v.dot_signed(low[t], w, digits[t].low[b][i]);
                high[t] = v.dot_signed(high[t], w, digits[t].high[b][i]);
            }
        }
        joined_all(v, &high, &low)
    }
}

impl CodedKeys for Q4_0 {
    const WORDS: usize = BLOCK / 8;
    #[inline(always)]
    fn dots<V: RowLanes, const T: usize, const B: usize>(
        v: V,
        codes: &[Word],
        part: usize,
        digits: &[Digits<B>; T],
        b: usize,
    ) -> [V::F; T] {
        if V::HALVES {
            let mut sums = [v.int(0); T];
            for t in 0..T {
                let [low_all, high_all] = digits[t].sums[b];
                sums[t] = v.int(-8 * (128 * high_all + low_all));
            }
            for i in 0..BLOCK / 8 {
                let w = v.load(&codes[i], part);
                let low = (v.and(w, 0x000f_000f), v.and(v.shr(w, 8), 0x000f_000f));
                let high = (v.and(v.shr(w, 4), 0x000f_000f), v.and(v.shr(w, 12), 0x000f_000f));
                dot_pairs(v, &mut sums, low, digits, b, i);
                dot_pairs(v, &mut sums, high, digits, b, i + 4);
            }
            return to_f_all(v, &sums);
        }
        let (mut low, mut high) = start(v, 8, digits, b);
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
        joined_all(v, &high, &low)
    }
}

impl CodedKeys for Tq3_0 {
    const WORDS: usize = 3;
    const TRANSPOSED: bool = true;
    #[inline(always)]
    fn dots<V: RowLanes, const T: usize, const B: usize>(
        v: V,
        codes: &[Word],
        part: usize,
        digits: &[Digits<B>; T],
        b: usize,
    ) -> [V::F; T] {
        // With the sums of the digits where the code's bit 0 and where its bit 1 is set: the inner level's signed sum
        // (code 1: -1, code 2: +1) is second - first, the outer's (0: -1, 3: +1) is first + second - all.
        if V::HALVES {
            let mut sums = [[v.int(0); T]; 2];
            for half in 0..2 {
                let w = v.load(&codes[half], part);
                for m in 0..4 {
                    for bit in 0..2 {
                        let set = v.shr(w, (2 * m + bit) as u32);
                        let pair = (v.and(set, 0x0001_0001), v.and(v.shr(set, 8), 0x0001_0001));
                        dot_pairs(v, &mut sums[bit], pair, digits, b, 4 * half + m);
                    }
                }
            }
            let mut out = [v.float(0.0); T];
            for t in 0..T {
                let [low_all, high_all] = digits[t].sums[b];
                let inner = v.to_f(v.sub(sums[1][t], sums[0][t]));
                let all = v.int(128 * high_all + low_all);
                let outer = v.to_f(v.sub(v.add(sums[0][t], sums[1][t]), all));
                out[t] = v.add_f(v.mul_f(v.float(TQ3_0_INNER), inner), v.mul_f(v.float(TQ3_0_OUTER), outer));
            }
            return out;
        }
        let (mut low, mut high) = ([[v.int(0); 2]; T], [[v.int(0); 2]; T]);
        for half in 0..2 {
            let w = v.load(&codes[half], part);
            for m in 0..4 {
                let i = 4 * half + m;
                for bit in 0..2 {
                    let set = v.and(v.shr(w, (2 * m + bit) as u32), 0x0101_0101);
                    for t in 0..T {
                        low[t][bit] = v.dot_unsigned(low[t][bit], set, digits[t].low[b][i]);
                        high[t][bit] = v.dot_unsigned(high[t][bit], set, digits[t].high[b][i]);
                    }
                }
            }
        }
        let mut out = [v.float(0.0); T];
        for t in 0..T {
            let [low_all, high_all] = digits[t].sums[b];
            let inner = joined(v, v.sub(high[t][1], high[t][0]), v.sub(low[t][1], low[t][0]));
            let outer_high = v.sub(v.add(high[t][0], high[t][1]), v.int(high_all));
            let outer = joined(v, outer_high, v.sub(v.add(low[t][0], low[t][1]), v.int(low_all)));
            out[t] = v.add_f(v.mul_f(v.float(TQ3_0_INNER), inner), v.mul_f(v.float(TQ3_0_OUTER), outer));
        }
        out
    }
}

impl CodedKeys for Tq3_1 {
    const WORDS: usize = 3;
    const TRANSPOSED: bool = true;
    #[inline(always)]
    fn dots<V: RowLanes, const T: usize, const B: usize>(
        v: V,
        codes: &[Word],
        part: usize,
        digits: &[Digits<B>; T],
        b: usize,
    ) -> [V::F; T] {
        let (mut low, mut high) = start(v, V::SIGNED_BIAS, digits, b);
        let mut sums = [v.int(0); T];
        let qr = v.load(&codes[2], part);
        for half in 0..2 {
            let w = v.load(&codes[half], part);
            // bit m of each byte is the sign that belongs to bits 2 m and 2 m + 1 of the same byte of w
            let signs = v.nibbles(qr, half);
            let levels = [
                v.tq3_1_levels::<2>(w, v.shl(signs, 2)),
                v.tq3_1_levels::<2>(v.shr(w, 2), v.shl(signs, 1)),
                v.tq3_1_levels::<2>(v.shr(w, 4), signs),
                v.tq3_1_levels::<3>(v.shr(w, 6), signs),
            ];
            for m in 0..4 {
                let i = 4 * half + m;
                if V::HALVES {
                    dot_pairs(v, &mut sums, v.halves(levels[m]), digits, b, i);
                    continue;
                }
                for t in 0..T {
                    low[t] = v.dot_signed(low[t], levels[m], digits[t].low[b][i]);
                    high[t] = v.dot_signed(high[t], levels[m], digits[t].high[b][i]);
                }
            }
        }
        if V::HALVES { to_f_all(v, &sums) } else { joined_all(v, &high, &low) }
    }
}

/// The sums over blocks of a chunk for keys of codes, one vector of positions at a time.
#[inline(always)]
pub(super) fn coded_scores<V: RowLanes, K: CodedKeys, const T: usize, const B: usize>(
    v: V,
    keys: [&[Word]; 2],
    nb: usize,
    digits: &[Digits<B>; T],
    s: &mut [Scores; T],
) {
    let words = K::WORDS;
    for half in 0..2 {
        let (scales, codes) = keys[half].split_at(nb.div_ceil(2));
        for part in 0..BLOCK / V::N {
            let mut acc = [v.float(0.0); T];
            for pair in 0..scales.len() {
                let (d0, d1) = v.f16_pair(v.load(&scales[pair], part));
                let dots = K::dots::<V, T, B>(v, &codes[2 * pair * words..][..words], part, digits, 2 * pair);
                for t in 0..T {
                    acc[t] = v.add_f(acc[t], v.mul_f(d0, dots[t]));
                }
                if 2 * pair + 1 < nb {
                    let b = 2 * pair + 1;
                    let dots = K::dots::<V, T, B>(v, &codes[b * words..][..words], part, digits, b);
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
