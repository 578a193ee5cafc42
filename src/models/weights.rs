//! Reads the weights of a plan from their file, packing them on the way.

use super::hyper::{Hyper, RopeScaling};
use super::rope::RopeTable;
use super::vector::{place, range, vector};
use crate::blocks::pack::{self, ROW_BLOCK};
use crate::formats::Container;
use crate::ops::exact::flush;
use crate::record::{BufDecl, Change, Part, Piece, Role, WeightSource};
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
        match buffer.role {
            Role::Constant(number) => {
                out.fill(number.to_bits());
                return Ok(());
            }
            Role::Counting(n) => {
                out.iter_mut().zip((0..n).cycle()).for_each(|(word, i)| *word = i);
                return Ok(());
            }
            _ => {}
        }
        let mut at = 0;
        for p in pieces_of(buffer)? {
            let (words, _) = p.part.words();
            self.piece(p, &mut out[at..at + words])?;
            at += words;
        }
        Ok(())
    }

    fn pieces(&self, buffer: &BufDecl, most: usize) -> Vec<usize> {
        let cut = |p: &Piece| {
            let (words, block) = p.part.words();
            let at_once = (most / block).max(1) * block;
            (0..words).step_by(at_once).map(move |at| at_once.min(words - at))
        };
        match buffer.role {
            Role::Constant(_) | Role::Counting(_) => vec![buffer.words],
            _ => buffer.role.pieces().iter().flat_map(cut).collect(),
        }
    }

    fn fill_piece(&mut self, buffer: &BufDecl, first: usize, out: &mut [u32]) -> anyhow::Result<()> {
        if matches!(buffer.role, Role::Constant(_) | Role::Counting(_)) {
            return self.fill(buffer, out);
        }
        let mut at = 0;
        for p in pieces_of(buffer)? {
            let (words, block) = p.part.words();
            if first < at + words {
                let mut part = p.part;
                if let Part::Rows { row0, rows, .. } = &mut part {
                    let skipped = (first - at) / block * ROW_BLOCK;
                    *row0 += skipped;
                    *rows = (out.len() / block * ROW_BLOCK).min(*rows - skipped);
                }
                return self.piece(&Piece { part, ..*p }, out);
            }
            at += words;
        }
        bail!("buffer {} has no word {first}", buffer.name)
    }
}

/// What a GGUF file has of a number whose logarithm a directory keeps: -e^x, rounded once.
pub fn fading(x: f32) -> f32 {
    -libm::exp(f64::from(x)) as f32
}

/// What a buffer of weights is made of, one after the other.
fn pieces_of(buffer: &BufDecl) -> anyhow::Result<&[Piece]> {
    let pieces = buffer.role.pieces();
    ensure!(!pieces.is_empty(), "buffer {} holds no weights", buffer.name);
    Ok(pieces)
}

impl Weights<'_> {
    /// Fills `out`, of exactly its words.
    fn piece(&mut self, p: &Piece, out: &mut [u32]) -> anyhow::Result<()> {
        let c = self.container;
        let t = &c.tensors[p.tensor];
        let (ty, packed, k, row0, rows) = match p.part {
            Part::Rows { t, packed, k, row0, rows } => (t, packed, k, row0, rows),
            Part::Vector { first, len, change } => {
                for (w, v) in out.iter_mut().zip(range(c, t, first..first + len)?) {
                    let v = match change {
                        Change::None => v,
                        Change::PlusOne => 1.0 + v,
                        Change::Fading => fading(v),
                    };
                    ensure!(v.is_finite(), "{} holds a number whose exponential is none", place(c, t));
                    *w = flush(v).to_bits();
                }
                (self.progress)(t.bytes / t.elems().max(1) * len as u64);
                return Ok(());
            }
        };
        let row_bytes = ty
            .row_bytes(k)
            .with_context(|| format!("{}: rows of {k} are not whole {} blocks", place(c, t), ty.name()))?;
        let block_words = pack::words_per_row(packed, k) * ROW_BLOCK;
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
                    pack::pack_rows_as(ty, packed, k, bytes.len() / row_bytes, bytes, out)
                        .map_err(|e| anyhow::anyhow!("{}, rows from {}: {e}", place(c, t), row0 + done + 32 * i))
                })?;
            (self.progress)(bytes.len() as u64);
            done += n;
        }
        Ok(())
    }
}

/// The RoPE table of a model for sequences of up to `n_ctx` positions, with the file's own frequency divisors where it
/// has them.
pub fn rope_table(c: &Container, h: &Hyper, n_ctx: usize) -> anyhow::Result<RopeTable> {
    if h.family.learns_positions() {
        let known = ["position_embd.weight", "model.embed_positions.weight"].iter().find_map(|name| c.tensor(name));
        let t = known.with_context(|| format!("{}: no tensor has the learned positions", c.files[0].display()))?;
        ensure!(
            t.elems() == (h.dim as u64).saturating_mul(h.context as u64),
            "{} has {} elements, expected {} for each of {} positions",
            place(c, t),
            t.elems(),
            h.dim,
            h.context
        );
        return Ok(RopeTable::learned(vector(c, t)?, h.dim));
    }
    let Some(t) = c.tensor("rope_freqs.weight") else { return Ok(RopeTable::new(h, None, n_ctx)) };
    // before it is read: one of another length may be of any length
    ensure!(
        t.elems() == h.n_rot as u64 / 2,
        "{} has {} elements, expected {}: one per rotated pair",
        place(c, t),
        t.elems(),
        h.n_rot / 2
    );
    if let RopeScaling::Proportional { .. } = h.rope_scaling {
        // which was read from it
        return Ok(RopeTable::new(h, None, n_ctx));
    }
    let d = vector(c, t)?;
    let bad = d.iter().position(|v| *v <= 0.0);
    ensure!(bad.is_none(), "{} holds a divisor that is not above 0 at element {}", place(c, t), bad.unwrap_or(0));
    Ok(RopeTable::new(h, Some(&d), n_ctx))
}

/// As [`rope_table`], and after it the table of layers that are rotated by another, where there are any.
pub fn rope_tables(c: &Container, h: &Hyper, n_ctx: usize) -> anyhow::Result<Vec<RopeTable>> {
    let main = rope_table(c, h, n_ctx)?;
    Ok(std::iter::once(main).chain(RopeTable::local(h, n_ctx)).collect())
}
