//! Which chunks of the cache belong to which sequence, and which are kept for sequences to come.
//!
//! A chunk is 64 positions of all layers that go by one table (`ops::places`). A sequence takes chunks as it grows and gives
//! them back at its end; a full one is kept beyond that under the hash of all tokens up to its last, until there is no other
//! to be had, so that a sequence that begins alike need not compute it again. What a chunk holds follows from those tokens
//! alone, which is why sharing it changes no bit.

use crate::models::Built;
use crate::ops::places::{CHUNK, GONE, TABLES};
use crate::ops::strands;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The hash of all tokens of a sequence up to the end of one of its chunks.
type Key = [u8; 32];

/// The key of the chunk after the one of key `before` (of the first: zeros).
fn key_after(before: &Key, ids: &[u32]) -> Key {
    let mut hash = Sha256::new_with_prefix(before);
    ids.iter().for_each(|id| hash.update(id.to_le_bytes()));
    hash.finalize().into()
}

/// What of a sequence lies in the cache.
#[derive(Debug, Default)]
pub struct Sequence {
    /// tokens of the positions from 0 on
    len: usize,
    /// by table, the chunks of the pool
    chunks: [Vec<u32>; TABLES],
    /// chunks of the ring: (chunk of the sequence, chunk of the ring); between steps that of the last position, while it is
    /// not the last of its chunk
    recent: Vec<(usize, u32)>,
    /// of a recurrent model: which of the states is its own, and whether it lies in the second of its slots
    state: Option<u32>,
    second: bool,
    /// that of the last full chunk, and the tokens after it
    key: Key,
    tail: Vec<u32>,
}

impl Sequence {
    /// Tokens in the cache.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// By table, which chunk of the pool each of the sequence's chunks is.
    pub fn chunks(&self, table: usize) -> &[u32] {
        &self.chunks[table]
    }

    /// The slots its next step reads and writes (`ops::strands`).
    pub(super) fn slots(&self) -> [u32; 2] {
        strands::of_sequence(self.state.unwrap_or_default() as usize, self.second, self.len > 0)
    }

    /// Where the f16 copy of a chunk's positions lies.
    pub(super) fn recent(&self, chunk: usize) -> u32 {
        self.recent.iter().find(|r| r.0 == chunk).map_or(0, |r| r.1)
    }
}

/// The chunks of one table.
#[derive(Debug, Default)]
struct Chunks {
    /// chunks of each page; none: no layer goes by the table, and nothing has to be kept
    pages: Vec<usize>,
    /// those nobody has, by page
    free: Vec<BTreeSet<u32>>,
    /// sequences that have a chunk, and one more where it is kept
    users: Vec<u32>,
}

impl Chunks {
    fn new(pages: &[usize]) -> Chunks {
        let mut first = 0;
        let mut range = |n: &usize| {
            let of = first..first + *n as u32;
            first = of.end;
            of.collect()
        };
        let free = pages.iter().map(&mut range).collect();
        Chunks { pages: pages.to_vec(), free, users: vec![0; first as usize] }
    }

    fn is_used(&self) -> bool {
        !self.pages.is_empty()
    }

    fn page_of(&self, chunk: u32) -> usize {
        let mut end = 0;
        self.pages
            .iter()
            .position(|n| {
                end += *n as u32;
                chunk < end
            })
            .unwrap_or(0)
    }

    /// One of the page of the chunk before it, or of a later one: a sequence's chunks lie in pages in order.
    fn take(&mut self, before: Option<u32>) -> Option<u32> {
        let from = before.map_or(0, |c| self.page_of(c));
        let chunk = self.free[from..].iter_mut().find_map(BTreeSet::pop_first)?;
        self.users[chunk as usize] = 1;
        Some(chunk)
    }

    fn share(&mut self, chunk: u32) {
        self.users[chunk as usize] += 1;
    }

    fn give(&mut self, chunk: u32) {
        let users = &mut self.users[chunk as usize];
        *users -= 1;
        if *users == 0 {
            let page = self.page_of(chunk);
            self.free[page].insert(chunk);
        }
    }
}

/// A full chunk that is kept.
#[derive(Debug)]
struct Kept {
    /// by table; of a window's table none where it was given back before the others
    chunk: [Option<u32>; TABLES],
    /// place in the order of use
    used: u64,
}

/// All chunks of a loaded plan.
#[derive(Debug)]
pub struct Pool {
    tables: [Chunks; TABLES],
    /// positions that queries of layers of the second table see
    window: usize,
    /// chunks of the ring nobody has; `None`: there is no ring
    ring: Option<Vec<u32>>,
    /// states nobody has; `None`: the model is not recurrent. Of one that is, nothing is kept: a state is that of a whole
    /// sequence, and nobody can begin with a part of it.
    states: Option<Vec<u32>>,
    kept: HashMap<Key, Kept>,
    by_use: BTreeMap<u64, Key>,
    clock: u64,
}

