//! `isobit imatrix`, and what `isobit quantize` makes of importances, as a user meets them.

use crate::asked::{at, isobit, ok, refused, tensors};
use crate::checkpoint;
use isobit::internals::blocks::BlockType;
use isobit::internals::formats::imatrix::Imatrix;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::generate::tokenizer::Tokenizer;
use isobit::internals::models::Hyper;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

fn tiny(name: &str) -> String {
    format!("{DATA}/tiny/{name}")
}

fn opened(path: &str) -> Container {
    Container::open(Path::new(path), LoadMode::Read).unwrap_or_else(|e| panic!("{e}"))
}

/// The importance matrix of the small model over the first windows of its text.
fn made(dir: &Path, name: &str, flags: &[&str]) -> String {
    let out = at(dir, name);
    let (model, text) = (tiny("tiny-stories-f16.gguf"), tiny("valid.txt"));
    let args = ["imatrix", &model, "-f", &text, "-o", &out, "-c", "64", "--chunks", "3"];
    ok(&[&args[..], flags].concat());
    out
}

fn floats(t: &(String, Vec<u64>, Vec<u8>)) -> Vec<f32> {
    let ty = BlockType::parse(&t.0).unwrap();
    let mut x = vec![0f32; t.1.iter().product::<u64>() as usize];
    ty.decode_row(&t.2, &mut x);
    x
}

#[test]
fn every_matrix_of_the_layers_is_counted_and_every_level_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let first = made(dir.path(), "a.gguf", &["-d", "cpu"]);
    let bytes = std::fs::read(&first).unwrap();
    for (name, flags) in [("b.gguf", &["-d", "cpu:scalar"][..]), ("c.gguf", &["-d", "cpu", "-t", "1"])] {
        assert!(std::fs::read(made(dir.path(), name, flags)).unwrap() == bytes, "{flags:?}");
    }
    let c = opened(&first);
    assert_eq!(c.meta.str("general.type"), Some("imatrix"));
    assert_eq!(c.meta.strings("imatrix.datasets"), Some(&["valid.txt".to_string()][..]));
    assert_eq!(["chunk_count", "chunk_size"].map(|k| c.meta.uint(&format!("imatrix.{k}"))), [Some(3), Some(64)]);
    let all = tensors(&first);
    let mut names = Vec::new();
    for layer in 0..4 {
        for (part, columns) in [
            ("attn_k", 256),
            ("attn_output", 256),
            ("attn_q", 256),
            ("attn_v", 256),
            ("ffn_down", 768),
            ("ffn_gate", 256),
            ("ffn_up", 256),
        ] {
            let name = format!("blk.{layer}.{part}.weight");
            assert_eq!(all[&format!("{name}.in_sum2")].1, [columns, 1], "{name}");
            assert_eq!(floats(&all[&format!("{name}.counts")]), [192.0], "{name}");
            names.push(name);
        }
    }
    let written: Vec<String> = c.tensors.iter().map(|t| t.name.clone()).collect();
    let want: Vec<String> = names.iter().flat_map(|n| ["in_sum2", "counts"].map(|s| format!("{n}.{s}"))).collect();
    assert_eq!(written, want, "names are in order");
    // queries, keys and values read the same
    let sums = |name: &str| floats(&all[&format!("blk.2.{name}.weight.in_sum2")]);
    assert!(sums("attn_q") == sums("attn_v") && sums("attn_q") != sums("attn_output"));
    // the older format says the same
    let old = Imatrix::open(Path::new(&made(dir.path(), "d.dat", &["-d", "cpu", "--legacy"]))).unwrap();
    let new = Imatrix::open(Path::new(&first)).unwrap();
    assert_eq!((old.len(), old.chunks), (28, Some(3)));
    for name in &names {
        let (old, new) = (old.get(name).unwrap(), new.get(name).unwrap());
        assert!(old.iter().zip(new.iter()).all(|(a, b)| (a - b).abs() <= b * 3e-7), "{name}");
    }
}

