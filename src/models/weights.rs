//! Reads the weights of a plan from their file, packing them on the way.

use super::hyper::Hyper;
use super::rope::RopeTable;
use super::vector::{place, vector};
use crate::blocks::{BlockType, pack};
use crate::formats::{Container, Tensor};
use crate::ops::exact::flush;
use crate::ops::linear::ROW_BLOCK;
use crate::record::{BufDecl, Role, WeightSource};
use crate::stop::Stop;
use anyhow::{Context, bail, ensure};
use rayon::prelude::*;

/// Bytes read from a file at once.
const READ_AT_ONCE: usize = 8 << 20;

/// The weights of a container; `progress` hears how many file bytes were read.
pub struct Weights<'a> {
    container: &'a Container,
    /// file bytes, kept from piece to piece
    bytes: Vec<u8>,
    stop: Stop,
    progress: Box<dyn FnMut(u64) + Send + 'a>,
}

impl<'a> Weights<'a> {
    /// `progress` is called with the number of bytes just read.
    pub fn new(container: &'a Container, progress: impl FnMut(u64) + Send + 'a) -> Weights<'a> {
        Weights { container, bytes: Vec::new(), stop: Stop::default(), progress: Box::new(progress) }
    }

    /// With a flag that ends reading.
    pub fn until(self, stop: Stop) -> Weights<'a> {
        Weights { stop, ..self }
    }
}

impl WeightSource for Weights<'_> {
    fn fill(&mut self, buffer: &BufDecl, out: &mut [u32]) -> anyhow::Result<()> {
        match &buffer.role {
            Role::Weight { tensor, row0, rows } => self.rows(tensor, *row0, *rows, out).map(|_| ()),
            Role::Stacked(pieces) => {
                let mut at = 0;
                for p in pieces {
                    at += self.rows(&p.tensor, p.row0, p.rows, &mut out[at..])?;
                }
                Ok(())
            }
            _ => bail!("buffer {} holds no weights", buffer.name),
        }
    }

    fn pieces(&self, buffer: &BufDecl, most: usize) -> Vec<usize> {
        // what is wrong with a tensor is said where it is filled
        let Ok(list) = self.segments(buffer) else { return vec![buffer.words] };
        let cut = |s: &Segment| {
            let (words, piece) = (s.words, (most / s.block).max(1) * s.block);
            (0..words).step_by(piece).map(move |at| piece.min(words - at)).collect::<Vec<_>>()
        };
        list.iter().flat_map(cut).collect()
    }

    fn fill_piece(&mut self, buffer: &BufDecl, first: usize, out: &mut [u32]) -> anyhow::Result<()> {
        let mut at = 0;
        for s in self.segments(buffer)? {
            if first < at + s.words {
                let row = (first - at) / s.block * ROW_BLOCK;
                let rows = (out.len() / s.block * ROW_BLOCK).min(s.rows - row);
                return self.rows(&s.tensor, s.row0 + row, rows, out).map(|_| ());
            }
            at += s.words;
        }
        bail!("buffer {} has no word {first}", buffer.name)
    }
}

/// Rows of a tensor within a buffer.
struct Segment {
    tensor: String,
    row0: usize,
    rows: usize,
    /// words in all, and words that stay together: those of a block of rows, or of a vector
    words: usize,
    block: usize,
}

