//! NVFP4 in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 64 codes of 4 bits (e2m1), four 8-bit scales
#[allow(non_camel_case_types, reason = "the field writes NVFP4")]
pub struct NVFP4;

impl Weight for NVFP4 {
    const TYPE: BlockType = BlockType::NVFP4;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for NVFP4 {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
