//! Requests. Redirects are followed here and not by the library, so that the token is sent to the hub alone, none leads from
//! https to http, and there are few of them.

use super::Watch;
use super::error::FetchError;
use crate::stop::Stop;
use std::io::Read;
use std::time::{Duration, Instant};
use ureq::http::{HeaderMap, Response, Uri};
use ureq::{Agent, Body};

/// Redirects that are followed.
const HOPS: usize = 8;
/// Requests for the same thing, when it may pass.
const TRIES: u32 = 5;
/// The longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A server that is silent for so long has gone.
const SILENCE: Duration = Duration::from_secs(30);

/// Who asks.
pub(super) struct Client {
    agent: Agent,
    endpoint: Uri,
    token: Option<String>,
    /// raised by whoever wants it to end
    pub stop: Stop,
}

/// How a text is asked for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Method {
    Get,
    Head,
}

/// Bytes of a text that may stand in an address's path as they are.
fn is_plain(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~')
}

/// A text as part of an address's path; a slash stays one with `slashes`.
pub(super) fn escaped(text: &str, slashes: bool) -> String {
    let one = |b: u8| match b {
        b if is_plain(b) || slashes && b == b'/' => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    text.bytes().map(one).collect()
}

/// A header as text, cut; what is no plain text is none.
pub(super) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim).filter(|t| !t.is_empty() && t.len() <= 4096)
}

/// Scheme, host and port.
fn origin(uri: &Uri) -> Option<(&str, String, u16)> {
    let scheme = uri.scheme_str()?;
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    Some((scheme, uri.host()?.to_ascii_lowercase(), port))
}

fn parse(address: &str) -> Option<Uri> {
    let uri: Uri = address.parse().ok()?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    let user = uri.authority().is_some_and(|a| a.as_str().contains('@'));
    (known && !user && uri.host().is_some_and(|h| !h.is_empty())).then_some(uri)
}

/// Where a redirect from `from` leads. Errors: why it is not followed.
fn target(from: &Uri, to: &str) -> Result<Uri, &'static str> {
    let uri = if to.starts_with('/') && !to.starts_with("//") {
        let (scheme, host) = (from.scheme_str().unwrap_or_default(), from.authority().map_or("", |a| a.as_str()));
        parse(&format!("{scheme}://{host}{to}"))
    } else {
        parse(to)
    };
    let uri = uri.ok_or("not an address")?;
    if from.scheme_str() == Some("https") && uri.scheme_str() != Some("https") {
        return Err("from https to http");
    }
    Ok(uri)
}

