//! Q8_0 in packed words: four blocks of 32 to a group.
//!
//! ```text
//! word of a group   0..2               2..34
//!                 +------------------+--------------------+
//!                 | d of 4 blocks    | 128 codes of int8  |
//!                 +------------------+--------------------+
//! ```

use super::four_blocks::scaled;
use crate::blocks::BlockType;
use crate::ops::exact::f16_to_f32;
use crate::ops::packed::{ActGroup, GROUP, Quantised, Row, Weight};

/// Words of one group.
const WORDS: usize = 34;

/// 32 codes of 8 bits, one f16 scale
pub struct Q8_0;

/// Scale of block `b` of 32.
fn scale(row: &Row, b: usize) -> f32 {
    f16_to_f32(row.half(2 * WORDS * (b / 4) + b % 4))
}

/// Code of element `e`.
fn code(row: &Row, e: usize) -> i32 {
    row.byte(4 * (WORDS * (e / GROUP) + 2) + e % GROUP) as i8 as i32
}

impl Weight for Q8_0 {
    const TYPE: BlockType = BlockType::Q8_0;

    fn element(row: &Row, e: usize) -> f32 {
        code(row, e) as f32 * scale(row, e / 32)
    }
}

impl Quantised for Q8_0 {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        scaled(g, a, |b| scale(row, b), |e| code(row, e))
    }
}
