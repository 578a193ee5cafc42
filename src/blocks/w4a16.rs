//! W4A16: 32 codes of 4 bits, one f32 scale, and what the codes lie above their values.
//!
//! ```text
//! byte  0     3   4   5                            20
//!     +---------+---+-------------------------------+
//!     |  d f32  | o | qs[0] ... qs[15]              |   21 bytes, 32 elements
//!     +---------+---+-------------------------------+
//! low nibble of qs[i]: element i; high nibble: element i + 16
//! value of an element with code q, 0 to 15 = (q - o) * d;  o i8
//! ```
//!
//! msModelSlim's W4A16, whose files keep codes of 4 bits with sign, scales and offsets in tensors of their own, a scale for
//! each row or for a group of a row: its reader writes these blocks, which no file holds, with 8 added to codes and
//! offsets. A difference of two codes is exact, so a value is rounded once.

use bytemuck::{Pod, Zeroable};

use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, pack, range, round_away};

/// One block of 32 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockW4A16 {
    /// The scale, little-endian f32.
    pub d: [u8; 4],
    /// The code of 0.
    pub o: i8,
    /// The codes: elements 0..16 in the low nibbles, 16..32 in the high ones.
    pub qs: [u8; 16],
}

const _: () = assert!(size_of::<BlockW4A16>() == 21 && align_of::<BlockW4A16>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "W4A16",
    elems: 32,
    bytes: size_of::<BlockW4A16>(),
    decode,
    encode,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F32, "scale d")],
    packed: BlockType::W4A16,
    piece: 4,
    words: 21,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockW4A16 {
    /// The scale.
    pub fn scale(&self) -> f32 {
        f32::from_le_bytes(self.d)
    }

    /// The block's 32 values.
    pub fn decode(&self, out: &mut [f32; 32]) {
        let d = self.scale();
        let value = |q: u8| (i32::from(q) - i32::from(self.o)) as f32 * d;
        for (i, &q) in self.qs.iter().enumerate() {
            out[i] = value(q & 15);
            out[i + 16] = value(q >> 4);
        }
    }

    /// 15 steps from the smallest element, or 0, to the largest, or 0; codes rounded half away from zero.
    pub fn encode(x: &[f32; 32]) -> Self {
        let (min, max) = range(x);
        let (min, max) = (min.min(0.0), max.max(0.0));
        let d = (max - min) / 15.0;
        let id = if d != 0.0 { 1.0 / d } else { 0.0 };
        let o = round_away(-min * id).clamp(0, 15);
        let code = |v: f32| round_away(v * id).saturating_add(o).clamp(0, 15) as u8;
        BlockW4A16 { d: d.to_le_bytes(), o: o as i8, qs: std::array::from_fn(|i| code(x[i]) | (code(x[i + 16]) << 4)) }
    }
}

/// Up to four blocks: a word of scale each, a word with the four offsets, then four words of nibbles each.
fn packed(b: &[u8], w: &mut [u32; 21]) {
    for (i, b) in b.chunks_exact(21).enumerate() {
        w[i] = pack::scale_bits(pack::u32_at(b, 0));
        w[4] |= u32::from(b[4]) << (8 * i);
        pack::copy_words(&b[5..], &mut w[5 + 4 * i..9 + 4 * i]);
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 21 bytes per 32 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::W4A16, block_bytes, out, BlockW4A16::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 21 bytes per 32 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::W4A16, x, out, BlockW4A16::encode);
}
