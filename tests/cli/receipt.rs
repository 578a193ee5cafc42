//! `isobit run --receipt`, `receipt check`, `receipt key`, `replay`: the files a user makes, checks and compares.

use crate::asked::{at, isobit, ok, refused};
use serde_json::Value;
use std::path::Path;

const Q4_0: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/tiny-stories-Q4_0.gguf");

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(args)).expect("one object")
}

/// The devices to go from and to: the last adapter, or a level of the CPU where tests may do without.
fn device() -> String {
    let v: Value = serde_json::from_str(&ok(&["devices", "--json"])).expect("one object");
    let adapters = v["adapters"].as_array().map_or(0, Vec::len);
    super::absent::found_or_cpu_only(adapters);
    if adapters > 0 { (adapters - 1).to_string() } else { "cpu:scalar".into() }
}

#[test]
fn a_receipt_of_an_adapter_is_equal_on_the_cpu_and_the_reverse() {
    let dir = tempfile::tempdir().unwrap();
    let device = device();
    for (from, to, temp) in [(device.as_str(), "cpu", "0"), ("cpu", device.as_str(), "0.9")] {
        let file = at(dir.path(), &format!("{temp}.json"));
        let run = ["run", "-p", "Once upon a time", "-n", "24", "--temp", temp, "-d", from, "--receipt", &file];
        let text = ok(&run);
        assert!(text.starts_with("Once upon a time"), "{text}");
        let line = ok(&["receipt", "check", &file, "-d", to]);
        assert!(line.starts_with("equal: 24 of 24 tokens"), "{line}");
        let v = json(&["receipt", "check", &file, "-d", to, "--sample", "50%", "--sample-seed", "3", "--json"]);
        assert_eq!(
            (v["ok"].as_bool(), v["chunks"]["of"].as_u64(), v["sample_seed"].as_u64()),
            (Some(true), Some(2), Some(3))
        );
        assert_eq!(v["difference"], Value::Null);
    }
}

#[test]
fn what_was_changed_is_refused_and_what_is_forged_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (file, key) = (at(dir.path(), "r.json"), at(dir.path(), "my.key"));
    let public = ok(&["receipt", "key", &key]);
    refused(&["receipt", "key", &key], &["there already"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let run = ["run", "-p", "The dog", "-n", "12", "-d", "cpu", "--receipt", &file, "--sign", &key];
    ok(&run);
    ok(&["receipt", "check", &file, "-d", "cpu", "--key", public.trim()]);
    ok(&["receipt", "check", &file, "-d", "cpu", "--key", &format!("{key}.pub")]);
    refused(&["receipt", "check", &file, "-d", "cpu", "--key", &"ab".repeat(32)], &["key"]);
    refused(&["run", "-p", "x", "--sign", &key], &["--receipt"]);

    let bytes = std::fs::read(&file).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (changed, forged) = (at(dir.path(), "changed.json"), at(dir.path(), "forged.json"));
    std::fs::write(&changed, text.replacen("\"time\":1", "\"time\":2", 1)).unwrap();
    refused(&["receipt", "check", &changed, "-d", "cpu"], &["changed.json", "was changed", "SHA-256"]);

    // a well made file of a wrong link
    let mut receipt = isobit::internals::receipts::Receipt::parse(text.as_bytes()).unwrap();
    receipt.signature = None;
    receipt.body.chain[7].0[0] ^= 1;
    std::fs::write(&forged, receipt.to_bytes()).unwrap();
    let ran = isobit(&["receipt", "check", &forged, "-d", "cpu"]);
    let err = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(1), "{err}");
    assert!(err.contains("logits of token 7 (position"), "{err}");
    let ran = isobit(&["receipt", "check", &forged, "-d", "cpu", "--json"]);
    let v: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(
        (ran.status.code(), v["ok"].as_bool(), v["difference"]["index"].as_u64()),
        (Some(1), Some(false), Some(7))
    );
    let ran = isobit(&["receipt", "check", &file, Q4_0, "-d", "cpu"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("is of the model"));
}

/// The one file of a folder that was not there before.
fn newest(dir: &Path, known: &[String]) -> String {
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path().display().to_string());
    let new: Vec<String> = names.filter(|n| !known.contains(n)).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    new[0].clone()
}

#[test]
fn a_run_recorded_on_an_adapter_is_replayed_branched_and_compared_on_the_cpu() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, device) = (at(dir.path(), "runs"), device());
    let text = ok(&[
        "run",
        "-p",
        "The king had three sons, and",
        "-n",
        "32",
        "--temp",
        "0",
        "-d",
        &device,
        "--no-display-prompt",
        "--record",
        &runs,
        "--record-top",
        "3",
    ]);
    let run = newest(Path::new(&runs), &[]);
    let kept: Value = serde_json::from_slice(&std::fs::read(&run).unwrap()).unwrap();
    assert_eq!(kept["extras"]["top"].as_array().map(Vec::len), Some(32));
    assert_eq!(ok(&["replay", &run, "-d", "cpu"]), text);
    assert_eq!(json(&["replay", &run, "-d", "cpu", "--json"])["ok"], true);
    // the same run once more has the same name
    ok(&["run", "-p", "The king had three sons, and", "-n", "32", "--temp", "0", "-d", "cpu", "--record", &runs]);
    assert_eq!(newest(Path::new(&runs), &[]), run);

    let v = json(&[
        "replay", &run, "-d", "cpu", "--from", "10", "--text", " dragon", "--temp", "0.9", "-s", "5", "--record",
        &runs, "--json",
    ]);
    let branch = newest(Path::new(&runs), std::slice::from_ref(&run));
    assert_eq!(v["file"].as_str(), Some(branch.as_str()));
    let id = Path::new(&run).file_stem().unwrap().to_str().unwrap();
    assert_eq!((v["parent"]["run"].as_str(), v["parent"]["from"].as_u64()), (Some(id), Some(10)));
    ok(&["receipt", "check", &branch, "-d", &device]);
    refused(&["replay", &run, "-d", "cpu", "--from", "33"], &["from token 33"]);
    refused(&["replay", &run, "-d", "cpu", "--temp", "0.9"], &["--from"]);

    let v = json(&["replay", &run, "-d", "cpu", "--model", Q4_0, "--json"]);
    let same = v["same"].as_u64().unwrap();
    assert_eq!(v["parted"]["index"].as_u64(), Some(same));
    assert!(same < 32 && v["mean_kl"].as_f64().unwrap() > 0.0 && v["max_abs"].as_f64().unwrap() > 0.0, "{v}");
    let table = ok(&["replay", &run, "-d", "cpu", "--model", Q4_0]);
    assert!(table.contains(&format!("token {same} ")) && table.contains("nats a token"), "{table}");
    // the other way round nothing is compared: the run's own model is named
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/tiny-stories-Q4_K_M.gguf");
    assert_eq!(ok(&["replay", &run, Q4_0, "--model", model, "-d", "cpu"]), text);
    let ran = isobit(&["replay", &run, Q4_0, "-d", "cpu"]);
    assert_eq!(ran.status.code(), Some(1));
}
