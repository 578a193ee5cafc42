//! Guessing the next tokens from what was said before, so that several can be checked in one step.
//!
//! A guess changes no token: the step that checks it gives the logits of every position as a step of one token would, the
//! token of each position is drawn from them with that position's own random number, and guesses after the first wrong one
//! are thrown away. Guesses move time alone.

/// Tokens a guess has at most.
pub const MOST: usize = 15;

/// Tokens that must have come before in the same order.
const SAME: usize = 3;

/// Guesses that what followed the last tokens when they came before follows again ("prompt lookup").
#[derive(Clone, Debug)]
pub struct Ngram {
    /// tokens of the next guess, at most
    length: usize,
    /// wrong guesses in a row
    wrong: u32,
    /// tokens until the next guess
    pause: usize,
}

impl Default for Ngram {
    fn default() -> Ngram {
        Ngram { length: 4, wrong: 0, pause: 0 }
    }
}

impl Ngram {
    /// The tokens that are guessed to follow `history`, `room` at most; `guess` is cleared first, and stays empty where
    /// there is nothing to go by.
    pub fn guess(&mut self, history: &[u32], room: usize, guess: &mut Vec<u32>) {
        guess.clear();
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let Some(end) = history.len().checked_sub(SAME) else { return };
        let last = &history[end..];
        let Some(at) = (0..end).rev().find(|&at| &history[at..at + SAME] == last) else { return };
        for i in at + SAME..at + SAME + self.length.min(room) {
            // what follows may be the guess itself: a text that goes round
            guess.push(if i < history.len() { history[i] } else { guess[i - history.len()] });
        }
    }

    /// How many of the guessed tokens were right.
    pub fn told(&mut self, guessed: usize, right: usize) {
        if guessed == 0 {
            return;
        }
        self.wrong = if right == 0 { self.wrong + 1 } else { 0 };
        // after several wrong ones in a row fewer are made, so that a text without repeats costs next to nothing
        self.pause = if self.wrong > 0 { 1 << self.wrong.min(7) } else { 0 };
        self.length = if right == guessed { (2 * guessed).min(MOST) } else { (right + 1).clamp(2, MOST) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_before_is_guessed_and_wrong_guesses_become_rare() {
        let mut n = Ngram::default();
        let mut guess = vec![9];
        n.guess(&[1, 2, 3], 10, &mut guess);
        assert!(guess.is_empty());
        n.guess(&[1, 2, 3, 4, 5, 6, 7, 1, 2, 3], 10, &mut guess);
        assert_eq!(guess, [4, 5, 6, 7]);
        n.told(4, 4);
        // the latest of several, round the end of what is known, and no more than there is room for
        n.guess(&[1, 2, 3, 8, 1, 2, 3, 5, 1, 2, 3], 7, &mut guess);
        assert_eq!(guess, [5, 1, 2, 3, 5, 1, 2]);
        n.told(7, 2);
        n.guess(&[1, 2, 3, 4, 5, 6, 7, 1, 2, 3], 10, &mut guess);
        assert_eq!(guess.len(), 3);
        let mut made = 0;
        for _ in 0..1000 {
            n.guess(&[1, 2, 3, 4, 5, 6, 7, 1, 2, 3], 10, &mut guess);
            made += usize::from(!guess.is_empty());
            n.told(guess.len(), 0);
        }
        assert!(made < 15, "{made} wrong guesses");
    }
}
