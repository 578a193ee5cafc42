//! Token after token: a sampler and the session it feeds, and how little of the logits has to leave the device.
//!
//! Three ways give the same ids. All logits are read where the caller or the sampler wants them. Where the k best decide,
//! the device selects those. Where the best one decides, the next step is started before it is known here: its id goes
//! from one step to the other on the device, and a step that was started in vain is thrown away.

use super::draft::{Guesser, MOST};
use super::sampling::Sampler;
use super::session::{Session, Want, finite};
use crate::record::Best;
use anyhow::Context;
use std::collections::VecDeque;

/// What leaves the device for each token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    /// all logits
    Logits,
    /// the best of them, as many as the sampler needs, and all where it needs all
    Best,
    /// as `Best`; and where one is enough, the next step is started before it is read
    Ahead,
}

/// A text that grows.
pub struct Generation<'s, 'd> {
    session: &'s mut Session<'d>,
    sampler: Sampler,
    /// the whole sequence: what the session had seen, prompt and tokens given
    history: Vec<u32>,
    /// how many logits are selected; `None`: all are read
    k: Option<usize>,
    ahead: bool,
    logits: Vec<f32>,
    best: Vec<Best>,
    /// the last token given still has to be fed
    unfed: bool,
    /// who guesses tokens, where somebody does
    guesser: Option<Guesser<'s>>,
    /// the tokens of the last step that were guessed, and those that were drawn but not given yet
    guess: Vec<u32>,
    drawn: VecDeque<u32>,
}

impl<'s, 'd> Generation<'s, 'd> {
    /// Goes on with a session, as far as `reads` allows in the way that reads least.
    pub fn new(session: &'s mut Session<'d>, sampler: Sampler, reads: Reads) -> Generation<'s, 'd> {
        let k = if reads == Reads::Logits || session.ahead() == 0 { None } else { sampler.needs() };
        let ahead = reads == Reads::Ahead && k == Some(1) && session.ahead() > 1;
        let history = Vec::with_capacity(session.n_ctx() + 1);
        let (logits, best) = (Vec::new(), Vec::new());
        let (guess, drawn) = (Vec::new(), VecDeque::new());
        Generation { session, sampler, history, k, ahead, logits, best, unfed: false, guesser: None, guess, drawn }
    }

    /// Guesses tokens and checks several in a step, which changes none of them. All logits are read then. Does nothing where
    /// a step has no room for a guess, or none for its rows of logits. Not of a recurrent model, which takes no token back.
    pub fn speculate(&mut self, guesser: Guesser<'s>) {
        let plan = &self.session.built().plan;
        if plan.max_tokens > 1 && plan.max_out > 1 && plan.strands.is_none() {
            (self.guesser, self.k, self.ahead) = (Some(guesser), None, false);
        }
    }

    /// The session has seen these tokens already: the prompt goes on after them. Without them a session that is not at its
    /// start would be drawn for as if it were.
    pub fn seen(&mut self, ids: &[u32]) {
        self.history.extend_from_slice(ids);
    }

    /// As [`Generation::prompt`], handing the logits of the tokens from index `first` of `ids` on to `row(index, logits)`. All
    /// logits are to be read then ([`Reads::Logits`]).
    pub async fn prompt_rows(
        &mut self,
        ids: &[u32],
        first: usize,
        last: bool,
        mut row: impl FnMut(usize, &[f32]),
    ) -> anyhow::Result<()> {
        debug_assert!(self.k.is_none());
        self.history.extend_from_slice(ids);
        let (logits, end) = (&mut self.logits, ids.len() - 1);
        let each = |i: usize, all: &[f32]| {
            if i >= first {
                row(i, all);
            }
            if i == end {
                logits.clear();
                logits.extend_from_slice(all);
            }
            Ok(())
        };
        self.session.feed(ids, Want::From(if last { first.min(end) } else { first }), each).await
    }

    /// Feeds a piece of the prompt. The last piece must say so: what comes after it is sampled.
    pub async fn prompt(&mut self, ids: &[u32], last: bool) -> anyhow::Result<()> {
        self.history.extend_from_slice(ids);
        match self.k {
            _ if !last => self.session.feed(ids, Want::From(ids.len()), |_, _| Ok(())).await,
            None => feed(self.session, ids, &mut self.logits).await,
            Some(k) => {
                self.session.start(ids, k).await?;
                self.session.best(&mut self.best).await
            }
        }
    }

