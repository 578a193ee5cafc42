//! Untrusted bytes to named tensors: GGUF and safetensors readers.

pub mod meta;
