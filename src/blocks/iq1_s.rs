//! IQ1_S: 32 rows of eight values -1, 0, 1 out of a codebook of 2048, eight 3-bit scales and shifts.
//!
//! ```text
//! byte  0   1   2          33   34         49
//!     +-------+--------------+---------------+
//!     | d f16 | index[0..32] | qh[0..8] u16  |   50 bytes, 256 elements
//!     +-------+--------------+---------------+
//! sub-block j = e / 32, l = (e % 32) / 8:
//!     row of the codebook: index[e / 8], above it bits 3l+2 .. 3l of qh[j]
//!     qh[j] bits 14..12: the scale s;  bit 15: the shift
//! code = 8g + 1, or 8g - 1 if the shift is set, g being value e % 8 of the row
//! value = (d / 8 * (2s + 1)) * code
//! ```

use bytemuck::{Pod, Zeroable};

use super::grid_search::{self, Parts};
use super::grids::{self, GRID_1, shifted};
use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, pack};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ1S {
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
    /// For each eight elements the low bits of the row of the codebook.
    pub index: [u8; 32],
    /// For each sub-block the high bits of its four rows, its scale and its shift, little-endian.
    pub qh: [[u8; 2]; 8],
}

const _: () = assert!(size_of::<BlockIQ1S>() == 50 && align_of::<BlockIQ1S>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ1_S",
    elems: 256,
    bytes: size_of::<BlockIQ1S>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ1_S,
    piece: 1,
    words: 13,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockIQ1S {
    /// The integer scales 1..=15 of the sub-blocks of 32.
    pub fn scales(&self) -> [u8; 8] {
        self.qh.map(|qh| 2 * (qh[1] >> 4 & 7) + 1)
    }

    /// The codes -9..=9 in element order.
    pub fn codes(&self) -> [i8; 256] {
        grids::codes(|n| {
            let qh = u16::from_le_bytes(self.qh[n / 8]) as usize;
            let row = self.index[n / 2] as usize | (qh >> (3 * (n % 8 / 2)) & 7) << 8;
            shifted(GRID_1.words[row][n % 2], qh >> 15 == 1)
        })
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        grids::decode(f16_to_f32(u16::from_le_bytes(self.d)) * 0.125, self.scales(), &self.codes(), out);
    }

    /// The block that holds these parts.
    fn assembled(p: &Parts) -> Self {
        BlockIQ1S {
            d: p.d.to_le_bytes(),
            index: std::array::from_fn(|k| p.rows[k] as u8),
            qh: std::array::from_fn(|j| {
                let high = (0..4).fold(0, |h, l| h | (p.rows[4 * j + l] >> 8) << (3 * l));
                (high | (p.scales[j] as u16) << 12 | (p.signs[4 * j] as u16) << 15).to_le_bytes()
            }),
        }
    }

    /// ggml's quantiser, which asks for importances; without them all are 1.
    pub fn encode(x: &[f32; 256], importances: Option<&[f32; 256]>) -> Self {
        let w = grid_search::weights(x, importances.or(Some(&[1.0; 256])), 2.0, |_, _| 1.0);
        Self::assembled(&grid_search::iq1_s(x, &w))
    }
}

/// In the file: d, index 32, qh 16. Packed: d, qh, index.
fn packed(b: &[u8], w: &mut [u32; 13]) {
    w[0] = pack::u16_at(b, 0);
    pack::copy_words(&b[34..], &mut w[1..5]);
    pack::copy_words(&b[2..34], &mut w[5..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 50 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::IQ1_S, block_bytes, out, BlockIQ1S::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 50 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::IQ1_S, x, out, |x| BlockIQ1S::encode(x, None));
}

/// Encodes a row of blocks, whose elements have importances.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::IQ1_S, x, importances, out, |x, q| BlockIQ1S::encode(x, Some(q)));
}
