//! Many tokens by tiles of bytes ([`amx`](crate::simd::amx)): 32 tokens by 16 rows and a group at a time, the sums those of
//! [`super::dots`], in its order.
//!
//! A row block is unpacked to panels as there. A panel's words lie as a tile of rows wants them, four codes of a row in a word
//! and rows side by side, so it is loaded as it is. A type with integer scales has them multiplied in: of a product of code
//! and scale, 15 bits, the low byte goes to one tile and the high one to another, and the group's sum is that of the low ones
//! and 256 times that of the high ones. A type with a float for every 32 codes takes four tiles of sums a group.
//!
//! What is left to do with a tile of sums, by vectors, takes about as long as its dots (`docs/performance.md`, "CPU C"). A core
//! does both at once only as far as it looks ahead, so they are written in turns: beside each dot the sums of four tokens of
//! what was multiplied before.

use super::panel::{Ahead, By, Panel, Panelled, Place, scale_of};
use super::{ActBlock, LINE, sum32};
use crate::ops::linear::{ACT_BLOCK_WORDS, ROW_BLOCK};
use crate::simd::amx::{self, Shapes, Tiles};
use crate::simd::avx512::Avx512;
use crate::simd::lanes::{Lanes, Word};
use std::ops::Range;

/// Tokens that are taken at a time: two tiles.
pub(in super::super) const TOKENS: usize = 32;

/// Groups that are unpacked at a time.
const SLICE: usize = 2;

/// Bytes of a word of 32 rows, of which a tile of rows takes half.
const WORD: usize = size_of::<Word>();

/// The vectors beside the tiles.
pub(in super::super) type Vectors = Avx512<true>;

/// The activations of one group: those of 32 tokens.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(in super::super) struct Laid {
    codes: [[u32; 32]; TOKENS],
    scale: [f32; TOKENS],
    /// the sums of blocks 0 and 2, and 1 and 3, as halves
    sums: [[u32; TOKENS]; 2],
}

impl Laid {
    pub(in super::super) const ZERO: Laid =
        Laid { codes: [[0; 32]; TOKENS], scale: [0.0; TOKENS], sums: [[0; TOKENS]; 2] };
}

/// Lays out the blocks of up to 32 tokens, `groups` a token.
#[inline(always)]
pub(in super::super) fn lay(act: &[ActBlock], groups: usize, out: &mut [Laid]) {
    // what stands for a token there is not
    let none: ActBlock = [0; ACT_BLOCK_WORDS];
    for (g, out) in out.iter_mut().enumerate() {
        for t in 0..TOKENS {
            let a = act.get(t * groups + g).unwrap_or(&none);
            out.codes[t].copy_from_slice(&a[1..33]);
            out.scale[t] = f32::from_bits(a[0]);
            for i in 0..2 {
                out.sums[i][t] = sum32(a, i) as u32 & 0xffff | (sum32(a, i + 2) as u32) << 16;
            }
        }
    }
}

/// 32 rows of one group: a panel whose codes are the low bytes of the products, where there are scales, and the high ones.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Digits {
    panel: Panel,
    high: [Word; 32],
}

impl Digits {
    const ZERO: Digits = Digits { panel: Panel::ZERO, high: [[0; ROW_BLOCK]; 32] };

    #[inline(always)]
    fn unpack<F: Panelled>(&mut self, v: Vectors, block: &[Word], half: usize) {
        F::unpack::<Vectors, 2>(v, block, half, &mut self.panel);
        if F::BY == By::Blocks {
            return;
        }
        for part in 0..2 {
            let words = [v.load(&self.panel.rest[2], part), v.load(&self.panel.rest[3], part)];
            for n in 0..8 {
                let scale = match F::BY {
                    By::Minima => v.load(&self.panel.rest[n / 2], part),
                    By::Scales(words_of_one) => scale_of(v, words, n * 4 / words_of_one * words_of_one / 4),
                    By::Blocks => unreachable!("left above"),
                };
                for i in 4 * n..4 * n + 4 {
                    let (low, high) = v.products(v.load(&self.panel.codes[i], part), scale);
                    v.put(low, &mut self.panel.codes[i], part);
                    v.put(high, &mut self.high[i], part);
                }
            }
        }
    }
}

/// Tiles of sums of 32 tokens by 16 rows: as many as there are blocks, or two digits.
type Dots = [[amx::Sums; 2]; 4];

/// Sums of a segment, of 32 tokens by two times 16 rows: these lie together, and meet every group.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(in super::super) struct Segment([[[f32; 16]; TOKENS]; 2]);

impl Segment {
    pub(in super::super) const ZERO: Segment = Segment([[[0.0; 16]; TOKENS]; 2]);
}

