//! The vector operations with AVX2 and F16C: eight rows to a register.

use super::lanes::{AHEAD, Bytes, Dots, Lanes, Word, below};
use crate::ops::exact::{CANON_MAX, CANON_MIN, POISON};
use crate::ops::linear::ROW_BLOCK;
use std::arch::asm;
use std::arch::x86_64::*;

/// Proof that this CPU has AVX2 and F16C. `NEAR`: weights are asked for as data like any other (`prefetch`);
/// how many bytes ahead is what is in it.
#[derive(Clone, Copy)]
pub(super) struct Avx2<const NEAR: bool = false>(usize);

impl Avx2 {
    /// # Safety
    ///
    /// This CPU has AVX2 and F16C.
    pub(super) const unsafe fn new() -> Avx2 {
        Avx2(AHEAD)
    }
}

impl<const NEAR: bool> Avx2<NEAR> {
    /// # Safety
    ///
    /// As for `new`.
    pub(super) const unsafe fn asking(ahead: usize) -> Avx2<NEAR> {
        Avx2(ahead)
    }
}

/// Wraps intrinsics. The one reason they are sound is given here.
macro_rules! intrinsics {
    ($e:expr) => {
        // SAFETY: `self` exists only where `Avx2::new` was allowed, so the CPU has the instructions; what they read or
        // write through pointers is a bounds-checked slice of eight words. A prefetch touches nothing.
        unsafe { $e }
    };
}

impl<const NEAR: bool> Avx2<NEAR> {
    /// -1 in byte i of a lane where bit `bit + i` of `signs` is set, else 1.
    #[inline(always)]
    pub(super) fn signs(self, signs: __m256i, bit: u32) -> __m256i {
        // byte i of each lane is the byte the bits lie in
        let b0 = 0x0101_0101 * (bit as i32 / 8);
        let (b1, b2, b3) = (b0 + 0x0404_0404, b0 + 0x0808_0808, b0 + 0x0c0c_0c0c);
        let of_bytes = if bit.is_multiple_of(8) { 0x0804_0201 } else { 0x8040_2010_u32 as i32 };
        intrinsics!({
            let all = _mm256_shuffle_epi8(signs, _mm256_setr_epi32(b0, b1, b2, b3, b0, b1, b2, b3));
            let bits = _mm256_set1_epi32(of_bytes);
            _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_and_si256(all, bits), bits), _mm256_set1_epi8(1))
        })
    }
}

impl<const NEAR: bool> Lanes for Avx2<NEAR> {
    const N: usize = 8;
    const SIGNED_BIAS: i32 = 0;
    type I = __m256i;
    type F = __m256;
    /// magnitudes, and the weights for their signs
    type S = (__m256i, __m256i);

