//! A store in memory, which tests look into and damage.

use isobit::internals::host::Store;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Files by name, and what happened to them.
#[derive(Debug, Default)]
pub struct Kept {
    pub files: Mutex<BTreeMap<String, Vec<u8>>>,
    pub warnings: Mutex<Vec<String>>,
    /// what was said to take time
    pub told: Mutex<Vec<String>>,
    /// names of files, each time one was written
    pub written: Mutex<Vec<String>>,
}

impl Kept {
    /// The files whose names end in `ending`.
    pub fn ending(&self, ending: &str) -> BTreeMap<String, Vec<u8>> {
        self.files
            .lock()
            .unwrap()
            .iter()
            .filter(|(n, _)| n.ends_with(ending))
            .map(|(n, b)| (n.clone(), b.clone()))
            .collect()
    }

    /// Changes every file whose name ends in `ending`.
    pub fn damage(&self, ending: &str, how: impl Fn(&mut Vec<u8>)) {
        self.files.lock().unwrap().iter_mut().filter(|(n, _)| n.ends_with(ending)).for_each(|(_, bytes)| how(bytes));
    }
}

impl Store for Kept {
    fn get(&self, name: &str) -> Option<Vec<u8>> {
        self.files.lock().unwrap().get(name).cloned()
    }
    fn put(&self, name: &str, bytes: &[u8]) {
        self.written.lock().unwrap().push(name.into());
        self.files.lock().unwrap().insert(name.into(), bytes.into());
    }
    fn warn(&self, line: &str) {
        self.warnings.lock().unwrap().push(line.into());
    }
    fn tell(&self, line: &str) {
        self.told.lock().unwrap().push(line.into());
    }
}
