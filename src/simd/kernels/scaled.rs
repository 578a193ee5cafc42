//! Kernels of the formats with one float scale to a block of 256 and integer scales for its eighths or sixteenths:
//! t = d * v(S), S the sum of scale times dot. A group is walked in quarters of 32 codes, eight words of four.

#[cfg(target_arch = "x86_64")]
use super::Codebook;
use super::{Next, Tile, value};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::simd::lanes::Bytes;
use crate::simd::lanes::{Lanes, Word};

/// Four codes a lane.
pub(in super::super) trait Codes<V: Lanes>: Copy {
    /// What each lies above its value.
    const ABOVE: i32;
    /// acc + the four products.
    fn dot(self, v: V, acc: V::I, a: u32) -> V::I;
    /// The values, as signed bytes.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn values(self, v: V) -> V::I
    where
        V: Bytes;
}

/// Bytes of `codes`, each below 128, less the byte `by` says, as signed ones. With a bit above it none borrows of the next.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn less<V: Bytes>(v: V, codes: V::I, by: i32) -> V::I {
    v.xor(v.sub(v.or(codes, v.int(0x8080_8080_u32 as i32)), v.int(by)), 0x8080_8080)
}

/// Codes of 0 to 127, `BY` above their value.
#[derive(Clone, Copy)]
pub(in super::super) struct Above<V: Lanes, const BY: i32>(pub(super) V::I);

impl<V: Lanes, const BY: i32> Codes<V> for Above<V, BY> {
    const ABOVE: i32 = BY;

    #[inline(always)]
    fn dot(self, v: V, acc: V::I, a: u32) -> V::I {
        v.dot_unsigned(acc, self.0, a)
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[inline(always)]
    fn values(self, v: V) -> V::I
    where
        V: Bytes,
    {
        less(v, self.0, i32::from_le_bytes([BY as u8; 4]))
    }
}

/// Codes as [`Lanes::dot_signed`] takes them.
#[derive(Clone, Copy)]
pub(in super::super) struct Signed<V: Lanes>(pub(super) V::S);

impl<V: Lanes> Codes<V> for Signed<V> {
    const ABOVE: i32 = V::SIGNED_BIAS;

    #[inline(always)]
    fn dot(self, v: V, acc: V::I, a: u32) -> V::I {
        v.dot_signed(acc, self.0, a)
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[inline(always)]
    fn values(self, v: V) -> V::I
    where
        V: Bytes,
    {
        v.values(self.0)
    }
}

/// A format with integer scales.
pub(in super::super) trait Scaled {
    /// Words of one block of 256.
    const WORDS: usize;
    /// Whether sixteen codes have a scale of their own, not 32.
    const SIXTEENTHS: bool;
    /// What the block's scale is times, a power of two.
    const UNIT: f32;
    /// Whether the four quarters are written out: worth their room where they are short.
    const WRITTEN_OUT: bool;
    /// See [`Quantised::PAIRED`].
    const PAIRED: bool;

    /// See [`Quantised::BOOK`].
    #[cfg(target_arch = "x86_64")]
    const BOOK: Option<Codebook> = None;

    /// Four codes.
    type Codes<V: Lanes>: Codes<V>;
    /// What all codes of a quarter are made of.
    type Quarter<V: Lanes>: Copy;

    /// Quarter `j` of group `half` of a block.
    fn quarter<V: Lanes>(v: V, block: &[Word], part: usize, half: usize, j: usize) -> Self::Quarter<V>;
    /// Words 2 m and 2 m + 1 of the eight of a quarter.
    fn pair<V: Lanes>(v: V, quarter: Self::Quarter<V>, m: u32) -> [Self::Codes<V>; 2];
    /// The scales of both halves of quarter `j`, the same one twice where 32 codes share it: within +-32.
    fn scales<V: Lanes>(v: V, block: &[Word], part: usize, half: usize, j: usize) -> [V::I; 2];
    /// The block's scale, not yet times [`Scaled::UNIT`].
    #[inline(always)]
    fn scale<V: Lanes>(v: V, block: &[Word], part: usize) -> V::F {
        v.f16_pair(v.load(&block[0], part)).0
    }
}

/// Dots of words 2 `m` and 2 `m` + 1 of quarter `j`, added to `dots`.
#[inline(always)]
fn pair_dots<V: Lanes, F: Scaled, const T: usize, const D: usize>(
    v: V,
    quarter: F::Quarter<V>,
    (j, m): (usize, u32),
    a: &Tile<T, D>,
    dots: &mut [[V::I; D]; T],
) {
    let [first, second] = F::pair(v, quarter, m);
    let at = 1 + 8 * j + 2 * m as usize;
    for t in 0..T {
        for d in 0..D {
            dots[t][d] = first.dot(v, dots[t][d], a[t][d][at]);
        }
    }
    for t in 0..T {
        for d in 0..D {
            dots[t][d] = second.dot(v, dots[t][d], a[t][d][at + 1]);
        }
    }
}

/// S of a group, and what its codes lie above their values.
struct Sums<V: Lanes, const T: usize, const D: usize> {
    s: [[V::I; D]; T],
    over: [[V::I; D]; T],
}

impl<V: Lanes, const T: usize, const D: usize> Sums<V, T, D> {
    #[inline(always)]
    fn add_scaled(&mut self, v: V, scale: V::I, dots: [[V::I; D]; T]) {
        for t in 0..T {
            for d in 0..D {
                self.s[t][d] = v.add(self.s[t][d], v.mul(scale, dots[t][d]));
            }
        }
    }

