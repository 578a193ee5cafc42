//! `isobit hist` as a user meets it: figures that a hand can check, files that agree with each other, and gates.

use crate::program;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny");

fn isobit(args: &[&str]) -> Output {
    program::isobit(["hist"]).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The JSON object of a run that succeeds.
fn json(args: &[&str]) -> Value {
    let mut all = args.to_vec();
    all.push("--json");
    let ran = isobit(&all);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// The one line on stderr of a run that ends with this code.
fn refused(code: i32, args: &[&str]) -> String {
    let ran = isobit(args);
    assert_eq!(ran.status.code(), Some(code), "{args:?}: {}", text(&ran.stderr));
    let err = text(&ran.stderr);
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.starts_with("error: "), "{err}");
    err
}

/// A safetensors file of f32 matrices (rows, columns, values).
fn write(path: &Path, tensors: &[(&str, usize, usize, Vec<f32>)]) {
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|t| t.3.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, rows, columns, _), b)| {
        (name.to_string(), TensorView::new(Dtype::F32, vec![*rows, *columns], b).unwrap())
    });
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

fn number(v: &Value, pointer: &str) -> f64 {
    v.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number {pointer} in {v}"))
}

fn group<'a>(v: &'a Value, name: &str) -> &'a Value {
    v["groups"].as_array().unwrap().iter().find(|g| g["group"] == name).unwrap_or_else(|| panic!("no group {name}"))
}

/// A row whose error in Q8_K and Q8K128 is known: 127 first, 0.25 everywhere else.
///
/// One scale of 1 makes all the quarters 0; with two scales those of the second half are kept.
fn spike_row() -> Vec<f32> {
    let mut row = vec![0.25f32; 256];
    row[0] = 127.0;
    row
}

/// A directory as phi3 checkpoints are, fused projections and all: `layers` layers of width 256 with a few large
/// columns, as trained weights have them.
fn phi3(dir: &Path, layers: usize) {
    let mut state = 12345u64;
    let mut noise = move || {
        // the sum of four uniforms is near enough to a Gaussian
        (0..4).fold(-2.0f32, |sum, _| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            sum + (state >> 40) as f32 / (1u64 << 24) as f32
        }) * 0.03
    };
    let mut matrix = |rows: usize, columns: usize| -> Vec<f32> {
        (0..rows * columns).map(|i| noise() * if i % columns % 67 == 5 { 12.0 } else { 1.0 }).collect()
    };
    let mut tensors: Vec<(String, usize, usize, Vec<f32>)> = Vec::new();
    for l in 0..layers {
        for (name, rows, columns) in [
            ("self_attn.qkv_proj", 768, 256),
            ("self_attn.o_proj", 256, 256),
            ("mlp.gate_up_proj", 1024, 256),
            ("mlp.down_proj", 256, 512),
        ] {
            tensors.push((format!("model.layers.{l}.{name}.weight"), rows, columns, matrix(rows, columns)));
        }
    }
    tensors.push(("model.embed_tokens.weight".into(), 64, 256, matrix(64, 256)));
    tensors.push(("lm_head.weight".into(), 64, 256, matrix(64, 256)));
    let borrowed: Vec<(&str, usize, usize, Vec<f32>)> =
        tensors.iter().map(|(n, r, c, v)| (n.as_str(), *r, *c, v.clone())).collect();
    write(&dir.join("model.safetensors"), &borrowed);
    std::fs::write(dir.join("config.json"), r#"{"model_type":"phi3"}"#).unwrap();
}

fn put(dir: &Path, name: &str, tensors: &[(&str, usize, usize, Vec<f32>)]) -> String {
    let path: PathBuf = dir.join(name);
    write(&path, tensors);
    path.to_str().unwrap().to_string()
}

#[test]
fn figures_of_a_spike_are_those_made_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let name = "model.layers.0.self_attn.qkv_proj.weight";
    let file = put(dir.path(), "m.safetensors", &[(name, 2, 256, [spike_row(), spike_row()].concat())]);
    let v = json(&[&file, "--types", "q8k,q8k128"]);
    let (old, new) = (&v["tensors"][0]["types"]["Q8_K"], &v["tensors"][0]["types"]["Q8K128"]);
    assert_eq!((&v["tensors"][0]["group"], &v["tensors"][0]["layer"]), (&"qkv".into(), &0.into()));
    assert_eq!(
        (&old["elements"], &old["collapse"], &old["blocks"], &old["spiky"]),
        (&512.into(), &510.into(), &2.into(), &2.into())
    );
    assert_eq!((&new["collapse"], &new["blocks"], &new["spiky"]), (&254.into(), &4.into(), &2.into()));
    let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
    near(number(old, "/rmse"), 0.25 * (255f64 / 256.0).sqrt());
    near(number(new, "/rmse"), 0.25 * (127f64 / 256.0).sqrt());
    near(number(old, "/mae"), 0.25 * 255.0 / 256.0);
    near(number(old, "/max"), 0.25);
    near(number(old, "/rel"), 255.0 / 256.0);
    near(number(new, "/rmse_change_percent"), ((127f64 / 255.0).sqrt() - 1.0) * 100.0);
    assert_eq!(group(&v, "qkv")["types"]["Q8K128"]["layers_improved"], 1);
}