impl Client {
    /// Errors: an address that is none.
    pub fn new(endpoint: &str, token: Option<&str>, stop: Stop) -> Result<Client, FetchError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .max_response_header_size(64 << 10)
            .user_agent(concat!("isobit/", env!("CARGO_PKG_VERSION")));
        let uri = parse(endpoint).ok_or_else(|| FetchError::Endpoint(endpoint.chars().take(200).collect()))?;
        let token = token.filter(|t| t.bytes().all(|b| b.is_ascii_graphic())).map(str::to_owned);
        Ok(Client { agent: config.build().into(), endpoint: uri, token, stop })
    }

    /// The hub's address without a slash at its end.
    pub fn endpoint(&self) -> String {
        self.endpoint.to_string().trim_end_matches('/').to_owned()
    }

    /// An address of the hub.
    pub fn address(&self, path: &str) -> Result<Uri, FetchError> {
        let address = format!("{}{path}", self.endpoint());
        parse(&address).ok_or(FetchError::Endpoint(address))
    }

    /// Whether an address is the hub's own.
    pub fn is_hub(&self, uri: &Uri) -> bool {
        origin(uri).is_some() && origin(uri) == origin(&self.endpoint)
    }

    /// Whether a redirect from the hub stays there.
    pub fn is_at_hub(&self, to: &str) -> bool {
        target(&self.endpoint, to).is_ok_and(|uri| self.is_hub(&uri))
    }

    /// One request, with no redirect followed. `what` is for messages.
    fn send(&self, method: Method, uri: &Uri, from: u64, what: &str) -> Result<Response<Body>, FetchError> {
        self.stop.check()?;
        let mut request = match method {
            Method::Get => self.agent.get(uri.clone()),
            Method::Head => self.agent.head(uri.clone()),
        };
        // lengths and digests are those of the bytes as they are
        request = request.header("Accept-Encoding", "identity");
        if let (Some(token), true) = (&self.token, self.is_hub(uri)) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        let net = |e: ureq::Error| FetchError::Net {
            what: what.to_owned(),
            why: format!("{} does not answer: {e}", uri.authority().map_or("", |a| a.as_str())),
        };
        request.call().map_err(net)
    }

    /// A request and the redirects it leads to, until `done` says that an answer is the last, or it is none.
    ///
    /// Errors: an answer of 400 or more; a redirect that is not followed.
    pub fn ask(
        &self,
        method: Method,
        uri: &Uri,
        from: u64,
        what: &str,
        done: impl Fn(&HeaderMap) -> bool,
    ) -> Result<Response<Body>, FetchError> {
        let mut uri = uri.clone();
        for _ in 0..HOPS {
            let reply = self.send(method, &uri, from, what)?;
            let status = reply.status();
            if status.as_u16() >= 400 {
                return Err(self.refusal(reply, what));
            }
            if !status.is_redirection() || done(reply.headers()) {
                return Ok(reply);
            }
            let to = header(reply.headers(), "location").unwrap_or_default();
            let refuse = |why| FetchError::Redirect { what: what.to_owned(), to: to.chars().take(200).collect(), why };
            uri = target(&uri, to).map_err(refuse)?;
        }
        Err(FetchError::Redirect { what: what.to_owned(), to: uri.to_string(), why: "there were too many before it" })
    }

    /// The error of an answer of 400 or more.
    fn refusal(&self, reply: Response<Body>, what: &str) -> FetchError {
        let (status, headers, what) = (reply.status().as_u16(), reply.headers(), what.to_owned());
        let code = header(headers, "x-error-code").unwrap_or_default();
        let said = header(headers, "x-error-message").map_or(String::new(), |m| {
            let plain: String = m.chars().filter(|c| !c.is_control()).take(200).collect();
            format!(": {plain}")
        });
        match status {
            401 | 403 => {
                let advice = match (code, &self.token) {
                    ("GatedRepo", _) => "accept its licence on its page first, then use a token (HF_TOKEN)",
                    (_, None) => "it is private, or not there; a token is taken from HF_TOKEN",
                    (_, Some(_)) => "it is not there, or not for this token",
                };
                FetchError::Refused { what, status, said, advice }
            }
            404 => FetchError::NotFound { what, said },
            429 | 503 => {
                let after = header(headers, "retry-after").and_then(|s| s.parse().ok()).map(Duration::from_secs);
                FetchError::Busy { what, status, after }
            }
            _ => FetchError::Status { what, status, said },
        }
    }

    /// Asks again while it may pass: after the time that the server asks for, or ever longer ones.
    pub fn patiently<T>(
        &self,
        watch: &mut dyn Watch,
        mut ask: impl FnMut(&mut dyn Watch) -> Result<T, FetchError>,
    ) -> Result<T, FetchError> {
        let mut tries = 1;
        loop {
            let error = match ask(watch) {
                Err(e) if e.may_pass() && tries < TRIES => e,
                other => return other,
            };
            let own = Duration::from_millis(250 << tries);
            let wait = match &error {
                FetchError::Busy { after: Some(after), .. } if *after > LONGEST_WAIT => return Err(error),
                FetchError::Busy { after: Some(after), .. } => *after,
                _ => own,
            };
            watch.waiting(&format!("{error} (again in {} s)", wait.as_millis().div_ceil(1000)));
            self.sleep(wait)?;
            tries += 1;
        }
    }

    /// Sleeps, unless asked to stop.
    pub fn sleep(&self, time: Duration) -> Result<(), FetchError> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.stop.check()?;
            std::thread::sleep(Duration::from_millis(50).min(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// The whole text of an answer that has no more than `most` bytes.
    pub fn text(&self, uri: &Uri, most: u64, what: &str) -> Result<Vec<u8>, FetchError> {
        let reply = self.ask(Method::Get, uri, 0, what, |_| false)?;
        let mut bytes = Vec::new();
        let read = reply.into_body().into_reader().take(most + 1).read_to_end(&mut bytes);
        read.map_err(|e| FetchError::Net { what: what.to_owned(), why: e.to_string() })?;
        if bytes.len() as u64 > most {
            return Err(FetchError::answer(what, format!("it has more than {most} bytes")));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_escaped_and_redirects_stay_safe() {
        assert_eq!(escaped("a b/ü%?#.gguf", true), "a%20b/%C3%BC%25%3F%23.gguf");
        assert_eq!(escaped("refs/pr/1", false), "refs%2Fpr%2F1");
        let from = parse("https://hub.test/a").unwrap();
        assert_eq!(target(&from, "/b?x=1").unwrap().to_string(), "https://hub.test/b?x=1");
        assert_eq!(target(&from, "https://cdn.test/c").unwrap().host(), Some("cdn.test"));
        for (bad, why) in [
            ("http://cdn.test/c", "from https to http"),
            ("//cdn.test/c", "not an address"),
            ("file:///etc/passwd", "not an address"),
            ("https://user@cdn.test/", "not an address"),
            ("b", "not an address"),
            ("", "not an address"),
        ] {
            assert_eq!(target(&from, bad), Err(why), "{bad}");
        }
        assert!(target(&parse("http://127.0.0.1:1/a").unwrap(), "http://127.0.0.1:2/b").is_ok());
    }

    #[test]
    fn the_token_is_for_the_hub_alone() {
        let c = Client::new("https://hub.test", Some("secret"), Stop::default()).unwrap();
        for (address, is) in [
            ("https://hub.test/a", true),
            ("https://HUB.test:443/a", true),
            ("http://hub.test/a", false),
            ("https://hub.test:8443/a", false),
            ("https://hub.test.evil/a", false),
            ("https://cdn.hub.test/a", false),
        ] {
            assert_eq!(c.is_hub(&parse(address).unwrap()), is, "{address}");
        }
        for bad in ["", "hub.test", "ftp://hub.test", "https://", "http://a b"] {
            assert!(Client::new(bad, None, Stop::default()).is_err(), "{bad}");
        }
        // a line end would be another header
        assert!(Client::new("https://hub.test", Some("a\r\nb"), Stop::default()).unwrap().token.is_none());
    }
}
