//! `tokenizer.ggml.*` keys from `tokenizer.json` or `tokenizer.model`.
//!
//! A byte-level BPE vocabulary becomes `gpt2` with its merges, and a `pre` that follows from its split rule; a
//! sentencepiece one becomes `llama` with scores: those of `tokenizer.model`, else minus the rank of the merge that makes
//! the token, which gives the same merges in the same order; one of WordPiece becomes `bert`, one of Unigram `t5` with its
//! scores and its map of characters. A split rule that is not known is refused: another would give other ids.

use crate::formats::Container;
use crate::formats::encoders::{ROBERTA, is_encoder};
use crate::formats::ends;
use crate::formats::json::Fields;
use crate::formats::meta::Value;
use crate::formats::source::read_whole;
use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use std::collections::HashMap;

/// Token types of the format.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;
/// Most tokens that are converted.
const MAX_TOKENS: usize = 1 << 22;
/// The sentencepiece model of a directory.
pub(super) const SPM: &str = "tokenizer.model";
/// Its longest, in bytes.
pub(super) const MAX_SPM: u64 = 64 << 20;
/// The chat template of a directory, where it is a file of its own.
pub(super) const CHAT_TEMPLATE: &str = "chat_template.jinja";
/// Its longest, in bytes.
pub(super) const MAX_TEMPLATE: u64 = 4 << 20;
/// Tokens that ChatGLM2 and ChatGLM3 have after those of their sentencepiece model, whose ids no file says: they stand in
/// the models' own code.
const CHATGLM: [&str; 5] = ["[MASK]", "[gMASK]", "[sMASK]", "sop", "eop"];
/// And those that ChatGLM3 has after them.
const CHATGLM3: [&str; 4] = ["<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"];
/// `tokenizer.ggml.model` of WordPiece.
const PIECES: &str = "bert";
/// And of sentencepiece's Unigram.
const UNIGRAM: &str = "t5";
/// U+2581, sentencepiece's space.
const SPACE: &str = "\u{2581}";

struct Vocab {
    model: &'static str,
    pre: String,
    tokens: Vec<String>,
    scores: Option<Vec<f32>>,
    types: Vec<i32>,
    merges: Option<Vec<String>>,
    /// of Unigram: its map of characters
    characters: Option<Vec<u8>>,
}

impl Vocab {
    /// One without scores, merges and a map of characters, whose tokens have these types.
    fn new(model: &'static str, tokens: Vec<String>, types: Vec<i32>) -> Vocab {
        Vocab { model, pre: "default".into(), tokens, scores: None, types, merges: None, characters: None }
    }
}

/// The bytes of a file beside a container's weights, where there is one; at most `most` of them.
pub(super) fn beside(c: &Container, name: &str, most: u64) -> anyhow::Result<Option<Vec<u8>>> {
    // what is in memory lies beside nothing
    let dir = c.files.first().filter(|f| f.is_file()).and_then(|f| f.parent());
    let path = dir.map(|d| d.join(name)).filter(|p| p.is_file());
    Ok(path.map(|p| read_whole(&p, most)).transpose()?)
}

