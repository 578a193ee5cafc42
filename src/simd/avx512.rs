//! The vector operations with AVX-512 (F, BW, VL, DQ) and VNNI: sixteen rows to a register.

use super::lanes::{AHEAD, Amax, Book, Bytes, Dots, Lanes, Word, below};
use crate::ops::exact::{CANON_MAX, CANON_MIN, POISON};
use crate::ops::linear::{GROUP, ROW_BLOCK};
use std::arch::asm;
use std::arch::x86_64::*;

/// Proof that this CPU has AVX-512 F, BW, VL, DQ and VNNI. `NEAR`: weights are asked for as data like any other (`prefetch`);
/// how many bytes ahead is what is in it.
#[derive(Clone, Copy)]
pub(super) struct Avx512<const NEAR: bool = false>(usize);

impl Avx512 {
    /// # Safety
    ///
    /// This CPU has AVX-512 F, BW, VL, DQ and VNNI.
    pub(super) const unsafe fn new() -> Avx512 {
        Avx512(AHEAD)
    }
}

impl<const NEAR: bool> Avx512<NEAR> {
    /// # Safety
    ///
    /// As for `new`.
    pub(super) const unsafe fn asking(ahead: usize) -> Avx512<NEAR> {
        Avx512(ahead)
    }
}

/// Wraps intrinsics. The one reason they are sound is given here.
macro_rules! intrinsics {
    ($e:expr) => {
        // SAFETY: `self` exists only where `Avx512::new` was allowed, so the CPU has the instructions; what they read or
        // write through pointers is a bounds-checked slice of sixteen words. A prefetch touches
        // nothing.
        unsafe { $e }
    };
}

/// What brings the bytes of that number to the bytes of every lane.
#[inline(always)]
fn spread(bytes: [u8; 4]) -> __m512i {
    let (first, lane) = (i32::from_le_bytes(bytes), 0x0404_0404);
    // SAFETY: as for `odd_of`.
    unsafe { _mm512_set4_epi32(first + 3 * lane, first + 2 * lane, first + lane, first) }
}

impl<const NEAR: bool> Avx512<NEAR> {
    /// The integer with the bits of every lane.
    #[inline(always)]
    pub(super) fn as_i(self, a: __m512) -> __m512i {
        intrinsics!(_mm512_castps_si512(a))
    }

    /// The two products of signed halves of `w` and of `a`.
    #[inline(always)]
    pub(super) fn halves(self, w: __m512i, a: u32) -> __m512i {
        intrinsics!(_mm512_madd_epi16(w, _mm512_set1_epi32(a as i32)))
    }

    /// Asks for the cache line at `to`, which may lie anywhere and will be written.
    #[inline(always)]
    pub(super) fn prefetch_to_write(self, to: *const u8) {
        intrinsics!(asm!("prefetchw [{}]", in(reg) to, options(nostack, preserves_flags)));
    }

    /// Sixteen integers.
    #[inline(always)]
    pub(super) fn ints(self, from: &[i32; 16]) -> __m512i {
        intrinsics!(_mm512_loadu_si512(from.as_ptr().cast()))
    }

    /// Sixteen floats, or zeros where `mask` has no bit.
    #[inline(always)]
    pub(super) fn floats(self, from: &[f32; 16], mask: u16) -> __m512 {
        intrinsics!(_mm512_maskz_loadu_ps(mask, from.as_ptr()))
    }

    #[inline(always)]
    pub(super) fn keep(self, x: __m512, to: &mut [f32; 16]) {
        intrinsics!(_mm512_storeu_ps(to.as_mut_ptr(), x))
    }

    /// The products of the four signed bytes in each lane of `codes` and that lane of `scale`, a signed byte's value: their low
    /// bytes, and their high ones.
    #[inline(always)]
    pub(super) fn products(self, codes: __m512i, scale: __m512i) -> (__m512i, __m512i) {
        intrinsics!({
            let scale = odd_half(scale, _mm512_slli_epi32::<16>(scale));
            let even = _mm512_mullo_epi16(_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(codes)), scale);
            let odd = _mm512_mullo_epi16(_mm512_srai_epi16::<8>(codes), scale);
            (odd_of(even, _mm512_slli_epi16::<8>(odd)), odd_of(_mm512_srli_epi16::<8>(even), odd))
        })
    }
}

