//! Hugging Face directories: `config.json`, safetensors files, and the tokenizer's files.
//!
//! The weights are `model.safetensors`, or the files an index names (`model.safetensors.index.json`, else the only
//! `*.safetensors.index.json`), or the only `*.safetensors` file. JSON is bounded in bytes and in memory before it is
//! parsed. An index may name plain file names of the same directory only: no separators, no `..`, no drive letters.
//! Every tensor it lists must be in the file it names; no tensor may be in two files. Tensors of those files that the
//! index does not list are kept, for `models` to judge. Packed matrices and block files beside the weights (`packed`)
//! become tensors of their block types, and so do the nibbles of ChatGLM's INT4 checkpoints (`int4`). The matrices of experts
//! become one tensor a layer (`stacks`). What lies otherwise than in other models is brought into their order (`relaid`).
//!
//! A directory with a `quant_model_description.json` or `quant_model_description_TYPE.json` has msModelSlim's weights
//! (`slim`). Their files are those whose names begin with `quant_model_weight`, one or with an index, whatever lies beside
//! them; else those of any directory.
//!
//! Of a model of texts and images the text is kept (`text_part`); tensors of encoders get the names that decoders have
//! (`encoders`). Nothing else here interprets the config.

use super::error::{FormatError, quote, show_path};
use super::index::NameIndex;
use super::json::not_json;
use super::packed;
use super::safetensors;
use super::source::{LoadMode, Source, read_whole};
use super::{Activations, Tensor};
use super::{dense, encoders, int4, relaid, slim, stacks, text_part};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// Longest `config.json`, `tokenizer_config.json` and `generation_config.json`, in bytes.
pub const MAX_CONFIG: u64 = 16 << 20;
/// Most memory the values of one of them may take, as [`value_memory`] estimates it.
const MAX_VALUES: usize = 40 << 20;
/// Longest `tokenizer.json`, in bytes.
pub const MAX_TOKENIZER: u64 = 256 << 20;
/// Longest index, in bytes.
pub const MAX_INDEX: u64 = 32 << 20;
/// Most files an index may name.
pub const MAX_FILES: usize = 4096;

/// The metadata of a directory whose weights were made from a GGUF file: a GGUF file without tensors. Beside a
/// `config.json` it is there for its tokeniser alone.
pub const METADATA: &str = "metadata.gguf";

/// What the names of msModelSlim's descriptions begin with, before `.json` or `_TYPE.json`.
const SLIM_DESCRIPTION: &str = "quant_model_description";
/// What the names of its weights begin with.
const SLIM_WEIGHTS: &str = "quant_model_weight";

/// The weights of a directory.
pub(super) struct WeightFiles {
    pub files: Vec<PathBuf>,
    pub sources: Vec<Source>,
    pub tensors: Vec<Tensor>,
    /// of those that do not lie in one place, the parts
    pub stacks: stacks::Stacks,
    pub index: NameIndex,
    /// of the first file
    pub data_start: u64,
}

/// What a directory holds.
pub(super) struct Parsed {
    pub weights: WeightFiles,
    /// how matrices of W8A8 want their activations, by name
    pub activations: BTreeMap<String, Activations>,
    pub config: Value,
    pub tokenizer_json: Option<Vec<u8>>,
    pub tokenizer_config: Option<Value>,
    pub generation_config: Option<Value>,
}

/// An upper bound of what parsed JSON takes beyond its own text. An object keeps the order of its members beside a table of
/// their hashes, and lists and objects are up to three times as large as their content while they grow.
fn value_memory(json: &[u8]) -> usize {
    json.iter()
        .map(|b| match b {
            b'{' => 624,
            b'[' => 64,
            b',' => 128,
            b':' => 96,
            _ => 0,
        })
        .sum()
}

/// A JSON file as a value, bounded in bytes and, before parsing, in memory.
pub(super) fn read_json(path: &Path) -> Result<Value, FormatError> {
    json_value(path, &read_whole(path, MAX_CONFIG)?)
}

/// JSON as a value, bounded in memory before it is parsed. `path` stands for it in messages.
pub(super) fn json_value(path: &Path, bytes: &[u8]) -> Result<Value, FormatError> {
    let memory = value_memory(bytes);
    if memory > MAX_VALUES {
        return Err(FormatError::invalid(
            &show_path(path),
            "whole file",
            "too many values",
            format_args!("at most {MAX_VALUES} bytes of memory for them"),
            format_args!("about {memory}"),
        ));
    }
    serde_json::from_slice(bytes).or_else(|e| {
        // what Python writes of numbers that JSON does not have
        let again = tagged(bytes).filter(|anew| value_memory(anew) <= MAX_VALUES);
        again.and_then(|anew| serde_json::from_slice(&anew).ok()).ok_or_else(|| not_json(path, e))
    })
}

