//! What is asked for and what comes: prompts, requests, pieces of text.

use super::chain::Chain;
use super::error::{Error, Place, at};
use super::model::Model;
use super::state::State;
use crate::generate::draft::{Draft, Guesser, MOST, Ngram};
use crate::generate::generation::Reads;
use crate::generate::logprobs::{Logprobs, TOP_MAX};
use crate::generate::sampling::{Sampler, SamplerOptions};
use crate::generate::tokenizer::{StreamDecoder, Tokenizer};
use crate::generate::{Generation, Session};
use crate::grammar::Compiled;
use crate::record::Stats;
use futures::Stream;
use std::sync::Arc;

/// What a sequence begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// text, which the model's tokeniser turns into tokens
    Text(String),
    /// tokens as they are
    Ids(Vec<u32>),
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Prompt {
        Prompt::Text(text.into())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Prompt {
        Prompt::Text(text)
    }
}

impl From<&[u32]> for Prompt {
    fn from(ids: &[u32]) -> Prompt {
        Prompt::Ids(ids.into())
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(ids: Vec<u32>) -> Prompt {
        Prompt::Ids(ids)
    }
}

/// What to generate. A prompt alone is a request: 128 tokens at most, sampled as [`SamplerOptions::default`] says.
///
/// A token's random number depends on the seed and on its position alone, so a request that is sent again with the tokens
/// it has brought up so far (`Prompt::Ids`) goes on as if nothing had happened. But for two things that begin anew with every
/// request: what mirostat has learned ([`SamplerOptions::mirostat`]), and the place in a grammar.
#[derive(Clone, Debug)]
pub struct Request {
    /// what the sequence begins with
    pub prompt: Prompt,
    /// tokens at most; 0: the prompt is read, and that is all; `usize::MAX`: until the text or the context ends
    pub max_tokens: usize,
    /// how tokens are chosen
    pub sampling: SamplerOptions,
    /// what the text must be, from its first token on, compiled for this model ([`Model::grammar`](super::Model::grammar)).
    /// When it is complete the text ends; with `ignore_end` the end of text comes again and again. All logits are read for
    /// that
    pub grammar: Option<Arc<Compiled>>,
    /// go on after an end-of-text token
    pub ignore_end: bool,
    /// put the beginning-of-text token before a text, where the model wants one
    pub bos: bool,
    /// read texts such as `<|eot_id|>` in a text as control tokens
    pub special: bool,
    /// how much of the logits leaves the device, which changes no token; `None`: what is fastest there
    pub reads: Option<Reads>,
    /// whether tokens are guessed ahead, so that a step checks several, which changes none of them
    pub guess: Guess,
    /// with each token that comes its log probability, and those of so many of the likeliest, 20 at most; all logits are read
    /// for that
    pub logprobs: Option<usize>,
    /// log probabilities of the prompt's tokens too, from the one with this index on, 1 at least, since nothing says how
    /// likely the first is ([`Output::prompt_logprobs`]). As many of the likeliest as `logprobs` says beside each
    pub prompt_logprobs: Option<usize>,
    /// with each token the link of a chain of hashes over the logits that tokens were drawn from ([`Chain`]); all logits are
    /// read for that
    pub chain: bool,
}

/// How the next tokens are guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Guess {
    /// not at all
    #[default]
    Off,
    /// what followed the last tokens when they came before: fast where a text repeats itself or its prompt. Needs a
    /// session whose steps return several rows ([`SessionOptions::rows`](super::SessionOptions::rows), of which
    /// [`Guess::ROWS`] are used at most for a text)
    Ngram,
    /// what a smaller model says ([`Session::set_draft`](super::Session::set_draft)), which needs rows too. For a session; an
    /// engine of many texts has none
    Draft,
}

impl Guess {
    /// Rows of logits that a step with guesses has at most.
    pub const ROWS: usize = MOST + 1;
}

impl Request {
    /// A request for what comes after a prompt.
    pub fn new(prompt: impl Into<Prompt>) -> Request {
        Request {
            prompt: prompt.into(),
            max_tokens: 128,
            sampling: SamplerOptions::default(),
            grammar: None,
            ignore_end: false,
            bos: true,
            special: false,
            reads: None,
            guess: Guess::Off,
            logprobs: None,
            prompt_logprobs: None,
            chain: false,
        }
    }
}

