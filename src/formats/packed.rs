//! Packed safetensors and block files: quantised matrices that a safetensors file holds as plain bytes.
//!
//! | key | dtype, shape | content |
//! |---|---|---|
//! | `NAME.q8k128`, `.q6k`, `.q4k` | U8 \[bytes\] | blocks, row after row |
//! | `NAME.q8k128_meta`, ... | I32 \[2\] | rows, columns |
//! | `NAME.q8k` | U8 \[24 + bytes\] | a header, then blocks |
//! | `NAME.q8k_meta` | I32 \[3\] | rows, columns, 24 |
//!
//! A block file is named `NAME.q8k128` (`.q8k`, `.q6k`, `.q4k`) and holds a header and blocks. The header is six
//! little-endian u32: magic, version 1, rows, columns, blocks per row, format. The layouts are nibble's.
//!
//! Nothing here is lenient: a wrong layout would still run and give subtly wrong logits. Every fault has a name
//! ([`PackedFault`]), is found when the container is opened, and refuses the whole container. To the rest of the engine
//! a packed matrix is a [`Tensor`] named `NAME` of its block type.

use super::Tensor;
use super::dtype::Dtype;
use super::error::FormatError;
use super::packed_fault::VERSION;
pub use super::packed_fault::{HEADER, PackedFault};
use super::source::{LoadMode, Source};
use crate::blocks::BlockType;
use std::collections::BTreeMap;
use std::path::Path;

/// A packed format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// suffix of keys and file names, without the dot
    pub suffix: &'static str,
    /// what the blocks are
    pub block: BlockType,
    /// first word of a header
    pub magic: u32,
    /// last word of a header
    pub code: u32,
    /// the header precedes the blocks in safetensors too
    pub keeps_header: bool,
}

/// Every packed format, in the order nibble looks for them.
pub const KINDS: [Kind; 4] = [
    Kind { suffix: "q8k128", block: BlockType::Q8K128, magic: 0x4B51_3831, code: 0x28, keeps_header: false },
    Kind { suffix: "q8k", block: BlockType::Q8_K, magic: 0x4B51_3838, code: 0x18, keeps_header: true },
    Kind { suffix: "q6k", block: BlockType::Q6_K, magic: 0x4B51_3836, code: 0x16, keeps_header: false },
    Kind { suffix: "q4k", block: BlockType::Q4_K, magic: 0x4B51_3834, code: 0x14, keeps_header: false },
];

/// What a key or file name says: the matrix, its format, and whether it is the `_meta`.
fn parse_key(key: &str) -> Option<(&str, &'static Kind, bool)> {
    let (name, suffix) = key.rsplit_once('.')?;
    let (suffix, meta) = suffix.strip_suffix("_meta").map_or((suffix, false), |s| (s, true));
    KINDS.iter().find(|k| k.suffix == suffix && !name.is_empty()).map(|k| (name, k, meta))
}

/// The matrix and format of a block file, by its name.
pub fn block_file(file_name: &str) -> Option<(&str, &'static Kind)> {
    parse_key(file_name).filter(|(.., meta)| !meta).map(|(name, kind, _)| (name, kind))
}

/// The format that stores a block type; `None` for those packed files do not have.
pub fn kind_of(block: BlockType) -> Option<&'static Kind> {
    KINDS.iter().find(|k| k.block == block)
}

