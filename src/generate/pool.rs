//! Which chunks of the cache belong to which sequence, and which are kept for sequences to come.
//!
//! A chunk is 64 positions of all layers that go by one table (`ops::places`). A sequence takes chunks as it grows and gives
//! them back at its end; a full one is kept beyond that under the hash of all tokens up to its last, until there is no other
//! to be had, so that a sequence that begins alike need not compute it again. What a chunk holds follows from those tokens
//! alone, which is why sharing it changes no bit.
//!
//! A sequence of a recurrent model has a state besides, which is that of all its tokens: one that begins alike goes on from
//! the last of its chunks with which a state is kept (`states`).

use super::states::{Marks, Slots, before_last};
use crate::models::Built;
use crate::ops::places::{CHUNK, GONE, TABLES};
use crate::ops::strands::FRESH;
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
    /// of a recurrent model: the slot of its state, and the one that its next step writes
    state: Option<u32>,
    target: Option<u32>,
    /// where its state is kept
    marks: Marks,
    /// the last chunk with which it was kept on the way, and the state's place in the order of use then
    passing: Option<(Key, u64)>,
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
        [self.state.unwrap_or(FRESH), self.target.unwrap_or_default()]
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
    /// the state after its last token, where it is kept
    state: Option<State>,
    /// place in the order of use
    used: u64,
}

