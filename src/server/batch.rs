//! Requests of a file, answered without a socket by what answers the routes.

use super::app::App;
use super::openai;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use serde_json::Value;
use std::sync::Arc;

/// Paths that a line may name.
pub const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/embeddings"];

/// What a path answers to a body, as status and JSON, without what another run of the same request would have otherwise:
/// names, times, and what the cache had. Calls of tools are named after `name`.
pub async fn answer(app: Arc<App>, path: &str, body: &Value, name: &str) -> (u16, Value) {
    let (app, bytes) = (State(app), Bytes::from(body.to_string()));
    let answered = match path {
        "/v1/chat/completions" => openai::chat(app, HeaderMap::new(), bytes).await,
        _ => openai::embeddings(app, bytes).await,
    };
    let response = answered.into_response();
    let status = response.status().as_u16();
    // it is in memory already
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
    let mut answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if let Some(map) = answer.as_object_mut() {
        for passing in ["created", "timings"] {
            map.remove(passing);
        }
        if map.contains_key("id") {
            map.insert("id".into(), name.into());
        }
    }
    if let Some(usage) = answer.get_mut("usage").and_then(Value::as_object_mut) {
        usage.remove("prompt_tokens_details");
    }
    let calls = answer.get_mut("choices").and_then(Value::as_array_mut).into_iter().flatten();
    for (i, choice) in calls.enumerate() {
        for (k, call) in
            choice.pointer_mut("/message/tool_calls").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
        {
            call["id"] = format!("{name}_{i}_{k}").into();
        }
    }
    (status, answer)
}
