//! Q8_K: 256 signed codes of 8 bits, one f32 scale, and sums of the codes.
//!
//! ```text
//! byte  0     3   4              259   260                 291
//!     +---------+---------------------+----------------------+
//!     |  d f32  | qs[0] .. qs[255] i8 | bsums[0..16] i16     |   292 bytes, 256 elements
//!     +---------+---------------------+----------------------+
//! value of element e = d * qs[e];  bsums[j] = qs[16j] + ... + qs[16j + 15]
//! ```
//!
//! ggml's format for activations; some tools store weights in it too. The scale may be negative. Older encoders mapped
//! the largest element to -128 instead of -127; decoding is the same.

use bytemuck::{Pod, Zeroable};

use super::{BlockType, decode_blocks, encode_blocks, nearest_int, peak, sums_of_16};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8K {
    /// The scale, little-endian f32.
    pub d: [u8; 4],
    /// The codes, element by element.
    pub qs: [i8; 256],
    /// Sums of 16 codes, little-endian i16.
    pub bsums: [[u8; 2]; 16],
}

const _: () = assert!(size_of::<BlockQ8K>() == BlockType::Q8_K.bytes() && align_of::<BlockQ8K>() == 1);

impl BlockQ8K {
    /// The scale.
    pub fn scale(&self) -> f32 {
        f32::from_le_bytes(self.d)
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        let d = self.scale();
        for (y, &q) in out.iter_mut().zip(&self.qs) {
            *y = d * q as f32;
        }
    }

    /// ggml's reference quantiser: the first element of largest magnitude gets code -127. The sums of an all-zero
    /// block, which ggml leaves unwritten, are zeros.
    pub fn encode(x: &[f32; 256]) -> Self {
        let max = peak(x);
        if max == 0.0 {
            return BlockQ8K::zeroed();
        }
        let iscale = -127.0 / max;
        let qs: [i8; 256] = std::array::from_fn(|i| nearest_int(iscale * x[i]).clamp(-128, 127) as i8);
        BlockQ8K { d: (1.0 / iscale).to_le_bytes(), qs, bsums: sums_of_16(&qs) }
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 292 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q8_K, block_bytes, out, BlockQ8K::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 292 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q8_K, x, out, BlockQ8K::encode);
}