/// The result of one token and 32 rows.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(in super::super) struct Total(pub(in super::super) [f32; ROW_BLOCK]);

impl Total {
    pub(in super::super) const ZERO: Total = Total([0.0; ROW_BLOCK]);
}

/// What is left to do with tiles of sums.
#[derive(Clone, Copy)]
struct Left<'a> {
    dots: &'a Dots,
    act: &'a Laid,
    /// what a type has beside codes, of these rows
    rest: [<Vectors as Lanes>::F; 4],
    /// which 16 of the 32 rows
    part: usize,
    /// which 32 tokens
    tile: usize,
    /// no bits where a segment begins
    mask: u16,
}

impl<'a> Left<'a> {
    #[inline(always)]
    fn new<F: Panelled>(
        v: Vectors,
        (digits, part): (&Digits, usize),
        (act, tile): (&'a Laid, usize),
        dots: &'a Dots,
        begins: bool,
    ) -> Left<'a> {
        let from = match F::BY {
            By::Minima => [4, 5, 6, 7],
            By::Scales(_) => [1; 4],
            By::Blocks => [0, 1, 2, 3],
        };
        let mut rest = [v.float(0.0); 4];
        for i in 0..4 {
            rest[i] = v.as_f(v.load(&digits.panel.rest[from[i]], part));
        }
        Left { dots, act, rest, part, tile, mask: if begins { 0 } else { u16::MAX } }
    }

    /// Adds da * t(g) of tokens `first .. first + 4` to their segments.
    #[inline(always)]
    fn four<F: Panelled>(&self, v: Vectors, first: usize, segments: &mut [Segment]) {
        let [a, b, c, d] = self.rest;
        let segment = &mut segments[self.tile].0[self.part];
        for t in first..first + 4 {
            let term = match F::BY {
                By::Minima => {
                    let [even, odd] = [self.act.sums[0][t], self.act.sums[1][t]];
                    let m = v.dot_halves(v.halves(v.as_i(a), even), v.as_i(b), odd);
                    v.sub_f(v.mul_f(c, v.to_f(self.whole(v, t))), v.mul_f(d, v.to_f(m)))
                }
                By::Scales(_) => v.mul_f(a, v.to_f(self.whole(v, t))),
                By::Blocks => {
                    let two = v.add_f(v.mul_f(a, v.to_f(self.dot(v, 0, t))), v.mul_f(b, v.to_f(self.dot(v, 1, t))));
                    let three = v.add_f(two, v.mul_f(c, v.to_f(self.dot(v, 2, t))));
                    v.add_f(three, v.mul_f(d, v.to_f(self.dot(v, 3, t))))
                }
            };
            let sum = v.add_f(v.floats(&segment[t], self.mask), v.mul_f(v.float(self.act.scale[t]), term));
            v.keep(sum, &mut segment[t]);
        }
    }

    /// The sum of one token of both digits.
    #[inline(always)]
    fn whole(&self, v: Vectors, t: usize) -> <Vectors as Lanes>::I {
        v.add(self.dot(v, 0, t), v.shl(self.dot(v, 1, t), 8))
    }

    /// Those of one token in tile `i`.
    #[inline(always)]
    fn dot(&self, v: Vectors, i: usize, t: usize) -> <Vectors as Lanes>::I {
        v.ints(&self.dots[i][t / 16].0[t % 16])
    }
}

