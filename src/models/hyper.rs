//! Hyperparameters from GGUF metadata or config.json, with every range checked before anything is allocated.

use crate::formats::{Container, ContainerKind};
use anyhow::{Context, bail, ensure};

/// How positions are scaled before rotation.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// not at all
    None,
    /// every angle divided by the factor
    Linear(f64),
    /// Llama 3.1: low frequencies divided, high ones kept, a ramp between (config.json; GGUF files carry the divisors)
    Llama3 {
        /// divisor of low frequencies
        factor: f64,
        /// original / wavelength below this: divided
        low: f64,
        /// above this: kept
        high: f64,
        /// context the model was first trained with
        original: f64,
    },
    /// YaRN as ggml computes it
    Yarn {
        /// divisor of interpolated angles
        factor: f64,
        /// context the model was first trained with
        original: f64,
        /// ramp ends
        beta_fast: f64,
        /// ramp ends
        beta_slow: f64,
        /// share of extrapolation
        ext: f64,
        /// magnitude of cos and sin beside the usual 1 + 0.1 ln(factor)
        attn: f64,
    },
}

/// Shape of a llama-like decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Hyper {
    /// architecture name in the file
    pub arch: String,
    /// model name, for tables
    pub name: String,
    /// decoder layers
    pub layers: usize,
    /// width of the residual stream
    pub dim: usize,
    /// query heads
    pub heads: usize,
    /// key-value heads
    pub kv_heads: usize,
    /// elements in a head
    pub head_dim: usize,
    /// rotated elements in a head
    pub n_rot: usize,
    /// width of the feed-forward layer
    pub ffn: usize,
    /// logits
    pub vocab: usize,
    /// positions the model was trained for
    pub context: usize,
    /// attention reaches this far back, where the model limits it
    pub window: Option<usize>,
    /// RMS norm epsilon
    pub eps: f32,
    /// RoPE base
    pub rope_base: f64,
    /// RoPE scaling
    pub rope_scaling: RopeScaling,
    /// pairs (i, i + n_rot/2), as in Hugging Face files, rather than (2i, 2i+1)
    pub half_split: bool,
}

impl Hyper {
    /// Reads and checks the hyperparameters of a container.
    pub fn read(c: &Container) -> anyhow::Result<Hyper> {
        let h = match c.kind {
            ContainerKind::Gguf => from_gguf(c)?,
            ContainerKind::HuggingFace => from_config(c)?,
            ContainerKind::Safetensors => bail!(
                "{}: a lone safetensors file has no config; give the directory that holds config.json",
                c.files[0].display()
            ),
        };
        h.check().with_context(|| format!("{}: hyperparameters", c.files[0].display()))?;
        Ok(h)
    }

    fn check(&self) -> anyhow::Result<()> {
        let within = |what: &str, v: usize, max: usize| {
            ensure!(v >= 1 && v <= max, "{what} is {v}, expected 1..={max}");
            Ok(())
        };
        within("the number of layers", self.layers, 1024)?;
        within("the embedding length", self.dim, 1 << 20)?;
        within("the number of heads", self.heads, 4096)?;
        within("the number of key-value heads", self.kv_heads, self.heads)?;
        within("the head dimension", self.head_dim, 256)?;
        within("the feed-forward length", self.ffn, 1 << 22)?;
        within("the vocabulary", self.vocab, 1 << 24)?;
        within("the context length", self.context, 1 << 30)?;
        ensure!(
            self.heads.is_multiple_of(self.kv_heads),
            "{} heads cannot share {} key-value heads evenly",
            self.heads,
            self.kv_heads
        );
        ensure!(
            self.head_dim.is_multiple_of(2),
            "the head dimension is {}, expected an even number up to 256",
            self.head_dim
        );
        ensure!(
            self.n_rot.is_multiple_of(2) && self.n_rot >= 2 && self.n_rot <= self.head_dim,
            "{} rotated dimensions do not fit a head of {}",
            self.n_rot,
            self.head_dim
        );
        ensure!(
            self.eps.is_finite() && self.eps > 0.0 && self.eps < 1.0,
            "the RMS norm epsilon is {}, expected between 0 and 1",
            self.eps
        );
        ensure!(
            self.rope_base.is_finite() && self.rope_base > 1.0,
            "the RoPE base is {}, expected above 1",
            self.rope_base
        );
        let factor = match self.rope_scaling {
            RopeScaling::None => 1.0,
            RopeScaling::Linear(f) | RopeScaling::Llama3 { factor: f, .. } | RopeScaling::Yarn { factor: f, .. } => f,
        };
        ensure!(factor.is_finite() && factor > 0.0, "the RoPE scaling factor is {factor}, expected above 0");
        if let RopeScaling::Llama3 { low, high, original, .. } = self.rope_scaling {
            ensure!(
                low > 0.0 && high > low && original > 0.0,
                "llama3 RoPE scaling needs 0 < low_freq_factor < high_freq_factor, found {low} and {high}"
            );
        }
        Ok(())
    }

