//! Files with tensors behind their ends that are made of those within: what a model keeps in another order than the engine has
//! it is put in order when it is read.

use super::Tensor;
use super::error::FormatError;
use super::order::{Anew, Columns, Order, Pairs};
use super::source::{Generated, Source};
use crate::blocks::mxfp4::BlockMXFP4;
use std::sync::{Arc, Mutex};

/// Tensors that are being made, and where.
pub(super) struct Making {
    /// of each file
    made: Vec<Vec<Made>>,
    /// of each file, with what was made so far
    ends: Vec<u64>,
}

impl Making {
    pub fn behind(sources: &[Source]) -> Making {
        Making { made: sources.iter().map(|_| vec![]).collect(), ends: sources.iter().map(Source::len).collect() }
    }

    /// A tensor of `t`'s type, behind the end of its file.
    pub fn add(&mut self, t: &Tensor, name: String, shape: Vec<u64>, order: Order, bytes: u64) -> Tensor {
        let start = self.ends[t.file];
        self.ends[t.file] = start.saturating_add(bytes);
        self.made[t.file].push(Made { start, bytes, order });
        Tensor { name, shape, bytes, offset: start, ..t.clone() }
    }

    pub fn anew(&mut self, e: Anew) -> Tensor {
        self.add(&e.like, e.name, e.shape, e.order, e.bytes)
    }

    /// The files, with what was made behind their ends.
    pub fn files(self, sources: Vec<Source>) -> Vec<Source> {
        if self.made.iter().all(Vec::is_empty) {
            return sources;
        }
        let all = Arc::new(sources);
        let lengthened = self.made.into_iter().zip(self.ends).enumerate().map(|(file, (made, end))| {
            let lengthened = Lengthened { all: all.clone(), file, made, turned: Mutex::new(None) };
            Source::generated(all[file].name(), end, lengthened)
        });
        lengthened.collect()
    }
}

struct Made {
    /// where it begins in the lengthened file
    start: u64,
    bytes: u64,
    order: Order,
}

/// A matrix turned around: the start of its tensor and which of its matrices it is; its bytes.
type Turned = ((u64, usize), Arc<Vec<u8>>);

/// A file with its made tensors behind its end.
struct Lengthened {
    all: Arc<Vec<Source>>,
    /// which of them it is
    file: usize,
    /// in the order of their starts
    made: Vec<Made>,
    /// the last one, which is read piece after piece
    turned: Mutex<Option<Turned>>,
}

impl Generated for Lengthened {
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), FormatError> {
        let place = || format!("byte {offset}");
        let file = &self.all[self.file];
        if offset < file.len() {
            return file.read_at(offset, out, &place);
        }
        // a read is of one tensor
        let at = self.made.partition_point(|m| m.start <= offset);
        let m = at.checked_sub(1).and_then(|i| self.made.get(i));
        let Some(m) = m.filter(|m| offset - m.start + out.len() as u64 <= m.bytes) else {
            return Err(FormatError::unsupported(file.name(), "a read between tensors", "read one tensor"));
        };
        let skip = offset - m.start;
        match &m.order {
            Order::Pieces(pieces) => {
                let (mut skip, mut done) = (skip, 0);
                for (file, p) in pieces {
                    let len = p.end - p.start;
                    if skip >= len {
                        skip -= len;
                        continue;
                    }
                    let n = usize::try_from(len - skip).unwrap_or(usize::MAX).min(out.len() - done);
                    self.all[*file].read_at(p.start + skip, &mut out[done..done + n], &place)?;
                    (skip, done) = (0, done + n);
                }
            }
            Order::Transposed(columns) => {
                // a read is within a tensor that is there, so that its places are numbers of this machine
                let (mut skip, mut done, size) = (skip as usize, 0, columns.bytes().max(1));
                while done < out.len() {
                    let (number, within) = (skip / size, skip % size);
                    let bytes = self.turned(m.start, columns, number)?;
                    let n = (size - within).min(out.len() - done);
                    out[done..done + n].copy_from_slice(&bytes[within..within + n]);
                    (skip, done) = (skip + n, done + n);
                }
            }
            &Order::Seconds { at, size } => {
                // whole elements: what else is asked for of them is not floats
                let (first, size) = (skip / size, size as usize);
                let n = (skip as usize % size + out.len()).div_ceil(size);
                let mut from = vec![0; (2 * n).saturating_sub(1) * size];
                file.read_at(at + 2 * first * size as u64, &mut from, &place)?;
                let bytes: Vec<u8> = from.chunks(size).step_by(2).flatten().copied().collect();
                out.copy_from_slice(&bytes[skip as usize % size..][..out.len()]);
            }
            Order::Pairs(pairs) => self.pairs(pairs, skip as usize, out)?,
            Order::Columns(blocks) => {
                let row = blocks.size * blocks.order.len();
                let (first, within) = (skip / row as u64, (skip % row as u64) as usize);
                let mut from = vec![0; (within + out.len()).next_multiple_of(row)];
                file.read_at(blocks.at + first * row as u64, &mut from, &place)?;
                let block = |row: &'_ [u8], b: usize| row[b * blocks.size..][..blocks.size].to_vec();
                let in_order = |row: &[u8]| blocks.order.iter().flat_map(|&b| block(row, b)).collect::<Vec<u8>>();
                let bytes: Vec<u8> = from.chunks_exact(row).flat_map(in_order).collect();
                out.copy_from_slice(&bytes[within..][..out.len()]);
            }
        }
        Ok(())
    }
}

