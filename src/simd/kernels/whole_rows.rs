//! The kernel of W8A8, whose sums are integers over all of k, and what makes its activations.

use super::{ActBlock, LINE, Matrix, Next, ahead, few, put_block, q8_dots, sum32};
use crate::ops::linear::{GROUP, ROW_BLOCK};
use crate::ops::row_quantize::RowQuantizeParams;
use crate::simd::lanes::{Lanes, Word};

pub(in super::super) struct W8A8;

/// Words of one group: d and b of the row, then 32 of codes.
const WORDS: usize = 34;

/// The word with -128 in each byte.
const LEAST: u32 = 0x8080_8080;

/// Whether a code of the block is -128, which only a fixed scale gives, and which [`Lanes::dot_signed`] does not take.
#[inline(always)]
fn has_least(a: &ActBlock) -> bool {
    let mut any = 0;
    for &codes in &a[1..33] {
        // a byte of x is 0 where the code is -128; the usual test, exact for "is there one"
        let x = codes ^ LEAST;
        any |= x.wrapping_sub(0x0101_0101) & !x & LEAST;
    }
    any != 0
}

/// Codes of -128 as a sum of two blocks' codes: -127 in one, -1 in the other; all other codes in the first.
#[inline(always)]
fn parted(a: &ActBlock) -> [ActBlock; 2] {
    let (mut most, mut rest) = (*a, [0; 37]);
    for i in 1..33 {
        let (codes, mut ones) = (a[i].to_le_bytes(), [0u8; 4]);
        for j in 0..4 {
            ones[j] = u8::from(codes[j] == 0x80);
        }
        let ones = u32::from_le_bytes(ones);
        most[i] = a[i] + ones;
        rest[i] = ones * 255;
    }
    [most, rest]
}

impl Matrix for W8A8 {
    const WORDS: usize = WORDS;
    const GROUPS: usize = 1;
    const JOINED: bool = true;
    const PAIRED: bool = true;
    #[cfg(target_arch = "x86_64")]
    const BOOK: Option<super::Codebook> = None;
    const PANELS: bool = false;

    #[inline(always)]
    fn tile<V: Lanes, const T: usize, const D: usize, const P: usize>(
        v: V,
        w: &[Word],
        act: &[ActBlock],
        groups: usize,
        _seg_groups: usize,
    ) -> [[f32; ROW_BLOCK]; T] {
        assert!(P * V::N == ROW_BLOCK && D == 1 && act.len() == T * groups && w.len() == WORDS * groups);
        // only a fixed scale, of which 1 is left in the blocks, gives codes of -128
        let mut least = false;
        for t in 0..T {
            if act[t * groups][0] == 1f32.to_bits() {
                for a in &act[t * groups..][..groups] {
                    least |= has_least(a);
                }
            }
        }
        let sum =
            if least { sums::<V, T, P, true>(v, w, act, groups) } else { sums::<V, T, P, false>(v, w, act, groups) };
        let mut over = [0i32; T];
        if V::SIGNED_BIAS != 0 {
            for t in 0..T {
                for a in &act[t * groups..][..groups] {
                    over[t] = over[t].wrapping_add(sum32(a, 0) + sum32(a, 1) + sum32(a, 2) + sum32(a, 3));
                }
            }
        }
        let mut out = [[0.0; ROW_BLOCK]; T];
        for t in 0..T {
            let da = v.float(f32::from_bits(act[t * groups][0]));
            for part in 0..P {
                let (d, b) = (v.as_f(v.load(&w[0], part)), v.load(&w[1], part));
                let s = v.add(v.sub(sum[t][part], v.int(V::SIGNED_BIAS.wrapping_mul(over[t]))), b);
                v.store(v.canon(v.mul_f(v.mul_f(v.to_f(s), da), d)), &mut out[t], part);
            }
        }
        out
    }
}

