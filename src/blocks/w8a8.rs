//! W8A8: rows of signed codes of 8 bits that meet activations with one scale for all of a token's row.
//!
//! ```text
//! byte  0     3   4     7   8    11   12                           43
//!     +---------+---------+---------+-------------------------------+
//!     |  d f32  |  b i32  |  s f32  | qs[0] ... qs[31], i8          |   44 bytes, 32 elements
//!     +---------+---------+---------+-------------------------------+
//! value of element e = qs[e] * s
//! a row times activations a of scale da = ((sum over all of k of qs * a) + b) * da * d
//! ```
//!
//! d, b and s are the same in all blocks of a row. With activations whose scale is made for each token, d = s and b = 0.
//! With a scale fixed when the model was quantised, that scale is within d, da is 1, and b holds bias and offset.
//!
//! msModelSlim's W8A8 schemes, whose files keep codes and the rest in tensors of their own: its reader writes these blocks,
//! which no file holds.

use bytemuck::{Pod, Zeroable};

use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, pack, peak, round_away};

/// One block of 32 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockW8A8 {
    /// The scale of the result, little-endian f32.
    pub d: [u8; 4],
    /// What is added to the row's sum, little-endian i32.
    pub b: [u8; 4],
    /// The scale of the codes, little-endian f32.
    pub s: [u8; 4],
    /// The codes, element by element.
    pub qs: [i8; 32],
}

const _: () = assert!(size_of::<BlockW8A8>() == 44 && align_of::<BlockW8A8>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "W8A8",
    elems: 32,
    bytes: size_of::<BlockW8A8>(),
    decode,
    encode,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F32, "scale d"), Number::new(8, NumberKind::F32, "scale s")],
    packed: BlockType::W8A8,
    piece: 4,
    words: 34,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

/// Whether no sum of a row of `k` elements, with codes from -128 to 127 on both sides, leaves an i32 when `b` is added.
pub const fn fits(k: usize, b: i32) -> bool {
    k as u64 * 128 * 128 + b.unsigned_abs() as u64 <= i32::MAX as u64
}

impl BlockW8A8 {
    /// The scale of the codes.
    pub fn scale(&self) -> f32 {
        f32::from_le_bytes(self.s)
    }

    /// The block's 32 values.
    pub fn decode(&self, out: &mut [f32; 32]) {
        let s = self.scale();
        for (y, &q) in out.iter_mut().zip(&self.qs) {
            *y = f32::from(q) * s;
        }
    }
}

/// Up to four blocks: d and b of the row, then eight words of codes each.
fn packed(blocks: &[u8], w: &mut [u32; 34]) {
    w[0] = pack::canon_bits(pack::u32_at(blocks, 0));
    w[1] = pack::u32_at(blocks, 4);
    for (i, b) in blocks.chunks_exact(44).enumerate() {
        pack::copy_words(&b[12..], &mut w[2 + 8 * i..10 + 8 * i]);
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 44 bytes per 32 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::W8A8, block_bytes, out, BlockW8A8::decode);
}

/// Encodes one row, for activations whose scale is made for each token: 127 steps to the largest magnitude of the row,
/// codes rounded half away from zero.
///
/// # Panics
/// When `out` is not the 44 bytes per 32 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    let s = peak(x).abs() / 127.0;
    let id = if s != 0.0 { 1.0 / s } else { 0.0 };
    encode_blocks(BlockType::W8A8, x, out, |x: &[f32; 32]| BlockW8A8 {
        d: s.to_le_bytes(),
        b: [0; 4],
        s: s.to_le_bytes(),
        qs: std::array::from_fn(|i| round_away(x[i] * id).clamp(-127, 127) as i8),
    });
}
