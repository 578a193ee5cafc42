//! Q5_1: 32 codes of 5 bits, a scale and a minimum.
//!
//! ```text
//! byte  0   1   2   3   4       7   8                             23
//!     +-------+-------+-----------+-------------------------------+
//!     | d f16 | m f16 | qh u32    | qs[0] ... qs[15]              |   24 bytes, 32 elements
//!     +-------+-------+-----------+-------------------------------+
//! codes as in Q5_0
//! value of an element with code q = q * d + m
//! ```

use bytemuck::{Pod, Zeroable};

use super::q5_0::{codes, fifth_bits, pack_codes};
use super::{
    BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_eight, f16_to_f32, f32_to_f16, fit,
    pack, range,
};

/// One block of 32 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_1 {
    /// The scale, little-endian binary16.
    pub d: [u8; 2],
    /// The minimum: the value of code 0, little-endian binary16.
    pub m: [u8; 2],
    /// The fifth bits, element 0 in the lowest bit, little-endian.
    pub qh: [u8; 4],
    /// The low bits: elements 0..16 in the low nibbles, 16..32 in the high ones.
    pub qs: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ5_1>() == 24 && align_of::<BlockQ5_1>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q5_1",
    elems: 32,
    bytes: size_of::<BlockQ5_1>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d"), Number::new(2, NumberKind::F16, "minimum m")],
    packed: BlockType::Q5_1,
    piece: 4,
    words: 24,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockQ5_1 {
    /// Scale and minimum as f32.
    pub fn scale_min(&self) -> (f32, f32) {
        (f16_to_f32(u16::from_le_bytes(self.d)), f16_to_f32(u16::from_le_bytes(self.m)))
    }

    /// The block's 32 values; a product of 16 bits is exact, so each is rounded once.
    pub fn decode(&self, out: &mut [f32; 32]) {
        let (d, m) = self.scale_min();
        for (y, q) in out.iter_mut().zip(codes(self.qh, &self.qs)) {
            *y = q as f32 * d + m;
        }
    }

    /// ggml's reference quantiser: 31 steps from the smallest element to the largest, codes by truncation of a half more.
    pub fn encode(x: &[f32; 32]) -> Self {
        let (min, max) = range(x);
        let d = (max - min) / 31.0;
        let id = if d != 0.0 { 1.0 / d } else { 0.0 };
        let (qh, qs) = pack_codes(&x.map(|v| (((v - min) * id + 0.5) as u8).min(31)));
        BlockQ5_1 { d: f32_to_f16(d).to_le_bytes(), m: f32_to_f16(min).to_le_bytes(), qh, qs }
    }

    /// Eight blocks as ggml with an importance matrix, whose weights these are.
    fn encode_weighted(x: &[f32; 256], weight: &[f32; 256]) -> [Self; 8] {
        let fit = fit::affine::<false, 32, 8>(
            &fit::side_by_side(x),
            &fit::side_by_side(weight),
            &fit::Search::weighted(31.0),
        );
        std::array::from_fn(|j| {
            let codes: [u8; 32] = fit.codes.map(|q| q[j] as u8);
            let (qh, qs) = pack_codes(&codes);
            BlockQ5_1 { d: f32_to_f16(fit.scale[j]).to_le_bytes(), m: f32_to_f16(-fit.min[j]).to_le_bytes(), qh, qs }
        })
    }
}

/// Up to four blocks: a word with scale and minimum each, then as Q5_0.
fn packed(b: &[u8], w: &mut [u32; 24]) {
    for (i, b) in b.chunks_exact(24).enumerate() {
        w[i] = pack::u32_at(b, 0);
        w[4 + i] = fifth_bits(pack::u32_at(b, 4));
        pack::copy_words(&b[8..], &mut w[8 + 4 * i..12 + 4 * i]);
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 24 bytes per 32 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q5_1, block_bytes, out, BlockQ5_1::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 24 bytes per 32 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q5_1, x, out, BlockQ5_1::encode);
}

/// Encodes a row of blocks with importances, as ggml does: weights take the mean square of the whole row.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    let s2 = fit::sum_of_squares(x) / x.len() as f32;
    encode_eight(BlockType::Q5_1, x, importances, out, |x, importances| {
        BlockQ5_1::encode_weighted(x, &fit::weights(x, importances, s2))
    });
}
