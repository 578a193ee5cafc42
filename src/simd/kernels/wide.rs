//! Kernels of the types that have codes in the place of rows of a codebook (`blocks::wide`).

use super::scaled::{Above, Scaled, quantised_by_scales};
use super::{Next, Quantised, Tile};
use crate::blocks::grids::{EIGHTHS, QUARTERS};
use crate::simd::lanes::{Lanes, Word};

/// The values of three bits, 43 above them; whatever the fourth is.
static TWOS: [u8; 16] = {
    let mut table = [43; 16];
    let mut i = 0;
    while i < 16 {
        if i % 4 < 3 {
            let magnitude = EIGHTHS[i % 4] as u8;
            table[i] = if i & 4 == 0 { 43 + magnitude } else { 43 - magnitude };
        }
        i += 1;
    }
    table
};

/// The values of four bits, 62 above them.
static THREES: [u8; 16] = {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        let magnitude = QUARTERS[i % 8] as u8;
        table[i] = if i < 8 { 62 + magnitude } else { 62 - magnitude };
        i += 1;
    }
    table
};

/// 2s + 1 of the lowest four bits.
#[inline(always)]
fn odd<V: Lanes>(v: V, word: V::I) -> V::I {
    v.add(v.and(v.shl(word, 1), 30), v.int(1))
}

/// The scales of a quarter's sixteenths, out of words 1 and 2.
#[inline(always)]
fn sixteenths<V: Lanes>(v: V, block: &[Word], part: usize, half: usize, j: usize) -> [V::I; 2] {
    let word = v.shr(v.load(&block[1 + half], part), 8 * j as u32);
    [odd(v, word), odd(v, v.shr(word, 4))]
}

/// The scale of a quarter, twice, out of word 1.
#[inline(always)]
fn eighth<V: Lanes>(v: V, block: &[Word], part: usize, half: usize, j: usize) -> [V::I; 2] {
    [odd(v, v.shr(v.load(&block[1], part), (16 * half + 4 * j) as u32)); 2]
}

/// `N` words from word `at` of a block on.
#[inline(always)]
fn words<V: Lanes, const N: usize>(v: V, block: &[Word], part: usize, at: usize) -> [V::I; N] {
    let words: &[Word; N] = block[at..].first_chunk().expect("words of codes");
    let mut of_part = [v.int(0); N];
    for i in 0..N {
        of_part[i] = v.load(&words[i], part);
    }
    of_part
}

macro_rules! wide {
    ($name:ident, $words:literal words, $unit:literal, sixteenths $sixteenths:literal, $codes:ty, $quarter:ty, $scales:ident;
        quarter |$v:ident, $block:ident, $part:ident, $half:ident, $j:ident| $of_quarter:expr;
        pair |$q:ident, $m:ident| $pair:block
    ) => {
        pub(in super::super) struct $name;

        impl Scaled for $name {
            const WORDS: usize = $words;
            const SIXTEENTHS: bool = $sixteenths;
            const UNIT: f32 = $unit;
            const WRITTEN_OUT: bool = true;
            const PAIRED: bool = true;
            type Codes<V: Lanes> = $codes;
            type Quarter<V: Lanes> = $quarter;

            #[inline(always)]
            fn quarter<V: Lanes>($v: V, $block: &[Word], $part: usize, $half: usize, $j: usize) -> $quarter {
                $of_quarter
            }
            #[inline(always)]
            fn pair<V: Lanes>($v: V, $q: $quarter, $m: u32) -> [$codes; 2] {
                $pair
            }
            #[inline(always)]
            fn scales<V: Lanes>(v: V, block: &[Word], part: usize, half: usize, j: usize) -> [V::I; 2] {
                $scales(v, block, part, half, j)
            }
        }
    };
}

