//! Text to token ids and back.
//!
//! Two sources: the `tokenizer.ggml.*` keys of a GGUF file (byte-level BPE and SentencePiece, our own code; WordPiece), and a
//! Hugging Face `tokenizer.json` (the `tokenizers` crate). Both are untrusted: whatever they hold, loading gives a
//! tokeniser or one clear error, and encoding and decoding never panic.
//!
//! Nothing here knows of chat templates, models or devices.

mod bpe;
mod json;
mod special;
mod spm;
mod steps;
mod unigram;
mod wordpiece;

use crate::formats::Container;
use crate::formats::meta::{Meta, Value};
use anyhow::{Context, Result, anyhow, bail, ensure};
use special::{Fragment, Special, Specials};
use std::collections::HashMap;

/// What a vocabulary entry is for (the numbers of `tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// A vocabulary with its rules. Immutable; share it by reference or `Arc`.
#[derive(Debug)]
pub struct Tokenizer {
    /// text of each id; `None` for ids that a `tokenizer.json` leaves out
    texts: Vec<Option<Box<str>>>,
    /// bytes each id adds to the text
    pieces: Vec<Box<[u8]>>,
    bos: Option<u32>,
    /// the ids that go before a text: BOS, or what stands in its place
    start: Vec<u32>,
    /// the ids that go behind a text where those go before it: `[SEP]` of encoders
    end: Vec<u32>,
    /// the ids that the file puts behind every whole text; of models that generate none can go on from there
    closing: Vec<u32>,
    eos: Vec<u32>,
    adds_bos: bool,
    /// encoding put a space before the text, so decoding takes one away
    strips_first_space: bool,
    borders: Borders,
    reach: Option<Reach>,
    /// the file, for messages; empty where it is not known
    origin: String,
    engine: Engine,
}

/// How much of a text one id can stand for, where that is known.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// bytes, at most
    bytes: usize,
    /// white space beside a special token costs no id
    strips: bool,
}

/// Where a text can be cut in two whose ids, one after the other, are the ids of the whole.
#[derive(Debug)]
enum Borders {
    /// nowhere that is known
    None,
    /// between a newline after something that is no white space and a letter of ASCII: every split rule of byte-level BPE
    /// cuts there, whatever comes before and after, and none looks further; no special token spans it
    Lines,
    /// between two characters that no token and no special token has side by side, the second no white space
    Pairs(spm::Pairs),
}

/// Bytes of text that are tokenised at once, about: up to the first border after so many.
const PIECE: usize = 1 << 16;

/// Whether a token's text reaches from a newline to a letter of ASCII.
fn spans_a_line(text: &str) -> bool {
    text.as_bytes().windows(2).any(|w| w[0] == b'\n' && w[1].is_ascii_alphabetic())
}

impl Borders {
    /// The first border at byte `from` or after it, else the end of the text.
    fn next(&self, text: &str, from: usize) -> usize {
        let mut from = from.clamp(1, text.len().max(1));
        match self {
            Borders::None => text.len(),
            Borders::Lines => {
                let bytes = text.as_bytes();
                from -= 1;
                while let Some(at) = bytes.get(from..).and_then(|rest| rest.iter().position(|b| *b == b'\n')) {
                    let line = from + at;
                    let after = text[..line].chars().next_back().is_some_and(|c| !c.is_whitespace());
                    if after && bytes.get(line + 1).is_some_and(u8::is_ascii_alphabetic) {
                        return line + 1;
                    }
                    from = line + 1;
                }
                text.len()
            }
            Borders::Pairs(pairs) => {
                let from = (from..text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len());
                let mut last = text[..from].chars().next_back();
                for (at, c) in text[from..].char_indices() {
                    if last.is_some_and(|x| !c.is_whitespace() && !pairs.may_join(x, c)) {
                        return from + at;
                    }
                    last = Some(c);
                }
                text.len()
            }
        }
    }
}

#[derive(Debug)]
enum Engine {
    Bpe(Specials, Box<bpe::Bpe>),
    Spm { specials: Specials, spm: Box<spm::Spm>, space_prefix: bool },
    Json(Box<json::Json>),
}

/// Texts that end a turn or a document in the models this engine runs. A token with one of these texts ends generation
/// even where the file does not say so, as in llama.cpp.
const END_TEXTS: [&str; 14] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<EOT>",
    "[EOT]",
    "<|return|>",
    "<end_of_utterance>",
    // Gemma 4's; behind the second the answer of a tool would stand
    "<turn|>",
    "<|tool_response>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
];

/// Texts of tokens that end a turn of a ChatGLM besides: another's turn begins.
const CHATGLM_END_TEXTS: [&str; 2] = ["<|user|>", "<|observation|>"];