/// JSON in which `Infinity`, `-Infinity` and `NaN` stand as numbers, with objects in their place, as transformers writes them
/// since version 5: `{"__float__": "Infinity"}`. `None` where there is none of these words outside of texts.
fn tagged(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut rest, mut found) = (Vec::with_capacity(bytes.len()), bytes, false);
    let mut in_text = false;
    while let Some((&first, behind)) = rest.split_first() {
        let word = ["-Infinity", "Infinity", "NaN"].into_iter().find(|w| !in_text && rest.starts_with(w.as_bytes()));
        if let Some(word) = word {
            out.extend(format!("{{\"__float__\":\"{word}\"}}").bytes());
            (rest, found) = (&rest[word.len()..], true);
            continue;
        }
        out.push(first);
        rest = behind;
        match (first, in_text, behind.split_first()) {
            (b'\\', true, Some((escaped, behind))) => {
                out.push(*escaped);
                rest = behind;
            }
            (b'"', ..) => in_text = !in_text,
            _ => {}
        }
    }
    found.then_some(out)
}

/// A JSON file that may be absent.
pub(super) fn read_optional(path: &Path) -> Result<Option<Value>, FormatError> {
    path.is_file().then(|| read_json(path)).transpose()
}

/// The `weight_map` of an index: tensor names with the position of their file in `files`.
struct WeightMap {
    files: Vec<String>,
    entries: Vec<(String, usize)>,
}

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WeightMap, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = WeightMap;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tensor names to file names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
                let mut files: Vec<String> = Vec::new();
                let mut file_index = NameIndex::with_capacity(MAX_FILES);
                let mut entries: Vec<(String, usize)> = Vec::new();
                let mut index = NameIndex::with_capacity(safetensors::MAX_TENSORS);
                while let Some(name) = map.next_key::<String>()? {
                    if entries.len() == safetensors::MAX_TENSORS {
                        let most = safetensors::MAX_TENSORS;
                        return Err(A::Error::custom(format!("more than {most} tensors")));
                    }
                    if index.insert(&name, entries.len(), |i| &entries[i].0).is_some() {
                        return Err(A::Error::custom(format!("{} occurs twice", quote(&name))));
                    }
                    let file = map.next_value::<String>()?;
                    let known = file_index.get(&file, |i| &files[i]);
                    let at = match known {
                        Some(at) => at,
                        None if files.len() == MAX_FILES => {
                            return Err(A::Error::custom(format!("more than {MAX_FILES} files")));
                        }
                        None => {
                            let at = files.len();
                            file_index.insert(&file, at, |i| &files[i]);
                            files.push(file);
                            at
                        }
                    };
                    entries.push((name, at));
                }
                Ok(WeightMap { files, entries })
            }
        }
        deserializer.deserialize_map(V)
    }
}

#[derive(serde::Deserialize)]
struct IndexFile {
    weight_map: WeightMap,
}

/// Whether an index may name this file: a plain name that stays in its directory on every system.
fn plain_name(name: &str) -> bool {
    name.len() <= 255
        && name.ends_with(".safetensors")
        && !name.starts_with('.')
        && !name.contains("..")
        && !name.chars().any(|c| c.is_control() || matches!(c, '/' | '\\' | ':'))
}

/// The regular files of `dir` whose names end in `suffix`, sorted. Stops at a number no model directory reaches.
pub(super) fn list(dir: &Path, suffix: &str) -> Result<Vec<String>, FormatError> {
    let fail = |e| FormatError::io(dir, "listing it", e);
    let mut out = BTreeSet::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let Some(name) = name.to_str().filter(|n| n.ends_with(suffix)) else {
            continue;
        };
        if dir.join(name).is_file() {
            out.insert(name.to_string());
        }
        if out.len() > 65_536 {
            return Err(FormatError::invalid(
                &show_path(dir),
                "listing it",
                "too many files",
                format_args!("at most 65536 named *{suffix}"),
                "more",
            ));
        }
    }
    Ok(out.into_iter().collect())
}

/// At most a few names, for a message.
pub(super) fn some_names(names: &[String]) -> String {
    let mut text = names.iter().take(4).map(|n| quote(n)).collect::<Vec<_>>().join(", ");
    if names.len() > 4 {
        text.push_str(&format!(" and {} more", names.len() - 4));
    }
    text
}

/// Where a directory's weights are.
enum Weights {
    One(PathBuf),
    Index(PathBuf),
}

