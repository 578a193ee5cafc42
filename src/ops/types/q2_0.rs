//! Q2_0 in packed words: two blocks of 64 to a group.
//!
//! ```text
//! word of a group  0               1..9
//!                +---------------+----------------------------------------------------------------------------------+
//!                | d of 2 blocks | bits 2i of byte c of word n % 4 of 4: code c of word n = 4i + n % 4 of the block |
//!                +---------------+----------------------------------------------------------------------------------+
//! ```

use super::scaled::{Block, Scaled, lowered};
use crate::blocks::BlockType;
use crate::ops::exact::f16_to_f32;

/// 64 codes of 2 bits, one f16 scale
#[allow(non_camel_case_types, reason = "the field writes Q2_0")]
pub struct Q2_0;

impl Scaled for Q2_0 {
    const TYPE: BlockType = BlockType::Q2_0;
    const WORDS: usize = 9;
    const PARTS: usize = 2;

    fn d(block: &Block, p: usize) -> f32 {
        f16_to_f32(block.u16(p))
    }

    fn word(block: &Block, n: usize) -> u32 {
        lowered(block.word(1 + 4 * (n / 16) + n % 4) >> (2 * (n % 16 / 4)) & 0x0303_0303, 1)
    }
}
