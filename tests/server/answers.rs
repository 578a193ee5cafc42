//! What is answered: the same text however it is asked for, whoever asks besides, on any device.

use crate::{events, get, good, options, post, request, runtime, send, server, start};
use axum::http::StatusCode;
use futures::StreamExt;
use isobit::internals::random;
use isobit::internals::server::App;
use isobit::{Devices, Head, Model, Request, SamplerOptions, SessionOptions};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use tower_service::Service;

/// What a session of its own says after a text, which begins with the token for that.
fn alone(prompt: &str, n: usize, temperature: f32, seed: u64) -> String {
    said(true, prompt, n, temperature, seed)
}

/// After a chat's prompt, in which the template has written all there is.
fn chatted(prompt: &str, n: usize, temperature: f32, seed: u64) -> String {
    said(false, prompt, n, temperature, seed)
}

fn said(bos: bool, prompt: &str, n: usize, temperature: f32, seed: u64) -> String {
    let options = SessionOptions { context: 256, ..SessionOptions::default() };
    let mut session = Model::embedded().session(Devices::default().open("cpu").unwrap(), options).unwrap();
    let sampling = SamplerOptions { temperature, seed, ..SamplerOptions::default() };
    let request = Request { max_tokens: n, sampling, bos, ..Request::new(prompt) };
    session.generate(request, |_| ControlFlow::Continue(())).unwrap().text
}