/// Appends the tokeniser's keys, for a model of `rows` tokens.
pub(super) fn convert<'c>(
    c: &'c Container,
    cfg: &'c Json,
    rows: usize,
    out: &mut Vec<(String, Value)>,
) -> anyhow::Result<()> {
    ensure!(rows <= MAX_TOKENS, "config.json: vocab_size is {rows}, expected at most {MAX_TOKENS}");
    let json: Option<Json> = match &c.tokenizer_json {
        Some(bytes) => Some(serde_json::from_slice(bytes).context("tokenizer.json")?),
        None => None,
    };
    let v = vocabulary(c, cfg, json.as_ref(), rows)?;
    let model_type = cfg["model_type"].as_str().unwrap_or_default();
    let (is_chatglm, is_roberta) = (is_chatglm(cfg), ROBERTA.contains(&model_type));
    let is_pieces = v.model == PIECES;
    let ids: HashMap<&str, u32> = v.tokens.iter().map(String::as_str).zip(0..).collect();
    let fields = |file: &'static str, value: Option<&'c Json>| match value {
        Some(value) => Fields::of(file, value),
        None => Ok(Fields::none(file)),
    };
    let config = fields("tokenizer_config.json", c.tokenizer_config.as_ref())?;
    let generation = fields("generation_config.json", c.generation_config.as_ref())?;
    let model = Fields::of("config.json", cfg)?;
    let special = |name: &str| -> anyhow::Result<Option<u32>> {
        let named = config.token(name)?.and_then(|t| ids.get(t).copied());
        let key = format!("{name}_id");
        let listed = [generation.ids(&key)?, model.ids(&key)?].concat();
        let id = named.or_else(|| u32::try_from(*listed.first()?).ok());
        Ok(id.filter(|id| (*id as usize) < rows))
    };
    let specials = [
        ("bos", special("bos_token")?),
        ("eos", special("eos_token")?),
        ("unknown", special("unk_token")?),
        ("padding", special("pad_token")?),
    ];
    let encodes = is_pieces || v.model == UNIGRAM || is_encoder(model_type);
    let post = json.as_ref().map(|j| &j["post_processor"]);
    let put_there = |end: fn(&Json) -> Option<u64>| {
        let id = post.and_then(end).and_then(|id| u32::try_from(id).ok());
        id.filter(|id| v.types.get(*id as usize) == Some(&CONTROL))
    };
    let (first, last) = (put_there(ends::first), put_there(ends::last));
    let is_encoder = is_pieces || is_encoder(model_type);
    ensure!(
        !is_encoder || json.is_none() || first.is_some() && last.is_some(),
        "tokenizer.json: its post-processor puts no control token before a text, or none behind it, as encoders have them in \
         a GGUF file; run the directory itself"
    );
    let ends = match encodes {
        true => {
            let unknown = json.as_ref().and_then(|j| j["model"]["unk_token"].as_str());
            let square = is_pieces || v.model == "gpt2" && !is_roberta;
            encoder_ends(!is_pieces, square, unknown, (first, last), |name, usual| {
                Ok(special(name)?.or_else(|| ids.get(usual).copied()))
            })?
        }
        false => vec![],
    };
    // what a ChatGLM's texts begin with is no BOS
    let add_bos = match encodes {
        true => config.flag("add_bos_token")? != Some(false),
        false => !is_chatglm && add_bos(&config, json.as_ref(), ["llama", "gemma4"].contains(&v.model))?,
    };
    let closing = last.filter(|_| !encodes);
    // what the post-processor does goes before the flag, as when the directory is run
    let asked = config.flag("add_eos_token")? == Some(true);
    let add_eos = encodes && !is_pieces || closing.map_or(asked, |id| Some(id) == specials[1].1);
    let is_gemma = matches!(cfg["model_type"].as_str(), Some("gemma2" | "gemma3" | "gemma3_text" | "gemma3n_text"));
    let space = v.model == UNIGRAM || v.model == "llama" && json.as_ref().map_or(!is_gemma, prefixes_space);
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
    // the first of one name: of an encoder, what goes before its texts and behind them is BOS and EOS
    let (before, behind) = if is_encoder { (ends, specials.to_vec()) } else { (specials.to_vec(), ends) };
    let mut written: Vec<&str> = Vec::new();
    for (name, id) in before.into_iter().chain(behind) {
        if let Some(id) = id.filter(|_| !written.contains(&name)) {
            written.push(name);
            put(&format!("{name}_token_id"), Value::U32(id));
        }
    }
    put("add_bos_token", Value::Bool(add_bos));
    case_keys(json.as_ref(), &mut put);
    end_keys(add_eos, closing, &mut put);
    if let Some(bytes) = v.characters {
        put("precompiled_charsmap", Value::Array(bytes.into_iter().map(Value::U8).collect()));
    }
    if v.model == UNIGRAM {
        put("remove_extra_whitespaces", Value::Bool(true));
    }
    if let (true, Some(types)) = (encodes, model.whole("type_vocab_size")?) {
        put("token_type_count", Value::U32(u32::try_from(types).context("type_vocab_size")?));
    }
    if ["llama", "gemma4", UNIGRAM].contains(&v.model) {
        put("add_space_prefix", Value::Bool(space));
    }
    if let Some(t) = chat_template(c)? {
        out.push(("tokenizer.chat_template".into(), Value::Str(t)));
    }
    Ok(())
}

