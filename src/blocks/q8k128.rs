//! Q8K128: 128 signed codes of 8 bits, one f32 scale, and sums of the codes.
//!
//! ```text
//! byte  0     3   4              131   132                 147
//!     +---------+---------------------+----------------------+
//!     |  d f32  | qs[0] .. qs[127] i8 | bsums[0..8] i16      |   148 bytes, 128 elements
//!     +---------+---------------------+----------------------+
//! value of element e = d * qs[e];  bsums[j] = qs[16j] + ... + qs[16j + 15]
//! ```
//!
//! nibble's weight format. Encoders write a positive scale; an all-zero block has scale 1.

use bytemuck::{Pod, Zeroable};

use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, pack, peak, round_away, sums_of_16};

/// One block of 128 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8K128 {
    /// The scale, little-endian f32.
    pub d: [u8; 4],
    /// The codes, element by element.
    pub qs: [i8; 128],
    /// Sums of 16 codes, little-endian i16.
    pub bsums: [[u8; 2]; 8],
}

const _: () = assert!(size_of::<BlockQ8K128>() == 148 && align_of::<BlockQ8K128>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q8K128",
    elems: 128,
    bytes: size_of::<BlockQ8K128>(),
    decode,
    encode,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F32, "scale d")],
    packed: BlockType::Q8K128,
    piece: 1,
    words: 33,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockQ8K128 {
    /// The scale.
    pub fn scale(&self) -> f32 {
        f32::from_le_bytes(self.d)
    }

    /// The block's 128 values.
    pub fn decode(&self, out: &mut [f32; 128]) {
        let d = self.scale();
        for (y, &q) in out.iter_mut().zip(&self.qs) {
            *y = d * q as f32;
        }
    }

    /// nibble's quantiser: d = amax / 127 (1 when all are zero), codes rounded half away from zero.
    pub fn encode(x: &[f32; 128]) -> Self {
        let amax = peak(x).abs();
        let d = if amax == 0.0 { 1.0 } else { amax / 127.0 };
        let inv = 1.0 / d;
        let qs: [i8; 128] = std::array::from_fn(|i| round_away(x[i] * inv).clamp(-127, 127) as i8);
        BlockQ8K128 { d: d.to_le_bytes(), qs, bsums: sums_of_16(&qs) }
    }
}

/// Scale and codes; the sums stay behind.
fn packed(b: &[u8], w: &mut [u32; 33]) {
    pack::copy_words(&b[..132], w);
    w[0] = pack::canon_bits(w[0]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 148 bytes per 128 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q8K128, block_bytes, out, BlockQ8K128::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 148 bytes per 128 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q8K128, x, out, BlockQ8K128::encode);
}
