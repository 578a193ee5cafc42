//! isobit runs quantised language models with the same bits on every device.
//!
//! The map, in the order a reader should take it (`docs/architecture.md` has the arrows):
//!
//! - [`blocks`]: block layouts of the weight formats, their decoders and encoders, and packing for the kernels
//! - [`ops`]: one plain Rust twin per operation; `ops::exact` holds the arithmetic every twin and shader shares
//! - [`simd`]: the same operations per instruction set, bit-equal to the twins
//! - [`limits`]: what this machine can do at most, measured
//! - [`record`]: a model's work as data (`Recording`), and the `Device` trait that runs it
//! - [`fuse`]: fewer commands for the same bits
//! - [`cases`]: small runs of every operation, for tests and timing
//! - [`cpu`]: the CPU device
//! - `host`: the wgpu device (feature `gpu`)
//! - [`formats`]: GGUF and safetensors files, untrusted bytes to named tensors
//! - [`models`]: config and weights to Recordings
//! - [`quantize`]: one model file into another, block by block
//! - [`generate`]: tokens, sampling, sessions
//! - [`random`]: one generator of random numbers
//! - [`stop`]: asking long work to stop
//! - [`stats`]: the quantiles that intervals are made of
//! - [`study`]: what quantising does to weights and to predictions
//! - [`bench`]: tests, rows, comparisons and pages of `isobit bench`
//! - [`cli`]: the command line

pub mod bench;
pub mod blocks;
pub mod cases;
// a program on a system, which a WebAssembly module is not
#[cfg(not(target_family = "wasm"))]
pub mod cli;
pub mod cpu;
pub mod formats;
pub mod fuse;
pub mod generate;
pub mod limits;
pub mod models;
pub mod ops;
pub mod quantize;
pub mod random;
pub mod record;
pub mod simd;
pub mod stats;
pub mod stop;
pub mod study;

#[cfg(feature = "gpu")]
#[path = "../host/mod.rs"]
pub mod host;
