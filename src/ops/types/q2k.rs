//! Q2_K in packed words: two groups of eight sixteenths to a block.
//!
//! ```text
//! word of a block  0         1..5                            5..21
//!                +---------+-------------------------------+-----------------+
//!                | d, dmin | 16 bytes of scales and minima | codes, 64 bytes |
//!                +---------+-------------------------------+-----------------+
//! ```

use super::scaled::{Block, dot, signed_byte};
use crate::blocks::BlockType;
use crate::ops::exact::f16_to_f32;
use crate::ops::packed::{ActGroup, GROUP, Quantised, Row, Weight};

/// 256 codes of 2 bits, sixteen 4-bit scales and minima
pub struct Q2K;

/// Words of one block of 256.
const WORDS: usize = 21;

/// d and dmin.
fn scales(block: &Block) -> (f32, f32) {
    (f16_to_f32(block.u16(0)), f16_to_f32(block.u16(1)))
}

/// Scale and minimum of sixteenth `j` of the group.
fn scale_min(block: &Block, j: usize) -> (i32, i32) {
    let byte = block.byte(4 + 8 * block.half + j) as i32;
    (byte & 15, byte >> 4)
}

/// Word `n` of codes of the group.
fn word(block: &Block, n: usize) -> u32 {
    block.word(5 + 8 * block.half + n % 8) >> (2 * (n / 8)) & 0x0303_0303
}

impl Weight for Q2K {
    const TYPE: BlockType = BlockType::Q2_K;

    fn element(row: &Row, e: usize) -> f32 {
        let block = Block::new(row, e / GROUP, 256, WORDS);
        let e = e % GROUP;
        let ((d, dmin), (sc, m)) = (scales(&block), scale_min(&block, e / 16));
        (d * sc as f32) * signed_byte(word(&block, e / 4), e) as f32 - dmin * m as f32
    }
}

impl Quantised for Q2K {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        let block = Block::new(row, g, 256, WORDS);
        let words = std::array::from_fn(|n| word(&block, n));
        let s = |digit| (0..8).map(|j| scale_min(&block, j).0 * dot(&words, 8, j, a, digit)).sum();
        let m = |digit| (0..8).map(|j| scale_min(&block, j).1 * a.sum16(digit, j)).sum();
        let (d, dmin) = scales(&block);
        d * a.value(s) - dmin * a.value(m)
    }
}
