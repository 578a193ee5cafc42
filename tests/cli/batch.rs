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
    within("256", dir, output, more)
}

fn within(context: &str, dir: &Path, output: &str, more: &[&str]) -> (String, String) {
    let (input, output) = (at(dir, "in.jsonl"), at(dir, output));
    let mut args = vec!["batch", &input, &output, "-d", "cpu", "-c", context];
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
        ("{\"custom_id\": \"a\", \"url\": \"/v1/responses\", \"body\": {}}", "/v1/embeddings are"),
        ("{\"custom_id\": \"a\", \"method\": \"GET\", \"body\": {}}", "POST expected"),
    ] {
        std::fs::write(&input, text).unwrap();
        refused(&["batch", &input, &output, "-d", "cpu"], &[said]);
    }
    assert_eq!(isobit(&["batch", &input]).status.code(), Some(2));
}

#[test]
fn chats_stop_strings_and_guesses_are_what_the_server_answers_and_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let message = |text: &str| json!([{ "role": "user", "content": text }]);
    let chat = |i: usize, body: Value| json!({ "custom_id": format!("c{i}"), "method": "POST", "url": "/v1/chat/completions", "body": body });
    let schema = json!({ "type": "object", "properties": { "legs": { "type": "integer", "minimum": 0, "maximum": 9 } },
        "required": ["legs"], "additionalProperties": false });
    let tools = json!([{ "type": "function", "function": { "name": "feed", "parameters": schema } }]);
    let form = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    let mut list = vec![
        chat(0, json!({ "messages": message("Once upon a time"), "max_tokens": 20, "n": 2, "seed": 3, "user": "me" })),
        chat(1, json!({ "messages": message("An animal"), "max_tokens": 90, "response_format": form })),
        chat(
            2,
            json!({ "messages": message("An animal"), "max_tokens": 90, "tools": tools, "tool_choice": "required",
            "parallel_tool_calls": false }),
        ),
        chat(3, json!({ "messages": [] })),
        chat(4, json!({ "messages": message("x"), "temperature": "warm" })),
    ];
    let plain = |more: Value| {
        let mut body = json!({ "prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "ignore_eos": true });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "custom_id": format!("p{more}"), "body": body })
    };
    list.push(plain(json!({})));
    write(&at(dir.path(), "in.jsonl"), &list);
    let (digest, file) = within("1024", dir.path(), "a.jsonl", &["--chat-template", "chatml"]);
    let first = answers(&file);
    let body = |i: usize| &first[i]["response"]["body"];
    let status: Vec<u64> = first.iter().map(|a| a["response"]["status_code"].as_u64().unwrap()).collect();
    assert_eq!(status, [200, 200, 200, 400, 400, 200], "{first:?}");
    assert_eq!((body(0)["choices"].as_array().map(Vec::len), &body(0)["object"]), (Some(2), &json!("chat.completion")));
    let held: Value = serde_json::from_str(body(1)["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(held["legs"].as_u64().unwrap() <= 9);
    let call = &body(2)["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "feed", "{}", body(2));
    assert!(body(3)["error"]["message"].as_str().unwrap().contains("messages"));
    assert_eq!(body(4)["error"]["param"], "temperature");
    // again, other texts beside each, with guesses: the same bytes
    for (name, more) in [("b.jsonl", &["--parallel", "3"][..]), ("c.jsonl", &["--spec", "ngram"])] {
        let more = [&["--chat-template", "chatml"], more].concat();
        assert_eq!(within("1024", dir.path(), name, &more).0, digest, "{more:?}");
    }
    // a stop string ends what was the same until there, and echo is before it
    let text = body(5)["choices"][0]["text"].as_str().unwrap();
    let stop = &text[text.len() / 2..text.len() / 2 + 4];
    let list = [
        plain(json!({ "stop": stop })),
        plain(json!({ "stop": [stop, "never"], "echo": true })),
        plain(json!({ "stop": "never" })),
        plain(json!({ "stop": vec!["x"; 17] })),
        plain(json!({ "echo": true, "logprobs": 1 })),
    ];
    write(&at(dir.path(), "in.jsonl"), &list);
    let (_, file) = within("1024", dir.path(), "d.jsonl", &[]);
    let list = answers(&file);
    let choice = |i: usize| &list[i]["response"]["body"]["choices"][0];
    let until = &text[..text.find(stop).unwrap()];
    assert_eq!((&choice(0)["text"], &choice(0)["finish_reason"]), (&json!(until), &json!("stop")));
    assert_eq!(choice(1)["text"], format!("Once upon a time{until}"));
    assert_eq!((&choice(2)["text"], &choice(2)["finish_reason"]), (&json!(text), &json!("length")));
    assert_eq!(list[0]["response"]["body"]["usage"]["prompt_tokens"], body(5)["usage"]["prompt_tokens"]);
    assert!(list[0]["response"]["body"]["usage"]["completion_tokens"].as_u64().unwrap() < 40);
    for (i, field) in [(3, "stop"), (4, "echo")] {
        let error = &list[i]["response"]["body"]["error"]["message"];
        assert!(error.as_str().unwrap().starts_with(field), "{error}");
    }
}

#[test]
fn vectors_of_a_file_are_those_of_embed_and_have_a_file_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let texts = ["Once upon a time", "The dog"];
    let one = |i: usize, input: Value| json!({ "custom_id": format!("v{i}"), "url": "/v1/embeddings", "body": { "input": input } });
    write(&at(dir.path(), "in.jsonl"), &[one(0, json!(texts)), one(1, json!(texts[1])), one(2, json!(3))]);
    let (_, file) = batch(dir.path(), "out.jsonl", &[]);
    let list = answers(&file);
    let vector = |i: usize, k: usize| &list[i]["response"]["body"]["data"][k]["embedding"];
    assert!(vector(0, 0).as_array().unwrap().len() > 8 && vector(0, 0) != vector(0, 1));
    assert_eq!(vector(0, 1), vector(1, 0));
    assert_eq!(list[2]["response"]["status_code"], 400);
    let (input, output) = (at(dir.path(), "in.jsonl"), at(dir.path(), "x.jsonl"));
    let chat = json!({ "custom_id": "a", "body": { "prompt": "a" } });
    write(&input, &[one(0, json!("a")), chat]);
    refused(&["batch", &input, &output, "-d", "cpu"], &["in.jsonl line 2", "a file of their own"]);
    for (body, why) in
        [(json!({ "messages": [], "stream": true }), "stream"), (json!({ "messages": [], "seed": -1 }), "seed")]
    {
        write(&input, &[json!({ "custom_id": "a", "url": "/v1/chat/completions", "body": body })]);
        refused(&["batch", &input, &output, "-d", "cpu"], &["line 1", why]);
    }
}