#[test]
fn a_type_that_holds_the_weights_exactly_has_no_error() {
    let v = json(&[&format!("{TINY}/tiny-stories-f16.gguf"), "--types", "f32,f16,bf16"]);
    let model = &group(&v, "model")["types"];
    for exact in ["F32", "F16"] {
        assert_eq!((number(&model[exact], "/rmse"), number(&model[exact], "/max")), (0.0, 0.0), "{exact}");
        assert_eq!(model[exact]["blocks"], 0);
    }
    assert!(number(&model["BF16"], "/rmse") > 0.0);
    // from nothing to something is no percentage
    assert!(model["BF16"]["rmse_change_percent"].is_null());
}

#[test]
fn histogram_counts_add_up_to_the_elements_in_json_and_csv() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let v = json(&[&format!("{TINY}/tiny-stories-f16.gguf"), "--types", "q8_0,q4_0", "-o", out]);
    let mut from_csv = std::collections::BTreeMap::<(String, String), u64>::new();
    for row in csv::Reader::from_path(dir.path().join("histogram.csv")).unwrap().records() {
        let row = row.unwrap();
        assert!(row[2].parse::<f64>().unwrap() <= row[3].parse::<f64>().unwrap());
        *from_csv.entry((row[0].into(), row[1].into())).or_default() += row[4].parse::<u64>().unwrap();
    }
    let tensors = v["tensors"].as_array().unwrap();
    assert_eq!((tensors.len(), from_csv.len()), (4 * 7 + 1, 2 * (4 * 7 + 1)));
    for t in tensors {
        for ty in ["Q8_0", "Q4_0"] {
            let e = &t["types"][ty];
            let counts = e["histogram"].as_array().unwrap();
            assert_eq!(counts.len(), v["histogram_edges"].as_array().unwrap().len() + 1);
            let sum: u64 = counts.iter().map(|n| n.as_u64().unwrap()).sum();
            let elements: u64 = t["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).product();
            assert_eq!((sum, e["elements"].as_u64().unwrap()), (elements, elements));
            assert_eq!(from_csv[&(t["name"].as_str().unwrap().into(), ty.into())], elements);
        }
    }
}

#[test]
fn the_csv_of_groups_says_what_the_json_says() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let v = json(&[&format!("{TINY}/hf"), "-o", out]);
    let saved: Value = serde_json::from_slice(&std::fs::read(dir.path().join("hist.json")).unwrap()).unwrap();
    assert_eq!(saved, v);
    let mut rows = 0;
    let mut reader = csv::Reader::from_path(dir.path().join("groups.csv")).unwrap();
    let columns = reader.headers().unwrap().clone();
    let column = |name: &str| columns.iter().position(|c| c == name).unwrap();
    for row in reader.records() {
        let row = row.unwrap();
        let e = &group(&v, &row[0])["types"][&row[2]];
        assert_eq!(row[column("rmse")].parse::<f64>().unwrap(), number(e, "/rmse"));
        assert_eq!(row[column("layers_improved")].parse::<f64>().unwrap(), number(e, "/layers_improved"));
        rows += 1;
    }
    // qkv, o, gate_up, down, embed and model; the head is tied to the embedding
    assert_eq!(rows, 6 * 4);
}

#[test]
fn the_report_is_one_page_that_needs_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    phi3(dir.path(), 3);
    let input = dir.path().to_str().unwrap();
    let out = dir.path().join("new/report");
    let v = json(&[input, "--types", "q8k,q8k128", "--fail-if", "qkv.rmse_change > 0%", "-o", out.to_str().unwrap()]);
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    for outside in ["http", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("prefers-color-scheme:dark"));
    // bars; histogram and layers of four groups; histograms of head, embedding and model
    assert_eq!(page.matches("<svg").count(), 1 + 4 * 2 + 3);
    assert!(page.contains("model.layers.2.mlp.gate_up_proj.weight"));
    for words in ["Q8K128: change of rmse against Q8_K", "qkv: rmse by layer", "change, %", "% of elements"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.contains(&format!("{:.4e}", number(group(&v, "qkv"), "/types/Q8K128/rmse"))));
    let left: Vec<_> = std::fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 5, "{left:?}");
}

