//! IQ1_M in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 32 rows of eight values out of 2048 with a shift each, sixteen 3-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ1_M")]
pub struct IQ1_M;

impl Weight for IQ1_M {
    const TYPE: BlockType = BlockType::IQ1_M;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for IQ1_M {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
