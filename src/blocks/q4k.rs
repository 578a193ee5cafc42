//! Q4_K: 256 codes of 4 bits in eight sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum.
//!
//! ```text
//! byte  0   1   2     3   4              15   16            143
//!     +-------+----------+------------------+------------------+
//!     | d f16 | dmin f16 | scales[0] .. [11] | qs[0] .. qs[127] |   144 bytes, 256 elements
//!     +-------+----------+------------------+------------------+
//! qs:     byte 32g + l holds element 64g + l (low nibble) and 64g + 32 + l (high nibble), g < 4, l < 32
//! scales: byte      bits 7 6          bits 5..0
//!         0..4      sc[4..8] bits 5 4    sc[0..4]
//!         4..8      m[4..8] bits 5 4     m[0..4]
//!                   bits 7..4         bits 3..0
//!         8..12     m[4..8] bits 3..0    sc[4..8] bits 3..0
//! value of element e with code q, sub-block j = e / 32:  (d * sc[j]) * q - (dmin * m[j])
//! ```
//!
//! The packing of the scales and the search for scales and minima are shared with [`super::q5k`].

use bytemuck::{Pod, Zeroable};

pub(crate) use super::fit::Search;
use super::{
    BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, f32_to_f16,
    nearest_int,
};
use super::{fit, pack};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4K {
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
    /// The scale of the minima, little-endian binary16.
    pub dmin: [u8; 2],
    /// Eight scales and eight minima of 6 bits; see [`scale_min`].
    pub scales: [u8; 12],
    /// The codes, two to a byte.
    pub qs: [u8; 128],
}

const _: () = assert!(size_of::<BlockQ4K>() == 144 && align_of::<BlockQ4K>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q4_K",
    elems: 256,
    bytes: size_of::<BlockQ4K>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d"), Number::new(2, NumberKind::F16, "scale dmin")],
    packed: BlockType::Q4_K,
    piece: 1,
    words: 36,
    pack: |rows, out| pack::blocks::<36>(rows, out, |b, w| pack::copy_words(b, w)),
};

/// Scale and minimum of sub-block `j` (0..8), each 0..=63.
#[inline(always)]
pub fn scale_min(scales: &[u8; 12], j: usize) -> (u8, u8) {
    if j < 4 {
        (scales[j] & 63, scales[j + 4] & 63)
    } else {
        ((scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4), (scales[j + 4] >> 4) | ((scales[j] >> 6) << 4))
    }
}

impl BlockQ4K {
    /// The codes 0..=15 in element order.
    pub fn codes(&self) -> [u8; 256] {
        std::array::from_fn(|e| {
            let byte = self.qs[32 * (e / 64) + e % 32];
            if e % 64 < 32 { byte & 15 } else { byte >> 4 }
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
            for (l, &q) in qs.iter().enumerate() {
                y[l] = d0 * (q & 15) as f32 - m0;
                y[l + 32] = d1 * (q >> 4) as f32 - m1;
            }
        }
    }

    /// ggml's reference quantiser (without an importance matrix).
    pub fn encode(x: &[f32; 256]) -> Self {
        Self::encode_with(x, fit_sub_blocks)
    }

    /// As [`BlockQ4K::encode`], with another making of [`fit_sub_blocks`].
    #[inline(always)]
    pub(crate) fn encode_with(x: &[f32; 256], fit: impl Fn(&[Lanes; 32], &Search) -> Fit) -> Self {
        Self::of(&encode_scales(x, &Search { nmax: 15.0, rmin: -1.0, rdelta: 0.1, steps: 20 }, fit))
    }

    /// As ggml with an importance matrix.
    fn encode_weighted(x: &[f32; 256], importances: &[f32; 256]) -> Self {
        Self::of(&encode_scales_weighted(x, importances, 15.0))
    }

    #[inline(always)]
    fn of(found: &Encoded) -> Self {
        let code = |e: usize| found.codes[e % 32][e / 32];
        BlockQ4K {
            d: found.d,
            dmin: found.dmin,
            scales: found.scales,
            qs: std::array::from_fn(|i| {
                let e = 64 * (i / 32) + i % 32;
                code(e) | (code(e + 32) << 4)
            }),
        }
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 144 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q4_K, block_bytes, out, BlockQ4K::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 144 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q4_K, x, out, BlockQ4K::encode);
}

/// Encodes a row of blocks with importances, as ggml does.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::Q4_K, x, importances, out, BlockQ4K::encode_weighted);
}

/// The encoded head of a Q4_K or Q5_K block, and its codes.
pub(super) struct Encoded {
    pub d: [u8; 2],
    pub dmin: [u8; 2],
    pub scales: [u8; 12],
    /// `codes[i][j]`: element 32j + i
    pub codes: [[u8; 8]; 32],
}

