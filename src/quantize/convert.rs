//! The metadata of a GGUF file made from a Hugging Face directory: config keys, and the permutation of Q and K.
//!
//! Keys and their sources are those of llama.cpp's converter. What it does not know is refused rather than left out: a
//! file without it would run, and run wrongly.

use super::vocab;
use crate::formats::meta::{Meta, Value};
use crate::formats::{Container, names};
use anyhow::{Context, bail, ensure};
use serde_json::Value as Json;

/// What a directory becomes besides its weights.
#[derive(Debug)]
pub struct Converted {
    /// every key, without `general.file_type`
    pub meta: Meta,
    /// heads of q and of k whose rows are permuted (GGUF pairs neighbours where the directory pairs halves)
    pub permuted: Option<(usize, usize)>,
    /// `rope_freqs.weight`: divisors of the frequencies (Llama 3.1 and later)
    pub rope_freqs: Option<Vec<f32>>,
    /// `rope_factors_long.weight` and `rope_factors_short.weight` (longrope)
    pub rope_factors: Option<(Vec<f32>, Vec<f32>)>,
}

/// Reads config and tokeniser of a Hugging Face container.
pub fn convert(c: &Container) -> anyhow::Result<Converted> {
    let dir = c.files[0].parent().map(|d| d.display().to_string()).unwrap_or_default();
    let cfg = c.config.as_ref().with_context(|| format!("{dir}: no config.json"))?;
    let mut out = config(cfg).with_context(|| format!("{dir}/config.json"))?;
    let spm = c.files[0].parent().map(|d| d.join("tokenizer.model"));
    vocab::convert(c, cfg, spm.as_deref(), &mut out.meta.entries).with_context(|| format!("{dir}: tokeniser"))?;
    Ok(out)
}

