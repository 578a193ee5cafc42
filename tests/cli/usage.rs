//! What is typed: habits of llama.cpp, names that were nearly right, and a stdout that takes nothing.

use super::{command, finish, folder, generated, isobit, run, words};
use std::process::Stdio;

const F16: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/tiny-stories-f16.gguf");

#[test]
fn flags_of_llama_cpp_that_change_nothing_are_named_and_left_out() {
    let want = generated(&["--device", "cpu"])["logits_sha256"].clone();
    for (flags, note) in [
        ("-ngl 99", "-ngl 99 changes nothing: all layers"),
        ("--n-gpu-layers=all", "--n-gpu-layers all changes nothing"),
        ("-fa on", "-fa on changes nothing: attention is always fused"),
        ("-fa", "-fa changes nothing"),
        ("-b 2048", "-b 2048 changes nothing"),
        ("-np 1", "-np 1 changes nothing"),
        ("-no-cnv", "-no-cnv changes nothing"),
        ("--mlock", "--mlock changes nothing"),
        ("-v", "RUST_LOG"),
        ("--numa distribute", "--numa distribute changes nothing"),
    ] {
        let mut all = vec!["run", "--json", "-p", "The king had three sons, and", "-n", "12", "--device", "cpu"];
        all.extend(words(flags));
        let ran = isobit(&all);
        assert!(ran.err.starts_with("note: ") && ran.err.contains(note), "{flags}: {ran:?}");
        assert_eq!(ran.json()["logits_sha256"], want, "{flags}");
    }
    // the same under another name
    for flags in ["--no-mmap", "--mmap", "-ub 3", "--temperature 0.8"] {
        let mut all = vec!["--device", "cpu"];
        all.extend(words(flags));
        assert_eq!(generated(&all)["logits_sha256"], want, "{flags}");
    }
}

#[test]
fn no_layers_on_a_gpu_means_the_cpu_unless_a_device_is_named() {
    let of = |flags: &[&str]| generated(flags)["device"].as_str().unwrap().to_string();
    let cpu = of(&["--device", "cpu"]);
    assert_eq!(of(&["-ngl", "0"]), cpu);
    assert!(of(&["-ngl", "0", "--device", "cpu:scalar"]).contains("scalar"));
}

#[test]
fn flags_of_llama_cpp_that_ask_for_what_is_not_there_are_answered() {
    for (flags, said) in [
        ("-cnv", "continues the prompt as it is"),
        ("-sys You", "continues the prompt as it is"),
        ("--jinja", "continues the prompt as it is"),
        ("-i", "continues the prompt as it is"),
        ("-mu http://x/m.gguf", "by name"),
        ("-mg 1", "--device"),
        ("--lora x.gguf", "adapters"),
        ("--samplers top_k", "samplers"),
        ("--rope-freq-base 1e6", "RoPE"),
    ] {
        let flag = words(flags)[0];
        let mut all = vec!["run", "-p", "hi"];
        all.extend(words(flags));
        isobit(&all).refused_with(2, &[flag, said]);
    }
    isobit(&["perplexity", "-f", "x", "--kl-divergence"]).refused_with(2, &["isobit compare"]);
    isobit(&["quantize", "--include-weights", "x", "a", "b"]).refused_with(2, &["--include-weights", "--imatrix FILE"]);
    isobit(&["tokenize", "-p", "hi", "--mmap", "-ub", "3"]).refused_with(2, &["-ub", "tokenize has no --ubatch"]);
    isobit(&["verify", "-ngl"]).refused_with(2, &["value is required for -ngl"]);
}

#[test]
fn words_of_one_dash_are_not_read_as_clusters() {
    for (word, near) in
        [("-nx", ""), ("-cfoo", ""), ("-hx", ""), ("-ex", ""), ("-seed", "--seed"), ("-tempp", "--temp")]
    {
        let line = isobit(&["run", "-p", "hi", word]).refused(2);
        assert!(line.contains(&format!("unknown flag {word}")) && line.contains(near), "{line}");
    }
    // what hangs on its flag does
    let ran = isobit(&["run", "-pOnce upon", "-n4", "-c64", "-t=2", "-dcpu", "-s3"]).ok();
    assert!(ran.out.starts_with("Once upon"), "{ran:?}");
    // and a value may look like a flag
    for text in ["-fa", "-hf", "-ub", "--mlock", "- x"] {
        assert!(run(&["-p", text, "-n", "1"]).ok().out.starts_with(text), "{text}");
    }
    assert!(isobit(&["run", "-h"]).ok().out.contains("no chat template"));
}

#[test]
fn only_near_names_are_suggested_and_habits_are_answered() {
    isobit(&["rnu"]).refused_with(2, &["'rnu'", "did you mean 'run'?"]);
    isobit(&["quantise"]).refused_with(2, &["did you mean 'quantize'?"]);
    for word in ["frobnicate", "transmogrify", "veri"] {
        let line = isobit(&[word]).refused(2);
        assert!(!line.contains("did you mean") && !line.contains("similar"), "{line}");
    }
    let line = run(&["-p", "hi", "--frobnicate"]).refused(2);
    assert!(!line.contains("did you mean") && !line.contains("similar"), "{line}");
    for (word, said) in [
        ("server", "isobit serve"),
        ("interactive", "isobit chat"),
        ("download", "isobit pull"),
        ("list", "isobit models"),
        ("version", "isobit --version"),
    ] {
        isobit(&[word, "x"]).refused_with(2, &[said]);
    }
}