impl Request {
    /// What can be had with a prompt of so many tokens.
    ///
    /// Errors: log probabilities of more tokens than there are, or of a token that has none.
    pub(super) fn check(&self, prompt: usize) -> Result<(), Error> {
        if self.logprobs.is_some_and(|n| n > TOP_MAX) {
            let n = self.logprobs.unwrap_or_default();
            return Err(Error::options(format!("log probabilities of the {n} likeliest tokens: {TOP_MAX} at most")));
        }
        match self.prompt_logprobs {
            Some(from) if from == 0 || from >= prompt => Err(Error::options(format!(
                "log probabilities from token {from} of the prompt on, which has {prompt}: 1 to {} expected",
                prompt.saturating_sub(1)
            ))),
            _ => Ok(()),
        }
    }

    /// What draws the tokens.
    ///
    /// Errors: an option out of its range.
    pub(super) fn sampler(&self) -> Result<Sampler, Error> {
        let mut sampler = Sampler::new(self.sampling.clone()).map_err(at(Place::Options))?;
        if let Some(grammar) = &self.grammar {
            sampler.constrain(grammar.start());
        }
        Ok(sampler)
    }
}

/// A prompt in any form is a request.
macro_rules! requests {
    ($($form:ty),*) => {
        $(impl From<$form> for Request {
            fn from(prompt: $form) -> Request {
                Request::new(prompt)
            }
        })*
    };
}

requests!(&str, String, &[u32], Vec<u32>, Prompt);

/// A token as it comes.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// the token
    pub id: u32,
    /// its position in the sequence, the prompt counted
    pub position: usize,
    /// the text it adds; empty while a character is not whole, and for control tokens
    pub text: String,
    /// why it is the last one; `None`: it is not
    pub ended: Option<Ended>,
    /// how likely it was, where that was asked for
    pub logprobs: Option<Logprobs>,
    /// its link of the chain, where that was asked for ([`Request::chain`])
    pub chain: Option<[u8; 32]>,
}

/// Why a text ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ended {
    /// the model gave an end-of-text token
    EndOfText,
    /// as many tokens as were asked for
    #[default]
    Length,
    /// the context is full
    Context,
    /// whoever asked wanted no more
    BrokenOff,
}

/// A text that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// what was generated, without the prompt
    pub text: String,
    /// its tokens
    pub ids: Vec<u32>,
    /// the prompt's tokens
    pub prompt: Vec<u32>,
    /// why it ended
    pub ended: Ended,
    /// how likely its tokens were, where that was asked for
    pub logprobs: Vec<Logprobs>,
    /// how likely the prompt's tokens were, from the first that was asked for on
    pub prompt_logprobs: Vec<Logprobs>,
    /// its tokens' links of the chain, where that was asked for ([`Request::chain`])
    pub chain: Vec<[u8; 32]>,
}

impl Output {
    /// The sum of its tokens' log probabilities, which must have been asked for.
    pub fn logprob(&self) -> f64 {
        self.logprobs.iter().map(|l| l.logprob).sum()
    }

    /// What a session of `context` positions tells of these tokens after a prompt: their text, and why it ended after the last
    /// of them; [`Ended::BrokenOff`] where it would have gone on. `None`: it had ended before.
    pub fn of(model: &Model, context: usize, request: &Request, prompt: &[u32], ids: &[u32]) -> Option<Output> {
        let tokenizer = model.tokenizer().ok();
        let mut growing = Growing::new(prompt.to_vec(), context, request);
        let mut out = Output { prompt: prompt.to_vec(), ended: Ended::BrokenOff, ..Output::default() };
        if growing.ids.len() >= growing.wanted {
            growing.ended = Some(Ended::Length);
        }
        for id in ids {
            if growing.ended.is_some() {
                return None;
            }
            out.push(&growing.piece(tokenizer, *id));
        }
        match growing.ended {
            Some(ended) => out.ended = ended,
            None => out.text.push_str(&growing.decoder.finish()),
        }
        Some(out)
    }

    pub(super) fn push(&mut self, piece: &Piece) {
        self.text.push_str(&piece.text);
        self.ids.push(piece.id);
        self.logprobs.extend(piece.logprobs.clone());
        self.chain.extend(piece.chain);
        self.ended = piece.ended.unwrap_or(self.ended);
    }
}

/// What a step of a [`Generating`] did.
#[derive(Clone, Debug, PartialEq)]
pub enum Advance {
    /// part of the prompt was fed
    Prompt {
        /// tokens in the cache
        done: usize,
        /// tokens of the prompt
        of: usize,
    },
    /// a token came
    Piece(Piece),
    /// the text has ended
    End(Ended),
}

