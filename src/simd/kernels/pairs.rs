//! Many tokens by products of pairs ([`i8mm`](crate::simd::i8mm)): two rows by two tokens and eight codes an
//! instruction, the sums those of [`super::quantised`], in its order.
//!
//! A panel's words are four codes of four rows to a register. An instruction wants eight codes of two rows, which are
//! two words by turns: so a panel is laid out anew once for all tokens, with whatever else a type has twice for each
//! row. Activations are laid out by pairs of tokens. From there to the result a register is two rows by two tokens:
//! integers, floats, segments and totals alike, each lane with the twin's operations. Only what goes to memory last is
//! put in the order of rows.
//!
//! Minima meet the sums of sixteen activations in the same instruction, eight sums at a time, as two digits: a sum is
//! within 16 * 127, so the digit above four bits is a signed byte.

use super::ActBlock;
use super::panel::{Ahead, By, Panel, Panelled, Place, load_f, scale_of};
use crate::ops::linear::{ACT_BLOCK_WORDS, ROW_BLOCK};
use crate::simd::i8mm::I8mm;
use crate::simd::lanes::{Lanes, Word};
use crate::simd::neon::Neon;

type Int = <Neon<true> as Lanes>::I;
type Float = <Neon<true> as Lanes>::F;

/// Tokens, and rows, of a pair.
pub(in super::super) const PAIR: usize = 2;

/// Pairs of rows in a row block.
const PAIRS: usize = ROW_BLOCK / PAIR;

/// Registers of a word of 32 rows.
const PARTS: usize = ROW_BLOCK / Neon::<true>::N;

/// Registers of codes of a pair and a group: eight codes of each of the two.
const EIGHTS: usize = 16;

/// Groups that are unpacked at a time: about 30 KiB.
const SLICE: usize = 4;

/// The activations of one group: those of two tokens.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub(in super::super) struct Laid {
    /// eight codes of the one, eight of the other
    codes: [[u32; 4]; EIGHTS],
    /// the scales, twice
    scale: [f32; 4],
    /// eight sums of sixteen codes of the one, and of the other, those of blocks' first halves in front: the low four
    /// bits, and what lies above
    sums: [[u32; 4]; 2],
}

impl Laid {
    pub(in super::super) const ZERO: Laid = Laid { codes: [[0; 4]; EIGHTS], scale: [0.0; 4], sums: [[0; 4]; 2] };
}

/// Lays out the blocks of one token or two, `groups` a token.
#[inline(always)]
pub(in super::super) fn lay(act: &[ActBlock], groups: usize, out: &mut [Laid]) {
    // what stands for a token there is not
    let none: ActBlock = [0; ACT_BLOCK_WORDS];
    for (g, out) in out.iter_mut().enumerate() {
        for t in 0..PAIR {
            let a = act.get(t * groups + g).unwrap_or(&none);
            for (i, code) in a[1..33].iter().enumerate() {
                out.codes[i / 2][2 * t + i % 2] = *code;
            }
            (out.scale[t], out.scale[2 + t]) = (f32::from_bits(a[0]), f32::from_bits(a[0]));
            for half in 0..2 {
                let (mut low, mut high) = ([0; 4], [0; 4]);
                for b in 0..4 {
                    let sum = (a[33 + b] >> (16 * half)) as i16;
                    (low[b], high[b]) = (sum as u8 & 15, (sum >> 4) as u8);
                }
                (out.sums[0][2 * t + half], out.sums[1][2 * t + half]) =
                    (u32::from_le_bytes(low), u32::from_le_bytes(high));
            }
        }
    }
}

/// Two rows of one group: everything as a register has it.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Rows {
    /// eight codes of the one, eight of the other
    codes: [[u32; 4]; EIGHTS],
    /// the four minima of the one, twice, and of the other
    minima: [u32; 4],
    /// integer scales, each twice for each row: four, for 32 codes each, or eight
    scales: [[u32; 4]; 8],
    /// d and dmin, or d, or the scales of four blocks, twice for each row
    floats: [[u32; 4]; 4],
}

impl Rows {
    const ZERO: Rows = Rows { codes: [[0; 4]; EIGHTS], minima: [0; 4], scales: [[0; 4]; 8], floats: [[0; 4]; 4] };
}

/// 32 rows of one group.
type Paired = [Rows; PAIRS];

