//! Importance matrices: how much each column of a weight matrix matters, as llama.cpp's tools keep it.
//!
//! Two formats, told apart by GGUF's magic. The GGUF one has of each weight tensor `NAME` two tensors of F32:
//! `NAME.in_sum2` `[columns, matrices]`, the sum over tokens of the square of what column j met, and `NAME.counts`
//! `[1, matrices]`, how many tokens that were; the key `general.type` is `imatrix`, and `imatrix.datasets`,
//! `imatrix.chunk_count` and `imatrix.chunk_size` are there. The older one has no magic: the number of entries (i32), of
//! each the length of its name, the name, a number of calls, the number of values and the values (f32), which are sum /
//! count times calls; then, or not, the number of chunks, and the length and the name of the text. The experts of a layer
//! are matrices of one tensor, one after the other.
//!
//! An importance is sum / count in f32, and 1 for a matrix that met no token. Anything else than finite numbers that are
//! not negative is refused, and every length is held against the bytes that are left.

use super::error::{FormatError, quote};
use super::gguf_write::{self, Entry};
use super::meta::{Meta, Value};
use super::source::{LoadMode, Source};
use super::{Container, Dtype, gguf};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// What the name of a tensor of sums ends with, after the weight's.
const SUMS: &str = ".in_sum2";
/// What the name of a tensor of counts ends with.
const COUNTS: &str = ".counts";
/// Bytes of the name of a text, at most.
const MAX_DATASET: u64 = 64 << 10;

/// The importances of a model's columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Imatrix {
    /// the file, for messages and metadata
    pub file: String,
    /// the texts it was made with
    pub datasets: Vec<String>,
    /// pieces of text that were run, where the file says it
    pub chunks: Option<u32>,
    entries: BTreeMap<String, Arc<[f32]>>,
}

impl Imatrix {
    /// Reads a file of either format.
    pub fn open(path: &Path) -> Result<Imatrix, FormatError> {
        Imatrix::read(Source::open(path, LoadMode::Read)?, || Container::open(path, LoadMode::Read))
    }

    /// As [`Imatrix::open`], of a file in memory; `name` stands for it in messages.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Imatrix, FormatError> {
        Imatrix::read(Source::bytes(name, Cow::Owned(bytes.clone())), || Container::from_bytes(name, Cow::Owned(bytes)))
    }

    fn read(source: Source, open: impl FnOnce() -> Result<Container, FormatError>) -> Result<Imatrix, FormatError> {
        let mut magic = [0; 4];
        let n = magic.len().min(source.len() as usize);
        source.read_at(0, &mut magic[..n], &|| "the magic".into())?;
        let file = source.name().to_string();
        match magic {
            gguf::MAGIC => of_gguf(file, &open()?),
            _ => Legacy { source, at: 0 }.read(file),
        }
    }

    /// The importances of a weight tensor's columns, of all its matrices one after the other.
    pub fn get(&self, name: &str) -> Option<&Arc<[f32]>> {
        self.entries.get(name)
    }

    /// The names of the tensors it knows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Tensors it knows.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it knows none: never, of one that was read.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn fail(
    file: &str,
    place: impl Into<String>,
    what: &str,
    expected: impl std::fmt::Display,
    found: impl std::fmt::Display,
) -> FormatError {
    FormatError::invalid(file, place, what, expected, found)
}

/// Refuses what is no importance.
fn sound(file: &str, name: &str, values: &[f32]) -> Result<(), FormatError> {
    match values.iter().position(|v| !v.is_finite() || *v < 0.0) {
        None => Ok(()),
        Some(i) => {
            let place = format!("{} value {i}", quote(name));
            Err(fail(file, place, "not an importance", "a finite number, 0 or more", values[i]))
        }
    }
}

// ---------------------------------------------------------------- GGUF

