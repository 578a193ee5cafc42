//! IQ4_XS: 256 codes of 4 bits into the table of IQ4_NL in eight sub-blocks of 32, each with a 6-bit scale.
//!
//! ```text
//! byte  0   1   2   3   4           7   8             135
//!     +-------+-------+---------------+------------------+
//!     | d f16 | sh    | sl[0] .. [3]  | qs[0] .. qs[127] |   136 bytes, 256 elements
//!     +-------+-------+---------------+------------------+
//! sub-block j of 32: bits 3..0 of its scale are nibble j % 2 (0: low) of sl[j / 2], bits 5 4 are bits 2j+1 2j of sh
//! low nibble of qs[16j + i]: element 32j + i; high nibble: element 32j + i + 16, i < 16
//! value of an element with code q = (d * (scale - 32)) * VALUES[q], the table being that of IQ4_NL
//! ```

use bytemuck::{Pod, Zeroable};

use super::iq4_nl::{VALUES, fit_scales, pack_codes};
use super::{
    BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, encode_weighted, f16_to_f32, f32_to_f16,
    nearest_int,
};
use super::{fit, pack, peak};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ4XS {
    /// The scale of the scales, little-endian binary16.
    pub d: [u8; 2],
    /// The scales' two high bits, little-endian.
    pub sh: [u8; 2],
    /// The scales' four low bits.
    pub sl: [u8; 4],
    /// The codes, two to a byte.
    pub qs: [u8; 128],
}

const _: () = assert!(size_of::<BlockIQ4XS>() == 136 && align_of::<BlockIQ4XS>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ4_XS",
    elems: 256,
    bytes: size_of::<BlockIQ4XS>(),
    decode,
    encode,
    weighted: Some(weighted),
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ4_XS,
    piece: 1,
    words: 34,
    pack: |rows, out| pack::blocks::<34>(rows, out, |b, w| pack::copy_words(b, w)),
};

impl BlockIQ4XS {
    /// The scale -32..=31 of sub-block `j` (0..8).
    pub fn scale(&self, j: usize) -> i32 {
        let low = self.sl[j / 2] >> (4 * (j % 2)) & 15;
        let high = u16::from_le_bytes(self.sh) >> (2 * j) & 3;
        i32::from(low) + 16 * i32::from(high) - 32
    }

    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        let d = f16_to_f32(u16::from_le_bytes(self.d));
        let subs = out.as_chunks_mut::<32>().0.iter_mut().zip(self.qs.as_chunks::<16>().0);
        for (j, (y, qs)) in subs.enumerate() {
            let step = d * self.scale(j) as f32;
            for (i, &q) in qs.iter().enumerate() {
                y[i] = step * VALUES[(q & 15) as usize] as f32;
                y[i + 16] = step * VALUES[(q >> 4) as usize] as f32;
            }
        }
    }

    /// ggml's quantiser without an importance matrix: squares as weights.
    pub fn encode(x: &[f32; 256]) -> Self {
        Self::with_weights(x, &x.map(|v| v * v))
    }

    /// As ggml with an importance matrix.
    fn encode_weighted(x: &[f32; 256], importances: &[f32; 256]) -> Self {
        let s2 = 2.0 / 256.0 * fit::sum_of_squares(x);
        Self::with_weights(x, &fit::weights(x, importances, s2))
    }

    fn with_weights(x: &[f32; 256], weight: &[f32; 256]) -> Self {
        let scales = fit_scales(x, weight);
        // The codes are those of this scale before its rounding to f16.
        let d = -peak(&scales) / 32.0;
        let id = if d != 0.0 { 1.0 / d } else { 0.0 };
        let mut b = BlockIQ4XS { d: f32_to_f16(d).to_le_bytes(), ..BlockIQ4XS::zeroed() };
        let mut high = 0u16;
        for (j, (x, qs)) in x.as_chunks::<32>().0.iter().zip(b.qs.as_chunks_mut::<16>().0).enumerate() {
            let scale = nearest_int(id * scales[j]).clamp(-32, 31);
            *qs = pack_codes(x, d * scale as f32);
            let bits = (scale + 32) as u8;
            b.sl[j / 2] |= (bits & 15) << (4 * (j % 2));
            high |= u16::from(bits >> 4) << (2 * j);
        }
        b.sh = high.to_le_bytes();
        b
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 136 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::IQ4_XS, block_bytes, out, BlockIQ4XS::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 136 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::IQ4_XS, x, out, BlockIQ4XS::encode);
}

/// Encodes a row of blocks with importances, as ggml does.
fn weighted(x: &[f32], importances: &[f32], out: &mut [u8]) {
    encode_weighted(BlockType::IQ4_XS, x, importances, out, BlockIQ4XS::encode_weighted);
}