/// There are no chunks left that nobody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What a pool has, in chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// of the table that has least, all
    pub chunks: usize,
    /// those that neither a sequence has nor are kept
    pub free: usize,
    /// those that are kept, whoever has them besides
    pub kept: usize,
}

impl Pool {
    /// The pool of a plan, none of whose chunks is in use.
    pub fn new(built: &Built) -> Pool {
        let ring = built.plan.placing.map_or(0, |p| p.ring);
        Pool {
            tables: std::array::from_fn(|t| Chunks::new(&built.pages[t])),
            window: built.window,
            ring: (ring > 0).then(|| (0..ring as u32).rev().collect()),
            states: built.strands.map(|_| (0..built.sequences as u32).rev().collect()),
            kept: HashMap::new(),
            by_use: BTreeMap::new(),
            clock: 0,
        }
    }

    /// What is in use.
    pub fn usage(&self) -> Use {
        let used = self.tables.iter().filter(|t| t.is_used());
        let least = used.min_by_key(|t| t.users.len());
        let free = least.map_or(0, |t| t.free.iter().map(BTreeSet::len).sum());
        Use { chunks: least.map_or(0, |t| t.users.len()), free, kept: self.kept.len() }
    }

    /// The first chunk of a window's table that the token at position `len` sees.
    fn first_seen(&self, len: usize) -> usize {
        (len + 1).saturating_sub(self.window) / CHUNK
    }

    /// A sequence that begins with `ids`, with what of it is kept: whole chunks, and at least the last token is left to feed.
    pub fn begin(&mut self, ids: &[u32]) -> Sequence {
        let mut keys: Vec<Key> = Vec::new();
        for chunk in ids[..ids.len().saturating_sub(1)].as_chunks::<CHUNK>().0 {
            let key = key_after(keys.last().unwrap_or(&Key::default()), chunk);
            if !self.kept.contains_key(&key) {
                break;
            }
            keys.push(key);
        }
        // of a window's table those that are still seen are enough
        let held = |n: usize| {
            let seen = self.first_seen(n * CHUNK).min(n)..n;
            !self.tables[1].is_used() || seen.into_iter().all(|c| self.kept[&keys[c]].chunk[1].is_some())
        };
        let n = (0..=keys.len()).rev().find(|&n| held(n)).unwrap_or(0);
        keys.truncate(n);
        let mut sequence =
            Sequence { len: n * CHUNK, key: keys.last().copied().unwrap_or_default(), ..Sequence::default() };
        for (c, key) in keys.iter().enumerate() {
            for t in 0..TABLES {
                if !self.tables[t].is_used() {
                    continue;
                }
                let seen = t == 0 || c >= self.first_seen(n * CHUNK);
                let chunk = self.kept[key].chunk[t].filter(|_| seen);
                if let Some(chunk) = chunk {
                    self.tables[t].share(chunk);
                }
                sequence.chunks[t].push(chunk.unwrap_or(GONE));
            }
        }
        // the longest was used first, so that what others may begin with stays longest
        keys.iter().rev().for_each(|key| self.touch(key));
        sequence
    }

    fn touch(&mut self, key: &Key) {
        let Some(kept) = self.kept.get_mut(key) else { return };
        self.clock += 1;
        self.by_use.remove(&kept.used);
        kept.used = self.clock;
        self.by_use.insert(self.clock, *key);
    }

    /// Takes the chunks that the next `n` tokens of a sequence lie in.
    ///
    /// Errors: there are none left, even of those that are kept; the sequence has what it had.
    pub fn reserve(&mut self, sequence: &mut Sequence, n: usize) -> Result<(), Full> {
        self.hold(sequence, n)?;
        if let (Some(free), None) = (&mut self.states, sequence.state) {
            sequence.state = Some(free.pop().ok_or(Full)?);
        }
        let end = (sequence.len + n).div_ceil(CHUNK);
        if let Some(free) = &mut self.ring {
            for chunk in sequence.len / CHUNK..end {
                if sequence.recent.iter().all(|r| r.0 != chunk) {
                    // there is one for each sequence, and for all a step may touch
                    sequence.recent.push((chunk, free.pop().ok_or(Full)?));
                }
            }
        }
        Ok(())
    }

