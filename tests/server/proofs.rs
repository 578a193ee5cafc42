//! Answers that keep to a form, and what proves an answer: digests, receipts, kept runs.

use crate::{get, good, options, post, request, runtime, send, server, start};
use axum::http::HeaderValue;
use isobit::internals::receipts::Receipt;
use isobit::{Devices, Head, Model, Request, SamplerOptions, SessionOptions};
use serde_json::{Value, json};
use std::ops::ControlFlow;

fn body(n: usize, seed: u64) -> Value {
    json!({ "prompt": "Lily saw a", "max_tokens": n, "seed": seed, "temperature": 0.9 })
}

/// The digest that a session's chain ends with.
fn digest(device: &str, n: usize, seed: u64) -> String {
    let options = SessionOptions { context: 256, ..SessionOptions::default() };
    let mut session = Model::embedded().session(Devices::default().open(device).unwrap(), options).unwrap();
    let sampling = SamplerOptions { temperature: 0.9, seed, ..SamplerOptions::default() };
    let request = Request { max_tokens: n, sampling, chain: true, ..Request::new("Lily saw a") };
    let chain = session.generate(request, |_| ControlFlow::Continue(())).unwrap().chain;
    chain.last().unwrap().iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn a_header_asks_for_the_digest_and_it_is_a_sessions_on_the_plain_twins() {
    let (_app, router) = server();
    runtime().block_on(async {
        let mut r = request("POST", "/v1/completions", body(16, 3).to_string());
        r.headers_mut().insert("x-isobit-digest", HeaderValue::from_static("1"));
        let response = tower_service::Service::call(&mut router.clone(), r).await.unwrap();
        let told = response.headers()["x-isobit-digest"].to_str().unwrap().to_owned();
        assert_eq!(told, digest("cpu:scalar", 16, 3));
        assert_ne!(told, digest("cpu:scalar", 16, 4));
        let answer = good(&router, "/v1/completions", &body(16, 3)).await;
        assert!(answer.get("isobit").is_none(), "nobody asked: {answer}");
    });
}

#[test]
fn a_receipt_is_checked_by_the_server_as_text_and_as_json_and_a_changed_one_is_refused() {
    let (_app, router) = server();
    runtime().block_on(async {
        let mut asked = body(12, 5);
        asked["receipt"] = true.into();
        asked["stop"] = json!(["zzz"]);
        let answer = good(&router, "/v1/completions", &asked).await;
        let text = answer["isobit"]["receipt"].as_str().unwrap();
        let receipt = Receipt::parse(text.as_bytes()).unwrap();
        assert_eq!(receipt.body.text, answer["choices"][0]["text"].as_str().unwrap());
        for given in [json!(text), serde_json::from_str(text).unwrap()] {
            let checked = good(&router, "/isobit/check", &json!({ "receipt": given, "device": "cpu:portable" })).await;
            assert_eq!(
                (&checked["equal"], &checked["tokens"], &checked["first"]),
                (&json!(true), &json!(12), &Value::Null)
            );
        }
        let changed = text.replacen("\"ids\":[", "\"ids\":[1,", 1);
        let (status, error) = post(&router, "/isobit/check", &json!({ "receipt": changed })).await;
        assert_eq!((status.as_u16(), &error["error"]["param"]), (400, &json!("receipt")), "{error}");
        // whole in itself, and not what the model gives
        let mut forged = receipt.clone();
        forged.body.ids[7] = (forged.body.ids[7] + 1) % 1000;
        let forged = String::from_utf8(forged.to_bytes()).unwrap();
        let checked = good(&router, "/isobit/check", &json!({ "receipt": forged })).await;
        assert_eq!(checked["equal"], false, "{checked}");
    });
}

#[test]
fn runs_are_kept_and_listed_where_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, mut options) = options("cpu", Head::Logits);
    options.record = Some(dir.path().join("runs"));
    let (_app, router) = start((engine, options));
    runtime().block_on(async {
        assert_eq!(get(&router, "/isobit/runs").await, json!({ "runs": [], "record": true }));
        let (_other, without) = server();
        assert_eq!(get(&without, "/isobit/runs").await, json!({ "runs": [], "record": false }));
        let mut asked = body(6, 1);
        asked["logprobs"] = 2.into();
        asked["digest"] = true.into();
        let answer = good(&router, "/v1/completions", &asked).await;
        let list = get(&router, "/isobit/runs").await;
        let (run, id) = (&list["runs"][0], answer["isobit"]["run"].as_str().unwrap());
        assert_eq!((&run["id"], &run["tokens"], &run["digest"]), (&json!(id), &json!(6), &answer["isobit"]["digest"]));
        let whole = get(&router, &format!("/isobit/runs/{id}")).await;
        assert_eq!((&whole["text"], &whole["prompt"]), (&answer["choices"][0]["text"], &json!("Lily saw a")));
        assert_eq!(whole["tokens"].as_array().map(Vec::len), Some(6));
        assert_eq!(whole["tokens"][0]["top"].as_array().map(Vec::len), Some(2));
        for (path, status) in
            [("/isobit/runs/0123456789abcdef", 404), ("/isobit/runs/..%2f..%2fx", 400), ("/isobit/runs/%ff", 400)]
        {
            let (got, text) = send(&router, request("GET", path, "")).await;
            assert!(got.as_u16() == status && text.contains("\"error\""), "{path} {got} {text}");
        }
    });
}