/// A text as it grows: its tokens, and when it ends.
pub(super) struct Growing {
    decoder: StreamDecoder,
    /// prompt and tokens
    pub ids: Vec<u32>,
    /// tokens of the prompt
    pub prompt: usize,
    /// tokens the sequence may have when it ends
    pub wanted: usize,
    context: usize,
    ignore_end: bool,
    pub ended: Option<Ended>,
}

impl Growing {
    /// A text after a prompt, in a context of so many tokens.
    pub fn new(ids: Vec<u32>, context: usize, request: &Request) -> Growing {
        let prompt = ids.len();
        let mut growing = Growing {
            decoder: StreamDecoder::continuing(),
            ids,
            prompt,
            wanted: prompt.saturating_add(request.max_tokens),
            context,
            ignore_end: request.ignore_end,
            ended: None,
        };
        // once, whatever is to come, with guesses of what comes after it
        growing.ids.reserve(growing.room() + MOST);
        growing
    }

    /// Tokens that may still come.
    pub fn room(&self) -> usize {
        // the last one is not fed
        self.wanted.min(self.context + 1).saturating_sub(self.ids.len())
    }

    /// A token that came, and whether it is the last.
    pub fn piece(&mut self, tokenizer: Option<&Tokenizer>, id: u32) -> Piece {
        let position = self.ids.len();
        self.ids.push(id);
        let is_end = tokenizer.is_some_and(|t| t.eos().contains(&id)) && !self.ignore_end;
        self.ended = match () {
            () if is_end => Some(Ended::EndOfText),
            () if self.ids.len() == self.wanted => Some(Ended::Length),
            () if self.ids.len() > self.context => Some(Ended::Context),
            () => None,
        };
        // the end is no text, even where its token has one
        let shown = tokenizer.filter(|_| !is_end);
        let mut text = shown.map_or_else(String::new, |t| self.decoder.push(t, id));
        if self.ended.is_some() {
            text.push_str(&self.decoder.finish());
        }
        Piece { id, position, text, ended: self.ended, logprobs: None, chain: None }
    }
}

/// A text that grows: an iterator that blocks, or a stream. It ends after an error.
pub struct Generating<'s> {
    generation: Generation<'s, 'static>,
    state: &'s mut State,
    tokenizer: Option<&'s Tokenizer>,
    text: Growing,
    /// tokens fed at once
    ubatch: usize,
    /// of how many of the likeliest tokens log probabilities are told; `None`: of none
    logprobs: Option<usize>,
    /// the next token of the prompt whose log probability is wanted, and those of the tokens before it
    unscored: Option<usize>,
    scores: Vec<Logprobs>,
    chain: Option<Chain>,
}