fn find_weights(dir: &Path) -> Result<Option<Weights>, FormatError> {
    const SINGLE: &str = "model.safetensors";
    const INDEX: &str = "model.safetensors.index.json";
    if dir.join(SINGLE).is_file() {
        return Ok(Some(Weights::One(dir.join(SINGLE))));
    }
    if dir.join(INDEX).is_file() {
        return Ok(Some(Weights::Index(dir.join(INDEX))));
    }
    let found = only(
        dir,
        list(dir, ".safetensors.index.json")?,
        list(dir, ".safetensors")?,
        [
            &format!("{SINGLE}, {INDEX} or a single *.safetensors"),
            &format!("{INDEX} or a single *.safetensors.index.json"),
        ],
    )?;
    if let Some(Weights::One(path) | Weights::Index(path)) = &found
        && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SLIM_WEIGHTS))
    {
        return Err(FormatError::invalid(
            &show_path(path),
            "directory",
            "msModelSlim's weights without their description",
            format_args!("{SLIM_DESCRIPTION}.json beside them"),
            "none",
        ));
    }
    Ok(found)
}

/// The only index, or the only file where there is no index. `expected` says what several files and several indexes lack.
fn only(
    dir: &Path,
    indexes: Vec<String>,
    singles: Vec<String>,
    expected: [&str; 2],
) -> Result<Option<Weights>, FormatError> {
    let several = |what: &str, expected: &str, found: &[String]| {
        Err(FormatError::invalid(&show_path(dir), "directory", what, expected, some_names(found)))
    };
    match (&indexes[..], &singles[..]) {
        ([one], _) => Ok(Some(Weights::Index(dir.join(one)))),
        ([], []) => Ok(None),
        ([], [one]) => Ok(Some(Weights::One(dir.join(one)))),
        ([], many) => several("several safetensors files and no index", expected[0], many),
        (many, _) => several("several indexes", expected[1], many),
    }
}

