//! Files the program keeps between runs: a few small ones in the user's cache directory.
//!
//! Nothing depends on them: a directory that is missing, full or read-only costs a warning and the time to measure again.

use super::interrupt;
use super::notes::note;
use crate::formats::output;
use crate::store::Store;
use etcetera::BaseStrategy;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The most bytes of a file that are read; more than measurements or a driver's pipelines take.
const LIMIT: u64 = 1 << 26;

/// A directory of files.
#[derive(Debug)]
struct Files {
    dir: PathBuf,
}

/// The directory given, or `isobit` in the user's cache directory; `None` where the system knows no such place.
pub fn open(dir: Option<&Path>) -> Option<Arc<dyn Store>> {
    Some(Arc::new(Files { dir: self::dir(dir)? }))
}

/// The path of that directory, which need not be there.
pub fn dir(dir: Option<&Path>) -> Option<PathBuf> {
    match dir {
        Some(dir) => Some(dir.to_path_buf()),
        None => Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("isobit")),
    }
}

impl Files {
    /// What is wrong with the directory is wrong with every file in it: the first is enough.
    fn warn_once(&self, line: &str) {
        static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(self.dir.clone()) {
            self.warn(line);
        }
    }
}

impl Store for Files {
    fn get(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.dir.join(name);
        let mut bytes = Vec::new();
        match std::fs::File::open(&path).and_then(|f| f.take(LIMIT).read_to_end(&mut bytes)) {
            Ok(_) => Some(bytes),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => {
                self.warn_once(&format!("warning: {}: {e}", path.display()));
                None
            }
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.dir.join(name);
        let write = || {
            std::fs::create_dir_all(&self.dir)?;
            Ok::<_, anyhow::Error>(output::replace_file(&path, bytes)?)
        };
        if let Err(e) = interrupt::whole(write) {
            self.warn_once(&format!("warning: {} was not written: {e:#}", path.display()));
        }
    }

    fn warn(&self, line: &str) {
        note!("{line}");
    }

    fn tell(&self, line: &str) {
        // what takes time is measuring, and only here is it known how a user leaves that out
        note!("{line}; --tune off leaves it out");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_again_and_no_other_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        let store = open(Some(&inner)).unwrap();
        assert_eq!(store.get("x.json"), None);
        store.put("x.json", b"one");
        store.put("x.json", b"two");
        assert_eq!(store.get("x.json").as_deref(), Some(&b"two"[..]));
        assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 1);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_no_failure() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let store = open(Some(&file)).unwrap();
        store.put("x.json", b"one");
        assert_eq!(store.get("x.json"), None);
    }
}
