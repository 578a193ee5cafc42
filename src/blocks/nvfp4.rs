//! NVFP4: 64 codes of 4 bits (e2m1) in four sub-blocks of 16, each with a scale of 8 bits (e4m3 without a sign).
//!
//! ```text
//! byte  0         3   4                             35
//!     +-------------+-------------------------------+
//!     | d[0] .. [3] | qs[0] ... qs[31]              |   36 bytes, 64 elements
//!     +-------------+-------------------------------+
//! sub-block s of 16, element i of it: nibble i / 8 (0: low) of qs[8s + i % 8]
//! value of an element with code q = VALUES[q] * scale(d[s])
//! ```
//!
//! [`super::mxfp4::VALUES`] are twice those of e2m1, so [`scale`] is half of what the byte means. A matrix has one more
//! scale for all of it, which files store as a tensor of its own.

use bytemuck::{Pod, Zeroable};

use super::mxfp4::{VALUES, nearest_code};
use super::{BlockType, Format, decode_blocks, encode_blocks, pack, peak};

/// One block of 64 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockNVFP4 {
    /// The scales of the sub-blocks.
    pub d: [u8; 4],
    /// The codes, eight bytes a sub-block: elements 0..8 in the low nibbles, 8..16 in the high ones.
    pub qs: [u8; 32],
}

const _: () = assert!(size_of::<BlockNVFP4>() == 36 && align_of::<BlockNVFP4>() == 1);

/// This type's row of the table; every byte is a finite scale.
pub(super) const FORMAT: Format = Format {
    name: "NVFP4",
    elems: 64,
    bytes: size_of::<BlockNVFP4>(),
    decode,
    encode,
    weighted: None,
    numbers: &[],
    packed: BlockType::NVFP4,
    piece: 2,
    words: 18,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

/// The scale of a byte: K * 2^-10 with K = m for x = 0, else (8 + m) * 2^(x - 1), x being bits 6..3 and m bits 2..0.
/// Bit 7 has no meaning; 0x7f, a NaN elsewhere, is 0.
pub fn scale(byte: u8) -> f32 {
    let (x, m) = ((byte >> 3) & 15, u32::from(byte & 7));
    let k = if x == 0 { m } else { (8 + m) << (x - 1) };
    if byte == 0x7f { 0.0 } else { k as f32 / 1024.0 }
}

/// The byte for a scale `x` (not halved), as ggml has it: rounded half up; from 256 on always the largest, 448.
fn scale_byte(x: f32) -> u8 {
    // also a NaN
    if x.is_nan() || x <= 0.0 {
        return 0;
    }
    let bits = x.to_bits();
    let exponent = (bits >> 23) as i32 - 127 + 7;
    if exponent <= 0 {
        return ((x * 512.0 + 0.5) as u8).min(7);
    }
    // a mantissa of 8 carries into the exponent
    let rounded = (exponent << 3) + (bits >> 20 & 7) as i32 + (bits >> 19 & 1) as i32;
    if rounded >= 15 << 3 { 0x7e } else { rounded as u8 }
}

impl BlockNVFP4 {
    /// The block's 64 values.
    pub fn decode(&self, out: &mut [f32; 64]) {
        let subs = out.as_chunks_mut::<16>().0.iter_mut().zip(self.qs.as_chunks::<8>().0);
        for ((y, qs), &d) in subs.zip(&self.d) {
            let d = scale(d);
            for (i, &q) in qs.iter().enumerate() {
                y[i] = VALUES[(q & 15) as usize] as f32 * d;
                y[i + 8] = VALUES[(q >> 4) as usize] as f32 * d;
            }
        }
    }

    /// ggml's reference quantiser: the largest magnitude of a sub-block becomes about 6, every code is the nearest.
    pub fn encode(x: &[f32; 64]) -> Self {
        let mut b = BlockNVFP4::zeroed();
        for (s, x) in x.as_chunks::<16>().0.iter().enumerate() {
            b.d[s] = scale_byte(peak(x).abs() / 6.0);
            let d = scale(b.d[s]);
            for i in 0..8 {
                b.qs[8 * s + i] = nearest_code(d, x[i]) | nearest_code(d, x[i + 8]) << 4;
            }
        }
        b
    }
}

/// Up to two blocks: a word of scales each, then eight words of codes each.
fn packed(b: &[u8], w: &mut [u32; 18]) {
    for (i, b) in b.chunks_exact(36).enumerate() {
        w[i] = pack::u32_at(b, 0);
        pack::copy_words(&b[4..], &mut w[2 + 8 * i..10 + 8 * i]);
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 36 bytes per 64 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::NVFP4, block_bytes, out, BlockNVFP4::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 36 bytes per 64 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::NVFP4, x, out, BlockNVFP4::encode);
}
