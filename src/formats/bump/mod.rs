//! BUMP files, C-Kernel-Engine's: versions 3, 4 and 5, little-endian, read and written.
//!
//! A header of 128 bytes, a table with one byte for the type of each tensor, then the tensors back to back without any
//! alignment, their blocks as in the GGUF file they came from. Version 5 puts a JSON text and a footer behind them. What
//! is where follows from the numbers in the header and in JSON files beside the file (`layout`), so nothing in the file
//! can be looked up by name; a manifest, where there is one, must say the same. The SHA-256 in the header covers table
//! and tensors, and is compared before anything of them is used: opening a file reads it once from end to end.
//!
//! The format is read out of the project's converters at the commits that `tests/data/bump/README.md` names, and
//! byte for byte out of the files they wrote.
//!
//! # Files beside the file
//!
//! For `NAME.bump` the first that is there of `NAME.X` and `X`, in its directory:
//!
//! | X | what for |
//! |---|---|
//! | `config.json` | versions 3 and 4: architecture, epsilon, RoPE base, and what the header leaves out. In version 5 the file has them; one that is there must agree |
//! | `manifest.json`, else `weights_manifest.json` | version 5, and version 4 with a vocabulary: the map of the tensors. Elsewhere it may be missing |
//! | `metadata.gguf` | a GGUF file without tensors: tokeniser and names; written by ours |
//! | `tokenizer.json` | a tokeniser, where there is no `metadata.gguf` |
//!
//! # Choices the format leaves open
//!
//! - Two tables of type codes go by the name of version 3. A code 6 is of the first, a code 8 of the later one; with
//!   neither, the table whose sizes add up to the file's length is the right one.
//! - Rotation pairs are those of the GGUF file (neighbours in a llama): the rows are that file's, whatever `rope_layout`
//!   says. A file made from a Hugging Face directory is refused, its rows and its output projection are laid out another way.
//! - Heads may be padded with rows, which are left out; other padding is refused, as no GGUF converter makes any.
//! - Tensors that are zero in every such model (positions, biases without a place) must be zero.

mod config;
mod header;
mod layout;
mod text;
mod vocab;
pub mod write;

pub use header::{Codes, Dims, MAGIC, Version, printed};

use super::dtype::Dtype;
use super::error::{FormatError, quote, show_path};
use super::gguf;
use super::hf;
use super::json::Fields;
use super::meta::Meta;
use super::source::{LoadMode, Source};
use super::{Gaps, Tensor};
use header::{FOOTER, FOOTER_MAGIC, Header, listed};
use layout::{Holds, Parts, Slot};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Bytes that are read at once.
const READ_AT_ONCE: usize = 1 << 20;

/// The files beside a file, each with its name for messages.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// `config.json`
    pub config: Option<(String, Json)>,
    /// the manifest
    pub manifest: Option<(String, Json)>,
    /// metadata of a GGUF file
    pub metadata: Option<Meta>,
}

/// What a file holds.
pub(super) struct Parsed {
    pub version: u32,
    pub data_start: u64,
    pub meta: Meta,
    pub tensors: Vec<Tensor>,
    pub gaps: Padded,
}

/// The first file of these names that is there.
fn first(dir: &Path, names: &[String]) -> Option<PathBuf> {
    names.iter().map(|n| dir.join(n)).find(|p| p.is_file())
}

/// The name of a file beside `NAME.bump`.
pub fn beside_name(bump: &Path, what: &str) -> PathBuf {
    let stem = bump.file_stem().unwrap_or_default().to_string_lossy();
    bump.with_file_name(format!("{stem}.{what}"))
}

/// Reads the files beside `path`. Gives the config's path too, for messages.
pub(super) fn beside(path: &Path, mode: LoadMode) -> Result<(Beside, Option<PathBuf>), FormatError> {
    let dir = path.parent().unwrap_or(Path::new(""));
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let find = |what: &str| first(dir, &[format!("{stem}.{what}"), what.to_string()]);
    let json =
        |path: Option<PathBuf>| path.map(|p| Ok::<_, FormatError>((show_path(&p), hf::read_json(&p)?))).transpose();
    let config = find("config.json");
    let metadata = match find(hf::METADATA) {
        Some(path) => Some(gguf::parse(&Source::open(&path, mode)?, 0)?.meta),
        None => None,
    };
    let manifest = json(find("manifest.json").or_else(|| find("weights_manifest.json")))?;
    Ok((Beside { config: json(config.clone())?, manifest, metadata }, config))
}

