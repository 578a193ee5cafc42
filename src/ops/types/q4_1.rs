//! Q4_1 in packed words: four blocks of 32 to a group.
//!
//! ```text
//! word of a group   0..4                     4..20
//!                 +------------------------+----------------------------------+
//!                 | d and m, a word each   | 16 bytes of nibbles of each      |
//!                 +------------------------+----------------------------------+
//! ```

use super::four_blocks::{scale_min, scaled_above};
use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, GROUP, Quantised, Row, Weight};

/// Words of one group.
const WORDS: usize = 20;

/// 32 codes of 4 bits, an f16 scale and an f16 minimum
pub struct Q4_1;

/// Code of element `e`, 0 to 15.
fn code(row: &Row, e: usize) -> i32 {
    let (b, l) = (e % GROUP / 32, e % 32);
    let byte = row.byte(4 * (WORDS * (e / GROUP) + 4) + 16 * b + l % 16);
    (byte >> (4 * (l / 16)) & 15) as i32
}

impl Weight for Q4_1 {
    const TYPE: BlockType = BlockType::Q4_1;

    fn element(row: &Row, e: usize) -> f32 {
        let (d, m) = scale_min(row, WORDS, e / 32);
        code(row, e) as f32 * d + m
    }
}

impl Quantised for Q4_1 {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        scaled_above(g, a, |b| scale_min(row, WORDS, b), |e| code(row, e))
    }
}
