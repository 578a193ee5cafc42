//! Many texts at once: what an engine's thread does whose plan takes more sequences than one.
//!
//! Every step holds the next token of each text that has begun and, as far as tokens are left, slices of prompts in the
//! order in which they came. A text takes chunks of the cache as it grows; when there are none left the youngest loses its
//! own and is computed again later, which nobody notices but in time, since no bit of a text depends on what else is done.

use super::Model;
use super::error::{Error, Place, at};
use super::generate::{Ended, Growing, Piece, Request};
use super::session::Session;
use crate::generate::batch::Part;
use crate::generate::finite;
use crate::generate::pool::{Full, Pool, Sequence};
use crate::generate::sampling::Sampler;
use std::collections::VecDeque;

/// Where a text's tokens go.
pub(super) trait Sink {
    /// A token; `Err`: nobody wants more.
    fn piece(&self, piece: Piece) -> Result<(), ()>;
    /// The end, with the prompt's tokens.
    fn end(&self, ended: Ended, prompt: Vec<u32>);
    /// What went wrong.
    fn failed(&self, e: Error);
    /// Whether nobody wants more.
    fn is_closed(&self) -> bool;
}

/// A text that was begun.
struct Text<S> {
    sink: S,
    growing: Growing,
    sampler: Sampler,
    sequence: Sequence,
    /// how it ended, or what went wrong, found out in a step
    over: Option<Result<Ended, Error>>,
}

impl<S> Text<S> {
    /// Tokens that are not in the cache yet; one when the text is being continued.
    fn left(&self) -> usize {
        self.growing.ids.len() - self.sequence.len()
    }
}

/// The texts of an engine, and the chunks they have.
pub(super) struct Schedule<S> {
    pool: Pool,
    /// in the order in which they came
    running: Vec<Text<S>>,
    /// those that lost their chunks, and those that wait for some
    waiting: VecDeque<Text<S>>,
    /// texts at once
    most: usize,
    /// tokens of a step
    tokens: usize,
}

