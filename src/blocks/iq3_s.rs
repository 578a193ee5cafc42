//! IQ3_S: 64 rows of four values out of 512, their signs, eight 4-bit scales.

use super::{BlockType, Format, Number, NumberKind};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ3_S",
    elems: 256,
    bytes: 110,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ3_S,
    piece: 1,
    words: 28,
    pack: |_, _| unimplemented!(),
};
