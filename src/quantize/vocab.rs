//! `tokenizer.ggml.*` keys from `tokenizer.json` or `tokenizer.model`.
//!
//! A byte-level BPE vocabulary becomes `gpt2` with its merges, and a `pre` that follows from its split rule; a
//! sentencepiece one becomes `llama` with scores: those of `tokenizer.model`, else minus the rank of the merge that makes
//! the token, which gives the same merges in the same order. A split rule that is not known is refused: another would
//! give other ids.

use crate::formats::Container;
use crate::formats::meta::Value;
use crate::formats::source::read_whole;
use anyhow::{Context, bail, ensure};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::Path;

/// Token types of the format.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;
/// Most tokens that are converted.
const MAX_TOKENS: usize = 1 << 22;
/// Longest `tokenizer.model`, in bytes.
const MAX_SPM: u64 = 64 << 20;

struct Vocab {
    model: &'static str,
    pre: String,
    tokens: Vec<String>,
    scores: Option<Vec<f32>>,
    types: Vec<i32>,
    merges: Option<Vec<String>>,
}

/// Appends the tokeniser's keys. `spm` is where `tokenizer.model` would be.
pub(super) fn convert(
    c: &Container,
    cfg: &Json,
    spm: Option<&Path>,
    out: &mut Vec<(String, Value)>,
) -> anyhow::Result<()> {
    let rows = cfg["vocab_size"].as_u64().context("config.json: vocab_size is missing")? as usize;
    ensure!(rows <= MAX_TOKENS, "config.json: vocab_size is {rows}, expected at most {MAX_TOKENS}");
    let json: Option<Json> = match &c.tokenizer_json {
        Some(bytes) => Some(serde_json::from_slice(bytes).context("tokenizer.json")?),
        None => None,
    };
    let sentences = spm.filter(|p| p.is_file());
    let mut v = match (&json, sentences) {
        (_, Some(path)) => read_spm(&read_whole(path, MAX_SPM)?).context("tokenizer.model")?,
        (Some(json), None) => read_json(json).context("tokenizer.json")?,
        (None, None) => bail!("neither tokenizer.json nor tokenizer.model"),
    };
    ensure!(v.tokens.len() <= rows, "{} tokens for a model of {rows}", v.tokens.len());
    if let Some(json) = &json {
        mark_added(json, &mut v, rows)?;
    }
    // the model has a row for every id; ids without a token get a name that cannot be met
    for id in v.tokens.len()..rows {
        v.tokens.push(format!("[PAD{id}]"));
        v.types.push(UNUSED);
        if let Some(s) = &mut v.scores {
            s.push(-10000.0);
        }
    }
    let ids: HashMap<&str, u32> = v.tokens.iter().map(String::as_str).zip(0..).collect();
    let special = |name: &str| -> Option<u32> {
        let config = c.tokenizer_config.as_ref();
        let text = config.and_then(|t| t[name].as_str().or(t[name]["content"].as_str()));
        let id = |v: &Json| v.as_u64().or(v[0].as_u64()).and_then(|v| u32::try_from(v).ok());
        let from = |cfg: &Json| id(&cfg[format!("{name}_id")]);
        text.and_then(|t| ids.get(t).copied())
            .or_else(|| c.generation_config.as_ref().and_then(from))
            .or_else(|| from(cfg))
            .filter(|id| (*id as usize) < rows)
    };
    let specials = [
        ("bos", special("bos_token")),
        ("eos", special("eos_token")),
        ("unknown", special("unk_token")),
        ("padding", special("pad_token")),
    ];
    let add_bos = add_bos(c, json.as_ref(), v.model == "llama");
    let space = v.model == "llama" && json.as_ref().is_none_or(prefixes_space);
    let mut put = |key: &str, v: Value| out.push((format!("tokenizer.ggml.{key}"), v));
    put("model", Value::Str(v.model.into()));
    put("pre", Value::Str(v.pre));
    put("tokens", Value::StrArray(v.tokens));
    if let Some(s) = v.scores {
        put("scores", Value::F32Array(s));
    }
    put("token_type", Value::I32Array(v.types));
    if let Some(m) = v.merges {
        put("merges", Value::StrArray(m));
    }
    for (name, id) in specials {
        if let Some(id) = id {
            put(&format!("{name}_token_id"), Value::U32(id));
        }
    }
    put("add_bos_token", Value::Bool(add_bos));
    if v.model == "llama" {
        put("add_space_prefix", Value::Bool(space));
    }
    if let Some(t) = c.tokenizer_config.as_ref().and_then(|t| t["chat_template"].as_str()) {
        out.push(("tokenizer.chat_template".into(), Value::Str(t.into())));
    }
    Ok(())
}

