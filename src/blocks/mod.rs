//! Block layouts of the weight formats: one file per format, each with its decoder and encoder.
//!
//! Layouts and arithmetic are those of the ggml reference (commit and functions in `tests/data/README.md`), byte for byte and bit for bit:
//! every decoder and encoder is plain f32 arithmetic in one written order, so the result does not depend on the
//! machine. A row is a whole number of blocks, packed without padding. Blocks are read from any byte offset: the
//! structs hold wide fields as little-endian byte arrays and so have alignment 1.
//!
//! What the K-quant encoders spend their time in, the search for scales, can be replaced by `simd` through `encode_with`.
//!
//! Nothing here reads files, knows a device or prints. Wrong lengths are a mistake of the caller and panic with both
//! lengths; bytes from a file cannot cause a panic, whatever they hold.

use bytemuck::Pod;

pub mod float;
pub mod q4_0;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod q8_k;
pub mod q8k128;

pub use float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

pub mod pack;

/// The weight formats the engine computes with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types, reason = "the field writes Q8_0, not Q80")]
pub enum BlockType {
    /// IEEE binary32
    F32,
    /// IEEE binary16
    F16,
    /// the upper 16 bits of a binary32
    BF16,
    /// 32 codes of 8 bits, one f16 scale
    Q8_0,
    /// 32 codes of 4 bits, one f16 scale
    Q4_0,
    /// 32 codes of 5 bits, one f16 scale
    Q5_0,
    /// 32 codes of 5 bits, an f16 scale and an f16 minimum
    Q5_1,
    /// 256 codes of 4 bits, eight 6-bit scales and minima
    Q4_K,
    /// 256 codes of 5 bits, eight 6-bit scales and minima
    Q5_K,
    /// 256 codes of 6 bits, sixteen 8-bit scales
    Q6_K,
    /// 256 codes of 8 bits, one f32 scale, sixteen sums
    Q8_K,
    /// 128 codes of 8 bits, one f32 scale, eight sums
    Q8K128,
}

impl BlockType {
    /// Every format, in the order of the enum.
    pub const ALL: [BlockType; 12] = [
        BlockType::F32,
        BlockType::F16,
        BlockType::BF16,
        BlockType::Q8_0,
        BlockType::Q4_0,
        BlockType::Q5_0,
        BlockType::Q5_1,
        BlockType::Q4_K,
        BlockType::Q5_K,
        BlockType::Q6_K,
        BlockType::Q8_K,
        BlockType::Q8K128,
    ];

    /// Elements in one block.
    pub const fn elems(self) -> usize {
        match self {
            BlockType::F32 | BlockType::F16 | BlockType::BF16 => 1,
            BlockType::Q8_0 | BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q5_1 => 32,
            BlockType::Q4_K | BlockType::Q5_K | BlockType::Q6_K | BlockType::Q8_K => 256,
            BlockType::Q8K128 => 128,
        }
    }

    /// Bytes of one block in a file.
    pub const fn bytes(self) -> usize {
        match self {
            BlockType::F32 => 4,
            BlockType::F16 | BlockType::BF16 => 2,
            BlockType::Q8_0 => 34,
            BlockType::Q4_0 => 18,
            BlockType::Q5_0 => 22,
            BlockType::Q5_1 => 24,
            BlockType::Q4_K => 144,
            BlockType::Q5_K => 176,
            BlockType::Q6_K => 210,
            BlockType::Q8_K => 292,
            BlockType::Q8K128 => 148,
        }
    }

