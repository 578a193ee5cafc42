//! What goes wrong with a request, in the shape that OpenAI's clients read.

use crate::engine::Error;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// An answer that is none: `{"error": {"message", "type", "param", "code"}}` under a status.
#[derive(Clone, Debug)]
pub struct Fault(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    status: StatusCode,
    kind: &'static str,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
    /// members besides
    more: Map<String, Value>,
    /// seconds after which it is worth asking again
    retry: Option<u32>,
}

impl Fault {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Fault {
        let message = message.into();
        Fault(Box::new(Inner { status, kind, message, param: None, code: None, more: Map::new(), retry: None }))
    }

    /// A request that cannot be answered as it is; `param`: the field that is wrong.
    pub fn bad(param: &str, message: impl Into<String>) -> Fault {
        let mut fault = Fault::new(StatusCode::BAD_REQUEST, "invalid_request_error", message);
        fault.0.param = Some(param.to_owned()).filter(|p| !p.is_empty());
        fault
    }

    /// A prompt longer than the context.
    pub fn too_long(prompt: usize, context: usize) -> Fault {
        let message = format!(
            "the prompt has {prompt} tokens, the context holds {context}: shorten it, or start the server with a larger one"
        );
        let more = [("n_prompt_tokens".to_owned(), prompt.into()), ("n_ctx".to_owned(), context.into())];
        let mut fault = Fault::new(StatusCode::BAD_REQUEST, "exceed_context_size_error", message);
        (fault.0.more, fault.0.code) = (Map::from_iter(more), Some("exceed_context_size_error"));
        fault
    }

    /// Something else than a bad field, in `status`.
    pub fn refused(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Fault {
        Fault::new(status, kind, message)
    }

    /// Nothing can be done now, and why.
    pub fn unavailable(message: impl Into<String>) -> Fault {
        let mut fault = Fault::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message);
        (fault.0.retry, fault.0.code) = (Some(1), Some("unavailable"));
        fault
    }

    /// What this server does not do.
    pub fn not_supported(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message)
    }

    /// An error of the server's own.
    pub fn internal(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// What went wrong, in words.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The body, which is also the last event of a stream that breaks off.
    pub fn body(&self) -> Value {
        let mut error = Map::from_iter([
            ("message".to_owned(), self.0.message.as_str().into()),
            ("type".to_owned(), self.0.kind.into()),
            ("param".to_owned(), self.0.param.clone().into()),
            ("code".to_owned(), self.0.code.into()),
        ]);
        error.extend(self.0.more.clone());
        json!({ "error": error })
    }
}

impl Fault {
    /// The response to a request of a path: Ollama's clients read errors in another shape.
    pub fn at(self, path: &str) -> Response {
        if !path.starts_with("/api/") {
            return self.into_response();
        }
        let body = Json(json!({ "error": self.0.message })).into_response().into_body();
        let mut response = self.into_response();
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = body;
        response
    }
}

impl From<Error> for Fault {
    fn from(e: Error) -> Fault {
        match e {
            Error::Options(_) => Fault::bad("", e.to_string()),
            Error::Busy { .. } => {
                let mut fault = Fault::unavailable(e.to_string());
                fault.0.code = Some("queue_full");
                fault
            }
            Error::Lost(_) | Error::Closed(_) | Error::Interrupted(_) | Error::Device(_) => {
                Fault::unavailable(e.to_string())
            }
            _ => Fault::internal(e.to_string()),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = (self.0.status, Json(self.body())).into_response();
        if let Some(seconds) = self.0.retry {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.0.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
