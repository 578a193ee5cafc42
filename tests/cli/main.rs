//! The program as a user meets it: the real binary, one module for a family of commands.

#[path = "../common/absent.rs"]
mod absent;
mod asked;
mod batch;
mod bench;
#[path = "../common/checkpoint.rs"]
mod checkpoint;
mod commands;
mod compare;
mod convert;
mod hist;
#[cfg(feature = "hub")]
mod hub;
mod imatrix;
#[path = "../common/program.rs"]
mod program;
mod quantize;
mod receipt;
mod score;
#[cfg(feature = "server")]
mod serve;
mod slim;
mod split;
mod study;
#[path = "../common/whole.rs"]
mod whole;
