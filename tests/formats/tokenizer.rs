//! The tokenisers against ids made by the reference tools (`tests/data/tokenizer/README.md`), and against vocabularies
//! made to break them.

use crate::busy::Busy;
use isobit::internals::formats::meta::{Meta, Value};
use isobit::internals::generate::tokenizer::{StreamDecoder, Tokenizer};
use serde_json::{Value as Json, json};
use std::time::Duration;

fn data(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/tokenizer/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn json_data(name: &str) -> Json {
    serde_json::from_slice(&data(name)).unwrap()
}

fn strings(v: &Json) -> Vec<String> {
    serde_json::from_value(v.clone()).unwrap()
}

fn ids(v: &Json) -> Vec<u32> {
    serde_json::from_value(v.clone()).unwrap()
}

fn meta(entries: Vec<(&str, Value)>) -> Meta {
    let key = |k: &str| match k.contains('.') {
        true => k.to_string(),
        false => format!("tokenizer.ggml.{k}"),
    };
    Meta { entries: entries.into_iter().map(|(k, v)| (key(k), v)).collect() }
}

fn text(s: &str) -> Value {
    Value::Str(s.to_string())
}

fn texts(list: &[&str]) -> Value {
    Value::StrArray(list.iter().map(|s| s.to_string()).collect())
}

fn with(mut meta: Meta, key: &str, value: Value) -> Meta {
    let key = if key.contains('.') { key.to_string() } else { format!("tokenizer.ggml.{key}") };
    meta.entries.retain(|(k, _)| *k != key);
    meta.entries.push((key, value));
    meta
}

fn without(mut meta: Meta, key: &str) -> Meta {
    meta.entries.retain(|(k, _)| *k != format!("tokenizer.ggml.{key}"));
    meta
}

fn tiny_gguf() -> Tokenizer {
    let v = json_data("tiny_gguf_vocab.json");
    let types: Vec<i32> = serde_json::from_value(v["token_type"].clone()).unwrap();
    Tokenizer::from_gguf(&meta(vec![
        ("model", text(v["model"].as_str().unwrap())),
        ("pre", text(v["pre"].as_str().unwrap())),
        ("tokens", Value::StrArray(strings(&v["tokens"]))),
        ("token_type", Value::I32Array(types)),
        ("merges", Value::StrArray(strings(&v["merges"]))),
        ("bos_token_id", Value::U32(v["bos_token_id"].as_u64().unwrap() as u32)),
        ("eos_token_id", Value::U32(v["eos_token_id"].as_u64().unwrap() as u32)),
        ("add_bos_token", Value::Bool(v["add_bos_token"].as_bool().unwrap())),
    ]))
    .unwrap()
}

fn tiny_json() -> Tokenizer {
    let config = json!({"bos_token": "<|bos|>", "eos_token": {"content": "<|eos|>"}, "add_bos_token": true});
    Tokenizer::from_tokenizer_json(&data("tiny_tokenizer.json"), Some(&config), None, None).unwrap()
}

/// The byte-level vocabulary whose merges cross every boundary a split rule may draw.
fn bpe(rule: &str) -> Tokenizer {
    let v = json_data("bpe_vocab.json");
    let tokens = strings(&v["tokens"]);
    let mut types = vec![1; tokens.len()];
    types[..2].fill(3);
    Tokenizer::from_gguf(&meta(vec![
        ("model", text("gpt2")),
        ("pre", text(rule)),
        ("tokens", Value::StrArray(tokens)),
        ("token_type", Value::I32Array(types)),
        ("merges", Value::StrArray(strings(&v["merges"]))),
        ("bos_token_id", Value::U32(0)),
        ("eos_token_id", Value::U32(1)),
    ]))
    .unwrap()
}

fn spm_meta(name: &str) -> Meta {
    let v = json_data(&format!("spm_{name}_vocab.json"));
    let scores: Vec<f32> = serde_json::from_value(v["scores"].clone()).unwrap();
    let types: Vec<i32> = serde_json::from_value(v["types"].clone()).unwrap();
    meta(vec![
        ("model", text("llama")),
        ("tokens", Value::StrArray(strings(&v["tokens"]))),
        ("scores", Value::F32Array(scores)),
        ("token_type", Value::I32Array(types)),
        ("add_space_prefix", Value::Bool(v["space_prefix"].as_bool().unwrap())),
    ])
}

/// A `tokenizer.json` of the byte-level vocabulary.
fn bpe_json(pre_tokenizer: Json, ignore_merges: bool) -> Json {
    let v = json_data("bpe_vocab.json");
    let vocab: serde_json::Map<String, Json> =
        strings(&v["tokens"]).into_iter().zip(0..).map(|(t, id)| (t, json!(id))).collect();
    let special = |id: u32, content: &str| json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<|bos|>"), special(1, "<|eos|>")],
        "normalizer": null, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": ignore_merges, "vocab": vocab, "merges": v["merges"]}
    })
}

fn load_json(file: &Json) -> anyhow::Result<Tokenizer> {
    Tokenizer::from_tokenizer_json(&serde_json::to_vec(file).unwrap(), None, None, None)
}

/// A small SentencePiece vocabulary for the hostile tests.
fn small_spm() -> Meta {
    meta(vec![
        ("model", text("llama")),
        ("tokens", texts(&["<unk>", "<s>", "</s>", "<0x41>", "\u{2581}", "a", "b", "ab", "\u{2581}ab"])),
        ("scores", Value::F32Array(vec![0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0])),
        ("token_type", Value::I32Array(vec![2, 3, 3, 6, 1, 1, 1, 1, 1])),
    ])
}

/// A small byte-level vocabulary for the hostile tests; it lacks most bytes.
fn small_bpe() -> Meta {
    meta(vec![
        ("model", text("gpt2")),
        ("pre", text("gpt-2")),
        ("tokens", texts(&["a", "b", "ab", "<|endoftext|>"])),
        ("token_type", Value::I32Array(vec![1, 1, 1, 3])),
        ("merges", texts(&["a b"])),
    ])
}

fn refused(meta: Meta, words: &[&str]) {
    let error = format!("{:#}", Tokenizer::from_gguf(&meta).expect_err(&words.join(" ")));
    assert!(words.iter().all(|w| error.contains(w)), "{error:?} lacks one of {words:?}");
    assert!(!error.contains('\n') && error.len() < 1000, "{error:?}");
}

/// Ids and pieces agree in every way of decoding.
fn check_decoding(t: &Tokenizer, ids: &[u32], want: &str) {
    assert_eq!(t.decode(ids), want);
    let mut stream = StreamDecoder::new();
    let mut shown: String = ids.iter().map(|&id| stream.push(t, id)).collect();
    shown.push_str(&stream.finish());
    assert_eq!(shown, want, "streamed");
}

