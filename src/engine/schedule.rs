//! Many texts at once: what an engine's thread does whose plan takes more sequences than one.
//!
//! Every step holds the next token of each text that has begun and, as far as tokens are left, slices of prompts in the
//! order in which they came. A text takes chunks of the cache as it grows; when there are none left the youngest loses its
//! own and is computed again later, which nobody notices but in time, since no bit of a text depends on what else is done.

use super::Model;
use super::chain::Chain;
use super::error::{Error, Place};
use super::generate::{Ended, Growing, Guess, Piece, Prompt, Request};
use super::score::{Pooled, Pooling};
use super::session::Session;
use crate::generate::batch::Part;
use crate::generate::draft::{MOST, Ngram};
use crate::generate::finite;
use crate::generate::logprobs::Logprobs;
use crate::generate::pool::{Full, Pool, Sequence};
use crate::generate::sampling::Sampler;
use crate::generate::tokenizer::Tokenizer;
use crate::models::{Dense, Head, RECENT_CHUNK as CHUNK};
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Where what is made of a text goes.
pub(super) trait Sink {
    /// A token; `Err`: nobody wants more.
    fn piece(&self, piece: Piece) -> Result<(), ()>;
    /// How likely the next token of the prompt is, of those that were asked for.
    fn scored(&self, logprobs: Logprobs);
    /// The text as a vector.
    fn vector(&self, vector: Vec<f32>);
    /// It has begun, with so many tokens of the prompt from the cache.
    fn begun(&self, cached: usize);
    /// The end, with the prompt's tokens.
    fn end(&self, ended: Ended, prompt: Vec<u32>);
    /// What went wrong.
    fn failed(&self, e: Error);
    /// Whether nobody wants more.
    fn is_closed(&self) -> bool;
}

/// What is made of the rows that steps give.
enum Rows {
    /// tokens, by a sampler, with the log probabilities of so many of the likeliest, guesses, and the links of a chain
    Tokens { sampler: Box<Sampler>, logprobs: Option<usize>, guess: Option<Ngram>, chain: Option<Chain> },
    /// one vector
    Vector(Pooled),
}

/// A text that was begun.
struct Text<S> {
    sink: S,
    growing: Growing,
    rows: Rows,
    /// the next token whose row is wanted; `usize::MAX`: none
    next_row: usize,
    sequence: Sequence,
    /// tokens that are guessed to follow, in the next step
    guess: Vec<u32>,
    /// how it ended, or what went wrong, found out in a step
    over: Option<Result<Ended, Error>>,
}

impl<S> Text<S> {
    /// Tokens that are not in the cache yet; one when the text is being continued.
    fn left(&self) -> usize {
        self.growing.ids.len() - self.sequence.len()
    }

    /// Tokens of the text that others are likely to begin with: all so far of one that grows, of one whose tokens are only
    /// scored those before the first of them.
    fn end(&self) -> Option<usize> {
        let n = self.growing.ids.len();
        match self.rows {
            Rows::Vector(_) => None,
            _ if n < self.growing.wanted => Some(n),
            _ => Some(self.next_row.saturating_add(1)).filter(|end| *end < n),
        }
    }

    /// Rows of the next `n` tokens that are wanted.
    fn rows_of(&self, n: usize) -> usize {
        let first = self.sequence.len();
        (first + n).saturating_sub(first.max(self.next_row))
    }
}

impl<S: Sink> Text<S> {
    /// What a step with `n` of its tokens, guesses among them, has brought up.
    fn told(&mut self, pool: &mut Pool, tokenizer: Option<&Tokenizer>, n: usize, found: &mut Found) {
        let Text { sink, growing, rows, next_row, sequence, over, .. } = self;
        let Found { known, right, drawn, scores, failed } = found;
        let (first, guessed) = (sequence.len(), growing.ids.len() - *known);
        let end = first + n - (guessed - *right);
        pool.written(sequence, &growing.ids[first..end]);
        growing.ids.truncate(*known);
        if *next_row < end {
            *next_row = end;
        }
        if let Rows::Tokens { guess: Some(ngram), .. } = rows {
            ngram.told(guessed, *right);
        }
        scores.drain(..).for_each(|l| sink.scored(l));
        for (id, logprobs, chain) in drawn.drain(..) {
            let piece = Piece { logprobs, chain, ..growing.piece(tokenizer, id) };
            let ended = piece.ended;
            // whoever asked may be gone, which is found out before the next step
            let _ = sink.piece(piece);
            if let Some(ended) = ended {
                *over = Some(Ok(ended));
                break;
            }
        }
        if over.is_none() && growing.ids.len() == growing.wanted && sequence.len() == growing.ids.len() {
            if let Rows::Vector(pooled) = rows {
                sink.vector(pooled.vector());
            }
            *over = Some(Ok(Ended::Length));
        }
        // of a text that ended before that row nothing is wrong
        if let (Some(e), None) = (failed.take(), &over) {
            *over = Some(Err(e));
        }
    }
}

