//! One operation at a time: twins, SIMD levels and adapters against each other, and what is proved of the shaders' text.

#[path = "../common/mod.rs"]
mod common;
mod encode;
mod heads;
mod linear;
mod lint;
mod lint_rules;
#[cfg(feature = "gpu")]
mod lint_shaders;
#[cfg(feature = "gpu")]
mod shaders;
mod slim;
mod tq3;
mod twins;
