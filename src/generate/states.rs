//! Which slots the states of recurrent layers lie in, and which are kept for prompts to come.
//!
//! What layers remember after a token is all there is of the tokens before it: there is no way from it to an earlier one. So
//! where a prompt may be gone on from, a checkpoint is kept, the slot that a step has written: nothing is copied, later steps
//! write other slots. A checkpoint holds what its tokens make of it, as a chunk of the cache does, so taking one up changes no
//! bit. It lies where a chunk ends, since of layers that are attention whole chunks are kept.

use crate::ops::places::CHUNK;
use crate::ops::strands::{FRESH, TURNS};

/// Positions between which a long prompt's step ends on the way, so that one that is broken off need not begin anew.
const STRIDE: usize = 64 * CHUNK;

/// Where in a text checkpoints are made that stay when it goes on.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<usize>);

impl Marks {
    /// Has one made after so many tokens, whole chunks.
    pub fn put(&mut self, at: usize) {
        debug_assert_eq!(at % CHUNK, 0);
        if at > 0 && !self.0.contains(&at) {
            self.0.push(at);
        }
    }

    pub fn holds(&self, at: usize) -> bool {
        self.0.contains(&at)
    }

    /// How many of the `n` tokens after position `pos` a step takes, so that it ends where a checkpoint is made.
    pub fn cut(&self, pos: usize, n: usize) -> usize {
        let stride = (pos / STRIDE + 1) * STRIDE;
        self.0.iter().filter(|at| **at > pos).fold(n.min(stride - pos), |n, at| n.min(at - pos))
    }

    /// How many of the `n` tokens after position `pos` lie before the last mark there; 0: there is none.
    pub fn last(&self, pos: usize, n: usize) -> usize {
        self.0.iter().filter(|at| (pos..=pos + n).contains(*at)).max().map_or(0, |at| at - pos)
    }
}

/// Where the last checkpoint lies that a text of `n` tokens can be gone on from when it has ended.
pub(super) fn before_last(n: usize) -> usize {
    n.saturating_sub(1) / CHUNK * CHUNK
}

/// The slots of a pool.
#[derive(Debug)]
pub(super) struct Slots {
    /// sequences that have it, and one more where it is kept
    users: Vec<u32>,
    free: Vec<u32>,
}

impl Slots {
    pub fn new(n: usize) -> Slots {
        Slots { users: vec![0; n], free: (0..n as u32).rev().collect() }
    }

    /// One that nobody has.
    pub fn take(&mut self) -> Option<u32> {
        let slot = self.free.pop()?;
        self.users[slot as usize] = 1;
        Some(slot)
    }

    pub fn share(&mut self, slot: u32) {
        self.users[slot as usize] += 1;
    }

    pub fn give(&mut self, slot: u32) {
        let users = &mut self.users[slot as usize];
        *users -= 1;
        if *users == 0 {
            self.free.push(slot);
        }
    }

    /// Whether one alone has it.
    pub fn is_lone(&self, slot: u32) -> bool {
        self.users[slot as usize] == 1
    }
}

/// A state that is kept of a session's sequence.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    /// tokens it is made of
    at: usize,
    slot: u32,
    /// whether it stays when the sequence goes on
    lasting: bool,
}

/// The slots of a session alone. Steps take turns with three, since two may be under way and both be thrown away; the others
/// are for checkpoints.
#[derive(Debug)]
pub(super) struct Turns {
    ring: [u32; TURNS],
    turn: usize,
    /// that of the sequence so far
    state: u32,
    free: Vec<u32>,
    /// by when they were made or taken up, the last at the end
    kept: Vec<Checkpoint>,
    marks: Marks,
}

impl Turns {
    /// With slots for so many checkpoints.
    pub fn new(checkpoints: usize) -> Turns {
        let free = (TURNS..TURNS + checkpoints).rev().map(|slot| slot as u32).collect();
        let ring = std::array::from_fn(|i| i as u32);
        Turns { ring, turn: 0, state: 0, free, kept: Vec::new(), marks: Marks::default() }
    }

    /// Whether checkpoints are made.
    fn keeps(&self) -> bool {
        !self.free.is_empty() || !self.kept.is_empty()
    }