/// A text in a step.
struct Reading<'a> {
    /// its tokens, and guesses after them
    ids: &'a [u32],
    /// the first token of the step
    first: usize,
    /// whether another token is wanted after those there are
    goes_on: bool,
    rows: &'a mut Rows,
    found: &'a mut Found,
}

/// What a step brings up for a text. It is used again for another, so that a token takes no memory.
#[derive(Default)]
struct Found {
    /// tokens it had
    known: usize,
    /// guesses that were right
    right: usize,
    drawn: Vec<(u32, Option<Logprobs>, Option<[u8; 32]>)>,
    scores: Vec<Logprobs>,
    failed: Option<Error>,
}

impl Found {
    /// For a text of so many tokens.
    fn begin(&mut self, known: usize) {
        let Found { drawn, scores, .. } = std::mem::take(self);
        *self = Found { known, drawn, scores, ..Found::default() };
        self.drawn.clear();
        self.scores.clear();
    }
}

impl Reading<'_> {
    /// Takes the row of one of the step's tokens.
    fn take(&mut self, token: usize, row: &[f32]) {
        let at = self.first + token;
        let guessed = (at + 1).saturating_sub(self.found.known);
        // what follows a wrong guess means nothing
        if self.found.failed.is_some() || guessed > self.found.right {
            return;
        }
        // what a panic leaves is this text's own, and the text ends
        self.found.failed = match catch_unwind(AssertUnwindSafe(|| self.make(at, guessed, row))) {
            Ok(Ok(())) => None,
            Ok(Err(e)) => {
                // a grammar that goes over a bound is the request's own fault, not the device's
                let held = matches!(self.rows, Rows::Tokens { sampler, .. } if sampler.is_constrained());
                Some(Error::new(if held { Place::Options } else { Place::Device }, e))
            }
            Err(panic) => Some(Error::Panicked(text_of(panic.as_ref()))),
        };
    }

    /// Makes of a row what is wanted of it; `at`: its token in the text; `guessed`: how many guesses up to that token.
    fn make(&mut self, at: usize, guessed: usize, row: &[f32]) -> anyhow::Result<()> {
        finite(at, row)?;
        let Reading { ids, goes_on, rows, found, .. } = self;
        match rows {
            Rows::Vector(pooled) => pooled.push(row),
            Rows::Tokens { logprobs, .. } if at + 1 < found.known => {
                found.scores.push(Logprobs::of(row, ids[at + 1], logprobs.unwrap_or_default()));
            }
            Rows::Tokens { .. } if !*goes_on => {}
            Rows::Tokens { sampler, logprobs, chain, .. } => {
                #[cfg(test)]
                tests::planted(sampler.seed(), ids);
                let id = sampler.sample(row, &ids[..=at], at + 1)?;
                found.right += usize::from(ids.get(found.known + guessed) == Some(&id));
                let link = chain.as_mut().map(|c| c.push(id, row));
                found.drawn.push((id, logprobs.map(|top| Logprobs::of(row, id, top)), link));
            }
        }
        Ok(())
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
    /// tokens of a step, and rows
    tokens: usize,
    rows: usize,
    /// whether a step has a text whole or not at all
    whole: bool,
    spare: Spare,
}

/// What steps are put together in, kept from one to the next.
#[derive(Default)]
struct Spare {
    /// how many tokens each running text has in the step
    shares: Vec<usize>,
    parts: Vec<Part<'static>>,
    readings: Vec<Reading<'static>>,
    found: Vec<Found>,
}

/// An empty vector with the memory of another, for elements that borrow from something else.
fn emptied<A, B>(mut from: Vec<A>) -> Vec<B> {
    from.clear();
    // nothing is mapped, and the standard library collects in place what has the same size
    from.into_iter().map(|_| unreachable!("it was cleared")).collect()
}

