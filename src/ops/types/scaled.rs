//! Types whose group is 32 words of signed codes with integer scales: what the files of these types say of a block, and the
//! value of an element and of a group made of it. PARTS of a group have a float scale each, and of each part equal runs
//! an integer scale each: t = u0 + u1 + ... in order, u = D · v(sum of scale · dot).

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, GROUP, Quantised, Row, Weight};

/// The words of a block, and which of its groups of 128 is meant.
pub(super) struct Block<'a, 'w> {
    row: &'a Row<'w>,
    first: usize,
    /// 0 or 1; 0 where a block is one group, or a group several blocks
    pub(super) half: usize,
}

impl<'a, 'w> Block<'a, 'w> {
    /// Group `g` of a row whose blocks of `elems` elements have `words` words.
    pub(super) fn new(row: &'a Row<'w>, g: usize, elems: usize, words: usize) -> Block<'a, 'w> {
        let groups = elems.div_ceil(GROUP);
        Block { row, first: g / groups * words, half: g % groups }
    }

    /// Word `i`.
    pub(super) fn word(&self, i: usize) -> u32 {
        self.row.word(self.first + i)
    }

    /// Byte `i`, counted from word 0.
    pub(super) fn byte(&self, i: usize) -> u32 {
        self.row.byte(4 * self.first + i).into()
    }

    /// The 16-bit half `i`, counted from word 0, low half first.
    pub(super) fn u16(&self, i: usize) -> u16 {
        self.row.half(2 * self.first + i)
    }
}

/// What a file says of its type.
pub(super) trait Scaled {
    /// which
    const TYPE: BlockType;
    /// words of a packed block, or of a group where that is several blocks
    const WORDS: usize;
    /// parts of a group with a float scale each
    const PARTS: usize = 1;
    /// runs of a group with an integer scale each
    const RUNS: usize = Self::PARTS;

    /// The float scale of part `p` of the group.
    fn d(block: &Block, p: usize) -> f32;

    /// The integer scale of run `j`; 1 where there are none.
    fn scale(_block: &Block, _j: usize) -> i32 {
        1
    }

    /// Word `n` (0..32) of the group: the codes of elements 4n .. 4n + 4, signed bytes.
    fn word(block: &Block, n: usize) -> u32;
}

impl<T: Scaled> Weight for T {
    const TYPE: BlockType = T::TYPE;

    fn element(row: &Row, e: usize) -> f32 {
        let block = Block::new(row, e / GROUP, T::TYPE.elems(), T::WORDS);
        let e = e % GROUP;
        let scale = T::scale(&block, e * T::RUNS / GROUP);
        (T::d(&block, e * T::PARTS / GROUP) * scale as f32) * signed_byte(T::word(&block, e / 4), e) as f32
    }
}

impl<T: Scaled> Quantised for T {
    fn group(row: &Row, g: usize, a: &ActGroup) -> f32 {
        let block = Block::new(row, g, T::TYPE.elems(), T::WORDS);
        let words = std::array::from_fn(|n| T::word(&block, n));
        let u = |p: usize| {
            let runs = p * T::RUNS / T::PARTS..(p + 1) * T::RUNS / T::PARTS;
            let sum = |digit| runs.clone().map(|j| T::scale(&block, j) * dot(&words, T::RUNS, j, a, digit)).sum();
            T::d(&block, p) * a.value(sum)
        };
        let mut t = u(0);
        for p in 1..T::PARTS {
            t += u(p);
        }
        t
    }
}

/// The dot product of run `j` of `runs` with one digit of the activations.
pub(super) fn dot(words: &[u32; 32], runs: usize, j: usize, a: &ActGroup, digit: usize) -> i32 {
    let run = j * GROUP / runs..(j + 1) * GROUP / runs;
    run.map(|e| signed_byte(words[e / 4], e) * a.code(digit, e)).sum()
}

/// Byte `i % 4` of a word.
pub(super) fn signed_byte(word: u32, i: usize) -> i32 {
    (word >> (8 * (i % 4))) as i8 as i32
}

/// The four bytes of a word, each `by` less. Bytes are below 128 and `by` at most 128.
pub(super) fn lowered(word: u32, by: u32) -> u32 {
    (word + (128 - by) * 0x0101_0101) ^ 0x8080_8080
}

/// The values of the low nibbles of four bytes.
pub(super) fn of_nibbles(word: u32, values: &[i8; 16]) -> u32 {
    u32::from_le_bytes(word.to_le_bytes().map(|b| values[(b & 15) as usize] as u8))
}

/// Word `n` of blocks of 32 whose nibbles begin at word `first`: 16 bytes each, low nibbles before high ones.
pub(super) fn nibble_word(block: &Block, first: usize, n: usize, values: &[i8; 16]) -> u32 {
    of_nibbles(block.word(first + 4 * (n / 8) + n % 4) >> (4 * (n % 8 / 4)), values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_lowered_one_by_one() {
        for (word, by) in [(0x0703_0400, 4), (0x0301_0200, 1), (0x1008_0010, 9)] {
            let want: Vec<i32> = (0..4).map(|i| signed_byte(word, i) - by as i32).collect();
            assert_eq!((0..4).map(|i| signed_byte(lowered(word, by), i)).collect::<Vec<_>>(), want);
        }
    }
}