/// `add_bos_token` of the config, else whether the post-processor puts a special token first.
fn add_bos(c: &Container, json: Option<&Json>, default: bool) -> bool {
    if let Some(v) = c.tokenizer_config.as_ref().and_then(|t| t["add_bos_token"].as_bool()) {
        return v;
    }
    let Some(post) = json.map(|j| &j["post_processor"]).filter(|p| p.is_object()) else { return default };
    let one = [post.clone()];
    let list = post["processors"].as_array().map_or(&one[..], Vec::as_slice);
    list.iter().any(|p| p["single"][0]["SpecialToken"].is_object())
}

/// Whether a sentencepiece `tokenizer.json` puts a space before the text.
fn prefixes_space(json: &Json) -> bool {
    let norm = &json["normalizer"];
    let one = [norm.clone()];
    let list = norm["normalizers"].as_array().map_or(&one[..], Vec::as_slice);
    let pre = &json["pre_tokenizer"];
    list.iter().any(|n| n["type"] == "Prepend")
        || (pre["type"] == "Metaspace" && pre["prepend_scheme"] != "never" && pre["add_prefix_space"] != false)
}

/// Types of the added tokens, which may lie beyond the vocabulary proper.
fn mark_added(json: &Json, v: &mut Vocab, rows: usize) -> anyhow::Result<()> {
    for added in json["added_tokens"].as_array().map_or(&[][..], Vec::as_slice) {
        let (Some(id), Some(text)) = (added["id"].as_u64(), added["content"].as_str()) else {
            bail!("tokenizer.json: added_tokens: an entry without id and content")
        };
        let id = id as usize;
        ensure!(id < rows, "tokenizer.json: added token {text:?} has id {id}, the model {rows} rows");
        while v.tokens.len() <= id {
            v.tokens.push(format!("[PAD{}]", v.tokens.len()));
            v.types.push(UNUSED);
            if let Some(s) = &mut v.scores {
                s.push(-10000.0);
            }
        }
        v.tokens[id] = text.into();
        if v.types[id] != UNKNOWN {
            v.types[id] = if added["special"] == true { CONTROL } else { USER };
        }
    }
    Ok(())
}

fn read_json(json: &Json) -> anyhow::Result<Vocab> {
    let model = &json["model"];
    ensure!(model["type"] == "BPE", "model type {} has no conversion (known: BPE)", model["type"]);
    let map = model["vocab"].as_object().context("model.vocab is missing")?;
    let most = map.values().filter_map(Json::as_u64).max().map_or(0, |m| m as usize + 1);
    ensure!(most <= MAX_TOKENS, "model.vocab: an id of {}, expected below {MAX_TOKENS}", most - 1);
    let mut tokens: Vec<Option<String>> = vec![None; most];
    for (text, id) in map {
        let id = id.as_u64().with_context(|| format!("model.vocab: {text:?} has no whole id"))? as usize;
        ensure!(tokens[id].is_none(), "model.vocab: id {id} occurs twice");
        tokens[id] = Some(text.clone());
    }
    let tokens: Vec<String> =
        tokens.into_iter().enumerate().map(|(i, t)| t.unwrap_or_else(|| format!("[PAD{i}]"))).collect();
    let listed = model["merges"].as_array().context("model.merges is missing")?;
    let mut merges = Vec::with_capacity(listed.len());
    for m in listed {
        let text = match m {
            Json::String(s) => Some(s.clone()),
            Json::Array(a) => {
                a.first().zip(a.get(1)).and_then(|(a, b)| Some(format!("{} {}", a.as_str()?, b.as_str()?)))
            }
            _ => None,
        };
        merges.push(text.with_context(|| format!("model.merges: {m} is not two tokens"))?);
    }
    if model["byte_fallback"] == true {
        return sentencepiece(model, tokens, &merges);
    }
    let types = vec![NORMAL; tokens.len()];
    let pre = split_rule(json)?;
    Ok(Vocab { model: "gpt2", pre, tokens, scores: None, types, merges: Some(merges) })
}

