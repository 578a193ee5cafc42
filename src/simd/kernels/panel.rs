//! What many tokens meet: some groups of a row block are unpacked once, to bytes and integers that stay in the
//! first-level cache (a panel for each group), and meet all tokens of a task before the next ones are. By what they
//! meet is another matter: dots of four bytes, tiles or products of pairs, whichever the level has.

use super::scaled::less;
use super::{LINE, Q4_0, Q4K, Q5_0, Q5K, Q6K, Q8_0, Quantised, scales_minima};
use crate::ops::linear::ROW_BLOCK;
use crate::simd::lanes::{Bytes, Lanes, Word};

mod scaled;

/// Vectors of a panel beside the codes.
const REST: usize = 9;

/// 32 rows of one group.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(in super::super) struct Panel {
    /// four codes a word, as unsigned bytes below 128 or, where activations are taken [above](Panelled::ABOVE), signed
    /// ones
    pub(super) codes: [Word; 32],
    /// the type's own
    pub(super) rest: [Word; REST],
}

impl Panel {
    pub(super) const ZERO: Panel = Panel { codes: [[0; ROW_BLOCK]; 32], rest: [[0; ROW_BLOCK]; REST] };
}

/// What else a type has beside codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum By {
    /// a scale and a minimum for 32 codes, integers
    Minima,
    /// an integer scale for so many words of four codes
    Scales(usize),
    /// a float for 32 codes
    Blocks,
}

/// A weight format that can be unpacked once for many tokens.
pub(in super::super) trait Panelled: Quantised {
    /// Whether codes of weights are signed, and those of activations taken as unsigned, 128 above their value, where a
    /// level has no dot of signed bytes.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "signed bytes meet signed ones there"))]
    const ABOVE: bool;
    /// The greatest magnitude of a code, as it lies in a panel.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only sums in halves have to fit"))]
    const MOST: usize;
    /// What it has beside codes.
    const BY: By;

    /// Unpacks group `half` of a block. `P` parts of V::N lanes make 32.
    fn unpack<V: Bytes, const P: usize>(v: V, block: &[Word], half: usize, to: &mut Panel);
}

/// Words that are asked for while others are in use, evenly: a core has room for few requests at a time, and waits when
/// there are more.
pub(super) struct Ahead {
    from: *const u8,
    /// cache lines in all
    lines: usize,
    /// pieces of work they are spread over
    parts: usize,
    /// lines that are due, times `parts`
    due: usize,
}

impl Ahead {
    /// Asks for the lines that are due with the next piece of work.
    #[inline(always)]
    pub(super) fn ask<V: Lanes>(&mut self, v: V) {
        self.due += self.lines;
        while self.due >= self.parts {
            self.due -= self.parts;
            v.prefetch(self.from);
            self.from = self.from.wrapping_add(LINE);
        }
    }
}

/// Where a slice lies among the segments.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// its groups
    first: usize,
    pub(super) end: usize,
    first_segment: bool,
    /// it begins its segment
    pub(super) begins: bool,
    /// it ends it
    pub(super) ends: bool,
    /// it ends the row
    pub(super) last: bool,
}

impl Place {
    /// From group `first` on, `most` groups, or until the segment ends.
    #[inline(always)]
    pub(super) fn new(first: usize, most: usize, (groups, seg_groups): (usize, usize)) -> Place {
        let segment = first / seg_groups * seg_groups;
        let segment_end = groups.min(segment + seg_groups);
        let end = segment_end.min(first + most);
        Place {
            first,
            end,
            first_segment: segment == 0,
            begins: first == segment,
            ends: end == segment_end,
            last: end == groups,
        }
    }

    /// The words of the next slice, as many, which may be the first one of the row block after this: asked for `passes`
    /// times for each group.
    #[inline(always)]
    pub(super) fn ahead<F: Quantised>(self, w: &[Word], passes: usize) -> Ahead {
        let n = self.end - self.first;
        let from = w.as_ptr().cast::<u8>().wrapping_add(self.end * F::WORDS / F::GROUPS * size_of::<Word>());
        let bytes = (n * F::WORDS * size_of::<Word>()).div_ceil(F::GROUPS);
        Ahead { from, lines: bytes / LINE, parts: n * passes, due: 0 }
    }

    /// Adds a segment to a total.
    #[inline(always)]
    pub(super) fn add<V: Lanes>(self, v: V, segment: V::F, to: &mut [f32; ROW_BLOCK], part: usize) {
        let before = if self.first_segment { v.float(0.0) } else { load_f(v, to, part) };
        let total = v.add_f(before, segment);
        v.store(if self.last { v.canon(total) } else { total }, to, part);
    }
}

#[inline(always)]
pub(super) fn load_f<V: Lanes>(v: V, x: &[f32; ROW_BLOCK], part: usize) -> V::F {
    v.as_f(v.load(bytemuck::cast_ref(x), part))
}

#[inline(always)]
fn keep<V: Lanes>(v: V, x: V::I, to: &mut Word, part: usize) {
    v.store(v.as_f(x), bytemuck::cast_mut(to), part);
}

