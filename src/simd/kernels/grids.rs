//! Kernels of the formats whose codes are numbers of rows of a codebook (`blocks::grids`).

#[cfg(target_arch = "x86_64")]
use super::Codebook;
use super::scaled::{Above, Scaled, Signed, quantised_by_scales};
use super::{Next, Quantised, Tile};
use crate::blocks::grids::{GRID_1, GRID_2S, GRID_2XS, GRID_2XXS, GRID_3S, GRID_3XXS};
use crate::simd::lanes::{Book, Lanes, Word};

static BOOK_2XXS: Book<256, 2> = Book::new(&GRID_2XXS);
static BOOK_2XS: Book<512, 2> = Book::new(&GRID_2XS);
static BOOK_2S: Book<1024, 2> = Book::new(&GRID_2S);
static BOOK_3XXS: Book<256, 1> = Book::new(&GRID_3XXS);
static BOOK_3S: Book<512, 1> = Book::new(&GRID_3S);
static BOOK_1: Book<2048, 2> = Book::new(&GRID_1);

/// Lowest byte of `at >> shift`.
#[inline(always)]
fn byte<V: Lanes>(v: V, word: V::I, shift: u32) -> V::I {
    v.and(v.shr(word, shift), 0xff)
}

/// 2 n + 1 of the n in the low bits of `word >> shift` that `mask` says.
#[inline(always)]
fn odd<V: Lanes>(v: V, word: V::I, shift: u32, mask: u32) -> V::I {
    let n = v.and(v.shr(word, shift), mask);
    v.add(v.add(n, n), v.int(1))
}

/// The eight sign bits of each byte whose seven lowest are given: their number is even (`grids::even_signs`).
#[inline(always)]
fn even_signs<V: Lanes>(v: V, seven: V::I) -> V::I {
    let x = v.xor_each(seven, v.shr(seven, 4));
    let x = v.xor_each(x, v.shr(x, 2));
    let x = v.and(v.xor_each(x, v.shr(x, 1)), 0x0101_0101);
    v.or(seven, v.shl(x, 7))
}

/// The sign bits of a word of four fields of seven, below a scale.
#[inline(always)]
fn signs_below_scale<V: Lanes>(v: V, word: V::I) -> V::I {
    let first = v.or(v.and(word, 0x7f), v.and(v.shl(word, 1), 0x7f00));
    let last = v.or(v.and(v.shl(word, 2), 0x7f_0000), v.and(v.shl(word, 3), 0x7f00_0000));
    even_signs(v, v.or(first, last))
}

/// What four rows of eight codes, or eight of four, are made of.
#[derive(Clone, Copy)]
pub(in super::super) struct Rows<V: Lanes> {
    /// numbers of rows
    index: [V::I; 2],
    /// their high bits
    high: V::I,
    /// a bit for each code, or what is added to each
    signs: V::I,
}

/// Row `m` of eight codes, with signs.
#[inline(always)]
fn signed_row<V: Lanes, const ROWS: usize>(
    v: V,
    book: &'static Book<ROWS, 2>,
    index: V::I,
    signs: V::I,
    m: u32,
) -> [Signed<V>; 2] {
    let [first, second] = v.look_up(book, index, V::SIGNED_BIAS as u8);
    [Signed(v.signed_by(first, signs, 8 * m)), Signed(v.signed_by(second, signs, 8 * m + 4))]
}

/// Rows 2 `m` and 2 `m` + 1 of four codes, with signs.
#[inline(always)]
fn signed_rows<V: Lanes, const ROWS: usize>(
    v: V,
    book: &'static Book<ROWS, 1>,
    index: [V::I; 2],
    signs: V::I,
    m: u32,
) -> [Signed<V>; 2] {
    let [first] = v.look_up(book, index[0], V::SIGNED_BIAS as u8);
    let [second] = v.look_up(book, index[1], V::SIGNED_BIAS as u8);
    [Signed(v.signed_by(first, signs, 8 * m)), Signed(v.signed_by(second, signs, 8 * m + 4))]
}

/// Byte n of the two words of a quarter's numbers.
#[inline(always)]
fn index_byte<V: Lanes>(v: V, index: [V::I; 2], n: u32) -> V::I {
    byte(v, index[n as usize / 4], 8 * (n % 4))
}

/// Row `m` of eight codes of -9 to 9, taken 9 above their value: eight times the codebook's, and 1 more or less. `shift`
/// holds 2 or 0 in all bytes.
#[inline(always)]
fn shifted_row<V: Lanes>(v: V, index: V::I, shift: V::I) -> [Above<V, 9>; 2] {
    let [first, second] = v.look_up(&BOOK_1, index, 1);
    [Above(v.add(v.shl(first, 3), shift)), Above(v.add(v.shl(second, 3), shift))]
}

