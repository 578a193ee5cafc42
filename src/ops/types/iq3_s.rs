//! IQ3_S in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 64 rows of four values out of 512, their signs, eight 4-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ3_S")]
pub struct IQ3_S;

impl Weight for IQ3_S {
    const TYPE: BlockType = BlockType::IQ3_S;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for IQ3_S {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