/// Control tokens of ChatGLM2 and ChatGLM3 that are written as syllables: text never becomes them.
const CHATGLM_SYLLABLES: [&str; 2] = ["sop", "eop"];

/// The two tokens that every text for a ChatGLM begins with, `[gMASK]` and `<sop>` (`sop` before GLM-4): without them the
/// models answer poorly. Nothing where the vocabulary lacks one.
fn chatglm_start(id_of: impl Fn(&str) -> Option<u32>) -> Vec<u32> {
    match (id_of("[gMASK]"), id_of("<sop>").or_else(|| id_of("sop"))) {
        (Some(mask), Some(begin)) => vec![mask, begin],
        _ => vec![],
    }
}

/// Text from a file, quoted and cut to a length that fits an error line.
fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// The byte that a token text of exactly the form `<0xXX>` (two hexadecimal digits) means.
fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let plain = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if plain { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// A scalar array of any numeric type as f64; `None` when absent or not numeric.
fn numbers(meta: &Meta, key: &str) -> Result<Option<Vec<f64>>> {
    let scalar = |v: &Value| match *v {
        Value::U8(v) => Some(v.into()),
        Value::I8(v) => Some(v.into()),
        Value::U16(v) => Some(v.into()),
        Value::I16(v) => Some(v.into()),
        Value::U32(v) => Some(v.into()),
        Value::I32(v) => Some(v.into()),
        Value::F32(v) => Some(v.into()),
        Value::U64(v) => Some(v as f64),
        Value::I64(v) => Some(v as f64),
        Value::F64(v) => Some(v),
        _ => None,
    };
    let Some(value) = meta.get(key) else {
        return Ok(None);
    };
    let list = match value {
        Value::F32Array(v) => Some(v.iter().map(|&v| v.into()).collect()),
        Value::I32Array(v) => Some(v.iter().map(|&v| v.into()).collect()),
        Value::U32Array(v) => Some(v.iter().map(|&v| v.into()).collect()),
        Value::Array(v) => v.iter().map(scalar).collect::<Option<Vec<f64>>>(),
        _ => None,
    };
    list.map(Some).with_context(|| format!("{key}: expected an array of numbers"))
}

/// Reads the keys of one vocabulary.
struct Source<'a> {
    meta: &'a Meta,
    tokens: Vec<String>,
    kinds: Vec<Kind>,
}

impl Source<'_> {
    /// A special id: `None` when absent, negative or all ones, which is -1 in a type without a sign; an id outside the vocabulary is an error.
    fn special(&self, name: &str) -> Result<Option<u32>> {
        let key = format!("tokenizer.ggml.{name}");
        let none = [i128::from(u32::MAX), i128::from(u64::MAX)];
        let Some(id) = self.meta.typed::<i128>(&key)?.filter(|id| *id >= 0 && !none.contains(id)) else {
            return Ok(None);
        };
        ensure!(id < self.tokens.len() as i128, "{key} = {id}, but the vocabulary has {} tokens", self.tokens.len());
        Ok(Some(id as u32))
    }

    /// What the file puts behind every text: EOS, or another token that tells texts apart.
    fn closing(&self, eos: Option<u32>) -> Result<Vec<u32>> {
        let asked = |key: &str| anyhow::Ok(self.meta.typed(&format!("tokenizer.ggml.{key}"))? == Some(true));
        let id = match (asked("add_eos_token")?, asked("add_sep_token")?) {
            (true, _) => eos,
            // so it is spelt
            (false, true) => self.special("seperator_token_id")?,
            _ => None,
        };
        Ok(id.into_iter().collect())
    }

    /// What goes before a text of an encoder with merges and behind it: `<s>` and `</s>` of RoBERTa. The BOS and EOS of its file,
    /// as llama.cpp has it, else what a BERT calls them; `bos`, `eos`: where it names neither.
    fn encoder_ends(&self, bos: Option<u32>, eos: Option<u32>) -> Result<(Vec<u32>, Vec<u32>)> {
        let start = self.special("bos_token_id")?.or(self.special("cls_token_id")?).or(bos);
        // so it is spelt
        let sep = self.special("seperator_token_id")?.or(self.special("separator_token_id")?);
        let end = self.special("eos_token_id")?.or(sep).or(eos);
        Ok((start.into_iter().collect(), end.into_iter().collect()))
    }

    /// Added tokens as merges of characters lead to them: converters write their spaces as such, and merges with U+2581.
    fn spelt(&self, is_raw: bool) -> Vec<(String, u32)> {
        let all = self.tokens.iter().zip(&self.kinds).zip(0..);
        let added = all.filter(|((_, kind), _)| is_raw && matches!(kind, Kind::UserDefined));
        added.map(|((token, _), id)| (token.replace(' ', spm::SPACE), id)).collect()
    }

    /// The id of every text; `spelt`: of other spellings, where no token is written so.
    fn by_text<'a>(&'a self, spelt: &'a [(String, u32)]) -> HashMap<&'a str, u32> {
        let own = self.tokens.iter().zip(0..).map(|(t, id)| (t.as_str(), id));
        spelt.iter().map(|(t, id)| (t.as_str(), *id)).chain(own).collect()
    }

    /// A default of the format, taken only where that id can be a marker: a vocabulary whose id 11 is a comma has no
    /// end there.
    fn fallback(&self, id: u32) -> Option<u32> {
        let at = id as usize;
        let marker = matches!(self.kinds.get(at)?, Kind::Control | Kind::Unknown) || self.tokens[at].starts_with('<');
        marker.then_some(id)
    }
}

