//! What ends a download.

use crate::hub::name::Name;
use crate::hub::pick::{is_gguf, quantisation, stem};
use crate::stop::Interrupted;
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Why a model was not fetched.
#[derive(Debug, Error)]
pub enum FetchError {
    /// requests are not allowed
    #[error("offline: nothing is fetched (HF_HUB_OFFLINE, or as was asked)")]
    Offline,
    /// a name of another program's registry
    #[error(
        "{0} is no model of the hub, which are user/model; of Ollama's registry only what Ollama has pulled is found"
    )]
    NotOfHub(String),
    /// a revision that cannot be one
    #[error("{0:?} is no revision: a branch, a tag or a commit")]
    Revision(String),
    /// an address that cannot be one
    #[error("the address of the hub, {0:?}, is none (HF_ENDPOINT): expected http:// or https:// and a host")]
    Endpoint(String),
    /// 401 and 403
    #[error("{what}: the hub refuses it ({status}{said}): {advice}")]
    Refused {
        /// what was asked for
        what: String,
        /// the status
        status: u16,
        /// the server's words
        said: String,
        /// what to do
        advice: &'static str,
    },
    /// 404
    #[error("{what} is not on the hub{said}")]
    NotFound {
        /// what was asked for
        what: String,
        /// the server's words
        said: String,
    },
    /// 429 and 503
    #[error("{what}: the hub is busy ({status}): try again{}", after.map_or(String::new(), |a| format!(" in {} s", a.as_secs())))]
    Busy {
        /// what was asked for
        what: String,
        /// the status
        status: u16,
        /// how long it asks to wait
        after: Option<Duration>,
    },
    /// any other status
    #[error("{what}: the hub answers with status {status}{said}")]
    Status {
        /// what was asked for
        what: String,
        /// the status
        status: u16,
        /// the server's words
        said: String,
    },
    /// no connection, or one that ended
    #[error("{what}: {why}")]
    Net {
        /// what was asked for
        what: String,
        /// what happened
        why: String,
    },
    /// it came in part
    #[error("{what}: the connection ended after {have} of {bytes} bytes; the same command goes on from there")]
    Cut {
        /// the file
        what: String,
        /// what is there of it
        have: u64,
        /// its length
        bytes: u64,
    },
    /// an answer that no hub gives
    #[error("{what}: not an answer of a hub: {why}")]
    Answer {
        /// what was asked for
        what: String,
        /// what is wrong
        why: String,
    },
    /// a redirect that is not followed
    #[error("{what}: redirected to {to}, which is not followed: {why}")]
    Redirect {
        /// what was asked for
        what: String,
        /// where to
        to: String,
        /// the reason
        why: &'static str,
    },
    /// the repository lacks a file
    #[error("{repo} has no file for {asked}{have}")]
    NoFile {
        /// the repository
        repo: String,
        /// file, tag
        asked: String,
        /// what it has
        have: String,
    },
    /// the repository has nothing that is opened
    #[error("{0} has no model that is opened: neither GGUF files nor config.json with safetensors files")]
    NoModel(String),
    /// the content is not what was announced
    #[error("{file}: what came is not what the hub announced: {why}; it was deleted, try again")]
    Damaged {
        /// the file
        file: String,
        /// what differs
        why: String,
    },
    /// no room
    #[error(
        "{dir}: {needed} bytes are to come and {free} are free: delete something, or set HF_HUB_CACHE to another disk"
    )]
    Space {
        /// where
        dir: String,
        /// bytes to fetch
        needed: u64,
        /// bytes free
        free: u64,
    },
    /// a file that could not be read or written
    #[error("{file}: {source}")]
    Disk {
        /// the file
        file: String,
        /// the reason
        source: io::Error,
    },
    /// asked to end
    #[error("interrupted")]
    Interrupted(#[from] Interrupted),
}

impl FetchError {
    /// The error of a repository that has other files than the one asked for; these are named.
    pub(super) fn no_file(name: &Name, asked: &str, siblings: &[String]) -> FetchError {
        let mut have: Vec<&str> =
            siblings.iter().filter(|f| is_gguf(f)).map(|f| quantisation(f).unwrap_or_else(|| stem(f))).collect();
        have.sort_unstable();
        have.dedup();
        let more = if have.len() > 20 { ", ..." } else { "" };
        have.truncate(20);
        let have = if have.is_empty() { String::new() } else { format!("; it has {}{more}", have.join(", ")) };
        FetchError::NoFile { repo: name.repo.clone(), asked: asked.to_owned(), have }
    }

    pub(super) fn disk(file: &std::path::Path, source: io::Error) -> FetchError {
        FetchError::Disk { file: file.display().to_string(), source }
    }

    pub(super) fn answer(what: &str, why: impl Into<String>) -> FetchError {
        FetchError::Answer { what: what.to_owned(), why: why.into() }
    }

    /// Whether the same request may fare better in a moment.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            FetchError::Busy { .. } | FetchError::Net { .. } | FetchError::Cut { .. } => true,
            FetchError::Status { status, .. } => *status >= 500,
            _ => false,
        }
    }
}
