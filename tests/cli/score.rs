//! `isobit score`, `isobit embed`, and what `run` leaves for a later one.

use crate::asked::{at, isobit, ok, refused};
use serde_json::{Value, json};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// The digest at the end of what is said on stderr.
fn digest(args: &[&str]) -> (String, String) {
    let o = isobit(args);
    let err = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(o.status.success(), "{err}");
    let digest = err.trim_end().rsplit("sha256 ").next().unwrap().to_string();
    assert_eq!(digest.len(), 64, "{err}");
    (String::from_utf8(o.stdout).unwrap(), digest)
}

#[test]
fn scores_are_those_of_each_pair_however_many_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = at(dir.path(), "pairs.jsonl");
    let pairs: Vec<Value> = (0..20)
        .map(|i| {
            let context =
                ["Once upon a", "The dog ran to the", "Lily was very happy because she"][i % 3].repeat(1 + i % 4);
            let continuation = [" time", " park and", " sad. He", " zebra"][i % 4];
            json!({ "context": context, "continuation": continuation })
        })
        .chain([json!({ "context": [1, 5, 9], "continuation": [12, 40] })])
        .collect();
    std::fs::write(&file, pairs.iter().map(|v| format!("{v}\n")).collect::<String>()).unwrap();
    let (one, sha) = digest(&["score", &file, "-d", "cpu", "-c", "256", "--json", "--parallel", "1"]);
    let (many, again) =
        digest(&["score", &file, "-d", "cpu:scalar", "-c", "256", "--json", "--parallel", "7", "--ubatch", "5"]);
    assert_eq!((&one, &sha), (&many, &again));
    let list = lines(&one);
    assert_eq!(list.len(), pairs.len());
    for v in &list {
        let sum: f64 = v["logprobs"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).sum();
        assert_eq!(v["logprob"].as_f64().unwrap(), sum);
        assert_eq!(v["ids"].as_array().unwrap().len(), v["logprobs"].as_array().unwrap().len());
    }
    assert_eq!(list[20]["ids"], json!([12, 40]));
    let (plain, _) = digest(&["score", &file, "-d", "cpu", "-c", "256"]);
    let first = plain.lines().next().unwrap();
    assert!(first.starts_with(&format!("{:.6}\t", list[0]["logprob"].as_f64().unwrap())), "{first}");
    for (text, said) in [
        ("", "has no lines"),
        ("{\"context\": \"a\"}", "line 1"),
        ("{\"context\": \"a\", \"continuation\": \"b\", \"more\": 1}", "line 1"),
        ("\n{\"context\": \"Once\", \"continuation\": \"\"}", "line 2"),
        (&format!("{{\"context\": {:?}, \"continuation\": \"b\"}}", "word ".repeat(300)), "raise -c"),
    ] {
        std::fs::write(&file, text).unwrap();
        refused(&["score", &file, "-d", "cpu", "-c", "256"], &[said]);
    }
}

#[test]
fn vectors_are_those_of_each_text_however_many_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = at(dir.path(), "texts.jsonl");
    let texts: Vec<Value> = (0..12).map(|i| json!({ "input": "A little cat. ".repeat(1 + i) })).collect();
    std::fs::write(&file, texts.iter().map(|v| format!("{v}\n")).collect::<String>()).unwrap();
    for pooling in ["mean", "last"] {
        let args = ["embed", &file, "-c", "256", "--pooling", pooling];
        let (one, sha) = digest(&[&args[..], &["-d", "cpu", "--json", "--parallel", "1"]].concat());
        let (many, again) =
            digest(&[&args[..], &["-d", "cpu:scalar", "--json", "--parallel", "5", "--ubatch", "9"]].concat());
        assert_eq!((&one, &sha), (&many, &again));
        let list = lines(&one);
        assert_eq!(list.len(), texts.len());
        let plain = ok(&["embed", "-p", "A little cat. ", "-d", "cpu", "--pooling", pooling]);
        let numbers: Vec<f64> = plain.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let first: Vec<f64> = serde_json::from_value(list[0]["embedding"].clone()).unwrap();
        assert_eq!(numbers.len(), first.len());
        assert!(numbers.iter().zip(&first).all(|(a, b)| *a as f32 == *b as f32));
        assert!((numbers.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-6);
    }
    refused(&["embed", "-d", "cpu"], &["INPUT"]);
}

#[test]
fn a_run_goes_on_from_what_an_earlier_one_left_and_from_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let file = at(dir.path(), "story.cache");
    let text = "Once upon a time there was a little girl named Lily. She had a red ball. ".repeat(4);
    let run = |device: &str, more: &[&str]| -> Value {
        let args = ["run", "-p", &text, "-n", "20", "-c", "256", "--json", "--seed", "3", "-d", device];
        serde_json::from_str(&ok(&[&args[..], more].concat())).unwrap()
    };
    let plain = run("cpu", &[]);
    let cache = ["--prompt-cache", &file];
    let first = run("cpu", &cache);
    let size = std::fs::metadata(&file).unwrap().len();
    let again = run("cpu:scalar", &cache);
    for v in [&first, &again] {
        assert_eq!((&v["ids"], &v["logits_sha256"]), (&plain["ids"], &plain["logits_sha256"]));
    }
    assert_eq!(std::fs::metadata(&file).unwrap().len(), size, "there was nothing new");
    // another prompt takes its place
    ok(&["run", "-p", &"The dog ran. ".repeat(20), "-n", "4", "-c", "256", "-d", "cpu", "--prompt-cache", &file]);
    assert_eq!(run("cpu", &cache)["ids"], plain["ids"]);
    let base = ["run", "-p", "Once", "-n", "4", "-d", "cpu", "--prompt-cache", &file];
    refused(&[&base[..], &["--ctk", "q8_0"]].concat(), &["--prompt-cache", "f16/f16"]);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[1000] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    refused(&base, &["--prompt-cache", "damaged"]);
    let nowhere = at(dir.path(), "no/such/folder/file");
    refused(
        &["run", "-p", &text, "-n", "1", "-c", "256", "-d", "cpu", "--prompt-cache", &nowhere],
        &["--prompt-cache"],
    );
}

#[test]
fn a_draft_changes_no_text_of_a_run() {
    let draft = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/tiny-stories-Q4_K_M.gguf");
    let run = |more: &[&str]| -> Value {
        let args = ["run", "-p", "Once upon a time", "-n", "40", "-c", "128", "--json", "-d", "cpu"];
        serde_json::from_str(&ok(&[&args[..], more].concat())).unwrap()
    };
    let (plain, drafted) = (run(&[]), run(&["--draft", draft]));
    assert_eq!((&plain["ids"], &plain["logits_sha256"]), (&drafted["ids"], &drafted["logits_sha256"]));
    refused(&["run", "-p", "a", "--draft", "no-such-file", "-d", "cpu"], &["no-such-file"]);
    refused(&["run", "-p", "a", "--draft", draft, "--spec", "ngram", "-d", "cpu"], &["--spec"]);
}
