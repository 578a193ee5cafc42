//! IQ3_S: 64 rows of four magnitudes out of a codebook of 512, their signs, eight 4-bit scales.
//!
//! ```text
//! byte  0   1   2          65   66       73   74         105  106         109
//!     +-------+--------------+-------------+----------------+---------------+
//!     | d f16 | index[0..64] | qh[0..8]    | signs[0..32]   | scales[0..4]  |   110 bytes, 256 elements
//!     +-------+--------------+-------------+----------------+---------------+
//! k = e / 4:
//!     row of the codebook: index[k], above it bit k % 8 of qh[k / 8]
//!     scale s of sub-block j = e / 32: low (j even) or high nibble of scales[j / 2]
//! code = value e % 4 of the row, negated if bit e % 8 of signs[e / 8] is set
//! value = (d * (2s + 1)) * code
//! ```

use bytemuck::{Pod, Zeroable};

use super::grid_search::{self, Again, Parts, Search, Start};
use super::grids::{self, GRID_3S, signed};
use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, pack};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ3S {
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
    /// For each four elements the low bits of the row of the codebook.
    pub index: [u8; 64],
    /// The high bits of the rows, eight to a byte.
    pub qh: [u8; 8],
    /// For each eight elements the signs.
    pub signs: [u8; 32],
    /// The scales, two to a byte.
    pub scales: [u8; 4],
}

const _: () = assert!(size_of::<BlockIQ3S>() == 110 && align_of::<BlockIQ3S>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ3_S",
    elems: 256,
    bytes: size_of::<BlockIQ3S>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ3_S,
    piece: 1,
    words: 28,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

const SEARCH: Search = Search {
    tries: 9,
    step: 0.2,
    even: false,
    fudge: 1.033,
    floor: 0.0,
    start: Start::Largest,
    again: Again::AllIfOff,
};

impl BlockIQ3S {
    /// The integer scales 1..=31 of the sub-blocks of 32.
    pub fn scales(&self) -> [u8; 8] {
        std::array::from_fn(|j| 2 * (self.scales[j / 2] >> (4 * (j % 2)) & 15) + 1)
    }

    /// The codes -15..=15 in element order.
    pub fn codes(&self) -> [i8; 256] {
        grids::codes(|n| {
            let high = (self.qh[n / 8] >> (n % 8) & 1) as usize;
            signed(GRID_3S.words[self.index[n] as usize | high << 8][0], self.signs[n / 2] as u32 >> (4 * (n % 2)))
        })
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        grids::decode(f16_to_f32(u16::from_le_bytes(self.d)), self.scales(), &self.codes(), out);
    }

    /// The block that holds these parts.
    fn assembled(p: &Parts) -> Self {
        BlockIQ3S {
            d: p.d.to_le_bytes(),
            index: std::array::from_fn(|k| p.rows[k] as u8),
            qh: std::array::from_fn(|i| (0..8).fold(0, |h, k| h | ((p.rows[8 * i + k] >> 8) as u8) << k)),
            signs: p.signs,
            scales: p.nibbles(),
        }
    }

    /// ggml's quantiser, with an importance for each element or without.
    pub fn encode(x: &[f32; 256], importances: Option<&[f32; 256]>) -> Self {
        let w = grid_search::weights(x, importances, 2.0, |_, x| x * x);
        Self::assembled(&grid_search::search::<32, _, _>(&SEARCH, grid_search::book_3s(), x, &w))
    }
}

/// In the file: d, index 64, qh 8, signs 32, scales 4. Packed: d, scales, qh, signs, index.
fn packed(b: &[u8], w: &mut [u32; 28]) {
    w[0] = pack::u16_at(b, 0);
    pack::copy_words(&b[106..], &mut w[1..2]);
    pack::copy_words(&b[66..106], &mut w[2..12]);
    pack::copy_words(&b[2..66], &mut w[12..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 110 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::IQ3_S, block_bytes, out, BlockIQ3S::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 110 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::IQ3_S, x, out, |x| BlockIQ3S::encode(x, None));
}

/// Encodes a row of blocks, whose elements have importances.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::IQ3_S, x, importances, out, |x, q| BlockIQ3S::encode(x, Some(q)));
}