#[test]
fn the_tiny_model_s_cases_come_out_right_from_gguf_and_from_tokenizer_json() {
    let cases = json_data("tiny_cases.json");
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 20);
    for t in [tiny_gguf(), tiny_json()] {
        assert_eq!((t.vocab_size(), t.bos(), t.eos(), t.adds_bos()), (2048, Some(0), &[1u32][..], true));
        for case in cases {
            let (text, want) = (case["text"].as_str().unwrap(), ids(&case["ids"]));
            assert_eq!(t.encode(text, false, true).unwrap(), want, "{text:?}");
            let with_bos = t.encode(text, true, true).unwrap();
            let bos_once = if want.first() == Some(&0) { want.clone() } else { [vec![0], want.clone()].concat() };
            assert_eq!(with_bos, bos_once, "{text:?}");
            check_decoding(&t, &with_bos, &text.replace("<|bos|>", "").replace("<|eos|>", ""));
        }
    }
}

#[test]
fn special_tokens_are_plain_text_unless_parsed() {
    for t in [tiny_gguf(), tiny_json()] {
        let special = t.encode("<|bos|>x<|eos|>", false, true).unwrap();
        assert_eq!((special[0], *special.last().unwrap()), (0, 1));
        let plain = t.encode("<|bos|>x<|eos|>", false, false).unwrap();
        assert!(!plain.contains(&0) && !plain.contains(&1), "{plain:?}");
        check_decoding(&t, &plain, "<|bos|>x<|eos|>");
        check_decoding(&t, &special, "x");
    }
}

#[test]
fn gguf_and_tokenizer_json_of_one_vocabulary_agree_on_every_hard_text() {
    let golden = json_data("bpe_golden.json");
    let (gguf, json) = (tiny_gguf(), tiny_json());
    for text in strings(&golden["texts"]) {
        for special in [false, true] {
            assert_eq!(
                gguf.encode(&text, true, special).unwrap(),
                json.encode(&text, true, special).unwrap(),
                "{text:?}"
            );
        }
    }
    for id in 0..2050 {
        assert_eq!(gguf.piece(id), json.piece(id), "{id}");
        assert_eq!(gguf.token_text(id), json.token_text(id), "{id}");
    }
}

