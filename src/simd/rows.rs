//! What attention needs of an instruction set besides [`Lanes`]: the elements of a value row side by side, and the look-up
//! of tq3_1's levels in keys and values. Must not decide an order of float operations; that is in `keys` and `values` of
//! `attention`.

use crate::ops::tq3::{TQ3_0_INNER, TQ3_0_OUTER, TQ3_1_LEVELS, TQ3_1_SHIFT};
use crate::simd::lanes::Lanes;
use crate::simd::portable::Portable;

#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2::Avx2, avx512::Avx512};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// tq3_1's levels by code of three bits, twice.
const BYTES: [u8; 16] = {
    let mut t = [0; 16];
    let mut code = 0;
    while code < 16 {
        let distance = TQ3_1_LEVELS[code % 4];
        let level = if code & 4 == 0 { TQ3_1_SHIFT + distance } else { TQ3_1_SHIFT - distance };
        // what dots of signed bytes, and of their unsigned counterparts with a bias of 128, can take
        assert!(-127 <= level && level <= 127);
        t[code] = level as u8;
        code += 1;
    }
    t
};

/// tq3's levels of the four two-bit codes, those above the shift in tq3_1 and (for it alone) those below.
pub(super) const fn levels(one: bool, below: bool) -> [f32; 4] {
    let mut t = [-TQ3_0_OUTER, -TQ3_0_INNER, TQ3_0_INNER, TQ3_0_OUTER];
    let mut code = 0;
    while one && code < 4 {
        t[code] = BYTES[code + if below { 4 } else { 0 }] as i8 as f32;
        code += 1;
    }
    t
}

/// Where there are no shuffles: of the four two-bit codes in a byte, the levels of tq3_0, and the distances of tq3_1.
static BY_BYTE: [[[f32; 4]; 256]; 2] = {
    let mut t = [[[0.0; 4]; 256]; 2];
    let mut byte = 0;
    while byte < 256 {
        let mut e = 0;
        while e < 4 {
            let code = byte >> (2 * e) & 3;
            t[0][byte][e] = levels(false, false)[code];
            t[1][byte][e] = TQ3_1_LEVELS[code] as f32;
            e += 1;
        }
        byte += 1;
    }
    t
};

/// The sign bits of four elements by four bits.
static BY_NIBBLE: [[u32; 4]; 16] = {
    let mut t = [[0; 4]; 16];
    let mut i = 0;
    while i < 64 {
        t[i / 4][i % 4] = ((i as u32 / 4) >> (i % 4) & 1) << 31;
        i += 1;
    }
    t
};

/// What values need besides [`Lanes`]: the elements of one row side by side. The rows are in memory as
/// `ops::cache::CacheType` lays them out.
pub(crate) trait RowLanes: Lanes {
    /// Whether coded keys are multiplied with the query as halves of 16 bits, by [`Lanes::dot_halves`]: for levels
    /// that need several instructions for a dot of bytes.
    const HALVES: bool;

    /// N words of f32.
    fn f32_row(self, words: &[u32]) -> Self::F;
    /// N finite f16 in N / 2 words.
    fn f16_row(self, words: &[u32]) -> Self::F;
    /// d times N signed bytes in N / 4 words.
    fn q8_row(self, words: &[u32], d: f32) -> Self::F;
    /// d times (code - 8): elements `N * part ..` of the block of q4_0 in four words.
    fn q4_row(self, words: &[u32], part: usize, d: f32) -> Self::F;
    /// Eight f16 in four words. Those that are not finite may give anything.
    fn scales(self, words: &[u32; 4]) -> [f32; 8];
    /// d times the levels of elements `N * part ..` of a tq3 block (`qs`, `qr`): of tq3_1 where `ONE`, else of tq3_0.
    fn tq3_row<const ONE: bool>(self, block: &[u32], part: usize, d: f32) -> Self::F;

