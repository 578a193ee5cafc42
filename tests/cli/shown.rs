//! What every command shows: examples, JSON, progress on a terminal, completions and manual pages.

#[cfg(target_os = "linux")]
use super::{finish, program, put};
use super::{folder, isobit, number, words};
use serde_json::Value;
#[cfg(target_os = "linux")]
use std::process::Stdio;

/// The commands that the help lists, as it lists them.
fn commands() -> Vec<String> {
    let help = isobit(&["--help"]).ok().out;
    let list = help.split_once("Commands:\n").expect("a list").1.split("\n\n").next().expect("its end").to_string();
    let names = list.lines().filter_map(|l| l.strip_prefix("  ")).filter(|l| !l.starts_with(' '));
    names.filter_map(|l| l.split(' ').next()).filter(|n| *n != "help").map(String::from).collect()
}

#[test]
fn every_command_shows_examples_and_has_json() {
    let names = commands();
    assert!(names.len() >= 11, "{names:?}");
    for name in names {
        let help = isobit(&[&name, "--help"]).ok().out;
        assert!(help.contains("Examples:\n  isobit "), "{name}: {help}");
        assert!(help.contains("--json") || name == "completions", "{name}: {help}");
    }
}

#[test]
fn an_error_under_json_is_text_on_stderr_and_nothing_on_stdout() {
    for args in ["run -p x", "devices", "verify", "tokenize -p x", "inspect", "perplexity -f x", "hist", "bench"] {
        let mut args = words(args);
        args.insert(1, "/no/such/model.gguf");
        args.push("--json");
        isobit(&args).refused_with(2, &["/no/such/model.gguf"]);
    }
    isobit(&["quantize", "/no/such/model.gguf", "out", "--json"]).refused_with(2, &["/no/such/model.gguf"]);
}

#[test]
fn completions_know_every_command_in_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = isobit(&["completions", shell]).ok().out;
        assert!(commands().iter().all(|name| text.contains(name.as_str())), "{shell}: {text}");
        assert!(text.contains("kv-recent"), "{shell}: options too");
    }
    isobit(&["completions", "tcsh"]).refused_with(2, &["tcsh", "isobit completions --help"]);
}

#[test]
fn every_command_has_a_manual_page_with_its_examples_line_by_line() {
    let dir = folder();
    let out = dir.path().join("man1");
    let listed = isobit(&["man", "--out", out.to_str().unwrap()]).ok().out;
    let mut expected: Vec<String> = commands().iter().map(|name| format!("isobit-{name}.1")).collect();
    expected.push("isobit.1".into());
    expected.sort();
    let mut found: Vec<String> =
        std::fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(listed.lines().count(), expected.len(), "{listed}");
    for name in &found {
        let page = std::fs::read_to_string(out.join(name)).unwrap();
        let (options, examples) = page.split_once("\n.SH EXAMPLES\n.nf\n").unwrap_or_else(|| panic!("{name}: {page}"));
        assert!(options.contains(concat!("isobit ", env!("CARGO_PKG_VERSION"))), "{name}: {page}");
        assert!(options.contains(".SH OPTIONS") && options.contains(".SH SYNOPSIS"), "{name}: {page}");
        assert!(examples.lines().any(|l| l.trim_start().starts_with("isobit ")), "{name}: {page}");
    }
    assert!(std::fs::read_to_string(out.join("isobit-run.1")).unwrap().contains("\\-\\-repeat\\-penalty"));
}

#[test]
fn quantize_prints_what_it_writes_as_one_object() {
    let dir = folder();
    let input = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/tiny-stories-f16.gguf");
    let out = dir.path().join("m.gguf").to_str().unwrap().to_string();
    let ask = |more: &[&str]| isobit(&[&["quantize", input, &out, "q4_k_m", "--json"], more].concat()).json();
    let planned = ask(&["--dry-run"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let mut written = ask(&[]);
    assert_eq!((&planned["dry_run"], &written["dry_run"]), (&true.into(), &false.into()));
    written["dry_run"] = true.into();
    assert_eq!(written, planned, "what is written is what was planned");
    let v = isobit(&["inspect", &out, "--tensors", "--json"]).json();
    let types = |v: &Value, key: &str| -> Vec<(String, String)> {
        let mut list: Vec<_> =
            (v["tensors"].as_array().unwrap().iter()).map(|t| (t["name"].to_string(), t[key].to_string())).collect();
        list.sort();
        list
    };
    assert_eq!(types(&planned, "to"), types(&v, "type"));
    assert_eq!(types(&planned, "bytes_out"), types(&v, "bytes"));
    assert!(
        number(&planned, "/bits_per_weight") > 4.0 && number(&planned, "/bytes_in") > number(&planned, "/bytes_out")
    );
}

/// What a terminal is sent by a command; `None`, with a printed reason, where there is no program to make a terminal.
#[cfg(target_os = "linux")]
fn on_a_terminal(line: &str) -> Option<String> {
    let mut c = program::quiet("script");
    c.args(["-qec", &format!("{} {line}", env!("CARGO_BIN_EXE_isobit")), "/dev/null"]);
    c.env_remove("NO_COLOR").env("TERM", "xterm").stdout(Stdio::piped()).stderr(Stdio::piped());
    match c.spawn() {
        Ok(child) => Some(finish(child).ok().out),
        Err(e) => {
            println!("skipped: no terminal without script: {e}");
            None
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_takes_time_says_so_on_a_terminal_and_nowhere_else() {
    let dir = folder();
    let book = put(dir.path(), "book.txt", "The king had three sons. ".repeat(40).as_bytes());
    let f16 = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/tiny-stories-f16.gguf");
    let out = dir.path().join("m.gguf");
    for (line, label) in [
        (format!("run -f {book} -n 2 -c 512 --ubatch 64 --device cpu"), "reading the prompt "),
        (
            "bench --device cpu --no-limits -p 8 -n 0 -r 2".to_string(),
            "1 of 1: pp8, once before it is timed, of llama 4M",
        ),
        ("bench --device cpu --no-limits -p 8 -n 0 -r 2".to_string(), "1 of 1: pp8, repetition 2 of 2, of llama 4M"),
        (format!("quantize {f16} {} q8_0", out.display()), "quantising "),
        (format!("hist {f16} --types q8_0"), "encoding and comparing "),
        (format!("perplexity -f {book} -c 64 --chunks 2 --device cpu"), "scoring "),
    ] {
        let args = words(&line);
        let plain = isobit(&args).ok();
        assert!(!plain.out.contains(label) && !plain.err.contains(label), "{plain:?}");
        let Some(shown) = on_a_terminal(&line) else { return };
        assert!(shown.contains(label), "{line}: no {label:?} in {shown:?}");
        assert!(!shown.contains("0s left"), "{line}: {shown:?}");
    }
    // the prompt comes after it was read, and whole
    let shown = on_a_terminal(&format!("run -f {book} -n 2 -c 512 --device cpu")).unwrap_or_default();
    let (bar, text) = (shown.rfind("reading the prompt"), shown.find("The king had"));
    assert!(bar.is_some() && bar < text, "{shown:?}");
}
