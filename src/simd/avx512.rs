//! The vector operations with AVX-512 (F, BW, VL, DQ) and VNNI: sixteen rows to a register.

use super::kernels::Amax;
use super::kernels::panel::Bytes;
use super::lanes::{AHEAD, Lanes, Word};
use crate::ops::exact::{CANON_MAX, CANON_MIN, POISON};
use crate::ops::linear::{GROUP, ROW_BLOCK};
use std::arch::x86_64::*;

/// Proof that this CPU has AVX-512 F, BW, VL, DQ and VNNI. `NEAR`: weights are asked for as data like any other (`prefetch`);
/// how many bytes ahead is what is in it.
#[derive(Clone, Copy)]
pub(super) struct Avx512<const NEAR: bool = false>(usize);

impl Avx512 {
    /// # Safety
    ///
    /// This CPU has AVX-512 F, BW, VL, DQ and VNNI.
    pub(super) const unsafe fn new() -> Avx512 {
        Avx512(AHEAD)
    }
}

impl<const NEAR: bool> Avx512<NEAR> {
    /// # Safety
    ///
    /// As for `new`.
    pub(super) const unsafe fn asking(ahead: usize) -> Avx512<NEAR> {
        Avx512(ahead)
    }
}

/// Wraps intrinsics. The one reason they are sound is given here.
macro_rules! intrinsics {
    ($e:expr) => {
        // SAFETY: `self` exists only where `Avx512::new` was allowed, so the CPU has the instructions; what they read or
        // write through pointers is a bounds-checked slice of sixteen words. A prefetch touches
        // nothing.
        unsafe { $e }
    };
}

impl<const NEAR: bool> Lanes for Avx512<NEAR> {
    const N: usize = 16;
    /// the dot instruction takes unsigned weights: their sign bit is flipped
    const SIGNED_BIAS: i32 = 128;
    type I = __m512i;
    type F = __m512;
    type S = __m512i;

    #[inline(always)]
    fn load(self, word: &Word, part: usize) -> __m512i {
        let from = &word[part * 16..part * 16 + 16];
        intrinsics!(_mm512_loadu_si512(from.as_ptr().cast()))
    }
    #[inline(always)]
    fn int(self, i: i32) -> __m512i {
        intrinsics!(_mm512_set1_epi32(i))
    }
    #[inline(always)]
    fn and(self, a: __m512i, mask: u32) -> __m512i {
        intrinsics!(_mm512_and_si512(a, _mm512_set1_epi32(mask as i32)))
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn shl(self, a: __m512i, n: u32) -> __m512i {
        intrinsics!(_mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn shr(self, a: __m512i, n: u32) -> __m512i {
        intrinsics!(_mm512_srl_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn sar(self, a: __m512i, n: u32) -> __m512i {
        intrinsics!(_mm512_sra_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn dot_unsigned(self, acc: __m512i, w: __m512i, a: u32) -> __m512i {
        intrinsics!(_mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(a as i32)))
    }
    #[inline(always)]
    fn signed(self, w: __m512i) -> __m512i {
        intrinsics!(_mm512_xor_si512(w, _mm512_set1_epi8(-128)))
    }
    #[inline(always)]
    fn dot_signed(self, acc: __m512i, w: __m512i, a: u32) -> __m512i {
        intrinsics!(_mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(a as i32)))
    }
    #[inline(always)]
    fn dot_halves(self, acc: __m512i, w: __m512i, a: u32) -> __m512i {
        intrinsics!(_mm512_dpwssd_epi32(acc, w, _mm512_set1_epi32(a as i32)))
    }

    #[inline(always)]
    fn ahead(self) -> usize {
        self.0
    }
    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        intrinsics!(if NEAR {
            _mm_prefetch::<_MM_HINT_T0>(from.cast())
        } else {
            _mm_prefetch::<_MM_HINT_NTA>(from.cast())
        })
    }
    #[inline(always)]
    fn to_f(self, a: __m512i) -> __m512 {
        intrinsics!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn as_f(self, a: __m512i) -> __m512 {
        intrinsics!(_mm512_castsi512_ps(a))
    }
    #[inline(always)]
    fn f16_pair(self, a: __m512i) -> (__m512, __m512) {
        intrinsics!((
            _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)),
            _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(a))),
        ))
    }
    #[inline(always)]
    fn float(self, x: f32) -> __m512 {
        intrinsics!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn add_f(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub_f(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul_f(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn canon(self, a: __m512) -> __m512 {
        intrinsics!({
            let keep = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(_mm512_abs_ps(a), _mm512_set1_ps(CANON_MIN));
            // not less: too large, or a NaN
            let bad = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(_mm512_abs_ps(a), _mm512_set1_ps(CANON_MAX));
            _mm512_mask_mov_ps(_mm512_maskz_mov_ps(keep, a), bad, _mm512_set1_ps(POISON))
        })
    }
    #[inline(always)]
    fn store(self, a: __m512, to: &mut [f32; ROW_BLOCK], part: usize) {
        let to = &mut to[part * 16..part * 16 + 16];
        intrinsics!(_mm512_storeu_ps(to.as_mut_ptr(), a))
    }
}

impl<const NEAR: bool> Bytes for Avx512<NEAR> {
    #[inline(always)]
    fn dot_above(self, acc: __m512i, a: u32, w: __m512i) -> __m512i {
        intrinsics!(_mm512_dpbusd_epi32(acc, _mm512_set1_epi32(a as i32), w))
    }
    #[inline(always)]
    fn xor(self, a: __m512i, mask: u32) -> __m512i {
        intrinsics!(_mm512_xor_si512(a, _mm512_set1_epi32(mask as i32)))
    }
}

impl<const NEAR: bool> Amax for Avx512<NEAR> {
    #[inline(always)]
    fn amax(self, x: &[f32; GROUP]) -> u32 {
        let (vectors, _) = x.as_chunks::<16>();
        intrinsics!({
            let mut most = _mm512_setzero_si512();
            for v in vectors {
                let magnitudes = _mm512_and_si512(_mm512_loadu_si512(v.as_ptr().cast()), _mm512_set1_epi32(i32::MAX));
                most = _mm512_max_epi32(most, magnitudes);
            }
            _mm512_reduce_max_epi32(most) as u32
        })
    }
}
