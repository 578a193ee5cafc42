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

use super::{
    BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_eight, f16_to_f32, f32_to_f16, fit,
    pack, peak,
};

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

const _: () = assert!(size_of::<BlockQ5_0>() == 22 && align_of::<BlockQ5_0>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q5_0",
    elems: 32,
    bytes: size_of::<BlockQ5_0>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::Q5_0,
    piece: 4,
    words: 22,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

/// The codes 0..=31 in element order.
pub(super) fn codes(qh: [u8; 4], qs: &[u8; 16]) -> [u8; 32] {
    let qh = u32::from_le_bytes(qh);
    std::array::from_fn(|e| ((qs[e % 16] >> (4 * (e / 16))) & 15) | ((qh >> e & 1) << 4) as u8)
}

/// Fifth bits and nibbles of codes 0..=31.
#[inline(always)]
pub(crate) fn pack_codes(codes: &[u8; 32]) -> ([u8; 4], [u8; 16]) {
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
        let (qh, qs) = pack_codes(&x.map(|v| ((v * id + 16.5) as i8).clamp(0, 31) as u8));
        BlockQ5_0 { d: f32_to_f16(d).to_le_bytes(), qh, qs }
    }

    /// Eight blocks as ggml with an importance matrix, whose weights these are.
    fn encode_weighted(x: &[f32; 256], weight: &[f32; 256]) -> [Self; 8] {
        let found = fit::symmetric::<32, 8>(&fit::side_by_side(x), &fit::side_by_side(weight), 16.0);
        std::array::from_fn(|j| {
            let codes: [u8; 32] = found.codes.map(|q| q[j] as u8);
            let (qh, qs) = pack_codes(&codes);
            BlockQ5_0 { d: f32_to_f16(found.scale[j]).to_le_bytes(), qh, qs }
        })
    }
}

/// The fifth bits of a block of 32 for the kernels: bit n of byte j belongs to element 4n + j, so that a shift brings those
/// of four neighbouring elements, which meet one word of activations, to one place of the four bytes.
pub(super) fn fifth_bits(qh: u32) -> u32 {
    // bits 0..4 times this constant come to lie at bit 0 of the bytes, and others where the mask has none
    (0..8).fold(0, |bits, n| bits | (((qh >> (4 * n) & 15) * 0x0020_4081) & 0x0101_0101) << n)
}

/// Up to four blocks: their scales in two words, then a word of fifth bits each, then four words of nibbles each.
fn packed(b: &[u8], w: &mut [u32; 22]) {
    for (i, b) in b.chunks_exact(22).enumerate() {
        w[i / 2] |= pack::u16_at(b, 0) << (16 * (i % 2));
        w[2 + i] = fifth_bits(pack::u32_at(b, 2));
        pack::copy_words(&b[6..], &mut w[6 + 4 * i..10 + 4 * i]);
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

/// Encodes a row of blocks with importances, as ggml does: weights take the mean square of the whole row.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    let s2 = fit::sum_of_squares(x) / x.len() as f32;
    encode_eight(BlockType::Q5_0, x, importances, out, |x, importances| {
        BlockQ5_0::encode_weighted(x, &fit::weights(x, importances, s2))
    });
}
