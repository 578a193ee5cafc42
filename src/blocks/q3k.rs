//! Q3_K: 256 codes of 3 bits, sixteen 6-bit scales.

use super::{BlockType, Format, Number, NumberKind};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q3_K",
    elems: 256,
    bytes: 110,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[Number::new(108, NumberKind::F16, "scale d")],
    packed: BlockType::Q3_K,
    piece: 1,
    words: 28,
    pack: |_, _| unimplemented!(),
};
