//! NVFP4: 64 codes of 4 bits (e2m1), four 8-bit scales.

use super::{BlockType, Format};

/// This type's row of the table.
pub(super) const FORMAT: Format = Format {
    name: "NVFP4",
    elems: 64,
    bytes: 36,
    decode: |_, _| unimplemented!(),
    encode: |_, _| unimplemented!(),
    weighted: None,
    numbers: &[],
    packed: BlockType::NVFP4,
    piece: 2,
    words: 18,
    pack: |_, _| unimplemented!(),
};