/// A sentencepiece vocabulary written as BPE: the score of a token is minus the rank of the merge that makes it.
fn sentencepiece(model: &Json, tokens: Vec<String>, merges: &[String]) -> anyhow::Result<Vocab> {
    let mut rank: HashMap<String, usize> = HashMap::with_capacity(merges.len());
    for (i, m) in merges.iter().enumerate() {
        // a token may be a space itself, never the first character of the pair
        let at = m.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
        let (a, b) = m.split_at(at.with_context(|| format!("model.merges: {m:?} is not two tokens"))?);
        rank.entry(format!("{a}{}", &b[1..])).or_insert(i);
    }
    let unknown = model["unk_token"].as_str().unwrap_or("<unk>");
    let types = tokens
        .iter()
        .map(|t| match t.as_str() {
            t if t == unknown => UNKNOWN,
            t if byte(t) => BYTE,
            _ => NORMAL,
        })
        .collect();
    let last = merges.len();
    let scores = tokens.iter().map(|t| -(*rank.get(t).unwrap_or(&last) as f32)).collect();
    Ok(Vocab { model: "llama", pre: "default".into(), tokens, scores: Some(scores), types, merges: None })
}

/// `<0x0A>`.
fn byte(t: &str) -> bool {
    t.len() == 6 && t.starts_with("<0x") && t.ends_with('>') && t[3..5].bytes().all(|b| b.is_ascii_hexdigit())
}

/// The `tokenizer.ggml.pre` of a byte-level BPE's split rule.
fn split_rule(json: &Json) -> anyhow::Result<String> {
    let pre = &json["pre_tokenizer"];
    let one = [pre.clone()];
    let steps = pre["pretokenizers"].as_array().map_or(&one[..], Vec::as_slice);
    let mut regex = None;
    let (mut level, mut digits) = (None, false);
    for s in steps {
        match s["type"].as_str() {
            Some("Split") => regex = s["pattern"]["Regex"].as_str(),
            Some("ByteLevel") => level = Some(s["use_regex"] != false),
            Some("Digits") => digits = s["individual_digits"] == true,
            _ => bail!("pre_tokenizer {} has no conversion", s["type"]),
        }
    }
    // the expressions as published with the models
    const WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|";
    const REST: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let normalised = !json["normalizer"].is_null();
    let name = match (regex, level, digits) {
        (Some(r), Some(_), false) if r == format!(r"{WORDS}\p{{N}}{{1,3}}{REST}") => "llama-bpe",
        // Qwen's normaliser is NFC, for which the format has no field
        (Some(r), Some(_), false) if r == format!(r"{WORDS}\p{{N}}{REST}") => "qwen2",
        (None, Some(true), false) if !normalised => "gpt-2",
        (None, Some(true), true) if !normalised => "smollm",
        _ => bail!("the split rule of pre_tokenizer has no name in GGUF that is known here; convert with another tool"),
    };
    Ok(name.into())
}

/// The pieces of a sentencepiece model: protobuf, of which field 1 holds the pieces (text, score, type).
fn read_spm(bytes: &[u8]) -> anyhow::Result<Vocab> {
    let (mut tokens, mut scores, mut types) = (Vec::new(), Vec::new(), Vec::new());
    for field in fields(bytes) {
        let (1, Wire::Bytes(piece)) = field? else { continue };
        let (mut text, mut score, mut kind) = (String::new(), 0f32, NORMAL);
        for field in fields(piece) {
            match field? {
                (1, Wire::Bytes(b)) => text = String::from_utf8(b.to_vec()).context("a piece is not UTF-8")?,
                (2, Wire::Four(b)) => score = f32::from_le_bytes(b),
                (3, Wire::Number(n)) => kind = i32::try_from(n).ok().filter(|n| (1..=6).contains(n)).unwrap_or(NORMAL),
                _ => {}
            }
        }
        ensure!(tokens.len() < MAX_TOKENS, "more than {MAX_TOKENS} pieces");
        tokens.push(text);
        scores.push(score);
        types.push(kind);
    }
    ensure!(!tokens.is_empty(), "no pieces in it");
    Ok(Vocab { model: "llama", pre: "default".into(), tokens, scores: Some(scores), types, merges: None })
}

/// The value of a protobuf field.
enum Wire<'a> {
    Number(u64),
    Four([u8; 4]),
    Eight,
    Bytes(&'a [u8]),
}

