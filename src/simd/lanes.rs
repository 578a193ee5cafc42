//! What a kernel may ask of a vector register: the operations of `docs/exactness.md` on several rows at once.
//!
//! A lane is a row, so nothing here reduces across lanes and every float operation is the twin's, lane by lane. There is
//! no multiply-add on floats and there must never be one: it rounds once where the page rounds twice.

use crate::blocks::grids::Grid;
use crate::ops::linear::{GROUP, ROW_BLOCK};

/// One word of a packed row block: the same word of 32 rows.
pub(super) type Word = [u32; ROW_BLOCK];

/// Bytes between the weights in use and those asked for: about what one core has on its way from memory at a time.
pub(super) const AHEAD: usize = 12 << 10;

/// A codebook as look-ups take it.
pub(super) struct Book<const ROWS: usize, const WORDS: usize> {
    pub(super) grid: &'static Grid<ROWS, WORDS>,
    /// the value of each code, whatever bits lie above it
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for look-ups in registers"))]
    pub(super) values: [i8; 16],
}

impl<const ROWS: usize, const WORDS: usize> Book<ROWS, WORDS> {
    pub(super) const fn new(grid: &'static Grid<ROWS, WORDS>) -> Self {
        let mut values = [0; 16];
        let mut i = 0;
        while i < 16 {
            let code = i % grid.values.len().next_power_of_two();
            if code < grid.values.len() {
                values[i] = grid.values[code];
            }
            i += 1;
        }
        Book { grid, values }
    }
}

/// A vector instruction set. A value of the type is the proof that this CPU has it, which is what makes the methods safe.
pub(super) trait Lanes: Copy {
    /// Lanes of one vector; divides 32.
    const N: usize;
    /// What [`Lanes::signed`] adds to every weight; a kernel starts its sums at minus this times the activations' sum.
    const SIGNED_BIAS: i32;
    /// Whether [`Lanes::dot_unsigned`] takes bytes above 127 too.
    const WHOLE_BYTES: bool = false;
    /// N integers of 32 bits.
    type I: Copy;
    /// N f32.
    type F: Copy;
    /// Signed bytes made ready for [`Lanes::dot_signed`].
    type S: Copy;

