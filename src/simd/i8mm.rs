//! Products of pairs: FEAT_I8MM's `smmla` (Apple M2, Neoverse V1 and N2, Cortex-A510 and later), which stable Rust
//! reaches by inline assembly alone.
//!
//! One instruction multiplies two rows of eight signed bytes with two others, and adds the four sums to those of a
//! register: integers, which wrap, so in whatever order the CPU adds them. Everything else is NEON's.

use super::neon::Neon;
use std::arch::aarch64::*;
use std::arch::asm;

/// Proof that this CPU has NEON, the dot-product extension and FEAT_I8MM.
#[derive(Clone, Copy)]
pub(super) struct I8mm(pub(super) Neon<true>);

/// Wraps intrinsics. The one reason they are sound is given here.
macro_rules! intrinsics {
    ($e:expr) => {
        // SAFETY: `self` exists only where `I8mm::new` was allowed, so the CPU has the instructions; what they read or
        // write through pointers is an array of sixteen bytes.
        unsafe { $e }
    };
}

/// Adds to each lane the products of eight signed bytes. The intrinsic (`vmmlaq_s32`) is not stable yet.
#[inline]
#[target_feature(enable = "neon,i8mm")]
fn smmla(mut acc: int32x4_t, rows: int32x4_t, tokens: int32x4_t) -> int32x4_t {
    // SAFETY: the instruction works on registers only, and this function's target features include it.
    unsafe {
        asm!(
            "smmla {acc:v}.4s, {rows:v}.16b, {tokens:v}.16b",
            acc = inout(vreg) acc,
            rows = in(vreg) rows,
            tokens = in(vreg) tokens,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

impl I8mm {
    /// # Safety
    ///
    /// This CPU has NEON, the dot-product extension and FEAT_I8MM.
    pub(super) const unsafe fn new() -> I8mm {
        // SAFETY: the caller's promise.
        I8mm(unsafe { Neon::new() })
    }

    /// acc + the products of two rows, eight signed bytes each, with two tokens: lanes are row 0 by token 0, row 0 by
    /// token 1, row 1 by token 0 and row 1 by token 1.
    #[inline(always)]
    pub(super) fn multiply(self, acc: int32x4_t, rows: int32x4_t, tokens: int32x4_t) -> int32x4_t {
        intrinsics!(smmla(acc, rows, tokens))
    }

    /// The lanes of both by turns: those of lanes 0 and 1, and those of lanes 2 and 3.
    #[inline(always)]
    pub(super) fn zip(self, a: int32x4_t, b: int32x4_t) -> (int32x4_t, int32x4_t) {
        intrinsics!((vzip1q_s32(a, b), vzip2q_s32(a, b)))
    }

    /// Four integers.
    #[inline(always)]
    pub(super) fn ints(self, from: &[u32; 4]) -> int32x4_t {
        intrinsics!(vld1q_s32(from.as_ptr().cast()))
    }

    /// Four floats.
    #[inline(always)]
    pub(super) fn floats(self, from: &[f32; 4]) -> float32x4_t {
        intrinsics!(vld1q_f32(from.as_ptr()))
    }

    #[inline(always)]
    pub(super) fn keep(self, a: int32x4_t, to: &mut [u32; 4]) {
        intrinsics!(vst1q_s32(to.as_mut_ptr().cast(), a))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[target_feature(enable = "neon,dotprod,i8mm")]
    fn products(acc: [u32; 4], rows: [[i8; 8]; 2], tokens: [[i8; 8]; 2]) -> [u32; 4] {
        // SAFETY: this function's own target features.
        let v = unsafe { I8mm::new() };
        let (rows, tokens): ([u32; 4], [u32; 4]) = (bytemuck::cast(rows), bytemuck::cast(tokens));
        let mut out = [0; 4];
        v.keep(v.multiply(v.ints(&acc), v.ints(&rows), v.ints(&tokens)), &mut out);
        out
    }

    #[test]
    fn a_product_of_pairs_is_the_sums_of_products() {
        if !super::super::Level::NeonI8mm.is_available() {
            println!("skipped: this CPU has no FEAT_I8MM");
            return;
        }
        let byte = |i: usize| (i * 89 + i / 7 * 31) as i8;
        let mut rows = [[0; 8]; 2];
        let mut tokens = [[0; 8]; 2];
        for (i, x) in rows.as_flattened_mut().iter_mut().chain(tokens.as_flattened_mut()).enumerate() {
            *x = byte(i);
        }
        rows[1] = [-128; 8];
        tokens[1] = [-128; 8];
        let acc = [5, u32::MAX, 0x8000_0000, i32::MAX as u32];
        // SAFETY: available, as asked above.
        let got = unsafe { products(acc, rows, tokens) };
        for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let sum: i32 = (0..8).map(|k| i32::from(rows[i][k]) * i32::from(tokens[j][k])).sum();
            assert_eq!(got[2 * i + j], acc[2 * i + j].wrapping_add(sum as u32), "{i}, {j}");
        }
    }
}
