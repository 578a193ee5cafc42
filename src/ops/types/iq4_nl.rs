//! IQ4_NL in packed words: four blocks of 32 to a group, as Q4_0 has them.
//!
//! ```text
//! word of a group  0..2            2..18
//!                +---------------+-----------------------------+
//!                | d of 4 blocks | 16 bytes of nibbles of each |
//!                +---------------+-----------------------------+
//! ```

use super::scaled::{Block, Scaled, nibble_word};
use crate::blocks::BlockType;
use crate::blocks::iq4_nl::VALUES;
use crate::ops::exact::f16_to_f32;

/// 32 codes of 4 bits into a table of 16 values, one f16 scale
#[allow(non_camel_case_types, reason = "the field writes IQ4_NL")]
pub struct IQ4_NL;

impl Scaled for IQ4_NL {
    const TYPE: BlockType = BlockType::IQ4_NL;
    const WORDS: usize = 18;
    const PARTS: usize = 4;

    fn d(block: &Block, p: usize) -> f32 {
        f16_to_f32(block.u16(p))
    }

    fn word(block: &Block, n: usize) -> u32 {
        nibble_word(block, 2, n, &VALUES)
    }
}
