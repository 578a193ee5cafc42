//! ModernBERT's files as other programs write them, and what of its directories is refused.

use crate::encoders::{bits, checkpoint, ids, on_cpu, open, quantized};
use crate::program::isobit;
use isobit::internals::formats::meta::Value;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::generate::tokenizer::Tokenizer;
use isobit::internals::models::Hyper;
use safetensors::SafeTensors;
use serde_json::json;
use std::path::Path;

/// The states of two texts, one past the windows.
fn states(c: &Container) -> anyhow::Result<Vec<Vec<Vec<u32>>>> {
    let h = Hyper::read(c)?;
    Ok(bits(&on_cpu((c, &h), &[ids(65), ids(9)])))
}

fn set(c: &mut Container, key: &str, value: Value) {
    let key = format!("modern-bert.{key}");
    c.meta.entries.retain(|(k, _)| *k != key);
    c.meta.entries.push((key, value));
}

#[test]
fn a_file_has_the_bits_of_its_keys_however_they_are_written() {
    for form in ["modern", "modern-silu"] {
        let (_dir, path) = checkpoint(form);
        let file = quantized(&path, "f32");
        let open = || Container::open(&file, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
        let expected = states(&open()).expect("runs");
        let same = |what: &str, change: &dyn Fn(&mut Container)| {
            let mut c = open();
            change(&mut c);
            let found = states(&c).unwrap_or_else(|e| panic!("{what}: {e:#}"));
            assert!(found == expected, "{form}, {what}");
        };
        // llama.cpp's converter
        same("a period of windows", &|c| set(c, "attention.sliding_window_pattern", Value::U32(3)));
        same("no list of windows", &|c| {
            c.meta.entries.retain(|(k, _)| k != "modern-bert.attention.sliding_window_pattern");
        });
        same("heads over pooled states", &|c| {
            for name in ["cls.weight", "cls.norm.weight"] {
                let mut t = c.tensors.iter().find(|t| t.name == "blk.1.attn_output.weight").expect("is there").clone();
                t.name = name.into();
                c.tensors.push(t);
            }
        });
        let differs = |what: &str, change: &dyn Fn(&mut Container)| {
            let mut c = open();
            change(&mut c);
            assert!(states(&c).unwrap_or_else(|e| panic!("{what}: {e:#}")) != expected, "{form}, {what}");
        };
        differs("another period", &|c| set(c, "attention.sliding_window_pattern", Value::U32(2)));
        let other = if form == "modern" { "silu" } else { "gelu" };
        differs("the other gate", &|c| set(c, "hidden_activation", Value::Str(other.into())));
        let no_gate = |c: &mut Container| c.meta.entries.retain(|(k, _)| k != "modern-bert.hidden_activation");
        if form == "modern" {
            same("no word of the gate", &no_gate);
        } else {
            differs("no word of the gate", &no_gate);
        }
        let mut c = open();
        set(&mut c, "hidden_activation", Value::Str("relu".into()));
        let e = format!("{:#}", Hyper::read(&c).expect_err("no such gate"));
        assert!(e.contains("hidden_activation relu is not supported"), "{e}");
    }
}

/// llama.cpp takes a norm before the first attention where a file has one.
#[test]
fn a_norm_before_the_first_attention_is_taken_where_there_is_one() {
    let (_dir, path) = checkpoint("modern");
    let texts = [ids(65), ids(9)];
    let of = |path: &Path| {
        let (c, h) = open(path);
        bits(&on_cpu((&c, &h), &texts))
    };
    let plain = of(&path);
    let file = path.join("model.safetensors");
    let bytes = std::fs::read(&file).expect("read");
    let all = SafeTensors::deserialize(&bytes).expect("tensors");
    let norm = all.tensor("layers.1.attn_norm.weight").expect("is there");
    let mut tensors = all.tensors();
    tensors.push(("layers.0.attn_norm.weight".into(), norm));
    std::fs::write(&file, safetensors::serialize(tensors, None).expect("fits")).expect("written");
    let (there, here) = (of(&path), of(&quantized(&path, "f32")));
    assert!(there == here && there != plain);
}

#[test]
fn what_no_released_model_has_is_refused_by_its_name() {
    let (_dir, path) = checkpoint("modern-masked");
    let file = path.join("config.json");
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("read")).expect("JSON");
    let error = |key: &str, value: serde_json::Value| {
        let mut config = config.clone();
        config[key] = value;
        std::fs::write(&file, config.to_string()).expect("written");
        let c = Container::open(&path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
        let e = format!("{:#}", Hyper::read(&c).err().unwrap_or_else(|| panic!("{key} is not refused")));
        assert!(e.contains("config.json") && e.lines().count() == 1, "{e}");
        e
    };
    for key in ["norm_bias", "attention_bias", "mlp_bias"] {
        assert!(error(key, true.into()).contains(&format!("{key} = true is not supported")));
    }
    assert!(error("local_attention", json!(null)).contains("local_attention is null"));
    assert!(error("local_attention", json!(0)).contains("local_attention gives no window"));
    assert!(error("hidden_activation", json!("relu")).contains("hidden_activation relu is not supported"));
    let scaled = error("rope_scaling", json!({"rope_type": "linear", "factor": 2.0}));
    assert!(scaled.contains("rope_scaling is not supported for modern-bert"), "{scaled}");
}

#[test]
fn the_rotation_of_layers_that_see_all_may_be_scaled() {
    let (_dir, path) = checkpoint("modern");
    let texts = [ids(65)];
    let plain = open(&path);
    let plain = on_cpu((&plain.0, &plain.1), &texts);
    let file = path.join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("read")).expect("JSON");
    config["rope_parameters"]["full_attention"] = json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 80_000.0});
    std::fs::write(&file, config.to_string()).expect("written");
    let (there, here) = (open(&path), open(&quantized(&path, "f32")));
    let found = on_cpu((&there.0, &there.1), &texts);
    assert!(found == on_cpu((&here.0, &here.1), &texts) && found != plain);
}