#[inline(always)]
fn keep_f<V: Lanes>(v: V, x: V::F, to: &mut Word, part: usize) {
    v.store(x, bytemuck::cast_mut(to), part);
}

/// -128 times the sum of signed codes `at .. at + n`, where activations are taken above.
#[inline(always)]
fn below<V: Bytes>(v: V, panel: &Panel, (at, n): (usize, usize), part: usize) -> V::I {
    v.below(&panel.codes[at..at + n], part)
}

// ---------------------------------------------------------------- Q4_K and Q5_K
// rest: four scales; minima 0 and 2, and 1 and 3, as halves; d; dmin

/// Everything but the codes of a group of Q4_K or Q5_K.
#[inline(always)]
fn unpack_scales<V: Bytes>(v: V, block: &[Word], half: usize, to: &mut Panel, part: usize) {
    let (sc, m) = scales_minima(v, block, part, half);
    for j in 0..4 {
        keep(v, v.and(v.shr(sc, 8 * j as u32), 0xff), &mut to.rest[j], part);
    }
    keep(v, v.and(m, 0x00ff_00ff), &mut to.rest[4], part);
    keep(v, v.and(v.shr(m, 8), 0x00ff_00ff), &mut to.rest[5], part);
    let (d, dmin) = v.f16_pair(v.load(&block[0], part));
    keep_f(v, d, &mut to.rest[6], part);
    keep_f(v, dmin, &mut to.rest[7], part);
}

impl Panelled for Q4K {
    const ABOVE: bool = false;
    const MOST: usize = 15;
    const BY: By = By::Minima;

    #[inline(always)]
    fn unpack<V: Bytes, const P: usize>(v: V, block: &[Word], half: usize, to: &mut Panel) {
        let words: &[Word; 16] = block[4 + 16 * half..].first_chunk().expect("16 words of nibbles");
        for part in 0..P {
            unpack_scales(v, block, half, to, part);
            for i in 0..16 {
                let (q, at) = (v.load(&words[i], part), i / 8 * 16 + i % 8);
                keep(v, v.and(q, 0x0f0f_0f0f), &mut to.codes[at], part);
                keep(v, v.and(v.shr(q, 4), 0x0f0f_0f0f), &mut to.codes[at + 8], part);
            }
        }
    }
}

impl Panelled for Q5K {
    const ABOVE: bool = false;
    const MOST: usize = 31;
    const BY: By = By::Minima;

    #[inline(always)]
    fn unpack<V: Bytes, const P: usize>(v: V, block: &[Word], half: usize, to: &mut Panel) {
        let high: &[Word; 8] = block[4..].first_chunk().expect("8 words of high bits");
        let words: &[Word; 16] = block[12 + 16 * half..].first_chunk().expect("16 words of nibbles");
        for part in 0..P {
            unpack_scales(v, block, half, to, part);
            for i in 0..8 {
                // bit j: that of sub-block j
                let high = v.shr(v.load(&high[i], part), 4 * half as u32);
                for j in 0..4 {
                    let q = v.shr(v.load(&words[j / 2 * 8 + i], part), j as u32 % 2 * 4);
                    let fifth = v.and(v.shl(high, 4 - j as u32), 0x1010_1010);
                    keep(v, v.or(v.and(q, 0x0f0f_0f0f), fifth), &mut to.codes[8 * j + i], part);
                }
            }
        }
    }
}

// ---------------------------------------------------------------- Q6_K
// rest: where the sum begins; d; the eight scales, four to a word

/// The scale of sixteenth `n`, of which four lie in a word.
#[inline(always)]
pub(super) fn scale_of<V: Lanes>(v: V, words: [V::I; 2], n: usize) -> V::I {
    v.sar(v.shl(words[n / 4], 24 - 8 * (n as u32 % 4)), 24)
}

impl Panelled for Q6K {
    const ABOVE: bool = true;
    const MOST: usize = 32;
    const BY: By = By::Scales(4);

    #[inline(always)]
    fn unpack<V: Bytes, const P: usize>(v: V, block: &[Word], half: usize, to: &mut Panel) {
        let ql: &[Word; 16] = block[5 + 16 * half..].first_chunk().expect("16 words of nibbles");
        let qh: &[Word; 8] = block[37 + 8 * half..].first_chunk().expect("8 words of bit pairs");
        for part in 0..P {
            for n in 0..4 {
                for i in 0..8 {
                    let low = v.and(v.shr(v.load(&ql[n % 2 * 8 + i], part), n as u32 / 2 * 4), 0x0f0f_0f0f);
                    let pair = v.shr(v.load(&qh[i], part), 2 * n as u32);
                    let code = v.or(low, v.shl(v.and(pair, 0x0303_0303), 4));
                    keep(v, less(v, code, 0x2020_2020), &mut to.codes[8 * n + i], part);
                }
            }
            let words = [v.load(&block[1 + 2 * half], part), v.load(&block[2 + 2 * half], part)];
            // what dots with activations above their value are too much, times the scales: where the sum begins
            let mut start = v.int(0);
            for n in 0..8 {
                start = v.add(start, v.mul(scale_of(v, words, n), below(v, to, (4 * n, 4), part)));
            }
            keep(v, start, &mut to.rest[0], part);
            let (d, _) = v.f16_pair(v.load(&block[0], part));
            keep_f(v, d, &mut to.rest[1], part);
            keep(v, words[0], &mut to.rest[2], part);
            keep(v, words[1], &mut to.rest[3], part);
        }
    }
}

