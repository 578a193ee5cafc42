//! IQ1_S: 32 rows of eight values out of 2048, eight 3-bit scales and shifts.

use super::{BlockType, Format, Number, NumberKind};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ1_S",
    elems: 256,
    bytes: 50,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ1_S,
    piece: 1,
    words: 13,
    pack: |_, _| unimplemented!(),
};
