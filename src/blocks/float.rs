//! F32, F16 and BF16 rows, and the conversions between f32 and the two 16-bit formats.
//!
//! ```text
//! F32   4 bytes   IEEE 754 binary32, little-endian
//! F16   2 bytes   IEEE 754 binary16: sign 1, exponent 5 (bias 15), fraction 10
//! BF16  2 bytes   the upper half of a binary32: sign 1, exponent 8 (bias 127), fraction 7
//! ```
//!
//! Conversions are integer operations, so they give the same bits on every machine. Narrowing rounds half to even and
//! overflows to infinity, as ggml does; the engine's own arithmetic clamps instead (`ops::exact`) and must not use
//! these for values it computes.

use super::pack::{CANON_MIN_BITS, copy_halves, copy_words};
use super::{BlockType, Format, Number, NumberKind, blocks_of, pack};

/// The row of F32.
pub(super) const F32: Format = Format {
    name: "F32",
    elems: 1,
    bytes: 4,
    decode: decode_f32,
    encode: encode_f32,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F32, "value")],
    packed: BlockType::F32,
    piece: 16,
    words: 16,
    pack: |rows, out| pack::pieces(rows, out, f32_words),
};

/// The row of F16.
pub(super) const F16: Format = Format {
    name: "F16",
    elems: 1,
    bytes: 2,
    decode: decode_f16,
    encode: encode_f16,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F16, "value")],
    packed: BlockType::F16,
    piece: 32,
    words: 16,
    pack: |rows, out| pack::pieces(rows, out, f16_words),
};

/// The row of BF16.
pub(super) const BF16: Format = Format {
    name: "BF16",
    elems: 1,
    bytes: 2,
    decode: decode_bf16,
    encode: encode_bf16,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::BF16, "value")],
    packed: BlockType::BF16,
    piece: 32,
    words: 16,
    pack: |rows, out| pack::pieces(rows, out, bf16_words),
};

/// The f32 of a binary16. Exact; a NaN keeps its sign and payload and becomes quiet.
pub const fn f16_to_f32(bits: u16) -> f32 {
    let sign = ((bits & 0x8000) as u32) << 16;
    let exponent = ((bits >> 10) & 31) as u32;
    let fraction = (bits & 0x3ff) as u32;
    let magnitude = match exponent {
        // fraction * 2^-24, exact
        0 => (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        31 if fraction != 0 => 0x7fc0_0000 | (fraction << 13),
        31 => 0x7f80_0000,
        e => ((e + 112) << 23) | (fraction << 13),
    };
    f32::from_bits(sign | magnitude)
}

/// The binary16 nearest to `x`, half to even; 65520 and above become infinity, a NaN becomes quiet.
pub const fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let a = bits & 0x7fff_ffff;
    if a > 0x7f80_0000 {
        return sign | 0x7e00 | ((a >> 13) & 0x3ff) as u16;
    }
    if a >= 0x4780_0000 {
        return sign | 0x7c00; // 65536 and above
    }
    if a >= 0x3880_0000 {
        // 2^-14 and above: a normal binary16. A carry out of the fraction moves into the exponent, up to infinity.
        let rebiased = a - (112 << 23);
        return sign | ((rebiased + 0xfff + ((rebiased >> 13) & 1)) >> 13) as u16;
    }
    if a < 0x3300_0000 {
        return sign; // below 2^-25, half of the smallest subnormal
    }
    // A subnormal binary16 counts units of 2^-24.
    let significand = (a & 0x007f_ffff) | 0x0080_0000;
    let shift = 126 - (a >> 23);
    let units = significand >> shift;
    let rest = significand & ((1 << shift) - 1);
    let half = 1 << (shift - 1);
    sign | (units + (rest > half || (rest == half && units & 1 == 1)) as u32) as u16
}

/// The f32 of a BF16. Exact.
pub const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The BF16 nearest to `x`, half to even; a NaN becomes quiet.
pub const fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return (bits >> 16) as u16 | 64;
    }
    ((bits + (0x7fff + ((bits >> 16) & 1))) >> 16) as u16
}

