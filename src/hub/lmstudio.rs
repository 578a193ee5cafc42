//! LM Studio's folder of models: `publisher/repository/file.gguf`.
//!
//! Source: LM Studio's documentation ("Import models").

use super::entry::{Held, Place};
use super::folder;
use super::name::is_repo;
use super::walk::{Root, names};
use std::path::Path;

/// Everything in the folder.
pub(super) fn read(dir: &Path) -> Held {
    let mut held = Held::default();
    let Some(root) = Root::new(dir) else { return held };
    for user in names(dir) {
        let folder = dir.join(&user);
        for model in names(&folder) {
            let (repo, path) = (format!("{user}/{model}"), folder.join(&model));
            let is_dir = std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir());
            // files that a system keeps beside
            if !is_dir || user.starts_with('.') || model.starts_with('.') {
                continue;
            }
            if !is_repo(&repo) {
                held.pass(Place::LmStudio, repo, path, "not a repository's name: name its file by its path");
                continue;
            }
            let found = folder::read(&root, Place::LmStudio, &repo, &path);
            held.entries.extend(found.entries);
            held.passed.extend(found.passed);
        }
    }
    held
}
