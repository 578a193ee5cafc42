//! IQ1_S in packed words: two groups of four sub-blocks of 32 to a block.
//!
//! ```text
//! word of a block  0   1..5                                            5..13
//!                +---+-----------------------------------------------+----------------+
//!                | d | high bits of rows, scale, shift: 16 bits each | rows, 32 bytes |
//!                +---+-----------------------------------------------+----------------+
//! ```

use super::scaled::{Block, Scaled};
use crate::blocks::BlockType;
use crate::blocks::grids::{GRID_1, shifted};
use crate::ops::exact::f16_to_f32;

/// 32 rows of eight values out of 2048, eight 3-bit scales and shifts
#[allow(non_camel_case_types, reason = "the field writes IQ1_S")]
pub struct IQ1_S;

impl Scaled for IQ1_S {
    const TYPE: BlockType = BlockType::IQ1_S;
    const WORDS: usize = 13;
    const RUNS: usize = 4;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0)) * 0.125
    }

    fn scale(block: &Block, j: usize) -> i32 {
        2 * (block.u16(2 + 4 * block.half + j) >> 12 & 7) as i32 + 1
    }

    fn word(block: &Block, n: usize) -> u32 {
        let k = 16 * block.half + n / 2;
        let high = u32::from(block.u16(2 + k / 4));
        let row = block.byte(20 + k) | (high >> (3 * (k % 4)) & 7) << 8;
        shifted(GRID_1.words[row as usize][n % 2], high >> 15 == 1)
    }
}
