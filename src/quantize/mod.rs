//! One model file into another: what becomes of each tensor, and doing it piece by piece.
//!
//! [`plan`] looks at the headers and makes a [`Job`]: every byte of the new model as a list of [`Piece`]s with their
//! places. [`run`] fills them in order, each piece cut into chunks of rows that all threads read, encode and write by
//! position, so that memory does not grow with the model: about three chunks a thread. Finished pieces are noted with a
//! hash of their bytes; [`check`] reads them back when an interrupted job is resumed.
//!
//! The encoders are those of `blocks` at the fastest SIMD level, or an [`Encoder`] on a device; the bytes are the same.
//! Files are opened, created and renamed by `formats` alone, and nothing is printed.

pub mod auto;
pub mod choose;
pub mod convert;
pub mod device;
pub mod error;
pub mod kv;
mod plan;
pub mod slim;
mod vocab;

pub use plan::{Options, Split, Target, plan};

use crate::blocks::BlockType;
use crate::formats::meta::Meta;
use crate::formats::output::{Layout, Staged, StagedFile};
use crate::formats::{Container, Dtype, Tensor};
use crate::simd::{Level, encode};
use crate::stop::Interrupted;
use anyhow::{Context, bail, ensure};
use rayon::prelude::*;
use slim::linear::{Made, Part};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of the source in a chunk, about.
const CHUNK: u64 = 1 << 20;

/// Where a piece's bytes come from.
#[derive(Clone, Debug)]
pub enum Data {
    /// they are known
    Bytes(Vec<u8>),
    /// a tensor of the source
    Tensor {
        /// its index
        index: usize,
        /// what it becomes; `None`: its bytes as they are
        to: Option<BlockType>,
        /// heads whose rows are permuted from halves to neighbours
        heads: Option<usize>,
        /// how important the columns of each of its matrices are, one matrix after the other
        importances: Option<Arc<[f32]>>,
    },
    /// one of the tensors that a matrix becomes in a directory of codes and scales
    Made {
        /// the matrix
        index: usize,
        /// heads whose rows are permuted from neighbours to halves
        heads: Option<usize>,
        /// what of it
        made: Made,
    },
}

/// A range of one of the new files.
#[derive(Clone, Debug)]
pub struct Piece {
    /// the tensor's new name; empty for what is no tensor
    pub name: String,
    /// file of the layout
    pub file: String,
    /// place in it
    pub offset: u64,
    /// length
    pub bytes: u64,
    /// content
    pub data: Data,
    /// why it is not what was asked for
    pub note: Option<String>,
}

/// Everything there is to do.
#[derive(Clone, Debug)]
pub struct Job {
    /// files
    pub layout: Layout,
    /// their content, whole and in order
    pub pieces: Vec<Piece>,
    /// small files of a directory
    pub side: Vec<(String, Vec<u8>)>,
    /// the metadata of a GGUF model; of a packed one they are the source's
    pub meta: Option<Meta>,
}

impl Job {
    /// Bytes of the source that are read: those of a matrix as often as it is.
    pub fn bytes_in(&self, c: &Container) -> u64 {
        self.pieces.iter().fold(0, |n, p| n.saturating_add(p.source(c).map_or(0, |t| t.bytes)))
    }

    /// Bytes of the source that the new model is made from.
    pub fn bytes_of_source(&self, c: &Container) -> u64 {
        self.pieces.iter().fold(0, |n, p| n.saturating_add(p.tensor(c).map_or(0, |t| t.bytes)))
    }

    /// Bytes that are written.
    pub fn bytes_out(&self) -> u64 {
        self.layout.files.iter().fold(0, |n, f| n.saturating_add(f.1))
    }
}

