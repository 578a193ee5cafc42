//! IQ3_XXS: 64 rows of four magnitudes out of a codebook of 256, their signs, eight 4-bit scales.
//!
//! ```text
//! byte  0   1   2          65   66         97
//!     +-------+--------------+---------------+
//!     | d f16 | index[0..64] | w[0..8] u32   |   98 bytes, 256 elements
//!     +-------+--------------+---------------+
//! sub-block j = e / 32 has a word w[j]; l = (e % 32) / 8, i = e % 8:
//!     w bits 7l+6 .. 7l: seven sign bits, completed by an eighth so that the number of minus signs is even
//!     w bits 31..28:     the scale s
//! code = value e % 4 of row index[e / 4] of the codebook, negated if sign bit i is set
//! value = (d / 4 * (2s + 1)) * code
//! ```

use bytemuck::{Pod, Zeroable};

use super::grid_search::{self, Again, Parts, Search, Start};
use super::grids::{self, GRID_3XXS, even_signs, signed};
use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, pack};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ3XXS {
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
    /// For each four elements the row of the codebook.
    pub index: [u8; 64],
    /// For each sub-block the word of signs and scale, little-endian.
    pub subs: [[u8; 4]; 8],
}

const _: () = assert!(size_of::<BlockIQ3XXS>() == 98 && align_of::<BlockIQ3XXS>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ3_XXS",
    elems: 256,
    bytes: size_of::<BlockIQ3XXS>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ3_XXS,
    piece: 1,
    words: 25,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

const SEARCH: Search =
    Search { tries: 15, step: 0.2, even: true, fudge: 1.0125, floor: 1e-8, start: Start::Largest, again: Again::Off };

impl BlockIQ3XXS {
    /// The integer scales 1..=31 of the sub-blocks of 32.
    pub fn scales(&self) -> [u8; 8] {
        self.subs.map(|w| 2 * (w[3] >> 4) + 1)
    }

    /// The codes -62..=62 in element order.
    pub fn codes(&self) -> [i8; 256] {
        grids::codes(|n| {
            let signs = even_signs(u32::from_le_bytes(self.subs[n / 8]) >> (7 * (n % 8 / 2)) & 127);
            signed(GRID_3XXS.words[self.index[n] as usize][0], signs >> (4 * (n % 2)))
        })
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        grids::decode(f16_to_f32(u16::from_le_bytes(self.d)) * 0.25, self.scales(), &self.codes(), out);
    }

    /// The block that holds these parts.
    fn assembled(p: &Parts) -> Self {
        BlockIQ3XXS {
            d: p.d.to_le_bytes(),
            index: std::array::from_fn(|k| p.rows[k] as u8),
            subs: std::array::from_fn(|j| p.signs_and_scale(j).to_le_bytes()),
        }
    }

    /// ggml's quantiser, with an importance for each element or without.
    pub fn encode(x: &[f32; 256], importances: Option<&[f32; 256]>) -> Self {
        let w = grid_search::weights(x, importances, 2.0, |_, x| x * x);
        Self::assembled(&grid_search::search::<32, _, _>(&SEARCH, grid_search::book_3xxs(), x, &w))
    }
}

/// In the file: d, index 64, words 32. Packed: d, words, index.
fn packed(b: &[u8], w: &mut [u32; 25]) {
    w[0] = pack::u16_at(b, 0);
    pack::copy_words(&b[66..], &mut w[1..9]);
    pack::copy_words(&b[2..66], &mut w[9..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 98 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::IQ3_XXS, block_bytes, out, BlockIQ3XXS::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 98 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::IQ3_XXS, x, out, |x| BlockIQ3XXS::encode(x, None));
}

/// Encodes a row of blocks, whose elements have importances.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::IQ3_XXS, x, importances, out, |x, q| BlockIQ3XXS::encode(x, Some(q)));
}
