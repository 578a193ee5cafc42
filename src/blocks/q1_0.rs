//! Q1_0: 128 codes of one bit and one scale.
//!
//! ```text
//! byte  0   1   2                             17
//!     +-------+-------------------------------+
//!     | d f16 | bits[0] ... bits[15]          |   18 bytes, 128 elements
//!     +-------+-------------------------------+
//! bit e % 8 of bits[e / 8]: element e;  value = d where the bit is set, else -d
//! ```

use bytemuck::{Pod, Zeroable};

use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, f16_to_f32, f32_to_f16, pack};

/// One block of 128 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ1_0 {
    /// The scale, little-endian binary16.
    pub d: [u8; 2],
    /// The codes, eight to a byte, the first in the lowest bit.
    pub bits: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ1_0>() == 18 && align_of::<BlockQ1_0>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q1_0",
    elems: 128,
    bytes: size_of::<BlockQ1_0>(),
    decode,
    encode,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::Q1_0,
    piece: 1,
    words: 5,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockQ1_0 {
    /// The block's 128 values.
    pub fn decode(&self, out: &mut [f32; 128]) {
        let d = f16_to_f32(u16::from_le_bytes(self.d));
        let bits = u128::from_le_bytes(self.bits);
        for (e, y) in out.iter_mut().enumerate() {
            *y = if bits >> e & 1 == 1 { d } else { -d };
        }
    }

    /// ggml's reference quantiser: the mean magnitude and the signs; a zero of either sign counts as positive.
    pub fn encode(x: &[f32; 128]) -> Self {
        let sum = x.iter().fold(0.0f32, |sum, v| sum + v.abs());
        let bits = x.iter().rev().fold(0u128, |bits, &v| bits << 1 | u128::from(v >= 0.0));
        BlockQ1_0 { d: f32_to_f16(sum / 128.0).to_le_bytes(), bits: bits.to_le_bytes() }
    }
}

/// d, then four words of bits: bit t of byte c of word j belongs to element 16t + 4j + c, so that a shift brings those
/// of four neighbouring elements, which meet one word of activations, to one place of the four bytes.
fn packed(b: &[u8], w: &mut [u32; 5]) {
    w[0] = pack::u16_at(b, 0);
    for (t, bits) in b[2..18].as_chunks::<2>().0.iter().enumerate() {
        let bits = u32::from(u16::from_le_bytes(*bits));
        for (j, w) in w[1..].iter_mut().enumerate() {
            // as in Q5_0: four bits come to lie at bit 0 of the bytes, and others where the mask has none
            *w |= ((((bits >> (4 * j)) & 15) * 0x0020_4081) & 0x0101_0101) << t;
        }
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 18 bytes per 128 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q1_0, block_bytes, out, BlockQ1_0::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 18 bytes per 128 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q1_0, x, out, BlockQ1_0::encode);
}
