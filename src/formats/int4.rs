//! ChatGLM's INT4 checkpoints: matrices of signed nibbles with one scale a row, read as Q4_0.
//!
//! A directory whose `config.json` says `"quantization_bit": 4` has, for a matrix of n rows and k columns, `NAME.weight` of
//! I8 \[n, k/2\] and `NAME.weight_scale` of F16 \[n\]: byte i of a row holds column 2i in its high nibble and 2i+1 in its
//! low one, both in two's complement, and a weight is nibble · scale. A Q4_0 block is an f16 scale and 32 nibbles to which 8
//! was added, so the same weights are Q4_0 blocks whose scale is their row's, and nothing is rounded. (The models' own code
//! rounds the product to f16 besides.)
//!
//! To the rest of the engine such a matrix is a tensor of Q4_0 that lies behind the end of its file: a read there takes
//! nibbles from the file and puts them in order. Scales are read when the directory is opened, two bytes a row.

use super::Tensor;
use super::dtype::Dtype;
use super::error::{FormatError, quote};
use super::source::{Generated, Source};
use crate::blocks::{BlockType, f16_to_f32, f32_to_f16};
use std::collections::HashMap;

/// Columns of a block.
const COLUMNS: u64 = BlockType::Q4_0.elems() as u64;
/// Bytes of a block in the file.
const NIBBLES: u64 = COLUMNS / 2;
/// Bytes of a block as Q4_0.
const BLOCK: u64 = BlockType::Q4_0.bytes() as u64;

/// One matrix.
struct Matrix {
    /// where its blocks begin in the lengthened file
    start: u64,
    /// where its nibbles begin in the file
    nibbles: u64,
    /// blocks of a row
    per_row: u64,
    /// f16 bits, one a row
    scales: Vec<u16>,
}

impl Matrix {
    fn len(&self) -> u64 {
        self.scales.len() as u64 * self.per_row * BLOCK
    }
}

/// A file with its matrices as Q4_0 behind its end.
struct Lengthened {
    file: Source,
    /// in the order of their starts
    matrices: Vec<Matrix>,
}

impl Generated for Lengthened {
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), FormatError> {
        if offset < self.file.len() {
            return self.file.read_at(offset, out, &|| format!("byte {offset}"));
        }
        // a read is of one tensor
        let at = self.matrices.partition_point(|m| m.start <= offset);
        let Some(m) = at.checked_sub(1).and_then(|i| self.matrices.get(i)) else {
            return Err(FormatError::unsupported(self.file.name(), "a read between tensors", "read one tensor"));
        };
        let (first, skip) = ((offset - m.start) / BLOCK, ((offset - m.start) % BLOCK) as usize);
        let count = (skip + out.len()).div_ceil(BLOCK as usize);
        let mut nibbles = vec![0; count * NIBBLES as usize];
        let place = || format!("nibbles of row {}", first / m.per_row);
        self.file.read_at(m.nibbles + first * NIBBLES, &mut nibbles, &place)?;
        let mut block = [0; BLOCK as usize];
        let (mut skip, mut done) = (skip, 0);
        for (i, pairs) in (first..).zip(nibbles.as_chunks::<{ NIBBLES as usize }>().0) {
            let row = (i / m.per_row) as usize;
            let scale = m.scales.get(row).copied().unwrap_or(0);
            block[..2].copy_from_slice(&scale.to_le_bytes());
            block[2..].copy_from_slice(&reordered(pairs));
            let n = (block.len() - skip).min(out.len() - done);
            out[done..done + n].copy_from_slice(&block[skip..skip + n]);
            (skip, done) = (0, done + n);
        }
        Ok(())
    }
}

/// 32 signed nibbles, the even ones of each pair high, as codes of Q4_0: the first 16 low, and 8 added to each.
fn reordered(pairs: &[u8; NIBBLES as usize]) -> [u8; NIBBLES as usize] {
    let code = |column: usize| {
        let byte = pairs[column / 2];
        let nibble = if column.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
        // 8 added to a number of four bits in two's complement turns its highest bit
        nibble ^ 8
    };
    std::array::from_fn(|j| code(j) | code(j + NIBBLES as usize) << 4)
}

