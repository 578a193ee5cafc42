//! The wgpu device: adapters, uploads, pipelines, steps, read-back. Feature `gpu`.
//!
//! No wgpu type leaves this room. Nothing here knows a model: it runs the commands of a `record::Plan`.

mod adapters;
mod ahead;
mod capabilities;
mod device;
mod encoded;
pub mod expand;
mod faults;
pub mod halves;
mod limits;
pub mod matrices;
mod module;
mod options;
mod pipeline_cache;
mod probe;
mod program;
mod qualify;
pub mod shaders;
// for compilers that run on this machine, which a WebAssembly module has none of
#[cfg(not(target_family = "wasm"))]
pub mod spirv;
mod store;
mod tune;
mod unroll;
mod upload;
pub mod variants;

pub use crate::store::Store;
pub use adapters::{Adapter, AdapterReport, adapters, connect, gl_adapters, native_adapters};
pub use device::GpuDevice;
pub use faults::HostError;
pub use limits::limits;
pub use module::{Halves, Loops};
pub use options::{GpuOptions, Tune, Upload};
pub use qualify::Verdict;

/// The version of wgpu this was built with.
pub const WGPU_VERSION: &str = env!("ISOBIT_WGPU_VERSION");