fn of_gguf(file: String, c: &Container) -> Result<Imatrix, FormatError> {
    let kind = c.meta.str("general.type");
    if kind != Some("imatrix") {
        let found = kind.map_or("none".into(), quote);
        return Err(fail(&file, "general.type", "no importance matrix", "\"imatrix\"", found));
    }
    let key = |key: &str| fail(&file, key, "a key that every importance matrix has", "to be there", "nothing");
    let datasets = c.meta.strings("imatrix.datasets").ok_or_else(|| key("imatrix.datasets"))?.to_vec();
    let count = |name: &str| c.meta.uint(name).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| key(name));
    let chunks = count("imatrix.chunk_count")?;
    count("imatrix.chunk_size")?;
    let mut entries = BTreeMap::new();
    for t in &c.tensors {
        let (name, other) = match (t.name.strip_suffix(SUMS), t.name.strip_suffix(COUNTS)) {
            (Some(name), _) => (name, COUNTS),
            (None, Some(name)) => (name, SUMS),
            (None, None) => continue,
        };
        let partner = c.tensor(&format!("{name}{other}"));
        let alone =
            || fail(&file, format!("tensor {}", quote(&t.name)), "one of two", format!("{name}{other}"), "none");
        let partner = partner.ok_or_else(alone)?;
        if other == COUNTS {
            entries.insert(name.to_string(), importances(&file, c, t, partner)?);
        }
    }
    if entries.is_empty() {
        return Err(fail(&file, "tensor table", "no importances", format!("tensors NAME{SUMS}"), "none"));
    }
    Ok(Imatrix { file, datasets, chunks: Some(chunks), entries })
}

/// sum / count of each column of each matrix.
fn importances(
    file: &str,
    c: &Container,
    sums: &super::Tensor,
    counts: &super::Tensor,
) -> Result<Arc<[f32]>, FormatError> {
    let columns = sums.shape.first().copied().unwrap_or(1);
    let matrices = counts.elems();
    let fits = columns > 0
        && matrices > 0
        && sums.shape.len() <= 2
        && counts.shape.len() <= 2
        && sums.shape.get(1).copied().unwrap_or(1) == matrices
        && counts.shape.first().is_none_or(|n| *n == 1 || counts.shape.len() == 1);
    if !fits || sums.dtype != Dtype::F32 || counts.dtype != Dtype::F32 {
        let said = |t: &super::Tensor| format!("{} {:?}", t.dtype, t.shape);
        let place = format!("tensor {}", quote(&sums.name));
        let found = format!("{} and {}", said(sums), said(counts));
        return Err(fail(file, place, "shapes", "sums F32 [columns, n] and counts F32 [1, n]", found));
    }
    let read = |t: &super::Tensor| -> Result<Vec<f32>, FormatError> {
        let mut bytes = vec![0; t.bytes as usize];
        c.read(t, 0, &mut bytes)?;
        let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        sound(file, &t.name, &values)?;
        Ok(values)
    };
    let (mut values, counts) = (read(sums)?, read(counts)?);
    for (of_matrix, count) in values.chunks_exact_mut(columns as usize).zip(counts) {
        let count = count.round();
        if count > 0.0 {
            of_matrix.iter_mut().for_each(|v| *v /= count);
        } else {
            of_matrix.fill(1.0);
        }
    }
    sound(file, &sums.name, &values)?;
    Ok(values.into())
}

// ---------------------------------------------------------------- the older format

/// A place in a file without magic.
struct Legacy {
    source: Source,
    at: u64,
}

impl Legacy {
    fn left(&self) -> u64 {
        self.source.len().saturating_sub(self.at)
    }

    fn bytes(&mut self, n: u64, what: &str) -> Result<Vec<u8>, FormatError> {
        if n > self.left() {
            return Err(self.wrong(what, format!("{n} bytes"), format!("{} to the end of the file", self.left())));
        }
        let mut bytes = vec![0; n as usize];
        self.source.read_at(self.at, &mut bytes, &|| format!("{what} at byte {}", self.at))?;
        self.at += n;
        Ok(bytes)
    }

