//! MXFP4: 32 codes of 4 bits (e2m1: a sign, two bits of exponent, one of mantissa) and one scale that is a power of
//! two.
//!
//! ```text
//! byte  0    1                                16
//!     +----+----------------------------------+
//!     | E  | qs[0] ... qs[15]                 |   17 bytes, 32 elements
//!     +----+----------------------------------+
//! low nibble of qs[i]: element i; high nibble: element i + 16
//! value of an element with code q = VALUES[q] * 2^(E - 128)
//! ```
//!
//! [`VALUES`] are twice those of e2m1 and so integers; the scale is half of E's (2^(E - 127) in the OCP text). The
//! table and the search for a code are shared with [`super::nvfp4`].

use bytemuck::{Pod, Zeroable};

use super::{BlockType, Format, Number, NumberKind, decode_blocks, encode_blocks, pack, peak};

/// One block of 32 elements; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockMXFP4 {
    /// The exponent of the scale.
    pub e: u8,
    /// The codes: elements 0..16 in the low nibbles, 16..32 in the high ones.
    pub qs: [u8; 16],
}

const _: () = assert!(size_of::<BlockMXFP4>() == 17 && align_of::<BlockMXFP4>() == 1);

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "MXFP4",
    elems: 32,
    bytes: size_of::<BlockMXFP4>(),
    decode,
    encode,
    weighted: None,
    numbers: &[Number::new(0, NumberKind::E8M0, "scale e or a weight of that scale")],
    packed: BlockType::MXFP4,
    piece: 4,
    words: 17,
    pack: |rows, out| pack::blocks(rows, out, packed),
};

/// The values of the sixteen codes of e2m1, doubled. Code 8 is a zero with a sign, which an integer does not have.
pub const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Whether every value of the codes `qs` (two to a byte) with scale byte `e` is finite; 255 is a NaN in the OCP text.
pub(super) fn is_finite(e: u8, qs: &[u8]) -> bool {
    // the largest magnitude's code below 2^128 / 2^(e - 128)
    let largest = match e {
        255 => return false,
        254 => 3,
        253 => 5,
        _ => return true,
    };
    qs.iter().all(|q| q & 7 <= largest && (q >> 4) & 7 <= largest)
}

/// The code of the value nearest to `x` when the codes have the scale `d`, of two equally near the first.
#[inline(always)]
pub(super) fn nearest_code(d: f32, x: f32) -> u8 {
    let (mut best, mut code) = ((VALUES[0] as f32 * d - x).abs(), 0);
    for (i, &v) in VALUES.iter().enumerate().skip(1) {
        let error = (v as f32 * d - x).abs();
        if error < best {
            (best, code) = (error, i as u8);
        }
    }
    code
}

/// floor(log2(amax)) + 125 of a positive number as C's `floorf(log2f(amax))` has it: log2f rounds to f32, so just below
/// a power of two it is that power's. 0 for what is below 2^-125, where ggml's conversion to a byte is undefined.
fn exponent(amax: f32) -> u8 {
    let bits = amax.to_bits();
    let e = (bits >> 23) as i32 - 127;
    // how many of the largest mantissas round up: f32 is the coarser the larger the logarithm
    let up = match e {
        -2..=1 => 0,
        -4..=3 => 1,
        -8..=7 => 2,
        -16..=15 => 5,
        -32..=31 => 11,
        -64..=63 => 22,
        _ => 44,
    };
    let rounded = (bits & 0x007f_ffff) >= (1 << 23) - up;
    (e + i32::from(rounded) + 125).clamp(0, 254) as u8
}

impl BlockMXFP4 {
    /// The scale, 2^(E - 128); subnormal for E of 0 and 1.
    pub fn scale(&self) -> f32 {
        f32::from_bits(if self.e < 2 { 0x0020_0000 << self.e } else { (u32::from(self.e) - 1) << 23 })
    }

    /// The block's 32 values.
    pub fn decode(&self, out: &mut [f32; 32]) {
        let d = self.scale();
        for (i, &q) in self.qs.iter().enumerate() {
            out[i] = VALUES[(q & 15) as usize] as f32 * d;
            out[i + 16] = VALUES[(q >> 4) as usize] as f32 * d;
        }
    }

