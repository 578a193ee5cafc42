//! Who may ask: names of hosts, origins of pages, keys. Before anything of a request is read.

use super::app::App;
use super::fault::Fault;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use subtle::ConstantTimeEq;

/// The name in a `Host` header or an origin, without port, brackets and the dot at its end, in lower case.
fn host_name(host: &str) -> Option<String> {
    let name = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']')?;
            if !(port.is_empty() || is_port(port)) {
                return None;
            }
            name
        }
        None => match host.split_once(':') {
            Some((name, port)) if is_port(&format!(":{port}")) => name,
            Some(_) => return None,
            None => host,
        },
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    (!name.is_empty() && name.chars().all(plain)).then_some(name)
}

/// A colon and a number of 16 bits.
fn is_port(s: &str) -> bool {
    s.strip_prefix(':').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()) && n.parse::<u16>().is_ok())
}

/// Whether a page of another server asks: its browser sends where it comes from, by the name and port that it asks at if
/// it is ours. `asked`: the `Host` of the request.
fn is_foreign(headers: &HeaderMap, asked: &str, allowed: &[String]) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let place = |authority: &str, scheme: &str| {
        let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.contains(']'));
        let port = port.unwrap_or(if scheme == "https" { "443" } else { "80" }).to_owned();
        Some((host_name(authority)?, port))
    };
    let from = origin.to_str().ok().and_then(|o| o.split_once("://")).filter(|(s, _)| matches!(*s, "http" | "https"));
    // `null`, which a file or a sandbox sends, is no place
    let Some((scheme, authority)) = from else { return true };
    match place(authority, scheme) {
        Some((name, _)) if allowed.iter().any(|a| *a == name || a == "*") => false,
        Some(from) => place(asked, scheme) != Some(from),
        None => true,
    }
}

impl App {
    fn goes_by(&self, name: &str) -> bool {
        let is_address = || name.parse::<std::net::IpAddr>().is_ok();
        self.options.hosts.iter().any(|h| h == name || h == "*") || (self.options.addresses && is_address())
    }

    fn admits(&self, request: &Request) -> Result<(), Fault> {
        let forbidden = |line: &str| Fault::refused(StatusCode::FORBIDDEN, "forbidden_error", line);
        let headers = request.headers();
        let asked = headers.get(header::HOST).and_then(|h| h.to_str().ok());
        let asked = asked.or_else(|| request.uri().authority().map(|a| a.as_str()));
        let ours = |asked: &&str| host_name(asked).is_some_and(|name| self.goes_by(&name));
        let Some(asked) = asked.filter(ours) else {
            return Err(forbidden("this server does not go by that name (the Host header)"));
        };
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if !reads && is_foreign(headers, asked, &self.options.origins) {
            return Err(forbidden("a page of another origin may not ask this server"));
        }
        let path = request.uri().path();
        // what holds nothing: whether there is a server, and the page that asks for the key
        if matches!(path, "/health" | "/v1/health") || (path == "/" && reads) {
            return Ok(());
        }
        let Some(key) = &self.options.api_key else { return Ok(()) };
        let given = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
        let given = given
            .and_then(|v| v.split_once(' ').filter(|(s, _)| s.eq_ignore_ascii_case("bearer")).map(|(_, key)| key))
            .or_else(|| headers.get("x-api-key")?.to_str().ok());
        match given {
            Some(given) if bool::from(given.trim().as_bytes().ct_eq(key.as_bytes())) => Ok(()),
            _ => {
                let line = "this server wants a key: Authorization: Bearer KEY";
                Err(Fault::refused(StatusCode::UNAUTHORIZED, "authentication_error", line))
            }
        }
    }
}

/// Looks at every request first, and answers for a handler that panics.
pub async fn watch(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let count = |response: Response| {
        if response.status().is_client_error() || response.status().is_server_error() {
            app.metrics.refused.fetch_add(1, Ordering::Relaxed);
        }
        response
    };
    let path = request.uri().path().to_owned();
    if let Err(fault) = app.admits(&request) {
        return count(fault.at(&path));
    }
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => count(response),
        Err(_) => {
            log::error!("a request to {} panicked", path.escape_debug());
            count(Fault::internal("the server made a mistake: this request is lost, others go on").at(&path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_host_has_a_name_or_is_refused() {
        let name = |s| host_name(s).unwrap_or_default();
        assert_eq!(name("localhost:8080"), "localhost");
        assert_eq!(name("LocalHost.:8080"), "localhost");
        assert_eq!(name("[::1]:80"), "::1");
        assert_eq!(name("127.0.0.1"), "127.0.0.1");
        for bad in
            ["", "a:b", "localhost:99999", "[::1", "[::1]x", "::1", "a@b", "a b", "localhost:80:80", "evil/localhost"]
        {
            assert_eq!(host_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_page_of_another_origin_is_foreign() {
        let foreign = |origin: &'static str, asked: &str| {
            let headers = HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_static(origin))]);
            is_foreign(&headers, asked, &["ui.example".into()])
        };
        assert!(!foreign("http://localhost:8080", "localhost:8080") && !foreign("http://LOCALHOST", "localhost:80"));
        assert!(!foreign("https://my.example", "my.example") && !foreign("http://[::1]:9", "[::1]:9"));
        assert!(!foreign("http://ui.example:3000", "localhost:8080"), "allowed by name");
        for origin in ["null", "http://evil.example", "file://localhost", "http://localhost.evil.example", "x"] {
            assert!(foreign(origin, "localhost:8080"), "{origin}");
        }
        assert!(foreign("http://localhost:3000", "localhost:8080"), "another port is another server");
        assert!(foreign("http://localhost", "localhost:8080"));
        assert!(!is_foreign(&HeaderMap::new(), "localhost", &[]), "a program sends none");
    }
}
