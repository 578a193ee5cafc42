//! Element types of tensors as files name them: every ggml type and every safetensors dtype, with its size.
//!
//! A type that is known here can be listed, sized and copied. Only those with a [`BlockType`] can be computed with.
//! Ids and sizes are those of ggml's type table and of the safetensors format text. Two ids are young and worth a
//! word: 41 (Q1_0) is 128 one-bit codes with one f16 scale, 42 (Q2_0) is 64 two-bit codes with one f16 scale. A fork
//! uses id 42 with blocks of 128; its files break the rule of consecutive offsets and are refused for that.

use crate::blocks::BlockType;
use std::fmt;

struct Info {
    name: &'static str,
    /// ggml type id, or [`NO_ID`]
    id: u32,
    /// elements of a block
    elems: u64,
    /// bytes of a block
    bytes: u64,
    block: Option<BlockType>,
}

const NO_ID: u32 = u32::MAX;

const fn row(name: &'static str, id: u32, elems: u64, bytes: u64, block: Option<BlockType>) -> Info {
    Info { name, id, elems, bytes, block }
}

static TABLE: [Info; 53] = [
    row("F32", 0, 1, 4, Some(BlockType::F32)),
    row("F16", 1, 1, 2, Some(BlockType::F16)),
    row("Q4_0", 2, 32, 18, Some(BlockType::Q4_0)),
    row("Q4_1", 3, 32, 20, Some(BlockType::Q4_1)),
    row("Q5_0", 6, 32, 22, Some(BlockType::Q5_0)),
    row("Q5_1", 7, 32, 24, Some(BlockType::Q5_1)),
    row("Q8_0", 8, 32, 34, Some(BlockType::Q8_0)),
    row("Q8_1", 9, 32, 36, None),
    row("Q2_K", 10, 256, 84, Some(BlockType::Q2_K)),
    row("Q3_K", 11, 256, 110, Some(BlockType::Q3_K)),
    row("Q4_K", 12, 256, 144, Some(BlockType::Q4_K)),
    row("Q5_K", 13, 256, 176, Some(BlockType::Q5_K)),
    row("Q6_K", 14, 256, 210, Some(BlockType::Q6_K)),
    row("Q8_K", 15, 256, 292, Some(BlockType::Q8_K)),
    row("IQ2_XXS", 16, 256, 66, Some(BlockType::IQ2_XXS)),
    row("IQ2_XS", 17, 256, 74, Some(BlockType::IQ2_XS)),
    row("IQ3_XXS", 18, 256, 98, Some(BlockType::IQ3_XXS)),
    row("IQ1_S", 19, 256, 50, Some(BlockType::IQ1_S)),
    row("IQ4_NL", 20, 32, 18, Some(BlockType::IQ4_NL)),
    row("IQ3_S", 21, 256, 110, Some(BlockType::IQ3_S)),
    row("IQ2_S", 22, 256, 82, Some(BlockType::IQ2_S)),
    row("IQ4_XS", 23, 256, 136, Some(BlockType::IQ4_XS)),
    row("I8", 24, 1, 1, None),
    row("I16", 25, 1, 2, None),
    row("I32", 26, 1, 4, None),
    row("I64", 27, 1, 8, None),
    row("F64", 28, 1, 8, None),
    row("IQ1_M", 29, 256, 56, Some(BlockType::IQ1_M)),
    row("BF16", 30, 1, 2, Some(BlockType::BF16)),
    row("TQ1_0", 34, 256, 54, Some(BlockType::TQ1_0)),
    row("TQ2_0", 35, 256, 66, Some(BlockType::TQ2_0)),
    row("MXFP4", 39, 32, 17, Some(BlockType::MXFP4)),
    row("NVFP4", 40, 64, 36, Some(BlockType::NVFP4)),
    row("Q1_0", 41, 128, 18, Some(BlockType::Q1_0)),
    row("Q2_0", 42, 64, 18, Some(BlockType::Q2_0)),
    // safetensors only
    row("BOOL", NO_ID, 1, 1, None),
    row("F4", NO_ID, 2, 1, None),
    row("F6_E2M3", NO_ID, 4, 3, None),
    row("F6_E3M2", NO_ID, 4, 3, None),
    row("U8", NO_ID, 1, 1, None),
    row("F8_E5M2", NO_ID, 1, 1, None),
    row("F8_E4M3", NO_ID, 1, 1, None),
    row("F8_E8M0", NO_ID, 1, 1, None),
    row("F8_E4M3FNUZ", NO_ID, 1, 1, None),
    row("F8_E5M2FNUZ", NO_ID, 1, 1, None),
    row("U16", NO_ID, 1, 2, None),
    row("U32", NO_ID, 1, 4, None),
    row("C64", NO_ID, 1, 8, None),
    row("U64", NO_ID, 1, 8, None),
    row("Q8K128", NO_ID, 128, 148, Some(BlockType::Q8K128)),
    // made of several tensors of a file
    row("W8A16", NO_ID, 32, 37, Some(BlockType::W8A16)),
    row("W4A16", NO_ID, 32, 21, Some(BlockType::W4A16)),
    row("W8A8", NO_ID, 32, 44, Some(BlockType::W8A8)),
];

