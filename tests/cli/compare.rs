//! `isobit compare` as a user meets it: the figures of `isobit perplexity` come out again, a model against itself is
//! exactly zero, and what cannot be compared is refused.

use crate::program::isobit;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny");
const Q4_K_M: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/tiny-stories-Q4_K_M.gguf");

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn ok(ran: Output) -> String {
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    text(&ran.stdout)
}

fn valid() -> String {
    format!("{TINY}/valid.txt")
}

/// `isobit compare A B` over a few windows of the validation text on the CPU.
fn compare(a: &str, b: &str, more: &[&str]) -> Output {
    let file = valid();
    let mut args = vec!["compare", a, b, "-f", &file, "--device", "cpu"];
    args.extend(more);
    isobit(args).output().unwrap()
}

fn json(a: &str, b: &str, more: &[&str]) -> Value {
    let out = ok(compare(a, b, &[more, &["--json"]].concat()));
    assert_eq!(out.lines().count(), 1, "{out}");
    serde_json::from_str(&out).unwrap()
}

fn number(v: &Value, pointer: &str) -> f64 {
    v.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number {pointer} in {v}"))
}

fn refused(ran: Output) -> String {
    let err = text(&ran.stderr);
    assert_eq!((ran.status.code(), text(&ran.stdout).as_str(), err.lines().count()), (Some(2), "", 1), "{err}");
    assert!(err.starts_with("error: "), "{err}");
    err
}

#[test]
fn a_model_against_itself_differs_by_exactly_nothing() {
    let v = json(Q4_K_M, Q4_K_M, &["-c", "64", "--chunks", "4"]);
    for zero in [
        "/nll_difference/mean",
        "/nll_difference/stderr",
        "/ppl_difference/mean",
        "/kl/mean",
        "/kl/max",
        "/delta_p/rms",
    ] {
        assert_eq!(number(&v, zero), 0.0, "{zero}");
    }
    assert_eq!((number(&v, "/same_top/mean"), number(&v, "/ppl_ratio")), (1.0, 1.0));
    assert_eq!((&v["verdict"], v["windows_needed"].is_null()), (&"identical".into(), true));
    assert!(number(&v, "/a/ppl") > 2.0 && number(&v, "/a/ppl") == number(&v, "/b/ppl"));
    let out = ok(compare(Q4_K_M, Q4_K_M, &["-c", "64", "--chunks", "1"]));
    assert!(out.trim_end().ends_with("every difference is zero."), "{out}");
}

#[test]
fn both_perplexities_are_those_of_isobit_perplexity_to_the_last_digit() {
    let f16 = format!("{TINY}/tiny-stories-f16.gguf");
    let window = ["-c", "128", "--chunks", "5"];
    let v = json(&f16, Q4_K_M, &window);
    for (model, side) in [(f16.as_str(), "a"), (Q4_K_M, "b")] {
        let file = valid();
        let mut args = vec!["perplexity", model, "-f", &file, "--device", "cpu", "--json"];
        args.extend(window);
        let alone: Value = serde_json::from_str(&ok(isobit(args).output().unwrap())).unwrap();
        for (here, there) in [("ppl", "ppl"), ("nll", "nll"), ("ppl_stderr", "stderr")] {
            assert_eq!(v[side][here], alone[there], "{side} {here}");
        }
        assert_eq!(v["tokens"], alone["tokens"]);
    }
    let (a, b) = (number(&v, "/a/nll"), number(&v, "/b/nll"));
    assert!((number(&v, "/nll_difference/mean") - (b - a)).abs() < 1e-12);
    assert!(number(&v, "/kl/mean") > 0.0 && number(&v, "/kl/median") < number(&v, "/kl/p99"));
    assert!(number(&v, "/kl/p99") <= number(&v, "/kl/max"));
}

#[test]
fn the_standard_error_is_that_of_the_paired_windows() {
    let v = json(&format!("{TINY}/tiny-stories-Q8_0.gguf"), Q4_K_M, &["-c", "64", "--chunks", "6"]);
    let differences: Vec<f64> =
        v["per_window"].as_array().unwrap().iter().map(|w| number(w, "/nll_b") - number(w, "/nll_a")).collect();
    assert_eq!(differences.len(), 6);
    let mean = differences.iter().sum::<f64>() / 6.0;
    let error = (differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / 5.0 / 6.0).sqrt();
    assert!((number(&v, "/nll_difference/mean") / mean - 1.0).abs() < 1e-9);
    assert!((number(&v, "/nll_difference/stderr") / error - 1.0).abs() < 1e-9);
    // Student's t for 5 degrees of freedom
    let distinguishable = mean.abs() > 2.571 * error;
    assert_eq!(v["verdict"], if distinguishable { "distinguishable" } else { "indistinguishable" });
}