/// 2 in each byte where bit `bit` of a lane is 0, else 0.
#[inline(always)]
fn shift_of<V: Lanes>(v: V, word: V::I, bit: u32) -> V::I {
    v.and(v.sub(v.and(v.shr(word, bit), 1), v.int(1)), 0x0202_0202)
}

macro_rules! scaled {
    ($name:ident, $words:literal words, $unit:literal, sixteenths $sixteenths:literal, $codes:ty;
        quarter |$v:ident, $block:ident, $part:ident, $half:ident, $j:ident| $quarter:block
        pair |$q:ident, $m:ident| $pair:block
        scales $scales:block
        $($scale:item)?
    ) => {
        pub(in super::super) struct $name;

        impl Scaled for $name {
            const WORDS: usize = $words;
            const SIXTEENTHS: bool = $sixteenths;
            const UNIT: f32 = $unit;
            const WRITTEN_OUT: bool = false;
            const PAIRED: bool = false;
            #[cfg(target_arch = "x86_64")]
            const BOOK: Option<Codebook> = Some(Codebook::$name);
            type Codes<V: Lanes> = $codes;
            type Quarter<V: Lanes> = Rows<V>;

            #[inline(always)]
            fn quarter<V: Lanes>($v: V, $block: &[Word], $part: usize, $half: usize, $j: usize) -> Rows<V> {
                $quarter
            }
            #[inline(always)]
            fn pair<V: Lanes>($v: V, $q: Rows<V>, $m: u32) -> [$codes; 2] {
                $pair
            }
            #[inline(always)]
            fn scales<V: Lanes>($v: V, $block: &[Word], $part: usize, $half: usize, $j: usize) -> [V::I; 2] {
                $scales
            }
            $($scale)?
        }
    };
}

scaled! { IQ3S, 28 words, 1.0, sixteenths false, Signed<V>;
    quarter |v, block, part, half, j| {
        let at = 12 + 8 * half + 2 * j;
        Rows {
            index: [v.load(&block[at], part), v.load(&block[at + 1], part)],
            // bit n becomes bit 8 of a number
            high: v.shl(v.shr(v.load(&block[2 + half], part), 8 * j as u32), 8),
            signs: v.load(&block[4 + 4 * half + j], part),
        }
    }
    pair |q, m| {
        let first = v.or(index_byte(v, q.index, 2 * m), v.and(v.shr(q.high, 2 * m), 0x100));
        let second = v.or(index_byte(v, q.index, 2 * m + 1), v.and(v.shr(q.high, 2 * m + 1), 0x100));
        signed_rows(v, &BOOK_3S, [first, second], q.signs, m)
    }
    scales {
        [odd(v, v.load(&block[1], part), (16 * half + 4 * j) as u32, 15); 2]
    }
}

scaled! { IQ3XXS, 25 words, 0.25, sixteenths false, Signed<V>;
    quarter |v, block, part, half, j| {
        let at = 9 + 8 * half + 2 * j;
        Rows {
            index: [v.load(&block[at], part), v.load(&block[at + 1], part)],
            high: v.int(0),
            signs: signs_below_scale(v, v.load(&block[1 + 4 * half + j], part)),
        }
    }
    pair |q, m| {
        let rows = [index_byte(v, q.index, 2 * m), index_byte(v, q.index, 2 * m + 1)];
        signed_rows(v, &BOOK_3XXS, rows, q.signs, m)
    }
    scales {
        [odd(v, v.load(&block[1 + 4 * half + j], part), 28, 15); 2]
    }
}

/// The scales of a quarter of IQ2_XS and IQ2_S, of which a byte each lies in two words from word 1 on.
#[inline(always)]
fn two_scales<V: Lanes>(v: V, block: &[Word], part: usize, half: usize, j: usize) -> [V::I; 2] {
    let word = v.shr(v.load(&block[1 + half], part), 8 * j as u32);
    [odd(v, word, 0, 15), odd(v, word, 4, 15)]
}

scaled! { IQ2S, 21 words, 0.125, sixteenths true, Signed<V>;
    quarter |v, block, part, half, j| {
        Rows {
            index: [v.load(&block[5 + 4 * half + j], part); 2],
            // bits 2 m and 2 m + 1 become bits 8 and 9 of a number
            high: v.shl(v.shr(v.load(&block[3 + half], part), 8 * j as u32), 8),
            signs: v.load(&block[13 + 4 * half + j], part),
        }
    }
    pair |q, m| {
        let row = v.or(byte(v, q.index[0], 8 * m), v.and(v.shr(q.high, 2 * m), 0x300));
        signed_row(v, &BOOK_2S, row, q.signs, m)
    }
    scales {
        two_scales(v, block, part, half, j)
    }
}

