//! The vector operations with AVX-VNNI: those of AVX2, and a dot of four bytes in one instruction.

use super::avx2::Avx2;
use super::lanes::{Bytes, Dots, Lanes, Word, below};
use crate::ops::linear::ROW_BLOCK;
use std::arch::x86_64::*;

/// Proof that this CPU has AVX2, F16C and AVX-VNNI.
#[derive(Clone, Copy)]
pub(super) struct AvxVnni<const NEAR: bool = false>(Avx2<NEAR>);

impl AvxVnni {
    /// # Safety
    ///
    /// This CPU has AVX2, F16C and AVX-VNNI.
    pub(super) const unsafe fn new() -> AvxVnni {
        // SAFETY: the caller's promise.
        AvxVnni(unsafe { Avx2::new() })
    }
}

impl<const NEAR: bool> AvxVnni<NEAR> {
    /// # Safety
    ///
    /// As for `new`.
    pub(super) const unsafe fn asking(ahead: usize) -> AvxVnni<NEAR> {
        // SAFETY: the caller's promise.
        AvxVnni(unsafe { Avx2::asking(ahead) })
    }
}

/// Wraps intrinsics. The one reason they are sound is given here.
macro_rules! intrinsics {
    ($e:expr) => {
        // SAFETY: `self` exists only where `AvxVnni::new` was allowed, so the CPU has the instructions, and none of them
        // uses a pointer.
        unsafe { $e }
    };
}

impl<const NEAR: bool> Lanes for AvxVnni<NEAR> {
    const N: usize = 8;
    /// the dot instruction takes unsigned weights: their sign bit is flipped
    const SIGNED_BIAS: i32 = 128;
    const WHOLE_BYTES: bool = true;
    type I = __m256i;
    type F = __m256;
    type S = __m256i;

    #[inline(always)]
    fn load(self, word: &Word, part: usize) -> __m256i {
        self.0.load(word, part)
    }
    #[inline(always)]
    fn int(self, i: i32) -> __m256i {
        self.0.int(i)
    }
    #[inline(always)]
    fn and(self, a: __m256i, mask: u32) -> __m256i {
        self.0.and(a, mask)
    }
    #[inline(always)]
    fn xor(self, a: __m256i, mask: u32) -> __m256i {
        self.0.xor(a, mask)
    }
    #[inline(always)]
    fn xor_each(self, a: __m256i, b: __m256i) -> __m256i {
        self.0.xor_each(a, b)
    }
    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        self.0.or(a, b)
    }
    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        self.0.add(a, b)
    }
    #[inline(always)]
    fn sub(self, a: __m256i, b: __m256i) -> __m256i {
        self.0.sub(a, b)
    }
    #[inline(always)]
    fn mul(self, a: __m256i, b: __m256i) -> __m256i {
        self.0.mul(a, b)
    }
    #[inline(always)]
    fn shl(self, a: __m256i, n: u32) -> __m256i {
        self.0.shl(a, n)
    }
    #[inline(always)]
    fn shr(self, a: __m256i, n: u32) -> __m256i {
        self.0.shr(a, n)
    }
    #[inline(always)]
    fn sar(self, a: __m256i, n: u32) -> __m256i {
        self.0.sar(a, n)
    }
    #[inline(always)]
    fn dot_unsigned(self, acc: __m256i, w: __m256i, a: u32) -> __m256i {
        intrinsics!(_mm256_dpbusd_avx_epi32(acc, w, _mm256_set1_epi32(a as i32)))
    }
    #[inline(always)]
    fn signed(self, w: __m256i) -> __m256i {
        intrinsics!(_mm256_xor_si256(w, _mm256_set1_epi8(-128)))
    }
    #[inline(always)]
    fn dot_signed(self, acc: __m256i, w: __m256i, a: u32) -> __m256i {
        intrinsics!(_mm256_dpbusd_avx_epi32(acc, w, _mm256_set1_epi32(a as i32)))
    }
    #[inline(always)]
    fn dot_halves(self, acc: __m256i, w: __m256i, a: u32) -> __m256i {
        intrinsics!(_mm256_dpwssd_avx_epi32(acc, w, _mm256_set1_epi32(a as i32)))
    }
    #[inline(always)]
    fn sixteen(self, table: &'static [i8; 16], index: __m256i) -> __m256i {
        self.signed(self.0.sixteen(table, index).1)
    }
    #[inline(always)]
    fn of_table(self, table: &'static [u8; 16], index: __m256i) -> __m256i {
        self.0.of_table(table, index)
    }
    #[inline(always)]
    fn signed_by(self, codes: __m256i, signs: __m256i, bit: u32) -> __m256i {
        // 128 + code as a signed byte is code - 128, and the negative of that, as an unsigned one, 128 - code
        intrinsics!(_mm256_sign_epi8(codes, self.0.signs(signs, bit)))
    }
    #[inline(always)]
    fn ahead(self) -> usize {
        self.0.ahead()
    }
    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        self.0.prefetch(from)
    }
    #[inline(always)]
    fn prefetch_far(self, from: *const u8) {
        self.0.prefetch_far(from)
    }
    #[inline(always)]
    fn to_f(self, a: __m256i) -> __m256 {
        self.0.to_f(a)
    }
    #[inline(always)]
    fn as_f(self, a: __m256i) -> __m256 {
        self.0.as_f(a)
    }
    #[inline(always)]
    fn f16_pair(self, a: __m256i) -> (__m256, __m256) {
        self.0.f16_pair(a)
    }
    #[inline(always)]
    fn float(self, x: f32) -> __m256 {
        self.0.float(x)
    }
    #[inline(always)]
    fn add_f(self, a: __m256, b: __m256) -> __m256 {
        self.0.add_f(a, b)
    }
    #[inline(always)]
    fn sub_f(self, a: __m256, b: __m256) -> __m256 {
        self.0.sub_f(a, b)
    }
    #[inline(always)]
    fn mul_f(self, a: __m256, b: __m256) -> __m256 {
        self.0.mul_f(a, b)
    }
    #[inline(always)]
    fn canon(self, a: __m256) -> __m256 {
        self.0.canon(a)
    }
    #[inline(always)]
    fn store(self, a: __m256, to: &mut [f32; ROW_BLOCK], part: usize) {
        self.0.store(a, to, part)
    }
}

impl<const NEAR: bool> Bytes for AvxVnni<NEAR> {
    #[inline(always)]
    fn values(self, s: __m256i) -> __m256i {
        self.signed(s)
    }
    #[inline(always)]
    fn below(self, codes: &[Word], part: usize) -> __m256i {
        below(self, codes, part)
    }
}

impl<const NEAR: bool> Dots for AvxVnni<NEAR> {
    #[inline(always)]
    fn dot_above(self, acc: __m256i, a: u32, w: __m256i) -> __m256i {
        intrinsics!(_mm256_dpbusd_avx_epi32(acc, _mm256_set1_epi32(a as i32), w))
    }
    const HALVES: bool = false;
    #[inline(always)]
    fn pairs(self, halves: __m256i, u: __m256i, s: __m256i) -> __m256i {
        self.0.pairs(halves, u, s)
    }
    #[inline(always)]
    fn join(self, acc: __m256i, halves: __m256i, by: __m256i) -> __m256i {
        self.0.join(acc, halves, by)
    }
}