fn config(cfg: &Json) -> anyhow::Result<Converted> {
    let model_type = cfg["model_type"].as_str().context("model_type is missing")?;
    let arch = names::gguf_arch(model_type).with_context(|| {
        format!("model_type {model_type:?} has no conversion (known: llama, mistral, smollm, phi3, qwen2, qwen3)")
    })?;
    let whole = |key: &str| match &cfg[key] {
        Json::Null => Ok(None),
        v => v.as_u64().and_then(|v| u32::try_from(v).ok()).map(Some).with_context(|| format!("{key} is {v}")),
    };
    let need = |key: &str| whole(key)?.with_context(|| format!("{key} is missing"));
    let (dim, heads, context) = (need("hidden_size")?, need("num_attention_heads")?, need("max_position_embeddings")?);
    ensure!(heads > 0, "num_attention_heads is 0");
    let kv_heads = whole("num_key_value_heads")?.unwrap_or(heads);
    let explicit = whole("head_dim")?;
    let head_dim = explicit.unwrap_or(dim / heads);
    let partial = cfg["partial_rotary_factor"].as_f64().unwrap_or(1.0);
    let n_rot = (f64::from(head_dim) * partial) as u32;
    let mut entries: Vec<(String, Value)> = Vec::new();
    let mut put = |key: &str, v: Value| entries.push((key.replace("{a}", arch), v));
    put("general.architecture", Value::Str(arch.into()));
    put("general.type", Value::Str("model".into()));
    let name = cfg["_name_or_path"].as_str().filter(|s| !s.is_empty()).unwrap_or(model_type);
    put("general.name", Value::Str(name.into()));
    put("{a}.context_length", Value::U32(context));
    put("{a}.embedding_length", Value::U32(dim));
    put("{a}.block_count", Value::U32(need("num_hidden_layers")?));
    put("{a}.feed_forward_length", Value::U32(need("intermediate_size")?));
    put("{a}.attention.head_count", Value::U32(heads));
    put("{a}.attention.head_count_kv", Value::U32(kv_heads));
    if explicit.is_some() || arch == "qwen3" {
        put("{a}.attention.key_length", Value::U32(head_dim));
        put("{a}.attention.value_length", Value::U32(head_dim));
    }
    put("{a}.rope.dimension_count", Value::U32(n_rot));
    put("{a}.vocab_size", Value::U32(need("vocab_size")?));
    let eps = cfg["rms_norm_eps"].as_f64().unwrap_or(1e-6);
    put("{a}.attention.layer_norm_rms_epsilon", Value::F32(eps as f32));
    // a Qwen has no window unless it says so, and then in its later layers
    let qwen = arch.starts_with("qwen");
    let windowed = cfg["use_sliding_window"].as_bool().unwrap_or(!qwen);
    if let Some(w) = whole("sliding_window")?.filter(|w| windowed && *w > 0) {
        put("{a}.attention.sliding_window", Value::U32(w));
        let layers: Option<Vec<bool>> = match &cfg["layer_types"] {
            Json::Array(list) => Some(list.iter().map(|kind| kind == "sliding_attention").collect()),
            _ if qwen => {
                let (n, from) = (need("num_hidden_layers")?, whole("max_window_layers")?.unwrap_or(28));
                ensure!(n <= 1024, "num_hidden_layers is {n}, expected at most 1024");
                Some((0..n).map(|l| l >= from).collect())
            }
            _ => None,
        };
        if let Some(layers) = layers {
            let list = layers.into_iter().map(Value::Bool).collect();
            put("{a}.attention.sliding_window_pattern", Value::Array(list));
        }
    }
    // newer files keep everything about RoPE in rope_parameters
    let scaling = if cfg["rope_parameters"].is_object() { &cfg["rope_parameters"] } else { &cfg["rope_scaling"] };
    let base = cfg["rope_theta"].as_f64().or(scaling["rope_theta"].as_f64()).unwrap_or(10000.0);
    put("{a}.rope.freq_base", Value::F32(base as f32));
    let number = |key: &str| scaling[key].as_f64().with_context(|| format!("RoPE scaling: {key} is missing"));
    let original = whole("original_max_position_embeddings")?
        .or(scaling["original_max_position_embeddings"].as_u64().and_then(|v| u32::try_from(v).ok()));
    let (mut rope_freqs, mut rope_factors) = (None, None);
    match scaling["rope_type"].as_str().or(scaling["type"].as_str()).unwrap_or("default") {
        "default" => {}
        "linear" => {
            put("{a}.rope.scaling.type", Value::Str("linear".into()));
            put("{a}.rope.scaling.factor", Value::F32(number("factor")? as f32));
        }
        "yarn" => {
            put("{a}.rope.scaling.type", Value::Str("yarn".into()));
            put("{a}.rope.scaling.factor", Value::F32(number("factor")? as f32));
            put("{a}.rope.scaling.original_context_length", Value::U32(original.unwrap_or(context)));
        }
        "llama3" => {
            let low_wave = number("original_max_position_embeddings")? / number("low_freq_factor")?;
            let high_wave = number("original_max_position_embeddings")? / number("high_freq_factor")?;
            let (factor, low, high) = (number("factor")?, number("low_freq_factor")?, number("high_freq_factor")?);
            let divisor = |i: u32| {
                let wave = std::f64::consts::TAU * libm::pow(base, 2.0 * f64::from(i) / f64::from(n_rot));
                if wave < high_wave {
                    1.0
                } else if wave > low_wave {
                    factor
                } else {
                    let smooth = (low_wave * low / wave - low) / (high - low);
                    1.0 / ((1.0 - smooth) / factor + smooth)
                }
            };
            rope_freqs = Some((0..n_rot / 2).map(|i| divisor(i) as f32).collect());
        }
        "longrope" | "su" => {
            let list = |key: &str| -> anyhow::Result<Vec<f32>> {
                let list = scaling[key].as_array().with_context(|| format!("RoPE scaling: {key} is missing"))?;
                let all: Option<Vec<f32>> = list.iter().map(|v| v.as_f64().map(|v| v as f32)).collect();
                let all = all.with_context(|| format!("RoPE scaling: {key} holds something else than numbers"))?;
                ensure!(
                    all.len() == (n_rot / 2) as usize,
                    "RoPE scaling: {key} has {} numbers, expected {}",
                    all.len(),
                    n_rot / 2
                );
                Ok(all)
            };
            rope_factors = Some((list("long_factor")?, list("short_factor")?));
            let original = original.context("original_max_position_embeddings is missing")?;
            put("{a}.rope.scaling.original_context_length", Value::U32(original));
            let scale = f64::from(context) / f64::from(original);
            let attn =
                if scale <= 1.0 { 1.0 } else { libm::sqrt(1.0 + libm::log(scale) / libm::log(f64::from(original))) };
            put("{a}.rope.scaling.attn_factor", Value::F32(attn as f32));
        }
        other => {
            bail!("RoPE scaling of type {other:?} has no conversion (known: default, linear, yarn, llama3, longrope)")
        }
    }
    put("general.quantization_version", Value::U32(2));
    let permuted = (arch == "llama").then_some((heads as usize, kv_heads as usize));
    Ok(Converted { meta: Meta { entries }, permuted, rope_freqs, rope_factors })
}

