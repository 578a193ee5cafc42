//! IQ2_XXS: 32 rows of eight magnitudes out of a codebook of 256, their signs, eight 4-bit scales.
//!
//! ```text
//! byte  0   1   2          5   6     9        58        61  62    65
//!     +-------+-------------+---------+-- .. --+-----------+---------+
//!     | d f16 | index[0..4] | w u32   |        | index 0..4 | w u32  |   66 bytes, 256 elements
//!     +-------+-------------+---------+-- .. --+-----------+---------+
//! sub-block j = e / 32 has four indices and a word w; l = (e % 32) / 8, i = e % 8:
//!     w bits 7l+6 .. 7l: seven sign bits, completed by an eighth so that the number of minus signs is even
//!     w bits 31..28:     the scale s
//! code = value i of row index[l] of the codebook, negated if sign bit i is set
//! value = (d / 8 * (2s + 1)) * code
//! ```

use bytemuck::{Pod, Zeroable};

use super::grid_search::{self, Again, Parts, Search, Start};
use super::grids::{self, GRID_2XXS, even_signs, signed};
use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, pack};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ2XXS {
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
    /// For each sub-block four rows of the codebook, then the word of signs and scale, little-endian.
    pub subs: [[u8; 8]; 8],
}

const _: () = assert!(size_of::<BlockIQ2XXS>() == 66 && align_of::<BlockIQ2XXS>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ2_XXS",
    elems: 256,
    bytes: size_of::<BlockIQ2XXS>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ2_XXS,
    piece: 1,
    words: 17,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

const SEARCH: Search =
    Search { tries: 6, step: 0.1, even: true, fudge: 1.0, floor: 1e-15, start: Start::Fitted, again: Again::Always };

impl BlockIQ2XXS {
    /// The integer scales 1..=31 of the sub-blocks of 32.
    pub fn scales(&self) -> [u8; 8] {
        self.subs.map(|sub| 2 * (sub[7] >> 4) + 1)
    }

    /// The codes -43..=43 in element order.
    pub fn codes(&self) -> [i8; 256] {
        grids::codes(|n| {
            let (sub, l) = (&self.subs[n / 8], n % 8 / 2);
            let signs = even_signs(pack::u32_at(sub, 4) >> (7 * l) & 127);
            signed(GRID_2XXS.words[sub[l] as usize][n % 2], signs >> (4 * (n % 2)))
        })
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        grids::decode(f16_to_f32(u16::from_le_bytes(self.d)) * 0.125, self.scales(), &self.codes(), out);
    }

    /// The block that holds these parts.
    fn assembled(p: &Parts) -> Self {
        BlockIQ2XXS {
            d: p.d.to_le_bytes(),
            subs: std::array::from_fn(|j| {
                let [a, b, c, d] = std::array::from_fn(|l| p.rows[4 * j + l] as u8);
                let [e, f, g, h] = p.signs_and_scale(j).to_le_bytes();
                [a, b, c, d, e, f, g, h]
            }),
        }
    }

    /// ggml's quantiser, which asks for importances; without them all are 1.
    pub fn encode(x: &[f32; 256], importances: Option<&[f32; 256]>) -> Self {
        let w = grid_search::weights(x, importances.or(Some(&[1.0; 256])), 1.0, |_, _| 1.0);
        Self::assembled(&grid_search::search::<32, _, _>(&SEARCH, grid_search::book_2xxs(), x, &w))
    }
}

/// The scale in a word, the rest as in the file.
fn packed(b: &[u8], w: &mut [u32; 17]) {
    w[0] = pack::u16_at(b, 0);
    pack::copy_words(&b[2..], &mut w[1..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 66 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::IQ2_XXS, block_bytes, out, BlockIQ2XXS::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 66 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::IQ2_XXS, x, out, |x| BlockIQ2XXS::encode(x, None));
}

/// Encodes a row of blocks, whose elements have importances.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::IQ2_XXS, x, importances, out, |x, q| BlockIQ2XXS::encode(x, Some(q)));
}
