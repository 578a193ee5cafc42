//! The file: what is in it, how it is written, and that it was not changed.

use super::error::{Error, VERSION};
use super::hex::Hex;
use super::key::{Key, PublicKey, Signature};
use crate::engine::{Activations, Chain, Ended, Engine, Grammar, Model, Output, Request, Session, SessionOptions};
use crate::generate::sampling::SamplerOptions;
use crate::models::Recent;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a receipt that is read, at most: of a million tokens it has 80 MB.
pub const LARGEST: u64 = 256 << 20;

/// What a run was. The fields stand in the file in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    /// the version of isobit that made it; not checked
    pub isobit: String,
    /// when, in seconds since 1970 in UTC; not checked
    pub time: u64,
    /// the device, as it names itself; not checked
    pub device: String,
    /// of an adapter its driver; not checked
    pub driver: Option<String>,
    /// the model's name, as its file says
    pub name: String,
    /// SHA-256 of the model's metadata and tensors ([`Model::digest`])
    pub model: Hex<32>,
    /// what decides the logits, in a line ([`Session::fingerprint`])
    pub fingerprint: String,
    /// positions of the session
    pub context: usize,
    /// bits of the activations: 8 or 16
    pub activations: usize,
    /// types of cached keys and values, with `+r64` where there is an f16 copy of recent positions: `f16/f16`
    pub cache: String,
    /// how tokens were chosen
    pub sampling: SamplerOptions,
    /// the grammar that tokens kept to, as it was given
    pub grammar: Option<Grammar>,
    /// tokens at most; `None`: until the text or the context ended
    pub max_tokens: Option<usize>,
    /// whether it went on after an end-of-text token
    pub ignore_end: bool,
    /// the prompt's tokens
    pub prompt: Vec<u32>,
    /// the tokens that came
    pub ids: Vec<u32>,
    /// their text
    pub text: String,
    /// why it ended
    pub ended: Ending,
    /// for each token its link of the chain ([`Chain`])
    pub chain: Vec<Hex<32>>,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// the model gave an end-of-text token
    EndOfText,
    /// as many tokens as were asked for
    Length,
    /// the context was full
    Context,
    /// somebody broke it off; why is not known
    BrokenOff,
}

impl From<Ended> for Ending {
    fn from(ended: Ended) -> Ending {
        match ended {
            Ended::EndOfText => Ending::EndOfText,
            Ended::Length => Ending::Length,
            Ended::Context => Ending::Context,
            Ended::BrokenOff => Ending::BrokenOff,
        }
    }
}

impl Ending {
    /// As it stands in the file.
    pub fn name(self) -> &'static str {
        match self {
            Ending::EndOfText => "end_of_text",
            Ending::Length => "length",
            Ending::Context => "context",
            Ending::BrokenOff => "broken_off",
        }
    }
}

/// A receipt: what a run was, and a signature where somebody put one.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// what the run was
    pub body: Body,
    /// who says so
    pub signature: Option<Signature>,
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    isobit_receipt: u32,
    receipt: Body,
    sha256: Hex<32>,
    signature: Option<Signature>,
}

impl File {
    /// What is in it, where it has the hash that stands beside it.
    fn unchanged(self) -> Result<Receipt, Error> {
        let File { receipt: body, sha256, signature, .. } = self;
        let found = Hex(Sha256::digest(body.bytes()).into());
        if found != sha256 {
            return Err(Error::Changed { found, carried: sha256 });
        }
        Ok(Receipt { body, signature })
    }
}

/// Of a file of any version.
#[derive(Deserialize)]
struct Version {
    isobit_receipt: u64,
}

/// What makes a run: a model with options on a device.
#[derive(Clone, Debug)]
pub struct Maker<'a> {
    /// the model
    pub model: &'a Model,
    /// the session's options, with the context that it has
    pub options: SessionOptions,
    /// the device, as it names itself
    pub device: &'a str,
    /// of an adapter its driver
    pub driver: Option<&'a str>,
    /// when, in seconds since 1970
    pub time: u64,
}

/// Seconds since 1970; 0 before.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

impl<'a> From<&'a Session> for Maker<'a> {
    fn from(s: &'a Session) -> Maker<'a> {
        Maker { model: s.model(), options: s.options(), device: s.device(), driver: s.driver(), time: now() }
    }
}

