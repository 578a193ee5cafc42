//! Q6_K: 256 signed codes of 6 bits in sixteen sub-blocks of 16, each with an 8-bit scale.
//!
//! ```text
//! byte  0            127   128         191   192           207   208 209
//!     +------------------+------------------+--------------------+-------+
//!     | ql[0] .. ql[127] | qh[0] .. qh[63]  | scales[0..16] i8   | d f16 |   210 bytes, 256 elements
//!     +------------------+------------------+--------------------+-------+
//! element e in half h = e / 128, quarter t = (e % 128) / 32, l = e % 32:
//!     bits 3..0: byte 64h + 32(t % 2) + l of ql, low nibble for t < 2, high nibble for t >= 2
//!     bits 5..4: bits 2t+1 .. 2t of byte 32h + l of qh
//! code = those six bits - 32;  value = (d * scales[e / 16]) * code
//! ```

use bytemuck::{Pod, Zeroable};

pub(crate) use super::fit::EPSILON;
use super::{
    BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, f32_to_f16,
    nearest_int,
};
use super::{fit, pack};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ6K {
    /// The codes' four low bits, two to a byte.
    pub ql: [u8; 128],
    /// The codes' two high bits, four to a byte.
    pub qh: [u8; 64],
    /// The scales of the sub-blocks.
    pub scales: [i8; 16],
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
}

const _: () = assert!(size_of::<BlockQ6K>() == 210 && align_of::<BlockQ6K>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q6_K",
    elems: 256,
    bytes: size_of::<BlockQ6K>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(208, NumberKind::F16, "scale d")],
    packed: BlockType::Q6_K,
    piece: 1,
    words: 53,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

impl BlockQ6K {
    /// The codes -32..=31 in element order.
    pub fn codes(&self) -> [i8; 256] {
        std::array::from_fn(|e| {
            let (h, t, l) = (e / 128, (e % 128) / 32, e % 32);
            let byte = self.ql[64 * h + 32 * (t % 2) + l];
            let low = if t < 2 { byte & 15 } else { byte >> 4 };
            let high = (self.qh[32 * h + l] >> (2 * t)) & 3;
            (low | (high << 4)) as i8 - 32
        })
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        let d = f16_to_f32(u16::from_le_bytes(self.d));
        let step = self.scales.map(|s| d * s as f32);
        for h in 0..2 {
            let (ql, qh) = (&self.ql[64 * h..64 * h + 64], &self.qh[32 * h..32 * h + 32]);
            let y = &mut out[128 * h..128 * h + 128];
            for l in 0..32 {
                let s = 8 * h + l / 16;
                let code = |low: u8, high: u8| ((low | ((high & 3) << 4)) as i32 - 32) as f32;
                y[l] = step[s] * code(ql[l] & 15, qh[l]);
                y[l + 32] = step[s + 2] * code(ql[l + 32] & 15, qh[l] >> 2);
                y[l + 64] = step[s + 4] * code(ql[l] >> 4, qh[l] >> 4);
                y[l + 96] = step[s + 6] * code(ql[l + 32] >> 4, qh[l] >> 6);
            }
        }
    }

    /// ggml's reference quantiser (without an importance matrix).
    pub fn encode(elements: &[f32; 256]) -> Self {
        Self::encode_with(elements, fit_sub_blocks)
    }

    /// As ggml with an importance matrix: the importances are the weights.
    fn encode_weighted(elements: &[f32; 256], importances: &[f32; 256]) -> Self {
        Self::encode_with(elements, |x| fit::symmetric(x, &fit::side_by_side(importances), 32.0))
    }

    /// As [`BlockQ6K::encode`], with another making of [`fit_sub_blocks`].
    #[inline(always)]
    pub(crate) fn encode_with(elements: &[f32; 256], fit: impl Fn(&[Lanes; 16]) -> Fit) -> Self {
        let fit = fit(&fit::side_by_side(elements));
        let (mut max_scale, mut max_abs) = (0.0f32, 0.0f32);
        for &s in &fit.scale {
            if s.abs() > max_abs {
                max_abs = s.abs();
                max_scale = s;
            }
        }
        if max_abs < EPSILON {
            return BlockQ6K::zeroed();
        }
        let iscale = -128.0 / max_scale;
        let d = f32_to_f16(1.0 / iscale);
        let scales = fit.scale.map(|s| nearest_int(iscale * s).min(127) as i8);

        // Codes 0..=63 for the scales as stored. A sub-block whose stored scale is 0 keeps the codes of the search:
        // they decode to nothing, but they are in the file.
        let step = scales.map(|s| f16_to_f32(d) * s as f32);
        let mut codes = [0u8; 256];
        for (e, (code, &v)) in codes.iter_mut().zip(elements).enumerate() {
            let j = e / 16;
            *code = if step[j] == 0.0 {
                fit.codes[e % 16][j] as u8
            } else {
                (nearest_int(v / step[j]).clamp(-32, 31) + 32) as u8
            };
        }
        BlockQ6K {
            ql: std::array::from_fn(|i| {
                let e = 128 * (i / 64) + i % 64;
                (codes[e] & 15) | ((codes[e + 64] & 15) << 4)
            }),
            qh: std::array::from_fn(|i| {
                let e = 128 * (i / 32) + i % 32;
                (0..4).fold(0, |bits, t| bits | ((codes[e + 32 * t] >> 4) << (2 * t)))
            }),
            scales,
            d: d.to_le_bytes(),
        }
    }
}

/// In the file: ql 128, qh 64, scales 16, d. Packed: d, scales, ql, qh.
fn packed(b: &[u8], w: &mut [u32; 53]) {
    w[0] = pack::u16_at(b, 208);
    pack::copy_words(&b[192..208], &mut w[1..5]);
    pack::copy_words(&b[..192], &mut w[5..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 210 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q6_K, block_bytes, out, BlockQ6K::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 210 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q6_K, x, out, BlockQ6K::encode);
}

/// Encodes a row of blocks with importances, as ggml does.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::Q6_K, x, importances, out, BlockQ6K::encode_weighted);
}

/// One number per sub-block; see [`super::fit`] for why they are searched side by side.
pub(crate) type Lanes = [f32; 16];

/// What [`fit_sub_blocks`] finds.
pub(crate) type Fit = fit::Scales<16, 16>;

/// The search of the reference without importances: squares as weights.
pub(crate) fn fit_sub_blocks(x: &[Lanes; 16]) -> Fit {
    fit::symmetric(x, &x.map(|xi| xi.map(|v| v * v)), 32.0)
}
