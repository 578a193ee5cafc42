//! Folders as the other programs leave them, whole and broken.

use super::*;
use std::fs;
use std::path::Path;

fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[cfg(unix)]
fn link(to: &str, path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(to, path).unwrap();
}

/// A snapshot of files, each a link to a blob.
#[cfg(unix)]
fn snapshot(cache: &Path, repo: &str, commit: char, files: &[&str]) {
    let dir = cache.join(format!("models--{}", repo.replace('/', "--")));
    let commit = commit.to_string().repeat(40);
    for (i, file) in files.iter().enumerate() {
        let blob = format!("{i}{commit}");
        put(&dir.join("blobs").join(&blob), file.as_bytes());
        let up = "../".repeat(file.split('/').count() + 1);
        link(&format!("{up}blobs/{blob}"), &dir.join("snapshots").join(&commit).join(file));
    }
}

fn folders(dir: &Path) -> Folders {
    Folders { hf: Some(dir.join("hf")), lmstudio: vec![dir.join("lm")], ollama: vec![dir.join("ollama")] }
}

fn why(l: &Listing, what: &str) -> String {
    let found: Vec<_> = l.passed.iter().filter(|p| p.what == what).collect();
    assert_eq!(found.len(), 1, "{what}: {:?}", l.passed);
    found[0].why.clone()
}

#[cfg(unix)]
#[test]
fn hugging_faces_cache_is_read_and_every_name_leads_to_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let hf = dir.path().join("hf");
    let shards = ["big/m-Q8_0-00001-of-00002.gguf", "big/m-Q8_0-00002-of-00002.gguf"];
    snapshot(&hf, "u/m", 'a', &["m-Q4_K_M.gguf", "m-Q8_0.gguf", shards[0], shards[1], "mmproj-f16.gguf", "README.md"]);
    snapshot(&hf, "u/m", 'b', &["m-Q4_K_M.gguf", "m-Q6_K.gguf"]);
    put(&hf.join("models--u--m/refs/main"), "b".repeat(40).as_bytes());
    snapshot(&hf, "u/t", 'a', &["config.json", "model.safetensors", "tokenizer.json"]);
    snapshot(&hf, "u/n", 'a', &["config.json"]);
    snapshot(&hf, "u/half", 'a', &["m-00001-of-00002.gguf"]);
    fs::create_dir_all(hf.join("datasets--u--m/snapshots")).unwrap();
    put(&hf.join("models--u--begun/blobs/x.incomplete"), b"x");
    let l = Listing::read(&folders(dir.path()));
    let of = |name: &str| l.find(&Name::parse(name).unwrap()).map(|e| e.path.clone());
    let at =
        |commit: char, file: &str| hf.join("models--u--m/snapshots").join(commit.to_string().repeat(40)).join(file);
    assert_eq!(of("u/m"), Ok(at('b', "m-Q4_K_M.gguf")), "main's");
    assert_eq!(of("U/M:q6_k"), Ok(at('b', "m-Q6_K.gguf")));
    assert_eq!(of("hf:u/m:Q8_0"), Ok(at('a', "big/m-Q8_0-00001-of-00002.gguf")), "in another commit alone");
    assert_eq!(of("u/t"), Ok(hf.join("models--u--t/snapshots").join("a".repeat(40))));
    assert!(matches!(of("u/m:Q2_K"), Err(Missing::Others(have)) if have.iter().any(|h| h == "m-Q6_K.gguf")));
    assert_eq!(of("u/other"), Err(Missing::Unknown));
    assert!(matches!(of("u/half"), Err(Missing::Broken(why)) if why.contains("shard 2 of 2")));
    assert!(why(&l, "u/n").contains("neither GGUF nor safetensors"));
    assert!(why(&l, "u/begun").contains("not finished"));
    assert_eq!(l.entries.len(), 5, "{:?}", l.entries);
    let mut unnamed = Vec::new();
    for e in &l.entries {
        match l.name_of(e) {
            Some(name) => assert_eq!(of(&name), Ok(e.path.clone()), "{name}"),
            None => unnamed.push(&e.file),
        }
    }
    // both of its names are those of the shards beside it as well
    assert_eq!(unnamed, ["m-Q8_0.gguf"]);
    assert!(l.entries.iter().any(|e| e.bytes == (shards[0].len() + shards[1].len()) as u64));
}

