//! TQ2_0 in packed words.

use crate::blocks::BlockType;
use crate::ops::packed::{ActGroup, Quantised, Row, Weight};

/// 256 ternary codes of 2 bits, one f16 scale
#[allow(non_camel_case_types, reason = "the field writes TQ2_0")]
pub struct TQ2_0;

impl Weight for TQ2_0 {
    const TYPE: BlockType = BlockType::TQ2_0;

    fn element(_row: &Row, _e: usize) -> f32 {
        unimplemented!()
    }
}

impl Quantised for TQ2_0 {
    fn group(_row: &Row, _g: usize, _a: &ActGroup) -> f32 {
        unimplemented!()
    }
}
