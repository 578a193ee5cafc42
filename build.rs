//! Expands, validates and reflects every shader, and writes the table that `host` compiles in.
//!
//! A wrong shader stops the build with a line for each place of the sources that is wrong, whichever shaders import it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[path = "host/expand.rs"]
#[allow(dead_code, reason = "the library and the tests use other parts of it")]
mod expand;

#[cfg(feature = "gpu")]
#[path = "host/reflect.rs"]
mod reflect;

#[cfg(not(feature = "gpu"))]
mod reflect {
    use super::expand::{Expanded, Place};

    pub fn row(_: &Expanded) -> Result<String, (Place, String)> {
        Ok(String::new())
    }
}

fn main() {
    for file in ["shaders", "build.rs", "host/expand.rs", "host/reflect.rs", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rustc-env=ISOBIT_WGPU_VERSION={}", locked_version("wgpu"));
    let dir = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("shaders");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("shaders.rs");
    let mut files = BTreeMap::new();
    read(&dir, "", &mut files);
    let problems = match expand::expand(&files) {
        Ok(shaders) => {
            let (table, problems) = table(&shaders);
            std::fs::write(out, table).expect("OUT_DIR is writable");
            problems
        }
        Err(problems) => problems,
    };
    for line in problems.lines() {
        println!("cargo::error={line}");
    }
    if !problems.is_empty() {
        std::process::exit(1);
    }
}

/// The table's text, and what is wrong with the shaders that it lacks.
fn table(shaders: &[expand::Expanded]) -> (String, expand::Problems) {
    let mut table = String::from("/// Every shader, by name.\npub static SHADERS: &[Shader] = &[\n");
    let mut problems = expand::Problems::default();
    for shader in shaders {
        match reflect::row(shader) {
            Ok(row) => table.push_str(&row),
            Err((place, what)) => problems.add(place, what, Some(&shader.name)),
        }
    }
    table.push_str("];\n");
    (table, problems)
}

/// Reads the files of a folder and those below it. `path` is the folder's below `shaders/`, and ends with `/`.
fn read(dir: &Path, path: &str, files: &mut expand::Files) {
    let unreadable = |e: std::io::Error| -> ! { panic!("{}: {e}", dir.display()) };
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| unreadable(e)) {
        let entry = entry.unwrap_or_else(|e| unreadable(e)).path();
        let name = entry.file_name().and_then(|n| n.to_str()).expect("names in shaders/ are UTF-8");
        let path = format!("{path}{name}");
        if entry.is_dir() {
            read(&entry, &format!("{path}/"), files);
        } else {
            let text = std::fs::read_to_string(&entry).unwrap_or_else(|e| panic!("{}: {e}", entry.display()));
            files.insert(path, text);
        }
    }
}

/// The version of a crate in the lock file; empty where there is none.
fn locked_version(name: &str) -> String {
    let lock = std::fs::read_to_string("Cargo.lock").unwrap_or_default();
    let after = lock.split(&format!("name = \"{name}\"\nversion = \"")).nth(1).unwrap_or_default();
    after.split('"').next().unwrap_or_default().to_string()
}
