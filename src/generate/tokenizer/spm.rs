//! SentencePiece vocabularies of GGUF files (`tokenizer.ggml.model` = `llama`): merges by score, bytes for the rest.
//!
//! Neighbours whose joined text is a token are joined, highest score first and leftmost first among equals, through a
//! heap (n log n), with about 25 bytes of memory for each byte of the longest stretch that could become one token. A character that is no token becomes its `<0xXX>` byte tokens. No normalisation is done and no
//! white space is removed; both are properties of the models this format carries.
//!
//! Control, unknown and byte tokens never come from ordinary text (as in SentencePiece itself).

use anyhow::{Result, bail};
use std::collections::{BinaryHeap, HashMap};

/// U+2581, which stands for a space.
pub(super) const SPACE: &str = "\u{2581}";

/// The vocabulary of one model.
#[derive(Debug)]
pub(super) struct Spm {
    /// text to (id, score), for the tokens that ordinary text may become
    pub tokens: HashMap<Box<str>, (u32, f32)>,
    /// the longest text in `tokens`, in bytes
    pub longest: usize,
    /// the neighbours in `tokens`
    pub pairs: Pairs,
    pub byte_ids: [Option<u32>; 256],
    pub unknown: Option<u32>,
}

/// Which two characters may follow one another inside a token, a space standing as U+2581. It may say yes wrongly, never
/// no.
#[derive(Debug)]
pub(super) struct Pairs {
    bits: Vec<u64>,
}

/// Bits of [`Pairs`], as a power of two.
const PAIR_BITS: u32 = 20;

impl Pairs {
    pub fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Pairs {
        let mut pairs = Pairs { bits: vec![0; 1 << (PAIR_BITS - 6)] };
        for text in texts {
            for (x, y) in text.chars().zip(text.chars().skip(1)) {
                let at = Pairs::slot(x, y);
                pairs.bits[at >> 6] |= 1 << (at & 63);
            }
        }
        pairs
    }

    fn slot(x: char, y: char) -> usize {
        let plain = |c: char| if c == ' ' { 0x2581 } else { u64::from(u32::from(c)) };
        let both = plain(x) << 32 | plain(y);
        (both.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - PAIR_BITS)) as usize
    }

    /// Whether a token may reach from `x` into `y`.
    pub fn may_join(&self, x: char, y: char) -> bool {
        let at = Pairs::slot(x, y);
        self.bits[at >> 6] >> (at & 63) & 1 == 1
    }
}

/// Two neighbours that may be joined: bytes `left..end`. The order is the heap's: greatest first.
struct Pair {
    score: f32,
    left: u32,
    end: u32,
}

impl PartialEq for Pair {
    fn eq(&self, other: &Pair) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pair {}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Pair) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pair {
    fn cmp(&self, other: &Pair) -> std::cmp::Ordering {
        // Scores are finite and have no negative zero (checked at loading), so this is their usual order.
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

const NONE: u32 = u32::MAX;

/// Buffers kept from stretch to stretch.
#[derive(Default)]
struct Room {
    text: String,
    /// where the symbol that begins at this byte ends; 0 where none begins any more
    end: Vec<u32>,
    /// where the one before it begins
    before: Vec<u32>,
    queue: BinaryHeap<Pair>,
}

impl Spm {
    /// Appends the ids of a text without special tokens. Spaces are turned into U+2581 here.
    ///
    /// Where no token holds two neighbours side by side nothing is ever joined across them, so the text is done stretch by
    /// stretch, cut at such places: most stretches are words.
    pub fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let mut room = Room::default();
        let mut last = None;
        for c in text.chars() {
            if let Some(x) = last
                && !self.pairs.may_join(x, c)
            {
                self.stretch(&mut room, out)?;
            }
            room.text.push(if c == ' ' { '\u{2581}' } else { c });
            last = Some(c);
        }
        self.stretch(&mut room, out)
    }

    /// Appends the ids of `room.text` and empties it.
    fn stretch(&self, room: &mut Room, out: &mut Vec<u32>) -> Result<()> {
        let Room { text, end, before, queue } = room;
        let n = text.len();
        end.clear();
        end.resize(n, 0);
        before.clear();
        before.resize(n, NONE);
        let (mut last, mut symbols) = (NONE, 0);
        for (start, c) in text.char_indices() {
            end[start] = (start + c.len_utf8()) as u32;
            before[start] = last;
            last = start as u32;
            symbols += 1;
        }
        // all at once: a heap is made of them in linear time, and without room to spare
        let mut pairs = std::mem::take(queue).into_vec();
        pairs.clear();
        pairs.reserve_exact(symbols);
        pairs.extend(text.char_indices().filter_map(|(left, _)| self.pair(text, end, left as u32)));
        *queue = BinaryHeap::from(pairs);
        while let Some(Pair { left, end: whole, .. }) = queue.pop() {
            let middle = end[left as usize];
            // Stale when either side has been joined since: then what follows no longer ends there.
            if middle == 0 || middle as usize >= n || end[middle as usize] != whole {
                continue;
            }
            end[middle as usize] = 0;
            end[left as usize] = whole;
            if let Some(b) = before.get_mut(whole as usize) {
                *b = left;
            }
            let left_of = before[left as usize];
            if left_of != NONE {
                queue.extend(self.pair(text, end, left_of));
            }
            queue.extend(self.pair(text, end, left));
        }
        let mut at = 0;
        while at < n {
            let piece = &text[at..end[at] as usize];
            at = end[at] as usize;
            if let Some(&(id, _)) = self.tokens.get(piece) {
                out.push(id);
            } else if piece.bytes().all(|b| self.byte_ids[b as usize].is_some()) {
                out.extend(piece.bytes().filter_map(|b| self.byte_ids[b as usize]));
            } else if let Some(id) = self.unknown {
                out.push(id);
            } else {
                bail!(
                    "the vocabulary has neither {piece:?}, nor its bytes, nor an unknown token; leave it out of the text"
                );
            }
        }
        text.clear();
        Ok(())
    }

    /// The symbol at `left` and the one after it, where they make a token together.
    fn pair(&self, text: &str, end: &[u32], left: u32) -> Option<Pair> {
        let whole = *end.get(*end.get(left as usize)? as usize)?;
        if (whole - left) as usize > self.longest {
            return None;
        }
        let &(_, score) = self.tokens.get(&text[left as usize..whole as usize])?;
        Some(Pair { score, left, end: whole })
    }
}
