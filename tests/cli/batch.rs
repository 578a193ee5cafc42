//! `isobit batch`: the same file however many run at once, wherever it was stopped.

use crate::asked::{at, isobit, ok, refused};
use serde_json::{Value, json};
use std::path::Path;

/// Requests of several lengths and seeds, with ids, choices, and some that are wrong.
fn requests() -> Vec<Value> {
    let one = |i: usize| {
        let prompt = ["Once upon a time", "The dog", "Lily saw a"][i % 3].repeat(1 + i % 4);
        let body = json!({ "prompt": prompt, "max_tokens": 3 + 5 * i % 17, "temperature": 0.7, "seed": i, "ignore_eos": true });
        json!({ "custom_id": format!("r{i}"), "method": "POST", "url": "/v1/completions", "body": body })
    };
    let mut list: Vec<Value> = (0..14).map(one).collect();
    list[3]["body"] = json!({ "prompt": [1, 5, 9], "max_tokens": 4, "temperature": 0 });
    list[6]["body"]["n"] = 3.into();
    list[8]["body"]["logit_bias"] = 3.into();
    list[9]["body"]["top_p"] = 7.into();
    list
}

fn write(file: &str, list: &[Value]) {
    let text: String = list.iter().map(|v| format!("{v}\n")).collect();
    std::fs::write(file, text).unwrap();
}

