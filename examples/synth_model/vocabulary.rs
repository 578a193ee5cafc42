//! Made-up vocabularies of either kind, for GGUF's keys and for `tokenizer.json` alike.

use super::Arch;
use serde_json::{Value, json};
use std::collections::HashMap;

const LETTERS: &str = "etaoinshrdlucmfwygpbvkxqjz";
/// A sentencepiece word's first piece starts with this sign, which stands for the space before it.
const SPACE: char = '\u{2581}';
/// How Qwen2 and Qwen3 split a text into words.
const QWEN_SPLIT: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How GLM-4 does.
const GLM_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How gpt-oss does.
const GPT4O_SPLIT: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// `token_type` of GGUF
pub const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const BYTE: i32 = 6;

/// Tokens of one model, with ids by position.
pub struct Vocabulary {
    pub tokens: Vec<String>,
    /// of sentencepiece vocabularies, else empty
    pub scores: Vec<f32>,
    pub types: Vec<i32>,
    /// of byte-level vocabularies, else empty
    pub merges: Vec<(String, String)>,
    pub bos: usize,
    pub eos: usize,
}

impl Vocabulary {
    /// The merges; of sentencepiece vocabularies every way to make a piece of two others, in the order of the scores.
    pub fn pairs(&self) -> Vec<String> {
        if !self.merges.is_empty() {
            return self.merges.iter().map(|(a, b)| format!("{a} {b}")).collect();
        }
        let known: HashMap<&str, usize> = self.tokens.iter().zip(0..).map(|(t, i)| (t.as_str(), i)).collect();
        let ordinary = |t: &str| known.get(t).is_some_and(|&i| self.types[i] == NORMAL);
        let normal = self.tokens.iter().zip(&self.types).filter(|(_, t)| **t == NORMAL);
        normal
            .flat_map(|(t, _)| t.char_indices().skip(1).map(move |(at, _)| t.split_at(at)))
            .filter(|(a, b)| ordinary(a) && ordinary(b))
            .map(|(a, b)| format!("{a} {b}"))
            .collect()
    }
}

fn letters() -> impl Iterator<Item = char> {
    LETTERS.chars()
}

fn pairs() -> impl Iterator<Item = String> {
    letters().flat_map(|a| letters().map(move |b| format!("{a}{b}")))
}

fn triples() -> impl Iterator<Item = String> {
    pairs().flat_map(|ab| letters().map(move |c| format!("{ab}{c}")))
}

/// The vocabulary of `n` tokens (at least 260) that a model of this kind has.
pub fn vocabulary(arch: Arch, n: usize) -> Vocabulary {
    match arch {
        Arch::Llama => sentencepiece(n, &[]),
        Arch::Phi3 => sentencepiece(n, &["<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"]),
        Arch::ChatGlm => byte_level(n, &["[gMASK]", "<sop>", "<|user|>", "<|endoftext|>"]),
        Arch::Glm4 | Arch::Glm4Moe => byte_level(n, &["[gMASK]", "<sop>", "<|user|>", "<|endoftext|>"]),
        Arch::Gemma2 | Arch::Gemma3 | Arch::Gemma3n => sentencepiece(n, &["<end_of_turn>", "<start_of_turn>"]),
        Arch::Gemma4 => sentencepiece(n, &["<turn|>", "<|turn>"]),
        Arch::Olmo2 | Arch::Granite | Arch::GraniteMoe => {
            byte_level(n, &["<|start_of_role|>", "<|end_of_role|>", "<|endoftext|>"])
        }
        Arch::GptOss => byte_level(n, &["<|startoftext|>", "<|return|>", "<|endoftext|>"]),
        Arch::SmolLm3 => byte_level(n, &["<|begin_of_text|>", "<|im_start|>", "<|im_end|>"]),
        Arch::Lfm2 | Arch::Lfm2Moe => byte_level(n, &["<|startoftext|>", "<|im_start|>", "<|im_end|>"]),
        Arch::Exaone4 => byte_level(n, &["[BOS]", "[|user|]", "[|endofturn|]"]),
        Arch::Cohere2 | Arch::CommandR => {
            byte_level(n, &["<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"])
        }
        Arch::StarCoder2 | Arch::Phi2 | Arch::Gpt2 | Arch::Falcon => byte_level(n, &["<|endoftext|>"]),
        // encoders are written by `synth_encoder`, with words of their own
        Arch::Bert | Arch::NomicBert | Arch::GemmaEmbedding | Arch::ModernBert => byte_level(n, &["<|endoftext|>"]),
        Arch::StableLm
        | Arch::Qwen2
        | Arch::Qwen3
        | Arch::Qwen2Moe
        | Arch::Qwen3Moe
        | Arch::Qwen35
        | Arch::Qwen35Moe
        | Arch::Qwen3Next
        | Arch::Mamba2
        | Arch::DeepSeek2 => byte_level(n, &["<|endoftext|>", "<|im_start|>", "<|im_end|>"]),
    }
}