scaled! { IQ2XS, 19 words, 0.125, sixteenths true, Signed<V>;
    quarter |v, block, part, half, j| {
        let at = 3 + 8 * half + 2 * j;
        let (first, last) = (v.load(&block[at], part), v.load(&block[at + 1], part));
        // nine bits of a number, seven of signs, in every half word
        let low = v.or(v.and(v.shr(first, 9), 0x7f), v.and(v.shr(first, 17), 0x7f00));
        let high = v.or(v.and(v.shl(last, 7), 0x7f_0000), v.and(v.shr(last, 1), 0x7f00_0000));
        Rows { index: [first, last], high: v.int(0), signs: even_signs(v, v.or(low, high)) }
    }
    pair |q, m| {
        let row = v.and(v.shr(q.index[m as usize / 2], 16 * (m % 2)), 0x1ff);
        signed_row(v, &BOOK_2XS, row, q.signs, m)
    }
    scales {
        two_scales(v, block, part, half, j)
    }
}

scaled! { IQ2XXS, 17 words, 0.125, sixteenths false, Signed<V>;
    quarter |v, block, part, half, j| {
        let at = 1 + 8 * half + 2 * j;
        Rows {
            index: [v.load(&block[at], part); 2],
            high: v.int(0),
            signs: signs_below_scale(v, v.load(&block[at + 1], part)),
        }
    }
    pair |q, m| {
        signed_row(v, &BOOK_2XXS, byte(v, q.index[0], 8 * m), q.signs, m)
    }
    scales {
        [odd(v, v.load(&block[2 + 8 * half + 2 * j], part), 28, 15); 2]
    }
}

/// The half word of quarter `j` of IQ1_S: high bits of four numbers, a scale, and whether codes are shifted down.
#[inline(always)]
fn half_word<V: Lanes>(v: V, block: &[Word], part: usize, half: usize, j: usize) -> V::I {
    v.shr(v.load(&block[1 + 2 * half + j / 2], part), (16 * (j % 2)) as u32)
}

scaled! { IQ1S, 13 words, 0.125, sixteenths false, Above<V, 9>;
    quarter |v, block, part, half, j| {
        let high = half_word(v, block, part, half, j);
        Rows {
            index: [v.load(&block[5 + 4 * half + j], part); 2],
            // bits 3 m to 3 m + 2 become bits 8 to 10 of a number
            high: v.shl(high, 8),
            signs: shift_of(v, high, 15),
        }
    }
    pair |q, m| {
        let row = v.or(byte(v, q.index[0], 8 * m), v.and(v.shr(q.high, 3 * m), 0x700));
        shifted_row(v, row, q.signs)
    }
    scales {
        [odd(v, half_word(v, block, part, half, j), 12, 7); 2]
    }
}

scaled! { IQ1M, 14 words, 0.125, sixteenths true, Above<V, 9>;
    quarter |v, block, part, half, j| {
        let nibbles = v.shr(v.load(&block[2 + 2 * half + j / 2], part), (16 * (j % 2)) as u32);
        Rows { index: [v.load(&block[6 + 4 * half + j], part); 2], high: v.shl(nibbles, 8), signs: nibbles }
    }
    pair |q, m| {
        let row = v.or(byte(v, q.index[0], 8 * m), v.and(v.shr(q.high, 4 * m), 0x700));
        shifted_row(v, row, shift_of(v, q.signs, 4 * m + 3))
    }
    scales {
        // four of three bits to a half word, two of them those of a quarter
        let word = v.load(&block[half], part);
        let at = (16 * (j / 2) + 6 * (j % 2)) as u32;
        [odd(v, word, at, 7), odd(v, word, at + 3, 7)]
    }
    #[inline(always)]
    fn scale<V: Lanes>(v: V, block: &[Word], part: usize) -> V::F {
        // an f16 in the four highest bits of each half word, the lowest first
        let (first, last) = (v.load(&block[0], part), v.load(&block[1], part));
        let low = v.or(v.and(v.shr(first, 12), 0xf), v.and(v.shr(first, 24), 0xf0));
        let high = v.or(v.and(v.shr(last, 4), 0xf00), v.and(v.shr(last, 16), 0xf000));
        v.f16_pair(v.or(low, high)).0
    }
}

quantised_by_scales!(IQ3S, IQ3XXS, IQ2S, IQ2XS, IQ2XXS, IQ1S, IQ1M);
