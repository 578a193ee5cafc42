//! A model loaded on a device: one sequence, generated or scored.

use super::chain::Chain;
use super::error::{Error, Place, at};
use super::generate::{Ended, Generating, Guess, Output, Piece, Prompt, Request};
use super::options::SessionOptions;
use super::score::{Pooled, Pooling, Score};
use super::state::State;
use super::{Device, Devices, Model};
use crate::generate::draft::Draft;
use crate::generate::pool::Pool;
use crate::generate::saved::{Saved, SavedError};
use crate::generate::tokenizer::Tokenizer;
use crate::generate::{self, Want};
use crate::models::{Dense, Head, RECENT_CHUNK, Recent};
use crate::ops::cache::CacheType;
use crate::ops::places::{GONE, TABLES};
use crate::record::Stats;
use std::io::{Read, Seek, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

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
    driver: Option<String>,
    software: bool,
    pub(super) state: State,
    draft: Option<Draft>,
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
        let driver = device.adapter().map(|about| about.driver.clone());
        let loading = generate::Session::owning(device.inner, model.container(), h, below, progress);
        let inner = pollster::block_on(loading).map_err(at(Place::Model))?;
        let context = options.positions(h);
        let (asked, kept) = (below.plan.checkpoints, inner.built().checkpoints);
        if h.has_states() && kept < asked {
            log::warn!("there is room for {kept} of {asked} states of recurrent layers: prompts may be computed again");
        }
        let (model, state) = (model.clone(), State::default());
        Ok(Session { inner, model, options, context, device: name, driver, software, state, draft: None })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The device, as it names itself.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The driver of an adapter and its version; `None` for the CPU.
    pub fn driver(&self) -> Option<&str> {
        self.driver.as_deref()
    }

    /// Tokens a sequence may have.
    pub fn context(&self) -> usize {
        self.context
    }

    /// What it was made with, and the context that it has.
    pub fn options(&self) -> SessionOptions {
        SessionOptions { context: self.context, ..self.options }
    }

    /// The plan that is loaded.
    #[cfg(all(feature = "cli", feature = "server"))]
    pub(crate) fn built(&self) -> &crate::models::Built {
        self.inner.built()
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

    /// Loads a smaller model that guesses ahead where a request asks for it ([`Guess::Draft`](super::Guess)). It changes no
    /// token; it saves time where it is often right and much faster.
    ///
    /// Errors: as [`Model::session`]; of the two models one is recurrent.
    pub fn set_draft(&mut self, model: &Model, device: Device) -> Result<(), Error> {
        let options = SessionOptions {
            context: self.context.min(model.context()),
            sequences: 1,
            pool: 0,
            checkpoints: 0,
            rows: 1,
            k_type: CacheType::F16,
            v_type: CacheType::F16,
            recent: Recent::Off,
            head: Head::Logits,
            ..self.options
        };
        self.takes_back()?;
        let draft = Session::new(model, device, options, |_| {})?;
        draft.takes_back()?;
        self.draft = Some(Draft::new(draft.inner));
        Ok(())
    }

    /// Whether tokens can be taken back, as wrong guesses are.
    pub(super) fn takes_back(&self) -> Result<(), Error> {
        if self.inner.is_recurrent() {
            return Err(Error::options(
                "tokens are not guessed where a model is recurrent: it has no state from before a wrong guess".into(),
            ));
        }
        Ok(())
    }

    /// Whether what is in the cache is all there is of a sequence.
    fn is_saved(&self) -> Result<(), Error> {
        if self.inner.is_recurrent() {
            return Err(Error::options(
                "sequences of a recurrent model are not saved: its states are no positions".into(),
            ));
        }
        Ok(())
    }

    /// Writes what is in the cache, in whole chunks of 64 tokens: any session with the same [`Session::fingerprint`] can go on
    /// from it, on any device, with the same bits. How many tokens that are; 0: fewer than a chunk, and nothing was written.
    ///
    /// Errors: those of the device; [`Error::Options`] where `out` takes no more.
    pub fn save(&mut self, out: impl Write) -> Result<usize, Error> {
        self.save_first(self.state.seen.len(), out)
    }

    /// Of the tokens in the cache, so many.
    fn save_first(&mut self, tokens: usize, out: impl Write) -> Result<usize, Error> {
        self.is_saved()?;
        let n = tokens / RECENT_CHUNK * RECENT_CHUNK;
        let fingerprint = self.fingerprint()?;
        if n == 0 || n < self.state.floor {
            return Ok(0);
        }
        let tables = self.state.first.map(|first| in_order(n / RECENT_CHUNK, first));
        let saving = self.inner.save(&fingerprint, &self.state.seen[..n], tables.each_ref().map(Vec::as_slice), out);
        pollster::block_on(saving).map_err(at(Place::Device))?;
        Ok(n)
    }

    /// Takes up what was saved: a sequence that begins with the same tokens is not computed again so far. How many tokens.
    ///
    /// Errors: [`Error::Options`] where it is damaged, of another version, another model or other options, or longer than
    /// the context; those of reading and of the device.
    pub fn restore(&mut self, from: impl Read + Seek) -> Result<usize, Error> {
        self.is_saved()?;
        let fingerprint = self.fingerprint()?;
        let mut saved = Saved::open(from, &fingerprint, self.inner.built()).map_err(at(Place::Options))?;
        let n = saved.ids().len();
        let tables = saved.first().map(|first| in_order(n / RECENT_CHUNK, first));
        self.state.seen.clear();
        self.state.first = saved.first();
        let restoring = self.inner.restore(&mut saved, tables.each_ref().map(Vec::as_slice));
        pollster::block_on(restoring).map_err(|e| self.not_restored(e))?;
        self.state.seen.extend_from_slice(saved.ids());
        self.state.floor = if saved.first() == [0; TABLES] { 0 } else { n };
        Ok(n)
    }

    /// Of what a device reports the session may end; of what a file has not.
    fn not_restored(&mut self, e: anyhow::Error) -> Error {
        if e.is::<SavedError>() { at(Place::Options)(e) } else { self.state.failed(e) }
    }

    /// Writes what the cache has of the beginning of a prompt; of a session's own where there is no pool.
    pub(super) fn save_beginning(
        &mut self,
        prompt: &Prompt,
        pool: Option<&mut Pool>,
        out: impl Write,
    ) -> Result<usize, Error> {
        self.is_saved()?;
        let (ids, fingerprint) = (self.ids(prompt, true, false)?, self.fingerprint()?);
        let Some(pool) = pool else {
            let same = self.state.seen.iter().zip(&ids).take_while(|(a, b)| a == b).count();
            return self.save_first(same, out);
        };
        // all of its chunks, were there a token after them
        let sequence = pool.begin(&[&ids[..], &[0]].concat());
        let n = sequence.len();
        let mut saved = Ok(());
        if n > 0 {
            let chunks = [sequence.chunks(0), sequence.chunks(1)];
            saved = pollster::block_on(self.inner.save(&fingerprint, &ids[..n], chunks, out));
        }
        pool.end(sequence);
        saved.map_err(at(Place::Device))?;
        Ok(n)
    }

    /// Takes up what was saved, as chunks of a pool that are kept.
    pub(super) fn restore_to(&mut self, pool: &mut Pool, from: impl Read + Seek) -> Result<usize, Error> {
        self.is_saved()?;
        let fingerprint = self.fingerprint()?;
        let mut saved = Saved::open(from, &fingerprint, self.inner.built()).map_err(at(Place::Options))?;
        let n = saved.ids().len();
        let mut sequence = pool.adopt(n / RECENT_CHUNK, saved.first()).map_err(|_| {
            Error::options(format!(
                "the cache has no room for the {n} tokens that were saved while other texts have it"
            ))
        })?;
        let restored = self.inner.restore(&mut saved, [sequence.chunks(0), sequence.chunks(1)]);
        let restored = pollster::block_on(restored).map_err(|e| self.not_restored(e));
        if restored.is_ok() {
            pool.written(&mut sequence, saved.ids());
        }
        pool.end(sequence);
        restored.map(|()| n)
    }

    /// What steps have cost the device since it was last asked.
    pub fn take_stats(&mut self) -> Stats {
        self.inner.device().take_stats()
    }

    /// Tokens that are in the cache: those of the last sequence, without its last one.
    pub fn position(&self) -> usize {
        self.state.seen.len()
    }

    /// These tokens.
    pub fn cached(&self) -> &[u32] {
        &self.state.seen
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
        out.prompt_logprobs = generating.take_prompt_logprobs();
        Ok(out)
    }

    /// Begins to generate: tokens come from an iterator that blocks, or from a stream
    /// ([`Generating::into_stream`]). Dropping it ends the text.
    ///
    /// Errors: as [`Session::generate`], and guesses of a recurrent model; those of the device come with the tokens.
    pub fn stream(&mut self, request: impl Into<Request>) -> Result<Generating<'_>, Error> {
        let request = request.into();
        self.gives(Head::Logits)?;
        let ids = self.ids(&request.prompt, request.bos, request.special)?;
        request.check(ids.len())?;
        if request.guess != Guess::Off {
            self.takes_back()?;
        }
        let chain = self.chain(&request, &ids)?;
        let kept = self.keep(&ids[..request.prompt_logprobs.unwrap_or(ids.len())]);
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
            self.draft.as_mut(),
            ubatch,
            self.context,
            self.software,
            chain,
            &request,
        )
    }

    /// How likely a continuation is after a context; see [`Request::score`].
    ///
    /// Errors: those of [`Request::score`] and [`Session::generate`].
    pub fn score(&mut self, context: impl Into<Prompt>, continuation: impl Into<Prompt>) -> Result<Score, Error> {
        let request = Request::score(&self.model, context, continuation)?;
        Ok(self.generate(request, |_| ControlFlow::Continue(()))?.score())
    }

    /// A text as a vector of length 1, `[dim]`, of the hidden states before the output matrix. The session must give these
    /// ([`SessionOptions::head`]).
    ///
    /// Errors: as [`Session::generate`].
    pub fn embed(&mut self, prompt: impl Into<Prompt>, pooling: Pooling) -> Result<Vec<f32>, Error> {
        self.gives(Head::Hidden)?;
        let ids = self.whole_ids(&prompt.into())?;
        let mut pooled = Pooled::new(pooling, self.dense()?);
        self.feed(&ids, pooled.first(ids.len(), self.inner.feeds_whole()), |_, row| pooled.push(row))?;
        Ok(pooled.vector())
    }

    /// The logits after a prompt, one for each token of the vocabulary.
    ///
    /// Errors: as [`Session::generate`].
    pub fn logits(&mut self, prompt: impl Into<Prompt>) -> Result<Vec<f32>, Error> {
        self.gives(Head::Logits)?;
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
        self.gives(Head::Logits)?;
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
        // of an encoder nothing is kept
        if !self.inner.feeds_whole() {
            self.state.seen.extend_from_slice(&ids[kept..]);
        }
        Ok(())
    }

    /// The chain that a request asks for, before its first token.
    pub(super) fn chain(&self, request: &Request, prompt: &[u32]) -> Result<Option<Chain>, Error> {
        request.chain.then(|| Ok(Chain::new(&self.fingerprint()?, prompt))).transpose()
    }

    /// Whether steps give what is needed.
    pub(super) fn gives(&self, head: Head) -> Result<(), Error> {
        match (self.options.head == head, head) {
            (true, _) => Ok(()),
            (false, Head::Logits) => Err(Error::options("the session gives hidden states, logits are needed".into())),
            (false, Head::Hidden) => Err(Error::options("the session gives logits, hidden states are needed".into())),
        }
    }

    /// The ids of a prompt, of which the context holds all and there is one at least.
    pub(super) fn ids(&self, prompt: &Prompt, bos: bool, special: bool) -> Result<Vec<u32>, Error> {
        self.ids_by(prompt, |t, text| t.encode(text, bos && t.adds_bos(), special))
    }

    /// What comes behind pooling.
    pub(super) fn dense(&self) -> Result<Arc<[Dense]>, Error> {
        self.model.dense()
    }

    /// The same of a text that becomes a vector.
    pub(super) fn whole_ids(&self, prompt: &Prompt) -> Result<Vec<u32>, Error> {
        self.ids_by(prompt, |t, text| t.encode_whole(text, false))
    }

    fn ids_by(
        &self,
        prompt: &Prompt,
        encode: impl Fn(&Tokenizer, &str) -> anyhow::Result<Vec<u32>>,
    ) -> Result<Vec<u32>, Error> {
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
                encode(t, text).map_err(at(Place::Model))?
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
    /// token is left, for its logits, and whole chunks are kept, since the copy of recent positions holds no older ones. A
    /// recurrent model goes on from the whole sequence before, or begins anew.
    fn keep(&mut self, ids: &[u32]) -> usize {
        let same = self.state.seen.iter().zip(ids).take_while(|(a, b)| a == b).count();
        if self.inner.is_recurrent() {
            let goes_on = same == self.state.seen.len() && same == self.inner.pos() && same < ids.len();
            let most = same.min(ids.len() - 1);
            let kept = if goes_on { same } else { self.inner.go_back(most) };
            self.inner.mark(most, ids.len());
            self.state.seen.truncate(kept);
            return kept;
        }
        let kept = same.min(ids.len() - 1) / RECENT_CHUNK * RECENT_CHUNK;
        let kept = if kept < self.state.floor { 0 } else { kept };
        if kept == 0 {
            (self.state.floor, self.state.first) = (0, [0; TABLES]);
        }
        self.state.seen.truncate(kept);
        self.inner.reset();
        self.inner.advance(kept);
        kept
    }
}

/// The table of a sequence that lies in order, without the chunks before `first`.
fn in_order(chunks: usize, first: usize) -> Vec<u32> {
    (0..chunks as u32).map(|c| if (c as usize) < first { GONE } else { c }).collect()
}
