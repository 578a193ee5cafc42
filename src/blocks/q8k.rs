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

use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, nearest_int, pack, peak, sums_of_16};

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

const _: () = assert!(size_of::<BlockQ8K>() == 292 && align_of::<BlockQ8K>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q8_K",
    elems: 256,
    bytes: size_of::<BlockQ8K>(),
    decode,
    encode,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F32, "scale d")],
    packed: BlockType::Q8K128,
    piece: 1,
    words: 66,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

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

/// One block of 256 becomes two of 128 with the same d.
fn packed(b: &[u8], w: &mut [u32; 66]) {
    let d = pack::canon_bits(pack::u32_at(b, 0));
    (w[0], w[33]) = (d, d);
    pack::copy_words(&b[4..132], &mut w[1..33]);
    pack::copy_words(&b[132..260], &mut w[34..66]);
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
