//! The cached chunks of a sequence as a file, which any device takes up again: what a chunk holds follows from its tokens,
//! the model and the options alone, so the bytes are the same wherever they were made.
//!
//! All numbers are little-endian, 32 bits:
//!
//! ```text
//! magic "isobitKV", version
//! bytes of the fingerprint, the fingerprint in UTF-8
//! n, the tokens: whole chunks of 64
//! by table (ops::places), the first chunk that is there: of layers with a window older ones may be gone
//! n token ids
//! for each layer, keys then values: for each key-value head the chunks from the table's first to the last, 64 positions
//! each, as the cache has them (docs/exactness.md, section 6)
//! SHA-256 of all bytes before it
//! ```

use super::session::Session;
use crate::models::Built;
use crate::ops::places::{CHUNK, GONE, TABLES};
use anyhow::ensure;
use sha2::{Digest, Sha256};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;

const MAGIC: [u8; 8] = *b"isobitKV";

/// The version of the layout above.
const VERSION: u32 = 1;

/// Bytes of the hash at the end.
const HASH: u64 = 32;

/// Bytes of a fingerprint, at most: a line.
const LINE: u32 = 1024;

/// Why a saved sequence is not taken.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// it does not begin as one
    #[error("this is no saved sequence")]
    Unknown,
    /// it was written by another version
    #[error("the saved sequence has version {0}, {VERSION} expected: save it again")]
    Version(u32),
    /// it, or where it is to be written, fails
    #[error("the saved sequence: {0}")]
    Io(#[from] std::io::Error),
    /// its bytes are not those that were written
    #[error("the saved sequence is damaged: its SHA-256 is another than the one at its end")]
    Damaged,
    /// its hash is right, and its content cannot be
    #[error("the saved sequence is not sound: {0}")]
    Unsound(&'static str),
    /// it is of another model, or other options
    #[error(
        "the saved sequence is of {found}, this session is {expected}: save it again with this model and these options"
    )]
    Fingerprint {
        /// the file's
        found: String,
        /// the session's
        expected: String,
    },
    /// it is longer than the context
    #[error("the saved sequence has {tokens} tokens, the context holds {context}")]
    Context {
        /// tokens of the file
        tokens: usize,
        /// positions of the session
        context: usize,
    },
}

/// Chunks that lie side by side in a page.
struct Run {
    page: usize,
    /// the first, counted from the page's own first
    first: usize,
    len: usize,
}

/// A table's chunks, without those that are gone, as runs in the pages of a pool.
fn runs(chunks: &[u32], pages: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &chunk in chunks.iter().filter(|c| **c != GONE) {
        let (mut page, mut first) = (0, chunk as usize);
        while first >= pages[page] {
            first -= pages[page];
            page += 1;
        }
        match runs.last_mut() {
            Some(run) if run.page == page && run.first + run.len == first => run.len += 1,
            _ => runs.push(Run { page, first, len: 1 }),
        }
    }
    runs
}

/// Writes bytes and hashes them.
struct Hashing<W> {
    out: W,
    hash: Sha256,
}

impl<W: Write> Hashing<W> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), SavedError> {
        self.hash.update(bytes);
        Ok(self.out.write_all(bytes)?)
    }

    fn numbers(&mut self, numbers: &[u32]) -> Result<(), SavedError> {
        numbers.iter().try_for_each(|n| self.put(&n.to_le_bytes()))
    }
}

impl Session<'_> {
    /// Writes the chunks of a sequence. `ids`: its tokens, whole chunks; `chunks`: by table which chunk of the pool each of
    /// them is, none where no layer goes by the table. `fingerprint`: what decides the bits of a session.
    ///
    /// Errors: those of the device and of `out`.
    pub async fn save(
        &mut self,
        fingerprint: &str,
        ids: &[u32],
        chunks: [&[u32]; TABLES],
        out: impl Write,
    ) -> anyhow::Result<()> {
        ensure!(ids.len().is_multiple_of(CHUNK), "{} tokens are no whole chunks", ids.len());
        self.settle().await?;
        let (built, device) = self.cache();
        let mut out = Hashing { out, hash: Sha256::new() };
        out.put(&MAGIC)?;
        out.numbers(&[VERSION, fingerprint.len() as u32])?;
        out.put(fingerprint.as_bytes())?;
        out.numbers(&[ids.len() as u32])?;
        for chunks in chunks {
            out.numbers(&[chunks.iter().take_while(|c| **c == GONE).count() as u32])?;
        }
        out.numbers(ids)?;
        for (layer, side, head) in sections(built) {
            let layer = &built.layers[layer];
            for run in runs(chunks[layer.table], &built.pages[layer.table]) {
                let (buffer, part) = place(built, layer.table, &layer.pages[side], layer.words[side], head, &run);
                let words = device.read_part(buffer, part).await?;
                out.put(bytemuck::cast_slice(&words))?;
            }
        }
        let hash = out.hash.finalize();
        let end = out.out.write_all(&hash).and_then(|()| out.out.flush());
        Ok(end.map_err(SavedError::Io)?)
    }

    /// Takes chunks up again that were saved, to where a table has them.
    ///
    /// Errors: those of the device; [`SavedError`] where the file is not any more what it was when it was opened. What the
    /// chunks then hold is of no account.
    pub async fn restore<R: Read + Seek>(
        &mut self,
        saved: &mut Saved<R>,
        chunks: [&[u32]; TABLES],
    ) -> anyhow::Result<()> {
        self.settle().await?;
        let (built, device) = self.cache();
        saved.from.seek(SeekFrom::Start(saved.data)).map_err(SavedError::Io)?;
        let mut hash = saved.head.clone();
        let (mut bytes, mut words) = (Vec::new(), Vec::new());
        for (layer, side, head) in sections(built) {
            let layer = &built.layers[layer];
            for run in runs(chunks[layer.table], &built.pages[layer.table]) {
                let (buffer, part) = place(built, layer.table, &layer.pages[side], layer.words[side], head, &run);
                bytes.resize(part.len() * 4, 0);
                saved.from.read_exact(&mut bytes).map_err(SavedError::Io)?;
                hash.update(&bytes);
                words.clear();
                words.extend(bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)));
                device.write_part(buffer, part.start, &words).await?;
            }
        }
        ensure!(hash.finalize()[..] == saved.hash, SavedError::Damaged);
        Ok(())
    }
}

