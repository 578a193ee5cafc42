//! IQ1_M in packed words: two groups of eight sixteenths to a block.
//!
//! ```text
//! word of a block  0..2                                     2..6                        6..14
//!                +----------------------------------------+---------------------------+----------------+
//!                | scales and a nibble of d, 16 bits each | high bits of rows, shifts | rows, 32 bytes |
//!                +----------------------------------------+---------------------------+----------------+
//! ```

use super::scaled::{Block, Scaled};
use crate::blocks::BlockType;
use crate::blocks::grids::{GRID_1, shifted};
use crate::ops::exact::f16_to_f32;

/// 32 rows of eight values out of 2048 with a shift each, sixteen 3-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ1_M")]
pub struct IQ1_M;

impl Scaled for IQ1_M {
    const TYPE: BlockType = BlockType::IQ1_M;
    const WORDS: usize = 14;
    const RUNS: usize = 8;

    fn d(block: &Block, _p: usize) -> f32 {
        let d = (0..4).fold(0, |d, i| d | block.u16(i) >> 12 << (4 * i));
        f16_to_f32(d) * 0.125
    }

    fn scale(block: &Block, j: usize) -> i32 {
        let j = 8 * block.half + j;
        2 * (block.u16(j / 4) >> (3 * (j % 4)) & 7) as i32 + 1
    }

    fn word(block: &Block, n: usize) -> u32 {
        let k = 16 * block.half + n / 2;
        let high = block.byte(8 + k / 2) >> (4 * (k % 2)) & 15;
        let row = block.byte(24 + k) | (high & 7) << 8;
        shifted(GRID_1.words[row as usize][n % 2], high >> 3 == 1)
    }
}