/// Waits until nothing is at work and nothing waits.
pub async fn idle(app: &App) {
    let begun = Instant::now();
    while app.status().running + app.status().waiting > 0 {
        assert!(begun.elapsed().as_secs() < 20, "{:?}", app.status());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_completion_is_what_a_session_generates_whole_and_in_pieces() {
    let (_app, router) = server();
    runtime().block_on(async {
        let mut body =
            json!({ "model": "story", "prompt": "Once upon a time", "max_tokens": 20, "seed": 7, "temperature": 0.8 });
        let whole = good(&router, "/v1/completions", &body).await;
        let choice = &whole["choices"][0];
        assert_eq!(choice["text"], alone("Once upon a time", 20, 0.8, 7));
        assert_eq!((&whole["object"], &choice["finish_reason"]), (&json!("text_completion"), &json!("length")));
        assert_eq!(whole["usage"]["completion_tokens"], 20);
        assert!(whole["system_fingerprint"].as_str().unwrap().starts_with("isobit-"), "{whole}");
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
        let list = events(&router, "/v1/completions", &body).await;
        let text: String = list.iter().filter_map(|e| e["choices"][0]["text"].as_str()).collect();
        assert_eq!(json!(text), choice["text"]);
        let last = list.last().unwrap();
        assert_eq!(
            (last["choices"].as_array().map(Vec::len), &last["usage"]["completion_tokens"]),
            (Some(0), &json!(20))
        );
        assert_eq!(list[list.len() - 2]["choices"][0]["finish_reason"], "length");
    });
}

#[test]
fn a_chat_streams_what_it_answers_whole_and_n_texts_have_seeds_after_each_other() {
    let (_app, router) = server();
    runtime().block_on(async {
        let messages = json!([{ "role": "user", "content": "The king had three" }]);
        let mut body =
            json!({ "messages": messages, "max_tokens": 12, "seed": 3, "n": 3, "logprobs": true, "top_logprobs": 2 });
        let whole = good(&router, "/v1/chat/completions", &body).await;
        for i in 0..3 {
            let choice = &whole["choices"][i];
            let text = chatted("The king had three ", 12, 0.8, 3 + i as u64);
            assert_eq!((&choice["message"]["content"], &choice["index"]), (&json!(text), &json!(i)));
            let list = choice["logprobs"]["content"].as_array().unwrap();
            assert_eq!((list.len(), list[0]["top_logprobs"].as_array().unwrap().len()), (12, 2));
            let bytes: Vec<u8> =
                list.iter().flat_map(|t| serde_json::from_value::<Vec<u8>>(t["bytes"].clone()).unwrap()).collect();
            assert_eq!(String::from_utf8(bytes).unwrap().trim_start(), text.trim_start());
        }
        body["stream"] = true.into();
        let list = events(&router, "/v1/chat/completions", &body).await;
        assert_eq!(list[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
        for i in 0..3 {
            let of = |e: &&Value| e["choices"][0]["index"] == i;
            let text: String =
                list.iter().filter(of).filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
            assert_eq!(json!(text), whole["choices"][i]["message"]["content"]);
            let told = list.iter().filter(of).filter_map(|e| e["choices"][0]["logprobs"]["content"].as_array());
            assert_eq!(told.map(Vec::len).sum::<usize>(), 12);
        }
    });
}

#[test]
fn a_stop_string_ends_a_text_and_is_not_shown() {
    let (_app, router) = server();
    runtime().block_on(async {
        let body =
            |stop: Value| json!({ "prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "stop": stop });
        let text = good(&router, "/v1/completions", &body(Value::Null)).await["choices"][0]["text"].clone();
        let text = text.as_str().unwrap();
        let stop = &text[text.len() / 2..text.len() / 2 + 5];
        let ended = good(&router, "/v1/completions", &body(json!([stop, "never there"]))).await;
        assert_eq!(ended["choices"][0]["text"], text[..text.find(stop).unwrap()]);
        assert_eq!(ended["choices"][0]["finish_reason"], "stop");
    });
}

#[test]
fn echo_with_log_probabilities_scores_a_prompt_as_a_session_does() {
    let (_app, router) = server();
    runtime().block_on(async {
        let body = json!({ "prompt": "Once upon a time", "max_tokens": 0, "echo": true, "logprobs": 1 });
        let answer = good(&router, "/v1/completions", &body).await;
        let list = &answer["choices"][0]["logprobs"];
        let told: Vec<Option<f64>> = serde_json::from_value(list["token_logprobs"].clone()).unwrap();
        let options = SessionOptions { context: 256, ..SessionOptions::default() };
        let mut session = Model::embedded().session(Devices::default().open("cpu").unwrap(), options).unwrap();
        let request = Request { max_tokens: 0, prompt_logprobs: Some(1), ..Request::new("Once upon a time") };
        let output = session.generate(request, |_| ControlFlow::Continue(())).unwrap();
        let want: Vec<Option<f64>> =
            std::iter::once(None).chain(output.prompt_logprobs.iter().map(|l| Some(l.logprob))).collect();
        assert_eq!(told, want);
        assert_eq!(answer["choices"][0]["text"], "Once upon a time");
        assert_eq!(list["tokens"].as_array().map(Vec::len), Some(want.len()));
    });
}

#[test]
fn a_prompt_that_came_before_is_in_the_cache_and_the_numbers_say_so() {
    let (app, router) = server();
    runtime().block_on(async {
        let prompt = "The dog ran to the big tree and the cat sat on the mat. ".repeat(6);
        let body = json!({ "prompt": prompt, "max_tokens": 4, "temperature": 0 });
        let first = good(&router, "/v1/completions", &body).await;
        let again = good(&router, "/v1/completions", &body).await;
        assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
        let cached = again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        assert!(cached >= 64 && cached % 64 == 0, "{again}");
        assert_eq!(first["choices"], again["choices"]);
        // an answer is told before the engine has put its work away
        idle(&app).await;
        let status = get(&router, "/isobit/status").await;
        assert!(status["cache"]["chunks_kept"].as_u64().unwrap() > 0 && app.status().steps > 4, "{status}");
        let (_, metrics) = send(&router, request("GET", "/metrics", "")).await;
        assert!(
            metrics.contains("isobit:answers_done_total 2\n")
                && metrics.contains("llamacpp:tokens_predicted_total 8\n"),
            "{metrics}"
        );
    });
}

#[test]
fn one_request_gives_one_text_among_a_hundred_others() {
    let (app, router) = server();
    let mut seed = 11;
    runtime().block_on(async {
        let mine = json!({ "prompt": "Lily saw a", "max_tokens": 24, "seed": 5, "temperature": 1.1 });
        let want = alone("Lily saw a", 24, 1.1, 5);
        let mut all = futures::stream::FuturesUnordered::new();
        for i in 0..200 {
            let r = random::next(&mut seed);
            let other = json!({
                "prompt": "once the dog and the cat ".repeat(1 + r as usize % 6), "max_tokens": 1 + r % 30, "seed": r % 1000,
            });
            let (router, body) = (router.clone(), if i % 2 == 0 { mine.clone() } else { other });
            all.push(async move { (i % 2 == 0, good(&router, "/v1/completions", &body).await) });
        }
        while let Some((is_mine, answer)) = all.next().await {
            assert!(!is_mine || answer["choices"][0]["text"] == json!(want), "{answer}");
        }
    });
    runtime().block_on(idle(&app));
}

#[test]
fn whoever_leaves_takes_no_more_steps() {
    let (app, router) = server();
    runtime().block_on(async {
        for i in 0..20 {
            let body = json!({ "prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": true, "stream": true, "seed": i });
            let response = router.clone().call(request("POST", "/v1/completions", body.to_string())).await.unwrap();
            let mut stream = response.into_body().into_data_stream();
            for _ in 0..i % 3 {
                stream.next().await.unwrap().unwrap();
            }
        }
        idle(&app).await;
        let (_, metrics) = send(&router, request("GET", "/metrics", "")).await;
        assert!(metrics.contains("isobit:answers_begun_total 20\n") && metrics.contains("isobit:answers_cancelled_total 20\n"), "{metrics}");
    });
}

#[test]
fn vectors_are_those_of_a_session_as_numbers_and_as_bytes() {
    let (_app, router) = start(options("cpu", Head::Hidden));
    runtime().block_on(async {
        let body = json!({ "input": ["Once upon a time", "The dog"], "model": "story" });
        let answer = good(&router, "/v1/embeddings", &body).await;
        let vector: Vec<f32> = serde_json::from_value(answer["data"][1]["embedding"].clone()).unwrap();
        let options = SessionOptions { context: 256, head: Head::Hidden, ..SessionOptions::default() };
        let mut session = Model::embedded().session(Devices::default().open("cpu").unwrap(), options).unwrap();
        assert_eq!(vector, session.embed("The dog", isobit::Pooling::Mean).unwrap());
        let bytes = json!({ "input": "The dog", "encoding_format": "base64" });
        let answer = good(&router, "/v1/embeddings", &bytes).await;
        use base64::Engine as _;
        let text = answer["data"][0]["embedding"].as_str().unwrap();
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
        assert_eq!(bytes, vector.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
        let (status, answer) = post(&router, "/v1/completions", &json!({ "prompt": "x" })).await;
        assert_ne!(status, StatusCode::OK, "{answer}");
    });
    let (_app, router) = server();
    let (status, _) = runtime().block_on(post(&router, "/v1/embeddings", &json!({ "input": "x" })));
    assert_eq!(status, StatusCode::NOT_IMPLEMENTED);
}

#[test]
fn ollamas_lines_and_the_events_of_responses_hold_the_same_text() {
    let (_app, router) = server();
    runtime().block_on(async {
        let want = chatted("The king had three ", 12, 0.0, 0);
        let messages = json!([{ "role": "user", "content": "The king had three" }]);
        let options = json!({ "num_predict": 12, "temperature": 0 });
        let body = json!({ "model": "story", "messages": messages, "options": options });
        let (_, text) = send(&router, request("POST", "/api/chat", body.to_string())).await;
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let said: String = lines.iter().filter_map(|l| l["message"]["content"].as_str()).collect();
        let last = lines.last().unwrap();
        assert_eq!(
            (said.as_str(), &last["done_reason"], &last["eval_count"]),
            (want.as_str(), &json!("length"), &json!(12))
        );
        let body = json!({ "prompt": "The king had three", "options": options, "stream": false });
        let whole = good(&router, "/api/generate", &body).await;
        assert_eq!((&whole["response"], &whole["done"]), (&json!(want), &json!(true)));
        let body = json!({ "input": "The king had three", "max_output_tokens": 12, "temperature": 0 });
        let whole = good(&router, "/v1/responses", &body).await;
        assert_eq!((&whole["output"][0]["content"][0]["text"], &whole["status"]), (&json!(want), &json!("incomplete")));
        let mut body = body;
        body["stream"] = true.into();
        let (_, text) = send(&router, request("POST", "/v1/responses", body.to_string())).await;
        let events: Vec<Value> =
            text.lines().filter_map(|l| l.strip_prefix("data: ")).map(|l| serde_json::from_str(l).unwrap()).collect();
        let said: String = events
            .iter()
            .filter(|e| e["type"] == "response.output_text.delta")
            .filter_map(|e| e["delta"].as_str())
            .collect();
        assert_eq!(said, want);
        assert!(events.iter().enumerate().all(|(i, e)| e["sequence_number"] == i), "{text}");
        assert_eq!(events.last().unwrap()["type"], "response.incomplete");
    });
}

#[test]
fn texts_become_tokens_and_back_and_the_server_says_what_it_is() {
    let (_app, router) = server();
    runtime().block_on(async {
        let tokens = good(&router, "/tokenize", &json!({ "content": "Once upon a time", "with_pieces": true })).await;
        let ids: Vec<u64> = tokens["tokens"].as_array().unwrap().iter().map(|t| t["id"].as_u64().unwrap()).collect();
        let text = good(&router, "/detokenize", &json!({ "tokens": ids })).await;
        assert_eq!(text["content"], "Once upon a time");
        let prompt =
            good(&router, "/apply-template", &json!({ "messages": [{ "role": "user", "content": "hi" }] })).await;
        assert_eq!(prompt["prompt"], "hi ");
        let props = get(&router, "/props").await;
        assert_eq!((&props["n_ctx"], &props["total_slots"]), (&json!(256), &json!(4)));
        assert_eq!(get(&router, "/v1/models").await["data"][0]["id"], "story");
        assert_eq!(get(&router, "/v1/models/story").await["object"], "model");
        assert_eq!(get(&router, "/slots").await.as_array().map(Vec::len), Some(4));
        assert_eq!(get(&router, "/health").await, json!({ "status": "ok" }));
        assert_eq!(get(&router, "/api/tags").await["models"][0]["name"], "story");
        let (status, page) = send(&router, request("GET", "/", "")).await;
        assert!(status == StatusCode::OK && page.contains("</html>"));
    });
}

#[test]
fn every_route_that_makes_text_reads_every_field_of_the_sampler() {
    let (_app, router) = server();
    let fields = [
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "typical_p",
        "top_n_sigma",
        "repeat_penalty",
        "repeat_last_n",
        "presence_penalty",
        "frequency_penalty",
        "dry_multiplier",
        "dry_base",
        "dry_allowed_length",
        "dry_penalty_last_n",
        "dry_sequence_breakers",
        "xtc_probability",
        "xtc_threshold",
        "dynatemp_range",
        "dynatemp_exponent",
        "mirostat",
        "mirostat_tau",
        "mirostat_eta",
        "min_keep",
        "logit_bias",
        "seed",
        "ignore_eos",
        "stop",
        "grammar",
        "json_schema",
    ];
    runtime().block_on(async {
        for field in fields {
            // of a wrong type for every one of them
            let wrong = json!({ "x": {} });
            let wrong = if field == "json_schema" { json!(3) } else { wrong };
            let with = |body: Value| {
                let mut body = body;
                body[field] = wrong.clone();
                body
            };
            let message = json!([{ "role": "user", "content": "hi" }]);
            let inner = with(json!({ "num_predict": 1 }));
            for (path, body) in [
                ("/v1/completions", with(json!({ "prompt": "hi", "max_tokens": 1 }))),
                ("/v1/chat/completions", with(json!({ "messages": message, "max_tokens": 1 }))),
                ("/v1/responses", with(json!({ "input": "hi", "max_output_tokens": 1 }))),
                ("/api/chat", json!({ "messages": message, "options": inner })),
                ("/api/generate", json!({ "prompt": "hi", "options": inner })),
            ] {
                let (status, answer) = post(&router, path, &body).await;
                assert!(
                    status == StatusCode::BAD_REQUEST && answer.to_string().contains(field),
                    "{path} {field}: {answer}"
                );
            }
        }
    });
}

#[test]
fn a_response_stops_and_is_held_to_grammars_and_tells_log_probabilities_as_a_chat_does() {
    let (_app, router) = server();
    runtime().block_on(async {
        let ask = |more: Value| {
            let mut body = json!({ "input": "Once upon a time", "max_output_tokens": 30, "temperature": 0 });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let text = |v: &Value| v["output"][0]["content"][0]["text"].as_str().unwrap().to_owned();
        let plain = text(&good(&router, "/v1/responses", &ask(json!({}))).await);
        let stop = &plain[plain.len() / 2..plain.len() / 2 + 4];
        let stopped = text(&good(&router, "/v1/responses", &ask(json!({ "stop": stop }))).await);
        assert_eq!(stopped, plain[..plain.find(stop).unwrap()]);
        let held = good(&router, "/v1/responses", &ask(json!({ "grammar": "root ::= \"yes\" | \"no\"" }))).await;
        assert!(["yes", "no"].contains(&text(&held).as_str()), "{held}");
        let other =
            text(&good(&router, "/v1/responses", &ask(json!({ "frequency_penalty": 2, "presence_penalty": 2 }))).await);
        assert_ne!(other, plain);
        let told = json!({ "include": ["message.output_text.logprobs"], "top_logprobs": 2 });
        let told = good(&router, "/v1/responses", &ask(told)).await;
        let list = told["output"][0]["content"][0]["logprobs"].as_array().unwrap();
        assert_eq!((list.len(), list[0]["top_logprobs"].as_array().unwrap().len()), (30, 2));
        for (field, value) in [("n", json!(2)), ("background", json!(true)), ("previous_response_id", json!("resp_1"))]
        {
            let (status, answer) = post(&router, "/v1/responses", &ask(json!({ field: value }))).await;
            assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!(field)));
        }
    });
}

#[test]
fn the_limit_of_the_device_is_told_once_it_is_measured() {
    let (engine, mut options) = options("cpu", Head::Logits);
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = asked.clone();
    options.limit = Some(std::sync::Arc::new(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Some(118.5)
    }));
    let (_app, router) = start((engine, options));
    runtime().block_on(async {
        for _ in 0..3 {
            let props = get(&router, "/props").await;
            assert_eq!(props["isobit"]["limit"]["decode_tokens_per_second"], 118.5);
        }
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1, "it is measured once");
        let (_other, without) = server();
        assert_eq!(get(&without, "/props").await["isobit"]["limit"]["decode_tokens_per_second"], Value::Null);
    });
}

#[test]
fn several_prompts_are_answered_in_their_order_each_as_it_would_be_alone() {
    let (_app, router) = server();
    runtime().block_on(async {
        let prompts = ["Once upon a time", "The king", "Lily saw a"];
        let mut body =
            json!({ "prompt": prompts, "n": 2, "max_tokens": 10, "seed": 4, "temperature": 0.8, "echo": true });
        let whole = good(&router, "/v1/completions", &body).await;
        assert_eq!(whole["choices"].as_array().map(Vec::len), Some(6));
        let (mut tokens, mut texts) = (0, Vec::new());
        for (i, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
            let prompt = prompts[i / 2];
            let text = format!("{prompt}{}", alone(prompt, 10, 0.8, 4 + i as u64 % 2));
            assert_eq!((&choice["index"], &choice["text"]), (&json!(i), &json!(text)));
            texts.push(text);
            let one = json!({ "prompt": prompt, "max_tokens": 1 });
            if i % 2 == 0 {
                tokens += good(&router, "/v1/completions", &one).await["usage"]["prompt_tokens"].as_u64().unwrap();
            }
        }
        let usage = &whole["usage"];
        assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(tokens), &json!(60)));
        body["stream"] = true.into();
        let list = events(&router, "/v1/completions", &body).await;
        for (i, text) in texts.iter().enumerate() {
            let of = list.iter().filter(|e| e["choices"][0]["index"] == i);
            let streamed: String = of.filter_map(|e| e["choices"][0]["text"].as_str()).collect();
            assert_eq!(&streamed, text);
        }
        // as lm-eval scores: lists of ids, the prompt's log probabilities, one token
        let ids = json!([[1, 5, 9], [7, 2], [3, 4, 5, 6]]);
        let scores = json!({ "prompt": ids, "max_tokens": 1, "temperature": 0, "echo": true, "logprobs": 1 });
        let scores = good(&router, "/v1/completions", &scores).await;
        for (i, ids) in ids.as_array().unwrap().iter().enumerate() {
            let alone = json!({ "prompt": ids, "max_tokens": 1, "temperature": 0, "echo": true, "logprobs": 1 });
            let alone = good(&router, "/v1/completions", &alone).await;
            let (mut got, want) = (scores["choices"][i].clone(), &alone["choices"][0]);
            got["index"] = 0.into();
            assert_eq!(&got, want);
            let n = ids.as_array().unwrap().len() + 1;
            assert_eq!(got["logprobs"]["token_logprobs"].as_array().map(Vec::len), Some(n));
        }
        for (prompt, n) in [(json!([["a"], 3]), 1), (json!([]), 1), (json!(vec!["a"; 65]), 2)] {
            let (status, answer) = post(&router, "/v1/completions", &json!({ "prompt": prompt, "n": n })).await;
            assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!("prompt")), "{answer}");
        }
    });
}

