//! Hugging Face `tokenizer.json`, through the `tokenizers` crate.
//!
//! The crate does the whole of encoding, each of its steps under our watch (`steps`). Decoding is ours, so that single ids
//! can be turned into bytes. The crate trusts its input in places (it slices and unwraps), so the faults known to make it
//! panic are looked for before it sees the file, and what panics all the same is caught and becomes an error.
//!
//! Errors begin with the base name of the file they are about: `tokenizer.json`, `tokenizer_config.json` and so on.
//!
//! `tokenizers` is compiled with its backtracking regex engine: on a text where that gives up (about a million steps
//! back, say a megabyte of spaces before a letter) the crate takes the rest of the text as one word. The ids are then
//! not those of the reference, but they still decode to the text.

use super::steps::{Normalizers, PreTokenizers, flatten, guarded};
use super::{
    Borders, CHATGLM_END_TEXTS, END_TEXTS, Engine, Reach, Tokenizer, bpe, byte_token, chatglm_start, dedup, shown, spm,
};
use crate::formats::json::Fields;
use crate::formats::{encoders, ends};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::OnceLock;
use tokenizers::models::unigram::Unigram;
use tokenizers::{DecoderWrapper, ModelWrapper, PostProcessorWrapper, TokenizerImpl};

/// The crate's tokeniser, with our watch over its steps.
type Inner = TokenizerImpl<ModelWrapper, Normalizers, PreTokenizers, PostProcessorWrapper, DecoderWrapper>;

/// The crate's tokeniser.
pub(super) struct Json {
    inner: Inner,
    /// the same with special tokens taken as text; the crate makes it a setting of the tokeniser, so it is made on first use
    plain: OnceLock<Box<Inner>>,
}

impl std::fmt::Debug for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Json")
    }
}

impl Json {
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>> {
        let tokenizer = if parse_special {
            &self.inner
        } else {
            self.plain.get_or_init(|| {
                let mut plain = self.inner.clone();
                plain.set_encode_special_tokens(true);
                Box::new(plain)
            })
        };
        guarded(|| Ok(tokenizer.encode_fast(text, false)?.get_ids().to_vec()))
    }
}

/// What a token of WordPiece begins with that continues a word.
const CONTINUES: &str = "##";

/// How the decoder of the file turns token texts into bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Decoding {
    byte_level: bool,
    /// U+2581 is a space
    spaces: bool,
    byte_fallback: bool,
    strips_first_space: bool,
    /// what a continuation begins with; other tokens begin a word
    continuing: Option<&'static str>,
}

impl Decoding {
    fn read(&mut self, decoder: &Value) -> Result<()> {
        match decoder["type"].as_str() {
            Some("Sequence") => {
                for part in decoder["decoders"]
                    .as_array()
                    .context("tokenizer.json: decoder: Sequence without a list of decoders")?
                {
                    let nested = part["type"] == "Sequence";
                    ensure!(!nested, "tokenizer.json: decoder: a Sequence inside a Sequence is not supported");
                    self.read(part)?;
                }
            }
            Some("ByteLevel") => self.byte_level = true,
            Some("ByteFallback") => self.byte_fallback = true,
            Some("Fuse") => {}
            // spaces before punctuation stay
            Some("WordPiece") if decoder["prefix"] == CONTINUES => {
                (self.continuing, self.strips_first_space) = (Some(CONTINUES), true);
            }
            Some("Metaspace") => {
                self.spaces = true;
                self.strips_first_space = decoder["prepend_scheme"] != "never" && decoder["add_prefix_space"] != false;
            }
            Some("Replace") if decoder["pattern"]["String"] == spm::SPACE && decoder["content"] == " " => {
                self.spaces = true
            }
            Some("Strip")
                if decoder["content"] == " "
                    && decoder["stop"] == 0
                    && (decoder["start"] == 0 || decoder["start"] == 1) =>
            {
                self.strips_first_space = decoder["start"] == 1;
            }
            _ => bail!("tokenizer.json: decoder {} is not supported", shown(&decoder.to_string())),
        }
        Ok(())
    }

