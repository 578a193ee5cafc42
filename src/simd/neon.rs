//! The vector operations with NEON: four rows to a register. With `DOT` the dots of bytes are the instruction `sdot` of
//! the dot-product extension, without it widening multiplications; nothing else differs.

use super::lanes::{Bytes, Lanes, Word};
use super::rows::{RowLanes, levels, sign_at};
use crate::ops::exact::{CANON_MAX, CANON_MIN, POISON};
use crate::ops::linear::ROW_BLOCK;
use std::arch::aarch64::*;
use std::arch::asm;

/// Proof that this CPU has NEON, and where `DOT` is set the dot-product extension.
#[derive(Clone, Copy)]
pub(super) struct Neon<const DOT: bool>(());

impl<const DOT: bool> Neon<DOT> {
    /// # Safety
    ///
    /// This CPU has NEON, and the dot-product extension if `DOT` is set.
    pub(super) const unsafe fn new() -> Neon<DOT> {
        Neon(())
    }
}

/// Wraps intrinsics. The one reason they are sound is given here.
macro_rules! intrinsics {
    ($e:expr) => {
        // SAFETY: `self` exists only where `Neon::new` was allowed, so the CPU has the instructions; what they read or
        // write through pointers is a bounds-checked slice or an array of as many bytes. A prefetch touches nothing.
        unsafe { $e }
    };
}

