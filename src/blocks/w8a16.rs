//! W8A16: 32 signed codes of 8 bits, one f32 scale, and what the codes lie above their values.
//!
//! ```text
//! byte  0     3   4   5                            36
//!     +---------+---+-------------------------------+
//!     |  d f32  | o | qs[0] ... qs[31], i8          |   37 bytes, 32 elements
//!     +---------+---+-------------------------------+
//! value of element e = (qs[e] - o) * d;  o i8
//! ```
//!
//! msModelSlim's W8A16, whose files keep codes, scales and offsets in tensors of their own, a scale for each row or for a
//! group of a row: its reader writes these blocks, which no file holds. A difference of two codes is exact, so a value is
//! rounded once.

use bytemuck::{Pod, Zeroable};

use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, pack, range, round_away};

/// One block of 32 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockW8A16 {
    /// The scale, little-endian f32.
    pub d: [u8; 4],
    /// The code of 0.
    pub o: i8,
    /// The codes, element by element.
    pub qs: [i8; 32],
}

const _: () = assert!(size_of::<BlockW8A16>() == 37 && align_of::<BlockW8A16>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "W8A16",
    elems: 32,
    bytes: size_of::<BlockW8A16>(),
    decode,
    encode,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F32, "scale d")],
    packed: BlockType::W8A16,
    piece: 4,
    words: 37,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockW8A16 {
    /// The scale.
    pub fn scale(&self) -> f32 {
        f32::from_le_bytes(self.d)
    }

    /// The block's 32 values.
    pub fn decode(&self, out: &mut [f32; 32]) {
        let d = self.scale();
        for (y, &q) in out.iter_mut().zip(&self.qs) {
            *y = (i32::from(q) - i32::from(self.o)) as f32 * d;
        }
    }

    /// 255 steps from the smallest element, or 0, to the largest, or 0; codes rounded half away from zero.
    pub fn encode(x: &[f32; 32]) -> Self {
        let (min, max) = range(x);
        let (min, max) = (min.min(0.0), max.max(0.0));
        let d = (max - min) / 255.0;
        let id = if d != 0.0 { 1.0 / d } else { 0.0 };
        let o = round_away(-128.0 - min * id).clamp(-128, 127);
        let code = |v: f32| round_away(v * id).saturating_add(o).clamp(-128, 127) as i8;
        BlockW8A16 { d: d.to_le_bytes(), o: o as i8, qs: std::array::from_fn(|i| code(x[i])) }
    }
}

/// Up to four blocks: a word of scale each, a word with the four offsets, then eight words of codes each.
fn packed(b: &[u8], w: &mut [u32; 37]) {
    for (i, b) in b.chunks_exact(37).enumerate() {
        w[i] = pack::scale_bits(pack::u32_at(b, 0));
        w[4] |= u32::from(b[4]) << (8 * i);
        pack::copy_words(&b[5..], &mut w[5 + 8 * i..13 + 8 * i]);
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 37 bytes per 32 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::W8A16, block_bytes, out, BlockW8A16::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 37 bytes per 32 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::W8A16, x, out, BlockW8A16::encode);
}