/// A state that is kept.
#[derive(Clone, Copy, Debug)]
struct State {
    slot: u32,
    /// place in the order of use: when it was made, or last begun with
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
    /// `None`: the model is not recurrent
    states: Option<Slots>,
    /// whether anything is kept: of a recurrent model nothing, unless it has slots for it
    keeps: bool,
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
            states: built.strands.map(|_| Slots::new(built.slots)),
            keeps: built.strands.is_none() || built.checkpoints > 0,
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
    /// Of a recurrent model it goes so far as a state is kept, and it will keep its own where another text went on otherwise.
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
        let goes_on = |n: usize| n == 0 || self.states.is_none() || self.kept[&keys[n - 1]].state.is_some();
        let n = (0..=keys.len()).rev().find(|&n| held(n) && goes_on(n)).unwrap_or(0);
        let mut sequence = Sequence { len: n * CHUNK, ..Sequence::default() };
        if let Some(states) = &mut self.states {
            sequence.marks.put(keys.len() * CHUNK);
            let last = keys[..n].last().and_then(|key| self.kept.get_mut(key)?.state.as_mut());
            if let Some(state) = last {
                self.clock += 1;
                state.used = self.clock;
                states.share(state.slot);
                sequence.state = Some(state.slot);
            }
        }
        keys.truncate(n);
        sequence.key = keys.last().copied().unwrap_or_default();
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
    /// Errors: there are none left, even of those that are kept; the sequence has no more chunks than it had.
    pub fn reserve(&mut self, sequence: &mut Sequence, n: usize) -> Result<(), Full> {
        self.hold(sequence, n)?;
        if n > 0 && self.states.is_some() && sequence.target.is_none() {
            // there are two for each sequence, whatever is kept
            sequence.target = Some(self.take_state().ok_or(Full)?);
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

    /// A slot for a state; where there is none the state used longest ago is kept no longer.
    fn take_state(&mut self) -> Option<u32> {
        let states = self.states.as_mut()?;
        if let Some(slot) = states.take() {
            return Some(slot);
        }
        let lone = self.kept.values_mut().filter(|kept| kept.state.is_some_and(|s| states.is_lone(s.slot)));
        let least = lone.min_by_key(|kept| kept.state.map(|s| s.used))?;
        states.give(least.state.take()?.slot);
        states.take()
    }

    fn forget(&mut self, key: &Key) {
        let Some(kept) = self.kept.remove(key) else { return };
        self.by_use.remove(&kept.used);
        for (table, chunk) in self.tables.iter_mut().zip(kept.chunk) {
            chunk.into_iter().for_each(|c| table.give(c));
        }
        if let Some(states) = &mut self.states {
            kept.state.into_iter().for_each(|state| states.give(state.slot));
        }
    }

    /// Has a sequence's state kept after so many tokens, whole chunks, for one that begins with these.
    pub fn mark(&self, sequence: &mut Sequence, at: usize) {
        if self.states.is_some() {
            sequence.marks.put(at);
        }
    }

    /// The same at the last whole chunk that texts can have which begin with `n` tokens and go on.
    pub fn mark_end(&self, sequence: &mut Sequence, n: usize) {
        self.mark(sequence, before_last(n));
    }

    /// How many of a sequence's next `n` tokens a step takes, so that it ends where its state is kept.
    pub fn cut(&self, sequence: &Sequence, n: usize) -> usize {
        if self.states.is_some() && self.keeps { sequence.marks.cut(sequence.len, n) } else { n }
    }

    /// Counts tokens as cached that a step has written, keeps chunks that are full now, and gives back what no query of the
    /// sequence sees any more.
    pub fn written(&mut self, sequence: &mut Sequence, ids: &[u32]) {
        if let (Some(states), false) = (&mut self.states, ids.is_empty()) {
            // a step of it is done
            sequence.state.into_iter().for_each(|slot| states.give(slot));
            sequence.state = sequence.target.take();
        }
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
        if !ids.is_empty() && sequence.tail.is_empty() {
            self.keep_state(sequence);
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
        if !self.keeps {
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
        self.kept.insert(sequence.key, Kept { chunk, state: None, used: self.clock });
        self.by_use.insert(self.clock, sequence.key);
    }

    /// Keeps the state of a sequence with its last full chunk, at whose end it is. One that was kept on the way there is kept
    /// no longer, unless somebody has begun with it.
    fn keep_state(&mut self, sequence: &mut Sequence) {
        let (Some(states), Some(slot)) = (&mut self.states, sequence.state) else { return };
        let Some(kept) = self.kept.get_mut(&sequence.key) else { return };
        self.clock += 1;
        let used = self.clock;
        if let Some(state) = &mut kept.state {
            state.used = used;
            return;
        }
        states.share(slot);
        kept.state = Some(State { slot, used });
        if sequence.marks.holds(sequence.len) {
            return;
        }
        let Some((key, used)) = sequence.passing.replace((sequence.key, used)) else { return };
        if let Some(kept) = self.kept.get_mut(&key)
            && let Some(state) = kept.state.take_if(|state| state.used == used)
        {
            states.give(state.slot);
        }
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
        if let Some(states) = &mut self.states {
            sequence.state.into_iter().chain(sequence.target).for_each(|slot| states.give(slot));
        }
    }

    /// Whether a sequence may begin with what another has computed.
    pub fn shares(&self) -> bool {
        self.keeps
    }

    /// Keeps nothing any more: what is in the cache is about to be written over.
    pub fn clear(&mut self) {
        let keys: Vec<Key> = self.kept.keys().copied().collect();
        keys.iter().for_each(|key| self.forget(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::synthetic::Synthetic;
    use crate::models::{self, Hyper, PlanOptions};
    use crate::random;

    /// The plan of a model for so many sequences, of 512 positions each, in a pool of `pool` positions.
    fn built(shape: &str, sequences: usize, pool: usize, checkpoints: usize) -> Built {
        let model = Synthetic::parse(shape).expect("a shape").container().expect("a model");
        let hyper = Hyper::read(&model).expect("its hyperparameters");
        let plan = PlanOptions { sequences, pool: Some(pool), checkpoints, ubatch: 96, ..PlanOptions::default() };
        models::build(&model, &hyper, &plan).expect("a plan")
    }

    /// A pool, and what each slot of its states holds: the tokens that made it so.
    struct Played {
        pool: Pool,
        holds: Vec<Vec<u32>>,
    }

    impl Played {
        fn new(built: &Built) -> Played {
            Played { pool: Pool::new(built), holds: vec![vec![]; built.slots] }
        }

        /// A step of some sequences, each with so many of its text's tokens: what a sequence reads is the state of its tokens
        /// so far, and no two have one to write.
        fn step(&mut self, parts: &mut [(&mut Sequence, &[u32], usize)]) {
            let mut written = Vec::new();
            for (sequence, ids, n) in &mut *parts {
                let [source, target] = sequence.slots();
                match sequence.len() {
                    0 => assert_eq!(source, FRESH),
                    len => assert_eq!(self.holds[source as usize], ids[..len], "the state of {len} tokens"),
                }
                assert_ne!(source, target);
                written.push((target, ids[..sequence.len() + *n].to_vec()));
            }
            for (target, ids) in &written {
                assert_eq!(written.iter().filter(|w| w.0 == *target).count(), 1, "one slot for two");
                self.holds[*target as usize].clone_from(ids);
            }
            for (sequence, ids, n) in parts {
                let first = sequence.len();
                self.pool.written(sequence, &ids[first..first + *n]);
            }
        }

        /// Feeds a text as a scheduler does, `most` tokens at once: where its steps ended.
        fn feed(&mut self, sequence: &mut Sequence, ids: &[u32], most: usize) -> Vec<usize> {
            let mut ends = Vec::new();
            while sequence.len() < ids.len() {
                let n = self.pool.cut(sequence, most.min(ids.len() - sequence.len()));
                self.pool.reserve(sequence, n).expect("there is room");
                self.step(&mut [(sequence, ids, n)]);
                ends.push(sequence.len());
            }
            ends
        }

        /// A prompt that is fed, and then grows by tokens of its own, one by one.
        fn text(&mut self, ids: &[u32], prompt: usize) -> (usize, Vec<usize>) {
            let mut sequence = self.pool.begin(&ids[..prompt]);
            let from = sequence.len();
            self.pool.mark_end(&mut sequence, prompt);
            let ends = self.feed(&mut sequence, &ids[..prompt], 100);
            self.feed(&mut sequence, ids, 1);
            self.pool.end(sequence);
            (from, ends)
        }

        /// With how many chunks a state is kept.
        fn states(&self) -> usize {
            self.pool.kept.values().filter(|kept| kept.state.is_some()).count()
        }
    }

    fn ids(n: usize, seed: u64) -> Vec<u32> {
        let mut seed = seed;
        (0..n).map(|_| (random::next(&mut seed) % 300) as u32).collect()
    }

    #[test]
    fn a_conversation_goes_on_from_its_answer_or_from_the_prompt_before_it() {
        for shape in ["qwen35-tiny:q8_0", "mamba2-tiny:q8_0", "lfm2-tiny:q8_0"] {
            let mut p = Played::new(&built(shape, 2, 1024, 4));
            let first = ids(300, 1);
            // 150 tokens of a prompt, which ends in its third chunk, and 150 of the answer
            assert_eq!(p.text(&first, 150), (0, vec![100, 128, 150]), "{shape}");
            // where the answer is repeated, its last chunk; where it is not, that of the prompt
            let second = [&first[..290], &ids(80, 2)].concat();
            assert_eq!(p.text(&second, 360).0, 256, "{shape}");
            let third = [&first[..140], &ids(100, 3)].concat();
            assert_eq!(p.text(&third, 230).0, 128, "{shape}");
            // the same again, which needs the last token's logits
            assert_eq!(p.text(&first, 150).0, 128, "{shape}");
            assert_eq!(p.text(&first[..128], 128).0, 0, "{shape}");
            assert_eq!(p.text(&ids(90, 4), 90).0, 0, "{shape}");
        }
    }

    #[test]
    fn the_state_that_was_made_or_begun_with_longest_ago_makes_room() {
        let mut p = Played::new(&built("mamba2-tiny:q8_0", 1, 1024, 3));
        let (a, b) = (ids(300, 1), ids(300, 2));
        p.text(&a, 150);
        p.text(&b[..150], 150);
        // a goes on from its answer, twice; then another text comes
        let more = [&a[..], &ids(230, 3)].concat();
        assert_eq!([p.text(&more[..400], 400).0, p.text(&more, 520).0], [256, 384]);
        p.text(&ids(150, 4), 150);
        let mut from = |ids: &[u32]| {
            let sequence = p.pool.begin(ids);
            let n = sequence.len();
            p.pool.end(sequence);
            n
        };
        // what went was the state of the first prompt, of which nothing has been made since
        assert_eq!([from(&b[..150]), from(&more[..520]), from(&more[..300]), from(&a[..150])], [128, 512, 256, 0]);
    }

    #[test]
    fn where_two_texts_part_a_state_is_kept_for_the_third() {
        let mut p = Played::new(&built("mamba2-tiny:q8_0", 2, 1024, 4));
        let system = ids(200, 1);
        let text = |seed| [&system[..], &ids(200, seed)].concat();
        assert_eq!(p.text(&text(2), 400), (0, vec![100, 200, 300, 384, 400]));
        // nobody knew; now it is known
        assert_eq!(p.text(&text(3), 400), (0, vec![100, 192, 292, 384, 400]));
        assert_eq!(p.text(&text(4), 400).0, 192);
        // and where a sequence is told of one that waits for it
        let ids = ids(256, 9);
        let mut sequence = p.pool.begin(&ids);
        p.pool.mark(&mut sequence, 64);
        assert_eq!(p.feed(&mut sequence, &ids, 100), [64, 164, 256]);
        assert_eq!(p.pool.begin(&[&ids[..70], &[1]].concat()).len(), 64);
        p.pool.end(sequence);
    }

    #[test]
    fn of_what_is_kept_on_the_way_the_last_stays_and_without_room_nothing_does() {
        let mut p = Played::new(&built("mamba2-tiny:q8_0", 2, 1024, 4));
        p.text(&ids(512, 1), 100);
        // at 64 with the prompt, at 512 of what it grew by
        assert_eq!(p.states(), 2);
        let mut p = Played::new(&built("mamba2-tiny:q8_0", 2, 1024, 0));
        assert_eq!((p.text(&ids(512, 1), 100), p.pool.shares()), ((0, vec![100]), false));
        assert_eq!((p.text(&ids(512, 1), 100).0, p.states(), p.pool.kept.len()), (0, 0, 0));
    }

    #[test]
    fn whatever_is_begun_ended_and_kept_each_sequence_reads_the_state_of_its_tokens() {
        for (shape, checkpoints) in [("qwen35-tiny:q8_0", 5), ("mamba2-tiny:q8_0", 1), ("lfm2-tiny:q8_0", 3)] {
            let mut p = Played::new(&built(shape, 4, 1280, checkpoints));
            let mut seed = 5;
            let mut draw = |n: usize| (random::next(&mut seed) % n as u64) as usize;
            let roots = [ids(300, 1), ids(400, 2), ids(200, 3)];
            let (mut running, mut reused, mut ended): (Vec<(Sequence, Vec<u32>)>, _, _) = (vec![], 0, 0);
            for turn in 0..4000 {
                if running.len() < 4 && draw(2) == 0 {
                    let root = &roots[draw(3)];
                    let text = [&root[..1 + draw(root.len())], &ids(1 + draw(100), turn % 9)].concat();
                    let mut sequence = p.pool.begin(&text);
                    p.pool.mark_end(&mut sequence, text.len());
                    reused += sequence.len();
                    running.push((sequence, text));
                }
                // some of them take part in a step, as far as there is room
                let mut parts: Vec<(&mut Sequence, &[u32], usize)> = Vec::new();
                for (sequence, text) in &mut running {
                    let n = (1 + draw(120)).min(text.len() - sequence.len());
                    let n = p.pool.cut(sequence, n);
                    if draw(3) > 0 && p.pool.reserve(sequence, n).is_ok() {
                        parts.push((sequence, text, n));
                    }
                }
                let stuck = parts.is_empty();
                p.step(&mut parts);
                let over = |(sequence, text): &mut (Sequence, Vec<u32>)| sequence.len() == text.len();
                for (sequence, _) in running.extract_if(.., over).collect::<Vec<_>>() {
                    ended += 1;
                    p.pool.end(sequence);
                }
                if stuck && !running.is_empty() {
                    p.pool.end(running.swap_remove(draw(running.len())).0);
                }
            }
            running.into_iter().for_each(|(sequence, _)| p.pool.end(sequence));
            assert!(ended > 500 && reused > 10_000, "{shape}: {ended} texts ended, {reused} tokens were reused");
            p.pool.clear();
            let states = p.pool.states.as_mut().expect("it is recurrent");
            let all: BTreeSet<u32> = std::iter::from_fn(|| states.take()).collect();
            assert_eq!(all.len(), p.holds.len(), "{shape}: slots are lost");
        }
    }
}
