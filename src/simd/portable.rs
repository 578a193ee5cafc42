//! The vector operations in plain Rust, in loops a compiler turns into whatever vectors the target always has.

use super::lanes::{Lanes, Word};
use crate::ops::exact::canon;
use crate::ops::linear::ROW_BLOCK;

/// Lanes of this level.
const N: usize = 8;

/// Plain Rust; needs nothing of the CPU.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// `f(l)` for every lane.
macro_rules! each {
    (|$l:ident| $e:expr) => {{
        let mut out = [Default::default(); N];
        for $l in 0..N {
            out[$l] = $e;
        }
        out
    }};
}

const fn byte(w: i32, i: u32) -> i32 {
    (w >> (8 * i)) as i8 as i32
}

impl Lanes for Portable {
    const N: usize = N;
    const SIGNED_BIAS: i32 = 0;
    type I = [i32; N];
    type F = [f32; N];
    type S = [i32; N];

    #[inline(always)]
    fn load(self, word: &Word, part: usize) -> [i32; N] {
        each!(|l| word[part * N + l] as i32)
    }
    #[inline(always)]
    fn int(self, i: i32) -> [i32; N] {
        [i; N]
    }
    #[inline(always)]
    fn and(self, a: [i32; N], mask: u32) -> [i32; N] {
        each!(|l| a[l] & mask as i32)
    }
    #[inline(always)]
    fn or(self, a: [i32; N], b: [i32; N]) -> [i32; N] {
        each!(|l| a[l] | b[l])
    }
    #[inline(always)]
    fn add(self, a: [i32; N], b: [i32; N]) -> [i32; N] {
        each!(|l| a[l].wrapping_add(b[l]))
    }
    #[inline(always)]
    fn sub(self, a: [i32; N], b: [i32; N]) -> [i32; N] {
        each!(|l| a[l].wrapping_sub(b[l]))
    }
    #[inline(always)]
    fn mul(self, a: [i32; N], b: [i32; N]) -> [i32; N] {
        each!(|l| a[l].wrapping_mul(b[l]))
    }
    #[inline(always)]
    fn shl(self, a: [i32; N], n: u32) -> [i32; N] {
        each!(|l| a[l].wrapping_shl(n))
    }
    #[inline(always)]
    fn shr(self, a: [i32; N], n: u32) -> [i32; N] {
        each!(|l| (a[l] as u32).wrapping_shr(n) as i32)
    }
    #[inline(always)]
    fn sar(self, a: [i32; N], n: u32) -> [i32; N] {
        each!(|l| a[l].wrapping_shr(n))
    }
    #[inline(always)]
    fn dot_unsigned(self, acc: [i32; N], w: [i32; N], a: u32) -> [i32; N] {
        let a = a as i32;
        // operands of at most 16 bits: most targets multiply those faster than whole words
        let (a0, a1, a2, a3) = (byte(a, 0), byte(a, 1), byte(a, 2), byte(a, 3));
        each!(|l| {
            let w = w[l];
            acc[l]
                .wrapping_add((w & 0xff) * a0 + ((w >> 8) & 0xff) * a1)
                .wrapping_add(((w >> 16) & 0xff) * a2 + ((w >> 24) & 0xff) * a3)
        })
    }
    #[inline(always)]
    fn signed(self, w: [i32; N]) -> [i32; N] {
        w
    }
    #[inline(always)]
    fn dot_signed(self, acc: [i32; N], w: [i32; N], a: u32) -> [i32; N] {
        let a = a as i32;
        let (a0, a1, a2, a3) = (byte(a, 0), byte(a, 1), byte(a, 2), byte(a, 3));
        each!(|l| {
            let w = w[l];
            acc[l]
                .wrapping_add(((w << 24) >> 24) * a0 + ((w << 16) >> 24) * a1)
                .wrapping_add(((w << 8) >> 24) * a2 + (w >> 24) * a3)
        })
    }
    #[inline(always)]
    fn dot_halves(self, acc: [i32; N], w: [i32; N], a: u32) -> [i32; N] {
        let (a0, a1) = (a as u16 as i16 as i32, a as i32 >> 16);
        each!(|l| acc[l]
            .wrapping_add(((w[l] << 16) >> 16) * a0)
            .wrapping_add((w[l] >> 16) * a1))
    }

    #[inline(always)]
    fn to_f(self, a: [i32; N]) -> [f32; N] {
        each!(|l| a[l] as f32)
    }
    #[inline(always)]
    fn as_f(self, a: [i32; N]) -> [f32; N] {
        each!(|l| f32::from_bits(a[l] as u32))
    }
    #[inline(always)]
    fn f16_pair(self, a: [i32; N]) -> ([f32; N], [f32; N]) {
        (
            each!(|l| f16_finite(a[l] as u32 & 0xffff)),
            each!(|l| f16_finite(a[l] as u32 >> 16)),
        )
    }
    #[inline(always)]
    fn float(self, x: f32) -> [f32; N] {
        [x; N]
    }
    #[inline(always)]
    fn add_f(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        each!(|l| a[l] + b[l])
    }
    #[inline(always)]
    fn sub_f(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        each!(|l| a[l] - b[l])
    }
    #[inline(always)]
    fn mul_f(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        each!(|l| a[l] * b[l])
    }
    #[inline(always)]
    fn canon(self, a: [f32; N]) -> [f32; N] {
        each!(|l| canon(a[l]))
    }
    #[inline(always)]
    fn store(self, a: [f32; N], to: &mut [f32; ROW_BLOCK], part: usize) {
        to[part * N..part * N + N].copy_from_slice(&a);
    }
}

/// `exact::f16_to_f32` of a finite value, without branches. A subnormal is read as 1.m * 2^-14, less the 2^-14 (exact).
#[inline(always)]
fn f16_finite(h: u32) -> f32 {
    let bits = ((h & 0x7fff) << 13) + ((127 - 15) << 23);
    let normal = f32::from_bits(bits);
    let subnormal = f32::from_bits(bits + (1 << 23)) - f32::from_bits((127 - 14) << 23);
    let magnitude = if h & 0x7c00 == 0 { subnormal } else { normal };
    f32::from_bits(magnitude.to_bits() | (h & 0x8000) << 16)
}