/// Control tokens, 256 bytes, letters, letter pairs and triples; the `markers` come last.
fn sentencepiece(n: usize, markers: &[&str]) -> Vocabulary {
    let special = ["<unk>", "<s>", "</s>"].map(String::from).into_iter();
    let bytes = (0..=255u8).map(|b| format!("<0x{b:02X}>"));
    let pieces = std::iter::once(SPACE.to_string())
        .chain((33..127u8).map(|c| (c as char).to_string()))
        .chain(letters().map(|c| format!("{SPACE}{c}")))
        .chain(letters().map(|c| format!("{SPACE}{}", c.to_ascii_uppercase())))
        .chain(pairs())
        .chain(pairs().map(|p| format!("{SPACE}{p}")))
        .chain(triples())
        .chain(triples().map(|p| format!("{SPACE}{p}")))
        // Larger vocabularies: numbered words, which merge digit by digit.
        .chain((0u32..).map(|i| format!("{SPACE}w{i}")));
    let markers = &markers[..markers.len().min(n - 260)];
    let ordinary = n - markers.len();
    let mut tokens: Vec<String> = special.chain(bytes).chain(pieces).take(ordinary).collect();
    tokens.extend(markers.iter().map(|m| m.to_string()));
    let scores = (0..n).map(|i| if i < 259 || i >= ordinary { 0.0 } else { 259.0 - i as f32 }).collect();
    let types = (0..n)
        .map(|i| match i {
            0 => UNKNOWN,
            1 | 2 => CONTROL,
            3..259 => BYTE,
            _ if i >= ordinary => CONTROL,
            _ => NORMAL,
        })
        .collect();
    let eos = if markers.is_empty() { 2 } else { ordinary };
    Vocabulary { tokens, scores, types, merges: vec![], bos: 1, eos }
}

/// How byte-level vocabularies spell a byte: itself where it prints, else a character from 256 on, in order.
fn byte_spellings() -> Vec<char> {
    let prints = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut next = 256;
    (0..256)
        .map(|b| {
            let code = if prints(b) {
                b
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).unwrap_or('?')
        })
        .collect()
}

/// 256 bytes, then a letter after a space, letter pairs, triples and quadruples, each with the merge that makes it.
fn byte_level(n: usize, markers: &[&str]) -> Vocabulary {
    let bytes = byte_spellings();
    let space = bytes[32];
    let last_off = |p: String| {
        let cut = p.char_indices().next_back().map_or(0, |(i, _)| i);
        (p[..cut].to_string(), p[cut..].to_string())
    };
    let ordinary = n - markers.len();
    let merges: Vec<(String, String)> = letters()
        .map(|c| format!("{space}{c}"))
        .chain(pairs())
        .chain(pairs().map(|p| format!("{space}{p}")))
        .chain(triples())
        .chain(triples().map(|p| format!("{space}{p}")))
        .chain(triples().flat_map(|abc| letters().map(move |d| format!("{abc}{d}"))))
        .take(ordinary - 256)
        .map(last_off)
        .collect();
    let mut tokens: Vec<String> = bytes.iter().map(char::to_string).collect();
    tokens.extend(merges.iter().map(|(a, b)| format!("{a}{b}")));
    tokens.extend(markers.iter().map(|m| m.to_string()));
    let types = (0..n).map(|i| if i < ordinary { NORMAL } else { CONTROL }).collect();
    Vocabulary { tokens, scores: vec![], types, merges, bos: ordinary, eos: n - 1 }
}

