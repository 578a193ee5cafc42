//! Q5_K in packed words, which are those of the file: Q4_K with a fifth bit.
//!
//! ```text
//! word of a block   0           1..4                    4..12                      12..44
//!                 +-----------+-----------------------+--------------------------+-----------+
//!                 | d, dmin   | 12 bytes of scales    | fifth bits, 32 bytes     | nibbles   |
//!                 +-----------+-----------------------+--------------------------+-----------+
//! bit j of byte l of the fifth bits belongs to element 32j + l
//! ```

use super::q4k::{nibble, scaled, scaled_group};
use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// Words of one block of 256.
const WORDS: usize = 44;

/// 256 codes of 5 bits, eight 6-bit scales and minima
pub struct Q5K;

fn code(row: &Row, block: usize, e: usize) -> i32 {
    let fifth = row.byte(4 * (block + 4) + e % 32) as i32 >> (e / 32) & 1;
    nibble(row, block + 12, e) + 16 * fifth
}

impl Weight for Q5K {
    const TYPE: BlockType = BlockType::Q5_K;

    fn element(row: &Row, e: usize) -> f32 {
        let (block, e) = (e / 256 * WORDS, e % 256);
        scaled(row, block, e, code(row, block, e))
    }
}

impl Quantised for Q5K {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        let block = g / 2 * WORDS;
        scaled_group(row, block, g % 2, a, |e| code(row, block, e))
    }
}
