//! Q1_0: 128 codes of one bit, one f16 scale.

use super::{BlockType, Format, Number, NumberKind};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q1_0",
    elems: 128,
    bytes: 18,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::Q1_0,
    piece: 1,
    words: 5,
    pack: |_, _| unimplemented!(),
};