/// Adds to each lane the four products of its signed bytes. The intrinsic of this name is not stable yet.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut acc: int32x4_t, w: int32x4_t, a: int32x4_t) -> int32x4_t {
    // SAFETY: the instruction works on registers only, and this function's target features include it.
    unsafe {
        asm!(
            "sdot {acc:v}.4s, {w:v}.16b, {a:v}.16b",
            acc = inout(vreg) acc,
            w = in(vreg) w,
            a = in(vreg) a,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

impl<const DOT: bool> Lanes for Neon<DOT> {
    const N: usize = 4;
    const SIGNED_BIAS: i32 = 0;
    type I = int32x4_t;
    type F = float32x4_t;
    type S = int32x4_t;

    #[inline(always)]
    fn load(self, word: &Word, part: usize) -> int32x4_t {
        let from = &word[part * 4..part * 4 + 4];
        intrinsics!(vld1q_s32(from.as_ptr().cast()))
    }
    #[inline(always)]
    fn int(self, i: i32) -> int32x4_t {
        intrinsics!(vdupq_n_s32(i))
    }
    #[inline(always)]
    fn and(self, a: int32x4_t, mask: u32) -> int32x4_t {
        intrinsics!(vandq_s32(a, vdupq_n_s32(mask as i32)))
    }
    #[inline(always)]
    fn xor(self, a: int32x4_t, mask: u32) -> int32x4_t {
        intrinsics!(veorq_s32(a, vdupq_n_s32(mask as i32)))
    }
    #[inline(always)]
    fn xor_each(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        intrinsics!(veorq_s32(a, b))
    }
    #[inline(always)]
    fn or(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        intrinsics!(vorrq_s32(a, b))
    }
    #[inline(always)]
    fn add(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        intrinsics!(vaddq_s32(a, b))
    }
    #[inline(always)]
    fn sub(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        intrinsics!(vsubq_s32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        intrinsics!(vmulq_s32(a, b))
    }
    #[inline(always)]
    fn shl(self, a: int32x4_t, n: u32) -> int32x4_t {
        intrinsics!(vshlq_s32(a, vdupq_n_s32(n as i32)))
    }
    #[inline(always)]
    fn shr(self, a: int32x4_t, n: u32) -> int32x4_t {
        // a shift left by a negative number goes right
        intrinsics!(vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-(n as i32)))))
    }
    #[inline(always)]
    fn sar(self, a: int32x4_t, n: u32) -> int32x4_t {
        intrinsics!(vshlq_s32(a, vdupq_n_s32(-(n as i32))))
    }
    #[inline(always)]
    fn dot_unsigned(self, acc: int32x4_t, w: int32x4_t, a: u32) -> int32x4_t {
        // bytes of at most 127 are the same with and without sign
        self.dot_signed(acc, w, a)
    }
    #[inline(always)]
    fn signed(self, w: int32x4_t) -> int32x4_t {
        w
    }
    #[inline(always)]
    fn dot_signed(self, acc: int32x4_t, w: int32x4_t, a: u32) -> int32x4_t {
        intrinsics!({
            let a = vdupq_n_s32(a as i32);
            if DOT {
                sdot(acc, w, a)
            } else {
                let (w, a) = (vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(a));
                let low = vmull_s8(vget_low_s8(w), vget_low_s8(a));
                // two products are at most 2 * 128 * 127 = 32512: the 16-bit sum does not wrap
                vpadalq_s16(acc, vpaddq_s16(low, vmull_high_s8(w, a)))
            }
        })
    }
    #[inline(always)]
    fn dot_halves(self, acc: int32x4_t, w: int32x4_t, a: u32) -> int32x4_t {
        intrinsics!({
            let (w, a) = (vreinterpretq_s16_s32(w), vreinterpretq_s16_s32(vdupq_n_s32(a as i32)));
            let low = vmull_s16(vget_low_s16(w), vget_low_s16(a));
            vaddq_s32(acc, vpaddq_s32(low, vmull_high_s16(w, a)))
        })
    }
    #[inline(always)]
    fn sixteen(self, table: &'static [i8; 16], index: int32x4_t) -> int32x4_t {
        intrinsics!(vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(table.as_ptr()), vreinterpretq_u8_s32(index))))
    }
    #[inline(always)]
    fn of_table(self, table: &'static [u8; 16], index: int32x4_t) -> int32x4_t {
        intrinsics!(vreinterpretq_s32_u8(vqtbl1q_u8(vld1q_u8(table.as_ptr()), vreinterpretq_u8_s32(index))))
    }
    #[inline(always)]
    fn signed_by(self, codes: int32x4_t, signs: int32x4_t, bit: u32) -> int32x4_t {
        let of_bytes: u32 = if bit.is_multiple_of(8) { 0x0804_0201 } else { 0x8040_2010 };
        intrinsics!({
            // byte i of each lane is the byte the bits lie in
            let byte = vshlq_u32(vreinterpretq_u32_s32(signs), vdupq_n_s32(-((bit & !7) as i32)));
            let all = vreinterpretq_u8_u32(vmulq_n_u32(vandq_u32(byte, vdupq_n_u32(0xff)), 0x0101_0101));
            let minus = vtstq_u8(all, vreinterpretq_u8_u32(vdupq_n_u32(of_bytes)));
            let codes = vreinterpretq_s8_s32(codes);
            vreinterpretq_s32_s8(vbslq_s8(minus, vnegq_s8(codes), codes))
        })
    }
    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        intrinsics!(asm!("prfm pldl1keep, [{from}]", from = in(reg) from, options(nostack, preserves_flags, readonly)))
    }

    #[inline(always)]
    fn to_f(self, a: int32x4_t) -> float32x4_t {
        intrinsics!(vcvtq_f32_s32(a))
    }
    #[inline(always)]
    fn as_f(self, a: int32x4_t) -> float32x4_t {
        intrinsics!(vreinterpretq_f32_s32(a))
    }
    #[inline(always)]
    fn f16_pair(self, a: int32x4_t) -> (float32x4_t, float32x4_t) {
        intrinsics!({
            let a = vreinterpretq_u32_s32(a);
            let (low, high) = (vmovn_u32(a), vshrn_n_u32::<16>(a));
            (vcvt_f32_f16(vreinterpret_f16_u16(low)), vcvt_f32_f16(vreinterpret_f16_u16(high)))
        })
    }
    #[inline(always)]
    fn float(self, x: f32) -> float32x4_t {
        intrinsics!(vdupq_n_f32(x))
    }
    #[inline(always)]
    fn add_f(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        intrinsics!(vaddq_f32(a, b))
    }
    #[inline(always)]
    fn sub_f(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        intrinsics!(vsubq_f32(a, b))
    }
    #[inline(always)]
    fn mul_f(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        intrinsics!(vmulq_f32(a, b))
    }
    #[inline(always)]
    fn canon(self, a: float32x4_t) -> float32x4_t {
        intrinsics!({
            let small = vcaltq_f32(a, vdupq_n_f32(CANON_MIN));
            let kept = vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), small));
            // what is not less is too large, or a NaN
            vbslq_f32(vcaltq_f32(a, vdupq_n_f32(CANON_MAX)), kept, vdupq_n_f32(POISON))
        })
    }
    #[inline(always)]
    fn store(self, a: float32x4_t, to: &mut [f32; ROW_BLOCK], part: usize) {
        let to = &mut to[part * 4..part * 4 + 4];
        intrinsics!(vst1q_f32(to.as_mut_ptr(), a))
    }
}

impl<const DOT: bool> Bytes for Neon<DOT> {
    #[inline(always)]
    fn values(self, s: int32x4_t) -> int32x4_t {
        s
    }
    #[inline(always)]
    fn below(self, _codes: &[Word], _part: usize) -> int32x4_t {
        self.int(0)
    }
}

impl<const DOT: bool> RowLanes for Neon<DOT> {
    // the two digits' dots of bytes take no more instructions without `sdot` than those of halves, and fewer with it
    const HALVES: bool = false;