impl<S: Sink> Schedule<S> {
    /// For a session whose plan takes so many sequences, and tokens a step.
    pub fn new(session: &Session, most: usize, tokens: usize) -> Schedule<S> {
        let pool = Pool::new(session.inner.built());
        // a step has a token of each, and a row of logits, of which a device may bind fewer than were asked for
        let most = most.min(tokens).min(session.inner.built().plan.max_out);
        Schedule { pool, running: Vec::new(), waiting: VecDeque::new(), most, tokens }
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Whether another text may come.
    pub fn has_room(&self) -> bool {
        self.running.len() + self.waiting.len() < self.most
    }

    /// Takes a request. What is wrong with it is told to its sink.
    pub fn put(&mut self, session: &mut Session, request: &Request, sink: S) {
        match begin(session, request) {
            Ok((growing, sampler)) => {
                let sequence = Sequence::default();
                self.waiting.push_back(Text { sink, growing, sampler, sequence, over: None });
            }
            Err(e) => sink.failed(e),
        }
    }

    /// Lets all texts wait and keeps nothing in the cache: somebody else is about to use it.
    pub fn yield_cache(&mut self) {
        while let Some(text) = self.running.pop() {
            self.put_back(text);
        }
        self.pool.clear();
    }

    /// Takes a text's chunks back; it is the next to go on.
    fn put_back(&mut self, mut text: Text<S>) {
        self.pool.end(std::mem::take(&mut text.sequence));
        self.waiting.push_front(text);
    }

    /// One step for all.
    ///
    /// Errors: those of the device, which concern every text.
    pub async fn step(&mut self, session: &mut Session) -> Result<(), Error> {
        self.drop_unwanted();
        self.admit();
        let shares = self.shares();
        self.compute(session, &shares).await?;
        self.hand_out();
        Ok(())
    }

    fn drop_unwanted(&mut self) {
        let (running, gone): (Vec<_>, _) =
            std::mem::take(&mut self.running).into_iter().partition(|t| !t.sink.is_closed());
        self.running = running;
        gone.into_iter().for_each(|t: Text<S>| self.pool.end(t.sequence));
        self.waiting.retain(|t| !t.sink.is_closed());
    }

    /// Begins, or takes up again, texts for whose tokens so far there are chunks.
    fn admit(&mut self) {
        while let Some(mut text) = self.waiting.pop_front() {
            text.sequence = self.pool.begin(&text.growing.ids);
            let left = text.left();
            if self.pool.reserve(&mut text.sequence, left).is_err() {
                let alone = self.running.is_empty();
                self.put_back(text);
                if !alone {
                    return;
                }
                // chunks that are kept stand in the way of one that has the pool for itself
                self.pool.clear();
                continue;
            }
            self.running.push(text);
        }
    }

    /// How many tokens each text has in the next step: first one for each that goes on, then slices of prompts. Every text
    /// has chunks for its own.
    fn shares(&mut self) -> Vec<usize> {
        loop {
            let mut shares = vec![0; self.running.len()];
            let mut left = self.tokens;
            let one = |t: &Text<S>| t.left() == 1;
            for wanted in [true, false] {
                for (share, text) in shares.iter_mut().zip(&self.running).filter(|(_, t)| one(t) == wanted) {
                    *share = text.left().min(left);
                    left -= *share;
                }
            }
            let pool = &mut self.pool;
            let full =
                self.running.iter_mut().zip(&shares).any(|(text, n)| pool.reserve(&mut text.sequence, *n) == Err(Full));
            if !full {
                return shares;
            }
            // the youngest makes room; alone it has the pool for itself
            let alone = self.running.len() == 1;
            if let Some(text) = self.running.pop() {
                self.put_back(text);
            }
            if alone {
                self.pool.clear();
                self.admit();
            }
        }
    }

    async fn compute(&mut self, session: &mut Session, shares: &[usize]) -> Result<(), Error> {
        let (mut parts, mut others) = (Vec::with_capacity(shares.len()), Vec::with_capacity(shares.len()));
        for (text, &n) in self.running.iter_mut().zip(shares).filter(|(_, n)| **n > 0) {
            let Text { growing, sampler, sequence, over, .. } = text;
            let first = sequence.len();
            // of a text that is only to be read, none
            let rows = usize::from(first + n == growing.ids.len() && growing.ids.len() < growing.wanted);
            parts.push(Part { sequence, ids: &growing.ids[first..first + n], rows });
            others.push((sampler, &growing.ids, over, None));
        }
        if parts.is_empty() {
            return Ok(());
        }
        let drawn = |part: usize, _: usize, logits: &[f32]| {
            let (sampler, ids, over, id) = &mut others[part];
            let drawn = finite(ids.len() - 1, logits).and_then(|()| sampler.sample(logits, ids, ids.len()));
            match drawn {
                Ok(drawn) => *id = Some(drawn),
                Err(e) => **over = Some(Err(Error::new(Place::Device, e))),
            }
            Ok(())
        };
        let done = session.inner.step(&mut self.pool, &mut parts, drawn).await;
        let ids: Vec<Option<u32>> = others.into_iter().map(|o| o.3).collect();
        done.map_err(|e| session.state.failed(e))?;
        let model: &Model = session.model();
        let tokenizer = model.tokenizer().ok();
        let texts = self.running.iter_mut().zip(shares).filter(|(_, n)| **n > 0);
        for ((text, _), id) in texts.zip(ids) {
            let growing = &mut text.growing;
            if growing.ids.len() == growing.wanted && text.sequence.len() == growing.ids.len() {
                text.over = Some(Ok(Ended::Length));
            }
            let Some(id) = id else { continue };
            let piece = growing.piece(tokenizer, id);
            let ended = piece.ended;
            // whoever asked may be gone, which is found out before the next step
            let _ = text.sink.piece(piece);
            if let Some(ended) = ended {
                text.over = Some(Ok(ended));
            }
        }
        Ok(())
    }

    /// Ends what is over.
    fn hand_out(&mut self) {
        let (running, over): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.running).into_iter().partition(|t| t.over.is_none());
        self.running = running;
        for text in over {
            self.pool.end(text.sequence);
            let mut prompt = text.growing.ids;
            prompt.truncate(text.growing.prompt);
            match text.over {
                Some(Ok(ended)) => text.sink.end(ended, prompt),
                Some(Err(e)) => text.sink.failed(e),
                None => {}
            }
        }
    }

    /// Tells every text of an error that ended them all, the first what it was.
    pub fn fail(&mut self, e: Error) {
        let line = e.to_string();
        let mut first = Some(e);
        for text in self.running.drain(..).chain(self.waiting.drain(..)) {
            text.sink.failed(first.take().unwrap_or_else(|| Error::device(line.clone())));
        }
    }
}

/// What a request asks for, as far as it can be had.
fn begin(session: &mut Session, request: &Request) -> Result<(Growing, Sampler), Error> {
    let ids = session.ids(&request.prompt, request.bos, request.special)?;
    let sampler = Sampler::new(request.sampling.clone()).map_err(at(Place::Options))?;
    Ok((Growing::new(ids, session.context(), request), sampler))
}