    /// Lanes `N * part ..` of a word.
    fn load(self, word: &Word, part: usize) -> Self::I;
    /// `i` in every lane.
    fn int(self, i: i32) -> Self::I;
    /// Bitwise and with a constant.
    fn and(self, a: Self::I, mask: u32) -> Self::I;
    /// Bitwise exclusive or with a constant.
    fn xor(self, a: Self::I, mask: u32) -> Self::I;
    /// Bitwise exclusive or.
    fn xor_each(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise or.
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    /// Wrapping sum.
    fn add(self, a: Self::I, b: Self::I) -> Self::I;
    /// Wrapping difference.
    fn sub(self, a: Self::I, b: Self::I) -> Self::I;
    /// Low 32 bits of the product.
    fn mul(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shift left by `n` < 32.
    fn shl(self, a: Self::I, n: u32) -> Self::I;
    /// Shift right by `n` < 32, filling with zeros.
    fn shr(self, a: Self::I, n: u32) -> Self::I;
    /// Shift right by `n` < 32, filling with the sign.
    fn sar(self, a: Self::I, n: u32) -> Self::I;
    /// acc + the four products of unsigned bytes of `w`, each at most 127 ([`Lanes::WHOLE_BYTES`]: 255), and signed bytes of
    /// `a`, each within +-127.
    fn dot_unsigned(self, acc: Self::I, w: Self::I, a: u32) -> Self::I;
    /// Prepares a word of four signed bytes.
    fn signed(self, w: Self::I) -> Self::S;
    /// acc + the four products of (bytes of `w` + SIGNED_BIAS) and signed bytes of `a`, each within +-127.
    fn dot_signed(self, acc: Self::I, w: Self::S, a: u32) -> Self::I;
    /// acc + the two products of signed halves of `w` and of `a`.
    fn dot_halves(self, acc: Self::I, w: Self::I, a: u32) -> Self::I;

    /// Writes lanes `N * part ..` of a word.
    #[inline(always)]
    fn put(self, a: Self::I, to: &mut Word, part: usize) {
        self.store(self.as_f(a), bytemuck::cast_mut(to), part);
    }

    /// The bytes of `table` that the bytes of `index` say, each of which is below 16, made ready for [`Lanes::dot_signed`].
    #[inline(always)]
    fn sixteen(self, table: &'static [i8; 16], index: Self::I) -> Self::S {
        let mut words = [0; ROW_BLOCK];
        self.put(index, &mut words, 0);
        for l in 0..Self::N {
            let mut bytes = words[l].to_le_bytes();
            for i in 0..4 {
                bytes[i] = table[(bytes[i] & 15) as usize] as u8;
            }
            words[l] = u32::from_le_bytes(bytes);
        }
        self.signed(self.load(&words, 0))
    }

    /// The bytes of `table` that the bytes of `index` say, of which each is below 16.
    #[inline(always)]
    fn of_table(self, table: &'static [u8; 16], index: Self::I) -> Self::I {
        let mut words = [0; ROW_BLOCK];
        self.put(index, &mut words, 0);
        for l in 0..Self::N {
            let mut bytes = words[l].to_le_bytes();
            for i in 0..4 {
                bytes[i] = table[(bytes[i] & 15) as usize];
            }
            words[l] = u32::from_le_bytes(bytes);
        }
        self.load(&words, 0)
    }

    /// Rows of a codebook, each value `above` higher (as bytes, which wrap): of `index` the low bits that its rows need
    /// count. A word holds four values.
    #[inline(always)]
    fn look_up<const ROWS: usize, const WORDS: usize>(
        self,
        book: &'static Book<ROWS, WORDS>,
        index: Self::I,
        above: u8,
    ) -> [Self::I; WORDS] {
        const { assert!(ROWS.is_power_of_two()) }
        let mut rows = [0; ROW_BLOCK];
        self.put(index, &mut rows, 0);
        let mut words = [[0; ROW_BLOCK]; WORDS];
        for l in 0..Self::N {
            let row = &book.grid.words[rows[l] as usize % ROWS];
            for i in 0..WORDS {
                words[i][l] = row[i];
            }
        }
        let mut out = [index; WORDS];
        for i in 0..WORDS {
            out[i] = raised(self, self.load(&words[i], 0), above);
        }
        out
    }

    /// [`Lanes::look_up`] of two vectors.
    #[cfg_attr(target_arch = "wasm32", allow(dead_code, reason = "rows are found one by one there"))]
    #[inline(always)]
    fn look_up_both<const ROWS: usize, const WORDS: usize>(
        self,
        book: &'static Book<ROWS, WORDS>,
        index: (Self::I, Self::I),
        above: u8,
    ) -> ([Self::I; WORDS], [Self::I; WORDS]) {
        (self.look_up(book, index.0, above), self.look_up(book, index.1, above))
    }

    /// Bytes of `codes`, of which byte i is negative where bit `bit + i` of `signs` is set, made ready for
    /// [`Lanes::dot_signed`]. `codes` are 1 to 127, and [`Lanes::SIGNED_BIAS`] above that; `bit` is a multiple of 4.
    #[inline(always)]
    fn signed_by(self, codes: Self::I, signs: Self::I, bit: u32) -> Self::S {
        // four bits, each times so much that it comes to the bottom of a byte of its own
        let ones = self.and(self.mul(self.and(self.shr(signs, bit), 15), self.int(0x0020_4081)), 0x0101_0101);
        let all = self.sub(self.shl(ones, 8), ones);
        // what is not 0 is negated without a carry into the next byte; the bias is exclusive here as well
        let codes = self.xor(codes, Self::SIGNED_BIAS as u32 * 0x0101_0101);
        self.signed(self.add(self.xor_each(codes, all), ones))
    }

    /// Bytes between the weights in use and those that kernels ask for.
    #[inline(always)]
    fn ahead(self) -> usize {
        AHEAD
    }
    /// Asks for the cache line at `from`, which may lie anywhere; a hint. Exactly here: a compiler may move what it knows to be
    /// a prefetch, and gathers many.
    #[inline(always)]
    fn prefetch(self, _from: *const u8) {}
    /// The same, into the second-level cache, where there is such a hint.
    #[inline(always)]
    fn prefetch_far(self, from: *const u8) {
        self.prefetch(from);
    }

    /// The same word, of which a compiler does not know that: what was loaded of it is loaded again. Where one vector is a whole
    /// cache line, prefetchers take more notice of lines that are met twice (docs/performance.md, "Every line twice"); elsewhere
    /// it does nothing.
    #[inline(always)]
    fn again(self, word: &Word) -> &Word {
        word
    }

    /// Nearest f32, ties to even.
    fn to_f(self, a: Self::I) -> Self::F;
    /// The f32 with these bits.
    fn as_f(self, a: Self::I) -> Self::F;
    /// The finite f16 in the low and in the high half of every lane.
    fn f16_pair(self, a: Self::I) -> (Self::F, Self::F);
    /// The finite f16 in the low and in the high half of every word of a part, lanes in an order of their own, which
    /// [`Lanes::by_row`] undoes.
    #[inline(always)]
    fn f16_rows(self, word: &Word, part: usize) -> (Self::F, Self::F) {
        self.f16_pair(self.load(word, part))
    }
    /// Lanes of [`Lanes::f16_rows`] as they lie.
    #[inline(always)]
    fn by_row(self, a: Self::F) -> Self::F {
        a
    }
    /// `x` in every lane.
    fn float(self, x: f32) -> Self::F;
    /// Sum.
    fn add_f(self, a: Self::F, b: Self::F) -> Self::F;
    /// Difference.
    fn sub_f(self, a: Self::F, b: Self::F) -> Self::F;
    /// Product.
    fn mul_f(self, a: Self::F, b: Self::F) -> Self::F;
    /// `exact::canon` of every lane.
    fn canon(self, a: Self::F) -> Self::F;
    /// Writes lanes `N * part ..`.
    fn store(self, a: Self::F, to: &mut [f32; ROW_BLOCK], part: usize);
}

/// Bytes that are `by` higher, and wrap.
#[inline(always)]
fn raised<V: Lanes>(v: V, bytes: V::I, by: u8) -> V::I {
    let by = u32::from_le_bytes([by; 4]);
    match by {
        0 => bytes,
        0x8080_8080 => v.xor(bytes, by),
        // no carry leaves a byte: the highest bits are summed apart
        _ => {
            let low = v.add(v.and(bytes, 0x7f7f_7f7f), v.int((by & 0x7f7f_7f7f) as i32));
            v.xor_each(low, v.and(v.xor(bytes, by), 0x8080_8080))
        }
    }
}

/// What unpacking to panels needs besides [`Lanes`].
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) trait Bytes: Lanes {
    /// The signed bytes that were made ready for [`Lanes::dot_signed`].
    fn values(self, s: Self::S) -> Self::I;
    /// -128 times the sum of the signed bytes of `codes`: what their dots with activations that are taken 128 above their
    /// value are too much. 0 where the level takes none so.
    fn below(self, codes: &[Word], part: usize) -> Self::I;
}

/// What a level's dot of bytes has besides [`Lanes`].
#[cfg(target_arch = "x86_64")]
pub(super) trait Dots: Bytes {
    /// acc + the four products of unsigned bytes of `a` and signed bytes of `w`. Where [`Dots::HALVES`], two of them
    /// have to fit a half.
    fn dot_above(self, acc: Self::I, a: u32, w: Self::I) -> Self::I;
    /// Whether a dot of four bytes takes several instructions, so that sums in halves save some of them.
    const HALVES: bool;
    /// Halves, and in each besides the two products of unsigned bytes of `u` and signed ones of `s`; all have to fit.
    fn pairs(self, halves: Self::I, u: Self::I, s: Self::I) -> Self::I;
    /// acc + the products of both halves of a lane, signed, with those of `by`.
    fn join(self, acc: Self::I, halves: Self::I, by: Self::I) -> Self::I;
}

/// [`Bytes::below`] of a level with [`Dots`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn below<V: Dots>(v: V, codes: &[Word], part: usize) -> V::I {
    let mut sum = v.int(0);
    for word in codes {
        sum = v.dot_above(sum, 0x0101_0101, v.load(word, part));
    }
    v.mul(sum, v.int(-128))
}

/// How a level finds the greatest magnitude of a group.
pub(super) trait Amax: Copy {
    /// Its bits, by which infinities and NaN are above the numbers.
    fn amax(self, x: &[f32; GROUP]) -> u32;
}
