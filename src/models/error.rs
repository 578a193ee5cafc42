//! Why no plan can be made: options that the model or the device does not allow.
//!
//! The sentences say what to change, not how a program that has a command line calls it: whoever reads the type says that.

use crate::ops::cache::CacheType;
use thiserror::Error;

/// Options without a plan. `Display` gives one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// a size that must be positive is 0
    #[error("context, tokens at once and output rows must be at least 1")]
    Zero,
    /// a cache type whose blocks do not divide a head
    #[error("{what} of type {}: blocks of 32 do not divide a head of {head_dim}; use f16 or f32", .ty.name())]
    CacheType {
        /// what would be of that type
        what: Cached,
        /// the type
        ty: CacheType,
        /// elements of a head
        head_dim: usize,
    },
    /// a c8 cache of a model that brings no scales for it
    #[error("{what} of type c8 ask for the model's own scales, but it has no tensor {tensor}; choose another type")]
    Channels {
        /// what would be of that type
        what: Cached,
        /// a tensor that is missing
        tensor: String,
    },
    /// an f16 copy beside a c8 cache, of which it would be a copy of codes
    #[error("a copy of recent positions beside a c8 cache would hold no more than its codes; leave it out")]
    RecentCodes,
    /// a buffer whose size grows with the tokens of a step
    #[error("buffer {name} needs {bytes} bytes, the device binds at most {limit}; compute fewer tokens at once")]
    Buffer {
        /// which buffer
        name: String,
        /// its bytes
        bytes: usize,
        /// bytes one binding may have
        limit: usize,
    },
    /// more positions than a model has rows for
    #[error(
        "a context of {asked}: the model has learned {context} positions and knows no others; ask for {context} or fewer"
    )]
    Positions {
        /// positions of a sequence
        asked: usize,
        /// positions of the model
        context: usize,
    },
    /// logits of a model that has none
    #[error("a {arch} model makes vectors of texts and generates none: it gives hidden states, no logits")]
    Encoder {
        /// its architecture
        arch: &'static str,
    },
    /// an f16 copy of the last chunk beside a cache in which every token sees the whole text
    #[error("an encoder keeps no copy of recent positions; leave it out")]
    RecentWhole,
    /// something that cannot be cut smaller
    #[error("{what} do not fit the device's binding limit of {limit} bytes")]
    Binding {
        /// what it is, in the plural
        what: String,
        /// bytes one binding may have
        limit: usize,
    },
    /// more pairs of token and expert in a step than a device takes rows
    #[error("{tokens} tokens that meet {used} experts each are more rows than the {pairs} a step takes; compute {} at once or fewer", .pairs / .used)]
    Slots {
        /// tokens of a step
        tokens: usize,
        /// experts of a token
        used: usize,
        /// rows a step takes
        pairs: usize,
    },
    /// more rows in a step than a norm of each head takes
    #[error(
        "{tokens} tokens of {heads} heads in a step are more rows than the {rows} a norm takes; compute {} at once or fewer",
        .rows / .heads
    )]
    Rows {
        /// tokens of a step
        tokens: usize,
        /// heads of a token
        heads: usize,
        /// rows a norm takes
        rows: usize,
    },
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// keys
    Keys,
    /// values
    Values,
    /// the f16 copy of recent positions
    Recent,
}

impl std::fmt::Display for Cached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Cached::Keys => "cached keys",
            Cached::Values => "cached values",
            Cached::Recent => "a copy of recent positions",
        })
    }
}
