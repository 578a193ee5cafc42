//! Quantising, checking, measuring and comparing as one piece of work: the study of `examples/q8k128_study.sh`, and models
//! of every architecture after `isobit quantize`, which must have the same words on every device.
//!
//! The models are synthetic, written by `examples/synth_model.rs` when a test runs.

use crate::checkpoint::synth;
use crate::whole::taking;
use crate::{absent, program};
use isobit::internals::simd::Level;
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

/// Runs isobit to success; gives stdout.
fn isobit(args: &[&str]) -> String {
    let ran = program::isobit(args).output().expect("it starts");
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

fn at(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).to_string_lossy().into_owned()
}

/// A synthetic model in F16 as a Hugging Face directory, with outliers; gives its path.
fn checkpoint(dir: &TempDir, args: &str) -> String {
    let path = at(dir, "hf");
    let mut list = vec!["synth_model", "--out", &path, "--format", "hf", "--type", "f16", "--outliers"];
    list.extend(args.split_whitespace());
    synth::generate(&list).unwrap_or_else(|e| panic!("{args}: {e:#}"));
    path
}

/// Verifies a model on every level of the CPU, and on the twins and every adapter where that is asked; gives the digest of its
/// logits.
///
/// Without an adapter that is asked for this fails, unless the tests are told to do without.
fn digest(model: &str, on: On) -> String {
    let mut args = vec!["verify", model, "--tokens", "4", "--json"];
    let levels: Vec<String> = Level::available().into_iter().map(|l| format!("cpu:{}", l.name())).collect();
    let levels = levels.join(",");
    match on {
        On::All => {}
        // where a CPU has one level, the twins beside it
        On::TheCpu if !levels.contains(',') => args.extend(["--devices", "cpu:scalar,cpu:portable"]),
        On::TheCpu => args.extend(["--devices", &levels]),
    }
    let v: Value = serde_json::from_str(&isobit(&args)).expect("json");
    let devices = v["devices"].as_array().expect("a list");
    let adapters = devices.iter().filter(|d| !d.as_str().expect("a name").starts_with("CPU")).count();
    println!("{model}: {} words on {}, mismatches {}", v["words_compared"], v["devices"], v["mismatches"]);
    if on == On::All {
        absent::found_or_cpu_only(adapters);
    }
    assert!(devices.len() - adapters >= 2, "{devices:?}");
    assert!(v["words_compared"].as_u64().expect("a number") > 0);
    assert_eq!((&v["mismatches"], &v["ok"]), (&0.into(), &true.into()), "{model}: {v}");
    v["digest"].as_str().expect("text").to_string()
}

/// Which devices a model is verified on.
#[derive(Clone, Copy, PartialEq)]
enum On {
    All,
    /// for files that differ from one on adapters by what has been read when a device gets it
    TheCpu,
}

/// Quantises a checkpoint of these arguments to Q4_K_M and by three policies; all of them have the same words everywhere,
/// and the F16 file the words of the directory it was made from. `packed`: where what is packed whole is run.
fn quantised_models_agree(args: &str, same_order: bool, packed: On) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let hf = checkpoint(&dir, args);
    let (f16, mix) = (at(&dir, "f16.gguf"), at(&dir, "q4_k_m.gguf"));
    isobit(&["quantize", &hf, &f16, "f16"]);
    isobit(&["quantize", &hf, &mix, "q4_k_m"]);
    let (some, packed) = (taking(On::TheCpu, On::All), taking(packed, On::All));
    let mut digests = vec![digest(&hf, some), digest(&f16, some), digest(&mix, On::All)];
    for (policy, on) in [("qkv", some), ("attn", some), ("all", packed)] {
        let path = at(&dir, policy);
        isobit(&["quantize", &hf, &path, "--to", "packed", "--policy", policy]);
        digests.push(digest(&path, on));
    }
    // a GGUF file packed keeps its own names and metadata, and both ways the blocks are the same
    if same_order {
        assert_eq!(digests[0], digests[1], "{args}: the directory and the file made from it");
        let packed = at(&dir, "from-gguf");
        isobit(&["quantize", &f16, &packed, "--to", "packed", "--policy", "attn"]);
        assert_eq!(digest(&packed, some), digests[4], "{args}: packed from the directory and from the file");
    }
    digests.remove(0);
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), 5, "{args}: every type has words of its own");
}

