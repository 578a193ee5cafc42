//! Models by name: the folders in which other programs keep them, and fetching those that are in none.
//!
//! A [`Listing`] is what lies in the caches of Hugging Face's hub (Python's layout), of LM Studio and of Ollama; a
//! [`Name`] is what a user writes, and [`Listing::find`] brings the two together without any request. With the feature
//! `hub`, `fetch` downloads into the first of these folders, as Python's `huggingface_hub` lays it out, so that either
//! finds what the other brought.
//!
//! Names, manifests, links and what a server says are taken from strangers: no name leads out of its folder, what is read
//! is bounded, and nothing is written that the server had not announced.

mod entry;
mod env;
#[cfg(feature = "hub")]
pub mod fetch;
mod folder;
mod hf;
mod lmstudio;
mod name;
mod ollama;
mod pick;
mod walk;

pub use entry::{Entry, Passed, Place};
pub use env::{Access, Folders};
pub use name::{Name, NameError};
pub use pick::quantisation;

use std::path::PathBuf;

/// What lies in the folders.
#[derive(Debug, Default)]
pub struct Listing {
    /// the folders, in the order they are searched, and whether each is there
    pub folders: Vec<(Place, PathBuf, bool)>,
    /// models, in the order of the folders and of their names
    pub entries: Vec<Entry>,
    /// what looks like a model and is none, with the reason
    pub passed: Vec<Passed>,
}

/// Why a name stands for nothing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// nothing of that name
    Unknown,
    /// the model is there, but only with these files or tags
    Others(Vec<String>),
    /// what is there of it is no whole model, for this reason
    Broken(String),
}

impl Listing {
    /// Reads the folders: names, links and manifests, no model.
    pub fn read(folders: &Folders) -> Listing {
        let mut all = Listing::default();
        for (place, dir) in folders.all() {
            all.folders.push((place, dir.clone(), dir.is_dir()));
            let found = match place {
                Place::HuggingFace => hf::read(&dir),
                Place::LmStudio => lmstudio::read(&dir),
                Place::Ollama => ollama::read(&dir),
            };
            all.entries.extend(found.entries);
            all.passed.extend(found.passed);
        }
        all
    }

    /// The model a name stands for: in Hugging Face's folder, then LM Studio's, then (without `hf:`) Ollama's.
    pub fn find(&self, name: &Name) -> Result<&Entry, Missing> {
        let mut others = Vec::new();
        for place in [Place::HuggingFace, Place::LmStudio] {
            let of = |same: fn(&str, &str) -> bool| -> Vec<&Entry> {
                self.entries.iter().filter(|e| e.place == place && same(&e.repo, &name.repo)).collect()
            };
            let mut here = of(|a, b| a == b);
            if here.is_empty() {
                here = of(|a, b| a.eq_ignore_ascii_case(b));
            }
            let files: Vec<&str> = here.iter().map(|e| e.file.as_str()).collect();
            match pick::choose(&files, name.tag.as_deref(), name.file.as_deref()) {
                Some(at) => return Ok(here[at]),
                None => others.extend(files.into_iter().map(str::to_owned)),
            }
        }
        if !name.hub && name.file.is_none() {
            let tag = name.tag.as_deref().unwrap_or("latest");
            let here =
                || self.entries.iter().filter(|e| e.place == Place::Ollama && e.repo.eq_ignore_ascii_case(&name.repo));
            if let Some(entry) = here().find(|e| e.file.eq_ignore_ascii_case(tag)) {
                return Ok(entry);
            }
            others.extend(here().map(|e| e.file.clone()));
        }
        let passed = self.passed.iter().find(|p| name.may_mean(p));
        match passed {
            Some(p) => Err(Missing::Broken(format!("{}: {}", p.path.display(), p.why))),
            None if others.iter().any(|o| !o.is_empty()) => Err(Missing::Others(others)),
            None => Err(Missing::Unknown),
        }
    }

    /// The shortest name that stands for this entry; `None` where only its path does.
    pub fn name_of(&self, entry: &Entry) -> Option<String> {
        let (repo, file) = (&entry.repo, &entry.file);
        let names = match entry.place {
            Place::Ollama => vec![format!("{repo}:{file}")],
            _ if entry.is_dir => vec![repo.clone()],
            _ => {
                let stem = pick::stem(file);
                let quant = quantisation(file).map(|q| format!("{repo}:{q}"));
                quant.into_iter().chain([format!("{repo}:{stem}")]).collect()
            }
        };
        let stands = |n: &String| {
            let found = Name::parse(n).ok()?;
            let found = self.find(&found).ok()?;
            (found.path == entry.path).then_some(())
        };
        names.into_iter().find(|n| stands(n).is_some())
    }
}

#[cfg(test)]
mod tests;
