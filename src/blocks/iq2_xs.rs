//! IQ2_XS: 32 rows of eight magnitudes out of a codebook of 512, their signs, sixteen 4-bit scales.
//!
//! ```text
//! byte  0   1   2               65   66              73
//!     +-------+-------------------+-------------------+
//!     | d f16 | q[0..32] u16      | scales[0] .. [7]  |   74 bytes, 256 elements
//!     +-------+-------------------+-------------------+
//! k = e / 8, i = e % 8:
//!     q[k] bits 8..0:  the row of the codebook
//!     q[k] bits 15..9: seven sign bits, completed by an eighth so that the number of minus signs is even
//!     scale s of sub-block j = e / 16: low (j even) or high nibble of scales[j / 2]
//! code = value i of the row, negated if sign bit i is set
//! value = (d / 8 * (2s + 1)) * code
//! ```

use bytemuck::{Pod, Zeroable};

use super::grid_search::{self, Again, Parts, Search, Start};
use super::grids::{self, GRID_2XS, even_signs, signed};
use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, pack};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ2XS {
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
    /// For each eight elements the row of the codebook and the signs, little-endian.
    pub q: [[u8; 2]; 32],
    /// The scales, two to a byte.
    pub scales: [u8; 8],
}

const _: () = assert!(size_of::<BlockIQ2XS>() == 74 && align_of::<BlockIQ2XS>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ2_XS",
    elems: 256,
    bytes: size_of::<BlockIQ2XS>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ2_XS,
    piece: 1,
    words: 19,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

const SEARCH: Search =
    Search { tries: 9, step: 0.1, even: true, fudge: 1.0, floor: 1e-15, start: Start::Largest, again: Again::Off };

impl BlockIQ2XS {
    /// The integer scales 1..=31 of the sub-blocks of 16.
    pub fn scales(&self) -> [u8; 16] {
        grids::odd_scales(&self.scales)
    }

    /// The codes -43..=43 in element order.
    pub fn codes(&self) -> [i8; 256] {
        grids::codes(|n| {
            let q = u16::from_le_bytes(self.q[n / 2]) as usize;
            signed(GRID_2XS.words[q & 511][n % 2], even_signs(q as u32 >> 9) >> (4 * (n % 2)))
        })
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        grids::decode(f16_to_f32(u16::from_le_bytes(self.d)) * 0.125, self.scales(), &self.codes(), out);
    }

    /// The block that holds these parts.
    fn assembled(p: &Parts) -> Self {
        BlockIQ2XS {
            d: p.d.to_le_bytes(),
            q: std::array::from_fn(|k| (p.rows[k] | ((p.signs[k] & 127) as u16) << 9).to_le_bytes()),
            scales: p.nibbles(),
        }
    }

    /// ggml's quantiser, which asks for importances; without them all are 1.
    pub fn encode(x: &[f32; 256], importances: Option<&[f32; 256]>) -> Self {
        let w = grid_search::weights(x, importances.or(Some(&[1.0; 256])), 1.0, |_, _| 1.0);
        Self::assembled(&grid_search::search::<16, _, _>(&SEARCH, grid_search::book_2xs(), x, &w))
    }
}

/// In the file: d, q 64, scales 8. Packed: d, scales, q.
fn packed(b: &[u8], w: &mut [u32; 19]) {
    w[0] = pack::u16_at(b, 0);
    pack::copy_words(&b[66..], &mut w[1..3]);
    pack::copy_words(&b[2..66], &mut w[3..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 74 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::IQ2_XS, block_bytes, out, BlockIQ2XS::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 74 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::IQ2_XS, x, out, |x| BlockIQ2XS::encode(x, None));
}

/// Encodes a row of blocks, whose elements have importances.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::IQ2_XS, x, importances, out, |x, q| BlockIQ2XS::encode(x, Some(q)));
}