#[test]
fn a_quantised_phi3_has_the_same_words_on_every_device_and_its_conversion_those_of_the_directory() {
    quantised_models_agree("--preset phi3-tiny", true, On::All);
}

#[test]
fn a_quantised_qwen2_has_the_same_words_on_every_device_and_its_conversion_those_of_the_directory() {
    quantised_models_agree("--preset qwen2-tiny", true, On::TheCpu);
}

#[test]
fn a_quantised_qwen3_has_the_same_words_on_every_device_and_its_conversion_those_of_the_directory() {
    quantised_models_agree("--preset qwen3-tiny", true, On::TheCpu);
}

#[test]
fn a_quantised_chatglm_has_the_same_words_on_every_device() {
    // the directory has queries, keys and values apart, which the file made from it keeps
    quantised_models_agree("--preset chatglm-tiny", true, On::TheCpu);
}

#[test]
fn a_quantised_llama_has_the_same_words_on_every_device() {
    quantised_models_agree("--preset tiny", false, On::TheCpu);
}

#[test]
fn a_converted_llama_differs_from_its_directory_by_the_order_of_sums_alone() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (hf, gguf) = (checkpoint(&dir, "--preset tiny"), at(&dir, "f16.gguf"));
    isobit(&["quantize", &hf, &gguf, "f16"]);
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/valid.txt");
    let out = isobit(&[
        "compare", &hf, &gguf, "-f", text, "-c", "64", "--chunks", "2", "-d", "cpu", "--ctk", "f32", "--ctv", "f32",
        "--json",
    ]);
    let v: Value = serde_json::from_str(&out).expect("json");
    let kl = v.pointer("/kl/max").and_then(Value::as_f64).expect("a number");
    assert!(kl < 1e-9, "{kl}");
    assert_eq!(v.pointer("/same_top/mean").and_then(Value::as_f64), Some(1.0));
}

/// The study over a small synthetic Phi-3 and a few windows.
#[cfg(unix)]
fn study(out: &str, model: &str, more: &[(&str, &str)]) -> Output {
    let mut c = program::quiet(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/q8k128_study.sh"));
    c.args([out, model]).env("ISOBIT", env!("CARGO_BIN_EXE_isobit"));
    c.envs([("CTX", "64"), ("CHUNKS", "3"), ("ISOBIT_DEVICE", "cpu")]).envs(more.iter().copied());
    c.output().expect("it starts")
}

#[cfg(unix)]
#[test]
fn the_study_runs_from_the_checkpoint_to_the_summary_and_stops_where_its_gate_holds() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let model = checkpoint(&dir, "--preset phi3-tiny --layers 3");
    let out = at(&dir, "study");
    let ran = study(&out, &model, &[]);
    let (text, talk) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!(ran.status.code(), Some(0), "{text}\n{talk}");
    let summary = std::fs::read_to_string(Path::new(&out).join("summary.txt")).expect("the summary is there");
    for wanted in ["off ", "layer0-qkv ", "qkv ", "distinguishable", "passes"] {
        assert!(summary.contains(wanted), "no {wanted:?} in {summary}");
    }
    assert_eq!(summary.lines().filter(|l| l.contains("FAILS")).count(), 0, "{summary}");
    let hist: Value =
        serde_json::from_slice(&std::fs::read(Path::new(&out).join("hist/hist.json")).expect("there")).expect("json");
    let qkv =
        hist["groups"].as_array().expect("a list").iter().find(|g| g["group"] == "qkv").expect("qkv was measured");
    let q8k128 = &qkv["types"]["Q8K128"];
    assert_eq!((&q8k128["layers"], &q8k128["layers_improved"]), (&3.into(), &3.into()), "{qkv}");
    for file in ["hist/report.html", "compare-qkv.svg", "compare-layer0-qkv.txt", "packed-off/config.json"] {
        assert!(Path::new(&out).join(file).is_file(), "{file}");
    }
    // an output that is not empty is left alone
    assert_eq!(study(&out, &model, &[]).status.code(), Some(2));
    // a gate that asks for more than there is: nothing is compared
    let strict = at(&dir, "strict");
    let ran = study(&strict, &model, &[("GATE", "qkv.rmse_change > -90%"), ("POLICIES", "off qkv")]);
    assert_eq!(ran.status.code(), Some(1), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(String::from_utf8_lossy(&ran.stdout).contains("FAILS"));
    assert!(!Path::new(&strict).join("compare-qkv.txt").exists());
}