#[test]
fn what_the_first_queries_meet_is_the_norm_of_the_embedding() {
    let dir = tempfile::tempdir().unwrap();
    let made = tensors(&made(dir.path(), "a.gguf", &["-d", "cpu"]));
    let c = opened(&tiny("tiny-stories-f16.gguf"));
    let (h, tokenizer) = (Hyper::read(&c).unwrap(), Tokenizer::read(&c).unwrap());
    let text = std::fs::read_to_string(tiny("valid.txt")).unwrap();
    let mut ids = tokenizer.encode_first(&text, true, false, 192).unwrap();
    ids.truncate(192);
    // each window begins with the token that begins a text
    [0, 64, 128].iter().for_each(|i| ids[*i] = 0);
    let model = tensors(&tiny("tiny-stories-f16.gguf"));
    let (embedding, norm) = (floats(&model["token_embd.weight"]), floats(&model["blk.0.attn_norm.weight"]));
    let mut want = vec![0f64; h.dim];
    for id in ids {
        let x: Vec<f64> = embedding[id as usize * h.dim..][..h.dim].iter().map(|v| f64::from(*v)).collect();
        let mean = x.iter().map(|v| v * v).sum::<f64>() / h.dim as f64;
        let scale = 1.0 / (mean + f64::from(h.eps)).sqrt();
        for ((sum, v), w) in want.iter_mut().zip(&x).zip(&norm) {
            *sum += (v * scale * f64::from(*w)).powi(2);
        }
    }
    let found = floats(&made["blk.0.attn_q.weight.in_sum2"]);
    let apart = found.iter().zip(&want).map(|(f, w)| (f64::from(*f) / w - 1.0).abs()).fold(0.0, f64::max);
    assert!(apart < 1e-5, "{apart}");
}

#[test]
fn every_form_of_a_model_has_its_matrices_under_their_names_in_a_gguf_file() {
    for args in ["--preset phi3-tiny --layers 2", "--preset qwen2-tiny --layers 2 --format hf"] {
        let (dir, model) = checkpoint::model(&format!("{args} --type f32"));
        let text = at(dir.path(), "text.txt");
        std::fs::write(&text, "a bird and a king ".repeat(60)).unwrap();
        let (model, out, file) = (model.to_str().unwrap(), at(dir.path(), "i.gguf"), at(dir.path(), "m.gguf"));
        ok(&["imatrix", model, "-f", &text, "-o", &out, "-c", "32", "-d", "cpu"]);
        // all of them are found again
        let said = isobit(&["quantize", model, &file, "q4_k_m", "--imatrix", &out, "--unchecked"]);
        assert!(said.status.success(), "{args}: {}", String::from_utf8_lossy(&said.stderr));
        let (all, names) = (Imatrix::open(Path::new(&out)).unwrap(), tensors(&file));
        assert!(all.names().all(|n| names.contains_key(n)), "{args}");
        let matrices = names.keys().filter(|n| n.starts_with("blk.") && n.ends_with(".weight") && !n.contains("norm"));
        assert_eq!(all.len(), matrices.count(), "{args}");
    }
}

#[test]
fn what_cannot_be_observed_is_one_line_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (model, text, out) = (tiny("tiny-stories-f16.gguf"), at(dir.path(), "short.txt"), at(dir.path(), "i.gguf"));
    std::fs::write(&text, "Once upon a time").unwrap();
    refused(&["imatrix", &model, "-f", &text, "-o", &out], &["short.txt", "do not fill one window of 512"]);
    refused(&["imatrix", &model, "-f", &text, "-o", &model], &["tiny-stories-f16.gguf"]);
    refused(&["imatrix", &model, "-f", &text, "-o", &out, "-c", "4096"], &["-c is 4096", "512"]);
    let nowhere = at(dir.path(), "no/i.gguf");
    refused(&["imatrix", &model, "-f", &text, "-o", &nowhere], &["-o", "no directory"]);
    assert!(!Path::new(&out).exists());
    assert!(opened(&model).tensors.len() > 30, "the model is as it was");
}

// ---------------------------------------------------------------- quantize

fn dry(input: &str, flags: &[&str]) -> Value {
    let args = ["quantize", input, "unwritten.gguf", "--dry-run", "--json"];
    serde_json::from_str(&ok(&[&args[..], flags].concat())).unwrap()
}

fn types(v: &Value) -> BTreeMap<String, String> {
    let one = |t: &Value| (t["name"].as_str().unwrap().to_string(), t["to"].as_str().unwrap().to_string());
    v["tensors"].as_array().unwrap().iter().map(one).collect()
}