/// The vocabulary of a directory: a token and a type for each of the model's `rows`.
fn vocabulary(c: &Container, cfg: &Json, json: Option<&Json>, rows: usize) -> anyhow::Result<Vocab> {
    let sentences = beside(c, SPM, MAX_SPM)?;
    let by_merges = matches!(cfg["model_type"].as_str(), Some("gemma4_text" | "gemma4_unified_text"));
    let mut v = match (json, sentences) {
        (Some(json), Some(_)) if json["model"]["type"] == "Unigram" => read_json(json).context("tokenizer.json")?,
        (Some(json), Some(bytes)) if by_merges || is_ranks(&bytes) => read_json(json).context("tokenizer.json")?,
        (None, Some(bytes)) if is_ranks(&bytes) => bail!(
            "{SPM} is a list of ranks (tiktoken), from which merges do not follow: take tokenizer.json from the model's \
             form for transformers"
        ),
        (_, Some(bytes)) => read_spm(&bytes).context(SPM)?,
        (Some(json), None) => read_json(json).context("tokenizer.json")?,
        (None, None) => bail!("neither tokenizer.json nor tokenizer.model"),
    };
    if is_chatglm(cfg) {
        mark_chatglm(&mut v, cfg);
    }
    let model_type = cfg["model_type"].as_str().unwrap_or_default();
    let whole_words_first = json.is_some_and(|j| j["model"]["ignore_merges"] == true);
    rename_rule(&mut v, model_type, whole_words_first);
    match (&v.merges, v.model) {
        (Some(_), "llama") if by_merges => (v.model, v.pre) = ("gemma4", "gemma4".into()),
        (None, _) if by_merges => bail!("{SPM}: the vocabulary of a Gemma 4 is its merges, in tokenizer.json"),
        // whose ranks are the scores
        (_, "llama") => v.merges = None,
        _ => {}
    }
    ensure!(v.tokens.len() <= rows, "{} tokens for a model of {rows}", v.tokens.len());
    if let Some(json) = json {
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
    if v.model == PIECES {
        with_spaces(&mut v);
    }
    ensure!(
        v.model != "llama" || !is_encoder(model_type) || !json.is_some_and(splits_at_spaces),
        "tokenizer.json: its text is cut at spaces (Metaspace), and no key of a GGUF file says so; run the directory itself"
    );
    Ok(v)
}

/// Whether the model is a ChatGLM, in either form.
fn is_chatglm(cfg: &Json) -> bool {
    matches!(cfg["model_type"].as_str(), Some("glm" | "glm4" | "chatglm"))
}

/// An encoder's first and last tokens and others that a directory need not name: what its post-processor puts there, else by
/// their names there and their usual texts.
///
/// `closes`: the last ends texts as EOS does elsewhere; `square`: they are spelt as BERT has them, not as RoBERTa.
fn encoder_ends(
    closes: bool,
    square: bool,
    unknown: Option<&str>,
    (first, last): (Option<u32>, Option<u32>),
    named: impl Fn(&str, &str) -> anyhow::Result<Option<u32>>,
) -> anyhow::Result<Vec<(&'static str, Option<u32>)>> {
    let [begin, end, mask, other] =
        if square { ["[CLS]", "[SEP]", "[MASK]", "[UNK]"] } else { ["<s>", "</s>", "<mask>", "<unk>"] };
    let cls = first.map_or_else(|| named("cls_token", begin), |id| Ok(Some(id)))?;
    let sep = last.map_or_else(|| named("sep_token", end), |id| Ok(Some(id)))?;
    Ok(vec![
        ("bos", cls),
        ("cls", cls),
        // so it is spelt
        ("seperator", sep),
        ("eos", sep.filter(|_| closes)),
        ("mask", named("mask_token", mask)?),
        ("unknown", named("unk_token", unknown.unwrap_or(other))?),
    ])
}

/// Whether a `tokenizer.model` is lines of a token in base64 and its rank, as tiktoken has them.
fn is_ranks(bytes: &[u8]) -> bool {
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or(&[]);
    let Some((token, rank)) = std::str::from_utf8(line).ok().and_then(|line| line.trim_end().split_once(' ')) else {
        return false;
    };
    !token.is_empty()
        && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b))
        && rank.parse::<u64>().is_ok()
}

/// The names that encoders' files have for a split rule of others.
fn rename_rule(v: &mut Vocab, model_type: &str, whole_words_first: bool) {
    match (v.pre.as_str(), model_type) {
        // o200k's merges alone lead to every whole word; those of other vocabularies need not
        ("gpt-4o", "modernbert") if whole_words_first => v.pre = "granite-embed-multi-97m".into(),
        ("gpt-2", name) if ROBERTA.contains(&name) => v.pre = "roberta-bpe".into(),
        ("gpt-2" | "olmo", "modernbert") => v.pre = "modern-bert".into(),
        _ => {}
    }
}

/// The control tokens of a ChatGLM that no file lists, and its name of the split rule.
fn mark_chatglm(v: &mut Vocab, cfg: &Json) {
    if v.model == "gpt2" {
        // the rule of smaug-bpe, of a family without BOS
        match v.pre.as_str() {
            "smaug-bpe" => v.pre = "chatglm-bpe".into(),
            "llama-bpe" => v.pre = "glm4".into(),
            _ => {}
        }
        return;
    }
    let is_third = cfg["_name_or_path"].as_str().is_some_and(|name| name.to_lowercase().contains("chatglm3"));
    for text in CHATGLM.into_iter().chain(CHATGLM3.into_iter().filter(|_| is_third)) {
        v.tokens.push(text.into());
        v.types.push(CONTROL);
        if let Some(s) = &mut v.scores {
            s.push(0.0);
        }
    }
}

/// The chat template: a file of its own, else the config's (of several, the one called default).
fn chat_template(c: &Container) -> anyhow::Result<Option<String>> {
    if let Some(bytes) = beside(c, CHAT_TEMPLATE, MAX_TEMPLATE)? {
        return Ok(Some(String::from_utf8(bytes).ok().context("chat_template.jinja is not UTF-8")?));
    }
    let Some(value) = c.tokenizer_config.as_ref().map(|t| &t["chat_template"]) else { return Ok(None) };
    let named = value.as_array().and_then(|all| all.iter().find(|t| t["name"] == "default"));
    let text = value.as_str().or_else(|| named?["template"].as_str());
    if text.is_none() && !value.is_null() {
        log::warn!("tokenizer_config.json: chat_template is neither text nor a list with a default: it is left out");
    }
    Ok(text.map(String::from))
}

