//! What is found: a model, or something that is none.

use std::path::PathBuf;

/// Whose folder it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Place {
    /// the cache of Hugging Face's hub
    HuggingFace,
    /// LM Studio's models
    LmStudio,
    /// Ollama's models
    Ollama,
}

impl Place {
    /// `hf`, `lmstudio` or `ollama`.
    pub fn name(self) -> &'static str {
        match self {
            Place::HuggingFace => "hf",
            Place::LmStudio => "lmstudio",
            Place::Ollama => "ollama",
        }
    }
}

/// A model that is there whole, as far as names and lengths tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// whose folder it is in
    pub place: Place,
    /// `user/model`; of Ollama's library the bare name
    pub repo: String,
    /// the file within the repository, `/` between folders (of shards the first); Ollama's tag; empty for a directory
    pub file: String,
    /// what to open
    pub path: PathBuf,
    /// it is a directory of safetensors files
    pub is_dir: bool,
    /// bytes of its weights, all shards together
    pub bytes: u64,
}

/// Something that looks like a model and is passed over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// whose folder it is in
    pub place: Place,
    /// `user/model`, with a tag or file where one is meant
    pub what: String,
    /// where it lies
    pub path: PathBuf,
    /// the reason
    pub why: String,
}

/// What one folder has.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub entries: Vec<Entry>,
    pub passed: Vec<Passed>,
}

impl Held {
    /// Passes something over.
    pub fn pass(&mut self, place: Place, what: impl Into<String>, path: impl Into<PathBuf>, why: impl Into<String>) {
        self.passed.push(Passed { place, what: what.into(), path: path.into(), why: why.into() });
    }
}
