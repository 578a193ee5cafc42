//! Synthetic checkpoints, made by the example's generator.

use std::path::PathBuf;
use tempfile::TempDir;

#[path = "../../examples/synth_model.rs"]
#[allow(dead_code, reason = "the generator is a program of its own; tests call one function")]
pub mod synth;

/// The shape of the recorded checkpoints.
#[allow(dead_code, reason = "not every test binary compares with them")]
pub const SMALL: &str = "--dim 64 --layers 2 --ffn 96 --heads 4 --kv-heads 2 --vocab 262 --ctx 256 --type f32";

/// A synthetic model in a folder of its own.
pub fn model(args: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let out = dir.path().join(if args.contains("--format hf") || args.contains("--format chatglm") {
        "model"
    } else {
        "model.gguf"
    });
    let path = out.to_string_lossy().into_owned();
    let mut list = vec!["synth_model", "--out", &path];
    list.extend(args.split_whitespace());
    synth::generate(&list).unwrap_or_else(|e| panic!("{args}: {e:#}"));
    (dir, out)
}
