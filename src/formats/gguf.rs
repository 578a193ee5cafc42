//! GGUF versions 2 and 3, little-endian: header, metadata, tensor table, and shards.
//!
//! Only the metadata is read, through a buffer of at most 64 KiB; tensor data is never touched. Every count and
//! length is compared with the bytes that are left, and with a limit, before anything is allocated for it. What the
//! file makes this reader allocate is counted, and bounded by the file's length plus 48 MiB.
//!
//! # Limits
//!
//! | what | limit |
//! |---|---|
//! | key-value pairs, tensors | 65,536 each (tensors: over all shards) |
//! | key | 1 to 65,535 bytes of UTF-8, no NUL |
//! | string value | 16 MiB of UTF-8 |
//! | array | 2^26 elements, not nested |
//! | tensor name | 1 to 63 bytes of UTF-8, no NUL (ggml's limit; the format text says 64) |
//! | dimensions | at most 4; none is a scalar; each below 2^63, as is their product |
//! | `general.alignment` | u32, a power of two, at most 1 MiB; 32 when absent |
//!
//! # Choices the format leaves open
//!
//! - Tensor offsets must follow one another as in ggml: each is the padded end of the one before. A gap, an overlap
//!   or another order is refused.
//! - A dimension of 0 is accepted: the tensor has no bytes.
//! - Keys, names and string values that are not UTF-8 are refused.
//! - A bool other than 0 or 1 is refused.
//! - Bytes after the last tensor are accepted and ignored, and its trailing padding may be missing.
//! - A file without metadata or tensors is a valid container; that it is not a model is for `models` to say.
//! - Big-endian files, version 1 and versions after 3 are recognised and refused.
//!
//! # Shards
//!
//! The first shard of `PREFIX-00001-of-0000N.gguf` is opened by name and the others are derived from it. Each must
//! hold `split.no` and `split.count` that agree with its place; the number of tensors must be `split.tensors.count`;
//! no tensor may occur twice. Later shards contribute tensors only, their metadata is dropped.

use super::Tensor;
use super::dtype::{Dtype, removed_ggml};
use super::error::{FormatError, quote};
use super::index::NameIndex;
use super::meta::{Meta, Value};
use super::source::{LoadMode, Source};
use std::path::{Path, PathBuf};

/// The four bytes every GGUF file begins with, in either byte order.
pub const MAGIC: [u8; 4] = *b"GGUF";
/// Most key-value pairs of a file.
pub const MAX_KEYS: u64 = 65_536;
/// Most tensors of a file, or of a container of shards.
pub const MAX_TENSORS: u64 = 65_536;
/// Longest key, in bytes.
pub const MAX_KEY_BYTES: u64 = 65_535;
/// Longest string value, in bytes.
pub const MAX_STRING_BYTES: u64 = 16 << 20;
/// Most elements of an array.
pub const MAX_ARRAY: u64 = 1 << 26;
/// Longest tensor name, in bytes: ggml keeps names in 64 bytes with a NUL.
pub const MAX_NAME_BYTES: u64 = 63;
/// Most dimensions of a tensor.
pub const MAX_DIMS: u32 = 4;
/// Largest `general.alignment`.
pub const MAX_ALIGNMENT: u32 = 1 << 20;
/// The alignment of files that do not state one.
pub const DEFAULT_ALIGNMENT: u32 = 32;

/// The first field of a key-value pair. A whole one takes at least 14 bytes, but then a file that ends inside its only
/// pair would be blamed for its count.
const MIN_PAIR: u64 = 8;
/// Smallest possible tensor entry: length of the name, no name, dimensions, type, offset.
const MIN_INFO: u64 = 8 + 4 + 4 + 8;
/// Memory granted beyond the file's own length.
const SLACK: u64 = 48 << 20;
/// Memory granted for the file's length counts up to here: no metadata is larger, and a sparse file can be.
const MOST_METADATA: u64 = 1 << 30;

/// What one file holds. Offsets are absolute in the file.
pub(super) struct Parsed {
    pub version: u32,
    pub meta: Meta,
    pub alignment: u64,
    pub data_start: u64,
    pub tensors: Vec<Tensor>,
}

