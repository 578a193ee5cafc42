//! safetensors files: a length, a JSON header, data.
//!
//! Only the header is read. Its entries are decoded by the `safetensors` crate's own types, so that field names,
//! dtypes and numbers mean what the reference says; the map around them is walked here, because the reference lets
//! the later of two equal names win, orders empty tensors by chance, and wants the whole file in memory.
//!
//! Stricter than the reference: the header begins with `{`; no name or metadata key occurs twice; at most 32 MiB of header (the
//! reference: 100 MB), 65,536 tensors, 4096 metadata strings, 16 dimensions and 2^20 commas. As in the reference the ranges must cover the
//! data exactly, without holes, overlaps or trailing bytes, and unknown fields of an entry are ignored.
//!
//! Shapes are turned round into GGUF's order, fastest dimension first. Tensors come in order of their data, those
//! without bytes by name.

use super::Tensor;
use super::dtype::Dtype;
use super::error::{FormatError, plain, quote};
use super::index::NameIndex;
use super::meta::{Meta, Value};
use super::source::Source;
use safetensors::tensor::TensorInfo;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use std::fmt;

/// Longest JSON header, in bytes.
pub const MAX_HEADER: u64 = 32 << 20;
/// Most tensors of a file.
pub const MAX_TENSORS: usize = 65_536;
/// Most dimensions of a tensor.
pub const MAX_DIMS: usize = 16;
/// Most entries of `__metadata__`.
const MAX_STRINGS: usize = 4096;
/// Most commas in a header: what a JSON value costs in memory is bounded through them.
const MAX_COMMAS: usize = 1 << 20;

/// What one file holds. Offsets are absolute in the file.
pub(super) struct Parsed {
    /// the strings of `__metadata__`
    pub meta: Meta,
    pub data_start: u64,
    pub tensors: Vec<Tensor>,
}

/// A JSON object of strings.
struct Strings(Vec<(String, Value)>);

impl<'de> serde::Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strings, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Strings;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strings, A::Error> {
                let mut out: Vec<(String, Value)> = Vec::new();
                let mut index = NameIndex::with_capacity(MAX_STRINGS);
                while let Some(key) = map.next_key::<String>()? {
                    if out.len() == MAX_STRINGS {
                        return Err(A::Error::custom(format!("more than {MAX_STRINGS} strings")));
                    }
                    if index.insert(&key, out.len(), |i| &out[i].0).is_some() {
                        return Err(A::Error::custom(format!("{} occurs twice", quote(&key))));
                    }
                    out.push((key, Value::Str(map.next_value()?)));
                }
                Ok(Strings(out))
            }
        }
        deserializer.deserialize_map(V)
    }
}

/// The header's object, entry by entry.
struct Header {
    meta: Option<Strings>,
    tensors: Vec<(String, TensorInfo)>,
}

impl<'de> Visitor<'de> for Header {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Header, A::Error> {
        let mut seen = false;
        while let Some(name) = map.next_key::<String>()? {
            let within = |e: A::Error| A::Error::custom(format!("in {}: {e}", quote(&name)));
            if name == "__metadata__" {
                if seen {
                    return Err(A::Error::custom("\"__metadata__\" occurs twice"));
                }
                seen = true;
                self.meta = map.next_value::<Option<Strings>>().map_err(within)?;
                continue;
            }
            if self.tensors.len() == MAX_TENSORS {
                return Err(A::Error::custom(format!("more than {MAX_TENSORS} tensors")));
            }
            let info = map.next_value::<TensorInfo>().map_err(within)?;
            if info.shape.len() > MAX_DIMS {
                return Err(A::Error::custom(format!("in {}: more than {MAX_DIMS} dimensions", quote(&name))));
            }
            self.tensors.push((name, info));
        }
        Ok(self)
    }
}

impl<'de> DeserializeSeed<'de> for Header {
    type Value = Header;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Header, D::Error> {
        deserializer.deserialize_map(self)
    }
}

fn read_header(source: &Source, len: u64) -> Result<Header, FormatError> {
    let fail = |place: String, what: &str, expected: &str, found: String| {
        Err(FormatError::invalid(source.name(), place, what, expected, found))
    };
    let mut bytes = vec![0; len as usize];
    source.read_at(8, &mut bytes, &|| "header at byte 8".into())?;
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(e) => {
            let bad = e.valid_up_to();
            return fail(
                format!("header at byte {}", 8 + bad),
                "the header is not text",
                "UTF-8",
                format!("byte 0x{:02x}", bytes[bad]),
            );
        }
    };
    match bytes.first() {
        Some(b'{') => {}
        first => {
            return fail(
                "header at byte 8".into(),
                "the header does not begin with an object",
                "\"{\"",
                first.map_or("nothing".into(), |&b| format!("\"{}\"", b.escape_ascii())),
            );
        }
    }
    let commas = bytes.iter().filter(|&&b| b == b',').count();
    if commas > MAX_COMMAS {
        return fail(
            "header at byte 8".into(),
            "the header has too many values",
            "at most 2^20 commas",
            commas.to_string(),
        );
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let empty = Header { meta: None, tensors: Vec::new() };
    empty.deserialize(&mut json).and_then(|header| json.end().map(|()| header)).or_else(|e| {
        fail(
            format!("header at byte {}", 8 + byte_of(text, &e)),
            "the header is not valid",
            "JSON as the format asks for",
            plain(&e.to_string(), 240),
        )
    })
}

