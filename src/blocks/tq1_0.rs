//! TQ1_0: 256 codes -1, 0, 1, five to a byte, and one scale.
//!
//! ```text
//! byte  0            47   48           51   52 53
//!     +-----------------+-----------------+-------+
//!     | qs[0] .. qs[47] | qh[0] .. qh[3]  | d f16 |   54 bytes, 256 elements
//!     +-----------------+-----------------+-------+
//! element e is digit p of a byte, the first digit being the most significant:
//!     e < 160:  digit e / 32 of qs[e % 32]
//!     e < 240:  digit (e - 160) / 16 of qs[32 + (e - 160) % 16]
//!     else      digit (e - 240) / 4 of qh[(e - 240) % 4], whose fifth digit is 0
//! a byte is ceil(v * 256 / 243), v being the number of its five digits in base 3
//! digit p of a byte = ((byte * 3^p % 256) * 3) / 256
//! value of an element with digit t = d * (t - 1)
//! ```
//!
//! It is packed as TQ2_0, two bits a code: kernels need no division by powers of 3.

use bytemuck::{Pod, Zeroable};

use super::tq2_0::{pack_pairs, ternary};
use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, f16_to_f32, pack};

/// One block of 256 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockTQ1_0 {
    /// Elements 0..240, five to a byte.
    pub qs: [u8; 48],
    /// Elements 240..256, four to a byte.
    pub qh: [u8; 4],
    /// The scale, little-endian binary16.
    pub d: [u8; 2],
}

const _: () = assert!(size_of::<BlockTQ1_0>() == 54 && align_of::<BlockTQ1_0>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "TQ1_0",
    elems: 256,
    bytes: size_of::<BlockTQ1_0>(),
    decode,
    encode,
    weighted: None,
    numbers: &[Number::new(52, NumberKind::F16, "scale d")],
    packed: BlockType::TQ2_0,
    piece: 1,
    words: 17,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

/// The byte (of `qs` and `qh`, one after the other) and the digit that hold element `e`.
const fn place(e: usize) -> (usize, usize) {
    match e {
        0..160 => (e % 32, e / 32),
        160..240 => (32 + (e - 160) % 16, (e - 160) / 16),
        _ => (48 + (e - 240) % 4, (e - 240) / 4),
    }
}

/// The digits 0, 1, 2 of a block's first 52 bytes in element order; any byte has five.
fn digits(bytes: &[u8]) -> [u8; 256] {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    std::array::from_fn(|e| {
        let (byte, digit) = place(e);
        // the product drops the digits before
        ((u16::from(bytes[byte].wrapping_mul(POWERS[digit])) * 3) >> 8) as u8
    })
}

impl BlockTQ1_0 {
    /// The block's 256 values.
    pub fn decode(&self, out: &mut [f32; 256]) {
        let d = f16_to_f32(u16::from_le_bytes(self.d));
        for (y, t) in out.iter_mut().zip(digits(bytemuck::bytes_of(self))) {
            *y = d * (i32::from(t) - 1) as f32;
        }
    }

    /// ggml's reference quantiser, with the codes of TQ2_0.
    pub fn encode(x: &[f32; 256]) -> Self {
        let (d, codes) = ternary(x);
        let mut numbers = [0u16; 52];
        for (e, &t) in codes.iter().enumerate() {
            let (byte, digit) = place(e);
            const WORTH: [u16; 5] = [81, 27, 9, 3, 1];
            numbers[byte] += WORTH[digit] * u16::from(t);
        }
        let byte = |i: usize| (numbers[i] * 256).div_ceil(243) as u8;
        BlockTQ1_0 { qs: std::array::from_fn(byte), qh: std::array::from_fn(|i| byte(48 + i)), d }
    }
}

/// As TQ2_0: d, then two bits a code.
fn packed(b: &[u8], w: &mut [u32; 17]) {
    let digits = digits(b);
    w[0] = pack::u16_at(b, 52);
    pack::copy_words(&pack_pairs(|e| digits[e]), &mut w[1..]);
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 54 bytes per 256 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::TQ1_0, block_bytes, out, BlockTQ1_0::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 54 bytes per 256 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::TQ1_0, x, out, BlockTQ1_0::encode);
}