/// `add_bos_token` of the config, else whether the post-processor puts a special token first.
fn add_bos(config: &Fields, json: Option<&Json>, default: bool) -> anyhow::Result<bool> {
    if let Some(v) = config.flag("add_bos_token")? {
        return Ok(v);
    }
    let Some(post) = json.map(|j| &j["post_processor"]).filter(|p| p.is_object()) else { return Ok(default) };
    let one = [post.clone()];
    let list = post["processors"].as_array().map_or(&one[..], Vec::as_slice);
    Ok(list.iter().any(|p| p["single"][0]["SpecialToken"].is_object()))
}

/// What a file's keys say of the token behind every text: EOS, or another than the one that ends a turn, as Qwen3-Embedding has
/// it.
fn end_keys(add_eos: bool, closing: Option<u32>, put: &mut impl FnMut(&str, Value)) {
    if add_eos {
        put("add_eos_token", Value::Bool(true));
    } else if let Some(id) = closing {
        put("seperator_token_id", Value::U32(id));
        put("add_sep_token", Value::Bool(true));
    }
}

/// Whether a sentencepiece `tokenizer.json` puts a space before the text.
fn prefixes_space(json: &Json) -> bool {
    let metaspace =
        |p: &&Json| p["type"] == "Metaspace" && p["prepend_scheme"] != "never" && p["add_prefix_space"] != false;
    steps(&json["normalizer"], "normalizers").iter().any(|n| n["type"] == "Prepend")
        || steps(&json["pre_tokenizer"], "pretokenizers").iter().any(metaspace)
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
    let is_pieces = model["type"] == "WordPiece";
    if model["type"] == "Unigram" {
        return read_unigram(json);
    }
    ensure!(
        model["type"] == "BPE" || is_pieces,
        "model type {} has no conversion (known: BPE, WordPiece, Unigram)",
        model["type"]
    );
    let map = model["vocab"].as_object().context("model.vocab is missing")?;
    let last = map.values().filter_map(Json::as_u64).max();
    ensure!(
        last.is_none_or(|id| id < MAX_TOKENS as u64),
        "model.vocab: an id of {}, expected below {MAX_TOKENS}",
        last.unwrap_or(0)
    );
    let mut tokens: Vec<Option<String>> = vec![None; last.map_or(0, |id| id as usize + 1)];
    for (text, id) in map {
        let id = id.as_u64().with_context(|| format!("model.vocab: {text:?} has no whole id"))? as usize;
        ensure!(tokens[id].is_none(), "model.vocab: id {id} occurs twice");
        tokens[id] = Some(text.clone());
    }
    let tokens: Vec<String> =
        tokens.into_iter().enumerate().map(|(i, t)| t.unwrap_or_else(|| format!("[PAD{i}]"))).collect();
    if is_pieces {
        check_pieces(json)?;
        let types = vec![NORMAL; tokens.len()];
        return Ok(Vocab::new(PIECES, tokens, types));
    }
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
        check_spaces(json)?;
        let mut v = sentencepiece(model, tokens, &merges)?;
        v.merges = Some(merges);
        return Ok(v);
    }
    let types = vec![NORMAL; tokens.len()];
    let pre = split_rule(json)?.into();
    Ok(Vocab { pre, merges: Some(merges), ..Vocab::new("gpt2", tokens, types) })
}

