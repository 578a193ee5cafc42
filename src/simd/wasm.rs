//! The vector operations with WebAssembly's simd128: four rows to a register. Whether a module may use them is decided
//! when it is compiled (`-C target-feature=+simd128`), so there is nothing to detect. Relaxed SIMD has no place here: its
//! results differ between machines.

use super::lanes::{Lanes, Word};
use super::rows::{RowLanes, levels, sign_at};
use crate::ops::exact::{CANON_MAX, CANON_MIN, POISON};
use crate::ops::linear::ROW_BLOCK;
use std::arch::wasm32::*;

/// simd128.
#[derive(Clone, Copy)]
pub(super) struct Simd128;

/// Four words.
#[inline(always)]
fn load(words: &[u32]) -> v128 {
    let words = &words[..4];
    // SAFETY: four words are readable; no alignment is needed.
    unsafe { v128_load(words.as_ptr().cast()) }
}

#[inline(always)]
fn store(a: v128, to: &mut [f32]) {
    let to = &mut to[..4];
    // SAFETY: four floats are writable; no alignment is needed.
    unsafe { v128_store(to.as_mut_ptr().cast(), a) }
}

/// The finite f16 in the low halves; the others are 0. Exponent and mantissa in place but for the bias; the product is
/// exact, of subnormals too.
#[inline(always)]
fn widen(halves: v128) -> v128 {
    let magnitude = i32x4_shl(v128_and(halves, u32x4_splat(0x7fff)), 13);
    let magnitude = f32x4_mul(magnitude, u32x4_splat((127 + 127 - 15) << 23));
    v128_or(magnitude, i32x4_shl(v128_and(halves, u32x4_splat(0x8000)), 16))
}

#[inline(always)]
fn table(t: [f32; 4]) -> v128 {
    f32x4(t[0], t[1], t[2], t[3])
}

/// The even and the odd bytes as signed halves.
#[inline(always)]
fn split(bytes: v128) -> (v128, v128) {
    (i16x8_shr(i16x8_shl(bytes, 8), 8), i16x8_shr(bytes, 8))
}

/// acc + the products of signed halves, those of a word summed.
#[inline(always)]
fn dot(acc: v128, a: v128, b: v128) -> v128 {
    i32x4_add(acc, i32x4_dot_i16x8(a, b))
}

impl Lanes for Simd128 {
    const N: usize = 4;
    const SIGNED_BIAS: i32 = 0;
    type I = v128;
    type F = v128;
    /// even and odd bytes, as halves
    type S = (v128, v128);

    #[inline(always)]
    fn load(self, word: &Word, part: usize) -> v128 {
        load(&word[part * 4..])
    }
    #[inline(always)]
    fn int(self, i: i32) -> v128 {
        i32x4_splat(i)
    }
    #[inline(always)]
    fn and(self, a: v128, mask: u32) -> v128 {
        v128_and(a, u32x4_splat(mask))
    }
    #[inline(always)]
    fn xor(self, a: v128, mask: u32) -> v128 {
        v128_xor(a, u32x4_splat(mask))
    }
    #[inline(always)]
    fn xor_each(self, a: v128, b: v128) -> v128 {
        v128_xor(a, b)
    }
    #[inline(always)]
    fn or(self, a: v128, b: v128) -> v128 {
        v128_or(a, b)
    }
    #[inline(always)]
    fn add(self, a: v128, b: v128) -> v128 {
        i32x4_add(a, b)
    }
    #[inline(always)]
    fn sub(self, a: v128, b: v128) -> v128 {
        i32x4_sub(a, b)
    }
    #[inline(always)]
    fn mul(self, a: v128, b: v128) -> v128 {
        i32x4_mul(a, b)
    }
    #[inline(always)]
    fn shl(self, a: v128, n: u32) -> v128 {
        i32x4_shl(a, n)
    }
    #[inline(always)]
    fn shr(self, a: v128, n: u32) -> v128 {
        u32x4_shr(a, n)
    }
    #[inline(always)]
    fn sar(self, a: v128, n: u32) -> v128 {
        i32x4_shr(a, n)
    }
    #[inline(always)]
    fn dot_unsigned(self, acc: v128, w: v128, a: u32) -> v128 {
        let (even, odd) = split(u32x4_splat(a));
        dot(dot(acc, v128_and(w, u32x4_splat(0x00ff_00ff)), even), u16x8_shr(w, 8), odd)
    }
    #[inline(always)]
    fn signed(self, w: v128) -> (v128, v128) {
        split(w)
    }
    #[inline(always)]
    fn dot_signed(self, acc: v128, w: (v128, v128), a: u32) -> v128 {
        let (even, odd) = split(u32x4_splat(a));
        dot(dot(acc, w.0, even), w.1, odd)
    }
    #[inline(always)]
    fn dot_halves(self, acc: v128, w: v128, a: u32) -> v128 {
        dot(acc, w, u32x4_splat(a))
    }
    #[inline(always)]
    fn sixteen(self, table: &'static [i8; 16], index: v128) -> (v128, v128) {
        let table = u128::from_le_bytes(table.map(|value| value as u8));
        split(u8x16_swizzle(u64x2(table as u64, (table >> 64) as u64), index))
    }
    #[inline(always)]
    fn of_table(self, table: &'static [u8; 16], index: v128) -> v128 {
        let table = u128::from_le_bytes(*table);
        u8x16_swizzle(u64x2(table as u64, (table >> 64) as u64), index)
    }

