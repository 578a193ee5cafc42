//! The matvec kernels, written once over [`Lanes`]: 32 rows by a tile of tokens, all of k.
//!
//! The sums are those of `ops::linear`, in its order; weights are unpacked once for all tokens of a tile. Everything is
//! forced inline so that it is compiled with the instructions of the level that calls it. For the same reason there are
//! no closures here: a compiler may leave one as a function without those instructions.

use super::lanes::{AHEAD, Amax, Lanes, Word};
use crate::ops::linear::{ACT_BLOCK_WORDS, GROUP, ROW_BLOCK};

/// One activation block.
pub(super) type ActBlock = [u32; ACT_BLOCK_WORDS];

/// The activation blocks of one group: a row per token of the tile, a column per digit.
type Tile<'a, const T: usize, const D: usize> = [[&'a ActBlock; D]; T];

/// A weight format that meets quantised activations.
pub(super) trait Matrix {
    /// Words of one block, and the groups of 128 it covers.
    const WORDS: usize;
    /// Groups of one block.
    const GROUPS: usize;
    /// As [`Quantised::JOINED`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "measured, and so used, on x86-64 only"))]
    const JOINED: bool;
    /// As [`Quantised::PAIRED`].
    const PAIRED: bool;
    /// As [`Quantised::BOOK`].
    #[cfg(target_arch = "x86_64")]
    const BOOK: Option<Codebook>;
    /// As [`Quantised::PANELS`].
    const PANELS: bool;

    /// 32 rows by `T` tokens: `w` the words of the row block, `act` the tokens' blocks, token after token, `groups` a token.
    /// `P` parts of V::N lanes make 32.
    fn tile<V: Lanes, const T: usize, const D: usize, const P: usize>(
        v: V,
        w: &[Word],
        act: &[ActBlock],
        groups: usize,
        seg_groups: usize,
    ) -> [[f32; ROW_BLOCK]; T];
}

impl<F: Quantised> Matrix for F {
    const WORDS: usize = F::WORDS;
    const GROUPS: usize = F::GROUPS;
    const JOINED: bool = F::JOINED;
    const PAIRED: bool = F::PAIRED;
    #[cfg(target_arch = "x86_64")]
    const BOOK: Option<Codebook> = F::BOOK;
    const PANELS: bool = F::PANELS;

    #[inline(always)]
    fn tile<V: Lanes, const T: usize, const D: usize, const P: usize>(
        v: V,
        w: &[Word],
        act: &[ActBlock],
        groups: usize,
        seg_groups: usize,
    ) -> [[f32; ROW_BLOCK]; T] {
        quantised::<V, F, T, D, P>(v, w, act, groups, seg_groups)
    }
}

/// A weight format with an integer sum per group.
pub(super) trait Quantised {
    /// Words of one block, and the groups of 128 it covers.
    const WORDS: usize;
    /// Groups of one block.
    const GROUPS: usize;

    /// Whether one token is quicker when all 32 rows of a word are taken at once.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "measured, and so used, on x86-64 only"))]
    const JOINED: bool;
    /// Whether a tile of tokens is quicker as four tokens and pairs of vectors (with a dot instruction).
    const PAIRED: bool;
    /// The codebook, of which one token has kernels of its own ([`books`]).
    #[cfg(target_arch = "x86_64")]
    const BOOK: Option<Codebook> = None;
    /// Whether many tokens of one digit have panels where the level has ([`panel`]).
    const PANELS: bool = false;
    /// Whether the words of a block are read in the order they lie, where all rows are taken at once ([`Next`]).
    const IN_ORDER: bool = false;

    /// t(g) for one part of the rows and every token; `block` holds the WORDS words of the block, `half` is the group
    /// within it. `next` is asked for on the way.
    fn group<V: Lanes, const T: usize, const D: usize>(
        v: V,
        block: &[Word],
        part: usize,
        half: usize,
        a: &Tile<T, D>,
        next: Next,
    ) -> [V::F; T];
}

/// A type with a codebook, of which one token has kernels of its own ([`books`]).
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Codebook {
    IQ3S,
    IQ3XXS,
    IQ2S,
    IQ2XS,
    IQ2XXS,
    IQ1S,
    IQ1M,
}

/// A weight format that meets f32 activations.
pub(super) trait Floats {
    /// Elements of one word, 1 or 2.
    const PER_WORD: usize;
    /// Whether half vectors widen faster: measured on Zen 4, elements of f16 by 256 bits 36 GB/s in the cache, by 512 bits 30.
    #[cfg(target_arch = "x86_64")]
    const NARROW: bool = false;
    /// The elements of a part of a word; the second is of no account when there is one.
    fn elements<V: Lanes>(v: V, word: &Word, part: usize) -> (V::F, V::F);
    /// Sums of such elements in the order of rows.
    #[inline(always)]
    fn by_row<V: Lanes>(_v: V, a: V::F) -> V::F {
        a
    }
}

/// Declares a macro that names the kernel of a type: `name!(t, F => expression in F)`. These two lists are the one place of
/// the room that ties a `BlockType` to its kernel.
macro_rules! kernel_list {
    ($dollar:tt $name:ident, $wrong:literal: $($variant:ident = $kernel:ident,)*) => {
        macro_rules! $name {
            ($dollar t:expr, $dollar kernel:ident => $dollar body:expr) => {
                match $dollar t {
                    $($crate::blocks::BlockType::$variant => {
                        type $dollar kernel = $crate::simd::kernels::$kernel;
                        $dollar body
                    })*
                    other => panic!($wrong, other.name()),
                }
            };
        }
        pub(super) use $name;
    };
}