/// Pieces with scores. Text must be prepared as sentencepiece does it by its usual settings: characters by a map, runs of spaces
/// as one, U+2581 before each word; a GGUF file's keys say of no other way.
fn read_unigram(json: &Json) -> anyhow::Result<Vocab> {
    let model = &json["model"];
    let (mut characters, mut joins) = (None, false);
    for step in steps(&json["normalizer"], "normalizers") {
        let spaces = step["type"] == "Replace"
            && step["pattern"]["Regex"] == " {2,}"
            && (step["content"] == " " || step["content"] == SPACE);
        joins |= spaces;
        match (step["type"].as_str(), step["precompiled_charsmap"].as_str()) {
            (Some("Precompiled"), Some(map)) if characters.is_none() => {
                characters = Some(STANDARD.decode(map).context("normalizer: precompiled_charsmap is not base64")?);
            }
            _ if spaces || step["type"] == "Strip" => {}
            _ => bail!("normalizer {} has no place in GGUF", step["type"]),
        }
    }
    let cut = steps(&json["pre_tokenizer"], "pretokenizers");
    let metaspace = |p: &Json| {
        let always = p["prepend_scheme"] == "always" || p["prepend_scheme"].is_null() && p["add_prefix_space"] != false;
        p["type"] == "Metaspace" && p["replacement"] == SPACE && always
    };
    let usual = match cut[..] {
        [words, m] => words["type"] == "WhitespaceSplit" && metaspace(m),
        // a file says that runs of spaces are one
        [m] => metaspace(m) && joins,
        _ => false,
    };
    ensure!(usual, "its words are not cut as sentencepiece cuts them, and no key of a GGUF file says so");
    let list = model["vocab"].as_array().context("model.vocab is missing, or not a list")?;
    ensure!(list.len() <= MAX_TOKENS, "model.vocab: {} tokens, expected at most {MAX_TOKENS}", list.len());
    let piece = |(i, p): (usize, &Json)| {
        let found = p[0].as_str().map(String::from).zip(p[1].as_f64());
        found.with_context(|| format!("model.vocab[{i}]: a text and a score expected"))
    };
    let pieces = list.iter().enumerate().map(piece).collect::<anyhow::Result<Vec<_>>>()?;
    let (tokens, scores): (Vec<String>, Vec<f32>) = pieces.into_iter().map(|(t, score)| (t, score as f32)).unzip();
    let unknown = model["unk_id"].as_u64();
    let fallback = model["byte_fallback"] == true;
    let kind = |(id, text): (u64, &String)| match text {
        _ if unknown == Some(id) => UNKNOWN,
        text if fallback && byte(text) => BYTE,
        _ => NORMAL,
    };
    let types = (0..).zip(&tokens).map(kind).collect();
    Ok(Vocab { scores: Some(scores), characters, ..Vocab::new(UNIGRAM, tokens, types) })
}

/// What a GGUF file's `tokenizer.ggml.model` `bert` stands for, of which no key says anything: clean text, cut by BERT's own
/// rules.
fn check_pieces(json: &Json) -> anyhow::Result<()> {
    let (normalizer, pre, model) = (&json["normalizer"], &json["pre_tokenizer"], &json["model"]);
    let usual = normalizer["type"] == "BertNormalizer"
        && normalizer["clean_text"] != false
        && normalizer["handle_chinese_chars"] != false;
    ensure!(
        usual && pre["type"] == "BertPreTokenizer" && model["continuing_subword_prefix"] == "##",
        "its words are not cut as BERT's are, and no key of a GGUF file says so; run the directory itself"
    );
    Ok(())
}

/// What of case and accents a GGUF file's keys say, as llama.cpp reads them: in lower case unless they say otherwise, and without
/// accents where in lower case.
fn case_keys(json: Option<&Json>, put: &mut impl FnMut(&str, Value)) {
    let Some(normalizer) = json.map(|j| &j["normalizer"]).filter(|n| n["type"] == "BertNormalizer") else { return };
    let lowercase = normalizer["lowercase"] != false;
    let strips = normalizer["strip_accents"].as_bool().unwrap_or(lowercase);
    if !lowercase {
        put("normalizer.lowercase", Value::Bool(false));
    }
    if strips != lowercase {
        put("normalizer.strip_accents", Value::Bool(strips));
    }
}

/// The tokens of WordPiece as a GGUF file has them: words with U+2581 in front, continuations without `##`, control tokens as
/// they are.
fn with_spaces(v: &mut Vocab) {
    for (token, _) in v.tokens.iter_mut().zip(&v.types).filter(|(_, kind)| ![CONTROL, USER].contains(*kind)) {
        *token = match token.strip_prefix("##") {
            Some(rest) => rest.to_string(),
            None => format!("{SPACE}{token}"),
        };
    }
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
    Ok(Vocab { scores: Some(scores), ..Vocab::new("llama", tokens, types) })
}

/// `<0x0A>`.
fn byte(t: &str) -> bool {
    t.len() == 6 && t.starts_with("<0x") && t.ends_with('>') && t[3..5].bytes().all(|b| b.is_ascii_hexdigit())
}

/// A list of steps, whether it is written as a list (under `key`), as one step or as null.
fn steps<'a>(value: &'a Json, key: &str) -> Vec<&'a Json> {
    match value[key].as_array() {
        Some(list) => list.iter().collect(),
        None if value.is_null() => vec![],
        None => vec![value],
    }
}

/// Refuses a byte-fallback BPE whose text is prepared otherwise than sentencepiece does: the format has no field for it.
fn check_spaces(json: &Json) -> anyhow::Result<()> {
    for n in steps(&json["normalizer"], "normalizers") {
        let known = (n["type"] == "Prepend" && n["prepend"] == SPACE)
            || (n["type"] == "Replace" && n["pattern"]["String"] == " " && n["content"] == SPACE);
        ensure!(known, "normalizer {} has no place in GGUF", n["type"]);
    }
    for p in steps(&json["pre_tokenizer"], "pretokenizers") {
        // Gemma's, which finds nothing: no space is left of the normaliser
        let replaced = steps(&json["normalizer"], "normalizers").iter().any(|n| n["type"] == "Replace");
        if p["type"] == "Split" && p["pattern"]["String"] == " " && replaced {
            continue;
        }
        ensure!(
            p["type"] == "Metaspace" && p["replacement"] == SPACE,
            "pre_tokenizer {} has no place in GGUF",
            p["type"]
        );
    }
    if splits_at_spaces(json) {
        log::warn!(
            "tokenizer.json: pre_tokenizer Metaspace splits at spaces; a GGUF file cannot say so: runs of them may get other ids"
        );
    }
    Ok(())
}