impl Tokenizer {
    /// The tokeniser of a container. Errors name the file they are about.
    pub fn read(c: &Container) -> Result<Tokenizer> {
        let file = c.described_by();
        // either may have been taken from another model
        let has_keys = c.meta.get("tokenizer.ggml.model").is_some();
        if has_keys || (c.kind.is_named_as_gguf() && c.tokenizer_json.is_none()) {
            let mut t = Tokenizer::from_gguf(&c.meta).with_context(|| format!("{}: tokeniser", file.display()))?;
            t.origin = file.display().to_string();
            return Ok(t);
        }
        let dir = file.parent().unwrap_or(file);
        let json = c.tokenizer_json.as_deref().with_context(|| {
            // sentencepiece's own file is read by quantize alone
            format!("{}: no tokenizer.json in it (a GGUF file made of it takes tokenizer.model)", dir.display())
        })?;
        let (config, generation) = (c.tokenizer_config.as_ref(), c.generation_config.as_ref());
        // its errors begin with the name of a file of this directory
        let mut t = Tokenizer::from_tokenizer_json(json, config, generation, c.config.as_ref())
            .map_err(|e| anyhow!("{}", dir.join(format!("{e:#}")).display()))?;
        t.origin = dir.join("tokenizer.json").display().to_string();
        Ok(t)
    }