#[test]
fn types_that_need_importances_are_refused_without_them() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (tiny("tiny-stories-f16.gguf"), at(dir.path(), "m.gguf"));
    for (mix, tensor, ty) in [
        ("iq1_s", "blk.0.attn_q.weight", "IQ1_S"),
        ("iq1_m", "blk.0.attn_q.weight", "IQ1_M"),
        ("iq2_xxs", "blk.0.attn_q.weight", "IQ2_XXS"),
        ("iq2_xs", "blk.0.attn_q.weight", "IQ2_XS"),
        ("iq2_s", "blk.0.attn_q.weight", "IQ2_XS"),
        ("iq2_m", "blk.0.attn_q.weight", "IQ2_S"),
        ("iq3_xxs", "blk.0.attn_q.weight", "IQ2_S"),
        ("iq3_xs", "blk.0.attn_q.weight", "IQ3_XXS"),
        ("q2_k_s", "blk.0.attn_q.weight", "Q2_K"),
    ] {
        let line = [tensor, ty, "--imatrix FILE", "isobit imatrix"];
        refused(&["quantize", &model, &out, mix], &line);
    }
    assert!(!Path::new(&out).exists());
    let imatrix = made(dir.path(), "i.gguf", &["-d", "cpu"]);
    for mix in ["iq1_s", "iq2_xxs", "iq3_xs", "q2_k_s"] {
        dry(&model, &[mix, "--imatrix", &imatrix]);
    }
    // of one tensor too, and of one that the file lacks
    let q = "blk.1.attn_q.weight";
    refused(&["quantize", &model, &out, "q4_k_m", "--tensor-type", "blk.1.attn_q=iq2_xs"], &[q, "IQ2_XS"]);
    let sample = format!("{DATA}/vectors/imatrix/sample.dat");
    refused(
        &["quantize", &model, &out, "iq2_xs", "--imatrix", &sample],
        &["sample.dat", "512", "256", "another model"],
    );
}

#[test]
fn importances_change_bytes_and_recipes_and_the_file_says_where_they_are_from() {
    let dir = tempfile::tempdir().unwrap();
    let model = tiny("tiny-stories-f16.gguf");
    let imatrix = made(dir.path(), "i.gguf", &["-d", "cpu"]);
    let (with, without) = (at(dir.path(), "with.gguf"), at(dir.path(), "without.gguf"));
    for mix in ["q4_k_m", "q3_k_m", "iq4_xs", "q4_0"] {
        ok(&["quantize", &model, &with, mix, "--imatrix", &imatrix]);
        ok(&["quantize", &model, &without, mix]);
        let (a, b) = (tensors(&with), tensors(&without));
        let all = Imatrix::open(Path::new(&imatrix)).unwrap();
        for (name, t) in &a {
            let known = all.get(name).is_some();
            assert_eq!(t.2 != b[name].2, known, "{mix} {name}");
            if known {
                // row after row as the type's own encoder has it
                let ty = BlockType::parse(&t.0).unwrap();
                let source = floats(&tensors(&model)[name]);
                let columns = t.1[0] as usize;
                let mut row = vec![0; ty.row_bytes(columns).unwrap()];
                ty.encode_row_weighted(&source[3 * columns..][..columns], all.get(name).unwrap(), &mut row);
                assert!(t.2[3 * row.len()..][..row.len()] == row[..], "{mix} {name}");
            }
        }
        let c = opened(&with);
        assert_eq!(c.meta.str("quantize.imatrix.dataset"), Some("valid.txt"));
        assert!(c.meta.str("quantize.imatrix.file").unwrap().ends_with("i.gguf"));
        let counts = ["entries_count", "chunks_count"].map(|k| c.meta.uint(&format!("quantize.imatrix.{k}")));
        assert_eq!(counts, [Some(28), Some(3)]);
        assert!(opened(&without).meta.get("quantize.imatrix.file").is_none());
    }
    let other = at(dir.path(), "other.gguf");
    ok(&["quantize", &model, &other, "copy"]);
    refused(&["quantize", &model, &other, "copy", "--imatrix", &imatrix], &["--imatrix has no effect"]);
    refused(&["quantize", &model, &other, "q4_k_m", "--imatrix", &model], &["general.type", "imatrix"]);
}

/// A model of 16 layers whose rows hold whole blocks of 256.
fn sixteen(kv_heads: usize) -> (tempfile::TempDir, String) {
    let args = format!(
        "--preset tiny --layers 16 --dim 256 --heads 4 --kv-heads {kv_heads} --ffn 256 --type f16 --tied false --vocab 300"
    );
    let (dir, model) = checkpoint::model(&args);
    let model = model.to_str().unwrap().to_string();
    (dir, model)
}