impl<S: Sink> Schedule<S> {
    /// For a session whose plan takes so many sequences, and tokens a step.
    pub fn new(session: &Session, most: usize, tokens: usize) -> Schedule<S> {
        let pool = Pool::new(session.inner.built());
        // a step has a token of each, and a row of logits, of which a device may bind fewer than were asked for
        let rows = session.inner.built().plan.max_out;
        let (most, whole) = (most.min(tokens).min(rows), session.inner.feeds_whole());
        let (running, waiting, spare) = (Vec::new(), VecDeque::new(), Spare::default());
        Schedule { pool, running, waiting, most, tokens, rows, whole, spare }
    }

    /// The chunks.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Texts at work and texts that wait.
    pub fn texts(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
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
        let begun = catch_unwind(AssertUnwindSafe(|| begin(session, request)))
            .unwrap_or_else(|panic| Err(Error::Panicked(text_of(panic.as_ref()))));
        match begun {
            Ok((growing, rows, next_row)) => self.wait(sink, growing, rows, next_row),
            Err(e) => sink.failed(e),
        }
    }

    /// The ids of such a text, and what comes behind pooling.
    fn embeds(session: &Session, prompt: &Prompt) -> Result<(Vec<u32>, Arc<[Dense]>), Error> {
        session.gives(Head::Hidden)?;
        Ok((session.whole_ids(prompt)?, session.dense()?))
    }

    /// Takes a text that is to be a vector. What is wrong with it is told to its sink.
    pub fn embed(&mut self, session: &mut Session, prompt: &Prompt, pooling: Pooling, sink: S) {
        match Self::embeds(session, prompt) {
            Ok((ids, dense)) => {
                let (pooled, n) = (Pooled::new(pooling, dense), ids.len());
                let read = Request { max_tokens: 0, ..Request::new(Vec::new()) };
                let first = pooled.first(n, self.whole);
                let growing = Growing::new(ids, session.context(), &read);
                self.wait(sink, growing, Rows::Vector(pooled), first);
            }
            Err(e) => sink.failed(e),
        }
    }