    /// The vocabulary of a GGUF file: `tokenizer.ggml.model` `gpt2` (byte-level BPE), `gemma4` (BPE over characters), `llama`
    /// (SentencePiece with scores), `bert` (WordPiece) or `t5` (SentencePiece's Unigram), keys as in the GGUF specification and
    /// llama.cpp's loader.
    ///
    /// Departures from llama.cpp: a special id outside the vocabulary, a token listed twice and a merge that names an
    /// unknown token are errors; the default ids of BOS and EOS (1 and 2 for SentencePiece, 11 for BPE) are taken only
    /// when that token is a marker; ordinary text never becomes a control, unknown or byte token. Texts for
    /// `general.architecture` `chatglm` or `glm4` begin with `[gMASK]` and `<sop>` (`sop`), whatever `add_bos_token` says. A missing
    /// `tokenizer.ggml.pre` is a warning and the default rule; a name that is not known is an error.
    pub fn from_gguf(meta: &Meta) -> Result<Tokenizer> {
        let model = meta
            .typed("tokenizer.ggml.model")?
            .context("tokenizer.ggml.model is missing: the file has no tokeniser")?;
        let is_spm = match model {
            "llama" => true,
            "gpt2" | bpe::CHARACTERS => false,
            "bert" => return wordpiece::from_gguf(meta),
            "t5" => return unigram::from_gguf(meta),
            other => bail!(
                "tokenizer.ggml.model: {} is not supported; known are gpt2, llama, gemma4, bert and t5",
                shown(other)
            ),
        };
        let rule = if is_spm {
            None
        } else {
            Some(match meta.typed("tokenizer.ggml.pre")? {
                _ if model == bpe::CHARACTERS => bpe::Rule::named(bpe::CHARACTERS)?,
                Some(name) => bpe::Rule::named(name)?,
                None => {
                    log::warn!(
                        "tokenizer.ggml.pre is missing: splitting text by the default rule, which may not be the model's"
                    );
                    bpe::Rule::named("default")?
                }
            })
        };
        let is_raw = rule.as_ref().is_some_and(bpe::Rule::is_of_characters);
        let mut source = read_vocabulary(meta, is_spm || is_raw)?;
        let count = source.tokens.len();

        let (default_bos, default_eos) = match &rule {
            None => (Some(1), Some(2)),
            Some(rule) => (rule.default_bos.then_some(11), Some(11)),
        };
        let bos = source.special("bos_token_id")?.or(default_bos.and_then(|id| source.fallback(id)));
        let eos = source.special("eos_token_id")?.or(default_eos.and_then(|id| source.fallback(id)));
        let unknown = source.special("unknown_token_id")?.or(if is_spm { source.fallback(0) } else { None });
        let mut ends: Vec<u32> = eos.into_iter().collect();
        ends.extend(source.special("eot_token_id")?);
        ends.extend(source.special("eom_token_id")?);
        let is_chatglm = matches!(meta.typed::<&str>("general.architecture")?, Some("chatglm" | "glm4"));
        let ends_text = |text: &str| END_TEXTS.contains(&text) || is_chatglm && CHATGLM_END_TEXTS.contains(&text);
        for id in (0..count).filter(|id| ends_text(&source.tokens[*id])).collect::<Vec<_>>() {
            ends.push(id as u32);
            if source.kinds[id] != Kind::Control {
                // Gemma 4's converters mark what a chat's parser reads as text
                let told = if is_raw { log::Level::Debug } else { log::Level::Warn };
                let text = &source.tokens[id];
                log::log!(told, "token {id} {text} is not marked as a control token: taking it for one");
                source.kinds[id] = Kind::Control;
            }
        }
        dedup(&mut ends);

        // Phi-3's markers swallow the white space after them; the format has no field for it. llama.cpp goes by the
        // model's name, which anyone may change; the architecture says as much where the vocabulary is SentencePiece
        // (Phi-4, of the same architecture but byte-level, does not strip).
        let name = meta.typed::<&str>("general.name")?.unwrap_or("").to_lowercase();
        let is_phi3 = is_spm && meta.typed::<&str>("general.architecture")? == Some("phi3");
        let strips = is_phi3 || name.contains("phi-3") || name.contains("phi3");
        let listed = source.tokens.iter().zip(&source.kinds).enumerate();
        let specials = listed
            .filter(|(_, (_, kind))| matches!(kind, Kind::Control | Kind::UserDefined | Kind::Unknown))
            .filter(|(_, (text, _))| !(is_chatglm && CHATGLM_SYLLABLES.contains(&text.as_str())))
            .map(|(id, (text, kind))| Special {
                text: text.clone(),
                id: id as u32,
                always: *kind == Kind::UserDefined,
                strip_right: strips && !["<unk>", "<s>", "<|endoftext|>"].contains(&text.as_str()),
            })
            .collect();
        let specials = Specials::new(specials);

        let is_text = is_spm || is_raw;
        let pieces = (0..count).map(|id| piece_of(&source.tokens[id], source.kinds[id], is_text).into()).collect();
        let space_prefix = meta.typed("tokenizer.ggml.add_space_prefix")?.unwrap_or(is_spm);
        let by_default = rule.as_ref().is_none_or(|rule| rule.add_bos);
        let mut adds_bos = meta.typed("tokenizer.ggml.add_bos_token")?.unwrap_or(by_default) && bos.is_some();
        let mut start: Vec<u32> = bos.into_iter().collect();
        if is_chatglm {
            let id_of = |text: &str| source.tokens.iter().position(|t| t == text).map(|id| id as u32);
            start = chatglm_start(id_of);
            adds_bos = !start.is_empty();
        }
        let (mut closing, mut end) = (source.closing(eos)?, Vec::new());
        if matches!(meta.typed::<&str>("general.architecture")?, Some("bert" | "nomic-bert" | "modern-bert")) {
            (start, end) = source.encoder_ends(bos, eos)?;
            adds_bos = meta.typed("tokenizer.ggml.add_bos_token")?.unwrap_or(true) && !start.is_empty();
            closing = end.clone();
        }
        // an unknown token stands for a character, or for a byte
        let bytes = source.tokens.iter().map(String::len).fold(4, usize::max);
        let reach = Some(Reach { bytes, strips: specials.strips() });
        let borders = if is_spm {
            Borders::Pairs(spm::Pairs::new(source.tokens.iter().map(String::as_str).chain(specials.texts())))
        } else if specials.texts().any(spans_a_line) {
            Borders::None
        } else {
            Borders::Lines
        };
        let engine = match rule {
            None => Engine::Spm { spm: Box::new(read_spm(&source, unknown)?), specials, space_prefix },
            Some(rule) => {
                let spelt = source.spelt(is_raw);
                let ids: HashMap<&str, u32> = source.by_text(&spelt);
                let usable = |id: u32| matches!(source.kinds[id as usize], Kind::Normal | Kind::UserDefined);
                let merges: Option<&[String]> = meta.typed("tokenizer.ggml.merges")?;
                let merges = merges
                    .with_context(|| format!("tokenizer.ggml.merges is missing: {model} vocabularies need it"))?;
                Engine::Bpe(specials, Box::new(bpe::Bpe::new(rule, &ids, usable, merges, unknown)?))
            }
        };
        Ok(Tokenizer {
            texts: source.tokens.into_iter().map(|t| Some(t.into())).collect(),
            pieces,
            bos,
            start,
            end,
            closing,
            eos: ends,
            adds_bos,
            strips_first_space: is_spm && space_prefix,
            borders,
            reach,
            origin: String::new(),
            engine,
        })
    }

