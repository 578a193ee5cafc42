//! NVFP4 matrices with numbers of their own beside them, as conversions of checkpoints leave them (`X.scale`, and
//! `X.input_scale`, which nothing needs).
//!
//! A scale that is a power of two can be told in another way, by the exponents of a matrix's blocks: two files that mean the
//! same weights must give the same words.

use crate::arch::{ids, logits, open, same_words_of};
use crate::checkpoint::model;
use crate::program;
use crate::written::{Held, gguf};
use isobit::internals::blocks::BlockType;
use isobit::internals::formats::gguf_write::Entry;
use isobit::internals::formats::{Container, Dtype, Tensor};
use isobit::internals::ops::cache::CacheType;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Dense, with the head's matrix and without, and with fused matrices; experts beside one that all tokens meet; recurrent layers,
/// whose two matrices of gates go into one row.
const ARGS: [&str; 5] = [
    "--arch llama --dim 128 --layers 2 --ffn 192 --heads 4 --kv-heads 2 --vocab 262 --ctx 256 --type f32",
    "--arch qwen2 --dim 128 --layers 2 --ffn 192 --heads 4 --kv-heads 2 --vocab 262 --ctx 256 --type f32 --tied",
    "--arch phi3 --dim 128 --layers 2 --ffn 192 --heads 4 --kv-heads 2 --vocab 262 --ctx 256 --type f32",
    "--arch qwen2moe --dim 128 --layers 2 --ffn 192 --heads 4 --kv-heads 2 --vocab 262 --ctx 256 --experts 6 --used 3 \
     --expert-ffn 64 --shared 128 --type f32",
    "--arch qwen35 --dim 128 --layers 4 --ffn 192 --heads 4 --kv-heads 2 --head-dim 32 --vocab 262 --ctx 256 --type f32",
];

/// A synthetic model in NVFP4.
fn quantised(args: &str) -> (TempDir, PathBuf) {
    let (dir, path) = model(args);
    let out = path.with_file_name("nvfp4.gguf");
    let done = program::isobit(["quantize"]).args([&path, &out]).arg("nvfp4").output().expect("it starts");
    assert!(done.status.success(), "{args}: {}", String::from_utf8_lossy(&done.stderr));
    (dir, out)
}

/// What is beside a matrix: `scale(stem, i)` for the matrix itself, or for expert `i` of it.
type ScaleOf = fn(&str, usize) -> f32;

/// Halves and quarters, not the same for all.
fn powers(stem: &str, i: usize) -> f32 {
    [0.5, 0.25, 1.0, 2.0][(stem.len() + i + 1) % 4]
}

/// How many numbers stand beside a matrix.
fn numbers(t: &Tensor) -> usize {
    if t.name.contains("_exps") { t.shape[2] as usize } else { 1 }
}

/// The file again, with numbers beside its matrices of NVFP4 if asked for, whose blocks are smaller by as much where `less`
/// is set, so that it means the same weights. Scales of blocks are far from the ends of their range in all of these files.
/// `change` is given every tensor.
fn beside(path: &Path, scale: Option<ScaleOf>, less: bool, change: impl Fn(&mut Vec<Held>)) -> PathBuf {
    let c = open(path);
    let mut list: Vec<Held> = Vec::new();
    let mut met = 0;
    for t in &c.tensors {
        let mut bytes = vec![0; t.bytes as usize];
        c.read(t, 0, &mut bytes).expect("its bytes");
        let entry = |name: String, dtype, shape| Entry { name, dtype, shape };
        if t.dtype.block() == Some(BlockType::NVFP4) {
            let (stem, n) = (t.name.strip_suffix(".weight").expect("a matrix"), numbers(t));
            let each = bytes.len() / n;
            let scales: Vec<f32> = (0..n).map(|i| scale.map_or(1.0, |scale| scale(stem, i))).collect();
            for (part, s) in bytes.chunks_mut(each).zip(&scales) {
                // a scale of four bits of exponent and three more: 8 to a factor of two
                let up = if less { -8 * s.log2() as i32 } else { 0 };
                for byte in part.chunks_mut(36).flat_map(|block| &mut block[..4]) {
                    *byte = (i32::from(*byte).clamp(24, 0x66) + up) as u8;
                    met += 1;
                }
            }
            let numbers = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
            let f32s = Dtype::from_name("F32").expect("there");
            if scale.is_some() {
                list.push((entry(format!("{stem}.scale"), f32s, vec![n as u64]), numbers(&scales)));
                list.push((entry(format!("{stem}.input_scale"), f32s, vec![n as u64]), numbers(&vec![0.125; n])));
            }
        }
        list.push((entry(t.name.clone(), t.dtype, t.shape.clone()), bytes));
    }
    assert!(met > 1000, "{met} blocks");
    change(&mut list);
    let made = path.with_file_name("beside.gguf");
    std::fs::write(&made, gguf(&c.meta, &list)).expect("written");
    made
}

