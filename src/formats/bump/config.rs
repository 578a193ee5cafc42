//! What the JSON beside or inside a BUMP file says of the model, and the GGUF keys that follow from it.

use super::super::error::{FormatError, quote};
use super::super::json::Fields;
use super::super::meta::{Meta, Value};
use super::header::Dims;

/// What a config says; `None` where it says nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Config {
    /// name of the file, for messages
    file: String,
    arch: Option<String>,
    name: Option<String>,
    /// number, the config's key, and what the header calls it
    numbers: Vec<(u64, &'static str, Number)>,
    eps: Option<f64>,
    rope_base: Option<f64>,
    window: Option<u64>,
    rotary: Option<u64>,
    scaling: Vec<(&'static str, Value)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Number {
    Layers,
    Vocab,
    Embed,
    Ffn,
    Context,
    Heads,
    KvHeads,
    HeadDim,
}

use Number::{Context, Embed, Ffn, HeadDim, Heads, KvHeads, Layers, Vocab};

/// Keys of `config.json`, then those of the metadata inside version 5.
const KEYS: [[(&str, Number); 8]; 2] = [
    [
        ("num_hidden_layers", Layers),
        ("vocab_size", Vocab),
        ("hidden_size", Embed),
        ("intermediate_size", Ffn),
        ("max_position_embeddings", Context),
        ("num_attention_heads", Heads),
        ("num_key_value_heads", KvHeads),
        ("head_dim", HeadDim),
    ],
    [
        ("num_layers", Layers),
        ("vocab_size", Vocab),
        ("embed_dim", Embed),
        ("intermediate_size", Ffn),
        ("context_length", Context),
        ("num_heads", Heads),
        ("num_kv_heads", KvHeads),
        ("head_dim", HeadDim),
    ],
];

impl Dims {
    fn number(&mut self, n: Number) -> &mut u64 {
        match n {
            Layers => &mut self.layers,
            Vocab => &mut self.vocab,
            Embed => &mut self.embed,
            Ffn => &mut self.ffn,
            Context => &mut self.context,
            Heads => &mut self.heads,
            KvHeads => &mut self.kv_heads,
            HeadDim => &mut self.head_dim,
        }
    }
}

/// Keys that only a config of Hugging Face's has: the converter for those lays some matrices out another way.
const THEIRS: [&str; 4] = ["hidden_act", "transformers_version", "torch_dtype", "dtype"];

/// Reads a config. `inside`: the metadata of version 5 rather than `config.json`.
pub(super) fn read(f: &Fields, inside: bool) -> Result<Config, FormatError> {
    if let Some(key) = THEIRS.iter().find(|key| !inside && f.get(key).is_some()) {
        let what = format!("a BUMP file made from a Hugging Face directory (its config has {key})");
        return Err(FormatError::unsupported(
            f.file(),
            what,
            "give that directory itself, or a file made from a GGUF file",
        ));
    }
    let mut numbers = Vec::new();
    for (key, number) in KEYS[usize::from(inside)] {
        if let Some(v) = f.whole(key)? {
            numbers.push((v, key, number));
        }
    }
    let (arch, eps) = if inside { ("model", "rms_eps") } else { ("model_type", "rms_norm_eps") };
    if f.get("rope_scaling").is_some() {
        let what = "rope_scaling in the config of a BUMP file";
        return Err(FormatError::unsupported(f.file(), what, "run the model it was made from"));
    }
    Ok(Config {
        file: f.file().to_string(),
        arch: f.text(arch)?.map(String::from),
        name: f.text("model_name")?.map(String::from),
        numbers,
        eps: f.number(eps)?,
        rope_base: f.number("rope_theta")?,
        window: f.whole("sliding_window")?.filter(|w| *w > 0),
        rotary: f.whole("rotary_dim")?,
        scaling: scaling(f)?,
    })
}

/// GGUF's keys for how positions are scaled.
fn scaling(f: &Fields) -> Result<Vec<(&'static str, Value)>, FormatError> {
    let kind = f.text("rope_scaling_type")?.unwrap_or("none").to_lowercase();
    if kind == "none" || kind.is_empty() {
        return Ok(vec![]);
    }
    if !["linear", "yarn"].contains(&kind.as_str()) {
        let what = format!("rope_scaling_type {}", quote(&kind));
        return Err(FormatError::unsupported(f.file(), what, "run the model it was made from"));
    }
    let mut out = vec![("rope.scaling.type", Value::Str(kind.clone()))];
    let mut float = |key: &'static str, v: Option<f64>, none: f64| {
        out.extend(v.filter(|v| *v != none).map(|v| (key, Value::F32(v as f32))));
    };
    float("rope.scaling.factor", f.number("rope_scaling_factor")?, 0.0);
    float("rope.scaling.attn_factor", f.number("rope_attn_factor")?, 1.0);
    float("rope.scaling.yarn_beta_fast", f.number("rope_beta_fast")?, 0.0);
    float("rope.scaling.yarn_beta_slow", f.number("rope_beta_slow")?, 0.0);
    if let Some(v) = f.whole("rope_original_context_length")?.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0) {
        out.push(("rope.scaling.original_context_length", Value::U32(v)));
    }
    Ok(out)
}