impl Piece {
    /// The tensor it is made from.
    pub fn source<'a>(&self, c: &'a Container) -> Option<&'a Tensor> {
        match self.data {
            Data::Bytes(_) => None,
            Data::Tensor { index, .. } | Data::Made { index, .. } => c.tensors.get(index),
        }
    }

    /// The tensor it stands for: of the pieces made of one matrix, that with the codes.
    pub fn tensor<'a>(&self, c: &'a Container) -> Option<&'a Tensor> {
        let beside = matches!(&self.data, Data::Made { made, .. } if made.part != Part::Codes);
        self.source(c).filter(|_| !beside)
    }

    /// Heads whose rows change places.
    fn heads(&self) -> Option<usize> {
        match self.data {
            Data::Bytes(_) => None,
            Data::Tensor { heads, .. } | Data::Made { heads, .. } => heads,
        }
    }

    /// The type it has in the new model.
    pub fn dtype(&self, c: &Container) -> Option<Dtype> {
        let source = self.source(c)?;
        match &self.data {
            Data::Tensor { to: Some(to), .. } => Dtype::from_block(*to),
            Data::Made { made, .. } => Dtype::from_name(made.dtype()),
            _ => Some(source.dtype),
        }
    }

    /// Bytes of one chunk of the new file (the last one is shorter).
    fn chunk(&self, c: &Container) -> anyhow::Result<Chunks> {
        // a tensor without elements may still have any number of rows, or of columns
        let Some(t) = self.source(c).filter(|t| t.bytes > 0) else {
            return Ok(Chunks { rows: 1, rows_of_matrix: 1, at_once: 1, row_in: 0, row_out: self.bytes, k: 0 });
        };
        // the rows of a bias that is permuted are its elements
        let vector = self.heads().is_some() && t.shape.len() == 1;
        let row_dims = usize::from(!vector);
        let (columns, rows) = t.shape.split_at(row_dims.min(t.shape.len()));
        let product = |dims: &[u64]| {
            let all = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d).filter(|n| *n > 0));
            all.with_context(|| format!("tensor {}: shape {:?} is not one of {} bytes", t.name, t.shape, t.bytes))
        };
        let (rows, k) = (product(rows)?, product(columns)?);
        let pairs = matches!(&self.data, Data::Made { made, .. } if made.pairs_rows());
        let at_once = match self.heads() {
            // of an even number of rows
            Some(h) => {
                ensure!(rows.is_multiple_of(h as u64), "tensor {}: {h} heads do not divide {rows} rows", t.name);
                rows / h as u64
            }
            None if pairs => 2,
            None => 1,
        };
        let row_in = t.bytes / rows;
        let at_once = (CHUNK / (row_in * at_once).max(1)).max(1) * at_once;
        let rows_of_matrix = t.shape.get(1).copied().unwrap_or(1).max(1);
        Ok(Chunks { rows, rows_of_matrix, at_once, row_in, row_out: self.bytes / rows, k: usize::try_from(k)? })
    }
}

/// How a piece is cut.
struct Chunks {
    rows: u64,
    /// of one of the matrices below each other
    rows_of_matrix: u64,
    at_once: u64,
    row_in: u64,
    row_out: u64,
    k: usize,
}

impl Chunks {
    /// First rows and numbers of rows.
    fn list(&self) -> Vec<(u64, u64)> {
        (0..self.rows).step_by(self.at_once as usize).map(|r| (r, self.at_once.min(self.rows - r))).collect()
    }

    /// The importances of a row's columns, `all` being those of every matrix.
    fn of_row<'a>(&self, all: &'a [f32], row: u64) -> &'a [f32] {
        &all[(row / self.rows_of_matrix) as usize * self.k..][..self.k]
    }
}

/// Encodes blocks elsewhere than on the CPU, with the same bytes.
pub trait Encoder {
    /// Whether it knows the type.
    fn takes(&self, ty: BlockType) -> bool;
    /// As [`BlockType::encode_row`] over any number of rows.
    fn encode(&mut self, ty: BlockType, x: &[f32], out: &mut [u8]) -> anyhow::Result<()>;
}

/// What a run tells and asks its caller.
pub struct Watch<'a> {
    /// a piece is begun
    pub begin: &'a (dyn Fn(usize) + Sync),
    /// bytes of the source just read
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// whether to stop
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

