//! IQ4_NL: 32 codes of 4 bits into a table of 16 values, one f16 scale.

use super::{BlockType, Format, Number, NumberKind};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ4_NL",
    elems: 32,
    bytes: 18,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::IQ4_NL,
    piece: 4,
    words: 18,
    pack: |_, _| unimplemented!(),
};
