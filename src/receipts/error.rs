//! Why a receipt is not taken, or cannot be checked.

use super::hex::Hex;
use crate::engine;
use crate::formats::FormatError;

/// The version of the format.
pub(super) const VERSION: u32 = 1;

/// What is wrong with a file, or kept something from being done. `Display` gives one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// it is no JSON, or not of the shape it should have
    #[error("this is no receipt: {0}")]
    Shape(String),
    /// it was written by another version
    #[error("the receipt has version {0}, {version} expected: check it with an isobit of its time", version = VERSION)]
    Version(u64),
    /// its content can be read, and is not written as a receipt writes it
    #[error(
        "the receipt was changed: byte {0} is not what a receipt with this content has there (one line, without spaces \
         between fields)"
    )]
    Spelling(usize),
    /// its content is not what was hashed
    #[error("the receipt was changed: its content has the SHA-256 {found}, and it carries {carried}")]
    Changed {
        /// of its content
        found: Hex<32>,
        /// what stands in it
        carried: Hex<32>,
    },
    /// its signature is not of its key over its content
    #[error("the receipt's signature is not of the key {0} over this content: one of the three was changed")]
    Signature(Hex<32>),
    /// it is signed by another than was expected
    #[error("the receipt is signed with the key {found}, {expected} expected")]
    Signer {
        /// its own
        found: Hex<32>,
        /// that of whoever is trusted
        expected: Hex<32>,
    },
    /// it is not signed at all
    #[error("the receipt has no signature, and one of the key {0} is expected")]
    Unsigned(Hex<32>),
    /// what it says cannot be
    #[error("the receipt is not sound: {0}")]
    Unsound(String),
    /// it needs something that this version cannot do
    #[error("the receipt cannot be checked here: {0}")]
    Unsupported(String),
    /// text that is no key
    #[error("this is no key: {0}")]
    Key(String),
    /// a kept run is not what was written
    #[error("this is no run: {0}")]
    Run(String),
    /// the share of a sample
    #[error("a sample of {0}: more than 0 and at most 1 expected")]
    Share(f64),
    /// two models that cannot be compared token by token
    #[error("the other model has {found} tokens in its vocabulary, {expected} expected: token ids are compared")]
    Vocabulary {
        /// the other's
        found: usize,
        /// of the model that made the run
        expected: usize,
    },
    /// reading or writing a file
    #[error("{0}")]
    File(String),
    /// the model, the device, or what is asked of them
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

impl From<FormatError> for Error {
    fn from(e: FormatError) -> Error {
        Error::File(e.to_string())
    }
}