/// Decodes little-endian f32 elements.
///
/// # Panics
/// When `bytes` is not `4 * out.len()` long.
pub fn decode_f32(bytes: &[u8], out: &mut [f32]) {
    decode(BlockType::F32, bytes, out, f32::from_le_bytes);
}

/// Encodes little-endian f32 elements.
///
/// # Panics
/// When `out` is not `4 * x.len()` long.
pub fn encode_f32(x: &[f32], out: &mut [u8]) {
    encode(BlockType::F32, x, out, f32::to_le_bytes);
}

/// Decodes binary16 elements.
///
/// # Panics
/// When `bytes` is not `2 * out.len()` long.
pub fn decode_f16(bytes: &[u8], out: &mut [f32]) {
    decode(BlockType::F16, bytes, out, |b| f16_to_f32(u16::from_le_bytes(b)));
}

/// Encodes binary16 elements ([`f32_to_f16`]).
///
/// # Panics
/// When `out` is not `2 * x.len()` long.
pub fn encode_f16(x: &[f32], out: &mut [u8]) {
    encode(BlockType::F16, x, out, |v| f32_to_f16(v).to_le_bytes());
}

/// Decodes BF16 elements.
///
/// # Panics
/// When `bytes` is not `2 * out.len()` long.
pub fn decode_bf16(bytes: &[u8], out: &mut [f32]) {
    decode(BlockType::BF16, bytes, out, |b| bf16_to_f32(u16::from_le_bytes(b)));
}

/// Encodes BF16 elements ([`f32_to_bf16`]).
///
/// # Panics
/// When `out` is not `2 * x.len()` long.
pub fn encode_bf16(x: &[f32], out: &mut [u8]) {
    encode(BlockType::BF16, x, out, |v| f32_to_bf16(v).to_le_bytes());
}

fn decode<const W: usize>(ty: BlockType, bytes: &[u8], out: &mut [f32], f: impl Fn([u8; W]) -> f32)
where
    [u8; W]: bytemuck::Pod,
{
    ty.check_lengths(bytes.len(), out.len());
    for (y, &b) in out.iter_mut().zip(blocks_of::<[u8; W]>(ty, bytes)) {
        *y = f(b);
    }
}

fn encode<const W: usize>(ty: BlockType, x: &[f32], out: &mut [u8], f: impl Fn(f32) -> [u8; W]) {
    ty.check_lengths(out.len(), x.len());
    for (b, &v) in out.as_chunks_mut::<W>().0.iter_mut().zip(x) {
        *b = f(v);
    }
}

// Packing copies and checks whole pieces without a branch per element.

fn f32_words(b: &[u8], w: &mut [u32; 16]) -> bool {
    copy_words(b, w);
    let mut refused = false;
    for w in w.iter_mut() {
        let magnitude = *w & 0x7fff_ffff;
        refused |= magnitude >= 0x7f80_0000;
        *w = if magnitude < CANON_MIN_BITS { 0 } else { *w };
    }
    !refused
}

fn f16_words(b: &[u8], w: &mut [u32; 16]) -> bool {
    copy_halves(b, w);
    let mut refused = false;
    for w in w.iter_mut() {
        refused |= *w & 0x7c00 == 0x7c00 || *w & 0x7c00_0000 == 0x7c00_0000;
        // the smallest f16 is 2^-24: only the negative zero is not canonical
        let low = if *w & 0xffff == 0x8000 { 0 } else { *w & 0xffff };
        let high = if *w >> 16 == 0x8000 { 0 } else { *w & 0xffff_0000 };
        *w = low | high;
    }
    !refused
}

fn bf16_words(b: &[u8], w: &mut [u32; 16]) -> bool {
    copy_halves(b, w);
    let mut refused = false;
    for w in w.iter_mut() {
        let (low, high) = (*w << 16, *w & 0xffff_0000);
        refused |= low & 0x7fff_ffff >= 0x7f80_0000 || high & 0x7fff_ffff >= 0x7f80_0000;
        let low = if low & 0x7fff_ffff < CANON_MIN_BITS { 0 } else { low >> 16 };
        let high = if high & 0x7fff_ffff < CANON_MIN_BITS { 0 } else { high };
        *w = low | high;
    }
    !refused
}
