//! The server without a socket: requests in, responses out. What needs connections and signals is in tests/cli/serve.rs.

#[path = "server/answers.rs"]
mod answers;
#[path = "server/encoders.rs"]
mod encoders;
#[cfg(feature = "gpu")]
#[path = "server/lost.rs"]
mod lost;
#[path = "server/proofs.rs"]
mod proofs;
#[path = "server/refusals.rs"]
mod refusals;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use isobit::internals::chat::Template;
use isobit::internals::server::{App, Options, router};
use isobit::{DeviceOptions, Engine, EngineOptions, Guess, Head, Model, Pooling, SamplerOptions, SessionOptions};
use serde_json::Value;
use std::sync::Arc;
use tower_service::Service;

/// A template that the story model goes on with as if it were a story.
const TEMPLATE: &str = "{% for m in messages %}{{ m.content }} {% endfor %}";

/// A server of the story model, four texts at once, on one thread of the CPU.
fn options(device: &str, head: Head) -> (EngineOptions, Options) {
    let session = SessionOptions { context: 256, sequences: 4, head, ..SessionOptions::default() };
    let devices = DeviceOptions { threads: 1, ..DeviceOptions::default() };
    let engine = EngineOptions { device: device.into(), devices, session, queue: 256 };
    let template = Template::new(TEMPLATE, &[]).unwrap();
    let options = Options {
        alias: "story".into(),
        hosts: vec!["localhost".into()],
        origins: Vec::new(),
        addresses: false,
        api_key: None,
        sampling: SamplerOptions::default(),
        max_tokens: 32,
        parallel: 4,
        session,
        template: Some(Arc::new(template)),
        embeddings: head == Head::Hidden,
        pooling: Pooling::Mean,
        record: None,
        limit: None,
        guess: Guess::Off,
        body: 1 << 20,
    };
    (engine, options)
}

fn start((engine, options): (EngineOptions, Options)) -> (Arc<App>, Router) {
    let model = Model::embedded();
    let of = model.clone();
    let app = App::new(model, options, Box::new(move || Engine::start(&of, engine.clone())));
    app.load().unwrap();
    (app.clone(), router(app))
}

/// A server as it is mostly wanted.
fn server() -> (Arc<App>, Router) {
    start(options("cpu", Head::Logits))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn request(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    let builder = Request::builder().method(method).uri(path).header(header::HOST, "localhost:8080");
    builder.body(body.into()).unwrap()
}

/// A response's status and body.
async fn send(router: &Router, request: Request<Body>) -> (StatusCode, String) {
    let response = router.clone().call(request).await.unwrap();
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(bytes.into()).unwrap())
}

async fn post(router: &Router, path: &str, body: &Value) -> (StatusCode, Value) {
    let (status, text) = send(router, request("POST", path, body.to_string())).await;
    (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
}

/// The answer to a request that must be good.
async fn good(router: &Router, path: &str, body: &Value) -> Value {
    let (status, answer) = post(router, path, body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

async fn get(router: &Router, path: &str) -> Value {
    let (status, text) = send(router, request("GET", path, "")).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The events of a stream, of which the last says that it is done.
async fn events(router: &Router, path: &str, body: &Value) -> Vec<Value> {
    let (status, text) = send(router, request("POST", path, body.to_string())).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let mut lines: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("data: ")).collect();
    assert_eq!(lines.pop(), Some("[DONE]"), "{text}");
    lines.into_iter().map(|l| serde_json::from_str(l).unwrap()).collect()
}