#[test]
fn every_split_rule_gives_the_reference_ids_on_every_hard_text() {
    let golden = json_data("bpe_golden.json");
    let texts = strings(&golden["texts"]);
    assert!(texts.len() >= 60, "{}", texts.len());
    let rules = golden["rules"].as_object().unwrap();
    assert_eq!(rules.len(), 14);
    let mut wrong = Vec::new();
    for (rule, golden) in rules {
        let t = bpe(rule);
        for (text, want) in texts.iter().zip(golden["ids"].as_array().unwrap()) {
            let got = t.encode(text, false, false).unwrap();
            if got != ids(want) {
                wrong.push(format!("{rule} {text:?}\n  want {want}\n  got  {got:?}"));
            }
            check_decoding(&t, &got, text);
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn split_rules_in_tokenizer_json_give_the_reference_ids() {
    let golden = json_data("bpe_golden.json");
    let byte_level =
        |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
    let split =
        |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    let llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    for (rule, pre, ignore_merges) in [
        ("gpt-2", byte_level(true), false),
        ("llama-bpe", json!({"type": "Sequence", "pretokenizers": [split(llama3), byte_level(false)]}), true),
    ] {
        let t = load_json(&bpe_json(pre, ignore_merges)).unwrap();
        for (text, want) in strings(&golden["texts"]).iter().zip(golden["rules"][rule]["ids"].as_array().unwrap()) {
            assert_eq!(t.encode(text, false, false).unwrap(), ids(want), "{rule} {text:?}");
        }
    }
}

#[test]
fn families_that_ignore_merges_find_words_no_merge_makes() {
    let (llama, gpt2) = (bpe("llama-bpe"), bpe("dbrx"));
    let whole = llama.encode(" youngest", false, false).unwrap();
    assert_eq!(whole.len(), 1);
    assert!(gpt2.encode(" youngest", false, false).unwrap().len() > 1);
    assert!(llama.adds_bos() && !gpt2.adds_bos());
}

#[test]
fn sentencepiece_vocabularies_give_the_reference_ids_on_every_hard_text() {
    let golden = json_data("spm_golden.json");
    let mut wrong = Vec::new();
    for name in ["prefix", "no_prefix"] {
        let t = Tokenizer::from_gguf(&spm_meta(name)).unwrap();
        assert_eq!((t.bos(), t.eos(), t.adds_bos()), (Some(1), &[2u32][..], true));
        let mut texts = strings(&golden["texts"]);
        texts.extend(strings(&golden["models"][name]["texts"]));
        let want = golden["models"][name]["ids"].as_array().unwrap();
        let decoded = strings(&golden["models"][name]["decoded"]);
        assert_eq!((texts.len(), decoded.len()), (want.len(), want.len()));
        for ((text, want), decoded) in texts.iter().zip(want).zip(decoded) {
            let got = t.encode(text, false, false).unwrap();
            if got != ids(want) {
                wrong.push(format!("{name} {text:?}\n  want {want}\n  got  {got:?}"));
            }
            check_decoding(&t, &got, &decoded);
            check_decoding(&t, &t.encode(text, true, false).unwrap(), &decoded);
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn sentencepiece_control_tokens_are_parsed_only_on_demand_and_a_space_follows_them() {
    let t = Tokenizer::from_gguf(&spm_meta("prefix")).unwrap();
    let plain = t.encode("<s>the</s>", false, false).unwrap();
    assert!(!plain.contains(&1) && !plain.contains(&2));
    let parsed = t.encode("<s>the</s>", true, true).unwrap();
    let the = t.encode("the", false, true).unwrap();
    assert_eq!(parsed, [vec![1], the, vec![2]].concat());
    // a byte token's spelling in the text is text
    assert_eq!(t.decode(&t.encode("<0x41>", false, true).unwrap()), "<0x41>");
}

#[test]
fn merges_of_equal_score_are_made_from_the_left() {
    let m = with(
        small_spm(),
        "tokens",
        texts(&["<unk>", "<s>", "</s>", "<0x41>", "\u{2581}", "a", "b", "aa", "\u{2581}ab"]),
    );
    let t = Tokenizer::from_gguf(&with(m, "add_space_prefix", Value::Bool(false))).unwrap();
    assert_eq!(t.encode("aaa", false, false).unwrap(), [7, 5]);
    assert_eq!(t.encode("aaaa", false, false).unwrap(), [7, 7]);
}

#[test]
fn a_stream_shows_characters_whole_and_replaces_broken_ones_as_a_whole_text_would() {
    let t = bpe("gpt-2");
    let byte = |b: u8| (0..t.vocab_size() as u32).find(|&id| t.piece(id) == [b]).unwrap();
    let mut s = StreamDecoder::new();
    let crab = "🦀".as_bytes();
    assert_eq!(s.push(&t, byte(crab[0])), "");
    assert_eq!(s.push(&t, byte(crab[1])), "");
    assert_eq!(s.push(&t, byte(crab[2])), "");
    assert_eq!(s.push(&t, byte(crab[3])), "🦀");
    assert_eq!(s.finish(), "");
    let hard: [&[u8]; 8] = [
        b"\xf0\x9f",
        b"\xf0\x9fA",
        b"\xff\xfe",
        b"\xe2\x82\xe2\x82\xac",
        b"a\x80b",
        b"\xed\xa0\x80",
        b"\xc3",
        b"\xf0\x9f\xa6\xf0\x9f\xa6\x80\xf0",
    ];
    for bytes in hard {
        let ids: Vec<u32> = bytes.iter().map(|&b| byte(b)).collect();
        check_decoding(&t, &ids, &String::from_utf8_lossy(bytes));
    }
}

#[test]
fn the_first_space_goes_only_at_the_start_of_a_text() {
    let t = Tokenizer::from_gguf(&spm_meta("prefix")).unwrap();
    let ids = t.encode("the king", true, false).unwrap();
    check_decoding(&t, &ids, "the king");
    let mut more = StreamDecoder::continuing();
    let shown: String = ids.iter().map(|&id| more.push(&t, id)).collect();
    assert_eq!(shown, " the king");
    check_decoding(&t, &t.encode(" the king", true, false).unwrap(), " the king");
    check_decoding(&t, &[1, 1], "");
}

#[test]
fn bos_is_added_exactly_once_and_asking_for_one_that_is_not_there_is_an_error() {
    let t = tiny_gguf();
    assert_eq!(t.encode("", true, true).unwrap(), [0]);
    assert_eq!(t.encode("<|bos|>", true, true).unwrap(), [0]);
    let t = Tokenizer::from_gguf(&small_bpe()).unwrap();
    assert_eq!((t.bos(), t.adds_bos(), t.eos()), (None, false, &[3u32][..]));
    assert!(t.encode("a", true, true).unwrap_err().to_string().contains("BOS"));
}

#[test]
fn ends_of_generation_are_gathered_from_keys_and_from_texts() {
    let tokens = ["a", "b", "ab", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|other|>"];
    let m = with(small_bpe(), "tokens", texts(&tokens));
    let m = with(m, "token_type", Value::I32Array(vec![1, 1, 1, 3, 1, 3, 3, 3]));
    let m = with(m, "eos_token_id", Value::U32(7));
    let m = with(m, "eot_token_id", Value::U32(5));
    let m = with(m, "eom_token_id", Value::I32(-1));
    let t = Tokenizer::from_gguf(&m).unwrap();
    assert_eq!(t.eos(), [7, 5, 3, 4, 6]);
    assert!(t.piece(4).is_empty(), "a marker typed as normal text is taken for a control token");
}

#[test]
fn the_default_end_of_text_is_not_taken_where_it_is_an_ordinary_word() {
    let tokens: Vec<String> = (0..20).map(|i| format!("t{i}")).collect();
    let m = with(small_bpe(), "tokens", Value::StrArray(tokens.clone()));
    let m = with(without(m, "token_type"), "merges", texts(&[]));
    let t = Tokenizer::from_gguf(&m).unwrap();
    assert_eq!((t.bos(), t.eos()), (None, &[][..]));
    let mut falcon = tokens;
    falcon[11] = "<|endoftext|>".into();
    let t = Tokenizer::from_gguf(&with(m, "tokens", Value::StrArray(falcon))).unwrap();
    assert_eq!((t.bos(), t.eos()), (Some(11), &[11u32][..]));
}

#[test]
fn phi_3_markers_swallow_the_white_space_after_them() {
    let m = with(spm_meta("prefix"), "general.name", text("Phi-3 mini"));
    let t = Tokenizer::from_gguf(&m).unwrap();
    assert_eq!(t.encode("</s>\n the", false, true).unwrap(), t.encode("</s>the", false, true).unwrap());
    assert_ne!(t.encode("<s>\n the", false, true).unwrap(), t.encode("<s>the", false, true).unwrap());
    // whatever the model is called, its architecture tells
    let mut m = spm_meta("prefix");
    m.entries.push(("general.architecture".into(), text("phi3")));
    let t = Tokenizer::from_gguf(&m).unwrap();
    assert_eq!(t.encode("</s>\n the", false, true).unwrap(), t.encode("</s>the", false, true).unwrap());
    // but not of a byte-level vocabulary, which Phi-4 has
    let mut m = small_bpe();
    m.entries.push(("general.architecture".into(), text("phi3")));
    assert!(Tokenizer::from_gguf(&m).is_ok());
}

/// A sentencepiece vocabulary with ChatGLM3's control tokens after it, of this architecture.
fn chatglm_spm(architecture: &str) -> Meta {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    tokens.extend((0..=255u8).map(|b| format!("<0x{b:02X}>")));
    tokens.extend(["\u{2581}", "s", "o", "p", "h", "so", "sop", "\u{2581}sop"].map(String::from));
    let ordinary = tokens.len();
    // `sop` is a syllable of the vocabulary here, and a control token under another text
    tokens.extend(["[MASK]", "[gMASK]", "[sMASK]", "eop", "<|user|>", "<|observation|>"].map(String::from));
    let types = (0..tokens.len()).map(|i| match i {
        0 => 2,
        1 | 2 => 3,
        3..259 => 6,
        _ if i < ordinary => 1,
        _ => 3,
    });
    let mut m = meta(vec![
        ("model", text("llama")),
        ("scores", Value::F32Array((0..tokens.len()).map(|i| -(i as f32)).collect())),
        ("token_type", Value::I32Array(types.collect())),
        ("tokens", Value::StrArray(tokens)),
        ("add_bos_token", Value::Bool(true)),
    ]);
    m.entries.push(("general.architecture".into(), text(architecture)));
    m
}

#[test]
fn texts_for_chatglm_begin_with_its_two_tokens_and_end_where_another_s_turn_begins() {
    // ChatGLM3: `sop` has no brackets; where the vocabulary has it as an ordinary token, that is the one
    let m = chatglm_spm("chatglm");
    let t = Tokenizer::from_gguf(&m).unwrap();
    let id = |want: &str| (0..t.vocab_size() as u32).find(|&id| t.token_text(id).as_deref() == Some(want)).unwrap();
    let start = [id("[gMASK]"), id("sop")];
    assert_eq!((t.start(), t.adds_bos()), (&start[..], true));
    assert_eq!(t.eos(), [id("</s>"), id("<|user|>"), id("<|observation|>")]);
    let plain = t.encode("sop", false, true).unwrap();
    assert_eq!(t.encode("sop", true, true).unwrap(), [&start[..], &plain].concat());
    assert_eq!(t.encode("", true, true).unwrap(), start);
    // a prompt that has them already keeps them as they are; the first of a long one are those of the whole
    assert_eq!(t.encode_first("sop", true, true, 3).unwrap(), [start[0], start[1], plain[0]]);
    assert_eq!(t.encode("[gMASK]", false, true).unwrap(), [start[0]]);
    // of another architecture the same vocabulary begins with BOS
    let t = Tokenizer::from_gguf(&chatglm_spm("llama")).unwrap();
    assert_eq!((t.start(), t.adds_bos(), t.eos()), (&[1u32][..], true, &[2u32][..]));

    // control tokens that are syllables never come from text
    let Value::StrArray(mut tokens) = m.get("tokenizer.ggml.tokens").unwrap().clone() else { unreachable!() };
    let syllable = tokens.iter().position(|t| t == "sop").unwrap();
    (tokens[syllable], tokens[syllable + 1]) = ("[x]".into(), "[y]".into());
    let last = tokens.len() - 6;
    tokens[last] = "sop".into();
    let t = Tokenizer::from_gguf(&with(m, "tokens", Value::StrArray(tokens))).unwrap();
    assert_eq!(t.start(), [last as u32 + 1, last as u32]);
    let ids = t.encode("sops eop", false, true).unwrap();
    assert!(!ids.contains(&(last as u32)) && ids.len() > 2, "{ids:?}");
    assert_eq!(t.decode(&ids), "sops eop");

    // GLM-4: byte-level, with brackets
    let mut m = with(small_bpe(), "tokens", texts(&["a", "b", "ab", "<|endoftext|>", "[gMASK]", "<sop>", "<|user|>"]));
    m = with(m, "token_type", Value::I32Array(vec![1, 1, 1, 3, 3, 3, 3]));
    m = with(m, "pre", text("chatglm-bpe"));
    m.entries.push(("general.architecture".into(), text("chatglm")));
    let t = Tokenizer::from_gguf(&m).unwrap();
    assert_eq!((t.bos(), t.start(), t.adds_bos(), t.eos()), (None, &[4, 5][..], true, &[3, 6][..]));
    assert_eq!(t.encode("[gMASK]<sop>ab", true, true).unwrap(), [4, 5, 2]);
    assert_eq!(t.encode("ab", true, false).unwrap(), [4, 5, 2]);
    assert_eq!(t.encode("ab", false, false).unwrap(), [2]);
    // a vocabulary without them begins with nothing
    let m = with(m, "tokens", texts(&["a", "b", "ab", "<|endoftext|>", "[x]", "<sop>", "<|user|>"]));
    let t = Tokenizer::from_gguf(&m).unwrap();
    assert_eq!((t.start(), t.adds_bos()), (&[][..], false));
}

#[test]
fn a_tokenizer_json_beside_a_glm_begins_with_its_two_tokens() {
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let mut file = bpe_json(level, false);
    let n = file["model"]["vocab"].as_object().unwrap().len();
    for (i, content) in ["[gMASK]", "<sop>", "<|user|>", "<|observation|>"].into_iter().enumerate() {
        let token = json!({"id": n + i, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true});
        file["added_tokens"].as_array_mut().unwrap().push(token);
    }
    let file = serde_json::to_vec(&file).unwrap();
    for model_type in ["glm", "chatglm", "llama"] {
        let model = json!({"model_type": model_type, "eos_token_id": [1]});
        let t = Tokenizer::from_tokenizer_json(&file, None, None, Some(&model)).unwrap();
        let n = n as u32;
        let glm = model_type != "llama";
        assert_eq!(t.start(), if glm { vec![n, n + 1] } else { vec![] }, "{model_type}");
        assert_eq!((t.adds_bos(), t.eos().len()), (glm, if glm { 3 } else { 1 }), "{model_type}");
        let ids = t.encode("King", t.adds_bos(), false).unwrap();
        assert_eq!(ids.starts_with(&[n, n + 1]), glm);
    }
}

#[test]
fn a_missing_split_rule_is_the_default_one_and_an_unknown_one_is_refused() {
    assert!(Tokenizer::from_gguf(&without(small_bpe(), "pre")).is_ok());
    refused(with(small_bpe(), "pre", text("gpt-99")), &["gpt-99", "known are", "llama-bpe", "qwen2"]);
}

#[test]
fn broken_vocabularies_are_refused_with_the_place_named() {
    refused(meta(vec![]), &["tokenizer.ggml.model"]);
    refused(with(small_spm(), "model", text("rwkv")), &["rwkv", "gpt2"]);
    refused(without(small_spm(), "tokens"), &["tokenizer.ggml.tokens"]);
    refused(with(small_spm(), "tokens", texts(&[])), &["0 tokens"]);
    refused(with(small_spm(), "tokens", Value::U32(3)), &["tokenizer.ggml.tokens"]);
    refused(without(small_spm(), "scores"), &["scores"]);
    refused(with(small_spm(), "scores", Value::F32Array(vec![0.0; 8])), &["scores", "8 entries", "9 tokens"]);
    refused(with(small_spm(), "scores", Value::F32Array(vec![0.0; 10])), &["scores", "10 entries"]);
    refused(
        with(small_spm(), "scores", Value::F32Array([vec![0.0; 8], vec![f32::NAN]].concat())),
        &["scores[8]", "NaN"],
    );
    refused(with(small_spm(), "scores", text("x")), &["scores", "array"]);
    refused(with(small_spm(), "token_type", Value::I32Array(vec![1; 3])), &["token_type", "3 entries"]);
    for id in [9u32, 100, 1 << 31] {
        for key in ["bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "unknown_token_id"] {
            refused(with(small_spm(), key, Value::U32(id)), &[key, &id.to_string(), "9 tokens"]);
        }
    }
    refused(with(small_spm(), "eos_token_id", Value::U64(1 << 40)), &["eos_token_id"]);
    for bad in ["<0x-1>", "<0x+1>", "<0xé>", "<0x>", "<0x100>", "0x41", "<0x4G>"] {
        refused(
            with(
                small_spm(),
                "tokens",
                texts(&["<unk>", "<s>", "</s>", bad, "\u{2581}", "a", "b", "ab", "\u{2581}ab"]),
            ),
            &["tokens[3]", "byte token"],
        );
    }
    refused(
        with(small_spm(), "tokens", texts(&["a", "b", "c", "<0x41>", "d", "e", "f", "b", "g"])),
        &["1 and 7", "\"b\""],
    );
    refused(without(small_bpe(), "merges"), &["merges"]);
    refused(with(small_bpe(), "merges", texts(&["a b", "a x"])), &["merges[1]", "\"a x\"", "\"x\""]);
    refused(with(small_bpe(), "merges", texts(&["x a"])), &["merges[0]", "\"x\""]);
    refused(with(small_bpe(), "merges", texts(&["b a"])), &["merges[0]", "\"ba\""]);
    for bad in ["", " ", "ab", "  ", "é", "a  b"] {
        refused(with(small_bpe(), "merges", texts(&[bad])), &["merges[0]"]);
    }
    let long = "x".repeat(100_000);
    refused(with(small_bpe(), "merges", texts(&[&long])), &["merges[0]", "…"]);
}

#[test]
fn odd_but_harmless_vocabularies_load() {
    let m = with(small_spm(), "tokens", texts(&["<unk>", "", "</s>", "<0x41>", "", "a", "b", "ab", "\u{2581}ab"]));
    let t = Tokenizer::from_gguf(&m).unwrap();
    assert_eq!(t.token_text(1).as_deref(), Some("[EMPTY_1]"));
    assert_eq!(t.token_text(9), None);
    assert_eq!(t.token_text(u32::MAX), None);
    assert!(t.piece(u32::MAX).is_empty());
    assert_eq!(t.decode(&[5, 99, u32::MAX, 6]), "ab");
    // kinds out of range count as normal
    let m = with(small_spm(), "token_type", Value::I32Array(vec![2, 3, 3, 6, 1, i32::MIN, 0, 99, i32::MAX]));
    assert_eq!(Tokenizer::from_gguf(&m).unwrap().encode("ab", false, false).unwrap(), [8]);
    // no types: bytes by their spelling
    let t = Tokenizer::from_gguf(&without(small_spm(), "token_type")).unwrap();
    assert_eq!(t.piece(3), b"A");
    // padding out of range is of no interest
    assert!(Tokenizer::from_gguf(&with(small_spm(), "padding_token_id", Value::U32(u32::MAX))).is_ok());
}

#[test]
fn what_the_vocabulary_cannot_express_is_unknown_or_an_error() {
    let spm = Tokenizer::from_gguf(&small_spm()).unwrap();
    assert_eq!(spm.encode("abcA", false, false).unwrap(), [8, 0, 3], "c has no byte token, A has");
    let bpe = Tokenizer::from_gguf(&small_bpe()).unwrap();
    assert_eq!(bpe.encode("abba", false, false).unwrap(), [2, 1, 0]);
    assert!(bpe.encode("abc", false, false).unwrap_err().to_string().contains("0x63"));
    let bpe = Tokenizer::from_gguf(&with(small_bpe(), "unknown_token_id", Value::U32(3))).unwrap();
    assert_eq!(bpe.encode("abc", false, false).unwrap(), [2, 3]);
}

#[test]
fn a_megabyte_of_one_character_takes_little_time_in_every_tokeniser() {
    let limit = Duration::from_secs(10);
    let n = 1 << 20;
    let mut list = vec![("tiny json", tiny_json()), ("spm", Tokenizer::from_gguf(&spm_meta("prefix")).unwrap())];
    for rule in [
        "gpt-2",
        "llama-bpe",
        "qwen35",
        "tekken",
        "gpt-4o",
        "deepseek-llm",
        "deepseek-coder",
        "deepseek-v3",
        "falcon",
        "starcoder",
        "default",
    ] {
        list.push((rule, bpe(rule)));
    }
    for (name, t) in &list {
        for text in [
            " ".repeat(n),
            "a".repeat(n),
            "\n".repeat(n),
            "é".repeat(n / 2),
            " ".repeat(n) + "x",
            "a b\n".repeat(n / 4),
            "\u{3000} ".repeat(n / 4),
        ] {
            let start = Busy::now();
            let ids = t.encode(&text, false, true).unwrap();
            let took = start.elapsed();
            println!("{name} {:?} {} ids {took:?}", text.chars().next(), ids.len());
            assert!(took < limit, "{name}: {took:?} for a text beginning {:?}", text.chars().next());
            assert!(t.decode(&ids) == text, "{name}: the text did not come back");
        }
    }
}

#[test]
fn thousands_of_user_defined_tokens_do_not_slow_a_long_text() {
    let mut tokens: Vec<String> = (0..=255u8).map(|b| format!("<0x{b:02X}>")).collect();
    tokens.extend((0..20_000).map(|i| format!("<extra_{i}>")));
    let count = tokens.len();
    let types = (0..count).map(|i| if i < 256 { 6 } else { 4 }).collect();
    let t = Tokenizer::from_gguf(&meta(vec![
        ("model", text("llama")),
        ("tokens", Value::StrArray(tokens)),
        ("scores", Value::F32Array(vec![0.0; count])),
        ("token_type", Value::I32Array(types)),
        ("add_space_prefix", Value::Bool(false)),
    ]))
    .unwrap();
    let start = Busy::now();
    let ids = t.encode(&"xy<extra_7>z<extra_19999>".repeat(10_000), false, false).unwrap();
    assert_eq!(ids[..5], [0x78, 0x79, 256 + 7, 0x7A, 256 + 19_999]);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn tokenizer_json_takes_its_special_ids_from_the_files_beside_it() {
    let file = serde_json::to_vec(&bpe_json(
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
        false,
    ))
    .unwrap();
    let load = |config: Option<Json>, generation: Option<Json>, model: Option<Json>| {
        Tokenizer::from_tokenizer_json(&file, config.as_ref(), generation.as_ref(), model.as_ref())
    };
    let t = load(None, None, None).unwrap();
    assert_eq!((t.bos(), t.eos(), t.adds_bos()), (None, &[][..], false));
    let t = load(
        Some(json!({"eos_token": "<|eos|>"})),
        Some(json!({"eos_token_id": [5, 1, 6]})),
        Some(json!({"bos_token_id": 0, "text_config": {"eos_token_id": 7}})),
    )
    .unwrap();
    assert_eq!((t.bos(), t.eos(), t.adds_bos()), (Some(0), &[1u32, 5, 6, 7][..], false));
    let t =
        load(Some(json!({"bos_token": null, "add_bos_token": true})), None, Some(json!({"bos_token_id": 0}))).unwrap();
    assert_eq!((t.bos(), t.adds_bos()), (None, false));
    let t = load(Some(json!({"bos_token": {"content": "<|bos|>"}, "add_bos_token": true})), None, None).unwrap();
    assert_eq!((t.bos(), t.adds_bos()), (Some(0), true));
    for (config, generation, word) in [
        (Some(json!({"bos_token": "<nope>"})), None, "<nope>"),
        (Some(json!({"eos_token": "<nope>"})), None, "eos_token"),
        (None, Some(json!({"eos_token_id": 1u64 << 40})), "eos_token_id = 1099511627776"),
        (None, Some(json!({"bos_token_id": 99999})), "bos_token_id = 99999"),
    ] {
        let error = format!("{:#}", load(config, generation, None).unwrap_err());
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn tokenizer_json_adds_bos_by_default_when_its_template_does() {
    let load = |config: Option<Json>| {
        Tokenizer::from_tokenizer_json(&data("tiny_tokenizer.json"), config.as_ref(), None, None).unwrap()
    };
    let t = load(None);
    assert_eq!((t.bos(), t.adds_bos()), (Some(0), true));
    assert_eq!(t.encode("a", true, true).unwrap().iter().filter(|&&id| id == 0).count(), 1);
    assert_eq!(t.encode("a", false, true).unwrap().iter().filter(|&&id| id == 0).count(), 0);
    let t = load(Some(json!({"bos_token": "<|bos|>", "add_bos_token": false})));
    assert!(!t.adds_bos());
}

#[test]
fn tokenizer_json_in_the_sentencepiece_manner_decodes_spaces_and_bytes() {
    let file = json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}, "padding": null,
        "added_tokens": [{"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u{2581}"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}]},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": 0.5, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true,
            "vocab": {"<unk>": 0, "<s>": 1, "<0xC3>": 2, "<0xA9>": 3, "\u{2581}": 4, "a": 5, "b": 6, "\u{2581}a": 7}, "merges": [["\u{2581}", "a"]]}
    });
    let t = load_json(&file).unwrap();
    for _ in 0..20 {
        assert_eq!(t.encode("a b aé", false, true).unwrap(), [7, 4, 6, 7, 2, 3], "no truncation, no dropout");
    }
    check_decoding(&t, &[1, 7, 4, 6, 7, 2, 3], "a b aé");
    assert_eq!(t.piece(2), [0xC3]);
}

#[test]
fn broken_tokenizer_json_files_are_refused() {
    let good = || {
        bpe_json(
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
            false,
        )
    };
    type Break = (&'static str, Box<dyn Fn(&mut Json)>);
    let breaks: Vec<Break> = vec![
        ("model", Box::new(|f| f["model"] = json!(null))),
        ("vocab", Box::new(|f| f["model"]["vocab"] = json!([1]))),
        ("vocab", Box::new(|f| f["model"]["vocab"] = json!({}))),
        ("merges[0]", Box::new(|f| f["model"]["merges"] = json!(["a"]))),
        ("merges[0]", Box::new(|f| f["model"]["merges"] = json!([["a", "b", "c"]]))),
        ("merges[0]", Box::new(|f| f["model"]["merges"] = json!([["a", "b".repeat(5000)]]))),
        ("merges[0]", Box::new(|f| f["model"]["continuing_subword_prefix"] = json!("##########"))),
        ("largest id", Box::new(|f| f["model"]["vocab"]["zzz"] = json!(4_000_000_000u32))),
        ("decoder", Box::new(|f| f["decoder"] = json!({"type": "WordPiece", "prefix": "##", "cleanup": true}))),
        ("decoder", Box::new(|f| f["decoder"] = json!(null))),
        (
            "tokenizer.json",
            Box::new(|f| {
                f["pre_tokenizer"] =
                    json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false})
            }),
        ),
        ("tokenizer.json", Box::new(|f| f["version"] = json!("9"))),
    ];
    assert!(load_json(&good()).is_ok());
    for (word, change) in breaks {
        let mut file = good();
        change(&mut file);
        let error = format!("{:#}", load_json(&file).expect_err(word));
        assert!(error.contains(word), "{error:?} lacks {word:?}");
    }
    for bytes in [&b""[..], b"[]", b"null", b"{", b"\xff", b"{\"model\": 3}"] {
        assert!(Tokenizer::from_tokenizer_json(bytes, None, None, None).is_err());
    }
}

#[test]
fn mutated_tokenizer_json_files_never_panic() {
    let good = serde_json::to_vec(&json!({
        "version": "1.0", "added_tokens": [{"id": 6, "content": "<s>", "single_word": false, "lstrip": true, "rstrip": true, "normalized": false, "special": true}],
        "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3, "Ġ": 4, "Ġa": 5}, "merges": ["a b", "ab ab", "Ġ a"]}
    }))
    .unwrap();
    let mut random = numbers(1);
    let mut loaded = 0;
    for _ in 0..4000 {
        let mut bytes = good.clone();
        for _ in 0..1 + random(3) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = b"0123456789\"{}[],:ab-\xff"[random(21)],
                1 => bytes[at] = b' ',
                2 => bytes.truncate(at + 1),
                _ => {
                    let to = (at + random(20)).min(bytes.len());
                    let copy = bytes[at..to].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
        }
        let caught = std::panic::catch_unwind(|| {
            let Ok(t) = Tokenizer::from_tokenizer_json(&bytes, None, None, None) else {
                return false;
            };
            for special in [false, true] {
                let _ = t.encode("ab a <s> abab x", t.adds_bos(), special).map(|ids| t.decode(&ids));
            }
            true
        });
        loaded += usize::from(caught.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&bytes))));
    }
    assert!(loaded > 100, "only {loaded} loaded: the test no longer reaches the encoder");
}

/// A generator for the mutation tests: the same numbers on every run.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |n| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    }
}

