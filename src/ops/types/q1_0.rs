//! Q1_0 in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 128 codes of one bit, one f16 scale
#[allow(non_camel_case_types, reason = "the field writes Q1_0")]
pub struct Q1_0;

impl Weight for Q1_0 {
    const TYPE: BlockType = BlockType::Q1_0;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for Q1_0 {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