/// Multiplies 16 rows of a group with two tiles of tokens, or with one where `ONE`, and does beside it what is left of the
/// sums before, if anything.
///
/// # Safety
///
/// `tiles` has the shapes of [`shapes`] for this type.
#[inline(always)]
unsafe fn multiply<F: Panelled, const ONE: bool>(
    tiles: &Tiles,
    (digits, part): (&Digits, usize),
    act: &Laid,
    dots: &mut Dots,
    mut beside: Beside,
) {
    let (tokens, half) = (act.codes.as_ptr().cast::<u8>(), part * WORD / 2);
    let low = digits.panel.codes.as_ptr().cast::<u8>().wrapping_add(half);
    let high = digits.high.as_ptr().cast::<u8>().wrapping_add(half);
    let row = size_of_val(&act.codes[0]);
    if F::BY == By::Blocks {
        // two blocks have their tiles of sums at a time
        macro_rules! block {
            ($b:expr, $first:literal, $second:literal) => {
                tiles.zero::<$first>();
                // SAFETY: 16 tokens of 32 bytes, and eight words of 16 rows, lie there.
                unsafe {
                    tiles.load::<4>(tokens.wrapping_add(32 * $b), row);
                    tiles.load::<6>(low.wrapping_add(8 * WORD * $b), WORD);
                }
                tiles.dot::<$first, 4, 6, false>();
                beside.four::<F>();
                if !ONE {
                    tiles.zero::<$second>();
                    // SAFETY: the 16 tokens after those.
                    unsafe { tiles.load::<5>(tokens.wrapping_add(16 * row + 32 * $b), row) };
                    tiles.dot::<$second, 5, 6, false>();
                    beside.four::<F>();
                }
            };
        }
        macro_rules! store {
            ($b:expr, $first:literal, $second:literal) => {
                tiles.store::<$first>(&mut dots[$b][0]);
                if !ONE {
                    tiles.store::<$second>(&mut dots[$b][1]);
                }
            };
        }
        block!(0, 0, 1);
        block!(1, 2, 3);
        store!(0, 0, 1);
        block!(2, 0, 1);
        store!(1, 2, 3);
        block!(3, 2, 3);
        store!(2, 0, 1);
        store!(3, 2, 3);
        return;
    }
    macro_rules! half {
        ($k:literal) => {
            // SAFETY: 16 tokens of 64 bytes lie there, and 16 words of 16 rows.
            unsafe {
                tiles.load::<4>(tokens.wrapping_add(64 * $k), row);
                tiles.load::<6>(low.wrapping_add(16 * WORD * $k), WORD);
            }
            tiles.dot::<0, 4, 6, true>();
            beside.four::<F>();
            if !ONE {
                // SAFETY: the 16 tokens after those.
                unsafe { tiles.load::<5>(tokens.wrapping_add(16 * row + 64 * $k), row) };
                tiles.dot::<1, 5, 6, true>();
                beside.four::<F>();
            }
            // SAFETY: as many words of high bytes.
            unsafe { tiles.load::<7>(high.wrapping_add(16 * WORD * $k), WORD) };
            tiles.dot::<2, 4, 7, false>();
            beside.four::<F>();
            if !ONE {
                tiles.dot::<3, 5, 7, false>();
                beside.four::<F>();
            }
        };
    }
    tiles.zero::<0>();
    tiles.zero::<1>();
    tiles.zero::<2>();
    tiles.zero::<3>();
    half!(0);
    half!(1);
    tiles.store::<0>(&mut dots[0][0]);
    tiles.store::<2>(&mut dots[1][0]);
    if !ONE {
        tiles.store::<1>(&mut dots[0][1]);
        tiles.store::<3>(&mut dots[1][1]);
    }
}

/// What is done beside dots.
struct Beside<'a> {
    v: Vectors,
    /// the sums before, if any
    left: Option<&'a Left<'a>>,
    /// the next token of theirs
    next: usize,
    /// where the activations after these lie
    ahead: *const u8,
    segments: &'a mut [Segment],
}

impl Beside<'_> {
    /// Of those activations, what is asked for beside a dot: all in those of two parts of the rows. A load of a tile waits for
    /// lines that are not in the first-level cache, and everything behind it does.
    const LINES: usize = size_of::<Laid>().div_ceil(16 * LINE);

    #[inline(always)]
    fn four<F: Panelled>(&mut self) {
        for line in 0..Self::LINES {
            self.v.prefetch(self.ahead.wrapping_add(line * LINE));
        }
        self.ahead = self.ahead.wrapping_add(Self::LINES * LINE);
        if let Some(left) = self.left {
            left.four::<F>(self.v, self.next, self.segments);
        }
        self.next += 4;
    }
}

/// The shapes of tiles that a type wants.
pub(in super::super) const fn shapes(by: By) -> Shapes {
    Shapes::dots(if matches!(by, By::Blocks) { 32 } else { 64 })
}

/// Sums of many tokens and 32 rows.
pub(in super::super) struct Sums<'a> {
    /// where the first token's rows will be written, and the bytes from a token to the next
    pub(in super::super) to: (*const u8, usize),
    /// of 32 tokens each
    pub(in super::super) segments: &'a mut [Segment],
    pub(in super::super) totals: &'a mut [Total],
}

