//! Two vectors taken as one of twice the lanes: words are then read in the order they lie in memory, which is what the
//! prefetchers of a CPU follow, and an activation loaded once meets twice the rows.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::lanes::Bytes;
#[cfg(target_arch = "x86_64")]
use super::lanes::Dots;
use super::lanes::{Book, Lanes, Word};
use crate::ops::linear::ROW_BLOCK;

/// Two vectors of `V` side by side.
#[derive(Clone, Copy)]
pub(super) struct Pair<V>(pub(super) V);

impl<V: Lanes> Lanes for Pair<V> {
    const N: usize = 2 * V::N;
    const SIGNED_BIAS: i32 = V::SIGNED_BIAS;
    const WHOLE_BYTES: bool = V::WHOLE_BYTES;
    type I = (V::I, V::I);
    type F = (V::F, V::F);
    type S = (V::S, V::S);

    #[inline(always)]
    fn load(self, word: &Word, part: usize) -> Self::I {
        (self.0.load(word, 2 * part), self.0.load(word, 2 * part + 1))
    }
    #[inline(always)]
    fn int(self, i: i32) -> Self::I {
        (self.0.int(i), self.0.int(i))
    }
    #[inline(always)]
    fn and(self, a: Self::I, mask: u32) -> Self::I {
        (self.0.and(a.0, mask), self.0.and(a.1, mask))
    }
    #[inline(always)]
    fn xor(self, a: Self::I, mask: u32) -> Self::I {
        (self.0.xor(a.0, mask), self.0.xor(a.1, mask))
    }
    #[inline(always)]
    fn xor_each(self, a: Self::I, b: Self::I) -> Self::I {
        (self.0.xor_each(a.0, b.0), self.0.xor_each(a.1, b.1))
    }
    #[inline(always)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        (self.0.or(a.0, b.0), self.0.or(a.1, b.1))
    }
    #[inline(always)]
    fn add(self, a: Self::I, b: Self::I) -> Self::I {
        (self.0.add(a.0, b.0), self.0.add(a.1, b.1))
    }
    #[inline(always)]
    fn sub(self, a: Self::I, b: Self::I) -> Self::I {
        (self.0.sub(a.0, b.0), self.0.sub(a.1, b.1))
    }
    #[inline(always)]
    fn mul(self, a: Self::I, b: Self::I) -> Self::I {
        (self.0.mul(a.0, b.0), self.0.mul(a.1, b.1))
    }
    #[inline(always)]
    fn shl(self, a: Self::I, n: u32) -> Self::I {
        (self.0.shl(a.0, n), self.0.shl(a.1, n))
    }
    #[inline(always)]
    fn shr(self, a: Self::I, n: u32) -> Self::I {
        (self.0.shr(a.0, n), self.0.shr(a.1, n))
    }
    #[inline(always)]
    fn sar(self, a: Self::I, n: u32) -> Self::I {
        (self.0.sar(a.0, n), self.0.sar(a.1, n))
    }
    #[inline(always)]
    fn dot_unsigned(self, acc: Self::I, w: Self::I, a: u32) -> Self::I {
        (self.0.dot_unsigned(acc.0, w.0, a), self.0.dot_unsigned(acc.1, w.1, a))
    }
    #[inline(always)]
    fn signed(self, w: Self::I) -> Self::S {
        (self.0.signed(w.0), self.0.signed(w.1))
    }
    #[inline(always)]
    fn dot_signed(self, acc: Self::I, w: Self::S, a: u32) -> Self::I {
        (self.0.dot_signed(acc.0, w.0, a), self.0.dot_signed(acc.1, w.1, a))
    }
    #[inline(always)]
    fn dot_halves(self, acc: Self::I, w: Self::I, a: u32) -> Self::I {
        (self.0.dot_halves(acc.0, w.0, a), self.0.dot_halves(acc.1, w.1, a))
    }
    #[inline(always)]
    fn sixteen(self, table: &'static [i8; 16], index: Self::I) -> Self::S {
        (self.0.sixteen(table, index.0), self.0.sixteen(table, index.1))
    }
    #[inline(always)]
    fn of_table(self, table: &'static [u8; 16], index: Self::I) -> Self::I {
        (self.0.of_table(table, index.0), self.0.of_table(table, index.1))
    }
    #[inline(always)]
    fn look_up<const ROWS: usize, const WORDS: usize>(
        self,
        book: &'static Book<ROWS, WORDS>,
        index: Self::I,
        above: u8,
    ) -> [Self::I; WORDS] {
        let (first, second) = self.0.look_up_both(book, index, above);
        let mut out = [index; WORDS];
        for i in 0..WORDS {
            out[i] = (first[i], second[i]);
        }
        out
    }
    #[inline(always)]
    fn signed_by(self, codes: Self::I, signs: Self::I, bit: u32) -> Self::S {
        (self.0.signed_by(codes.0, signs.0, bit), self.0.signed_by(codes.1, signs.1, bit))
    }

    #[inline(always)]
    fn ahead(self) -> usize {
        self.0.ahead()
    }
    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        self.0.prefetch(from);
    }
    #[inline(always)]
    fn again(self, word: &Word) -> &Word {
        self.0.again(word)
    }
    #[inline(always)]
    fn prefetch_far(self, from: *const u8) {
        self.0.prefetch_far(from);
    }
    #[inline(always)]
    fn to_f(self, a: Self::I) -> Self::F {
        (self.0.to_f(a.0), self.0.to_f(a.1))
    }
    #[inline(always)]
    fn as_f(self, a: Self::I) -> Self::F {
        (self.0.as_f(a.0), self.0.as_f(a.1))
    }
    #[inline(always)]
    fn f16_pair(self, a: Self::I) -> (Self::F, Self::F) {
        let (low, high) = (self.0.f16_pair(a.0), self.0.f16_pair(a.1));
        ((low.0, high.0), (low.1, high.1))
    }
    #[inline(always)]
    fn float(self, x: f32) -> Self::F {
        (self.0.float(x), self.0.float(x))
    }
    #[inline(always)]
    fn add_f(self, a: Self::F, b: Self::F) -> Self::F {
        (self.0.add_f(a.0, b.0), self.0.add_f(a.1, b.1))
    }
    #[inline(always)]
    fn sub_f(self, a: Self::F, b: Self::F) -> Self::F {
        (self.0.sub_f(a.0, b.0), self.0.sub_f(a.1, b.1))
    }
    #[inline(always)]
    fn mul_f(self, a: Self::F, b: Self::F) -> Self::F {
        (self.0.mul_f(a.0, b.0), self.0.mul_f(a.1, b.1))
    }
    #[inline(always)]
    fn canon(self, a: Self::F) -> Self::F {
        (self.0.canon(a.0), self.0.canon(a.1))
    }
    #[inline(always)]
    fn store(self, a: Self::F, to: &mut [f32; ROW_BLOCK], part: usize) {
        self.0.store(a.0, to, 2 * part);
        self.0.store(a.1, to, 2 * part + 1);
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl<V: Bytes> Bytes for Pair<V> {
    #[inline(always)]
    fn values(self, s: Self::S) -> Self::I {
        (self.0.values(s.0), self.0.values(s.1))
    }
    #[inline(always)]
    fn below(self, codes: &[Word], part: usize) -> Self::I {
        (self.0.below(codes, 2 * part), self.0.below(codes, 2 * part + 1))
    }
}

#[cfg(target_arch = "x86_64")]
impl<V: Dots> Dots for Pair<V> {
    #[inline(always)]
    fn dot_above(self, acc: Self::I, a: u32, w: Self::I) -> Self::I {
        (self.0.dot_above(acc.0, a, w.0), self.0.dot_above(acc.1, a, w.1))
    }
    const HALVES: bool = V::HALVES;
    #[inline(always)]
    fn pairs(self, halves: Self::I, u: Self::I, s: Self::I) -> Self::I {
        (self.0.pairs(halves.0, u.0, s.0), self.0.pairs(halves.1, u.1, s.1))
    }
    #[inline(always)]
    fn join(self, acc: Self::I, halves: Self::I, by: Self::I) -> Self::I {
        (self.0.join(acc.0, halves.0, by.0), self.0.join(acc.1, halves.1, by.1))
    }
}
