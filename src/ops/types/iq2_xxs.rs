//! IQ2_XXS in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 32 rows of eight values out of 256, their signs, eight 4-bit scales
#[allow(non_camel_case_types, reason = "the field writes IQ2_XXS")]
pub struct IQ2_XXS;

impl Weight for IQ2_XXS {
    const TYPE: BlockType = BlockType::IQ2_XXS;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for IQ2_XXS {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