    fn wrong(&self, what: &str, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> FormatError {
        let file = self.source.name();
        fail(file, format!("byte {}", self.at), &format!("no importance matrix: {what}"), expected, found)
    }

    /// A number from `low` to `high`.
    fn number(&mut self, what: &str, low: i32, high: u64) -> Result<i32, FormatError> {
        let bytes = self.bytes(4, what)?;
        let n = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if n < low || i64::from(n) > high.min(i64::MAX as u64) as i64 {
            self.at -= 4;
            return Err(self.wrong(what, format!("{low} to {high}"), n));
        }
        Ok(n)
    }

    fn text(&mut self, what: &str, low: i32, most: u64) -> Result<String, FormatError> {
        let n = self.number(&format!("length of the {what}"), low, most.min(self.left()))?;
        let bytes = self.bytes(n as u64, what)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn read(mut self, file: String) -> Result<Imatrix, FormatError> {
        // an entry has a name of a byte and one value at least
        let n = self.number("number of entries", 1, self.left() / 17)?;
        let mut entries = BTreeMap::new();
        for _ in 0..n {
            let name = self.text("name", 1, gguf::MAX_NAME_BYTES)?;
            let calls = self.number("number of calls", 0, i32::MAX as u64)?;
            let values = self.number("number of values", 1, self.left() / 4)?;
            let bytes = self.bytes(values as u64 * 4, "values")?;
            let mut values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            sound(&file, &name, &values)?;
            if calls > 0 {
                values.iter_mut().for_each(|v| *v /= calls as f32);
            }
            if entries.insert(name.clone(), values.into()).is_some() {
                return Err(self.wrong("an entry", "one of each name", quote(&name)));
            }
        }
        let (mut chunks, mut datasets) = (None, vec![]);
        if self.left() > 0 {
            chunks = u32::try_from(self.number("number of chunks", 0, i32::MAX as u64)?).ok();
            datasets.push(self.text("name of the text", 0, MAX_DATASET)?);
        }
        if self.left() > 0 {
            return Err(self.wrong("its end", "the end of the file", format!("{} bytes more", self.left())));
        }
        Ok(Imatrix { file, datasets, chunks, entries })
    }
}

// ---------------------------------------------------------------- writing

/// What the columns of a weight tensor met.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    /// over tokens, the square of what each column of each matrix met, `[matrices][columns]`
    pub in_sum2: Vec<f32>,
    /// the tokens of each matrix
    pub counts: Vec<u32>,
}

/// What is said of a whole importance matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// names of the texts
    pub datasets: Vec<String>,
    /// pieces of text that were run
    pub chunks: u32,
    /// tokens of each
    pub chunk_size: u32,
}

/// The bytes of a file in the GGUF format.
///
/// Errors: a name that GGUF cannot hold.
pub fn to_gguf(file: &str, about: &About, sums: &BTreeMap<String, Sums>) -> Result<Vec<u8>, FormatError> {
    let entries = vec![
        ("general.type".to_string(), Value::Str("imatrix".into())),
        ("imatrix.datasets".into(), Value::StrArray(about.datasets.clone())),
        ("imatrix.chunk_count".into(), Value::U32(about.chunks)),
        ("imatrix.chunk_size".into(), Value::U32(about.chunk_size)),
    ];
    let mut tensors: Vec<(Entry, Vec<f32>)> = Vec::new();
    for (name, s) in sums {
        let matrices = s.counts.len().max(1) as u64;
        let columns = s.in_sum2.len() as u64 / matrices;
        let entry = |suffix: &str, shape| Entry {
            name: format!("{name}{suffix}"),
            dtype: Dtype::F32,
            shape: vec![shape, matrices],
        };
        tensors.push((entry(SUMS, columns), s.in_sum2.clone()));
        tensors.push((entry(COUNTS, 1), s.counts.iter().map(|n| *n as f32).collect()));
    }
    let list: Vec<Entry> = tensors.iter().map(|(e, _)| e.clone()).collect();
    let head = gguf_write::head(file, &Meta { entries }, &list)?;
    let mut out = head.bytes;
    for ((_, values), at) in tensors.iter().zip(&head.offsets) {
        out.resize(*at as usize, 0);
        out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }
    out.resize(head.file_len as usize, 0);
    Ok(out)
}

