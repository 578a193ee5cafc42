//! Kernels of the formats whose codes are numbers of one of 16 values: IQ4_NL, IQ4_XS and the four-bit floats.

use super::four_blocks::{add_each, biased, four_blocks, scaled};
use super::scaled::{Scaled, Signed, quantised_by_scales};
use super::{Next, Quantised, Tile};
use crate::simd::lanes::{Lanes, Word};

/// The values of IQ4_NL and IQ4_XS.
pub(super) static KV: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// e2m1, doubled.
pub(super) static FP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The values of low nibbles (`shift` 0) or high ones (`shift` 4).
#[inline(always)]
fn values<V: Lanes>(v: V, table: &'static [i8; 16], word: V::I, shift: u32) -> V::S {
    v.sixteen(table, v.and(v.shr(word, shift), 0x0f0f_0f0f))
}

/// Dots of block `B` of 32, added to `s`.
#[inline(always)]
fn dots<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    table: &'static [i8; 16],
    nibbles: &[Word; 16],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
    s: &mut [[V::I; D]; T],
) {
    sums!(v, next, dot_signed, a, s, 8 * B, 4, |i| values(v, table, v.load(&nibbles[4 * B + i], part), 0));
    sums!(v, next, dot_signed, a, s, 8 * B + 4, 4, |i| values(v, table, v.load(&nibbles[4 * B + i], part), 4));
}

pub(in super::super) struct IQ4NL;

/// u of block `B` of 32.
#[inline(always)]
fn iq4_nl_block<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    nibbles: &[Word; 16],
    scale: V::F,
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    let mut s = biased(v, -V::SIGNED_BIAS, B, a);
    dots::<V, B, T, D>(v, &KV, nibbles, part, a, next, &mut s);
    scaled(v, scale, s)
}

four_blocks!(IQ4NL, 18 words, panels true, in order true, iq4_nl_block of block => block[2..].first_chunk::<16>().expect("16 words of nibbles"));

pub(in super::super) struct MXFP4;

/// 2^(E - 128) of byte `b` of a word of four exponents; 0 where that is below 2^-50.
#[inline(always)]
pub(super) fn power<V: Lanes>(v: V, word: V::I, b: usize) -> V::F {
    let e = v.and(v.shr(word, 8 * b as u32), 0xff);
    // 1 where E is 78 or more, else 0
    let kept = v.sub(v.int(1), v.shr(v.sub(e, v.int(78)), 31));
    v.as_f(v.mul(v.shl(v.sub(e, v.int(1)), 23), kept))
}

/// u of block `B` of 32.
#[inline(always)]
fn mxfp4_block<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    block: &[Word],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    let nibbles = block[1..].first_chunk().expect("16 words of nibbles");
    let mut s = biased(v, -V::SIGNED_BIAS, B, a);
    dots::<V, B, T, D>(v, &FP4, nibbles, part, a, next, &mut s);
    scaled(v, power(v, v.load(&block[0], part), B), s)
}

four_blocks!(MXFP4, 17 words, panels true, in order true, mxfp4_block);

pub(in super::super) struct NVFP4;

/// K * 2^-10 of bytes `odd` and `odd` + 2 of a word of four scales (halves of e4m3 without a sign): exact. 0x7f is 0,
/// and 0xff is not.
#[inline(always)]
fn small_floats<V: Lanes>(v: V, word: V::I, odd: u32) -> (V::F, V::F) {
    let bytes = v.and(v.shr(word, 8 * odd), 0x00ff_00ff);
    let other = v.sub(v.or(v.xor(bytes, 0x007f_007f), v.int(0x0100_0100)), v.int(0x0001_0001));
    // 1 in the half words that are 0x7f
    let none = v.xor(v.and(v.shr(other, 8), 0x0001_0001), 0x0001_0001);
    let kept = v.sub(v.and(bytes, 0x007f_007f), v.sub(v.shl(none, 7), none));
    // exponent and mantissa where those of an f16 are
    let (first, second) = v.f16_pair(v.shl(kept, 7));
    let unit = v.float(128.0);
    (v.mul_f(first, unit), v.mul_f(second, unit))
}

