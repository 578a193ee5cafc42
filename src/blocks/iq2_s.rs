//! IQ2_S: 32 rows of eight magnitudes out of a codebook of 1024, their signs, sixteen 4-bit scales.
//!
//! ```text
//! byte  0   1   2          33   34         65   66       73   74           81
//!     +-------+--------------+----------------+-------------+----------------+
//!     | d f16 | index[0..32] | signs[0..32]   | qh[0..8]    | scales[0..8]   |   82 bytes, 256 elements
//!     +-------+--------------+----------------+-------------+----------------+
//! k = e / 8, i = e % 8:
//!     row of the codebook: index[k], above it bits 2(k % 4) + 1 .. 2(k % 4) of qh[k / 4]
//!     scale s of sub-block j = e / 16: low (j even) or high nibble of scales[j / 2]
//! code = value i of the row, negated if bit i of signs[k] is set
//! value = (d / 8 * (2s + 1)) * code
//! ```

use bytemuck::{Pod, Zeroable};

use super::grid_search::{self, Again, Parts, Search, Start};
use super::grids::{self, GRID_2S, signed};
use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, pack};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ2S {
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
    /// For each eight elements the low bits of the row of the codebook.
    pub index: [u8; 32],
    /// For each eight elements the signs.
    pub signs: [u8; 32],
    /// The two high bits of the rows, four to a byte.
    pub qh: [u8; 8],
    /// The scales, two to a byte.
    pub scales: [u8; 8],
}

const _: () = assert!(size_of::<BlockIQ2S>() == 82 && align_of::<BlockIQ2S>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ2_S",
    elems: 256,
    bytes: size_of::<BlockIQ2S>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ2_S,
    piece: 1,
    words: 21,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

const SEARCH: Search =
    Search { tries: 9, step: 0.1, even: false, fudge: 0.9875, floor: 1e-8, start: Start::Largest, again: Again::Off };

impl BlockIQ2S {
    /// The integer scales 1..=31 of the sub-blocks of 16.
    pub fn scales(&self) -> [u8; 16] {
        grids::odd_scales(&self.scales)
    }

    /// The codes -43..=43 in element order.
    pub fn codes(&self) -> [i8; 256] {
        grids::codes(|n| {
            let k = n / 2;
            let high = (self.qh[k / 4] >> (2 * (k % 4)) & 3) as usize;
            signed(GRID_2S.words[self.index[k] as usize | high << 8][n % 2], self.signs[k] as u32 >> (4 * (n % 2)))
        })
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        grids::decode(f16_to_f32(u16::from_le_bytes(self.d)) * 0.125, self.scales(), &self.codes(), out);
    }

    /// The block that holds these parts.
    fn assembled(p: &Parts) -> Self {
        BlockIQ2S {
            d: p.d.to_le_bytes(),
            index: std::array::from_fn(|k| p.rows[k] as u8),
            signs: p.signs,
            qh: std::array::from_fn(|i| (0..4).fold(0, |h, k| h | ((p.rows[4 * i + k] >> 8) as u8) << (2 * k))),
            scales: p.nibbles(),
        }
    }

    /// ggml's quantiser, with an importance for each element or without.
    pub fn encode(x: &[f32; 256], importances: Option<&[f32; 256]>) -> Self {
        let w = grid_search::weights(x, importances, 2.0, |s2, x| 0.25 * s2 + x * x);
        Self::assembled(&grid_search::search::<16, _, _>(&SEARCH, grid_search::book_2s(), x, &w))
    }
}

/// In the file: d, index 32, signs 32, qh 8, scales 8. Packed: d, scales, qh, index, signs.
fn packed(b: &[u8], w: &mut [u32; 21]) {
    w[0] = pack::u16_at(b, 0);
    pack::copy_words(&b[74..], &mut w[1..3]);
    pack::copy_words(&b[66..74], &mut w[3..5]);
    pack::copy_words(&b[2..66], &mut w[5..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 82 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::IQ2_S, block_bytes, out, BlockIQ2S::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 82 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::IQ2_S, x, out, |x| BlockIQ2S::encode(x, None));
}

/// Encodes a row of blocks, whose elements have importances.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::IQ2_S, x, importances, out, |x, q| BlockIQ2S::encode(x, Some(q)));
}
