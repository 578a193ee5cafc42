//! The page: one file that asks nobody else for anything.

use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};

static PAGE: &str = include_str!("page.html");

/// What the page may do: run what is in it, ask this server, nothing else.
const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src 'self' data:; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /`
pub async fn page() -> Response {
    let mut response = Html(PAGE).into_response();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