impl<'a> From<&'a Engine> for Maker<'a> {
    fn from(e: &'a Engine) -> Maker<'a> {
        Maker { model: e.model(), options: e.options(), device: e.device(), driver: e.driver(), time: now() }
    }
}

/// The receipt of what a session or an engine has made of a request that asked for a chain ([`Request::chain`]). Its text is
/// that of its tokens, whatever a caller has cut off after them.
///
/// Errors: an output without its chain ([`Error::Unsound`]); those of [`Model::digest`].
pub fn make<'a>(maker: impl Into<Maker<'a>>, request: &Request, output: &Output) -> Result<Receipt, Error> {
    let Maker { model, options, device, driver, time } = maker.into();
    let digest = model.digest()?;
    let told = Output::of(model, options.context, request, &output.prompt, &output.ids)
        .ok_or_else(|| Error::Unsound("tokens come after the end of the text".into()))?;
    let body = Body {
        isobit: env!("CARGO_PKG_VERSION").into(),
        time,
        device: device.into(),
        driver: driver.map(str::to_string),
        name: model.name().into(),
        model: Hex::parse(digest).ok_or_else(|| Error::Unsound(format!("{digest} is no digest")))?,
        fingerprint: model.fingerprint(&options)?,
        context: options.context,
        activations: options.activations.bits(),
        cache: options.recent.title(options.k_type, options.v_type),
        sampling: request.sampling.clone(),
        grammar: request.grammar.as_ref().map(|g| g.grammar().clone()),
        max_tokens: (request.max_tokens < usize::MAX).then_some(request.max_tokens),
        ignore_end: request.ignore_end,
        prompt: output.prompt.clone(),
        ids: output.ids.clone(),
        text: told.text,
        ended: told.ended.into(),
        chain: output.chain.iter().copied().map(Hex).collect(),
    };
    body.sound()?;
    let receipt = Receipt { body, signature: None };
    // a number that would not be read back as it was written must not be found out by whoever checks
    Receipt::parse(&receipt.to_bytes())?;
    Ok(receipt)
}

impl Body {
    /// What can be seen without a model.
    fn sound(&self) -> Result<(), Error> {
        let (tokens, links) = (self.ids.len(), self.chain.len());
        let wrong = |why: String| Err(Error::Unsound(why));
        match () {
            () if tokens != links => wrong(format!("{tokens} tokens and {links} links of their chain")),
            () if self.prompt.is_empty() => wrong("its prompt has no tokens".into()),
            () if self.prompt.len() + tokens > self.context.saturating_add(1) => {
                wrong(format!("{} tokens and {tokens} after them in a context of {}", self.prompt.len(), self.context))
            }
            () if self.max_tokens.is_some_and(|most| tokens > most) => {
                wrong(format!("{tokens} tokens, of which {} were asked for", self.max_tokens.unwrap_or_default()))
            }
            () => self.options().map(drop),
        }
    }

    /// The options of a session that can check it.
    ///
    /// Errors: [`Error::Unsound`].
    pub fn options(&self) -> Result<SessionOptions, Error> {
        let (k_type, v_type, recent) = Recent::parse_types(&self.cache).map_err(Error::Unsound)?;
        let activations = match self.activations {
            8 => Activations::Bits8,
            16 => Activations::Bits16,
            other => return Err(Error::Unsound(format!("activations of {other} bits, 8 or 16 expected"))),
        };
        let (context, checkpoints) = (self.context, 0);
        let options = SessionOptions { context, activations, k_type, v_type, recent, ..SessionOptions::default() };
        Ok(SessionOptions { checkpoints, ..options })
    }

    /// As [`Body::options`], with no more context than its tokens take, where that changes no logit.
    ///
    /// Errors: those of [`Body::options`] and [`Model::digest`].
    pub fn least(&self, model: &Model) -> Result<SessionOptions, Error> {
        let all = self.options()?;
        let least = SessionOptions { context: (self.prompt.len() + self.ids.len()).min(self.context), ..all };
        Ok(if model.fingerprint(&least)? == model.fingerprint(&all)? { least } else { all })
    }

