//! Where the tokens of a step, and the chunks of the sequences they belong to, lie in the cache.
//!
//! A cache is a pool of chunks of 64 positions; a sequence has a table that says which chunk of the pool each of its own is.
//! A step may hold tokens of many sequences, so every operation that touches the cache is given these words beside its
//! rows (`docs/architecture.md`, "The cache"): [`TOKEN`] words for each token, then the tables.

use std::ops::Range;

/// Positions in a chunk.
pub const CHUNK: usize = 64;

/// Words of a token: its position in its sequence; its chunk in the ring of recent positions, or where attention is told what
/// each token sees ([`see_span`]) the first position of that; where the tables of its
/// sequence begin, one for each of [`TABLES`].
pub const TOKEN: usize = 4;

/// Tables of a sequence: that of layers whose queries see everything before them, and that of layers with a window, whose
/// old chunks are given back.
pub const TABLES: usize = 2;

/// The entry of a chunk that was given back: it lies in no page.
pub const GONE: u32 = 1 << 25;

/// The words of a step, from one of its tokens on.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    words: &'a [u32],
    first: usize,
}

impl<'a> Places<'a> {
    /// Those of all tokens of a step.
    pub fn new(words: &'a [u32]) -> Places<'a> {
        Places { words, first: 0 }
    }

    /// From token `n` on.
    pub fn from(self, n: usize) -> Places<'a> {
        Places { first: self.first + n, ..self }
    }

    fn of(&self, token: usize, word: usize) -> usize {
        self.words[(self.first + token) * TOKEN + word] as usize
    }

    /// The token's position in its sequence.
    pub fn position(&self, token: usize) -> usize {
        self.of(token, 0)
    }

    /// Its chunk in the ring of recent positions.
    pub fn recent(&self, token: usize) -> usize {
        self.of(token, 1)
    }

    /// The first position that it sees, where that is said.
    pub fn first_seen(&self, token: usize) -> usize {
        self.of(token, 1)
    }

    /// What tells its sequence from the others of the step.
    pub fn sequence(&self, token: usize) -> usize {
        self.of(token, 2)
    }

    /// The chunk of the pool that is chunk `chunk` of its sequence.
    pub fn chunk(&self, token: usize, table: u32, chunk: usize) -> usize {
        self.words[self.of(token, 2 + table as usize) + chunk] as usize
    }

    /// How many tokens from `first` on, and before `end`, are of one sequence.
    pub fn together(&self, first: usize, end: usize) -> usize {
        (first..end).take_while(|&t| self.sequence(t) == self.sequence(first)).count()
    }
}

/// A page of the cache, or the ring of recent positions.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// its first position in the pool
    pub first: u32,
    /// positions, whole chunks
    pub len: u32,
    /// whether it is the ring
    pub ring: bool,
    /// which of a sequence's tables says where chunks are
    pub table: u32,
}

impl Page {
    /// Index in the page of the first position of a sequence's chunk, where the page has it. In the ring that of the token's
    /// own chunk, which is the only one asked for.
    pub fn index(&self, places: &Places, token: usize, chunk: usize) -> Option<usize> {
        if self.ring {
            return Some(places.recent(token) * CHUNK);
        }
        let at = (places.chunk(token, self.table, chunk) * CHUNK).wrapping_sub(self.first as usize);
        (at < self.len as usize).then_some(at)
    }

    /// Index in the page of a token's own position, where the page has it.
    pub fn own(&self, places: &Places, token: usize) -> Option<usize> {
        let position = places.position(token);
        Some(self.index(places, token, position / CHUNK)? + position % CHUNK)
    }

    /// The first run of neighbouring tokens from `from` on, and before `n`, whose own positions the page has; empty where
    /// there is none.
    pub fn run(&self, places: &Places, from: usize, n: usize) -> Range<usize> {
        let has = |&t: &usize| self.own(places, t).is_some();
        let first = (from..n).find(has).unwrap_or(n);
        first..first + (first..n).take_while(has).count()
    }
}

/// What a step touches of a pool by one of the tables: chunks from, and to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touches {
    /// that queries see
    pub read: (u32, u32),
    /// that tokens are written to
    pub written: (u32, u32),
}

impl Touches {
    /// Whether a page, from position `first` of the pool on, has any of the chunks.
    pub fn meets((from, to): (u32, u32), first: u32, len: u32) -> bool {
        let chunk = CHUNK as u32;
        from < to && from < (first + len) / chunk && first / chunk < to
    }
}

/// Words of a step of `n` tokens of one sequence whose chunks lie in their own order, the first at position `pos`; the ring
/// has `ring` chunks (0: there is none). `words` is cleared first.
pub fn in_order(pos: usize, n: usize, ring: usize, words: &mut Vec<u32>) {
    words.clear();
    words.resize(in_order_words(pos, n), 0);
    put_in_order(pos, n, ring, words);
}

/// How many words that are.
pub fn in_order_words(pos: usize, n: usize) -> usize {
    n * TOKEN + (pos + n).div_ceil(CHUNK)
}

/// The same, to where there is room for them.
pub fn put_in_order(pos: usize, n: usize, ring: usize, words: &mut [u32]) {
    let (tokens, table) = words.split_at_mut(n * TOKEN);
    for (t, token) in tokens.as_chunks_mut::<TOKEN>().0.iter_mut().enumerate() {
        let (position, table) = (pos + t, (n * TOKEN) as u32);
        let recent = if ring == 0 { 0 } else { position / CHUNK % ring };
        *token = [position as u32, recent as u32, table, table];
    }
    for (chunk, entry) in table.iter_mut().take((pos + n).div_ceil(CHUNK)).enumerate() {
        *entry = chunk as u32;
    }
}

/// Of the words of a step, puts token `t` at position `last(t)`: attention then takes it for the last of its text, all of which
/// it sees.
pub fn see_all(n: usize, words: &mut [u32], last: impl Fn(usize) -> u32) {
    for (t, token) in words[..n * TOKEN].as_chunks_mut::<TOKEN>().0.iter_mut().enumerate() {
        token[0] = last(t);
    }
}

/// The same of layers with a window, of which each token sees `side` positions on either side of its own, as far as the text
/// goes: puts it at the last of them, and the first beside it.
pub fn see_span(n: usize, words: &mut [u32], side: u32, last: impl Fn(usize) -> u32) {
    for (t, token) in words[..n * TOKEN].as_chunks_mut::<TOKEN>().0.iter_mut().enumerate() {
        let own = token[0];
        (token[0], token[1]) = (last(t).min(own.saturating_add(side)), own.saturating_sub(side));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sequence_in_order_lies_where_its_positions_are() {
        let mut words = Vec::new();
        in_order(126, 5, 2, &mut words);
        assert_eq!((words.len(), in_order_words(126, 5)), (23, 23));
        let places = Places::new(&words);
        let page = Page { first: 64, len: 64, ring: false, table: 1 };
        assert_eq!((page.run(&places, 0, 5), page.run(&places, 2, 5)), (0..2, 5..5));
        assert_eq!((page.own(&places, 1), page.own(&places, 2)), (Some(63), None));
        assert_eq!((places.from(3).position(1), places.together(0, 5)), (130, 5));
        let ring = Page { first: 0, len: 128, ring: true, table: 0 };
        assert_eq!((ring.own(&places, 0), ring.own(&places, 2)), (Some(126), Some(0)));
    }
}
