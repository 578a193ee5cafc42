//! W8A16 in packed words: four blocks of 32 to a group.
//!
//! ```text
//! word of a group   0..4           4               5..37
//!                 +--------------+---------------+----------------------------------+
//!                 | d, each a f32| o, each a byte| 32 codes of 8 bits of each       |
//!                 +--------------+---------------+----------------------------------+
//! ```

use super::four_blocks::scaled;
use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, GROUP, Quantised, Row, Weight};

/// Words of one group.
const WORDS: usize = 37;

/// 32 codes of 8 bits, an f32 scale and an offset
pub struct W8A16;

/// Code of element `e` less its block's offset, -255 to 255.
fn code(row: &Row, e: usize) -> i32 {
    let group = 4 * WORDS * (e / GROUP);
    let byte = |i: usize| i32::from(row.byte(group + i) as i8);
    byte(20 + e % GROUP) - byte(16 + e % GROUP / 32)
}

/// Scale of block `b` of 32 of a row.
fn scale(row: &Row, b: usize) -> f32 {
    f32::from_bits(row.word(WORDS * (b / 4) + b % 4))
}

impl Weight for W8A16 {
    const TYPE: BlockType = BlockType::W8A16;

    fn element(row: &Row, e: usize) -> f32 {
        code(row, e) as f32 * scale(row, e / 32)
    }
}

impl Quantised for W8A16 {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        scaled(g, a, |b| scale(row, b), |e| code(row, e))
    }
}