// ---------------------------------------------------------------- four blocks of 32
// rest: the four scales; where the dots of each block begin

/// Everything but the codes, which are there already.
#[inline(always)]
fn finish_blocks<V: Bytes>(v: V, block: &[Word], to: &mut Panel, part: usize) {
    for b in 0..4 {
        let (even, odd) = v.f16_pair(v.load(&block[b / 2], part));
        keep_f(v, if b % 2 == 0 { even } else { odd }, &mut to.rest[b], part);
        keep(v, below(v, to, (8 * b, 8), part), &mut to.rest[4 + b], part);
    }
}

impl Panelled for Q8_0 {
    const ABOVE: bool = true;
    const MOST: usize = 128;
    const BY: By = By::Blocks;

    #[inline(always)]
    fn unpack<V: Bytes, const P: usize>(v: V, block: &[Word], _half: usize, to: &mut Panel) {
        let codes: &[Word; 32] = block[2..].first_chunk().expect("32 words of codes");
        to.codes = *codes;
        for part in 0..P {
            finish_blocks(v, block, to, part);
        }
    }
}

impl Panelled for Q4_0 {
    const ABOVE: bool = true;
    const MOST: usize = 8;
    const BY: By = By::Blocks;

    #[inline(always)]
    fn unpack<V: Bytes, const P: usize>(v: V, block: &[Word], _half: usize, to: &mut Panel) {
        let nibbles: &[Word; 16] = block[2..].first_chunk().expect("16 words of nibbles");
        for part in 0..P {
            for i in 0..16 {
                let (q, at) = (v.load(&nibbles[i], part), i / 4 * 8 + i % 4);
                keep(v, less(v, v.and(q, 0x0f0f_0f0f), 0x0808_0808), &mut to.codes[at], part);
                keep(v, less(v, v.and(v.shr(q, 4), 0x0f0f_0f0f), 0x0808_0808), &mut to.codes[at + 4], part);
            }
            finish_blocks(v, block, to, part);
        }
    }
}

impl Panelled for Q5_0 {
    const ABOVE: bool = true;
    const MOST: usize = 16;
    const BY: By = By::Blocks;

    #[inline(always)]
    fn unpack<V: Bytes, const P: usize>(v: V, block: &[Word], _half: usize, to: &mut Panel) {
        let (high, nibbles) = super::four_blocks::five_bits(block, 2);
        for part in 0..P {
            for i in 0..16 {
                let (q, fifth) = (v.load(&nibbles[i], part), v.load(&high[i / 4], part));
                let (n, at) = (i as u32 % 4, i / 4 * 8 + i % 4);
                let low = v.or(v.and(q, 0x0f0f_0f0f), v.and(v.shl(fifth, 4 - n), 0x1010_1010));
                let high = v.or(v.and(v.shr(q, 4), 0x0f0f_0f0f), v.and(v.shr(fifth, n), 0x1010_1010));
                keep(v, less(v, low, 0x1010_1010), &mut to.codes[at], part);
                keep(v, less(v, high, 0x1010_1010), &mut to.codes[at + 4], part);
            }
            finish_blocks(v, block, to, part);
        }
    }
}

/// `Some` of an expression in the kernel of a type that is unpacked for many tokens, `None` for the other types.
macro_rules! with_panels {
    ($t:expr, $kernel:ident => $body:expr) => {
        $crate::simd::kernels::with_panels!(@ $t, $kernel => $body;
            Q8_0 = Q8_0, Q4_0 = Q4_0, Q5_0 = Q5_0, Q4_K = Q4K, Q5_K = Q5K, Q6_K = Q6K, Q3_K = Q3K, IQ4_NL = IQ4NL,
            IQ4_XS = IQ4XS, IQ3_S = IQ3S, IQ3_XXS = IQ3XXS, IQ2_S = IQ2S, IQ2_XS = IQ2XS, IQ2_XXS = IQ2XXS,
            IQ1_S = IQ1S, IQ1_M = IQ1M, MXFP4 = MXFP4, Wide1 = Wide1, Wide2 = Wide2, Wide3 = Wide3, Wide3S = Wide3S)
    };
    (@ $t:expr, $kernel:ident => $body:expr; $($variant:ident = $name:ident),*) => {
        match $t {
            $($crate::blocks::BlockType::$variant => {
                type $kernel = $crate::simd::kernels::$name;
                Some($body)
            })*
            _ => None,
        }
    };
}
pub(in super::super) use with_panels;
