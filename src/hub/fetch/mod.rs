//! Fetching models from the hub, or from a server that speaks as it does, into Hugging Face's cache.
//!
//! A name becomes a commit and a list of files ([`Hub::plan`]); each file's length and digest are asked for and the space
//! checked before anything is written ([`Hub::fetch`]). A file that is being fetched is `blobs/<etag>.incomplete`, whatever
//! ends the download; the next one goes on from there. It takes its name when its length and digest are right, and only
//! then do a snapshot and at the end `refs` lead to it. A lock per file, the one that Python's hub takes, keeps two
//! downloads apart.
//!
//! Source: huggingface_hub's documentation of its cache, and the headers of the hub's `resolve` addresses.

mod api;
mod blob;
mod cache;
mod error;
mod http;

pub use error::FetchError;

use super::env::Access;
use super::folder::shards;
use super::name::{Name, is_revision};
use super::pick;
use crate::stop::Stop;
use std::path::{Path, PathBuf};

/// Whoever looks on while files are fetched.
pub trait Watch {
    /// A file of `bytes` begins, of which `have` are there.
    fn begin(&mut self, file: &str, bytes: u64, have: u64);
    /// So much of it is there now.
    fn at(&mut self, have: u64);
    /// Nothing goes on for now, for this reason.
    fn waiting(&mut self, why: &str);
}

/// The hub.
pub struct Hub {
    client: http::Client,
}

/// What a name stands for on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// `user/model`
    pub repo: String,
    /// the branch, tag or commit that was asked for
    pub revision: String,
    /// what it is now: 40 hexadecimal digits
    pub commit: String,
    /// files to fetch, what is to be opened first
    pub files: Vec<String>,
    /// the directory is what is opened, not the first file
    pub is_dir: bool,
}

/// A file of a model that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// its name in the repository
    pub name: String,
    /// its length
    pub bytes: u64,
    /// what the hub calls its content: SHA-256, or git's SHA-1
    pub etag: String,
    /// bytes that came now; the others were there
    pub fetched: u64,
    /// its digest was computed and is right; `None` where the hub gave none, or the file was there
    pub checked: Option<bool>,
}

/// A model that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// what to open
    pub path: PathBuf,
    /// the commit it is of
    pub commit: String,
    /// its files
    pub files: Vec<File>,
}

impl Hub {
    /// The hub at an address. Errors: an address that is none; no requests are allowed.
    pub fn new(access: &Access, stop: Stop) -> Result<Hub, FetchError> {
        if access.offline {
            return Err(FetchError::Offline);
        }
        Ok(Hub { client: http::Client::new(&access.endpoint, access.token.as_deref(), stop)? })
    }

    /// The address in front of all others.
    pub fn endpoint(&self) -> String {
        self.client.endpoint()
    }

    /// What a name stands for at a revision (`main` where none is given).
    ///
    /// Errors: a repository, revision or file that is not there or not for everybody; a repository without a model.
    pub fn plan(&self, name: &Name, revision: Option<&str>, watch: &mut dyn Watch) -> Result<Plan, FetchError> {
        if !name.is_of_hub() {
            return Err(FetchError::NotOfHub(name.to_string()));
        }
        let revision = revision.unwrap_or("main");
        if !is_revision(revision) {
            return Err(FetchError::Revision(revision.chars().take(100).collect()));
        }
        let (commit, siblings) = api::siblings(&self.client, &name.repo, revision, watch)?;
        let (files, is_dir) = wanted(name, &siblings)?;
        Ok(Plan { repo: name.repo.clone(), revision: revision.to_owned(), commit, files, is_dir })
    }

    /// Fetches what is not there yet, into the cache at `folder`.
    ///
    /// Errors: those of the network, of the server and of the disk; a file that is not what the server announced.
    pub fn fetch(&self, folder: &Path, plan: &Plan, watch: &mut dyn Watch) -> Result<Fetched, FetchError> {
        let cache = cache::Cache::new(folder, &plan.repo, &plan.commit)?;
        let mut heads = Vec::with_capacity(plan.files.len());
        for file in &plan.files {
            heads.push(api::head(&self.client, &plan.repo, &plan.commit, file, watch)?);
        }
        cache.space(&heads)?;
        let mut files = Vec::with_capacity(heads.len());
        for head in heads {
            files.push(blob::fetch(&self.client, &cache, head, watch)?);
        }
        cache.refer(&plan.revision)?;
        let first = plan.files.first().filter(|_| !plan.is_dir);
        let path = first.map_or_else(|| cache.snapshot(), |f| cache.pointer(f));
        Ok(Fetched { path, commit: plan.commit.clone(), files })
    }
}