    /// Lane l takes lane l ^ S; S is 1, 2, 4 or 8, and less than N.
    fn swap<const S: usize>(self, a: Self::F) -> Self::F;
    /// The even and the odd bytes of [`Lanes::signed`]'s words as signed halves, without its bias.
    fn halves(self, w: Self::S) -> (Self::I, Self::I);
    /// Bits `16 * half ..` of tq3_1's `qr`, of a key block: the four bits of each quarter low in a byte, 0 above.
    fn nibbles(self, qr: Self::I, half: usize) -> Self::I;
    /// tq3_1's levels, made ready for [`Lanes::dot_signed`], of codes whose low bits are bits 0 and 1 of the bytes of
    /// `low` and whose sign is bit SIGN, 2 or 3, of those of `signs`, in which bits 6 and 7 are 0.
    fn tq3_1_levels<const SIGN: u32>(self, low: Self::I, signs: Self::I) -> Self::S;
}

impl RowLanes for Portable {
    const HALVES: bool = true;

    #[inline(always)]
    fn f32_row(self, words: &[u32]) -> Self::F {
        let mut out = [0.0; Self::N];
        for l in 0..Self::N {
            out[l] = f32::from_bits(words[l]);
        }
        out
    }
    #[inline(always)]
    fn f16_row(self, words: &[u32]) -> Self::F {
        let mut halves = [0u32; Self::N];
        for i in 0..Self::N / 2 {
            halves[2 * i] = words[i] & 0xffff;
            halves[2 * i + 1] = words[i] >> 16;
        }
        let mut out = [0.0; Self::N];
        for l in 0..Self::N {
            // exponent and mantissa in place but for the bias; the product is exact, of subnormals too
            let magnitude = f32::from_bits((halves[l] & 0x7fff) << 13) * f32::from_bits((127 + 127 - 15) << 23);
            out[l] = f32::from_bits(magnitude.to_bits() | (halves[l] & 0x8000) << 16);
        }
        out
    }
    #[inline(always)]
    fn q8_row(self, words: &[u32], d: f32) -> Self::F {
        let bytes = [words[0].to_le_bytes(), words[1].to_le_bytes()];
        let mut out = [0.0; Self::N];
        for l in 0..Self::N {
            out[l] = d * f32::from(bytes[l / 4][l % 4] as i8);
        }
        out
    }
    #[inline(always)]
    fn q4_row(self, words: &[u32], part: usize, d: f32) -> Self::F {
        let (first, shift) = (part % 2 * 2, part / 2 * 4);
        let pair = [words[first] >> shift & 0x0f0f_0f0f, words[first + 1] >> shift & 0x0f0f_0f0f];
        let bytes = [pair[0].to_le_bytes(), pair[1].to_le_bytes()];
        let mut out = [0.0; Self::N];
        for l in 0..Self::N {
            out[l] = d * (i32::from(bytes[l / 4][l % 4]) - 8) as f32;
        }
        out
    }
    #[inline(always)]
    fn scales(self, words: &[u32; 4]) -> [f32; 8] {
        self.f16_row(words)
    }
    #[inline(always)]
    fn tq3_row<const ONE: bool>(self, block: &[u32], part: usize, d: f32) -> Self::F {
        let codes = (block[part / 2 % 2] >> (16 * (part % 2))) as u16;
        let signs = block[2] >> (8 * (part % 4));
        let mut out = [0.0; Self::N];
        for i in 0..Self::N / 4 {
            let numbers = &BY_BYTE[ONE as usize][usize::from(codes.to_le_bytes()[i])];
            let flips = &BY_NIBBLE[(signs >> (4 * i) & 15) as usize];
            for e in 0..4 {
                out[4 * i + e] = d * if ONE {
                    TQ3_1_SHIFT as f32 + f32::from_bits(numbers[e].to_bits() ^ flips[e])
                } else {
                    numbers[e]
                };
            }
        }
        out
    }
    #[inline(always)]
    fn swap<const S: usize>(self, a: Self::F) -> Self::F {
        let mut out = a;
        for l in 0..Self::N {
            out[l] = a[(l ^ S) % Self::N];
        }
        out
    }
    #[inline(always)]
    fn halves(self, w: Self::S) -> (Self::I, Self::I) {
        let (mut even, mut odd) = ([0; Self::N], [0; Self::N]);
        for l in 0..Self::N {
            even[l] = (w[l] << 8 >> 24 << 16) | (w[l] << 24 >> 24 & 0xffff);
            odd[l] = (w[l] >> 24 << 16) | (w[l] << 16 >> 24 & 0xffff);
        }
        (even, odd)
    }
    #[inline(always)]
    fn nibbles(self, qr: Self::I, half: usize) -> Self::I {
        let mut out = [0; Self::N];
        for l in 0..Self::N {
            let x = qr[l] as u32 >> (16 * half) & 0xffff;
            let x = (x | x << 8) & 0x00ff_00ff;
            out[l] = ((x | x << 4) & 0x0f0f_0f0f) as i32;
        }
        out
    }
    #[inline(always)]
    fn tq3_1_levels<const SIGN: u32>(self, low: Self::I, signs: Self::I) -> Self::S {
        // each bit of a level is an exclusive or of products of the code's bits: coefficient c takes the product of the
        // bits that are set in c
        const L: [u32; 8] = {
            let mut t = [0; 8];
            let mut c = 0;
            while c < 8 {
                let mut code = 0;
                while code < 8 {
                    if code & c == code {
                        t[c] ^= BYTES[code] as u32 * 0x0101_0101;
                    }
                    code += 1;
                }
                c += 1;
            }
            t
        };
        let mut out = [0; Self::N];
        for l in 0..Self::N {
            let (low, signs) = (low[l] as u32, signs[l] as u32);
            // a bit to all bits of its byte
            let mask = |x: u32| (x << 8).wrapping_sub(x);
            let m0 = mask(low & 0x0101_0101);
            let m1 = mask(low >> 1 & 0x0101_0101);
            let m2 = mask(signs >> SIGN & 0x0101_0101);
            let plain = L[0] ^ (m0 & L[1]) ^ (m1 & L[2]) ^ (m0 & m1 & L[3]);
            let other = L[4] ^ (m0 & L[5]) ^ (m1 & L[6]) ^ (m0 & m1 & L[7]);
            out[l] = (plain ^ (m2 & other)) as i32;
        }
        out
    }
}

