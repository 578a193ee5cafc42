//! The models in the folder of one repository: GGUF files with their shards, or a directory of safetensors files.

use super::entry::{Entry, Held, Place};
use super::pick::is_gguf;
use super::walk::Root;
use crate::formats::gguf::shard_name;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The shards of a model by the name of one of them; the file alone where it is no shard.
pub(super) fn shards(file: &str) -> Vec<String> {
    let (folder, name) = file.rsplit_once('/').map_or(("", file), |(f, n)| (&file[..=f.len()], n));
    match shard_name(name) {
        // a name may claim 99999 of them, which is no more than a list of names
        Some((prefix, _, count)) => {
            (1..=count).map(|i| format!("{folder}{prefix}-{i:05}-of-{count:05}.gguf")).collect()
        }
        None => vec![file.to_owned()],
    }
}

/// What the folder `dir` of the repository `repo` has.
pub(super) fn read(root: &Root, place: Place, repo: &str, dir: &Path) -> Held {
    let mut held = Held::default();
    let files: BTreeMap<String, PathBuf> = root.files(dir).into_iter().collect();
    let mut first_missing = None;
    for (file, path) in files.iter().filter(|(f, _)| is_gguf(f)) {
        let name = file.rsplit('/').next().unwrap_or(file);
        if let Some((_, no, _)) = shard_name(name)
            && no != 1
        {
            let first = shards(file).swap_remove(0);
            if !files.contains_key(&first) && first_missing.as_ref() != Some(&first) {
                held.pass(place, format!("{repo}:{first}"), path, "the first of its shards is missing");
                first_missing = Some(first);
            }
            continue;
        }
        let parts = shards(file);
        let mut bytes = 0u64;
        let mut why = None;
        for (i, part) in parts.iter().enumerate() {
            let length = match files.get(part) {
                Some(path) => root.file(path),
                None => Err("it is missing".into()),
            };
            match length {
                Ok(n) => bytes = bytes.saturating_add(n),
                Err(e) if parts.len() == 1 => why = Some(e),
                Err(e) => why = Some(format!("shard {} of {}: {e}", i + 1, parts.len())),
            }
            if why.is_some() {
                break;
            }
        }
        match why {
            Some(why) => held.pass(place, format!("{repo}:{file}"), path, why),
            None => held.entries.push(Entry {
                place,
                repo: repo.to_owned(),
                file: file.clone(),
                path: path.clone(),
                is_dir: false,
                bytes,
            }),
        }
    }
    if held.entries.is_empty() && held.passed.is_empty() {
        directory(root, place, repo, dir, &files, &mut held);
    }
    held
}

/// A directory with `config.json` and safetensors files.
fn directory(root: &Root, place: Place, repo: &str, dir: &Path, files: &BTreeMap<String, PathBuf>, held: &mut Held) {
    let weights: Vec<_> = files.iter().filter(|(f, _)| f.ends_with(".safetensors") && !f.contains('/')).collect();
    if weights.is_empty() {
        return held.pass(place, repo, dir, "neither GGUF nor safetensors files in it");
    }
    let mut bytes = 0u64;
    for (file, path) in &weights {
        match root.file(path) {
            Ok(n) => bytes = bytes.saturating_add(n),
            Err(e) => return held.pass(place, repo, dir, format!("{file}: {e}")),
        }
    }
    let config = files.get("config.json").map_or(Err("it is missing".into()), |path| root.file(path));
    if let Err(e) = config {
        return held.pass(place, repo, dir, format!("config.json: {e}"));
    }
    let (repo, path) = (repo.to_owned(), dir.to_path_buf());
    held.entries.push(Entry { place, repo, file: String::new(), path, is_dir: true, bytes });
}
