//! The vector operations in plain Rust, in loops a compiler turns into whatever vectors the target always has.

use super::lanes::{Lanes, Word};
use crate::ops::exact::canon;
use crate::ops::linear::ROW_BLOCK;

/// Plain Rust; needs nothing of the CPU. Eight lanes.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// The same with four lanes, which every target's smallest vector holds, and with dots of signed halves in pairs, which
/// most targets have an instruction for: for sums of integers over tiles of tokens.
#[derive(Clone, Copy)]
pub(super) struct Narrow;

/// `f(l)` for every lane.
macro_rules! each {
    (|$l:ident| $e:expr) => {{
        let mut out = [Default::default(); Self::N];
        for $l in 0..Self::N {
            out[$l] = $e;
        }
        out
    }};
}

const fn byte(w: i32, i: u32) -> i32 {
    (w >> (8 * i)) as i8 as i32
}

/// What does not depend on how dots are taken.
macro_rules! lanes {
    ($n:expr) => {
        const N: usize = $n;
        type I = [i32; $n];
        type F = [f32; $n];
        type S = [i32; $n];

        #[inline(always)]
        fn load(self, word: &Word, part: usize) -> [i32; $n] {
            each!(|l| word[part * $n + l] as i32)
        }
        #[inline(always)]
        fn int(self, i: i32) -> [i32; $n] {
            [i; $n]
        }
        #[inline(always)]
        fn and(self, a: [i32; $n], mask: u32) -> [i32; $n] {
            each!(|l| a[l] & mask as i32)
        }
        #[inline(always)]
        fn xor(self, a: [i32; $n], mask: u32) -> [i32; $n] {
            each!(|l| a[l] ^ mask as i32)
        }
        #[inline(always)]
        fn xor_each(self, a: [i32; $n], b: [i32; $n]) -> [i32; $n] {
            each!(|l| a[l] ^ b[l])
        }
        #[inline(always)]
        fn or(self, a: [i32; $n], b: [i32; $n]) -> [i32; $n] {
            each!(|l| a[l] | b[l])
        }
        #[inline(always)]
        fn add(self, a: [i32; $n], b: [i32; $n]) -> [i32; $n] {
            each!(|l| a[l].wrapping_add(b[l]))
        }
        #[inline(always)]
        fn sub(self, a: [i32; $n], b: [i32; $n]) -> [i32; $n] {
            each!(|l| a[l].wrapping_sub(b[l]))
        }
        #[inline(always)]
        fn mul(self, a: [i32; $n], b: [i32; $n]) -> [i32; $n] {
            each!(|l| a[l].wrapping_mul(b[l]))
        }
        #[inline(always)]
        fn shl(self, a: [i32; $n], n: u32) -> [i32; $n] {
            each!(|l| a[l].wrapping_shl(n))
        }
        #[inline(always)]
        fn shr(self, a: [i32; $n], n: u32) -> [i32; $n] {
            each!(|l| (a[l] as u32).wrapping_shr(n) as i32)
        }
        #[inline(always)]
        fn sar(self, a: [i32; $n], n: u32) -> [i32; $n] {
            each!(|l| a[l].wrapping_shr(n))
        }
        #[inline(always)]
        fn to_f(self, a: [i32; $n]) -> [f32; $n] {
            each!(|l| a[l] as f32)
        }
        #[inline(always)]
        fn as_f(self, a: [i32; $n]) -> [f32; $n] {
            each!(|l| f32::from_bits(a[l] as u32))
        }
        #[inline(always)]
        fn f16_pair(self, a: [i32; $n]) -> ([f32; $n], [f32; $n]) {
            (each!(|l| f16_finite(a[l] as u32 & 0xffff)), each!(|l| f16_finite(a[l] as u32 >> 16)))
        }
        #[inline(always)]
        fn float(self, x: f32) -> [f32; $n] {
            [x; $n]
        }
        #[inline(always)]
        fn add_f(self, a: [f32; $n], b: [f32; $n]) -> [f32; $n] {
            each!(|l| a[l] + b[l])
        }
        #[inline(always)]
        fn sub_f(self, a: [f32; $n], b: [f32; $n]) -> [f32; $n] {
            each!(|l| a[l] - b[l])
        }
        #[inline(always)]
        fn mul_f(self, a: [f32; $n], b: [f32; $n]) -> [f32; $n] {
            each!(|l| a[l] * b[l])
        }
        #[inline(always)]
        fn canon(self, a: [f32; $n]) -> [f32; $n] {
            each!(|l| canon(a[l]))
        }
        #[inline(always)]
        fn store(self, a: [f32; $n], to: &mut [f32; ROW_BLOCK], part: usize) {
            to[part * $n..part * $n + $n].copy_from_slice(&a);
        }
    };
}

impl Lanes for Portable {
    const SIGNED_BIAS: i32 = 0;
    lanes!(8);

    #[inline(always)]
    fn dot_unsigned(self, acc: [i32; 8], w: [i32; 8], a: u32) -> [i32; 8] {
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
    fn signed(self, w: [i32; 8]) -> [i32; 8] {
        w
    }
    #[inline(always)]
    fn dot_signed(self, acc: [i32; 8], w: [i32; 8], a: u32) -> [i32; 8] {
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
    fn dot_halves(self, acc: [i32; 8], w: [i32; 8], a: u32) -> [i32; 8] {
        let (a0, a1) = (a as u16 as i16 as i32, a as i32 >> 16);
        each!(|l| acc[l].wrapping_add(((w[l] << 16) >> 16) * a0).wrapping_add((w[l] >> 16) * a1))
    }
}

impl Lanes for Narrow {
    /// signed codes become unsigned ones, so that there is one dot
    const SIGNED_BIAS: i32 = 128;
    lanes!(4);

    #[inline(always)]
    fn dot_unsigned(self, acc: [i32; 4], w: [i32; 4], a: u32) -> [i32; 4] {
        let even = each!(|l| w[l] & 0x00ff_00ff);
        let odd = each!(|l| (w[l] as u32 >> 8) as i32 & 0x00ff_00ff);
        self.dot_halves(self.dot_halves(acc, even, even_bytes(a)), odd, even_bytes(a >> 8))
    }
    #[inline(always)]
    fn signed(self, w: [i32; 4]) -> [i32; 4] {
        each!(|l| w[l] ^ 0x8080_8080u32 as i32)
    }
    #[inline(always)]
    fn dot_signed(self, acc: [i32; 4], w: [i32; 4], a: u32) -> [i32; 4] {
        self.dot_unsigned(acc, w, a)
    }
    #[inline(always)]
    fn dot_halves(self, acc: [i32; 4], w: [i32; 4], a: u32) -> [i32; 4] {
        // written so that compilers see the products of neighbouring halves summed
        let (w, a): ([i16; 8], [i16; 8]) = (bytemuck::cast(w), bytemuck::cast([a; 4]));
        each!(|l| {
            let pair = w[2 * l] as i32 * a[2 * l] as i32 + w[2 * l + 1] as i32 * a[2 * l + 1] as i32;
            acc[l].wrapping_add(pair)
        })
    }
}

/// Signed bytes 0 and 2 as two signed halves.
#[inline(always)]
fn even_bytes(a: u32) -> u32 {
    (a as i8 as i16 as u16 as u32) | ((a >> 16) as i8 as i16 as u16 as u32) << 16
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
