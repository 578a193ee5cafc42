//! `isobit convert`, BUMP files in `isobit run` and `isobit inspect`, and the lines of C-Kernel-Engine's tool.

use crate::asked::{at, isobit, ok, refused, tensors};
use crate::program;
use sha2::{Digest, Sha256};
use std::path::Path;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

fn data(name: &str) -> String {
    format!("{DATA}/{name}")
}

fn llama() -> String {
    data("gguf/tiny-llama-kquant-v3.gguf")
}

fn qwen() -> String {
    data("gguf/tiny-qwen2-q40-q80-v3.gguf")
}

fn untied() -> String {
    data("gguf/tiny-llama-f32-align64.gguf")
}

fn names(dir: &Path) -> Vec<String> {
    let mut list: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    list.sort();
    list
}

#[test]
fn a_gguf_file_goes_to_every_version_and_back_with_the_same_tensors() {
    let dir = tempfile::tempdir().unwrap();
    for (input, forms) in [(llama(), &["bump-v3", "bump-v4", "bump-v5"][..]), (qwen(), &["bump-v4", "bump-v5"])] {
        for form in forms {
            let (bump, back) = (at(dir.path(), "m.bump"), at(dir.path(), "back.gguf"));
            let line = ok(&["convert", &input, &bump, "--to", form]);
            assert!(line.starts_with(&format!("[gguf->bump] version={}", &form[6..])), "{line}");
            assert!(line.trim_end().ends_with(&format!("-> {bump}")), "{line}");
            ok(&["convert", &bump, &back]);
            assert_eq!(tensors(&back), tensors(&input), "{form}");
            // and the same logits come out of all three
            let logits = |model: &str| {
                let line = ok(&["run", model, "--ids", "1,2,3", "-n", "6", "--temp", "0", "-d", "cpu", "--json"]);
                let v: serde_json::Value = serde_json::from_str(&line).unwrap();
                assert!(v["logits_sha256"].is_string(), "{line}");
                (v["logits_sha256"].clone(), v["ids"].clone())
            };
            assert_eq!((logits(&bump), logits(&back)), (logits(&input), logits(&input)), "{form}");
        }
    }
    assert!(!names(dir.path()).iter().any(|n| n.contains("part")), "{:?}", names(dir.path()));
}

#[test]
fn a_directory_has_the_files_under_the_names_of_the_tool() {
    let dir = tempfile::tempdir().unwrap();
    let out = at(dir.path(), "GGUF_OUT");
    let line = ok(&["convert", &llama(), &out, "--to", "bump-v3"]);
    assert_eq!(
        line.trim_end(),
        format!("[gguf->bump] version=3 arch=llama layers=1 hidden=256 heads=4/2 ff=256 vocab=40 ctx=32 -> {out}")
    );
    assert_eq!(names(Path::new(&out)), ["config.json", "metadata.gguf", "weights.bump"]);
    let file = std::fs::read(Path::new(&out).join("weights.bump")).unwrap();
    let hash: String = Sha256::digest(&file).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hash, "befdd0756ad348b7b47c874b99c5eb9fc9876988f1094972e9b60b869d901a1a");
    assert_eq!(tensors(&out), tensors(&llama()));
    let v5 = at(dir.path(), "five");
    ok(&["convert", &qwen(), &v5, "--to", "bump-v5"]);
    assert_eq!(names(Path::new(&v5)), ["config.json", "metadata.gguf", "weights.bump", "weights_manifest.json"]);
    // of one version into another
    let again = at(dir.path(), "again.bump");
    ok(&["convert", &out, &again, "--to", "bump-v4"]);
    assert_eq!(tensors(&again), tensors(&llama()));
    refused(&["convert", &llama(), &out, "--to", "bump-v3"], &["the directory is not empty"]);
}

#[test]
fn what_a_version_loses_is_named_and_left_out_only_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let out = at(dir.path(), "m.bump");
    refused(&["convert", &untied(), &out, "--to", "bump-v4"], &["output matrix of its own", "--lose output"]);
    refused(&["convert", &qwen(), &out, "--to", "bump-v3"], &["in BUMP version 3"]);
    refused(&["convert", &llama(), &out, "--lose", "output"], &["--lose has no effect here"]);
    refused(&["convert", &llama(), &out, "--to", "bump-v4", "--codes", "later"], &["--codes has no effect here"]);
    refused(&["convert", &llama(), &at(dir.path(), "m")], &["--to is missing"]);
    refused(&["convert", &data("tiny/hf"), &out], &["isobit quantize DIR OUT.gguf copy"]);
    assert_eq!(names(dir.path()), Vec::<String>::new(), "nothing is written");
    let o = isobit(&["convert", &untied(), &out, "--to", "bump-v4", "--lose", "output", "--json"]);
    let err = String::from_utf8_lossy(&o.stderr);
    assert!(o.status.success() && err.contains("warning: left out: output.weight"), "{err}");
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!((v["format"].as_str(), v["lost"].as_array().map(Vec::len)), (Some("bump-v4"), Some(1)));
    // version 5 holds it, and an f16 embedding as f32
    let five = at(dir.path(), "five.bump");
    ok(&["convert", &untied(), &five]);
    let (old, new) = (tensors(&untied()), tensors(&five));
    assert_eq!(old["output.weight"], new["output.weight"]);
    assert_eq!((old["token_embd.weight"].0.as_str(), new["token_embd.weight"].0.as_str()), ("F16", "F32"));
    refused(&["convert", &five, &five], &["the output is the input"]);
    let config = at(dir.path(), "five.config.json");
    refused(&["convert", &five, &config, "--to", "gguf"], &["the output is the input"]);
}

