//! IQ1_M: 32 rows of eight values out of 2048 with a shift each, sixteen 3-bit scales.

use super::{BlockType, Format};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "IQ1_M",
    elems: 256,
    bytes: 56,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[],
    packed: BlockType::IQ1_M,
    piece: 1,
    words: 14,
    pack: |_, _| unimplemented!(),
};
