//! Q5_1 in packed words: four blocks of 32 to a group.
//!
//! ```text
//! word of a group   0..4                     4..8                        8..24
//!                 +------------------------+---------------------------+----------------------------+
//!                 | d and m, a word each   | fifth bits, a word each   | 16 bytes of nibbles of each|
//!                 +------------------------+---------------------------+----------------------------+
//! ```

use super::four_blocks::{scale_min, scaled_above};
use super::q5_0::five_bits;
use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, GROUP, Quantised, Row, Weight};

/// Words of one group.
const WORDS: usize = 24;

/// 32 codes of 5 bits, an f16 scale and an f16 minimum
pub struct Q5_1;

/// Code of element `e`, 0 to 31.
fn code(row: &Row, e: usize) -> i32 {
    five_bits(row, WORDS * (e / GROUP) + 4, e % GROUP)
}

impl Weight for Q5_1 {
    const TYPE: BlockType = BlockType::Q5_1;

    fn element(row: &Row, e: usize) -> f32 {
        let (d, m) = scale_min(row, WORDS, e / 32);
        code(row, e) as f32 * d + m
    }
}

impl Quantised for Q5_1 {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        scaled_above(g, a, |b| scale_min(row, WORDS, b), |e| code(row, e))
    }
}