/// The files of a repository that a name means, and whether it is their directory that is opened.
fn wanted(name: &Name, siblings: &[String]) -> Result<(Vec<String>, bool), FetchError> {
    let there = |file: &String| siblings.contains(file);
    if let Some(file) = &name.file
        && !super::pick::is_gguf(file)
    {
        let whole = siblings.iter().find(|s| *s == file);
        return whole.map(|f| (vec![f.clone()], false)).ok_or_else(|| FetchError::no_file(name, file, siblings));
    }
    let first = |f: &&String| pick::is_gguf(f) && shards(f)[0] == **f;
    let ggufs: Vec<&str> = siblings.iter().filter(first).map(String::as_str).collect();
    if let Some(at) = pick::choose(&ggufs, name.tag.as_deref(), name.file.as_deref()) {
        let parts = shards(ggufs[at]);
        if let Some(gone) = parts.iter().find(|p| !there(p)) {
            return Err(FetchError::no_file(name, gone, siblings));
        }
        return Ok((parts, false));
    }
    if let Some(asked) = name.file.as_ref().or(name.tag.as_ref().filter(|_| !ggufs.is_empty())) {
        return Err(FetchError::no_file(name, asked, siblings));
    }
    // the same weights in another program's form, and what is for other programs, are left out
    let weights = |f: &str| f.ends_with(".safetensors") && !f.starts_with("consolidated");
    let beside =
        |f: &str| [".json", ".jinja"].iter().any(|e| f.ends_with(e)) && f != "params.json" || f == "tokenizer.model";
    let files: Vec<&String> = siblings.iter().filter(|f| !f.contains('/') && (weights(f) || beside(f))).collect();
    let is_model = files.iter().any(|f| weights(f)) && files.iter().any(|f| *f == "config.json");
    if !is_model || name.tag.is_some() {
        return Err(FetchError::NoModel(name.repo.clone()));
    }
    Ok((files.into_iter().cloned().collect(), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_name_means_of_a_repository() {
        let list = |s: &str| s.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let of = |name: &str, files: &str| {
            let (name, file) = name.split_once('|').unwrap_or((name, ""));
            let mut name = Name::parse(name).unwrap();
            if !file.is_empty() {
                name = name.with_file(file).unwrap();
            }
            wanted(&name, &list(files)).map(|(f, is_dir)| (f.join(" "), is_dir)).map_err(|e| e.to_string())
        };
        let ggufs =
            "README.md a-Q8_0.gguf a-Q4_K_M-00001-of-00002.gguf a-Q4_K_M-00002-of-00002.gguf mmproj-Q4_K_M.gguf";
        let q4 = "a-Q4_K_M-00001-of-00002.gguf a-Q4_K_M-00002-of-00002.gguf";
        assert_eq!(of("u/m", ggufs), Ok((q4.into(), false)));
        assert_eq!(of("u/m:q8_0", ggufs), Ok(("a-Q8_0.gguf".into(), false)));
        assert_eq!(of("u/m|README.md", ggufs), Ok(("README.md".into(), false)));
        assert_eq!(of("u/m|a-Q4_K_M-00001-of-00002.gguf", ggufs), Ok((q4.into(), false)));
        let error = of("u/m:Q6_K", ggufs).unwrap_err();
        assert!(error.contains("Q6_K") && error.contains("Q8_0") && error.contains("Q4_K_M"), "{error}");
        assert!(of("u/m", "a-00001-of-00002.gguf").unwrap_err().contains("a-00002-of-00002.gguf"));
        let hf = "config.json tokenizer.json model.safetensors consolidated.safetensors x.bin onnx/model.safetensors";
        assert_eq!(of("u/m", hf), Ok(("config.json tokenizer.json model.safetensors".into(), true)));
        assert!(of("u/m", "config.json pytorch_model.bin").unwrap_err().contains("no model"));
    }
}