    /// A Hugging Face `tokenizer.json`, with what the files beside it say of special tokens: `config` is
    /// `tokenizer_config.json`, `generation_config` and `model_config` the files of those names.
    ///
    /// Truncation, padding and dropout settings in the file are ignored. BOS comes from `config`, else from
    /// `generation_config` or `model_config`, else from what the post-processor puts before an empty text; EOS from all
    /// of them together. [`Tokenizer::adds_bos`] is `add_bos_token` of `config`, else what the post-processor does. Where the
    /// model is a ChatGLM (`model_type` `glm`, `glm4` or `chatglm`) texts begin with `[gMASK]` and `<sop>`.
    pub fn from_tokenizer_json(
        json: &[u8],
        config: Option<&serde_json::Value>,
        generation_config: Option<&serde_json::Value>,
        model_config: Option<&serde_json::Value>,
    ) -> Result<Tokenizer> {
        json::load(json, config, generation_config, model_config)
    }

    /// Number of ids: the largest plus one. A model's embedding may have more rows.
    pub fn vocab_size(&self) -> usize {
        self.texts.len()
    }

    /// The id that begins a text, if the vocabulary has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The ids that go before a text where [`Tokenizer::adds_bos`]: BOS, or `[gMASK]` and `<sop>` of a ChatGLM.
    pub fn start(&self) -> &[u32] {
        &self.start
    }

    /// Every id that ends generation: end of text, of turn and of message, named by the file or known by their text.
    /// The one the file names as EOS, if any, is first.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// Whether texts for this model begin with [`Tokenizer::start`] by default.
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// Token ids of `text`.
    ///
    /// With `add_bos` the ids begin with [`Tokenizer::start`] exactly once: it is not put before a text that already begins
    /// with it. Of an encoder they then end with `[SEP]`, in the same way.
    /// With `parse_special` the texts of control tokens become those tokens; without it they are plain text. Texts of
    /// user-defined (GGUF) or added but not special (`tokenizer.json`) tokens always become those tokens.
    ///
    /// Errors: `add_bos` without a BOS in the vocabulary; a byte that the vocabulary cannot express; 1 GiB or more.
    pub fn encode(&self, text: &str, add_bos: bool, parse_special: bool) -> Result<Vec<u32>> {
        self.encode_first(text, add_bos, parse_special, usize::MAX)
    }

    /// Token ids of a text that becomes a vector: as [`Tokenizer::encode`] gives them with what goes before a text by default, and
    /// behind them what the file puts behind every text (`add_eos_token`, a post-processor of `tokenizer.json`): models that
    /// were trained to make vectors of their last token's states need it, and none can generate from there.
    ///
    /// Errors: those of [`Tokenizer::encode`].
    pub fn encode_whole(&self, text: &str, parse_special: bool) -> Result<Vec<u32>> {
        let mut ids = self.encode(text, self.adds_bos, parse_special)?;
        if !ids.ends_with(&self.closing) {
            ids.extend_from_slice(&self.closing);
        }
        Ok(ids)
    }

    /// The first `most` ids of what [`Tokenizer::encode`] gives, exactly. The text is tokenised piece by piece, cut where
    /// no token and no rule reaches across, and no further than is asked for; a text without such a place (a single word of
    /// many megabytes), or a `tokenizer.json` with rules whose places are not known, is tokenised whole.
    pub fn encode_first(&self, text: &str, add_bos: bool, parse_special: bool, most: usize) -> Result<Vec<u32>> {
        self.encode_pieces(text, add_bos, parse_special, most, PIECE).map_err(|e| match self.origin.as_str() {
            "" => e,
            file => e.context(file.to_string()),
        })
    }

    fn encode_pieces(
        &self,
        text: &str,
        add_bos: bool,
        parse_special: bool,
        most: usize,
        piece: usize,
    ) -> Result<Vec<u32>> {
        ensure!(text.len() < 1 << 30, "text of {} bytes: fewer than {} expected", text.len(), 1 << 30);
        let mut ids = Vec::with_capacity((text.len() / 4 + 2).min(most.saturating_add(piece)));
        let mut after_special = true;
        let mut done = 0;
        while done < text.len() && ids.len() < most {
            let end = self.borders.next(text, done.saturating_add(piece));
            self.encode_piece(&text[done..end], parse_special, &mut after_special, &mut ids)?;
            done = end;
        }
        if add_bos {
            ensure!(!self.start.is_empty(), "a BOS token was asked for, but the vocabulary has none");
            if !ids.starts_with(&self.start) {
                ids.splice(0..0, self.start.iter().copied());
            }
            if !ids[self.start.len()..].ends_with(&self.end) {
                ids.extend_from_slice(&self.end);
            }
        }
        ids.truncate(most);
        Ok(ids)
    }