fn answers(file: &str) -> Vec<Value> {
    std::fs::read_to_string(file).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn batch(dir: &Path, output: &str, more: &[&str]) -> (String, String) {
    let (input, output) = (at(dir, "in.jsonl"), at(dir, output));
    let mut args = vec!["batch", &input, &output, "-d", "cpu", "-c", "256"];
    args.extend(more);
    let line = ok(&args);
    (line.split_whitespace().next().unwrap().to_string(), output)
}

#[test]
fn answers_are_in_order_and_the_same_however_many_run_at_once() {
    let dir = tempfile::tempdir().unwrap();
    write(&at(dir.path(), "in.jsonl"), &requests());
    let (digest, file) = batch(dir.path(), "one.jsonl", &["--parallel", "1"]);
    for (name, more) in [("a", &["--parallel", "8"][..]), ("b", &["--parallel", "5", "--pool", "320", "--ubatch", "7"])]
    {
        assert_eq!(batch(dir.path(), name, more).0, digest, "{more:?}");
    }
    let (input, again) = (at(dir.path(), "in.jsonl"), at(dir.path(), "again.jsonl"));
    let v: Value = serde_json::from_str(&ok(&["batch", &input, &again, "-d", "cpu", "-c", "256", "--json"])).unwrap();
    assert_eq!(
        (v["sha256"].as_str(), v["answers"].as_u64(), v["resumed"].as_u64()),
        (Some(&digest[..]), Some(14), Some(0))
    );
    let list = answers(&file);
    assert_eq!(list.len(), 14);
    for (i, (a, r)) in list.iter().zip(requests()).enumerate() {
        assert_eq!(a["custom_id"], r["custom_id"]);
        let status = if matches!(i, 8 | 9) { 400 } else { 200 };
        assert_eq!(a["response"]["status_code"], status, "{a}");
        let choices = a["response"]["body"]["choices"].as_array().map_or(0, Vec::len);
        assert_eq!(
            choices,
            if status == 400 {
                0
            } else if i == 6 {
                3
            } else {
                1
            },
            "{a}"
        );
    }
    let message = |i: usize| list[i]["response"]["body"]["error"]["message"].as_str().unwrap().to_string();
    assert!(message(8).contains("logit_bias") && message(9).contains("top-p is 7"), "{} {}", message(8), message(9));
    // a choice is the text of its own seed, and what `run` gives
    let text = |seed: &str, n: &str, prompt: &str| {
        let args = ["run", "-p", prompt, "-n", n, "--seed", seed, "--temp", "0.7", "--top-k", "0", "--top-p", "1"];
        let v: Value =
            serde_json::from_str(&ok(&[&args[..], &["--min-p", "0", "--ignore-eos", "--json", "-d", "cpu"]].concat()))
                .unwrap();
        v["text"].clone()
    };
    let body = &requests()[6]["body"];
    let (n, prompt) = (body["max_tokens"].to_string(), body["prompt"].as_str().unwrap());
    for (i, seed) in ["6", "7", "8"].into_iter().enumerate() {
        assert_eq!(list[6]["response"]["body"]["choices"][i]["text"], text(seed, &n, prompt), "choice {i}");
    }
}

#[test]
fn a_run_that_was_stopped_goes_on_and_one_of_another_model_does_not() {
    let dir = tempfile::tempdir().unwrap();
    write(&at(dir.path(), "in.jsonl"), &requests());
    let (digest, file) = batch(dir.path(), "whole.jsonl", &[]);
    let whole = std::fs::read_to_string(&file).unwrap();
    // stopped between two answers, and in the middle of one
    for cut in [0, whole.find('\n').unwrap() + 1, whole.len() / 2, whole.len()] {
        let part = at(dir.path(), "again.jsonl.part");
        std::fs::write(&part, &whole[..cut]).unwrap();
        let (again, file) = batch(dir.path(), "again.jsonl", &["--parallel", "3"]);
        assert_eq!(again, digest, "cut at {cut}");
        assert!(!Path::new(&part).exists());
        std::fs::remove_file(file).unwrap();
    }
    let part = at(dir.path(), "other.jsonl.part");
    std::fs::write(&part, &whole[..whole.len() / 2]).unwrap();
    let (input, output) = (at(dir.path(), "in.jsonl"), at(dir.path(), "other.jsonl"));
    refused(&["batch", &input, &output, "-d", "cpu", "--ctk", "q8_0"], &["line 1 answers another request"]);
    refused(&["batch", &input, &file, "-d", "cpu"], &["is there already"]);
}

#[test]
fn the_best_of_several_are_those_of_the_greatest_log_probability_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let body = json!({ "prompt": "Once upon a time", "max_tokens": 12, "temperature": 1.2, "seed": 5, "logprobs": 3 });
    let mut all = json!({ "custom_id": "all", "body": body });
    let (mut best, mut plain) = (all.clone(), all.clone());
    (all["body"]["n"], best["body"]["n"], best["body"]["best_of"]) = (6.into(), 2.into(), 6.into());
    plain["body"].as_object_mut().unwrap().remove("logprobs");
    let mut few = best.clone();
    few["body"]["best_of"] = 1.into();
    let mut many = plain.clone();
    many["body"]["logprobs"] = 21.into();
    write(&at(dir.path(), "in.jsonl"), &[all, best, plain, few, many]);
    let list = answers(&batch(dir.path(), "out.jsonl", &[]).1);
    let choices = |i: usize| list[i]["response"]["body"]["choices"].as_array().unwrap().clone();
    let mean = |c: &Value| {
        let list: Vec<f64> = serde_json::from_value(c["logprobs"]["token_logprobs"].clone()).unwrap();
        assert_eq!(list.len(), c["ids"].as_array().unwrap().len());
        list.iter().sum::<f64>() / list.len() as f64
    };
    let mut sorted = choices(0);
    assert_eq!(sorted.len(), 6);
    sorted.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    let texts = |list: &[Value]| list.iter().map(|c| c["text"].as_str().unwrap().to_string()).collect::<Vec<_>>();
    assert_eq!(texts(&choices(1)), texts(&sorted[..2]));
    assert!(texts(&sorted).windows(2).any(|w| w[0] != w[1]));
    for c in choices(0) {
        let words: Vec<String> = serde_json::from_value(c["logprobs"]["tokens"].clone()).unwrap();
        assert_eq!(words.concat().trim_start(), c["text"].as_str().unwrap().trim_start());
        let tops = c["logprobs"]["top_logprobs"].as_array().unwrap();
        assert!(tops.iter().all(|t| t.as_object().unwrap().len() == 3), "{c}");
    }
    assert!(choices(2)[0]["logprobs"].is_null());
    let message = |i: usize| list[i]["response"]["body"]["error"]["message"].as_str().unwrap().to_string();
    assert!(message(3).contains("best_of is 1") && message(4).contains("20 at most"), "{} {}", message(3), message(4));
}

#[test]
fn a_file_of_requests_that_is_none_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (at(dir.path(), "in.jsonl"), at(dir.path(), "out.jsonl"));
    for (text, said) in [
        ("", "has no lines"),
        ("{}\n", "line 1"),
        ("\n{\"custom_id\": 7}\n", "line 2"),
        ("{\"custom_id\": \"a\", \"url\": \"/v1/chat/completions\", \"body\": {}}", "/v1/completions is"),
        ("{\"custom_id\": \"a\", \"method\": \"GET\", \"body\": {}}", "POST expected"),
    ] {
        std::fs::write(&input, text).unwrap();
        refused(&["batch", &input, &output, "-d", "cpu"], &[said]);
    }
    assert_eq!(isobit(&["batch", &input]).status.code(), Some(2));
}
