//! F32, F16 and BF16 in packed words: elements one after the other, halves two to a word, the first in the low bits.

use crate::blocks::BlockType;
use crate::ops::exact::f16_to_f32;
use crate::ops::packed::{Row, Weight};

/// binary32
pub struct F32;

impl Weight for F32 {
    const TYPE: BlockType = BlockType::F32;

    fn element(row: &Row, e: usize) -> f32 {
        f32::from_bits(row.word(e))
    }
}

/// binary16
pub struct F16;

impl Weight for F16 {
    const TYPE: BlockType = BlockType::F16;

    fn element(row: &Row, e: usize) -> f32 {
        f16_to_f32(row.half(e))
    }
}

/// the upper half of a binary32
pub struct BF16;

impl Weight for BF16 {
    const TYPE: BlockType = BlockType::BF16;

    fn element(row: &Row, e: usize) -> f32 {
        f32::from_bits((row.half(e) as u32) << 16)
    }
}
