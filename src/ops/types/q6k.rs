//! Q6_K in packed words: two groups of eight sixteenths to a block.
//!
//! ```text
//! word of a block   0     1..5                 5..37                        37..53
//!                 +-----+--------------------+----------------------------+----------------------+
//!                 | d   | 16 scales of int8  | low nibbles, 128 bytes     | high pairs, 64 bytes |
//!                 +-----+--------------------+----------------------------+----------------------+
//! ```

use crate::blocks::BlockType;
use crate::ops::exact::f16_to_f32;
use crate::ops::packed::{ActGroup, GROUP, Quantised, Row, Weight};

/// Words of one block of 256.
const WORDS: usize = 53;

/// 256 codes of 6 bits, sixteen 8-bit scales
pub struct Q6K;

/// Scale of the block that begins at word `block`.
fn d(row: &Row, block: usize) -> f32 {
    f16_to_f32(row.half(2 * block))
}

/// Scale of sixteenth `i` of a block.
fn scale(row: &Row, block: usize, i: usize) -> i32 {
    row.byte(4 * (block + 1) + i) as i8 as i32
}

/// Code of element `e` of a block, -32 to 31.
fn code(row: &Row, block: usize, e: usize) -> i32 {
    let (half, t, l) = (e / GROUP, e % GROUP / 32, e % 32);
    let low = row.byte(4 * (block + 5) + 64 * half + 32 * (t % 2) + l) as i32 >> (4 * (t / 2)) & 15;
    let high = row.byte(4 * (block + 37) + 32 * half + l) as i32 >> (2 * t) & 3;
    low + 16 * high - 32
}

impl Weight for Q6K {
    const TYPE: BlockType = BlockType::Q6_K;

    fn element(row: &Row, e: usize) -> f32 {
        let (block, e) = (e / 256 * WORDS, e % 256);
        (d(row, block) * scale(row, block, e / 16) as f32) * code(row, block, e) as f32
    }
}

impl Quantised for Q6K {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        let (block, half) = (g / 2 * WORDS, g % 2);
        let s = |digit| {
            let mut s = 0;
            for i in 0..8 {
                let codes = 16 * i..16 * i + 16;
                let dot: i32 = codes.map(|e| code(row, block, GROUP * half + e) * a.code(digit, e)).sum();
                s += scale(row, block, 8 * half + i) * dot;
            }
            s
        };
        d(row, block) * a.value(s)
    }
}
