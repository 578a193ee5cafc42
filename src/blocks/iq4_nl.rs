//! IQ4_NL: 32 codes of 4 bits into a table of 16 values, and one scale.
//!
//! ```text
//! byte  0   1   2                             17
//!     +-------+-------------------------------+
//!     | d f16 | qs[0] ... qs[15]              |   18 bytes, 32 elements
//!     +-------+-------------------------------+
//! low nibble of qs[i]: element i; high nibble: element i + 16
//! value of an element with code q = d * VALUES[q]
//! ```
//!
//! The table and the search for a scale are shared with [`super::iq4_xs`].

use bytemuck::{Pod, Zeroable};

use super::fit::{self, EPSILON};
use super::{
    BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, f32_to_f16, pack,
    peak,
};

/// One block of 32 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ4NL {
    /// The scale, little-endian binary16; may be negative.
    pub d: [u8; 2],
    /// The codes: elements 0..16 in the low nibbles, 16..32 in the high ones.
    pub qs: [u8; 16],
}

const _: () = assert!(size_of::<BlockIQ4NL>() == 18 && align_of::<BlockIQ4NL>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ4_NL",
    elems: 32,
    bytes: size_of::<BlockIQ4NL>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ4_NL,
    piece: 4,
    words: 18,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

/// The values of the sixteen codes: closer together around zero, which is none of them.
pub const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The code of the value nearest to `v`, of two equally near the upper.
#[inline(always)]
pub(super) fn nearest_code(v: f32) -> u8 {
    // As many codes are too low as there are midpoints at or below `v`; sums of two values are exact, as is 2 * v.
    VALUES.windows(2).map(|pair| u8::from(2.0 * v >= (pair[0] as i32 + pair[1] as i32) as f32)).sum()
}

/// The scale of 32 elements: codes by 127 over the first element of largest magnitude and by fifteen scales around that,
/// each time the least squares for the codes. 0 where there is nothing to scale.
pub(super) fn fit_scale(x: &[f32; 32], weight: &[f32; 32]) -> f32 {
    let max = peak(x);
    if max.abs() < EPSILON {
        return 0.0;
    }
    let sums = |id: f32| {
        let (mut sum_qx, mut sum_q2) = (0.0f32, 0.0f32);
        for (&x, &w) in x.iter().zip(weight) {
            let q = VALUES[nearest_code(id * x) as usize] as f32;
            sum_qx += w * q * x;
            sum_q2 += w * q * q;
        }
        (sum_qx, sum_q2)
    };
    let first = max / 127.0;
    let (sum_qx, sum_q2) = sums(1.0 / first);
    // ggml divides by 0, and stores a NaN, where all weights are 0
    let mut d = if sum_q2 == 0.0 { first } else { sum_qx / sum_q2 };
    let mut best = d * sum_qx;
    for step in -7..=7 {
        let (sum_qx, sum_q2) = sums((step as f32 - 127.0) / max);
        if sum_q2 > 0.0 && sum_qx * sum_qx > best * sum_q2 {
            d = sum_qx / sum_q2;
            best = d * sum_qx;
        }
    }
    d
}

/// The codes of 32 elements by the scale `d`, two to a byte.
pub(super) fn pack_codes(x: &[f32; 32], d: f32) -> [u8; 16] {
    let id = if d != 0.0 { 1.0 / d } else { 0.0 };
    std::array::from_fn(|i| nearest_code(id * x[i]) | nearest_code(id * x[i + 16]) << 4)
}

impl BlockIQ4NL {
    /// The block's 32 values.
    pub fn decode(&self, out: &mut [f32; 32]) {
        let d = f16_to_f32(u16::from_le_bytes(self.d));
        for (i, &q) in self.qs.iter().enumerate() {
            out[i] = d * VALUES[(q & 15) as usize] as f32;
            out[i + 16] = d * VALUES[(q >> 4) as usize] as f32;
        }
    }

    /// ggml's quantiser without an importance matrix: squares as weights. The codes are those of the scale before its
    /// rounding to f16.
    pub fn encode(x: &[f32; 32]) -> Self {
        Self::with_weights(x, &x.map(|v| v * v))
    }

    /// As ggml with an importance matrix.
    fn encode_weighted(x: &[f32; 32], importances: &[f32; 32]) -> Self {
        let s2 = 2.0 / 32.0 * fit::sum_of_squares(x);
        Self::with_weights(x, &fit::weights(x, importances, s2))
    }

    fn with_weights(x: &[f32; 32], weight: &[f32; 32]) -> Self {
        let d = fit_scale(x, weight);
        BlockIQ4NL { d: f32_to_f16(d).to_le_bytes(), qs: pack_codes(x, d) }
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
    decode_blocks(BlockType::IQ4_NL, block_bytes, out, BlockIQ4NL::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 18 bytes per 32 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::IQ4_NL, x, out, BlockIQ4NL::encode);
}

/// Encodes a row of blocks with importances, as ggml does.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::IQ4_NL, x, importances, out, BlockIQ4NL::encode_weighted);
}