/// mmBERT's config has the id of its last token under the name of BERT's first.
#[test]
fn texts_are_between_what_the_post_processor_puts_there_whatever_the_files_call_it() {
    let (_dir, path) = checkpoint("modern");
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path.join(name)).expect("read")).expect("JSON")
    };
    let write = |name: &str, v: &serde_json::Value| std::fs::write(path.join(name), v.to_string()).expect("written");
    let (config, tokenizer) = (read("config.json"), read("tokenizer.json"));
    let whole = Tokenizer::read(&open(&path).0).expect("a tokenizer").encode_whole("Once", false).expect("encodes");
    let bare = whole[1..whole.len() - 1].to_vec();
    assert!(!bare.is_empty() && bare.iter().all(|id| *id > 4), "{whole:?}");
    let check = |expected: [u32; 2]| {
        let out = quantized(&path, "f32");
        for path in [&path, &out] {
            let t = Tokenizer::read(&open(path).0).unwrap_or_else(|e| panic!("{e:#}"));
            for ids in [t.encode("Once", t.adds_bos(), false), t.encode_whole("Once", false)] {
                let ids = ids.expect("encodes");
                assert_eq!(ids, [&expected[..1], &bare, &expected[1..]].concat(), "{}", path.display());
            }
        }
        std::fs::remove_file(out).expect("removed");
    };
    check([0, 2]);
    // ids of others: 1 is padding, 3 an unknown token's
    let mut other = config.clone();
    for (key, id) in [("bos_token_id", 1), ("cls_token_id", 2), ("eos_token_id", 3), ("sep_token_id", 0)] {
        other[key] = id.into();
    }
    write("config.json", &other);
    check([0, 2]);
    // and the other way: a config that is right beside a template that puts others there
    let text = |id: u64| {
        let added = tokenizer["added_tokens"].as_array().expect("a list");
        added.iter().find(|t| t["id"] == id).and_then(|t| t["content"].as_str()).expect("is there").to_string()
    };
    let of = |id: u64| json!({"id": text(id), "ids": [id], "tokens": [text(id)]});
    let special = |id: u64| json!({"SpecialToken": {"id": text(id), "type_id": 0}});
    let mut turned = tokenizer.clone();
    turned["post_processor"] = json!({"type": "TemplateProcessing",
        "single": [special(2), {"Sequence": {"id": "A", "type_id": 0}}, special(0)], "pair": [],
        "special_tokens": {text(0): of(0), text(2): of(2)}});
    write("tokenizer.json", &turned);
    write("config.json", &config);
    check([2, 0]);
    // texts in the config go as little before it
    let named = json!({"bos_token": text(1), "cls_token": text(2), "eos_token": text(3), "sep_token": text(0)});
    write("tokenizer.json", &tokenizer);
    write("tokenizer_config.json", &named);
    check([0, 2]);
    // a config's word that nothing goes before
    write("tokenizer_config.json", &json!({"add_bos_token": false}));
    let out = quantized(&path, "f32");
    for path in [&path, &out] {
        let t = Tokenizer::read(&open(path).0).unwrap_or_else(|e| panic!("{e:#}"));
        let ids = t.encode_whole("Once", false).expect("encodes");
        assert_eq!(ids, [&bare[..], &[2]].concat(), "{}", path.display());
    }
    // nothing behind texts: no file says so
    let mut open_end = tokenizer.clone();
    open_end["post_processor"]["single"].as_array_mut().expect("a list").truncate(2);
    write("tokenizer.json", &open_end);
    assert!(refused(&path).contains("puts no control token before a text"));
    // nor of text that is cut at spaces
    let mut pieces = tokenizer.clone();
    (pieces["normalizer"], pieces["model"]["byte_fallback"]) = (json!(null), true.into());
    pieces["pre_tokenizer"] =
        json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true});
    write("tokenizer.json", &pieces);
    assert!(refused(&path).contains("cut at spaces (Metaspace)"));
}