    fn bytes(&self, text: &str) -> Vec<u8> {
        if let Some(prefix) = self.continuing {
            text.strip_prefix(prefix).map_or_else(|| format!(" {text}"), String::from).into_bytes()
        } else if self.byte_level {
            bpe::bytes_of(text, false)
        } else if let Some(byte) = byte_token(text).filter(|_| self.byte_fallback) {
            vec![byte]
        } else if self.spaces {
            text.replace(spm::SPACE, " ").into_bytes()
        } else {
            text.as_bytes().to_vec()
        }
    }
}

/// The checks of a BPE model whose failure would make the crate panic, and a better error for the likeliest fault.
fn check_bpe(model: &Value) -> Result<()> {
    let vocab = model["vocab"].as_object().context("tokenizer.json: model.vocab is missing, or not an object")?;
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or("");
    // each is put to every character of a text
    for (key, affix) in [("prefix", prefix), ("suffix", model["end_of_word_suffix"].as_str().unwrap_or(""))] {
        ensure!(affix.len() <= 64, "tokenizer.json: model: a {key} of {} bytes, expected at most 64", affix.len());
    }
    let merges = model["merges"].as_array().context("tokenizer.json: model.merges is missing, or not an array")?;
    for (rank, merge) in merges.iter().enumerate() {
        let pair = match merge {
            Value::String(s) => s.split_once(' '),
            Value::Array(a) if a.len() == 2 => a[0].as_str().zip(a[1].as_str()),
            _ => None,
        };
        let shown_merge = || shown(&merge.to_string());
        let (left, right) =
            pair.with_context(|| format!("tokenizer.json: merges[{rank}]: {} is not two tokens", shown_merge()))?;
        let tail = right.strip_prefix(prefix).with_context(|| {
            format!("tokenizer.json: merges[{rank}]: {} lacks the prefix {}", shown_merge(), shown(prefix))
        })?;
        for part in [left, right, &[left, tail].concat()] {
            ensure!(
                vocab.contains_key(part),
                "tokenizer.json: merges[{rank}]: {} names {}, which is not in the vocabulary",
                shown_merge(),
                shown(part)
            );
        }
    }
    Ok(())
}

/// The ids under `key`, a number or a list of them, at the top or in `text_config`.
fn id_list(config: &Fields, key: &str) -> Result<Vec<u64>> {
    match (config.get(key), config.object("text_config")?) {
        (None, Some(inner)) => Ok(inner.ids(key)?),
        _ => Ok(config.ids(key)?),
    }
}

/// The same vocabulary with the texts of `hidden` ids such that no text becomes them: the model would take them for pieces like
/// any others. Its other texts and all scores stay.
///
/// A space begins them, which the steps before such a model leave none of.
fn hide(inner: &mut Inner, unknown: Option<usize>, hidden: &[u32]) -> Result<()> {
    let ModelWrapper::Unigram(model) = inner.get_model() else { return Ok(()) };
    let mut vocab: Vec<(String, f64)> = model.iter().cloned().collect();
    for id in hidden {
        if let Some((text, _)) = vocab.get_mut(*id as usize) {
            text.insert(0, ' ');
        }
    }
    let by_bytes = model.byte_fallback();
    let model = guarded(|| Unigram::from(vocab, unknown, by_bytes)).context("tokenizer.json")?;
    inner.with_model(ModelWrapper::Unigram(model));
    Ok(())
}

