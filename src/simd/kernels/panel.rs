//! Many tokens: a segment of a row block is unpacked once, to bytes and integers that stay in the first-level cache (a
//! panel for each group), and meets all tokens of a task before the next one is. Activations are laid out anew for it,
//! the tokens of a tile side by side. The sums are those of [`super::quantised`], in its order.
//!
//! Dots and multiplications share two of a core's four vector units, which is what bounds these kernels: so minima take
//! two dots of halves a group instead of four, and what a type's codes lie above or below their value is a sum of the
//! row alone, made while unpacking.

use super::scaled::less;
use super::{ActBlock, LINE, Q4_0, Q4K, Q5_0, Q5K, Q6K, Q8_0, Quantised, scales_minima, sum32};
use crate::ops::linear::{ACT_BLOCK_WORDS, ROW_BLOCK};
use crate::simd::lanes::{Bytes, Lanes, Word};

mod scaled;

use scaled::scaled_terms;

/// Tokens of a tile.
pub(in super::super) const TILE: usize = 4;

/// Words of a token and group: the scale, 32 of codes, and the sums of blocks 0 and 2, and 1 and 3, as halves.
pub(in super::super) const LAID: usize = 35;

/// Groups that are unpacked at a time, as many as leave room for activations in the first-level cache.
const SLICE: usize = 6;

/// Vectors of a panel beside the codes.
const REST: usize = 9;

/// 32 rows of one group.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(in super::super) struct Panel {
    /// four codes a word, as unsigned bytes or, where activations are taken [above](Panelled::ABOVE), signed ones
    pub(super) codes: [Word; 32],
    /// the type's own
    pub(super) rest: [Word; REST],
}

impl Panel {
    pub(super) const ZERO: Panel = Panel { codes: [[0; ROW_BLOCK]; 32], rest: [[0; ROW_BLOCK]; REST] };
}

/// Sums of one token and 32 rows.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(in super::super) struct Sums {
    /// the result, once the last group is done
    pub(in super::super) total: [f32; ROW_BLOCK],
    /// of a segment that takes more than one slice
    segment: [f32; ROW_BLOCK],
}

impl Sums {
    pub(in super::super) const ZERO: Sums = Sums { total: [0.0; ROW_BLOCK], segment: [0.0; ROW_BLOCK] };
}

/// The activations of one group: of each word those of a tile's tokens.
type Laid = [[u32; TILE]; LAID];

/// How the codes of a type meet tiles.
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
    /// Whether codes of activations are taken as unsigned, 128 above their value, and those of weights as signed.
    const ABOVE: bool;
    /// The greatest magnitude of a code, as it lies in a panel.
    const MOST: usize;
    /// How it meets tiles, at the level that has them.
    const BY: By;

    /// Unpacks group `half` of a block. `P` parts of V::N lanes make 32.
    fn unpack<V: Bytes, const P: usize>(v: V, block: &[Word], half: usize, to: &mut Panel);

    /// t(g) of parts `part .. part + P` of the rows for every token of a tile.
    fn terms<V: Bytes, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE];
}

/// Words of codes whose products fit halves with 16 bits when they are summed there, 8 at most; 0: not even those of one.
/// A half has two products of a word.
pub(in super::super) const fn run<F: Panelled>() -> usize {
    let activation = if F::ABOVE { 255 } else { 127 };
    match i16::MAX as usize / (2 * activation * F::MOST) {
        0 => 0,
        1 => 1,
        2..4 => 2,
        4..8 => 4,
        _ => 8,
    }
}

/// Lays out the blocks of up to [`TILE`] tokens, `groups` a token, for a type whose activations are taken above or not.
#[inline(always)]
pub(in super::super) fn lay<const ABOVE: bool>(act: &[ActBlock], groups: usize, out: &mut [[u32; TILE]]) {
    let flip = if ABOVE { 0x8080_8080 } else { 0 };
    // what stands for a token there is not
    let none: ActBlock = [0; ACT_BLOCK_WORDS];
    for (g, out) in out.as_chunks_mut::<LAID>().0.iter_mut().enumerate() {
        let mut a = [&none; TILE];
        for t in 0..TILE {
            a[t] = act.get(t * groups + g).unwrap_or(&none);
        }
        for t in 0..TILE {
            out[0][t] = a[t][0];
            for i in 0..2 {
                out[33 + i][t] = sum32(a[t], i) as u32 & 0xffff | (sum32(a[t], i + 2) as u32) << 16;
            }
        }
        for i in 1..33 {
            for t in 0..TILE {
                out[i][t] = a[t][i] ^ flip;
            }
        }
    }
}