#[test]
fn the_same_weights_from_another_container_differ_by_rounding_alone() {
    // in a GGUF file the rows of q and k stand in another order, and so the products of a score are summed in another
    let v = json(&format!("{TINY}/tiny-stories-f16.gguf"), &format!("{TINY}/hf"), &["-c", "64", "--chunks", "4"]);
    let kl = number(&v, "/kl/max");
    assert!(kl > 0.0 && kl < 1e-6, "{kl}");
    assert_eq!((&v["verdict"], number(&v, "/same_top/mean")), (&"indistinguishable".into(), 1.0));
    assert!(v["sentence"].as_str().unwrap().contains("not distinguishable from zero"));
}

#[test]
fn a_coarser_cache_in_b_alone_is_a_difference_and_in_both_is_none() {
    let window = ["-c", "128", "--chunks", "3"];
    let alone = json(Q4_K_M, Q4_K_M, &[&window[..], &["--ctk-b", "q4_0"]].concat());
    assert_eq!((&alone["a"]["ctk"], &alone["b"]["ctk"]), (&"f16".into(), &"q4_0".into()));
    assert!(number(&alone, "/kl/mean") > 0.0 && number(&alone, "/same_top/mean") < 1.0);
    let both = json(Q4_K_M, Q4_K_M, &[&window[..], &["--ctk", "q4_0"]].concat());
    assert_eq!(both["verdict"], "identical");
    assert_eq!(both["a"]["nll"], alone["b"]["nll"]);
}

#[test]
fn how_many_tokens_are_computed_at_once_changes_nothing() {
    let f16 = format!("{TINY}/tiny-stories-f16.gguf");
    let run = |more: &[&str]| json(&f16, Q4_K_M, &[&["-c", "64", "--chunks", "2"], more].concat());
    let v = run(&[]);
    for more in [["--ubatch", "7"], ["-t", "1"], ["--device", "cpu:scalar"]] {
        // the last --device wins
        let mut other = if more[0] == "--device" {
            let file = valid();
            let args = ["compare", &f16, Q4_K_M, "-f", &file, "-c", "64", "--chunks", "2", "--json", more[0], more[1]];
            serde_json::from_str(&ok(isobit(args).output().unwrap())).unwrap()
        } else {
            run(&more)
        };
        other["device"] = v["device"].clone();
        assert_eq!(other, v, "{more:?}");
    }
}

#[test]
fn one_model_at_a_time_gives_the_same_object_to_the_last_digit() {
    let b = format!("{TINY}/tiny-stories-Q4_0.gguf");
    let few = ["-c", "64", "--chunks", "3"];
    let both = json(Q4_K_M, &b, &few);
    let in_turn = json(Q4_K_M, &b, &[&few[..], &["--one-at-a-time"]].concat());
    assert_eq!(both, in_turn);
    assert!(number(&both, "/kl/mean") > 0.0);
    // a window of one scored token, and a place that cannot hold the logits
    json(Q4_K_M, &b, &["-c", "4", "--chunks", "2", "--one-at-a-time"]);
    let file = valid();
    let args = ["compare", Q4_K_M, &b, "-f", &file, "-c", "64", "--chunks", "1", "--device", "cpu", "--one-at-a-time"];
    if cfg!(unix) {
        let ran = isobit(args).env("TMPDIR", "/nowhere").output().unwrap();
        let err = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{err}");
        assert!(err.contains("keeping A's logits in /nowhere (TMPDIR names another place)"), "{err}");
    }
}

#[test]
fn one_window_says_that_nothing_can_be_said() {
    let out = ok(compare(&format!("{TINY}/tiny-stories-Q4_0.gguf"), Q4_K_M, &["-c", "64", "--chunks", "1"]));
    assert!(out.contains("One window has no standard error"), "{out}");
}

#[test]
fn the_plot_is_an_svg_with_two_lines_and_a_difference() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("running.svg");
    let path = svg.to_str().unwrap();
    ok(compare(&format!("{TINY}/tiny-stories-Q4_0.gguf"), Q4_K_M, &["-c", "64", "--chunks", "7", "--svg", path]));
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    assert!(drawn.contains("Perplexity so far") && drawn.contains("B minus A"));
    assert!(drawn.matches("<polyline").count() >= 3 && drawn.contains("<polygon"));
    // both axes are named, and why the band begins late
    for words in ["perplexity", "nats per token", "from window 5 on"] {
        assert!(drawn.lines().any(|l| l.contains(words)), "{words}: {drawn}");
    }
    let nowhere = dir.path().join("no/where.svg");
    let line = refused(compare(Q4_K_M, Q4_K_M, &["--svg", nowhere.to_str().unwrap()]));
    assert!(line.contains("--svg"), "{line}");
}