/// Where texts for this file can be cut without a change of ids, and how many bytes one id covers at most.
///
/// Both are known of the common byte-level tokenisers: no normaliser or NFC, one of the published split rules, and no
/// added token that looks at its neighbours across a cut. Of those in the sentencepiece manner only the second is: a space
/// goes before whatever is tokenised, so that two parts are not the whole.
fn cuts(file: &Value) -> (Borders, Option<Reach>) {
    let steps = |key: &str| file[key].as_array().map_or(&[][..], Vec::as_slice);
    let (normalizers, pre_tokenizers) = (steps("normalizer"), steps("pre_tokenizer"));
    let model = &file["model"];
    let Some(vocab) = model["vocab"].as_object().filter(|_| model["merges"].is_array()) else {
        return (Borders::None, None);
    };
    let added = file["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |t: &Value| t["content"].as_str().unwrap_or("").to_string();
    let longest = vocab.keys().map(String::len).chain(added.iter().map(|t| text(t).len())).fold(1, usize::max);
    let strips = added.iter().any(|t| t["lstrip"] == true || t["rstrip"] == true);

    // a space may stand as U+2581, which only makes it longer
    let spaces = |n: &Value| {
        n["type"] == "Prepend"
            || (n["type"] == "Replace" && n["pattern"]["String"] == " " && n["content"] == spm::SPACE)
    };
    let sentences = normalizers.iter().all(spaces) && pre_tokenizers.iter().all(|p| p["type"] == "Metaspace");
    let bytes = || (0..=255u8).all(|b| vocab.contains_key(&format!("<0x{b:02X}>")));
    if sentences && model["byte_fallback"] == true && bytes() {
        return (Borders::None, Some(Reach { bytes: longest, strips }));
    }

    let nfc = matches!(normalizers, [one] if one["type"] == "NFC");
    let level = |s: &Value, regex: bool| {
        s["type"] == "ByteLevel" && s["add_prefix_space"] == false && (s["use_regex"] != false) == regex
    };
    let split = |s: &Value| {
        let known = s["pattern"]["Regex"].as_str().is_some_and(bpe::is_published);
        s["type"] == "Split" && known && s["behavior"] == "Isolated" && s["invert"] != true
    };
    let rule = match pre_tokenizers {
        [s, l] => split(s) && level(l, false),
        [l] => level(l, true),
        _ => false,
    };
    let across = |t: &Value| {
        let begins = text(t).starts_with(|c: char| c.is_ascii_alphabetic());
        t["single_word"] == true || (t["lstrip"] == true && begins) || super::spans_a_line(&text(t))
    };
    // a byte that has no token would be left out, or be fused with others into an unknown one
    let plain = (nfc || normalizers.is_empty()) && rule && bpe::has_all_bytes(vocab);
    if !plain || added.iter().any(across) {
        return (Borders::None, None);
    }
    // NFC may compose: three times in UTF-8, and a character it replaces may be four times as long
    let bytes = longest * if nfc { 16 } else { 1 };
    (Borders::Lines, Some(Reach { bytes, strips }))
}

/// A file that the crate may see, and what of it is read here.
struct Prepared {
    /// without what is ours to do, or must not be done
    file: Value,
    /// the id that the post-processor puts first
    template: Option<u64>,
    /// the id that it puts last
    end: Option<u64>,
    /// whether the model is one that encoders alone have
    encodes: bool,
    /// the id of what has no piece, of a Unigram
    unknown: Option<usize>,
    decoding: Decoding,
}

fn prepare(json: &[u8]) -> Result<Prepared> {
    let mut file: Value = serde_json::from_slice(json).context("tokenizer.json")?;
    ensure!(file.is_object(), "tokenizer.json: an object expected");
    ensure!(file["model"].is_object(), "tokenizer.json: model is missing, or not an object");
    // A text is never cut short, filled up, or tokenised by chance.
    file["truncation"] = Value::Null;
    file["padding"] = Value::Null;
    if file["model"].get("dropout").is_some() {
        file["model"]["dropout"] = Value::Null;
    }
    // Old files leave the type out.
    if file["model"]["type"] == "BPE" || file["model"].get("merges").is_some() {
        check_bpe(&file["model"])?;
    }
    // 200 is usual; the crate tries every part of a word, and copies it
    let most = &file["model"]["max_input_chars_per_word"];
    ensure!(
        most.as_u64().is_none_or(|n| n <= 1000),
        "tokenizer.json: model.max_input_chars_per_word is {most}, expected at most 1000"
    );
    let (template, end) = (ends::first(&file["post_processor"]), ends::last(&file["post_processor"]));
    // Only what it puts at the ends of a text is of interest, and the crate indexes tables with what is in it.
    file["post_processor"] = Value::Null;
    let mut decoding = Decoding::default();
    decoding.read(&file["decoder"])?;
    ensure!(
        decoding.continuing.is_none() || file["model"]["type"] == "WordPiece",
        "tokenizer.json: decoder WordPiece is for a model of that type"
    );
    // Decoding is ours.
    file["decoder"] = Value::Null;
    for (key, list) in [("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")] {
        let steps = flatten(&file[key], key, list).context("tokenizer.json")?;
        file[key] = if steps.is_empty() { Value::Null } else { Value::Array(steps) };
    }
    let encodes = file["model"]["type"] == "WordPiece" || file["model"]["type"] == "Unigram";
    let unknown = file["model"]["unk_id"].as_u64().and_then(|id| usize::try_from(id).ok());
    Ok(Prepared { file, template, end, encodes, unknown, decoding })
}

/// The text of every id; ids that no text has are `None`.
fn texts_by_id(vocabulary: &HashMap<String, u32>) -> Result<Vec<Option<Box<str>>>> {
    let count = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
    ensure!(count > 0, "tokenizer.json: the vocabulary is empty");
    // Tables are indexed by id, so a lone huge id would cost memory the file did not pay for.
    ensure!(
        count <= 4 * vocabulary.len() + 65536,
        "tokenizer.json: the largest id is {}, but there are only {} tokens",
        count - 1,
        vocabulary.len()
    );
    let mut texts: Vec<Option<Box<str>>> = vec![None; count];
    for (text, &id) in vocabulary {
        // Two texts of one id: the lesser, so that the choice does not depend on the map's order.
        let slot = &mut texts[id as usize];
        if slot.as_deref().is_none_or(|old| text.as_str() < old) {
            *slot = Some(text.as_str().into());
        }
    }
    Ok(texts)
}

/// The files that name a text's first and last tokens, and the vocabulary they must be in.
struct Ends<'a> {
    vocabulary: &'a HashMap<String, u32>,
    /// ids there are
    count: usize,
    /// whether an id is a special token's
    special: &'a dyn Fn(u32) -> bool,
    /// tokenizer_config.json
    config: Fields<'a>,
    /// generation_config.json and config.json
    sources: [Fields<'a>; 2],
    is_chatglm: bool,
}

impl Ends<'_> {
    fn in_range(&self, what: &str, key: &str, id: u64) -> Result<u32> {
        match u32::try_from(id).ok().filter(|&id| (id as usize) < self.count) {
            Some(id) => Ok(id),
            None => bail!("{what}: {key} = {id}, but the vocabulary has {} ids", self.count),
        }
    }

    fn look(&self, key: &str, text: &str) -> Result<u32> {
        match self.vocabulary.get(text) {
            Some(&id) => Ok(id),
            None => bail!("tokenizer_config.json: {key} {} is not in the vocabulary", shown(text)),
        }
    }

    /// The token that a post-processor puts there: only a special one of the vocabulary can be meant.
    fn told(&self, template: Option<u64>) -> Option<u32> {
        template.and_then(|id| u32::try_from(id).ok()).filter(|&id| (self.special)(id))
    }

    /// The token a text begins with, if there is one, and whether it is put there.
    fn first(&self, template: Option<u64>) -> Result<(Option<u32>, bool)> {
        let from_template = self.told(template);
        let mut bos = None;
        if let Some(text) = self.config.token("bos_token")? {
            bos = Some(self.look("bos_token", text)?);
        } else if !self.config.is_null("bos_token") {
            // A `bos_token` of null says that there is none.
            for source in &self.sources {
                if let (None, Some(&id)) = (bos, id_list(source, "bos_token_id")?.first()) {
                    bos = Some(self.in_range(source.file(), "bos_token_id", id)?);
                }
            }
            bos = bos.or(from_template);
        }
        let adds = self.config.flag("add_bos_token")?.unwrap_or(from_template == bos) && bos.is_some();
        Ok((bos, adds))
    }

    /// The tokens that the files put behind every text: what the post-processor does, else `add_eos_token`.
    fn closing(&self, template: Option<u64>, eos: &[u32]) -> Result<Vec<u32>> {
        let asked = self.config.flag("add_eos_token")? == Some(true);
        Ok(self.told(template).or(eos.first().copied().filter(|_| asked)).into_iter().collect())
    }

    /// The tokens that end a text.
    fn last(&self) -> Result<Vec<u32>> {
        let mut eos = Vec::new();
        if let Some(text) = self.config.token("eos_token")? {
            eos.push(self.look("eos_token", text)?);
        }
        for source in &self.sources {
            for id in id_list(source, "eos_token_id")? {
                eos.push(self.in_range(source.file(), "eos_token_id", id)?);
            }
        }
        for text in END_TEXTS.iter().chain(CHATGLM_END_TEXTS.iter().filter(|_| self.is_chatglm)) {
            eos.extend(self.vocabulary.get(*text).copied().filter(|&id| (self.special)(id)));
        }
        dedup(&mut eos);
        Ok(eos)
    }
}

