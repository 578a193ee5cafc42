//! What blocks of rows need of an instruction set besides [`RowLanes`]: comparisons, sums of lanes as trees, and what is compiled
//! by itself, since one function with all types of cache takes minutes to compile. Must not decide an order of float operations
//! but that of the tree.

use super::super::keys::{CodedKeys, Digits, coded_scores};
use super::super::values::{Rows, Values, widen};
use super::super::{BLOCK, CHUNK, Scores, TILE, digits_of};
use crate::ops::cache::CacheType;
use crate::simd::lanes::Word;
use crate::simd::rows::RowLanes;

pub(crate) trait BlockLanes: RowLanes {
    /// The bits of each lane.
    fn bits(self, a: Self::F) -> Self::I;
    fn magnitude(self, a: Self::F) -> Self::F;
    /// The greater of each, as signed integers.
    fn greater(self, a: Self::I, b: Self::I) -> Self::I;
    /// Whether any lane is `least` or more, as a signed integer.
    fn any_from(self, a: Self::I, least: i32) -> bool;
    /// The greater of each; none is a NaN.
    fn greater_f(self, a: Self::F, b: Self::F) -> Self::F;
    /// The greatest lane; none is a NaN.
    fn greatest_f(self, a: Self::F) -> f32;
    /// `a`, or +0 where `x` is less than `least`.
    fn unless_below(self, a: Self::F, x: Self::F, least: f32) -> Self::F;
    /// The lanes of each added up: the second half to the first, until one is left.
    fn trees(self, a: &[Self::F; TILE]) -> [f32; TILE];

    /// [`digits_of`] this level.
    #[inline(always)]
    fn digits<const B: usize>(self, kt: CacheType, q: &[f32]) -> Digits<B> {
        digits_of(self, kt, q)
    }
    /// [`coded_scores`] of this level, of a tile.
    #[inline(always)]
    fn coded<K: CodedKeys, const B: usize>(
        self,
        keys: [&[Word]; 2],
        nb: usize,
        digits: &[Digits<B>; TILE],
        s: &mut [Scores; TILE],
    ) {
        coded::<_, K, 4, B>(self, keys, nb, digits, s);
    }
    /// [`widen`] of this level.
    #[inline(always)]
    fn widen<Y: Values, const B: usize>(self, rows: &Rows, to: &mut [[[f32; BLOCK]; CHUNK]; B]) {
        widen::<_, Y, B>(self, rows, to);
    }
}

/// [`coded_scores`] of a tile, of `T` rows at a time.
#[inline(always)]
fn coded<V: RowLanes, K: CodedKeys, const T: usize, const B: usize>(
    v: V,
    keys: [&[Word]; 2],
    nb: usize,
    digits: &[Digits<B>; TILE],
    s: &mut [Scores; TILE],
) {
    for (digits, s) in digits.as_chunks::<T>().0.iter().zip(s.as_chunks_mut::<T>().0) {
        coded_scores::<V, K, T, B>(v, keys, nb, digits, s);
    }
}

/// What of a level is compiled by itself; `T`: rows whose scores are taken at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! apart {
    ($level:ty, $features:literal, $T:literal, $digits:ident, $coded:ident, $widen:ident) => {
        #[target_feature(enable = $features)]
        fn $digits<const B: usize>(v: $level, kt: CacheType, q: &[f32]) -> Digits<B> {
            digits_of(v, kt, q)
        }

        #[target_feature(enable = $features)]
        fn $coded<K: CodedKeys, const B: usize>(
            v: $level,
            keys: [&[Word]; 2],
            nb: usize,
            digits: &[Digits<B>; TILE],
            s: &mut [Scores; TILE],
        ) {
            coded::<_, K, $T, B>(v, keys, nb, digits, s);
        }

        #[target_feature(enable = $features)]
        fn $widen<Y: Values, const B: usize>(v: $level, rows: &Rows, to: &mut [[[f32; BLOCK]; CHUNK]; B]) {
            widen::<_, Y, B>(v, rows, to);
        }
    };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! intrinsics {
    ($e:expr) => {
        // SAFETY: a value of the level's type exists only where its `new` was allowed, so the CPU has the instructions; the one
        // store is to an array of as many bytes.
        unsafe { $e }
    };
}

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm;
#[cfg(target_arch = "x86_64")]
mod x86;
