//! IQ4_NL in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 32 codes of 4 bits into a table of 16 values, one f16 scale
#[allow(non_camel_case_types, reason = "the field writes IQ4_NL")]
pub struct IQ4_NL;

impl Weight for IQ4_NL {
    const TYPE: BlockType = BlockType::IQ4_NL;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for IQ4_NL {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
