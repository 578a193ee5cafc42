//! IQ2_XXS in packed words: two groups of four sub-blocks of 32 to a block.
//!
//! ```text
//! word of a block  0   1..17
//!                +---+---------------------------------------------------------+
//!                | d | four rows; signs and scale: two words of each sub-block |
//!                +---+---------------------------------------------------------+
//! ```

use super::scaled::{Block, Scaled};
use crate::blocks::BlockType;
use crate::blocks::grids::{GRID_2XXS, even_signs, signed};
use crate::ops::exact::f16_to_f32;

/// 32 rows of eight values out of 256, their signs, eight 4-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ2_XXS")]
pub struct IQ2_XXS;

impl Scaled for IQ2_XXS {
    const TYPE: BlockType = BlockType::IQ2_XXS;
    const WORDS: usize = 17;
    const RUNS: usize = 4;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0)) * 0.125
    }

    fn scale(block: &Block, j: usize) -> i32 {
        2 * (block.word(2 + 2 * (4 * block.half + j)) >> 28) as i32 + 1
    }

    fn word(block: &Block, n: usize) -> u32 {
        let (j, l) = (4 * block.half + n / 8, n % 8 / 2);
        let minus = even_signs(block.word(2 + 2 * j) >> (7 * l) & 127);
        signed(GRID_2XXS.words[block.byte(4 + 8 * j + l) as usize][n % 2], minus >> (4 * (n % 2)))
    }
}
