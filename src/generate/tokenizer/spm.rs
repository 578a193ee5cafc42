//! SentencePiece vocabularies of GGUF files (`tokenizer.ggml.model` = `llama`): merges by score, bytes for the rest.
//!
//! Neighbours whose joined text is a token are joined, highest score first and leftmost first among equals, through a
//! heap (n log n). A character that is no token becomes its `<0xXX>` byte tokens. No normalisation is done and no
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
    pub byte_ids: [Option<u32>; 256],
    pub unknown: Option<u32>,
}

#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    /// bytes; 0 once merged into the symbol on the left
    len: usize,
    prev: usize,
    next: usize,
}

/// A pair that may be joined. The order is the heap's: greatest first.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
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

const NONE: usize = usize::MAX;

impl Spm {
    /// Appends the ids of a text without special tokens. Spaces are turned into U+2581 here.
    pub fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let text = text.replace(' ', SPACE);
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(i, (start, c))| Symbol { start, len: c.len_utf8(), prev: i.wrapping_sub(1), next: i + 1 })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = NONE;
        }
        let mut queue = BinaryHeap::new();
        for i in 0..symbols.len() {
            self.offer(&text, &symbols, i, &mut queue);
        }
        while let Some(pair) = queue.pop() {
            let (l, r) = (symbols[pair.left], symbols[pair.right]);
            // Stale when either side has been merged since.
            if l.len == 0 || r.len == 0 || l.len + r.len != pair.len {
                continue;
            }
            symbols[pair.left].len = pair.len;
            symbols[pair.left].next = r.next;
            symbols[pair.right].len = 0;
            if let Some(after) = symbols.get_mut(r.next) {
                after.prev = pair.left;
            }
            self.offer(&text, &symbols, l.prev, &mut queue);
            self.offer(&text, &symbols, pair.left, &mut queue);
        }
        for s in symbols.iter().filter(|s| s.len > 0) {
            let piece = &text[s.start..s.start + s.len];
            if let Some(&(id, _)) = self.tokens.get(piece) {
                out.push(id);
            } else if piece.bytes().all(|b| self.byte_ids[b as usize].is_some()) {
                out.extend(piece.bytes().filter_map(|b| self.byte_ids[b as usize]));
            } else if let Some(id) = self.unknown {
                out.push(id);
            } else {
                bail!("the vocabulary has neither {piece:?}, nor its bytes, nor an unknown token");
            }
        }
        Ok(())
    }

    fn offer(&self, text: &str, symbols: &[Symbol], left: usize, queue: &mut BinaryHeap<Pair>) {
        let Some(l) = symbols.get(left) else { return };
        let Some(r) = symbols.get(l.next) else { return };
        let len = l.len + r.len;
        if len > self.longest {
            return;
        }
        if let Some(&(_, score)) = self.tokens.get(&text[l.start..l.start + len]) {
            queue.push(Pair { score, left, right: l.next, len });
        }
    }
}
