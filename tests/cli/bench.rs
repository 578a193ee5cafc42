//! `isobit bench` as a user meets it: the real binary, its formats, its digests and its exit codes.
//!
//! The tests check what is written and that wrong results are found; they judge no speed.

use crate::{absent, program};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// llama-bench's columns, in its order.
const COLUMNS: [&str; 42] = [
    "build_commit",
    "build_number",
    "cpu_info",
    "gpu_info",
    "backends",
    "model_filename",
    "model_type",
    "model_size",
    "model_n_params",
    "n_batch",
    "n_ubatch",
    "n_threads",
    "cpu_mask",
    "cpu_strict",
    "poll",
    "type_k",
    "type_v",
    "n_gpu_layers",
    "n_cpu_moe",
    "split_mode",
    "main_gpu",
    "no_kv_offload",
    "flash_attn",
    "devices",
    "tensor_split",
    "tensor_buft_overrides",
    "use_mmap",
    "use_direct_io",
    "embeddings",
    "no_op_offload",
    "no_host",
    "repack",
    "fit_target",
    "fit_min_ctx",
    "n_prompt",
    "n_gen",
    "n_depth",
    "test_time",
    "avg_ns",
    "stddev_ns",
    "avg_ts",
    "stddev_ts",
];

/// A run that ended.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn command(args: &[&str]) -> Command {
    let mut c = program::isobit(["bench"]);
    c.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    c
}

fn bench(args: &[&str]) -> Ran {
    finished(&mut command(args))
}

fn finished(c: &mut Command) -> Ran {
    let o = c.output().expect("the program starts");
    let text = |b: Vec<u8>| String::from_utf8(b).expect("the program writes UTF-8");
    Ran { code: o.status.code(), out: text(o.stdout), err: text(o.stderr) }
}

