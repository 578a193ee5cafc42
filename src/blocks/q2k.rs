//! Q2_K: 256 codes of 2 bits, sixteen 4-bit scales and minima.

use super::{BlockType, Format, Number, NumberKind};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "Q2_K",
    elems: 256,
    bytes: 84,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[Number::new(80, NumberKind::F16, "scale d"), Number::new(82, NumberKind::F16, "scale dmin")],
    packed: BlockType::Q2_K,
    piece: 1,
    words: 21,
    pack: |_, _| unimplemented!(),
};