#[test]
fn mutated_gguf_vocabularies_never_panic() {
    let mut random = numbers(7);
    let odd =
        ["", " ", "<0x-1>", "<0x41>", "a b", "\u{2581}", "ab", "<|end|>", "é", "\u{10ffff}", "Ġ", "b a", "a  b", "<0x"];
    let mut loaded = 0;
    for round in 0..20_000 {
        let mut m = if round % 2 == 0 { small_spm() } else { small_bpe() };
        for _ in 0..1 + random(3) {
            let at = random(m.entries.len());
            let number = [0, 1, 2, 3, 6, 8, 9, 11, u32::MAX, 1 << 31][random(10)];
            match (&mut m.entries[at].1, random(5)) {
                (_, 0) => drop(m.entries.remove(at)),
                (value, 1) => {
                    *value =
                        [Value::U32(number), Value::Bool(true), Value::F64(f64::NAN), text("x"), Value::Array(vec![])]
                            [random(5)]
                        .clone()
                }
                (Value::StrArray(list), 2) => drop(list.pop()),
                (Value::StrArray(list), _) if !list.is_empty() => {
                    let i = random(list.len());
                    list[i] = odd[random(odd.len())].to_string();
                }
                (Value::F32Array(list), _) if !list.is_empty() => {
                    let i = random(list.len());
                    list[i] = [f32::NAN, f32::INFINITY, -0.0, 0.0, f32::MAX, 1e-45][random(6)];
                }
                (Value::I32Array(list), _) if !list.is_empty() => {
                    let i = random(list.len());
                    list[i] = random(9) as i32 - 1;
                }
                _ => {
                    let key = ["bos_token_id", "eos_token_id", "unknown_token_id", "add_space_prefix", "add_bos_token"]
                        [random(5)];
                    m = with(m, key, if random(2) == 0 { Value::U32(number) } else { Value::Bool(random(2) == 0) });
                }
            }
            if m.entries.is_empty() {
                break;
            }
        }
        let Ok(t) = Tokenizer::from_gguf(&m) else {
            continue;
        };
        loaded += 1;
        for special in [false, true] {
            if let Ok(ids) = t.encode("ab <s>é a<|end|> <0x41>b", t.adds_bos(), special) {
                assert!(ids.iter().all(|&id| (id as usize) < t.vocab_size()), "{m:?}");
                t.decode(&ids);
            }
        }
        t.eos().iter().chain(&t.bos()).for_each(|&id| assert!((id as usize) < t.vocab_size(), "{m:?}"));
    }
    assert!(loaded > 2000, "only {loaded} loaded: the test no longer reaches the encoder");
}

