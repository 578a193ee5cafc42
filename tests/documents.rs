//! What documents and comments say of the tree is true: every path they name is there, and every test, example and
//! benchmark of a command they print.

use std::path::{Path, PathBuf};

/// The folders whose paths are looked for.
const FOLDERS: [&str; 11] =
    [".ci", ".config", "assets", "benches", "docs", "examples", "host", "scripts", "shaders", "src", "tests"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files of the tree, below `dir`, whose names end so.
fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

/// The documents whole, and of the sources what follows `//`: file, line number, text.
fn lines() -> Vec<(PathBuf, usize, String)> {
    let (mut documents, mut sources) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(root()).expect("the root is readable") {
        let path = entry.expect("the root is readable").path();
        // the changelog tells what was
        if path.extension().is_some_and(|e| e == "md") && !path.ends_with("CHANGELOG.md") {
            documents.push(path);
        }
    }
    for folder in ["docs", "tests/data"] {
        files(&root().join(folder), ".md", &mut documents);
    }
    let jobs = ["run", "cross", "ray", "templates", "page", "hub", "clients"].map(|job| root().join(".ci").join(job));
    documents.extend(["scripts/gpu-check", "scripts/isa"].map(|f| root().join(f)).into_iter().chain(jobs));
    for folder in ["benches", "examples", "host", "src", "tests"] {
        files(&root().join(folder), ".rs", &mut sources);
    }
    sources.push(root().join("build.rs"));
    // these hold paths that must not be there
    let planted = ["layers.rs", "documents.rs", "kernels/shaders/expand.rs"].map(|own| root().join("tests").join(own));
    sources.retain(|p| !planted.contains(p));
    let mut out = Vec::new();
    for (list, comments) in [(documents, false), (sources, true)] {
        for path in list {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            for (number, line) in (1..).zip(text.lines()) {
                let said = if comments { line.find("//").map(|at| &line[at..]) } else { Some(line) };
                out.extend(said.map(|said| (path.clone(), number, said.to_string())));
            }
        }
    }
    out
}

/// The paths that a line names. `NAME` and the like stand for others.
fn paths(line: &str) -> Vec<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let words = line.split(|c| !part(c)).map(|w| w.trim_start_matches("./").trim_end_matches(['.', '/', '-']));
    let ours = |w: &&str| w.split_once('/').is_some_and(|(first, rest)| FOLDERS.contains(&first) && !rest.is_empty());
    let placeholder = |w: &&str| {
        let stem = w.rsplit('/').next().unwrap_or(w).split('.').next().unwrap_or(w);
        let capitals = |s: &str| s.len() > 2 && s.chars().all(|c| c.is_ascii_uppercase());
        !w.ends_with(".md") && stem.split('_').any(capitals)
    };
    words.filter(ours).filter(|w| !placeholder(w)).collect()
}

/// Test, example and benchmark targets that a line's commands name, as the paths they would have.
fn targets(line: &str) -> Vec<[String; 2]> {
    let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || "`\"()".contains(c)).collect();
    let pairs = words.windows(2).filter_map(|w| {
        let folder = match w[0] {
            "--test" => "tests",
            "--example" => "examples",
            "--bench" => "benches",
            _ => return None,
        };
        let name = w[1].trim_end_matches([',', '.', ';', ':']);
        let known = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        known.then(|| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/main.rs")])
    });
    pairs.collect()
}

#[test]
fn every_path_that_a_document_or_comment_names_is_there() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (file, number, line) in lines() {
        let at = format!("{}:{number}", file.strip_prefix(root()).expect("below the root").display());
        for path in paths(&line) {
            count += 1;
            if !root().join(path).exists() {
                wrong.push(format!("{at}: {path} is not there"));
            }
        }
        for target in targets(&line) {
            count += 1;
            if !target.iter().any(|t| root().join(t).exists()) {
                wrong.push(format!("{at}: neither {} nor {} is there", target[0], target[1]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count} names were looked at");
}

#[test]
fn names_are_found_in_prose_and_commands_and_placeholders_are_not() {
    let line =
        "see `tests/twins.rs`, (docs/exactness.md) and shaders/shared/tile_TYPE.wgsl, src/ops/NAME.rs; ./src/lib.rs.";
    assert_eq!(paths(line), ["tests/twins.rs", "docs/exactness.md", "src/lib.rs"]);
    assert_eq!(paths("cli/run.rs, tests/, tests-data/x, https://example.org/src/x"), Vec::<&str>::new());
    let line = "(`cargo nextest run --release --test models arch::`), --example synth_model -- --out, --bench NAME";
    let names: Vec<String> = targets(line).into_iter().map(|[one, _]| one).collect();
    assert_eq!(names, ["tests/models.rs", "examples/synth_model.rs"]);
}
