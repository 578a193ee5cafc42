//! `config.json` of the new directory: the source's without what it says of another quantisation, or made of a GGUF file's
//! metadata, in the fields that transformers reads.

use crate::blocks::BlockType;
use crate::formats::{Container, Dtype};
use crate::models::hyper::RopeScaling;
use crate::models::{Family, Hyper, output_name, rope_divisors};
use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};

/// The tensor of a GGUF file with the divisors of its frequencies.
pub(super) const FREQUENCIES: &str = "rope_freqs.weight";

/// Fields that say how a directory's weights are quantised.
const QUANTISED: [&str; 2] = ["quantization_config", "quantization_bit"];

/// The config of a directory without what it says of quantisation.
pub(super) fn plain(config: &Value) -> Value {
    let mut config = config.clone();
    if let Some(fields) = config.as_object_mut() {
        fields.retain(|key, _| !QUANTISED.contains(&key.as_str()));
    }
    config
}

/// Whether this form is known of the model's family.
pub(super) fn has_form(h: &Hyper) -> bool {
    [Family::Llama, Family::Phi3, Family::Qwen2, Family::Qwen3, Family::ChatGlm].contains(&h.family)
        && h.experts.is_none()
}

/// That it is not.
pub(super) fn no_form(family: &str) -> String {
    format!("a {family} model has no form with msModelSlim's types that is known here; write another")
}

/// A config that is read as the same hyperparameters (but for the order of a llama's heads, which is transformers').
///
/// Errors: what config.json has no fields for.
pub(super) fn of_gguf(c: &Container, h: &Hyper) -> anyhow::Result<Value> {
    let file = c.described_by().display().to_string();
    let mut out = Map::new();
    let mut put = |key: &str, v: Value| out.insert(key.into(), v);
    let (model_type, class) = match h.family {
        _ if h.experts.is_some() => bail!("{file}: {}", no_form("mixture-of-experts")),
        // transformers has a window for this one alone
        Family::Llama if h.window.is_some() => ("mistral", "MistralForCausalLM"),
        Family::Llama => ("llama", "LlamaForCausalLM"),
        Family::Phi3 => ("phi3", "Phi3ForCausalLM"),
        Family::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
        Family::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
        other if !has_form(h) => bail!("{file}: {}", no_form(other.name())),
        _ => bail!(
            "{file}: a ChatGLM in a GGUF file has its queries, keys and values in one tensor, which no directory of this \
             form has; give its directory"
        ),
    };
    put("model_type", json!(model_type));
    put("architectures", json!([class]));
    put("hidden_act", json!("silu"));
    put("hidden_size", json!(h.dim));
    put("intermediate_size", json!(h.ffn));
    put("num_hidden_layers", json!(h.layers));
    put("num_attention_heads", json!(h.heads));
    put("num_key_value_heads", json!(h.kv_heads));
    put("head_dim", json!(h.head_dim));
    put("vocab_size", json!(h.vocab));
    put("max_position_embeddings", json!(h.context));
    put("rms_norm_eps", json!(shortest(h.eps)?));
    put("rope_theta", json!(h.rope_base));
    put("tie_word_embeddings", json!(c.tensor(&output_name(c)).is_none()));
    put("torch_dtype", json!(torch_dtype(c)));
    if h.n_rot != h.head_dim {
        put("partial_rotary_factor", json!(h.n_rot as f64 / h.head_dim as f64));
    }
    if let Some(w) = h.window {
        put("sliding_window", json!(w));
        let kind = |limited: bool| if limited { "sliding_attention" } else { "full_attention" };
        if !h.window_layers.is_empty() {
            put("layer_types", json!(h.window_layers.iter().map(|w| kind(*w)).collect::<Vec<_>>()));
        }
        if matches!(h.family, Family::Qwen2 | Family::Qwen3) {
            put("use_sliding_window", json!(true));
            // layers from this one on have it, where no list says of each
            put("max_window_layers", json!(0));
        }
    }
    for (key, name) in
        [("tokenizer.ggml.bos_token_id", "bos_token_id"), ("tokenizer.ggml.eos_token_id", "eos_token_id")]
    {
        if let Some(id) = c.meta.uint(key) {
            put(name, json!(id));
        }
    }
    let scaling = scaling(c, h).with_context(|| file.clone())?;
    if let RopeScaling::LongRope { original, .. } = h.rope_scaling {
        put("original_max_position_embeddings", json!(original as u64));
    }
    if let Some(scaling) = scaling {
        put("rope_scaling", scaling);
    }
    Ok(Value::Object(out))
}

/// The number with the fewest digits that is this one in f32.
fn shortest(v: f32) -> anyhow::Result<f64> {
    format!("{v:e}").parse().with_context(|| format!("{v} is no number"))
}

/// What transformers is to load the weights that stay as they are in.
pub(super) fn torch_dtype(c: &Container) -> &'static str {
    let embedding = c.tensors.iter().find(|t| t.shape.len() == 2).map(|t| t.dtype);
    match embedding.and_then(Dtype::block) {
        Some(BlockType::F32) => "float32",
        Some(BlockType::BF16) => "bfloat16",
        _ => "float16",
    }
}

fn scaling(c: &Container, h: &Hyper) -> anyhow::Result<Option<Value>> {
    Ok(match &h.rope_scaling {
        RopeScaling::None if c.tensor(FREQUENCIES).is_some() => Some(llama3(c, h)?),
        RopeScaling::None => None,
        RopeScaling::Linear(factor) => Some(json!({"rope_type": "linear", "factor": factor})),
        &RopeScaling::Yarn { factor, original, beta_fast, beta_slow, ext, magnitude } => {
            ensure!(ext == 1.0, "yarn with an extrapolation factor of {ext:?} has no form in config.json");
            Some(json!({"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original as u64,
                "beta_fast": beta_fast, "beta_slow": beta_slow, "attention_factor": magnitude}))
        }
        RopeScaling::Proportional { .. } => bail!("a rotation of some pairs by themselves has no form here"),
        RopeScaling::LongRope { short, long, magnitude, .. } => Some(json!({"rope_type": "longrope",
            "short_factor": short, "long_factor": long, "attention_factor": magnitude})),
        RopeScaling::Llama3 { factor, low, high, original } => Some(llama3_json(*factor, *low, *high, *original)),
    })
}

fn llama3_json(factor: f64, low: f64, high: f64, original: f64) -> Value {
    json!({"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
        "original_max_position_embeddings": original as u64})
}

/// The scaling whose divisors the file has: those of Llama 3.1 and 3.2 are tried, since the numbers behind them are in no
/// GGUF file.
fn llama3(c: &Container, h: &Hyper) -> anyhow::Result<Value> {
    let t = c.tensor(FREQUENCIES).context("no divisors")?;
    ensure!(
        t.elems() == h.n_rot as u64 / 2,
        "tensor {FREQUENCIES} has {} elements, expected {}",
        t.elems(),
        h.n_rot / 2
    );
    let found = super::floats(c, t)?;
    for factor in [8.0, 32.0, 16.0, 4.0] {
        let rope_scaling = RopeScaling::Llama3 { factor, low: 1.0, high: 4.0, original: 8192.0 };
        let made = rope_divisors(&Hyper { rope_scaling, ..h.clone() }).context("no divisors")?;
        let alike = made.iter().zip(&found).all(|(a, b)| (a - b).abs() <= a.abs() * 1e-6);
        if alike {
            return Ok(llama3_json(factor, 1.0, 4.0, 8192.0));
        }
    }
    bail!("the divisors in {FREQUENCIES} are not those of Llama 3.1 or 3.2, and config.json has no place for others")
}
