//! Token after token: a sampler and the session it feeds, and how little of the logits has to leave the device.
//!
//! Three ways give the same ids. All logits are read where the caller or the sampler wants them. Where the k best decide,
//! the device selects those. Where the best one decides, the next step is started before it is known here: its id goes
//! from one step to the other on the device, and a step that was started in vain is thrown away.

use super::sampling::Sampler;
use super::session::{Session, Want};
use crate::record::Best;

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
}

impl<'s, 'd> Generation<'s, 'd> {
    /// Goes on with a session, as far as `reads` allows in the way that reads least.
    pub fn new(session: &'s mut Session<'d>, sampler: Sampler, reads: Reads) -> Generation<'s, 'd> {
        let k = if reads == Reads::Logits || session.ahead() == 0 { None } else { sampler.needs() };
        let ahead = reads == Reads::Ahead && k == Some(1) && session.ahead() > 1;
        let history = Vec::with_capacity(session.n_ctx() + 1);
        let (logits, best) = (Vec::new(), Vec::new());
        Generation { session, sampler, history, k, ahead, logits, best, unfed: false }
    }

    /// The session has seen these tokens already: the prompt goes on after them. Without them a session that is not at its
    /// start would be drawn for as if it were.
    pub fn seen(&mut self, ids: &[u32]) {
        self.history.extend_from_slice(ids);
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
        let fed = self.history.len() - usize::from(self.unfed);
        let id = match self.k {
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

    /// All logits of which the last token was chosen; empty where only the best are read.
    pub fn logits(&self) -> &[f32] {
        &self.logits
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

    /// Tokens the session has seen: all but the last one given.
    pub fn pos(&self) -> usize {
        self.session.pos()
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
