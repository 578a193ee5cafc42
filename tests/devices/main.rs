//! The wgpu device on its own: loading, running, losing it; variants, tuning, and what is kept between runs.

mod alone;
#[path = "../common/mod.rs"]
mod common;
mod device;
mod loops;
mod pipeline_cache;
mod roots;
mod subgroups;
mod upload;
mod variants;
