//! The page: one file that asks nobody else for anything.

use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

static PAGE: &str = include_str!("page.html");

/// What the page may do: run the one script and wear the one sheet that are in it, ask this server, nothing else.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let (style, script) = (hash("style"), hash("script"));
    let policy = format!(
        "default-src 'none'; connect-src 'self'; img-src 'self' data:; style-src '{style}'; script-src '{script}'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    );
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// The hash of what is in the page's only element of this name.
fn hash(tag: &str) -> String {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let text = PAGE.split_once(&open).and_then(|(_, rest)| rest.split_once(&close)).map_or("", |(text, _)| text);
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text)))
}

/// `GET /`
pub async fn page() -> Response {
    let mut response = Html(PAGE).into_response();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    response
}