/// Wraps intrinsics. The one reason they are sound is given here.
#[cfg(target_arch = "x86_64")]
macro_rules! intrinsics {
    ($e:expr) => {
        // SAFETY: a value of the level's type exists only where its `new` was allowed, so the CPU has the instructions;
        // what they read or write through pointers is a slice or array of as many bytes.
        unsafe { $e }
    };
}

#[cfg(target_arch = "x86_64")]
impl RowLanes for Avx2 {
    const HALVES: bool = true;

    #[inline(always)]
    fn f32_row(self, words: &[u32]) -> __m256 {
        let words = &words[..8];
        intrinsics!(_mm256_loadu_ps(words.as_ptr().cast()))
    }
    #[inline(always)]
    fn f16_row(self, words: &[u32]) -> __m256 {
        let words = &words[..4];
        intrinsics!(_mm256_cvtph_ps(_mm_loadu_si128(words.as_ptr().cast())))
    }
    #[inline(always)]
    fn q8_row(self, words: &[u32], d: f32) -> __m256 {
        let words = &words[..2];
        intrinsics!({
            let codes = _mm256_cvtepi8_epi32(_mm_loadl_epi64(words.as_ptr().cast()));
            _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(codes))
        })
    }
    #[inline(always)]
    fn q4_row(self, words: &[u32], part: usize, d: f32) -> __m256 {
        let words = &words[part % 2 * 2..][..2];
        intrinsics!({
            let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(words.as_ptr().cast()));
            let nibbles =
                if part < 2 { _mm256_and_si256(bytes, _mm256_set1_epi32(15)) } else { _mm256_srli_epi32::<4>(bytes) };
            let codes = _mm256_sub_epi32(nibbles, _mm256_set1_epi32(8));
            _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(codes))
        })
    }
    #[inline(always)]
    fn scales(self, words: &[u32; 4]) -> [f32; 8] {
        scales_f16c(words)
    }
    #[inline(always)]
    fn tq3_row<const ONE: bool>(self, block: &[u32], part: usize, d: f32) -> __m256 {
        let block = &block[..3];
        let (above, below) = const { (levels(ONE, false), levels(ONE, true)) };
        intrinsics!({
            let iota = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            // each element's two bits to the bottom of its lane; the look-up ignores those above
            let turns = _mm256_add_epi32(_mm256_set1_epi32((part % 2 * 16) as i32), _mm256_slli_epi32::<1>(iota));
            let codes = _mm256_srlv_epi32(_mm256_set1_epi32(block[part / 2 % 2] as i32), turns);
            let mut level = _mm256_permutevar_ps(_mm256_broadcast_ps(&_mm_loadu_ps(above.as_ptr())), codes);
            if ONE {
                // each element's sign to the top of its lane, which is what the choice looks at
                let turns = _mm256_sub_epi32(_mm256_set1_epi32(31 - (part % 4 * 8) as i32), iota);
                let signs = _mm256_sllv_epi32(_mm256_set1_epi32(block[2] as i32), turns);
                let other = _mm256_permutevar_ps(_mm256_broadcast_ps(&_mm_loadu_ps(below.as_ptr())), codes);
                level = _mm256_blendv_ps(level, other, _mm256_castsi256_ps(signs));
            }
            _mm256_mul_ps(_mm256_set1_ps(d), level)
        })
    }
    #[inline(always)]
    fn swap<const S: usize>(self, a: __m256) -> __m256 {
        intrinsics!(match S {
            1 => _mm256_permute_ps::<0b10_11_00_01>(a),
            2 => _mm256_permute_ps::<0b01_00_11_10>(a),
            _ => _mm256_permute2f128_ps::<0x01>(a, a),
        })
    }
    #[inline(always)]
    fn halves(self, w: (__m256i, __m256i)) -> (__m256i, __m256i) {
        intrinsics!((_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w.1)), _mm256_srai_epi16::<8>(w.1)))
    }
    #[inline(always)]
    fn nibbles(self, qr: __m256i, half: usize) -> __m256i {
        let (first, second) = (0x0101_0000 + half as i32 * 0x0202_0202, 0x0404_0404);
        intrinsics!({
            let bytes = _mm256_setr_epi32(
                first,
                first + second,
                first + 2 * second,
                first + 3 * second,
                first,
                first + second,
                first + 2 * second,
                first + 3 * second,
            );
            // the low nibble of a byte comes first, then the high one: both from 16 bits that hold the byte twice
            let x = _mm256_shuffle_epi8(qr, bytes);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(x), _mm256_set1_epi16(0x0f00));
            _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi16(0x000f)), high)
        })
    }
    #[inline(always)]
    fn tq3_1_levels<const SIGN: u32>(self, low: __m256i, signs: __m256i) -> Self::S {
        let table = const { sign_at(SIGN, 0) };
        intrinsics!({
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            let three = _mm256_set1_epi8(3);
            let codes = _mm256_or_si256(_mm256_and_si256(low, three), _mm256_andnot_si256(three, signs));
            self.signed(_mm256_shuffle_epi8(table, codes))
        })
    }
}

