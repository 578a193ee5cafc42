//! IQ2_S in packed words: two groups of eight sixteenths to a block.
//!
//! ```text
//! word of a block  0   1..3     3..5                5..13            13..21
//!                +---+--------+-------------------+----------------+-----------------+
//!                | d | scales | high bits of rows | rows, 32 bytes | signs, 32 bytes |
//!                +---+--------+-------------------+----------------+-----------------+
//! ```

use super::scaled::{Block, Scaled};
use crate::blocks::BlockType;
use crate::blocks::grids::{GRID_2S, signed};
use crate::ops::exact::f16_to_f32;

/// 32 rows of eight values out of 1024, their signs, sixteen 4-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ2_S")]
pub struct IQ2_S;

impl Scaled for IQ2_S {
    const TYPE: BlockType = BlockType::IQ2_S;
    const WORDS: usize = 21;
    const RUNS: usize = 8;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0)) * 0.125
    }

    fn scale(block: &Block, j: usize) -> i32 {
        let j = 8 * block.half + j;
        2 * (block.byte(4 + j / 2) >> (4 * (j % 2)) & 15) as i32 + 1
    }

    fn word(block: &Block, n: usize) -> u32 {
        let k = 16 * block.half + n / 2;
        let row = block.byte(20 + k) | (block.byte(12 + k / 4) >> (2 * (k % 4)) & 3) << 8;
        signed(GRID_2S.words[row as usize][n % 2], block.byte(52 + k) >> (4 * (n % 2)))
    }
}