/// The scales of a matrix of `rows` rows.
fn read_scales(t: &Tensor, rows: u64, source: &Source) -> Result<Vec<u16>, FormatError> {
    let place = || format!("tensor {}", quote(&t.name));
    let wrong = |what: &str, expected: String, found: String| {
        Err(FormatError::invalid(source.name(), place(), what, expected, found))
    };
    if t.elems() != rows {
        let found = format!("{:?}", t.shape.iter().rev().collect::<Vec<_>>());
        return wrong("a scale for each row of its matrix", format!("{rows} elements"), found);
    }
    let mut bytes = vec![0; t.bytes as usize];
    source.read_at(t.offset, &mut bytes, &place)?;
    match t.dtype.block() {
        Some(BlockType::F16) => Ok(bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b)).collect()),
        Some(BlockType::F32) => {
            let values = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
            let exact = values.map(|v| Some(f32_to_f16(v)).filter(|bits| f16_to_f32(*bits) == v).ok_or(v));
            match exact.collect::<Result<Vec<u16>, f32>>() {
                Ok(scales) => Ok(scales),
                Err(v) => wrong("a scale that no Q4_0 block can hold", "a value of F16".into(), format!("{v:?}")),
            }
        }
        _ => wrong("scales of another type", "F16, or F32 with values of F16".into(), t.dtype.to_string()),
    }
}

/// Replaces the matrices of nibbles and their scales by tensors of Q4_0; everything else stays as it is. Sources that have
/// such matrices are lengthened by them.
///
/// Errors: a matrix without scales, or scales without a matrix; rows that are not whole blocks; scales that f16 does not
/// hold.
pub(super) fn resolve(tensors: Vec<Tensor>, sources: Vec<Source>) -> Result<(Vec<Tensor>, Vec<Source>), FormatError> {
    let by_name: HashMap<&str, &Tensor> = tensors.iter().map(|t| (t.name.as_str(), t)).collect();
    let is_matrix = |t: &Tensor| t.dtype.name() == "I8" && t.shape.len() == 2;
    let mut matrices: Vec<Vec<Matrix>> = sources.iter().map(|_| vec![]).collect();
    let mut ends: Vec<u64> = sources.iter().map(Source::len).collect();
    let mut out = Vec::with_capacity(tensors.len());
    for t in &tensors {
        let source = &sources[t.file];
        let wrong = |what: &str, expected: &str, found: String| {
            Err(FormatError::invalid(source.name(), format!("tensor {}", quote(&t.name)), what, expected, found))
        };
        if let Some(name) = t.name.strip_suffix("_scale").filter(|name| name.ends_with(".weight")) {
            match by_name.get(name).is_some_and(|t| is_matrix(t)) {
                true => continue,
                false => {
                    return wrong("scales of nothing", "a matrix of I8 beside them", format!("no {}", quote(name)));
                }
            }
        }
        if !is_matrix(t) {
            out.push(t.clone());
            continue;
        }
        let (rows, columns) = (t.shape[1], t.shape[0].saturating_mul(2));
        let Some(scales) = by_name.get(format!("{}_scale", t.name).as_str()) else {
            return wrong("a matrix of I8 without scales", "a tensor of this name with _scale", "none".into());
        };
        if columns == 0 || !columns.is_multiple_of(COLUMNS) {
            return wrong("rows that are not whole Q4_0 blocks", "a multiple of 32 columns", columns.to_string());
        }
        let start = ends[t.file];
        let scales = read_scales(scales, rows, &sources[scales.file])?;
        let m = Matrix { start, nibbles: t.offset, per_row: columns / COLUMNS, scales };
        // nine eighths of the bytes the file has for it
        let bytes = m.len();
        ends[t.file] = start.saturating_add(bytes);
        matrices[t.file].push(m);
        let dtype = Dtype::from_block(BlockType::Q4_0)
            .ok_or_else(|| FormatError::unsupported(source.name(), "Q4_0", "use another format"))?;
        out.push(Tensor { dtype, shape: vec![columns, rows], bytes, offset: start, ..t.clone() });
    }
    let lengthened = sources.into_iter().zip(matrices).zip(ends).map(|((file, matrices), end)| {
        if matrices.is_empty() {
            return file;
        }
        let name = file.name().to_string();
        Source::generated(&name, end, Lengthened { file, matrices })
    });
    Ok((out, lengthened.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nibbles_keep_their_columns_and_values() {
        let pairs: [u8; 16] = std::array::from_fn(|i| (i as u8).wrapping_mul(73).wrapping_add(5));
        let signed = |n: u8| i32::from((n << 4) as i8 >> 4);
        let wanted: Vec<f32> =
            pairs.iter().flat_map(|b| [signed(b >> 4), signed(b & 15)]).map(|v| v as f32 * 0.5).collect();
        let mut block = f32_to_f16(0.5).to_le_bytes().to_vec();
        block.extend(reordered(&pairs));
        let mut found = [0f32; 32];
        BlockType::Q4_0.decode_row(&block, &mut found);
        assert_eq!(found[..], wanted[..]);
        assert!(wanted.contains(&-4.0) && wanted.contains(&3.5));
    }
}