/// Whether a file begins as a BUMP file does.
pub(super) fn is_bump(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// Reads a part of the file that is known to be inside.
fn read(source: &Source, from: u64, len: u64, what: &str) -> Result<Vec<u8>, FormatError> {
    let mut out = vec![0u8; len as usize];
    source.read_at(from, &mut out, &|| format!("{what} at byte {from}"))?;
    Ok(out)
}

/// The SHA-256 of a range.
fn digest(source: &Source, from: u64, to: u64) -> Result<[u8; 32], FormatError> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; READ_AT_ONCE.min((to - from) as usize)];
    let mut at = from;
    while at < to {
        let n = (to - at).min(READ_AT_ONCE as u64) as usize;
        source.read_at(at, &mut buffer[..n], &|| format!("weights at byte {at}"))?;
        hash.update(&buffer[..n]);
        at += n as u64;
    }
    Ok(hash.finalize().into())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The hash of a JSON value in its canonical form.
fn json_hash(v: &Json) -> String {
    hex(&Sha256::digest(text::canonical(v)))
}

/// Reads header, table and the JSON that belongs to the file, and compares the checksum. `file` is stored in the tensors.
pub(super) fn parse(source: &Source, beside: &Beside, file: usize) -> Result<Parsed, FormatError> {
    let header = header::read(source)?;
    let mut dims = header.dims;
    let (end, inside) = match header.version {
        Version::V5 => {
            let (end, metadata) = metadata(source, &header)?;
            (end, Some(metadata))
        }
        _ => (source.len(), None),
    };
    let outer = match &beside.config {
        Some((name, v)) => Some(config::read(&Fields::of(name, v)?, false)?),
        None => None,
    };
    let inner = match &inside {
        Some(v) => {
            let f = Fields::of(source.name(), v)?;
            Some(config::read(&f.object("config")?.unwrap_or(Fields::none(source.name())), true)?)
        }
        None => None,
    };
    for config in inner.iter().chain(&outer) {
        config.agree(&mut dims, source.name())?;
    }
    let Some(config) = inner.as_ref().or(outer.as_ref()) else {
        return Err(FormatError::invalid(
            source.name(),
            "config.json",
            "missing: the file does not say its architecture",
            "config.json, or NAME.config.json for NAME.bump, beside it",
            "neither",
        ));
    };
    check_dims(source, &dims)?;
    let manifest = manifest(source, &header, inside.as_ref(), beside)?;
    let parts = match &manifest {
        // of the others the layout is known, whatever a manifest says
        Some(list) if header.vocab.is_some() => parts(&header, list),
        _ => Parts { positions: true, ..Parts::default() },
    };
    let (start, table) = table(source, &header, layout::table_len(&dims, parts.output), end)?;
    let found = digest(source, start, end)?;
    if found != header.checksum {
        return Err(FormatError::invalid(
            source.name(),
            format!("bytes {start} to {end}"),
            "the checksum is wrong: the file is damaged",
            format_args!("SHA-256 {}", hex(&header.checksum)),
            hex(&found),
        ));
    }
    let slots = layout::slots(&dims, &parts);
    let from = start + 4 + table.len() as u64;
    let (types, places) = place(source, header.version, &slots, &table, from, end)?;
    if let Some(list) = &manifest {
        compare(list, &slots, &types, &places)?;
    }
    let arch = config.arch()?.to_string();
    let held = Held { source, slots: &slots, types: &types, places: &places, dims: &dims, file };
    let (tensors, gaps) = held.tensors(arch == "qwen2", header.version)?;
    let mut meta = config.meta(&dims)?;
    // what says how the model computes is the file's; only names and tokeniser come from elsewhere
    if let Some(m) = &beside.metadata {
        let more = m.entries.iter().filter(|(k, _)| k.starts_with("general.") || k.starts_with("tokenizer."));
        let layout = ["general.alignment", "general.architecture", "general.file_type"];
        for (key, v) in more.filter(|(k, _)| !layout.contains(&k.as_str())) {
            meta.entries.retain(|(k, _)| k != key);
            meta.entries.push((key.clone(), v.clone()));
        }
    }
    if meta.get("tokenizer.ggml.model").is_none() && parts.vocab.is_some() {
        let special = match &beside.manifest {
            Some((name, v)) => Fields::of(name, v)?.object("special_tokens")?,
            None => None,
        };
        let special = special.unwrap_or(Fields::none(source.name()));
        meta.entries.extend(held.vocab()?.keys(source.name(), &special)?);
    }
    Ok(Parsed { version: header.version.number(), data_start: from, meta, tensors, gaps })
}