/// Lays a panel out by pairs of rows.
#[inline(always)]
fn pair<F: Panelled>(v: I8mm, panel: &Panel, to: &mut Paired) {
    for (part, [first, second]) in to.as_chunks_mut().0.iter_mut().enumerate() {
        for i in 0..EIGHTS {
            let (a, b) = (v.0.load(&panel.codes[2 * i], part), v.0.load(&panel.codes[2 * i + 1], part));
            both(v, (a, b), &mut first.codes[i], &mut second.codes[i]);
        }
        let rest = |i: usize| v.0.load(&panel.rest[i], part);
        match F::BY {
            By::Minima => {
                for j in 0..4 {
                    both(v, (rest(j), rest(j)), &mut first.scales[j], &mut second.scales[j]);
                }
                let minima = v.0.or(rest(4), v.0.shl(rest(5), 8));
                both(v, (minima, minima), &mut first.minima, &mut second.minima);
                for i in 0..2 {
                    both(v, (rest(6 + i), rest(6 + i)), &mut first.floats[i], &mut second.floats[i]);
                }
            }
            By::Scales(words) => {
                for n in 0..32 / words {
                    let scale = scale_of(v.0, [rest(2), rest(3)], n * words / 4);
                    both(v, (scale, scale), &mut first.scales[n], &mut second.scales[n]);
                }
                both(v, (rest(1), rest(1)), &mut first.floats[0], &mut second.floats[0]);
            }
            By::Blocks => {
                for b in 0..4 {
                    both(v, (rest(b), rest(b)), &mut first.floats[b], &mut second.floats[b]);
                }
            }
        }
    }
}

/// Writes the lanes of two registers by turns.
#[inline(always)]
fn both(v: I8mm, (a, b): (Int, Int), first: &mut [u32; 4], second: &mut [u32; 4]) {
    let (low, high) = v.zip(a, b);
    v.keep(low, first);
    v.keep(high, second);
}

/// Sums of two tokens and 32 rows, by pairs of rows: four floats a pair, as in a register.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(in super::super) struct Sums {
    /// the results, once the last group is done
    total: [[f32; ROW_BLOCK]; 2],
    /// of a segment that takes more than one slice
    segment: [[f32; ROW_BLOCK]; 2],
}

impl Sums {
    pub(in super::super) const ZERO: Sums = Sums { total: [[0.0; ROW_BLOCK]; 2], segment: [[0.0; ROW_BLOCK]; 2] };

    /// The rows of token `t` of the two.
    #[inline(always)]
    pub(in super::super) fn of(&self, t: usize) -> [f32; ROW_BLOCK] {
        let all = self.total.as_flattened();
        let mut rows = [0.0; ROW_BLOCK];
        for row in 0..ROW_BLOCK {
            rows[row] = all[2 * row + t];
        }
        rows
    }
}

/// 32 rows by all tokens of `out`: `w` the words of the row block, `act` the laid out activations, pair after pair. What
/// was in `out` is of no account.
#[inline(always)]
pub(in super::super) fn row_block<F: Panelled>(
    v: I8mm,
    w: &[Word],
    act: &[Laid],
    (groups, seg_groups): (usize, usize),
    out: &mut [Sums],
) {
    assert!(act.len() == out.len() * groups);
    let mut panel = Panel::ZERO;
    let mut paired = [[Rows::ZERO; PAIRS]; SLICE];
    let mut first = 0;
    while first < groups {
        let place = Place::new(first, SLICE, (groups, seg_groups));
        let end = place.end;
        let mut ahead = place.ahead::<F>(w, 1 + out.len().div_ceil(4));
        for (g, paired) in (first..end).zip(&mut paired) {
            ahead.ask(v.0);
            let block = &w[g / F::GROUPS * F::WORDS..][..F::WORDS];
            F::unpack::<_, PARTS>(v.0, block, g % F::GROUPS, &mut panel);
            pair::<F>(v, &panel, paired);
        }
        let on = Slice { v, paired: &paired[..end - first], act, groups, first, place };
        let mut token = 0;
        while token < out.len() {
            // as many sums as registers hold, of products, of the group and of the segment
            token += match out.len() - token {
                4.. => on.tile::<F, 2, 4>(token, &mut ahead, out),
                2.. => on.tile::<F, 4, 2>(token, &mut ahead, out),
                _ => on.tile::<F, 4, 1>(token, &mut ahead, out),
            };
        }
        first = end;
    }
}

/// Some groups, laid out, and what they meet.
#[derive(Clone, Copy)]
struct Slice<'a> {
    v: I8mm,
    paired: &'a [Paired],
    act: &'a [Laid],
    /// of all rows
    groups: usize,
    /// the first of these
    first: usize,
    place: Place,
}