#[test]
fn a_schema_and_a_tool_that_must_be_called_are_kept_to() {
    let (_app, router) = server();
    runtime().block_on(async {
        let schema = json!({
            "type": "object", "required": ["animal", "legs"], "additionalProperties": false,
            "properties": { "animal": { "enum": ["dog", "cat"] }, "legs": { "type": "integer", "minimum": 0, "maximum": 9 } },
        });
        let messages = json!([{ "role": "user", "content": "An animal" }]);
        for seed in 0..6 {
            let format = json!({ "type": "json_schema", "json_schema": { "name": "animal", "schema": schema } });
            let asked = json!({ "messages": messages, "seed": seed, "max_tokens": 120, "response_format": format });
            let answer = good(&router, "/v1/chat/completions", &asked).await;
            let choice = &answer["choices"][0];
            assert_eq!(choice["finish_reason"], "stop", "{answer}");
            let value: Value = serde_json::from_str(choice["message"]["content"].as_str().unwrap()).unwrap();
            assert!(value["animal"].is_string() && value["legs"].as_u64().unwrap() <= 9 && value.as_object().unwrap().len() == 2);
            let tools = json!([
                { "type": "function", "function": { "name": "feed", "parameters": schema } },
                { "type": "function", "function": { "name": "count", "parameters": { "type": "object", "properties": {}, "additionalProperties": false } } },
            ]);
            let named = json!({ "type": "function", "function": { "name": "feed" } });
            let choice = if seed % 2 == 0 { json!("required") } else { named };
            let asked = json!({
                "messages": messages, "seed": seed, "max_tokens": 150, "tools": tools, "tool_choice": choice,
                "parallel_tool_calls": false,
            });
            let answer = good(&router, "/v1/chat/completions", &asked).await;
            let (message, finish) = (&answer["choices"][0]["message"], &answer["choices"][0]["finish_reason"]);
            assert_eq!(finish, "tool_calls", "{answer}");
            let call = &message["tool_calls"][0]["function"];
            let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
            assert!(call["name"] == "count" && seed % 2 == 0 || arguments["legs"].is_u64(), "{answer}");
        }
        for (field, value) in [
            ("response_format", json!({ "type": "xml" })),
            ("response_format", json!({ "type": "json_schema" })),
            ("response_format", json!({ "type": "json_schema", "json_schema": { "schema": { "type": 3 } } })),
            ("grammar", json!("root ::= (")),
            ("tool_choice", json!(3)),
            ("tool_choice", json!("required")),
        ] {
            let mut asked = json!({ "messages": messages });
            asked[field] = value;
            let (status, answer) = post(&router, "/v1/chat/completions", &asked).await;
            assert_eq!(status.as_u16(), 400, "{asked} {answer}");
        }
    });
}

