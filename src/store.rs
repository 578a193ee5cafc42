//! What is kept between runs of the program, and when measuring is asked for: shared by the devices that measure.
//!
//! Nothing here opens a file: whoever opens a device gives a place in, or none.

use std::fmt;

/// Keeps small files between runs of the program; the command line gives one that writes to the user's cache directory.
pub trait Store: fmt::Debug + Send + Sync {
    /// The bytes of a name, if there are any.
    fn get(&self, name: &str) -> Option<Vec<u8>>;
    /// Replaces the bytes of a name, at once or not at all. What cannot be written is lost, with a warning.
    fn put(&self, name: &str, bytes: &[u8]);
    /// Warns the user in one line.
    fn warn(&self, line: &str);
    /// Tells the user in one line what takes time now.
    fn tell(&self, line: &str);
}

/// Whether kernels are measured against each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tune {
    /// neither measured nor read from the store
    #[default]
    Off,
    /// measured anew
    Now,
    /// measured where the store does not know the shape
    Auto,
}

/// What a store calls the file of a kind that is about something.
pub fn name(kind: &str, about: &str, ending: &str) -> String {
    use sha2::{Digest, Sha256};
    format!("{kind}-{}.{ending}", &hex(&Sha256::digest(about))[..16])
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A store of tests, in memory.
#[cfg(test)]
pub mod kept {
    use super::Store;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// What was put, and what was warned of.
    #[derive(Debug, Default)]
    pub struct Kept {
        /// bytes by their names
        pub texts: Mutex<BTreeMap<String, Vec<u8>>>,
        /// warnings, in order
        pub warnings: Mutex<Vec<String>>,
    }

    impl Store for Kept {
        fn get(&self, name: &str) -> Option<Vec<u8>> {
            self.texts.lock().unwrap().get(name).cloned()
        }
        fn put(&self, name: &str, bytes: &[u8]) {
            self.texts.lock().unwrap().insert(name.into(), bytes.into());
        }
        fn warn(&self, line: &str) {
            self.warnings.lock().unwrap().push(line.into());
        }
        fn tell(&self, _: &str) {}
    }
}
