//! What is read of memory by every operation over weights: a row of packed words, a group of activation blocks, and the two
//! things a packed weight type says of itself (`docs/exactness.md` sections 2 to 4).

use crate::blocks::BlockType;
use crate::ops::exact::i2f;

/// Elements of one activation block, and of one step of the sum over k.
pub const GROUP: usize = 128;

/// Rows lying side by side in packed weights.
pub const ROW_BLOCK: usize = 32;

/// Words of one activation block: d, 128 codes of int8, eight int16 sums of 16 codes.
pub const ACT_BLOCK_WORDS: usize = 37;

/// The word of an activation block that the sums of sixteenths begin at, two a word.
pub const ACT_SUMS: usize = 33;

/// Groups of 128 in a row of `k` elements, the last one perhaps short.
pub const fn groups(k: usize) -> usize {
    k.div_ceil(GROUP)
}

/// Groups in one segment of the sum over `k`: at most eight segments, a function of `k` alone.
pub const fn seg_groups(k: usize) -> usize {
    groups(k).div_ceil(8)
}

/// Words of one token's quantised activations.
pub const fn act_words(k: usize, digits: usize) -> usize {
    groups(k) * digits * ACT_BLOCK_WORDS
}

/// A packed weight type.
pub trait Weight {
    /// which
    const TYPE: BlockType;

    /// Element `e` of a row, with the arithmetic of the type's decoder in `blocks`.
    fn element(row: &Row, e: usize) -> f32;
}

/// A weight type whose codes meet quantised activations.
pub trait Quantised: Weight {
    /// t(g): the f32 value of group `g` of 128 elements of a row, times the activations `a` without their scale.
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32;
}

/// One row of a packed matrix: its words are every so many of a slice.
pub struct Row<'a> {
    words: &'a [u32],
    stride: usize,
}

impl<'a> Row<'a> {
    /// Row `row` of a matrix of packed rows, where it lies: its word i is `w[((row/32) * words_per_row + i) * 32 + row%32]`.
    pub fn new(w: &'a [u32], words_per_row: usize, row: usize) -> Row<'a> {
        Row { words: &w[row / ROW_BLOCK * words_per_row * ROW_BLOCK + row % ROW_BLOCK..], stride: ROW_BLOCK }
    }

    /// The same row with its words one after the other in `copy`, for who reads it many times.
    pub fn gathered<'b>(&self, words_per_row: usize, copy: &'b mut Vec<u32>) -> Row<'b> {
        copy.clear();
        copy.extend(self.words.iter().step_by(self.stride).take(words_per_row));
        Row { words: copy, stride: 1 }
    }

    /// Word `i`.
    pub fn word(&self, i: usize) -> u32 {
        self.words[i * self.stride]
    }

    /// Byte `i`, counted from word 0.
    pub fn byte(&self, i: usize) -> u8 {
        (self.word(i / 4) >> (8 * (i % 4))) as u8
    }

    /// The 16-bit half `i`, counted from word 0, low half first.
    pub fn half(&self, i: usize) -> u16 {
        (self.word(i / 2) >> (16 * (i % 2))) as u16
    }
}

/// The activation blocks of one token and one group: one per digit, the low digit first.
pub struct ActGroup<'a> {
    blocks: &'a [[u32; ACT_BLOCK_WORDS]],
}

impl<'a> ActGroup<'a> {
    /// Group `g` of token `token` of `act`, blocks of `k` elements in one or two digits.
    pub fn new(act: &'a [u32], (token, g): (usize, usize), k: usize, digits: usize) -> ActGroup<'a> {
        let at = token * act_words(k, digits) + g * digits * ACT_BLOCK_WORDS;
        ActGroup { blocks: act[at..at + digits * ACT_BLOCK_WORDS].as_chunks().0 }
    }

    /// The scale, the same for every digit.
    pub fn d(&self) -> f32 {
        f32::from_bits(self.blocks[0][0])
    }

    /// Code of element `e` of the group.
    pub fn code(&self, digit: usize, e: usize) -> i32 {
        let codes: &[i8] = bytemuck::cast_slice(&self.blocks[digit][1..ACT_SUMS]);
        codes[e].into()
    }

    /// Sum of the codes of sixteenth `i` (elements 16i..16i+16).
    pub fn sum16(&self, digit: usize, i: usize) -> i32 {
        let sums: &[i16] = bytemuck::cast_slice(&self.blocks[digit][ACT_SUMS..]);
        sums[i].into()
    }

    /// Sum of the codes of quarter `b` (elements 32b..32b+32).
    pub fn sum32(&self, digit: usize, b: usize) -> i32 {
        self.sum16(digit, 2 * b) + self.sum16(digit, 2 * b + 1)
    }

    /// v(S): the value of an integer sum given for each digit.
    pub fn value(&self, sum: impl Fn(usize) -> i32) -> f32 {
        match self.blocks.len() {
            1 => i2f(sum(0)),
            _ => i2f(sum(1)) * 128.0 + i2f(sum(0)),
        }
    }
}
