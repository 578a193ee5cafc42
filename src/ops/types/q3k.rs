//! Q3_K in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 256 codes of 3 bits, sixteen 6-bit scales
#[allow(non_camel_case_types, reason = "the field writes Q3_K")]
pub struct Q3K;

impl Weight for Q3K {
    const TYPE: BlockType = BlockType::Q3_K;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for Q3K {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