    /// Cached bytes of one position for the given words per head.
    pub fn cache_bytes(&self, k_words: usize, v_words: usize) -> usize {
        (k_words + v_words) * 4 * self.kv_heads * self.layers
    }
}

fn from_gguf(c: &Container) -> anyhow::Result<Hyper> {
    let m = &c.meta;
    let file = c.files[0].display();
    let arch =
        m.str("general.architecture").with_context(|| format!("{file}: no general.architecture: not a model file"))?;
    ensure!(arch == "llama", "{file}: architecture {arch} is not supported (supported: llama)");
    let need = |key: &str| -> anyhow::Result<usize> {
        let key = format!("{arch}.{key}");
        let v = m.uint(&key).with_context(|| match m.get(&key) {
            Some(_) => format!("{file}: {key} is not a whole number (per-layer arrays are not supported)"),
            None => format!("{file}: {key} is missing"),
        })?;
        usize::try_from(v).with_context(|| format!("{file}: {key} is {v}"))
    };
    let opt = |key: &str, default: usize| -> anyhow::Result<usize> {
        if m.get(&format!("{arch}.{key}")).is_some() { need(key) } else { Ok(default) }
    };
    let float = |key: &str| m.float(&format!("{arch}.{key}"));
    if opt("expert_count", 0)? > 0 {
        bail!("{file}: mixture-of-experts models are not supported");
    }
    let (dim, heads) = (need("embedding_length")?, need("attention.head_count")?);
    ensure!(heads > 0, "{file}: {arch}.attention.head_count is 0");
    let head_dim = opt("attention.key_length", dim / heads)?;
    let value_dim = opt("attention.value_length", head_dim)?;
    ensure!(head_dim == value_dim, "{file}: key heads of {head_dim} and value heads of {value_dim} are not supported");
    let context = need("context_length")?;
    let tokens = m.strings("tokenizer.ggml.tokens").map_or(0, <[String]>::len);
    let rows = c.tensor("token_embd.weight").and_then(|t| t.shape.get(1).copied()).unwrap_or(0) as usize;
    let vocab = opt("vocab_size", if tokens > 0 { tokens } else { rows })?;
    ensure!(rows == vocab || rows == 0, "{file}: token_embd.weight has {rows} rows for a vocabulary of {vocab}");
    let factor = float("rope.scaling.factor").or_else(|| float("rope.scale_linear")).unwrap_or(1.0);
    let original = opt("rope.scaling.original_context_length", context)? as f64;
    let rope_scaling = match m.str(&format!("{arch}.rope.scaling.type")).unwrap_or("linear") {
        "none" => RopeScaling::None,
        "linear" if factor == 1.0 => RopeScaling::None,
        "linear" => RopeScaling::Linear(factor),
        "yarn" => RopeScaling::Yarn {
            factor,
            original,
            beta_fast: float("rope.scaling.yarn_beta_fast").unwrap_or(32.0),
            beta_slow: float("rope.scaling.yarn_beta_slow").unwrap_or(1.0),
            ext: float("rope.scaling.yarn_ext_factor").unwrap_or(1.0),
            attn: float("rope.scaling.attn_factor").unwrap_or(1.0),
        },
        other => bail!("{file}: {arch}.rope.scaling.type is {other}, expected none, linear or yarn"),
    };
    Ok(Hyper {
        name: m.str("general.name").unwrap_or(arch).to_string(),
        layers: need("block_count")?,
        dim,
        heads,
        kv_heads: opt("attention.head_count_kv", heads)?,
        head_dim,
        n_rot: opt("rope.dimension_count", head_dim)?,
        ffn: need("feed_forward_length")?,
        vocab,
        context,
        window: None,
        eps: float("attention.layer_norm_rms_epsilon")
            .with_context(|| format!("{file}: {arch}.attention.layer_norm_rms_epsilon is missing"))?
            as f32,
        rope_base: float("rope.freq_base").unwrap_or(10000.0),
        rope_scaling,
        half_split: false,
        arch: arch.to_string(),
    })
}

