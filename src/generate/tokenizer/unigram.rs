//! The vocabulary of a GGUF file of sentencepiece's Unigram: `tokenizer.ggml.model` `t5`, which XLM-RoBERTa has (bge-m3,
//! multilingual-e5, snowflake-arctic-embed 2).
//!
//! Of it the `tokenizer.json` is made that the model's own would be, so that a file and the directory it was made from give the
//! same ids: characters replaced by the file's map (`precompiled_charsmap`), text cut at white space, U+2581 before each word,
//! of each word the pieces with the greatest sum of scores, `<s>` before a text and `</s>` behind it. Control and unused tokens
//! never come from ordinary text, and scores of theirs count for nothing, as in llama.cpp.

use super::{Kind, Source, Tokenizer, json, numbers, read_vocabulary, spm};
use crate::formats::meta::Meta;
use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// The map of characters, in sentencepiece's own form.
fn characters(meta: &Meta) -> Result<Option<Vec<u8>>> {
    let key = "tokenizer.ggml.precompiled_charsmap";
    let bytes = numbers(meta, key)?.unwrap_or_default();
    // of either sign
    let byte = |v: &f64| if (-128.0..256.0).contains(v) && v.fract() == 0.0 { Some(*v as i16 as u8) } else { None };
    let bytes =
        bytes.iter().map(byte).collect::<Option<Vec<u8>>>().with_context(|| format!("{key}: bytes expected"))?;
    Ok(Some(bytes).filter(|b| !b.is_empty()))
}

/// The pieces with their scores, and what is told apart from them.
fn pieces(source: &Source) -> Result<(Vec<Value>, Vec<Value>, Vec<u32>)> {
    let key = "tokenizer.ggml.scores";
    let scores = numbers(source.meta, key)?.with_context(|| format!("{key} is missing: t5 vocabularies need it"))?;
    ensure!(scores.len() == source.tokens.len(), "{key}: {} entries for {} tokens", scores.len(), source.tokens.len());
    let (mut vocab, mut added, mut hidden) = (Vec::with_capacity(scores.len()), Vec::new(), Vec::new());
    for (id, ((text, kind), score)) in source.tokens.iter().zip(&source.kinds).zip(scores).enumerate() {
        ensure!(score.is_finite(), "{key}[{id}] is {score}, a finite number expected");
        let counts = matches!(kind, Kind::Normal | Kind::Byte);
        vocab.push(json!([text, if counts { score } else { 0.0 }]));
        match kind {
            Kind::Control | Kind::Unknown | Kind::UserDefined => {
                let is_special = *kind != Kind::UserDefined;
                added.push(json!({"id": id, "content": text, "special": is_special, "single_word": false,
                    "lstrip": false, "rstrip": false, "normalized": false}));
            }
            Kind::Unused => hidden.push(id as u32),
            Kind::Normal | Kind::Byte => {}
        }
    }
    Ok((vocab, added, hidden))
}

pub(super) fn from_gguf(meta: &Meta) -> Result<Tokenizer> {
    let source = read_vocabulary(meta, true)?;
    let (vocab, added, hidden) = pieces(&source)?;
    let unknown = match source.special("unknown_token_id")? {
        Some(id) => id,
        None => source
            .kinds
            .iter()
            .position(|k| *k == Kind::Unknown)
            .context("tokenizer.ggml.unknown_token_id is missing: t5 vocabularies need it")? as u32,
    };
    let flag = |key: &str, default: bool| anyhow::Ok(meta.typed(&format!("tokenizer.ggml.{key}"))?.unwrap_or(default));
    let first = |keys: [&str; 2]| match source.special(keys[0])? {
        None => source.special(keys[1]),
        id => Ok(id),
    };
    let start = first(["cls_token_id", "bos_token_id"])?.filter(|_| matches!(flag("add_bos_token", true), Ok(true)));
    let end =
        first(["eos_token_id", "seperator_token_id"])?.filter(|_| matches!(flag("add_eos_token", true), Ok(true)));
    let mut ends = Map::new();
    let mut part = |id: Option<u32>| -> Result<Option<Value>> {
        let Some(id) = id else { return Ok(None) };
        let text = &source.tokens[id as usize];
        if !matches!(source.kinds[id as usize], Kind::Control | Kind::Unknown | Kind::UserDefined) {
            bail!("tokenizer.ggml.tokens[{id}]: {} is no control token", super::shown(text));
        }
        ends.insert(text.clone(), json!({"id": text, "ids": [id], "tokens": [text]}));
        Ok(Some(json!({"SpecialToken": {"id": text, "type_id": 0}})))
    };
    let single: Vec<Value> =
        part(start)?.into_iter().chain([json!({"Sequence": {"id": "A", "type_id": 0}})]).chain(part(end)?).collect();
    let map = characters(meta)?;
    let map = map.map(|bytes| json!({"type": "Precompiled", "precompiled_charsmap": STANDARD.encode(bytes)}));
    let scheme = if flag("add_space_prefix", true)? { "always" } else { "never" };
    let words = json!({"type": "Metaspace", "replacement": spm::SPACE, "prepend_scheme": scheme, "split": true});
    let steps = match flag("remove_extra_whitespaces", true)? {
        true => vec![json!({"type": "WhitespaceSplit"}), words.clone()],
        false => vec![words.clone()],
    };
    let file = json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": map,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": ends},
        "decoder": words,
        "model": {"type": "Unigram", "unk_id": unknown, "vocab": vocab,
            "byte_fallback": source.kinds.contains(&Kind::Byte)},
    });
    json::load_hiding(&serde_json::to_vec(&file)?, None, None, None, &hidden)
}