/// The description of msModelSlim's weights, where a directory has one.
fn find_description(dir: &Path) -> Result<Option<PathBuf>, FormatError> {
    let mut names = list(dir, ".json")?;
    let is_one = |name: &str| {
        let rest = name.strip_prefix(SLIM_DESCRIPTION).and_then(|rest| rest.strip_suffix(".json"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    names.retain(|name| is_one(name));
    match &names[..] {
        [] => Ok(None),
        [one] => Ok(Some(dir.join(one))),
        many => Err(FormatError::invalid(
            &show_path(dir),
            "directory",
            "several descriptions of quantised weights",
            format_args!("one {SLIM_DESCRIPTION}.json"),
            some_names(many),
        )),
    }
}

/// The weights that a description is about.
fn find_described(dir: &Path, description: &Path) -> Result<Weights, FormatError> {
    let named = |suffix: &str| -> Result<Vec<String>, FormatError> {
        let mut names = list(dir, suffix)?;
        names.retain(|name| name.starts_with(SLIM_WEIGHTS));
        Ok(names)
    };
    let expected = format!("one {SLIM_WEIGHTS}*.safetensors, or an index of them");
    let (indexes, singles) = (named(".safetensors.index.json")?, named(".safetensors")?);
    let own = only(dir, indexes, singles, [&expected, &expected])?;
    let found = if own.is_some() { own } else { find_weights(dir)? };
    found.ok_or_else(|| {
        let what = "a description without weights";
        FormatError::invalid(&show_path(description), "directory", what, &expected, "none")
    })
}

/// The block files of a directory, sorted; a permutation beside them is refused.
fn block_files(dir: &Path) -> Result<Vec<PathBuf>, FormatError> {
    let mut names = Vec::new();
    for kind in &packed::KINDS {
        names.extend(list(dir, &format!(".{}", kind.suffix))?);
    }
    names.sort_unstable();
    if let (false, Some(perm)) = (names.is_empty(), list(dir, ".perm")?.first()) {
        let file = show_path(&dir.join(perm));
        return Err(FormatError::Packed { file, tensor: perm.clone(), fault: packed::PackedFault::Permuted });
    }
    Ok(names.iter().map(|n| dir.join(n)).collect())
}

/// Opens a directory with a `config.json`; `None` when it holds neither safetensors weights nor block files.
pub(super) fn open(dir: &Path, mode: LoadMode) -> Result<Option<Parsed>, FormatError> {
    let config = || read_json(&dir.join("config.json"));
    let mut activations = BTreeMap::new();
    let (weights, config) = if let Some(path) = find_description(dir)? {
        let config = config()?;
        let description = slim::Description::read(&path)?;
        let Opened { files, sources, tensors, data_start } = open_files(dir, mode, find_described(dir, &path)?)?;
        super::unique(&tensors, &sources)?;
        let resolved = slim::resolve(&description, &config, tensors, sources)?;
        let slim::Resolved { tensors, sources, activations: found } = resolved;
        activations = found;
        let index = super::unique(&tensors, &sources)?;
        (WeightFiles { files, sources, tensors, stacks: stacks::Stacks::new(), index, data_start }, config)
    } else {
        let Some(weights) = open_weights(dir, mode)? else {
            return Ok(None);
        };
        let config = config()?;
        // the words of a config that say how tensors are to be read
        if config["model_type"] == "chatglm" && config["quantization_bit"] == 4 {
            let (tensors, sources) = int4::resolve(weights.tensors, weights.sources)?;
            let index = super::unique(&tensors, &sources)?;
            (WeightFiles { tensors, sources, index, ..weights }, config)
        } else if relaid::is_one(&config) {
            let (tensors, sources) = relaid::resolve(&config, weights.tensors, weights.sources)?;
            let index = super::unique(&tensors, &sources)?;
            (WeightFiles { tensors, sources, index, ..weights }, config)
        } else if encoders::is_one(&config) {
            let tensors = encoders::tensors(&config, weights.tensors, &weights.sources)?;
            let index = super::unique(&tensors, &weights.sources)?;
            (WeightFiles { tensors, index, ..weights }, encoders::config(config))
        } else if let Some(text) = text_part::config(&config) {
            let tensors = text_part::tensors(weights.tensors);
            let (tensors, stacks) = stacks::gather(tensors, &weights.sources)?;
            let (tensors, sources) = relaid::resolve(&text, tensors, weights.sources)?;
            let index = super::unique(&tensors, &sources)?;
            (WeightFiles { tensors, sources, stacks, index, ..weights }, text)
        } else {
            let tensors = text_part::with_prefix(weights.tensors);
            let (tensors, stacks) = stacks::gather(tensors, &weights.sources)?;
            let (tensors, sources) = relaid::resolve(&config, tensors, weights.sources)?;
            let index = super::unique(&tensors, &sources)?;
            (WeightFiles { tensors, sources, stacks, index, ..weights }, config)
        }
    };
    let (mut weights, modules) = (weights, read_optional(&dir.join(encoders::MODULES))?);
    let behind = dense::open(dir, mode, modules.as_ref(), weights.files.len(), read_optional)?;
    let functions = behind.as_ref().map(|b| b.functions.clone());
    if let Some(layers) = behind {
        weights.files.extend(layers.files);
        weights.sources.extend(layers.sources);
        weights.tensors.extend(layers.tensors);
        weights.index = super::unique(&weights.tensors, &weights.sources)?;
    }
    let pooling = read_optional(&dir.join(encoders::POOLING))?;
    let config = encoders::with_pooling(config, modules.as_ref(), pooling, functions);
    let tokenizer = dir.join("tokenizer.json");
    Ok(Some(Parsed {
        weights,
        activations,
        config,
        tokenizer_json: tokenizer.is_file().then(|| read_whole(&tokenizer, MAX_TOKENIZER)).transpose()?,
        tokenizer_config: read_optional(&dir.join("tokenizer_config.json"))?,
        generation_config: read_optional(&dir.join("generation_config.json"))?,
    }))
}

/// The safetensors files of a directory, as they are.
#[derive(Default)]
struct Opened {
    files: Vec<PathBuf>,
    sources: Vec<Source>,
    tensors: Vec<Tensor>,
    /// of the first file
    data_start: u64,
}

/// Opens safetensors files, which must be as their index says.
fn open_files(dir: &Path, mode: LoadMode, weights: Weights) -> Result<Opened, FormatError> {
    let (files, map) = match weights {
        Weights::One(path) => (vec![path], None),
        Weights::Index(path) => {
            let map = read_index(&path)?;
            let mut names = map.files.clone();
            names.sort_unstable();
            (names.iter().map(|n| dir.join(n)).collect(), Some((path, map)))
        }
    };
    let mut sources = Vec::with_capacity(files.len());
    let mut tensors = Vec::new();
    let mut data_start = 0;
    for (i, path) in files.iter().enumerate() {
        let source = Source::open(path, mode)?;
        let parsed = safetensors::parse(&source, i)?;
        if i == 0 {
            data_start = parsed.data_start;
        }
        tensors.extend(parsed.tensors);
        if tensors.len() > safetensors::MAX_TENSORS {
            return Err(FormatError::invalid(
                source.name(),
                "header",
                "too many tensors in all files",
                format_args!("at most {}", safetensors::MAX_TENSORS),
                tensors.len(),
            ));
        }
        sources.push(source);
    }
    if let Some((path, map)) = map {
        let index = super::unique(&tensors, &sources)?;
        check_map(&path, &map, dir, &files, &tensors, &index)?;
    }
    Ok(Opened { files, sources, tensors, data_start })
}

/// Opens the safetensors and block files of a directory; `None` when it has neither.
pub(super) fn open_weights(dir: &Path, mode: LoadMode) -> Result<Option<WeightFiles>, FormatError> {
    let (weights, blocks) = (find_weights(dir)?, block_files(dir)?);
    if weights.is_none() && blocks.is_empty() {
        return Ok(None);
    }
    let opened = weights.map_or(Ok(Opened::default()), |weights| open_files(dir, mode, weights))?;
    let Opened { mut files, mut sources, tensors, data_start } = opened;
    let mut tensors = packed::resolve(tensors, &sources)?;
    for path in blocks {
        let (source, tensor) = packed::open_block_file(&path, mode, files.len())?;
        sources.push(source);
        tensors.push(tensor);
        files.push(path);
    }
    packed::refuse_repeats(&tensors, &sources)?;
    let index = super::unique(&tensors, &sources)?;
    Ok(Some(WeightFiles { files, sources, tensors, stacks: stacks::Stacks::new(), index, data_start }))
}

fn read_index(path: &Path) -> Result<WeightMap, FormatError> {
    let bytes = read_whole(path, MAX_INDEX)?;
    let map = serde_json::from_slice::<IndexFile>(&bytes).map_err(|e| not_json(path, e))?.weight_map;
    if let Some((name, file)) =
        map.entries.iter().map(|(name, at)| (name, &map.files[*at])).find(|(_, file)| !plain_name(file))
    {
        return Err(FormatError::invalid(
            &show_path(path),
            format!("weight_map entry {}", quote(name)),
            "a file name that could leave the directory",
            "a plain name ending in .safetensors",
            quote(file),
        ));
    }
    Ok(map)
}

/// Every tensor the index lists must be in the file it names.
fn check_map(
    path: &Path,
    map: &WeightMap,
    dir: &Path,
    files: &[PathBuf],
    tensors: &[Tensor],
    index: &NameIndex,
) -> Result<(), FormatError> {
    for (name, at) in &map.entries {
        let file = &map.files[*at];
        let wrong = |found: String| {
            Err(FormatError::invalid(
                &show_path(path),
                format!("weight_map entry {}", quote(name)),
                "a tensor is not where the index says",
                format_args!("it in {}", quote(file)),
                found,
            ))
        };
        match index.get(name, |i| &tensors[i].name) {
            None => return wrong("it in none of the files".into()),
            Some(i) => {
                let real = &files[tensors[i].file];
                if *real != dir.join(file) {
                    return wrong(format!("it in {}", show_path(real)));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{json_value, plain_name};
    use serde_json::json;
    use std::path::Path;

    #[test]
    fn numbers_that_json_does_not_have_are_read_as_python_writes_them() {
        let read = |text: &str| json_value(Path::new("config.json"), text.as_bytes());
        let got = read(r#"{"a": [0.0, Infinity], "b": -Infinity, "c": NaN, "d": "NaN, \"Infinity"}"#).expect("read");
        let tag = |word: &str| json!({"__float__": word});
        let want = json!({"a": [0.0, tag("Infinity")], "b": tag("-Infinity"), "c": tag("NaN"), "d": "NaN, \"Infinity"});
        assert_eq!(got, want);
        for bad in [r#"{"a": Infinitys}"#, r#"{"a": Nan}"#, r#"{"a": "Infinity}"#, r#"{"a": Infinity"#, "{\"a\": \"\\"]
        {
            let error = read(bad).expect_err(bad).to_string();
            assert!(error.contains("config.json") && error.contains("not valid"), "{error}");
        }
    }

    #[test]
    fn only_plain_safetensors_names_stay_in_the_directory() {
        assert!(plain_name("model-00001-of-00002.safetensors"));
        for bad in [
            "",
            "model.bin",
            "../model.safetensors",
            "a/b.safetensors",
            "a\\b.safetensors",
            "/etc/x.safetensors",
            "C:x.safetensors",
            "..safetensors",
            ".safetensors",
            "a\0.safetensors",
        ] {
            assert!(!plain_name(bad), "{bad:?}");
        }
        assert!(!plain_name(&format!("{}.safetensors", "x".repeat(300))));
    }
}