    /// The slots that a step reads and writes which begins after so many that are under way; `begun`: there is a state.
    pub fn of_step(&self, under_way: usize, begun: bool) -> [u32; 2] {
        let source = if under_way == 0 { self.state } else { self.slot(under_way) };
        [if begun { source } else { FRESH }, self.slot(under_way + 1)]
    }

    fn slot(&self, turn: usize) -> u32 {
        self.ring[(self.turn + turn) % TURNS]
    }

    /// A step counts that ends after position `pos`.
    pub fn advance(&mut self, pos: usize) {
        self.turn = (self.turn + 1) % TURNS;
        self.state = self.slot(0);
        if self.keeps() && pos > 0 && pos.is_multiple_of(CHUNK) {
            self.keep(pos);
        }
    }

    /// Keeps the state of the sequence so far; the next step but two writes another slot in its place.
    fn keep(&mut self, at: usize) {
        let lasting = self.marks.holds(at);
        if !lasting {
            self.drop_where(|c| !c.lasting);
        }
        let other = self.free.pop().unwrap_or_else(|| self.kept.remove(0).slot);
        self.ring[self.turn] = other;
        self.kept.push(Checkpoint { at, slot: self.state, lasting });
    }

    fn drop_where(&mut self, gone: impl Fn(&Checkpoint) -> bool) {
        let Turns { kept, free, .. } = self;
        free.extend(kept.extract_if(.., |c| gone(c)).map(|c| c.slot));
    }

    /// Has checkpoints made that stay after so many tokens, whole chunks, and nowhere else.
    pub fn mark(&mut self, at: &[usize]) {
        self.marks = Marks::default();
        at.iter().for_each(|at| self.marks.put(*at));
    }

    /// [`Marks::cut`] of the tokens of a step; all of them where no checkpoints are made.
    pub fn cut(&self, pos: usize, n: usize) -> usize {
        if self.keeps() { self.marks.cut(pos, n) } else { n }
    }

    /// [`Marks::last`] of tokens; 0 where no checkpoints are made.
    pub fn last(&self, pos: usize, n: usize) -> usize {
        if self.keeps() { self.marks.last(pos, n) } else { 0 }
    }

