//! Q2_0: 64 codes of 2 bits, one f16 scale.

use super::{BlockType, Format, Number, NumberKind};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q2_0",
    elems: 64,
    bytes: 18,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[Number::new(0, NumberKind::F16, "scale d")],
    packed: BlockType::Q2_0,
    piece: 2,
    words: 9,
    pack: |_, _| unimplemented!(),
};