    /// Adds quarter `j`.
    #[inline(always)]
    fn add_quarter<F: Scaled>(
        &mut self,
        v: V,
        block: &[Word],
        part: usize,
        (half, j): (usize, usize),
        a: &Tile<T, D>,
        next: Next,
    ) {
        next.fetch_quarter(v, j);
        let quarter = F::quarter(v, block, part, half, j);
        let [low, high] = F::scales(v, block, part, half, j);
        let none = [[v.int(0); D]; T];
        let mut dots = none;
        pair_dots::<V, F, T, D>(v, quarter, (j, 0), a, &mut dots);
        pair_dots::<V, F, T, D>(v, quarter, (j, 1), a, &mut dots);
        if F::SIXTEENTHS {
            self.add_scaled(v, low, dots);
            dots = none;
        }
        pair_dots::<V, F, T, D>(v, quarter, (j, 2), a, &mut dots);
        pair_dots::<V, F, T, D>(v, quarter, (j, 3), a, &mut dots);
        self.add_scaled(v, high, dots);
        if <F::Codes<V> as Codes<V>>::ABOVE != 0 {
            let both = v.or(v.and(low, 0xffff), v.shl(high, 16));
            for t in 0..T {
                for d in 0..D {
                    self.over[t][d] = v.dot_halves(self.over[t][d], both, a[t][d][33 + j]);
                }
            }
        }
    }
}

/// t(g) of a format with integer scales.
#[inline(always)]
pub(super) fn group<V: Lanes, F: Scaled, const T: usize, const D: usize>(
    v: V,
    block: &[Word],
    part: usize,
    half: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [V::F; T] {
    // of a known length: no bounds to check in every quarter
    let (block, half) = (&block[..F::WORDS], half & 1);
    let zero = [[v.int(0); D]; T];
    let mut sums = Sums { s: zero, over: zero };
    if F::WRITTEN_OUT {
        sums.add_quarter::<F>(v, block, part, (half, 0), a, next);
        sums.add_quarter::<F>(v, block, part, (half, 1), a, next);
        sums.add_quarter::<F>(v, block, part, (half, 2), a, next);
        sums.add_quarter::<F>(v, block, part, (half, 3), a, next);
    } else {
        for j in 0..4 {
            sums.add_quarter::<F>(v, block, part, (half, std::hint::black_box(j) & 3), a, next);
        }
    }
    let d = F::scale(v, block, part);
    let d = if F::UNIT == 1.0 { d } else { v.mul_f(d, v.float(F::UNIT)) };
    let above = <F::Codes<V> as Codes<V>>::ABOVE;
    let mut out = [d; T];
    for t in 0..T {
        if above != 0 {
            for d in 0..D {
                sums.s[t][d] = v.sub(sums.s[t][d], v.mul(sums.over[t][d], v.int(above)));
            }
        }
        out[t] = v.mul_f(d, value(v, sums.s[t]));
    }
    out
}

/// Makes formats with integer scales [`Quantised`].
macro_rules! quantised_by_scales {
    ($($name:ident),*) => { $(
        impl Quantised for $name {
            const WORDS: usize = <$name as Scaled>::WORDS;
            const GROUPS: usize = 2;
            const JOINED: bool = true;
            const PAIRED: bool = <$name as Scaled>::PAIRED;
            #[cfg(target_arch = "x86_64")]
            const BOOK: Option<$crate::simd::kernels::Codebook> = <$name as Scaled>::BOOK;
            const PANELS: bool = true;

            #[inline(always)]
            fn group<V: Lanes, const T: usize, const D: usize>(
                v: V,
                block: &[Word],
                part: usize,
                half: usize,
                a: &Tile<T, D>,
                next: Next,
            ) -> [V::F; T] {
                $crate::simd::kernels::scaled::group::<V, $name, T, D>(v, block, part, half, a, next)
            }
        }
    )* };
}
pub(super) use quantised_by_scales;