/// Where in the structure a field belongs, for messages.
#[derive(Clone, Copy)]
enum At<'a> {
    Header,
    Key(u64),
    Value(&'a str),
    Info(u64),
    Tensor(&'a str),
}

impl At<'_> {
    fn place(self, offset: u64) -> String {
        match self {
            At::Header => format!("header at byte {offset}"),
            At::Key(i) => format!("key-value pair {i} at byte {offset}"),
            At::Value(key) => format!("key {} at byte {offset}", quote(key)),
            At::Info(i) => format!("tensor entry {i} at byte {offset}"),
            At::Tensor(name) => format!("tensor {} at byte {offset}", quote(name)),
        }
    }
}

/// A bounded buffered reader that knows its position, the bytes that are left and the memory it may still cause.
struct Reader<'a> {
    source: &'a Source,
    buf: Vec<u8>,
    /// next unread byte of `buf`
    at: usize,
    /// bytes of `buf` that are filled
    filled: usize,
    /// file offset of `buf[filled]`
    next: u64,
    /// bytes that may still be allocated
    budget: u64,
}

impl<'a> Reader<'a> {
    fn new(source: &'a Source) -> Reader<'a> {
        Reader {
            source,
            buf: vec![0; source.len().min(64 << 10) as usize],
            at: 0,
            filled: 0,
            next: 0,
            budget: source.len().min(MOST_METADATA) + SLACK,
        }
    }

    fn pos(&self) -> u64 {
        self.next - (self.filled - self.at) as u64
    }

    fn left(&self) -> u64 {
        self.source.len() - self.pos()
    }

    fn invalid(
        &self,
        at: At<'_>,
        offset: u64,
        what: impl Into<String>,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> FormatError {
        FormatError::invalid(self.source.name(), at.place(offset), what, expected, found)
    }

    /// Checks that `bytes` more bytes exist.
    fn need(&self, bytes: u64, field: &str, at: At<'_>) -> Result<(), FormatError> {
        if bytes <= self.left() {
            return Ok(());
        }
        Err(self.invalid(
            at,
            self.pos(),
            format!("the file ends inside the {field}"),
            format_args!("{bytes} more bytes"),
            format_args!("{}", self.left()),
        ))
    }

    /// Counts memory that is about to be allocated on the file's behalf.
    fn charge(&mut self, bytes: u64, at: At<'_>) -> Result<(), FormatError> {
        match self.budget.checked_sub(bytes) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(self.invalid(
                at,
                self.pos(),
                "the metadata would take more memory than its file justifies",
                format_args!("at most {} more bytes", self.budget),
                format_args!("{bytes}"),
            )),
        }
    }

    /// Makes at least `n` bytes available in the buffer (`n` is at most 8), having checked that they exist.
    fn refill(&mut self, n: usize, field: &str, at: At<'_>) -> Result<(), FormatError> {
        self.need(n as u64, field, at)?;
        self.buf.copy_within(self.at..self.filled, 0);
        self.filled -= self.at;
        self.at = 0;
        let room = (self.buf.len() - self.filled) as u64;
        let take = room.min(self.source.len() - self.next) as usize;
        let (from, next) = (self.filled, self.next);
        let source = self.source;
        source.read_at(next, &mut self.buf[from..from + take], &|| at.place(next))?;
        self.filled += take;
        self.next += take as u64;
        Ok(())
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str, at: At<'_>) -> Result<[u8; N], FormatError> {
        if self.filled - self.at < N {
            self.refill(N, field, at)?;
        }
        let mut out = [0; N];
        out.copy_from_slice(&self.buf[self.at..self.at + N]);
        self.at += N;
        Ok(out)
    }

    fn u32(&mut self, field: &'static str, at: At<'_>) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array(field, at)?))
    }

    fn u64(&mut self, field: &'static str, at: At<'_>) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array(field, at)?))
    }

    /// A string of at most `limit` bytes, its memory counted.
    fn string(&mut self, limit: u64, field: &'static str, at: At<'_>) -> Result<String, FormatError> {
        let start = self.pos();
        let len = self.u64(field, at)?;
        if len > limit {
            return Err(self.invalid(
                at,
                start,
                format!("the {field} is too long"),
                format_args!("at most {limit} bytes"),
                format_args!("{len}"),
            ));
        }
        self.need(len, field, at)?;
        self.charge(len, at)?;
        let len = len as usize;
        let mut bytes = Vec::with_capacity(len);
        let ready = len.min(self.filled - self.at);
        bytes.extend_from_slice(&self.buf[self.at..self.at + ready]);
        self.at += ready;
        if ready < len {
            // The buffer is used up: the rest goes straight to its place.
            let next = self.next;
            bytes.resize(len, 0);
            let source = self.source;
            source.read_at(next, &mut bytes[ready..], &|| at.place(next))?;
            self.next += (len - ready) as u64;
        }
        String::from_utf8(bytes).map_err(|e| {
            let bad = e.utf8_error().valid_up_to();
            self.invalid(
                at,
                start + 8 + bad as u64,
                format!("the {field} is not text"),
                "UTF-8",
                format_args!("byte 0x{:02x}", e.as_bytes()[bad]),
            )
        })
    }

    fn bool(&mut self, at: At<'_>) -> Result<bool, FormatError> {
        let start = self.pos();
        match self.array::<1>("bool", at)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.invalid(at, start, "a bool that is neither", "0 or 1", other)),
        }
    }

    /// `count` values read by `one`, `unit` being what each takes at least in the file.
    fn list<T>(
        &mut self,
        count: u64,
        unit: u64,
        at: At<'_>,
        mut one: impl FnMut(&mut Self) -> Result<T, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        // `count` is at most MAX_ARRAY and `unit` and the size of T below 2^8, so nothing wraps.
        self.need(count * unit, "array", at)?;
        self.charge(count * size_of::<T>() as u64, at)?;
        let mut out = Vec::with_capacity(count as usize);
        for _ in 0..count {
            out.push(one(self)?);
        }
        Ok(out)
    }

    fn value(&mut self, key: &str) -> Result<Value, FormatError> {
        let at = At::Value(key);
        let start = self.pos();
        let kind = self.u32("value type", at)?;
        if kind != 9 {
            return match self.scalar(kind, at)? {
                Some(value) => Ok(value),
                None => Err(self.invalid(at, start, "unknown value type", "0 to 12", kind as i32)),
            };
        }
        let start = self.pos();
        let kind = self.u32("array element type", at)?;
        let count_at = self.pos();
        let count = self.u64("array length", at)?;
        if kind == 9 {
            return Err(self.invalid(
                at,
                start,
                "nested array",
                "elements that are numbers, bools or strings",
                "an array of arrays",
            ));
        }
        if count > MAX_ARRAY {
            return Err(self.invalid(
                at,
                count_at,
                "the array is too long",
                format_args!("at most {MAX_ARRAY} elements"),
                count,
            ));
        }
        macro_rules! numbers {
            ($t:ty, $of:expr) => {
                self.list(count, size_of::<$t>() as u64, at, |r| Ok(<$t>::from_le_bytes(r.array("array", at)?)))
                    .map($of)
            };
        }
        match kind {
            4 => numbers!(u32, Value::U32Array),
            5 => numbers!(i32, Value::I32Array),
            6 => numbers!(f32, Value::F32Array),
            8 => self.list(count, 8, at, |r| r.string(MAX_STRING_BYTES, "string", at)).map(Value::StrArray),
            0..=3 | 7 | 10..=12 => {
                let unit = match kind {
                    0 | 1 | 7 => 1,
                    2 | 3 => 2,
                    _ => 8,
                };
                self.list(count, unit, at, |r| {
                    // The outer match admits scalar kinds only.
                    Ok(r.scalar(kind, at)?.unwrap_or(Value::U8(0)))
                })
                .map(Value::Array)
            }
            _ => Err(self.invalid(at, start, "unknown array element type", "0 to 8 or 10 to 12", kind as i32)),
        }
    }

    /// A value that is not an array; `None` for an unknown type.
    fn scalar(&mut self, kind: u32, at: At<'_>) -> Result<Option<Value>, FormatError> {
        macro_rules! number {
            ($t:ty, $of:path) => {
                $of(<$t>::from_le_bytes(self.array("value", at)?))
            };
        }
        Ok(Some(match kind {
            0 => number!(u8, Value::U8),
            1 => number!(i8, Value::I8),
            2 => number!(u16, Value::U16),
            3 => number!(i16, Value::I16),
            4 => number!(u32, Value::U32),
            5 => number!(i32, Value::I32),
            6 => number!(f32, Value::F32),
            7 => Value::Bool(self.bool(at)?),
            8 => Value::Str(self.string(MAX_STRING_BYTES, "string", at)?),
            10 => number!(u64, Value::U64),
            11 => number!(i64, Value::I64),
            12 => number!(f64, Value::F64),
            _ => return Ok(None),
        }))
    }

    /// A count of the header: not negative, within `limit`, and payable with the bytes that are left.
    fn count(&mut self, what: &'static str, limit: u64, unit: u64) -> Result<u64, FormatError> {
        let start = self.pos();
        let n = self.u64(what, At::Header)?;
        let bad = |expected: String, found: String| {
            self.invalid(At::Header, start, format!("impossible {what}"), expected, found)
        };
        if (n as i64) < 0 {
            return Err(bad("a number not below 0".into(), format!("{}", n as i64)));
        }
        if n > limit {
            return Err(bad(format!("at most {limit}"), format!("{n}")));
        }
        Ok(n).and_then(|n| {
            let most = self.left() / unit;
            if n > most {
                return Err(bad(format!("at most {most}, which the file has room for"), format!("{n}")));
            }
            Ok(n)
        })
    }

    fn header(&mut self) -> Result<u32, FormatError> {
        let magic: [u8; 4] = self.array("magic", At::Header)?;
        if magic == *b"FUGG" {
            return Err(FormatError::unsupported(
                self.source.name(),
                "a GGUF magic in swapped byte order",
                "a file begins with the bytes \"GGUF\" in either byte order",
            ));
        }
        if magic != MAGIC {
            return Err(self.invalid(
                At::Header,
                0,
                "not a GGUF file",
                "the bytes \"GGUF\"",
                format_args!("\"{}\"", magic.escape_ascii()),
            ));
        }
        let version = self.u32("version", At::Header)?;
        let unsupported = |what: String, remedy: &str| Err(FormatError::unsupported(self.source.name(), what, remedy));
        match version {
            2 | 3 => Ok(version),
            1 => unsupported(
                "GGUF version 1 (header at byte 4)".into(),
                "convert the model again with a current converter (version 3)",
            ),
            0 => Err(self.invalid(At::Header, 4, "impossible version", "2 or 3", 0)),
            v if v & 0xffff == 0 => unsupported(
                format!("a big-endian GGUF file (version {} at byte 4)", v.swap_bytes()),
                "convert it to little-endian",
            ),
            v => unsupported(format!("GGUF version {v} (header at byte 4)"), "versions 2 and 3 are read"),
        }
    }

    fn key(&mut self, i: u64) -> Result<String, FormatError> {
        let at = At::Key(i);
        let start = self.pos();
        let key = self.string(MAX_KEY_BYTES, "key", at)?;
        if key.is_empty() {
            return Err(self.invalid(at, start, "empty key", "1 to 65535 bytes", 0));
        }
        if key.contains('\0') {
            return Err(self.invalid(at, start, "NUL in a key", "none", quote(&key)));
        }
        Ok(key)
    }

    fn metadata(&mut self, n: u64) -> Result<Meta, FormatError> {
        let pair = size_of::<(String, Value)>() as u64;
        let index = NameIndex::memory(n as usize);
        self.charge(n * pair + index, At::Header)?;
        let mut entries: Vec<(String, Value)> = Vec::with_capacity(n as usize);
        let mut index = NameIndex::with_capacity(n as usize);
        for i in 0..n {
            let start = self.pos();
            let key = self.key(i)?;
            if let Some(first) = index.insert(&key, i as usize, |j| &entries[j].0) {
                return Err(self.invalid(
                    At::Value(&key),
                    start,
                    "duplicate key",
                    "each key once",
                    format_args!("pairs {first} and {i}"),
                ));
            }
            let value_at = self.pos();
            let value = self.value(&key)?;
            if key == "general.alignment" {
                self.check_alignment(&value, value_at)?;
            }
            entries.push((key, value));
        }
        Ok(Meta { entries })
    }

    fn check_alignment(&self, value: &Value, offset: u64) -> Result<(), FormatError> {
        let at = At::Value("general.alignment");
        let Value::U32(a) = *value else {
            return Err(self.invalid(at, offset, "alignment of a wrong type", "u32", value.type_name()));
        };
        if !a.is_power_of_two() || a > MAX_ALIGNMENT {
            return Err(self.invalid(
                at,
                offset,
                "impossible alignment",
                format_args!("a power of two up to {MAX_ALIGNMENT}"),
                a,
            ));
        }
        Ok(())
    }

    /// One entry of the tensor table, with the offset as the file has it: relative to the data.
    fn info(&mut self, i: u64, file: usize) -> Result<Tensor, FormatError> {
        let start = self.pos();
        let name = self.string(MAX_NAME_BYTES, "tensor name", At::Info(i))?;
        if name.is_empty() {
            return Err(self.invalid(At::Info(i), start, "empty tensor name", "1 to 63 bytes", 0));
        }
        if name.contains('\0') {
            return Err(self.invalid(At::Info(i), start, "NUL in a tensor name", "none", quote(&name)));
        }
        let at = At::Tensor(&name);
        let dims_at = self.pos();
        let n_dims = self.u32("number of dimensions", at)?;
        if n_dims > MAX_DIMS {
            return Err(self.invalid(at, dims_at, "too many dimensions", format_args!("at most {MAX_DIMS}"), n_dims));
        }
        self.charge(8 * u64::from(n_dims), at)?;
        let mut shape = Vec::with_capacity(n_dims as usize);
        let mut elems = 1u64;
        for d in 0..n_dims {
            let dim_at = self.pos();
            let dim = self.u64("dimensions", at)?;
            if dim > i64::MAX as u64 {
                return Err(self.invalid(
                    at,
                    dim_at,
                    format!("dimension {d} is negative"),
                    "0 to 2^63 - 1",
                    dim as i64,
                ));
            }
            shape.push(dim);
            elems = elems.checked_mul(dim).filter(|&e| e <= i64::MAX as u64).ok_or_else(|| {
                self.invalid(
                    at,
                    dim_at,
                    "the product of the dimensions overflows",
                    "below 2^63 elements",
                    format_args!("{shape:?}"),
                )
            })?;
        }
        let type_at = self.pos();
        let id = self.u32("tensor type", at)?;
        let Some(dtype) = Dtype::from_ggml(id) else {
            let (what, found) = match removed_ggml(id) {
                Some(name) => ("removed tensor type", format!("{id} ({name})")),
                None => ("unknown tensor type", format!("{}", id as i32)),
            };
            return Err(self.invalid(at, type_at, what, "a type of ggml's current table", found));
        };
        let row = shape.first().copied().unwrap_or(1);
        if !row.is_multiple_of(dtype.block_elems()) {
            return Err(self.invalid(
                at,
                type_at,
                "rows that are not whole blocks",
                format_args!("a multiple of {} for {dtype}", dtype.block_elems()),
                row,
            ));
        }
        let Some(bytes) = dtype.bytes_for(elems) else {
            return Err(self.invalid(
                at,
                type_at,
                "the size in bytes overflows",
                "below 2^64 bytes",
                format_args!("{elems} elements of {dtype}"),
            ));
        };
        let offset = self.u64("tensor offset", at)?;
        Ok(Tensor { name, dtype, shape, bytes, offset, file })
    }

    /// The tensor table and, when it is whole, the place of the data: offsets become absolute.
    fn table(&mut self, n: u64, alignment: u64, file: usize) -> Result<(u64, Vec<Tensor>), FormatError> {
        let index = NameIndex::memory(n as usize);
        // Names and shapes are counted where they are read; one u64 a tensor remembers its place for messages.
        self.charge(n * (size_of::<Tensor>() as u64 + 8) + index, At::Header)?;
        let mut tensors: Vec<Tensor> = Vec::with_capacity(n as usize);
        let mut places: Vec<u64> = Vec::with_capacity(n as usize);
        let mut index = NameIndex::with_capacity(n as usize);
        for i in 0..n {
            let place = self.pos();
            let tensor = self.info(i, file)?;
            if let Some(first) = index.insert(&tensor.name, i as usize, |j| &tensors[j].name) {
                return Err(self.invalid(
                    At::Tensor(&tensor.name),
                    place,
                    "duplicate tensor name",
                    "each name once",
                    format_args!("entries {first} and {i}"),
                ));
            }
            tensors.push(tensor);
            places.push(place);
        }
        // At most the file's length plus 2^20.
        let data_start = self.pos().next_multiple_of(alignment);
        let data_len = match (self.source.len().checked_sub(data_start), tensors.first()) {
            (Some(len), _) => len,
            // Without tensors nothing asks where they would begin.
            (None, None) => 0,
            // A tensor without bytes would otherwise be placed outside the file.
            (None, Some(first)) => {
                return Err(self.invalid(
                    At::Tensor(&first.name),
                    self.pos(),
                    "the file ends before the data",
                    format_args!("data from byte {data_start} on"),
                    format_args!("a file of {} bytes", self.source.len()),
                ));
            }
        };
        let mut expected = 0u64;
        for (tensor, place) in tensors.iter_mut().zip(places) {
            let at = At::Tensor(&tensor.name);
            let offset = tensor.offset;
            if !offset.is_multiple_of(alignment) {
                return Err(self.invalid(
                    at,
                    place,
                    "misaligned offset",
                    format_args!("a multiple of {alignment}"),
                    offset,
                ));
            }
            let padded = tensor.bytes.checked_next_multiple_of(alignment);
            let (Some(padded), Some(end)) = (padded, offset.checked_add(tensor.bytes)) else {
                return Err(self.invalid(
                    at,
                    place,
                    "offset and size overflow",
                    "an end below 2^64",
                    format_args!("{} bytes at offset {offset}", tensor.bytes),
                ));
            };
            if offset > data_len {
                return Err(self.invalid(
                    at,
                    place,
                    "the data begins after the end of the file",
                    format_args!("an offset up to {data_len}"),
                    offset,
                ));
            }
            if offset != expected {
                let what = if offset < expected {
                    "the data overlaps the tensor before it"
                } else {
                    "a gap before the data, or tensors out of order"
                };
                return Err(self.invalid(at, place, what, format_args!("offset {expected}"), offset));
            }
            if end > data_len {
                return Err(self.invalid(
                    at,
                    place,
                    "the file ends inside the data",
                    format_args!("{} bytes at byte {}", tensor.bytes, data_start + offset),
                    format_args!("{}", data_len - offset),
                ));
            }
            tensor.offset = data_start + offset;
            // `end` lies inside the file, so the padded end is far from wrapping.
            expected = offset + padded;
        }
        Ok((data_start, tensors))
    }
}