/// Dots of sixteenth `n`, scaled.
#[inline(always)]
fn nvfp4_sixteenth<V: Lanes, const T: usize, const D: usize>(
    v: V,
    block: &[Word],
    n: usize,
    scale: V::F,
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    let words: &[Word; 2] = block[2 + 2 * n..].first_chunk().expect("2 words of nibbles");
    let mut s = [[v.int(0); D]; T];
    for t in 0..T {
        for d in 0..D {
            let sum = (a[t][d][33 + n / 2] >> (16 * (n % 2))) as u16 as i16;
            s[t][d] = v.int(-V::SIGNED_BIAS * i32::from(sum));
        }
    }
    sums!(v, next, dot_signed, a, s, 4 * n, 2, |i| values(v, &FP4, v.load(&words[i], part), 0));
    sums!(v, next, dot_signed, a, s, 4 * n + 2, 2, |i| values(v, &FP4, v.load(&words[i], part), 4));
    scaled(v, scale, s)
}

impl Quantised for NVFP4 {
    const WORDS: usize = 18;
    const GROUPS: usize = 1;
    const JOINED: bool = true;
    const PAIRED: bool = true;
    const IN_ORDER: bool = true;

    #[inline(always)]
    fn group<V: Lanes, const T: usize, const D: usize>(
        v: V,
        block: &[Word],
        part: usize,
        _half: usize,
        a: &Tile<T, D>,
        next: Next,
    ) -> [V::F; T] {
        let (low, high) = (v.load(&block[0], part), v.load(&block[1], part));
        let ((d0, d2), (d1, d3)) = (small_floats(v, low, 0), small_floats(v, low, 1));
        let ((d4, d6), (d5, d7)) = (small_floats(v, high, 0), small_floats(v, high, 1));
        let mut u = nvfp4_sixteenth(v, block, 0, d0, part, a, next);
        add_each(v, &mut u, nvfp4_sixteenth(v, block, 1, d1, part, a, next));
        add_each(v, &mut u, nvfp4_sixteenth(v, block, 2, d2, part, a, next));
        add_each(v, &mut u, nvfp4_sixteenth(v, block, 3, d3, part, a, next));
        add_each(v, &mut u, nvfp4_sixteenth(v, block, 4, d4, part, a, next));
        add_each(v, &mut u, nvfp4_sixteenth(v, block, 5, d5, part, a, next));
        add_each(v, &mut u, nvfp4_sixteenth(v, block, 6, d6, part, a, next));
        add_each(v, &mut u, nvfp4_sixteenth(v, block, 7, d7, part, a, next));
        u
    }
}

pub(in super::super) struct IQ4XS;

impl Scaled for IQ4XS {
    const WORDS: usize = 34;
    const SIXTEENTHS: bool = false;
    const UNIT: f32 = 1.0;
    const WRITTEN_OUT: bool = true;
    const PAIRED: bool = true;
    type Codes<V: Lanes> = Signed<V>;
    /// words of nibbles
    type Quarter<V: Lanes> = [V::I; 4];

    #[inline(always)]
    fn quarter<V: Lanes>(v: V, block: &[Word], part: usize, half: usize, j: usize) -> [V::I; 4] {
        let words: &[Word; 4] = block[2 + 16 * half + 4 * j..].first_chunk().expect("4 words of nibbles");
        let mut quarter = [v.int(0); 4];
        for i in 0..4 {
            quarter[i] = v.load(&words[i], part);
        }
        quarter
    }
    #[inline(always)]
    fn pair<V: Lanes>(v: V, quarter: [V::I; 4], m: u32) -> [Signed<V>; 2] {
        let (at, shift) = (m as usize % 2 * 2, m / 2 * 4);
        [Signed(values(v, &KV, quarter[at], shift)), Signed(values(v, &KV, quarter[at + 1], shift))]
    }
    #[inline(always)]
    fn scales<V: Lanes>(v: V, block: &[Word], part: usize, half: usize, j: usize) -> [V::I; 2] {
        // four bits in a word of eight such, two in the upper half of the block's first word
        let low = v.and(v.shr(v.load(&block[1], part), (16 * half + 4 * j) as u32), 15);
        let high = v.and(v.shr(v.load(&block[0], part), (16 + 8 * half + 2 * j) as u32), 3);
        [v.sub(v.or(low, v.shl(high, 4)), v.int(32)); 2]
    }
}

quantised_by_scales!(IQ4XS);