/// The last event or line of a stream that has a proof.
fn last_proof(text: &str) -> Value {
    let lines = text.lines().map(|l| l.strip_prefix("data: ").unwrap_or(l));
    let mut values = lines.filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let proof = |v: &Value| v.get("isobit").or_else(|| v.pointer("/response/isobit")).cloned();
    values.by_ref().filter_map(|v| proof(&v)).last().unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn all_routes_that_make_text_tell_its_digest_and_its_receipt_whole_and_in_pieces() {
    let (_app, router) = server();
    runtime().block_on(async {
        let options = json!({ "num_predict": 12, "temperature": 0.9, "seed": 3 });
        let message = json!([{ "role": "user", "content": "Lily saw a" }]);
        let bodies = [
            ("/v1/responses", json!({ "input": "Lily saw a", "max_output_tokens": 12, "temperature": 0.9, "seed": 3 })),
            ("/api/chat", json!({ "messages": message, "options": options })),
            ("/api/generate", json!({ "prompt": "Lily saw a", "options": options })),
        ];
        let same = json!({ "messages": message, "max_tokens": 12, "temperature": 0.9, "seed": 3, "digest": true });
        let want = good(&router, "/v1/chat/completions", &same).await["isobit"]["digest"].clone();
        for (path, mut body) in bodies {
            body["stream"] = false.into();
            let plain = good(&router, path, &body).await;
            assert!(plain.get("isobit").is_none(), "nobody asked: {plain}");
            let mut r = request("POST", path, body.to_string());
            r.headers_mut().insert("x-isobit-digest", HeaderValue::from_static("1"));
            let response = tower_service::Service::call(&mut router.clone(), r).await.unwrap();
            assert_eq!(json!(response.headers()["x-isobit-digest"].to_str().unwrap()), want, "{path}");
            body["receipt"] = true.into();
            let whole = good(&router, path, &body).await;
            assert_eq!(whole["isobit"]["digest"], want, "{path}");
            body["stream"] = true.into();
            let (_, text) = send(&router, request("POST", path, body.to_string())).await;
            let streamed = last_proof(&text);
            assert_eq!(streamed["digest"], want, "{path}");
            for proof in [&whole["isobit"], &streamed] {
                let receipt = Receipt::parse(proof["receipt"].as_str().unwrap().as_bytes()).unwrap();
                assert_eq!(receipt.body.ids.len(), 12, "{path}");
            }
        }
    });
}

#[test]
fn a_text_is_held_to_what_each_field_for_it_says() {
    let (_app, router) = server();
    runtime().block_on(async {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"],
            "additionalProperties": false });
        type Is = fn(&str) -> bool;
        let number: Is = |t| t.len() == 4 && t.bytes().all(|b| b.is_ascii_digit());
        let word: Is = |t| ["red", "blue \"sky\""].contains(&t);
        let object: Is = |t| serde_json::from_str::<Value>(t).is_ok_and(|v| v["a"].is_boolean());
        let forms = [
            (json!({ "guided_regex": "[0-9]{4}" }), number),
            (json!({ "grammar": "[0-9]{4}", "grammar_type": "regex" }), number),
            (json!({ "structured_outputs": { "regex": "[0-9]{4}" } }), number),
            (json!({ "guided_grammar": "start: /[0-9]{4}/" }), number),
            (json!({ "grammar": "start: /[0-9]{4}/", "grammar_type": "lark" }), number),
            (json!({ "grammar": "%llguidance {}\nstart: /[0-9]{4}/" }), number),
            (json!({ "grammar": "root ::= [0-9] [0-9] [0-9] [0-9]" }), number),
            (json!({ "guided_choice": ["red", "blue \"sky\""] }), word),
            (json!({ "structured_outputs": { "choice": ["red", "blue \"sky\""] } }), word),
            (json!({ "guided_json": schema }), object),
            (json!({ "guided_json": schema.to_string() }), object),
            (json!({ "structured_outputs": { "json": schema } }), object),
        ];
        for (form, is) in forms {
            for (path, mut body) in [
                ("/v1/completions", json!({ "prompt": "Say", "max_tokens": 60 })),
                (
                    "/v1/chat/completions",
                    json!({ "messages": [{ "role": "user", "content": "Say" }], "max_tokens": 60 }),
                ),
            ] {
                body.as_object_mut().unwrap().extend(form.as_object().unwrap().clone());
                let answer = good(&router, path, &body).await;
                let choice = &answer["choices"][0];
                let text = choice["text"].as_str().or_else(|| choice["message"]["content"].as_str()).unwrap();
                assert!(is(text), "{path} {form}: {text:?}");
            }
        }
        for (field, more) in [
            ("guided_regex", json!({ "guided_regex": "(" })),
            ("grammar_type", json!({ "grammar": "x", "grammar_type": "ebnf" })),
            ("guided_choice", json!({ "guided_choice": [3] })),
            ("guided_json", json!({ "guided_json": 3 })),
            ("grammar", json!({ "guided_regex": "a", "grammar": "root ::= \"a\"" })),
        ] {
            let mut body = json!({ "prompt": "Say" });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let (status, answer) = post(&router, "/v1/completions", &body).await;
            assert_eq!(status.as_u16(), 400, "{field}: {answer}");
        }
    });
}