#[cfg(unix)]
#[test]
fn figures_are_printed_before_they_are_drawn_and_a_place_that_takes_no_file_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    // the file's neighbour, which is renamed to it, has a name that is too long
    let long = dir.path().join(format!("{}.svg", "x".repeat(246)));
    let window = ["-c", "64", "--chunks", "1"];
    let ran = compare(Q4_K_M, Q4_K_M, &[&window[..], &["--svg", long.to_str().unwrap()]].concat());
    let (out, err) = (text(&ran.stdout), text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(2), "{err}");
    assert!(out.contains("every difference is zero") && err.contains("error: --svg: "), "{out}{err}");
    if cfg!(target_os = "linux") {
        // nobody can make a file there, not even root
        let line = refused(compare(Q4_K_M, Q4_K_M, &["--svg", "/proc/running.svg"]));
        assert!(line.contains("the directory /proc cannot be written"), "{line}");
        let line = refused(compare(Q4_K_M, Q4_K_M, &["--svg", "/dev/null"]));
        assert!(line.contains("a device or pipe"), "{line}");
    }
}

#[test]
fn models_with_other_vocabularies_are_refused_before_anything_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("hf");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(format!("{TINY}/hf")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let refusal = || {
        let ran = compare(Q4_K_M, copy.to_str().unwrap(), &[]);
        assert!(!text(&ran.stderr).contains("windows of"), "{}", text(&ran.stderr));
        refused(ran)
    };
    // as many tokens, two of them changed over
    swap_tokens(&copy.join("tokenizer.json"));
    let line = refusal();
    assert!(line.contains("cannot be compared: their tokenisers give"), "{line}");
    let config = copy.join("config.json");
    let more = std::fs::read_to_string(&config).unwrap().replace("\"vocab_size\": 2048", "\"vocab_size\": 2304");
    std::fs::write(&config, more).unwrap();
    let line = refusal();
    assert!(line.contains("cannot be compared: their vocabularies have 2048 and 2304 tokens"), "{line}");
}

/// Gives the ids of the two longest words of a vocabulary to each other.
fn swap_tokens(path: &Path) {
    let mut v: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let vocab = v["model"]["vocab"].as_object_mut().unwrap();
    // both frequent in the text
    let (a, b) = ("\u{120}the", "\u{120}and");
    let (x, y) = (vocab[a].clone(), vocab[b].clone());
    vocab.insert(a.into(), y);
    vocab.insert(b.into(), x);
    std::fs::write(path, v.to_string()).unwrap();
}

#[test]
fn texts_and_windows_that_do_not_do_are_refused() {
    let short = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(short.path(), "Once upon a time").unwrap();
    let args = ["compare", Q4_K_M, Q4_K_M, "-f", short.path().to_str().unwrap(), "--device", "cpu"];
    assert!(refused(isobit(args).output().unwrap()).contains("do not fill one window of 512"));
    assert!(refused(compare(Q4_K_M, Q4_K_M, &["-c", "3"])).contains("at least 4"));
    assert!(refused(compare(Q4_K_M, "/nowhere.gguf", &[])).contains("/nowhere.gguf"));
}

#[cfg(unix)]
#[test]
fn ctrl_c_prints_what_is_known_so_far() {
    use std::io::Read;
    let file = valid();
    // the twins are slow, so there is time
    let args = ["compare", Q4_K_M, Q4_K_M, "-f", &file, "-c", "8", "--device", "cpu:scalar"];
    let mut child = isobit(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = child.stderr.take().unwrap();
    let mut heard = String::new();
    let mut byte = [0u8];
    while !heard.contains("windows of 8") {
        assert_eq!(err.read(&mut byte).unwrap(), 1, "{heard}");
        heard.push(byte[0] as char);
    }
    std::thread::sleep(std::time::Duration::from_millis(700));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = child.wait().unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    err.read_to_string(&mut heard).unwrap();
    assert_eq!(status.code(), Some(130), "{heard}");
    assert!(heard.contains("interrupted "), "{heard}");
    // a slow machine may not have done one window
    assert!(out.contains("every difference is zero") || heard.contains("nothing is known"), "{out}{heard}");
}
