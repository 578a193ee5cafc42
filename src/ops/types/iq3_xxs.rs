//! IQ3_XXS in packed words: two groups of four sub-blocks of 32 to a block.
//!
//! ```text
//! word of a block  0   1..9                                9..25
//!                +---+-----------------------------------+----------------+
//!                | d | signs and scale of each sub-block | rows, 64 bytes |
//!                +---+-----------------------------------+----------------+
//! ```

use super::scaled::{Block, Scaled};
use crate::blocks::BlockType;
use crate::blocks::grids::{GRID_3XXS, even_signs, signed};
use crate::ops::exact::f16_to_f32;

/// 64 rows of four values out of 256, their signs, eight 4-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ3_XXS")]
pub struct IQ3_XXS;

impl Scaled for IQ3_XXS {
    const TYPE: BlockType = BlockType::IQ3_XXS;
    const WORDS: usize = 25;
    const RUNS: usize = 4;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0)) * 0.25
    }

    fn scale(block: &Block, j: usize) -> i32 {
        2 * (block.word(1 + 4 * block.half + j) >> 28) as i32 + 1
    }

    fn word(block: &Block, n: usize) -> u32 {
        let k = 32 * block.half + n;
        let minus = even_signs(block.word(1 + k / 8) >> (7 * (k % 8 / 2)) & 127);
        signed(GRID_3XXS.words[block.byte(36 + k) as usize][0], minus >> (4 * (k % 2)))
    }
}
