//! The vocabulary of a GGUF file of BERT's kind: `tokenizer.ggml.model` `bert`, WordPiece.
//!
//! Such a file has words with U+2581 in front and their continuations without `##`; control tokens are as they are. Of it the
//! `tokenizer.json` is made that BERT's own would be, so that a file and the directory it was made from give the same ids:
//! clean text, Chinese characters apart, `[CLS]` before a text and `[SEP]` behind it. Lower case it has unless
//! `normalizer.lowercase` is false, and accents go where it has, unless `normalizer.strip_accents` says otherwise; files without
//! these keys are of models without case.

use super::{Kind, Source, Tokenizer, json, read_vocabulary, shown, spm};
use crate::formats::meta::Meta;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

/// Characters of a word that is looked up, as BERT's own code has it; a longer one is unknown.
const MAX_CHARS: u32 = 100;

/// The id under one of the keys, else that of a text.
fn special(source: &Source, keys: &[&str], text: &str) -> Result<Option<u32>> {
    for key in keys {
        if let Some(id) = source.special(key)? {
            return Ok(Some(id));
        }
    }
    Ok(source.tokens.iter().position(|t| t == text).map(|id| id as u32))
}

pub(super) fn from_gguf(meta: &Meta) -> Result<Tokenizer> {
    let source = read_vocabulary(meta, false)?;
    let (mut vocab, mut texts) = (Map::with_capacity(source.tokens.len()), Vec::with_capacity(source.tokens.len()));
    let mut added = Vec::new();
    for (id, (token, kind)) in source.tokens.iter().zip(&source.kinds).enumerate() {
        let text = match (kind, token.strip_prefix(spm::SPACE)) {
            (Kind::Control | Kind::Unknown | Kind::UserDefined, _) => {
                let is_special = *kind != Kind::UserDefined;
                added.push(json!({"id": id, "content": token, "special": is_special, "single_word": false,
                    "lstrip": false, "rstrip": false, "normalized": false}));
                token.clone()
            }
            (_, Some(word)) => word.to_string(),
            (_, None) => format!("##{token}"),
        };
        texts.push(text.clone());
        if let Some(first) = vocab.insert(text, id.into()) {
            bail!("tokenizer.ggml.tokens: {first} and {id} are both {}", shown(token));
        }
    }
    let start = special(&source, &["cls_token_id", "bos_token_id"], "[CLS]")?;
    let end = special(&source, &["seperator_token_id", "separator_token_id", "eos_token_id"], "[SEP]")?;
    let unknown = special(&source, &["unknown_token_id"], "[UNK]")?
        .context("tokenizer.ggml.unknown_token_id is missing: bert vocabularies need it")?;
    let name = |id: u32| match source.kinds[id as usize] {
        Kind::Control | Kind::Unknown | Kind::UserDefined => Ok(source.tokens[id as usize].clone()),
        _ => bail!("tokenizer.ggml.tokens[{id}]: {} is no control token", shown(&source.tokens[id as usize])),
    };
    let ends = [start.map(name).transpose()?, end.map(name).transpose()?];
    let part = |text: &Option<String>| text.as_ref().map(|t| json!({"SpecialToken": {"id": t, "type_id": 0}}));
    let single: Vec<Value> = part(&ends[0])
        .into_iter()
        .chain([json!({"Sequence": {"id": "A", "type_id": 0}})])
        .chain(part(&ends[1]))
        .collect();
    let tokens: Map<String, Value> = ends
        .iter()
        .zip([start, end])
        .filter_map(|(text, id)| Some((text.clone()?, json!({"id": text, "ids": [id?], "tokens": [text]}))))
        .collect();
    let flag = |key: &str| meta.typed::<bool>(&format!("tokenizer.ggml.normalizer.{key}"));
    let (lowercase, strip_accents) = (flag("lowercase")?.unwrap_or(true), flag("strip_accents")?);
    let file = json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": strip_accents, "lowercase": lowercase},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": tokens},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": texts[unknown as usize], "continuing_subword_prefix": "##",
            "max_input_chars_per_word": MAX_CHARS, "vocab": vocab},
    });
    let adds: Option<bool> = meta.typed("tokenizer.ggml.add_bos_token")?;
    let config = json!({"add_bos_token": adds});
    json::load(&serde_json::to_vec(&file)?, Some(&config), None, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::meta::Value as Entry;

    fn tokenizer(more: Vec<(&str, Entry)>) -> Result<Tokenizer> {
        let words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u{2581}un", "aff", "able", "\u{2581},", "\u{2581}cafe"];
        let tokens: Vec<String> = words.map(String::from).to_vec();
        let mut entries = vec![
            ("model", Entry::Str("bert".into())),
            ("tokens", Entry::StrArray(tokens)),
            ("token_type", Entry::I32Array(vec![3, 3, 3, 3, 1, 1, 1, 1, 1])),
        ];
        entries.retain(|(k, _)| more.iter().all(|(m, _)| m != k));
        entries.extend(more);
        let entries = entries.into_iter().map(|(k, v)| (format!("tokenizer.ggml.{k}"), v)).collect();
        Tokenizer::from_gguf(&Meta { entries })
    }

    #[test]
    fn words_are_cut_from_the_left_in_lower_case_and_without_accents() {
        let t = tokenizer(vec![]).unwrap();
        let ids = |text: &str| t.encode(text, t.adds_bos(), false).unwrap();
        assert_eq!(ids("Unaffable, caf\u{e9}"), [2, 4, 5, 6, 7, 8, 3]);
        assert_eq!(ids("cafe\u{301} xyz"), [2, 8, 1, 3]);
        assert_eq!(ids(""), [2, 3]);
        // what is no control token in a text
        assert_eq!(t.encode("[SEP]", false, true).unwrap(), [3]);
        assert!(!t.encode("[SEP]", false, false).unwrap().contains(&3));
        assert_eq!(t.decode(&[2, 4, 5, 6, 8, 3]), "unaffable cafe");
    }

    #[test]
    fn case_and_accents_stay_where_the_file_says_so() {
        let tokens = [
            "[PAD]",
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "\u{2581}cafe",
            "\u{2581}caf\u{e9}",
            "\u{2581}Cafe",
            "\u{2581}Caf\u{e9}",
        ];
        let of = |more: Vec<(&'static str, Entry)>| {
            let tokens = Entry::StrArray(tokens.map(String::from).to_vec());
            let base = vec![("tokens", tokens), ("token_type", Entry::I32Array(vec![3, 3, 3, 3, 1, 1, 1, 1]))];
            let t = tokenizer(base.into_iter().chain(more).collect()).unwrap();
            t.encode("Caf\u{e9}", true, false).unwrap()[1]
        };
        let (case, accents) = ("normalizer.lowercase", "normalizer.strip_accents");
        assert_eq!(of(vec![]), 4);
        assert_eq!(of(vec![(case, Entry::Bool(true)), (accents, Entry::Bool(false))]), 5);
        assert_eq!(of(vec![(case, Entry::Bool(false)), (accents, Entry::Bool(true))]), 6);
        assert_eq!(of(vec![(case, Entry::Bool(false))]), 7);
    }

    #[test]
    fn the_ends_may_be_named_and_a_vocabulary_without_an_unknown_token_is_refused() {
        let t = tokenizer(vec![("cls_token_id", Entry::U32(0)), ("seperator_token_id", Entry::U32(2))]).unwrap();
        assert_eq!(t.encode("un", true, false).unwrap(), [0, 4, 2]);
        let tokens = Entry::StrArray(vec!["\u{2581}a".into()]);
        let error = tokenizer(vec![("tokens", tokens), ("token_type", Entry::I32Array(vec![1]))]).unwrap_err();
        assert!(error.to_string().contains("unknown_token_id"), "{error}");
    }
}
