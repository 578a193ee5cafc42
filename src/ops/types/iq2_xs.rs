//! IQ2_XS in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 32 rows of eight values out of 512, their signs, sixteen 4-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ2_XS")]
pub struct IQ2_XS;

impl Weight for IQ2_XS {
    const TYPE: BlockType = BlockType::IQ2_XS;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for IQ2_XS {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
