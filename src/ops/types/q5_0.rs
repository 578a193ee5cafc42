//! Q5_0 in packed words: four blocks of 32 to a group.
//!
//! ```text
//! word of a group   0..2               2..6                        6..22
//!                 +------------------+---------------------------+----------------------------+
//!                 | d of 4 blocks    | fifth bits, a word each   | 16 bytes of nibbles of each|
//!                 +------------------+---------------------------+----------------------------+
//! bit n of byte j of a word of fifth bits belongs to element 4n + j of its block
//! ```

use super::four_blocks::scaled;
use crate::blocks::BlockType;
use crate::ops::exact::f16_to_f32;
use crate::ops::packed::{ActGroup, GROUP, Quantised, Row, Weight};

/// Words of one group.
const WORDS: usize = 22;

/// 32 codes of 5 bits, one f16 scale
pub struct Q5_0;

/// Code 0..=31 of element `e` of the group whose fifth bits start at word `high`; the nibbles follow.
pub(super) fn five_bits(row: &Row, high: usize, e: usize) -> i32 {
    let (b, e) = (e / 32, e % 32);
    let nibble = row.byte(4 * (high + 4 + 4 * b) + e % 16) >> (4 * (e / 16)) & 15;
    let fifth = row.word(high + b) >> (8 * (e % 4) + e / 4) & 1;
    nibble as i32 + 16 * fifth as i32
}

/// Scale of block `b` of 32.
fn scale(row: &Row, b: usize) -> f32 {
    f16_to_f32(row.half(2 * WORDS * (b / 4) + b % 4))
}

/// Code of element `e`, -16 to 15.
fn code(row: &Row, e: usize) -> i32 {
    five_bits(row, WORDS * (e / GROUP) + 2, e % GROUP) - 16
}

impl Weight for Q5_0 {
    const TYPE: BlockType = BlockType::Q5_0;

    fn element(row: &Row, e: usize) -> f32 {
        code(row, e) as f32 * scale(row, e / 32)
    }
}

impl Quantised for Q5_0 {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        scaled(g, a, |b| scale(row, b), |e| code(row, e))
    }
}