    #[inline(always)]
    fn load(self, word: &Word, part: usize) -> __m256i {
        let from = &word[part * 8..part * 8 + 8];
        intrinsics!(_mm256_loadu_si256(from.as_ptr().cast()))
    }
    #[inline(always)]
    fn int(self, i: i32) -> __m256i {
        intrinsics!(_mm256_set1_epi32(i))
    }
    #[inline(always)]
    fn and(self, a: __m256i, mask: u32) -> __m256i {
        intrinsics!(_mm256_and_si256(a, _mm256_set1_epi32(mask as i32)))
    }
    #[inline(always)]
    fn xor(self, a: __m256i, mask: u32) -> __m256i {
        intrinsics!(_mm256_xor_si256(a, _mm256_set1_epi32(mask as i32)))
    }
    #[inline(always)]
    fn xor_each(self, a: __m256i, b: __m256i) -> __m256i {
        intrinsics!(_mm256_xor_si256(a, b))
    }
    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        intrinsics!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        intrinsics!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m256i, b: __m256i) -> __m256i {
        intrinsics!(_mm256_sub_epi32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m256i, b: __m256i) -> __m256i {
        intrinsics!(_mm256_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn shl(self, a: __m256i, n: u32) -> __m256i {
        intrinsics!(_mm256_sll_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn shr(self, a: __m256i, n: u32) -> __m256i {
        intrinsics!(_mm256_srl_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn sar(self, a: __m256i, n: u32) -> __m256i {
        intrinsics!(_mm256_sra_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn dot_unsigned(self, acc: __m256i, w: __m256i, a: u32) -> __m256i {
        // two products are at most 2 * 127 * 127: the 16-bit sum does not saturate
        intrinsics!({
            let pairs = _mm256_maddubs_epi16(w, _mm256_set1_epi32(a as i32));
            _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        })
    }
    #[inline(always)]
    fn signed(self, w: __m256i) -> (__m256i, __m256i) {
        // the magnitude of -128 is 128 as an unsigned byte, which is how it is used
        intrinsics!((_mm256_abs_epi8(w), w))
    }
    #[inline(always)]
    fn dot_signed(self, acc: __m256i, w: (__m256i, __m256i), a: u32) -> __m256i {
        // |w| * (a with w's sign): two products are at most 2 * 128 * 127 = 32512, which does not saturate
        intrinsics!({
            let a = _mm256_sign_epi8(_mm256_set1_epi32(a as i32), w.1);
            let pairs = _mm256_maddubs_epi16(w.0, a);
            _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        })
    }
    #[inline(always)]
    fn dot_halves(self, acc: __m256i, w: __m256i, a: u32) -> __m256i {
        intrinsics!(_mm256_add_epi32(acc, _mm256_madd_epi16(w, _mm256_set1_epi32(a as i32))))
    }
    #[inline(always)]
    fn sixteen(self, table: &'static [i8; 16], index: __m256i) -> (__m256i, __m256i) {
        let values = intrinsics!({
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, index)
        });
        self.signed(values)
    }
    #[inline(always)]
    fn of_table(self, table: &'static [u8; 16], index: __m256i) -> __m256i {
        intrinsics!({
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, index)
        })
    }
    #[inline(always)]
    fn signed_by(self, codes: __m256i, signs: __m256i, bit: u32) -> (__m256i, __m256i) {
        (codes, self.signs(signs, bit))
    }
    #[inline(always)]
    fn ahead(self) -> usize {
        self.0
    }
    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        intrinsics!(if NEAR {
            asm!("prefetcht0 [{}]", in(reg) from, options(nostack, preserves_flags, readonly))
        } else {
            asm!("prefetchnta [{}]", in(reg) from, options(nostack, preserves_flags, readonly))
        })
    }
    #[inline(always)]
    fn prefetch_far(self, from: *const u8) {
        intrinsics!(asm!("prefetcht1 [{}]", in(reg) from, options(nostack, preserves_flags, readonly)))
    }

    #[inline(always)]
    fn to_f(self, a: __m256i) -> __m256 {
        intrinsics!(_mm256_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn as_f(self, a: __m256i) -> __m256 {
        intrinsics!(_mm256_castsi256_ps(a))
    }
    #[inline(always)]
    fn f16_pair(self, a: __m256i) -> (__m256, __m256) {
        intrinsics!({
            // packing works within 128-bit halves: low lanes 0..4, high lanes 0..4 | low 4..8, high 4..8
            let low = _mm256_and_si256(a, _mm256_set1_epi32(0xffff));
            let packed = _mm256_packus_epi32(low, _mm256_srli_epi32::<16>(a));
            let first = _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
            let second = _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(packed));
            (_mm256_permute2f128_ps::<0x20>(first, second), _mm256_permute2f128_ps::<0x31>(first, second))
        })
    }
    #[inline(always)]
    fn f16_rows(self, word: &Word, part: usize) -> (__m256, __m256) {
        let words: &[u32; 8] = word[8 * part..].first_chunk().expect("8 words of a part");
        // four words of pairs widen to eight elements as they lie, so that the two halves take one shuffle each; narrowing
        // to 16 bits first takes more. SAFETY: four words are 16 bytes.
        intrinsics!({
            let first = _mm256_cvtph_ps(_mm_loadu_si128(words.as_ptr().cast()));
            let second = _mm256_cvtph_ps(_mm_loadu_si128(words[4..].as_ptr().cast()));
            (_mm256_shuffle_ps::<0x88>(first, second), _mm256_shuffle_ps::<0xdd>(first, second))
        })
    }
    #[inline(always)]
    fn by_row(self, a: __m256) -> __m256 {
        // rows 0 1 4 5 | 2 3 6 7
        intrinsics!(_mm256_permutevar8x32_ps(a, _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7)))
    }
    #[inline(always)]
    fn float(self, x: f32) -> __m256 {
        intrinsics!(_mm256_set1_ps(x))
    }
    #[inline(always)]
    fn add_f(self, a: __m256, b: __m256) -> __m256 {
        intrinsics!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub_f(self, a: __m256, b: __m256) -> __m256 {
        intrinsics!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul_f(self, a: __m256, b: __m256) -> __m256 {
        intrinsics!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn canon(self, a: __m256) -> __m256 {
        intrinsics!({
            let magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
            let kept = _mm256_and_ps(a, _mm256_cmp_ps::<_CMP_NLT_UQ>(magnitude, _mm256_set1_ps(CANON_MIN)));
            // not less: too large, or a NaN
            let bad = _mm256_cmp_ps::<_CMP_NLT_UQ>(magnitude, _mm256_set1_ps(CANON_MAX));
            _mm256_blendv_ps(kept, _mm256_set1_ps(POISON), bad)
        })
    }
    #[inline(always)]
    fn store(self, a: __m256, to: &mut [f32; ROW_BLOCK], part: usize) {
        let to = &mut to[part * 8..part * 8 + 8];
        intrinsics!(_mm256_storeu_ps(to.as_mut_ptr(), a))
    }
}

impl<const NEAR: bool> Bytes for Avx2<NEAR> {
    #[inline(always)]
    fn values(self, (magnitudes, signs): (__m256i, __m256i)) -> __m256i {
        intrinsics!(_mm256_sign_epi8(magnitudes, signs))
    }
    #[inline(always)]
    fn below(self, codes: &[Word], part: usize) -> __m256i {
        below(self, codes, part)
    }
}

impl<const NEAR: bool> Dots for Avx2<NEAR> {
    #[inline(always)]
    fn dot_above(self, acc: __m256i, a: u32, w: __m256i) -> __m256i {
        let zero = intrinsics!(_mm256_setzero_si256());
        self.join(acc, self.pairs(zero, self.int(a as i32), w), self.int(0x0001_0001))
    }
    const HALVES: bool = true;
    #[inline(always)]
    fn pairs(self, halves: __m256i, u: __m256i, s: __m256i) -> __m256i {
        intrinsics!(_mm256_add_epi16(halves, _mm256_maddubs_epi16(u, s)))
    }
    #[inline(always)]
    fn join(self, acc: __m256i, halves: __m256i, by: __m256i) -> __m256i {
        intrinsics!(_mm256_add_epi32(acc, _mm256_madd_epi16(halves, by)))
    }
}