#[cfg(unix)]
#[test]
fn links_that_lead_nowhere_or_out_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let hf = dir.path().join("hf");
    put(&dir.path().join("secret.gguf"), b"x");
    for (repo, to) in [("gone", "../../blobs/none"), ("out", "../../../../secret.gguf"), ("etc", "/etc/passwd")] {
        let snapshot = hf.join(format!("models--u--{repo}/snapshots")).join("a".repeat(40));
        link(to, &snapshot.join("m.gguf"));
    }
    // a folder of another place instead of a snapshot, a name with dots, a reference that leads away
    snapshot(&hf, "u/ok", 'a', &["m.gguf"]);
    put(&hf.join("models--u--ok/refs/main"), b"../../../../..");
    link("../..", &hf.join("models--u--loop/snapshots").join("b".repeat(40)));
    fs::create_dir_all(hf.join("models--..--x")).unwrap();
    let l = Listing::read(&folders(dir.path()));
    assert_eq!(l.entries.len(), 1, "{:?}", l.entries);
    assert!(why(&l, "u/gone:m.gguf").contains("leads to nothing"));
    assert!(why(&l, "u/out:m.gguf").contains("leads out of") && why(&l, "u/etc:m.gguf").contains("leads out of"));
    assert!(why(&l, "../x").contains("not a repository"));
}

#[test]
fn ollamas_manifests_are_read_and_half_ones_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let ollama = dir.path().join("ollama");
    let digest = "0a".repeat(32);
    put(&ollama.join(format!("blobs/sha256-{digest}")), b"GGUF!");
    let manifest = |digest: &str, size: u64| {
        format!(
            "{{\"schemaVersion\":2,\"config\":{{}},\"layers\":[{{\"mediaType\":\"application/vnd.ollama.image.template\",\
             \"digest\":\"sha256:11\",\"size\":1}},{{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"{digest}\",\"size\":{size}}}]}}"
        )
    };
    let good = manifest(&format!("sha256:{digest}"), 5);
    let library = ollama.join("manifests/registry.ollama.ai/library");
    for (path, text) in [
        ("llama3.2/1b", good.as_str()),
        ("llama3.2/latest", &good),
        ("short/1b", &manifest(&format!("sha256:{digest}"), 6)),
        ("gone/1b", &manifest(&format!("sha256:{}", "0b".repeat(32)), 5)),
        ("away/1b", &manifest("sha256:../../../../etc/passwd", 5)),
        ("half/1b", &good[..40]),
        ("deep/1b", &"[".repeat(100_000)),
        ("cloud/1b", "{\"layers\":[]}"),
        ("../alice/m/1b", &good),
        ("../../hf.co/u/m-GGUF/Q4_K_M", &good),
    ] {
        put(&library.join(path), text.as_bytes());
    }
    let l = Listing::read(&folders(dir.path()));
    let of = |name: &str| l.find(&Name::parse(name).unwrap()).map(|e| e.file.clone());
    assert_eq!(of("llama3.2:1b"), Ok("1b".into()));
    assert_eq!(of("LLAMA3.2"), Ok("latest".into()));
    assert_eq!((of("alice/m:1b"), of("hf.co/u/m-GGUF:Q4_K_M")), (Ok("1b".into()), Ok("Q4_K_M".into())));
    assert_eq!(of("hf:llama3.2"), Err(Missing::Unknown), "the hub's alone");
    assert_eq!(of("llama3.2:7b"), Err(Missing::Others(vec!["1b".into(), "latest".into()])));
    for (what, words) in [
        ("short:1b", "have 5 bytes, its manifest says 6"),
        ("gone:1b", "it is not there"),
        ("away:1b", "no digest"),
        ("half:1b", "not a manifest"),
        ("deep:1b", "not a manifest"),
        ("cloud:1b", "names no weights"),
    ] {
        assert!(why(&l, what).contains(words), "{what}: {}", why(&l, what));
    }
    assert_eq!(l.entries.len(), 4);
}

#[test]
fn lm_studios_folder_is_searched_after_hugging_faces() {
    let dir = tempfile::tempdir().unwrap();
    put(&dir.path().join("lm/u/m-GGUF/m-Q4_K_M.gguf"), b"lm");
    put(&dir.path().join("lm/u/m-GGUF/other.gguf"), b"lm");
    put(&dir.path().join("lm/.DS_Store"), b"");
    put(&dir.path().join("hf/models--u--m-GGUF/snapshots/x/m-Q8_0.gguf"), b"hf");
    let l = Listing::read(&folders(dir.path()));
    let of = |name: &str| l.find(&Name::parse(name).unwrap()).map(|e| (e.place, e.file.clone()));
    assert_eq!(of("u/m-GGUF"), Ok((Place::HuggingFace, "m-Q8_0.gguf".into())));
    assert_eq!(of("hf:u/m-GGUF:Q4_K_M"), Ok((Place::LmStudio, "m-Q4_K_M.gguf".into())));
    let names: Vec<_> = l.entries.iter().map(|e| l.name_of(e).unwrap()).collect();
    assert_eq!(names, ["u/m-GGUF:Q8_0", "u/m-GGUF:Q4_K_M", "u/m-GGUF:other"]);
    assert_eq!(l.folders.iter().map(|f| f.2).collect::<Vec<_>>(), [true, true, false]);
}