    /// The request that brings it up, with its chain.
    ///
    /// Errors: a grammar that is none for this model.
    pub fn request(&self, model: &Model) -> Result<Request, Error> {
        let grammar = self.grammar.as_ref().map(|g| model.grammar(g)).transpose()?;
        Ok(Request {
            max_tokens: self.max_tokens.unwrap_or(usize::MAX),
            sampling: self.sampling.clone(),
            ignore_end: self.ignore_end,
            grammar,
            chain: true,
            ..Request::new(self.prompt.as_slice())
        })
    }

    /// The chain before token `index`, as it stands in the receipt.
    pub fn chain_at(&self, index: usize) -> Chain {
        match index.checked_sub(1) {
            None => Chain::new(&self.fingerprint, &self.prompt),
            Some(before) => Chain::at(self.chain[before].0),
        }
    }

    /// What names the run: the first 16 digits of its last link, so the same tokens from the same logits have the same name.
    pub fn id(&self) -> String {
        let last = Hex(self.chain_at(self.ids.len()).link());
        last.to_string()[..16].to_string()
    }

    /// Its bytes in the file, which are hashed and signed.
    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|e| unreachable!("numbers and texts: {e}"))
    }
}

impl Receipt {
    /// The file: one line of JSON, and a line's end.
    pub fn to_bytes(&self) -> Vec<u8> {
        let content = self.body.bytes();
        let hash = Hex(Sha256::digest(&content).into());
        let mut bytes = format!("{{\"isobit_receipt\":{VERSION},\"receipt\":").into_bytes();
        bytes.extend(content);
        bytes.extend(format!(",\"sha256\":\"{hash}\",\"signature\":").bytes());
        match &self.signature {
            None => bytes.extend(b"null"),
            Some(Signature { key, value }) => {
                bytes.extend(format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}").bytes());
            }
        }
        bytes.extend(b"}\n");
        bytes
    }

    /// Reads a file that was not changed: every byte of it is what [`Receipt::to_bytes`] writes for its content, the content
    /// has the hash that stands beside it, and a signature is of its key over the content. Whether the run took place is
    /// for [`check`](super::check()) to say.
    ///
    /// Errors: [`Error`], which says what is wrong and where.
    pub fn parse(bytes: &[u8]) -> Result<Receipt, Error> {
        let shape = |e: serde_json::Error| Error::Shape(e.to_string());
        let version: Version = serde_json::from_slice(bytes).map_err(shape)?;
        if version.isobit_receipt != u64::from(VERSION) {
            return Err(Error::Version(version.isobit_receipt));
        }
        let file: File = serde_json::from_slice(bytes).map_err(shape)?;
        let receipt = file.unchanged()?;
        let written = receipt.to_bytes();
        if written != bytes {
            let same = written.iter().zip(bytes).take_while(|(a, b)| a == b).count();
            return Err(Error::Spelling(same));
        }
        receipt.signed_and_sound()
    }

    /// As [`Receipt::parse`], of JSON that somebody has read and may write in another way: its content has the hash that
    /// stands beside it, and a signature is of its key over the content.
    ///
    /// Errors: as there.
    pub fn from_value(value: &serde_json::Value) -> Result<Receipt, Error> {
        let shape = |e: serde_json::Error| Error::Shape(e.to_string());
        let version = Version::deserialize(value).map_err(shape)?;
        if version.isobit_receipt != u64::from(VERSION) {
            return Err(Error::Version(version.isobit_receipt));
        }
        File::deserialize(value).map_err(shape)?.unchanged()?.signed_and_sound()
    }

    fn signed_and_sound(self) -> Result<Receipt, Error> {
        if let Some(signature) = &self.signature {
            signature.verify(&self.body.bytes())?;
        }
        self.body.sound()?;
        Ok(self)
    }

    /// Signs it.
    pub fn sign(&mut self, key: &Key) {
        self.signature = Some(key.sign(&self.body.bytes()));
    }

    /// Whether it is signed with this key.
    ///
    /// Errors: [`Error::Unsigned`], [`Error::Signer`], [`Error::Signature`].
    pub fn signed_by(&self, key: &PublicKey) -> Result<(), Error> {
        match &self.signature {
            None => Err(Error::Unsigned(key.0)),
            Some(s) if s.key != key.0 => Err(Error::Signer { found: s.key, expected: key.0 }),
            Some(s) => s.verify(&self.body.bytes()),
        }
    }
}