/// Sums over all groups, of every part of the rows and every token, with [`Lanes::SIGNED_BIAS`] in them. `LEAST`: there are
/// activations of -128.
#[inline(always)]
fn sums<V: Lanes, const T: usize, const P: usize, const LEAST: bool>(
    v: V,
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
) -> [[V::I; P]; T] {
    let mut sum = [[v.int(0); P]; T];
    let lines = (WORDS * size_of::<Word>() / LINE).div_ceil(P);
    let ahead = ahead(v, P == 1);
    for g in 0..groups {
        let mut a = [[&act[0]; 1]; T];
        for t in 0..T {
            a[t] = [&act[t * groups + g]];
        }
        let codes: &[Word; 32] = w[g * WORDS + 2..].first_chunk().expect("32 words of codes");
        for part in 0..P {
            // opaque, as in `quantised`
            let a = std::hint::black_box(&a);
            let next = Next::new(w, g * WORDS * size_of::<Word>(), part, if few::<T, 1>() { lines } else { 0 }, ahead);
            let mut s = [[v.int(0); 1]; T];
            for t in 0..T {
                s[t][0] = sum[t][part];
            }
            if LEAST {
                for t in 0..T {
                    let [most, rest] = parted(a[t][0]);
                    let mut one = [s[t]];
                    group::<V, 1>(v, codes, part, &[[&most]], next, &mut one);
                    group::<V, 1>(v, codes, part, &[[&rest]], next, &mut one);
                    s[t] = one[0];
                }
            } else {
                group::<V, T>(v, codes, part, a, next, &mut s);
            }
            for t in 0..T {
                sum[t][part] = s[t][0];
            }
        }
    }
    sum
}

/// Dots of the codes of one group, added to `s`.
#[inline(always)]
fn group<V: Lanes, const T: usize>(
    v: V,
    codes: &[Word; 32],
    part: usize,
    a: &[[&ActBlock; 1]; T],
    next: Next,
    s: &mut [[V::I; 1]; T],
) {
    q8_dots::<V, 0, T, 1>(v, codes, part, a, next, s);
    q8_dots::<V, 1, T, 1>(v, codes, part, a, next, s);
    q8_dots::<V, 2, T, 1>(v, codes, part, a, next, s);
    q8_dots::<V, 3, T, 1>(v, codes, part, a, next, s);
}

/// `ops::row_quantize` of one row: `x` `[k]`, `blocks` those of its groups.
#[inline(always)]
pub(in super::super) fn quantise_row(p: &RowQuantizeParams, x: &[f32], blocks: &mut [ActBlock]) {
    use crate::ops::exact::{not_finite, quotient};
    /// Adding 1.5 * 2^23 rounds |x| < 2^22 to an integer, half to even, and leaves that integer in the low bits.
    const MAGIC: f32 = 12_582_912.0;

    let mut amax = [0u32; 16];
    let (whole, rest) = x.as_chunks::<16>();
    for x in whole {
        for l in 0..16 {
            amax[l] = amax[l].max(x[l].to_bits() & 0x7fff_ffff);
        }
    }
    for x in rest {
        amax[0] = amax[0].max(x.to_bits() & 0x7fff_ffff);
    }
    let d = p.row_scale(f32::from_bits(amax.into_iter().fold(0, u32::max)));
    if d == 0.0 || not_finite(d) {
        for block in blocks {
            block.fill(0);
            block[0] = d.to_bits();
        }
        return;
    }
    let divisor = if p.limit == 0 { p.scale } else { d };
    let (low, high) = p.codes();
    for (g, block) in blocks.iter_mut().enumerate() {
        let rest = &x[g * GROUP..];
        let mut padded = [0.0; GROUP];
        let live = rest.len().min(GROUP);
        padded[..live].copy_from_slice(&rest[..live]);
        let mut codes = [0i32; GROUP];
        for i in 0..GROUP {
            let t = quotient(padded[i], divisor) + p.offset;
            let t = if t < low as f32 { low as f32 } else { t };
            let t = if t > high as f32 { high as f32 } else { t };
            codes[i] = ((t + MAGIC).to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
        }
        // past the end of the row there is no code, not the code of 0
        codes[live..].fill(0);
        put_block(block, d, &codes);
    }
}
