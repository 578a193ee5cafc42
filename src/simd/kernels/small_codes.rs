//! Kernels of the formats with codes of one, two or three bits in plain binary.

use super::four_blocks::{add_each, scaled as times};
use super::scaled::{Above, Scaled, quantised_by_scales};
use super::{Next, Quantised, ScaledSums, Tile, sum32};
use crate::simd::lanes::{Lanes, Word};

/// Code `n / 8` of the four two-bit ones in every byte.
#[inline(always)]
fn two_bits<V: Lanes>(v: V, word: V::I, j: usize) -> V::I {
    v.and(v.shr(word, 2 * j as u32), 0x0303_0303)
}

/// Minus `by` times the sums of the activations of blocks `from .. to` of 32: where dots of codes `by` above their value
/// begin.
#[inline(always)]
fn below<V: Lanes, const T: usize, const D: usize>(
    v: V,
    by: i32,
    (from, to): (usize, usize),
    a: &Tile<T, D>,
) -> [[V::I; D]; T] {
    let mut s = [[v.int(0); D]; T];
    for t in 0..T {
        for d in 0..D {
            let mut sum = 0;
            for b in from..to {
                sum += sum32(a[t][d], b);
            }
            s[t][d] = v.int(-by * sum);
        }
    }
    s
}

pub(in super::super) struct Q2K;

/// Adds quarter `J` of a group, whose scales are bytes 2 `J % 2` and the next of `scales`.
#[inline(always)]
fn q2k_quarter<V: Lanes, const J: usize, const T: usize, const D: usize>(
    v: V,
    words: &[Word; 8],
    scales: V::I,
    part: usize,
    a: &Tile<T, D>,
    next: Next,
    sums: &mut ScaledSums<V, T, D>,
) {
    let pair = v.shr(scales, (J % 2 * 16) as u32);
    for h in 0..2 {
        let mut dots = [[v.int(0); D]; T];
        sums!(v, next, dot_unsigned, a, dots, 8 * J + 4 * h, 4, |i| {
            two_bits(v, v.load(&words[4 * h + i], part), J)
        });
        let sc = v.and(v.shr(pair, 8 * h as u32), 15);
        for t in 0..T {
            for d in 0..D {
                sums.s[t][d] = v.add(sums.s[t][d], v.mul(sc, dots[t][d]));
            }
        }
    }
    // the two minima, a half each
    let minima = v.or(v.and(v.shr(pair, 4), 0xf), v.and(v.shl(pair, 4), 0x000f_0000));
    for t in 0..T {
        for d in 0..D {
            sums.m[t][d] = v.dot_halves(sums.m[t][d], minima, a[t][d][33 + J]);
        }
    }
}

impl Quantised for Q2K {
    const WORDS: usize = 21;
    const GROUPS: usize = 2;
    const JOINED: bool = true;
    const PAIRED: bool = true;

    #[inline(always)]
    fn group<V: Lanes, const T: usize, const D: usize>(
        v: V,
        block: &[Word],
        part: usize,
        half: usize,
        a: &Tile<T, D>,
        next: Next,
    ) -> [V::F; T] {
        let (first, last) = (v.load(&block[1 + 2 * half], part), v.load(&block[2 + 2 * half], part));
        let words = block[5 + 8 * half..].first_chunk().expect("8 words of codes");
        let mut sums = ScaledSums::new(v);
        q2k_quarter::<V, 0, T, D>(v, words, first, part, a, next, &mut sums);
        q2k_quarter::<V, 1, T, D>(v, words, first, part, a, next, &mut sums);
        q2k_quarter::<V, 2, T, D>(v, words, last, part, a, next, &mut sums);
        q2k_quarter::<V, 3, T, D>(v, words, last, part, a, next, &mut sums);
        sums.finish(v, v.load(&block[0], part))
    }
}

pub(in super::super) struct Q3K;

/// What a quarter of Q3_K is made of.
#[derive(Clone, Copy)]
pub(in super::super) struct ThreeBits<V: Lanes> {
    low: [V::I; 8],
    high: [V::I; 8],
    /// in `low`
    j: usize,
}

impl Scaled for Q3K {
    const WORDS: usize = 28;
    const SIXTEENTHS: bool = true;
    const UNIT: f32 = 1.0;
    const WRITTEN_OUT: bool = true;
    const PAIRED: bool = true;
    type Codes<V: Lanes> = Above<V, 4>;
    type Quarter<V: Lanes> = ThreeBits<V>;

    #[inline(always)]
    fn quarter<V: Lanes>(v: V, block: &[Word], part: usize, half: usize, j: usize) -> ThreeBits<V> {
        let mut q = ThreeBits { low: [v.int(0); 8], high: [v.int(0); 8], j };
        for i in 0..8 {
            q.low[i] = v.load(&block[12 + 8 * half + i], part);
            q.high[i] = v.shr(v.load(&block[4 + i], part), (4 * half + j) as u32);
        }
        q
    }
    #[inline(always)]
    fn pair<V: Lanes>(v: V, q: ThreeBits<V>, m: u32) -> [Above<V, 4>; 2] {
        let mut codes = [Above(v.int(0)); 2];
        for i in 0..2 {
            let n = 2 * m as usize + i;
            let third = v.shl(v.and(q.high[n], 0x0101_0101), 2);
            codes[i] = Above(v.or(two_bits(v, q.low[n], q.j), third));
        }
        codes
    }
    #[inline(always)]
    fn scales<V: Lanes>(v: V, block: &[Word], part: usize, half: usize, j: usize) -> [V::I; 2] {
        // four bits in bytes of words 1 and 2, two in those of word 3
        let at = (j % 2 * 16 + 4 * half) as u32;
        let low = v.shr(v.load(&block[1 + j / 2], part), at);
        let high = v.shr(v.load(&block[3], part), at + (j / 2 * 2) as u32);
        let scales = v.or(v.and(low, 0x0f0f), v.shl(v.and(high, 0x0303), 4));
        [v.sub(v.and(scales, 0xff), v.int(32)), v.sub(v.shr(scales, 8), v.int(32))]
    }
}