kernel_list! {
    $ with_quantised, "matvec: {} does not take quantised activations":
    Q8_0 = Q8_0,
    Q4_0 = Q4_0,
    Q4_1 = Q4_1,
    Q5_0 = Q5_0,
    Q5_1 = Q5_1,
    Q4_K = Q4K,
    Q5_K = Q5K,
    Q6_K = Q6K,
    Q8K128 = Q8K128,
    Q2_K = Q2K,
    Q3_K = Q3K,
    IQ4_NL = IQ4NL,
    IQ4_XS = IQ4XS,
    IQ3_S = IQ3S,
    IQ3_XXS = IQ3XXS,
    IQ2_S = IQ2S,
    IQ2_XS = IQ2XS,
    IQ2_XXS = IQ2XXS,
    IQ1_S = IQ1S,
    IQ1_M = IQ1M,
    TQ2_0 = TQ2_0,
    MXFP4 = MXFP4,
    NVFP4 = NVFP4,
    Q1_0 = Q1_0,
    Q2_0 = Q2_0,
    W8A16 = W8A16,
    W4A16 = W4A16,
    W8A8 = W8A8,
    Wide1 = Wide1,
    Wide2 = Wide2,
    Wide3 = Wide3,
    Wide3S = Wide3S,
}

kernel_list! {
    $ with_floats, "matvec: {} does not take f32 activations":
    F32 = F32,
    F16 = F16,
    BF16 = BF16,
}

/// `T x D` sums of `n` words: `q` is the expression of weight word `i`, met by word `at + i` of every activation block.
macro_rules! sums {
    ($v:ident, $next:ident, $dot:ident, $a:ident, $acc:ident, $at:expr, $n:expr, |$i:ident| $q:expr) => {
        for $i in 0..$n {
            $next.fetch($v, $at + $i);
            let q = $q;
            for t in 0..T {
                for d in 0..D {
                    $acc[t][d] = $v.$dot($acc[t][d], q, $a[t][d][1 + $at + $i]);
                }
            }
        }
    };
}

