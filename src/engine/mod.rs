//! The front door: open a [`Model`] and a [`Device`], make a [`Session`] and generate; or hand both to an [`Engine`], whose
//! thread works for any number of others.
//!
//! All that a program needs and nothing it could do wrong: what the command line, a server or a binding to another language
//! uses, and nothing below it. It prints nothing, reads no flags and knows no signals. How data flow is in
//! `docs/architecture.md`, section "The engine".

mod chain;
mod devices;
mod error;
mod events;
mod fingerprint;
mod generate;
mod model;
mod options;
mod schedule;
mod score;
mod session;
mod state;
mod worker;

pub use crate::generate::generation::Reads;
pub use crate::generate::logprobs::Logprobs;
pub use crate::grammar::{Compiled, Grammar};
pub use crate::models::Head;
pub use chain::Chain;
pub use devices::{About, Device, DeviceOptions, Devices};
pub use error::{Cause, Error};
pub use fingerprint::ARITHMETIC;
#[cfg(feature = "cli")]
pub use fingerprint::fingerprint;
pub use generate::{Advance, Ended, Generating, Guess, Output, Piece, Prompt, Request};
pub use model::Model;
#[cfg(feature = "cli")]
pub use model::check_vocabulary;
pub use options::{Activations, SessionOptions};
pub use score::{Pooling, Score};
pub use session::Session;
pub use worker::{Answer, Embedding, Engine, EngineOptions, Pieces, Reply, Status};
