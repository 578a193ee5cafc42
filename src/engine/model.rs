//! A model that is open: its file, what it is made of, its tokeniser.

use super::error::{Error, Place, at};
use super::fingerprint::fingerprint;
use super::options::SessionOptions;
use super::{Device, Devices};
use crate::chat;
use crate::formats::chat::DEFAULT;
use crate::formats::meta::Value;
use crate::formats::{Container, LoadMode};
use crate::generate::tokenizer::Tokenizer;
use crate::generate::verify::{self, Report, Script};
use crate::grammar::{Compiled, Grammar, GrammarError, Vocabulary};
use crate::models::{Dense, Head, Hyper, Pooling};
use anyhow::{anyhow, ensure};
use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The story model that is always there.
static EMBEDDED: &[u8] = include_bytes!("../../assets/tiny-stories-Q4_K_M.gguf");

/// An open model. Opening reads headers only; weights are read when a session is made. Clones share everything.
#[derive(Clone, Debug)]
pub struct Model(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    container: Container,
    hyper: Hyper,
    /// read when it is asked for first: for a large vocabulary that takes a while, and `verify` needs none
    tokenizer: OnceLock<Tokenizer>,
    /// its tokens as grammars see them, made when the first grammar is
    spelling: OnceLock<Vocabulary>,
    digest: OnceLock<String>,
    dense: OnceLock<Arc<[Dense]>>,
}

