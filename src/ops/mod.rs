//! One plain Rust twin per operation, the text of `docs/exactness.md` as code.
//!
//! A twin is read, not run fast: loops as in the shader, no unsafe, no threads. `exact` holds the arithmetic they share.

pub mod act_quantize;
pub mod exact;
pub mod linear;