impl<'s> Generating<'s> {
    /// `kept`: how many of `ids` the session has seen.
    pub(super) fn new(
        session: &'s mut Session<'static>,
        state: &'s mut State,
        tokenizer: Option<&'s Tokenizer>,
        ids: Vec<u32>,
        kept: usize,
        draft: Option<&'s mut Draft>,
        ubatch: usize,
        context: usize,
        software: bool,
        chain: Option<Chain>,
        request: &Request,
    ) -> Result<Generating<'s>, Error> {
        let sampler = request.sampler()?;
        // a rasteriser takes longer to select than to hand over what lies in main memory anyway
        let fastest = if software { Reads::Logits } else { Reads::Ahead };
        let all = request.logprobs.is_some() || request.prompt_logprobs.is_some() || request.chain;
        let reads = if all { Reads::Logits } else { request.reads.unwrap_or(fastest) };
        let mut generation = Generation::new(session, sampler, reads);
        generation.seen(&ids[..kept]);
        match (request.guess, draft) {
            (Guess::Off, _) => {}
            (Guess::Ngram, _) => generation.speculate(Guesser::Ngram(Ngram::default())),
            (Guess::Draft, Some(draft)) => generation.speculate(Guesser::Draft(draft)),
            (Guess::Draft, None) => return Err(Error::options("guesses of a draft, and no draft is loaded".into())),
        }
        let text = Growing::new(ids, context, request);
        let (logprobs, unscored) = (request.logprobs, request.prompt_logprobs);
        Ok(Generating { generation, state, tokenizer, text, ubatch, logprobs, unscored, scores: Vec::new(), chain })
    }

    /// The prompt's tokens.
    pub fn prompt(&self) -> &[u32] {
        &self.text.ids[..self.text.prompt]
    }

    /// Tokens in the cache; before the first piece of work those that the sequence before has left of this prompt.
    pub fn cached(&self) -> usize {
        self.state.seen.len()
    }

    /// Does the next piece of work: some tokens of the prompt, or one token after it. For whoever has to look at something
    /// else between two of them.
    ///
    /// Errors: those of the device; [`Error::Overflow`].
    pub async fn advance(&mut self) -> Result<Advance, Error> {
        if let Some(ended) = self.text.ended {
            return Ok(Advance::End(ended));
        }
        let done = self.state.seen.len();
        if done >= self.text.prompt && self.text.ids.len() == self.text.wanted {
            self.text.ended = Some(Ended::Length);
            return Ok(Advance::End(Ended::Length));
        }
        let worked = if done < self.text.prompt {
            let end = self.text.prompt.min(done + self.ubatch);
            let (piece, last) = (&self.text.ids[done..end], end == self.text.prompt);
            let fed = match self.unscored {
                Some(next) if next <= end => {
                    let (ids, scores, top) = (&self.text.ids, &mut self.scores, self.logprobs.unwrap_or_default());
                    // the logits of a token say how likely the one after it is
                    let score = |i: usize, logits: &[f32]| {
                        if let Some(&id) = ids.get(done + i + 1) {
                            scores.push(Logprobs::of(logits, id, top));
                        }
                    };
                    self.unscored = Some(end + 1);
                    self.generation.prompt_rows(piece, next - 1 - done, last, score).await
                }
                _ => self.generation.prompt(piece, last).await,
            };
            fed.map(|()| None)
        } else {
            let more = self.text.ids.len() + 1 < self.text.wanted && self.generation.pos() + 1 < self.text.context;
            self.generation.next(more).await.map(Some)
        };
        let id = match worked {
            Ok(id) => id,
            Err(e) => {
                self.text.ended = Some(Ended::BrokenOff);
                return Err(self.state.failed(e));
            }
        };
        // the token before this one is in the cache now
        let fed = self.generation.pos();
        self.state.seen.extend_from_slice(&self.text.ids[self.state.seen.len()..fed]);
        Ok(match id {
            None => Advance::Prompt { done: fed, of: self.text.prompt },
            Some(id) => {
                let logprobs = self.logprobs.map(|top| Logprobs::of(self.generation.logits(), id, top));
                let chain = self.chain.as_mut().map(|c| c.push(id, self.generation.logits()));
                Advance::Piece(Piece { logprobs, chain, ..self.text.piece(self.tokenizer, id) })
            }
        })
    }

    /// The next token; `None` when the text has ended.
    pub async fn next_piece(&mut self) -> Option<Result<Piece, Error>> {
        loop {
            match self.advance().await {
                Ok(Advance::Prompt { .. }) => {}
                Ok(Advance::Piece(piece)) => return Some(Ok(piece)),
                Ok(Advance::End(_)) => return None,
                Err(e) => return Some(Err(e)),
            }
        }
    }

    /// How likely the prompt's tokens were, as far as it was read since this was last asked ([`Request::prompt_logprobs`]).
    pub fn take_prompt_logprobs(&mut self) -> Vec<Logprobs> {
        std::mem::take(&mut self.scores)
    }

    /// All logits of which the last token was chosen; empty where only the best leave the device ([`Request::reads`]).
    pub fn logits(&self) -> &[f32] {
        self.generation.logits()
    }

    /// What steps have cost the device since it was last asked.
    pub fn take_stats(&mut self) -> Stats {
        self.generation.session().device().take_stats()
    }

    /// What of a character had come when the text was broken off, as far as it can be shown.
    pub fn rest(&mut self) -> String {
        self.text.decoder.finish()
    }

    /// Ends the text and waits until the device is idle; gives what steps have cost since it was last asked.
    ///
    /// Errors: those of the device.
    pub async fn end(self) -> Result<Stats, Error> {
        let Generating { generation, state, .. } = self;
        let session = generation.end().await.map_err(|e| state.failed(e))?;
        Ok(session.device().take_stats())
    }

    /// As a stream, for an executor that stays on this thread.
    pub fn into_stream(self) -> impl Stream<Item = Result<Piece, Error>> + 's {
        futures::stream::unfold(self, |mut generating| async move {
            let item = generating.next_piece().await?;
            Some((item, generating))
        })
    }
}

impl Iterator for Generating<'_> {
    type Item = Result<Piece, Error>;

    fn next(&mut self) -> Option<Result<Piece, Error>> {
        pollster::block_on(self.next_piece())
    }
}
