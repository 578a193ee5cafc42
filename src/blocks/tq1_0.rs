//! TQ1_0: 256 ternary codes, five to a byte, one f16 scale.

use super::{BlockType, Format, Number, NumberKind};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "TQ1_0",
    elems: 256,
    bytes: 54,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[Number::new(52, NumberKind::F16, "scale d")],
    packed: BlockType::TQ2_0,
    piece: 1,
    words: 17,
    pack: |_, _| unimplemented!(),
};
