//! What can be wrong with a packed matrix: the faults that `packed` finds and `error` shows.

use std::fmt;

/// Bytes of a header.
pub const HEADER: u64 = 24;
/// The header's version.
pub(super) const VERSION: u32 = 1;

/// What is wrong with a packed matrix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PackedFault {
    /// fewer than 24 bytes
    ShortHeader {
        /// bytes there are
        found: u64,
    },
    /// another magic number
    WrongMagic {
        /// the format's
        expected: u32,
        /// the header's
        found: u32,
    },
    /// another version than 1
    WrongVersion {
        /// the header's
        found: u32,
    },
    /// the header's format code is not the key's
    WrongFormat {
        /// the key's
        expected: u32,
        /// the header's
        found: u32,
    },
    /// no rows, no columns, or a negative number of them
    EmptyShape {
        /// rows
        rows: i64,
        /// columns
        k: i64,
    },
    /// columns are not whole blocks
    RaggedRows {
        /// columns
        k: i64,
        /// elements of a block
        block: usize,
    },
    /// the header's blocks per row are not columns / block
    WrongBlocksPerRow {
        /// columns / block
        expected: u32,
        /// the header's
        found: u32,
    },
    /// more or fewer bytes than the shape asks for
    WrongLength {
        /// bytes the shape asks for
        expected: u64,
        /// bytes there are
        found: u64,
    },
    /// a matrix in several formats
    SeveralFormats {
        /// the keys or files
        found: Vec<String>,
    },
    /// blocks without a `_meta` tensor
    NoMeta,
    /// a `_meta` tensor without blocks
    NoBlocks,
    /// a `_meta` tensor that is not I32 of the right length
    WrongMeta {
        /// `[2]` or `[3]`
        expected: String,
        /// dtype and shape
        found: String,
    },
    /// blocks that are not a vector of U8
    WrongBlob {
        /// dtype and shape
        found: String,
    },
    /// header and `_meta` give different shapes
    ShapesDisagree {
        /// rows, columns of the header
        header: (u32, u32),
        /// rows, columns of `_meta`
        meta: (u32, u32),
    },
    /// the third number of `q8k_meta` is not 24
    WrongHeaderSize {
        /// the number
        found: i32,
    },
    /// a column permutation beside the matrix
    Permuted,
}

impl fmt::Display for PackedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use PackedFault::*;
        match self {
            ShortHeader { found } => write!(f, "header too short: expected {HEADER} bytes, found {found}"),
            WrongMagic { expected, found } => write!(f, "wrong magic: expected {expected:#010x}, found {found:#010x}"),
            WrongVersion { found } => write!(f, "wrong header version: expected {VERSION}, found {found}"),
            WrongFormat { expected, found } => {
                write!(f, "wrong format code in the header: expected {expected:#x}, found {found:#x}")
            }
            EmptyShape { rows, k } => {
                write!(f, "impossible shape: expected at least one row and one column, found {rows} x {k}")
            }
            RaggedRows { k, block } => {
                write!(f, "rows are not whole blocks: expected a multiple of {block} columns, found {k}")
            }
            WrongBlocksPerRow { expected, found } => {
                write!(f, "wrong blocks per row in the header: expected {expected}, found {found}")
            }
            WrongLength { expected, found } => {
                write!(f, "wrong length: expected {expected} bytes for its shape, found {found}")
            }
            SeveralFormats { found } => {
                write!(f, "stored more than once: expected one format, found {}", found.join(", "))
            }
            NoMeta => write!(f, "its _meta tensor is missing: expected rows and columns in I32, found none"),
            NoBlocks => write!(f, "a _meta tensor without blocks: expected both, found one"),
            WrongMeta { expected, found } => {
                write!(f, "wrong _meta tensor: expected I32 of shape {expected}, found {found}")
            }
            WrongBlob { found } => write!(f, "wrong type of blocks: expected a vector of U8, found {found}"),
            ShapesDisagree { header, meta } => write!(
                f,
                "header and _meta disagree: expected one shape, found {} x {} and {} x {}",
                header.0, header.1, meta.0, meta.1
            ),
            WrongHeaderSize { found } => write!(f, "wrong header size in _meta: expected {HEADER}, found {found}"),
            Permuted => write!(
                f,
                "permuted columns are not supported: expected no .perm beside the blocks; pack the model without it"
            ),
        }
    }
}