quantised_by_scales!(Q3K);

pub(in super::super) struct TQ2_0;

/// Dots of quarter `J`.
#[inline(always)]
fn tq2_0_dots<V: Lanes, const J: usize, const T: usize, const D: usize>(
    v: V,
    words: &[Word; 8],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
    s: &mut [[V::I; D]; T],
) {
    sums!(v, next, dot_unsigned, a, s, 8 * J, 8, |i| two_bits(v, v.load(&words[i], part), J));
}

impl Quantised for TQ2_0 {
    const WORDS: usize = 17;
    const GROUPS: usize = 2;
    const JOINED: bool = true;
    const PAIRED: bool = true;

    #[inline(always)]
    fn group<V: Lanes, const T: usize, const D: usize>(
        v: V,
        block: &[Word],
        part: usize,
        half: usize,
        a: &Tile<T, D>,
        next: Next,
    ) -> [V::F; T] {
        let words = block[1 + 8 * half..].first_chunk().expect("8 words of codes");
        let mut s = below(v, 1, (0, 4), a);
        tq2_0_dots::<V, 0, T, D>(v, words, part, a, next, &mut s);
        tq2_0_dots::<V, 1, T, D>(v, words, part, a, next, &mut s);
        tq2_0_dots::<V, 2, T, D>(v, words, part, a, next, &mut s);
        tq2_0_dots::<V, 3, T, D>(v, words, part, a, next, &mut s);
        times(v, v.f16_pair(v.load(&block[0], part)).0, s)
    }
}

pub(in super::super) struct Q1_0;

/// Dots of code words 8 `J` to 8 `J` + 7: bits 2 `J` and 2 `J` + 1 of every byte, as 0 and 2.
#[inline(always)]
fn q1_0_dots<V: Lanes, const J: usize, const T: usize, const D: usize>(
    v: V,
    words: &[Word; 4],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
    s: &mut [[V::I; D]; T],
) {
    sums!(v, next, dot_unsigned, a, s, 8 * J, 8, |i| {
        let word = v.load(&words[i % 4], part);
        let bit = 2 * J + i / 4;
        let word = if bit == 0 { v.shl(word, 1) } else { v.shr(word, bit as u32 - 1) };
        v.and(word, 0x0202_0202)
    });
}

impl Quantised for Q1_0 {
    const WORDS: usize = 5;
    const GROUPS: usize = 1;
    const JOINED: bool = true;
    const PAIRED: bool = true;

    #[inline(always)]
    fn group<V: Lanes, const T: usize, const D: usize>(
        v: V,
        block: &[Word],
        part: usize,
        _half: usize,
        a: &Tile<T, D>,
        next: Next,
    ) -> [V::F; T] {
        let words = block[1..].first_chunk().expect("4 words of bits");
        let mut s = below(v, 1, (0, 4), a);
        q1_0_dots::<V, 0, T, D>(v, words, part, a, next, &mut s);
        q1_0_dots::<V, 1, T, D>(v, words, part, a, next, &mut s);
        q1_0_dots::<V, 2, T, D>(v, words, part, a, next, &mut s);
        q1_0_dots::<V, 3, T, D>(v, words, part, a, next, &mut s);
        times(v, v.f16_pair(v.load(&block[0], part)).0, s)
    }
}

pub(in super::super) struct Q2_0;

/// u of block `B` of 64: four words, of which each code pair of every byte is one code word.
#[inline(always)]
fn q2_0_block<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    words: &[Word; 8],
    scale: V::F,
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    let mut s = below(v, 1, (2 * B, 2 * B + 2), a);
    sums!(v, next, dot_unsigned, a, s, 16 * B, 8, |i| two_bits(v, v.load(&words[4 * B + i % 4], part), i / 4));
    sums!(v, next, dot_unsigned, a, s, 16 * B + 8, 8, |i| two_bits(v, v.load(&words[4 * B + i % 4], part), 2 + i / 4));
    times(v, scale, s)
}

impl Quantised for Q2_0 {
    const WORDS: usize = 9;
    const GROUPS: usize = 1;
    const JOINED: bool = true;
    const PAIRED: bool = true;

    #[inline(always)]
    fn group<V: Lanes, const T: usize, const D: usize>(
        v: V,
        block: &[Word],
        part: usize,
        _half: usize,
        a: &Tile<T, D>,
        next: Next,
    ) -> [V::F; T] {
        let words = block[1..].first_chunk().expect("8 words of codes");
        let (first, last) = v.f16_pair(v.load(&block[0], part));
        let mut u = q2_0_block::<V, 0, T, D>(v, words, first, part, a, next);
        add_each(v, &mut u, q2_0_block::<V, 1, T, D>(v, words, last, part, a, next));
        u
    }
}
