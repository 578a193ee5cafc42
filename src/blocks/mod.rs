//! Block layouts of the weight formats: one file per format, each with its decoder and encoder.
//!
//! Layouts and arithmetic are those of the ggml reference (see `docs/formats.md`), byte for byte and bit for bit.
//! Nothing here reads files, knows a device or prints.

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
    pub const ALL: [BlockType; 10] = [
        BlockType::F32,
        BlockType::F16,
        BlockType::BF16,
        BlockType::Q8_0,
        BlockType::Q4_0,
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
            BlockType::Q8_0 | BlockType::Q4_0 => 32,
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
            BlockType::Q4_K => "Q4_K",
            BlockType::Q5_K => "Q5_K",
            BlockType::Q6_K => "Q6_K",
            BlockType::Q8_K => "Q8_K",
            BlockType::Q8K128 => "Q8K128",
        }
    }
}