impl Model {
    /// Opens a GGUF file (of shards the first), a BUMP file, a safetensors directory of Hugging Face or of packed weights, or
    /// a directory with one GGUF or BUMP file in it.
    ///
    /// Errors: [`Error::Model`].
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        Model::open_with(path, LoadMode::Read)
    }

    /// As [`Model::open`], with a choice of how files are read.
    pub fn open_with(path: impl AsRef<Path>, mode: LoadMode) -> Result<Model, Error> {
        Model::from_container(Container::open(path.as_ref(), mode).map_err(at(Place::Model))?)
    }

    /// The story model that the library carries: 4 million weights, for examples and tests.
    pub fn embedded() -> Model {
        Model::from_container(Model::embedded_container()).unwrap_or_else(|e| unreachable!("a sound model: {e}"))
    }

    /// Its file, for `internals`.
    pub fn embedded_container() -> Container {
        let opened = Container::from_bytes("<embedded tiny-stories-Q4_K_M>", EMBEDDED.into());
        opened.unwrap_or_else(|e| unreachable!("a sound file: {e}"))
    }

    /// A GGUF file that is in memory. `name` stands for it in messages.
    pub fn from_bytes(name: &str, bytes: impl Into<Cow<'static, [u8]>>) -> Result<Model, Error> {
        Model::from_container(Container::from_bytes(name, bytes.into()).map_err(at(Place::Model))?)
    }

    /// What was opened with `internals`.
    pub fn from_container(container: Container) -> Result<Model, Error> {
        let hyper = Hyper::read(&container).map_err(at(Place::Model))?;
        for t in &container.tensors {
            log::info!("{}: {} {:?}", t.name.escape_debug(), t.dtype, t.shape);
        }
        let (tokenizer, spelling, digest) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Ok(Model(Arc::new(Inner { container, hyper, tokenizer, spelling, digest, dense: OnceLock::new() })))
    }

    /// The model's name, as its file says; it may be empty.
    pub fn name(&self) -> &str {
        &self.0.hyper.name
    }

    /// The file, of shards the first; `<embedded>` for one in memory.
    pub fn file(&self) -> &Path {
        &self.0.container.files[0]
    }

    /// Positions the model was trained for.
    pub fn context(&self) -> usize {
        self.0.hyper.context
    }

    /// What becomes of the states of a text's tokens where nobody says: what the file says, else their mean.
    ///
    /// Errors: [`Error::Model`]: it says something that is not supported.
    pub fn pooling(&self) -> Result<Pooling, Error> {
        let said = Pooling::of(&self.0.container, &self.0.hyper).map_err(at(Place::Model))?;
        Ok(said.unwrap_or_default())
    }

    /// The layers that a text's vector goes through behind pooling, read when they are asked for first; none for most models.
    ///
    /// Errors: [`Error::Model`]: they are none that are supported.
    pub(crate) fn dense(&self) -> Result<Arc<[Dense]>, Error> {
        if let Some(dense) = self.0.dense.get() {
            return Ok(dense.clone());
        }
        let dense = Dense::of(&self.0.container, &self.0.hyper).map_err(at(Place::Model))?;
        Ok(self.0.dense.get_or_init(|| dense.into()).clone())
    }

    /// Whether it makes vectors of texts and generates none.
    pub fn is_encoder(&self) -> bool {
        self.0.hyper.family.is_encoder()
    }

    /// Logits in a row.
    pub fn vocabulary(&self) -> usize {
        self.0.hyper.vocab
    }

    /// The file's tokeniser, read when it is asked for first.
    ///
    /// Errors: [`Error::Model`]: there is none, it is not supported, or it has more tokens than the model.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        if let Some(t) = self.0.tokenizer.get() {
            return Ok(t);
        }
        let t = Tokenizer::read(&self.0.container).map_err(at(Place::Model))?;
        check_vocabulary(&self.0.container, &self.0.hyper, &t).map_err(at(Place::Model))?;
        Ok(self.0.tokenizer.get_or_init(|| t))
    }

    /// Names of the model's chat templates, `default` first; none where it has none.
    pub fn chat_templates(&self) -> Vec<String> {
        self.0.container.chat_templates().unwrap_or_default().into_iter().map(|(name, _)| name).collect()
    }

    /// A chat template by its name: one of [`Model::chat_templates`], else one of `chat::BUILTIN`; `None`: the model's own,
    /// called `default` or the only one it has.
    ///
    /// Errors: [`Error::Model`] where it has none of that name or the template is no template.
    pub fn chat_template(&self, name: Option<&str>) -> Result<chat::Template, Error> {
        let all = self.0.container.chat_templates().map_err(at(Place::Model))?;
        let own = match (name, &all[..]) {
            (None, [only]) => Some(only),
            _ => all.iter().find(|(n, _)| n == name.unwrap_or(DEFAULT)),
        };
        let source = own.map(|(_, text)| text.as_str()).or_else(|| chat::builtin(name?));
        let Some(source) = source else {
            let named = name.map_or(String::new(), |n| format!(" called {n:?}"));
            let has = match all.len() {
                0 => String::new(),
                _ => format!("it has {}; ", all.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(", ")),
            };
            let file = self.0.container.described_by().display();
            return Err(Error::new(
                Place::Model,
                anyhow!(
                    "{file}: the model has no chat template{named}: {has}one of the built-in ones can be chosen: {}",
                    chat::BUILTIN.join(", ")
                ),
            ));
        };
        chat::Template::new(source, &self.special_texts()).map_err(at(Place::Model))
    }

    /// A chat template from its source, with the model's special tokens.
    ///
    /// Errors: [`Error::Options`] where it is none.
    pub fn chat_template_from(&self, source: &str) -> Result<chat::Template, Error> {
        chat::Template::new(source, &self.special_texts()).map_err(at(Place::Options))
    }

    /// What templates may call special tokens by, and their texts.
    fn special_texts(&self) -> Vec<(String, String)> {
        let mut all = self.0.container.named_tokens();
        let Ok(tokenizer) = self.tokenizer() else { return all };
        for (name, key) in
            [("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")]
        {
            let id = self.0.container.meta.get(&format!("tokenizer.ggml.{key}_token_id")).and_then(Value::as_uint);
            let text = id.and_then(|id| tokenizer.token_text(u32::try_from(id).ok()?));
            if let (Some(text), false) = (text, all.iter().any(|(n, _)| n == name)) {
                all.push((name.into(), text));
            }
        }
        all
    }

    /// The model's tokens as grammars see them, made when they are asked for first, which takes as long as a few tokens.
    ///
    /// Errors: those of [`Model::tokenizer`]; [`Error::Model`]: its tokens cannot be held to a grammar.
    pub fn spelling(&self) -> Result<&Vocabulary, Error> {
        if let Some(v) = self.0.spelling.get() {
            return Ok(v);
        }
        let v = Vocabulary::new(self.tokenizer()?).map_err(at(Place::Model))?;
        Ok(self.0.spelling.get_or_init(|| v))
    }

    /// A grammar for requests to this model; it may be used for any number of them at once.
    ///
    /// Errors: those of [`Model::spelling`]; [`Error::Options`]: the grammar is wrong, not supported, or over a bound.
    pub fn grammar(&self, grammar: &Grammar) -> Result<Arc<Compiled>, Error> {
        let compiled = Compiled::new(grammar, self.spelling()?);
        compiled.map(Arc::new).map_err(|e: GrammarError| Error::options(e.to_string()))
    }

    /// SHA-256 of metadata and tensors, in hexadecimal; the same for one file and for its shards. The first call reads the
    /// whole model.
    ///
    /// Errors: [`Error::Model`].
    pub fn digest(&self) -> Result<&str, Error> {
        if let Some(d) = self.0.digest.get() {
            return Ok(d);
        }
        let digest = self.0.container.digest(|_| {}).map_err(at(Place::Model))?;
        Ok(self.0.digest.get_or_init(|| digest))
    }

    /// One line that says what decides the logits of a session with these options: two with the same line give the same
    /// bits. See [`Session::fingerprint`](super::Session::fingerprint).
    ///
    /// Errors: those of [`Model::digest`].
    pub fn fingerprint(&self, options: &SessionOptions) -> Result<String, Error> {
        let o = options;
        let (h, digest) = (&self.0.hyper, self.digest()?);
        let long = h.takes_long_factors(o.positions(h));
        Ok(fingerprint(digest, long, o.activations, o.k_type, o.v_type, o.recent))
    }

    /// Runs a fixed prompt of `prompt` tokens and `generate` greedy ones after it on several devices, side by side, and
    /// compares every word of every buffer after every command; then each alone, as a session runs it. The first is the
    /// reference. With [`Report::ok`] no bit differs.
    ///
    /// Errors: fewer than two devices, more tokens than the model has positions; those of [`Model::session`];
    /// [`Error::Overflow`].
    pub fn verify(
        &self,
        devices: Vec<Device>,
        options: SessionOptions,
        prompt: usize,
        generate: usize,
    ) -> Result<Report, Error> {
        let h = &self.0.hyper;
        let total = prompt.saturating_add(generate);
        if devices.len() < 2 || prompt == 0 || total > h.context {
            let n = devices.len();
            return Err(Error::options(format!(
                "{n} devices, {prompt} tokens of prompt and {generate} after them: two devices are needed, a token of prompt, \
                 and no more than {} in all",
                h.context
            )));
        }
        let memory = options.memory.or_else(|| Devices::share_of_memory(&devices));
        let head = if self.is_encoder() { Head::Hidden } else { options.head };
        let options = SessionOptions { context: total, checkpoints: 0, memory, head, ..options };
        let mut devices: Vec<_> = devices.into_iter().map(|d| d.inner).collect();
        let script =
            Script { prompt: verify::prompt(self.tokenizer().ok(), h.vocab, prompt), generate, batches: vec![0] };
        let walk = verify::verify(&mut devices, &self.0.container, h, options.inner(h), &script, || {});
        pollster::block_on(walk).map_err(at(Place::Model))
    }

    /// The file, for `internals`.
    pub fn container(&self) -> &Container {
        &self.0.container
    }

    /// The model's shape, for `internals`.
    pub fn hyper(&self) -> &Hyper {
        &self.0.hyper
    }
}

/// Whether every id of the tokeniser is one of the model.
pub fn check_vocabulary(c: &Container, h: &Hyper, t: &Tokenizer) -> anyhow::Result<()> {
    let (file, tokens) = (c.described_by().display(), t.vocab_size());
    ensure!(tokens <= h.vocab, "{file}: the tokeniser has {tokens} tokens, the model {}", h.vocab);
    Ok(())
}