/// Refuses numbers that no file could have.
fn check_dims(source: &Source, d: &Dims) -> Result<(), FormatError> {
    for (what, key, v, most) in [
        ("number of key-value heads", "num_key_value_heads", d.kv_heads, d.heads),
        ("feed-forward width", "intermediate_size", d.ffn, 1 << 22),
    ] {
        if v == 0 || v > most {
            let found = if v == 0 { "nothing".to_string() } else { v.to_string() };
            let expected = format_args!("{key} in config.json, 1 to {most}");
            let what = format!("the {what} is missing or cannot be");
            return Err(FormatError::invalid(source.name(), "header", what, expected, found));
        }
    }
    if !d.heads.is_multiple_of(d.kv_heads) {
        let found = format_args!("{} for {}", d.kv_heads, d.heads);
        let what = "key-value heads that queries cannot share evenly";
        return Err(FormatError::invalid(source.name(), "header", what, "a divisor of the heads", found));
    }
    Ok(())
}

/// The metadata of version 5 and where they begin.
fn metadata(source: &Source, header: &Header) -> Result<(u64, Json), FormatError> {
    let file = source.name();
    let least = header.starts[0] + 4 + FOOTER;
    if source.len() < least {
        let what = "the file ends before its footer";
        return Err(FormatError::invalid(file, "footer", what, format_args!("at least {least} bytes"), source.len()));
    }
    let at = source.len() - FOOTER;
    let footer = read(source, at, FOOTER, "footer")?;
    let place = |at: u64| format!("footer at byte {at}");
    if footer[..8] != FOOTER_MAGIC {
        let found = format!("\"{}\"", footer[..8].escape_ascii());
        return Err(FormatError::invalid(file, place(at), "no footer", "\"BUMPV5MD\" 48 bytes before the end", found));
    }
    let size = footer[8..16].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let most = (source.len() - least).min(hf::MAX_CONFIG);
    if size > most {
        let expected = format_args!("at most {most} bytes");
        return Err(FormatError::invalid(file, place(at + 8), "the metadata do not fit the file", expected, size));
    }
    let bytes = read(source, at - size, size, "metadata")?;
    let found = Sha256::digest(&bytes);
    if footer[16..] != found[..] {
        let expected = format!("SHA-256 {}", hex(&footer[16..]));
        return Err(FormatError::invalid(
            file,
            place(at + 16),
            "the hash of the metadata is wrong",
            expected,
            hex(&found),
        ));
    }
    let v = hf::json_value(Path::new(file), &bytes)?;
    let f = Fields::of(file, &v)?;
    for key in ["schema_version", "template", "template_hash", "config", "quant_summary", "manifest_hash"] {
        if f.get(key).is_none() {
            let place = format!("metadata at byte {}", at - size);
            return Err(FormatError::invalid(
                file,
                place,
                format!("{key} is missing"),
                "the metadata of version 5",
                "none",
            ));
        }
    }
    if f.whole("schema_version")? != Some(1) {
        return Err(FormatError::unsupported(
            file,
            "another schema_version than 1 in the metadata",
            "write the file again",
        ));
    }
    let hash = f.get("template").map(json_hash).unwrap_or_default();
    if f.text("template_hash")? != Some(&hash) {
        let found = quote(f.text("template_hash")?.unwrap_or(""));
        return Err(FormatError::invalid(file, "template_hash", "not the hash of the template", hash, found));
    }
    Ok((at - size, v))
}

/// One line of a manifest.
struct Listed {
    /// the manifest, for messages
    file: String,
    name: String,
    dtype: String,
    offset: u64,
    size: u64,
}