#[test]
fn white_space_beyond_the_reach_of_the_json_engine_still_comes_back_whole() {
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let regex = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    let t = load_json(&bpe_json(json!({"type": "Sequence", "pretokenizers": [split, byte_level]}), true)).unwrap();
    let own = bpe("llama-bpe");
    for n in [900_000, 1 << 21] {
        let text = " ".repeat(n) + "the king";
        let start = Busy::now();
        let ids = t.encode(&text, false, false).unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert!(t.decode(&ids) == text);
        let want = own.encode(&text, false, false).unwrap();
        assert!(own.decode(&want) == text);
        if n < 1_000_000 {
            assert!(ids == want, "{n}");
        }
    }
}

#[test]
fn keys_of_a_wrong_type_are_no_absent_keys() {
    for (key, value, words) in [
        ("add_bos_token", Value::U8(1), &["add_bos_token", "expected bool, found u8"]),
        ("add_space_prefix", Value::U32(0), &["add_space_prefix", "expected bool, found u32"]),
        ("bos_token_id", Value::F32(1.0), &["bos_token_id", "expected an integer, found f32"]),
        ("eos_token_id", text("2"), &["eos_token_id", "expected an integer, found string"]),
        ("pre", Value::U32(1), &["tokenizer.ggml.pre", "expected string, found u32"]),
        ("merges", Value::U32(1), &["merges", "expected array of string"]),
        ("general.name", Value::U32(1), &["general.name", "expected string"]),
    ] {
        let of_words = ["pre", "merges"].contains(&key);
        refused(with(if of_words { small_bpe() } else { small_spm() }, key, value), words);
    }
    let file = data("tiny_tokenizer.json");
    for (config, generation, words) in [
        (json!({"bos_token": 1}), json!({}), ["tokenizer_config.json: bos_token", "found 1"]),
        (json!({"bos_token": {"text": "x"}}), json!({}), ["tokenizer_config.json: bos_token", "content"]),
        (json!({"add_bos_token": "true"}), json!({}), ["tokenizer_config.json: add_bos_token", "true or false"]),
        (json!({}), json!({"eos_token_id": "</s>"}), ["generation_config.json: eos_token_id", "the text"]),
        (json!({}), json!({"eos_token_id": [1, "</s>"]}), ["generation_config.json: eos_token_id", "ids"]),
        (json!([]), json!({}), ["tokenizer_config.json: whole file", "an object"]),
    ] {
        let error = Tokenizer::from_tokenizer_json(&file, Some(&config), Some(&generation), None).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.starts_with(words[0]) && error.contains(words[1]), "{error}");
    }
}

