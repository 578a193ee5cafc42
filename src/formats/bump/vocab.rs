//! The vocabulary of a BUMP file: offsets, strings that end in a zero byte, scores, types, and merges as triples of ids.

use super::super::error::{FormatError, quote};
use super::super::json::Fields;
use super::super::meta::{Meta, Value};
use std::collections::HashMap;

/// Most tokens that are read or written.
pub(super) const MAX_TOKENS: u64 = 1 << 20;

/// The bytes of the five parts, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Vocab {
    pub offsets: Vec<u8>,
    pub strings: Vec<u8>,
    pub scores: Vec<u8>,
    pub types: Vec<u8>,
    pub merges: Vec<u8>,
}

fn words(bytes: &[u8]) -> impl Iterator<Item = i32> {
    bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b))
}

impl Vocab {
    /// The vocabulary of a GGUF file's metadata, for a model of `rows` tokens; `None` where it has none.
    ///
    /// Errors: another number of tokens than rows; a token that holds a zero byte.
    pub(super) fn of(file: &str, meta: &Meta, rows: u64) -> Result<Option<Vocab>, FormatError> {
        const KEY: &str = "tokenizer.ggml.tokens";
        let Some(tokens) = meta.strings(KEY) else { return Ok(None) };
        let wrong = |what: &str, expected: String, found: String| {
            FormatError::invalid(file, format!("key {}", quote(KEY)), what, expected, found)
        };
        if tokens.len() as u64 != rows || rows > MAX_TOKENS {
            let most = format!("{}, one for each row of token_embd.weight", rows.min(MAX_TOKENS));
            return Err(wrong("a vocabulary BUMP cannot hold", most, tokens.len().to_string()));
        }
        let mut v = Vocab::default();
        for t in tokens {
            if t.contains('\0') {
                return Err(wrong("a token BUMP cannot hold", "no zero byte".into(), quote(t)));
            }
            let at = i32::try_from(v.strings.len())
                .map_err(|_| wrong("too much text", "2^31 bytes".into(), "more".into()))?;
            v.offsets.extend(at.to_le_bytes());
            v.strings.extend(t.as_bytes());
            v.strings.push(0);
        }
        let scores = meta.f32s("tokenizer.ggml.scores").unwrap_or_default();
        let types = meta.i32s("tokenizer.ggml.token_type").unwrap_or_default();
        for i in 0..tokens.len() {
            v.scores.extend(scores.get(i).copied().unwrap_or(0.0).to_le_bytes());
            v.types.push(types.get(i).map_or(1, |t| *t as u8));
        }
        let ids: HashMap<&str, usize> = tokens.iter().enumerate().map(|(i, t)| (t.as_str(), i)).collect();
        for merge in meta.strings("tokenizer.ggml.merges").unwrap_or_default() {
            let Some((left, right)) = merge.split_once(' ') else { continue };
            let triple = [left, right, &format!("{left}{right}")].map(|t| ids.get(t).copied());
            if let [Some(a), Some(b), Some(c)] = triple {
                v.merges.extend([a, b, c].iter().flat_map(|id| (*id as i32).to_le_bytes()));
            }
        }
        Ok(Some(v))
    }

    /// The keys of a GGUF file that say the same. `special`: what a manifest says of special tokens.
    ///
    /// Errors: offsets that do not follow the strings; text that is not UTF-8; a merge that is none.
    pub(super) fn keys(&self, file: &str, special: &Fields) -> Result<Vec<(String, Value)>, FormatError> {
        let wrong = |part: &str, what: &str, expected: String, found: String| {
            FormatError::invalid(file, format!("tensor {}", quote(part)), what, expected, found)
        };
        let mut tokens: Vec<String> = Vec::with_capacity(self.offsets.len() / 4);
        let mut at = 0usize;
        for (i, offset) in words(&self.offsets).enumerate() {
            if usize::try_from(offset) != Ok(at) {
                let found = format!("{offset} for token {i}");
                return Err(wrong("vocab_offsets", "an offset out of order", at.to_string(), found));
            }
            let rest = &self.strings[at..];
            let Some(len) = rest.iter().position(|b| *b == 0) else {
                return Err(wrong(
                    "vocab_strings",
                    "a token without an end",
                    "a zero byte".into(),
                    format!("none after byte {at}"),
                ));
            };
            let text = str::from_utf8(&rest[..len]).map_err(|_| {
                wrong("vocab_strings", "a token that is not text", "UTF-8".into(), format!("token {i}"))
            })?;
            tokens.push(text.into());
            at += len + 1;
        }
        if at != self.strings.len() {
            let found = format!("{} more bytes", self.strings.len() - at);
            return Err(wrong("vocab_strings", "text that belongs to no token", "none".into(), found));
        }
        let mut merges = Vec::with_capacity(self.merges.len() / 12);
        let ids: Vec<i32> = words(&self.merges).collect();
        for (i, triple) in ids.as_chunks::<3>().0.iter().enumerate() {
            let text = |id: i32| usize::try_from(id).ok().and_then(|id| tokens.get(id));
            match triple.map(text) {
                [Some(a), Some(b), Some(c)] if c.strip_prefix(a.as_str()) == Some(b) => merges.push(format!("{a} {b}")),
                _ => {
                    let found = format!("{triple:?} as merge {i}");
                    return Err(wrong(
                        "vocab_merges",
                        "a merge that is none",
                        "left, right and both joined".into(),
                        found,
                    ));
                }
            }
        }
        let model = match special.text("tokenizer_model")? {
            Some(name) => name,
            None if merges.is_empty() => "llama",
            None => "gpt2",
        };
        let mut out = Vec::new();
        let mut put = |key: &str, v: Value| out.push((format!("tokenizer.ggml.{key}"), v));
        put("model", Value::Str(model.into()));
        if let Some(pre) = special.text("tokenizer_pre")? {
            put("pre", Value::Str(pre.into()));
        }
        put("tokens", Value::StrArray(tokens));
        if model == "llama" && !self.scores.is_empty() {
            let scores = self.scores.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
            put("scores", Value::F32Array(scores.collect()));
        }
        if !self.types.is_empty() {
            put("token_type", Value::I32Array(self.types.iter().map(|t| i32::from(*t)).collect()));
        }
        if model != "llama" {
            put("merges", Value::StrArray(merges));
        }
        for (key, name) in SPECIAL_IDS {
            if let Some(id) = special.whole(key)?.and_then(|id| u32::try_from(id).ok()) {
                put(name, Value::U32(id));
            }
        }
        for key in SPECIAL_FLAGS {
            if let Some(v) = special.flag(key)? {
                put(key, Value::Bool(v));
            }
        }
        Ok(out)
    }
}

/// Ids of special tokens: in a manifest, and in a GGUF file behind `tokenizer.ggml.`.
pub(super) const SPECIAL_IDS: [(&str, &str); 4] = [
    ("bos_token_id", "bos_token_id"),
    ("eos_token_id", "eos_token_id"),
    ("unk_token_id", "unknown_token_id"),
    ("pad_token_id", "padding_token_id"),
];

/// Flags that have one name in both.
pub(super) const SPECIAL_FLAGS: [&str; 3] = ["add_bos_token", "add_eos_token", "add_space_prefix"];
