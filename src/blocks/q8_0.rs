//! Q8_0: 32 signed codes of 8 bits and one scale.
//!
//! ```text
//! byte  0   1   2                             33
//!     +-------+-------------------------------+
//!     | d f16 | qs[0] ... qs[31], i8          |   34 bytes, 32 elements
//!     +-------+-------------------------------+
//! value of element e = qs[e] * d
//! ```

use bytemuck::{Pod, Zeroable};

use super::{
    BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, f16_to_f32, f32_to_f16, pack, peak, round_away,
};

/// One block of 32 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8_0 {
    /// The scale, little-endian binary16.
    pub d: [u8; 2],
    /// The codes, element by element.
    pub qs: [i8; 32],
}

const _: () = assert!(size_of::<BlockQ8_0>() == 34 && align_of::<BlockQ8_0>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q8_0",
    elems: 32,
    bytes: size_of::<BlockQ8_0>(),
    decode,
    encode,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::Q8_0,
    piece: 4,
    words: 34,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockQ8_0 {
    /// The scale as f32.
    pub fn scale(&self) -> f32 {
        f16_to_f32(u16::from_le_bytes(self.d))
    }

    /// The block's 32 values.
    pub fn decode(&self, out: &mut [f32; 32]) {
        let d = self.scale();
        for (y, &q) in out.iter_mut().zip(&self.qs) {
            *y = q as f32 * d;
        }
    }

    /// ggml's reference quantiser: d = amax / 127, codes rounded half away from zero with the unrounded d.
    pub fn encode(x: &[f32; 32]) -> Self {
        let d = peak(x).abs() / 127.0;
        let id = if d != 0.0 { 1.0 / d } else { 0.0 };
        BlockQ8_0 { d: f32_to_f16(d).to_le_bytes(), qs: std::array::from_fn(|i| round_away(x[i] * id) as i8) }
    }
}

/// Up to four blocks: their scales in two words, then eight words of codes each.
fn packed(b: &[u8], w: &mut [u32; 34]) {
    pack::scales_apart(b, w, 8);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 34 bytes per 32 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q8_0, block_bytes, out, BlockQ8_0::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 34 bytes per 32 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q8_0, x, out, BlockQ8_0::encode);
}
