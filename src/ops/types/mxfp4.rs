//! MXFP4 in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 32 codes of 4 bits (e2m1), one scale that is a power of two
#[allow(non_camel_case_types, reason = "the field writes MXFP4")]
pub struct MXFP4;

impl Weight for MXFP4 {
    const TYPE: BlockType = BlockType::MXFP4;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for MXFP4 {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
