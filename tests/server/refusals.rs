//! What is refused: each wrong request in one shape, naming what is wrong; strangers; what is too much.

use crate::{options, post, request, runtime, send, server, start};
use axum::http::{HeaderValue, StatusCode, header};
use isobit::Head;
use serde_json::{Value, json};

/// The error of a request, whose shape is checked.
fn error(status: StatusCode, answer: &Value) -> (u16, String, String) {
    let e = &answer["error"];
    let text = |name: &str| e[name].as_str().unwrap_or_default().to_owned();
    assert!(!text("message").is_empty() && !text("type").is_empty() && !text("message").contains('\n'), "{answer}");
    (status.as_u16(), text("param"), text("message"))
}

#[test]
fn a_wrong_field_is_named() {
    let (app, router) = server();
    runtime().block_on(async {
        let message = |m: Value| json!({ "messages": [m] });
        let chat = [
            (json!({}), "messages"),
            (json!({ "messages": [] }), "messages"),
            (json!({ "messages": "hi" }), "messages"),
            (message(json!(3)), "messages[0]"),
            (message(json!({ "content": "x" })), "messages[0].role"),
            (message(json!({ "role": "user", "content": 3 })), "messages[0].content"),
            (message(json!({ "role": "user", "content": [{ "type": "image_url" }] })), "messages[0].content"),
        ];
        for (body, param) in chat {
            let (status, answer) = post(&router, "/v1/chat/completions", &body).await;
            let (code, named, _) = error(status, &answer);
            assert_eq!((code, named.as_str()), (400, param), "{body} {answer}");
        }
        let user = json!([{ "role": "user", "content": "x" }]);
        for (field, value) in [
            ("temperature", json!(-1)),
            ("temperature", json!("hot")),
            ("top_p", json!(0)),
            ("top_k", json!(1.5)),
            ("min_p", json!(2)),
            ("seed", json!(1.5)),
            ("n", json!(17)),
            ("n", json!(0)),
            ("max_tokens", json!(-2)),
            ("stop", json!([1])),
            ("stop", json!(vec!["x"; 17])),
            ("stream", json!("yes")),
            ("stream_options", json!([])),
            ("logprobs", json!(3)),
            ("top_logprobs", json!(21)),
            ("top_logprobs", json!(1)),
            ("tools", json!({})),
            ("tools", json!([{ "type": "function" }])),
            ("repeat_penalty", json!(0)),
            ("ignore_eos", json!(1)),
        ] {
            let mut body = json!({ "messages": user });
            body[field] = value;
            let (status, answer) = post(&router, "/v1/chat/completions", &body).await;
            let (code, named, _) = error(status, &answer);
            assert_eq!((code, named.as_str()), (400, field), "{body} {answer}");
        }
        for (body, param) in [
            (json!({}), "prompt"),
            (json!({ "prompt": ["a", 3] }), "prompt"),
            (json!({ "prompt": [1, 1_000_000] }), "prompt"),
            (json!({ "prompt": [] }), "prompt"),
            (json!({ "prompt": "x", "best_of": 3 }), "best_of"),
            (json!({ "prompt": "x", "logprobs": true }), "logprobs"),
        ] {
            let (status, answer) = post(&router, "/v1/completions", &body).await;
            let (code, named, _) = error(status, &answer);
            assert_eq!((code, named.as_str()), (400, param), "{body} {answer}");
        }
    });
    assert_eq!(app.status().steps, 0, "nothing was begun");
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_numbers() {
    let (_app, router) = server();
    runtime().block_on(async {
        for prompt in [json!("the dog ".repeat(400)), json!("x".repeat(900_000)), json!(vec![5; 257])] {
            let (status, answer) = post(&router, "/v1/completions", &json!({ "prompt": prompt })).await;
            let e = &answer["error"];
            assert_eq!((status.as_u16(), &e["code"]), (400, &json!("exceed_context_size_error")), "{answer}");
            assert!(e["n_prompt_tokens"].as_u64().unwrap() > 256 && e["n_ctx"] == 256, "{answer}");
        }
        let (status, answer) =
            post(&router, "/v1/completions", &json!({ "prompt": vec![5; 250], "max_tokens": 100, "ignore_eos": true }))
                .await;
        assert_eq!((status.as_u16(), &answer["choices"][0]["finish_reason"]), (200, &json!("length")));
    });
}

#[test]
fn what_is_no_request_has_an_answer_of_the_same_shape() {
    let (_app, router) = server();
    runtime().block_on(async {
        let long = vec![b'x'; (1 << 20) + 1];
        for (method, path, body, status) in [
            ("POST", "/v1/completions", b"".to_vec(), 400),
            ("POST", "/v1/completions", b"[1]".to_vec(), 400),
            ("POST", "/v1/completions", b"{\"prompt\": \"\xff\"}".to_vec(), 400),
            ("POST", "/v1/completions", "[".repeat(100_000).into_bytes(), 400),
            ("POST", "/v1/completions", long, 413),
            ("GET", "/v1/completions", b"".to_vec(), 405),
            ("GET", "/nowhere\u{1b}".trim_end_matches('\u{1b}'), b"".to_vec(), 404),
            ("GET", "/v1/models/other", b"".to_vec(), 404),
        ] {
            let (got, text) = send(&router, request(method, path, body)).await;
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(error(got, &answer).0, status, "{method} {path} {text}");
        }
    });
}

#[test]
fn strangers_are_kept_out() {
    let (engine, mut options) = options("cpu", Head::Logits);
    options.api_key = Some("right".into());
    let (_app, router) = start((engine, options));
    runtime().block_on(async {
        let ask = |host: &'static str, origin: Option<&'static str>, key: Option<&'static str>| {
            let mut r = request("POST", "/tokenize", r#"{"content": "x"}"#);
            r.headers_mut().insert(header::HOST, HeaderValue::from_static(host));
            if let Some(origin) = origin {
                r.headers_mut().insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            if let Some(key) = key {
                r.headers_mut().insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {key}")).unwrap());
            }
            let router = router.clone();
            async move { send(&router, r).await.0.as_u16() }
        };
        let (right, own) = (Some("right"), Some("http://localhost:8080"));
        assert_eq!(ask("localhost:8080", own, right).await, 200);
        assert_eq!(ask("LOCALHOST.", None, right).await, 200);
        assert_eq!(ask("localhost:8081", own, right).await, 403, "a page of another port");
        for host in
            ["evil.example", "localhost.evil.example:8080", "[::1]:8080", "127.0.0.1", "localhost:99999", "", "a b"]
        {
            assert_eq!(ask(host, None, right).await, 403, "{host}");
        }
        for origin in ["null", "http://evil.example", "file://", "http://localhost.evil.example"] {
            assert_eq!(ask("localhost", Some(origin), right).await, 403, "{origin}");
        }
        for key in [None, Some("wrong"), Some(""), Some("rig"), Some("right1")] {
            assert_eq!(ask("localhost", None, key).await, 401, "{key:?}");
        }
        let (status, text) = send(&router, request("GET", "/props", "")).await;
        assert!(status == StatusCode::UNAUTHORIZED && !text.contains("right\""), "{text}");
        assert_eq!(send(&router, request("GET", "/health", "")).await.0, StatusCode::OK);
    });
}
