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
#[path = "../common/program.rs"]
mod program;
mod quantize;
mod score;
mod slim;
mod study;
