//! Q8K128 in packed words (and Q8_K, which is packed as Q8K128): one block to a group.
//!
//! ```text
//! word of a block   0         1..33
//!                 +---------+--------------------+
//!                 | d, f32  | 128 codes of int8  |
//!                 +---------+--------------------+
//! ```

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, GROUP, Quantised, Row, Weight};

/// Words of one block.
const WORDS: usize = 33;

/// 128 codes of 8 bits, one f32 scale
pub struct Q8K128;

/// Scale of block `g`.
fn scale(row: &Row, g: usize) -> f32 {
    f32::from_bits(row.word(WORDS * g))
}

/// Code of element `e`.
fn code(row: &Row, e: usize) -> i32 {
    row.byte(4 * (WORDS * (e / GROUP) + 1) + e % GROUP) as i8 as i32
}

impl Weight for Q8K128 {
    const TYPE: BlockType = BlockType::Q8K128;

    fn element(row: &Row, e: usize) -> f32 {
        scale(row, e / GROUP) * code(row, e) as f32
    }
}

impl Quantised for Q8K128 {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        let s = |digit| (0..GROUP).map(|e| code(row, GROUP * g + e) * a.code(digit, e)).sum();
        scale(row, g) * a.value(s)
    }
}
