//! Kernels of the formats with four blocks of 32 to a group, each block with a scale of its own.

use super::{ActBlock, Next, Quantised, Tile, q8_dots, sum32, value};
use crate::ops::linear::ROW_BLOCK;
use crate::simd::lanes::{Lanes, Word};

/// `bias` times the sum of the activations of block `b` of 32: where its dots begin.
#[inline(always)]
pub(super) fn biased<V: Lanes, const T: usize, const D: usize>(
    v: V,
    bias: i32,
    b: usize,
    a: &Tile<T, D>,
) -> [[V::I; D]; T] {
    let mut s = [[v.int(0); D]; T];
    for t in 0..T {
        for d in 0..D {
            s[t][d] = v.int(bias * sum32(a[t][d], b));
        }
    }
    s
}

/// u_b of each token: scale times v(S).
#[inline(always)]
pub(super) fn scaled<V: Lanes, const T: usize, const D: usize>(v: V, scale: V::F, s: [[V::I; D]; T]) -> [V::F; T] {
    let mut u = [scale; T];
    for t in 0..T {
        u[t] = v.mul_f(scale, value(v, s[t]));
    }
    u
}

/// Adds u of the next block to the sum of those before it.
#[inline(always)]
pub(super) fn add_each<V: Lanes, const T: usize>(v: V, sum: &mut [V::F; T], u: [V::F; T]) {
    for t in 0..T {
        sum[t] = v.add_f(sum[t], u[t]);
    }
}

/// Implements [`Quantised`] for a type by u of block `B`, a function of the group's words; where two words hold four scales,
/// of what `$codes` makes of these words, and of the block's scale.
macro_rules! four_blocks {
    ($name:ident, $words:literal words, panels $panels:literal, in order $order:literal, $u:ident of $block:ident => $codes:expr) => {
        four_blocks!(@ $name, $words, $panels, $order, |v, $block, part, a, next| {
            let codes = $codes;
            let (d0, d1) = v.f16_pair(v.load(&$block[0], part));
            let (d2, d3) = v.f16_pair(v.load(&$block[1], part));
            let mut u = $u::<V, 0, T, D>(v, codes, d0, part, a, next);
            add_each(v, &mut u, $u::<V, 1, T, D>(v, codes, d1, part, a, next));
            add_each(v, &mut u, $u::<V, 2, T, D>(v, codes, d2, part, a, next));
            add_each(v, &mut u, $u::<V, 3, T, D>(v, codes, d3, part, a, next));
            u
        });
    };
    ($name:ident, $words:literal words, panels $panels:literal, in order $order:literal, $u:ident) => {
        four_blocks!(@ $name, $words, $panels, $order, |v, block, part, a, next| {
            let mut u = $u::<V, 0, T, D>(v, block, part, a, next);
            add_each(v, &mut u, $u::<V, 1, T, D>(v, block, part, a, next));
            add_each(v, &mut u, $u::<V, 2, T, D>(v, block, part, a, next));
            add_each(v, &mut u, $u::<V, 3, T, D>(v, block, part, a, next));
            u
        });
    };
    (@ $name:ident, $words:literal, $panels:literal, $order:literal, |$v:ident, $block:ident, $part:ident, $a:ident, $next:ident| $group:block) => {
        impl Quantised for $name {
            const WORDS: usize = $words;
            const GROUPS: usize = 1;
            const JOINED: bool = true;
            const PAIRED: bool = true;
            const PANELS: bool = $panels;
            const IN_ORDER: bool = $order;

            #[inline(always)]
            fn group<V: Lanes, const T: usize, const D: usize>(
                $v: V,
                $block: &[Word],
                $part: usize,
                _half: usize,
                $a: &Tile<T, D>,
                $next: Next,
            ) -> [V::F; T] {
                $group
            }
        }
    };
}

pub(super) use four_blocks;

pub(in super::super) struct Q8_0;

/// u of block `B` of 32.
#[inline(always)]
fn q8_0_block<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    codes: &[Word; 32],
    scale: V::F,
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    let mut s = biased(v, -V::SIGNED_BIAS, B, a);
    q8_dots::<V, B, T, D>(v, codes, part, a, next, &mut s);
    scaled(v, scale, s)
}

four_blocks!(Q8_0, 34 words, panels true, in order true, q8_0_block of block => block[2..].first_chunk::<32>().expect("32 words of codes"));

