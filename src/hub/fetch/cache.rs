//! Hugging Face's cache as it is written: blobs, links to them, and references.

use super::api::Head;
use super::error::FetchError;
use std::fs;
use std::path::{Path, PathBuf};

/// Tells programs that make copies of a disk to leave the folder out. Source: bford.info/cachedir.
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
    # This file is a cache directory tag created by isobit.\n\
    # For information about cache directory tags, see https://bford.info/cachedir/\n";

/// One repository's part of the cache, at one commit.
pub(super) struct Cache {
    root: PathBuf,
    locks: PathBuf,
    repository: PathBuf,
    commit: String,
}

fn made(dir: PathBuf) -> Result<PathBuf, FetchError> {
    fs::create_dir_all(&dir).map_err(|e| FetchError::disk(&dir, e))?;
    Ok(dir)
}

/// A text that takes its name when it is whole.
fn put(path: &Path, text: &str) -> Result<(), FetchError> {
    let part =
        path.with_file_name(format!(".{}.{}", std::process::id(), path.file_name().unwrap_or_default().display()));
    fs::write(&part, text).and_then(|()| fs::rename(&part, path)).map_err(|e| FetchError::disk(path, e))
}

impl Cache {
    /// Makes the folders that are not there.
    pub fn new(root: &Path, repo: &str, commit: &str) -> Result<Cache, FetchError> {
        let folder = format!("models--{}", repo.replace('/', "--"));
        let root = made(root.to_path_buf())?;
        let tag = root.join("CACHEDIR.TAG");
        if !tag.exists() {
            put(&tag, TAG)?;
        }
        let (locks, repository) = (made(root.join(".locks").join(&folder))?, made(root.join(&folder))?);
        made(repository.join("blobs"))?;
        made(repository.join("refs"))?;
        Ok(Cache { root, locks, repository, commit: commit.to_owned() })
    }

    /// The directory of this commit.
    pub fn snapshot(&self) -> PathBuf {
        self.repository.join("snapshots").join(&self.commit)
    }

    /// Where a file of this commit is found.
    pub fn pointer(&self, file: &str) -> PathBuf {
        file.split('/').fold(self.snapshot(), |dir, part| dir.join(part))
    }

    /// Where content lies.
    pub fn blob(&self, etag: &str) -> PathBuf {
        self.repository.join("blobs").join(etag)
    }

    /// Where content lies that is not complete.
    pub fn incomplete(&self, etag: &str) -> PathBuf {
        self.repository.join("blobs").join(format!("{etag}.incomplete"))
    }

    /// The file that is locked while content is fetched.
    pub fn lock(&self, etag: &str) -> PathBuf {
        self.locks.join(format!("{etag}.lock"))
    }

    /// Whether a file of this commit is there whole.
    pub fn has(&self, head: &Head) -> bool {
        fs::metadata(self.pointer(&head.file)).is_ok_and(|m| m.is_file() && m.len() == head.bytes)
    }

    /// Whether content is there whole.
    pub fn has_blob(&self, head: &Head) -> bool {
        fs::metadata(self.blob(&head.etag)).is_ok_and(|m| m.is_file() && m.len() == head.bytes)
    }

    /// Refuses what the disk has no room for. Elsewhere than on Unix systems the disk itself says so.
    pub fn space(&self, heads: &[Head]) -> Result<(), FetchError> {
        let missing = |h: &Head| {
            let have = fs::metadata(self.incomplete(&h.etag)).map_or(0, |m| m.len());
            if self.has(h) || self.has_blob(h) { 0 } else { h.bytes.saturating_sub(have) }
        };
        let needed = heads.iter().map(missing).fold(0, u64::saturating_add);
        let Some(free) = free(&self.root).filter(|free| needed > *free) else { return Ok(()) };
        Err(FetchError::Space { dir: self.root.display().to_string(), needed, free })
    }

    /// Makes the link of a file to its content, which is there.
    pub fn point(&self, head: &Head) -> Result<(), FetchError> {
        let pointer = self.pointer(&head.file);
        made(pointer.parent().unwrap_or(&self.repository).to_path_buf())?;
        // from the file's folder up to the repository's
        let up = "../".repeat(head.file.split('/').count() + 1);
        let to = format!("{up}blobs/{}", head.etag);
        match fs::remove_file(&pointer) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(FetchError::disk(&pointer, e)),
            _ => {}
        }
        self.link(&to, &pointer, head).map_err(|e| FetchError::disk(&pointer, e))
    }

    #[cfg(unix)]
    fn link(&self, to: &str, pointer: &Path, _: &Head) -> std::io::Result<()> {
        std::os::unix::fs::symlink(to, pointer)
    }

    /// Where links are not allowed the file itself is put there, as Python's hub does it.
    #[cfg(not(unix))]
    fn link(&self, _to: &str, pointer: &Path, head: &Head) -> std::io::Result<()> {
        #[cfg(windows)]
        if std::os::windows::fs::symlink_file(_to.replace('/', "\\"), pointer).is_ok() {
            return Ok(());
        }
        fs::rename(self.blob(&head.etag), pointer)
    }

    /// Writes down what a branch or tag is now.
    pub fn refer(&self, revision: &str) -> Result<(), FetchError> {
        if revision == self.commit {
            return Ok(());
        }
        let file = revision.split('/').fold(self.repository.join("refs"), |dir, part| dir.join(part));
        made(file.parent().unwrap_or(&self.repository).to_path_buf())?;
        put(&file, &self.commit)
    }
}

/// Bytes that may be written, where the system tells.
#[cfg(unix)]
fn free(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}