impl Slice<'_> {
    /// All rows by `T` pairs of tokens, `R` pairs of rows at a time. Returns T.
    #[inline(always)]
    fn tile<F: Panelled, const R: usize, const T: usize>(
        self,
        token: usize,
        ahead: &mut Ahead,
        out: &mut [Sums],
    ) -> usize {
        let Slice { v, paired, groups, place, .. } = self;
        let out: &mut [Sums; T] = (&mut out[token..token + T]).try_into().expect("T pairs");
        let mut act = [&self.act[..0]; T];
        for t in 0..T {
            act[t] = &self.act[(token + t) * groups + self.first..][..paired.len()];
        }
        for row in (0..PAIRS).step_by(R) {
            let mut acc = [[v.0.float(0.0); T]; R];
            if !place.begins {
                for r in 0..R {
                    for t in 0..T {
                        acc[r][t] = load_f(v.0, &out[t].segment[(row + r) / PARTS], (row + r) % PARTS);
                    }
                }
            }
            for (g, paired) in paired.iter().enumerate() {
                if row == 0 {
                    ahead.ask(v.0);
                }
                let rows: &[Rows; R] = paired[row..].first_chunk().expect("R pairs");
                let mut a = [&act[0][g]; T];
                for t in 1..T {
                    a[t] = &act[t][g];
                }
                let terms = terms::<F, R, T>(v, rows, &a);
                for t in 0..T {
                    let da = v.floats(&a[t].scale);
                    for r in 0..R {
                        acc[r][t] = v.0.add_f(acc[r][t], v.0.mul_f(da, terms[r][t]));
                    }
                }
            }
            for r in 0..R {
                for t in 0..T {
                    let (half, part) = ((row + r) / PARTS, (row + r) % PARTS);
                    match place.ends {
                        true => place.add(v.0, acc[r][t], &mut out[t].total[half], part),
                        false => v.0.store(acc[r][t], &mut out[t].segment[half], part),
                    }
                }
            }
        }
        T
    }
}

/// t(g) of two tokens and two rows each.
#[inline(always)]
fn terms<F: Panelled, const R: usize, const T: usize>(v: I8mm, rows: &[Rows; R], a: &[&Laid; T]) -> [[Float; T]; R] {
    let mut out = [[v.0.float(0.0); T]; R];
    let codes_of_one = match F::BY {
        By::Scales(words) => words,
        By::Minima | By::Blocks => 8,
    };
    let eights = codes_of_one / 2;
    let mut s = [[v.0.int(0); T]; R];
    for n in 0..EIGHTS / eights {
        let mut dots = [[v.0.int(0); T]; R];
        for i in n * eights..(n + 1) * eights {
            let mut codes = [v.0.int(0); R];
            for r in 0..R {
                codes[r] = v.ints(&rows[r].codes[i]);
            }
            for t in 0..T {
                let of_tokens = v.ints(&a[t].codes[i]);
                for r in 0..R {
                    dots[r][t] = v.multiply(dots[r][t], codes[r], of_tokens);
                }
            }
        }
        for r in 0..R {
            if F::BY == By::Blocks {
                let d = v.0.as_f(v.ints(&rows[r].floats[n]));
                for t in 0..T {
                    let u = v.0.mul_f(d, v.0.to_f(dots[r][t]));
                    out[r][t] = if n == 0 { u } else { v.0.add_f(out[r][t], u) };
                }
            } else {
                let scale = v.ints(&rows[r].scales[n]);
                for t in 0..T {
                    s[r][t] = v.0.add(s[r][t], v.0.mul(scale, dots[r][t]));
                }
            }
        }
    }
    for r in 0..R {
        let (d, dmin) = (v.0.as_f(v.ints(&rows[r].floats[0])), v.0.as_f(v.ints(&rows[r].floats[1])));
        for t in 0..T {
            match F::BY {
                By::Blocks => {}
                By::Scales(_) => out[r][t] = v.0.mul_f(d, v.0.to_f(s[r][t])),
                By::Minima => {
                    let minima = v.ints(&rows[r].minima);
                    let above = v.multiply(v.0.int(0), minima, v.ints(&a[t].sums[1]));
                    let m = v.multiply(v.0.shl(above, 4), minima, v.ints(&a[t].sums[0]));
                    out[r][t] = v.0.sub_f(v.0.mul_f(d, v.0.to_f(s[r][t])), v.0.mul_f(dmin, v.0.to_f(m)));
                }
            }
        }
    }
    out
}