/// A quarter of [`Wide1`]: eight words, bits 2j + 1 .. 2j of whose bytes are codes, and bits of shifts from 0 on.
#[derive(Clone, Copy)]
pub(in super::super) struct Ones<V: Lanes> {
    codes: [V::I; 8],
    j: u32,
    shifts: V::I,
}

wide! { Wide1, 20 words, 0.125, sixteenths true, Above<V, 9>, Ones<V>, sixteenths;
    quarter |v, block, part, half, j| Ones {
        codes: words::<V, 8>(v, block, part, 4 + 8 * half),
        j: j as u32,
        shifts: v.shr(v.load(&block[3], part), (16 * half + 4 * j) as u32),
    };
    pair |q, m| {
        // a shift up is 2 above one down
        let shift = v.and(v.shr(q.shifts, m), 1);
        let shift = v.mul(shift, v.int(0x0202_0202));
        let (first, second) = (q.codes[2 * m as usize], q.codes[2 * m as usize + 1]);
        [eights(v, first, q.j, shift), eights(v, second, q.j, shift)]
    }
}

/// Eight times the codes `j` of four bytes, and `shift`.
#[inline(always)]
fn eights<V: Lanes>(v: V, word: V::I, j: u32, shift: V::I) -> Above<V, 9> {
    let codes = if j < 2 { v.shl(word, 3 - 2 * j) } else { v.shr(word, 2 * j - 3) };
    Above(v.add(v.and(codes, 0x1818_1818), shift))
}

wide! { Wide2, 27 words, 0.125, sixteenths true, Above<V, 43>, [V::I; 3], sixteenths;
    quarter |v, block, part, half, j| words(v, block, part, 3 + 12 * half + 3 * j);
    pair |q, m| {
        let [first, second] = match m {
            0..3 => {
                let word = q[m as usize];
                [v.and(word, 0x0707_0707), v.and(v.shr(word, 4), 0x0707_0707)]
            }
            _ => [spread(v, q, 3), spread(v, q, 7)],
        };
        [Above(v.of_table(&TWOS, first)), Above(v.of_table(&TWOS, second))]
    }
}

/// Codes of which bit i is bit `at` of the bytes of word i.
#[inline(always)]
fn spread<V: Lanes>(v: V, words: [V::I; 3], at: u32) -> V::I {
    let low = v.and(v.shr(words[0], at), 0x0101_0101);
    let middle = v.and(v.shr(words[1], at - 1), 0x0202_0202);
    v.or(v.or(low, middle), v.and(v.shr(words[2], at - 2), 0x0404_0404))
}

wide! { Wide3, 34 words, 0.25, sixteenths false, Above<V, 62>, [V::I; 4], eighth;
    quarter |v, block, part, half, j| words(v, block, part, 2 + 16 * half + 4 * j);
    pair |q, m| {
        let (at, shift) = (m as usize % 2 * 2, m / 2 * 4);
        let (first, second) = (v.shr(q[at], shift), v.shr(q[at + 1], shift));
        [Above(v.of_table(&THREES, v.and(first, 0x0f0f_0f0f))), Above(v.of_table(&THREES, v.and(second, 0x0f0f_0f0f)))]
    }
}

wide! { Wide3S, 34 words, 1.0, sixteenths false, Above<V, 15>, [V::I; 4], eighth;
    quarter |v, block, part, half, j| words(v, block, part, 2 + 16 * half + 4 * j);
    pair |q, m| {
        let at = m as usize % 2 * 2;
        [doubled(v, q[at], m / 2), doubled(v, q[at + 1], m / 2)]
    }
}

/// Twice the low nibbles of four bytes, or the high ones.
#[inline(always)]
fn doubled<V: Lanes>(v: V, word: V::I, high: u32) -> Above<V, 15> {
    let twice = if high == 0 { v.shl(word, 1) } else { v.shr(word, 3) };
    Above(v.and(twice, 0x1e1e_1e1e))
}

quantised_by_scales!(Wide1, Wide2, Wide3, Wide3S);
