//! Guessing the next tokens, from what was said before or by a smaller model, so that several can be checked in one step.
//!
//! A guess changes no token: the step that checks it gives the logits of every position as a step of one token would, the
//! token of each position is drawn from them with that position's own random number, and guesses after the first wrong one
//! are thrown away. Guesses move time alone.

use super::sampling::Sampler;
use super::session::{Session, Want};

/// Tokens a guess has at most.
pub const MOST: usize = 15;

/// Tokens of the end of a text that are looked for in what came before, at most.
const LONGEST: usize = 16;

/// How many tokens are guessed, by how many of the last ones were right.
#[derive(Clone, Debug)]
struct Pace {
    /// tokens of the next guess, at most
    length: usize,
    /// guesses that were wrong from the first token on, less two for each that was not
    wrong: u32,
    /// tokens until the next guess
    pause: usize,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { length: 4, wrong: 0, pause: 0 }
    }
}

impl Pace {
    /// How many tokens may be guessed now, where there is room for so many.
    fn next(&mut self, room: usize) -> usize {
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        self.length.min(room)
    }

    /// How many of the guessed tokens were right.
    fn told(&mut self, guessed: usize, right: usize) {
        if guessed == 0 {
            return;
        }
        self.wrong = if right == 0 { self.wrong + 1 } else { self.wrong.saturating_sub(2) };
        // after several wrong ones fewer are made, so that a text without repeats costs next to nothing
        self.pause = if right == 0 && self.wrong > 2 { 1 << (self.wrong - 1).min(7) } else { 0 };
        self.length = if right == guessed { (2 * guessed).min(MOST) } else { (right + 1).clamp(2, MOST) };
    }
}

/// Who guesses.
pub enum Guesser<'s> {
    /// what was said before
    Ngram(Ngram),
    /// a smaller model
    Draft(&'s mut Draft),
}

impl Guesser<'_> {
    /// The tokens that are guessed to follow `history`, `room` at most; `guess` is cleared first. `sampler` is the one that
    /// draws the tokens; the history is as it was when this returns.
    ///
    /// Errors: those of the draft's device.
    pub async fn guess(
        &mut self,
        sampler: &mut Sampler,
        history: &mut Vec<u32>,
        room: usize,
        guess: &mut Vec<u32>,
    ) -> anyhow::Result<()> {
        match self {
            Guesser::Ngram(ngram) => ngram.guess(history, room, guess),
            Guesser::Draft(draft) => draft.guess(sampler, history, room, guess).await?,
        }
        Ok(())
    }

    /// How many of the guessed tokens were right.
    pub fn told(&mut self, guessed: usize, right: usize) {
        match self {
            Guesser::Ngram(ngram) => ngram.told(guessed, right),
            Guesser::Draft(draft) => draft.pace.told(guessed, right),
        }
    }
}

/// Guesses that what followed the last tokens when they came before follows again ("prompt lookup").
#[derive(Clone, Debug, Default)]
pub struct Ngram {
    pace: Pace,
}

impl Ngram {
    /// The tokens that are guessed to follow `history`, `room` at most; `guess` is cleared first, and stays empty where
    /// there is nothing to go by.
    pub fn guess(&mut self, history: &[u32], room: usize, guess: &mut Vec<u32>) {
        guess.clear();
        let n = self.pace.next(room);
        if n == 0 {
            return;
        }
        let Some((at, same)) = most_alike(history) else { return };
        // the longer the likeness, the further it is likely to go
        for i in at..at + n.min(2 * same - 1) {
            // what follows may be the guess itself: a text that goes round
            guess.push(if i < history.len() { history[i] } else { guess[i - history.len()] });
        }
    }

    /// How many of the guessed tokens were right.
    pub fn told(&mut self, guessed: usize, right: usize) {
        self.pace.told(guessed, right);
    }
}

/// Where in a text its end came before: after which token, and how many of the last tokens were the same, [`LONGEST`] at
/// most. The longest such place, of equals the latest.
fn most_alike(history: &[u32]) -> Option<(usize, usize)> {
    let mut found = None;
    let mut longest = 0;
    for end in (1..history.len()).rev() {
        let pairs = history[..end].iter().rev().zip(history.iter().rev());
        let same = pairs.take(LONGEST).take_while(|(a, b)| a == b).count();
        if same > longest {
            (found, longest) = (Some((end, same)), same);
        }
        if longest == LONGEST {
            break;
        }
    }
    found
}

/// A smaller model that says what it would go on with. It draws with the same random numbers as the model that is asked, so
/// that it is right more often where tokens are sampled.
pub struct Draft {
    session: Session<'static>,
    /// the tokens in its cache
    seen: Vec<u32>,
    pace: Pace,
    logits: Vec<f32>,
}

impl Draft {
    /// A model that is loaded, whose cache has no f16 copy of recent positions: it goes back wherever a guess was wrong.
    pub fn new(session: Session<'static>) -> Draft {
        debug_assert!(session.built().recent_words == 0);
        Draft { session, seen: Vec::new(), pace: Pace::default(), logits: Vec::new() }
    }

    async fn guess(
        &mut self,
        sampler: &mut Sampler,
        history: &mut Vec<u32>,
        room: usize,
        guess: &mut Vec<u32>,
    ) -> anyhow::Result<()> {
        guess.clear();
        let known = history.len();
        let n = self.pace.next(room.min(self.session.n_ctx().saturating_sub(known)));
        let same = self.seen.iter().zip(&history[..known - 1]).take_while(|(a, b)| a == b).count();
        // a token that it does not have leaves it nothing to say
        if n == 0 || history[same..].iter().any(|id| *id as usize >= self.session.vocab()) {
            return Ok(());
        }
        self.session.reset();
        self.session.advance(same);
        self.seen.truncate(same);
        for _ in 0..n {
            let fed = self.seen.len();
            let logits = &mut self.logits;
            let keep = |_: usize, row: &[f32]| {
                logits.clear();
                logits.extend_from_slice(row);
                Ok(())
            };
            self.session.feed_any(&history[fed..], Want::Last, keep).await?;
            self.seen.extend_from_slice(&history[fed..]);
            // from logits that are not finite nothing is guessed
            let Ok(id) = sampler.guess(&self.logits, history, history.len()) else { break };
            guess.push(id);
            history.push(id);
        }
        history.truncate(known);
        Ok(())
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
        assert_eq!(guess, [5, 1, 2, 3, 5]);
        n.told(5, 2);
        n.guess(&[1, 2, 3, 4, 5, 6, 7, 1, 2, 3], 10, &mut guess);
        assert_eq!(guess.len(), 3);
        // the longest likeness rather than the latest, and of one token one
        n.told(2, 2);
        n.guess(&[4, 1, 2, 3, 8, 7, 2, 3, 9, 4, 1, 2, 3], 9, &mut guess);
        assert_eq!(guess, [8, 7, 2, 3]);
        n.guess(&[1, 2, 3, 4, 3], 9, &mut guess);
        assert_eq!(guess, [4]);
        let mut made = 0;
        for _ in 0..1000 {
            n.guess(&[1, 2, 3, 4, 5, 6, 7, 1, 2, 3], 10, &mut guess);
            made += usize::from(!guess.is_empty());
            n.told(guess.len(), 0);
        }
        assert!(made < 20, "{made} wrong guesses");
    }
}
