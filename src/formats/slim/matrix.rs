//! Matrices whose blocks are put together when they are read: codes from the file, numbers that were read with its header.

use super::super::error::{FormatError, quote};
use super::super::source::{Generated, Source};
use crate::blocks::BlockType;

/// How the codes of a matrix lie in the file. All are signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codes {
    /// a byte each
    Bytes,
    /// a byte each, of which four bits are used
    Narrow,
    /// two to a byte, of an even column low and of the next one high
    ColumnPairs,
    /// two to a byte, of an even row low and of the next one high
    RowPairs,
}

/// What the codes of a row, or of a part of it, are multiplied by.
pub enum Numbers {
    /// for each group of a row, row after row: the scale, and the code of 0 as the block has it
    Groups {
        /// one a group
        scales: Vec<f32>,
        /// one a group
        offsets: Vec<i8>,
        /// groups of a row
        per_row: u64,
    },
    /// for each row
    Rows(Vec<Row>),
}

/// The numbers of a row of W8A8.
#[derive(Clone, Copy)]
pub struct Row {
    /// scale of the result
    pub d: f32,
    /// what is added to the sum
    pub b: i32,
    /// scale of the codes
    pub s: f32,
}

/// One matrix.
pub struct Matrix {
    /// its name, for messages
    pub name: String,
    /// where its blocks begin in the lengthened file
    pub start: u64,
    /// where its codes begin in the file
    pub at: u64,
    /// how they lie there
    pub codes: Codes,
    /// elements of a row: whole blocks
    pub columns: u64,
    /// number of rows
    pub rows: u64,
    /// the type of its blocks: W8A16, Q8K128 or W4A16 of groups, W8A8 of rows
    pub block: BlockType,
    /// scales, offsets and what is added
    pub numbers: Numbers,
}

/// Blocks that are made at once: what a read takes in memory is bounded by this.
const AT_ONCE: u64 = 16 << 10;
/// Bytes of the largest block.
const LARGEST: usize = BlockType::Q8K128.bytes();

impl Matrix {
    /// Bytes of its blocks; `None` when there are too many.
    pub fn len(&self) -> Option<u64> {
        let blocks = self.rows.checked_mul(self.columns / self.block.elems() as u64)?;
        blocks.checked_mul(self.block.bytes() as u64)
    }

    /// Fills `out` with the bytes of its blocks from `offset` on.
    fn read(&self, file: &Source, offset: u64, out: &mut [u8]) -> Result<(), FormatError> {
        let (bytes, elems) = (self.block.bytes(), self.block.elems());
        let (mut next, mut skip) = (offset / bytes as u64, (offset % bytes as u64) as usize);
        let (mut codes, mut done) = (Vec::new(), 0);
        let mut block = [0u8; LARGEST];
        while done < out.len() {
            let wanted = (skip + out.len() - done).div_ceil(bytes) as u64;
            let count = wanted.min(AT_ONCE);
            self.read_codes(file, next * elems as u64, &mut codes, count as usize * elems)?;
            for (i, codes) in (next..).zip(codes.chunks_exact(elems)) {
                self.make(i, codes, &mut block[..bytes]);
                let n = (bytes - skip).min(out.len() - done);
                out[done..done + n].copy_from_slice(&block[skip..skip + n]);
                (skip, done) = (0, done + n);
            }
            next += count;
        }
        Ok(())
    }