#[derive(Default)]
struct Scratch {
    input: Vec<u8>,
    floats: Vec<f32>,
    out: Vec<u8>,
}

/// Which of the noted pieces are still as they were written.
pub fn check(job: &Job, c: &Container, staged: &Staged, noted: &[(usize, u128)]) -> anyhow::Result<Vec<bool>> {
    let mut done = vec![false; job.pieces.len()];
    for &(i, hash) in noted {
        let Some(piece) = job.pieces.get(i) else { continue };
        let file = staged.open(&piece.file)?;
        let chunks = piece.chunk(c)?;
        let hashes: Vec<u128> = chunks
            .list()
            .into_par_iter()
            .map(|(row, rows)| {
                let mut bytes = vec![0; (rows * chunks.row_out) as usize];
                file.read_at(piece.offset + row * chunks.row_out, &mut bytes).map(|()| xxh3_128(&bytes))
            })
            .collect::<Result<_, _>>()?;
        done[i] = combine(&hashes) == hash;
    }
    Ok(done)
}

/// One hash of the hashes of chunks.
fn combine(hashes: &[u128]) -> u128 {
    let bytes: Vec<u8> = hashes.iter().flat_map(|h| h.to_le_bytes()).collect();
    xxh3_128(&bytes)
}

/// Fills every piece that is not done, in order, and notes each when it is finished.
///
/// All threads of rayon's current pool take the next chunk of rows, whatever piece it belongs to, so that small tensors
/// keep none of them waiting.
///
/// Errors: reading and writing; [`Damaged`], a source that holds NaN or infinity; the encoder's; [`Interrupted`], with what is finished left for a later run to go on from.
pub fn run(
    job: &Job,
    c: &Container,
    staged: &mut Staged,
    done: &[bool],
    level: Level,
    encoder: Option<&mut dyn Encoder>,
    watch: &Watch,
) -> anyhow::Result<()> {
    let mut states = Vec::with_capacity(job.pieces.len());
    let mut work = Vec::new();
    for (i, piece) in job.pieces.iter().enumerate() {
        let chunks = piece.chunk(c)?;
        let list = if done.get(i) == Some(&true) { vec![] } else { chunks.list() };
        let left = AtomicUsize::new(list.len());
        let hashes = Mutex::new(vec![0u128; list.len()]);
        work.extend(list.into_iter().enumerate().map(|(slot, (row, rows))| (i, slot, row, rows)));
        states.push(State { chunks, left, hashes });
    }
    if let Some(encoder) = encoder {
        return on_device(job, c, staged, level, encoder, &states, &work, watch);
    }
    let (next, staged, failed) = (AtomicUsize::new(0), Mutex::new(staged), Mutex::new(None));
    let stop = AtomicBool::new(false);
    rayon::broadcast(|_| {
        let mut scratch = Scratch::default();
        while !stop.load(Ordering::Relaxed)
            && let Some(&(i, slot, row, rows)) = work.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let (piece, state) = (&job.pieces[i], &states[i]);
            if slot == 0 {
                (watch.begin)(i);
            }
            let mut step = || -> anyhow::Result<()> {
                let file = lock(&staged).open(&piece.file)?;
                let hash = chunk(piece, c, &file, level, &state.chunks, row, rows, watch, &mut scratch)?;
                let whole = state.finished(slot, hash);
                whole.map_or(Ok(()), |hash| Ok(lock(&staged).note(i, hash)?))
            };
            if let Err(e) = step() {
                stop.store(true, Ordering::Relaxed);
                lock(&failed).get_or_insert(e);
            }
        }
    });
    let failed = lock(&failed).take();
    failed.map_or(Ok(()), Err)
}

/// A chunk of work: piece, number of the chunk within it, first row, rows.
type Work = (usize, usize, u64, u64);

/// How far a piece is.
struct State {
    chunks: Chunks,
    left: AtomicUsize,
    hashes: Mutex<Vec<u128>>,
}