#[cfg(target_arch = "x86_64")]
impl RowLanes for Avx512 {
    const HALVES: bool = false;

    #[inline(always)]
    fn f32_row(self, words: &[u32]) -> __m512 {
        let words = &words[..16];
        intrinsics!(_mm512_loadu_ps(words.as_ptr().cast()))
    }
    #[inline(always)]
    fn f16_row(self, words: &[u32]) -> __m512 {
        let words = &words[..8];
        intrinsics!(_mm512_cvtph_ps(_mm256_loadu_si256(words.as_ptr().cast())))
    }
    #[inline(always)]
    fn q8_row(self, words: &[u32], d: f32) -> __m512 {
        let words = &words[..4];
        intrinsics!({
            let codes = _mm512_cvtepi8_epi32(_mm_loadu_si128(words.as_ptr().cast()));
            _mm512_mul_ps(_mm512_set1_ps(d), _mm512_cvtepi32_ps(codes))
        })
    }
    #[inline(always)]
    fn q4_row(self, words: &[u32], part: usize, d: f32) -> __m512 {
        let words = &words[..4];
        intrinsics!({
            // the permutation looks at the low four bits only
            let codes = _mm512_setr_ps(-8., -7., -6., -5., -4., -3., -2., -1., 0., 1., 2., 3., 4., 5., 6., 7.);
            let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(words.as_ptr().cast()));
            let nibbles = if part == 0 { bytes } else { _mm512_srli_epi32::<4>(bytes) };
            _mm512_mul_ps(_mm512_set1_ps(d), _mm512_permutexvar_ps(nibbles, codes))
        })
    }
    #[inline(always)]
    fn scales(self, words: &[u32; 4]) -> [f32; 8] {
        scales_f16c(words)
    }
    #[inline(always)]
    fn tq3_row<const ONE: bool>(self, block: &[u32], part: usize, d: f32) -> __m512 {
        let block = &block[..3];
        let table = const { [levels(ONE, false), levels(ONE, true), levels(ONE, false), levels(ONE, true)] };
        intrinsics!({
            let table = _mm512_loadu_ps(table.as_ptr().cast());
            let twice = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let low = _mm512_srlv_epi32(_mm512_set1_epi32(block[part % 2] as i32), twice);
            // the sign to bit 2; of four bits that the look-up takes the highest may be anything
            let turns = _mm512_setr_epi32(30, 31, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13);
            let turns = _mm512_add_epi32(turns, _mm512_set1_epi32((part % 2 * 16) as i32));
            let signs = _mm512_rorv_epi32(_mm512_set1_epi32(block[2] as i32), turns);
            let codes = select(low, signs, _mm512_set1_epi32(3));
            _mm512_mul_ps(_mm512_set1_ps(d), _mm512_permutexvar_ps(codes, table))
        })
    }
    #[inline(always)]
    fn swap<const S: usize>(self, a: __m512) -> __m512 {
        intrinsics!(match S {
            1 => _mm512_permute_ps::<0b10_11_00_01>(a),
            2 => _mm512_permute_ps::<0b01_00_11_10>(a),
            4 => _mm512_shuffle_f32x4::<0b10_11_00_01>(a, a),
            _ => _mm512_shuffle_f32x4::<0b01_00_11_10>(a, a),
        })
    }
    #[inline(always)]
    fn halves(self, w: __m512i) -> (__m512i, __m512i) {
        intrinsics!({
            let w = _mm512_xor_si512(w, _mm512_set1_epi8(-128));
            (_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(w)), _mm512_srai_epi16::<8>(w))
        })
    }
    #[inline(always)]
    fn nibbles(self, qr: __m512i, half: usize) -> __m512i {
        let first = 0x0101_0000 + half as i32 * 0x0202_0202;
        intrinsics!({
            let bytes = _mm_setr_epi32(first, first + 0x0404_0404, first + 0x0808_0808, first + 0x0c0c_0c0c);
            // the low nibble of a byte comes first, then the high one: both from 16 bits that hold the byte twice
            let x = _mm512_shuffle_epi8(qr, _mm512_broadcast_i32x4(bytes));
            let chosen = select(x, _mm512_srli_epi16::<4>(x), _mm512_set1_epi16(0x00ff));
            _mm512_and_si512(chosen, _mm512_set1_epi8(15))
        })
    }
    #[inline(always)]
    fn tq3_1_levels<const SIGN: u32>(self, low: __m512i, signs: __m512i) -> Self::S {
        let table = const { sign_at(SIGN, 0x80) };
        intrinsics!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, select(low, signs, _mm512_set1_epi8(3)))
        })
    }
}

/// The bits of `a` where `mask` has ones, elsewhere those of `b`. Only for the methods above.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn select(a: __m512i, b: __m512i, mask: __m512i) -> __m512i {
    intrinsics!(_mm512_ternarylogic_epi32::<0b1110_0100>(a, b, mask))
}

/// tq3_1's levels, each with the bits of `flip` inverted, by four bits, of which bit `sign`, 2 or 3, is the sign and the
/// other one without meaning.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128"))]
#[inline(always)]
pub(super) const fn sign_at(sign: u32, flip: u8) -> [u8; 16] {
    let mut t = [0; 16];
    let mut code = 0;
    while code < 16 {
        t[code] = BYTES[code & 3 | (code >> sign & 1) << 2] ^ flip;
        code += 1;
    }
    t
}

/// Only for the methods above, whose levels have F16C.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn scales_f16c(words: &[u32; 4]) -> [f32; 8] {
    let mut out = [0f32; 8];
    intrinsics!(_mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(words.as_ptr().cast()))));
    out
}
