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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::meta::Value as Entry;

    fn tokenizer(more: Vec<(&str, Entry)>) -> Result<Tokenizer> {
        let tokens =
            ["<s>", "<pad>", "</s>", "<unk>", "\u{2581}", "\u{2581}ab", "a", "b", "[PAD8]", "<mask>"].map(String::from);
        let mut entries = vec![
            ("model", Entry::Str("t5".into())),
            ("tokens", Entry::StrArray(tokens.to_vec())),
            ("token_type", Entry::I32Array(vec![3, 3, 3, 2, 1, 1, 1, 1, 5, 3])),
            ("scores", Entry::F32Array(vec![0.0, 0.0, 0.0, 0.0, -2.0, -3.0, -2.5, -2.5, -10000.0, 0.0])),
            ("bos_token_id", Entry::U32(0)),
            ("eos_token_id", Entry::U32(2)),
        ];
        entries.retain(|(k, _)| more.iter().all(|(m, _)| m != k));
        entries.extend(more);
        let entries = entries.into_iter().map(|(k, v)| (format!("tokenizer.ggml.{k}"), v)).collect();
        Tokenizer::from_gguf(&Meta { entries })
    }

    #[test]
    fn pieces_with_the_greatest_sum_are_taken_and_what_text_must_not_become_is_not() {
        let t = tokenizer(vec![]).unwrap();
        let ids = |text: &str, special| t.encode(text, t.adds_bos(), special).unwrap();
        assert_eq!(ids("ab  a", false), [0, 5, 4, 6, 2]);
        assert_eq!(ids("", false), [0, 2]);
        // neither a control token nor one that is not used
        assert_eq!(ids("ab[PAD8]", true), [0, 5, 3, 2]);
        assert_eq!(ids("<mask>", true), [0, 9, 2]);
        assert!(!ids("<mask> <s>", false)[1..].iter().any(|id| [0, 9].contains(id)));
        assert_eq!((t.token_text(8), t.token_text(9)), (Some("[PAD8]".into()), Some("<mask>".into())));
        assert_eq!(t.decode(&[0, 5, 4, 6, 2]), "ab a");
        // a token that the file has texts end with, and one it has not
        let bare =
            tokenizer(vec![("add_bos_token", Entry::Bool(false)), ("add_eos_token", Entry::Bool(false))]).unwrap();
        assert_eq!(bare.encode_whole("ab", false).unwrap(), [5]);
    }

    #[test]
    fn a_vocabulary_without_scores_and_a_map_that_says_too_much_are_refused_in_one_line() {
        let refused = |more| format!("{:#}", tokenizer(more).unwrap_err());
        assert!(refused(vec![("scores", Entry::F32Array(vec![0.0]))]).contains("1 entries for 10 tokens"));
        let mut scores = vec![0.0; 10];
        scores[4] = f32::NAN;
        assert!(refused(vec![("scores", Entry::F32Array(scores))]).contains("scores[4]"));
        let types = Entry::I32Array(vec![3, 3, 3, 1, 1, 1, 1, 1, 5, 3]);
        assert!(refused(vec![("token_type", types)]).contains("unknown_token_id"));
        let bytes = |list: &[u8]| Entry::Array(list.iter().map(|b| Entry::U8(*b)).collect());
        let key = "precompiled_charsmap";
        for map in [&[255, 255, 255, 255][..], &[0, 0, 0, 128, 1, 2, 3, 4, 5, 6], &[1, 0], &[8, 0, 0, 0, 1, 0, 0, 0]] {
            let error = refused(vec![(key, bytes(map))]);
            assert!(error.lines().count() == 1 && error.contains("tokenizer.json"), "{map:?}: {error}");
        }
        assert!(refused(vec![(key, Entry::Array(vec![Entry::U32(300)]))]).contains("bytes expected"));
        assert!(tokenizer(vec![(key, bytes(&[]))]).is_ok());
    }
}