impl State {
    /// Takes the hash of a chunk; gives the piece's with the last one.
    fn finished(&self, slot: usize, hash: u128) -> Option<u128> {
        let mut hashes = lock(&self.hashes);
        hashes[slot] = hash;
        (self.left.fetch_sub(1, Ordering::AcqRel) == 1).then(|| combine(&hashes))
    }
}

/// What another thread left when it panicked is as good as any: the panic itself is not lost.
fn lock<T: ?Sized>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Reads, encodes and writes rows `row..row + rows`; gives the hash of what was written.
fn chunk(
    piece: &Piece,
    c: &Container,
    file: &StagedFile,
    level: Level,
    n: &Chunks,
    row: u64,
    rows: u64,
    watch: &Watch,
    s: &mut Scratch,
) -> anyhow::Result<u128> {
    if let Data::Bytes(bytes) = &piece.data {
        file.write_at(piece.offset, bytes)?;
        return Ok(xxh3_128(bytes));
    }
    let t = read_rows(piece, c, n, row, rows, watch, &mut s.input)?;
    let bytes = match &piece.data {
        Data::Made { made, .. } => {
            made_rows(made, c, t, level, n, row, s)?;
            &s.out
        }
        Data::Bytes(_) | Data::Tensor { to: None, .. } => {
            if let Some(ty) = t.dtype.block() {
                refuse_bad(c, t, ty.find_bad_scale(&s.input), row * n.row_in / ty.bytes() as u64)?;
            }
            &s.input
        }
        Data::Tensor { to: Some(to), importances, .. } => {
            s.out.resize((rows * n.row_out) as usize, 0);
            s.floats.resize(n.k, 0.0);
            let outs = s.out.chunks_exact_mut((n.row_out as usize).max(1));
            for ((i, out), input) in outs.enumerate().zip(s.input.chunks_exact((n.row_in as usize).max(1))) {
                decode_row(c, t, level, input, (row + i as u64) * n.k as u64, &mut s.floats)?;
                let of_row = importances.as_ref().map(|all| n.of_row(all, row + i as u64));
                encode_as(level, *to, &s.floats, of_row, out);
            }
            &s.out
        }
    };
    file.write_at(piece.offset + row * n.row_out, bytes)?;
    Ok(xxh3_128(bytes))
}

/// A row in blocks of a type, with the importances of its columns where they are known.
fn encode_as(level: Level, ty: BlockType, x: &[f32], importances: Option<&[f32]>, out: &mut [u8]) {
    match importances {
        Some(importances) => ty.encode_row_weighted(x, importances, out),
        None => encode::encode_row(level, ty, x, out),
    }
}

/// What the rows in `s.input`, the first of them `row`, become in one of the tensors made of a matrix.
fn made_rows(
    made: &Made,
    c: &Container,
    t: &Tensor,
    level: Level,
    n: &Chunks,
    row: u64,
    s: &mut Scratch,
) -> anyhow::Result<()> {
    let (row_in, row_out) = ((n.row_in as usize).max(1), n.row_out as usize);
    s.out.resize(s.input.len() / row_in * row_out, 0);
    s.floats.resize(n.k, 0.0);
    for (i, input) in s.input.chunks_exact(row_in).enumerate() {
        let at = row + i as u64;
        decode_row(c, t, level, input, at * n.k as u64, &mut s.floats)?;
        made.write(at, &mut s.floats, &mut s.out, i, row_out).map_err(|e| {
            let file = c.files[t.file].display();
            Damaged::new(format!("{file}: tensor {}, row {at} would have {e}", t.name))
        })?;
    }
    Ok(())
}

