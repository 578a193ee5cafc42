//! A model loaded on a device: one sequence, generated or scored.

use super::error::{Error, Place, at};
use super::generate::{Ended, Generating, Output, Piece, Prompt, Request};
use super::options::SessionOptions;
use super::state::State;
use super::{Device, Devices, Model};
use crate::generate::{self, Want};
use crate::models::RECENT_CHUNK;
use std::ops::ControlFlow;

/// A loaded model and one sequence. It stays on its thread; [`Engine`](super::Engine) is for several.
///
/// Every call begins a sequence of its own. What a prompt has in common with the sequence before it is not computed again,
/// in whole chunks of 64 tokens; that changes no bit.
pub struct Session {
    pub(super) inner: generate::Session<'static>,
    model: Model,
    options: SessionOptions,
    context: usize,
    device: String,
    software: bool,
    pub(super) state: State,
}

impl Model {
    /// Loads the model on a device.
    ///
    /// Errors: [`Error::Options`] where the plan does not fit the device or its memory, before anything is allocated;
    /// [`Error::Model`] where a tensor is missing, of another shape, or not finite; [`Error::Device`], [`Error::Lost`].
    pub fn session(&self, device: Device, options: SessionOptions) -> Result<Session, Error> {
        Session::new(self, device, options, |_| {})
    }
}

impl Session {
    /// Loads a model on a device; `progress` hears how many bytes of the file were read. See [`Model::session`].
    pub fn new(
        model: &Model,
        device: Device,
        options: SessionOptions,
        progress: impl FnMut(u64) + Send,
    ) -> Result<Session, Error> {
        let h = model.hyper();
        let memory = options.memory.or_else(|| Devices::share_of_memory(std::slice::from_ref(&device)));
        let below = SessionOptions { memory, ..options }.inner(h);
        let (name, software) = (device.name(), device.is_software());
        let loading = generate::Session::owning(device.inner, model.container(), h, below, progress);
        let inner = pollster::block_on(loading).map_err(at(Place::Model))?;
        let context = options.positions(h);
        Ok(Session { inner, model: model.clone(), options, context, device: name, software, state: State::default() })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The device, as it names itself.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Tokens a sequence may have.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Texts that an engine works on at once.
    pub(super) fn sequences(&self) -> usize {
        self.options.sequences
    }

    /// Tokens of a step.
    pub(super) fn tokens(&self) -> usize {
        self.inner.built().plan.max_tokens
    }

    /// Takes nothing in the cache for granted: others have used it.
    pub(super) fn forget(&mut self) {
        self.state.seen.clear();
    }

    /// Tokens that are in the cache: those of the last sequence, without its last one.
    pub fn position(&self) -> usize {
        self.state.seen.len()
    }

    /// One line that says what decides the logits: two sessions with the same line give the same bits for the same tokens,
    /// and, with the same seed, the same text. The first call of a model reads all of it.
    ///
    /// Errors: [`Error::Model`].
    pub fn fingerprint(&self) -> Result<String, Error> {
        self.model.fingerprint(&self.options)
    }

    /// Generates to the end. `each` sees every token as it comes, and may break off.
    ///
    /// Errors: [`Error::Options`] (a prompt that is empty or longer than the context, a sampler's option out of range);
    /// [`Error::Model`] where a text is to be tokenised and cannot be; [`Error::Overflow`]; [`Error::Interrupted`],
    /// [`Error::Device`], [`Error::Lost`], and after these [`Error::Closed`].
    pub fn generate(
        &mut self,
        request: impl Into<Request>,
        mut each: impl FnMut(&Piece) -> ControlFlow<()>,
    ) -> Result<Output, Error> {
        let mut generating = self.stream(request)?;
        let mut out = Output { prompt: generating.prompt().to_vec(), ..Output::default() };
        for piece in &mut generating {
            let piece = piece?;
            out.push(&piece);
            if each(&piece).is_break() {
                out.ended = Ended::BrokenOff;
                break;
            }
        }
        Ok(out)
    }

    /// Begins to generate: tokens come from an iterator that blocks, or from a stream
    /// ([`Generating::into_stream`]). Dropping it ends the text.
    ///
    /// Errors: as [`Session::generate`]; those of the device come with the tokens.
    pub fn stream(&mut self, request: impl Into<Request>) -> Result<Generating<'_>, Error> {
        let request = request.into();
        let ids = self.ids(&request.prompt, request.bos, request.special)?;
        let kept = self.keep(&ids);
        let ubatch = self.options.ubatch.max(1);
        let tokenizer = match request.prompt {
            Prompt::Text(_) => Some(self.model.tokenizer()?),
            Prompt::Ids(_) => self.model.tokenizer().ok(),
        };
        Generating::new(
            &mut self.inner,
            &mut self.state,
            tokenizer,
            ids,
            kept,
            ubatch,
            self.context,
            self.software,
            &request,
        )
    }