#[test]
fn guesses_change_no_answer() {
    let (mut engine, mut options) = options("cpu", Head::Logits);
    engine.session.rows = 64;
    options.guess = isobit::Guess::Ngram;
    let ((_app, plain), (_other, guessing)) = (server(), start((engine, options)));
    runtime().block_on(async {
        for i in 0..12 {
            let prompt = "the dog and the cat and the dog and the cat ".repeat(1 + i % 3);
            let temperature = if i % 2 == 0 { 0.0 } else { 0.8 };
            let body = json!({ "prompt": prompt, "n": 1 + i % 3, "max_tokens": 40, "seed": i, "ignore_eos": true,
                "temperature": temperature, "logprobs": 2, "digest": true });
            let [a, b] =
                [good(&plain, "/v1/completions", &body).await, good(&guessing, "/v1/completions", &body).await];
            assert_eq!((&a["choices"], &a["isobit"]["digest"]), (&b["choices"], &b["isobit"]["digest"]));
        }
    });
}

#[test]
fn ollama_is_told_what_kind_of_model_it_is() {
    let (_app, router) = server();
    runtime().block_on(async {
        let details = get(&router, "/api/tags").await["models"][0]["details"].clone();
        assert_eq!((&details["format"], &details["family"]), (&json!("gguf"), &json!("llama")), "{details}");
        assert_eq!(details["quantization_level"], "Q4_K", "{details}");
        assert!(details["parameter_size"].as_str().unwrap().ends_with('M'), "{details}");
    });
}
