//! TQ2_0 in packed words: two groups to a block.
//!
//! ```text
//! word of a block  0   1..17
//!                +---+-----------------+
//!                | d | codes, 64 bytes |
//!                +---+-----------------+
//! ```

use super::scaled::{Block, Scaled, lowered};
use crate::blocks::BlockType;
use crate::ops::exact::f16_to_f32;

/// 256 ternary codes of 2 bits, one f16 scale (TQ1_0 is packed as it)
#[allow(non_camel_case_types, reason = "the field writes TQ2_0")]
pub struct TQ2_0;

impl Scaled for TQ2_0 {
    const TYPE: BlockType = BlockType::TQ2_0;
    const WORDS: usize = 17;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0))
    }

    fn word(block: &Block, n: usize) -> u32 {
        lowered(block.word(1 + 8 * block.half + n % 8) >> (2 * (n / 8)) & 0x0303_0303, 1)
    }
}
