//! W4A16 in packed words: four blocks of 32 to a group.
//!
//! ```text
//! word of a group   0..4           4               5..21
//!                 +--------------+---------------+----------------------------------+
//!                 | d, each a f32| o, each a byte| 16 bytes of nibbles of each      |
//!                 +--------------+---------------+----------------------------------+
//! ```

use super::four_blocks::scaled;
use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, GROUP, Quantised, Row, Weight};

/// Words of one group.
const WORDS: usize = 21;

/// 32 codes of 4 bits, an f32 scale and an offset
pub struct W4A16;

/// Code of element `e` less its block's offset, -127 to 143.
fn code(row: &Row, e: usize) -> i32 {
    let (group, b, l) = (4 * WORDS * (e / GROUP), e % GROUP / 32, e % 32);
    let nibble = row.byte(group + 20 + 16 * b + l % 16) >> (4 * (l / 16)) & 15;
    i32::from(nibble) - i32::from(row.byte(group + 16 + b) as i8)
}

/// Scale of block `b` of 32 of a row.
fn scale(row: &Row, b: usize) -> f32 {
    f32::from_bits(row.word(WORDS * (b / 4) + b % 4))
}

impl Weight for W4A16 {
    const TYPE: BlockType = BlockType::W4A16;

    fn element(row: &Row, e: usize) -> f32 {
        code(row, e) as f32 * scale(row, e / 32)
    }
}

impl Quantised for W4A16 {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        scaled(g, a, |b| scale(row, b), |e| code(row, e))
    }
}
