//! Whole models: against references made elsewhere, and on every device against each other.

mod arch;
mod bump;
mod c8;
mod chatglm;
#[path = "../common/checkpoint.rs"]
mod checkpoint;
mod codebooks;
#[path = "../common/mod.rs"]
mod common;
mod encoders;
mod family;
mod fuse;
mod gemma3n;
mod gemma4;
mod hybrid;
mod lfm2;
mod mamba2;
mod many;
mod modern;
mod nvfp4;
mod old_files;
#[path = "../common/program.rs"]
mod program;
mod reference;
mod select;
mod slim;
mod split;
mod tq3_device;
mod verify;
mod window;
mod written;