/// The manifest, where the file needs one or has one.
fn manifest(
    source: &Source,
    header: &Header,
    inside: Option<&Json>,
    beside: &Beside,
) -> Result<Option<Vec<Listed>>, FormatError> {
    let Some((name, v)) = &beside.manifest else {
        // the layout of the others follows from their headers
        if header.vocab.is_none() {
            return Ok(None);
        }
        return Err(FormatError::invalid(
            source.name(),
            "manifest.json",
            "missing: only it says where the tensors are",
            "manifest.json or weights_manifest.json, or NAME.manifest.json for NAME.bump, beside it",
            "none of them",
        ));
    };
    if let Some(v5) = inside {
        let hash = json_hash(v);
        let expected = Fields::of(source.name(), v5)?.text("manifest_hash")?.unwrap_or("").to_string();
        if hash != expected {
            let what = "not the manifest of this file";
            let expected = format!("one with the hash {}", quote(&expected));
            return Err(FormatError::invalid(name, "whole file", what, expected, hash));
        }
    }
    let f = Fields::of(name, v)?;
    let entries = f.list("entries")?.unwrap_or_default();
    let mut out = Vec::with_capacity(entries.len());
    for (i, entry) in entries.iter().enumerate() {
        let e = Fields::of(name, entry)?;
        let missing = |key: &str| {
            FormatError::invalid(
                name,
                format!("entry {i}"),
                format!("{key} is missing"),
                "name, dtype, file_offset, size",
                "none",
            )
        };
        out.push(Listed {
            file: name.clone(),
            name: e.text("name")?.ok_or_else(|| missing("name"))?.to_string(),
            dtype: e.text("dtype")?.ok_or_else(|| missing("dtype"))?.to_string(),
            offset: e.whole("file_offset")?.ok_or_else(|| missing("file_offset"))?,
            size: e.whole("size")?.ok_or_else(|| missing("size"))?,
        });
    }
    Ok(Some(out))
}

/// The parts that a manifest lists.
fn parts(header: &Header, list: &[Listed]) -> Parts {
    let has = |name: &str| list.iter().any(|e| e.name == name);
    Parts {
        output: has("output.weight"),
        positions: has("pos_emb"),
        head_norms: has("layer.0.q_norm"),
        vocab: header.vocab.map(|(merges, bytes)| (bytes, merges)).filter(|_| has("vocab_offsets")),
        scores: has("vocab_scores"),
        types: has("vocab_types"),
    }
}

/// Where the dtype table begins, and its bytes.
fn table(source: &Source, header: &Header, len: u64, end: u64) -> Result<(u64, Vec<u8>), FormatError> {
    let mut seen = Vec::new();
    for &start in header.starts {
        if start + 4 > end {
            continue;
        }
        let bytes = read(source, start, 4, "length of the dtype table")?;
        let n = bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        if n == len && start + 4 + len <= end {
            return Ok((start, read(source, start + 4, len, "dtype table")?));
        }
        seen.push(format!("{n} at byte {start}"));
    }
    Err(FormatError::invalid(
        source.name(),
        format!("dtype table at byte {}", header.starts[0]),
        "its length does not follow from the number of layers, or the file ends inside it",
        format_args!("{len} entries before byte {end}"),
        if seen.is_empty() { "no room for it".to_string() } else { seen.join(", ") },
    ))
}

/// Types and (offset, bytes) of all slots.
type Placed = (Vec<Dtype>, Vec<(u64, u64)>);

/// Types by the table of codes that fits, and places one after the other.
fn place(
    source: &Source,
    version: Version,
    slots: &[Slot],
    table: &[u8],
    from: u64,
    end: u64,
) -> Result<Placed, FormatError> {
    let candidates: &[Codes] = match version {
        Version::V3 => match (table.contains(&6), table.contains(&8)) {
            (true, true) => {
                return Err(FormatError::invalid(
                    source.name(),
                    "dtype table",
                    "codes of both tables of version 3",
                    "6 and 7 for Q4_K and Q6_K, or 7 and 8",
                    "6 and 8",
                ));
            }
            (true, false) => &[Codes::First],
            (false, true) => &[Codes::Later],
            _ => &[Codes::First, Codes::Later],
        },
        _ => &[Codes::Later],
    };
    let mut totals = Vec::new();
    for &codes in candidates {
        match place_by(source.name(), version, codes, slots, table, from) {
            Ok((placed, to)) if to == end => return Ok(placed),
            Ok((_, to)) => totals.push(to.to_string()),
            Err(e) if codes == candidates[candidates.len() - 1] && totals.is_empty() => return Err(e),
            Err(_) => {}
        }
    }
    Err(FormatError::invalid(
        source.name(),
        format!("tensors from byte {from} on"),
        "their sizes do not add up to the file",
        format_args!("an end at byte {end}"),
        totals.join(" or "),
    ))
}