/// 32 rows by all tokens of `out`, whose number is a multiple of [`TILE`]: `w` the words of the row block, `act` the laid
/// out activations, tile after tile. What was in `out` is of no account. `ALL` parts of V::N lanes make 32, and `P` of them
/// are in registers at a time.
#[inline(always)]
pub(in super::super) fn row_block<V: Bytes, F: Panelled, const P: usize, const ALL: usize>(
    v: V,
    w: &[Word],
    act: &[[u32; TILE]],
    (groups, seg_groups): (usize, usize),
    out: &mut [Sums],
) {
    const { assert!(ALL * V::N == ROW_BLOCK && ALL.is_multiple_of(P)) }
    assert!(!V::HALVES || run::<F>() > 0);
    assert!(out.len().is_multiple_of(TILE) && act.len() == out.len() / TILE * groups * LAID);
    let mut panels = [Panel::ZERO; SLICE];
    let mut first = 0;
    while first < groups {
        let place = Place::new(first, SLICE, (groups, seg_groups));
        let end = place.end;
        let mut ahead = place.ahead::<F>(w, 1 + out.len() / TILE);
        for (g, panel) in (first..end).zip(&mut panels) {
            ahead.ask(v);
            let block = &w[g / F::GROUPS * <F as Quantised>::WORDS..][..<F as Quantised>::WORDS];
            F::unpack::<V, ALL>(v, block, g % F::GROUPS, panel);
        }
        for (tile, out) in out.as_chunks_mut::<TILE>().0.iter_mut().enumerate() {
            let act = &act[(tile * groups + first) * LAID..][..(end - first) * LAID];
            slice::<V, F, P, ALL>(v, &panels[..end - first], act, place, &mut ahead, out);
        }
        first = end;
    }
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

    /// The words of the next slice, as many, which may be the first one of the row block after this: asked for `passes` times
    /// for each group.
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

/// One tile and the panels of one slice.
#[inline(always)]
fn slice<V: Bytes, F: Panelled, const P: usize, const ALL: usize>(
    v: V,
    panels: &[Panel],
    act: &[[u32; TILE]],
    place: Place,
    ahead: &mut Ahead,
    out: &mut [Sums; TILE],
) {
    for part in (0..ALL).step_by(P) {
        let mut acc = [[v.float(0.0); P]; TILE];
        if !place.begins {
            for t in 0..TILE {
                for p in 0..P {
                    acc[t][p] = load_f(v, &out[t].segment, part + p);
                }
            }
        }
        for (panel, a) in panels.iter().zip(act.as_chunks::<LAID>().0) {
            if part == 0 {
                ahead.ask(v);
            }
            let terms = F::terms::<V, P>(v, panel, a, part);
            for t in 0..TILE {
                let da = v.float(f32::from_bits(a[0][t]));
                for p in 0..P {
                    acc[t][p] = v.add_f(acc[t][p], v.mul_f(da, terms[t][p]));
                }
            }
        }
        for t in 0..TILE {
            for p in 0..P {
                match place.ends {
                    true => place.add(v, acc[t][p], &mut out[t].total, part + p),
                    false => v.store(acc[t][p], &mut out[t].segment, part + p),
                }
            }
        }
    }
}

#[inline(always)]
fn load_f<V: Lanes>(v: V, x: &[f32; ROW_BLOCK], part: usize) -> V::F {
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

/// Dots of words `at .. at + n` of the codes with every token, added to `dots`.
#[inline(always)]
fn add_dots<V: Bytes, F: Panelled, const P: usize>(
    v: V,
    panel: &Panel,
    a: &Laid,
    (at, n): (usize, usize),
    part: usize,
    dots: &mut [[V::I; P]; TILE],
) {
    if V::HALVES {
        return add_in_halves::<V, F, P>(v, panel, a, (at, n), part, [v.int(0x0001_0001); P], dots);
    }
    for i in at..at + n {
        let mut q = [v.int(0); P];
        for p in 0..P {
            q[p] = v.load(&panel.codes[i], part + p);
        }
        for t in 0..TILE {
            for p in 0..P {
                dots[t][p] = if F::ABOVE {
                    v.dot_above(dots[t][p], a[1 + i][t], q[p])
                } else {
                    v.dot_unsigned(dots[t][p], q[p], a[1 + i][t])
                };
            }
        }
    }
}

/// A scale of each row times the dots of words `at .. at + n` of the codes with every token, added to `sums`.
#[inline(always)]
fn add_scaled<V: Bytes, F: Panelled, const P: usize>(
    v: V,
    panel: &Panel,
    a: &Laid,
    (at, n): (usize, usize),
    part: usize,
    scale: [V::I; P],
    sums: &mut [[V::I; P]; TILE],
) {
    if V::HALVES {
        let mut both = scale;
        for p in 0..P {
            both[p] = v.or(v.and(scale[p], 0xffff), v.shl(scale[p], 16));
        }
        return add_in_halves::<V, F, P>(v, panel, a, (at, n), part, both, sums);
    }
    let mut dots = [[v.int(0); P]; TILE];
    add_dots::<V, F, P>(v, panel, a, (at, n), part, &mut dots);
    for p in 0..P {
        for t in 0..TILE {
            sums[t][p] = v.add(sums[t][p], v.mul(scale[p], dots[t][p]));
        }
    }
}

/// Dots times halves of `by`, products of codes and activations summed in halves as far as they fit.
#[inline(always)]
fn add_in_halves<V: Bytes, F: Panelled, const P: usize>(
    v: V,
    panel: &Panel,
    a: &Laid,
    (at, n): (usize, usize),
    part: usize,
    by: [V::I; P],
    sums: &mut [[V::I; P]; TILE],
) {
    let run = run::<F>().clamp(1, n);
    for first in (at..at + n).step_by(run) {
        let mut halves = [[v.int(0); P]; TILE];
        for i in first..first + run {
            for p in 0..P {
                let q = v.load(&panel.codes[i], part + p);
                for t in 0..TILE {
                    let x = v.int(a[1 + i][t] as i32);
                    let (u, s) = if F::ABOVE { (x, q) } else { (q, x) };
                    halves[t][p] = v.pairs(halves[t][p], u, s);
                }
            }
        }
        for t in 0..TILE {
            for p in 0..P {
                sums[t][p] = v.join(sums[t][p], halves[t][p], by[p]);
            }
        }
    }
}

/// -128 times the sum of signed codes `at .. at + n`, for one part.
#[inline(always)]
fn below<V: Bytes>(v: V, panel: &Panel, (at, n): (usize, usize), part: usize) -> V::I {
    let mut sum = v.int(0);
    for i in at..at + n {
        sum = v.dot_above(sum, 0x0101_0101, v.load(&panel.codes[i], part));
    }
    v.mul(sum, v.int(-128))
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

/// t(g) of Q4_K and Q5_K.
#[inline(always)]
fn least_terms<V: Bytes, F: Panelled, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE] {
    let mut s = [[v.int(0); P]; TILE];
    for j in 0..4 {
        let mut scale = [v.int(0); P];
        for p in 0..P {
            scale[p] = v.load(&panel.rest[j], part + p);
        }
        add_scaled::<V, F, P>(v, panel, a, (8 * j, 8), part, scale, &mut s);
    }
    let mut out = [[v.float(0.0); P]; TILE];
    for p in 0..P {
        let (even, odd) = (v.load(&panel.rest[4], part + p), v.load(&panel.rest[5], part + p));
        let (d, dmin) = (v.as_f(v.load(&panel.rest[6], part + p)), v.as_f(v.load(&panel.rest[7], part + p)));
        for t in 0..TILE {
            let m = v.dot_halves(v.dot_halves(v.int(0), even, a[33][t]), odd, a[34][t]);
            out[t][p] = v.sub_f(v.mul_f(d, v.to_f(s[t][p])), v.mul_f(dmin, v.to_f(m)));
        }
    }
    out
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

    #[inline(always)]
    fn terms<V: Bytes, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE] {
        least_terms::<V, Self, P>(v, panel, a, part)
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

    #[inline(always)]
    fn terms<V: Bytes, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE] {
        least_terms::<V, Self, P>(v, panel, a, part)
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

    #[inline(always)]
    fn terms<V: Bytes, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE] {
        scaled_terms::<V, Self, 4, P>(v, panel, a, part)
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

/// t(g) of types with a scale for each block and none but symmetric codes.
#[inline(always)]
fn block_terms<V: Bytes, F: Panelled, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE] {
    let mut out = [[v.float(0.0); P]; TILE];
    for b in 0..4 {
        let mut dots = [[v.int(0); P]; TILE];
        for p in 0..P {
            let start = v.load(&panel.rest[4 + b], part + p);
            for t in 0..TILE {
                dots[t][p] = start;
            }
        }
        add_dots::<V, F, P>(v, panel, a, (8 * b, 8), part, &mut dots);
        for p in 0..P {
            let d = v.as_f(v.load(&panel.rest[b], part + p));
            for t in 0..TILE {
                let u = v.mul_f(d, v.to_f(dots[t][p]));
                out[t][p] = if b == 0 { u } else { v.add_f(out[t][p], u) };
            }
        }
    }
    out
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

    #[inline(always)]
    fn terms<V: Bytes, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE] {
        block_terms::<V, Self, P>(v, panel, a, part)
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

    #[inline(always)]
    fn terms<V: Bytes, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE] {
        block_terms::<V, Self, P>(v, panel, a, part)
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

    #[inline(always)]
    fn terms<V: Bytes, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE] {
        block_terms::<V, Self, P>(v, panel, a, part)
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
