//! IQ1_S in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 32 rows of eight values out of 2048, eight 3-bit scales and shifts
#[allow(non_camel_case_types, reason = "the field writes IQ1_S")]
pub struct IQ1_S;

impl Weight for IQ1_S {
    const TYPE: BlockType = BlockType::IQ1_S;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for IQ1_S {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