/// As [`place`] by one table of codes, with where the last slot ends.
fn place_by(
    file: &str,
    version: Version,
    codes: Codes,
    slots: &[Slot],
    table: &[u8],
    from: u64,
) -> Result<(Placed, u64), FormatError> {
    let (mut types, mut out, mut at) = (Vec::new(), Vec::new(), from);
    for (slot, entry) in slots.iter().zip(layout::table_places(slots, version)) {
        let wrong = |what: String, expected: &str, found: String| {
            FormatError::invalid(file, format!("tensor {}", quote(&slot.name)), what, expected, found)
        };
        let dtype = match entry {
            None => Dtype::F32,
            Some(i) => {
                let code = table[i];
                let known = codes.dtype(code);
                known.ok_or_else(|| {
                    let what = if matches!(code, 3 | 4) { "a type without blocks here" } else { "unknown dtype code" };
                    wrong(
                        what.into(),
                        "a code of a float or ggml type",
                        format!("{code} as entry {i} of the dtype table"),
                    )
                })?
            }
        };
        let v3 = ["F32", "Q4_K", "Q6_K"].contains(&dtype.name());
        if version == Version::V3 && !v3 {
            return Err(wrong("a type version 3 does not have".into(), "FP32, Q4_K or Q6_K", dtype.to_string()));
        }
        let bytes = match slot.holds {
            Holds::Matrix { cols, rows, .. } => {
                let row = dtype.bytes_for(cols).ok_or_else(|| {
                    wrong(format!("rows of {cols} are not whole blocks"), "a whole number of them", dtype.to_string())
                })?;
                row.checked_mul(rows)
            }
            Holds::Vocab { bytes, .. } => Some(bytes),
            _ if dtype != Dtype::F32 => {
                return Err(wrong("a type only a matrix may have".into(), "FP32", dtype.to_string()));
            }
            Holds::Vector { len } | Holds::Bias { len, .. } | Holds::Zeros { len } | Holds::HeadNorm { len, .. } => {
                Some(len * 4)
            }
        };
        let next = bytes.and_then(|b| at.checked_add(b));
        let (Some(bytes), Some(next)) = (bytes, next) else {
            return Err(wrong("its end overflows".into(), "an end below 2^64", format!("byte {at} and what it holds")));
        };
        types.push(dtype);
        out.push((at, bytes));
        at = next;
    }
    Ok(((types, out), at))
}

/// A manifest must say of every tensor what the layout says.
fn compare(list: &[Listed], slots: &[Slot], types: &[Dtype], places: &[(u64, u64)]) -> Result<(), FormatError> {
    let said = |name: &str, dtype: &str, (at, bytes): (u64, u64)| format!("{name} {dtype}, {bytes} bytes at byte {at}");
    let file = list.first().map_or("manifest.json", |e| e.file.as_str());
    for (i, slot) in slots.iter().enumerate() {
        let dtype = match slot.holds {
            Holds::Vocab { dtype, .. } => dtype.to_string(),
            _ => listed(types[i]),
        };
        let expected = said(&slot.name, &dtype, places[i]);
        let found = list.get(i).map(|e| said(&e.name, &e.dtype, (e.offset, e.size)));
        if found.as_ref() != Some(&expected) {
            let found = found.map_or("no such entry".to_string(), |f| quote(&f));
            let what = "the manifest contradicts the file";
            return Err(FormatError::invalid(file, format!("entry {i}"), what, expected, found));
        }
    }
    match list.get(slots.len()) {
        None => Ok(()),
        Some(e) => Err(FormatError::invalid(
            file,
            format!("entry {}", slots.len()),
            "more entries than the file has tensors",
            slots.len(),
            quote(&e.name),
        )),
    }
}

/// Tensors with padding in them, by name.
type Padded = Vec<(String, Gaps)>;

/// Slots with their places.
struct Held<'a> {
    source: &'a Source,
    slots: &'a [Slot],
    types: &'a [Dtype],
    places: &'a [(u64, u64)],
    dims: &'a Dims,
    file: usize,
}

