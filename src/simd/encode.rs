//! Encoders of the block formats per instruction set, byte-equal to those of `blocks`, and the decoding of float rows
//! that goes before them.
//!
//! Q8_0, Q8K128, Q8_K, Q4_0, Q5_0 and Q5_1 are written again here without branches in the loops over elements; a block
//! whose largest magnitude (for Q5_1: or range) is zero or so extreme that a scale or its inverse would leave the normal
//! numbers goes to `blocks`. Q4_K, Q5_K and Q6_K are those of `blocks` but for the search for scales, which `encode_k`
//! has. Lanes are elements or sub-blocks; no sum changes its order.

use super::Level;
use crate::blocks::{BlockType, bf16_to_f32, f16_to_f32, f32_to_f16};
use crate::blocks::{q4_0, q5_0, q5_1, q8_0, q8k, q8k128};

/// Decodes F32, F16 or BF16 elements; gives the place of the first that is NaN or infinite.
///
/// # Panics
/// When `ty` is none of those, when the lengths do not belong together, or when this CPU does not have `level`.
pub fn decode_floats(level: Level, ty: BlockType, bytes: &[u8], out: &mut [f32]) -> Option<usize> {
    assert!(level.is_available(), "decode_floats: this CPU does not have {}", level.name());
    assert_eq!(ty.row_bytes(out.len()), Some(bytes.len()), "decode_floats: bytes of {} {}", out.len(), ty.name());
    match (level.vectors(), ty) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: all of them have AVX2 and F16C, and `level` is available.
        (Level::Avx2 | Level::AvxVnni | Level::Avx512, _) => unsafe { decode_avx2(ty, bytes, out) },
        _ => decode_body(ty, bytes, out),
    }
    // the exponent's bits are all set in infinities and NaN alone
    let bits = |v: &f32| v.to_bits() & 0x7fff_ffff;
    let largest = largest_bits(out);
    if largest < f32::INFINITY.to_bits() { None } else { out.iter().position(|v| bits(v) >= f32::INFINITY.to_bits()) }
}