    /// As [`Pool::reserve`] for tokens of several steps: without chunks of the ring, of which there are enough for one.
    ///
    /// Errors: those of [`Pool::reserve`].
    pub fn hold(&mut self, sequence: &mut Sequence, n: usize) -> Result<(), Full> {
        let end = (sequence.len + n).div_ceil(CHUNK);
        let before: [usize; TABLES] = std::array::from_fn(|t| sequence.chunks[t].len());
        for t in 0..TABLES {
            while self.tables[t].is_used() && sequence.chunks[t].len() < end {
                let last = sequence.chunks[t].last().copied().filter(|c| *c != GONE);
                match self.take(t, last) {
                    Some(chunk) => sequence.chunks[t].push(chunk),
                    None => {
                        for (t, n) in before.into_iter().enumerate() {
                            sequence.chunks[t].drain(n..).for_each(|c| self.tables[t].give(c));
                        }
                        return Err(Full);
                    }
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, table: usize, before: Option<u32>) -> Option<u32> {
        loop {
            if let Some(chunk) = self.tables[table].take(before) {
                return Some(chunk);
            }
            // the one used longest ago that no sequence has
            let lone =
                |kept: &Kept| (0..TABLES).all(|t| kept.chunk[t].is_none_or(|c| self.tables[t].users[c as usize] == 1));
            let key = *self.by_use.values().find(|key| lone(&self.kept[*key]))?;
            self.forget(&key);
        }
    }

    fn forget(&mut self, key: &Key) {
        let Some(kept) = self.kept.remove(key) else { return };
        self.by_use.remove(&kept.used);
        for (table, chunk) in self.tables.iter_mut().zip(kept.chunk) {
            chunk.into_iter().for_each(|c| table.give(c));
        }
    }

    /// Counts tokens as cached that a step has written, keeps chunks that are full now, and gives back what no query of the
    /// sequence sees any more.
    pub fn written(&mut self, sequence: &mut Sequence, ids: &[u32]) {
        // a step of it is done
        sequence.second ^= !ids.is_empty();
        // once, whatever is to come
        sequence.tail.reserve(CHUNK - sequence.tail.len());
        for &id in ids {
            sequence.tail.push(id);
            sequence.len += 1;
            if sequence.tail.len() == CHUNK {
                sequence.key = key_after(&sequence.key, &sequence.tail);
                sequence.tail.clear();
                self.keep(sequence);
            }
        }
        let last = sequence.len / CHUNK;
        if let Some(free) = &mut self.ring {
            // of the chunk that goes on
            sequence.recent.retain(|&(chunk, at)| {
                let goes_on = chunk == last && !sequence.tail.is_empty();
                if !goes_on {
                    free.push(at);
                }
                goes_on
            });
        }
        if self.tables[1].is_used() {
            let first = self.first_seen(sequence.len).min(sequence.chunks[1].len());
            for chunk in sequence.chunks[1][..first].iter_mut().rev().take_while(|c| **c != GONE) {
                self.tables[1].give(*chunk);
                *chunk = GONE;
            }
        }
    }

    /// Keeps the last full chunk of a sequence.
    fn keep(&mut self, sequence: &Sequence) {
        let at = sequence.len / CHUNK - 1;
        if self.states.is_some() {
            return;
        }
        if self.kept.contains_key(&sequence.key) {
            return self.touch(&sequence.key);
        }
        let mut chunk = [None; TABLES];
        for (t, table) in self.tables.iter_mut().enumerate() {
            // a table that no layer goes by has none
            chunk[t] = sequence.chunks[t].get(at).copied().filter(|c| *c != GONE);
            chunk[t].iter().for_each(|c| table.share(*c));
        }
        self.clock += 1;
        self.kept.insert(sequence.key, Kept { chunk, used: self.clock });
        self.by_use.insert(self.clock, sequence.key);
    }

    /// A sequence of whole chunks that were computed elsewhere, of which those before `first`, by table, are gone; what they
    /// hold is about to be written.
    ///
    /// Errors: there are fewer chunks that nobody has.
    pub fn adopt(&mut self, chunks: usize, first: [usize; TABLES]) -> Result<Sequence, Full> {
        let mut sequence = Sequence::default();
        for t in (0..TABLES).filter(|t| self.tables[*t].is_used()) {
            sequence.chunks[t].resize(first[t].min(chunks), GONE);
        }
        for t in 0..TABLES {
            while self.tables[t].is_used() && sequence.chunks[t].len() < chunks {
                let last = sequence.chunks[t].last().copied().filter(|c| *c != GONE);
                let Some(chunk) = self.take(t, last) else {
                    self.end(sequence);
                    return Err(Full);
                };
                sequence.chunks[t].push(chunk);
            }
        }
        Ok(sequence)
    }

    /// Takes back all that a sequence has; what is kept of it stays.
    pub fn end(&mut self, sequence: Sequence) {
        for (table, chunks) in self.tables.iter_mut().zip(sequence.chunks) {
            chunks.into_iter().filter(|c| *c != GONE).for_each(|c| table.give(c));
        }
        if let Some(free) = &mut self.ring {
            free.extend(sequence.recent.into_iter().map(|r| r.1));
        }
        if let Some(free) = &mut self.states {
            free.extend(sequence.state);
        }
    }

    /// Whether a sequence may begin with what another has computed.
    pub fn shares(&self) -> bool {
        self.states.is_none()
    }

    /// Keeps nothing any more: what is in the cache is about to be written over.
    pub fn clear(&mut self) {
        let keys: Vec<Key> = self.kept.keys().copied().collect();
        keys.iter().for_each(|key| self.forget(key));
    }
}