/// `tokenizer.json` and `tokenizer_config.json`.
pub fn json(arch: Arch, v: &Vocabulary) -> (Value, Value) {
    let added: Vec<Value> = (0..v.tokens.len())
        .filter(|&i| matches!(v.types[i], UNKNOWN | CONTROL))
        .map(|i| {
            let strips = arch == Arch::Phi3 && v.tokens[i].starts_with("<|") && v.tokens[i] != "<|endoftext|>";
            json!({"id": i, "content": v.tokens[i], "single_word": false, "lstrip": false, "rstrip": strips,
                   "normalized": false, "special": true})
        })
        .collect();
    let is_bpe = !v.merges.is_empty();
    let ids: serde_json::Map<String, Value> = v
        .tokens
        .iter()
        .enumerate()
        .filter(|(i, _)| !is_bpe || v.types[*i] == NORMAL)
        .map(|(i, t)| (t.clone(), i.into()))
        .collect();
    let merges = v.pairs();
    let model = json!({"type": "BPE", "dropout": null, "unk_token": if is_bpe { Value::Null } else { "<unk>".into() },
        "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": !is_bpe, "byte_fallback": !is_bpe,
        "ignore_merges": arch == Arch::SmolLm3 || arch.is_lfm2(), "vocab": ids, "merges": merges});
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let space = SPACE.to_string();
    let rules = if is_bpe {
        let is_qwen = arch.is_hybrid() || matches!(arch, Arch::Qwen2 | Arch::Qwen3 | Arch::Qwen2Moe | Arch::Qwen3Moe);
        let regex = match arch {
            _ if is_qwen || matches!(arch, Arch::StableLm | Arch::Mamba2 | Arch::DeepSeek2) => QWEN_SPLIT,
            Arch::GptOss => GPT4O_SPLIT,
            _ => GLM_SPLIT,
        };
        let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        // GPT-2's, which comes with the byte level itself
        let words = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
        let digits = json!({"type": "Digits", "individual_digits": true});
        let steps = match arch {
            Arch::Exaone4 | Arch::Phi2 | Arch::Gpt2 => json!([words]),
            Arch::Granite | Arch::GraniteMoe | Arch::StarCoder2 | Arch::Cohere2 | Arch::CommandR => {
                json!([digits, words])
            }
            Arch::Falcon => json!([{"type": "Punctuation", "behavior": "Contiguous"}, words,
                {"type": "Digits", "individual_digits": false},
                {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": false}]),
            _ => json!([split, level]),
        };
        [
            if is_qwen { json!({"type": "NFC"}) } else { Value::Null },
            json!({"type": "Sequence", "pretokenizers": steps}),
            Value::Null,
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}),
        ]
    } else {
        let bos = &v.tokens[v.bos];
        let part = |kind: &str, id: &str| json!({kind: {"id": id, "type_id": 0}});
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": space});
        let split =
            json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});
        let is_gemma = matches!(arch, Arch::Gemma2 | Arch::Gemma3 | Arch::Gemma3n | Arch::Gemma4);
        [
            if is_gemma {
                replace
            } else {
                json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": space}, replace]})
            },
            if is_gemma { split } else { Value::Null },
            json!({"type": "TemplateProcessing", "single": [part("SpecialToken", bos), part("Sequence", "A")],
                "pair": [part("SpecialToken", bos), part("Sequence", "A"), part("Sequence", "B")],
                "special_tokens": {bos: {"id": bos, "ids": [v.bos], "tokens": [bos]}}}),
            json!({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": space}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": u32::from(!is_gemma), "stop": 0}]}),
        ]
    };
    let [normalizer, pre_tokenizer, post_processor, decoder] = rules;
    let file = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor,
        "decoder": decoder, "model": model});
    let bos = if is_bpe { Value::Null } else { v.tokens[v.bos].clone().into() };
    let config = json!({"tokenizer_class": if is_bpe { "Qwen2Tokenizer" } else { "LlamaTokenizer" }, "bos_token": bos,
        "eos_token": v.tokens[v.eos], "add_bos_token": !is_bpe, "model_max_length": 1000000});
    (file, config)
}
