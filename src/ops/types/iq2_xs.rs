//! IQ2_XS in packed words: two groups of eight sixteenths to a block.
//!
//! ```text
//! word of a block  0   1..3     3..19
//!                +---+--------+------------------------------+
//!                | d | scales | rows and signs, 16 bits each |
//!                +---+--------+------------------------------+
//! ```

use super::scaled::{Block, Scaled};
use crate::blocks::BlockType;
use crate::blocks::grids::{GRID_2XS, even_signs, signed};
use crate::ops::exact::f16_to_f32;

/// 32 rows of eight values out of 512, their signs, sixteen 4-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ2_XS")]
pub struct IQ2_XS;

impl Scaled for IQ2_XS {
    const TYPE: BlockType = BlockType::IQ2_XS;
    const WORDS: usize = 19;
    const RUNS: usize = 8;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0)) * 0.125
    }

    fn scale(block: &Block, j: usize) -> i32 {
        let j = 8 * block.half + j;
        2 * (block.byte(4 + j / 2) >> (4 * (j % 2)) & 15) as i32 + 1
    }

    fn word(block: &Block, n: usize) -> u32 {
        let q = u32::from(block.u16(6 + 16 * block.half + n / 2));
        signed(GRID_2XS.words[(q & 511) as usize][n % 2], even_signs(q >> 9) >> (4 * (n % 2)))
    }
}