    fn wait(&mut self, sink: S, growing: Growing, rows: Rows, next_row: usize) {
        let guesses = matches!(rows, Rows::Tokens { guess: Some(_), .. });
        let (sequence, guess) = (Sequence::default(), Vec::with_capacity(if guesses { MOST } else { 0 }));
        self.waiting.push_back(Text { sink, growing, rows, next_row, sequence, guess, over: None });
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

    /// One step for all; how many texts had a token in it.
    ///
    /// Errors: those of the device, which concern every text.
    pub async fn step(&mut self, session: &mut Session) -> Result<usize, Error> {
        self.drop_unwanted();
        self.admit();
        self.share();
        self.guess();
        self.compute(session).await?;
        self.hand_out();
        Ok(self.spare.shares.iter().filter(|n| **n > 0).count())
    }

    fn drop_unwanted(&mut self) {
        let Schedule { running, waiting, pool, .. } = self;
        running.extract_if(.., |t| t.sink.is_closed()).for_each(|t| pool.end(t.sequence));
        waiting.retain(|t| !t.sink.is_closed());
    }

    /// Begins, or takes up again, texts for whose tokens so far there are chunks.
    fn admit(&mut self) {
        // those before it wait for a text that computes what they begin with
        let mut at = 0;
        while let Some(text) = self.waiting.get(at) {
            let making = self.running.iter_mut().filter(|_| self.pool.shares());
            let making = making.filter_map(|r| makes(r, text).map(|end| (end, r)));
            if let Some((end, one)) = making.max_by_key(|(end, _)| *end) {
                self.pool.mark(&mut one.sequence, end);
                at += 1;
                continue;
            }
            let Some(mut text) = self.waiting.remove(at) else { break };
            let ids = &text.growing.ids;
            // what is wanted of a row is computed, even where its token's chunk is there
            text.sequence = self.pool.begin(&ids[..text.next_row.saturating_add(1).min(ids.len())]);
            let left = text.left();
            if self.pool.hold(&mut text.sequence, left).is_err() {
                if !self.running.is_empty() {
                    self.pool.end(std::mem::take(&mut text.sequence));
                    self.waiting.insert(at, text);
                    break;
                }
                // chunks that are kept stand in the way of one that has the pool for itself
                self.pool.end(std::mem::take(&mut text.sequence));
                self.pool.clear();
                if self.pool.hold(&mut text.sequence, text.growing.ids.len()).is_err() {
                    text.sink.failed(Error::options("the cache is smaller than one text".into()));
                    continue;
                }
            }
            if let Some(end) = text.end() {
                self.pool.mark_end(&mut text.sequence, end);
            }
            // one that lost its chunks has begun before
            if text.growing.ids.len() == text.growing.prompt {
                text.sink.begun(text.sequence.len());
            }
            self.running.push(text);
        }
    }

    /// How many tokens each text has in the next step: first one for each that goes on, then slices of prompts. Every text
    /// has chunks for its own.
    fn share(&mut self) {
        loop {
            let Schedule { running, pool, spare: Spare { shares, .. }, .. } = self;
            shares.clear();
            shares.resize(running.len(), 0);
            let (mut tokens, mut rows) = (self.tokens, self.rows);
            let one = |t: &Text<S>| t.left() == 1;
            for wanted in [true, false] {
                for (share, text) in shares.iter_mut().zip(&*running).filter(|(_, t)| one(t) == wanted) {
                    // as many tokens as there are rows for
                    let before = text.next_row.saturating_sub(text.sequence.len());
                    *share = text.left().min(tokens).min(before.saturating_add(rows));
                    if self.whole && *share < text.left() {
                        *share = 0;
                    }
                    *share = pool.cut(&text.sequence, *share);
                    tokens -= *share;
                    rows -= text.rows_of(*share);
                }
            }
            let full =
                running.iter_mut().zip(shares).any(|(text, n)| pool.reserve(&mut text.sequence, *n) == Err(Full));
            if !full {
                return;
            }
            // the youngest makes room; alone it has the pool for itself
            let alone = running.len() == 1;
            if let Some(text) = running.pop() {
                self.put_back(text);
            }
            if alone {
                self.pool.clear();
                self.admit();
            }
        }
    }

    /// Guesses what follows, as far as the step has room left.
    fn guess(&mut self) {
        let Schedule { running, pool, spare: Spare { shares, .. }, .. } = self;
        let mut tokens = self.tokens - shares.iter().sum::<usize>();
        let rows: usize = running.iter().zip(&*shares).map(|(text, n)| text.rows_of(*n)).sum();
        let mut rows = self.rows - rows;
        for (text, share) in running.iter_mut().zip(shares).filter(|(text, n)| **n == 1 && text.left() == 1) {
            let Text { growing, rows: Rows::Tokens { guess: Some(ngram), .. }, guess, sequence, .. } = text else {
                continue;
            };
            // the last token that is wanted needs no guess after it
            let room = growing.room().saturating_sub(1).min(tokens).min(rows).min(MOST);
            ngram.guess(&growing.ids, room, guess);
            if pool.reserve(sequence, 1 + guess.len()).is_err() {
                guess.clear();
            }
            *share += guess.len();
            (tokens, rows) = (tokens - guess.len(), rows - guess.len());
        }
    }

    async fn compute(&mut self, session: &mut Session) -> Result<(), Error> {
        let Schedule { running, pool, spare, .. } = self;
        let Spare { shares, found, .. } = spare;
        let mut parts: Vec<Part<'_>> = emptied(std::mem::take(&mut spare.parts));
        let mut readings: Vec<Reading<'_>> = emptied(std::mem::take(&mut spare.readings));
        if found.len() < shares.len() {
            found.resize_with(shares.len(), || Found { drawn: Vec::with_capacity(Guess::ROWS), ..Found::default() });
        }
        for ((text, &n), found) in running.iter_mut().zip(&*shares).zip(&mut *found).filter(|((_, n), _)| **n > 0) {
            let wanted = text.rows_of(n);
            let Text { growing, rows, sequence, guess, .. } = text;
            let (first, known) = (sequence.len(), growing.ids.len());
            let goes_on = known < growing.wanted;
            growing.ids.append(guess);
            let ids = &growing.ids[..];
            found.begin(known);
            parts.push(Part { sequence, ids: &ids[first..first + n], rows: wanted });
            readings.push(Reading { ids, first, goes_on, rows, found });
        }
        if parts.is_empty() {
            return Ok(());
        }
        let take = |part: usize, token: usize, row: &[f32]| {
            readings[part].take(token, row);
            Ok(())
        };
        let done = session.inner.step(&parts, take).await;
        (spare.parts, spare.readings) = (emptied(parts), emptied(readings));
        done.map_err(|e| session.state.failed(e))?;
        let model: &Model = session.model();
        let tokenizer = model.tokenizer().ok();
        for ((text, &n), found) in running.iter_mut().zip(&*shares).zip(&mut *found).filter(|((_, n), _)| **n > 0) {
            text.told(pool, tokenizer, n, found);
        }
        Ok(())
    }

    /// Ends what is over.
    fn hand_out(&mut self) {
        let Schedule { running, pool, .. } = self;
        for text in running.extract_if(.., |t| t.over.is_some()) {
            pool.end(text.sequence);
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
            self.pool.end(text.sequence);
            text.sink.failed(first.take().unwrap_or_else(|| Error::device(line.clone())));
        }
    }
}

/// What a panic says, in one line.
pub(super) fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").replace(['\n', '\r'], " ")
}

