//! The program as a user meets it: the real binary, its words, and its exit codes.
//!
//! What needs an adapter is in the module `gpu`; the rest runs on the CPU, and where it asks for `every_adapter` on those
//! too.

use crate::{absent, program};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

#[path = "chat.rs"]
mod chat;
#[path = "inspect.rs"]
mod inspect;
#[cfg(unix)]
#[path = "interrupt.rs"]
mod interrupts;
#[path = "shown.rs"]
mod shown;
#[path = "usage.rs"]
mod usage;
#[path = "verify.rs"]
mod verify;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/tiny-stories-Q4_K_M.gguf");

/// A run that ended.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn ok(self) -> Ran {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// The one JSON object on stdout.
    fn json(self) -> Value {
        let ran = self.ok();
        assert_eq!(ran.out.lines().count(), 1, "{ran:#?}");
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {ran:#?}"))
    }

    /// Demands this exit code, nothing on stdout, and one line beginning `error:`, which is returned.
    fn refused(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert_eq!(self.out, "", "{self:#?}");
        // verify says what it is about to compare before it loads anything
        let talk = |l: &&str| l.starts_with("warning:") || l.contains(" tokens of prompt, ");
        let rest: Vec<&str> = self.err.lines().filter(|l| !talk(l)).collect();
        assert!(rest.len() == 1 && rest[0].starts_with("error: "), "expected one line beginning error: {self:#?}");
        rest[0].to_string()
    }

    /// As `refused`, and the line holds every one of these words.
    fn refused_with(self, code: i32, words: &[&str]) {
        let line = self.refused(code);
        for word in words {
            assert!(line.contains(word), "no {word:?} in {line:?}");
        }
    }
}

fn command(args: &[&str]) -> Command {
    let mut c = program::isobit(args);
    c.stdout(Stdio::piped()).stderr(Stdio::piped());
    c
}

/// Waits for at most five minutes, for the machine may be busy: a hang is a failure, not a hung test.
fn finish(mut child: Child) -> Ran {
    fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                pipe.read_to_end(&mut bytes).unwrap();
            }
            String::from_utf8(bytes).expect("the program writes UTF-8")
        })
    }
    let (out, err) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let deadline = Instant::now() + Duration::from_secs(300);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("still running after five minutes");
        }
        std::thread::sleep(Duration::from_millis(3));
    };
    Ran { code: status.code(), out: out.join().unwrap(), err: err.join().unwrap() }
}

fn isobit(args: &[&str]) -> Ran {
    finish(command(args).spawn().unwrap())
}

/// `isobit run` on the CPU.
fn run(args: &[&str]) -> Ran {
    let mut all = vec!["run", "--device", "cpu"];
    all.extend(args);
    isobit(&all)
}

/// `isobit run --json` of a fixed prompt, with these flags.
fn generated(args: &[&str]) -> Value {
    let mut all = vec!["run", "--json", "-p", "The king had three sons, and", "-n", "12"];
    all.extend(args);
    isobit(&all).json()
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn number(v: &Value, pointer: &str) -> f64 {
    v.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number {pointer} in {v}"))
}

/// A directory of its own for each test, removed at the end.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn put(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path: PathBuf = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_string()
}

/// Indices of the adapters, which there must be. For tests in modules named `gpu`.
#[cfg(feature = "gpu")]
pub fn adapters() -> Vec<String> {
    let list = adapters_if_any();
    absent::found(list.len(), "adapter");
    list
}

/// Indices of the adapters, of a test that runs on the CPU as well: none only where the tests are told to do without.
fn every_adapter() -> Vec<String> {
    let list = adapters_if_any();
    absent::found_or_cpu_only(list.len());
    list
}

fn adapters_if_any() -> Vec<String> {
    static FOUND: OnceLock<Vec<(String, String)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let v = isobit(&["devices", "--json"]).json();
        let adapters = v["adapters"].as_array().unwrap();
        adapters.iter().map(|a| (a["index"].to_string(), format!("{} [{}]", a["name"], a["backend"]))).collect()
    });
    for (index, title) in found {
        println!("adapter {index}: {title}");
    }
    found.iter().map(|(index, _)| index.clone()).collect()
}

/// What a hand-made model differs in.
struct Odd {
    arch: &'static str,
    head_dim: u64,
    weight: f32,
    extra_tensor: Option<&'static str>,
}

const PLAIN: Odd = Odd { arch: "llama", head_dim: 32, weight: 0.01, extra_tensor: None };