    #[inline(always)]
    fn f32_row(self, words: &[u32]) -> float32x4_t {
        let words = &words[..4];
        intrinsics!(vld1q_f32(words.as_ptr().cast()))
    }
    #[inline(always)]
    fn f16_row(self, words: &[u32]) -> float32x4_t {
        let words = &words[..2];
        intrinsics!(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(words.as_ptr().cast()))))
    }
    #[inline(always)]
    fn q8_row(self, words: &[u32], d: f32) -> float32x4_t {
        intrinsics!({
            let codes = vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(u64::from(words[0])))));
            vmulq_f32(vdupq_n_f32(d), vcvtq_f32_s32(codes))
        })
    }
    #[inline(always)]
    fn q4_row(self, words: &[u32], part: usize, d: f32) -> float32x4_t {
        let nibbles = words[part % 4] >> (part / 4 * 4) & 0x0f0f_0f0f;
        intrinsics!({
            let codes = vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(u64::from(nibbles)))));
            let codes = vsubq_s32(codes, vdupq_n_s32(8));
            vmulq_f32(vdupq_n_f32(d), vcvtq_f32_s32(codes))
        })
    }
    #[inline(always)]
    fn scales(self, words: &[u32; 4]) -> [f32; 8] {
        let mut out = [0.0; 8];
        intrinsics!({
            let halves = vreinterpretq_f16_u16(vld1q_u16(words.as_ptr().cast()));
            vst1q_f32(out.as_mut_ptr(), vcvt_f32_f16(vget_low_f16(halves)));
            vst1q_f32(out[4..].as_mut_ptr(), vcvt_high_f32_f16(halves));
        });
        out
    }
    #[inline(always)]
    fn tq3_row<const ONE: bool>(self, block: &[u32], part: usize, d: f32) -> float32x4_t {
        let block = &block[..3];
        let table = const { [levels(ONE, false), levels(ONE, true)] };
        intrinsics!({
            // each element's two bits to the bottom of its lane, then its sign to bit 2
            let turns = vsubq_s32(vld1q_s32([0, -2, -4, -6].as_ptr()), vdupq_n_s32((part % 4 * 8) as i32));
            let codes = vandq_u32(vshlq_u32(vdupq_n_u32(block[part / 4 % 2]), turns), vdupq_n_u32(3));
            let turns = vsubq_s32(vld1q_s32([2, 1, 0, -1].as_ptr()), vdupq_n_s32((part % 8 * 4) as i32));
            let signs = vandq_u32(vshlq_u32(vdupq_n_u32(block[2]), turns), vdupq_n_u32(4));
            // the four bytes of the level of that number
            let codes = if ONE { vorrq_u32(codes, signs) } else { codes };
            let bytes = vmlaq_n_u32(vdupq_n_u32(0x0302_0100), codes, 0x0404_0404);
            let table: *const u8 = table.as_ptr().cast();
            let table = uint8x16x2_t(vld1q_u8(table), vld1q_u8(table.add(16)));
            vmulq_f32(vdupq_n_f32(d), vreinterpretq_f32_u8(vqtbl2q_u8(table, vreinterpretq_u8_u32(bytes))))
        })
    }
    #[inline(always)]
    fn swap<const S: usize>(self, a: float32x4_t) -> float32x4_t {
        intrinsics!(match S {
            1 => vrev64q_f32(a),
            _ => vextq_f32::<2>(a, a),
        })
    }
    #[inline(always)]
    fn halves(self, w: int32x4_t) -> (int32x4_t, int32x4_t) {
        intrinsics!({
            let w = vreinterpretq_s16_s32(w);
            let (even, odd) = (vshrq_n_s16::<8>(vshlq_n_s16::<8>(w)), vshrq_n_s16::<8>(w));
            (vreinterpretq_s32_s16(even), vreinterpretq_s32_s16(odd))
        })
    }
    #[inline(always)]
    fn nibbles(self, qr: int32x4_t, half: usize) -> int32x4_t {
        let x = self.and(self.shr(qr, 16 * half as u32), 0xffff);
        let x = self.and(self.or(x, self.shl(x, 8)), 0x00ff_00ff);
        self.and(self.or(x, self.shl(x, 4)), 0x0f0f_0f0f)
    }
    #[inline(always)]
    fn tq3_1_levels<const SIGN: u32>(self, low: int32x4_t, signs: int32x4_t) -> int32x4_t {
        let table = const { sign_at(SIGN, 0) };
        let codes = self.or(self.and(low, 0x0303_0303), self.and(signs, 0x0c0c_0c0c));
        intrinsics!(vreinterpretq_s32_u8(vqtbl1q_u8(vld1q_u8(table.as_ptr()), vreinterpretq_u8_s32(codes))))
    }
}