/// A `tokenizer.json` with these steps in place of its own.
fn prepared(normalizers: &[Json], pre_tokenizers: &[Json]) -> anyhow::Result<Tokenizer> {
    let pre = json!({"type": "Sequence", "pretokenizers": pre_tokenizers});
    let mut file = bpe_json(if pre_tokenizers.is_empty() { json!(null) } else { pre }, false);
    if !normalizers.is_empty() {
        file["normalizer"] = json!({"type": "Sequence", "normalizers": normalizers});
    }
    load_json(&file)
}

#[test]
fn steps_that_blow_text_up_are_refused_by_name_at_little_cost() {
    let replace = |pattern: Json, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let text = |s: &str| json!({"String": s});
    let regex = |s: &str| json!({"Regex": s});
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let spaced = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": false});
    let each = json!({"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false});
    let nested = (0..8).fold(
        replace(text("a"), "aaaaaaaa"),
        |inner, _| json!({"type": "Sequence", "normalizers": [inner, replace(text("a"), "aaaaaaaa")]}),
    );
    let untyped = json!({"normalizers": vec![replace(text("a"), "aaaaaaaaaa"); 8]});
    let bert = json!({"type": "BertNormalizer", "clean_text": false, "handle_chinese_chars": true, "strip_accents": false, "lowercase": false});
    let long = "x".repeat(100_000);
    let cases: Vec<(&str, Vec<Json>, Vec<Json>)> = vec![
        ("normalizer step 3 (Replace)", vec![replace(text("a"), "aaaaaaaaaa"); 8], vec![]),
        ("normalizer step", vec![nested], vec![]),
        ("normalizer", vec![untyped], vec![]),
        ("normalizer step", vec![[replace(text("a"), "bb"), replace(text("b"), "aa")]; 16].concat(), vec![]),
        ("normalizer step", vec![replace(regex("."), "aaaaaaaa"); 20], vec![]),
        ("normalizer step", vec![json!({"type": "ByteLevel"}); 40], vec![]),
        ("1000 steps", vec![bert; 1000], vec![]),
        ("normalizer step 1 (Replace): it writes 100000 bytes", vec![replace(text("a"), &long)], vec![]),
        ("normalizer step 1 (Prepend): it prepends 100000", vec![json!({"type": "Prepend", "prepend": long})], vec![]),
        ("an empty pattern", vec![replace(text(""), "b")], vec![]),
        ("pre_tokenizer step", vec![], vec![level; 40]),
        ("pre_tokenizer step", vec![], vec![[each, spaced]; 20].concat()),
    ];
    for (words, normalizers, pre_tokenizers) in cases {
        let start = Busy::now();
        let made = prepared(&normalizers, &pre_tokenizers);
        let error = made.and_then(|t| t.encode("aaa \u{e9}", false, false).map(|ids| ids.len())).expect_err(words);
        let error = format!("{error:#}");
        assert!(error.contains(words) && error.lines().count() == 1, "{error:?} lacks {words:?}");
        assert!(start.elapsed() < Duration::from_secs(5), "{words}: {:?}", start.elapsed());
    }
    // an added token is prepared when the file is loaded
    let mut file = bpe_json(json!(null), false);
    file["normalizer"] = json!({"type": "Sequence", "normalizers": vec![replace(text("a"), "aaaaaaaaaa"); 8]});
    file["added_tokens"][0]["normalized"] = json!(true);
    file["added_tokens"][0]["content"] = json!("aaa");
    let error = format!("{:#}", load_json(&file).unwrap_err());
    assert!(error.starts_with("tokenizer.json: ") && error.contains("normalizer step 3 (Replace)"), "{error}");
    // words and their affixes
    for (key, value) in [("end_of_word_suffix", "x".repeat(1000)), ("continuing_subword_prefix", "y".repeat(1000))] {
        let mut file = bpe_json(json!(null), false);
        file["model"][key] = json!(value);
        assert!(load_json(&file).is_err(), "{key}");
    }
}

#[test]
fn what_known_files_do_to_text_is_no_bomb() {
    let replace = |p: &str, content: &str| json!({"type": "Replace", "pattern": {"Regex": p}, "content": content});
    let forms = ["NFKD", "Lowercase", "NFKC"].map(|name| json!({"type": name}));
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let t = prepared(&[&forms[..], &[replace(" {2,}", "\u{2581}")]].concat(), &[level]).unwrap();
    // the character that NFKD makes longest: eleven bytes for one
    let ids = t.encode(&"\u{fdfa}".repeat(1000), false, false).unwrap();
    assert!(ids.len() > 10_000, "{}", ids.len());
    assert!(t.encode("", false, false).unwrap().is_empty());
}

#[test]
fn the_first_ids_of_a_long_text_are_those_of_the_whole() {
    let golden = json_data("bpe_golden.json");
    let text = strings(&golden["texts"]).join("\nThe end.\n").repeat(60);
    assert!(text.len() > 150_000, "{}", text.len());
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let list = [
        bpe("gpt-2"),
        bpe("llama-bpe"),
        bpe("deepseek-v3"),
        Tokenizer::from_gguf(&spm_meta("prefix")).unwrap(),
        tiny_json(),
        load_json(&bpe_json(byte_level, false)).unwrap(),
    ];
    for t in &list {
        let all = t.encode(&text, t.adds_bos(), false).unwrap();
        assert!(t.least_ids(&text) <= all.len());
        for most in [0, 1, 7, 20_000, all.len() - 1, all.len(), usize::MAX] {
            let first = t.encode_first(&text, t.adds_bos(), false, most).unwrap();
            assert!(first == all[..most.min(all.len())], "{most}");
        }
    }
}

#[test]
fn how_many_ids_a_text_has_at_least_is_known_of_the_usual_files() {
    // in the manner of sentencepiece
    let mut vocab: serde_json::Map<String, Json> = (0..=255u32).map(|b| (format!("<0x{b:02X}>"), json!(b))).collect();
    for (text, id) in [("<unk>", 256), ("\u{2581}", 257), ("a", 258), ("aa", 259), ("\u{2581}aa", 260)] {
        vocab.insert(text.into(), json!(id));
    }
    let mut file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u{2581}"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}]},
        "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "ByteFallback"},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
            "merges": [["a", "a"], ["\u{2581}", "aa"]]}
    });
    let text = "aa aa \u{e9}".repeat(1000);
    let t = load_json(&file).unwrap();
    let ids = t.encode(&text, false, false).unwrap().len();
    assert!((text.len() / 6..=ids).contains(&t.least_ids(&text)), "{} of {ids}", t.least_ids(&text));
    // with a byte that only an unknown token can stand for, nothing is
    file["model"]["vocab"].as_object_mut().unwrap().remove("<0xC3>");
    assert_eq!(load_json(&file).unwrap().least_ids(&text), 0);
    let level =
        |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
    let qwen = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let split = json!({"type": "Split", "pattern": {"Regex": qwen}, "behavior": "Isolated", "invert": false});
    let t = prepared(&[json!({"type": "NFC"})], &[split, level(false)]).unwrap();
    assert!(t.least_ids(&text) > 0);
    assert!(prepared(&[], &[level(true)]).unwrap().least_ids(&text) > t.least_ids(&text));
    assert_eq!(
        prepared(&[json!({"type": "Strip", "strip_left": true, "strip_right": true})], &[level(true)])
            .unwrap()
            .least_ids(&text),
        0
    );
}