/// Adds the dots of low nibbles and those of high ones.
#[inline(always)]
fn add_both<V: Lanes, const T: usize, const D: usize>(v: V, s: &mut [[V::I; D]; T], dots: [[[V::I; D]; T]; 2]) {
    for t in 0..T {
        for d in 0..D {
            s[t][d] = v.add(s[t][d], v.add(dots[0][t][d], dots[1][t][d]));
        }
    }
}

/// Dots of block `B` of 32 nibbles, added to `s`.
#[inline(always)]
fn nibble_dots<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    nibbles: &[Word; 16],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
    s: &mut [[V::I; D]; T],
) {
    if const { T == 1 && V::N == ROW_BLOCK } {
        let mut dots = [[[v.int(0); D]; T]; 2];
        both_sums!(v, next, a, dots, 4 * B, (8 * B, 8 * B + 4), 4, |i| {
            let word = &nibbles[4 * B + i];
            let second = v.shr(v.load(v.again(word), part), 4);
            (v.and(v.load(word, part), 0x0f0f_0f0f), v.and(second, 0x0f0f_0f0f))
        });
        add_both(v, s, dots);
        return;
    }
    sums!(v, next, dot_unsigned, a, s, 8 * B, 4, |i| v.and(v.load(&nibbles[4 * B + i], part), 0x0f0f_0f0f));
    sums!(v, next, dot_unsigned, a, s, 8 * B + 4, 4, |i| {
        v.and(v.shr(v.load(&nibbles[4 * B + i], part), 4), 0x0f0f_0f0f)
    });
}

pub(in super::super) struct Q4_0;

/// u of block `B` of 32.
#[inline(always)]
fn q4_0_block<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    nibbles: &[Word; 16],
    scale: V::F,
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    let mut s = biased(v, -8, B, a);
    nibble_dots::<V, B, T, D>(v, nibbles, part, a, next, &mut s);
    scaled(v, scale, s)
}

four_blocks!(Q4_0, 18 words, panels true, in order true, q4_0_block of block => block[2..].first_chunk::<16>().expect("16 words of nibbles"));

/// Dots of block `B` of 32 codes of five bits, added to `s`: `high` the group's 4 words of fifth bits (bit n of byte j:
/// element 4n + j), `nibbles` what follows them.
#[inline(always)]
fn five_bit_dots<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    high: &[Word; 4],
    nibbles: &[Word; 16],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
    s: &mut [[V::I; D]; T],
) {
    let fifth = v.load(&high[B], part);
    if const { T == 1 && V::N == ROW_BLOCK } {
        let mut dots = [[[v.int(0); D]; T]; 2];
        both_sums!(v, next, a, dots, 4 * B, (8 * B, 8 * B + 4), 4, |i| {
            let word = &nibbles[4 * B + i];
            let low = v.and(v.load(word, part), 0x0f0f_0f0f);
            let first = v.or(low, v.and(v.shl(fifth, 4 - i as u32), 0x1010_1010));
            let low = v.and(v.shr(v.load(v.again(word), part), 4), 0x0f0f_0f0f);
            (first, v.or(low, v.and(v.shr(fifth, i as u32), 0x1010_1010)))
        });
        add_both(v, s, dots);
        return;
    }
    sums!(v, next, dot_unsigned, a, s, 8 * B, 4, |i| {
        let low = v.and(v.load(&nibbles[4 * B + i], part), 0x0f0f_0f0f);
        v.or(low, v.and(v.shl(fifth, 4 - i as u32), 0x1010_1010))
    });
    sums!(v, next, dot_unsigned, a, s, 8 * B + 4, 4, |i| {
        let low = v.and(v.shr(v.load(&nibbles[4 * B + i], part), 4), 0x0f0f_0f0f);
        v.or(low, v.and(v.shr(fifth, i as u32), 0x1010_1010))
    });
}

/// The words of fifth bits and of nibbles of a group, which begin at word `at`.
#[inline(always)]
pub(super) fn five_bits(block: &[Word], at: usize) -> (&[Word; 4], &[Word; 16]) {
    let (high, nibbles) = block[at..].split_first_chunk().expect("4 words of fifth bits");
    (high, nibbles.first_chunk().expect("16 words of nibbles"))
}

pub(in super::super) struct Q5_0;

