//! TQ2_0: 256 codes of 2 bits, meant for -1, 0 and 1, and one scale.
//!
//! ```text
//! byte  0            63   64 65
//!     +-----------------+-------+
//!     | qs[0] .. qs[63] | d f16 |   66 bytes, 256 elements
//!     +-----------------+-------+
//! element e in half h = e / 128, quarter t = (e % 128) / 32, l = e % 32: bits 2t+1 .. 2t of byte 32h + l of qs
//! value of an element with bits q = d * (q - 1); q = 3, which no encoder writes, means +2
//! ```
//!
//! The codes of [`super::tq1_0`] are the same three, packed more tightly; both are computed with as this one.

use bytemuck::{Pod, Zeroable};

use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, f16_to_f32, f32_to_f16, pack};
use super::{peak, round_away};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockTQ2_0 {
    /// The codes, four to a byte.
    pub qs: [u8; 64],
    /// The scale, little-endian binary16.
    pub d: [u8; 2],
}

const _: () = assert!(size_of::<BlockTQ2_0>() == 66 && align_of::<BlockTQ2_0>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "TQ2_0",
    elems: 256,
    bytes: size_of::<BlockTQ2_0>(),
    decode,
    encode,
    weighted: None,
    numbers: &[Number::new(64, NumberKind::F16, "scale d")],
    packed: BlockType::TQ2_0,
    piece: 1,
    words: 17,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

/// Codes 0..=3 of 256 elements, four to a byte; as in Q2_K and Q3_K.
pub(super) fn pack_pairs(codes: impl Fn(usize) -> u8) -> [u8; 64] {
    std::array::from_fn(|i| {
        let e = 128 * (i / 32) + i % 32;
        (0..4).fold(0, |bits, t| bits | (codes(e + 32 * t) & 3) << (2 * t))
    })
}

/// The code 0..=3 of element `e`.
#[inline(always)]
pub(super) fn pair(qs: &[u8; 64], e: usize) -> u8 {
    (qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3
}

/// Scale and codes 0, 1, 2 of 256 elements: the largest magnitude becomes 1, the others are rounded half away from
/// zero.
pub(super) fn ternary(x: &[f32; 256]) -> ([u8; 2], [u8; 256]) {
    let d = peak(x).abs();
    let id = if d != 0.0 { 1.0 / d } else { 0.0 };
    // beyond 1 is only what is not finite
    (f32_to_f16(d).to_le_bytes(), x.map(|v| (round_away(v * id).clamp(-1, 1) + 1) as u8))
}

impl BlockTQ2_0 {
    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        let d = f16_to_f32(u16::from_le_bytes(self.d));
        for (e, y) in out.iter_mut().enumerate() {
            *y = d * (pair(&self.qs, e) as i32 - 1) as f32;
        }
    }

    /// ggml's reference quantiser: see `ternary`.
    pub fn encode(x: &[f32; 256]) -> Self {
        let (d, codes) = ternary(x);
        BlockTQ2_0 { qs: pack_pairs(|e| codes[e]), d }
    }
}

/// d, then the codes as they lie.
fn packed(b: &[u8], w: &mut [u32; 17]) {
    w[0] = pack::u16_at(b, 64);
    pack::copy_words(&b[..64], &mut w[1..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 66 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::TQ2_0, block_bytes, out, BlockTQ2_0::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 66 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::TQ2_0, x, out, BlockTQ2_0::encode);
}