/// The header of a matrix. `k` must be whole blocks.
pub fn header(kind: &Kind, rows: u32, k: u32) -> [u8; HEADER as usize] {
    let words = [kind.magic, VERSION, rows, k, k / kind.block.elems() as u32, kind.code];
    let mut out = [0; HEADER as usize];
    for (bytes, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    out
}

/// Checks a shape; gives the bytes of its blocks.
fn block_bytes(kind: &Kind, rows: i64, k: i64) -> Result<u64, PackedFault> {
    if rows <= 0 || k <= 0 {
        return Err(PackedFault::EmptyShape { rows, k });
    }
    let block = kind.block.elems();
    if k % block as i64 != 0 {
        return Err(PackedFault::RaggedRows { k, block });
    }
    // both below 2^32, a block has at least one byte for two elements
    Ok((rows as u64) * (k as u64 / block as u64) * kind.block.bytes() as u64)
}

/// Checks a header; gives rows and columns.
fn check_header(kind: &Kind, bytes: &[u8]) -> Result<(u32, u32), PackedFault> {
    let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
    let [magic, version, rows, k, per_row, code] = words[..] else {
        return Err(PackedFault::ShortHeader { found: bytes.len() as u64 });
    };
    if magic != kind.magic {
        return Err(PackedFault::WrongMagic { expected: kind.magic, found: magic });
    }
    if version != VERSION {
        return Err(PackedFault::WrongVersion { found: version });
    }
    if code != kind.code {
        return Err(PackedFault::WrongFormat { expected: kind.code, found: code });
    }
    block_bytes(kind, rows.into(), k.into())?;
    let expected = k / kind.block.elems() as u32;
    if per_row != expected {
        return Err(PackedFault::WrongBlocksPerRow { expected, found: per_row });
    }
    Ok((rows, k))
}

fn tensor(name: &str, kind: &Kind, (rows, k): (u32, u32), bytes: u64, offset: u64, file: usize) -> Option<Tensor> {
    let dtype = Dtype::from_block(kind.block)?;
    Some(Tensor { name: name.to_string(), dtype, shape: vec![k.into(), rows.into()], bytes, offset, file })
}

/// Opens a block file; `file` is stored in its tensor.
pub(super) fn open_block_file(path: &Path, mode: LoadMode, file: usize) -> Result<(Source, Tensor), FormatError> {
    let source = Source::open(path, mode)?;
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let fault = |name: &str, fault| FormatError::Packed { file: source.name().to_string(), tensor: name.into(), fault };
    let Some((name, kind)) = block_file(name) else {
        return Err(FormatError::invalid(
            source.name(),
            "file name",
            "not a block file",
            "NAME.q8k128 or the like",
            name,
        ));
    };
    let mut head = vec![0; HEADER.min(source.len()) as usize];
    source.read_at(0, &mut head, &|| "header at byte 0".into())?;
    let (rows, k) = check_header(kind, &head).map_err(|e| fault(name, e))?;
    let bytes = block_bytes(kind, rows.into(), k.into()).map_err(|e| fault(name, e))?;
    if source.len() != HEADER + bytes {
        return Err(fault(name, PackedFault::WrongLength { expected: HEADER + bytes, found: source.len() }));
    }
    match tensor(name, kind, (rows, k), bytes, HEADER, file) {
        Some(t) => Ok((source, t)),
        None => Err(FormatError::unsupported(source.name(), kind.suffix, "use another format")),
    }
}

/// Refuses a matrix that is in several of these tensors, block files among them, before any of them is looked at.
pub(super) fn refuse_repeats(tensors: &[Tensor], sources: &[Source]) -> Result<(), FormatError> {
    // a name maps to the spellings it is stored under
    let mut seen: BTreeMap<&str, Vec<(String, usize)>> = BTreeMap::new();
    for t in tensors {
        if t.name.ends_with(".perm") {
            let (file, tensor) = (sources[t.file].name().to_string(), t.name.clone());
            return Err(FormatError::Packed { file, tensor, fault: PackedFault::Permuted });
        }
        match parse_key(&t.name) {
            Some((name, _, false)) => seen.entry(name).or_default().push((t.name.clone(), t.file)),
            Some(_) => {}
            None => {
                let packed = t.dtype.block().and_then(kind_of).filter(|_| t.offset == HEADER);
                let spelt = packed.map_or(t.name.clone(), |k| format!("{}.{} (file)", t.name, k.suffix));
                seen.entry(&t.name).or_default().push((spelt, t.file));
            }
        }
    }
    match seen.into_iter().find(|(_, found)| found.len() > 1) {
        None => Ok(()),
        Some((name, found)) => Err(FormatError::Packed {
            file: sources[found[0].1].name().to_string(),
            tensor: name.to_string(),
            fault: PackedFault::SeveralFormats { found: found.into_iter().map(|f| f.0).collect() },
        }),
    }
}

/// Replaces packed matrices and their `_meta` by the tensors they stand for; everything else stays as it is.
pub(super) fn resolve(tensors: Vec<Tensor>, sources: &[Source]) -> Result<Vec<Tensor>, FormatError> {
    if !tensors.iter().any(|t| parse_key(&t.name).is_some() || t.name.ends_with(".perm")) {
        return Ok(tensors);
    }
    refuse_repeats(&tensors, sources)?;
    let metas: BTreeMap<&str, &Tensor> = tensors
        .iter()
        .filter(|t| parse_key(&t.name).is_some_and(|(.., meta)| meta))
        .map(|t| (t.name.as_str(), t))
        .collect();
    let mut out = Vec::with_capacity(tensors.len());
    let mut used = 0;
    for t in &tensors {
        let (name, kind) = match parse_key(&t.name) {
            None => {
                out.push(t.clone());
                continue;
            }
            Some((.., true)) => continue,
            Some((name, kind, false)) => (name, kind),
        };
        let fault =
            |fault| FormatError::Packed { file: sources[t.file].name().to_string(), tensor: t.name.clone(), fault };
        let meta = metas.get(format!("{}_meta", t.name).as_str()).ok_or_else(|| fault(PackedFault::NoMeta))?;
        used += 1;
        out.push(matrix(name, kind, t, meta, sources, &fault)?);
    }
    if used < metas.len() {
        let lone = metas.values().find(|m| !tensors.iter().any(|t| m.name.strip_suffix("_meta") == Some(&t.name)));
        if let Some(m) = lone {
            let (file, tensor) = (sources[m.file].name().to_string(), m.name.clone());
            return Err(FormatError::Packed { file, tensor, fault: PackedFault::NoBlocks });
        }
    }
    Ok(out)
}

/// One packed matrix, every rule checked.
fn matrix(
    name: &str,
    kind: &Kind,
    blob: &Tensor,
    meta: &Tensor,
    sources: &[Source],
    fault: &dyn Fn(PackedFault) -> FormatError,
) -> Result<Tensor, FormatError> {
    let kind_of = |t: &Tensor| format!("{} {:?}", t.dtype, t.shape.iter().rev().collect::<Vec<_>>());
    if blob.dtype.name() != "U8" || blob.shape.len() != 1 {
        return Err(fault(PackedFault::WrongBlob { found: kind_of(blob) }));
    }
    let numbers = if kind.keeps_header { 3 } else { 2 };
    if meta.dtype.name() != "I32" || meta.shape != [numbers] {
        return Err(fault(PackedFault::WrongMeta { expected: format!("[{numbers}]"), found: kind_of(meta) }));
    }
    let mut bytes = vec![0; meta.bytes as usize];
    sources[meta.file].read_at(meta.offset, &mut bytes, &|| format!("tensor {:?}", meta.name))?;
    let meta: Vec<i32> = bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
    let (rows, k) = (meta[0], meta[1]);
    if kind.keeps_header && meta[2] != HEADER as i32 {
        return Err(fault(PackedFault::WrongHeaderSize { found: meta[2] }));
    }
    let size = block_bytes(kind, rows.into(), k.into()).map_err(fault)?;
    let (rows, k) = (rows as u32, k as u32);
    let skip = if kind.keeps_header { HEADER } else { 0 };
    if kind.keeps_header {
        let mut head = vec![0; HEADER.min(blob.bytes) as usize];
        sources[blob.file].read_at(blob.offset, &mut head, &|| format!("tensor {:?}", blob.name))?;
        let shape = check_header(kind, &head).map_err(fault)?;
        if shape != (rows, k) {
            return Err(fault(PackedFault::ShapesDisagree { header: shape, meta: (rows, k) }));
        }
    }
    if blob.bytes != skip + size {
        return Err(fault(PackedFault::WrongLength { expected: skip + size, found: blob.bytes }));
    }
    tensor(name, kind, (rows, k), size, blob.offset + skip, blob.file)
        .ok_or_else(|| FormatError::unsupported(sources[blob.file].name(), kind.suffix, "use another format"))
}