    /// The name ggml and its tools use (`Q4_K`), for tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            BlockType::F32 => "F32",
            BlockType::F16 => "F16",
            BlockType::BF16 => "BF16",
            BlockType::Q8_0 => "Q8_0",
            BlockType::Q4_0 => "Q4_0",
            BlockType::Q5_0 => "Q5_0",
            BlockType::Q5_1 => "Q5_1",
            BlockType::Q4_K => "Q4_K",
            BlockType::Q5_K => "Q5_K",
            BlockType::Q6_K => "Q6_K",
            BlockType::Q8_K => "Q8_K",
            BlockType::Q8K128 => "Q8K128",
        }
    }

    /// The type of a name in any case, with or without the underscore before K: `q4_k`, `q4k`, `Q8K128`.
    pub fn parse(name: &str) -> Option<BlockType> {
        let plain = |s: &str| s.to_lowercase().replace('_', "");
        BlockType::ALL.into_iter().find(|t| plain(t.name()) == plain(name))
    }

    /// Bytes of a row of `elems` elements, or `None` when that is not a whole number of blocks (or does not fit
    /// `usize`).
    pub const fn row_bytes(self, elems: usize) -> Option<usize> {
        if elems.is_multiple_of(self.elems()) { (elems / self.elems()).checked_mul(self.bytes()) } else { None }
    }

    /// Decodes whole blocks: `bytes` holds exactly the blocks of `out.len()` elements.
    ///
    /// # Panics
    /// When the two lengths do not belong together.
    pub fn decode_row(self, bytes: &[u8], out: &mut [f32]) {
        self.check_lengths(bytes.len(), out.len());
        match self {
            BlockType::F32 => float::decode_f32(bytes, out),
            BlockType::F16 => float::decode_f16(bytes, out),
            BlockType::BF16 => float::decode_bf16(bytes, out),
            BlockType::Q8_0 => q8_0::decode(bytes, out),
            BlockType::Q4_0 => q4_0::decode(bytes, out),
            BlockType::Q5_0 => q5_0::decode(bytes, out),
            BlockType::Q5_1 => q5_1::decode(bytes, out),
            BlockType::Q4_K => q4_k::decode(bytes, out),
            BlockType::Q5_K => q5_k::decode(bytes, out),
            BlockType::Q6_K => q6_k::decode(bytes, out),
            BlockType::Q8_K => q8_k::decode(bytes, out),
            BlockType::Q8K128 => q8k128::decode(bytes, out),
        }
    }

    /// Encodes whole blocks: `out` has exactly the bytes of `x.len()` elements. Values that are not finite give an
    /// unspecified block, never a panic.
    ///
    /// # Panics
    /// When the two lengths do not belong together.
    pub fn encode_row(self, x: &[f32], out: &mut [u8]) {
        self.check_lengths(out.len(), x.len());
        match self {
            BlockType::F32 => float::encode_f32(x, out),
            BlockType::F16 => float::encode_f16(x, out),
            BlockType::BF16 => float::encode_bf16(x, out),
            BlockType::Q8_0 => q8_0::encode(x, out),
            BlockType::Q4_0 => q4_0::encode(x, out),
            BlockType::Q5_0 => q5_0::encode(x, out),
            BlockType::Q5_1 => q5_1::encode(x, out),
            BlockType::Q4_K => q4_k::encode(x, out),
            BlockType::Q5_K => q5_k::encode(x, out),
            BlockType::Q6_K => q6_k::encode(x, out),
            BlockType::Q8_K => q8_k::encode(x, out),
            BlockType::Q8K128 => q8k128::encode(x, out),
        }
    }

    /// The first block whose scale (or minimum's scale) is NaN or infinite; for F32, F16 and BF16 the first such
    /// element. `None` when all are finite. Takes any number of whole blocks, so a whole tensor at once is fine.
    ///
    /// # Panics
    /// When `bytes` is not a whole number of blocks.
    pub fn find_bad_scale(self, bytes: &[u8]) -> Option<usize> {
        // All bits of the exponent set: infinity or NaN.
        fn bad16(bits: [u8; 2]) -> bool {
            u16::from_le_bytes(bits) & 0x7c00 == 0x7c00
        }
        fn bad32(bits: [u8; 4]) -> bool {
            u32::from_le_bytes(bits) & 0x7f80_0000 == 0x7f80_0000
        }
        fn first<B: Pod>(ty: BlockType, bytes: &[u8], bad: impl Fn(&B) -> bool) -> Option<usize> {
            blocks_of::<B>(ty, bytes).iter().position(bad)
        }
        match self {
            BlockType::F32 => first::<[u8; 4]>(self, bytes, |b| bad32(*b)),
            BlockType::F16 => first::<[u8; 2]>(self, bytes, |b| bad16(*b)),
            BlockType::BF16 => first::<[u8; 2]>(self, bytes, |b| bad32([0, 0, b[0], b[1]])),
            BlockType::Q8_0 => first::<q8_0::BlockQ8_0>(self, bytes, |b| bad16(b.d)),
            BlockType::Q4_0 => first::<q4_0::BlockQ4_0>(self, bytes, |b| bad16(b.d)),
            BlockType::Q5_0 => first::<q5_0::BlockQ5_0>(self, bytes, |b| bad16(b.d)),
            BlockType::Q5_1 => first::<q5_1::BlockQ5_1>(self, bytes, |b| bad16(b.d) || bad16(b.m)),
            BlockType::Q4_K => first::<q4_k::BlockQ4K>(self, bytes, |b| bad16(b.d) || bad16(b.dmin)),
            BlockType::Q5_K => first::<q5_k::BlockQ5K>(self, bytes, |b| bad16(b.d) || bad16(b.dmin)),
            BlockType::Q6_K => first::<q6_k::BlockQ6K>(self, bytes, |b| bad16(b.d)),
            BlockType::Q8_K => first::<q8_k::BlockQ8K>(self, bytes, |b| bad32(b.d)),
            BlockType::Q8K128 => first::<q8k128::BlockQ8K128>(self, bytes, |b| bad32(b.d)),
        }
    }

    fn check_lengths(self, bytes: usize, elems: usize) {
        match self.row_bytes(elems) {
            Some(want) => {
                assert!(bytes == want, "{}: {elems} elements take {want} bytes, the buffer has {bytes}", self.name())
            }
            None => panic!(
                "{}: {elems} elements are not a multiple of {} (the buffer has {bytes} bytes)",
                self.name(),
                self.elems()
            ),
        }
    }
}