pub(super) fn load<'v>(
    json: &[u8],
    config: Option<&'v Value>,
    generation_config: Option<&'v Value>,
    model_config: Option<&'v Value>,
) -> Result<Tokenizer> {
    load_hiding(json, config, generation_config, model_config, &[])
}

/// The same, where a Unigram has further ids that no text becomes.
pub(super) fn load_hiding<'v>(
    json: &[u8],
    config: Option<&'v Value>,
    generation_config: Option<&'v Value>,
    model_config: Option<&'v Value>,
    hidden: &[u32],
) -> Result<Tokenizer> {
    let Prepared { file, template, end, encodes, unknown, decoding } = prepare(json)?;
    let (borders, reach) = cuts(&file);
    let bytes = serde_json::to_vec(&file).context("tokenizer.json")?;
    drop(file);
    let mut inner: Inner = guarded(|| Inner::from_bytes(&bytes)).context("tokenizer.json")?;
    drop(bytes);

    let vocabulary = inner.get_vocab(true);
    let texts = texts_by_id(&vocabulary)?;
    let added = inner.get_added_tokens_decoder();
    let special = |id: u32| added.get(&id).is_some_and(|t| t.special);
    let mut hidden = hidden.to_vec();
    hidden.extend(added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id));
    hide(&mut inner, unknown, &hidden)?;
    let pieces = texts
        .iter()
        .zip(0..)
        .map(|(text, id)| match text {
            Some(text) if !special(id) => decoding.bytes(text).into(),
            _ => Box::default(),
        })
        .collect();

    let fields = |name: &'static str, value: Option<&'v Value>| match value {
        Some(value) => Fields::of(name, value),
        None => Ok(Fields::none(name)),
    };
    let model_type = fields("config.json", model_config)?.text("model_type")?;
    let is_chatglm = matches!(model_type, Some("glm" | "glm4" | "chatglm"));
    let encodes = encodes || model_type.is_some_and(encoders::is_encoder);
    let ends = Ends {
        vocabulary: &vocabulary,
        count: texts.len(),
        special: &special,
        config: fields("tokenizer_config.json", config)?,
        sources: [fields("generation_config.json", generation_config)?, fields("config.json", model_config)?],
        is_chatglm,
    };
    let ((bos, mut adds_bos), eos) = (ends.first(template)?, ends.last()?);
    let mut start: Vec<u32> = bos.into_iter().collect();
    if is_chatglm {
        start = chatglm_start(|text| vocabulary.get(text).copied());
        adds_bos = !start.is_empty();
    }
    // what is called BOS may be another token
    if let (true, Some(first)) = (encodes, ends.told(template)) {
        (start, adds_bos) = (vec![first], ends.config.flag("add_bos_token")? != Some(false));
    }
    let closing = ends.closing(end, &eos)?;
    let end = if encodes { closing.clone() } else { Vec::new() };
    Ok(Tokenizer {
        texts,
        pieces,
        bos,
        start,
        end,
        closing,
        eos,
        adds_bos,
        strips_first_space: decoding.strips_first_space,
        borders,
        reach,
        origin: String::new(),
        engine: Engine::Json(Box::new(Json { inner, plain: OnceLock::new() })),
    })
}
