//! Q5_0: 32 codes of 5 bits and one scale.
//!
//! ```text
//! byte  0   1   2       5   6                             21
//!     +-------+-----------+-------------------------------+
//!     | d f16 | qh u32    | qs[0] ... qs[15]              |   22 bytes, 32 elements
//!     +-------+-----------+-------------------------------+
//! low nibble of qs[i]: low bits of element i; high nibble: of element i + 16; bit e of qh: the fifth bit of element e
//! value of an element with code q = (q - 16) * d
//! ```
//!
//! The packing of the codes is shared with [`super::q5_1`].

use bytemuck::{Pod, Zeroable};

use super::{BlockType, decode_blocks, encode_blocks, f16_to_f32, f32_to_f16, peak};

/// One block of 32 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_0 {
    /// The scale, little-endian binary16; may be negative.
    pub d: [u8; 2],
    /// The fifth bits, element 0 in the lowest bit, little-endian.
    pub qh: [u8; 4],
    /// The low bits: elements 0..16 in the low nibbles, 16..32 in the high ones.
    pub qs: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ5_0>() == BlockType::Q5_0.bytes() && align_of::<BlockQ5_0>() == 1);

/// The codes 0..=31 in element order.
pub(super) fn codes(qh: [u8; 4], qs: &[u8; 16]) -> [u8; 32] {
    let qh = u32::from_le_bytes(qh);
    std::array::from_fn(|e| ((qs[e % 16] >> (4 * (e / 16))) & 15) | ((qh >> e & 1) << 4) as u8)
}

/// Fifth bits and nibbles of codes 0..=31.
#[inline(always)]
pub(crate) fn pack(codes: &[u8; 32]) -> ([u8; 4], [u8; 16]) {
    let qh = (0..32).fold(0, |qh, e| qh | u32::from(codes[e] >> 4) << e);
    (qh.to_le_bytes(), std::array::from_fn(|i| (codes[i] & 15) | (codes[i + 16] << 4)))
}

impl BlockQ5_0 {
    /// The scale as f32.
    pub fn scale(&self) -> f32 {
        f16_to_f32(u16::from_le_bytes(self.d))
    }

    /// The block's 32 values.
    pub fn decode(&self, out: &mut [f32; 32]) {
        let d = self.scale();
        for (y, q) in out.iter_mut().zip(codes(self.qh, &self.qs)) {
            *y = (q as i32 - 16) as f32 * d;
        }
    }

    /// ggml's reference quantiser: the first element of largest magnitude gets code 0 (-16), codes by truncation.
    pub fn encode(x: &[f32; 32]) -> Self {
        let d = peak(x) / -16.0;
        let id = if d != 0.0 { 1.0 / d } else { 0.0 };
        let (qh, qs) = pack(&x.map(|v| ((v * id + 16.5) as i8).clamp(0, 31) as u8));
        BlockQ5_0 { d: f32_to_f16(d).to_le_bytes(), qh, qs }
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 22 bytes per 32 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q5_0, block_bytes, out, BlockQ5_0::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 22 bytes per 32 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q5_0, x, out, BlockQ5_0::encode);
}
