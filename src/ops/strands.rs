//! Which tokens of a step belong to one sequence, and which slots of a recurrent state are its own.
//!
//! A recurrent operation walks the tokens of a sequence in their order, wherever they lie in the step: a strand. It is given
//! these words beside its rows: [`STRAND`] words for each strand, then the tokens of all strands. A step reads one slot and
//! writes another, so that a step that is thrown away leaves what was before it (`docs/architecture.md`, "Recurrent states").

/// Words of a strand: where its tokens begin among these words, how many there are, the slot its state is read from
/// ([`FRESH`]: it begins with zeros), the slot it is written to.
pub const STRAND: usize = 4;

/// The slot of a state that is zero.
pub const FRESH: u32 = u32::MAX;

/// Slots of a sequence in a pool: a step is done before the next one begins.
const SLOTS: usize = 2;

/// Slots of a session alone: so many steps but one may be under way, and all of them be thrown away.
pub const TURNS: usize = 3;

/// The words of a step.
#[derive(Clone, Copy, Debug)]
pub struct Strands<'a> {
    words: &'a [u32],
}

/// The tokens of one sequence in a step, and its state.
#[derive(Clone, Copy, Debug)]
pub struct Strand<'a> {
    /// tokens of the step, in the order of their positions
    pub tokens: &'a [u32],
    /// slot its state is read from; `None`: zeros
    pub source: Option<usize>,
    /// slot it is written to
    pub target: usize,
}

impl<'a> Strands<'a> {
    /// Those of a step.
    pub fn new(words: &'a [u32]) -> Strands<'a> {
        Strands { words }
    }

    /// The first `n` of them.
    pub fn take(self, n: u32) -> impl Iterator<Item = Strand<'a>> {
        self.words.as_chunks::<STRAND>().0.iter().take(n as usize).map(move |&[first, count, source, target]| Strand {
            tokens: &self.words[first as usize..][..count as usize],
            source: (source != FRESH).then_some(source as usize),
            target: target as usize,
        })
    }
}

/// Words that a step of `n` tokens of so many sequences has.
pub fn words(n: usize, strands: usize) -> usize {
    strands * STRAND + n
}

/// Slots of a state where a step may have tokens of so many sequences, and so many states are kept besides.
pub fn slots(sequences: usize, kept: usize) -> usize {
    (SLOTS * sequences).max(TURNS) + kept
}

/// Words of a step of `n` tokens of one sequence, in order. `words` is cleared first.
pub fn in_order(n: usize, [source, target]: [u32; 2], words: &mut Vec<u32>) {
    words.clear();
    words.extend([STRAND as u32, n as u32, source, target]);
    words.extend(0..n as u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_has_two_slots_and_a_session_alone_three() {
        assert_eq!([slots(1, 0), slots(2, 0), slots(1, 2), slots(4, 8)], [3, 4, 5, 16]);
    }

    #[test]
    fn strands_give_their_tokens_in_order() {
        let mut list = vec![];
        in_order(3, [FRESH, 1], &mut list);
        assert_eq!(list.len(), words(3, 1));
        let one: Vec<Strand> = Strands::new(&list).take(1).collect();
        assert_eq!((one[0].tokens, one[0].source, one[0].target), (&[0, 1, 2][..], None, 1));
        let two = [8, 1, 5, 4, 9, 2, FRESH, 0, 2, 0, 1];
        let got: Vec<_> = Strands::new(&two).take(2).map(|s| (s.tokens, s.source, s.target)).collect();
        assert_eq!(got, [(&[2][..], Some(5), 4), (&[0, 1][..], None, 0)]);
    }
}
