//! TQ2_0: 256 ternary codes of 2 bits, one f16 scale.

use super::{BlockType, Format, Number, NumberKind};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "TQ2_0",
    elems: 256,
    bytes: 66,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[Number::new(64, NumberKind::F16, "scale d")],
    packed: BlockType::TQ2_0,
    piece: 1,
    words: 17,
    pack: |_, _| unimplemented!(),
};
