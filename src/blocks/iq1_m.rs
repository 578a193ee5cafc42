//! IQ1_M: 32 rows of eight values -1, 0, 1 out of a codebook of 2048 with a shift each, sixteen 3-bit scales.
//!
//! ```text
//! byte  0          31   32      47   48             55
//!     +--------------+-------------+------------------+
//!     | index[0..32] | qh[0..16]   | scales[0..4] u16 |   56 bytes, 256 elements
//!     +--------------+-------------+------------------+
//! k = e / 8, t = low (k even) or high nibble of qh[k / 2]:
//!     row of the codebook: index[k], above it the low three bits of t
//!     scale s of sub-block j = e / 16: bits 3(j % 4) + 2 .. 3(j % 4) of scales[j / 4]
//! d: the binary16 whose nibbles are the upper four bits of scales[0], [1], [2], [3], the lowest first
//! code = 8g + 1, or 8g - 1 if the high bit of t is set, g being value e % 8 of the row
//! value = (d / 8 * (2s + 1)) * code
//! ```

use bytemuck::{Pod, Zeroable};

use super::grid_search::{self, Parts};
use super::grids::{self, GRID_1, shifted};
use super::{
    BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, pack, top_nibbles,
};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ1M {
    /// For each eight elements the low bits of the row of the codebook.
    pub index: [u8; 32],
    /// For each eight elements the high bits of the row and the shift, two to a byte.
    pub qh: [u8; 16],
    /// Four scales of sub-blocks and four bits of their scale to each, little-endian.
    pub scales: [[u8; 2]; 4],
}

const _: () = assert!(size_of::<BlockIQ1M>() == 56 && align_of::<BlockIQ1M>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ1_M",
    elems: 256,
    bytes: size_of::<BlockIQ1M>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(48, NumberKind::TopNibbles, "scale d")],
    packed: BlockType::IQ1_M,
    piece: 1,
    words: 14,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockIQ1M {
    /// The scale of the scales.
    pub fn scale(&self) -> f32 {
        f16_to_f32(top_nibbles(self.scales.as_flattened()))
    }

    /// The integer scales 1..=15 of the sub-blocks of 16.
    pub fn scales(&self) -> [u8; 16] {
        std::array::from_fn(|j| {
            let word = u16::from_le_bytes(self.scales[j / 4]);
            2 * (word >> (3 * (j % 4)) & 7) as u8 + 1
        })
    }

    /// The codes -9..=9 in element order.
    pub fn codes(&self) -> [i8; 256] {
        grids::codes(|n| {
            let k = n / 2;
            let high = (self.qh[k / 2] >> (4 * (k % 2)) & 15) as usize;
            shifted(GRID_1.words[self.index[k] as usize | (high & 7) << 8][n % 2], high >= 8)
        })
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        grids::decode(self.scale() * 0.125, self.scales(), &self.codes(), out);
    }

    /// The block that holds these parts.
    fn assembled(p: &Parts) -> Self {
        let nibble = |k: usize| (p.rows[k] >> 8) as u8 | p.signs[k] << 3;
        BlockIQ1M {
            index: std::array::from_fn(|k| p.rows[k] as u8),
            qh: std::array::from_fn(|i| nibble(2 * i) | nibble(2 * i + 1) << 4),
            scales: std::array::from_fn(|i| {
                let fields = (0..4).fold(0, |s, j| s | (p.scales[4 * i + j] as u16) << (3 * j));
                (fields | (p.d >> (4 * i) & 15) << 12).to_le_bytes()
            }),
        }
    }

    /// ggml's quantiser, with an importance for each element or without.
    pub fn encode(x: &[f32; 256], importances: Option<&[f32; 256]>) -> Self {
        let w = grid_search::weights(x, importances, 2.0, |_, x| x * x);
        Self::assembled(&grid_search::iq1_m(x, &w))
    }
}

/// In the file: index 32, qh 16, scales 8. Packed: scales, qh, index.
fn packed(b: &[u8], w: &mut [u32; 14]) {
    pack::copy_words(&b[48..], &mut w[..2]);
    pack::copy_words(&b[32..48], &mut w[2..6]);
    pack::copy_words(&b[..32], &mut w[6..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 56 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::IQ1_M, block_bytes, out, BlockIQ1M::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 56 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::IQ1_M, x, out, |x| BlockIQ1M::encode(x, None));
}

/// Encodes a row of blocks, whose elements have importances.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::IQ1_M, x, importances, out, |x, q| BlockIQ1M::encode(x, Some(q)));
}