impl Held<'_> {
    /// The tensors under GGUF's names, and those with padding. `biases`: whether the model has some on queries, keys and
    /// values.
    ///
    /// Errors: something that must be zero and is not.
    fn tensors(&self, biases: bool, version: Version) -> Result<(Vec<Tensor>, Padded), FormatError> {
        let (mut out, mut gaps) = (Vec::new(), Vec::new());
        let mut lost = biases && version == Version::V3;
        for ((slot, &dtype), &place) in self.slots.iter().zip(self.types).zip(self.places) {
            let (offset, bytes) = place;
            let tensor = |name: String, shape: Vec<u64>, offset: u64, bytes: u64| Tensor {
                name,
                dtype,
                shape,
                bytes,
                offset,
                file: self.file,
            };
            let name = layout::gguf_name(&slot.name);
            match (slot.holds, name) {
                (Holds::Matrix { cols, rows, head }, Some(name)) => {
                    let row = bytes / rows;
                    let kept = head.map_or(rows, |(plain, aligned)| rows / aligned * plain);
                    if let Some((plain, aligned)) = head {
                        gaps.push((name.clone(), Gaps { run: plain * row, step: aligned * row }));
                    }
                    out.push(tensor(name, vec![cols, kept], offset, kept * row));
                }
                (Holds::Matrix { cols, rows, .. }, None) => {
                    let half = bytes / 2;
                    for (i, name) in layout::gate_up(&slot.name).into_iter().flatten().enumerate() {
                        out.push(tensor(name, vec![cols, rows / 2], offset + i as u64 * half, half));
                    }
                }
                (Holds::Vector { len }, Some(name)) => out.push(tensor(name, vec![len], offset, bytes)),
                (Holds::HeadNorm { plain, .. }, Some(name)) => out.push(tensor(name, vec![plain], offset, plain * 4)),
                (Holds::Bias { len, head }, Some(name)) if biases => {
                    lost &= self.nonzero(place)?.is_none();
                    let kept = head.map_or(len, |(plain, aligned)| len / aligned * plain);
                    if let Some((plain, aligned)) = head {
                        gaps.push((name.clone(), Gaps { run: plain * 4, step: aligned * 4 }));
                    }
                    out.push(tensor(name, vec![kept], offset, kept * 4));
                }
                (Holds::Bias { .. } | Holds::Zeros { .. }, _) => {
                    if let Some(at) = self.nonzero(place)? {
                        return Err(FormatError::invalid(
                            self.source.name(),
                            format!("tensor {} at byte {at}", quote(&slot.name)),
                            "a value that no model of this architecture has a place for",
                            "zeros",
                            "another value",
                        ));
                    }
                }
                (Holds::Vocab { .. } | Holds::Vector { .. } | Holds::HeadNorm { .. }, _) => {}
            }
        }
        if lost {
            log::warn!(
                "{}: all biases are zero: writers of version 3 leave them out, so these are not the model's logits",
                self.source.name()
            );
        }
        Ok((out, gaps))
    }

    /// The first byte of a range that is not zero.
    fn nonzero(&self, (offset, bytes): (u64, u64)) -> Result<Option<u64>, FormatError> {
        let mut buffer = vec![0u8; (bytes as usize).min(READ_AT_ONCE)];
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let n = (end - at).min(READ_AT_ONCE as u64) as usize;
            self.source.read_at(at, &mut buffer[..n], &|| format!("zeros at byte {at}"))?;
            if let Some(i) = buffer[..n].iter().position(|b| *b != 0) {
                return Ok(Some(at + i as u64));
            }
            at += n as u64;
        }
        Ok(None)
    }

    /// The parts of the vocabulary.
    fn vocab(&self) -> Result<vocab::Vocab, FormatError> {
        if self.dims.vocab > vocab::MAX_TOKENS {
            let most = format_args!("at most {} tokens", vocab::MAX_TOKENS);
            return Err(FormatError::invalid(
                self.source.name(),
                "vocabulary",
                "too many tokens",
                most,
                self.dims.vocab,
            ));
        }
        let part = |name: &str| match self.slots.iter().position(|s| s.name == name) {
            Some(i) => read(self.source, self.places[i].0, self.places[i].1, name),
            None => Ok(vec![]),
        };
        Ok(vocab::Vocab {
            offsets: part("vocab_offsets")?,
            strings: part("vocab_strings")?,
            scores: part("vocab_scores")?,
            types: part("vocab_types")?,
            merges: part("vocab_merges")?,
        })
    }
}