fn words(c: &Container) -> Vec<u32> {
    let found = logits(c, &ids(20), 64).unwrap_or_else(|e| panic!("{e:#}"));
    found.iter().flatten().map(|v| v.to_bits()).collect()
}

#[test]
fn scales_beside_matrices_mean_what_the_exponents_of_blocks_would() {
    for args in ARGS {
        let (_dir, path) = quantised(args);
        let plain = words(&open(&beside(&path, None, true, |_| {})));
        let made = beside(&path, Some(powers), true, |_| {});
        assert!(words(&open(&made)) == plain, "{args}");
        // and they are looked at
        let made = beside(&path, Some(powers), false, |_| {});
        assert!(words(&open(&made)) != plain, "{args}");
    }
}

#[test]
fn the_scale_of_each_matrix_of_gates_is_looked_at() {
    fn but_beta(stem: &str, i: usize) -> f32 {
        if stem.ends_with("ssm_beta") { 4.0 } else { powers(stem, i) }
    }
    fn but_alpha(stem: &str, i: usize) -> f32 {
        if stem.ends_with("ssm_alpha") { 4.0 } else { powers(stem, i) }
    }
    let (_dir, path) = quantised(ARGS[4]);
    let plain = words(&open(&beside(&path, None, true, |_| {})));
    for scale in [but_beta as ScaleOf, but_alpha] {
        let made = beside(&path, Some(scale), true, |_| {});
        assert!(words(&open(&made)) == plain);
        // blocks made for other scales
        let mixed = beside(&path, Some(powers), true, |list| {
            for (e, bytes) in list.iter_mut().filter(|(e, _)| e.name.ends_with(".scale")) {
                let stem = e.name.strip_suffix(".scale").expect("asked for");
                *bytes = scale(stem, 0).to_le_bytes().to_vec();
            }
        });
        assert!(words(&open(&mixed)) != plain);
    }
}

#[test]
fn scales_beside_matrices_have_the_same_words_on_every_device() {
    fn any(stem: &str, i: usize) -> f32 {
        0.4 + 0.1 * (stem.len() as f32 + i as f32) % 1.3
    }
    for (args, digits, cache) in
        [(ARGS[0], 1, CacheType::F16), (ARGS[3], 2, CacheType::TQ3_1), (ARGS[4], 1, CacheType::F16)]
    {
        let (_dir, path) = quantised(args);
        same_words_of(&beside(&path, Some(any), false, |_| {}), args, digits, cache, None);
    }
}

#[test]
fn scales_that_fit_no_matrix_are_refused_by_name() {
    type Change = fn(&mut (Entry, Vec<u8>));
    let cases: [(&str, Change, &str); 4] = [
        (
            "blk.1.ffn_down.scale",
            |(e, b)| (e.shape, *b) = (vec![2], [0; 8].to_vec()),
            "has shape [2], the config asks for [1]",
        ),
        ("blk.0.attn_q.scale", |(_, b)| *b = f32::INFINITY.to_le_bytes().to_vec(), "holds inf at element 0"),
        ("blk.0.ffn_up.scale", |(e, _)| e.name = "output_norm.scale".into(), "tensor output_norm.scale has no place"),
        ("blk.1.attn_k.input_scale", |(e, b)| (e.shape, *b) = (vec![3], [0; 12].to_vec()), "has shape [3]"),
    ];
    let (_dir, path) = quantised(ARGS[0]);
    for (name, change, said) in cases {
        let made = beside(&path, Some(powers), true, |list| {
            change(list.iter_mut().find(|(e, _)| e.name == name).unwrap_or_else(|| panic!("no {name}")));
        });
        let e = logits(&open(&made), &ids(4), 64).expect_err(name);
        assert!(format!("{e:#}").contains(said), "{e:#}");
    }
}