/// The byte of `text` that a JSON error points at (its columns count bytes from 1).
fn byte_of(text: &str, e: &serde_json::Error) -> usize {
    let line = e.line().max(1);
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    start + e.column().saturating_sub(1)
}

/// Reads one file's header. `file` is stored in its tensors.
pub(super) fn parse(source: &Source, file: usize) -> Result<Parsed, FormatError> {
    let invalid = |place: String, what: &str, expected: String, found: String| {
        FormatError::invalid(source.name(), place, what, expected, found)
    };
    if source.len() < 8 {
        return Err(invalid(
            "header length at byte 0".into(),
            "the file is too short",
            "at least 8 bytes".into(),
            source.len().to_string(),
        ));
    }
    let mut len = [0; 8];
    source.read_at(0, &mut len, &|| "header length at byte 0".into())?;
    let len = u64::from_le_bytes(len);
    if len > MAX_HEADER {
        return Err(invalid(
            "header length at byte 0".into(),
            "the header is too long",
            format!("at most {MAX_HEADER} bytes"),
            len.to_string(),
        ));
    }
    if len > source.len() - 8 {
        return Err(invalid(
            "header length at byte 0".into(),
            "the file ends inside the header",
            format!("{len} bytes of header"),
            (source.len() - 8).to_string(),
        ));
    }
    let header = read_header(source, len)?;
    let mut entries = header.tensors;
    entries.sort_unstable_by(|a, b| (a.1.data_offsets, &a.0).cmp(&(b.1.data_offsets, &b.0)));

    let data_start = 8 + len;
    let data_len = source.len() - data_start;
    let mut index = NameIndex::with_capacity(entries.len());
    let mut tensors: Vec<Tensor> = Vec::with_capacity(entries.len());
    let mut expected = 0u64;
    for (name, info) in entries {
        let place = format!("tensor {}", quote(&name));
        if index.insert(&name, tensors.len(), |i| &tensors[i].name).is_some() {
            return Err(invalid(place, "the name occurs twice", "each name once".into(), "two entries".into()));
        }
        let dtype_name = info.dtype.to_string();
        let Some(dtype) = Dtype::from_name(&dtype_name) else {
            return Err(invalid(place, "unknown dtype", "one of the format's".into(), plain(&dtype_name, 40)));
        };
        let (begin, end) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
        if end < begin {
            return Err(invalid(
                place,
                "the data ends before it begins",
                format!("an end of at least {begin}"),
                end.to_string(),
            ));
        }
        if begin != expected {
            let what =
                if begin < expected { "the data overlaps the tensor before it" } else { "a hole before the data" };
            return Err(invalid(place, what, format!("offset {expected}"), begin.to_string()));
        }
        let shape: Vec<u64> = info.shape.iter().rev().map(|&d| d as u64).collect();
        let elems = info.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64));
        let Some(elems) = elems else {
            return Err(invalid(
                place,
                "the product of the shape overflows",
                "below 2^64 elements".into(),
                format!("{:?}", info.shape),
            ));
        };
        // The reference counts bits in a machine word; keep its bound so that both refuse the same files.
        if elems.checked_mul(info.dtype.bitsize() as u64).is_none() {
            return Err(invalid(
                place,
                "the size in bits overflows",
                "below 2^64 bits".into(),
                format!("{elems} elements of {dtype}"),
            ));
        }
        let Some(bytes) = dtype.bytes_for(elems) else {
            return Err(invalid(
                place,
                "the data does not end at a whole byte",
                format!("a multiple of {} elements", dtype.block_elems()),
                format!("{elems} elements of {dtype}"),
            ));
        };
        if bytes != end - begin {
            return Err(invalid(
                place,
                "shape and data disagree",
                format!("{bytes} bytes for {:?} of {dtype}", info.shape),
                (end - begin).to_string(),
            ));
        }
        if end > data_len {
            return Err(invalid(
                place,
                "the file ends inside the data",
                format!("{end} bytes of data"),
                data_len.to_string(),
            ));
        }
        expected = end;
        tensors.push(Tensor { name, dtype, shape, bytes, offset: data_start + begin, file });
    }
    if expected != data_len {
        return Err(invalid(
            format!("byte {}", data_start + expected),
            "bytes that belong to no tensor",
            format!("a file of {} bytes", data_start + expected),
            source.len().to_string(),
        ));
    }
    let entries = header.meta.map_or(Vec::new(), |m| m.0);
    Ok(Parsed { meta: Meta { entries }, data_start, tensors })
}

/// The bytes of a file before its data, for tensors (name, dtype as the format spells it, shape with the slowest
/// dimension first, bytes) that follow one another in this order, padded so that the data begin at a multiple of 8.
pub fn head(tensors: &[(String, String, Vec<u64>, u64)]) -> Vec<u8> {
    let mut json = serde_json::Map::new();
    let mut at = 0u64;
    for (name, dtype, shape, bytes) in tensors {
        let entry = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [at, at + bytes]});
        json.insert(name.clone(), entry);
        at += bytes;
    }
    let mut text = serde_json::Value::Object(json).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text);
    out
}