    /// How many ids a text has at least; for judging one before it is tokenised. 0 where nothing is known.
    pub fn least_ids(&self, text: &str) -> usize {
        let Some(reach) = self.reach else { return 0 };
        let bytes = match reach.strips {
            false => text.len(),
            true => text.chars().filter(|c| !c.is_whitespace()).map(char::len_utf8).sum(),
        };
        bytes.div_ceil(reach.bytes)
    }

    /// Appends the ids of a part of a text. `after_special`: whether the part before it ended with a special token, or
    /// there is none.
    fn encode_piece(
        &self,
        text: &str,
        parse_special: bool,
        after_special: &mut bool,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        match &self.engine {
            Engine::Bpe(specials, bpe) => {
                for fragment in specials.split(text, parse_special) {
                    match fragment {
                        Fragment::Token(id) => ids.push(id),
                        Fragment::Text(part) => bpe.encode(part, ids)?,
                    }
                }
            }
            Engine::Spm { specials, spm, space_prefix } => {
                // A space goes before the text and after every special token, as llama.cpp has it.
                for fragment in specials.split(text, parse_special) {
                    match fragment {
                        Fragment::Token(id) => ids.push(id),
                        Fragment::Text(part) if *space_prefix && *after_special => {
                            spm.encode(&[" ", part].concat(), ids)?
                        }
                        Fragment::Text(part) => spm.encode(part, ids)?,
                    }
                    *after_special = matches!(fragment, Fragment::Token(_));
                }
            }
            Engine::Json(json) => ids.extend(json.encode(text, parse_special)?),
        }
        Ok(())
    }

    /// The bytes that `id` adds to a text, which may be part of a character. Empty for control and unknown tokens and
    /// for ids outside the vocabulary.
    pub fn piece(&self, id: u32) -> Vec<u8> {
        self.piece_bytes(id).to_vec()
    }

    fn piece_bytes(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize).map_or(&[], |p| p)
    }

    /// The vocabulary's own spelling of `id`, for tables. `None` outside the vocabulary.
    pub fn token_text(&self, id: u32) -> Option<String> {
        self.texts.get(id as usize)?.as_deref().map(String::from)
    }

    /// The text of `ids`, taken as a whole text: where encoding puts a space before a text, the first piece loses one.
    /// Bytes that are not UTF-8 become U+FFFD, as [`String::from_utf8_lossy`] has it.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = StreamDecoder::new();
        let mut text = String::new();
        for &id in ids {
            stream.feed(self, id, &mut text);
        }
        text.push_str(&stream.finish());
        text
    }
}

/// Turns ids into text one by one, holding back the bytes of a character until it is whole. The texts it returns, put
/// together, are [`Tokenizer::decode`] of all the ids.
#[derive(Clone, Debug, Default)]
pub struct StreamDecoder {
    held: Vec<u8>,
    /// some text has come, or the ids continue a text
    begun: bool,
}

impl StreamDecoder {
    /// For ids that begin a text.
    pub fn new() -> StreamDecoder {
        StreamDecoder::default()
    }

    /// For ids that go on from a text already shown, such as a prompt: a first space is kept.
    pub fn continuing() -> StreamDecoder {
        StreamDecoder { held: Vec::new(), begun: true }
    }

    /// Takes the next id of `tokenizer` and returns what can be shown of the text so far unshown.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        let mut text = String::new();
        self.feed(tokenizer, id, &mut text);
        text
    }

    /// The end: an incomplete character, if one is held back, becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        String::from_utf8_lossy(&rest).into_owned()
    }

    fn feed(&mut self, tokenizer: &Tokenizer, id: u32, out: &mut String) {
        let mut piece = tokenizer.piece_bytes(id);
        if !self.begun && !piece.is_empty() {
            self.begun = true;
            if tokenizer.strips_first_space {
                piece = piece.strip_prefix(b" ").unwrap_or(piece);
            }
        }
        self.held.extend_from_slice(piece);
        let mut shown = 0;
        for chunk in self.held.utf8_chunks() {
            out.push_str(chunk.valid());
            shown += chunk.valid().len();
            let bad = chunk.invalid();
            // At the very end it may be the beginning of a character; anywhere else it is an error.
            let unfinished = shown + bad.len() == self.held.len()
                && std::str::from_utf8(bad).is_err_and(|e| e.error_len().is_none());
            if unfinished || bad.is_empty() {
                break;
            }
            out.push('\u{fffd}');
            shown += bad.len();
        }
        self.held.drain(..shown);
    }
}