/// The same of words that hold two codes each, for sums `$acc[0]` and `$acc[1]`: `$at` and `$above` are the activations'
/// first words of each.
macro_rules! both_sums {
    ($v:ident, $next:ident, $a:ident, $acc:ident, $step:expr, ($at:expr, $above:expr), $n:expr, |$i:ident| $q:expr) => {
        for $i in 0..$n {
            $next.fetch_two($v, $step + $i);
            let (first, second) = $q;
            for t in 0..T {
                for d in 0..D {
                    $acc[0][t][d] = $v.dot_unsigned($acc[0][t][d], first, $a[t][d][1 + $at + $i]);
                    $acc[1][t][d] = $v.dot_unsigned($acc[1][t][d], second, $a[t][d][1 + $above + $i]);
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) mod books;
#[cfg(target_arch = "x86_64")]
pub(super) mod dots;
mod four_blocks;
mod grids;
#[cfg(target_arch = "aarch64")]
pub(super) mod pairs;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) mod panel;
mod scaled;
mod sixteen;
mod small_codes;
#[cfg(target_arch = "x86_64")]
pub(super) mod tiles;
mod whole_rows;
mod wide;

pub(super) use four_blocks::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, W4A16, W8A16};
pub(super) use grids::{IQ1M, IQ1S, IQ2S, IQ2XS, IQ2XXS, IQ3S, IQ3XXS};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use panel::with_panels;
pub(super) use sixteen::{IQ4NL, IQ4XS, MXFP4, NVFP4};
pub(super) use small_codes::{Q1_0, Q2_0, Q2K, Q3K, TQ2_0};
pub(super) use whole_rows::{W8A8, quantise_row};
pub(super) use wide::{Wide1, Wide2, Wide3, Wide3S};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Weights that will be needed, asked for evenly over the 32 steps of a group. With few tokens a kernel waits for memory,
/// and left to itself a core asks for too few lines at a time: measured, a third of what plain reading gets. So it does where
/// a compiler gathers what was asked for evenly into one burst at a group's end, more than the core has room for: half or a
/// third again (docs/performance.md, "CPU B"). So each asks exactly in its place.
///
/// A kernel that reads its words in the order they lie has prefetchers of the core behind it, which keep more lines under way
/// than it can ask for. They want to see every line in order; asked for with nothing ahead of the group, its first lines, which
/// hold scales and are used late, come first.
#[derive(Clone, Copy)]
pub(super) struct Next {
    from: *const u8,
    lines: usize,
}

/// How far ahead a kernel asks; with nothing ahead only one that reads `in_order`.
#[inline(always)]
fn ahead<V: Lanes>(v: V, in_order: bool) -> usize {
    if v.ahead() == 0 && !in_order { AHEAD } else { v.ahead() }
}

impl Next {
    /// For part `part` of the group that begins at byte `at` of `w`: `lines` cache lines, `ahead` bytes from here.
    #[inline(always)]
    fn new(w: &[Word], at: usize, part: usize, lines: usize, ahead: usize) -> Next {
        Next { from: w.as_ptr().cast::<u8>().wrapping_add(at + part * lines * LINE + ahead), lines }
    }

    #[inline(always)]
    fn line<V: Lanes>(self, v: V, line: usize) {
        v.prefetch(self.from.wrapping_add(line * LINE));
    }

    /// Those of steps `8 * j .. 8 * j + 8`.
    #[inline(always)]
    fn fetch_quarter<V: Lanes>(self, v: V, j: usize) {
        for line in j * self.lines / 4..(j + 1) * self.lines / 4 {
            self.line(v, line);
        }
    }

    #[inline(always)]
    fn fetch<V: Lanes>(self, v: V, step: usize) {
        for line in step * self.lines / 32..(step + 1) * self.lines / 32 {
            self.line(v, line);
        }
    }

    /// Those of steps `2 * step` and the next.
    #[inline(always)]
    fn fetch_two<V: Lanes>(self, v: V, step: usize) {
        for line in step * self.lines / 16..(step + 1) * self.lines / 16 {
            self.line(v, line);
        }
    }
}

/// v(S)
#[inline(always)]
fn value<V: Lanes, const D: usize>(v: V, s: [V::I; D]) -> V::F {
    if D == 1 { v.to_f(s[0]) } else { v.add_f(v.mul_f(v.to_f(s[D - 1]), v.float(128.0)), v.to_f(s[0])) }
}

/// Sum of the codes of block `b` of 32.
#[inline(always)]
fn sum32(a: &ActBlock, b: usize) -> i32 {
    let w = a[33 + b] as i32;
    (w >> 16) + ((w << 16) >> 16)
}

/// Sums of the codes of two blocks of 32, as halves of a word, which they fit.
#[inline(always)]
fn sums32(a: &ActBlock, low: usize, high: usize) -> u32 {
    (sum32(a, low) & 0xffff | sum32(a, high) << 16) as u32
}

/// The four six-bit scales and the four minima of a half block, a byte each (three words of ggml's packing).
#[inline(always)]
fn scales_minima<V: Lanes>(v: V, block: &[Word], part: usize, half: usize) -> (V::I, V::I) {
    let (u0, u1) = (v.load(&block[1], part), v.load(&block[2], part));
    if half == 0 {
        (v.and(u0, 0x3f3f_3f3f), v.and(u1, 0x3f3f_3f3f))
    } else {
        let u2 = v.load(&block[3], part);
        (
            v.or(v.and(u2, 0x0f0f_0f0f), v.and(v.shr(u0, 2), 0x3030_3030)),
            v.or(v.and(v.shr(u2, 4), 0x0f0f_0f0f), v.and(v.shr(u1, 2), 0x3030_3030)),
        )
    }
}

/// S and M of a group of Q4_K or Q5_K, while its four sub-blocks are walked.
#[derive(Clone, Copy)]
struct ScaledSums<V: Lanes, const T: usize, const D: usize> {
    s: [[V::I; D]; T],
    m: [[V::I; D]; T],
}

impl<V: Lanes, const T: usize, const D: usize> ScaledSums<V, T, D> {
    #[inline(always)]
    fn new(v: V) -> Self {
        ScaledSums { s: [[v.int(0); D]; T], m: [[v.int(0); D]; T] }
    }

    /// Adds sub-block `j`: its dots times its scale, and its minimum times the activations' sum.
    #[inline(always)]
    fn add(&mut self, v: V, j: usize, scales: V::I, minima: V::I, dots: [[V::I; D]; T], a: &Tile<T, D>) {
        let sc = v.and(v.shr(scales, 8 * j as u32), 0xff);
        let m = v.and(v.shr(minima, 8 * j as u32), 0xff);
        // the sum of 32 lies in the block as two sums of 16
        let m_twice = v.or(m, v.shl(m, 16));
        for t in 0..T {
            for d in 0..D {
                self.s[t][d] = v.add(self.s[t][d], v.mul(sc, dots[t][d]));
                self.m[t][d] = v.dot_halves(self.m[t][d], m_twice, a[t][d][33 + j]);
            }
        }
    }

    /// Of all four sub-blocks; the dots of the second and the fourth are `times` (a power of two) what they are to count.
    #[inline(always)]
    fn of_all(v: V, scales: V::I, minima: V::I, dots: [[[V::I; D]; T]; 4], times: u32, a: &Tile<T, D>) -> Self {
        let (sc0, sc1) = (v.and(scales, 0xff), v.and(v.shr(scales, 8), 0xff));
        let (sc2, sc3) = (v.and(v.shr(scales, 16), 0xff), v.shr(scales, 24));
        // as halves: the minima of the first and the third, of the second and the fourth
        let (even, odd) = (v.and(minima, 0x00ff_00ff), v.and(v.shr(minima, 8), 0x00ff_00ff));
        let mut sums = Self::new(v);
        for t in 0..T {
            for d in 0..D {
                let first = v.add(v.mul(sc0, dots[0][t][d]), v.mul(sc2, dots[2][t][d]));
                let second = v.add(v.mul(sc1, dots[1][t][d]), v.mul(sc3, dots[3][t][d]));
                sums.s[t][d] = v.add(first, v.sar(second, times.trailing_zeros()));
                sums.m[t][d] = v.dot_halves(sums.m[t][d], even, sums32(a[t][d], 0, 2));
                sums.m[t][d] = v.dot_halves(sums.m[t][d], odd, sums32(a[t][d], 1, 3));
            }
        }
        sums
    }

    /// d * v(S) - dmin * v(M)
    #[inline(always)]
    fn finish(self, v: V, scales: V::I) -> [V::F; T] {
        let (d, dmin) = v.f16_pair(scales);
        let mut out = [v.float(0.0); T];
        for t in 0..T {
            out[t] = v.sub_f(v.mul_f(d, value(v, self.s[t])), v.mul_f(dmin, value(v, self.m[t])));
        }
        out
    }
}

pub(super) struct Q4K;

/// Sub-block `J` of a half block: `words` are its 16 words of nibbles.
#[inline(always)]
fn q4k_dots<V: Lanes, const J: usize, const T: usize, const D: usize>(
    v: V,
    words: &[Word; 16],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [[V::I; D]; T] {
    let mut dots = [[v.int(0); D]; T];
    sums!(v, next, dot_unsigned, a, dots, 8 * J, 8, |i| {
        let q = v.load(&words[J / 2 * 8 + i], part);
        v.and(if J.is_multiple_of(2) { q } else { v.shr(q, 4) }, 0x0f0f_0f0f)
    });
    dots
}

/// Sub-blocks 2 `J` and 2 `J` + 1, which share words: each is read once. The second's nibbles stay where they are, 16 times
/// their value.
#[inline(always)]
fn q4k_both<V: Lanes, const J: usize, const T: usize, const D: usize>(
    v: V,
    words: &[Word; 16],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [[[V::I; D]; T]; 2] {
    let mut dots = [[[v.int(0); D]; T]; 2];
    both_sums!(v, next, a, dots, 8 * J, (16 * J, 16 * J + 8), 8, |i| {
        let q = v.load(&words[8 * J + i], part);
        (v.and(q, 0x0f0f_0f0f), v.and(q, 0xf0f0_f0f0))
    });
    dots
}

impl Quantised for Q4K {
    const WORDS: usize = 36;
    const GROUPS: usize = 2;
    const JOINED: bool = true;
    const PAIRED: bool = true;
    const PANELS: bool = true;
    const IN_ORDER: bool = true;

    #[inline(always)]
    fn group<V: Lanes, const T: usize, const D: usize>(
        v: V,
        block: &[Word],
        part: usize,
        half: usize,
        a: &Tile<T, D>,
        next: Next,
    ) -> [V::F; T] {
        let (sc, m) = scales_minima(v, block, part, half);
        let words = block[4 + 16 * half..].first_chunk().expect("16 words of nibbles");
        if const { T == 1 && V::N == ROW_BLOCK && V::WHOLE_BYTES } {
            let [first, second] = q4k_both::<V, 0, T, D>(v, words, part, a, next);
            let [third, fourth] = q4k_both::<V, 1, T, D>(v, words, part, a, next);
            let dots = [first, second, third, fourth];
            return ScaledSums::of_all(v, sc, m, dots, 16, a).finish(v, v.load(&block[0], part));
        }
        let mut sums = ScaledSums::new(v);
        sums.add(v, 0, sc, m, q4k_dots::<V, 0, T, D>(v, words, part, a, next), a);
        sums.add(v, 1, sc, m, q4k_dots::<V, 1, T, D>(v, words, part, a, next), a);
        sums.add(v, 2, sc, m, q4k_dots::<V, 2, T, D>(v, words, part, a, next), a);
        sums.add(v, 3, sc, m, q4k_dots::<V, 3, T, D>(v, words, part, a, next), a);
        sums.finish(v, v.load(&block[0], part))
    }
}

pub(super) struct Q5K;

/// Sub-block `J` of a half block: `words` are its 16 words of nibbles, `high` the block's 8 words of fifth bits.
#[inline(always)]
fn q5k_dots<V: Lanes, const J: usize, const T: usize, const D: usize>(
    v: V,
    words: &[Word; 16],
    high: &[Word; 8],
    half: usize,
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [[V::I; D]; T] {
    let mut dots = [[v.int(0); D]; T];
    sums!(v, next, dot_unsigned, a, dots, 8 * J, 8, |i| {
        let q = v.load(&words[J / 2 * 8 + i], part);
        let low = v.and(if J.is_multiple_of(2) { q } else { v.shr(q, 4) }, 0x0f0f_0f0f);
        let high = v.shr(v.load(&high[i], part), 4 * half as u32);
        v.or(low, v.and(v.shl(high, 4 - J as u32), 0x1010_1010))
    });
    dots
}

/// Sub-blocks 2 `J` and 2 `J` + 1 of half `HALF`, which share words: each is read once.
#[inline(always)]
fn q5k_both<V: Lanes, const HALF: usize, const J: usize, const T: usize, const D: usize>(
    v: V,
    words: &[Word; 16],
    high: &[Word; 8],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [[[V::I; D]; T]; 2] {
    let mut dots = [[[v.int(0); D]; T]; 2];
    both_sums!(v, next, a, dots, 8 * J, (16 * J, 16 * J + 8), 8, |i| {
        let (q, high) = (v.load(&words[8 * J + i], part), v.load(&high[i], part));
        let first = v.or(v.and(q, 0x0f0f_0f0f), fifth_bits::<V, HALF, 0, J>(v, high));
        (first, v.or(v.and(v.shr(q, 4), 0x0f0f_0f0f), fifth_bits::<V, HALF, 1, J>(v, high)))
    });
    dots
}

/// Bit 4 HALF + 2 J + ODD of each byte, as bit 4.
#[inline(always)]
fn fifth_bits<V: Lanes, const HALF: usize, const ODD: usize, const J: usize>(v: V, high: V::I) -> V::I {
    let at = (4 * HALF + 2 * J + ODD) as u32;
    v.and(if at < 4 { v.shl(high, 4 - at) } else { v.shr(high, at - 4) }, 0x1010_1010)
}

/// The four sub-blocks of half `HALF`.
#[inline(always)]
fn q5k_all<V: Lanes, const HALF: usize, const T: usize, const D: usize>(
    v: V,
    words: &[Word; 16],
    high: &[Word; 8],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
) -> [[[V::I; D]; T]; 4] {
    let [first, second] = q5k_both::<V, HALF, 0, T, D>(v, words, high, part, a, next);
    let [third, fourth] = q5k_both::<V, HALF, 1, T, D>(v, words, high, part, a, next);
    [first, second, third, fourth]
}

impl Quantised for Q5K {
    const WORDS: usize = 44;
    const GROUPS: usize = 2;
    const JOINED: bool = true;
    const PAIRED: bool = true;
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
        let (sc, m) = scales_minima(v, block, part, half);
        let high = block[4..].first_chunk().expect("8 words of high bits");
        let words = block[12 + 16 * half..].first_chunk().expect("16 words of nibbles");
        if const { T == 1 && V::N == ROW_BLOCK } {
            let dots = match half {
                0 => q5k_all::<V, 0, T, D>(v, words, high, part, a, next),
                _ => q5k_all::<V, 1, T, D>(v, words, high, part, a, next),
            };
            return ScaledSums::of_all(v, sc, m, dots, 1, a).finish(v, v.load(&block[0], part));
        }
        let mut sums = ScaledSums::new(v);
        sums.add(v, 0, sc, m, q5k_dots::<V, 0, T, D>(v, words, high, half, part, a, next), a);
        sums.add(v, 1, sc, m, q5k_dots::<V, 1, T, D>(v, words, high, half, part, a, next), a);
        sums.add(v, 2, sc, m, q5k_dots::<V, 2, T, D>(v, words, high, half, part, a, next), a);
        sums.add(v, 3, sc, m, q5k_dots::<V, 3, T, D>(v, words, high, half, part, a, next), a);
        sums.finish(v, v.load(&block[0], part))
    }
}

pub(super) struct Q6K;

/// Two sixteenths (32 codes, number `P` of four) added to S. Codes are taken as 0..63; what that adds is
/// 32 * scale * (sum of the activations), gathered in `over`.
#[inline(always)]
fn q6k_add<V: Lanes, const P: usize, const T: usize, const D: usize>(
    v: V,
    ql: &[Word; 16],
    qh: &[Word; 8],
    scales: V::I,
    part: usize,
    a: &Tile<T, D>,
    s: &mut [[V::I; D]; T],
    over: &mut [[V::I; D]; T],
    next: Next,
) {
    let (first, second) = q6k_scales::<V, P>(v, scales);
    for (h, sc) in [first, second].into_iter().enumerate() {
        let mut dots = [[v.int(0); D]; T];
        sums!(v, next, dot_unsigned, a, dots, 8 * P + 4 * h, 4, |i| {
            let low = v.load(&ql[P % 2 * 8 + 4 * h + i], part);
            let low = v.and(if P < 2 { low } else { v.shr(low, 4) }, 0x0f0f_0f0f);
            let high = v.load(&qh[4 * h + i], part);
            let high = match P {
                0 => v.shl(high, 4),
                1 => v.shl(high, 2),
                2 => high,
                _ => v.shr(high, 2),
            };
            v.or(low, v.and(high, 0x3030_3030))
        });
        for t in 0..T {
            for d in 0..D {
                s[t][d] = v.add(s[t][d], v.mul(sc, dots[t][d]));
            }
        }
    }
    q6k_over::<V, P, T, D>(v, (first, second), a, over);
}

/// The two scales, of 8 bits with sign, of 32 codes number `P`, from their half of a word.
#[inline(always)]
fn q6k_scales<V: Lanes, const P: usize>(v: V, scales: V::I) -> (V::I, V::I) {
    let pair = if P.is_multiple_of(2) { v.shl(scales, 16) } else { scales };
    (v.sar(v.shl(pair, 8), 24), v.sar(pair, 24))
}

/// Adds what codes number `P` are taken as too much, 32 of each, but for that factor.
#[inline(always)]
fn q6k_over<V: Lanes, const P: usize, const T: usize, const D: usize>(
    v: V,
    (first, second): (V::I, V::I),
    a: &Tile<T, D>,
    over: &mut [[V::I; D]; T],
) {
    let both = v.or(v.and(first, 0xffff), v.shl(second, 16));
    for t in 0..T {
        for d in 0..D {
            over[t][d] = v.dot_halves(over[t][d], both, a[t][d][33 + P]);
        }
    }
}

/// The sixteenths `H` of 32 codes number `P` and `P` + 2, which share words, `P` being 0 or 1: times their scales, added to S.
/// Each word is met twice ([`Lanes::again`]).
#[inline(always)]
fn q6k_both<V: Lanes, const P: usize, const H: usize, const T: usize, const D: usize>(
    v: V,
    (ql, qh): (&[Word; 16], &[Word; 8]),
    scales: [V::I; 2],
    part: usize,
    a: &Tile<T, D>,
    s: &mut [[V::I; D]; T],
    next: Next,
) {
    let mut dots = [[[v.int(0); D]; T]; 2];
    let at = 8 * P + 4 * H;
    both_sums!(v, next, a, dots, at, (at, 16 + at), 4, |i| {
        let (low, high) = (&ql[8 * P + 4 * H + i], &qh[4 * H + i]);
        let bits = v.and(v.shl(v.load(high, part), 4 - 2 * P as u32), 0x3030_3030);
        let first = v.or(v.and(v.load(low, part), 0x0f0f_0f0f), bits);
        let bits = v.and(v.shr(v.load(v.again(high), part), 2 * P as u32), 0x3030_3030);
        (first, v.or(v.and(v.shr(v.load(v.again(low), part), 4), 0x0f0f_0f0f), bits))
    });
    for (dots, scales) in dots.iter().zip(scales) {
        let scale = v.sar(v.shl(scales, 24 - 8 * (2 * P + H) as u32), 24);
        for t in 0..T {
            for d in 0..D {
                s[t][d] = v.add(s[t][d], v.mul(scale, dots[t][d]));
            }
        }
    }
}

impl Quantised for Q6K {
    const WORDS: usize = 53;
    const GROUPS: usize = 2;
    const JOINED: bool = true;
    const PAIRED: bool = false;
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
        let one = const { T == 1 && V::N == ROW_BLOCK };
        // opaque, or each half of a block becomes code of its own, which is slower out of the cache and within
        let half = if one { std::hint::black_box(half) } else { half };
        let (sc0, sc1) = (v.load(&block[1 + 2 * half], part), v.load(&block[2 + 2 * half], part));
        let ql = block[5 + 16 * half..].first_chunk().expect("16 words of nibbles");
        let qh = block[37 + 8 * half..].first_chunk().expect("8 words of bit pairs");
        let mut s = [[v.int(0); D]; T];
        let mut over = [[v.int(0); D]; T];
        if one {
            q6k_both::<V, 0, 0, T, D>(v, (ql, qh), [sc0, sc1], part, a, &mut s, next);
            q6k_both::<V, 0, 1, T, D>(v, (ql, qh), [sc0, sc1], part, a, &mut s, next);
            q6k_both::<V, 1, 0, T, D>(v, (ql, qh), [sc0, sc1], part, a, &mut s, next);
            q6k_both::<V, 1, 1, T, D>(v, (ql, qh), [sc0, sc1], part, a, &mut s, next);
            q6k_over::<V, 0, T, D>(v, q6k_scales::<V, 0>(v, sc0), a, &mut over);
            q6k_over::<V, 1, T, D>(v, q6k_scales::<V, 1>(v, sc0), a, &mut over);
            q6k_over::<V, 2, T, D>(v, q6k_scales::<V, 2>(v, sc1), a, &mut over);
            q6k_over::<V, 3, T, D>(v, q6k_scales::<V, 3>(v, sc1), a, &mut over);
        } else {
            q6k_add::<V, 0, T, D>(v, ql, qh, sc0, part, a, &mut s, &mut over, next);
            q6k_add::<V, 1, T, D>(v, ql, qh, sc0, part, a, &mut s, &mut over, next);
            q6k_add::<V, 2, T, D>(v, ql, qh, sc1, part, a, &mut s, &mut over, next);
            q6k_add::<V, 3, T, D>(v, ql, qh, sc1, part, a, &mut s, &mut over, next);
        }
        let (d, _) = v.f16_pair(v.load(&block[0], part));
        let mut out = [v.float(0.0); T];
        for t in 0..T {
            for d in 0..D {
                s[t][d] = v.sub(s[t][d], v.shl(over[t][d], 5));
            }
            out[t] = v.mul_f(d, value(v, s[t]));
        }
        out
    }
}

pub(super) struct Q8K128;

/// Dots of the signed codes of block `B` of 32, added to `s`.
#[inline(always)]
fn q8_dots<V: Lanes, const B: usize, const T: usize, const D: usize>(
    v: V,
    codes: &[Word; 32],
    part: usize,
    a: &Tile<T, D>,
    next: Next,
    s: &mut [[V::I; D]; T],
) {
    sums!(v, next, dot_signed, a, s, 8 * B, 8, |i| v.signed(v.load(&codes[8 * B + i], part)));
}

impl Quantised for Q8K128 {
    const WORDS: usize = 33;
    const GROUPS: usize = 1;
    const JOINED: bool = true;
    const PAIRED: bool = true;
    const IN_ORDER: bool = true;

    #[inline(always)]
    fn group<V: Lanes, const T: usize, const D: usize>(
        v: V,
        block: &[Word],
        part: usize,
        _half: usize,
        a: &Tile<T, D>,
        next: Next,
    ) -> [V::F; T] {
        let codes: &[Word; 32] = block[1..].first_chunk().expect("32 words of codes");
        let mut s = [[v.int(0); D]; T];
        for t in 0..T {
            for d in 0..D {
                let a = a[t][d];
                s[t][d] = v.int(-V::SIGNED_BIAS * (sum32(a, 0) + sum32(a, 1) + sum32(a, 2) + sum32(a, 3)));
            }
        }
        q8_dots::<V, 0, T, D>(v, codes, part, a, next, &mut s);
        q8_dots::<V, 1, T, D>(v, codes, part, a, next, &mut s);
        q8_dots::<V, 2, T, D>(v, codes, part, a, next, &mut s);
        q8_dots::<V, 3, T, D>(v, codes, part, a, next, &mut s);
        let d = v.as_f(v.load(&block[0], part));
        let mut out = [v.float(0.0); T];
        for t in 0..T {
            out[t] = v.mul_f(d, value(v, s[t]));
        }
        out
    }
}

/// Whether a kernel waits for memory, and asks for weights ahead.
pub(super) const fn few<const T: usize, const D: usize>() -> bool {
    T * D <= 2
}

/// What lies on the stack where a cache line begins. A function that has such an array has its whole stack there, and with it the
/// vectors that find no register; elsewhere each of them reaches into two lines.
#[repr(align(64))]
struct Aligned<X>(X);

/// [`Matrix::tile`] of sums per group.
#[inline(always)]
fn quantised<V: Lanes, F: Quantised, const T: usize, const D: usize, const P: usize>(
    v: V,
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
    seg_groups: usize,
) -> [[f32; ROW_BLOCK]; T] {
    assert!(P * V::N == ROW_BLOCK && act.len() == T * D * groups);
    let ahead = ahead(v, F::IN_ORDER && P == 1);
    let mut total = [[v.float(0.0); P]; T];
    let mut first = 0;
    while first < groups {
        let end = groups.min(first + seg_groups);
        let mut acc = [[v.float(0.0); P]; T];
        for g in first..end {
            let mut a = Aligned([[&act[0]; D]; T]);
            for t in 0..T {
                for d in 0..D {
                    a.0[t][d] = &act[(t * groups + g) * D + d];
                }
            }
            let block = &w[g / <F as Quantised>::GROUPS * <F as Quantised>::WORDS..][..<F as Quantised>::WORDS];
            let lines = (<F as Quantised>::WORDS * size_of::<Word>() / LINE).div_ceil(<F as Quantised>::GROUPS * P);
            for part in 0..P {
                // Opaque, or a compiler loads and spreads every activation word once for all parts, and has to keep
                // hundreds of vectors on the stack. Loading one again is part of the dot instruction.
                let a = &std::hint::black_box(&a).0;
                // a block of an odd number of words has its second group begin within a word
                let at = g * <F as Quantised>::WORDS * size_of::<Word>() / <F as Quantised>::GROUPS;
                let next = Next::new(w, at, part, if few::<T, D>() { lines } else { 0 }, ahead);
                let term = F::group::<V, T, D>(v, block, part, g % <F as Quantised>::GROUPS, a, next);
                for t in 0..T {
                    let da = v.float(f32::from_bits(a[t][0][0]));
                    acc[t][part] = v.add_f(acc[t][part], v.mul_f(da, term[t]));
                }
            }
        }
        for t in 0..T {
            for part in 0..P {
                total[t][part] = v.add_f(total[t][part], acc[t][part]);
            }
        }
        first = end;
    }
    let mut out = [[0.0; ROW_BLOCK]; T];
    for t in 0..T {
        for part in 0..P {
            v.store(v.canon(total[t][part]), &mut out[t], part);
        }
    }
    out
}

pub(super) struct F32;

impl Floats for F32 {
    const PER_WORD: usize = 1;
    #[inline(always)]
    fn elements<V: Lanes>(v: V, word: &Word, part: usize) -> (V::F, V::F) {
        let word = v.load(word, part);
        (v.as_f(word), v.as_f(word))
    }
}

pub(super) struct F16;

impl Floats for F16 {
    const PER_WORD: usize = 2;
    #[cfg(target_arch = "x86_64")]
    const NARROW: bool = true;
    #[inline(always)]
    fn elements<V: Lanes>(v: V, word: &Word, part: usize) -> (V::F, V::F) {
        v.f16_rows(word, part)
    }
    #[inline(always)]
    fn by_row<V: Lanes>(v: V, a: V::F) -> V::F {
        v.by_row(a)
    }
}

pub(super) struct BF16;

impl Floats for BF16 {
    const PER_WORD: usize = 2;
    #[inline(always)]
    fn elements<V: Lanes>(v: V, word: &Word, part: usize) -> (V::F, V::F) {
        let word = v.load(word, part);
        (v.as_f(v.shl(word, 16)), v.as_f(v.and(word, 0xffff_0000)))
    }
}

/// 32 rows by `T` tokens with float weights: `x` the tokens' rows of k. `P` parts of V::N lanes are walked together, to
/// have independent sums while an addition completes; P * V::N divides 32. For one token weights are asked for ahead.
#[inline(always)]
pub(super) fn floats<V: Lanes, F: Floats, const T: usize, const P: usize>(
    v: V,
    w: &[Word],
    x: &[f32],
    k: usize,
    seg_groups: usize,
) -> [[f32; ROW_BLOCK]; T] {
    assert!(ROW_BLOCK.is_multiple_of(P * V::N) && x.len() == T * k && w.len() == k.div_ceil(F::PER_WORD));
    let mut out = [[0.0; ROW_BLOCK]; T];
    for pass in 0..ROW_BLOCK / (P * V::N) {
        let mut total = [[v.float(0.0); P]; T];
        let mut first = 0;
        while first < k {
            let end = k.min(first + seg_groups * GROUP);
            // a segment starts at an even element; a word half empty can only be the row's last
            let whole = (end - first) / F::PER_WORD;
            let mut acc = [[v.float(0.0); P]; T];
            let mut xs = [&x[..0]; T];
            for t in 0..T {
                xs[t] = &x[t * k + first..][..whole * F::PER_WORD];
            }
            let words = &w[first / F::PER_WORD..][..whole];
            for i in 0..whole {
                for part in 0..P {
                    let lane = (pass * P + part) * V::N;
                    if T == 1 && (lane * size_of::<u32>()).is_multiple_of(LINE) {
                        v.prefetch(words[i][lane..].as_ptr().cast::<u8>().wrapping_add(v.ahead()));
                    }
                    let (a, b) = F::elements(v, &words[i], pass * P + part);
                    for t in 0..T {
                        let x = &xs[t][i * F::PER_WORD..][..F::PER_WORD];
                        acc[t][part] = v.add_f(acc[t][part], v.mul_f(a, v.float(x[0])));
                        if F::PER_WORD == 2 {
                            acc[t][part] = v.add_f(acc[t][part], v.mul_f(b, v.float(x[1])));
                        }
                    }
                }
            }
            if first + whole * F::PER_WORD < end {
                for part in 0..P {
                    let (a, _) = F::elements(v, &w[w.len() - 1], pass * P + part);
                    for t in 0..T {
                        acc[t][part] = v.add_f(acc[t][part], v.mul_f(a, v.float(x[t * k + k - 1])));
                    }
                }
            }
            for t in 0..T {
                for part in 0..P {
                    total[t][part] = v.add_f(total[t][part], acc[t][part]);
                }
            }
            first = end;
        }
        for t in 0..T {
            for part in 0..P {
                v.store(v.canon(F::by_row(v, total[t][part])), &mut out[t], pass * P + part);
            }
        }
    }
    out
}

/// `exact::round_away` of |x| < 2^22 in instructions every target has for vectors: to the nearest integer, half to even,
/// by an addition that leaves no room for a fraction, then up where a half went down (the difference is exact).
#[inline(always)]
fn round_away(x: f32) -> i32 {
    const INTEGERS: f32 = 8_388_608.0;
    let magnitude = x.abs();
    let even = (magnitude + INTEGERS) - INTEGERS;
    let up = if magnitude - even >= 0.5 { 1.0 } else { 0.0 };
    let code = ((even + up) + INTEGERS).to_bits() as i32 & 0x7f_ffff;
    let sign = x.to_bits() as i32 >> 31;
    (code ^ sign) - sign
}

/// The greatest, in place: by halves, which compilers make vectors of.
#[inline(always)]
pub(super) fn greatest<const N: usize>(v: &mut [i32; N]) -> i32 {
    const { assert!(N.is_power_of_two()) }
    let mut s = N / 2;
    while s > 0 {
        let (low, high) = v.split_at_mut(s);
        for l in 0..s {
            low[l] = low[l].max(high[l]);
        }
        s /= 2;
    }
    v[0]
}

/// As compilers make it.
#[derive(Clone, Copy)]
pub(super) struct Halving;

impl Amax for Halving {
    #[inline(always)]
    fn amax(self, x: &[f32; GROUP]) -> u32 {
        let mut most = [0i32; GROUP];
        for i in 0..GROUP {
            most[i] = x[i].to_bits() as i32 & i32::MAX;
        }
        greatest(&mut most) as u32
    }
}

/// `ops::act_quantize` of one group: `x` its elements, zeros where the row has ended; `blocks` one or two blocks.
#[inline(always)]
pub(super) fn quantise_group(by: impl Amax, x: &[f32; GROUP], blocks: &mut [ActBlock]) {
    use crate::ops::exact::{SCALE_MIN, fdiv, not_finite};

    let limit = if blocks.len() == 1 { 127 } else { 127 * 128 };
    let d = fdiv(f32::from_bits(by.amax(x)), limit as f32);
    if d < SCALE_MIN || not_finite(d) {
        let scale = if not_finite(d) { d.to_bits() } else { 0 };
        blocks.iter_mut().for_each(|block| {
            block.fill(0);
            block[0] = scale;
        });
        return;
    }
    let inv = fdiv(1.0, d);
    let mut codes = [0i32; GROUP];
    for i in 0..GROUP {
        codes[i] = round_away(x[i] * inv).clamp(-limit, limit);
    }
    if let [low, high] = blocks {
        let mut rest = [0; GROUP];
        for i in 0..GROUP {
            let h = (codes[i] + 64) >> 7;
            rest[i] = codes[i] - 128 * h;
            codes[i] = h;
        }
        put_block(low, d, &rest);
        put_block(high, d, &codes);
    } else {
        put_block(&mut blocks[0], d, &codes);
    }
}

#[inline(always)]
fn put_block(block: &mut ActBlock, d: f32, codes: &[i32; GROUP]) {
    block[0] = d.to_bits();
    let mut bytes = [0u8; GROUP];
    for i in 0..GROUP {
        bytes[i] = codes[i] as u8;
    }
    for i in 0..32 {
        block[1 + i] = u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]);
    }
    let mut sums = [[0i32; 4]; 8];
    for s in 0..8 {
        for l in 0..4 {
            let c = &codes[16 * s..16 * s + 16];
            sums[s][l] = (c[l] + c[l + 4]) + (c[l + 8] + c[l + 12]);
        }
    }
    for i in 0..4 {
        let ([a, b, c, d], [e, f, g, h]) = (sums[2 * i], sums[2 * i + 1]);
        block[33 + i] = ((a + b + c + d) & 0xffff | (e + f + g + h) << 16) as u32;
    }
}