/// Encodes whole blocks with the bytes of [`BlockType::encode_row`].
///
/// # Panics
/// As `encode_row`, and when this CPU does not have `level`.
pub fn encode_row(level: Level, ty: BlockType, x: &[f32], out: &mut [u8]) {
    assert!(level.is_available(), "encode_row: this CPU does not have {}", level.name());
    match level.vectors() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: all of them have AVX2, and `level` is available.
        Level::Avx512 | Level::AvxVnni | Level::Avx2 if super::encode_k::takes(ty) => unsafe {
            super::encode_k::encode(ty, x, out)
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `level` is available.
        Level::Avx512 => unsafe { encode_avx512(ty, x, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `level` is available.
        Level::Avx2 | Level::AvxVnni => unsafe { encode_avx2(ty, x, out) },
        Level::Neon | Level::NeonDot | Level::Simd128 => encode_body(ty, x, out),
        _ => ty.encode_row(x, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn encode_avx2(ty: BlockType, x: &[f32], out: &mut [u8]) {
    encode_body(ty, x, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn encode_avx512(ty: BlockType, x: &[f32], out: &mut [u8]) {
    encode_body(ty, x, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn decode_avx2(ty: BlockType, bytes: &[u8], out: &mut [f32]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    if ty != BlockType::F16 {
        return decode_body(ty, bytes, out);
    }
    let (full, rest) = bytes.as_chunks::<16>();
    let (out, last) = out.as_chunks_mut::<8>();
    for (from, to) in full.iter().zip(out) {
        // SAFETY: both are whole arrays of 16 and 32 bytes; the loads and stores need no alignment.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
    }
    decode_body(ty, rest, last);
}

#[inline(always)]
fn decode_body(ty: BlockType, bytes: &[u8], out: &mut [f32]) {
    match ty {
        BlockType::F32 => decode_each(bytes, out, f32::from_le_bytes),
        BlockType::F16 => decode_each(bytes, out, |b| f16_to_f32(u16::from_le_bytes(b))),
        BlockType::BF16 => decode_each(bytes, out, |b| bf16_to_f32(u16::from_le_bytes(b))),
        _ => panic!("decode_floats: {} is no float type", ty.name()),
    }
}

#[inline(always)]
fn decode_each<const W: usize>(bytes: &[u8], out: &mut [f32], f: impl Fn([u8; W]) -> f32) {
    for (y, b) in out.iter_mut().zip(bytes.as_chunks::<W>().0) {
        *y = f(*b);
    }
}

/// The largest magnitude's bits; those of a NaN are above all others.
#[inline(always)]
fn largest_bits(x: &[f32]) -> u32 {
    let mut lanes = [0u32; 32];
    let (full, rest) = x.as_chunks::<32>();
    for x in full {
        for l in 0..32 {
            lanes[l] = lanes[l].max(x[l].to_bits() & 0x7fff_ffff);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = (*lane).max(x.to_bits() & 0x7fff_ffff);
    }
    lanes.into_iter().fold(0, u32::max)
}

/// Magnitudes between which no scale, inverse or product below leaves the normal numbers: 2^-100 and 2^100.
const TAME: std::ops::Range<u32> = (27 << 23)..(227 << 23);

#[inline(always)]
fn encode_body(ty: BlockType, x: &[f32], out: &mut [u8]) {
    let lengths = ty.row_bytes(x.len()) == Some(out.len());
    match ty {
        BlockType::Q8_0 if lengths => each_block(x, out, q8_0_block, q8_0::encode),
        BlockType::Q8K128 if lengths => each_block(x, out, q8k128_block, q8k128::encode),
        BlockType::Q8_K if lengths => each_block(x, out, q8_k_block, q8k::encode),
        BlockType::Q4_0 if lengths => each_block(x, out, q4_0_block, q4_0::encode),
        BlockType::Q5_0 if lengths => each_block(x, out, q5_0_block, q5_0::encode),
        BlockType::Q5_1 if lengths => each_block(x, out, q5_1_block, q5_1::encode),
        _ => ty.encode_row(x, out),
    }
}

/// Runs `tame` over blocks of N elements and B bytes; `other` takes those whose largest magnitude is not tame.
#[inline(always)]
fn each_block<const N: usize, const B: usize>(
    x: &[f32],
    out: &mut [u8],
    tame: impl Fn(&[f32; N], f32, &mut [u8; B]),
    other: impl Fn(&[f32], &mut [u8]),
) {
    for (x, out) in x.as_chunks::<N>().0.iter().zip(out.as_chunks_mut::<B>().0) {
        let bits = largest_bits(x);
        if TAME.contains(&bits) {
            tame(x, f32::from_bits(bits), out);
        } else {
            other(x, out);
        }
    }
}

/// `blocks::round_away` for |v| < 2^22, in three instructions a vector.
///
/// Added is the largest number below a half, of v's sign. Where |v| lies a step or more below n + 1/2 the sum stays below
/// n + 1; at n + 1/2 it lies halfway between n + 1 and the number before it, or nearer to n + 1, and is rounded to n + 1,
/// which is even in its last bit. Adding a half itself would round the number before 1/2 up to 1.
#[inline(always)]
fn round_away(v: f32) -> i32 {
    const BELOW_HALF: f32 = f32::from_bits(0x3eff_ffff);
    // SAFETY: callers pass an element times the inverse of its block's scale: at most 127 and a few roundings.
    unsafe { (v + BELOW_HALF.copysign(v)).to_int_unchecked::<i32>() }
}

/// `blocks::nearest_int`.
#[inline(always)]
fn nearest(v: f32) -> i32 {
    ((v + 12_582_912.0).to_bits() & 0x007f_ffff) as i32 - 0x0040_0000
}

/// Codes of a block and, behind them, the sums of 16.
#[inline(always)]
fn codes<const N: usize>(x: &[f32; N], out: &mut [u8], code: impl Fn(f32) -> i32) {
    for (x, out) in x.as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<16>().0) {
        for i in 0..16 {
            out[i] = code(x[i]) as u8;
        }
    }
}

#[inline(always)]
fn sums(codes: &[u8], out: &mut [u8]) {
    for (codes, out) in codes.as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<2>().0) {
        let sum = codes.iter().fold(0i16, |s, &c| s + i16::from(c as i8));
        *out = sum.to_le_bytes();
    }
}

#[inline(always)]
fn q8_0_block(x: &[f32; 32], amax: f32, out: &mut [u8; 34]) {
    let d = amax / 127.0;
    let id = 1.0 / d;
    out[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    codes(x, &mut out[2..], |v| round_away(v * id));
}

#[inline(always)]
fn q8k128_block(x: &[f32; 128], amax: f32, out: &mut [u8; 148]) {
    let d = amax / 127.0;
    let inv = 1.0 / d;
    out[..4].copy_from_slice(&d.to_le_bytes());
    // |v * inv| is 127 and a few roundings at most, so no code leaves -127..=127
    codes(x, &mut out[4..132], |v| round_away(v * inv));
    let (head, tail) = out.split_at_mut(132);
    sums(&head[4..], tail);
}

/// The first element of magnitude `amax`.
#[inline(always)]
fn peak(x: &[f32], amax: f32) -> f32 {
    let first = x.iter().position(|v| v.abs() == amax);
    first.map_or(amax, |i| x[i])
}

#[inline(always)]
fn q8_k_block(x: &[f32; 256], amax: f32, out: &mut [u8; 292]) {
    let iscale = -127.0 / peak(x, amax);
    out[..4].copy_from_slice(&(1.0 / iscale).to_le_bytes());
    codes(x, &mut out[4..260], |v| nearest(iscale * v).clamp(-128, 127));
    let (head, tail) = out.split_at_mut(260);
    sums(&head[4..], tail);
}

#[inline(always)]
fn q4_0_block(x: &[f32; 32], amax: f32, out: &mut [u8; 18]) {
    let d = peak(x, amax) / -8.0;
    let id = 1.0 / d;
    out[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    // SAFETY: |v * id| is at most 8 and a few roundings.
    let code = |v: f32| unsafe { (v * id + 8.5).to_int_unchecked::<i32>() }.clamp(0, 15) as u8;
    for i in 0..16 {
        out[2 + i] = code(x[i]) | (code(x[i + 16]) << 4);
    }
}

/// Fifth bits and nibbles of a block of Q5_0 or Q5_1: `out` is the rest of it.
#[inline(always)]
fn put_five_bits(x: &[f32; 32], out: &mut [u8], code: impl Fn(f32) -> i32) {
    let mut codes = [0u8; 32];
    for i in 0..32 {
        codes[i] = code(x[i]) as u8;
    }
    let (qh, qs) = q5_0::pack_codes(&codes);
    let (high, low) = out.split_at_mut(4);
    high.copy_from_slice(&qh);
    low.copy_from_slice(&qs);
}

#[inline(always)]
fn q5_0_block(x: &[f32; 32], amax: f32, out: &mut [u8; 22]) {
    let d = peak(x, amax) / -16.0;
    let id = 1.0 / d;
    out[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    // SAFETY: |v * id| is at most 16 and a few roundings.
    put_five_bits(x, &mut out[2..], |v| unsafe { (v * id + 16.5).to_int_unchecked::<i32>() }.clamp(0, 31));
}

#[inline(always)]
fn q5_1_block(x: &[f32; 32], _amax: f32, out: &mut [u8; 24]) {
    let (mut low, mut high) = ([f32::INFINITY; 8], [f32::NEG_INFINITY; 8]);
    for x in x.as_chunks::<8>().0 {
        for l in 0..8 {
            low[l] = if x[l] < low[l] { x[l] } else { low[l] };
            high[l] = if x[l] > high[l] { x[l] } else { high[l] };
        }
    }
    let (min, max) = (low.into_iter().fold(low[0], f32::min), high.into_iter().fold(high[0], f32::max));
    // the first of equals: zeros may differ in sign
    let min = x.iter().find(|&&v| v == min).copied().unwrap_or(min);
    let d = (max - min) / 31.0;
    // a range of zero, or so small that 1 / d could be infinite
    if d < f32::MIN_POSITIVE {
        return q5_1::encode(x, out);
    }
    let id = 1.0 / d;
    out[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    out[2..4].copy_from_slice(&f32_to_f16(min).to_le_bytes());
    // SAFETY: v - min is at most max - min, 31 d and a rounding; 1 / d is finite.
    put_five_bits(x, &mut out[4..], |v| unsafe { ((v - min) * id + 0.5).to_int_unchecked::<i32>() });
}

#[cfg(test)]
mod tests {
    use super::round_away;

    /// Half away from zero by the definition of `docs/exactness.md`, in f64, where it is exact.
    fn by_definition(v: f32) -> i32 {
        let v = f64::from(v);
        (v.abs() + 0.5).floor().copysign(v) as i32
    }

    fn both_signs(bits: u32) {
        for v in [f32::from_bits(bits), -f32::from_bits(bits)] {
            assert_eq!(round_away(v), by_definition(v), "{v:e} ({bits:#010x})");
        }
    }

    #[test]
    fn rounding_is_half_away_from_zero_around_every_half_and_beside_every_power_of_two() {
        for half in 0..2 * 300u32 {
            let centre = (half as f32 / 2.0).to_bits();
            (centre.saturating_sub(300)..centre + 300).for_each(both_signs);
        }
        for exponent in 1..127 + 22 {
            let start = exponent << 23;
            (start - 64..start + 64).for_each(both_signs);
            (start..start + (1 << 23)).step_by(65_521).for_each(both_signs);
        }
    }

    #[test]
    #[ignore = "every float below 256: half a minute"]
    fn rounding_is_half_away_from_zero_for_every_float() {
        (0..256f32.to_bits()).for_each(both_signs);
    }
}