    /// Goes back to the last checkpoint of at most `most` tokens, whose number is the result; 0: to the start. Those after it
    /// are dropped: what the cache has beyond is about to be another text's.
    pub fn go_back(&mut self, most: usize) -> usize {
        self.marks = Marks::default();
        self.drop_where(|c| c.at > most);
        let Some(last) = (0..self.kept.len()).max_by_key(|i| self.kept[*i].at) else { return 0 };
        let last = self.kept.remove(last);
        self.kept.push(Checkpoint { lasting: true, ..last });
        self.state = last.slot;
        last.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn steps_end_where_checkpoints_are_made() {
        let mut marks = Marks::default();
        [0, 128, 640, 128].iter().for_each(|at| marks.put(*at));
        assert_eq!(marks.0, [128, 640]);
        assert_eq!(
            [marks.cut(0, 500), marks.cut(128, 512), marks.cut(130, 900), marks.cut(640, 9)],
            [128, 512, 510, 9]
        );
        assert_eq!([marks.cut(4000, 512), marks.cut(4096, 512)], [96, 512]);
        assert_eq!([marks.last(0, 700), marks.last(0, 639), marks.last(640, 5), marks.last(641, 5)], [640, 128, 0, 0]);
        assert_eq!([0, 1, 64, 65, 128, 129].map(before_last), [0, 0, 0, 64, 64, 128]);
    }

    #[test]
    fn a_slot_is_free_when_nobody_has_it() {
        let mut slots = Slots::new(2);
        let (a, b) = (slots.take().unwrap(), slots.take().unwrap());
        slots.share(a);
        assert!(slots.take().is_none() && !slots.is_lone(a) && slots.is_lone(b));
        slots.give(a);
        assert!(slots.take().is_none() && slots.is_lone(a));
        slots.give(a);
        assert_eq!(slots.take(), Some(a));
    }

    /// Plays steps and writes down what each slot holds: no step writes one that is kept, or that a step reads which may still
    /// be asked for again.
    struct Played {
        turns: Turns,
        /// by slot, the tokens of the state in it
        holds: Vec<usize>,
        pos: usize,
        /// tokens of each step under way
        under_way: VecDeque<usize>,
    }

    impl Played {
        fn new(checkpoints: usize) -> Played {
            let holds = vec![usize::MAX; TURNS + checkpoints];
            Played { turns: Turns::new(checkpoints), holds, pos: 0, under_way: VecDeque::new() }
        }

        fn start(&mut self, tokens: usize) {
            let before = self.pos + self.under_way.iter().sum::<usize>();
            let [source, target] = self.turns.of_step(self.under_way.len(), before > 0);
            assert!(source == FRESH || self.holds[source as usize] == before, "{:?}", self.turns);
            assert_ne!(source, target);
            self.holds[target as usize] = before + tokens;
            self.under_way.push_back(tokens);
            self.check();
        }

        /// The first step under way counts.
        fn count(&mut self) {
            self.pos += self.under_way.pop_front().expect("one is under way");
            self.turns.advance(self.pos);
            self.check();
        }

        /// So many steps of some tokens, of which the first alone counts.
        fn steps(&mut self, tokens: usize, started: usize) {
            (0..started).for_each(|_| self.start(tokens));
            self.count();
            self.under_way.clear();
        }

        /// What the first step under way began with is there still, and what is kept.
        fn check(&self) {
            let [first, _] = self.turns.of_step(0, self.pos > 0);
            assert!(first == FRESH || self.holds[first as usize] == self.pos, "{:?}", self.turns);
            let kept = self.turns.kept.iter();
            kept.for_each(|c| assert_eq!(self.holds[c.slot as usize], c.at, "{:?}", self.turns));
        }

        fn at(&self) -> Vec<usize> {
            self.turns.kept.iter().map(|c| c.at).collect()
        }
    }

    #[test]
    fn checkpoints_are_written_over_by_no_step_that_was_started_in_vain() {
        for most in [0, 1, 2, 4] {
            let mut p = Played::new(most);
            for round in 0..4 {
                p.turns.mark(&[p.pos + 64]);
                p.steps(64, 1 + round % 2);
                (0..130).for_each(|i| p.steps(1, 1 + i % 2));
                p.steps(62, 2);
            }
            assert!(p.at().len() <= most && (most == 0 || p.at().contains(&p.pos)), "{most}: {:?}", p.at());
            // gone back to, and on from there, twice
            for _ in 0..2 {
                p.pos = p.turns.go_back(p.pos - 70);
                assert_eq!(p.pos > 0, most > 1, "{most}");
                (0..70).for_each(|i| p.steps(1, 1 + i % 2));
            }
        }
    }

    #[test]
    fn checkpoints_are_written_over_by_no_step_while_another_is_always_under_way() {
        for most in [0, 1, 2, 4] {
            let mut p = Played::new(most);
            let mut made = 0;
            for round in 1..9 {
                p.turns.mark(&[p.pos / CHUNK * CHUNK + 2 * CHUNK]);
                p.start(1);
                for _ in 0..50 * round {
                    p.start(1);
                    p.count();
                    made += usize::from(p.at().contains(&p.pos));
                }
                // another prompt comes while one is under way, which leaves the sequence some tokens before its end
                p.pos = p.turns.go_back(p.pos.saturating_sub(round * 9));
                p.under_way.clear();
                p.check();
            }
            assert_eq!(made > 10, most > 0, "{most}");
        }
    }

    #[test]
    fn one_on_the_way_goes_when_the_next_is_made_and_marks_stay() {
        let mut p = Played::new(3);
        p.turns.mark(&[128]);
        [64, 64, 64, 64].iter().for_each(|n| p.steps(*n, 1));
        assert_eq!(p.at(), [128, 256]);
        // gone on from it stays, and what was after it is another text's
        p.pos = p.turns.go_back(200);
        assert_eq!((p.pos, p.at()), (128, vec![128]));
        p.turns.mark(&[192]);
        [64, 64, 64].iter().for_each(|n| p.steps(*n, 1));
        assert_eq!(p.at(), [128, 192, 320]);
        // the one used longest ago makes room
        p.turns.mark(&[384]);
        p.steps(64, 1);
        assert_eq!(p.at(), [192, 320, 384]);
        assert_eq!((p.turns.go_back(191), p.at()), (0, vec![]));
    }
}