/// What a file is made of: (layer, keys or values, head), in order.
fn sections(built: &Built) -> impl Iterator<Item = (usize, usize, usize)> {
    let layers = built.layers.iter().enumerate();
    layers.flat_map(|(l, layer)| (0..2).flat_map(move |side| (0..layer.heads).map(move |head| (l, side, head))))
}

/// Where a run lies: its buffer, and the words in it.
fn place(built: &Built, table: usize, pages: &[usize], words: usize, head: usize, run: &Run) -> (usize, Range<usize>) {
    let first = (head * built.pages[table][run.page] + run.first) * CHUNK * words;
    (pages[run.page], first..first + run.len * CHUNK * words)
}

/// A saved sequence whose bytes were checked.
pub struct Saved<R> {
    from: R,
    ids: Vec<u32>,
    first: [usize; TABLES],
    /// where the chunks begin
    data: u64,
    /// of what comes before them, and of all
    head: Sha256,
    hash: [u8; HASH as usize],
}

impl<R: Read + Seek> Saved<R> {
    /// Reads a saved sequence once, and checks that a session with this fingerprint and plan can go on with it: first that it
    /// is as long as it says, then its bytes. Takes memory for its token ids alone.
    ///
    /// Errors: [`SavedError`].
    pub fn open(from: R, fingerprint: &str, built: &Built) -> Result<Saved<R>, SavedError> {
        let mut from = Hashed { from, hash: Sha256::new() };
        let size = from.from.seek(SeekFrom::End(0))?;
        from.from.rewind()?;
        let mut magic = [0; MAGIC.len()];
        if size < MAGIC.len() as u64 || from.bytes(&mut magic).is_err() || magic != MAGIC {
            return Err(SavedError::Unknown);
        }
        let version = from.number()?;
        if version != VERSION {
            return Err(SavedError::Version(version));
        }
        let line = from.number()?;
        if line > LINE {
            return Err(SavedError::Unsound("its fingerprint is too long"));
        }
        let mut found = vec![0; line as usize];
        from.bytes(&mut found)?;
        if found != fingerprint.as_bytes() {
            let found = String::from_utf8_lossy(&found).escape_debug().to_string();
            return Err(SavedError::Fingerprint { found, expected: fingerprint.into() });
        }
        let tokens = from.number()? as usize;
        if tokens > built.n_ctx {
            return Err(SavedError::Context { tokens, context: built.n_ctx });
        }
        if tokens == 0 || !tokens.is_multiple_of(CHUNK) {
            return Err(SavedError::Unsound("its tokens are no whole chunks"));
        }
        let chunks = tokens / CHUNK;
        let mut first = [0; TABLES];
        for first in &mut first {
            *first = from.number()? as usize;
        }
        // of the last positions, those that the next query sees are there
        let seen = [0, if built.window > 0 { (tokens + 1).saturating_sub(built.window) / CHUNK } else { 0 }];
        if first.iter().zip(seen).any(|(first, seen)| *first > seen.min(chunks)) {
            return Err(SavedError::Unsound("chunks that are needed are not there"));
        }
        let ids = (0..tokens).map(|_| from.number()).collect::<Result<_, _>>()?;
        let words: usize = sections(built)
            .map(|(l, side, _)| {
                let layer = &built.layers[l];
                (chunks - first[layer.table]) * CHUNK * layer.words[side]
            })
            .sum();
        let (data, mut left) = (from.from.stream_position()?, words as u64 * 4);
        if size != data + left + HASH {
            return Err(SavedError::Unsound("it is longer or shorter than its chunks"));
        }
        let head = from.hash.clone();
        let mut buffer = vec![0; 1 << 16];
        while left > 0 {
            let n = left.min(buffer.len() as u64) as usize;
            from.bytes(&mut buffer[..n])?;
            left -= n as u64;
        }
        let mut hash = [0; HASH as usize];
        from.from.read_exact(&mut hash)?;
        if from.hash.finalize()[..] != hash {
            return Err(SavedError::Damaged);
        }
        Ok(Saved { from: from.from, ids, first, data, head, hash })
    }

    /// The sequence's tokens, whole chunks.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// By table, the first chunk that is there.
    pub fn first(&self) -> [usize; TABLES] {
        self.first
    }
}

/// Reads bytes and hashes them.
struct Hashed<R> {
    from: R,
    hash: Sha256,
}

impl<R: Read> Hashed<R> {
    fn bytes(&mut self, bytes: &mut [u8]) -> Result<(), SavedError> {
        self.from.read_exact(bytes).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => SavedError::Unsound("it ends too early"),
            _ => SavedError::Io(e),
        })?;
        self.hash.update(bytes);
        Ok(())
    }

    fn number(&mut self) -> Result<u32, SavedError> {
        let mut bytes = [0; 4];
        self.bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}