impl Lengthened {
    /// Matrix `number` of a transposed tensor that begins at `start`.
    fn turned(&self, start: u64, c: &Columns, number: usize) -> Result<Arc<Vec<u8>>, FormatError> {
        let mut kept = self.turned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, bytes)) = kept.as_ref().filter(|(of, _)| *of == (start, number)) {
            return Ok(bytes.clone());
        }
        let at = c.at + (number * c.apart) as u64;
        let mut from = vec![0; c.rows * c.row];
        self.all[self.file].read_at(at, &mut from, &|| format!("byte {at}"))?;
        if let Some(blocks) = c.coded {
            let mut floats = vec![0.0f32; c.rows * c.cols];
            blocks.decode_row(&from, &mut floats);
            from = floats.into_iter().flat_map(f32::to_le_bytes).collect();
        }
        let mut to = vec![0; c.bytes()];
        for (i, row) in to.chunks_exact_mut((c.rows * c.size).max(1)).enumerate() {
            let column = c.first + i * c.step;
            for (r, e) in row.chunks_exact_mut(c.size).enumerate() {
                e.copy_from_slice(&from[(r * c.cols + column) * c.size..][..c.size]);
            }
        }
        let to = Arc::new(to);
        *kept = Some(((start, number), to.clone()));
        Ok(to)
    }

    /// Bytes of the rows that `p` makes, from byte `skip` of them on.
    fn pairs(&self, p: &Pairs, skip: usize, out: &mut [u8]) -> Result<(), FormatError> {
        let size = p.row * size_of::<BlockMXFP4>();
        let (mut skip, mut done) = (skip, 0);
        let (mut codes, mut scales, mut row) = (vec![0; 16 * p.row], vec![0; p.row], Vec::with_capacity(size));
        while done < out.len() {
            let number = p.first + p.step * (skip / size) as u64;
            for (tensor, bytes) in [(p.blocks, &mut codes), (p.scales, &mut scales)] {
                let at = tensor.1 + number * bytes.len() as u64;
                self.all[tensor.0].read_at(at, bytes, &|| format!("byte {at}"))?;
            }
            row.clear();
            for (e, pairs) in scales.iter().zip(codes.as_chunks().0) {
                row.extend_from_slice(bytemuck::bytes_of(&BlockMXFP4::from_pairs(*e, pairs)));
            }
            let within = skip % size;
            let n = (size - within).min(out.len() - done);
            out[done..done + n].copy_from_slice(&row[within..within + n]);
            (skip, done) = (skip + n, done + n);
        }
        Ok(())
    }
}
