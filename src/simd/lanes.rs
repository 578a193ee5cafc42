//! What a kernel may ask of a vector register: the operations of `docs/exactness.md` on several rows at once.
//!
//! A lane is a row, so nothing here reduces across lanes and every float operation is the twin's, lane by lane. There is
//! no multiply-add on floats and there must never be one: it rounds once where the page rounds twice.

use crate::ops::linear::ROW_BLOCK;

/// One word of a packed row block: the same word of 32 rows.
pub(super) type Word = [u32; ROW_BLOCK];

/// Bytes between the weights in use and those asked for: about what one core has on its way from memory at a time.
pub(super) const AHEAD: usize = 12 << 10;

/// A vector instruction set. A value of the type is the proof that this CPU has it, which is what makes the methods safe.
pub(super) trait Lanes: Copy {
    /// Lanes of one vector; divides 32.
    const N: usize;
    /// What [`Lanes::signed`] adds to every weight; a kernel starts its sums at minus this times the activations' sum.
    const SIGNED_BIAS: i32;
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
    /// acc + the four products of unsigned bytes of `w`, each at most 127, and signed bytes of `a`, each within +-127.
    fn dot_unsigned(self, acc: Self::I, w: Self::I, a: u32) -> Self::I;
    /// Prepares a word of four signed bytes.
    fn signed(self, w: Self::I) -> Self::S;
    /// acc + the four products of (bytes of `w` + SIGNED_BIAS) and signed bytes of `a`, each within +-127.
    fn dot_signed(self, acc: Self::I, w: Self::S, a: u32) -> Self::I;
    /// acc + the two products of signed halves of `w` and of `a`.
    fn dot_halves(self, acc: Self::I, w: Self::I, a: u32) -> Self::I;

    /// Bytes between the weights in use and those that kernels ask for.
    #[inline(always)]
    fn ahead(self) -> usize {
        AHEAD
    }
    /// Asks for the cache line at `from`, which may lie anywhere; a hint.
    #[inline(always)]
    fn prefetch(self, _from: *const u8) {}

    /// Nearest f32, ties to even.
    fn to_f(self, a: Self::I) -> Self::F;
    /// The f32 with these bits.
    fn as_f(self, a: Self::I) -> Self::F;
    /// The finite f16 in the low and in the high half of every lane.
    fn f16_pair(self, a: Self::I) -> (Self::F, Self::F);
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
