//! Config and weights to plans. Claims every tensor of a file exactly once; names no device.

pub mod hyper;
pub mod llama;
mod rope;
pub mod weights;

pub use hyper::Hyper;
pub use llama::{Built, PlanOptions, build};
pub use rope::RopeTable;
pub use weights::{Weights, rope_table};
