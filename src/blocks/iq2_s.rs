//! IQ2_S: 32 rows of eight values out of 1024, their signs, sixteen 4-bit scales.

use super::{BlockType, Format, Number, NumberKind};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ2_S",
    elems: 256,
    bytes: 82,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ2_S,
    piece: 1,
    words: 21,
    pack: |_, _| unimplemented!(),
};
