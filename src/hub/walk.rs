//! Reading folders that others filled: bounded, and never out of the folder.

use std::path::{Path, PathBuf};

/// Entries of a folder that are read, at most.
const MOST: usize = 50_000;
/// Folders within folders, at most.
const DEEPEST: usize = 6;

/// The names in a folder, sorted; those that are no text are left out. None where it cannot be read.
pub(super) fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let names = entries.take(MOST).filter_map(|e| e.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// A folder that nothing found in it may lead out of.
pub(super) struct Root {
    real: PathBuf,
}

impl Root {
    /// `None` where it is not there.
    pub fn new(dir: &Path) -> Option<Root> {
        Some(Root { real: std::fs::canonicalize(dir).ok()? })
    }

    /// The length of a file, links followed. Errors: the reason to pass it over.
    pub fn file(&self, path: &Path) -> Result<u64, String> {
        let link = std::fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink());
        let real = std::fs::canonicalize(path).map_err(|_| match link {
            true => "a link that leads to nothing: the download was not finished, or the file was deleted".to_owned(),
            false => "it is not there".to_owned(),
        })?;
        if !real.starts_with(&self.real) {
            return Err(format!("a link that leads out of {}; name the file by its path", self.real.display()));
        }
        match std::fs::metadata(&real) {
            Ok(m) if m.is_file() => Ok(m.len()),
            Ok(_) => Err("not a regular file".into()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// The files below a folder, by their names from there, sorted; links to folders are not followed.
    pub fn files(&self, dir: &Path) -> Vec<(String, PathBuf)> {
        let mut found = Vec::new();
        let mut open = vec![(String::new(), dir.to_path_buf(), 0)];
        while let Some((prefix, dir, depth)) = open.pop() {
            for name in names(&dir) {
                let path = dir.join(&name);
                let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
                if !meta.is_dir() {
                    found.push((format!("{prefix}{name}"), path));
                } else if depth < DEEPEST && found.len() < MOST {
                    open.push((format!("{prefix}{name}/"), path, depth + 1));
                }
            }
        }
        found.sort();
        found
    }
}