#[test]
fn a_dry_run_has_the_types_of_the_recipe() {
    for (kv_heads, values) in [(2, "Q3_K"), (1, "Q4_K")] {
        let (_dir, model) = sixteen(kv_heads);
        let t = types(&dry(&model, &["q2_k"]));
        assert_eq!(t["blk.7.attn_v.weight"], values);
        assert_eq!(t["blk.7.ffn_down.weight"], "Q3_K");
        assert_eq!(t["blk.7.ffn_up.weight"], "Q2_K");
        assert_eq!(t["output.weight"], "Q6_K");
        let t = types(&dry(&model, &["iq4_xs"]));
        assert_eq!(["1", "2"].map(|l| &t[&format!("blk.{l}.ffn_down.weight")][..]), ["Q5_K", "IQ4_XS"]);
        let t = types(&dry(&model, &["iq4_xs", "--pure"]));
        assert!(t.iter().all(|(name, ty)| name.contains("norm") || ty == "IQ4_XS"), "{t:?}");
    }
}

#[test]
fn types_are_chosen_to_a_size_and_keep_it() {
    let dir = tempfile::tempdir().unwrap();
    let (model, imatrix) = (tiny("tiny-stories-f16.gguf"), made(dir.path(), "i.gguf", &["-d", "cpu"]));
    let free = |v: &Value| {
        let all = v["tensors"].as_array().unwrap().iter().filter(|t| t["shape"].as_array().unwrap().len() > 1);
        let sum = |key: &str| all.clone().map(|t| t[key].as_u64().unwrap()).sum::<u64>() as f64;
        // the source has two bytes an element
        sum("bytes_out") * 16.0 / sum("bytes_in")
    };
    let mut last = 0.0;
    for bits in ["2.5", "3.0", "4.0", "6.0"] {
        let v = dry(&model, &["--auto", bits, "--imatrix", &imatrix]);
        let (asked, found): (f64, f64) = (bits.parse().unwrap(), free(&v));
        assert!(found <= asked && found > 0.98 * asked && found > last, "{bits}: {found}");
        last = found;
    }
    let out = at(dir.path(), "m.gguf");
    for size in ["2M", "3M"] {
        ok(&["quantize", &model, &out, "--auto", size, "--imatrix", &imatrix]);
        let (most, bytes) = (size[..1].parse::<u64>().unwrap() * 1_000_000, std::fs::metadata(&out).unwrap().len());
        assert!(bytes <= most && bytes > most * 97 / 100, "{size}: {bytes}");
    }
    assert!(opened(&out).meta.get("general.file_type").is_none(), "no mix has its types");
    ok(&["run", &out, "-p", "Once", "-n", "2", "-d", "cpu"]);
    // what is asked for by name stays so
    let t = types(&dry(&model, &["--auto", "3.5", "--imatrix", &imatrix, "--tensor-type", "attn_v=q8_0"]));
    assert!(t.iter().all(|(name, ty)| !name.contains("attn_v") || ty == "Q8_0"), "{t:?}");
    refused(&["quantize", &model, &out, "--auto", "1.2", "--imatrix", &imatrix], &["--auto", "smallest", "1.2"]);
    refused(&["quantize", &model, &out, "--auto", "2.1"], &["--auto", "smallest", "need importances"]);
    let both = isobit(&["quantize", &model, &out, "q4_k_m", "--auto", "3.5"]);
    assert_eq!(both.status.code(), Some(2));
}

#[cfg(feature = "gpu")]
mod gpu {
    use super::*;

    #[test]
    fn every_adapter_gives_the_cpus_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let want = std::fs::read(made(dir.path(), "cpu.gguf", &["-d", "cpu"])).unwrap();
        let adapters = crate::commands::adapters();
        crate::absent::found(adapters.len(), "adapter");
        for index in adapters {
            let found = std::fs::read(made(dir.path(), &format!("{index}.gguf"), &["-d", &index])).unwrap();
            assert!(found == want, "adapter {index}");
            // a device weighs nothing: what has importances is encoded on the CPU
            let (imatrix, model) = (at(dir.path(), "cpu.gguf"), tiny("tiny-stories-f16.gguf"));
            let [there, here] = ["there", "here"].map(|n| at(dir.path(), n));
            ok(&["quantize", &model, &there, "q4_0", "--imatrix", &imatrix, "-d", &index]);
            ok(&["quantize", &model, &here, "q4_0", "--imatrix", &imatrix]);
            assert!(tensors(&there) == tensors(&here), "adapter {index}");
        }
    }
}