#[test]
fn the_split_rules_of_multilingual_encoders_are_those_of_others_by_names_of_their_own() {
    // whole words first, though no merge leads to them
    let words = with(small_bpe(), "merges", texts(&[]));
    let of = |pre: &str| {
        let t = Tokenizer::from_gguf(&with(words.clone(), "pre", text(pre))).unwrap();
        t.encode("ab", false, true).unwrap()
    };
    assert_eq!((of("gpt-4o"), of("granite-embed-multi-97m")), (vec![0, 1], vec![2]));
    let texts_of = |rule: &str| {
        let t = bpe(rule);
        ["helloWorld", "the King's 1234 sons\n\n  x", "caf\u{e9} \u{4e2d}\u{6587}"]
            .map(|text| t.encode(text, false, true).unwrap())
    };
    // merges that cross every border that a rule may draw
    assert_ne!(texts_of("gpt-4o"), texts_of("gpt-2"));
    assert_eq!(texts_of("gpt-4o"), texts_of("granite-embed-multi-97m"));

    // merges of characters, whatever the model is called
    // a run of spaces as converters write it, which a merge leads to
    let tokens = ["<bos>", "<eos>", "\u{2581}", "a", "b", "ab", "\u{2581}ab", "<0x63>", "  "];
    let characters = meta(vec![
        ("model", text("gpt2")),
        ("pre", text("granite-embed-multi-311m")),
        ("tokens", texts(&tokens)),
        ("token_type", Value::I32Array(vec![3, 3, 1, 1, 1, 1, 1, 6, 4])),
        ("merges", texts(&["a b", "\u{2581} ab", "\u{2581} \u{2581}"])),
        ("bos_token_id", Value::U32(0)),
        ("eos_token_id", Value::U32(1)),
        ("general.architecture", text("modern-bert")),
    ]);
    let found = [characters.clone(), with(characters, "model", text("gemma4"))].map(|m| {
        let t = Tokenizer::from_gguf(&m).unwrap();
        let ids = t.encode_whole("ab ab  c", false).unwrap();
        assert_eq!(t.decode(&ids), "ab ab  c");
        ids
    });
    assert_eq!(found, [vec![0, 5, 6, 8, 7, 1], vec![0, 5, 6, 8, 7, 1]]);
}

#[test]
fn texts_of_an_encoder_are_between_its_bos_and_eos_else_between_what_a_bert_calls_them() {
    let tokens = ["a", "b", "ab", "[CLS]", "[SEP]", "<bos>", "<eos>"];
    let m = with(small_bpe(), "tokens", texts(&tokens));
    let m = with(m, "token_type", Value::I32Array(vec![1, 1, 1, 3, 3, 3, 3]));
    let m = with(m, "general.architecture", text("modern-bert"));
    let ids = |m: &Meta| Tokenizer::from_gguf(m).unwrap().encode_whole("ab", false).unwrap();
    assert_eq!(ids(&m), [2]);
    let m = with(with(m, "cls_token_id", Value::U32(3)), "seperator_token_id", Value::U32(4));
    assert_eq!(ids(&m), [3, 2, 4]);
    // an id of EOS under the name of the first token, as configs of some have it
    let m = with(with(m, "bos_token_id", Value::U32(5)), "eos_token_id", Value::U32(6));
    assert_eq!(ids(&with(m.clone(), "cls_token_id", Value::U32(6))), [5, 2, 6]);
    assert_eq!(ids(&with(m, "add_bos_token", Value::Bool(false))), [2, 6]);
}
