//! One model over several devices, as the program is asked for it.

use crate::asked::{at, isobit, ok, refused};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(args)).unwrap()
}

#[test]
fn a_text_over_several_devices_is_that_of_one() {
    let run = |more: &[&str]| {
        json(&[&["run", "-p", "Once upon a time", "-n", "20", "--ignore-eos", "-c", "128", "--json"], more].concat())
    };
    let one = run(&["-d", "cpu"]);
    for more in [
        &["--devices", "cpu,cpu:portable"][..],
        &["-d", "cpu:portable+cpu", "--split", "1,3"],
        &["--device", "cpu+cpu@3+1"],
        &["--devices", "cpu,cpu:scalar", "--spec", "ngram", "--split", "1,3"],
        &["--devices", "cpu,cpu", "--fuse", "off"],
    ] {
        let several = run(more);
        for key in ["text", "ids", "fingerprint"] {
            assert_eq!(several[key], one[key], "{more:?}: {key}");
        }
        assert_eq!(several["device"].as_str().unwrap().matches("CPU (").count(), 2, "{several}");
    }
}

#[test]
fn scores_batches_and_saved_prompts_are_those_of_one_device() {
    let dir = tempfile::tempdir().unwrap();
    let (text, cache) = (at(dir.path(), "text"), at(dir.path(), "saved"));
    std::fs::write(&text, "Once upon a time there was a king who had a dragon. ".repeat(30)).unwrap();
    let perplexity = |device: &str| {
        json(&["perplexity", "-f", &text, "--chunks", "1", "-c", "128", "-d", device, "--json"])["ppl"].clone()
    };
    assert!(perplexity("cpu").is_number());
    assert_eq!(perplexity("cpu,cpu:portable"), perplexity("cpu"));
    let requests = at(dir.path(), "requests.jsonl");
    let line = |i: usize| {
        format!(
            "{{\"custom_id\": \"{i}\", \"body\": {{\"prompt\": \"The king {i}\", \"max_tokens\": 9, \"seed\": {i}}}}}\n"
        )
    };
    std::fs::write(&requests, (0..5).map(line).collect::<String>()).unwrap();
    let batch = |device: &str, name: &str| {
        let out = at(dir.path(), name);
        ok(&["batch", &requests, &out, "-d", device, "--parallel", "3", "-c", "64"]);
        let lines = std::fs::read_to_string(&out).unwrap();
        let answers: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let text = |v: &Value| v["response"]["body"]["choices"][0]["text"].as_str().unwrap().to_string();
        answers.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(batch("cpu+cpu", "two"), batch("cpu", "one"));
    // what two devices saved, one goes on from
    let prompt = "Once upon a time there was a king who had a dragon. ".repeat(8);
    let run = |device: &str| {
        let args = ["run", "-p", &prompt, "-n", "8", "-c", "256", "-d", device, "--prompt-cache", &cache, "--json"];
        json(&args)["text"].clone()
    };
    let first = run("cpu,cpu:portable");
    let saved = std::fs::read(&cache).unwrap();
    assert!(saved.len() > 64);
    assert_eq!(run("cpu"), first);
}

#[test]
fn verify_and_bench_take_several_devices_as_one() {
    let v = json(&["verify", "--devices", "cpu:portable,cpu+cpu:portable", "--tokens", "2", "--json"]);
    assert_eq!((&v["ok"], &v["mismatches"]), (&Value::from(true), &Value::from(0)), "{v}");
    assert_eq!(v["devices"].as_array().unwrap().len(), 2);
    let args = ["bench", "--device", "cpu,cpu+cpu", "-p", "16", "-n", "4", "-r", "1", "--no-limits", "-o", "json"];
    let rows: Value = json(&args);
    let digests: Vec<String> = rows.as_array().unwrap().iter().map(|r| r["digest"].to_string()).collect();
    assert_eq!(digests.len(), 4, "{rows}");
    assert!(digests[0] == digests[2] && digests[1] == digests[3], "{digests:?}");
}

#[test]
fn a_split_that_cannot_be_is_one_line() {
    let run = |more: &[&'static str]| [&["run", "-p", "hi", "-n", "1"], more].concat();
    refused(&run(&["--devices", "cpu,cpu", "--split", "1"]), &["1 counts of layers for 2 devices", "--split"]);
    refused(&run(&["--devices", "cpu,cpu", "--split", "1,1,1"]), &["3 counts of layers for 2 devices"]);
    refused(&run(&["--devices", "cpu,cpu", "--split", "1,1"]), &["1,1 is 2 layers, and the model has", "--split"]);
    refused(&run(&["--devices", "cpu,cpu", "--split", "0,6"]), &["0,6 gives device 1 no layer"]);
    refused(&run(&["--devices", "cpu,cpu", "--split", "18446744073709551615,2"]), &["and the model has"]);
    refused(&run(&["--device", "cpu", "--split", "2,2"]), &["2 counts of layers for 1 devices"]);
    let many = ["run", "-p", "hi", "-n", "1", "--devices", "cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu"];
    refused(&many, &["9 devices for 4 layers", "name fewer"]);
    for bad in ["", "a,b", "-1,2", "1.5,2", "20;12", ","] {
        let o = isobit(&["run", "-p", "hi", "--devices", "cpu,cpu", &format!("--split={bad}")]);
        let err = String::from_utf8_lossy(&o.stderr);
        assert_eq!(o.status.code(), Some(2), "{bad:?}: {err}");
        assert!(err.contains("--split"), "{bad:?}: {err}");
    }
    for (bad, words) in [("cpu,", "a name is missing"), ("cpu,nosuchthing", "nosuchthing"), (",", "a name is missing")]
    {
        let o = isobit(&["run", "-p", "hi", "--devices", bad]);
        let err = String::from_utf8_lossy(&o.stderr);
        assert_eq!(o.status.code(), Some(3), "{bad}: {err}");
        assert!(err.contains(words), "{bad}: {err}");
    }
}

#[test]
fn experts_on_the_cpu_are_asked_for_by_flags() {
    // where all of a model is on the CPU its experts are there anyway
    let run = |more: &[&str]| json(&[&["run", "-p", "Once", "-n", "5", "-d", "cpu", "--json"], more].concat());
    let one = run(&[]);
    for more in [&["--cpu-moe"][..], &["-cmoe"], &["--n-cpu-moe", "3"], &["-ncmoe", "3"]] {
        let got = run(more);
        assert_eq!((&got["ids"], &got["device"]), (&one["ids"], &one["device"]), "{more:?}");
    }
    let said = |args: &[&str]| isobit(&[&["run", "-p", "Once", "-n", "1"], args].concat());
    for args in [&["--cpu-moe", "--n-cpu-moe", "3"][..], &["--n-cpu-moe", "all"], &["--n-cpu-moe"]] {
        let o = said(args);
        let err = String::from_utf8_lossy(&o.stderr);
        assert!(!o.status.success() && err.contains("--n-cpu-moe"), "{args:?}: {err}");
    }
}