/// One number per sub-block; see [`super::fit`] for why the eight are searched side by side.
pub(crate) type Lanes = [f32; 8];

/// Chooses scales, minima and codes of a super-block (ggml's `quantize_row_q4_K_ref` and `q5_K`, up to the packing of
/// the codes).
#[inline(always)]
pub(super) fn encode_scales(
    elements: &[f32; 256],
    search: &Search,
    fit: impl Fn(&[Lanes; 32], &Search) -> Fit,
) -> Encoded {
    let x: [Lanes; 32] = fit::side_by_side(elements);
    let fit = fit(&x, search);
    let (mut max_scale, mut max_min) = (0.0f32, 0.0f32);
    for j in 0..8 {
        if fit.scale[j] > max_scale {
            max_scale = fit.scale[j];
        }
        if fit.min[j] > max_min {
            max_min = fit.min[j];
        }
    }
    let inv_scale = if max_scale > 0.0 { 63.0 / max_scale } else { 0.0 };
    let inv_min = if max_min > 0.0 { 63.0 / max_min } else { 0.0 };
    // The conversion to u8 wraps, as in C.
    let sc = fit.scale.map(|s| (nearest_int(inv_scale * s) as u8).min(63));
    let mins = fit.min.map(|m| (nearest_int(inv_min * m) as u8).min(63));
    with_levels(&x, &fit, search.nmax, (max_scale / 63.0, sc), (max_min / 63.0, mins))
}

/// As [`encode_scales`], as ggml does with an importance matrix; codes are 0..=nmax.
pub(super) fn encode_scales_weighted(elements: &[f32; 256], importances: &[f32; 256], nmax: f32) -> Encoded {
    let s2 = 2.0 * fit::sum_of_squares(elements) / 256.0;
    let x: [Lanes; 32] = fit::side_by_side(elements);
    let weight = fit::side_by_side(&fit::weights(elements, importances, s2));
    let fit = fit::affine::<false, 32, 8>(&x, &weight, &Search::weighted(nmax));
    let sums = fit::sums(&weight);
    let levels = (fit::positive(&fit.scale, &sums, 63), fit::positive(&fit.min, &sums, 63));
    with_levels(&x, &fit, nmax, levels.0, levels.1)
}

/// Packs scales and minima (0..=63, multiples of `d` and `dmin`) and chooses the codes again for them.
#[inline(always)]
fn with_levels(
    x: &[Lanes; 32],
    fit: &Fit,
    nmax: f32,
    (d, sc): (f32, [u8; 8]),
    (dmin, mins): (f32, [u8; 8]),
) -> Encoded {
    let mut scales = [0u8; 12];
    for j in 0..8 {
        let (sc, m) = (sc[j], mins[j]);
        if j < 4 {
            scales[j] = sc;
            scales[j + 4] = m;
        } else {
            scales[j + 4] = (sc & 15) | ((m & 15) << 4);
            scales[j - 4] |= (sc >> 4) << 6;
            scales[j] |= (m >> 4) << 6;
        }
    }
    let (d, dmin) = (f32_to_f16(d), f32_to_f16(dmin));

    // Codes for the scales as stored. A sub-block whose stored scale is 0 keeps the codes of the search: they decode
    // to nothing, but they are in the file.
    let mut codes = [[0u8; 8]; 32];
    let (mut step, mut offset) = ([0.0f32; 8], [0.0f32; 8]);
    for j in 0..8 {
        let (sc, m) = scale_min(&scales, j);
        step[j] = f16_to_f32(d) * sc as f32;
        offset[j] = f16_to_f32(dmin) * m as f32;
    }
    for i in 0..32 {
        for j in 0..8 {
            let code = nearest_int((x[i][j] + offset[j]) / step[j]).clamp(0, nmax as i32);
            codes[i][j] = if step[j] == 0.0 { fit.codes[i][j] as i32 } else { code } as u8;
        }
    }
    Encoded { d: d.to_le_bytes(), dmin: dmin.to_le_bytes(), scales, codes }
}

/// What [`fit_sub_blocks`] finds.
pub(crate) type Fit = fit::Fit<32, 8>;

/// The search of the reference without importances: weights of the magnitude and the root of the mean square.
pub(crate) fn fit_sub_blocks(x: &[Lanes; 32], search: &Search) -> Fit {
    let mut sum_x2 = [0.0f32; 8];
    for xi in x {
        for j in 0..8 {
            sum_x2[j] += xi[j] * xi[j];
        }
    }
    let average = sum_x2.map(|sum| (sum / 32.0).sqrt());
    let weight = x.map(|xi| std::array::from_fn(|j| average[j] + xi[j].abs()));
    fit::affine::<false, 32, 8>(x, &weight, search)
}