#[test]
fn without_a_tokeniser_ids_go_in_and_come_out_and_another_models_can_be_taken() {
    let dir = tempfile::tempdir().unwrap();
    let bump = at(dir.path(), "m.bump");
    ok(&["convert", &qwen(), &bump, "--to", "bump-v4"]);
    let run =
        |more: &[&str]| ok(&[&["run", &bump, "-n", "5", "--temp", "0", "-d", "cpu", "--ignore-eos"], more].concat());
    let with = run(&["-p", "hello", "--no-display-prompt"]);
    std::fs::remove_file(dir.path().join("m.metadata.gguf")).unwrap();
    refused(&["run", &bump, "-p", "hello", "-d", "cpu"], &["--tokenizer MODEL", "--ids"]);
    let ids: Vec<u32> = run(&["--ids", "1,2,3"]).split_whitespace().map(|w| w.parse().unwrap()).collect();
    assert_eq!(ids.len(), 5);
    let v: serde_json::Value = serde_json::from_str(&run(&["--ids", "1,2,3", "--json"])).unwrap();
    assert_eq!(v["ids"], serde_json::json!(ids));
    assert_eq!(v["prompt_ids"], serde_json::json!([1, 2, 3]));
    assert_eq!(run(&["-p", "hello", "--no-display-prompt", "--tokenizer", &qwen()]), with);
    refused(&["run", &bump, "--ids", "1,262"], &["outside the vocabulary of 262"]);
    refused(&["run", &bump, "--ids", "1;2"], &["whole numbers with commas"]);
    refused(&["run", &bump, "-p", "x", "--tokenizer", dir.path().to_str().unwrap()], &["no tokeniser in it"]);
    // and it goes with the file
    let back = at(dir.path(), "back.gguf");
    let o = isobit(&["convert", &bump, &back]);
    assert!(o.status.success() && String::from_utf8_lossy(&o.stderr).contains("has no tokeniser"));
    ok(&["convert", &bump, &back, "--tokenizer", &qwen()]);
    let text = ok(&[
        "run",
        &back,
        "-p",
        "hello",
        "-n",
        "5",
        "--temp",
        "0",
        "-d",
        "cpu",
        "--ignore-eos",
        "--no-display-prompt",
    ]);
    assert_eq!(text, with);
}

#[test]
fn the_lines_of_the_tool_are_printed_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    for (input, name, sample) in
        [(llama(), "in_k.gguf", "tiny-llama-kquant"), (qwen(), "in_q.gguf", "tiny-qwen2-q40-q80")]
    {
        std::fs::copy(input, dir.path().join(name)).unwrap();
        let printed = |more: &[&str]| {
            let args = [&["inspect", name, "--style", "bump"], more].concat();
            let o = program::isobit(args).current_dir(dir.path()).output().unwrap();
            String::from_utf8(o.stdout).unwrap()
        };
        let text = |what: &str| std::fs::read_to_string(data(&format!("bump/{sample}.{what}.txt"))).unwrap();
        assert_eq!(printed(&[]), text("inspect"));
        if sample.contains("llama") {
            assert_eq!(printed(&["--tensors"]), text("list"));
        }
    }
    // of a BUMP file the same, in its own name
    let bump = at(dir.path(), "m.bump");
    ok(&["convert", &llama(), &bump, "--to", "bump-v3"]);
    let text = ok(&["inspect", &bump, "--style", "bump"]);
    assert!(text.starts_with("[bump] file=") && text.contains("[bump] version=3 arch=llama tensors=11"), "{text}");
    assert!(text.ends_with("  counts: FP32=11, Q4_K=5, Q6_K=2\n"), "{text}");
    let own = ok(&["inspect", &bump]);
    assert!(own.contains("[bump] layers=1 dim=256 heads=4/2"), "{own}");
}

#[test]
fn a_bump_file_that_is_damaged_or_alone_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let bump = at(dir.path(), "m.bump");
    ok(&["convert", &llama(), &bump, "--to", "bump-v3"]);
    let mut file = std::fs::read(&bump).unwrap();
    file[100_000] ^= 1;
    let bad = at(dir.path(), "bad.bump");
    std::fs::write(&bad, &file).unwrap();
    std::fs::copy(dir.path().join("m.config.json"), dir.path().join("bad.config.json")).unwrap();
    for command in [&["run", &bad, "--ids", "1"][..], &["inspect", &bad], &["convert", &bad, &at(dir.path(), "x.gguf")]]
    {
        refused(command, &["checksum is wrong"]);
    }
    assert!(!dir.path().join("x.gguf").exists());
    std::fs::remove_file(dir.path().join("bad.config.json")).unwrap();
    refused(&["inspect", &bad], &["config.json: missing"]);
}