    /// The next token, after the prompt was fed. `more`: another is likely to be asked for after it.
    ///
    /// Errors: those of the device and of the sampler; no room in the context for the token before it.
    pub async fn next(&mut self, more: bool) -> anyhow::Result<u32> {
        if let Some(id) = self.drawn.pop_front() {
            self.history.push(id);
            // the row after the last one's
            self.logits.drain(..self.session.vocab());
            return Ok(id);
        }
        let fed = self.history.len() - usize::from(self.unfed);
        let id = match self.k {
            None if self.guesser.is_some() && self.unfed && more => self.next_of_several().await?,
            None => {
                if self.unfed {
                    feed(self.session, &self.history[fed..], &mut self.logits).await?;
                }
                self.sampler.sample(&self.logits, &self.history, self.history.len())?
            }
            Some(k) => {
                if self.unfed {
                    if self.session.under_way() == 0 {
                        self.session.start(&self.history[fed..], k).await?;
                    }
                    if self.ahead && more && self.session.room() > 0 {
                        self.session.follow().await?;
                    }
                    self.session.best(&mut self.best).await?;
                }
                self.sampler.sample_best(&self.best, self.history.len())?
            }
        };
        self.history.push(id);
        self.unfed = true;
        Ok(id)
    }

    /// The next token, and those after it that were guessed rightly.
    async fn next_of_several(&mut self) -> anyhow::Result<u32> {
        let Generation { session, sampler, history, guesser: Some(guesser), guess, drawn, logits, .. } = self else {
            anyhow::bail!("nobody guesses");
        };
        let plan = &session.built().plan;
        let room = session.room().min(plan.max_tokens).min(plan.max_out);
        guesser.guess(sampler, history, room.saturating_sub(1).min(MOST), guess).await?;
        // a draft may have tokens that the model has not
        guess.truncate(guess.iter().take_while(|id| (**id as usize) < session.vocab()).count());
        let (known, n) = (history.len(), guess.len());
        let last = history[known - 1];
        let mut ids = [last; MOST + 1];
        ids[1..=n].copy_from_slice(guess);
        // tokens drawn so far stand at the end of the history, as far as every one was guessed
        let (mut right, first, mut goes_on) = (0, session.pos(), true);
        logits.clear();
        let draw = |row: usize, all: &[f32]| {
            if row != right || !goes_on {
                return Ok(());
            }
            let id = finite(first + row, all).and_then(|()| sampler.sample(all, history, history.len()));
            let id = match id {
                Ok(id) => id,
                Err(e) if row == 0 => return Err(e),
                // the text may end before: whoever asks for that token gives the one before it again
                Err(_) => {
                    (right, goes_on) = (right - 1, false);
                    return Ok(());
                }
            };
            history.push(id);
            drawn.push_back(id);
            logits.extend_from_slice(all);
            right += usize::from(guess.get(row) == Some(&id));
            Ok(())
        };
        session.feed_any(&ids[..=n], Want::From(0), draw).await?;
        guesser.told(n, right);
        session.take_back(n - right);
        history.truncate(known);
        drawn.pop_front().context("a token for every row")
    }

    /// All logits of which the last token was chosen; empty where only the best are read.
    pub fn logits(&self) -> &[f32] {
        // rows of tokens that were not given yet follow
        &self.logits[..self.logits.len().min(self.session.vocab())]
    }

    /// The session, with the steps that were started in vain thrown away.
    pub async fn end(self) -> anyhow::Result<&'s mut Session<'d>> {
        self.session.settle().await?;
        Ok(self.session)
    }

    /// The session.
    pub fn session(&mut self) -> &mut Session<'d> {
        self.session
    }

    /// Tokens the session has seen of those given: all but the last.
    pub fn pos(&self) -> usize {
        self.session.pos() - self.drawn.len()
    }
}

/// Feeds tokens and keeps the logits of the last.
async fn feed(session: &mut Session<'_>, ids: &[u32], logits: &mut Vec<f32>) -> anyhow::Result<()> {
    let keep = |_: usize, row: &[f32]| {
        logits.clear();
        logits.extend_from_slice(row);
        Ok(())
    };
    session.feed(ids, Want::Last, keep).await
}
