//! MXFP4 in packed words: four blocks of 32 to a group.
//!
//! ```text
//! word of a group  0               1..17
//!                +---------------+-----------------------------+
//!                | E of 4 blocks | 16 bytes of nibbles of each |
//!                +---------------+-----------------------------+
//! ```

use super::scaled::{Block, Scaled, nibble_word};
use crate::blocks::BlockType;
use crate::blocks::mxfp4::VALUES;

/// 32 codes of 4 bits (e2m1), one scale that is a power of two
pub struct MXFP4;

impl Scaled for MXFP4 {
    const TYPE: BlockType = BlockType::MXFP4;
    const WORDS: usize = 17;
    const PARTS: usize = 4;

    fn d(block: &Block, p: usize) -> f32 {
        // 2^(E - 128), 0 where that is below 2^-50
        match block.byte(p) {
            ..78 => 0.0,
            e => f32::from_bits((e - 1) << 23),
        }
    }

    fn word(block: &Block, n: usize) -> u32 {
        nibble_word(block, 1, n, &VALUES)
    }
}
