//! Text to token ids and back, choosing the next token, and the sessions built on them.

pub mod sampling;
pub mod tokenizer;