/// The element type of a tensor in a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dtype(u8);

impl Dtype {
    /// IEEE binary32, the type most often asked for by name.
    pub const F32: Dtype = Dtype(0);

    fn find(test: impl Fn(&Info) -> bool) -> Option<Dtype> {
        TABLE.iter().position(test).map(|i| Dtype(i as u8))
    }

    fn info(self) -> &'static Info {
        &TABLE[usize::from(self.0)]
    }

    /// Every type known here, GGUF's first, in the order of their ids.
    pub fn all() -> impl Iterator<Item = Dtype> {
        (0..TABLE.len()).map(|i| Dtype(i as u8))
    }

    /// The type with this ggml id; `None` for removed and unknown ids.
    pub fn from_ggml(id: u32) -> Option<Dtype> {
        if id == NO_ID {
            return None;
        }
        Dtype::find(|t| t.id == id)
    }

    /// The type of this name, exactly as [`Dtype::name`] spells it.
    pub fn from_name(name: &str) -> Option<Dtype> {
        Dtype::find(|t| t.name == name)
    }

    /// The type a block format is stored as.
    pub fn from_block(block: BlockType) -> Option<Dtype> {
        Dtype::find(|t| t.block == Some(block))
    }

    /// The name ggml or safetensors uses: `Q4_K`, `F16`, `BOOL`.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The format the engine computes with, `None` when it cannot.
    pub fn block(self) -> Option<BlockType> {
        self.info().block
    }

    /// ggml's id, `None` for types that only safetensors has.
    pub fn ggml_id(self) -> Option<u32> {
        let id = self.info().id;
        (id != NO_ID).then_some(id)
    }

    /// Elements of one block (1 for plain types; 2 and 4 for the sub-byte floats of safetensors).
    pub fn block_elems(self) -> u64 {
        self.info().elems
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> u64 {
        self.info().bytes
    }

    /// Bytes of `elems` elements; `None` when that is not a whole number of blocks or does not fit.
    pub fn bytes_for(self, elems: u64) -> Option<u64> {
        let info = self.info();
        if !elems.is_multiple_of(info.elems) {
            return None;
        }
        (elems / info.elems).checked_mul(info.bytes)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a ggml type id that once existed, so that a message can say so.
pub(super) fn removed_ggml(id: u32) -> Option<&'static str> {
    Some(match id {
        4 => "Q4_2",
        5 => "Q4_3",
        31 => "Q4_0_4_4",
        32 => "Q4_0_4_8",
        33 => "Q4_0_8_8",
        36 => "IQ4_NL_4_4",
        37 => "IQ4_NL_4_8",
        38 => "IQ4_NL_8_8",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_agree_with_the_block_layouts() {
        for block in BlockType::ALL {
            let dtype = Dtype::from_block(block).expect("every block format has a type");
            assert_eq!(dtype.name(), block.name());
            assert_eq!(dtype.block_elems(), block.elems() as u64, "{dtype}");
            assert_eq!(dtype.block_bytes(), block.bytes() as u64, "{dtype}");
        }
    }

    #[test]
    fn names_and_ids_are_unique_and_removed_ids_are_unknown() {
        for a in Dtype::all() {
            assert_eq!(Dtype::from_name(a.name()), Some(a));
            if let Some(id) = a.ggml_id() {
                assert_eq!(Dtype::from_ggml(id), Some(a));
                assert_eq!(removed_ggml(id), None);
            }
        }
        let known: Vec<u32> = (0..50).filter(|&i| Dtype::from_ggml(i).is_some()).collect();
        let gone = [4, 5, 31, 32, 33, 36, 37, 38];
        let expected: Vec<u32> = (0..=42).filter(|i| !gone.contains(i)).collect();
        assert_eq!(known, expected);
        assert!(gone.iter().all(|&i| removed_ggml(i).is_some()));
        assert_eq!(Dtype::from_ggml(u32::MAX), None);
    }

    #[test]
    fn part_of_a_block_has_no_size() {
        let q4k = Dtype::from_name("Q4_K").unwrap();
        assert_eq!(q4k.bytes_for(512), Some(288));
        assert_eq!(q4k.bytes_for(100), None);
        assert_eq!(Dtype::F32.bytes_for(u64::MAX / 2), None);
        assert_eq!(Dtype::from_name("F4").unwrap().bytes_for(3), None);
    }
}
