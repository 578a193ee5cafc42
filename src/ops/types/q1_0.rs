//! Q1_0 in packed words: one block to a group.
//!
//! ```text
//! word of a block  0   1..5
//!                +---+-----------------------------------------------------+
//!                | d | bit n / 4 of byte c of word n % 4: code c of word n |
//!                +---+-----------------------------------------------------+
//! ```

use super::scaled::{Block, Scaled, lowered};
use crate::blocks::BlockType;
use crate::ops::exact::f16_to_f32;

/// 128 codes of one bit, one f16 scale
#[allow(non_camel_case_types, reason = "the field writes Q1_0")]
pub struct Q1_0;

impl Scaled for Q1_0 {
    const TYPE: BlockType = BlockType::Q1_0;
    const WORDS: usize = 5;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0))
    }

    fn word(block: &Block, n: usize) -> u32 {
        lowered((block.word(1 + n % 4) >> (n / 4) & 0x0101_0101) << 1, 1)
    }
}
