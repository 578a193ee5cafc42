//! The weight types: one file per type, with its block layout, decoder, encoder, packing and its row of the table,
//! a [`Format`]. The list at the top of this file is the one place that ties a [`BlockType`] to its row.
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

mod fit;
pub mod float;
mod grid_search;
pub mod grids;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod nvfp4;
pub mod pack;
pub mod q1_0;
pub mod q2_0;
pub mod q2k;
pub mod q3k;
pub mod q4_0;
pub mod q4_1;
pub mod q4k;
pub mod q5_0;
pub mod q5_1;
pub mod q5k;
pub mod q6k;
pub mod q8_0;
pub mod q8k;
pub mod q8k128;
pub mod tq1_0;
pub mod tq2_0;
pub mod w4a16;
pub mod w8a16;
pub mod w8a8;
pub mod wide;

pub use float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

/// Declares the types: the enum, the list of all, and the row of each.
macro_rules! block_types {
    (
        $($(#[$doc:meta])* $variant:ident = $format:path,)*
        ; packed only:
        $($(#[$wide_doc:meta])* $wide:ident = $wide_format:path,)*
    ) => {
        /// The weight types the engine computes with.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        #[allow(non_camel_case_types, reason = "the field writes Q8_0, not Q80")]
        pub enum BlockType {
            $($(#[$doc])* $variant,)*
            $($(#[$wide_doc])* $wide,)*
        }

        impl BlockType {
            /// Every type of weights, in the order of the enum.
            pub const ALL: [BlockType; [$(BlockType::$variant),*].len()] = [$(BlockType::$variant),*];

            /// What some of them may be packed as for a CPU ([`wide`]); no weights are of these types.
            pub const WIDE: [BlockType; [$(BlockType::$wide),*].len()] = [$(BlockType::$wide),*];

            /// What is known of the type.
            pub const fn format(self) -> &'static Format {
                match self {
                    $(BlockType::$variant => &$format,)*
                    $(BlockType::$wide => &$wide_format,)*
                }
            }
        }
    };
}

block_types! {
    /// IEEE binary32
    F32 = float::F32,
    /// IEEE binary16
    F16 = float::F16,
    /// the upper 16 bits of a binary32
    BF16 = float::BF16,
    /// 32 codes of 8 bits, one f16 scale
    Q8_0 = q8_0::FORMAT,
    /// 32 codes of 4 bits, one f16 scale
    Q4_0 = q4_0::FORMAT,
    /// 32 codes of 4 bits, an f16 scale and an f16 minimum
    Q4_1 = q4_1::FORMAT,
    /// 32 codes of 5 bits, one f16 scale
    Q5_0 = q5_0::FORMAT,
    /// 32 codes of 5 bits, an f16 scale and an f16 minimum
    Q5_1 = q5_1::FORMAT,
    /// 256 codes of 4 bits, eight 6-bit scales and minima
    Q4_K = q4k::FORMAT,
    /// 256 codes of 5 bits, eight 6-bit scales and minima
    Q5_K = q5k::FORMAT,
    /// 256 codes of 6 bits, sixteen 8-bit scales
    Q6_K = q6k::FORMAT,
    /// 256 codes of 8 bits, one f32 scale, sixteen sums
    Q8_K = q8k::FORMAT,
    /// 128 codes of 8 bits, one f32 scale, eight sums
    Q8K128 = q8k128::FORMAT,
    /// 256 codes of 2 bits, sixteen 4-bit scales and minima
    Q2_K = q2k::FORMAT,
    /// 256 codes of 3 bits, sixteen 6-bit scales
    Q3_K = q3k::FORMAT,
    /// 32 codes of 4 bits into a table of 16 values, one f16 scale
    IQ4_NL = iq4_nl::FORMAT,
    /// 256 codes of 4 bits into a table of 16 values, eight 6-bit scales
    IQ4_XS = iq4_xs::FORMAT,
    /// 64 rows of four values out of 512, their signs, eight 4-bit scales
    IQ3_S = iq3_s::FORMAT,
    /// 64 rows of four values out of 256, their signs, eight 4-bit scales
    IQ3_XXS = iq3_xxs::FORMAT,
    /// 32 rows of eight values out of 1024, their signs, sixteen 4-bit scales
    IQ2_S = iq2_s::FORMAT,
    /// 32 rows of eight values out of 512, their signs, sixteen 4-bit scales
    IQ2_XS = iq2_xs::FORMAT,
    /// 32 rows of eight values out of 256, their signs, eight 4-bit scales
    IQ2_XXS = iq2_xxs::FORMAT,
    /// 32 rows of eight values out of 2048, eight 3-bit scales and shifts
    IQ1_S = iq1_s::FORMAT,
    /// 32 rows of eight values out of 2048 with a shift each, sixteen 3-bit scales
    IQ1_M = iq1_m::FORMAT,
    /// 256 ternary codes, five to a byte, one f16 scale
    TQ1_0 = tq1_0::FORMAT,
    /// 256 ternary codes of 2 bits, one f16 scale
    TQ2_0 = tq2_0::FORMAT,
    /// 32 codes of 4 bits (e2m1), one scale that is a power of two
    MXFP4 = mxfp4::FORMAT,
    /// 64 codes of 4 bits (e2m1), four 8-bit scales
    NVFP4 = nvfp4::FORMAT,
    /// 128 codes of one bit, one f16 scale
    Q1_0 = q1_0::FORMAT,
    /// 64 codes of 2 bits, one f16 scale
    Q2_0 = q2_0::FORMAT,
    /// 32 codes of 8 bits, an f32 scale and an offset
    W8A16 = w8a16::FORMAT,
    /// 32 codes of 4 bits, an f32 scale and an offset
    W4A16 = w4a16::FORMAT,
    /// rows of codes of 8 bits with one scale, for activations with one scale
    W8A8 = w8a8::FORMAT,
    ; packed only:
    /// IQ1_S, IQ1_M: 256 codes of 2 bits, a shift for eight of them, sixteen 4-bit scales
    Wide1 = wide::WIDE_1,
    /// IQ2_XXS, IQ2_XS, IQ2_S: 256 codes of 3 bits into a table of values, sixteen 4-bit scales
    Wide2 = wide::WIDE_2,
    /// IQ3_XXS: 256 codes of 4 bits into a table of values, eight 4-bit scales
    Wide3 = wide::WIDE_3,
    /// IQ3_S: 256 codes of 4 bits, eight 4-bit scales
    Wide3S = wide::WIDE_3S,
}

/// Encodes one row of whole blocks with an importance for each of its elements.
pub type Weighted = fn(x: &[f32], importances: &[f32], out: &mut [u8]);

/// A weight type: what is known of it but for the arithmetic of kernels, which `ops::types` and `simd` have.
pub struct Format {
    /// the name ggml and its tools use: `Q4_K`
    pub name: &'static str,
    /// elements of a block
    pub elems: usize,
    /// bytes of a block in a file
    pub bytes: usize,
    /// decodes whole blocks
    pub decode: fn(bytes: &[u8], out: &mut [f32]),
    /// encodes whole blocks
    pub encode: fn(x: &[f32], out: &mut [u8]),
    /// encodes one row with an importance for each of its elements; `None`: importances change nothing
    pub weighted: Option<Weighted>,
    /// the numbers of a block that must be finite
    pub numbers: &'static [Number],
    /// the type it is packed as, itself but for Q8_K
    pub packed: BlockType,
    /// blocks that are packed together: whole words of a row come from so many
    pub piece: usize,
    /// words of such a piece
    pub words: usize,
    /// packs up to 32 rows side by side
    pub pack: fn(rows: pack::Rows, out: &mut [u32]) -> Result<(), pack::PackError>,
}

/// A number within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// byte at which it begins
    pub at: usize,
    /// how it is written, little-endian
    pub kind: NumberKind,
    /// what messages call it: `scale d`
    pub what: &'static str,
}

/// How a number of a block is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberKind {
    /// IEEE binary16
    F16,
    /// the upper half of a binary32
    BF16,
    /// IEEE binary32
    F32,
    /// one byte: the exponent of MXFP4, whose codes are the rest of the block. Finite are a byte other than 255 and
    /// with it every weight of the block
    E8M0,
    /// an IEEE binary16 whose nibbles, the lowest first, are the top nibbles of four u16: that of IQ1_M
    TopNibbles,
}

impl Number {
    const fn new(at: usize, kind: NumberKind, what: &'static str) -> Number {
        Number { at, kind, what }
    }

    /// Whether the number of this block is neither infinite nor a NaN: a bit of its exponent is clear.
    #[inline(always)]
    fn is_finite(&self, block: &[u8]) -> bool {
        let half = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        match self.kind {
            NumberKind::F16 => half(self.at) & 0x7c00 != 0x7c00,
            NumberKind::BF16 => half(self.at) & 0x7f80 != 0x7f80,
            NumberKind::F32 => half(self.at + 2) & 0x7f80 != 0x7f80,
            NumberKind::E8M0 => mxfp4::is_finite(block[self.at], &block[self.at + 1..]),
            NumberKind::TopNibbles => top_nibbles(&block[self.at..]) & 0x7c00 != 0x7c00,
        }
    }
}

impl BlockType {
    /// Elements in one block.
    pub const fn elems(self) -> usize {
        self.format().elems
    }

    /// Bytes of one block in a file.
    pub const fn bytes(self) -> usize {
        self.format().bytes
    }

    /// The name ggml and its tools use (`Q4_K`), for tables and messages.
    pub const fn name(self) -> &'static str {
        self.format().name
    }

    /// Whether elements are floats, which meet float activations: F32, F16, BF16.
    pub const fn is_float(self) -> bool {
        self.elems() == 1
    }

    /// Whether a matrix of the type meets activations with one scale for all of a token's row: W8A8.
    pub const fn meets_rows(self) -> bool {
        matches!(self, BlockType::W8A8)
    }

    /// Whether a file may hold tensors of the type as such: those of W8A16, W4A16 and W8A8 are made of several.
    pub const fn is_stored(self) -> bool {
        !matches!(self, BlockType::W8A16 | BlockType::W4A16 | BlockType::W8A8)
    }

    /// The types that have kernels: those that are packed as themselves.
    pub fn with_kernels() -> impl Iterator<Item = BlockType> {
        BlockType::ALL.into_iter().filter(|t| t.format().packed == *t)
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
        (self.format().decode)(bytes, out)
    }

    /// Encodes whole blocks: `out` has exactly the bytes of `x.len()` elements. Values that are not finite give an
    /// unspecified block, never a panic.
    ///
    /// # Panics
    /// When the two lengths do not belong together.
    pub fn encode_row(self, x: &[f32], out: &mut [u8]) {
        self.check_lengths(out.len(), x.len());
        (self.format().encode)(x, out)
    }

    /// Encodes one row with an importance for each of its columns, as ggml does with an importance matrix; a type of which
    /// importances change nothing is encoded without. `importances` are finite and not negative.
    ///
    /// # Panics
    /// When the lengths do not belong together.
    pub fn encode_row_weighted(self, x: &[f32], importances: &[f32], out: &mut [u8]) {
        self.check_lengths(out.len(), x.len());
        assert_eq!(x.len(), importances.len(), "{}: an importance for each element of the row", self.name());
        match self.format().weighted {
            Some(weighted) => weighted(x, importances, out),
            None => (self.format().encode)(x, out),
        }
    }

    /// The first block whose scale (or minimum's scale) is NaN or infinite; for F32, F16 and BF16 the first such
    /// element. `None` when all are finite. Takes any number of whole blocks, so a whole tensor at once is fine.
    ///
    /// # Panics
    /// When `bytes` is not a whole number of blocks.
    pub fn find_bad_scale(self, bytes: &[u8]) -> Option<usize> {
        let f = self.format();
        assert!(
            bytes.len().is_multiple_of(f.bytes),
            "{}: {} bytes are not a multiple of {}",
            f.name,
            bytes.len(),
            f.bytes
        );
        bytes.chunks_exact(f.bytes).position(|b| f.numbers.iter().any(|n| !n.is_finite(b)))
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

/// The f16 whose nibbles, the lowest first, are the top nibbles of the first four u16 of `b`.
#[inline(always)]
fn top_nibbles(b: &[u8]) -> u16 {
    (0..4).fold(0, |bits, i| bits | u16::from(b[2 * i + 1] >> 4) << (4 * i))
}

/// As [`encode_blocks`], with the importances of the elements.
fn encode_weighted<B: Pod, const N: usize>(
    ty: BlockType,
    x: &[f32],
    importances: &[f32],
    out: &mut [u8],
    f: impl Fn(&[f32; N], &[f32; N]) -> B,
) {
    ty.check_lengths(out.len(), x.len());
    const { assert!(align_of::<B>() == 1) };
    let blocks: &mut [B] = bytemuck::cast_slice_mut(out);
    let elements = x.as_chunks::<N>().0.iter().zip(importances.as_chunks::<N>().0);
    for (b, (x, importances)) in blocks.iter_mut().zip(elements) {
        *b = f(x, importances);
    }
}

/// As [`encode_weighted`] for blocks of 32 elements, eight at a time: their scales are searched side by side. Zeros
/// stand in for blocks that a row does not have.
fn encode_eight<B: Pod>(
    ty: BlockType,
    x: &[f32],
    importances: &[f32],
    out: &mut [u8],
    f: impl Fn(&[f32; 256], &[f32; 256]) -> [B; 8],
) {
    ty.check_lengths(out.len(), x.len());
    const { assert!(align_of::<B>() == 1) };
    let blocks: &mut [B] = bytemuck::cast_slice_mut(out);
    let padded = |x: &[f32]| {
        let mut all = [0.0; 256];
        all[..x.len()].copy_from_slice(x);
        all
    };
    let elements = x.chunks(256).zip(importances.chunks(256));
    for (blocks, (x, importances)) in blocks.chunks_mut(8).zip(elements) {
        let found = f(&padded(x), &padded(importances));
        blocks.copy_from_slice(&found[..blocks.len()]);
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

/// The smallest and the largest element, of equals the first: for zeros the one whose sign is kept.
fn range(x: &[f32]) -> (f32, f32) {
    let min = x.iter().fold(f32::MAX, |m, &v| if v < m { v } else { m });
    let max = x.iter().fold(f32::MIN, |m, &v| if v > m { v } else { m });
    (min, max)
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