/// A GGUF file of one layer and 32 tokens without a tokeniser, all weights f32 and alike.
fn gguf(odd: &Odd) -> Vec<u8> {
    fn string(out: &mut Vec<u8>, s: &str) {
        out.extend((s.len() as u64).to_le_bytes());
        out.extend(s.as_bytes());
    }
    let (dim, ffn, vocab) = (odd.head_dim, 32, 32);
    let mut tensors: Vec<(String, Vec<u64>)> =
        vec![("token_embd.weight".into(), vec![dim, vocab]), ("output_norm.weight".into(), vec![dim])];
    for (name, shape) in [
        ("attn_norm", vec![dim]),
        ("attn_q", vec![dim, dim]),
        ("attn_k", vec![dim, dim]),
        ("attn_v", vec![dim, dim]),
        ("attn_output", vec![dim, dim]),
        ("ffn_norm", vec![dim]),
        ("ffn_gate", vec![dim, ffn]),
        ("ffn_up", vec![dim, ffn]),
        ("ffn_down", vec![ffn, dim]),
    ] {
        tensors.push((format!("blk.0.{name}.weight"), shape));
    }
    tensors.extend(odd.extra_tensor.map(|name| (name.to_string(), vec![32])));
    let numbers = [
        ("context_length", 128),
        ("embedding_length", dim),
        ("block_count", 1),
        ("feed_forward_length", ffn),
        ("attention.head_count", 1),
        ("vocab_size", vocab),
    ];

    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((numbers.len() as u64 + 2).to_le_bytes());
    string(&mut out, "general.architecture");
    out.extend(8u32.to_le_bytes());
    string(&mut out, odd.arch);
    for (key, value) in numbers {
        string(&mut out, &format!("{}.{key}", odd.arch));
        out.extend(4u32.to_le_bytes());
        out.extend((value as u32).to_le_bytes());
    }
    string(&mut out, &format!("{}.attention.layer_norm_rms_epsilon", odd.arch));
    out.extend(6u32.to_le_bytes());
    out.extend(1e-5f32.to_le_bytes());
    let mut offset = 0u64;
    for (name, shape) in &tensors {
        string(&mut out, name);
        out.extend((shape.len() as u32).to_le_bytes());
        for d in shape {
            out.extend(d.to_le_bytes());
        }
        out.extend(0u32.to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset += (shape.iter().product::<u64>() * 4).next_multiple_of(32);
    }
    out.resize(out.len().next_multiple_of(32), 0);
    for (_, shape) in &tensors {
        for i in 0..shape.iter().product::<u64>() {
            out.extend((odd.weight * ((i % 17) as f32 - 8.0)).to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(32), 0);
    }
    out
}

// What run prints.

#[test]
fn run_writes_the_prompt_and_its_continuation_to_stdout_and_talk_to_stderr() {
    let ran = run(&["-p", "Once upon a time", "-n", "8"]).ok();
    assert!(ran.out.starts_with("Once upon a time") && ran.out.ends_with('\n'), "{ran:?}");
    assert!(ran.out.len() > "Once upon a time\n".len(), "{ran:?}");
    let talk: Vec<&str> = ran.err.lines().collect();
    assert!(talk.len() == 2 && talk[0].contains("tiny-stories on CPU"), "{ran:?}");
    assert!(talk[1].contains("generated 8 tokens") && talk[1].contains("t/s"), "{ran:?}");
}

#[test]
fn run_json_has_the_documented_keys() {
    let v = generated(&["--device", "cpu"]);
    assert_eq!(v["prompt_ids"].as_array().unwrap()[0], 0, "begins with the beginning-of-text token: {v}");
    assert_eq!(v["ids"].as_array().unwrap().len(), 12);
    assert!(!v["text"].as_str().unwrap().is_empty());
    assert_eq!(v["logits_sha256"].as_str().unwrap().len(), 64);
    assert!(v["device"].as_str().unwrap().starts_with("CPU ("));
    assert_eq!((v["stop"].as_str(), v["seed"].as_u64()), (Some("length"), Some(0)));
    for key in ["load_ms", "prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms"] {
        assert!(number(&v, &format!("/timings/{key}")) > 0.0, "{key}: {v}");
    }
    assert!(number(&v, "/timings/predicted_per_second") > 0.0);
}

#[test]
fn the_streamed_text_is_that_of_the_json() {
    let text = generated(&["--device", "cpu"])["text"].as_str().unwrap().to_string();
    let prompt = "The king had three sons, and";
    assert_eq!(run(&["-p", prompt, "-n", "12"]).ok().out, format!("{prompt}{text}\n"));
    assert_eq!(run(&["-p", prompt, "-n", "12", "--no-display-prompt"]).ok().out, format!("{text}\n"));
}

#[test]
fn no_tokens_asked_for_is_the_prompt_alone() {
    assert_eq!(run(&["-p", "hi", "-n", "0"]).ok().out, "hi\n");
    let v = run(&["-p", "hi", "-n", "0", "--json"]).json();
    assert_eq!((v["ids"].as_array().map(Vec::len), v["text"].as_str()), (Some(0), Some("")));
    // SHA-256 of nothing
    assert!(v["logits_sha256"].as_str().unwrap().starts_with("e3b0c44298fc1c14"), "{v}");
}

#[test]
fn minus_one_generates_until_the_context_is_full() {
    let v = run(&["-p", "hi", "-n", "-1", "-c", "40", "--ignore-eos", "--json"]).json();
    let (prompt, ids) = (v["prompt_ids"].as_array().unwrap().len(), v["ids"].as_array().unwrap().len());
    assert_eq!((prompt + ids, v["stop"].as_str()), (41, Some("context full")), "{v}");
}

#[test]
fn a_huge_number_of_tokens_ends_with_the_context() {
    let v = run(&["-p", "hi", "-n", "999999999999", "-c", "33", "--ignore-eos", "--json"]).json();
    assert_eq!(v["stop"], "context full");
}

#[test]
fn an_empty_prompt_starts_from_the_beginning_of_text_token() {
    let v = run(&["-p", "", "-n", "3", "--json"]).json();
    assert_eq!(v["prompt_ids"], serde_json::json!([0]));
    run(&["-p", "", "--no-bos"]).refused_with(2, &["no tokens", "--no-bos"]);
}

#[test]
fn unicode_goes_through_unharmed() {
    let ran = run(&["-p", "Grüße, 日本 😀 e\u{301}", "-n", "6", "--temp", "2"]).ok();
    assert!(ran.out.starts_with("Grüße, 日本 😀 e\u{301}"), "{ran:?}");
}

#[test]
fn a_prompt_may_begin_with_a_dash() {
    assert!(run(&["-p", "- a list", "-n", "1"]).ok().out.starts_with("- a list"));
}

#[test]
fn a_file_and_stdin_give_what_the_flag_gives() {
    let dir = folder();
    let file = put(dir.path(), "prompt.txt", "Once upon a time\nthere".as_bytes());
    let flag = run(&["-p", "Once upon a time\nthere", "-n", "6"]).ok().out;
    assert_eq!(run(&["-f", &file, "-n", "6"]).ok().out, flag);
    let mut child = command(&["run", "-f", "-", "-n", "6", "--device", "cpu"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all("Once upon a time\nthere".as_bytes()).unwrap();
    assert_eq!(finish(child).ok().out, flag);
}

#[test]
fn escapes_are_replaced_only_when_asked_for() {
    assert!(run(&["-p", r"a\tb\x21", "-n", "1"]).ok().out.starts_with(r"a\tb\x21"));
    assert!(run(&["-p", r"a\tb\x21", "-n", "1", "-e"]).ok().out.starts_with("a\tb!"));
    run(&["-p", r"\xff", "-e"]).refused_with(2, &["--escape", "UTF-8"]);
    run(&["-p", r"Once \xZZ", "-e"]).refused_with(2, &["--escape", r"\xZZ at byte 5", "two hexadecimal digits"]);
}

// Same seed, same text.

#[test]
fn every_level_thread_count_and_batch_gives_the_same_logits() {
    let want = generated(&["--device", "cpu:scalar", "--threads", "1"]);
    let best = generated(&["--device", "cpu"]);
    assert_eq!((&want["logits_sha256"], &want["text"]), (&best["logits_sha256"], &best["text"]));
    for flags in [
        "--device cpu:portable",
        "--device cpu --threads 1",
        "--device cpu --threads 2",
        "--device cpu --threads 3",
        "--device cpu --ubatch 1",
        "--device cpu --ubatch 7",
        "--device cpu --ubatch 512",
        "--device cpu -c 64",
        "--device cpu --load-mode mmap",
        "--device cpu --max-binding 131072 --ubatch 16",
    ] {
        let v = generated(&words(flags));
        assert_eq!(v["logits_sha256"], want["logits_sha256"], "{flags}");
        assert_eq!(v["ids"], want["ids"], "{flags}");
    }
}

#[test]
fn quantised_caches_give_the_same_logits_on_every_level_and_others_than_f16() {
    let f16 = generated(&["--device", "cpu"]);
    for (k, v) in [("q8_0", "q8_0"), ("q4_0", "f16"), ("f32", "q4_0")] {
        let of = |device| generated(&["--device", device, "--ctk", k, "--ctv", v])["logits_sha256"].clone();
        let scalar = of("cpu:scalar");
        assert_eq!(scalar, of("cpu"), "{k} {v}");
        assert_ne!(scalar, f16["logits_sha256"], "{k} {v}");
    }
}

#[test]
fn sixteen_bit_activations_are_the_same_everywhere_and_others_than_eight() {
    let of = |device| generated(&["--device", device, "--activations", "16"])["logits_sha256"].clone();
    assert_eq!(of("cpu:scalar"), of("cpu"));
    assert_ne!(of("cpu"), generated(&["--device", "cpu"])["logits_sha256"]);
}

#[test]
fn what_is_read_from_the_device_does_not_change_the_text() {
    for device in ["cpu".to_string()].into_iter().chain(every_adapter()) {
        for sampling in
            [&["--temp", "0"][..], &["--seed", "3"], &["--repeat-penalty", "1.3"], &["--temp", "0", "-c", "20"]]
        {
            let flags = [&["--device", &device, "--ignore-eos"], sampling].concat();
            let want = generated(&flags);
            for read in ["logits", "best", "ahead"] {
                let v = generated(&[&flags[..], &["--read", read]].concat());
                assert_eq!((&v["ids"], &v["stop"]), (&want["ids"], &want["stop"]), "{read}: {v}");
                let all = read == "logits" || sampling[0] == "--repeat-penalty";
                assert_eq!(v["logits_sha256"].is_null(), !all, "{read}: {v}");
                if device != "cpu" && !all && sampling.contains(&"0") {
                    assert_eq!(number(&v, "/timings/read_back_bytes_per_token"), 8.0, "{v}");
                }
            }
            let prompt = "The king had three sons, and";
            let plain = isobit(&[&["run", "-p", prompt, "-n", "12"], &flags[..]].concat()).ok().out;
            assert_eq!(plain, format!("{prompt}{}\n", want["text"].as_str().unwrap()));
        }
    }
}

#[test]
fn the_word_gpu_takes_an_adapter_and_auto_gives_the_same_text() {
    let want = generated(&["--device", "cpu"]);
    assert_eq!(generated(&["--device", "auto"])["logits_sha256"], want["logits_sha256"]);
    if !every_adapter().is_empty() {
        let v = generated(&["--device", "gpu"]);
        assert!(!v["device"].as_str().unwrap().starts_with("CPU"), "{v}");
        assert_eq!(v["logits_sha256"], want["logits_sha256"]);
    }
}

#[test]
fn auto_says_in_one_line_why_it_takes_the_cpu() {
    let ran = isobit(&["run", "-p", "hi", "-n", "2", "--json"]).ok();
    let lines = ran.err.lines().count();
    let on_cpu = ran.out.contains("\"device\":\"CPU");
    // without the gpu feature there is nothing to explain
    assert!(lines == usize::from(on_cpu) || (on_cpu && lines == 0), "{ran:?}");
}

#[test]
fn seeds_repeat_their_text_and_differ_from_one_another() {
    let of = |seed| run(&["-p", "Once", "-n", "16", "--seed", seed]).ok().out;
    assert_eq!(of("7"), of("7"));
    assert_ne!(of("7"), of("8"));
}

#[test]
fn seed_minus_one_is_a_new_seed_that_repeats_its_text() {
    let of = |seed: &str| run(&["-p", "Once", "-n", "16", "--json", "-s", seed]).json();
    let (first, second) = (of("-1"), of("-1"));
    assert_ne!(first["seed"], second["seed"]);
    assert_eq!(of(&first["seed"].to_string())["ids"], first["ids"]);
}

#[test]
fn temperature_zero_does_not_depend_on_the_seed() {
    let of = |seed| run(&["-p", "Once", "-n", "8", "--temp", "0", "--seed", seed]).ok().out;
    assert_eq!(of("1"), of("2"));
}

#[test]
fn results_in_json_say_in_one_line_what_decided_them() {
    let of = |flags: &[&str]| generated(flags)["fingerprint"].as_str().expect("a line").to_string();
    let plain = of(&["--device", "cpu"]);
    assert!(plain.starts_with("isobit-1:") && plain.ends_with(":a8:f16/f16"), "{plain}");
    assert_eq!(of(&["-m", MODEL, "--device", "cpu:scalar", "--ubatch", "1", "-c", "64", "--temp", "0"]), plain);
    for flags in ["--ctk q8_0", "--ctv tq3_1", "--activations 16", "--kv-recent on"] {
        assert_ne!(of(&[&["--device", "cpu"], &words(flags)[..]].concat()), plain, "{flags}");
    }
    let dir = folder();
    let text = put(dir.path(), "text.txt", "The king had three sons. ".repeat(12).as_bytes());
    let v = isobit(&["perplexity", "-f", &text, "-c", "32", "--device", "cpu", "--json"]).json();
    assert_eq!(v["fingerprint"], plain);
    let v = isobit(&["verify", "--devices", "cpu:portable,cpu", "--tokens", "1", "--json"]).json();
    assert_eq!(v["fingerprint"], plain);
    let v =
        isobit(&["compare", MODEL, MODEL, "-f", &text, "-c", "32", "--ctk-b", "q8_0", "-d", "cpu", "--json"]).json();
    assert_eq!(v["a"]["fingerprint"], plain);
    assert_eq!(v["b"]["fingerprint"], plain.replace("f16/f16", "q8_0/f16"));
    let grid =
        ["bench", "--device", "cpu", "--no-limits", "-p", "8", "-n", "0", "-r", "1", "--no-warmup", "-o", "jsonl"];
    assert_eq!(isobit(&grid).json()["fingerprint"], plain);
}

// Flags.

#[test]
fn numbers_out_of_range_are_refused_with_what_was_expected() {
    for (flags, words) in [
        ("-n -2", ["--predict", "-1 or more"]),
        ("-n 5.5", ["--predict", "5.5"]),
        ("-n 99999999999999999999", ["--predict", "whole number"]),
        ("-c -5", ["--ctx-size", "from 0"]),
        ("-c 999999999999", ["--ctx-size", "268435456"]),
        ("-t -1", ["--threads", "from 0 to 1024"]),
        ("-t 5000", ["--threads", "from 0 to 1024"]),
        ("-ub 0", ["--ubatch", "from 1 to 65535"]),
        ("-ub 70000", ["--ubatch", "from 1 to 65535"]),
        ("--top-k -1", ["--top-k", "0 or more"]),
        ("--seed many", ["--seed", "-1 for a new one"]),
        ("--temp nan", ["temperature", "NaN"]),
        ("--temp -1", ["temperature", "-1"]),
        ("--temp inf", ["temperature", "inf"]),
        ("--temp warm", ["--temp", "warm"]),
        ("--top-p 0", ["top-p", "more than 0"]),
        ("--min-p 2", ["min-p", "between 0 and 1"]),
        ("--repeat-penalty 0", ["repeat-penalty", "positive"]),
        ("--ctk q9", ["--ctk", "q8_0"]),
        ("-ctv int3", ["--ctv", "q4_0"]),
        ("--activations 9", ["--activations", "8, 16"]),
        ("--max-binding 1", ["binds at most", "bytes"]),
    ] {
        let mut all = vec!["-p", "hi"];
        all.extend(self::words(flags));
        run(&all).refused_with(2, &words);
    }
}

#[test]
fn wrong_usage_is_one_line_that_points_to_the_help() {
    run(&["-p", "hi", "--promt", "x"]).refused_with(2, &["--promt", "'--prompt'", "isobit run --help"]);
    run(&["-p", "a", "-f", "b"]).refused_with(2, &["--prompt", "--file"]);
    run(&["-p", "a", "-p", "b"]).refused_with(2, &["--prompt", "multiple times"]);
    run(&["-n"]).refused_with(2, &["--predict", "value is required"]);
    isobit(&["vrify"]).refused_with(2, &["vrify", "'verify'", "isobit --help"]);
    isobit(&["perplexity"]).refused_with(2, &["--file", "isobit perplexity --help"]);
}

#[test]
fn a_run_without_a_prompt_says_how_to_give_one() {
    run(&[]).refused_with(2, &["-p TEXT", "-f FILE"]);
    run(&["Once upon a time"]).refused_with(2, &["-p \"Once upon a time\""]);
}

#[test]
fn the_short_forms_of_llama_cpp_are_understood() {
    let long = generated(&words("--device cpu --ctk q8_0 --ctv q4_0 --ubatch 5 --threads 1 --seed 3 --ctx-size 64"));
    let mut short = vec!["-m", MODEL];
    short.extend(words("-dev cpu -ctk q8_0 -ctv q4_0 -ub 5 -t 1 -s 3 -c 64"));
    let short = generated(&short);
    assert_eq!(short["logits_sha256"], long["logits_sha256"]);
    let spelt = generated(&words("--device cpu --cache-type-k q8_0 --cache-type-v q4_0 --ubatch-size 5 -s 3 -c 64"));
    assert_eq!(spelt["logits_sha256"], long["logits_sha256"]);
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_default() {
    let device = |flags: &[&str]| {
        let mut all = vec!["run", "-p", "hi", "-n", "1", "--json"];
        all.extend(flags);
        let child = command(&all).env("ISOBIT_DEVICE", "cpu:scalar").env("ISOBIT_THREADS", "3").spawn().unwrap();
        finish(child).json()["device"].as_str().unwrap().to_string()
    };
    assert_eq!(device(&[]), "CPU (scalar, 3 threads)");
    assert_eq!(device(&["--device", "cpu:portable"]), "CPU (portable, 3 threads)");
    assert_eq!(device(&["-t", "2"]), "CPU (scalar, 2 threads)");
}

#[test]
fn a_bad_variable_is_said_to_come_from_the_environment() {
    let child = command(&["run", "-p", "hi"]).env("ISOBIT_THREADS", "many").spawn().unwrap();
    finish(child).refused_with(2, &["many", "--threads", "(from the environment: ISOBIT_THREADS)"]);
    // an option that no variable stands for
    let line = isobit(&["verify", "--devices", ","]).refused(2);
    assert!(line.contains("--devices") && !line.contains("environment"), "{line}");
}

#[test]
fn a_model_flag_goes_before_the_variable_but_two_models_are_refused() {
    let child = command(&["run", "-m", MODEL, "-p", "hi", "-n", "1", "--device", "cpu"])
        .env("ISOBIT_MODEL", "no-such-file")
        .spawn()
        .unwrap();
    finish(child).ok();
    isobit(&["run", "a.gguf", "-m", "b.gguf", "-p", "hi"]).refused_with(2, &["a.gguf", "b.gguf"]);
}

#[test]
fn the_simd_variable_forces_a_level_and_an_unknown_one_is_an_error() {
    let with = |level: &str| {
        let child = command(&["run", "-p", "hi", "-n", "1", "--json", "--device", "cpu"])
            .env("ISOBIT_SIMD", level)
            .spawn()
            .unwrap();
        finish(child)
    };
    assert!(with("portable").ok().out.contains("CPU (portable"));
    with("").ok();
    with("quantum").refused_with(2, &["ISOBIT_SIMD", "quantum", "expected one of portable", "environment"]);
}

#[test]
fn help_fits_a_screen_and_shows_examples() {
    for name in ["run", "verify", "devices", "tokenize", "inspect", "perplexity"] {
        let ran = isobit(&[name, "--help"]).ok();
        let lines = ran.out.lines().count();
        assert!(lines <= 60, "{name}: {lines} lines");
        assert_eq!(ran.out, isobit(&[name, "-h"]).ok().out);
    }
    assert!(isobit(&["--help"]).ok().out.contains("Exit codes:"));
    assert!(isobit(&["--version"]).ok().out.starts_with("isobit "));
}

#[test]
fn without_arguments_the_help_comes_on_stderr_with_exit_code_two() {
    let ran = isobit(&[]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("Usage:") && ran.err.contains("perplexity"), "{ran:?}");
}

#[test]
fn nothing_is_coloured_when_it_is_not_a_terminal() {
    for ran in [run(&["-p", "hi", "-n", "2"]), run(&["--promt"]), isobit(&["run", "--help"])] {
        assert!(!ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'), "{ran:?}");
    }
}

// Devices.

#[test]
fn an_unknown_device_is_exit_code_three_and_says_what_there_is() {
    isobit(&["run", "-p", "hi", "--device", "cpu:abacus"]).refused_with(3, &["cpu:abacus", "scalar", "portable"]);
    isobit(&["run", "-p", "hi", "--device", "99"]).refused_with(3, &["--device 99", "cpu"]);
    isobit(&["run", "-p", "hi", "--device", "toaster"]).refused_with(3, &["--device toaster", "cpu"]);
    isobit(&["verify", "--devices", "cpu,toaster"]).refused_with(3, &["toaster"]);
    isobit(&["run", "-p", "hi", "--device", ""]).refused_with(2, &["--device"]);
}

#[test]
fn device_names_do_not_depend_on_case() {
    assert_eq!(generated(&["--device", "CPU:Scalar"])["device"], generated(&["--device", "cpu:scalar"])["device"]);
}

#[test]
fn devices_lists_the_cpu_and_whether_each_adapter_is_exact() {
    let v = isobit(&["devices", "--json"]).json();
    let levels: Vec<&str> = v["cpu"]["levels"].as_array().unwrap().iter().map(|l| l.as_str().unwrap()).collect();
    assert_eq!(levels[..2], ["scalar", "portable"]);
    for a in v["adapters"].as_array().unwrap() {
        assert!(a["exact"].is_boolean() || a["error"].is_string(), "{a}");
        assert!(number(a, "/limits/maxStorageBufferBindingSize") > 0.0);
    }
    assert!(isobit(&["devices"]).ok().out.starts_with("cpu: "));
}

#[test]
fn what_the_cpu_measured_is_kept_and_shown_and_a_broken_page_is_one_warning() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().to_str().unwrap();
    let pages = || std::fs::read_dir(cache).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    let bench = |tune: &str| {
        let model = ["bench", "--synthetic", "llama-58m:q4_0", "--device", "cpu", "--no-limits", "-o", "json"];
        let rest = ["-p", "8", "-n", "2", "-r", "1", "--tune", tune, "--cache-dir", cache];
        let ran = isobit(&[&model[..], &rest].concat()).ok();
        let rows: Value = serde_json::from_str(&ran.out).unwrap();
        (rows[0]["digest"].clone(), ran.err)
    };
    let (digest, _) = bench("off");
    assert_eq!(pages(), Vec::<PathBuf>::new());
    assert_eq!(bench("auto").0, digest);
    let page = pages().pop().expect("a page of this CPU");
    assert!(page.file_name().unwrap().to_str().unwrap().starts_with("cpu-"), "{page:?}");
    let v = isobit(&["devices", "--json", "--cache-dir", cache]).json();
    let (kind, tuned) = v["cpu"]["tuned"].as_object().unwrap().iter().next().unwrap();
    assert!(kind.starts_with("q4_0") && number(tuned, "/few/us_per_mib") > 0.0, "{v}");
    assert!(number(tuned, "/many/threads") >= 1.0, "{v}");
    assert!(isobit(&["devices", "--cache-dir", cache]).ok().out.contains(&format!("measured with {kind}: a token: ")));
    let good = std::fs::read_to_string(&page).unwrap();
    std::fs::write(&page, &good[..good.len() / 2]).unwrap();
    let (again, err) = bench("auto");
    assert_eq!(again, digest);
    let warnings: Vec<&str> = err.lines().filter(|l| l.contains("in the cache is not used")).collect();
    assert!(warnings.len() == 1 && warnings[0].starts_with("warning: cpu-"), "{err}");
    assert!(serde_json::from_str::<Value>(&std::fs::read_to_string(&page).unwrap()).is_ok());
}

#[test]
fn devices_says_what_a_cached_token_costs() {
    let v = isobit(&["devices", "--json"]).json();
    let of = |v: &serde_json::Value, key: &str| ["f16", "q8_0", "tq3_1"].map(|t| v[key][t].as_u64().unwrap_or(0));
    // 16, 8.5 and 3.5 bits a value
    assert_eq!(of(&v, "cache_bytes_per_1024_values"), [2048, 1088, 448]);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/tiny-stories-Q4_K_M.gguf");
    let v = isobit(&["devices", file, "--json"]).json();
    let key = "cache_bytes_per_token";
    assert_eq!(v[key], isobit(&["inspect", file, "--json"]).json()[key]);
    assert!(isobit(&["devices", file]).ok().out.contains("cache bytes per token of "));
    isobit(&["devices", "nowhere.gguf"]).refused_with(2, &["nowhere.gguf"]);
}

// Files.

#[test]
fn a_model_that_is_not_there_is_named_once_with_the_systems_reason() {
    let line = run(&["no/such.gguf", "-p", "hi"]).refused(2);
    assert!(line.contains("no/such.gguf") && line.matches("os error 2").count() <= 1, "{line}");
    isobit(&["inspect", "no/such.gguf"]).refused_with(2, &["no/such.gguf"]);
}

#[test]
fn a_prompt_file_that_cannot_be_read_is_named() {
    let dir = folder();
    run(&["-f", "no/such.txt"]).refused_with(2, &["no/such.txt"]);
    run(&["-f", dir.path().to_str().unwrap()]).refused(2);
    let latin = put(dir.path(), "latin.txt", b"caf\xe9");
    run(&["-f", &latin]).refused_with(2, &["latin.txt", "UTF-8", "byte 3"]);
}

#[cfg(unix)]
#[test]
fn an_endless_prompt_is_refused() {
    run(&["-f", "/dev/zero"]).refused_with(2, &["/dev/zero", "256 MiB"]);
    run(&["/dev/zero", "-p", "hi"]).refused_with(2, &["/dev/zero"]);
}

#[test]
fn a_directory_without_a_model_says_what_was_expected() {
    let dir = folder();
    run(&[dir.path().to_str().unwrap(), "-p", "hi"]).refused_with(2, &["config.json", ".gguf"]);
}

#[test]
fn a_file_that_is_no_model_says_so() {
    let dir = folder();
    let text = put(dir.path(), "story.gguf", b"Once upon a time there was a king");
    for command in ["inspect", "verify"] {
        isobit(&[command, &text]).refused_with(2, &["story.gguf", "GGUF"]);
    }
    run(&[&text, "-p", "hi"]).refused_with(2, &["story.gguf", "GGUF"]);
}

#[test]
fn a_truncated_model_is_refused_wherever_it_ends() {
    let dir = folder();
    let whole = std::fs::read(MODEL).unwrap();
    for len in [0, 3, 4, 23, 24, 100, 5_000, 62_000, 62_500, 1_000_000, whole.len() - 1] {
        let cut = put(dir.path(), "cut.gguf", &whole[..len]);
        run(&[&cut, "-p", "hi"]).refused_with(2, &["cut.gguf"]);
    }
}

#[test]
fn another_architecture_is_named_beside_those_that_run() {
    let dir = folder();
    let file = put(dir.path(), "odd.gguf", &gguf(&Odd { arch: "mamba", ..PLAIN }));
    isobit(&["verify", &file]).refused_with(2, &["mamba", "not supported", "llama"]);
    run(&[&file, "-p", "hi"]).refused_with(2, &["mamba"]);
    assert!(isobit(&["inspect", &file]).ok().out.contains("does not run"));
}

#[test]
fn a_model_without_a_tokeniser_can_be_verified_but_not_run() {
    let dir = folder();
    let file = put(dir.path(), "bare.gguf", &gguf(&PLAIN));
    run(&[&file, "-p", "hi"]).refused_with(2, &["bare.gguf", "tokeni"]);
    isobit(&["tokenize", &file, "-p", "hi"]).refused_with(2, &["bare.gguf", "tokeni"]);
    let v = isobit(&["verify", &file, "--devices", "cpu:scalar,cpu", "--tokens", "3", "--json"]).json();
    assert!(number(&v, "/words_compared") > 0.0);
}

#[test]
fn a_quantised_cache_needs_heads_of_whole_blocks() {
    let dir = folder();
    let file = put(dir.path(), "h48.gguf", &gguf(&Odd { head_dim: 48, ..PLAIN }));
    let verify = |flags: &[&str]| {
        let mut all = vec!["verify", &file, "--devices", "cpu:scalar,cpu", "--tokens", "3"];
        all.extend(flags);
        isobit(&all)
    };
    verify(&["--ctk", "q8_0"]).refused_with(2, &["--ctk q8_0", "48", "f16"]);
    verify(&["--ctv", "q4_0"]).refused_with(2, &["--ctv q4_0", "48", "f16"]);
    verify(&[]).ok();
}

#[test]
fn names_in_a_file_cannot_write_control_characters_to_the_terminal() {
    let dir = folder();
    let odd = Odd { extra_tensor: Some("\u{1b}[31mred\nerror: forged"), ..PLAIN };
    let file = put(dir.path(), "red.gguf", &gguf(&odd));
    let line = isobit(&["verify", &file]).refused(2);
    assert!(line.contains("red") && !line.contains('\u{1b}'), "{line:?}");
    for json in [&["--tensors"][..], &["--tensors", "--json"]] {
        let ran = isobit(&[&["inspect", &file], json].concat()).ok();
        assert!(!ran.out.contains('\u{1b}'), "{ran:?}");
    }
}

#[test]
fn weights_that_are_not_finite_are_an_error_not_a_token() {
    let dir = folder();
    let file = put(dir.path(), "nan.gguf", &gguf(&Odd { weight: f32::NAN, ..PLAIN }));
    isobit(&["verify", &file, "--devices", "cpu", "--batches", "--tokens", "2"])
        .refused_with(2, &["nan.gguf", "finite"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_context_larger_than_the_memory_is_refused_at_once_with_remedies() {
    let started = Instant::now();
    let ran = run(&["-p", "hi", "-c", "200000000"]);
    // to write so much memory, or swap, would take minutes
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    ran.refused_with(2, &["200000000", "GiB", "available", "-c", "--ctk", "smaller model"]);
    isobit(&["verify", "--devices", "cpu,cpu:scalar", "-c", "200000000"]).refused_with(2, &["GiB", "-c"]);
    if !every_adapter().is_empty() && isobit(&["devices", "--json"]).out.contains("\"software\":true") {
        isobit(&["run", "-p", "hi", "-c", "200000000", "--device", "llvmpipe"]).refused_with(2, &["GiB", "-c"]);
    }
}

#[test]
fn a_prompt_far_longer_than_the_context_is_not_tokenised() {
    let dir = folder();
    let file = put(dir.path(), "long.txt", &vec![b'a'; 40 << 20]);
    let started = Instant::now();
    run(&["-f", &file, "-c", "512"]).refused_with(2, &["41943040 bytes", "tokens at least", "holds 512", "-c"]);
    // nor is more of a text than the windows asked for, whose words are those of the beginning alone
    let text = "Once upon a time there was a king.\nThe king had three sons.\n";
    let (short, long) = (text.repeat(40), text.repeat(700_000));
    let (short, long) = (put(dir.path(), "short", short.as_bytes()), put(dir.path(), "book", long.as_bytes()));
    let ppl = |file: &str| {
        let args = ["perplexity", "-f", file, "-c", "64", "--chunks", "2", "-d", "cpu", "--json"];
        number(&isobit(&args).json(), "/ppl").to_bits()
    };
    assert_eq!(ppl(&short), ppl(&long));
    assert!(started.elapsed() < Duration::from_secs(50), "{:?}", started.elapsed());
}

/// A copy of the checkpoint's files, one of them changed.
fn hf_with(dir: &Path, file: &str, change: impl FnOnce(&mut Value)) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny/hf");
    for entry in std::fs::read_dir(&from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.join(path.file_name().unwrap())).unwrap();
    }
    let path = dir.join(file);
    let mut v: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut v);
    std::fs::write(&path, v.to_string()).unwrap();
    dir.to_str().unwrap().to_string()
}

#[test]
fn a_tokeniser_that_makes_its_library_panic_is_one_line_that_names_its_file_once() {
    let dir = folder();
    let hf = hf_with(dir.path(), "tokenizer.json", |v| {
        v["normalizer"] = serde_json::json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
    });
    let line = isobit(&["tokenize", &hf, "-p", "aaa"]).refused(2);
    assert!(line.starts_with(&format!("error: {hf}/tokenizer.json: ")), "{line}");
    assert_eq!(line.matches("tokenizer.json").count(), 1, "{line}");
    assert!(!line.contains("model.safetensors") && !line.contains("panicked"), "{line}");
}

#[test]
fn a_tokeniser_that_blows_text_up_is_refused_with_its_step() {
    let dir = folder();
    let ten = serde_json::json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(10)});
    let hf = hf_with(dir.path(), "tokenizer.json", |v| {
        v["normalizer"] = serde_json::json!({"type": "Sequence", "normalizers": vec![ten; 8]});
    });
    let file = format!("error: {hf}/tokenizer.json: normalizer step 3 (Replace): ");
    let line = isobit(&["tokenize", &hf, "-p", "aaa"]).refused(2);
    assert!(line.starts_with(&file), "{line}");
}

#[test]
fn what_a_vocabulary_cannot_express_names_its_file() {
    use isobit::internals::formats::{gguf_write, meta};
    let dir = folder();
    let text = |s: &str| meta::Value::Str(s.into());
    let list = |l: &[&str]| meta::Value::StrArray(l.iter().map(|s| s.to_string()).collect());
    let entries = vec![
        ("tokenizer.ggml.model".to_string(), text("gpt2")),
        ("tokenizer.ggml.pre".into(), text("gpt-2")),
        ("tokenizer.ggml.tokens".into(), list(&["a", "b", "ab"])),
        ("tokenizer.ggml.merges".into(), list(&["a b"])),
    ];
    let bytes = gguf_write::head("x", &meta::Meta { entries }, &[]).unwrap().bytes;
    let file = put(dir.path(), "small.gguf", &bytes);
    isobit(&["tokenize", &file, "-p", "abba"]).ok();
    isobit(&["tokenize", &file, "-p", "abC"]).refused_with(2, &[&file, "byte 0x43", "leave it out"]);
}

#[test]
fn a_prompt_longer_than_the_context_names_both_lengths() {
    let long = "three sons ".repeat(40);
    run(&["-p", &long, "-c", "16"]).refused_with(2, &["prompt has 123 tokens", "holds 16", "-c"]);
}

// Pipes and signals.

#[test]
fn a_closed_pipe_is_no_error() {
    for args in [&["run", "-p", "hi", "-n", "300", "--device", "cpu"][..], &["inspect", "--tensors"]] {
        let mut child = command(args).spawn().unwrap();
        drop(child.stdout.take());
        let ran = finish(child);
        assert!(ran.code == Some(0) && !ran.err.contains("error"), "{ran:?}");
    }
}

#[test]
fn a_closed_stderr_is_no_error_either() {
    let mut child = command(&["run", "-p", "hi", "-n", "4", "--device", "cpu"]).spawn().unwrap();
    drop(child.stderr.take());
    assert!(finish(child).ok().out.starts_with("hi"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = command(&["inspect"]).stdout(full).spawn().unwrap();
    finish(child).refused_with(2, &["writing to stdout", "No space"]);
}

/// Sends SIGINT.
#[cfg(unix)]
fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_text_with_a_new_line_and_exit_code_130() {
    let args =
        ["run", "-p", "Once upon a time", "-n", "100000", "-c", "65536", "--ignore-eos", "--device", "cpu:scalar"];
    let mut child = command(&args).spawn().unwrap();
    // the prompt and some text have come
    let mut stdout = child.stdout.take().unwrap();
    let mut start = [0; 24];
    stdout.read_exact(&mut start).unwrap();
    interrupt(&child);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let ran = finish(child);
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(start.starts_with(b"Once upon a time") && rest.ends_with('\n'), "{rest:?}");
    assert!(ran.err.lines().last().unwrap().starts_with("[interrupted;"), "{ran:?}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_while_measuring_is_exit_code_130_without_an_estimate() {
    let dir = folder();
    let text = put(dir.path(), "long.txt", "The king had three sons and a bird. ".repeat(20_000).as_bytes());
    let mut child = command(&["perplexity", "-f", &text, "--device", "cpu:scalar"]).spawn().unwrap();
    let mut err = child.stderr.take().unwrap();
    // the first line comes when the model is loaded
    let mut byte = [0];
    while byte != *b"\n" {
        err.read_exact(&mut byte).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    interrupt(&child);
    let ran = finish(child);
    assert_eq!((ran.code, ran.out.as_str()), (Some(130), ""));
}

#[cfg(unix)]
#[test]
fn an_interrupt_before_the_text_begins_ends_the_program() {
    use std::os::unix::process::ExitStatusExt;
    let mut child = command(&["run", "-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    interrupt(&child);
    let started = Instant::now();
    let status = child.wait().unwrap();
    assert!(status.code() == Some(130) || status.signal() == Some(2), "{status:?}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

// adapters

#[cfg(feature = "gpu")]
mod gpu {
    use super::*;

    #[test]
    fn every_adapter_gives_the_logits_of_the_cpu() {
        let want = generated(&["--device", "cpu:scalar"]);
        for index in adapters() {
            for flags in ["", "--ubatch 1", "--ctk q8_0 --ctv q4_0"] {
                let mut all: Vec<&str> = flags.split(' ').filter(|w| !w.is_empty()).collect();
                let cpu = if flags.contains("ctk") {
                    let mut on_cpu = all.clone();
                    on_cpu.extend(["--device", "cpu"]);
                    generated(&on_cpu)
                } else {
                    want.clone()
                };
                all.extend(["--device", &index]);
                let v = generated(&all);
                assert!(!v["device"].as_str().unwrap().starts_with("CPU"), "{v}");
                assert_eq!(v["logits_sha256"], cpu["logits_sha256"], "{v}");
                assert_eq!(v["text"], cpu["text"], "{v}");
            }
        }
    }

    #[test]
    fn verify_compares_an_adapter_with_the_cpu() {
        for index in adapters() {
            let v =
                isobit(&["verify", "--devices", &format!("cpu,{index}"), "--tokens", "2", "--tune", "off", "--json"])
                    .json();
            assert_eq!((&v["mismatches"], &v["ok"]), (&Value::from(0), &Value::from(true)), "{v}");
            let kernels: Vec<&str> = v["covered"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|p| p["kernels"].as_object().unwrap())
                .flat_map(|(_, k)| k.as_array().unwrap())
                .map(|k| k.as_str().unwrap())
                .collect();
            for variant in ["attention_quantize=split", "attention_quantize=tile", "q4k_gate_up=", "rope_cache_write"] {
                assert!(kernels.iter().any(|k| k.starts_with(variant)), "no {variant} in {kernels:?}");
            }
            assert!(v["selections"].as_array().unwrap().iter().any(|s| s["ahead"] == 2), "{v}");
        }
    }
}