/// The even halves of `a` and the odd ones of `b`.
#[inline(always)]
fn odd_half(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: as for `odd_of`.
    unsafe { _mm512_ternarylogic_epi32::<0xe4>(a, b, _mm512_set1_epi32(0xffff)) }
}

/// The even bytes of `a` and the odd ones of `b`.
#[inline(always)]
fn odd_of(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: only the methods of `Avx512` call it, so the CPU has the instruction.
    unsafe { _mm512_ternarylogic_epi32::<0xe4>(a, b, _mm512_set1_epi16(0xff)) }
}

impl<const NEAR: bool> Avx512<NEAR> {
    /// The codes of rows of a codebook (`Grid::codes`), for two numbers of rows in each lane.
    #[inline(always)]
    fn rows<const ROWS: usize, const WORDS: usize>(self, book: &'static Book<ROWS, WORDS>, index: __m512i) -> __m512i {
        // as many tables at a time as registers hold their rows
        let mut chosen = [index; 4];
        for (chosen, tables) in chosen.iter_mut().zip(book.grid.codes.as_chunks::<64>().0.chunks(8)) {
            let mut found = [index; 8];
            for (found, table) in found.iter_mut().zip(tables) {
                // the lowest six bits of a number choose among 64
                *found = intrinsics!({
                    let low = _mm512_loadu_si512(table.as_ptr().cast());
                    let high = _mm512_loadu_si512(table[32..].as_ptr().cast());
                    _mm512_permutex2var_epi16(low, index, high)
                });
            }
            *chosen = self.chosen(&mut found[..tables.len()], index, 64);
        }
        self.chosen(&mut chosen[..ROWS.div_ceil(512)], index, 512)
    }

    /// One of the vectors `found`, a power of two of them, for every number, by its bits from `bit` on.
    #[inline(always)]
    fn chosen(self, found: &mut [__m512i], index: __m512i, mut bit: i16) -> __m512i {
        let mut left = found.len();
        while left > 1 {
            let upper = intrinsics!(_mm512_test_epi16_mask(index, _mm512_set1_epi16(bit)));
            for i in 0..left / 2 {
                found[i] = intrinsics!(_mm512_mask_mov_epi16(found[2 * i], upper, found[2 * i + 1]));
            }
            left /= 2;
            bit *= 2;
        }
        found[0]
    }

    /// The values of the codes in bytes `at` and `at + 1` of every lane.
    #[inline(always)]
    fn expanded<const ROWS: usize, const WORDS: usize>(
        self,
        book: &'static Book<ROWS, WORDS>,
        codes: __m512i,
        at: u8,
        above: u8,
    ) -> [__m512i; WORDS] {
        let mut out = [codes; WORDS];
        intrinsics!({
            let values = _mm_loadu_si128(book.values.as_ptr().cast());
            let values = _mm512_broadcast_i32x4(_mm_add_epi8(values, _mm_set1_epi8(above as i8)));
            if WORDS == 1 {
                // four codes of four bits, of which the highest is 0
                let bytes = _mm512_shuffle_epi8(codes, spread([at, at, at + 1, at + 1]));
                out[0] = _mm512_shuffle_epi8(values, odd_of(bytes, _mm512_srli_epi16::<4>(bytes)));
            } else {
                for i in 0..WORDS {
                    // four codes of two bits
                    let bytes = _mm512_shuffle_epi8(codes, spread([at + i as u8; 4]));
                    let bytes = _mm512_srlv_epi16(bytes, _mm512_set1_epi32(4 << 16));
                    let bytes = odd_of(bytes, _mm512_srli_epi16::<2>(bytes));
                    out[i] = _mm512_shuffle_epi8(values, self.and(bytes, 0x0303_0303));
                }
            }
        });
        out
    }
}