/// What `quantize` says of a directory that it does not convert, in its last line.
fn refused(path: &Path) -> String {
    let out = path.with_file_name("refused.gguf");
    let args = ["quantize".as_ref(), path.as_os_str(), out.as_os_str(), "f32".as_ref()];
    let done = isobit(args).output().expect("starts");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.code() == Some(2) && !out.exists(), "{said}");
    said.lines().last().unwrap_or_default().to_string()
}

/// The tokenizer of granite-embedding's smaller multilingual R2, over the merges of `bytes.json`: o200k's expression as published.
#[test]
fn words_that_are_tokens_go_before_merges_in_a_file_as_in_its_directory() {
    const WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let (_dir, path) = checkpoint("modern");
    let file = path.join("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("read")).expect("JSON");
    json["normalizer"] = json!(null);
    json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]});
    // a word that no merge leads to
    let vocab = json["model"]["vocab"].as_object_mut().expect("an object");
    let word = vocab.len() as u64;
    assert!(vocab.insert("qxq".into(), word.into()).is_none() && !vocab.values().any(|id| id.as_u64() > Some(word)));
    let texts = ["qxq", "helloWorld 1234", "The King's sons\n\n  x\u{c9}t\u{e9}", "qxq qxq"];
    let mut found = Vec::new();
    for first in [true, false] {
        json["model"]["ignore_merges"] = first.into();
        std::fs::write(&file, json.to_string()).expect("written");
        let out = quantized(&path, "f32");
        let [there, here] = [&path, &out].map(|path| {
            let t = Tokenizer::read(&open(path).0).unwrap_or_else(|e| panic!("{e:#}"));
            texts.map(|text| t.encode_whole(text, false).unwrap_or_else(|e| panic!("{text:?}: {e:#}")))
        });
        assert_eq!(there, here, "whole words first: {first}");
        let rule = open(&out).0.meta.str("tokenizer.ggml.pre").map(String::from);
        assert_eq!(rule.as_deref(), Some(if first { "granite-embed-multi-97m" } else { "gpt-4o" }));
        assert_eq!(here[0] == [0, word as u32, 2], first, "{:?}", here[0]);
        found.push(here);
        std::fs::remove_file(out).expect("removed");
    }
    assert_ne!(found[0], found[1]);
}
