//! IQ3_S in packed words: two groups of four sub-blocks of 32 to a block.
//!
//! ```text
//! word of a block  0   1        2..4                 4..12             12..28
//!                +---+--------+--------------------+-----------------+----------------+
//!                | d | scales | ninth bits of rows | signs, 32 bytes | rows, 64 bytes |
//!                +---+--------+--------------------+-----------------+----------------+
//! ```

use super::scaled::{Block, Scaled};
use crate::blocks::BlockType;
use crate::blocks::grids::{GRID_3S, signed};
use crate::ops::exact::f16_to_f32;

/// 64 rows of four values out of 512, their signs, eight 4-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ3_S")]
pub struct IQ3_S;

impl Scaled for IQ3_S {
    const TYPE: BlockType = BlockType::IQ3_S;
    const WORDS: usize = 28;
    const RUNS: usize = 4;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0))
    }

    fn scale(block: &Block, j: usize) -> i32 {
        let j = 4 * block.half + j;
        2 * (block.byte(4 + j / 2) >> (4 * (j % 2)) & 15) as i32 + 1
    }

    fn word(block: &Block, n: usize) -> u32 {
        let k = 32 * block.half + n;
        let row = block.byte(48 + k) | (block.byte(8 + k / 8) >> (k % 8) & 1) << 8;
        signed(GRID_3S.words[row as usize][0], block.byte(16 + k / 2) >> (4 * (k % 2)))
    }
}
