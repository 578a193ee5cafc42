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
use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_eight, f16_to_f32, f32_to_f16, pack};

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

/// The value nearest to `v`, of two equally near the upper.
#[inline(always)]
fn nearest_value(v: f32) -> f32 {
    // As far above the lowest as there are midpoints at or below `v`; twice `v` and sums of two values are exact.
    let mut value = VALUES[0] as f32;
    for pair in VALUES.windows(2) {
        let (low, high) = (pair[0] as f32, pair[1] as f32);
        value += if 2.0 * v >= low + high { high - low } else { 0.0 };
    }
    value
}

/// The code of that value.
#[inline(always)]
fn nearest_code(v: f32) -> u8 {
    VALUES.windows(2).map(|pair| u8::from(2.0 * v >= pair[0] as f32 + pair[1] as f32)).sum()
}

/// The scales of eight times 32 elements, searched side by side (see [`fit`]): codes by 127 over the first element of
/// largest magnitude and by fifteen scales around that, each time the least squares for the codes. 0 where there is
/// nothing to scale.
pub(super) fn fit_scales(x: &[f32; 256], weight: &[f32; 256]) -> [f32; 8] {
    let (x, weight) = (fit::side_by_side::<32, 8>(x), fit::side_by_side::<32, 8>(weight));
    let mut max = [0.0f32; 8];
    for x in &x {
        for j in 0..8 {
            max[j] = if x[j].abs() > max[j].abs() { x[j] } else { max[j] };
        }
    }
    let sums = |id: &[f32; 8]| {
        let (mut sum_qx, mut sum_q2) = ([0.0f32; 8], [0.0f32; 8]);
        for (x, w) in x.iter().zip(&weight) {
            let q: [f32; 8] = std::array::from_fn(|j| nearest_value(id[j] * x[j]));
            for j in 0..8 {
                sum_qx[j] += w[j] * q[j] * x[j];
                sum_q2[j] += w[j] * q[j] * q[j];
            }
        }
        (sum_qx, sum_q2)
    };
    let first = max.map(|max| max / 127.0);
    let (sum_qx, sum_q2) = sums(&first.map(|d| 1.0 / d));
    // ggml divides by 0, and stores a NaN, where all weights are 0
    let mut d: [f32; 8] = std::array::from_fn(|j| if sum_q2[j] == 0.0 { first[j] } else { sum_qx[j] / sum_q2[j] });
    let mut best: [f32; 8] = std::array::from_fn(|j| d[j] * sum_qx[j]);
    for step in -7..=7 {
        let numerator = step as f32 - 127.0;
        let (sum_qx, sum_q2) = sums(&max.map(|max| numerator / max));
        for j in 0..8 {
            if sum_q2[j] > 0.0 && sum_qx[j] * sum_qx[j] > best[j] * sum_q2[j] {
                d[j] = sum_qx[j] / sum_q2[j];
                best[j] = d[j] * sum_qx[j];
            }
        }
    }
    std::array::from_fn(|j| if max[j].abs() < EPSILON { 0.0 } else { d[j] })
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

    /// Eight blocks as ggml's quantiser has them. The codes are those of the scale before its rounding to f16.
    fn encode_eight(x: &[f32; 256], weight: &[f32; 256]) -> [Self; 8] {
        let scales = fit_scales(x, weight);
        let x = x.as_chunks::<32>().0;
        std::array::from_fn(|j| BlockIQ4NL { d: f32_to_f16(scales[j]).to_le_bytes(), qs: pack_codes(&x[j], scales[j]) })
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

/// Encodes a row of blocks as ggml without an importance matrix: squares as weights.
///
/// # Panics
/// When `out` is not the 18 bytes per 32 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    let f = |x: &[f32; 256], _: &[f32; 256]| BlockIQ4NL::encode_eight(x, &x.map(|v| v * v));
    encode_eight(BlockType::IQ4_NL, x, x, out, f);
}

/// Encodes a row of blocks with importances, as ggml does.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_eight(BlockType::IQ4_NL, x, importances, out, |x, importances| {
        let mut weight = [0.0; 256];
        let blocks = x.as_chunks::<32>().0.iter().zip(importances.as_chunks::<32>().0);
        for (w, (x, importances)) in weight.as_chunks_mut::<32>().0.iter_mut().zip(blocks) {
            *w = fit::weights(x, importances, 2.0 / 32.0 * fit::sum_of_squares(x));
        }
        BlockIQ4NL::encode_eight(x, &weight)
    });
}
