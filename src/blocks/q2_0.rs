//! Q2_0: 64 codes of 2 bits and one scale.
//!
//! ```text
//! byte  0   1   2                             17
//!     +-------+-------------------------------+
//!     | d f16 | qs[0] ... qs[15]              |   18 bytes, 64 elements
//!     +-------+-------------------------------+
//! bits 2(e % 4)+1 .. 2(e % 4) of qs[e / 4]: element e
//! value of an element with bits q = d * (q - 1); q = 3, which no encoder writes, means +2
//! ```

use bytemuck::{Pod, Zeroable};

use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, f16_to_f32, f32_to_f16, pack};
use super::{peak, round_away};

/// One block of 64 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2_0 {
    /// The scale, little-endian binary16.
    pub d: [u8; 2],
    /// The codes, four neighbours to a byte, the first in the lowest bits.
    pub qs: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ2_0>() == 18 && align_of::<BlockQ2_0>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q2_0",
    elems: 64,
    bytes: size_of::<BlockQ2_0>(),
    decode,
    encode,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::Q2_0,
    piece: 2,
    words: 9,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockQ2_0 {
    /// The block's 64 values.
    pub fn decode(&self, out: &mut [f32; 64]) {
        let d = f16_to_f32(u16::from_le_bytes(self.d));
        for (e, y) in out.iter_mut().enumerate() {
            *y = d * ((self.qs[e / 4] >> (2 * (e % 4)) & 3) as i32 - 1) as f32;
        }
    }

    /// ggml's reference quantiser: the largest magnitude becomes 1 or -1, the others are rounded half away from zero.
    pub fn encode(x: &[f32; 64]) -> Self {
        let d = peak(x).abs();
        let id = if d != 0.0 { 1.0 / d } else { 0.0 };
        let code = |e: usize| round_away(x[e] * id).saturating_add(1).clamp(0, 3) as u8;
        BlockQ2_0 {
            d: f32_to_f16(d).to_le_bytes(),
            qs: std::array::from_fn(|i| (0..4).fold(0, |bits, c| bits | code(4 * i + c) << (2 * c))),
        }
    }
}

/// Up to two blocks: their scales in a word, then four words of codes each: bits 2t+1 .. 2t of byte c of word j belong
/// to element 16t + 4j + c, so that a shift brings four neighbours, which meet one word of activations, to one place.
fn packed(b: &[u8], w: &mut [u32; 9]) {
    for (i, b) in b.chunks_exact(18).enumerate() {
        w[0] |= pack::u16_at(b, 0) << (16 * i);
        for (n, &four) in b[2..].iter().enumerate() {
            let four = u32::from(four);
            let apart = (four & 3) | (four & 0x0c) << 6 | (four & 0x30) << 12 | (four & 0xc0) << 18;
            w[1 + 4 * i + n % 4] |= apart << (2 * (n / 4));
        }
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 18 bytes per 64 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q2_0, block_bytes, out, BlockQ2_0::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 18 bytes per 64 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q2_0, x, out, BlockQ2_0::encode);
}