/// Keeps the first of equal ids, in order.
fn dedup(ids: &mut Vec<u32>) {
    let mut seen = std::collections::HashSet::new();
    ids.retain(|&id| seen.insert(id));
}

/// The bytes of a GGUF token. llama.cpp's `token_to_piece` without special tokens.
fn piece_of(text: &str, kind: Kind, is_spm: bool) -> Vec<u8> {
    match kind {
        Kind::Control | Kind::Unknown | Kind::Unused => Vec::new(),
        Kind::UserDefined => text.as_bytes().to_vec(),
        Kind::Byte => byte_token(text).into_iter().collect(),
        Kind::Normal if is_spm => text.replace(spm::SPACE, " ").into_bytes(),
        Kind::Normal => bpe::bytes_of(text, true),
    }
}

/// Tokens and their kinds, with every check that does not depend on the model.
fn read_vocabulary(meta: &Meta, is_spm: bool) -> Result<Source<'_>> {
    let mut tokens = meta
        .typed::<&[String]>("tokenizer.ggml.tokens")?
        .context("tokenizer.ggml.tokens is missing: the file has no tokeniser")?
        .to_vec();
    let count = tokens.len();
    ensure!(
        (1..=i32::MAX as usize).contains(&count),
        "tokenizer.ggml.tokens: {count} tokens, between 1 and {} expected",
        i32::MAX
    );
    for (id, token) in tokens.iter_mut().enumerate() {
        if token.is_empty() {
            *token = format!("[EMPTY_{id}]");
        }
    }
    let mut seen = HashMap::with_capacity(count);
    for (id, token) in tokens.iter().enumerate() {
        if let Some(first) = seen.insert(token.as_str(), id) {
            bail!("tokenizer.ggml.tokens: {first} and {id} are both {}", shown(token));
        }
    }
    let types = numbers(meta, "tokenizer.ggml.token_type")?;
    if let Some(types) = &types {
        ensure!(types.len() == count, "tokenizer.ggml.token_type: {} entries for {count} tokens", types.len());
    }
    let kinds = (0..count)
        .map(|id| match types.as_ref().map(|t| t[id] as i64) {
            // Files without types mark their bytes by the spelling alone.
            None if is_spm && byte_token(&tokens[id]).is_some() => Ok(Kind::Byte),
            Some(2) => Ok(Kind::Unknown),
            Some(3) => Ok(Kind::Control),
            Some(4) => Ok(Kind::UserDefined),
            Some(5) => Ok(Kind::Unused),
            Some(6) if byte_token(&tokens[id]).is_some() => Ok(Kind::Byte),
            Some(6) => bail!(
                "tokenizer.ggml.tokens[{id}]: {} is marked as a byte token; <0x00> to <0xFF> expected",
                shown(&tokens[id])
            ),
            // 0 (undefined), 1 (normal) and numbers to come
            _ => Ok(Kind::Normal),
        })
        .collect::<Result<_>>()?;
    Ok(Source { meta, tokens, kinds })
}

