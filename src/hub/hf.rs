//! The cache of Hugging Face's hub: `models--user--name/{blobs/<etag>, refs/<revision>, snapshots/<commit>/<file>}`, the
//! files of a snapshot being links to blobs.
//!
//! Source: huggingface_hub's documentation of its cache ("Understand caching").

use super::entry::{Held, Place};
use super::folder;
use super::name::{is_commit, is_repo};
use super::walk::{Root, names};
use crate::formats::source::read_whole;
use std::path::Path;

const PLACE: Place = Place::HuggingFace;

/// Everything in a cache.
pub(super) fn read(cache: &Path) -> Held {
    let mut held = Held::default();
    let Some(root) = Root::new(cache) else { return held };
    for name in names(cache) {
        let Some(repo) = name.strip_prefix("models--") else { continue };
        let (repo, dir) = (repo.replace("--", "/"), cache.join(&name));
        if !is_repo(&repo) {
            held.pass(PLACE, repo, dir, "not a repository's name");
            continue;
        }
        let found = repository(&root, &repo, &dir);
        held.entries.extend(found.entries);
        held.passed.extend(found.passed);
    }
    held
}

/// The commit that a file of `refs` names.
pub(super) fn commit(file: &Path) -> Option<String> {
    let text = String::from_utf8(read_whole(file, 256).ok()?).ok()?;
    Some(text.trim().to_owned()).filter(|t| is_commit(t))
}

/// The models of one repository: those of the snapshot that `main` names, and what only others have.
fn repository(root: &Root, repo: &str, dir: &Path) -> Held {
    let snapshots = dir.join("snapshots");
    let mut refs: Vec<_> = root.files(&dir.join("refs")).into_iter().collect();
    refs.sort_by_key(|(name, _)| (name != "main", name.clone()));
    let mut commits: Vec<String> = refs.iter().filter_map(|(_, path)| commit(path)).collect();
    commits.extend(names(&snapshots));
    let mut done: Vec<String> = Vec::new();
    let (mut held, mut passed) = (Held::default(), Held::default());
    for commit in commits {
        let snapshot = snapshots.join(&commit);
        // a link to a folder elsewhere is no snapshot
        let is_dir = std::fs::symlink_metadata(&snapshot).is_ok_and(|m| m.is_dir());
        if done.contains(&commit) || !is_dir {
            continue;
        }
        done.push(commit);
        let found = folder::read(root, PLACE, repo, &snapshot);
        let new = |file: &str| !held.entries.iter().any(|e| e.file == file || e.is_dir);
        let new: Vec<_> = found.entries.into_iter().filter(|e| new(&e.file)).collect();
        held.entries.extend(new);
        passed.passed.extend(found.passed);
    }
    // of what is there whole nothing need be said
    let whole = |what: &str| {
        let file = what.split_once(':').map_or("", |(_, file)| file);
        held.entries.iter().any(|e| file.is_empty() || e.file == file)
    };
    let left: Vec<_> = passed.passed.into_iter().filter(|p| !whole(&p.what)).collect();
    for p in left {
        if !held.passed.iter().any(|known| known.what == p.what) {
            held.passed.push(p);
        }
    }
    if done.is_empty() {
        let begun = names(&dir.join("blobs")).iter().any(|n| n.ends_with(".incomplete"));
        let why = if begun { "a download that was not finished" } else { "no snapshot in it" };
        held.pass(PLACE, repo, dir, why);
    }
    held
}