#[test]
fn a_report_that_cannot_be_written_costs_no_figures_and_a_place_that_takes_none_no_time() {
    let model = format!("{TINY}/tiny-stories-f16.gguf");
    let dir = tempfile::tempdir().unwrap();
    // a directory where the page is to be
    std::fs::create_dir_all(dir.path().join("report.html/x")).unwrap();
    let ran = isobit(&[&model, "--types", "q8_0", "-o", dir.path().to_str().unwrap()]);
    let (out, err) = (text(&ran.stdout), text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(2), "{err}");
    assert!(out.contains("Q8_0: root mean square error") && err.contains("report.html"), "{out}{err}");
    if cfg!(target_os = "linux") {
        // nobody can make a file there, not even root
        let ran = isobit(&[&model, "--types", "q8_0", "-o", "/proc"]);
        let err = text(&ran.stderr);
        assert_eq!((ran.status.code(), text(&ran.stdout).as_str(), err.lines().count()), (Some(2), "", 1), "{err}");
        assert!(err.contains("the directory /proc cannot be written"), "{err}");
    }
}

#[test]
fn halving_the_block_lowers_the_error_of_every_qkv_layer_with_outliers() {
    let dir = tempfile::tempdir().unwrap();
    phi3(dir.path(), 4);
    let v = json(&[dir.path().to_str().unwrap(), "--types", "q8k,q8k128"]);
    let q = &group(&v, "qkv")["types"]["Q8K128"];
    assert_eq!((&q["layers"], &q["layers_improved"]), (&4.into(), &4.into()));
    assert!(number(q, "/rmse_change_percent") < -1.0, "{q}");
}

#[test]
fn a_policy_measures_its_tensors_and_leaves_the_others_at_the_baseline() {
    let dir = tempfile::tempdir().unwrap();
    phi3(dir.path(), 5);
    let input = dir.path().to_str().unwrap();
    let all = json(&[input, "--types", "q8k,q4k"]);
    // per policy: tensors compared, of 22
    for (policy, compared) in
        [("off", 0), ("layer0-qkv", 1), ("early_qkv", 4), ("all-qkv", 5), ("attn", 10), ("q8k", 16), ("all", 21)]
    {
        let v = json(&[input, "--types", "q8k,q4k", "--policy", policy]);
        let tensors = v["tensors"].as_array().unwrap();
        let both = tensors.iter().filter(|t| t["types"].as_object().unwrap().len() == 2).count();
        assert_eq!((tensors.len(), both), (22, compared), "{policy}");
        let model = &group(&v, "model")["types"];
        // squared errors add up: those of the policy's tensors in the new type, of the others in the old
        let squares: f64 = (all["tensors"].as_array().unwrap().iter().zip(tensors))
            .map(|(t, p)| {
                let e = &t["types"][if p["types"].as_object().unwrap().len() == 2 { "Q4_K" } else { "Q8_K" }];
                number(e, "/rmse").powi(2) * number(e, "/elements")
            })
            .sum();
        let expected = (squares / number(&model["Q4_K"], "/elements")).sqrt();
        assert!((number(&model["Q4_K"], "/rmse") / expected - 1.0).abs() < 1e-12, "{policy}");
    }
}

#[test]
fn a_gate_that_holds_fails_the_run_after_everything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = put(dir.path(), "m.safetensors", &[("blk.0.attn_q.weight", 1, 256, spike_row())]);
    let out = dir.path().join("out");
    let types = ["--types", "q8k,q8k128"];
    let ask = |gate: &str| {
        let ran = isobit(&[&[file.as_str()], &types[..], &["--fail-if", gate, "-o", out.to_str().unwrap()]].concat());
        (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
    };
    // the change is -29.43 %
    let (code, stdout, _) = ask("qkv.rmse_change > -29%");
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.contains("gate qkv.rmse_change > -29%: Q8K128 -29.4"), "{stdout}");
    std::fs::remove_dir_all(&out).unwrap();
    let (code, stdout, stderr) = ask("qkv.rmse_change > -30%");
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stdout.contains("FAILS") && stderr.contains("error: gate failed: qkv.rmse_change > -30%: Q8K128 has -29.4")
    );
    assert!(out.join("report.html").is_file());
    // any of several gates is enough
    let two = [&[file.as_str()], &types[..], &["--fail-if", "model.max > 1", "--fail-if", "qkv.collapse@q8k == 255"]]
        .concat();
    assert_eq!(isobit(&two).status.code(), Some(1));
}

