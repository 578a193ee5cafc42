//! NEON, with dots of bytes and without.

use super::*;
use crate::simd::neon::Neon;
use std::arch::aarch64::*;

apart!(Neon<false>, "neon", 4, digits_plain, coded_plain, widen_plain);
apart!(Neon<true>, "neon,dotprod", 4, digits_dot, coded_dot, widen_dot);

impl<const DOT: bool> BlockLanes for Neon<DOT> {
    #[inline(always)]
    fn bits(self, a: float32x4_t) -> int32x4_t {
        intrinsics!(vreinterpretq_s32_f32(a))
    }
    #[inline(always)]
    fn magnitude(self, a: float32x4_t) -> float32x4_t {
        intrinsics!(vabsq_f32(a))
    }
    #[inline(always)]
    fn greater(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        intrinsics!(vmaxq_s32(a, b))
    }
    #[inline(always)]
    fn any_from(self, a: int32x4_t, least: i32) -> bool {
        intrinsics!(vmaxvq_s32(a) >= least)
    }
    #[inline(always)]
    fn greater_f(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        intrinsics!(vmaxq_f32(a, b))
    }
    #[inline(always)]
    fn greatest_f(self, a: float32x4_t) -> f32 {
        intrinsics!(vmaxvq_f32(a))
    }
    #[inline(always)]
    fn unless_below(self, a: float32x4_t, x: float32x4_t, least: f32) -> float32x4_t {
        intrinsics!({
            let below = vcltq_f32(x, vdupq_n_f32(least));
            vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), below))
        })
    }
    #[inline(always)]
    fn trees(self, a: &[float32x4_t; TILE]) -> [f32; TILE] {
        let mut out = [0f32; TILE];
        for (out, a) in out.as_chunks_mut::<4>().0.iter_mut().zip(a.as_chunks::<4>().0) {
            intrinsics!({
                // rows a to d: [a a b b], and those pairs added
                let two = |a, b| {
                    vaddq_f32(
                        vcombine_f32(vget_low_f32(a), vget_low_f32(b)),
                        vcombine_f32(vget_high_f32(a), vget_high_f32(b)),
                    )
                };
                vst1q_f32(out.as_mut_ptr(), vpaddq_f32(two(a[0], a[1]), two(a[2], a[3])));
            });
        }
        out
    }

    #[inline(always)]
    fn digits<const B: usize>(self, kt: CacheType, q: &[f32]) -> Digits<B> {
        intrinsics!(match DOT {
            true => digits_dot(Neon::new(), kt, q),
            false => digits_plain(Neon::new(), kt, q),
        })
    }
    #[inline(always)]
    fn coded<K: CodedKeys, const B: usize>(
        self,
        keys: [&[Word]; 2],
        nb: usize,
        digits: &[Digits<B>; TILE],
        s: &mut [Scores; TILE],
    ) {
        intrinsics!(match DOT {
            true => coded_dot::<K, B>(Neon::new(), keys, nb, digits, s),
            false => coded_plain::<K, B>(Neon::new(), keys, nb, digits, s),
        })
    }
    #[inline(always)]
    fn widen<Y: Values, const B: usize>(self, rows: &Rows, to: &mut [[[f32; BLOCK]; CHUNK]; B]) {
        intrinsics!(match DOT {
            true => widen_dot::<Y, B>(Neon::new(), rows, to),
            false => widen_plain::<Y, B>(Neon::new(), rows, to),
        })
    }
}