/// 32 rows by all tokens of `sums`, whose totals are the result: `w` the words of the row block, `act` the laid out
/// activations, tile after tile. What was in `sums` is of no account.
///
/// # Safety
///
/// `tiles` has the [`shapes`] of this type.
#[inline(always)]
pub(in super::super) unsafe fn row_block<F: Panelled>(
    (v, tiles): (Vectors, &Tiles),
    w: &[Word],
    act: &[Laid],
    (groups, seg_groups): (usize, usize),
    sums: &mut Sums,
) {
    let tokens = sums.totals.len();
    let n_tiles = tokens.div_ceil(TOKENS);
    assert!(sums.segments.len() == n_tiles && act.len() == n_tiles * groups);
    // the last tile may have 16 tokens
    let both = (tokens + TOKENS / 2 - 1) / TOKENS;
    let mut unpacked = [Digits::ZERO; SLICE];
    let mut dots = [[[amx::Sums::ZERO; 2]; 4]; 2];
    let mut first = 0;
    while first < groups {
        let place = Place::new(first, SLICE, (groups, seg_groups));
        let end = place.end;
        let mut ahead = place.ahead::<F>(w, 1 + n_tiles);
        for (g, digits) in (first..end).zip(&mut unpacked) {
            ahead.ask(v);
            let block = &w[g / F::GROUPS * F::WORDS..][..F::WORDS];
            digits.unpack::<F>(v, block, g % F::GROUPS);
        }
        let on = Slice { v, tiles, unpacked: &unpacked[..end - first], act, groups, first, place };
        // SAFETY: the caller's promise.
        unsafe {
            on.stream::<F, false>(0..both, &mut dots, &mut ahead, sums);
            if both < n_tiles {
                on.stream::<F, true>(both..n_tiles, &mut dots, &mut ahead, sums);
            }
        }
        first = end;
    }
}

/// Some groups, unpacked, and what they meet.
#[derive(Clone, Copy)]
struct Slice<'a> {
    v: Vectors,
    tiles: &'a Tiles,
    unpacked: &'a [Digits],
    act: &'a [Laid],
    /// of all rows
    groups: usize,
    /// the first of these
    first: usize,
    place: Place,
}

impl Slice<'_> {
    /// All groups by tiles of 32 tokens, or of 16 where `ONE`.
    ///
    /// # Safety
    ///
    /// That of [`multiply`].
    #[inline(always)]
    unsafe fn stream<F: Panelled, const ONE: bool>(
        self,
        these: Range<usize>,
        [even, odd]: &mut [Dots; 2],
        ahead: &mut Ahead,
        sums: &mut Sums,
    ) {
        let Slice { v, tiles, unpacked, groups, place, .. } = self;
        let mut last = None;
        for tile in these.clone() {
            for (g, (digits, act)) in unpacked.iter().zip(&self.act[tile * groups + self.first..]).enumerate() {
                ahead.ask(v);
                let begins = place.begins && g == 0;
                let after = if g + 1 < unpacked.len() { 1 } else { groups + 1 - unpacked.len() };
                let next = (act as *const Laid).wrapping_add(after).cast::<u8>();
                // SAFETY: the caller's promise.
                unsafe {
                    let mut left = None;
                    if let Some((digits, act, begins)) = last {
                        left = Some(Left::new::<F>(v, (digits, 1), act, odd, begins));
                    }
                    let beside = Beside { v, left: left.as_ref(), next: 0, ahead: next, segments: sums.segments };
                    multiply::<F, ONE>(tiles, (digits, 0), act, even, beside);
                    let left = Left::new::<F>(v, (digits, 0), (act, tile), even, begins);
                    let half = next.wrapping_add(size_of::<Laid>() / 2 / LINE * LINE);
                    let beside = Beside { v, left: Some(&left), next: 0, ahead: half, segments: sums.segments };
                    multiply::<F, ONE>(tiles, (digits, 1), act, odd, beside);
                }
                if place.last && g == 0 {
                    // of many tokens the lines lie far apart, and are in no cache
                    for token in tile * TOKENS..sums.totals.len().min((tile + 1) * TOKENS) {
                        let line = sums.to.0.wrapping_add(token * sums.to.1);
                        v.prefetch_to_write(line);
                        v.prefetch_to_write(line.wrapping_add(LINE));
                    }
                }
                if g == 0 && tile > these.start {
                    // its last sums were added beside these
                    self.end(tile - 1, sums);
                }
                last = Some((digits, (act, tile), begins));
            }
        }
        if let Some((digits, act, begins)) = last {
            let left = Left::new::<F>(v, (digits, 1), act, odd, begins);
            for first in (0..if ONE { TOKENS / 2 } else { TOKENS }).step_by(4) {
                left.four::<F>(v, first, sums.segments);
            }
            self.end(these.end - 1, sums);
        }
    }

    /// Adds a tile's segments to its totals where they end.
    #[inline(always)]
    fn end(self, tile: usize, sums: &mut Sums) {
        if self.place.ends {
            let totals = &mut sums.totals[tile * TOKENS..];
            for (t, total) in totals.iter_mut().take(TOKENS).enumerate() {
                for part in 0..2 {
                    let segment = self.v.floats(&sums.segments[tile].0[part][t], u16::MAX);
                    self.place.add(self.v, segment, &mut total.0, part);
                }
            }
        }
    }
}