/// The source row of output row `r` of a head of `n` rows, when halves become neighbours.
pub fn permuted_row(r: usize, n: usize) -> usize {
    (r % 2) * (n / 2) + r / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_become_neighbours() {
        let rows: Vec<usize> = (0..8).map(|r| permuted_row(r, 8)).collect();
        assert_eq!(rows, [0, 4, 1, 5, 2, 6, 3, 7]);
    }

    #[test]
    fn llama3_scaling_becomes_divisors_between_one_and_the_factor() {
        let cfg = serde_json::json!({"model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32,
            "num_key_value_heads": 8, "num_hidden_layers": 16, "intermediate_size": 8192, "vocab_size": 128256,
            "max_position_embeddings": 131072, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3",
            "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}});
        let c = config(&cfg).unwrap();
        let d = c.rope_freqs.unwrap();
        assert_eq!((d.len(), d[0], d[31]), (32, 1.0, 32.0));
        assert!(d.windows(2).all(|w| w[0] <= w[1]), "{d:?}");
        assert_eq!(c.permuted, Some((32, 8)));
        assert_eq!(c.meta.uint("llama.attention.head_count_kv"), Some(8));
    }

    #[test]
    fn a_window_is_written_with_the_layers_that_have_it_and_not_where_it_is_not_used() {
        let mut cfg = serde_json::json!({"model_type": "phi3", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9,
            "num_hidden_layers": 2, "intermediate_size": 64, "max_position_embeddings": 64, "sliding_window": 40});
        let window = |cfg: &Json, arch: &str| {
            let meta = config(cfg).unwrap().meta;
            let key = |what: &str| format!("{arch}.attention.{what}");
            (meta.uint(&key("sliding_window")), meta.get(&key("sliding_window_pattern")).cloned())
        };
        assert_eq!(window(&cfg, "phi3"), (Some(40), None));
        cfg["model_type"] = "qwen2".into();
        assert_eq!(window(&cfg, "qwen2"), (None, None));
        (cfg["use_sliding_window"], cfg["max_window_layers"]) = (true.into(), 1.into());
        let pattern = Value::Array(vec![Value::Bool(false), Value::Bool(true)]);
        assert_eq!(window(&cfg, "qwen2"), (Some(40), Some(pattern)));
    }

    #[test]
    fn an_unknown_model_or_scaling_is_refused_by_name() {
        let mut cfg = serde_json::json!({"model_type": "gpt_neox"});
        assert!(format!("{:#}", config(&cfg).unwrap_err()).contains("gpt_neox"));
        cfg = serde_json::json!({"model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9,
            "num_hidden_layers": 1, "intermediate_size": 64, "max_position_embeddings": 64,
            "rope_scaling": {"type": "magic"}});
        assert!(format!("{:#}", config(&cfg).unwrap_err()).contains("magic"));
    }
}
