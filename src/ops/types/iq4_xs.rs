//! IQ4_XS in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 256 codes of 4 bits into a table of 16 values, eight 6-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ4_XS")]
pub struct IQ4_XS;

impl Weight for IQ4_XS {
    const TYPE: BlockType = BlockType::IQ4_XS;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for IQ4_XS {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