    #[inline(always)]
    fn to_f(self, a: v128) -> v128 {
        f32x4_convert_i32x4(a)
    }
    #[inline(always)]
    fn as_f(self, a: v128) -> v128 {
        a
    }
    #[inline(always)]
    fn f16_pair(self, a: v128) -> (v128, v128) {
        (widen(v128_and(a, u32x4_splat(0xffff))), widen(u32x4_shr(a, 16)))
    }
    #[inline(always)]
    fn float(self, x: f32) -> v128 {
        f32x4_splat(x)
    }
    #[inline(always)]
    fn add_f(self, a: v128, b: v128) -> v128 {
        f32x4_add(a, b)
    }
    #[inline(always)]
    fn sub_f(self, a: v128, b: v128) -> v128 {
        f32x4_sub(a, b)
    }
    #[inline(always)]
    fn mul_f(self, a: v128, b: v128) -> v128 {
        f32x4_mul(a, b)
    }
    #[inline(always)]
    fn canon(self, a: v128) -> v128 {
        let magnitude = f32x4_abs(a);
        let kept = v128_andnot(a, f32x4_lt(magnitude, f32x4_splat(CANON_MIN)));
        // what is not less is too large, or a NaN
        v128_bitselect(kept, f32x4_splat(POISON), f32x4_lt(magnitude, f32x4_splat(CANON_MAX)))
    }
    #[inline(always)]
    fn store(self, a: v128, to: &mut [f32; ROW_BLOCK], part: usize) {
        store(a, &mut to[part * 4..]);
    }
}

impl RowLanes for Simd128 {
    const HALVES: bool = true;

    #[inline(always)]
    fn f32_row(self, words: &[u32]) -> v128 {
        load(words)
    }
    #[inline(always)]
    fn f16_row(self, words: &[u32]) -> v128 {
        widen(u32x4_extend_low_u16x8(u32x4(words[0], words[1], 0, 0)))
    }
    #[inline(always)]
    fn q8_row(self, words: &[u32], d: f32) -> v128 {
        let codes = i32x4_extend_low_i16x8(i16x8_extend_low_i8x16(u32x4_splat(words[0])));
        f32x4_mul(f32x4_splat(d), f32x4_convert_i32x4(codes))
    }
    #[inline(always)]
    fn q4_row(self, words: &[u32], part: usize, d: f32) -> v128 {
        let nibbles = words[part % 4] >> (part / 4 * 4) & 0x0f0f_0f0f;
        let codes = i32x4_extend_low_i16x8(i16x8_extend_low_i8x16(u32x4_splat(nibbles)));
        f32x4_mul(f32x4_splat(d), f32x4_convert_i32x4(i32x4_sub(codes, i32x4_splat(8))))
    }
    #[inline(always)]
    fn scales(self, words: &[u32; 4]) -> [f32; 8] {
        let mut out = [0.0; 8];
        let halves = load(words);
        store(widen(u32x4_extend_low_u16x8(halves)), &mut out);
        store(widen(u32x4_extend_high_u16x8(halves)), &mut out[4..]);
        out
    }
    #[inline(always)]
    fn tq3_row<const ONE: bool>(self, block: &[u32], part: usize, d: f32) -> v128 {
        let block = &block[..3];
        let (above, below) = const { (levels(ONE, false), levels(ONE, true)) };
        // there is no shift by lane: each element's two bits are multiplied up to bits 6 and 7, then all go down
        let codes = i32x4_mul(u32x4_splat(block[part / 4 % 2] >> (part % 4 * 8) & 0xff), i32x4(64, 16, 4, 1));
        let codes = v128_and(u32x4_shr(codes, 6), u32x4_splat(3));
        // the four bytes of the level of that number
        let bytes = i32x4_add(i32x4_mul(codes, u32x4_splat(0x0404_0404)), u32x4_splat(0x0302_0100));
        let mut level = u8x16_swizzle(table(above), bytes);
        if ONE {
            // the sign to the top of its lane, then everywhere in it
            let signs = i32x4_mul(u32x4_splat(block[2] >> (part % 8 * 4) & 15), i32x4(8, 4, 2, 1));
            let signs = i32x4_shr(i32x4_shl(signs, 28), 31);
            level = v128_bitselect(u8x16_swizzle(table(below), bytes), level, signs);
        }
        f32x4_mul(f32x4_splat(d), level)
    }
    #[inline(always)]
    fn swap<const S: usize>(self, a: v128) -> v128 {
        match S {
            1 => i32x4_shuffle::<1, 0, 3, 2>(a, a),
            _ => i32x4_shuffle::<2, 3, 0, 1>(a, a),
        }
    }
    #[inline(always)]
    fn halves(self, w: (v128, v128)) -> (v128, v128) {
        w
    }
    #[inline(always)]
    fn nibbles(self, qr: v128, half: usize) -> v128 {
        let x = self.and(self.shr(qr, 16 * half as u32), 0xffff);
        let x = self.and(self.or(x, self.shl(x, 8)), 0x00ff_00ff);
        self.and(self.or(x, self.shl(x, 4)), 0x0f0f_0f0f)
    }
    #[inline(always)]
    fn tq3_1_levels<const SIGN: u32>(self, low: v128, signs: v128) -> (v128, v128) {
        let table = const { u128::from_le_bytes(sign_at(SIGN, 0)) };
        let codes = self.or(self.and(low, 0x0303_0303), self.and(signs, 0x0c0c_0c0c));
        split(u8x16_swizzle(u64x2(table as u64, (table >> 64) as u64), codes))
    }
}