/// u of block `B` of 32.
#[inline(always)]
fn q5_0_block<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    (high, nibbles): (&[Word; 4], &[Word; 16]),
    scale: V::F,
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    let mut s = biased(v, -16, B, a);
    five_bit_dots::<V, B, T, D>(v, high, nibbles, part, a, next, &mut s);
    scaled(v, scale, s)
}

four_blocks!(Q5_0, 22 words, panels true, in order true, q5_0_block of block => five_bits(block, 2));

pub(in super::super) struct Q5_1;

/// v of the sum of the codes of block `b` of 32 in each digit of one token; every step is exact.
#[inline(always)]
fn sum_value<const D: usize>(a: &[&ActBlock; D], b: usize) -> f32 {
    let low = sum32(a[0], b) as f32;
    if D == 1 { low } else { sum32(a[D - 1], b) as f32 * 128.0 + low }
}

/// u of each token: scale times v(S), and minimum times v of the activations' sum; `head` holds scale and minimum.
#[inline(always)]
fn scaled_above<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    head: V::I,
    s: [[V::I; D]; T],
    a: &Tile<T, D>,
) -> [V::F; T] {
    let (scale, minimum) = v.f16_pair(head);
    let mut u = scaled(v, scale, s);
    for t in 0..T {
        u[t] = v.add_f(u[t], v.mul_f(minimum, v.float(sum_value(&a[t], B))));
    }
    u
}

pub(in super::super) struct Q4_1;

/// u of block `B` of 32.
#[inline(always)]
fn q4_1_block<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    block: &[Word],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    let nibbles = block[4..].first_chunk().expect("16 words of nibbles");
    let mut s = [[v.int(0); D]; T];
    nibble_dots::<V, B, T, D>(v, nibbles, part, a, next, &mut s);
    scaled_above::<V, B, T, D>(v, v.load(&block[B], part), s, a)
}

four_blocks!(Q4_1, 20 words, panels false, in order true, q4_1_block);

/// u of block `B` of 32: scale times v(S), and minimum times v of the activations' sum.
#[inline(always)]
fn q5_1_block<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    block: &[Word],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    let (high, nibbles) = five_bits(block, 4);
    let mut s = [[v.int(0); D]; T];
    five_bit_dots::<V, B, T, D>(v, high, nibbles, part, a, next, &mut s);
    scaled_above::<V, B, T, D>(v, v.load(&block[B], part), s, a)
}

four_blocks!(Q5_1, 24 words, panels false, in order false, q5_1_block);

/// Where the dots of block `B` of 32 begin in a group with four f32 scales and a word of four offsets: `bias` and the offset,
/// both of which codes lie above their value, times the sum of the activations. That sum lies in the block as two of 16.
#[inline(always)]
fn offset<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    bias: i32,
    block: &[Word],
    part: usize,
    a: &Tile<T, D>,
) -> [[V::I; D]; T] {
    let above = v.sar(v.shl(v.load(&block[4], part), 24 - 8 * B as u32), 24);
    let below = v.sub(v.int(-bias), above);
    let twice = v.or(v.and(below, 0xffff), v.shl(below, 16));
    let mut s = [[v.int(0); D]; T];
    for t in 0..T {
        for d in 0..D {
            s[t][d] = v.dot_halves(s[t][d], twice, a[t][d][33 + B]);
        }
    }
    s
}

pub(in super::super) struct W8A16;

/// u of block `B` of 32.
#[inline(always)]
fn w8a16_block<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    block: &[Word],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    let codes = block[5..].first_chunk().expect("32 words of codes");
    let mut s = offset::<V, B, T, D>(v, V::SIGNED_BIAS, block, part, a);
    q8_dots::<V, B, T, D>(v, codes, part, a, next, &mut s);
    scaled(v, v.as_f(v.load(&block[B], part)), s)
}

four_blocks!(W8A16, 37 words, panels false, in order true, w8a16_block);

pub(in super::super) struct W4A16;

/// u of block `B` of 32.
#[inline(always)]
fn w4a16_block<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    block: &[Word],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    let nibbles = block[5..].first_chunk().expect("16 words of nibbles");
    let mut s = offset::<V, B, T, D>(v, 0, block, part, a);
    nibble_dots::<V, B, T, D>(v, nibbles, part, a, next, &mut s);
    scaled(v, v.as_f(v.load(&block[B], part)), s)
}

four_blocks!(W4A16, 21 words, panels false, in order true, w4a16_block);