impl<const NEAR: bool> Lanes for Avx512<NEAR> {
    const N: usize = 16;
    /// the dot instruction takes unsigned weights: their sign bit is flipped
    const SIGNED_BIAS: i32 = 128;
    const WHOLE_BYTES: bool = true;
    type I = __m512i;
    type F = __m512;
    type S = __m512i;

    #[inline(always)]
    fn load(self, word: &Word, part: usize) -> __m512i {
        let from = &word[part * 16..part * 16 + 16];
        intrinsics!(_mm512_loadu_si512(from.as_ptr().cast()))
    }
    #[inline(always)]
    fn int(self, i: i32) -> __m512i {
        intrinsics!(_mm512_set1_epi32(i))
    }
    #[inline(always)]
    fn and(self, a: __m512i, mask: u32) -> __m512i {
        intrinsics!(_mm512_and_si512(a, _mm512_set1_epi32(mask as i32)))
    }
    #[inline(always)]
    fn xor(self, a: __m512i, mask: u32) -> __m512i {
        intrinsics!(_mm512_xor_si512(a, _mm512_set1_epi32(mask as i32)))
    }
    #[inline(always)]
    fn xor_each(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn shl(self, a: __m512i, n: u32) -> __m512i {
        intrinsics!(_mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn shr(self, a: __m512i, n: u32) -> __m512i {
        intrinsics!(_mm512_srl_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn sar(self, a: __m512i, n: u32) -> __m512i {
        intrinsics!(_mm512_sra_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn dot_unsigned(self, acc: __m512i, w: __m512i, a: u32) -> __m512i {
        intrinsics!(_mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(a as i32)))
    }
    #[inline(always)]
    fn signed(self, w: __m512i) -> __m512i {
        intrinsics!(_mm512_xor_si512(w, _mm512_set1_epi8(-128)))
    }
    #[inline(always)]
    fn dot_signed(self, acc: __m512i, w: __m512i, a: u32) -> __m512i {
        intrinsics!(_mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(a as i32)))
    }
    #[inline(always)]
    fn dot_halves(self, acc: __m512i, w: __m512i, a: u32) -> __m512i {
        intrinsics!(_mm512_dpwssd_epi32(acc, w, _mm512_set1_epi32(a as i32)))
    }

    #[inline(always)]
    fn sixteen(self, table: &'static [i8; 16], index: __m512i) -> __m512i {
        intrinsics!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(self.signed(table), index)
        })
    }
    #[inline(always)]
    fn of_table(self, table: &'static [u8; 16], index: __m512i) -> __m512i {
        intrinsics!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, index)
        })
    }
    #[inline(always)]
    fn look_up<const ROWS: usize, const WORDS: usize>(
        self,
        book: &'static Book<ROWS, WORDS>,
        index: __m512i,
        above: u8,
    ) -> [__m512i; WORDS] {
        self.expanded(book, self.rows(book, index), 0, above)
    }
    #[inline(always)]
    fn look_up_both<const ROWS: usize, const WORDS: usize>(
        self,
        book: &'static Book<ROWS, WORDS>,
        (first, second): (__m512i, __m512i),
        above: u8,
    ) -> ([__m512i; WORDS], [__m512i; WORDS]) {
        let rows = self.rows(book, self.or(first, self.shl(second, 16)));
        (self.expanded(book, rows, 0, above), self.expanded(book, rows, 2, above))
    }
    #[inline(always)]
    fn signed_by(self, codes: __m512i, signs: __m512i, bit: u32) -> __m512i {
        let of_bytes = if bit.is_multiple_of(8) { 0x0804_0201 } else { 0x8040_2010_u32 as i32 };
        intrinsics!({
            let all = _mm512_shuffle_epi8(signs, spread([bit as u8 / 8; 4]));
            let minus = _mm512_test_epi8_mask(all, _mm512_set1_epi32(of_bytes));
            // 256 - (128 + code)
            _mm512_mask_sub_epi8(codes, minus, _mm512_setzero_si512(), codes)
        })
    }
    #[inline(always)]
    fn ahead(self) -> usize {
        self.0
    }
    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        intrinsics!(if NEAR {
            asm!("prefetcht0 [{}]", in(reg) from, options(nostack, preserves_flags, readonly))
        } else {
            asm!("prefetchnta [{}]", in(reg) from, options(nostack, preserves_flags, readonly))
        })
    }
    #[allow(clippy::pointers_in_nomem_asm_block, reason = "nothing is read through the pointer")]
    #[inline(always)]
    fn again(self, word: &Word) -> &Word {
        let mut again: *const Word = word;
        // SAFETY: nothing is done, so that the pointer stays that of the word.
        unsafe {
            asm!("/* {} */", inout(reg) again, options(nomem, nostack, preserves_flags));
            &*again
        }
    }
    #[inline(always)]
    fn prefetch_far(self, from: *const u8) {
        intrinsics!(asm!("prefetcht1 [{}]", in(reg) from, options(nostack, preserves_flags, readonly)))
    }
    #[inline(always)]
    fn to_f(self, a: __m512i) -> __m512 {
        intrinsics!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn as_f(self, a: __m512i) -> __m512 {
        intrinsics!(_mm512_castsi512_ps(a))
    }
    #[inline(always)]
    fn f16_pair(self, a: __m512i) -> (__m512, __m512) {
        intrinsics!((
            _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)),
            _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(a))),
        ))
    }
    #[inline(always)]
    fn float(self, x: f32) -> __m512 {
        intrinsics!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn add_f(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub_f(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul_f(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn canon(self, a: __m512) -> __m512 {
        intrinsics!({
            let keep = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(_mm512_abs_ps(a), _mm512_set1_ps(CANON_MIN));
            // not less: too large, or a NaN
            let bad = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(_mm512_abs_ps(a), _mm512_set1_ps(CANON_MAX));
            _mm512_mask_mov_ps(_mm512_maskz_mov_ps(keep, a), bad, _mm512_set1_ps(POISON))
        })
    }
    #[inline(always)]
    fn store(self, a: __m512, to: &mut [f32; ROW_BLOCK], part: usize) {
        let to = &mut to[part * 16..part * 16 + 16];
        intrinsics!(_mm512_storeu_ps(to.as_mut_ptr(), a))
    }
}

impl<const NEAR: bool> Bytes for Avx512<NEAR> {
    #[inline(always)]
    fn values(self, s: __m512i) -> __m512i {
        self.signed(s)
    }
    #[inline(always)]
    fn below(self, codes: &[Word], part: usize) -> __m512i {
        below(self, codes, part)
    }
}

impl<const NEAR: bool> Dots for Avx512<NEAR> {
    #[inline(always)]
    fn dot_above(self, acc: __m512i, a: u32, w: __m512i) -> __m512i {
        intrinsics!(_mm512_dpbusd_epi32(acc, _mm512_set1_epi32(a as i32), w))
    }
    const HALVES: bool = false;
    #[inline(always)]
    fn pairs(self, halves: __m512i, u: __m512i, s: __m512i) -> __m512i {
        intrinsics!(_mm512_add_epi16(halves, _mm512_maddubs_epi16(u, s)))
    }
    #[inline(always)]
    fn join(self, acc: __m512i, halves: __m512i, by: __m512i) -> __m512i {
        intrinsics!(_mm512_add_epi32(acc, _mm512_madd_epi16(halves, by)))
    }
}

impl<const NEAR: bool> Amax for Avx512<NEAR> {
    #[inline(always)]
    fn amax(self, x: &[f32; GROUP]) -> u32 {
        let (vectors, _) = x.as_chunks::<16>();
        intrinsics!({
            let mut most = _mm512_setzero_si512();
            for v in vectors {
                let magnitudes = _mm512_and_si512(_mm512_loadu_si512(v.as_ptr().cast()), _mm512_set1_epi32(i32::MAX));
                most = _mm512_max_epi32(most, magnitudes);
            }
            _mm512_reduce_max_epi32(most) as u32
        })
    }
}
