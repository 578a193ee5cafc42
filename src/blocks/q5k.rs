//! Q5_K: 256 codes of 5 bits in eight sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum.
//!
//! ```text
//! byte  0   1   2     3   4         15   16         47   48         175
//!     +-------+----------+--------------+---------------+---------------+
//!     | d f16 | dmin f16 | scales[0..12] | qh[0] .. [31] | qs[0] .. [127] |   176 bytes, 256 elements
//!     +-------+----------+--------------+---------------+---------------+
//! scales: as in Q4_K
//! qs:     byte 32g + l holds bits 3..0 of elements 64g + l (low nibble) and 64g + 32 + l (high nibble)
//! qh:     bit j of byte l is bit 4 of element 32j + l
//! value of element e with code q, sub-block j = e / 32:  (d * sc[j]) * q - (dmin * m[j])
//! ```

use bytemuck::{Pod, Zeroable};

use super::q4k::{Encoded, Fit, Lanes, Search, encode_scales, encode_scales_weighted, fit_sub_blocks, scale_min};
use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, pack};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5K {
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
    /// The scale of the minima, little-endian binary16.
    pub dmin: [u8; 2],
    /// Eight scales and eight minima of 6 bits; see [`scale_min`].
    pub scales: [u8; 12],
    /// The codes' highest bits.
    pub qh: [u8; 32],
    /// The codes' four low bits, two to a byte.
    pub qs: [u8; 128],
}

const _: () = assert!(size_of::<BlockQ5K>() == 176 && align_of::<BlockQ5K>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q5_K",
    elems: 256,
    bytes: size_of::<BlockQ5K>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d"), Number::new(2, NumberKind::F16, "scale dmin")],
    packed: BlockType::Q5_K,
    piece: 1,
    words: 44,
    pack: |rows, out| pack::blocks::<44>(rows, out, |b, w| pack::copy_words(b, w)),
};

impl BlockQ5K {
    /// The codes 0..=31 in element order.
    pub fn codes(&self) -> [u8; 256] {
        std::array::from_fn(|e| {
            let byte = self.qs[32 * (e / 64) + e % 32];
            let low = if e % 64 < 32 { byte & 15 } else { byte >> 4 };
            low | (((self.qh[e % 32] >> (e / 32)) & 1) << 4)
        })
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        let d = f16_to_f32(u16::from_le_bytes(self.d));
        let dmin = f16_to_f32(u16::from_le_bytes(self.dmin));
        for ((y, qs), g) in out.as_chunks_mut::<64>().0.iter_mut().zip(self.qs.as_chunks::<32>().0).zip(0..4) {
            let (sc, m) = scale_min(&self.scales, 2 * g);
            let (d0, m0) = (d * sc as f32, dmin * m as f32);
            let (sc, m) = scale_min(&self.scales, 2 * g + 1);
            let (d1, m1) = (d * sc as f32, dmin * m as f32);
            for l in 0..32 {
                let high = self.qh[l] >> (2 * g);
                y[l] = d0 * ((qs[l] & 15) | ((high & 1) << 4)) as f32 - m0;
                y[l + 32] = d1 * ((qs[l] >> 4) | ((high & 2) << 3)) as f32 - m1;
            }
        }
    }

    /// ggml's reference quantiser (without an importance matrix).
    pub fn encode(x: &[f32; 256]) -> Self {
        Self::encode_with(x, fit_sub_blocks)
    }

    /// As [`BlockQ5K::encode`], with another making of [`fit_sub_blocks`].
    #[inline(always)]
    pub(crate) fn encode_with(x: &[f32; 256], fit: impl Fn(&[Lanes; 32], &Search) -> Fit) -> Self {
        Self::of(&encode_scales(x, &Search { nmax: 31.0, rmin: -0.5, rdelta: 0.1, steps: 15 }, fit))
    }

    /// As ggml with an importance matrix.
    fn encode_weighted(x: &[f32; 256], importances: &[f32; 256]) -> Self {
        Self::of(&encode_scales_weighted(x, importances, 31.0))
    }

    #[inline(always)]
    fn of(found: &Encoded) -> Self {
        let code = |e: usize| found.codes[e % 32][e / 32];
        BlockQ5K {
            d: found.d,
            dmin: found.dmin,
            scales: found.scales,
            qh: std::array::from_fn(|l| (0..8).fold(0, |bits, j| bits | ((found.codes[l][j] >> 4) << j))),
            qs: std::array::from_fn(|i| {
                let e = 64 * (i / 32) + i % 32;
                (code(e) & 15) | ((code(e + 32) & 15) << 4)
            }),
        }
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 176 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q5_K, block_bytes, out, BlockQ5K::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 176 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q5_K, x, out, BlockQ5K::encode);
}

/// Encodes a row of blocks with importances, as ggml does.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::Q5_K, x, importances, out, BlockQ5K::encode_weighted);
}