impl Config {
    /// Refuses a number that is another than the header's, and fills in those that the header has not (they are 0).
    pub(super) fn agree(&self, dims: &mut Dims, header: &str) -> Result<(), FormatError> {
        for &(v, key, number) in &self.numbers {
            let held = dims.number(number);
            if *held == 0 {
                *held = v;
            } else if *held != v {
                return Err(FormatError::invalid(
                    &self.file,
                    key,
                    "the config contradicts the file",
                    format_args!("{held}, as in the header of {header}"),
                    v,
                ));
            }
        }
        Ok(())
    }

    /// The architecture as GGUF names it.
    pub(super) fn arch(&self) -> Result<&str, FormatError> {
        match self.arch.as_deref() {
            Some("mistral" | "smollm") => Ok("llama"),
            Some(other) if !other.is_empty() => Ok(other),
            _ => Err(FormatError::invalid(&self.file, "model_type", "no architecture", "a name such as llama", "none")),
        }
    }

    /// The model's metadata under GGUF's keys.
    pub(super) fn meta(&self, d: &Dims) -> Result<Meta, FormatError> {
        let arch = self.arch()?;
        let eps = self.eps.ok_or_else(|| {
            FormatError::invalid(&self.file, "rms_norm_eps", "missing", "the epsilon of the norms", "nothing")
        })?;
        let mut entries = vec![("general.architecture".to_string(), Value::Str(arch.into()))];
        entries.extend(self.name.iter().map(|n| ("general.name".to_string(), Value::Str(n.clone()))));
        let mut put = |key: &str, v: Value| entries.push((format!("{arch}.{key}"), v));
        // all of them were bounded when they were read
        let number = |v: u64| Value::U32(v as u32);
        put("context_length", number(d.context));
        put("embedding_length", number(d.embed));
        put("block_count", number(d.layers));
        put("feed_forward_length", number(d.ffn));
        put("attention.head_count", number(d.heads));
        put("attention.head_count_kv", number(d.kv_heads));
        if d.heads * d.head_dim != d.embed {
            put("attention.key_length", number(d.head_dim));
            put("attention.value_length", number(d.head_dim));
        }
        put("attention.layer_norm_rms_epsilon", Value::F32(eps as f32));
        if let Some(w) = self.window.and_then(|w| u32::try_from(w).ok()) {
            put("attention.sliding_window", Value::U32(w));
        }
        put("rope.freq_base", Value::F32(self.rope_base.unwrap_or(10000.0) as f32));
        let rotary = self.rotary.filter(|r| *r > 0 && *r <= d.head_dim).unwrap_or(d.head_dim);
        put("rope.dimension_count", number(rotary));
        for (key, v) in &self.scaling {
            put(key, v.clone());
        }
        put("vocab_size", number(d.vocab));
        Ok(Meta { entries })
    }
}
