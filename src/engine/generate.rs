//! What is asked for and what comes: prompts, requests, pieces of text.

use super::error::{Error, Place, at};
use super::state::State;
use crate::generate::draft::{MOST, Ngram};
use crate::generate::generation::Reads;
use crate::generate::sampling::{Sampler, SamplerOptions};
use crate::generate::tokenizer::{StreamDecoder, Tokenizer};
use crate::generate::{Generation, Session};
use crate::record::Stats;
use futures::Stream;

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
/// it has brought up so far (`Prompt::Ids`) goes on as if nothing had happened.
#[derive(Clone, Debug)]
pub struct Request {
    /// what the sequence begins with
    pub prompt: Prompt,
    /// tokens at most; 0: the prompt is read, and that is all; `usize::MAX`: until the text or the context ends
    pub max_tokens: usize,
    /// how tokens are chosen
    pub sampling: SamplerOptions,
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
}

/// How the next tokens are guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Guess {
    /// not at all
    #[default]
    Off,
    /// what followed the last three tokens when they came before: fast where a text repeats itself or its prompt. Needs a
    /// session whose steps return several rows ([`SessionOptions::rows`](super::SessionOptions::rows), of which
    /// [`Guess::ROWS`] are used at most), and a [`Session`](super::Session) or an engine of one text
    Ngram,
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
            ignore_end: false,
            bos: true,
            special: false,
            reads: None,
            guess: Guess::Off,
        }
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// the token
    pub id: u32,
    /// its position in the sequence, the prompt counted
    pub position: usize,
    /// the text it adds; empty while a character is not whole, and for control tokens
    pub text: String,
    /// why it is the last one; `None`: it is not
    pub ended: Option<Ended>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// what was generated, without the prompt
    pub text: String,
    /// its tokens
    pub ids: Vec<u32>,
    /// the prompt's tokens
    pub prompt: Vec<u32>,
    /// why it ended
    pub ended: Ended,
}

impl Output {
    pub(super) fn push(&mut self, piece: &Piece) {
        self.text.push_str(&piece.text);
        self.ids.push(piece.id);
        self.ended = piece.ended.unwrap_or(self.ended);
    }
}

/// What a step of a [`Generating`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        Growing {
            decoder: StreamDecoder::continuing(),
            ids,
            prompt,
            wanted: prompt.saturating_add(request.max_tokens),
            context,
            ignore_end: request.ignore_end,
            ended: None,
        }
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
        Piece { id, position, text, ended: self.ended }
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
}

impl<'s> Generating<'s> {
    /// `kept`: how many of `ids` the session has seen.
    pub(super) fn new(
        session: &'s mut Session<'static>,
        state: &'s mut State,
        tokenizer: Option<&'s Tokenizer>,
        ids: Vec<u32>,
        kept: usize,
        ubatch: usize,
        context: usize,
        software: bool,
        request: &Request,
    ) -> Result<Generating<'s>, Error> {
        let sampler = Sampler::new(request.sampling.clone()).map_err(at(Place::Options))?;
        // a rasteriser takes longer to select than to hand over what lies in main memory anyway
        let reads = request.reads.unwrap_or(if software { Reads::Logits } else { Reads::Ahead });
        let mut generation = Generation::new(session, sampler, reads);
        generation.seen(&ids[..kept]);
        if request.guess == Guess::Ngram {
            generation.speculate(Ngram::default());
        }
        Ok(Generating { generation, state, tokenizer, text: Growing::new(ids, context, request), ubatch })
    }

    /// The prompt's tokens.
    pub fn prompt(&self) -> &[u32] {
        &self.text.ids[..self.text.prompt]
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
            let piece = &self.text.ids[done..end];
            self.generation.prompt(piece, end == self.text.prompt).await.map(|()| None)
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
            Some(id) => Advance::Piece(self.text.piece(self.tokenizer, id)),
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
