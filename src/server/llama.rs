//! llama.cpp's routes beside OpenAI's: what the server is, what it is busy with, texts to tokens and back.

use super::app::App;
use super::fault::Fault;
use super::fields::{Fields, id};
use super::listen::Phase;
use super::openai::prepared;
use super::prepare;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// `GET /health`: 200 where requests are answered.
pub async fn health(State(app): State<Arc<App>>) -> Result<Json<Value>, Fault> {
    if *app.phase.borrow() != Phase::Open {
        return Err(Fault::unavailable("the server is ending"));
    }
    app.engine().map(|_| Json(json!({ "status": "ok" })))
}

/// `GET /metrics`
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = app.metrics.text(&app.status());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// `GET /props`
pub async fn props(State(app): State<Arc<App>>) -> Json<Value> {
    let limit = app.limit().await;
    let s = &app.options.sampling;
    let template = app.template.as_ref().map_or("", |t| t.source());
    Json(json!({
        "model_alias": app.options.alias,
        "model_path": app.model.file().file_name().map(|n| n.to_string_lossy()),
        "n_ctx": app.context(),
        "total_slots": app.options.parallel,
        "chat_template": template,
        "default_generation_settings": {
            "temperature": s.temperature, "top_k": s.top_k, "top_p": s.top_p, "min_p": s.min_p,
            "repeat_penalty": s.repeat_penalty, "repeat_last_n": s.repeat_last_n, "seed": s.seed,
            "presence_penalty": s.presence_penalty, "frequency_penalty": s.frequency_penalty,
            "n_ctx": app.context(),
        },
        "build_info": concat!("isobit ", env!("CARGO_PKG_VERSION")),
        "isobit": {
            "device": app.device(), "fingerprint": app.fingerprint(), "record": app.options.record.is_some(),
            "embeddings": app.options.embeddings, "limit": { "decode_tokens_per_second": limit },
        },
    }))
}

/// `GET /slots`: texts at work take the first ones, since any text may be anywhere.
pub async fn slots(State(app): State<Arc<App>>) -> Json<Value> {
    let running = app.status().running;
    let slot = |i: usize| json!({ "id": i, "n_ctx": app.context(), "is_processing": i < running });
    Json((0..app.options.parallel).map(slot).collect())
}

/// `GET /isobit/status`
pub async fn status(State(app): State<Arc<App>>) -> Json<Value> {
    let s = app.status();
    Json(json!({
        "texts": { "running": s.running, "waiting": s.waiting },
        "cache": { "chunks": s.chunks, "chunks_used": s.chunks - s.free.min(s.chunks), "chunks_kept": s.kept },
        "device": app.device(),
        "uptime_s": app.started.elapsed().as_secs(),
    }))
}

/// `POST /tokenize`
pub async fn tokenize(State(app): State<Arc<App>>, body: Bytes) -> Result<Json<Value>, Fault> {
    let tokens = prepared(&app, body, |app, body| {
        let f = Fields::parse(body)?;
        let text = f.text("content")?.ok_or_else(|| Fault::bad("content", "content is missing"))?;
        let (bos, special) = (f.flag("add_special")?, f.maybe_flag("parse_special")?.unwrap_or(true));
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let tokens = app.ids_of(text, bos, special)?;
        let pieces = f.flag("with_pieces")?;
        let piece = |id: u32| match app.model.tokenizer() {
            Ok(t) if pieces => {
                let bytes = t.piece(id);
                let piece = String::from_utf8(bytes.clone()).map_or_else(|_| json!(bytes), Value::from);
                json!({ "id": id, "piece": piece })
            }
            _ => json!(id),
        };
        Ok(tokens.into_iter().map(piece).collect())
    });
    Ok(Json(json!({ "tokens": tokens.await? })))
}

/// `POST /detokenize`
pub async fn detokenize(State(app): State<Arc<App>>, body: Bytes) -> Result<Json<Value>, Fault> {
    let text = prepared(&app, body, |app, body| {
        let f = Fields::parse(body)?;
        let list = f.list("tokens")?.ok_or_else(|| Fault::bad("tokens", "tokens is missing"))?;
        let n = app.model.vocabulary();
        let ids: Option<Vec<u32>> = list.iter().map(|v| id(v, n)).collect();
        let ids = ids.ok_or_else(|| Fault::bad("tokens", format!("tokens: ids below {n} expected")))?;
        let tokenizer = app.model.tokenizer().map_err(|e| Fault::bad("", e.to_string()))?;
        Ok(tokenizer.decode(&ids))
    });
    Ok(Json(json!({ "content": text.await? })))
}

/// `POST /apply-template`
pub async fn apply_template(State(app): State<Arc<App>>, body: Bytes) -> Result<Json<Value>, Fault> {
    let text = prepared(&app, body, |app, body| Ok(prepare::render(app, &mut Fields::parse(body)?)?.0));
    Ok(Json(json!({ "prompt": text.await? })))
}