/// As [`run`], with the types an [`Encoder`] knows encoded by it, chunk after chunk.
fn on_device(
    job: &Job,
    c: &Container,
    staged: &mut Staged,
    level: Level,
    encoder: &mut dyn Encoder,
    states: &[State],
    work: &[Work],
    watch: &Watch,
) -> anyhow::Result<()> {
    let (mut scratch, mut x) = (Scratch::default(), Vec::new());
    for &(i, slot, row, rows) in work {
        let (piece, n) = (&job.pieces[i], &states[i].chunks);
        if slot == 0 {
            (watch.begin)(i);
        }
        let file = staged.open(&piece.file)?;
        let hash = match piece.data {
            Data::Tensor { to: Some(to), importances: None, .. } if encoder.takes(to) && n.k > 0 => {
                let s = &mut scratch;
                let t = read_rows(piece, c, n, row, rows, watch, &mut s.input)?;
                x.resize(rows as usize * n.k, 0.0);
                let row_in = n.row_in as usize;
                x.par_chunks_mut(n.k)
                    .zip(s.input.par_chunks(row_in))
                    .enumerate()
                    .try_for_each(|(i, (x, input))| decode_row(c, t, level, input, (row + i as u64) * n.k as u64, x))?;
                s.out.resize((rows * n.row_out) as usize, 0);
                encoder.encode(to, &x, &mut s.out)?;
                file.write_at(piece.offset + row * n.row_out, &s.out)?;
                xxh3_128(&s.out)
            }
            _ => chunk(piece, c, &file, level, n, row, rows, watch, &mut scratch)?,
        };
        if let Some(hash) = states[i].finished(slot, hash) {
            staged.note(i, hash)?;
        }
    }
    Ok(())
}

/// The source's rows of a chunk, in the new order.
fn read_rows<'c>(
    piece: &Piece,
    c: &'c Container,
    n: &Chunks,
    row: u64,
    rows: u64,
    watch: &Watch,
    out: &mut Vec<u8>,
) -> anyhow::Result<&'c Tensor> {
    let Some(t) = piece.source(c) else { bail!("piece {} has no source", piece.name) };
    if (watch.stop)() {
        bail!(Interrupted);
    }
    out.resize((rows * n.row_in) as usize, 0);
    c.read(t, row * n.row_in, out)?;
    if let Some(heads) = piece.heads().filter(|_| !out.is_empty()) {
        let from = match piece.data {
            Data::Made { .. } => convert::restored_row,
            _ => convert::permuted_row,
        };
        let (per_head, width) = (n.rows as usize / heads, n.row_in as usize);
        let mut head = vec![0; per_head * width];
        for rows in out.chunks_exact_mut(per_head * width) {
            for (r, to) in head.chunks_exact_mut(width).enumerate() {
                to.copy_from_slice(&rows[from(r, per_head) * width..][..width]);
            }
            rows.copy_from_slice(&head);
        }
    }
    (watch.progress)(out.len() as u64);
    Ok(t)
}

/// One row as f32; `first` is its first element in the tensor, for the message.
fn decode_row(c: &Container, t: &Tensor, level: Level, bytes: &[u8], first: u64, x: &mut [f32]) -> anyhow::Result<()> {
    let ty = t.dtype.block().with_context(|| format!("tensor {} is {}", t.name, t.dtype))?;
    let bad = if ty.is_float() {
        encode::decode_floats(level, ty, bytes, x)
    } else {
        ty.decode_row(bytes, x);
        x.iter().position(|v| !v.is_finite())
    };
    refuse_bad(c, t, bad, first)
}

/// The source holds what no model can: nothing that was made of it is of use.
#[derive(Debug)]
pub struct Damaged(String);

impl Damaged {
    /// With its message.
    pub fn new(message: impl Into<String>) -> Damaged {
        Damaged(message.into())
    }
}

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damaged {}

/// The error of an element (or of a block's scale) that is not finite.
fn refuse_bad(c: &Container, t: &Tensor, bad: Option<usize>, first: u64) -> anyhow::Result<()> {
    match bad {
        None => Ok(()),
        Some(i) => bail!(Damaged::new(format!(
            "{}: tensor {} holds NaN or infinity in element or block {}; the model is damaged",
            c.files[t.file].display(),
            t.name,
            first + i as u64
        ))),
    }
}
