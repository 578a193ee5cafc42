//! Q4_0: 32 codes of 4 bits and one scale.
//!
//! ```text
//! byte  0   1   2                             17
//!     +-------+-------------------------------+
//!     | d f16 | qs[0] ... qs[15]              |   18 bytes, 32 elements
//!     +-------+-------------------------------+
//! low nibble of qs[i]: element i; high nibble: element i + 16
//! value of an element with code q = (q - 8) * d
//! ```

use bytemuck::{Pod, Zeroable};

use super::{
    BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_eight, f16_to_f32, f32_to_f16, fit,
    pack, peak,
};

/// One block of 32 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_0 {
    /// The scale, little-endian binary16; may be negative.
    pub d: [u8; 2],
    /// The codes: elements 0..16 in the low nibbles, 16..32 in the high ones.
    pub qs: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ4_0>() == 18 && align_of::<BlockQ4_0>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q4_0",
    elems: 32,
    bytes: size_of::<BlockQ4_0>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::Q4_0,
    piece: 4,
    words: 18,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockQ4_0 {
    /// The scale as f32.
    pub fn scale(&self) -> f32 {
        f16_to_f32(u16::from_le_bytes(self.d))
    }

    /// The block's 32 values.
    pub fn decode(&self, out: &mut [f32; 32]) {
        let d = self.scale();
        for (i, &q) in self.qs.iter().enumerate() {
            out[i] = ((q & 15) as i32 - 8) as f32 * d;
            out[i + 16] = ((q >> 4) as i32 - 8) as f32 * d;
        }
    }

    /// ggml's reference quantiser: the first element of largest magnitude gets code 0 (-8), codes by truncation.
    pub fn encode(x: &[f32; 32]) -> Self {
        let d = peak(x) / -8.0;
        let id = if d != 0.0 { 1.0 / d } else { 0.0 };
        let code = |v: f32| ((v * id + 8.5) as i8).clamp(0, 15) as u8;
        BlockQ4_0 { d: f32_to_f16(d).to_le_bytes(), qs: std::array::from_fn(|i| code(x[i]) | (code(x[i + 16]) << 4)) }
    }

    /// Eight blocks as ggml with an importance matrix, whose weights these are.
    fn encode_weighted(x: &[f32; 256], weight: &[f32; 256]) -> [Self; 8] {
        let found = fit::symmetric::<32, 8>(&fit::side_by_side(x), &fit::side_by_side(weight), 8.0);
        std::array::from_fn(|j| {
            let codes: [u8; 32] = found.codes.map(|q| q[j] as u8);
            BlockQ4_0 {
                d: f32_to_f16(found.scale[j]).to_le_bytes(),
                qs: std::array::from_fn(|i| codes[i] | codes[i + 16] << 4),
            }
        })
    }
}

/// Up to four blocks: their scales in two words, then four words of codes each.
fn packed(b: &[u8], w: &mut [u32; 18]) {
    pack::scales_apart(b, w, 4);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 18 bytes per 32 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q4_0, block_bytes, out, BlockQ4_0::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 18 bytes per 32 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q4_0, x, out, BlockQ4_0::encode);
}

/// Encodes a row of blocks with importances, as ggml does: weights take the mean square of the whole row.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    let s2 = fit::sum_of_squares(x) / x.len() as f32;
    encode_eight(BlockType::Q4_0, x, importances, out, |x, importances| {
        BlockQ4_0::encode_weighted(x, &fit::weights(x, importances, s2))
    });
}
