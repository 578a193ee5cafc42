//! The HTTP server: OpenAI's routes and llama.cpp's, and Ollama's, over one engine of many texts.
//!
//! [`app`](router) is a function from a state to routes, so tests call it without a socket; [`serve`] owns the sockets. A
//! request is checked whole before anything is queued (`prepare`), what comes of it is told in the client's language
//! (`tell`, and a file for each of the languages), and what is wrong is said in one place (`fault`). Prints nothing, reads no
//! flags; `receipts` keeps runs.

mod app;
pub mod batch;
mod choice;
mod fault;
mod fields;
mod guard;
mod listen;
mod llama;
mod metrics;
mod ollama;
mod openai;
mod page;
mod prepare;
mod responses;
mod runs;
mod tell;

pub use app::{App, Options, Start};
pub use listen::{CONNECTIONS, Phase, serve};

use app::SMALL;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use fault::Fault;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// How long a client may take for a request's body.
const BODY: Duration = Duration::from_secs(30);

/// All routes of a server.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/health", get(llama::health))
        .route("/v1/health", get(llama::health))
        .route("/metrics", get(llama::metrics))
        .route("/props", get(llama::props))
        .route("/slots", get(llama::slots))
        .route("/isobit/status", get(llama::status))
        .route("/isobit/check", post(runs::check_receipt))
        .route("/isobit/runs", get(runs::runs))
        .route("/isobit/runs/{id}", get(runs::one_run))
        .route("/tokenize", post(llama::tokenize))
        .route("/detokenize", post(llama::detokenize))
        .route("/apply-template", post(llama::apply_template))
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{*id}", get(openai::one_model))
        .route("/v1/chat/completions", post(openai::chat))
        .route("/v1/completions", post(openai::completions))
        .route("/v1/embeddings", post(openai::embeddings))
        .route("/v1/responses", post(responses::responses))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/embed", post(ollama::embed))
        .route("/api/tags", get(ollama::tags))
        .route("/api/ps", get(ollama::ps))
        .route("/api/show", post(ollama::show))
        .route("/api/version", get(ollama::version))
        .fallback(nowhere)
        .method_not_allowed_fallback(otherwise)
        // bodies are read and measured by `read_whole`
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.clone(), read_whole))
        .layer(from_fn_with_state(app.clone(), guard::watch))
        .with_state(app)
}

async fn nowhere(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(200).collect();
    let line = format!("there is nothing at {}", path.escape_debug());
    Fault::refused(StatusCode::NOT_FOUND, "not_found_error", line).at(&path)
}

async fn otherwise(request: Request) -> Response {
    let line = format!("{} is not what this path takes", request.method());
    Fault::refused(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", line).at(request.uri().path())
}

/// A body, and its place among the large ones, which it has as long as anybody holds the body.
struct Held {
    bytes: Bytes,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a request's body before its handler, in bounds of size and time; of large ones only some at once.
async fn read_whole(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let limit = app.options.body;
    let (parts, body) = request.into_parts();
    let place = match axum::body::HttpBody::size_hint(&body).upper() {
        Some(n) if n <= SMALL => None,
        _ => app.large.clone().acquire_owned().await.ok(),
    };
    let read = tokio::time::timeout(BODY, axum::body::to_bytes(body, limit)).await;
    let bytes: Bytes = match read {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(e)) => {
            let too_large = std::error::Error::source(&e).is_some_and(|s| s.is::<http_body_util::LengthLimitError>());
            let fault = match too_large {
                true => {
                    let line = format!("the body has more than {limit} bytes");
                    Fault::refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", line)
                }
                false => Fault::bad("", "the body broke off"),
            };
            return fault.at(parts.uri.path());
        }
        Err(_) => {
            let line = format!("the body took longer than {} seconds", BODY.as_secs());
            return Fault::refused(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", line).at(parts.uri.path());
        }
    };
    let bytes = match place {
        Some(place) => Bytes::from_owner(Held { bytes, _place: place }),
        None => bytes,
    };
    next.run(Request::from_parts(parts, Body::from(bytes))).await
}
