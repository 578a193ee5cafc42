//! The program asked to do something to files, and what came of it.

use crate::program;
use isobit::internals::formats::{Container, LoadMode};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

pub fn isobit(args: &[&str]) -> Output {
    program::isobit(args).output().unwrap()
}

/// Runs it to success; gives stdout.
pub fn ok(args: &[&str]) -> String {
    let o = isobit(args);
    assert!(o.status.success(), "{args:?}: {}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8(o.stdout).unwrap()
}

/// Demands exit code 2 and one error line that holds these words.
pub fn refused(args: &[&str], words: &[&str]) {
    let o = isobit(args);
    let err = String::from_utf8_lossy(&o.stderr);
    assert_eq!(o.status.code(), Some(2), "{args:?}: {err}");
    let line = err.lines().find(|l| l.starts_with("error: ")).unwrap_or_else(|| panic!("{args:?}: {err}"));
    for w in words {
        assert!(line.contains(w), "no {w:?} in {line:?}");
    }
}

pub fn at(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_string()
}

/// Every tensor: type, shape and bytes.
pub fn tensors(path: &str) -> BTreeMap<String, (String, Vec<u64>, Vec<u8>)> {
    let c = Container::open(Path::new(path), LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
    let read = |t: &isobit::internals::formats::Tensor| {
        let mut bytes = vec![0; t.bytes as usize];
        c.read(t, 0, &mut bytes).unwrap();
        (t.name.clone(), (t.dtype.to_string(), t.shape.clone(), bytes))
    };
    c.tensors.iter().map(read).collect()
}
