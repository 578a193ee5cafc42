//! What the hub says of a repository and of a file.

use super::Watch;
use super::error::FetchError;
use super::http::{Client, Method, escaped, header};
use crate::hub::name::{is_commit, is_file};
use serde::Deserialize;
use ureq::http::Uri;

/// Bytes of a list of files, at most.
const LONGEST: u64 = 16 << 20;
/// Files of a repository, at most.
const MOST: usize = 100_000;

#[derive(Deserialize)]
struct Info {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

/// What a file is, before it is fetched.
pub(super) struct Head {
    /// its name in the repository
    pub file: String,
    /// what its content is called
    pub etag: String,
    /// its length
    pub bytes: u64,
    /// where it is fetched from, redirects not yet followed
    pub address: Uri,
}

/// The commit of a revision and the names of its files, sorted; names that would lead elsewhere are an error.
pub(super) fn siblings(
    client: &Client,
    repo: &str,
    revision: &str,
    watch: &mut dyn Watch,
) -> Result<(String, Vec<String>), FetchError> {
    let what = if revision == "main" { repo.to_owned() } else { format!("{repo} at {revision}") };
    let address = client.address(&format!("/api/models/{repo}/revision/{}", escaped(revision, false)))?;
    let text = client.patiently(watch, |_| client.text(&address, LONGEST, &what))?;
    // serde_json refuses what is nested deeper than 128
    let info: Info = serde_json::from_slice(&text)
        .map_err(|e| FetchError::answer(&what, format!("not the JSON of a repository: {e}")))?;
    if !is_commit(&info.sha) {
        return Err(FetchError::answer(&what, "its commit is none"));
    }
    if info.siblings.len() > MOST {
        return Err(FetchError::answer(&what, format!("it has more than {MOST} files")));
    }
    let mut files: Vec<String> = info.siblings.into_iter().map(|s| s.rfilename).collect();
    if let Some(bad) = files.iter().find(|f| !is_file(f)) {
        let shown: String = bad.chars().take(100).collect();
        return Err(FetchError::answer(&what, format!("a file is named {shown:?}")));
    }
    files.sort();
    files.dedup();
    Ok((info.sha, files))
}

/// Content's name without quotes and `W/`; `None` for one that cannot name a file.
fn etag(text: &str) -> Option<String> {
    let text = text.strip_prefix("W/").unwrap_or(text).trim_matches('"');
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let plain = !text.is_empty() && text.len() <= 128 && text.bytes().all(ok) && !text.starts_with('.');
    (plain && !text.ends_with(".incomplete")).then(|| text.to_owned())
}

/// Asks for a file's length and digest.
pub(super) fn head(
    client: &Client,
    repo: &str,
    commit: &str,
    file: &str,
    watch: &mut dyn Watch,
) -> Result<Head, FetchError> {
    let what = format!("{repo}/{file}");
    let address = client.address(&format!("/{repo}/resolve/{commit}/{}", escaped(file, true)))?;
    // the hub's own answer tells of the file, and sends on to where the bytes are
    let done = |h: &ureq::http::HeaderMap| {
        header(h, "x-linked-etag").is_some() || header(h, "location").is_some_and(|to| !client.is_at_hub(to))
    };
    let reply = client.patiently(watch, |_| client.ask(Method::Head, &address, 0, &what, done))?;
    let headers = reply.headers();
    let of = |linked: &str, own: &str| header(headers, linked).or_else(|| header(headers, own)).map(str::to_owned);
    if let Some(other) = header(headers, "x-repo-commit").filter(|c| *c != commit) {
        let other: String = other.chars().take(60).collect();
        return Err(FetchError::answer(&what, format!("it is of commit {other}, not of {commit}")));
    }
    let etag = of("x-linked-etag", "etag").as_deref().and_then(etag);
    let etag = etag.ok_or_else(|| FetchError::answer(&what, "it has no ETag that could name it"))?;
    // the length of a redirect is its own
    let own = if reply.status().is_redirection() { "" } else { "content-length" };
    let bytes = of("x-linked-size", own).and_then(|n| n.parse().ok());
    let bytes = bytes.ok_or_else(|| FetchError::answer(&what, "its length is not told"))?;
    Ok(Head { file: file.to_owned(), etag, bytes, address })
}

#[cfg(test)]
mod tests {
    use super::etag;

    #[test]
    fn an_etag_names_a_file_or_is_none() {
        assert_eq!(etag("\"abc\"").as_deref(), Some("abc"));
        assert_eq!(etag("W/\"abc-1\"").as_deref(), Some("abc-1"));
        for bad in ["", "\"\"", "\"../x\"", "a/b", "..", ".lock", "a\\b", "x.incomplete"] {
            assert_eq!(etag(bad), None, "{bad}");
        }
    }
}