    /// The block that a Hugging Face checkpoint keeps in two tensors, the scale apart (`…_scales`, one byte a block) and codes
    /// with neighbours in a byte (`…_blocks`, 16 bytes a block): element 2i in the low nibble of `pairs[i]`, 2i + 1 in the high
    /// one. The byte of the scale is E: 2^(E - 127) of e2m1 is 2^(E - 128) of [`VALUES`].
    pub fn from_pairs(e: u8, pairs: &[u8; 16]) -> Self {
        let code = |i: usize| (pairs[i / 2] >> (4 * (i % 2))) & 15;
        BlockMXFP4 { e, qs: std::array::from_fn(|i| code(i) | code(i + 16) << 4) }
    }

    /// ggml's reference quantiser: the largest magnitude is scaled into 4 to 8 (codes end at 6), every code is the
    /// nearest.
    pub fn encode(x: &[f32; 32]) -> Self {
        let amax = peak(x).abs();
        let mut b = BlockMXFP4 { e: if amax > 0.0 { exponent(amax) } else { 0 }, qs: [0; 16] };
        let d = b.scale();
        b.qs = std::array::from_fn(|i| nearest_code(d, x[i]) | nearest_code(d, x[i + 16]) << 4);
        b
    }
}

/// Up to four blocks: their exponents in a word, then four words of codes each.
fn packed(b: &[u8], w: &mut [u32; 17]) {
    for (i, b) in b.chunks_exact(17).enumerate() {
        w[0] |= u32::from(b[0]) << (8 * i);
        pack::copy_words(&b[1..], &mut w[1 + 4 * i..5 + 4 * i]);
    }
}

/// Decodes a row of blocks.
///
/// # Panics
/// When `block_bytes` is not the 17 bytes per 32 elements of `out`.
pub fn decode(block_bytes: &[u8], out: &mut [f32]) {
    decode_blocks(BlockType::MXFP4, block_bytes, out, BlockMXFP4::decode);
}

/// Encodes a row of blocks.
///
/// # Panics
/// When `out` is not the 17 bytes per 32 elements of `x`.
pub fn encode(x: &[f32], out: &mut [u8]) {
    encode_blocks(BlockType::MXFP4, x, out, BlockMXFP4::encode);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_a_block_with_the_same_values() {
        // e2m1 as the OCP text has it: a sign, two bits of exponent, one of mantissa
        let e2m1 = |code: u8| {
            let (x, m) = (i32::from(code >> 1 & 3), f32::from(code & 1));
            let magnitude = if x == 0 { m * 0.5 } else { (1.0 + m * 0.5) * 2f32.powi(x - 1) };
            if code & 8 == 0 { magnitude } else { -magnitude }
        };
        for e in [100, 120, 127, 131] {
            let pairs: [u8; 16] = std::array::from_fn(|i| (i * 37 + e as usize * 11) as u8);
            let mut found = [0f32; 32];
            BlockMXFP4::from_pairs(e, &pairs).decode(&mut found);
            for (i, found) in found.into_iter().enumerate() {
                let code = if i % 2 == 0 { pairs[i / 2] & 15 } else { pairs[i / 2] >> 4 };
                assert_eq!(found, e2m1(code) * 2f32.powi(i32::from(e) - 127), "element {i}, scale {e}");
            }
        }
    }

    #[test]
    fn the_exponent_is_that_of_a_logarithm_rounded_to_f32() {
        let mut up = 0;
        for e in -125..=127i32 {
            let next = 2f64.powi(e + 1);
            for n in 0..60 {
                // the n-th number below a power of two, and the n-th from the one before
                for x in [next * (1.0 - n as f64 * 2f64.powi(-24)), next / 2.0 * (1.0 + n as f64 * 2f64.powi(-23))] {
                    if x > f64::from(f32::MAX) {
                        continue;
                    }
                    let want = (x.log2() as f32).floor() as i32;
                    assert_eq!(i32::from(exponent(x as f32)), want + 125, "{x:e}");
                    up += i32::from(2f64.powi(want) > x);
                }
            }
        }
        assert!(up > 1000, "{up} numbers whose logarithm is rounded up to an integer");
    }
}
