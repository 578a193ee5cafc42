//! W8A8 in packed words: groups of 128 codes, with what belongs to the whole row in front of each.
//!
//! ```text
//! word of a group   0         1         2..34
//!                 +---------+---------+----------------------------------+
//!                 | d f32   | b i32   | 128 codes of 8 bits              |
//!                 +---------+---------+----------------------------------+
//! ```
//!
//! Only d and b of the first group are read. The activations' scale is the same in all their blocks (`row_quantize`), so
//! the sum over k is one of integers, and its order is of no account.

use crate::blocks::BlockType;
use crate::blocks::pack::words_per_row;
use crate::ops::exact::i2f;
use crate::ops::linear::LinearParams;
use crate::ops::packed::{ActGroup, GROUP, Row, Weight, groups};

/// Words of one group.
const WORDS: usize = 34;

/// rows of codes of 8 bits with one scale, for activations with one scale
pub struct W8A8;

fn code(row: &Row, e: usize) -> i32 {
    i32::from(row.byte(4 * (WORDS * (e / GROUP) + 2) + e % GROUP) as i8)
}

impl Weight for W8A8 {
    const TYPE: BlockType = BlockType::W8A8;

    fn element(row: &Row, e: usize) -> f32 {
        code(row, e) as f32 * f32::from_bits(row.word(0))
    }
}

/// `w8a8_matvec`: y = ((sum over all of k of codes times activations) + b) · da · d.
///
/// `w` packed rows, `act` `[token][group]` blocks of 37 words in one digit, `y` `[token]` rows `y_stride` apart.
pub fn matvec(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    let k = p.k as usize;
    assert!(p.digits == 1, "digits is {}, expected 1", p.digits);
    let (n, mut words) = (words_per_row(BlockType::W8A8, k), Vec::new());
    for row in 0..p.rows as usize {
        let r = Row::new(w, n, row).gathered(n, &mut words);
        let (d, b) = (f32::from_bits(r.word(0)), r.word(1) as i32);
        for token in 0..p.n_tokens as usize {
            let block = |g| ActGroup::new(act, (token, g), k, 1);
            let sum: i32 = (0..groups(k))
                .map(|g| {
                    let a = block(g);
                    (0..GROUP).map(|e| code(&r, GROUP * g + e) * a.code(0, e)).sum::<i32>()
                })
                .sum();
            let y = &mut y[token * p.y_stride as usize + p.y_offset as usize + row];
            // whoever makes the blocks sees to it that no sum leaves an i32
            *y = p.store(*y, i2f(sum.wrapping_add(b)) * block(0).d() * d);
        }
    }
}