fn from_config(c: &Container) -> anyhow::Result<Hyper> {
    let file = c.files[0].parent().map(|d| d.join("config.json")).unwrap_or_default();
    let file = file.display();
    let cfg = c.config.as_ref().with_context(|| format!("{file}: missing"))?;
    let model_type = cfg["model_type"].as_str().unwrap_or("");
    ensure!(
        ["llama", "mistral", "smollm"].contains(&model_type),
        "{file}: model_type {model_type:?} is not supported (supported: llama, mistral)"
    );
    let opt = |key: &str| -> anyhow::Result<Option<usize>> {
        match &cfg[key] {
            serde_json::Value::Null => Ok(None),
            v => v
                .as_u64()
                .and_then(|v| usize::try_from(v).ok())
                .map(Some)
                .with_context(|| format!("{file}: {key} is {v}, expected a whole number")),
        }
    };
    let need = |key: &str| opt(key)?.with_context(|| format!("{file}: {key} is missing"));
    let act = cfg["hidden_act"].as_str().unwrap_or("silu");
    ensure!(act == "silu", "{file}: hidden_act {act} is not supported (supported: silu)");
    let (dim, heads) = (need("hidden_size")?, need("num_attention_heads")?);
    ensure!(heads > 0, "{file}: num_attention_heads is 0");
    let head_dim = opt("head_dim")?.unwrap_or(dim / heads);
    let context = need("max_position_embeddings")?;
    // newer files keep everything about RoPE in rope_parameters
    let scaling = if cfg["rope_parameters"].is_object() { &cfg["rope_parameters"] } else { &cfg["rope_scaling"] };
    let number = |key: &str| {
        scaling[key].as_f64().with_context(|| format!("{file}: RoPE scaling: {key} is missing or not a number"))
    };
    let original = scaling["original_max_position_embeddings"].as_f64().unwrap_or(context as f64);
    let rope_scaling = match scaling["rope_type"].as_str().or(scaling["type"].as_str()).unwrap_or("default") {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear(number("factor")?),
        "llama3" => RopeScaling::Llama3 {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            original: number("original_max_position_embeddings")?,
        },
        "yarn" => RopeScaling::Yarn {
            factor: number("factor")?,
            original,
            beta_fast: scaling["beta_fast"].as_f64().unwrap_or(32.0),
            beta_slow: scaling["beta_slow"].as_f64().unwrap_or(1.0),
            ext: 1.0,
            attn: scaling["attention_factor"]
                .as_f64()
                .map_or(1.0, |f| f / (1.0 + 0.1 * libm::log(scaling["factor"].as_f64().unwrap_or(1.0)))),
        },
        other => {
            bail!("{file}: RoPE scaling of type {other} is not supported (supported: default, linear, llama3, yarn)")
        }
    };
    let rope_base = cfg["rope_theta"].as_f64().or(scaling["rope_theta"].as_f64()).unwrap_or(10000.0);
    Ok(Hyper {
        arch: model_type.to_string(),
        name: cfg["_name_or_path"].as_str().filter(|s| !s.is_empty()).unwrap_or(model_type).to_string(),
        layers: need("num_hidden_layers")?,
        dim,
        heads,
        kv_heads: opt("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        n_rot: head_dim,
        ffn: need("intermediate_size")?,
        vocab: need("vocab_size")?,
        context,
        window: if cfg["use_sliding_window"].as_bool() == Some(false) { None } else { opt("sliding_window")? },
        eps: cfg["rms_norm_eps"].as_f64().unwrap_or(1e-6) as f32,
        rope_base,
        rope_scaling,
        half_split: true,
    })
}
