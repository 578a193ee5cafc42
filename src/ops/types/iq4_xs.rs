//! IQ4_XS in packed words: two groups of four sub-blocks of 32 to a block.
//!
//! ```text
//! word of a block  0                        1                       2..34
//!                +------------------------+-----------------------+---------------------------------------+
//!                | d, high bits of scales | low nibbles of scales | 16 bytes of nibbles of each sub-block |
//!                +------------------------+-----------------------+---------------------------------------+
//! ```

use super::scaled::{Block, Scaled, nibble_word};
use crate::blocks::BlockType;
use crate::blocks::iq4_nl::VALUES;
use crate::ops::exact::f16_to_f32;

/// 256 codes of 4 bits into a table of 16 values, eight 6-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ4_XS")]
pub struct IQ4_XS;

impl Scaled for IQ4_XS {
    const TYPE: BlockType = BlockType::IQ4_XS;
    const WORDS: usize = 34;
    const RUNS: usize = 4;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0))
    }

    fn scale(block: &Block, j: usize) -> i32 {
        let j = 4 * block.half + j;
        let low = block.byte(4 + j / 2) >> (4 * (j % 2)) & 15;
        let high = u32::from(block.u16(1)) >> (2 * j) & 3;
        (low | high << 4) as i32 - 32
    }

    fn word(block: &Block, n: usize) -> u32 {
        nibble_word(block, 2 + 16 * block.half, n, &VALUES)
    }
}