#[test]
fn a_type_in_the_place_of_the_output_is_refused() {
    let dir = folder();
    for word in ["Q4_K_M", "q8_0", "Q3_K_S", "IQ4_XS", "f16", "copy"] {
        let child = command(&["quantize", F16, word]).current_dir(dir.path()).spawn().unwrap();
        finish(child).refused_with(2, &[word, "is a type", "INPUT OUTPUT TYPE", "tiny-stories-f16-"]);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let child = command(&["quantize", F16, "./Q8_0"]).current_dir(dir.path()).spawn().unwrap();
    assert_eq!(finish(child).code, Some(0));
    let child = command(&["quantize", F16, "F16", "q8_0"]).current_dir(dir.path()).spawn().unwrap();
    assert_eq!(finish(child).code, Some(0));
}

#[test]
fn patterns_that_match_nothing_are_named() {
    let dir = folder();
    let out = dir.path().join("m.gguf");
    let out = out.to_str().unwrap();
    let quantize = |flags: &[&str]| isobit(&[&["quantize", F16, out, "q4_k_m", "--dry-run"], flags].concat());
    // norms have no other type, so a pattern for them does as little
    let line = quantize(&["--tensor-type", "foo=q4_0", "--tensor-type", "attn_v=q8_0", "--tensor-type", "norm=q4_0"])
        .refused(2);
    assert!(line.contains("foo=q4_0, norm=q4_0") && line.contains("tiny-stories-f16.gguf"), "{line}");
    assert!(!line.contains("attn_v"), "{line}");
    let file = super::put(dir.path(), "policy.txt", b"attn_v q8_0\n# a comment\nfoo q4_0\nbar keep\n");
    let ran = quantize(&["--policy-file", &file]).ok();
    let warned: Vec<&str> = ran.err.lines().filter(|l| l.starts_with("warning:")).collect();
    assert_eq!(warned.len(), 2, "{ran:?}");
    assert!(warned[0].contains("policy.txt: line 3: foo q4_0") && warned[1].contains("line 4: bar keep"), "{warned:?}");
    // one that another went before has matched
    quantize(&["--tensor-type", "attn=q8_0", "--tensor-type", "attn_v=q6_k"]).ok();
}

#[cfg(target_os = "linux")]
#[test]
fn a_stdout_that_takes_nothing_is_an_error_of_every_command() {
    let commands: &[&[&str]] = &[
        &["--help"],
        &["--version"],
        &["run", "--help"],
        &["run", "-p", "hi", "-n", "2", "--device", "cpu"],
        &["run", "-p", "hi", "-n", "0", "--device", "cpu", "--json"],
        &["devices"],
        &["verify", "--devices", "cpu,cpu:portable", "--tokens", "0"],
        &["tokenize", "-p", "hi"],
        &["inspect"],
        &["hist", F16, "--types", "q8_0"],
        &["quantize", F16, "nowhere.gguf", "q8_0", "--dry-run"],
        &["bench", "--device", "cpu", "-p", "1", "-n", "0", "-r", "1", "--no-limits"],
    ];
    for args in commands {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ran = finish(command(args).stdout(full).spawn().unwrap());
        assert_eq!(ran.code, Some(2), "{args:?} to a full disk: {ran:?}");
        assert!(ran.err.contains("error: writing to stdout: No space left"), "{args:?}: {ran:?}");
        // the shell closes it: a test has no other safe way
        let program = super::program::isobit(*args);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "exec \"$@\" >&-", "sh"]).arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let ran = finish(shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        assert_eq!(ran.code, Some(2), "{args:?} without stdout: {ran:?}");
        assert!(ran.err.contains("error: stdout is closed"), "{args:?}: {ran:?}");
    }
    // one that was thrown away on purpose is none
    for args in [&["inspect"][..], &["--help"]] {
        assert_eq!(finish(command(args).stdout(Stdio::null()).spawn().unwrap()).code, Some(0));
    }
}

#[test]
fn names_of_any_length_fit_a_line() {
    let line = isobit(&["run", "-p", "hi", "--device", &"x".repeat(60_000)]).refused(3);
    assert!(
        line.contains("xxx…xxx") && line.contains("cpu is always there") && line.len() < 2500,
        "{} bytes",
        line.len()
    );
    // a name in a file: longer by whole alignments, so that the tensors lie where the header says
    let mut model = std::fs::read(super::MODEL).unwrap();
    let at = model.windows(12).position(|w| w == b"general.name").unwrap() + 12 + 4;
    let n = u64::from_le_bytes(model[at..at + 8].try_into().unwrap());
    let more = 32 * 2000;
    model[at..at + 8].copy_from_slice(&(n + more).to_le_bytes());
    model.splice(at + 8..at + 8, "é".bytes().cycle().take(more as usize));
    let dir = folder();
    let file = super::put(dir.path(), "long.gguf", &model);
    let ran = run(&[&file, "-p", "hi", "-n", "1"]).ok();
    assert!(ran.err.contains("éé… on CPU") && ran.err.len() < 1000, "{} bytes", ran.err.len());
}

#[cfg(feature = "gpu")]
mod gpu {
    use super::super::put;
    use super::*;

    #[test]
    fn a_cache_that_cannot_be_written_is_warned_of_once() {
        for index in super::super::adapters() {
            let dir = folder();
            let file = put(dir.path(), "file", b"x");
            let args = ["run", "-p", "hi", "-n", "1", "--tune", "auto", "--device", &index, "--cache-dir", &file];
            let ran = isobit(&args).ok();
            let warned = ran.err.lines().filter(|l| l.starts_with("warning:") && l.contains(&file)).count();
            assert_eq!(warned, 1, "{ran:?}");
        }
    }
}