    /// The codes of `len` elements from `first` on, row after row. Both are multiples of a block's elements.
    fn read_codes(&self, file: &Source, first: u64, out: &mut Vec<i8>, len: usize) -> Result<(), FormatError> {
        let place = || format!("codes of tensor {} from row {} on", quote(&self.name), first / self.columns);
        let signed = |nibble: u8| (nibble << 4) as i8 >> 4;
        out.clear();
        out.resize(len, 0);
        match self.codes {
            Codes::Bytes | Codes::Narrow => {
                file.read_at(self.at + first, bytemuck::cast_slice_mut(out), &place)?;
                if let (Codes::Narrow, Some(q)) = (self.codes, out.iter().find(|q| !(-8..8).contains(*q))) {
                    let what = "a code that has more than four bits";
                    return Err(FormatError::invalid(file.name(), place(), what, "-8 to 7", q));
                }
            }
            Codes::ColumnPairs => {
                let mut pairs = vec![0; len / 2];
                file.read_at(self.at + first / 2, &mut pairs, &place)?;
                for (two, pair) in out.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
                    *two = [signed(pair & 15), signed(pair >> 4)];
                }
            }
            Codes::RowPairs => {
                let mut pairs = Vec::new();
                let mut done = 0;
                while done < len {
                    let (row, column) = ((first + done as u64) / self.columns, (first + done as u64) % self.columns);
                    let n = (self.columns - column).min((len - done) as u64) as usize;
                    pairs.resize(n, 0);
                    file.read_at(self.at + row / 2 * self.columns + column, &mut pairs, &place)?;
                    let shift = 4 * (row % 2);
                    for (q, pair) in out[done..].iter_mut().zip(&pairs) {
                        *q = signed((pair >> shift) & 15);
                    }
                    done += n;
                }
            }
        }
        Ok(())
    }

    /// Writes block `i` of the matrix.
    fn make(&self, i: u64, codes: &[i8], out: &mut [u8]) {
        let per_row = self.columns / self.block.elems() as u64;
        let (row, of_row) = (i / per_row, i % per_row);
        match &self.numbers {
            Numbers::Rows(rows) => {
                // reads are of whole blocks within the matrix, which has a row of numbers for each of its rows
                let Row { d, b, s } = rows[row as usize];
                out[..4].copy_from_slice(&d.to_le_bytes());
                out[4..8].copy_from_slice(&b.to_le_bytes());
                out[8..12].copy_from_slice(&s.to_le_bytes());
                out[12..].copy_from_slice(bytemuck::cast_slice(codes));
            }
            Numbers::Groups { scales, offsets, per_row: groups } => {
                let group = (row * groups + of_row * groups / per_row) as usize;
                out[..4].copy_from_slice(&scales[group].to_le_bytes());
                match self.block {
                    BlockType::Q8K128 => {
                        out[4..132].copy_from_slice(bytemuck::cast_slice(codes));
                        for (sum, codes) in out[132..].chunks_exact_mut(2).zip(codes.chunks_exact(16)) {
                            let total: i16 = codes.iter().map(|q| i16::from(*q)).sum();
                            sum.copy_from_slice(&total.to_le_bytes());
                        }
                    }
                    BlockType::W4A16 => {
                        out[4] = offsets[group] as u8;
                        // 8 added to a number of four bits in two's complement turns its highest bit
                        let nibble = |q: i8| (q as u8 & 15) ^ 8;
                        for (j, byte) in out[5..].iter_mut().enumerate() {
                            *byte = nibble(codes[j]) | nibble(codes[j + 16]) << 4;
                        }
                    }
                    _ => {
                        out[4] = offsets[group] as u8;
                        out[5..].copy_from_slice(bytemuck::cast_slice(codes));
                    }
                }
            }
        }
    }
}

/// A file with the blocks of its matrices behind its end.
pub struct Lengthened {
    /// the file as it is
    pub file: Source,
    /// in the order of their starts
    pub matrices: Vec<Matrix>,
}

impl Generated for Lengthened {
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), FormatError> {
        if offset < self.file.len() {
            return self.file.read_at(offset, out, &|| format!("byte {offset}"));
        }
        let at = self.matrices.partition_point(|m| m.start <= offset);
        let m = at.checked_sub(1).and_then(|i| self.matrices.get(i));
        let end = offset.saturating_add(out.len() as u64);
        match m {
            // a read is of one tensor
            Some(m) if m.len().is_some_and(|len| end <= m.start + len) => m.read(&self.file, offset - m.start, out),
            _ => Err(FormatError::unsupported(self.file.name(), "a read of several tensors", "read one tensor")),
        }
    }
}
