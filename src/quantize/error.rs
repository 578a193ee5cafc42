//! What is refused because of a choice that its user can change.

/// Each holds the whole line.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// a tensor that is quantised already would be decoded
    #[error("{0}")]
    Requantize(String),
    /// a type that no GGUF file holds
    #[error("{0}")]
    NotInGguf(String),
    /// a tensor that no packed model holds
    #[error("{0}")]
    NotPacked(String),
    /// a packed model has no mixes
    #[error("mixes are for GGUF files; give q8k128, q8k, q6k, q4k or copy, or a policy")]
    Mix,
    /// a tensor would become a type that is useless where nothing says how important its columns are
    #[error("{0}")]
    Importances(String),
    /// a change of the metadata that cannot be made
    #[error("{0}")]
    Override(String),
}
