//! Q3_K: 256 signed codes of 3 bits in sixteen sub-blocks of 16, each with a 6-bit scale.
//!
//! ```text
//! byte  0            31   32           95   96          107   108 109
//!     +-----------------+-----------------+-----------------+---------+
//!     | hm[0] .. hm[31] | qs[0] .. qs[63] | sc[0] .. sc[11] | d f16   |   110 bytes, 256 elements
//!     +-----------------+-----------------+-----------------+---------+
//! element e in half h = e / 128, quarter t = (e % 128) / 32, l = e % 32:
//!     bits 1 0: bits 2t+1 .. 2t of byte 32h + l of qs
//!     bit 2:    bit 4h + t of hm[l]
//! scale of sub-block j of 16:
//!     bits 3..0: nibble j / 8 (0: low) of sc[j % 8]
//!     bits 5 4:  bits 2(j/4)+1 .. 2(j/4) of sc[8 + j % 4]
//! code = those three bits - 4;  value = (d * (scale - 32)) * code
//! ```

use bytemuck::{Pod, Zeroable};

use super::tq2_0::{pack_pairs, pair};
use super::{
    BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, f32_to_f16,
    nearest_int,
};
use super::{fit, pack, peak};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ3K {
    /// The codes' high bits, eight to a byte.
    pub hm: [u8; 32],
    /// The codes' two low bits, four to a byte.
    pub qs: [u8; 64],
    /// The scales; see [`BlockQ3K::scale`].
    pub sc: [u8; 12],
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
}

const _: () = assert!(size_of::<BlockQ3K>() == 110 && align_of::<BlockQ3K>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q3_K",
    elems: 256,
    bytes: size_of::<BlockQ3K>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(108, NumberKind::F16, "scale d")],
    packed: BlockType::Q3_K,
    piece: 1,
    words: 28,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

/// Sixteen scales 0..=63 as they are stored.
fn pack_scales(scales: &[u8; 16]) -> [u8; 12] {
    let mut sc = [0u8; 12];
    for (j, s) in scales.iter().enumerate() {
        sc[j % 8] |= (s & 15) << (4 * (j / 8));
        sc[8 + j % 4] |= (s >> 4) << (2 * (j / 4));
    }
    sc
}

impl BlockQ3K {
    /// The scale -32..=31 of sub-block `j` (0..16).
    pub fn scale(&self, j: usize) -> i32 {
        let low = (self.sc[j % 8] >> (4 * (j / 8))) & 15;
        let high = (self.sc[8 + j % 4] >> (2 * (j / 4))) & 3;
        i32::from(low | high << 4) - 32
    }

    /// The code -4..=3 of element `e`.
    #[inline(always)]
    fn code(&self, e: usize) -> i32 {
        let high = (self.hm[e % 32] >> (e / 32)) & 1;
        i32::from(pair(&self.qs, e) | high << 2) - 4
    }

    /// What a code of sub-block `j` is multiplied by.
    fn step(&self, j: usize) -> f32 {
        f16_to_f32(u16::from_le_bytes(self.d)) * self.scale(j) as f32
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        for (j, y) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let step = self.step(j);
            for (i, y) in y.iter_mut().enumerate() {
                *y = step * self.code(16 * j + i) as f32;
            }
        }
    }

    /// ggml's reference quantiser (without an importance matrix).
    pub fn encode(x: &[f32; 256]) -> Self {
        let mut codes = [0u8; 256];
        let mut scales = [0.0f32; 16];
        for ((codes, scale), x) in codes.as_chunks_mut::<16>().0.iter_mut().zip(&mut scales).zip(x.as_chunks::<16>().0)
        {
            (*scale, *codes) = fit::three_bits(x);
        }
        let max = peak(&scales);
        if max == 0.0 {
            return Self::with_scales(x, codes, 0.0, &[0; 16]);
        }
        let iscale = -32.0 / max;
        let levels = scales.map(|s| (nearest_int(iscale * s).clamp(-32, 31) + 32) as u8);
        Self::with_scales(x, codes, 1.0 / iscale, &levels)
    }

    /// As ggml with an importance matrix.
    fn encode_weighted(elements: &[f32; 256], importances: &[f32; 256]) -> Self {
        let s2 = 2.0 * fit::sum_of_squares(elements) / 256.0;
        let x: [[f32; 16]; 16] = fit::side_by_side(elements);
        let weight = fit::side_by_side(&fit::weights(elements, importances, s2));
        let found = fit::symmetric(&x, &weight, 4.0);
        // the scales themselves, sixteen elements of one sub-block
        let scales = fit::symmetric(&found.scale.map(|s| [s]), &fit::sums(&weight).map(|w| [w]), 32.0);
        let codes = std::array::from_fn(|e| found.codes[e % 16][e / 16] as u8);
        Self::with_scales(elements, codes, scales.scale[0], &scales.codes.map(|[l]| l as u8))
    }

    /// The block for scales as stored, its codes chosen again for them.
    fn with_scales(x: &[f32; 256], mut codes: [u8; 256], d: f32, scales: &[u8; 16]) -> Self {
        let d = f32_to_f16(d).to_le_bytes();
        let mut b = BlockQ3K { sc: pack_scales(scales), d, ..BlockQ3K::zeroed() };
        for (j, (codes, x)) in codes.as_chunks_mut::<16>().0.iter_mut().zip(x.as_chunks::<16>().0).enumerate() {
            let step = b.step(j);
            // A sub-block whose stored scale is 0 keeps the codes of the search: they decode to nothing, but they are
            // in the file.
            if step != 0.0 {
                *codes = x.map(|v| (nearest_int(v / step).clamp(-4, 3) + 4) as u8);
            }
        }
        b.hm = std::array::from_fn(|l| (0..8).fold(0, |bits, t| bits | (codes[32 * t + l] >> 2) << t));
        b.qs = pack_pairs(|e| codes[e]);
        b
    }
}

/// In the file: high bits 32, low bits 64, scales 12, d. Packed: d, scales, high bits, low bits.
fn packed(b: &[u8], w: &mut [u32; 28]) {
    w[0] = pack::u16_at(b, 108);
    pack::copy_words(&b[96..108], &mut w[1..4]);
    pack::copy_words(&b[..96], &mut w[4..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 110 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::Q3_K, block_bytes, out, BlockQ3K::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 110 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::Q3_K, x, out, BlockQ3K::encode);
}

/// Encodes a row of blocks with importances, as ggml does.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::Q3_K, x, importances, out, BlockQ3K::encode_weighted);
}