/// The bytes of a file in the older format.
pub fn to_legacy(about: &About, sums: &BTreeMap<String, Sums>) -> Vec<u8> {
    let mut out = (sums.len() as u32).to_le_bytes().to_vec();
    let text = |out: &mut Vec<u8>, s: &str| {
        out.extend((s.len() as u32).to_le_bytes());
        out.extend(s.as_bytes());
    };
    for (name, s) in sums {
        let most = s.counts.iter().copied().max().unwrap_or(0);
        let calls = most.div_ceil(about.chunk_size.max(1));
        text(&mut out, name);
        out.extend(calls.to_le_bytes());
        out.extend((s.in_sum2.len() as u32).to_le_bytes());
        let columns = s.in_sum2.len() / s.counts.len().max(1);
        for (of_matrix, count) in s.in_sum2.chunks_exact(columns.max(1)).zip(&s.counts) {
            let mean = |v: f32| if *count > 0 { v / *count as f32 } else { 1.0 };
            out.extend(of_matrix.iter().flat_map(|v| (mean(*v) * calls as f32).to_le_bytes()));
        }
    }
    out.extend(about.chunks.to_le_bytes());
    text(&mut out, about.datasets.last().map_or("", String::as_str));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const GGUF: &[u8] = include_bytes!("../../tests/data/vectors/imatrix/sample.gguf");
    const LEGACY: &[u8] = include_bytes!("../../tests/data/vectors/imatrix/sample.dat");
    const EXPECTED: &[u8] = include_bytes!("../../tests/data/vectors/imatrix/sample_expected.f32");

    #[test]
    fn both_formats_give_the_importances_that_llama_cpps_loader_gives() {
        for (bytes, name) in [(GGUF, "sample.gguf"), (LEGACY, "sample.dat")] {
            let m = Imatrix::from_bytes(name, bytes.to_vec()).unwrap();
            assert_eq!(
                (m.len(), m.chunks, &m.datasets[..]),
                (3, Some(3), &["calibration.txt".to_string()][..]),
                "{name}"
            );
            let names = ["blk.0.attn_q.weight", "blk.0.ffn_down.weight", "blk.0.ffn_down_exps.weight"];
            let all: Vec<u8> =
                names.iter().flat_map(|n| m.get(n).unwrap().iter().flat_map(|v| v.to_le_bytes())).collect();
            assert_eq!(all, EXPECTED, "{name}");
            assert_eq!(m.names().collect::<Vec<_>>(), names);
        }
    }

    fn sums() -> (About, BTreeMap<String, Sums>) {
        let about = About { datasets: vec!["text.txt".into()], chunks: 3, chunk_size: 64 };
        let plain = Sums { in_sum2: (0..40).map(|i| i as f32 * 0.7).collect(), counts: vec![192] };
        let experts = Sums { in_sum2: (0..30).map(|i| 1.0 / (1.0 + i as f32)).collect(), counts: vec![150, 0, 42] };
        (about, [("b.weight".to_string(), plain), ("a_exps.weight".to_string(), experts)].into())
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (about, sums) = sums();
        let new = Imatrix::from_bytes("new", to_gguf("new", &about, &sums).unwrap()).unwrap();
        let old = Imatrix::from_bytes("old", to_legacy(&about, &sums)).unwrap();
        for m in [&new, &old] {
            assert_eq!((m.chunks, &m.datasets[..]), (Some(3), &["text.txt".to_string()][..]));
        }
        let plain = new.get("b.weight").unwrap();
        assert_eq!(plain[7], 7.0 * 0.7 / 192.0);
        let experts = new.get("a_exps.weight").unwrap();
        assert_eq!(experts.len(), 30);
        assert!(experts[10..20].iter().all(|v| *v == 1.0), "an expert that met no token");
        for (name, v) in &new.entries {
            // the older format rounds once more
            let other = old.get(name).unwrap();
            assert!(v.iter().zip(other.iter()).all(|(a, b)| (a - b).abs() <= a * 3e-7), "{name}");
        }
    }

    #[test]
    fn every_cut_and_every_wild_length_is_refused() {
        for bytes in [GGUF, LEGACY] {
            // the end of a GGUF file is padding
            for n in 0..bytes.len() - 32 {
                // the older format's last two fields may be absent, together
                let whole = bytes == LEGACY && n == LEGACY.len() - 4 - 4 - "calibration.txt".len();
                assert_eq!(Imatrix::from_bytes("cut", bytes[..n].to_vec()).is_ok(), whole, "{n}");
            }
        }
        let longer = [LEGACY, &[0]].concat();
        assert!(Imatrix::from_bytes("longer", longer).unwrap_err().to_string().contains("end"));
        // number of entries, length of a name, number of values
        for at in [0, 4, 4 + 4 + 19 + 4] {
            for wild in [-1i32, 0, i32::MAX, i32::MIN, 1 << 20] {
                let mut bytes = LEGACY.to_vec();
                bytes[at..at + 4].copy_from_slice(&wild.to_le_bytes());
                let e = Imatrix::from_bytes("wild", bytes).unwrap_err().to_string();
                assert!(e.starts_with("wild: byte") && e.contains("no importance matrix"), "{e}");
            }
        }
    }

    #[test]
    fn what_is_no_importance_is_refused() {
        let (about, sums) = sums();
        for bad in [f32::NAN, f32::INFINITY, -1.0, -1e-30] {
            let mut sums = sums.clone();
            sums.get_mut("b.weight").unwrap().in_sum2[5] = bad;
            let e = Imatrix::from_bytes("x", to_gguf("x", &about, &sums).unwrap()).unwrap_err().to_string();
            assert!(e.contains("b.weight") && e.contains("value 5"), "{e}");
            let e = Imatrix::from_bytes("x", to_legacy(&about, &sums)).unwrap_err().to_string();
            assert!(e.contains("b.weight") && e.contains("value 5"), "{e}");
        }
        // a model is none, nor is a file without its keys, with half of an entry or with none
        let model = include_bytes!("../../tests/data/gguf/tiny-llama-kquant-v3.gguf");
        let e = Imatrix::from_bytes("m.gguf", model.to_vec()).unwrap_err().to_string();
        assert!(e.contains("general.type") && e.contains("imatrix"), "{e}");
        let named = |from: &str, to: &str| {
            let mut bytes = to_gguf("x", &about, &sums).unwrap();
            let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            Imatrix::from_bytes("x", bytes).unwrap_err().to_string()
        };
        for key in ["imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"] {
            assert!(named(key, &key.replace('i', "j")).contains(key));
        }
        assert!(named("b.weight.counts", "c.weight.counts").contains("b.weight"));
        assert!(to_gguf("x", &about, &BTreeMap::new()).map(|b| Imatrix::from_bytes("x", b)).unwrap().is_err());
        // three matrices by one tensor, two by the other
        let mut bytes = to_gguf("x", &about, &sums).unwrap();
        let name = b"a_exps.weight.counts";
        let at = bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len() + 4 + 8;
        assert_eq!(bytes[at], 3);
        bytes[at] = 2;
        let e = Imatrix::from_bytes("x", bytes).unwrap_err().to_string();
        assert!(e.contains("a_exps.weight.in_sum2") && e.contains("[10, 3]") && e.contains("[1, 2]"), "{e}");
    }
}
