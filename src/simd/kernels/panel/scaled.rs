//! Panels of the types with integer scales ([`Scaled`]) and of those whose codes are numbers of one of 16 values.

use super::{By, Panel, Panelled, below, keep, keep_f};
use crate::simd::kernels::scaled::{Codes, Scaled};
use crate::simd::kernels::sixteen::{FP4, KV, power};
use crate::simd::kernels::{
    IQ1M, IQ1S, IQ2S, IQ2XS, IQ2XXS, IQ3S, IQ3XXS, IQ4NL, IQ4XS, MXFP4, Q3K, Wide1, Wide2, Wide3, Wide3S,
};
use crate::simd::lanes::{Bytes, Word};
use crate::simd::pair::Pair;

// ---------------------------------------------------------------- integer scales
// rest: where the sum begins; d; the eight scales, four to a word

/// Words 2 `m` and 2 `m` + 1 of the eight of quarter `j`.
#[inline(always)]
fn keep_pair<V: Bytes, F: Scaled>(v: V, q: F::Quarter<V>, (j, m): (usize, u32), to: &mut Panel, part: usize) {
    let [first, second] = F::pair(v, q, m);
    let at = 8 * j + 2 * m as usize;
    keep(v, first.values(v), &mut to.codes[at], part);
    keep(v, second.values(v), &mut to.codes[at + 1], part);
}

/// All of a group of a type with integer scales.
#[inline(always)]
fn unpack_quarters<V: Bytes, F: Scaled, const P: usize>(v: V, block: &[Word], half: usize, to: &mut Panel) {
    let (block, half) = (&block[..F::WORDS], half & 1);
    for part in 0..P {
        let (mut start, mut words) = (v.int(0), [v.int(0); 2]);
        for j in 0..4 {
            let q = F::quarter(v, block, part, half, j);
            keep_pair::<V, F>(v, q, (j, 0), to, part);
            keep_pair::<V, F>(v, q, (j, 1), to, part);
            keep_pair::<V, F>(v, q, (j, 2), to, part);
            keep_pair::<V, F>(v, q, (j, 3), to, part);
            let [first, second] = F::scales(v, block, part, half, j);
            if F::SIXTEENTHS {
                start = v.add(start, v.mul(first, below(v, to, (8 * j, 4), part)));
                start = v.add(start, v.mul(second, below(v, to, (8 * j + 4, 4), part)));
            } else {
                start = v.add(start, v.mul(first, below(v, to, (8 * j, 8), part)));
            }
            let both = v.or(v.and(first, 0xff), v.shl(v.and(second, 0xff), 8));
            words[j / 2] = v.or(words[j / 2], v.shl(both, 16 * (j as u32 % 2)));
        }
        keep(v, start, &mut to.rest[0], part);
        keep_f(v, v.mul_f(F::scale(v, block, part), v.float(F::UNIT)), &mut to.rest[1], part);
        keep(v, words[0], &mut to.rest[2], part);
        keep(v, words[1], &mut to.rest[3], part);
    }
}

macro_rules! panelled_by_scales {
    ($($name:ident = $most:expr),*) => { $(
        impl Panelled for $name {
            const ABOVE: bool = true;
            const MOST: usize = $most;
            const BY: By = By::Scales(if <$name as Scaled>::SIXTEENTHS { 4 } else { 8 });

            #[inline(always)]
            fn unpack<V: Bytes, const P: usize>(v: V, block: &[Word], half: usize, to: &mut Panel) {
                if const { P == 2 } {
                    // all rows at once: a look-up in a codebook takes twice as many at the price of one
                    unpack_quarters::<Pair<V>, $name, 1>(Pair(v), block, half, to);
                } else {
                    unpack_quarters::<V, $name, P>(v, block, half, to);
                }
            }
        }
    )* };
}

// of codebooks what a byte holds, since no level that sums in halves takes them
panelled_by_scales!(
    Q3K = 4,
    IQ4XS = 127,
    IQ3S = 127,
    IQ3XXS = 127,
    IQ2S = 127,
    IQ2XS = 127,
    IQ2XXS = 127,
    IQ1S = 127,
    IQ1M = 127,
    Wide1 = 9,
    Wide2 = 43,
    Wide3 = 62,
    Wide3S = 15
);

// ---------------------------------------------------------------- four blocks of 32, codes by a table
// rest: as of the other types with four blocks

/// The codes of four blocks of nibbles.
#[inline(always)]
fn unpack_nibbles<V: Bytes, const P: usize>(v: V, table: &'static [i8; 16], nibbles: &[Word; 16], to: &mut Panel) {
    for part in 0..P {
        for i in 0..16 {
            let (q, at) = (v.load(&nibbles[i], part), i / 4 * 8 + i % 4);
            let (low, high) = (v.and(q, 0x0f0f_0f0f), v.and(v.shr(q, 4), 0x0f0f_0f0f));
            keep(v, v.values(v.sixteen(table, low)), &mut to.codes[at], part);
            keep(v, v.values(v.sixteen(table, high)), &mut to.codes[at + 4], part);
        }
    }
}

impl Panelled for IQ4NL {
    const ABOVE: bool = true;
    const MOST: usize = 127;
    const BY: By = By::Blocks;

    #[inline(always)]
    fn unpack<V: Bytes, const P: usize>(v: V, block: &[Word], _half: usize, to: &mut Panel) {
        unpack_nibbles::<V, P>(v, &KV, block[2..].first_chunk().expect("16 words of nibbles"), to);
        for part in 0..P {
            super::finish_blocks(v, block, to, part);
        }
    }
}

impl Panelled for MXFP4 {
    const ABOVE: bool = true;
    const MOST: usize = 12;
    const BY: By = By::Blocks;

    #[inline(always)]
    fn unpack<V: Bytes, const P: usize>(v: V, block: &[Word], _half: usize, to: &mut Panel) {
        unpack_nibbles::<V, P>(v, &FP4, block[1..].first_chunk().expect("16 words of nibbles"), to);
        for part in 0..P {
            for b in 0..4 {
                keep_f(v, power(v, v.load(&block[0], part), b), &mut to.rest[b], part);
                keep(v, below(v, to, (8 * b, 8), part), &mut to.rest[4 + b], part);
            }
        }
    }
}