/// `bytes` as blocks. `B` has alignment 1, so any offset will do.
fn blocks_of<B: Pod>(ty: BlockType, bytes: &[u8]) -> &[B] {
    const { assert!(align_of::<B>() == 1) };
    assert!(
        size_of::<B>() == ty.bytes() && bytes.len().is_multiple_of(ty.bytes()),
        "{}: {} bytes are not a multiple of {}",
        ty.name(),
        bytes.len(),
        ty.bytes()
    );
    bytemuck::cast_slice(bytes)
}

/// Runs `f` over the blocks of a row and their elements.
fn decode_blocks<B: Pod, const N: usize>(ty: BlockType, bytes: &[u8], out: &mut [f32], f: impl Fn(&B, &mut [f32; N])) {
    ty.check_lengths(bytes.len(), out.len());
    for (b, y) in blocks_of::<B>(ty, bytes).iter().zip(out.as_chunks_mut::<N>().0) {
        f(b, y);
    }
}

/// Stores `f` of every block's elements.
#[inline(always)]
pub(crate) fn encode_blocks<B: Pod, const N: usize>(
    ty: BlockType,
    x: &[f32],
    out: &mut [u8],
    f: impl Fn(&[f32; N]) -> B,
) {
    ty.check_lengths(out.len(), x.len());
    const { assert!(align_of::<B>() == 1) };
    let blocks: &mut [B] = bytemuck::cast_slice_mut(out);
    for (b, x) in blocks.iter_mut().zip(x.as_chunks::<N>().0) {
        *b = f(x);
    }
}

/// 1.5 * 2^23: adding it to a small f32 leaves the nearest integer (half to even) in the low mantissa bits.
const ROUNDER: f32 = 12_582_912.0;

/// The nearest integer, half to even, for |v| <= 4194303; anything else gives some number of that range. The
/// reference rounds with the same addition, and it is much faster than a library call where the CPU has no rounding
/// instruction.
#[inline(always)]
fn nearest_int(v: f32) -> i32 {
    ((v + ROUNDER).to_bits() & 0x007f_ffff) as i32 - 0x0040_0000
}

/// As [`nearest_int`], as a float (never -0).
#[inline(always)]
fn nearest_f32(v: f32) -> f32 {
    (v + ROUNDER) - ROUNDER
}

/// The nearest integer, half away from zero, for |v| < 2^23 (saturating beyond, 0 for NaN).
#[inline(always)]
fn round_away(v: f32) -> i32 {
    let t = v as i32;
    let rest = v - t as f32; // exact
    t.saturating_add((rest >= 0.5) as i32 - (rest <= -0.5) as i32)
}

/// The first element of the largest magnitude (0 for an empty or all-zero slice).
fn peak(x: &[f32]) -> f32 {
    let (mut amax, mut max) = (0.0f32, 0.0f32);
    for &v in x {
        if v.abs() > amax {
            amax = v.abs();
            max = v;
        }
    }
    max
}

/// Sums of 16 consecutive codes, as the 8-bit formats store them.
fn sums_of_16<const N: usize, const S: usize>(qs: &[i8; N]) -> [[u8; 2]; S] {
    const { assert!(S * 16 == N) };
    let mut sums = [[0; 2]; S];
    for (sum, codes) in sums.iter_mut().zip(qs.as_chunks::<16>().0) {
        // at most 16 * 128
        *sum = codes.iter().map(|&q| q as i16).sum::<i16>().to_le_bytes();
    }
    sums
}
