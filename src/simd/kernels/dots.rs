//! Many tokens by dots of four bytes: panels that meet tiles of tokens, at the levels of x86-64. Activations are laid
//! out anew for it, the tokens of a tile side by side. The sums are those of [`super::quantised`], in its order.
//!
//! Dots and multiplications share two of a core's four vector units, which is what bounds these kernels: so minima take
//! two dots of halves a group instead of four, and what a type's codes lie above or below their value is a sum of the
//! row alone, made while unpacking.

use super::panel::{Ahead, By, Panel, Panelled, Place, load_f, scale_of};
use super::{ActBlock, sum32};
use crate::ops::linear::{ACT_BLOCK_WORDS, ROW_BLOCK};
use crate::simd::lanes::{Dots, Word};

/// Tokens of a tile.
pub(in super::super) const TILE: usize = 4;

/// Words of a token and group: the scale, 32 of codes, and the sums of blocks 0 and 2, and 1 and 3, as halves.
pub(in super::super) const LAID: usize = 35;

/// Groups that are unpacked at a time, as many as leave room for activations in the first-level cache.
const SLICE: usize = 6;

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

/// Words of codes whose products fit halves with 16 bits when they are summed there, 8 at most; 0: not even those of
/// one. A half has two products of a word.
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

/// 32 rows by all tokens of `out`, whose number is a multiple of [`TILE`]: `w` the words of the row block, `act` the
/// laid out activations, tile after tile. What was in `out` is of no account. `ALL` parts of V::N lanes make 32, and
/// `P` of them are in registers at a time.
#[inline(always)]
pub(in super::super) fn row_block<V: Dots, F: Panelled, const P: usize, const ALL: usize>(
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
            let block = &w[g / F::GROUPS * F::WORDS..][..F::WORDS];
            F::unpack::<V, ALL>(v, block, g % F::GROUPS, panel);
        }
        for (tile, out) in out.as_chunks_mut::<TILE>().0.iter_mut().enumerate() {
            let act = &act[(tile * groups + first) * LAID..][..(end - first) * LAID];
            slice::<V, F, P, ALL>(v, &panels[..end - first], act, place, &mut ahead, out);
        }
        first = end;
    }
}

/// One tile and the panels of one slice.
#[inline(always)]
fn slice<V: Dots, F: Panelled, const P: usize, const ALL: usize>(
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
            let terms = terms::<V, F, P>(v, panel, a, part);
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

/// Dots of words `at .. at + n` of the codes with every token, added to `dots`.
#[inline(always)]
fn add_dots<V: Dots, F: Panelled, const P: usize>(
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
fn add_scaled<V: Dots, F: Panelled, const P: usize>(
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
fn add_in_halves<V: Dots, F: Panelled, const P: usize>(
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

/// t(g) of parts `part .. part + P` of the rows for every token of a tile.
#[inline(always)]
fn terms<V: Dots, F: Panelled, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE] {
    match F::BY {
        By::Minima => least_terms::<V, F, P>(v, panel, a, part),
        By::Scales(4) => scaled_terms::<V, F, 4, P>(v, panel, a, part),
        By::Scales(_) => scaled_terms::<V, F, 8, P>(v, panel, a, part),
        By::Blocks => block_terms::<V, F, P>(v, panel, a, part),
    }
}

/// t(g) of Q4_K and Q5_K.
#[inline(always)]
fn least_terms<V: Dots, F: Panelled, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE] {
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

/// t(g) of a type with integer scales, each for `N` words of codes: 4 or 8.
#[inline(always)]
fn scaled_terms<V: Dots, F: Panelled, const N: usize, const P: usize>(
    v: V,
    panel: &Panel,
    a: &Laid,
    part: usize,
) -> [[V::F; P]; TILE] {
    let mut s = [[v.int(0); P]; TILE];
    for t in 0..TILE {
        for p in 0..P {
            s[t][p] = v.load(&panel.rest[0], part + p);
        }
    }
    // unrolled, these take a fifth longer
    for n in 0..32 / N {
        let mut scale = [v.int(0); P];
        for p in 0..P {
            let words = [v.load(&panel.rest[2], part + p), v.load(&panel.rest[3], part + p)];
            scale[p] = scale_of(v, words, n * N / 4);
        }
        add_scaled::<V, F, P>(v, panel, a, (N * n, N), part, scale, &mut s);
    }
    let mut out = [[v.float(0.0); P]; TILE];
    for p in 0..P {
        let d = v.as_f(v.load(&panel.rest[1], part + p));
        for t in 0..TILE {
            out[t][p] = v.mul_f(d, v.to_f(s[t][p]));
        }
    }
    out
}

/// t(g) of types with a scale for each block and none but symmetric codes.
#[inline(always)]
fn block_terms<V: Dots, F: Panelled, const P: usize>(v: V, panel: &Panel, a: &Laid, part: usize) -> [[V::F; P]; TILE] {
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