impl Ran {
    fn exits(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    fn rows(&self) -> Vec<Value> {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

/// A quick run on the CPU: no limits, two repetitions.
const QUICK: [&str; 6] = ["--device", "cpu", "--no-limits", "-r", "2", "-o"];

fn quick(format: &str, more: &[&str]) -> Ran {
    let mut args = QUICK.to_vec();
    args.push(format);
    args.extend(more);
    bench(&args)
}

fn put(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("a writable folder");
    path.to_str().expect("a plain path").to_string()
}

/// The keys of a JSON object in the order of the text.
fn keys(object: &str) -> Vec<String> {
    let lines = object.lines().filter_map(|l| l.trim().strip_prefix('"'));
    lines.filter_map(|l| l.split_once("\": ")).map(|(k, _)| k.to_string()).collect()
}

/// The first adapter; none only where the tests are told to do without.
fn adapter() -> Option<String> {
    let o = program::isobit(["devices", "--json"]).output().expect("the program starts");
    let v: Value = serde_json::from_slice(&o.stdout).expect("one JSON object");
    let found = v["adapters"].as_array().and_then(|a| a.first()).map(|a| a["index"].to_string());
    absent::found_or_cpu_only(usize::from(found.is_some()));
    found
}

#[test]
fn json_has_llama_benchs_columns_in_order_then_the_samples_then_ours() {
    let ran = quick("json", &["-p", "16,8", "-n", "4", "-pg", "8,2", "-d", "0,32", "-ctk", "q8_0"]).exits(0);
    let names = keys(&ran.out[..ran.out.find('}').expect("an object")]);
    assert_eq!(names[..42], COLUMNS);
    assert_eq!(names[42..44], ["samples_ns", "samples_ts"]);
    for ours in ["digest", "p99_ns", "ttft_ns", "driver", "wgpu_version", "limit_percent", "energy_source"] {
        assert!(names[44..].iter().any(|n| n == ours), "{ours}");
    }
    let rows = ran.rows();
    let tests: Vec<_> =
        rows.iter().map(|r| [&r["n_prompt"], &r["n_gen"], &r["n_depth"]].map(Value::to_string)).collect();
    let expected: Vec<_> = [0, 32].iter().flat_map(|d| [[16, 0, *d], [8, 0, *d], [0, 4, *d], [8, 2, *d]]).collect();
    assert_eq!(tests, expected.iter().map(|t| t.map(|n| n.to_string())).collect::<Vec<_>>());
    for r in &rows {
        let samples: Vec<f64> = r["samples_ns"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        assert_eq!(samples.len(), 2);
        let mean = samples.iter().sum::<f64>() / 2.0;
        assert!((r["avg_ns"].as_f64().unwrap() - mean).abs() < 1.0);
        let tokens = r["n_prompt"].as_f64().unwrap() + r["n_gen"].as_f64().unwrap();
        let ts = samples.iter().map(|ns| tokens * 1e9 / ns).sum::<f64>() / 2.0;
        assert!((r["avg_ts"].as_f64().unwrap() / ts - 1.0).abs() < 1e-6);
        assert_eq!(r["type_k"], "q8_0");
        assert_eq!(r["type_v"], "q8_0", "values follow the keys unless told otherwise");
        assert!(r["error"].is_null() && r["digest"].as_str().unwrap().len() == 64);
        assert!(r["bytes_per_token"].as_f64().unwrap() > 1000.0 && r["dispatches_per_token"].as_f64().unwrap() > 1.0);
        assert!(r["host_us_per_token"].is_null(), "the CPU does not count it");
        let generates = r["n_gen"] != 0;
        assert_eq!(r["p50_ns"].is_u64(), generates);
        assert_eq!(r["ttft_ns"].is_u64(), r["n_prompt"] != 0);
    }
}

#[test]
fn every_format_tells_the_same_rows() {
    let tests = ["-p", "8", "-n", "2"];
    let line = |ran: Ran| ran.exits(0).out;
    let jsonl = line(quick("jsonl", &tests));
    assert_eq!(jsonl.lines().count(), 2);
    assert!(jsonl.lines().all(|l| serde_json::from_str::<Value>(l).is_ok()));

    let csv = line(quick("csv", &tests));
    let lines: Vec<&str> = csv.lines().collect();
    let head: Vec<&str> = lines[0].split(',').collect();
    assert_eq!(head[..42], COLUMNS);
    let cells = |line: &str| -> Vec<String> {
        let inside = line.strip_prefix('"').and_then(|l| l.strip_suffix('"')).expect("quoted cells");
        inside.split("\",\"").map(String::from).collect()
    };
    let records: Vec<_> = lines[1..].iter().map(|l| cells(l)).collect();
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|r| r.len() == head.len()));
    assert_eq!((records[0][34].as_str(), records[1][35].as_str()), ("8", "2"));

    let sql = line(quick("sql", &tests));
    assert_eq!(sql.matches("CREATE TABLE IF NOT EXISTS llama_bench (").count(), 1);
    assert_eq!(sql.matches("INSERT INTO llama_bench (").count(), 2);

    let md = line(quick("md", &tests));
    let rows: Vec<&str> = md.lines().filter(|l| l.starts_with('|')).collect();
    assert!(rows[0].starts_with("| model | size | params | backend | ngl |"), "{md}");
    assert!(rows[0].contains("| test | t/s |") && rows[2].contains("| pp8 |") && rows[3].contains("| tg2 |"), "{md}");
    assert!(md.contains("\nbuild: "), "{md}");
    let columns = rows[0].matches('|').count();
    assert!(rows.iter().all(|r| r.matches('|').count() == columns), "{md}");
}

#[test]
fn json_is_the_format_of_that_name_for_rows_operations_and_comparisons() {
    let args = ["--device", "cpu", "--no-limits", "-r", "2", "-p", "8", "-n", "0", "--json"];
    let rows = bench(&args).exits(0).rows();
    assert_eq!((rows.len(), rows[0]["n_prompt"].as_u64()), (1, Some(8)));
    assert_eq!(rows[0]["warnings"], Value::Array(vec![]));
    let dir = tempfile::tempdir().unwrap();
    let file = put(dir.path(), "a.json", &Value::Array(rows).to_string());
    let ran = bench(&["--compare", &file, &file, "--json"]).exits(0);
    let v: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {ran:#?}"));
    assert_eq!((&v["a"], v["rows"].as_array().map(Vec::len)), (&file.as_str().into(), Some(1)));
    assert_eq!((&v["rows"][0]["ratio"], &v["rows"][0]["digests"]), (&1.0.into(), &"same".into()));
    assert_eq!(bench(&["--json", "-o", "md"]).exits(2).out, "");
}

#[test]
fn what_is_warned_of_is_in_the_rows_and_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("p.html");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/tiny-stories-Q8_0.gguf");
    let html = page.to_str().unwrap();
    let ran = quick("jsonl", &["-m", model, "-p", "8", "-n", "0", "-fa", "off", "--html", html]).exits(0);
    let row: Value = serde_json::from_str(&ran.out).unwrap();
    let said = "-fa off: attention is always fused, the flag changes nothing";
    assert!(ran.err.contains(&format!("warning: {said}")), "{ran:#?}");
    assert_eq!(row["warnings"], serde_json::json!([said]));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains(said) && text.contains("(tiny-stories-Q8_0.gguf)"), "{text}");
    // drawn again from the rows, it says the same
    let rows = put(dir.path(), "rows.jsonl", &ran.out);
    bench(&["--from", &rows, "--html", html]).exits(0);
    assert_eq!(std::fs::read_to_string(&page).unwrap(), text);
}

#[test]
fn the_other_format_goes_to_stderr() {
    let ran = quick("md", &["-p", "8", "-n", "0", "-oe", "jsonl"]).exits(0);
    let rows: Vec<Value> =
        ran.err.lines().filter(|l| l.starts_with('{')).map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((rows.len(), rows[0]["n_prompt"].as_u64()), (1, Some(8)));
}

#[test]
fn digests_do_not_depend_on_level_threads_batch_or_repetition_and_do_on_the_cache() {
    let ran = bench(&[
        "--device",
        "cpu:scalar,cpu:portable,cpu",
        "-t",
        "1,2",
        "--no-limits",
        "-r",
        "2",
        "-b",
        "16,5",
        "-ub",
        "512,3",
        "-p",
        "16",
        "-n",
        "3",
        "-ctk",
        "f16,tq3_1",
        "-o",
        "json",
    ])
    .exits(0);
    let rows = ran.rows();
    assert_eq!(rows.len(), 3 * 2 * 2 * 2 * 2 * 2);
    for key in ["digest", "last_logits"] {
        for (n_prompt, k) in [(16, "f16"), (0, "f16"), (16, "tq3_1"), (0, "tq3_1")] {
            let of = rows.iter().filter(|r| r["n_prompt"] == n_prompt && r["type_k"] == k);
            let all: std::collections::BTreeSet<&str> = of.map(|r| r[key].as_str().unwrap()).collect();
            assert_eq!(all.len(), 1, "{key} {n_prompt} {k}");
        }
    }
    let first = |k: &str| rows.iter().find(|r| r["type_k"] == k).unwrap()["digest"].clone();
    assert_ne!(first("f16"), first("tq3_1"));
    // the first device of all is compared with nobody, itself least of all: not for another batch, ubatch or test
    let (first, others): (Vec<&Value>, Vec<&Value>) = rows.iter().partition(|r| r["device"] == rows[0]["device"]);
    assert_eq!((first.len(), others.len()), (16, 80));
    let same = format!("same as {}", rows[0]["device"].as_str().unwrap());
    for check in ["digest_check", "logits_check"] {
        assert!(first.iter().all(|r| r[check] == "not compared"), "{check}");
        assert!(others.iter().all(|r| r[check] == same.as_str()), "{check}");
    }
}

#[test]
fn a_digest_that_differs_marks_the_row_and_exits_with_1() {
    let ran = bench(&[
        "--device",
        "cpu,cpu:portable",
        "--no-limits",
        "-r",
        "1",
        "-p",
        "8",
        "-n",
        "0",
        "-o",
        "json",
        "--plant-fault",
        "cpu:portable",
    ])
    .exits(1);
    let rows = ran.rows();
    let different = |r: &Value, check: &str| r[check].as_str().is_some_and(|s| s.starts_with("DIFFERENT from CPU ("));
    for check in ["digest_check", "logits_check"] {
        assert!(rows[0][check] == "not compared" && different(&rows[1], check), "{rows:#?}");
    }
    assert!(ran.err.contains("DIFFER"), "{}", ran.err);
    // the reference is right, so the only device is wrong; its tests are checked as well as its digest
    let args = ["--reference", "cpu:scalar", "--plant-fault", "cpu", "-p", "8", "-n", "0"];
    let row = &quick("json", &args).exits(1).rows()[0];
    assert!(different(row, "digest_check") && different(row, "logits_check"), "{row}");
    let md = quick("md", &args).exits(1).out;
    assert!(md.contains("DIFFERENT from CPU (scalar"), "{md}");
}

#[test]
fn the_reference_checks_what_every_test_ends_with_as_far_as_it_may() {
    let tests =
        ["--reference", "cpu:scalar", "-p", "70,5", "-n", "5", "-pg", "6,2", "-d", "0,100", "-ctk", "f16,tq3_1"];
    let rows = quick("json", &tests).exits(0).rows();
    assert_eq!(rows.len(), 16);
    for check in ["digest_check", "logits_check"] {
        let same = |r: &Value| r[check].as_str().is_some_and(|s| s.starts_with("same as CPU (scalar"));
        assert!(rows.iter().all(same), "{check}: {rows:#?}");
    }
    // no time at all: digests only, and it is said
    let ran = quick("json", &[&tests[..], &["--reference-limit", "0"]].concat()).exits(0);
    assert!(ran.rows().iter().all(|r| r["logits_check"] == "not compared" && r["digest_check"] != "not compared"));
    assert!(ran.err.contains("by the digest alone are checked: pp5, tg5, pp6+tg2, pp70, pp5 @ d100"), "{}", ran.err);
    let md = quick("md", &[&tests[..], &["--reference-limit", "0"]].concat()).exits(0).out;
    assert!(md.contains("; last logits not compared"), "{md}");
    // a device is no reference of itself, however it is named
    let ran = quick("json", &["--reference", "cpu", "-p", "8", "-n", "0"]).exits(0);
    assert_eq!(ran.rows()[0]["digest_check"], "not compared");
    assert!(ran.err.contains("is the reference itself"), "{}", ran.err);
}

#[test]
fn rows_say_how_many_layers_experts_the_cpu_has() {
    let (_folder, mixture) = crate::checkpoint::model(
        "--preset tiny --arch qwen3moe --layers 3 --experts 4 --used 2 --expert-ffn 64 --type q8_0",
    );
    let mixture = mixture.to_string_lossy();
    let row = |device: &str, n: u64| {
        let layers = n.to_string();
        let of = ["-m", &mixture, "--device", device, "-ncmoe", &layers];
        let rows = bench(&[&of[..], &["-r", "1", "-p", "8", "-n", "2", "-o", "json"]].concat()).exits(0).rows();
        assert!(rows.len() == 2 && rows.iter().all(|r| r["n_cpu_moe"] == n), "{rows:#?}");
        (rows[0]["digest"].clone(), rows[1]["digest"].clone(), rows[0]["device"].to_string())
    };
    let alone = row("cpu", 0);
    let Some(index) = adapter() else { return };
    let apart = row(&index, 2);
    assert_eq!((&alone.0, &alone.1), (&apart.0, &apart.1));
    assert!(apart.2.contains(", experts on CPU"), "{}", apart.2);
}

#[test]
fn rows_say_which_kernels_were_chosen() {
    let mut plain = command(&[&QUICK[..], &["json", "-p", "8", "-n", "0"]].concat());
    let ran = finished(plain.env_remove("ISOBIT_TUNE")).exits(0);
    let names = keys(&ran.out[..ran.out.find('}').expect("an object")]);
    assert_eq!(names[names.len() - 3..], ["fuse", "variant", "tune"], "after all others");
    let row = &ran.rows()[0];
    assert_eq!([&row["fuse"], &row["variant"], &row["tune"]], [&Value::from("on"), &Value::Null, &Value::from("auto")]);
    let odd = |args: &[&str]| {
        let mut c = command(args);
        c.envs([("ISOBIT_FUSE", "off"), ("ISOBIT_TUNE", "off"), ("ISOBIT_VARIANT", "matmul,q4k_matvec=matvec4")]);
        let o = c.output().expect("the program starts");
        String::from_utf8(o.stdout).expect("text")
    };
    let csv = odd(&["--device", "cpu", "--no-limits", "-r", "1", "-p", "8", "-n", "0", "-o", "csv"]);
    assert!(csv.lines().next().unwrap().ends_with(",fuse,variant,tune"), "{csv}");
    assert!(csv.lines().nth(1).unwrap().ends_with(r#","off","","off""#), "{csv}");
    let Some(index) = adapter() else { return };
    let grid = ["--device", &index, "--no-limits", "-r", "1", "-p", "8", "-n", "0", "-o"];
    let rows: Vec<Value> = serde_json::from_str(&odd(&[&grid[..], &["json"]].concat())).expect("rows");
    let kernels = ["fuse", "variant", "tune"].map(|k| rows[0][k].as_str().unwrap_or("-"));
    assert_eq!(kernels, ["off", "matmul,q4k_matvec=matvec4", "off"]);
    // flags say the same, and go before the variables
    let flags = ["--fuse", "wide", "--variant", "matvec4", "--tune", "auto"];
    let rows: Vec<Value> = serde_json::from_str(&odd(&[&grid[..], &["json"], &flags].concat())).expect("rows");
    let kernels = ["fuse", "variant", "tune"].map(|k| rows[0][k].as_str().unwrap_or("-"));
    assert_eq!(kernels, ["wide", "matvec4", "auto"]);
    let sql = odd(&[&grid[..], &["sql"]].concat());
    assert!(sql.contains("  fuse TEXT,\n  variant TEXT,\n  tune TEXT\n);"), "{sql}");
    assert!(sql.contains(", 'off', 'matmul,q4k_matvec=matvec4', 'off');"), "{sql}");
    let md = odd(&[&grid[..], &["md"]].concat());
    assert!(
        md.contains("| fuse | variant | tune |") && md.contains("| off | matmul,q4k_matvec=matvec4 | off |"),
        "{md}"
    );
}

#[test]
fn a_group_that_fails_is_rows_with_an_error_among_valid_ones() {
    // a cache of 16 million positions of this shape takes 16 TiB, which is refused before anything is allocated
    let args = ["--synthetic", "llama-7b", "-p", "8", "-n", "0", "-d", "0,16000000", "-ctk", "f32"];
    let ran = quick("json", &args).exits(2);
    let rows = ran.rows();
    assert_eq!(rows.len(), 2);
    for r in &rows {
        assert!(r["error"].as_str().unwrap().contains("memory"), "{r}");
        assert_eq!((r["avg_ns"].as_u64(), r["samples_ns"].as_array().map(Vec::len)), (Some(0), Some(0)));
    }
}

#[test]
fn synthetic_models_need_no_file_and_are_the_same_every_time() {
    let args = ["--synthetic", "llama-tiny,llama-tiny:q8_0,llama-tiny:f16", "-p", "8", "-n", "1"];
    let (a, b) = (quick("json", &args).exits(0).rows(), quick("json", &args).exits(0).rows());
    assert_eq!(a.len(), 6);
    for (x, y) in a.iter().zip(&b) {
        assert_eq!((&x["digest"], &x["last_logits"]), (&y["digest"], &y["last_logits"]));
    }
    assert_ne!(a[0]["digest"], a[2]["digest"]);
    assert_eq!(a[0]["model_type"], "llama 1M Q4_K - Medium");
    let args = [
        "--synthetic",
        "phi3-tiny,qwen2-tiny,qwen3-tiny,chatglm-tiny",
        "--reference",
        "cpu:scalar",
        "-p",
        "8",
        "-n",
        "1",
    ];
    let rows = quick("json", &args).exits(0).rows();
    let kinds: Vec<&str> = rows.iter().step_by(2).map(|r| r["model_type"].as_str().unwrap()).collect();
    let expected = ["phi3 2M", "qwen2 1M", "qwen3 1M", "chatglm 1M"].map(|m| format!("{m} Q4_K - Medium"));
    assert_eq!(kinds, expected);
    assert!(rows.iter().all(|r| r["logits_check"].as_str().unwrap().starts_with("same as ")), "{rows:#?}");
}

#[test]
fn an_encoder_takes_texts_whole_and_gives_the_same_states_everywhere() {
    let args =
        ["--synthetic", "bert-tiny,nomic-tiny:q8_0", "--reference", "cpu:scalar", "-p", "8,70", "--ubatch", "16"];
    let ran = quick("json", &args).exits(0);
    let rows = ran.rows();
    let tests = rows.iter().map(|r| (r["n_prompt"].as_u64().unwrap(), r["n_gen"].as_u64().unwrap()));
    assert_eq!(tests.collect::<Vec<_>>(), [(8, 0), (70, 0)].repeat(2), "{ran:#?}");
    assert!(ran.err.contains("a bert model makes vectors of whole texts: tg128 left out"), "{ran:#?}");
    for row in &rows {
        let same = |key: &str| row[key].as_str().unwrap().starts_with("same as ");
        assert!(same("logits_check") && same("digest_check") && row["embeddings"] == true, "{row:#}");
        assert!(row["avg_ts"].as_f64().unwrap() > 0.0, "{row:#}");
    }
    let digests = |key: &str| rows.iter().map(|r| r[key].to_string()).collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!((digests("digest"), digests("last_logits")), (2, 4), "{rows:#?}");
    // every operation of theirs is checked too
    let ops = bench(&["--ops", "--synthetic", "nomic-tiny", "-p", "8", "-r", "1", "--device", "cpu", "-o", "json"]);
    let ops = ops.exits(0).rows();
    for op in ["layer_norm", "q4k_matvec", "swiglu_quantize"] {
        assert!(ops.iter().any(|r| r["op"] == op && r["words_checked"].as_u64() > Some(0)), "{op}: {ops:#?}");
    }
}

/// What `bench --ops` says of a small model on a device: every operation, for many tokens and for one.
fn check_operations(device: &str) {
    let ran =
        bench(&["--ops", "--synthetic", "llama-tiny", "-p", "8", "-r", "1", "--device", device, "-o", "json"]).exits(0);
    let rows = ran.rows();
    for op in ["embed_q4k", "q4k_matvec", "q6k_matvec", "attention_quantize[f16,f16]", "norm_quantize"] {
        let row = rows.iter().find(|r| r["op"] == op).unwrap_or_else(|| panic!("no {op}: {ran:#?}"));
        assert!(row["words_checked"].as_u64().unwrap() > 0 && row["us"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert!(rows.iter().all(|r| r["fuse"] == "on" && r["variant"].is_null()), "{rows:#?}");
    let one = rows.iter().filter(|r| r["op"] == "q4k_matvec").map(|r| r["n_tokens"].as_u64().unwrap());
    assert_eq!(one.collect::<std::collections::BTreeSet<_>>(), [1, 8].into());
}

#[test]
fn operations_are_checked_before_they_are_timed() {
    check_operations("cpu");
}

#[test]
fn a_file_compared_with_itself_shows_no_difference_and_a_faster_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let ran = bench(&["--device", "cpu", "--no-limits", "-o", "json", "-p", "8", "-n", "2", "-r", "4"]).exits(0);
    let a = put(dir.path(), "a.json", &ran.out);
    let same = bench(&["--compare", &a, &a]).exits(0).out;
    assert!(same.contains("geometric mean: 1.000") && same.contains("no difference beyond noise"), "{same}");

    let mut rows = ran.rows();
    for r in &mut rows {
        let faster: Vec<f64> = (0..4).map(|i| 1e6 * (1.0 + f64::from(i) * 1e-3)).collect();
        r["samples_ts"] = faster.into();
    }
    let b = put(dir.path(), "b.json", &serde_json::to_string(&rows).unwrap());
    let out = bench(&["--compare", &a, &b]).exits(0).out;
    assert!(out.contains("B is faster") && out.contains("| faster | same |"), "{out}");

    rows[0]["digest"] = "00".into();
    let c = put(dir.path(), "c.json", &serde_json::to_string(&rows).unwrap());
    let ran = bench(&["--compare", &a, &c]).exits(1);
    assert!(ran.out.contains("DIFFER") && ran.err.contains("DIFFER"), "{ran:#?}");
}

#[test]
fn a_row_of_llama_bench_can_be_compared_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let theirs = r#"[{"build_commit": "abc", "cpu_info": "c", "gpu_info": "", "backends": "CPU", "model_filename": "m.gguf",
        "model_type": "llama 1B Q4_0", "model_n_params": 7, "n_batch": 2048, "n_threads": 2, "type_k": "f16", "type_v": "f16",
        "n_prompt": 0, "n_gen": 8, "n_depth": 0, "avg_ts": 10.0, "stddev_ts": 0.1, "samples_ns": [1, 2], "samples_ts": [9.9, 10.1]}]"#;
    let a = put(dir.path(), "a.json", theirs);
    let out = bench(&["--compare", &a, &a]).exits(0).out;
    assert!(out.contains("llama 1B Q4_0 tg8") && out.contains("| - |"), "{out}");
    let page = dir.path().join("p.html");
    bench(&["--from", &a, "--html", page.to_str().unwrap()]).exits(0);
    assert!(std::fs::read_to_string(&page).unwrap().contains("llama 1B Q4_0"));
}

#[test]
fn the_page_is_whole_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("p.html");
    quick("jsonl", &["-p", "8", "-n", "2", "-d", "0,64", "--html", page.to_str().unwrap()]).exits(0);
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>") && text.contains("Generation by depth"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let nowhere = dir.path().join("no/such/p.html");
    // a folder in the way, and none: known before anything runs
    for bad in [nowhere.to_str().unwrap(), dir.path().to_str().unwrap()] {
        let ran = quick("jsonl", &["-p", "8", "-n", "0", "--html", bad]).exits(2);
        assert_eq!(ran.out, "", "{ran:#?}");
        let error = ran.err.lines().find(|l| l.starts_with("error: ")).unwrap_or_default();
        assert!(error.contains("--html") && error.contains("director"), "{ran:#?}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_valid_json_of_the_finished_rows() {
    use std::io::{BufRead, BufReader};
    let args = ["--device", "cpu", "--no-limits", "-r", "100000", "-p", "8", "-n", "0", "-pg", "9,1", "-o", "json"];
    let mut child = command(&args).arg("--progress").spawn().expect("the program starts");
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("1 of 2") {
        line.clear();
        assert!(err.read_line(&mut line).unwrap() > 0, "ended before the first test");
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    assert!(killed.success());
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "still running");
        std::thread::sleep(Duration::from_millis(5));
    }
    let o = child.wait_with_output().unwrap();
    assert_eq!(o.status.code(), Some(130));
    assert_eq!(serde_json::from_slice::<Vec<Value>>(&o.stdout).expect("valid JSON").len(), 0);
}

#[test]
fn what_cannot_run_is_refused_in_one_line() {
    for (args, code, says) in [
        (&["-p", "0", "-n", "0"][..], 2, "nothing to run"),
        (&["-p", "5-1"], 2, "range"),
        (&["-p", "x"], 2, "expected numbers"),
        (&["--synthetic", "llama-9b"], 2, "llama-7b"),
        (&["--simd", "avx9"], 2, "portable"),
        (&["--device", "no-such-device"], 3, "no such adapter"),
        (&["-m", "/no/such/file.gguf", "--device", "cpu", "--no-limits"], 2, "/no/such/file.gguf"),
        (&["--compare", "/no/such/a.json", "/no/such/b.json"], 2, "/no/such/a.json"),
        (&["-o", "xml"], 2, "jsonl"),
        (&["-r", "0"], 2, "whole number"),
        (&["--reference", "no-such-device", "--device", "cpu", "--no-limits"], 3, "no such adapter"),
        (&["--ops", "--html", "p.html"], 2, "--ops has none"),
        (&["-ctk", "q9", "--device", "cpu"], 2, "tq3_1"),
        (&["--synthetic", "bert-tiny", "-p", "0", "-n", "8"], 2, "whole texts: no tg8; give it -p"),
    ] {
        let ran = bench(args).exits(code);
        let lines: Vec<&str> = ran.err.lines().filter(|l| l.starts_with("error: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(says), "{args:?}: {ran:#?}");
    }
}

#[cfg(feature = "gpu")]
mod gpu {
    use super::*;

    #[test]
    fn operations_of_an_adapter_are_checked_before_they_are_timed() {
        let index = adapter();
        absent::found(usize::from(index.is_some()), "adapter");
        check_operations(&index.expect("just counted"));
    }

    #[test]
    fn an_adapter_gives_the_cpus_digests_and_says_what_it_is() {
        let index = adapter();
        absent::found(usize::from(index.is_some()), "adapter");
        let index = index.expect("just counted");
        let args = ["--device", &format!("cpu,{index}"), "-r", "1", "-p", "40", "-n", "2", "-o", "json"];
        let rows = bench(&args).exits(0).rows();
        assert_eq!(rows[2]["digest"], rows[0]["digest"]);
        assert_eq!(rows[3]["last_logits"], rows[1]["last_logits"]);
        let same = format!("same as {}", rows[0]["device"].as_str().unwrap());
        assert_eq!([&rows[3]["digest_check"], &rows[3]["logits_check"]], [same.as_str(); 2]);
        for r in &rows {
            assert!(r["limit_read_gbs"].as_f64().unwrap() > 0.1 && r["limit_int8_gops"].as_f64().unwrap() > 0.1, "{r}");
            assert!(r["limit_percent"].as_f64().unwrap() > 0.0);
        }
        assert!(rows[2]["adapter"].is_string() && rows[2]["driver"].is_string() && rows[2]["wgpu_version"].is_string());
        assert!(rows[2]["host_us_per_token"].as_f64().unwrap() > 0.0);
        // the last logits of the prompt are 2048 floats for 40 tokens, those of every token generated are as many
        assert_eq!(
            [&rows[2], &rows[3]].map(|r| r["read_back_per_token"].as_f64()),
            [Some(8192.0 / 40.0), Some(8192.0)]
        );
        assert!(rows[0]["read_back_per_token"].is_null(), "the CPU hands nothing back");
        assert_eq!(rows[0]["backends"], "CPU");
        assert_ne!(rows[2]["backends"], "CPU");
    }

    #[test]
    fn predict_says_in_every_format_that_it_is_an_estimate_and_stays_below_what_memory_allows() {
        let args = ["--predict", "all", "--synthetic", "llama-58m", "-p", "64", "-n", "4", "-d", "0,300", "-o"];
        let run = |format: &str| bench(&[&args[..], &[format]].concat()).exits(0);
        let ran = run("json");
        assert!(ran.err.contains("estimate, not measured"), "{ran:#?}");
        let rows = ran.rows();
        let of = |v: &Value, name: &str| v[name].as_f64().unwrap_or_else(|| panic!("no {name} in {v}"));
        let mut targets: Vec<&str> = rows.iter().map(|r| r["target"].as_str().unwrap()).collect();
        targets.dedup();
        assert!(targets.len() >= 5 && rows.len() == 4 * targets.len(), "{targets:?}");
        for r in &rows {
            assert_eq!(r["figure"], "estimate, not measured");
            assert!(0.0 < of(r, "low_ts") && of(r, "low_ts") <= of(r, "high_ts"), "{r}");
            assert!(of(r, "high_ts") <= of(r, "memory_limit_ts"), "{r}");
            for (percent, rate) in [("low_percent", "low_ts"), ("high_percent", "high_ts")] {
                // both are rounded to four digits
                let said = of(r, percent) / 100.0 * of(r, "memory_limit_ts");
                assert!((said / of(r, rate) - 1.0).abs() < 2e-3 && of(r, percent) <= 100.0, "{percent}: {r}");
            }
            assert!(of(r, "dispatches_per_token") > 0.0 && r["measured_ts"].is_null(), "{r}");
        }
        for (format, lines) in [("md", rows.len() + 2), ("csv", rows.len() + 1), ("jsonl", rows.len())] {
            let out = run(format).out;
            assert_eq!(out.lines().count(), lines, "{out}");
            let marked = out.lines().filter(|l| l.contains("estimate, not measured")).count();
            assert_eq!(marked, rows.len(), "{out}");
        }
    }

    #[test]
    fn predict_names_its_targets_and_shows_what_a_file_of_rows_has_of_the_same_test() {
        let dir = tempfile::tempdir().unwrap();
        let shape = ["--synthetic", "llama-58m", "-p", "0", "-n", "4", "-o", "json"];
        let predict = |more: &[&str]| bench(&[&shape[..], more].concat());
        let unknown = predict(&["--predict", "voodoo2"]).exits(2);
        for name in ["voodoo2", "strix-halo", "rtx-4090", "h100", "arc-a770", "m1", "all"] {
            assert!(unknown.err.contains(name), "{unknown:#?}");
        }
        let rows = predict(&["--predict", "h100"]).exits(0).rows();
        let row = |adapter: &str, depth: usize| {
            let mut v = rows[0].clone();
            let samples = Value::from(vec![12.0, 13.0]);
            let set = [
                ("adapter", Value::from(adapter)),
                ("n_depth", depth.into()),
                ("avg_ts", 12.5.into()),
                ("samples_ts", samples),
            ];
            for (name, value) in set {
                v[name] = value;
            }
            v.to_string()
        };
        for (adapter, depth, expected) in [
            ("NVIDIA H100 80GB HBM3", 0, Some(Value::from(12.5))),
            ("NVIDIA H100 80GB HBM3", 64, Some(Value::Null)),
            ("llvmpipe (LLVM 15.0.6, 256 bits)", 0, None),
        ] {
            let file = put(dir.path(), "rows.json", &format!("[{}]", row(adapter, depth)));
            let ran = predict(&["--predict", "auto", "--measured", &file]).exits(0);
            match expected {
                Some(measured) => assert_eq!(ran.rows()[0]["measured_ts"], measured, "{adapter} at {depth}"),
                None => assert!(ran.rows().is_empty() && ran.err.contains("no figures of llvmpipe"), "{ran:#?}"),
            }
        }
        assert!(predict(&["--predict", "auto"]).exits(2).err.contains("--measured"));
    }
}
