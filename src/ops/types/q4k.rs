//! Q4_K in packed words, which are those of the file: two groups of four sub-blocks of 32 to a block.
//!
//! ```text
//! word of a block   0           1..4                    4..36
//!                 +-----------+-----------------------+--------------------------------------+
//!                 | d, dmin   | 12 bytes of scales    | nibbles, 32 bytes to two sub-blocks  |
//!                 +-----------+-----------------------+--------------------------------------+
//! ```

use crate::blocks::BlockType;
use crate::ops::exact::f16_to_f32;
use crate::ops::packed::{ActGroup, GROUP, Quantised, Row, Weight};

/// Words of one block of 256.
const WORDS: usize = 36;

/// 256 codes of 4 bits, eight 6-bit scales and minima
pub struct Q4K;

/// d and dmin of the block that begins at word `block`.
pub(super) fn scales(row: &Row, block: usize) -> (f32, f32) {
    (f16_to_f32(row.half(2 * block)), f16_to_f32(row.half(2 * block + 1)))
}

/// Six-bit scale and minimum of sub-block `j` of the block that begins at word `block` (ggml's `get_scale_min_k4`).
pub(super) fn scale_min(row: &Row, block: usize, j: usize) -> (i32, i32) {
    let b = |i: usize| row.byte(4 * (block + 1) + i) as i32;
    if j < 4 {
        (b(j) & 63, b(j + 4) & 63)
    } else {
        ((b(j + 4) & 15) | ((b(j - 4) >> 6) << 4), (b(j + 4) >> 4) | ((b(j) >> 6) << 4))
    }
}

/// Element `e` of a block of scales and minima, given its code.
pub(super) fn scaled(row: &Row, block: usize, e: usize, code: i32) -> f32 {
    let (d, dmin) = scales(row, block);
    let (sc, m) = scale_min(row, block, e / 32);
    (d * sc as f32) * code as f32 - dmin * m as f32
}

/// t(g) of a block of scales and minima: group `half` of it; `code(e)` is that of element `e` of the block.
pub(super) fn scaled_group(row: &Row, block: usize, half: usize, a: &ActGroup, code: impl Fn(usize) -> i32) -> f32 {
    let (d, dmin) = scales(row, block);
    let s = |digit| {
        let mut s = 0;
        for j in 0..4 {
            let (sc, _) = scale_min(row, block, 4 * half + j);
            let dot: i32 = (32 * j..32 * j + 32).map(|e| code(GROUP * half + e) * a.code(digit, e)).sum();
            s += sc * dot;
        }
        s
    };
    let m = |digit| (0..4).map(|j| scale_min(row, block, 4 * half + j).1 * a.sum32(digit, j)).sum();
    d * a.value(s) - dmin * a.value(m)
}

/// Nibble of element `e` of the block of which nibbles start at word `nibbles`.
pub(super) fn nibble(row: &Row, nibbles: usize, e: usize) -> i32 {
    let byte = row.byte(4 * nibbles + e / 64 * 32 + e % 32) as i32;
    byte >> (4 * (e / 32 % 2)) & 15
}

fn code(row: &Row, block: usize, e: usize) -> i32 {
    nibble(row, block + 4, e)
}

impl Weight for Q4K {
    const TYPE: BlockType = BlockType::Q4_K;

    fn element(row: &Row, e: usize) -> f32 {
        let (block, e) = (e / 256 * WORDS, e % 256);
        scaled(row, block, e, code(row, block, e))
    }
}

impl Quantised for Q4K {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        let block = g / 2 * WORDS;
        scaled_group(row, block, g % 2, a, |e| code(row, block, e))
    }
}
