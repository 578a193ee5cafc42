//! IQ3_XXS in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 64 rows of four values out of 256, their signs, eight 4-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ3_XXS")]
pub struct IQ3_XXS;

impl Weight for IQ3_XXS {
    const TYPE: BlockType = BlockType::IQ3_XXS;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for IQ3_XXS {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
