//! Q2_K in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 256 codes of 2 bits, sixteen 4-bit scales and minima
#[allow(non_camel_case_types, reason = "the field writes Q2_K")]
pub struct Q2K;

impl Weight for Q2K {
    const TYPE: BlockType = BlockType::Q2_K;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for Q2K {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
