//! AVX2 and AVX-512.

use super::*;
use crate::simd::{avx2::Avx2, avx512::Avx512};
use std::arch::x86_64::*;

/// The trait's functions by those that [`apart!`] makes.
macro_rules! of_level {
    ($digits:ident, $coded:ident, $widen:ident) => {
        #[inline(always)]
        fn digits<const B: usize>(self, kt: CacheType, q: &[f32]) -> Digits<B> {
            intrinsics!($digits(self, kt, q))
        }
        #[inline(always)]
        fn coded<K: CodedKeys, const B: usize>(
            self,
            keys: [&[Word]; 2],
            nb: usize,
            digits: &[Digits<B>; TILE],
            s: &mut [Scores; TILE],
        ) {
            intrinsics!($coded::<K, B>(self, keys, nb, digits, s))
        }
        #[inline(always)]
        fn widen<Y: Values, const B: usize>(self, rows: &Rows, to: &mut [[[f32; BLOCK]; CHUNK]; B]) {
            intrinsics!($widen::<Y, B>(self, rows, to))
        }
    };
}

apart!(Avx512, "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni", 8, digits_avx512, coded_avx512, widen_avx512);

impl BlockLanes for Avx512 {
    of_level!(digits_avx512, coded_avx512, widen_avx512);

    #[inline(always)]
    fn bits(self, a: __m512) -> __m512i {
        intrinsics!(_mm512_castps_si512(a))
    }
    #[inline(always)]
    fn magnitude(self, a: __m512) -> __m512 {
        intrinsics!(_mm512_abs_ps(a))
    }
    #[inline(always)]
    fn greater(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_max_epi32(a, b))
    }
    #[inline(always)]
    fn any_from(self, a: __m512i, least: i32) -> bool {
        intrinsics!(_mm512_cmpge_epi32_mask(a, _mm512_set1_epi32(least)) != 0)
    }
    #[inline(always)]
    fn greater_f(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn greatest_f(self, a: __m512) -> f32 {
        intrinsics!(_mm512_reduce_max_ps(a))
    }
    #[inline(always)]
    fn unless_below(self, a: __m512, x: __m512, least: f32) -> __m512 {
        intrinsics!(_mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(least)), a))
    }
    #[inline(always)]
    fn trees(self, a: &[__m512; TILE]) -> [f32; TILE] {
        let mut out = [0f32; TILE];
        intrinsics!({
            // quarters of 128 bits, rows a to h: [a b] of eight lanes each, then [a b c d] of four
            let two = |a, b| {
                _mm512_add_ps(_mm512_shuffle_f32x4::<0b01_00_01_00>(a, b), _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b))
            };
            let four = |a, b| {
                _mm512_add_ps(_mm512_shuffle_f32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b))
            };
            let (low, high) = (four(two(a[0], a[1]), two(a[2], a[3])), four(two(a[4], a[5]), two(a[6], a[7])));
            // of each quarter two lanes of a row of the first four and two of one of the others
            let (low, high) = (_mm512_castps_pd(low), _mm512_castps_pd(high));
            let pairs = _mm512_add_ps(
                _mm512_castpd_ps(_mm512_unpacklo_pd(low, high)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)),
            );
            let sums = _mm512_add_ps(pairs, _mm512_movehdup_ps(pairs));
            let order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
            _mm256_storeu_ps(out.as_mut_ptr(), _mm512_castps512_ps256(_mm512_permutexvar_ps(order, sums)));
        });
        out
    }
}

apart!(Avx2, "avx2,f16c", 4, digits_avx2, coded_avx2, widen_avx2);

impl BlockLanes for Avx2 {
    of_level!(digits_avx2, coded_avx2, widen_avx2);

    #[inline(always)]
    fn bits(self, a: __m256) -> __m256i {
        intrinsics!(_mm256_castps_si256(a))
    }
    #[inline(always)]
    fn magnitude(self, a: __m256) -> __m256 {
        intrinsics!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), a))
    }
    #[inline(always)]
    fn greater(self, a: __m256i, b: __m256i) -> __m256i {
        intrinsics!(_mm256_max_epi32(a, b))
    }
    #[inline(always)]
    fn any_from(self, a: __m256i, least: i32) -> bool {
        intrinsics!(_mm256_movemask_epi8(_mm256_cmpgt_epi32(a, _mm256_set1_epi32(least - 1))) != 0)
    }
    #[inline(always)]
    fn greater_f(self, a: __m256, b: __m256) -> __m256 {
        intrinsics!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn greatest_f(self, a: __m256) -> f32 {
        intrinsics!({
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)))
        })
    }
    #[inline(always)]
    fn unless_below(self, a: __m256, x: __m256, least: f32) -> __m256 {
        intrinsics!(_mm256_and_ps(a, _mm256_cmp_ps::<_CMP_NLT_UQ>(x, _mm256_set1_ps(least))))
    }
    #[inline(always)]
    fn trees(self, a: &[__m256; TILE]) -> [f32; TILE] {
        let mut out = [0f32; TILE];
        intrinsics!({
            // halves of 128 bits, rows a to h: [a b] of four lanes each, then [a c | b d] of two
            let two = |a, b| _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
            let four = |a, b| {
                let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
                _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)))
            };
            let (low, high) = (four(two(a[0], a[1]), two(a[2], a[3])), four(two(a[4], a[5]), two(a[6], a[7])));
            let sums = _mm256_add_ps(
                _mm256_shuffle_ps::<0b10_00_10_00>(low, high),
                _mm256_shuffle_ps::<0b11_01_11_01>(low, high),
            );
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            _mm256_storeu_ps(out.as_mut_ptr(), _mm256_permutevar8x32_ps(sums, order));
        });
        out
    }
}
