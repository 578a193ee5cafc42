//! Hugging Face `tokenizer.json`, through the `tokenizers` crate.
//!
//! The crate does the whole of encoding. Decoding is ours, so that single ids can be turned into bytes. The crate
//! trusts its input in places (it slices and unwraps), so the faults known to make it panic are looked for before it
//! sees the file, and what panics all the same is caught and becomes an error.
//!
//! `tokenizers` is compiled with its backtracking regex engine: on a text where that gives up (about a million steps
//! back, say a megabyte of spaces before a letter) the crate takes the rest of the text as one word. The ids are then
//! not those of the reference, but they still decode to the text.

use super::{END_TEXTS, Engine, Tokenizer, bpe, byte_token, dedup, shown, spm};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// The crate's tokeniser.
pub(super) struct Json {
    inner: tokenizers::Tokenizer,
    /// the same with special tokens taken as text; the crate makes it a setting of the tokeniser, so it is made on first use
    plain: OnceLock<Box<tokenizers::Tokenizer>>,
}

impl std::fmt::Debug for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Json")
    }
}

/// Runs the crate. Its state after a panic is not used again except through the same guard, and holds no locks of ours.
fn guarded<T>(what: &str, run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(done) => done.map_err(|e| anyhow!("{what}: {e}")),
        Err(_) => bail!("{what}: the tokenizers library failed on this file"),
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
        guarded("encoding", || Ok(tokenizer.encode_fast(text, false)?.get_ids().to_vec()))
    }
}

/// How the decoder of the file turns token texts into bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Decoding {
    byte_level: bool,
    /// U+2581 is a space
    spaces: bool,
    byte_fallback: bool,
    strips_first_space: bool,
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
        if self.byte_level {
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

/// A token named in `tokenizer_config.json`: a string, or an object with `content`.
fn named<'a>(config: &'a Value, key: &str) -> Option<&'a str> {
    let value = &config[key];
    value.as_str().or_else(|| value["content"].as_str())
}

/// The ids under `key`, a number or a list of them, at the top or in `text_config`.
fn id_list(config: Option<&Value>, key: &str) -> Vec<u64> {
    let Some(config) = config else {
        return Vec::new();
    };
    let value = match &config[key] {
        Value::Null => &config["text_config"][key],
        value => value,
    };
    match value {
        Value::Array(list) => list.iter().filter_map(Value::as_u64).collect(),
        value => value.as_u64().into_iter().collect(),
    }
}

/// The id that a post-processor puts before an empty text, if it puts one. Anything else it does is not asked for.
fn template_start(processor: &Value) -> Option<u64> {
    match processor["type"].as_str()? {
        "TemplateProcessing" => {
            let first = processor["single"].get(0)?["SpecialToken"]["id"].as_str()?;
            processor["special_tokens"].get(first)?["ids"].get(0)?.as_u64()
        }
        "RobertaProcessing" | "BertProcessing" => processor["cls"].get(1)?.as_u64(),
        // a list inside a list is not followed: the files have none, and depth would be theirs to choose
        "Sequence" => {
            let parts = processor["processors"].as_array()?;
            parts.iter().filter(|p| p["type"] != "Sequence").find_map(template_start)
        }
        _ => None,
    }
}

pub(super) fn load(
    json: &[u8],
    config: Option<&Value>,
    generation_config: Option<&Value>,
    model_config: Option<&Value>,
) -> Result<Tokenizer> {
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
    let template = template_start(&file["post_processor"]);
    // Only its first token is of interest, and the crate indexes tables with what is in it.
    file["post_processor"] = Value::Null;
    let mut decoding = Decoding::default();
    decoding.read(&file["decoder"])?;

    let bytes = serde_json::to_vec(&file).context("tokenizer.json")?;
    drop(file);
    let inner = guarded("tokenizer.json", || tokenizers::Tokenizer::from_bytes(&bytes))?;
    drop(bytes);

    let vocabulary = inner.get_vocab(true);
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
    for (text, &id) in &vocabulary {
        // Two texts of one id: the lesser, so that the choice does not depend on the map's order.
        let slot = &mut texts[id as usize];
        if slot.as_deref().is_none_or(|old| text.as_str() < old) {
            *slot = Some(text.as_str().into());
        }
    }
    let added = inner.get_added_tokens_decoder();
    let special = |id: u32| added.get(&id).is_some_and(|t| t.special);
    let pieces = texts
        .iter()
        .zip(0..)
        .map(|(text, id)| match text {
            Some(text) if !special(id) => decoding.bytes(text).into(),
            _ => Box::default(),
        })
        .collect();

    let in_range = |what: &str, key: &str, id: u64| match u32::try_from(id).ok().filter(|&id| (id as usize) < count) {
        Some(id) => Ok(id),
        None => bail!("{what}: {key} = {id}, but the vocabulary has {count} ids"),
    };
    let look = |key: &str, text: &str| match vocabulary.get(text) {
        Some(&id) => Ok(id),
        None => bail!("tokenizer_config.json: {key} {} is not in the vocabulary", shown(text)),
    };
    let sources = [("generation_config.json", generation_config), ("config.json", model_config)];

    // Only a special token of the vocabulary can be meant.
    let from_template = template.and_then(|id| u32::try_from(id).ok()).filter(|&id| special(id));
    let mut bos = None;
    // A `bos_token` of null says that there is none.
    let says_none = config.is_some_and(|c| c.get("bos_token").is_some_and(Value::is_null));
    if let Some(text) = config.and_then(|c| named(c, "bos_token")) {
        bos = Some(look("bos_token", text)?);
    } else if !says_none {
        for (what, source) in sources {
            if bos.is_none()
                && let Some(&id) = id_list(source, "bos_token_id").first()
            {
                bos = Some(in_range(what, "bos_token_id", id)?);
            }
        }
        bos = bos.or(from_template);
    }
    let adds_bos = bos.is_some()
        && match config.and_then(|c| c["add_bos_token"].as_bool()) {
            Some(adds) => adds,
            None => from_template == bos,
        };

    let mut eos = Vec::new();
    if let Some(text) = config.and_then(|c| named(c, "eos_token")) {
        eos.push(look("eos_token", text)?);
    }
    for (what, source) in sources {
        for id in id_list(source, "eos_token_id") {
            eos.push(in_range(what, "eos_token_id", id)?);
        }
    }
    for text in END_TEXTS {
        eos.extend(vocabulary.get(text).copied().filter(|&id| special(id)));
    }
    dedup(&mut eos);
    Ok(Tokenizer {
        texts,
        pieces,
        bos,
        eos,
        adds_bos,
        strips_first_space: decoding.strips_first_space,
        engine: Engine::Json(Box::new(Json { inner, plain: OnceLock::new() })),
    })
}
