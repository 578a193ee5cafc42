//! Tokens in, tokens out: tokenisers, sampling, and the session that feeds a device.
//!
//! Works on any `Device`; names no particular one, reads no files, prints nothing.

pub mod batch;
pub mod breakers;
pub mod draft;
mod error;
pub mod generation;
pub mod logprobs;
pub mod pool;
pub mod sampling;
pub mod saved;
pub mod session;
mod states;
pub mod stops;
pub mod tokenizer;
pub mod verify;

pub use error::SessionError;
pub use generation::Generation;
pub use session::{Session, SessionOptions, Want, finite};