fn read_spm(source: &Source, unknown: Option<u32>) -> Result<spm::Spm> {
    let key = "tokenizer.ggml.scores";
    let scores = numbers(source.meta, key)?.with_context(|| format!("{key} is missing: llama vocabularies need it"))?;
    let count = source.tokens.len();
    ensure!(scores.len() == count, "{key}: {} entries for {count} tokens", scores.len());
    let mut tokens = HashMap::with_capacity(count);
    let mut byte_ids = [None; 256];
    let pairs = spm::Pairs::new(source.tokens.iter().map(String::as_str));
    for (id, (text, kind)) in source.tokens.iter().zip(&source.kinds).enumerate() {
        // Adding zero makes -0 a plain zero, so that the total order of floats is their usual order.
        let score = scores[id] as f32 + 0.0;
        ensure!(score.is_finite(), "{key}[{id}] is {score}, a finite number expected");
        match kind {
            Kind::Normal | Kind::UserDefined | Kind::Unused => {
                tokens.insert(text.as_str().into(), (id as u32, score));
            }
            Kind::Byte => {
                if let Some(b) = byte_token(text) {
                    byte_ids[b as usize] = Some(id as u32);
                }
            }
            Kind::Control | Kind::Unknown => {}
        }
    }
    Ok(spm::Spm { longest: source.tokens.iter().map(String::len).max().unwrap_or(0), pairs, tokens, byte_ids, unknown })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(name: &str) -> serde_json::Value {
        let path = format!("{}/tests/data/tokenizer/{name}", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    fn strings(v: &serde_json::Value) -> Vec<String> {
        serde_json::from_value(v.clone()).unwrap()
    }

    fn gguf(entries: Vec<(&str, Value)>) -> Tokenizer {
        let entries = entries.into_iter().map(|(k, v)| (format!("tokenizer.ggml.{k}"), v)).collect();
        Tokenizer::from_gguf(&Meta { entries }).unwrap()
    }

    /// Every kind of tokeniser whose texts are cut.
    fn tokenisers() -> Vec<(String, Tokenizer)> {
        let mut out = Vec::new();
        let v = data("bpe_vocab.json");
        let tokens = strings(&v["tokens"]);
        let mut types = vec![1; tokens.len()];
        types[..2].fill(3);
        for rule in data("bpe_golden.json")["rules"].as_object().unwrap().keys() {
            let t = gguf(vec![
                ("model", Value::Str("gpt2".into())),
                ("pre", Value::Str(rule.clone())),
                ("tokens", Value::StrArray(tokens.clone())),
                ("token_type", Value::I32Array(types.clone())),
                ("merges", Value::StrArray(strings(&v["merges"]))),
            ]);
            out.push((rule.clone(), t));
        }
        for name in ["prefix", "no_prefix"] {
            let v = data(&format!("spm_{name}_vocab.json"));
            let t = gguf(vec![
                ("model", Value::Str("llama".into())),
                ("tokens", Value::StrArray(strings(&v["tokens"]))),
                ("scores", Value::F32Array(serde_json::from_value(v["scores"].clone()).unwrap())),
                ("token_type", Value::I32Array(serde_json::from_value(v["types"].clone()).unwrap())),
                ("add_space_prefix", Value::Bool(v["space_prefix"].as_bool().unwrap())),
            ]);
            out.push((name.into(), t));
        }
        let json = serde_json::to_vec(&data("tiny_tokenizer.json")).unwrap();
        out.push(("tokenizer.json".into(), Tokenizer::from_tokenizer_json(&json, None, None, None).unwrap()));
        out
    }

    #[test]
    fn a_text_in_pieces_has_the_ids_of_the_whole() {
        let mut texts = strings(&data("bpe_golden.json")["texts"]);
        texts.extend(strings(&data("spm_golden.json")["texts"]));
        // each text before and after a border, and lines that begin and end with everything
        let lines: Vec<String> = texts.iter().map(|t| format!("{t}\nKing{t}.\n\nx {t}\n")).collect();
        let all = lines.concat();
        let special = "a</s>\nb <s> c\n<|eos|>d\n  <|bos|>\ne 'tis\nred 12\n3four\n".repeat(3);
        for (name, t) in tokenisers() {
            let mut cuts = 0;
            for text in texts.iter().chain(&lines).chain([&all, &special]) {
                for parse in [false, true] {
                    let whole = t.encode_pieces(text, t.adds_bos(), parse, usize::MAX, usize::MAX).unwrap();
                    for piece in [1, 7, 100] {
                        let pieces = t.encode_pieces(text, t.adds_bos(), parse, usize::MAX, piece).unwrap();
                        assert!(pieces == whole, "{name}, pieces of {piece}: {text:?}");
                    }
                    assert!(t.least_ids(text) <= whole.len(), "{name}: {text:?}");
                }
                let mut at = 0;
                while at < text.len() {
                    at = t.borders.next(text, at + 1);
                    cuts += 1;
                }
            }
            // a tokeniser whose texts are never cut would pass for nothing
            assert!(cuts > 2 * texts.len() + 100, "{name}: {cuts} cuts");
        }
    }

    #[test]
    fn a_border_is_found_at_once_or_not_at_all() {
        let lines = Borders::Lines;
        assert_eq!(lines.next("ab\ncd", 1), 3);
        assert_eq!(lines.next("ab\ncd", 3), 3);
        assert_eq!(lines.next("ab\ncd", 4), 5);
        for none in ["", "ab", "ab\n", "\ncd", "ab \ncd", "ab\n\ncd", "ab\n cd", "ab\n1", "ab\n\u{e9}"] {
            assert_eq!(lines.next(none, 1), none.len(), "{none:?}");
        }
        let pairs = Borders::Pairs(spm::Pairs::new(["ab", "\u{2581}c"].into_iter()));
        assert_eq!([1, 2, 3].map(|from| pairs.next("abdc", from)), [2, 2, 3]);
        // a space stands as U+2581, and no border is before one
        assert_eq!(pairs.next("a c\u{e9}", 1), 3);
        assert_eq!(pairs.next("\u{e9}\u{e9}", 1), 2);
        assert_eq!(pairs.next("", 5), 0);
    }
}
