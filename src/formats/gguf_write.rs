//! The bytes of a GGUF file up to its tensor data, version 3, little-endian.
//!
//! Nothing is written to a file here; [`head`] gives the bytes and the place of every tensor. What it makes obeys the
//! limits of the reader (`gguf`), so that what was written can be read again.

use super::dtype::Dtype;
use super::error::{FormatError, quote};
use super::gguf;
use super::meta::{Meta, Value};

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct Entry {
    /// unique, 1 to 63 bytes
    pub name: String,
    /// its type; must be one of GGUF's
    pub dtype: Dtype,
    /// dimensions, fastest first
    pub shape: Vec<u64>,
}

/// Everything before the data, and where the data go.
#[derive(Clone, Debug)]
pub struct Head {
    /// magic to padding
    pub bytes: Vec<u8>,
    /// absolute place of each tensor
    pub offsets: Vec<u64>,
    /// bytes of each tensor, without padding
    pub sizes: Vec<u64>,
    /// length of the whole file; gaps between tensors are zeros
    pub file_len: u64,
}

fn text(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

/// The type id of a scalar.
fn scalar_id(v: &Value) -> u32 {
    match v {
        Value::U8(_) => 0,
        Value::I8(_) => 1,
        Value::U16(_) => 2,
        Value::I16(_) => 3,
        Value::U32(_) => 4,
        Value::I32(_) => 5,
        Value::F32(_) => 6,
        Value::Bool(_) => 7,
        Value::Str(_) => 8,
        Value::U64(_) => 10,
        Value::I64(_) => 11,
        Value::F64(_) => 12,
        _ => 9,
    }
}

fn scalar(out: &mut Vec<u8>, v: &Value) {
    match v {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::Str(s) => text(out, s),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
        Value::StrArray(v) => array(out, 8, v, |o, s| text(o, s)),
        Value::F32Array(v) => array(out, 6, v, |o, x| o.extend(x.to_le_bytes())),
        Value::I32Array(v) => array(out, 5, v, |o, x| o.extend(x.to_le_bytes())),
        Value::U32Array(v) => array(out, 4, v, |o, x| o.extend(x.to_le_bytes())),
        Value::Array(v) => array(out, v.first().map_or(0, scalar_id), v, scalar),
    }
}

fn array<T>(out: &mut Vec<u8>, id: u32, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    out.extend(id.to_le_bytes());
    out.extend((items.len() as u64).to_le_bytes());
    for item in items {
        put(out, item);
    }
}

/// The head of a file with these metadata and tensors. The alignment is `general.alignment` of `meta`, else 32.
///
/// Errors: a name the format cannot hold, a type GGUF does not have, more tensors or larger ones than its reader takes.
/// `file` stands for the file in messages.
pub fn head(file: &str, meta: &Meta, entries: &[Entry]) -> Result<Head, FormatError> {
    let fail = |e: &Entry, what: &str, expected: String, found: String| {
        FormatError::invalid(file, format!("tensor {}", quote(&e.name)), what, expected, found)
    };
    let alignment = match meta.get("general.alignment") {
        Some(&Value::U32(a)) => u64::from(a),
        _ => u64::from(gguf::DEFAULT_ALIGNMENT),
    };
    if entries.len() as u64 > gguf::MAX_TENSORS {
        let most = format_args!("at most {}", gguf::MAX_TENSORS).to_string();
        return Err(FormatError::invalid(file, "tensor table", "too many tensors", most, entries.len()));
    }
    let mut bytes = gguf::MAGIC.to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes.extend((meta.entries.len() as u64).to_le_bytes());
    for (key, value) in &meta.entries {
        text(&mut bytes, key);
        bytes.extend(scalar_id(value).to_le_bytes());
        scalar(&mut bytes, value);
    }
    let (mut at, mut offsets, mut sizes) = (0u64, Vec::new(), Vec::new());
    for e in entries {
        if e.name.is_empty() || e.name.len() as u64 > gguf::MAX_NAME_BYTES || e.name.contains('\0') {
            let most = format!("1 to {} bytes", gguf::MAX_NAME_BYTES);
            return Err(fail(e, "a name GGUF cannot hold", most, e.name.len().to_string()));
        }
        if e.shape.len() > gguf::MAX_DIMS as usize {
            return Err(fail(
                e,
                "too many dimensions",
                format!("at most {}", gguf::MAX_DIMS),
                format!("{:?}", e.shape),
            ));
        }
        let Some(id) = e.dtype.ggml_id() else {
            return Err(fail(e, "a type GGUF does not have", "one of ggml's".into(), e.dtype.to_string()));
        };
        let elems = e.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let row = e.shape.first().copied().unwrap_or(1);
        let size = elems.filter(|_| row.is_multiple_of(e.dtype.block_elems())).and_then(|n| e.dtype.bytes_for(n));
        let Some((size, next)) = size.and_then(|s| Some((s, at.checked_add(s)?.checked_next_multiple_of(alignment)?)))
        else {
            let want = format!("rows of whole {} blocks", e.dtype);
            return Err(fail(e, "a shape its type does not allow", want, format!("{:?}", e.shape)));
        };
        text(&mut bytes, &e.name);
        bytes.extend((e.shape.len() as u32).to_le_bytes());
        for d in &e.shape {
            bytes.extend(d.to_le_bytes());
        }
        bytes.extend(id.to_le_bytes());
        bytes.extend(at.to_le_bytes());
        offsets.push(at);
        sizes.push(size);
        at = next;
    }
    bytes.resize(bytes.len().next_multiple_of(alignment as usize), 0);
    let start = bytes.len() as u64;
    offsets.iter_mut().for_each(|o| *o += start);
    Ok(Head { bytes, offsets, sizes, file_len: start + at })
}
