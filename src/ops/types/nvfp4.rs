//! NVFP4 in packed words: two blocks of four sub-blocks of 16 to a group.
//!
//! ```text
//! word of a group  0..2                     2..18
//!                +------------------------+----------------------------+
//!                | scales of 8 sub-blocks | 8 bytes of nibbles of each |
//!                +------------------------+----------------------------+
//! ```

use super::scaled::{Block, Scaled, of_nibbles};
use crate::blocks::BlockType;
use crate::blocks::mxfp4::VALUES;

/// 64 codes of 4 bits (e2m1), four 8-bit scales
pub struct NVFP4;

/// The scale of a byte: four bits of exponent and three of mantissa, of twice what e4m3 says the half. 7f, its NaN, is 0.
fn scale(byte: u32) -> f32 {
    let (x, m) = (byte >> 3 & 15, byte & 7);
    let units = match x {
        _ if byte == 0x7f => 0,
        0 => m,
        x => (8 + m) << (x - 1),
    };
    units as f32 * (1.0 / 1024.0)
}

impl Scaled for NVFP4 {
    const TYPE: BlockType = BlockType::NVFP4;
    const WORDS: usize = 18;
    const PARTS: usize = 8;

    fn d(block: &Block, p: usize) -> f32 {
        scale(block.byte(p))
    }

    fn word(block: &Block, n: usize) -> u32 {
        of_nibbles(block.word(2 + 2 * (n / 4) + n % 2) >> (4 * (n % 4 / 2)), &VALUES)
    }
}
