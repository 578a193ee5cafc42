//! The GGUF form of a synthetic model.

use super::vocabulary::vocabulary;
use super::{Arch, Model, Rope, Summary, deepseek2, write_tensor};
use anyhow::{Result, bail};
use isobit::internals::blocks::BlockType;
use isobit::internals::formats::meta::Value;
use isobit::internals::formats::synthetic::{dims, epsilon_key};
use std::io::Write;

/// Tensors start at multiples of this; the format's default.
const ALIGNMENT: u64 = 32;

/// Key-value pairs as GGUF stores them.
#[derive(Default)]
struct Metadata {
    bytes: Vec<u8>,
    count: u64,
}

impl Metadata {
    fn text(&mut self, s: &str) {
        self.bytes.extend((s.len() as u64).to_le_bytes());
        self.bytes.extend(s.as_bytes());
    }

    fn key(&mut self, key: &str, value_type: u32) {
        self.count += 1;
        self.text(key);
        self.bytes.extend(value_type.to_le_bytes());
    }

    fn u32(&mut self, key: &str, value: u32) {
        self.key(key, 4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn f32(&mut self, key: &str, value: f32) {
        self.key(key, 6);
        self.bytes.extend(value.to_le_bytes());
    }

    fn bool(&mut self, key: &str, value: bool) {
        self.key(key, 7);
        self.bytes.push(value as u8);
    }

    fn string(&mut self, key: &str, value: &str) {
        self.key(key, 8);
        self.text(value);
    }

    fn array<T>(&mut self, key: &str, elem_type: u32, values: &[T], mut put: impl FnMut(&mut Self, &T)) {
        self.key(key, 9);
        self.bytes.extend(elem_type.to_le_bytes());
        self.bytes.extend((values.len() as u64).to_le_bytes());
        for v in values {
            put(self, v);
        }
    }
}

/// GGUF's name of the rule by which texts are split.
fn split_rule(arch: Arch) -> &'static str {
    match arch {
        Arch::ChatGlm => "chatglm-bpe",
        Arch::Glm4 | Arch::Glm4Moe => "glm4",
        Arch::GptOss => "gpt-4o",
        Arch::SmolLm3 => "llama-bpe",
        Arch::Lfm2 | Arch::Lfm2Moe => "lfm2",
        Arch::Olmo2 => "dbrx",
        Arch::Exaone4 => "exaone4",
        Arch::Granite | Arch::GraniteMoe => "refact",
        Arch::StarCoder2 => "starcoder",
        Arch::StableLm => "stablelm2",
        Arch::Cohere2 | Arch::CommandR => "command-r",
        Arch::Phi2 => "phi-2",
        Arch::Gpt2 => "gpt-2",
        Arch::Falcon => "falcon",
        Arch::Qwen35 | Arch::Qwen35Moe => "qwen35",
        Arch::Gemma4 => "gemma4",
        _ => "qwen2",
    }
}

fn metadata(model: &Model) -> Result<Metadata> {
    let (s, arch) = (&model.shape, model.shape.arch.name());
    let key = |k: &str| format!("{arch}.{k}");
    let mut m = Metadata::default();
    m.string("general.architecture", arch);
    m.string("general.type", "model");
    m.string("general.name", &model.name);
    m.u32(&key("block_count"), s.layers);
    m.u32(&key("context_length"), s.ctx);
    m.u32(&key("embedding_length"), s.dim);
    let attends = s.arch != Arch::Mamba2;
    if !s.arch.is_uneven() {
        m.u32(&key("feed_forward_length"), if attends { s.ffn } else { 0 });
    }
    m.u32(&key("attention.head_count"), if attends { s.heads } else { 0 });
    match s.kv_heads_value() {
        _ if !attends || s.arch == Arch::Gemma4 => {}
        Value::I32Array(list) => {
            m.array(&key("attention.head_count_kv"), 5, &list, |m, v| m.bytes.extend(v.to_le_bytes()))
        }
        _ => m.u32(&key("attention.head_count_kv"), s.kv_heads),
    }
    if attends {
        m.f32(&key("rope.freq_base"), s.arch.made_up_base());
    }
    if s.arch == Arch::Gemma3 {
        m.f32(&key("rope.freq_base_swa"), 10000.0);
    }
    if s.window > 0 {
        // which layers have it follows from the architecture
        m.u32(&key("attention.sliding_window"), s.window);
    }
    for (k, v) in s.expert_keys().into_iter().chain(s.delta_keys()).chain(s.latent_keys()).chain(s.uneven_keys()) {
        match v {
            Value::U32(v) => m.u32(&key(k), v),
            Value::F32(v) => m.f32(&key(k), v),
            Value::Bool(v) => m.bool(&key(k), v),
            Value::U32Array(v) => m.array(&key(k), 4, &v, |m, v| m.bytes.extend(v.to_le_bytes())),
            Value::F32Array(v) => m.array(&key(k), 6, &v, |m, v| m.bytes.extend(v.to_le_bytes())),
            Value::I32Array(v) => m.array(&key(k), 5, &v, |m, v| m.bytes.extend(v.to_le_bytes())),
            Value::Array(v) => m.array(&key(k), 7, &v, |m, v| m.bytes.push((*v == Value::Bool(true)).into())),
            other => bail!("{k} is a {}", other.type_name()),
        }
    }
    s.arch.scales().iter().for_each(|(k, v)| m.f32(&key(k), *v));
    m.f32(&key(epsilon_key(s.arch)), 1e-5);
    if attends && s.latent.rank == 0 && s.heads as u64 * s.head_dim as u64 != s.dim as u64 {
        m.u32(&key("attention.key_length"), s.head_dim);
        m.u32(&key("attention.value_length"), s.head_dim);
    }
    m.u32(&key("vocab_size"), s.vocab);
    if attends {
        m.u32(&key("rope.dimension_count"), model.n_rot());
    }
    match model.rope {
        Rope::Plain => {}
        Rope::Longrope => {
            m.u32(&key("rope.scaling.original_context_length"), model.original);
            m.f32(&key("rope.scaling.attn_factor"), model.longrope_magnitude() as f32);
        }
        Rope::Yarn => {
            m.string(&key("rope.scaling.type"), "yarn");
            m.f32(&key("rope.scaling.factor"), model.factor() as f32);
            m.u32(&key("rope.scaling.original_context_length"), model.original);
            if s.arch == Arch::DeepSeek2 {
                m.f32(&key("rope.scaling.yarn_log_multiplier"), (0.1 * deepseek2::MSCALE) as f32);
            }
        }
        Rope::Linear => {
            m.string(&key("rope.scaling.type"), "linear");
            m.f32(&key("rope.scaling.factor"), model.factor() as f32);
        }
        Rope::Llama3 => bail!("--rope llama3 is for --format hf"),
    }
    let v = vocabulary(s.arch, s.vocab as usize);
    let bpe = !v.merges.is_empty();
    let by_merges = bpe || s.arch == Arch::Gemma4;
    let model_name = match s.arch {
        Arch::Gemma4 => "gemma4",
        _ if bpe => "gpt2",
        _ => "llama",
    };
    m.string("tokenizer.ggml.model", model_name);
    m.string("tokenizer.ggml.pre", if by_merges { split_rule(s.arch) } else { "default" });
    m.array("tokenizer.ggml.tokens", 8, &v.tokens, |m, t| m.text(t));
    if by_merges {
        m.array("tokenizer.ggml.merges", 8, &v.pairs(), |m, pair| m.text(pair));
    } else {
        m.array("tokenizer.ggml.scores", 6, &v.scores, |m, v| m.bytes.extend(v.to_le_bytes()));
    }
    m.array("tokenizer.ggml.token_type", 5, &v.types, |m, v| m.bytes.extend(v.to_le_bytes()));
    if !s.arch.turns_half() {
        m.u32("tokenizer.ggml.bos_token_id", v.bos as u32);
    }
    m.u32("tokenizer.ggml.eos_token_id", v.eos as u32);
    if !bpe {
        m.u32("tokenizer.ggml.unknown_token_id", 0);
    }
    m.bool("tokenizer.ggml.add_bos_token", !bpe);
    if matches!(s.arch, Arch::Gemma2 | Arch::Gemma3 | Arch::Gemma3n | Arch::Gemma4) {
        m.bool("tokenizer.ggml.add_space_prefix", false);
    }
    m.bool("tokenizer.ggml.add_eos_token", false);
    m.u32("general.quantization_version", 2);
    if let Some(number) = model.mix.types().file_type {
        m.u32("general.file_type", number);
    }
    Ok(m)
}

/// The type's number in GGUF.
fn type_id(ty: BlockType) -> u32 {
    match ty {
        BlockType::F32 => 0,
        BlockType::F16 => 1,
        BlockType::Q4_0 => 2,
        BlockType::Q4_1 => 3,
        BlockType::Q5_0 => 6,
        BlockType::Q5_1 => 7,
        BlockType::Q8_0 => 8,
        BlockType::Q4_K => 12,
        BlockType::Q5_K => 13,
        BlockType::Q6_K => 14,
        BlockType::BF16 => 30,
        _ => unreachable!("no mix has {}", ty.name()),
    }
}

/// Writes the whole file.
pub fn write_model(w: &mut impl Write, model: &Model) -> Result<Summary> {
    let list = model.tensors();
    let meta = metadata(model)?;
    let mut head = Metadata::default();
    head.bytes.extend(b"GGUF");
    head.bytes.extend(3u32.to_le_bytes());
    head.bytes.extend((list.len() as u64).to_le_bytes());
    head.bytes.extend(meta.count.to_le_bytes());
    head.bytes.extend(&meta.bytes);
    let mut sum = Summary::default();
    for t in &list {
        let size = t.bytes()?;
        head.text(&t.name);
        // The fastest dimension first.
        let sizes = [t.rows, t.stack, t.cols].map(|n| n as u64);
        let dims = dims(model.shape.arch, &t.name, t.is_vector() || t.rows == 1, sizes);
        head.bytes.extend((dims.len() as u32).to_le_bytes());
        for d in dims {
            head.bytes.extend(d.to_le_bytes());
        }
        head.bytes.extend(type_id(t.ty).to_le_bytes());
        head.bytes.extend(sum.data.to_le_bytes());
        sum.parameters += t.rows as u64 * t.cols as u64;
        sum.data += size.next_multiple_of(ALIGNMENT);
        sum.largest = sum.largest.max(size);
    }
    head.bytes.resize(head.bytes.len().next_multiple_of(ALIGNMENT as usize), 0);
    w.write_all(&head.bytes)?;
    for t in &list {
        write_tensor(w, t, model, |row| row)?;
        let size = t.bytes()?;
        let padding = (size.next_multiple_of(ALIGNMENT) - size) as usize;
        w.write_all(&[0; ALIGNMENT as usize][..padding])?;
    }
    Ok(sum)
}

/// The file's form of the architecture differs from Hugging Face's in this: queries and keys of a llama (SmolLM3,
/// Granite) have their rotated pairs side by side. Row of the GGUF matrix that holds row `row` of the Hugging Face one.
pub fn paired_row(arch: Arch, head_dim: usize, row: usize) -> usize {
    if !matches!(arch, Arch::Llama | Arch::SmolLm3 | Arch::Granite | Arch::GraniteMoe) {
        return row;
    }
    let (head, e) = (row / head_dim, row % head_dim);
    head * head_dim + e % (head_dim / 2) * 2 + e / (head_dim / 2)
}
