//! Q3_K in packed words: two groups of eight sixteenths to a block.
//!
//! ```text
//! word of a block  0   1..4                 4..12                 12..28
//!                +---+--------------------+---------------------+---------------------+
//!                | d | 12 bytes of scales | high bits, 32 bytes | low pairs, 64 bytes |
//!                +---+--------------------+---------------------+---------------------+
//! ```

use super::scaled::{Block, Scaled, lowered};
use crate::blocks::BlockType;
use crate::ops::exact::f16_to_f32;

/// 256 codes of 3 bits, sixteen 6-bit scales
pub struct Q3K;

impl Scaled for Q3K {
    const TYPE: BlockType = BlockType::Q3_K;
    const WORDS: usize = 28;
    const RUNS: usize = 8;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0))
    }

    fn scale(block: &Block, j: usize) -> i32 {
        let i = 8 * block.half + j;
        let low = block.byte(4 + i % 8) >> (4 * (i / 8)) & 15;
        let high = block.byte(12 + i % 4) >> (2 * (i / 4)) & 3;
        (low | high << 4) as i32 - 32
    }

    fn word(block: &Block, n: usize) -> u32 {
        let pairs = block.word(12 + 8 * block.half + n % 8) >> (2 * (n / 8)) & 0x0303_0303;
        let high = block.word(4 + n % 8) >> (4 * block.half + n / 8) & 0x0101_0101;
        lowered(pairs | high << 2, 4)
    }
}
