//! MXFP4: 32 codes of 4 bits (e2m1), one scale that is a power of two.

use super::{BlockType, Format};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "MXFP4",
    elems: 32,
    bytes: 17,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[],
    packed: BlockType::MXFP4,
    piece: 4,
    words: 17,
    pack: |_, _| unimplemented!(),
};