impl Weights<'_> {
    /// What a buffer is made of, one after the other.
    fn segments(&self, buffer: &BufDecl) -> anyhow::Result<Vec<Segment>> {
        let segment = |tensor: &str, row0, rows| {
            let (t, ty) = claimed(self.container, tensor)?;
            let (rows, block) = match t.shape[..] {
                [k, _, ..] => (rows, pack::words_per_row(pack::packed_type(ty), k as usize) * ROW_BLOCK),
                _ => (ROW_BLOCK, t.elems() as usize),
            };
            anyhow::Ok(Segment { tensor: tensor.into(), row0, rows, words: rows.div_ceil(ROW_BLOCK) * block, block })
        };
        match &buffer.role {
            Role::Weight { tensor, row0, rows } => Ok(vec![segment(tensor, *row0, *rows)?]),
            Role::Stacked(pieces) => pieces.iter().map(|p| segment(&p.tensor, p.row0, p.rows)).collect(),
            _ => bail!("buffer {} holds no weights", buffer.name),
        }
    }

    /// Fills `out` with packed rows of a tensor, or with a vector; returns the words written.
    fn rows(&mut self, tensor: &str, row0: usize, rows: usize, out: &mut [u32]) -> anyhow::Result<usize> {
        let c = self.container;
        let (t, ty) = claimed(c, tensor)?;
        if t.shape.len() < 2 {
            let values = vector(c, t)?;
            for (w, v) in out.iter_mut().zip(&values) {
                *w = flush(*v).to_bits();
            }
            (self.progress)(t.bytes);
            return Ok(values.len());
        }
        let k = t.shape[0] as usize;
        let row_bytes = ty
            .row_bytes(k)
            .with_context(|| format!("{}: rows of {k} are not whole {} blocks", place(c, t), ty.name()))?;
        let block_words = pack::words_per_row(pack::packed_type(ty), k) * ROW_BLOCK;
        // whole row blocks at a time
        let at_once = (READ_AT_ONCE / row_bytes / ROW_BLOCK).max(1) * ROW_BLOCK;
        self.bytes.resize((at_once.min(rows) * row_bytes).max(self.bytes.len()), 0);
        let mut done = 0;
        while done < rows {
            self.stop.check()?;
            let n = at_once.min(rows - done);
            let bytes = &mut self.bytes[..n * row_bytes];
            c.read(t, ((row0 + done) * row_bytes) as u64, bytes)?;
            out[done / ROW_BLOCK * block_words..][..n.div_ceil(ROW_BLOCK) * block_words]
                .par_chunks_mut(block_words)
                .zip(bytes.par_chunks(ROW_BLOCK * row_bytes))
                .enumerate()
                .try_for_each(|(i, (out, bytes))| {
                    pack::pack_rows(ty, k, bytes.len() / row_bytes, bytes, out)
                        .map_err(|e| anyhow::anyhow!("{}, rows from {}: {e}", place(c, t), row0 + done + 32 * i))
                })?;
            (self.progress)(bytes.len() as u64);
            done += n;
        }
        Ok(rows.div_ceil(32) * block_words)
    }
}

/// A tensor and its block type. Errors: it is missing; it is of a type that is not decoded here.
fn claimed<'c>(c: &'c Container, name: &str) -> anyhow::Result<(&'c Tensor, BlockType)> {
    let missing = || format!("{}: tensor {name} is missing", c.files[0].display());
    let t = c.tensor(name).with_context(missing)?;
    let unknown = || format!("{} is {}, which cannot be decoded here", place(c, t), t.dtype.name());
    Ok((t, t.dtype.block().with_context(unknown)?))
}

/// The RoPE table of a model for sequences of up to `n_ctx` positions, with the file's own frequency divisors where it
/// has them.
pub fn rope_table(c: &Container, h: &Hyper, n_ctx: usize) -> anyhow::Result<RopeTable> {
    let Some(t) = c.tensor("rope_freqs.weight") else { return Ok(RopeTable::new(h, None, n_ctx)) };
    // before it is read: one of another length may be of any length
    ensure!(
        t.elems() == h.n_rot as u64 / 2,
        "{} has {} elements, expected {}: one per rotated pair",
        place(c, t),
        t.elems(),
        h.n_rot / 2
    );
    let d = vector(c, t)?;
    let bad = d.iter().position(|v| *v <= 0.0);
    ensure!(bad.is_none(), "{} holds a divisor that is not above 0 at element {}", place(c, t), bad.unwrap_or(0));
    Ok(RopeTable::new(h, Some(&d), n_ctx))
}
