//! Files and texts: what is read, what is refused, and what blocks hold. Nothing here needs a device.

mod block_types;
mod bump;
#[path = "../common/busy.rs"]
mod busy;
mod golden;
mod golden_grids;
mod readers;
mod slim;
mod tokenizer;
