//! Q2_K: 256 codes of 2 bits in sixteen sub-blocks of 16, each with a 4-bit scale and a 4-bit minimum.
//!
//! ```text
//! byte  0            15   16           79   80 81   82   83
//!     +-----------------+-----------------+-------+----------+
//!     | sc[0] .. sc[15] | qs[0] .. qs[63] | d f16 | dmin f16 |   84 bytes, 256 elements
//!     +-----------------+-----------------+-------+----------+
//! sub-block j of 16: scale in the low nibble of sc[j], minimum in the high one
//! element e in half h = e / 128, quarter t = (e % 128) / 32, l = e % 32: bits 2t+1 .. 2t of byte 32h + l of qs
//! value of an element with code q = (d * scale) * q - dmin * minimum
//! ```

use bytemuck::{Pod, Zeroable};

use super::fit::{self, Fit, Search};
use super::pack;
use super::tq2_0::{pack_pairs, pair};
use super::{
    BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, f32_to_f16,
    nearest_int,
};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2K {
    /// Scales in the low nibbles, minima in the high ones.
    pub sc: [u8; 16],
    /// The codes, four to a byte.
    pub qs: [u8; 64],
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
    /// The scale of the minima, little-endian binary16.
    pub dmin: [u8; 2],
}

const _: () = assert!(size_of::<BlockQ2K>() == 84 && align_of::<BlockQ2K>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q2_K",
    elems: 256,
    bytes: size_of::<BlockQ2K>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(80, NumberKind::F16, "scale d"), Number::new(82, NumberKind::F16, "scale dmin")],
    packed: BlockType::Q2_K,
    piece: 1,
    words: 21,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockQ2K {
    /// Scale and minimum of sub-block `j` (0..16).
    fn step(&self, j: usize) -> (f32, f32) {
        let half = |b: [u8; 2]| f16_to_f32(u16::from_le_bytes(b));
        (half(self.d) * (self.sc[j] & 15) as f32, half(self.dmin) * (self.sc[j] >> 4) as f32)
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        for (j, y) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (step, offset) = self.step(j);
            for (i, y) in y.iter_mut().enumerate() {
                *y = step * pair(&self.qs, 16 * j + i) as f32 - offset;
            }
        }
    }

    /// ggml's reference quantiser (without an importance matrix): magnitudes as weights and as errors.
    pub fn encode(elements: &[f32; 256]) -> Self {
        let x = fit::side_by_side(elements);
        let weight = x.map(|x: [f32; 16]| x.map(f32::abs));
        let search = Search { nmax: 3.0, rmin: -0.5, rdelta: 0.1, steps: 15 };
        let fit = fit::affine::<true, 16, 16>(&x, &weight, &search);
        // A 4-bit scale of the largest, and the others as multiples of it; the conversion to u8 wraps, as in C.
        let levels = |of: &[f32; 16]| {
            let max = of.iter().fold(0.0f32, |max, &v| if v > max { v } else { max });
            let inverse = if max > 0.0 { 15.0 / max } else { 0.0 };
            (max / 15.0, of.map(|v| nearest_int(inverse * v) as u8))
        };
        Self::with_levels(elements, &fit, levels(&fit.scale), levels(&fit.min))
    }

    /// As ggml with an importance matrix.
    fn encode_weighted(elements: &[f32; 256], importances: &[f32; 256]) -> Self {
        let s2 = fit::sum_of_squares(elements) / 256.0;
        let x = fit::side_by_side(elements);
        let weight: [[f32; 16]; 16] = fit::side_by_side(&fit::weights(elements, importances, s2));
        let fit = fit::affine::<false, 16, 16>(&x, &weight, &Search::weighted(3.0));
        let sums = fit::sums(&weight);
        Self::with_levels(elements, &fit, fit::positive(&fit.scale, &sums, 15), fit::positive(&fit.min, &sums, 15))
    }

    /// The block for scales and minima as stored, its codes chosen again for them.
    fn with_levels(x: &[f32; 256], fit: &Fit<16, 16>, (d, sc): (f32, [u8; 16]), (dmin, mins): (f32, [u8; 16])) -> Self {
        let mut b = BlockQ2K {
            sc: std::array::from_fn(|j| sc[j] | mins[j] << 4),
            qs: [0; 64],
            d: f32_to_f16(d).to_le_bytes(),
            dmin: f32_to_f16(dmin).to_le_bytes(),
        };
        let mut codes = [0u8; 256];
        for (j, (codes, x)) in codes.as_chunks_mut::<16>().0.iter_mut().zip(x.as_chunks::<16>().0).enumerate() {
            let (step, offset) = b.step(j);
            // A sub-block whose stored scale is 0 keeps the codes of the search: they decode to nothing, but they are
            // in the file.
            *codes = match step == 0.0 {
                true => std::array::from_fn(|i| fit.codes[i][j] as u8),
                false => x.map(|v| nearest_int((v + offset) / step).clamp(0, 3) as u8),
            };
        }
        b.qs = pack_pairs(|e| codes[e]);
        b
    }
}

/// In the file: scales, codes, d, dmin. Packed: d and dmin, scales, codes.
fn packed(b: &[u8], w: &mut [u32; 21]) {
    w[0] = pack::u32_at(b, 80);
    pack::copy_words(&b[..80], &mut w[1..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 84 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q2_K, block_bytes, out, BlockQ2K::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 84 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q2_K, x, out, BlockQ2K::encode);
}

/// Encodes a row of blocks with importances, as ggml does.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::Q2_K, x, importances, out, BlockQ2K::encode_weighted);
}