    /// The logits after a prompt, one for each token of the vocabulary.
    ///
    /// Errors: as [`Session::generate`].
    pub fn logits(&mut self, prompt: impl Into<Prompt>) -> Result<Vec<f32>, Error> {
        let ids = self.ids(&prompt.into(), true, false)?;
        let mut last = Vec::new();
        self.feed(&ids, ids.len() - 1, |_, row| last.extend_from_slice(row))?;
        Ok(last)
    }

    /// The logits after each token of a prompt from index `first` on, handed to `row(index, logits)` in order.
    ///
    /// Errors: as [`Session::generate`]; a `first` behind the prompt's last token.
    pub fn each_logits(
        &mut self,
        prompt: impl Into<Prompt>,
        first: usize,
        row: impl FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        let ids = self.ids(&prompt.into(), true, false)?;
        if first >= ids.len() {
            return Err(Error::options(format!("the logits from token {first} on, of a prompt of {}", ids.len())));
        }
        self.feed(&ids, first, row)
    }

    fn feed(&mut self, ids: &[u32], first: usize, mut row: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        let kept = self.keep(&ids[..=first]);
        let fed = self.inner.feed(&ids[kept..], Want::From(first - kept), |i, logits| {
            row(kept + i, logits);
            Ok(())
        });
        pollster::block_on(fed).map_err(|e| self.state.failed(e))?;
        self.state.seen.extend_from_slice(&ids[kept..]);
        Ok(())
    }

    /// The ids of a prompt, of which the context holds all and there is one at least.
    pub(super) fn ids(&self, prompt: &Prompt, bos: bool, special: bool) -> Result<Vec<u32>, Error> {
        if let Some(why) = &self.state.ended {
            return Err(Error::Closed(why.clone()));
        }
        let context = self.context;
        let ids = match prompt {
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Text(text) => {
                let t = self.model.tokenizer()?;
                // tokenising takes far more memory than the text
                let least = t.least_ids(text);
                if least > context {
                    return Err(Error::options(format!(
                        "the prompt has {} bytes, {least} tokens at least, the context holds {context}",
                        text.len()
                    )));
                }
                t.encode(text, bos && t.adds_bos(), special).map_err(at(Place::Model))?
            }
        };
        if ids.is_empty() || ids.len() > context {
            let n = ids.len();
            return Err(Error::options(format!(
                "the prompt has {n} tokens, at least 1 and at most {context} expected"
            )));
        }
        let vocabulary = self.model.vocabulary();
        match ids.iter().find(|id| **id as usize >= vocabulary) {
            Some(id) => Err(Error::options(format!("token id {id} is outside the vocabulary of {vocabulary}"))),
            None => Ok(ids),
        }
    }

    /// Goes back to where the cache still holds what a sequence begins with; how many tokens that are. At least its last
    /// token is left, for its logits, and whole chunks are kept, since the copy of recent positions holds no older ones.
    fn keep(&mut self, ids: &[u32]) -> usize {
        let same = self.state.seen.iter().zip(ids).take_while(|(a, b)| a == b).count();
        let kept = same.min(ids.len() - 1) / RECENT_CHUNK * RECENT_CHUNK;
        self.state.seen.truncate(kept);
        self.inner.reset();
        self.inner.advance(kept);
        kept
    }
}
