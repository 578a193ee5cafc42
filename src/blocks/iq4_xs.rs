//! IQ4_XS: 256 codes of 4 bits into a table of 16 values, eight 6-bit scales.

use super::{BlockType, Format, Number, NumberKind};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ4_XS",
    elems: 256,
    bytes: 136,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ4_XS,
    piece: 1,
    words: 34,
    pack: |_, _| unimplemented!(),
};