/// Up to which token a text is about to have chunks in the cache that another one, which waits, begins with.
fn makes<S>(text: &Text<S>, other: &Text<S>) -> Option<usize> {
    let (a, b) = (&text.growing.ids, &other.growing.ids);
    // a chunk is shared when it is full, and where no row of it is wanted
    let most = a.len().min(b.len() - 1).min(other.next_row);
    let same = a.iter().zip(b).take(most).take_while(|(a, b)| a == b).count();
    Some(same / CHUNK * CHUNK).filter(|end| text.sequence.len() < *end)
}

/// What a request asks for, as far as it can be had, and the first token whose row is wanted.
fn begin(session: &mut Session, request: &Request) -> Result<(Growing, Rows, usize), Error> {
    session.gives(Head::Logits)?;
    let ids = session.ids(&request.prompt, request.bos, request.special)?;
    request.check(ids.len())?;
    if request.guess == Guess::Draft {
        return Err(Error::options("guesses of a draft, which an engine of many texts does not have".into()));
    }
    if request.guess == Guess::Ngram {
        session.takes_back()?;
    }
    let sampler = Box::new(request.sampler()?);
    let logprobs = request.logprobs;
    let guess = (request.guess == Guess::Ngram).then(Ngram::default);
    let first = match request.prompt_logprobs {
        Some(from) => from - 1,
        // a text that is only to be read
        None if request.max_tokens == 0 => usize::MAX,
        None => ids.len() - 1,
    };
    let chain = session.chain(request, &ids)?;
    Ok((Growing::new(ids, session.context(), request), Rows::Tokens { sampler, logprobs, guess, chain }, first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{DeviceOptions, Engine, EngineOptions, Output, SessionOptions};
    use crate::generate::sampling::SamplerOptions;

    /// The seed of texts whose sampler panics after the third token.
    const PANICS: u64 = 0xbad_5eed;

    pub fn planted(seed: u64, ids: &[u32]) {
        assert!(seed != PANICS || ids.len() < 8, "planted\nin two lines");
    }

    #[test]
    fn a_panic_in_one_texts_sampler_ends_that_text_alone() {
        let devices = DeviceOptions { threads: 1, ..DeviceOptions::default() };
        let session = SessionOptions { context: 128, sequences: 4, ..SessionOptions::default() };
        let engine =
            Engine::start(&Model::embedded(), EngineOptions { device: "cpu".into(), devices, session, queue: 64 });
        let engine = engine.expect("starts");
        let ask = |seed: u64, i: u32| {
            let sampling = SamplerOptions { seed, ..SamplerOptions::default() };
            let ids = vec![1, 5 + i, 9, 12, 3];
            engine.generate(Request { max_tokens: 24, sampling, ignore_end: true, ..Request::new(ids) }).expect("room")
        };
        let want: Vec<Output> = (0..12).map(|i| ask(u64::from(i), i).wait().expect("generates")).collect();
        let replies: Vec<_> = (0..12).map(|i| (i, ask(if i % 3 == 1 { PANICS } else { u64::from(i) }, i))).collect();
        for (i, reply) in replies {
            match reply.wait() {
                Ok(output) => assert_eq!((output, i % 3 == 1), (want[i as usize].clone(), false), "text {i}"),
                Err(Error::Panicked(why)) => assert_eq!((why.as_str(), i % 3), ("planted in two lines", 1), "text {i}"),
                Err(e) => panic!("text {i}: {e}"),
            }
        }
        assert!(engine.ended().is_none(), "{engine:?}");
        // what it is busy with is told after the step whose texts have ended already
        let begun = std::time::Instant::now();
        let mut status = engine.status();
        while status.running > 0 && begun.elapsed().as_secs() < 10 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            status = engine.status();
        }
        assert_eq!((status.running, status.waiting, status.free + status.kept), (0, 0, status.chunks), "{status:?}");
    }
}