/// Numbers and values of a message's fields; a message that does not parse ends with an error.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = anyhow::Result<(u64, Wire<'_>)>> {
    fn number(rest: &mut &[u8]) -> anyhow::Result<u64> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let (&b, tail) = rest.split_first().context("it ends inside a number")?;
            *rest = tail;
            v |= u64::from(b & 127) << shift;
            if b < 128 {
                return Ok(v);
            }
        }
        bail!("a number of more than ten bytes")
    }
    fn take<'a>(rest: &mut &'a [u8], n: u64) -> anyhow::Result<&'a [u8]> {
        let n = usize::try_from(n).ok().filter(|n| *n <= rest.len()).context("it ends inside a field")?;
        let (head, tail) = rest.split_at(n);
        *rest = tail;
        Ok(head)
    }
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut field = || {
            let key = number(&mut rest)?;
            let value = match key & 7 {
                0 => Wire::Number(number(&mut rest)?),
                1 => take(&mut rest, 8).map(|_| Wire::Eight)?,
                2 => {
                    let n = number(&mut rest)?;
                    Wire::Bytes(take(&mut rest, n)?)
                }
                5 => Wire::Four(take(&mut rest, 4)?.try_into()?),
                other => bail!("a field of wire type {other}"),
            };
            Ok((key >> 3, value))
        };
        let result = field();
        if result.is_err() {
            rest = &[];
        }
        Some(result)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece as protobuf.
    fn piece(text: &str, score: f32, kind: u8) -> Vec<u8> {
        let mut p = vec![0x0a, text.len() as u8];
        p.extend(text.as_bytes());
        p.push(0x15);
        p.extend(score.to_le_bytes());
        p.extend([0x18, kind]);
        let mut out = vec![0x0a, p.len() as u8];
        out.extend(p);
        out
    }

    #[test]
    fn a_sentencepiece_model_is_read_and_every_truncation_is_an_error_or_shorter() {
        let mut bytes = piece("<unk>", 0.0, 2);
        bytes.extend(piece("\u{2581}a", -1.5, 1));
        bytes.extend([0x12, 2, 0x18, 5]); // another field, skipped
        let v = read_spm(&bytes).unwrap();
        assert_eq!(v.tokens, ["<unk>", "\u{2581}a"]);
        assert_eq!((v.scores.unwrap(), v.types), (vec![0.0, -1.5], vec![UNKNOWN, NORMAL]));
        for n in 0..bytes.len() {
            if let Ok(v) = read_spm(&bytes[..n]) {
                assert!(v.tokens.len() <= 2, "{n}");
            }
        }
        assert!(read_spm(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).is_err());
    }

    #[test]
    fn a_bpe_with_byte_fallback_scores_tokens_by_merge_rank() {
        let json = serde_json::json!({"model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>",
            "vocab": {"<unk>": 0, "<0x0A>": 1, "a": 2, "b": 3, "ab": 4, "aab": 5}, "merges": ["a b", ["a", "ab"]]}});
        let v = read_json(&json).unwrap();
        assert_eq!(v.model, "llama");
        assert_eq!(v.types, [UNKNOWN, BYTE, NORMAL, NORMAL, NORMAL, NORMAL]);
        assert_eq!(v.scores.unwrap(), [-2.0, -2.0, -2.0, -2.0, 0.0, -1.0]);
    }

    #[test]
    fn a_split_rule_nobody_knows_is_refused() {
        let json = |pre: Json| serde_json::json!({"pre_tokenizer": pre, "normalizer": null});
        let level = |regex: bool| serde_json::json!({"type": "ByteLevel", "use_regex": regex});
        assert_eq!(split_rule(&json(level(true))).unwrap(), "gpt-2");
        assert!(split_rule(&json(level(false))).is_err());
        let split = |r: &str| {
            let split = serde_json::json!({"type": "Split", "pattern": {"Regex": r}});
            json(serde_json::json!({"type": "Sequence", "pretokenizers": [split, level(false)]}))
        };
        let llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        assert_eq!(split_rule(&split(llama3)).unwrap(), "llama-bpe");
        assert_eq!(split_rule(&split(&llama3.replace("{1,3}", ""))).unwrap(), "qwen2");
        assert!(split_rule(&split(r"\w+")).is_err());
    }
}
