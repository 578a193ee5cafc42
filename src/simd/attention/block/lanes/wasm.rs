//! simd128. What other levels compile by themselves is inlined here.

use super::*;
use crate::simd::wasm::Simd128;
use std::arch::wasm32::*;

impl BlockLanes for Simd128 {
    #[inline(always)]
    fn bits(self, a: v128) -> v128 {
        a
    }
    #[inline(always)]
    fn magnitude(self, a: v128) -> v128 {
        f32x4_abs(a)
    }
    #[inline(always)]
    fn greater(self, a: v128, b: v128) -> v128 {
        i32x4_max(a, b)
    }
    #[inline(always)]
    fn any_from(self, a: v128, least: i32) -> bool {
        v128_any_true(i32x4_ge(a, i32x4_splat(least)))
    }
    #[inline(always)]
    fn greater_f(self, a: v128, b: v128) -> v128 {
        // one comparison and a choice, where f32x4_max takes care of NaN and signs of zeros besides
        f32x4_pmax(a, b)
    }
    #[inline(always)]
    fn greatest_f(self, a: v128) -> f32 {
        let a = f32x4_pmax(a, i32x4_shuffle::<2, 3, 0, 1>(a, a));
        f32x4_extract_lane::<0>(f32x4_pmax(a, i32x4_shuffle::<1, 0, 3, 2>(a, a)))
    }
    #[inline(always)]
    fn unless_below(self, a: v128, x: v128, least: f32) -> v128 {
        v128_andnot(a, f32x4_lt(x, f32x4_splat(least)))
    }
    #[inline(always)]
    fn trees(self, a: &[v128; TILE]) -> [f32; TILE] {
        let mut out = [0f32; TILE];
        for (out, a) in out.as_chunks_mut::<4>().0.iter_mut().zip(a.as_chunks::<4>().0) {
            // rows a to d: [a a b b] and [c c d d], then one lane of each
            let first = f32x4_add(i32x4_shuffle::<0, 1, 4, 5>(a[0], a[1]), i32x4_shuffle::<2, 3, 6, 7>(a[0], a[1]));
            let second = f32x4_add(i32x4_shuffle::<0, 1, 4, 5>(a[2], a[3]), i32x4_shuffle::<2, 3, 6, 7>(a[2], a[3]));
            let sums =
                f32x4_add(i32x4_shuffle::<0, 2, 4, 6>(first, second), i32x4_shuffle::<1, 3, 5, 7>(first, second));
            *out = [
                f32x4_extract_lane::<0>(sums),
                f32x4_extract_lane::<1>(sums),
                f32x4_extract_lane::<2>(sums),
                f32x4_extract_lane::<3>(sums),
            ];
        }
        out
    }
}
