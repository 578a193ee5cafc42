//! Codes in the place of rows of a codebook, for CPUs, in packed words (`blocks::wide` has the drawing).

use super::scaled::{Block, Scaled};
use crate::blocks::BlockType;
use crate::blocks::grids::{EIGHTHS, QUARTERS, shifted, signed};
use crate::ops::exact::f16_to_f32;

/// 2s + 1 of nibble `j` from word `first` of a block on.
fn odd(block: &Block, first: usize, j: usize) -> i32 {
    2 * (block.word(first + j / 8) >> (4 * (j % 8)) & 15) as i32 + 1
}

/// The low nibbles of four bytes, or the high ones.
fn nibbles(word: u32, high: usize) -> u32 {
    word >> (4 * high) & 0x0f0f_0f0f
}

/// Values of which the low bits of four codes say the magnitude, and bit `minus` the sign.
fn signed_values(codes: u32, magnitudes: &[i8], minus: usize) -> u32 {
    let codes = codes.to_le_bytes().map(usize::from);
    let word = u32::from_le_bytes(codes.map(|c| magnitudes[c & ((1 << minus) - 1)] as u8));
    signed(word, (0..4).fold(0, |all, i| all | (codes[i] as u32 >> minus & 1) << i))
}

/// IQ1_S, IQ1_M: codes of 2 bits, a shift for eight of them
pub struct Wide1;

impl Scaled for Wide1 {
    const TYPE: BlockType = BlockType::Wide1;
    const WORDS: usize = 20;
    const RUNS: usize = 8;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0)) * 0.125
    }

    fn scale(block: &Block, j: usize) -> i32 {
        odd(block, 1, 8 * block.half + j)
    }

    fn word(block: &Block, n: usize) -> u32 {
        let codes = block.word(4 + 8 * block.half + n % 8) >> (2 * (n / 8)) & 0x0303_0303;
        let up = block.word(3) >> (16 * block.half + n / 2) & 1 == 1;
        // one less in each byte
        shifted((codes + 0x7f7f_7f7f) ^ 0x8080_8080, !up)
    }
}

/// IQ2_XXS, IQ2_XS, IQ2_S: codes of 3 bits into a table of values
pub struct Wide2;

impl Scaled for Wide2 {
    const TYPE: BlockType = BlockType::Wide2;
    const WORDS: usize = 27;
    const RUNS: usize = 8;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0)) * 0.125
    }

    fn scale(block: &Block, j: usize) -> i32 {
        odd(block, 1, 8 * block.half + j)
    }

    fn word(block: &Block, n: usize) -> u32 {
        let word = |i| block.word(3 + 12 * block.half + n / 8 * 3 + i);
        let codes = match n % 8 {
            n @ 0..6 => word(n / 2) >> (4 * (n % 2)) & 0x0707_0707,
            n => (0..3).fold(0, |codes, i| codes | (word(i) >> (4 * (n - 6) + 3) & 0x0101_0101) << i),
        };
        signed_values(codes, &[EIGHTHS[0], EIGHTHS[1], EIGHTHS[2], 0], 2)
    }
}

/// IQ3_XXS: codes of 4 bits into a table of values
pub struct Wide3;

impl Scaled for Wide3 {
    const TYPE: BlockType = BlockType::Wide3;
    const WORDS: usize = 34;
    const RUNS: usize = 4;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0)) * 0.25
    }

    fn scale(block: &Block, j: usize) -> i32 {
        odd(block, 1, 4 * block.half + j)
    }

    fn word(block: &Block, n: usize) -> u32 {
        let word = block.word(2 + 16 * block.half + n / 8 * 4 + n % 4);
        signed_values(nibbles(word, n % 8 / 4), &QUARTERS, 3)
    }
}

/// IQ3_S: codes of 4 bits
pub struct Wide3S;

impl Scaled for Wide3S {
    const TYPE: BlockType = BlockType::Wide3S;
    const WORDS: usize = 34;
    const RUNS: usize = 4;

    fn d(block: &Block, _p: usize) -> f32 {
        f16_to_f32(block.u16(0))
    }

    fn scale(block: &Block, j: usize) -> i32 {
        odd(block, 1, 4 * block.half + j)
    }

    fn word(block: &Block, n: usize) -> u32 {
        let word = block.word(2 + 16 * block.half + n / 8 * 4 + n % 4);
        u32::from_le_bytes(nibbles(word, n % 8 / 4).to_le_bytes().map(|c| (2 * c as i8 - 15) as u8))
    }
}