#[test]
fn a_gate_that_cannot_be_understood_or_answered_is_bad_usage() {
    let model = format!("{TINY}/tiny-stories-f16.gguf");
    let ask = |gate: &str| refused(2, &[&model, "--types", "q8k,q8k128", "--fail-if", gate]);
    for (gate, word) in [
        ("qkv.rmse_change", "no comparison"),
        ("qkv.rmsd > 1", "unknown metric"),
        ("heads.rmse > 1", "unknown group"),
        ("qkv.rmse_change > -5", "write -5%"),
        ("qkv.rmse@q4k > 1", "not among the types"),
        ("lm_head.rmse > 1", "no tensors of that group"),
    ] {
        let line = ask(gate);
        assert!(line.contains(word), "{gate}: {line}");
    }
    // nothing was compared under this policy, so nothing can pass
    let off = refused(2, &[&model, "--policy", "off", "--fail-if", "qkv.rmse_change > -5%"]);
    assert!(off.contains("cannot be answered"), "{off}");
}

#[test]
fn quantised_input_is_measured_by_decoding_and_the_output_says_so() {
    let f16 = json(&[&format!("{TINY}/tiny-stories-f16.gguf"), "--types", "q8_0"]);
    assert!(f16["quantised_input"].is_null());
    let q8 = json(&[&format!("{TINY}/tiny-stories-Q8_0.gguf"), "--types", "q8_0"]);
    assert!(q8["quantised_input"].as_str().unwrap().contains("quantised already"));
    let rmse = |v: &Value| number(&group(v, "qkv")["types"]["Q8_0"], "/rmse");
    // quantising again what is quantised loses next to nothing
    assert!(rmse(&q8) < rmse(&f16) / 10.0, "{} {}", rmse(&q8), rmse(&f16));
}

#[test]
fn figures_do_not_depend_on_the_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    phi3(dir.path(), 2);
    let run = |threads: &str| {
        let args = ["hist", dir.path().to_str().unwrap(), "--json", "--types", "q8k,q4k"];
        let ran = program::isobit(args).env("RAYON_NUM_THREADS", threads).output().unwrap();
        assert!(ran.status.success());
        text(&ran.stdout)
    };
    assert_eq!(run("1"), run("5"));
}

#[test]
fn what_cannot_be_measured_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let name = "blk.0.attn_q.weight";
    let odd = put(
        dir.path(),
        "odd.safetensors",
        &[(name, 1, 96, vec![1.0; 96]), ("blk.0.attn_k.weight", 1, 256, spike_row())],
    );
    let v = json(&[&odd, "--types", "q8k"]);
    assert_eq!(v["skipped"][0]["name"], name);
    assert!(v["skipped"][0]["why"].as_str().unwrap().contains("not whole Q8_K blocks"));
    assert_eq!(v["tensors"].as_array().unwrap().len(), 1);

    let only = put(dir.path(), "only.safetensors", &[(name, 1, 96, vec![1.0; 96])]);
    assert!(refused(2, &[&only, "--types", "q8k"]).contains("no weight matrix to measure"));
    let mut row = spike_row();
    row[7] = f32::NAN;
    let bad = put(dir.path(), "nan.safetensors", &[(name, 1, 256, row)]);
    assert!(refused(2, &[&bad]).contains("NaN"));
    let mut row = spike_row();
    row[7] = 1e9;
    let large = put(dir.path(), "large.safetensors", &[(name, 1, 256, row)]);
    assert!(refused(2, &[&large, "--types", "q8k,f16"]).contains("F16 cannot hold"));
    assert!(refused(2, &[&large, "--types", "q8k,q8_k"]).contains("twice"));
    assert!(refused(2, &[&large, "--types", "q9"]).contains("unknown type"));
    assert!(refused(2, &[&large, "--policy", "some"]).contains("layer0-qkv"));
    assert!(refused(2, &["/nowhere/at/all.gguf"]).contains("/nowhere"));
}

#[test]
fn the_output_states_its_definitions_and_the_page_has_the_same() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/hist.md")).unwrap();
    let out = text(&isobit(&[&format!("{TINY}/tiny-stories-f16.gguf"), "--types", "q8_0"]).stdout);
    for (name, definition) in isobit::internals::study::errors::DEFINITIONS {
        assert!(page.contains(&format!("- `{name}`: {definition}.\n")), "docs/hist.md: {name}");
        assert!(out.contains(definition), "{name}");
    }
}