/// Reads one file's header, metadata and tensor table. `file` is stored in its tensors.
pub(super) fn parse(source: &Source, file: usize) -> Result<Parsed, FormatError> {
    let mut reader = Reader::new(source);
    let version = reader.header()?;
    let n_tensors = reader.count("number of tensors", MAX_TENSORS, MIN_INFO)?;
    let n_keys = reader.count("number of key-value pairs", MAX_KEYS, MIN_PAIR)?;
    let meta = reader.metadata(n_keys)?;
    let alignment = match meta.get("general.alignment") {
        Some(&Value::U32(a)) => u64::from(a),
        _ => u64::from(DEFAULT_ALIGNMENT),
    };
    let (data_start, tensors) = reader.table(n_tensors, alignment, file)?;
    Ok(Parsed { version, meta, alignment, data_start, tensors })
}

/// The prefix, number and count of a shard's file name, `PREFIX-00001-of-00003.gguf`, both numbers from 1.
pub fn shard_name(file_name: &str) -> Option<(&str, u32, u32)> {
    let stem = file_name.strip_suffix(".gguf")?;
    let number = |text: &str| -> Option<u32> {
        (text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
    };
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (prefix, no) = rest.rsplit_once('-')?;
    let (no, count) = (number(no)?, number(count)?);
    (1..=count).contains(&no).then_some((prefix, no, count))
}

fn split_error(
    source: &Source,
    key: &str,
    what: &str,
    expected: impl std::fmt::Display,
    found: impl std::fmt::Display,
) -> FormatError {
    FormatError::invalid(source.name(), format!("key {}", quote(key)), what, expected, found)
}

fn or_absent(value: Option<u64>) -> String {
    value.map_or("nothing of the kind".into(), |v| v.to_string())
}

/// A number of the metadata. Errors: a value of another type.
fn whole(source: &Source, meta: &Meta, key: &str) -> Result<Option<u64>, FormatError> {
    meta.typed(key).map_err(|e| split_error(source, key, "wrong type", e.expected, e.found))
}

/// Refuses a shard that came without its siblings.
pub(super) fn refuse_shard(source: &Source, parsed: &Parsed) -> Result<(), FormatError> {
    match whole(source, &parsed.meta, "split.count")? {
        None | Some(0 | 1) => Ok(()),
        Some(n) => Err(FormatError::unsupported(
            source.name(),
            format!("one shard of {n} (key \"split.count\") in memory"),
            "open the first shard as a file, or join the shards",
        )),
    }
}

/// Opens the siblings of the first shard `parsed` at `path`: appends their paths, sources and tensors.
pub(super) fn open_shards(
    path: &Path,
    mode: LoadMode,
    parsed: &mut Parsed,
    files: &mut Vec<PathBuf>,
    sources: &mut Vec<Source>,
) -> Result<(), FormatError> {
    let first = &sources[0];
    let Some(count) = whole(first, &parsed.meta, "split.count")?.filter(|&n| n > 1) else {
        return Ok(());
    };
    let no = whole(first, &parsed.meta, "split.no")?;
    if no != Some(0) {
        return Err(split_error(
            first,
            "split.no",
            "not the first shard of its model; open the first one",
            0,
            or_absent(no),
        ));
    }
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let Some((prefix, 1, named)) = shard_name(name) else {
        return Err(split_error(
            first,
            "split.count",
            "the other shards cannot be found from this file's name",
            format_args!("a name like PREFIX-00001-of-{count:05}.gguf"),
            quote(name),
        ));
    };
    if u64::from(named) != count {
        return Err(split_error(
            first,
            "split.count",
            "the file name and the metadata disagree about the number of shards",
            named,
            count,
        ));
    }
    let total = whole(first, &parsed.meta, "split.tensors.count")?;
    let tensors = &mut parsed.tensors;
    for i in 1..named {
        let sibling = path.with_file_name(format!("{prefix}-{:05}-of-{named:05}.gguf", i + 1));
        let source = Source::open(&sibling, mode)?;
        let shard = parse(&source, files.len())?;
        for (key, expected) in [("split.no", u64::from(i)), ("split.count", count)] {
            let found = whole(&source, &shard.meta, key)?;
            if found != Some(expected) {
                return Err(split_error(&source, key, "a shard that belongs elsewhere", expected, or_absent(found)));
            }
        }
        if (tensors.len() + shard.tensors.len()) as u64 > MAX_TENSORS {
            return Err(FormatError::invalid(
                source.name(),
                "tensor table",
                "too many tensors in all shards",
                format_args!("at most {MAX_TENSORS}"),
                tensors.len() + shard.tensors.len(),
            ));
        }
        tensors.extend(shard.tensors);
        files.push(sibling);
        sources.push(source);
    }
    if total != Some(tensors.len() as u64) {
        return Err(split_error(
            &sources[0],
            "split.tensors.count",
            "the shards do not hold the promised number of tensors",
            tensors.len(),
            or_absent(total),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::shard_name;

    #[test]
    fn shard_names_are_read_as_written_and_nothing_else_is() {
        assert_eq!(shard_name("m-00001-of-00003.gguf"), Some(("m", 1, 3)));
        assert_eq!(shard_name("a-b-of-c-00003-of-00003.gguf"), Some(("a-b-of-c", 3, 3)));
        for bad in [
            "m.gguf",
            "m-1-of-3.gguf",
            "m-00004-of-00003.gguf",
            "m-00000-of-00003.gguf",
            "m-00001-of-00003.bin",
            "m-+0001-of-00003.gguf",
        ] {
            assert_eq!(shard_name(bad), None, "{bad}");
        }
    }
}