/// Whether text is cut at every space before the merges, so that no token has one inside.
fn splits_at_spaces(json: &Json) -> bool {
    steps(&json["pre_tokenizer"], "pretokenizers").iter().any(|p| p["type"] == "Metaspace" && p["split"] != false)
}

/// The expression of OpenAI's o200k vocabularies, as published with gpt-oss.
const CASED: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// The expression of Qwen3.5's vocabularies, whose words have marks.
const MARKED: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// The `tokenizer.ggml.pre` of a byte-level BPE's split rule. Every field that changes what is split is looked at.
fn split_rule(json: &Json) -> anyhow::Result<&'static str> {
    // the expressions as published with the models
    const WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|";
    const REST: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let list = steps(&json["pre_tokenizer"], "pretokenizers");
    let level = |s: &Json, regex: bool| {
        s["type"] == "ByteLevel" && s["add_prefix_space"] != true && (s["use_regex"] != false) == regex
    };
    let isolates = |s: &Json| s["type"] == "Split" && s["behavior"] == "Isolated" && s["invert"] != true;
    let split = |s: &Json, digits: &str| {
        let regex = s["pattern"]["Regex"].as_str().and_then(|r| r.strip_prefix(WORDS)?.strip_suffix(REST));
        isolates(s) && regex == Some(digits)
    };
    let plain = json["normalizer"].is_null();
    // Qwen's and Cohere's normaliser, for which the format has no field
    let nfc = json["normalizer"]["type"] == "NFC";
    let whole_words_first = json["model"]["ignore_merges"] == true;
    Ok(match list[..] {
        [s, l] if split(s, r"\p{N}{1,3}") && level(l, false) && plain => {
            // one rule; the second name is that of models which merge whole words as well
            if whole_words_first { "llama-bpe" } else { "smaug-bpe" }
        }
        [s, l] if split(s, r"\p{N}") && level(l, false) && (plain || nfc) && !whole_words_first => "qwen2",
        [s, l]
            if isolates(s)
                && s["pattern"]["Regex"] == MARKED
                && level(l, false)
                && (plain || nfc)
                && !whole_words_first =>
        {
            "qwen35"
        }
        // its merges, made of the ranks of its tokens, lead to every whole word: the same with whole words first and without
        [s, l] if isolates(s) && s["pattern"]["Regex"] == CASED && level(l, false) && plain => "gpt-4o",
        [l] if level(l, true) && plain && !whole_words_first => "gpt-2",
        // as llama.cpp calls the same rule behind NFC, of which a file says nothing
        [l] if level(l, true) && nfc && !whole_words_first => "olmo",
        [p, l, d, s]
            if p["type"] == "Punctuation"
                && p["behavior"] == "Contiguous"
                && level(l, true)
                && d["type"] == "Digits"
                && d["individual_digits"] != true
                && isolates(s)
                && s["pattern"]["Regex"] == "[0-9][0-9][0-9]"
                && plain
                && !whole_words_first =>
        {
            "falcon"
        }
        [d, l]
            if d["type"] == "Digits"
                && d["individual_digits"] == true
                && level(l, true)
                && (plain || nfc)
                && !whole_words_first =>
        {
            "smollm"
        }
        _ => {
            let names: Vec<&str> = list.iter().map(|s| s["type"].as_str().unwrap_or("?")).collect();
            bail!(
                "the split rule of normalizer and pre_tokenizer ({}) has no name in GGUF that is known here; convert with another tool",
                names.join(", ")
            )
        }
    })
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
    Ok(Vocab { scores: Some(scores), ..Vocab::new("llama", tokens, types) })
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
    fn control_tokens_that_no_file_of_a_chatglm_lists_get_the_ids_after_its_pieces() {
        for (name, last) in [("THUDM/chatglm2-6b", "eop"), ("THUDM/chatglm3-6b", "<|observation|>")] {
            let mut v = read_spm(&[piece("<unk>", 0.0, 2), piece("\u{2581}a", -1.5, 1)].concat()).unwrap();
            mark_chatglm(&mut v, &serde_json::json!({"_name_or_path": name}));
            assert_eq!(v.tokens[2..7], ["[MASK]", "[gMASK]", "[sMASK]", "sop", "eop"]);
            assert_eq!(v.tokens.last().unwrap(), last);
            assert!(v.types[2..].iter().all(|t| *t == CONTROL));
            assert_eq!([v.types.len(), v.scores.unwrap().len()], [v.tokens.len(); 2]);
        }
        assert!(is_ranks(b"IQ== 0\nIg== 1\n") && is_ranks(b"IQ== 0"));
        for other in [&piece("<unk>", 0.0, 2)[..], b"", b"a b", b"IQ==", b"\n"] {
            assert!(!is_ranks(other), "{other:?}");
        }
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
    fn words_and_their_continuations_are_spelt_as_a_gguf_file_has_them_where_they_are_cut_as_berts_are() {
        let file = |apart: bool, prefix: &str| {
            serde_json::json!({"model": {"type": "WordPiece", "continuing_subword_prefix": prefix,
                "vocab": {"[CLS]": 0, "un": 1, "##able": 2}},
                "normalizer": {"type": "BertNormalizer", "handle_chinese_chars": apart, "strip_accents": null},
                "pre_tokenizer": {"type": "BertPreTokenizer"}})
        };
        let mut v = read_json(&file(true, "##")).unwrap();
        v.types[0] = CONTROL;
        with_spaces(&mut v);
        assert_eq!((v.model, &v.tokens[..]), ("bert", &["[CLS]", "\u{2581}un", "able"].map(String::from)[..]));
        for other in [file(false, "##"), file(true, "@@")] {
            let error = read_json(&other).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("run the directory itself"), "{error}");
        }
    }

    #[test]
    fn a_text_is_cut_at_spaces_by_one_kind_of_metaspace() {
        let of = |split: Json| serde_json::json!({"pre_tokenizer": {"type": "Metaspace", "split": split}});
        assert!(splits_at_spaces(&of(true.into())) && splits_at_spaces(&of(Json::Null)));
        assert!(!splits_at_spaces(&of(false.into())) && !splits_at_spaces(&serde_json::json!({"pre_tokenizer": null})));
    }

    #[test]
    fn encoders_have_names_of_their_own_for_rules_of_others() {
        let named = |pre: &str, model_type: &str, words: bool| {
            let mut v = Vocab { pre: pre.into(), ..Vocab::new("gpt2", vec![], vec![]) };
            rename_rule(&mut v, model_type, words);
            v.pre
        };
        assert_eq!(named("gpt-2", "roberta", false), "roberta-bpe");
        assert_eq!([named("gpt-2", "modernbert", false), named("olmo", "modernbert", false)], ["modern-bert"; 2]);
        assert_eq!(named("gpt-4o", "modernbert", true), "granite-embed-multi-97m");
        assert_eq!(named("gpt-4o", "modernbert", false), "gpt-4o");
        assert_eq!([named("olmo", "olmo2", false), named("gpt-4o", "gpt_oss", true)], ["olmo", "gpt-4o"]);
    }

    #[test]
    fn a_unigram_is_converted_where_its_text_is_prepared_as_sentencepiece_does() {
        let file = |normalizer: Json, scheme: &str| {
            serde_json::json!({"model": {"type": "Unigram", "unk_id": 1, "byte_fallback": true,
                "vocab": [["<s>", 0.0], ["<unk>", 0.0], ["\u{2581}a", -1.5], ["<0x0A>", -9.0]]},
                "normalizer": normalizer,
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
                    {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme}]}})
        };
        let map = serde_json::json!({"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="});
        let v = read_json(&file(map, "always")).unwrap();
        assert_eq!((v.model, v.types, v.characters), ("t5", vec![NORMAL, UNKNOWN, NORMAL, BYTE], Some(vec![0; 4])));
        assert_eq!(v.scores, Some(vec![0.0, 0.0, -1.5, -9.0]));
        let refused = |j: Json| read_json(&j).map(|_| ()).unwrap_err().to_string();
        assert!(refused(file(Json::Null, "never")).contains("no key of a GGUF file says so"));
        // runs of spaces stay as they are unless a step joins them, and a file says that they are joined
        let mut bare = file(Json::Null, "always");
        bare["pre_tokenizer"] = bare["pre_tokenizer"]["pretokenizers"][1].clone();
        assert!(refused(bare.clone()).contains("no key of a GGUF file says so"));
        bare["normalizer"] = serde_json::json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "});
        read_json(&bare).map(|_| ()).unwrap();
        assert!(refused(file(serde_json::json!({"type": "NFKC"}), "always")).contains("no place in GGUF"));
    }

    #[test]
    fn an_id_that_no_vocabulary_has_is_refused() {
        for id in [u64::MAX, 1 << 40, MAX_TOKENS as u64] {
            let json = serde_json::json!({"model": {"type": "BPE", "vocab": {"a": 0, "b": id}, "merges": []}});
            let error = read_json(&json).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(&id.to_string()) && error.contains("expected below"), "{error}");
        }
    }

    const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

    /// A tokeniser of these steps before the merges.
    fn rules(normalizer: Json, pre: Json, ignore_merges: bool) -> Json {
        let pre = if pre.is_array() { serde_json::json!({"type": "Sequence", "pretokenizers": pre}) } else { pre };
        let model = serde_json::json!({"ignore_merges": ignore_merges});
        serde_json::json!({"normalizer": normalizer, "pre_tokenizer": pre, "model": model})
    }

    fn level(regex: bool) -> Json {
        serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex})
    }

    fn split(regex: &str) -> Json {
        serde_json::json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false})
    }

    #[test]
    fn the_split_rules_of_known_models_have_names() {
        let qwen = LLAMA3.replace("{1,3}", "");
        let digits = serde_json::json!({"type": "Digits", "individual_digits": true});
        let nfc = serde_json::json!({"type": "NFC"});
        let list = |a: Json, b: Json| Json::Array(vec![a, b]);
        for (json, name) in [
            (rules(Json::Null, level(true), false), "gpt-2"),
            (rules(nfc.clone(), level(true), false), "olmo"),
            (rules(Json::Null, list(split(LLAMA3), level(false)), true), "llama-bpe"),
            (rules(Json::Null, list(split(LLAMA3), level(false)), false), "smaug-bpe"),
            (rules(nfc.clone(), list(split(&qwen), level(false)), false), "qwen2"),
            (rules(nfc, list(split(MARKED), level(false)), false), "qwen35"),
            (rules(Json::Null, list(digits, level(true)), false), "smollm"),
            (rules(Json::Null, list(split(CASED), level(false)), false), "gpt-4o"),
            (rules(Json::Null, list(split(CASED), level(false)), true), "gpt-4o"),
        ] {
            assert_eq!(split_rule(&json).unwrap(), name);
        }
    }

    #[test]
    fn a_split_rule_nobody_knows_is_refused() {
        let with = |mut step: Json, key: &str, value: Json| {
            step[key] = value;
            step
        };
        let lower = serde_json::json!({"type": "Lowercase"});
        let nfc = serde_json::json!({"type": "NFC"});
        let digits = |each: bool| serde_json::json!({"type": "Digits", "individual_digits": each});
        let text =
            serde_json::json!({"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": false});
        let list = |steps: &[Json]| Json::Array(steps.to_vec());
        for json in [
            rules(Json::Null, Json::Null, false),
            rules(Json::Null, level(false), false),
            rules(Json::Null, level(true), true),
            rules(Json::Null, with(level(true), "add_prefix_space", true.into()), false),
            rules(nfc.clone(), level(true), true),
            rules(nfc, list(&[split(LLAMA3), level(false)]), true),
            rules(lower, list(&[split(LLAMA3), level(false)]), true),
            rules(Json::Null, list(&[split(r"\w+"), level(false)]), false),
            rules(Json::Null, list(&[text, level(true)]), false),
            rules(Json::Null, list(&[split(LLAMA3), level(true)]), true),
            rules(Json::Null, list(&[level(false), split(LLAMA3)]), true),
            rules(Json::Null, list(&[split(r"\p{N}"), split(LLAMA3), level(false)]), true),
            rules(Json::Null, list(&[with(split(LLAMA3), "behavior", "Removed".into()), level(false)]), true),
            rules(Json::Null, list(&[with(split(LLAMA3), "invert", true.into()), level(false)]), true),
            rules(Json::Null, list(&[digits(false), level(true)]), false),
        ] {
            let error = split_rule(&json).unwrap_err().to_string();
            assert!(error.contains("split rule") && error.lines().count() == 1, "{error}: {json}");
        }
    }

    #[test]
    fn a_space_goes_before_the_text_where_any_step_puts_one() {
        let metaspace = serde_json::json!({"type": "Metaspace", "prepend_scheme": "always"});
        let sequence = |p: &Json| serde_json::json!({"type": "Sequence", "pretokenizers": [p]});
        assert!(prefixes_space(&serde_json::json!({"pre_tokenizer": metaspace})));
        assert!(prefixes_space(&serde_json::json!({"pre_tokenizer": sequence(&metaspace)})));
        let never = serde_json::json!({"type": "Metaspace", "prepend_scheme": "never"});
        assert!(!prefixes_space(&serde_json::json!({"pre_tokenizer": sequence(&never), "normalizer": null})));
    }

    #[test]
    fn a_byte_fallback_vocabulary_with_other_rules_than_sentencepieces_is_refused() {
        let replace = serde_json::json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
        let prepend = serde_json::json!({"type": "Prepend", "prepend": SPACE});
        let usual = serde_json::json!({"type": "Sequence", "normalizers": [prepend, replace]});
        let meta =
            serde_json::json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": false});
        check_spaces(&rules(usual, Json::Null, false)).unwrap();
        check_spaces(&rules(replace, Json::Null, false)).unwrap();
        check_spaces(&rules(Json::Null, meta, false)).unwrap();
        let lower = serde_json::json!({"type": "Lowercase"});
        assert!(check_spaces(&rules(lower, Json::Null, false)).is_err());
        assert!(check_spaces(&rules(Json::Null, split(LLAMA3), false)).is_err());
    }
}
