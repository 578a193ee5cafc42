//! Hyperparameters from config.json, as transformers reads it.

use super::{
    Hyper, MAX_LAYERS, RopeScaling, Scales, caps, cut, from_states, inverse, local_rope, periodic, stretch,
    usual_embedding, usual_scale, yarn_magnitude,
};
use crate::formats::json::Fields;
use crate::models::family::{Family, Rotation};
use crate::models::uneven::{self, Uneven};
use crate::models::{delta, encoder_config, mixture, mla, short_conv, ssm};
use anyhow::{Context, bail, ensure};

/// Those of a directory, of whatever model.
pub(super) fn read(cfg: &Fields) -> anyhow::Result<Hyper> {
    match cfg.text("model_type")?.and_then(Family::of_config) {
        _ if cfg.text("model_type")? == Some("chatglm") => from_chatglm(cfg),
        Some(family) if family.is_bert() => from_encoder(cfg, family),
        Some(family) if family.is_state_space() => {
            config_flags(cfg, family)?;
            Ok(from_states(family, ssm::of_config(cfg, family)?))
        }
        _ => from_config(cfg),
    }
}

/// The norms' epsilon where config.json does not say.
fn usual_eps(family: Family, model_type: &str) -> f64 {
    match family {
        family if family.has_layer_norm() => 1e-5,
        Family::Phi3 | Family::Olmo2 | Family::Exaone4 | Family::Glm4Moe | Family::GptOss => 1e-5,
        Family::Llama if model_type == "mixtral" => 1e-5,
        Family::DeepSeek2 if model_type == "glm4_moe_lite" => 1e-5,
        family if family.is_lfm2() => 1e-5,
        Family::ChatGlm | Family::Glm4 => 1.5625e-7,
        _ => 1e-6,
    }
}

/// The scales of config.json.
fn config_scales(cfg: &Fields, family: Family, sizes: [usize; 4]) -> anyhow::Result<Scales> {
    let file = cfg.file();
    let of_granite = |key: &str| anyhow::Ok(cfg.number(key)?.unwrap_or(1.0) as f32);
    // null is none
    let [score_cap, logit_cap] =
        caps(file, family, |key| if cfg.is_null(key) { Ok(Some(0.0)) } else { Ok(cfg.number(key)?) })?;
    let mut scales = Scales {
        attention: usual_scale(family, sizes),
        embedding: usual_embedding(family, sizes[1]),
        residual: 1.0,
        logits: 1.0,
        score_cap,
        logit_cap,
    };
    if family.has_scales() {
        scales = Scales {
            attention: of_granite("attention_multiplier")?,
            embedding: of_granite("embedding_multiplier")?,
            residual: of_granite("residual_multiplier")?,
            logits: of_granite("logits_scaling")?,
            ..scales
        };
    }
    if family.is_cohere() {
        scales.logits = inverse(cfg.number("logit_scale")?.unwrap_or(0.0625) as f32);
    }
    if family == Family::Gemma4 {
        let both = cfg.get("use_bidirectional_attention").is_some_and(|v| v.as_str() != Some("vision"));
        ensure!(!both, "{file}: use_bidirectional_attention is not supported (supported: null, and vision, of images)");
    } else if family.is_gemma() && family != Family::Gemma3n {
        let both = cfg.flag("use_bidirectional_attention")?.unwrap_or(false);
        ensure!(
            !both || family == Family::GemmaEmbedding,
            "{file}: use_bidirectional_attention = true is not supported (supported: false)"
        );
        let scalar = cfg.number("query_pre_attn_scalar")?.unwrap_or(256.0);
        ensure!(scalar > 0.0, "{file}: query_pre_attn_scalar is {scalar:?}, expected above 0");
        scales.attention = (1.0 / libm::sqrt(scalar)) as f32;
    }
    Ok(scales)
}

/// `v` as GGUF keeps it.
fn single(v: f64) -> f64 {
    f64::from(v as f32)
}

/// Tokens of a Gemma whose config.json does not say: transformers' defaults.
fn usual_vocab(family: Family) -> usize {
    match family {
        family if family.is_gemma3() => 262_208,
        Family::Gemma3n => 262_400,
        Family::Gemma4 => 262_144,
        _ => 256_000,
    }
}

/// Key-value heads where config.json does not say: transformers' defaults.
fn usual_kv_heads(family: Family, heads: usize) -> usize {
    match family {
        Family::Gemma3n => 2,
        family if family.is_gemma() => 4,
        _ => heads,
    }
}

fn from_config(cfg: &Fields) -> anyhow::Result<Hyper> {
    let file = cfg.file();
    let model_type = cfg.text("model_type")?.unwrap_or("");
    let family = Family::of_config(model_type).with_context(|| {
        format!(
            "{file}: model_type {:?} is not supported (supported: {}, mistral, mixtral, glm, olmo3; also by \
             transformers' names of these)",
            cut(model_type),
            Family::known()
        )
    })?;
    // of which the type of the model says nothing
    let family = match family {
        Family::Gemma3 if cfg.flag("use_bidirectional_attention")? == Some(true) => Family::GemmaEmbedding,
        family => family,
    };
    let opt = |key: &str| cfg.size(family.config_key(key));
    let need = |key: &str| opt(key)?.with_context(|| format!("{file}: {} is missing", family.config_key(key)));
    ensure!(
        cfg.get("text_config").is_none(),
        "{file}: text_config: models of text and images are not supported; give the text model alone"
    );
    config_flags(cfg, family)?;
    // what transformers takes for a Gemma that does not say, as the text of a larger Gemma 3 does not
    let usual = |key: &str, of_gemma: usize| -> anyhow::Result<usize> {
        if family.is_gemma() { Ok(opt(key)?.unwrap_or(of_gemma)) } else { need(key) }
    };
    let (dim, heads) = (need("hidden_size")?, usual("num_attention_heads", 8)?);
    ensure!(heads > 0, "{file}: num_attention_heads is 0");
    let (scaling, local) = rope_fields(cfg)?;
    let mla = mla::of_config(cfg, &scaling, family)?;
    let head_dim = match mla.as_ref().map_or_else(|| opt("head_dim"), |m| Ok(Some(m.head_dim())))? {
        Some(n) => n,
        // transformers' default for these does not follow from the width
        None if [Family::Qwen3, Family::ChatGlm, Family::Glm4, Family::Glm4Moe].contains(&family) => 128,
        None if family.is_gemma() || family.is_hybrid() => 256,
        None if family == Family::GptOss => 64,
        None => dim / heads,
    };
    let newer = family.is_gemma3() || family == Family::Gemma4;
    let context = match opt("max_position_embeddings")? {
        // transformers' default
        None if family == Family::Falcon => 2048,
        None if family == Family::Gemma3n => 32_768,
        _ => usual("max_position_embeddings", if newer { 131_072 } else { 8192 })?,
    };
    let partial = config_partial(cfg, &scaling, family)?;
    let layers = need("num_hidden_layers")?;
    let ffn = config_ffn(cfg, family, dim)?;
    let rotated = config_rotated(cfg, family, layers.min(MAX_LAYERS))?;
    let (window, window_layers) = config_windows(cfg, family, layers.min(MAX_LAYERS))?;
    let kv_heads = if mla.is_some() { Some(1) } else { config_kv_heads(cfg, family)?.or(opt("num_key_value_heads")?) }
        .unwrap_or_else(|| usual_kv_heads(family, heads));
    let uneven = uneven::of_config(cfg, family, &window_layers, (kv_heads, head_dim), ffn)?;
    let (uneven, kv_heads, head_dim) = match uneven {
        Some((uneven, wide)) => (uneven, wide.kv_heads, wide.head_dim),
        None => (Uneven::default(), kv_heads, head_dim),
    };
    let ffn = uneven.ffns.iter().copied().max().unwrap_or(ffn);
    let rope_scaling = config_scaling(family, cfg, &scaling, (context, head_dim))?;
    let rotations = match rotated {
        Some(list) => list.into_iter().map(|r| if r { Rotation::Main } else { Rotation::None }).collect(),
        None => family.rotations(layers.min(MAX_LAYERS), if window.is_some() { &window_layers } else { &[] }),
    };
    // a window that no layer has; that there could be one says how layers are rotated all the same
    let window = window.filter(|_| window_layers.is_empty() || window_layers.contains(&true));
    let window = window.map(|w| family.window(w));
    let rope_base = config_base(cfg, &scaling, family, local.is_some())?;
    let own_base = match (&local, family) {
        (Some(local), _) => local.number("rope_theta")?.map(single),
        (None, family) if family.has_own_base() && family != Family::Gemma4 => {
            cfg.number(family.config_key("rope_local_base_freq"))?.map(single)
        }
        _ => None,
    };
    local.as_ref().map_or(Ok(()), |local| check_local(family, local, rope_base, own_base))?;
    // transformers then scales both rotations, a file has a key for one
    ensure!(
        family != Family::ModernBert || local.is_some() || rope_scaling == RopeScaling::None,
        "{file}: rope_scaling is not supported for {} (supported: of full_attention alone, in rope_parameters)",
        family.name()
    );
    let scales = config_scales(cfg, family, [layers, dim, heads, head_dim])?;
    let attention_scale = mla.as_ref().map_or(scales.attention, |m| m.scale(stretch(&rope_scaling)));
    let eps = cfg.number(family.config_key("rms_norm_eps"))?.unwrap_or(usual_eps(family, model_type));
    Ok(Hyper {
        family,
        arch: model_type.to_string(),
        name: cfg.text("_name_or_path")?.filter(|s| !s.is_empty()).unwrap_or(model_type).to_string(),
        layers,
        dim,
        heads,
        kv_heads,
        head_dim,
        n_rot: mla.as_ref().map_or((head_dim as f64 * partial) as usize, |m| m.rope),
        // config.json names none of their tensors: those that are there are passed over
        guessing: if mixture::may_guess(family) { MAX_LAYERS } else { 0 },
        ffn,
        experts: mixture::of_config(cfg, family, ffn)?,
        delta: delta::of_config(cfg, family, layers.min(MAX_LAYERS))?,
        mla,
        conv: short_conv::of_config(cfg, family, layers.min(MAX_LAYERS))?,
        ssm: None,
        uneven,
        vocab: usual("vocab_size", usual_vocab(family))?,
        context,
        window,
        window_layers,
        silu: family == Family::ModernBert && cfg.text(family.activation().0)? == Some("silu"),
        eps: eps as f32,
        attention_scale,
        embedding_scale: scales.embedding,
        residual_scale: scales.residual,
        logit_divisor: scales.logits,
        attention_softcap: scales.score_cap,
        logit_softcap: scales.logit_cap,
        rope_base,
        rope_scaling,
        local_rope: local_rope(family, window, rope_base, own_base),
        rotations,
        half_split: family.half_split(false),
        qkv_bias: config_bias(cfg, family)?,
        tied: match family {
            family if family.is_lfm2() => cfg.flag("tie_embedding")?.or(cfg.flag("tie_word_embeddings")?),
            _ => cfg.flag("tie_word_embeddings")?,
        },
    })
}

/// Refuses a rotation of layers with a window that a GGUF file has no keys for.
fn check_local(family: Family, local: &Fields, rope_base: f64, own_base: Option<f64>) -> anyhow::Result<()> {
    let file = local.file();
    // what a GGUF file has no keys for
    let kind = local.text("rope_type")?.unwrap_or("default");
    let free = family.has_own_base();
    let base = free || own_base.is_none_or(|base| base == rope_base);
    ensure!(
        base && kind == "default",
        "{file}: rope_parameters.sliding_attention is not supported (supported: {} unscaled)",
        if free { "any base," } else { "the base of full_attention," }
    );
    Ok(())
}

/// Width of the feed-forward of a model of width `dim`.
fn config_ffn(cfg: &Fields, family: Family, dim: usize) -> anyhow::Result<usize> {
    let file = cfg.file();
    let opt = |key: &str| cfg.size(family.config_key(key));
    // which goes before the other
    let older = if family == Family::Lfm2 { opt("block_ff_dim")? } else { None };
    // one for each layer, which `uneven` reads
    let listed = family == Family::Gemma3n && cfg.get("intermediate_size").is_some_and(serde_json::Value::is_array);
    let older = if listed { Some(1) } else { older };
    let ffn = match older.map_or_else(|| opt("intermediate_size"), |n| Ok(Some(n)))? {
        None if [Family::Gpt2, Family::Falcon].contains(&family) => dim.saturating_mul(4),
        None if family == Family::Gemma3n => 16_384,
        // whose layers all have experts
        None if [Family::Qwen35Moe, Family::Qwen3Next].contains(&family) => 1,
        Some(n) => n,
        None => bail!("{file}: {} is missing", family.config_key("intermediate_size")),
    };
    short_conv::feed_forward(cfg, family, ffn)
}

/// Key-value heads where a Falcon's config says so otherwise than by their number.
fn config_kv_heads(cfg: &Fields, family: Family) -> anyhow::Result<Option<usize>> {
    let flag = |key: &str, default| anyhow::Ok(cfg.flag(key)?.unwrap_or(default));
    if family != Family::Falcon || flag("new_decoder_architecture", false)? {
        return Ok(None);
    }
    let file = cfg.file();
    let parallel = flag("parallel_attn", true)?;
    ensure!(parallel, "{file}: parallel_attn = false is not supported (supported: true)");
    let one = flag("multi_query", true)?;
    let heads = cfg.whole("num_attention_heads")?.and_then(|n| usize::try_from(n).ok());
    Ok(if one { Some(1) } else { heads })
}

/// Refuses what a config turns on that no released model of the family has, and another function of the feed-forward.
fn config_flags(cfg: &Fields, family: Family) -> anyhow::Result<()> {
    let file = cfg.file();
    let (key, known) = family.activation();
    let act = cfg.text(key)?.unwrap_or(known[0]);
    ensure!(known.contains(&act), "{file}: {key} {} is not supported (supported: {})", cut(act), known.join(", "));
    for (key, wanted, default) in family.flags() {
        let found = cfg.flag(key)?.unwrap_or(*default);
        ensure!(found == *wanted, "{file}: {key} = {found} is not supported (supported: {wanted})");
    }
    Ok(())
}

/// The share of a head that is rotated.
fn config_partial(cfg: &Fields, scaling: &Fields, family: Family) -> anyhow::Result<f64> {
    if family == Family::Gemma4 {
        // of which the scaling speaks
        return Ok(1.0);
    }
    let file = cfg.file();
    let (inner, outer) = (scaling.number("partial_rotary_factor")?, cfg.number("partial_rotary_factor")?);
    let partial = inner.or(outer).unwrap_or(match family {
        Family::StableLm => 0.25,
        family if family.is_hybrid() => 0.25,
        family if family.turns_part() => 0.5,
        _ => 1.0,
    });
    let may_be_partial = family.is_hybrid()
        || [Family::Phi3, Family::ChatGlm, Family::StableLm, Family::Phi2, Family::Glm4Moe].contains(&family);
    let expected = match family {
        Family::Glm4 => "0.5",
        _ if may_be_partial => "above 0 and at most 1",
        _ => "1",
    };
    let fits = if family == Family::Glm4 { partial == 0.5 } else { partial == 1.0 };
    ensure!(
        fits || (may_be_partial && partial > 0.0 && partial < 1.0),
        "{file}: partial_rotary_factor is {partial:?}, expected {expected}"
    );
    Ok(partial)
}

/// The base of the rotation; `apart`: layers with a window have fields of their own.
fn config_base(cfg: &Fields, scaling: &Fields, family: Family, apart: bool) -> anyhow::Result<f64> {
    let (outer, inner) = (cfg.number(family.config_key("rope_theta"))?, scaling.number("rope_theta")?);
    let told = if apart { inner.or(outer) } else { outer.or(inner) };
    Ok(single(told.unwrap_or(match family {
        Family::SmolLm3 => 2e6,
        Family::Gemma3 | Family::GemmaEmbedding | Family::Gemma3n | Family::Gemma4 => 1e6,
        Family::Olmo2 if cfg.text("model_type")? == Some("olmo3") => 5e5,
        Family::Llama if cfg.text("model_type")? == Some("mixtral") => 1e6,
        Family::CommandR => 5e5,
        Family::ModernBert => 1.6e5,
        family if family.is_lfm2() => 1e6,
        _ => 10000.0,
    })))
}

/// Whether queries, keys and values have biases, of a family whose config says so.
fn config_bias(cfg: &Fields, family: Family) -> anyhow::Result<Option<bool>> {
    Ok(match family {
        Family::ChatGlm | Family::Glm4 => Some(cfg.flag("attention_bias")?.unwrap_or(true)),
        Family::Phi2 | Family::Gpt2 => Some(true),
        _ => match family.bias_flag() {
            Some((key, usual)) => Some(cfg.flag(key)?.unwrap_or(usual)),
            None => None,
        },
    })
}

/// What config.json says of rotation: newer files keep everything about it in `rope_parameters`, and some of these apart
/// for layers that see everything and for those with a window.
fn rope_fields<'a>(cfg: &Fields<'a>) -> anyhow::Result<(Fields<'a>, Option<Fields<'a>>)> {
    let Some(all) = cfg.object("rope_parameters")? else {
        return Ok((cfg.object("rope_scaling")?.unwrap_or(Fields::none(cfg.file())), None));
    };
    Ok(match all.object("full_attention")? {
        Some(full) => (full, all.object("sliding_attention")?),
        None => (all, None),
    })
}

/// For each layer whether it is rotated at all, of a family where the config says so.
fn config_rotated(cfg: &Fields, family: Family, layers: usize) -> anyhow::Result<Option<Vec<bool>>> {
    if family != Family::SmolLm3 {
        return Ok(None);
    }
    if let Some(list) = cfg.numbers("no_rope_layers")? {
        // 1: it is, whatever the field's name says
        return Ok(Some(list.into_iter().map(|v| v != 0.0).collect()));
    }
    let interval = cfg.whole("no_rope_layer_interval")?;
    ensure!(interval != Some(0), "{}: no_rope_layer_interval is 0, expected at least 1", cfg.file());
    Ok(interval.map(|n| (1..=layers as u64).map(|l| l % n != 0).collect()))
}

/// The window, and for each layer whether it has it: empty where all have it.
fn config_windows(cfg: &Fields, family: Family, layers: usize) -> anyhow::Result<(Option<usize>, Vec<bool>)> {
    let file = cfg.file();
    let size = |key: &str| cfg.size(family.config_key(key));
    let called = family.config_key("sliding_window");
    // of OLMo 2 and 3 the second alone has windows
    let may_have = match family {
        Family::ChatGlm | Family::Glm4 | Family::Glm4Moe => false,
        // whose `layer_types` say something else
        family if family.is_hybrid() || family.is_lfm2() => return Ok((None, vec![])),
        family if family.has_layer_norm() => {
            matches!(family, Family::StarCoder2 | Family::Cohere2 | Family::ModernBert)
        }
        _ if family.has_scales() => false,
        Family::Olmo2 => cfg.text("model_type")? == Some("olmo3"),
        _ => true,
    };
    let always = family.window_period().is_some();
    let sliding = match (family, cfg.flag("use_sliding_window")?) {
        _ if !may_have => None,
        (_, Some(false))
        | (Family::Qwen2 | Family::Qwen3 | Family::Qwen2Moe | Family::Qwen3Moe | Family::SmolLm3, None) => None,
        // transformers' default
        _ if always && cfg.get(called).is_none() && !cfg.is_null(called) => Some(match family {
            Family::Gemma3n | Family::Gemma4 => 512,
            Family::ModernBert => 128,
            _ => 4096,
        }),
        _ => size("sliding_window")?.filter(|w| *w > 0),
    };
    let one = |kind: &serde_json::Value| match kind.as_str() {
        Some("sliding_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => bail!("{file}: layer_types has {}, expected sliding_attention or full_attention", cut(&kind.to_string())),
    };
    let said =
        cfg.list("layer_types")?.map(|list| list.iter().map(one).collect::<anyhow::Result<Vec<bool>>>()).transpose()?;
    if sliding.is_none() {
        // the layers without one are not rotated
        ensure!(
            ![Family::Cohere2, Family::Gemma3n, Family::Gemma4, Family::ModernBert].contains(&family),
            "{file}: {called} {}, which is not supported for {}",
            if cfg.is_null(called) { "is null" } else { "gives no window" },
            family.name()
        );
        return Ok((None, vec![]));
    }
    let mut list = match (said, family) {
        (Some(list), _) => list,
        // a Qwen's layers from max_window_layers on
        (None, Family::Qwen2 | Family::Qwen3 | Family::Qwen2Moe | Family::Qwen3Moe) => {
            let from = size("max_window_layers")?.unwrap_or(28);
            (0..layers).map(|l| l >= from).collect()
        }
        (None, Family::SmolLm3) => bail!("{file}: use_sliding_window needs layer_types"),
        (None, Family::Exaone4) if cfg.get("sliding_window_pattern").is_some_and(serde_json::Value::is_string) => {
            let pattern = cfg.text("sliding_window_pattern")?.unwrap_or_default().as_bytes();
            ensure!(
                !pattern.is_empty() && pattern.iter().all(|c| b"LG".contains(c)),
                "{file}: sliding_window_pattern: expected letters L and G"
            );
            (0..layers).map(|l| pattern[l % pattern.len()] == b'L').collect()
        }
        (None, _) => match family.window_period() {
            Some(usual) => periodic(family, size("sliding_window_pattern")?.unwrap_or(usual), layers),
            // all of a Phi-3 or Mistral
            None => vec![],
        },
    };
    if let (Family::Gemma4, Some(last)) = (family, list.last_mut()) {
        // whatever the list says
        *last = false;
    }
    Ok((sliding, list))
}

/// The config.json of ChatGLM's own code: ChatGLM2, ChatGLM3 and GLM-4 as they were published first. What its fields may
/// turn on and no released model has is refused by name.
fn from_chatglm(cfg: &Fields) -> anyhow::Result<Hyper> {
    let file = cfg.file();
    let opt = |key: &str| cfg.size(key);
    let need = |key: &str| opt(key)?.with_context(|| format!("{file}: {key} is missing"));
    ensure!(
        cfg.flag("position_encoding_2d")? != Some(true) && cfg.get("inner_hidden_size").is_none(),
        "{file}: the first ChatGLM-6B is not supported (supported: ChatGLM2, ChatGLM3, GLM-4)"
    );
    // (field, what it must be, what stands where it is missing)
    for (key, wanted, default) in [
        ("original_rope", true, true),
        ("rmsnorm", true, true),
        ("post_layer_norm", true, true),
        ("multi_query_attention", true, false),
        ("add_bias_linear", false, false),
        ("apply_residual_connection_post_layernorm", false, false),
    ] {
        let found = cfg.flag(key)?.unwrap_or(default);
        ensure!(found == wanted, "{file}: {key} = {found} is not supported (supported: {wanted})");
    }
    // of four bits `formats` has made Q4_0 already
    for (key, known) in [("quantization_bit", &[0, 4][..]), ("pre_seq_len", &[0])] {
        let found = opt(key)?.unwrap_or(0);
        ensure!(known.contains(&found), "{file}: {key} = {found} is not supported (supported: {known:?})");
    }
    let (dim, heads) = (need("hidden_size")?, need("num_attention_heads")?);
    ensure!(heads > 0, "{file}: num_attention_heads is 0");
    let head_dim = opt("kv_channels")?.unwrap_or(dim / heads);
    let name = cfg.text("_name_or_path")?.filter(|s| !s.is_empty()).unwrap_or("chatglm").to_string();
    let ratio = cfg.number("rope_ratio")?.unwrap_or(1.0);
    // from the third on it multiplies the base; before it, the positions are divided by it
    ensure!(
        ratio == 1.0 || !name.to_lowercase().contains("chatglm2"),
        "{file}: rope_ratio = {ratio:?} of a ChatGLM2 is not supported (supported: 1)"
    );
    Ok(Hyper {
        family: Family::ChatGlm,
        arch: "chatglm".into(),
        name,
        layers: need("num_layers")?,
        dim,
        heads,
        kv_heads: need("multi_query_group_num")?,
        head_dim,
        n_rot: head_dim / 2,
        guessing: 0,
        ffn: need("ffn_hidden_size")?,
        experts: None,
        delta: None,
        mla: None,
        conv: None,
        ssm: None,
        uneven: Uneven::default(),
        vocab: match opt("padded_vocab_size")? {
            Some(n) => n,
            None => need("vocab_size")?,
        },
        context: need("seq_length")?,
        window: None,
        window_layers: vec![],
        silu: false,
        eps: cfg.number("layernorm_epsilon")?.unwrap_or(1e-5) as f32,
        attention_scale: usual_scale(Family::ChatGlm, [0, dim, heads, head_dim]),
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_divisor: 1.0,
        attention_softcap: 0.0,
        logit_softcap: 0.0,
        rope_base: single(10000.0 * ratio),
        rope_scaling: RopeScaling::None,
        local_rope: None,
        rotations: vec![],
        half_split: false,
        qkv_bias: Some(cfg.flag("add_qkv_bias")?.unwrap_or(false)),
        tied: Some(cfg.flag("tie_word_embeddings")?.unwrap_or(false)),
    })
}

/// The config.json of an encoder.
fn from_encoder(cfg: &Fields, family: Family) -> anyhow::Result<Hyper> {
    let s = encoder_config::of_config(cfg, family)?;
    let h = Hyper {
        family,
        arch: cfg.text("model_type")?.unwrap_or(family.name()).to_string(),
        name: s.name,
        layers: s.layers,
        dim: s.dim,
        heads: s.heads,
        kv_heads: s.heads,
        head_dim: s.head_dim,
        n_rot: s.head_dim,
        guessing: 0,
        ffn: s.ffn,
        experts: None,
        delta: None,
        mla: None,
        conv: None,
        ssm: None,
        uneven: Uneven::default(),
        vocab: s.vocab,
        context: s.context,
        window: None,
        window_layers: vec![],
        silu: false,
        eps: s.eps as f32,
        attention_scale: usual_scale(family, [s.layers, s.dim, s.heads, s.head_dim]),
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_divisor: 1.0,
        attention_softcap: 0.0,
        logit_softcap: 0.0,
        rope_base: single(s.rope_base.unwrap_or(10000.0)),
        rope_scaling: RopeScaling::None,
        local_rope: None,
        rotations: vec![],
        half_split: true,
        qkv_bias: None,
        tied: None,
    };
    Ok(Hyper { rotations: h.usual_rotations(), ..h })
}

/// RoPE scaling of config.json as transformers reads it; `scaling` is its `rope_parameters` or `rope_scaling`.
fn config_scaling(
    family: Family,
    cfg: &Fields,
    scaling: &Fields,
    (context, head_dim): (usize, usize),
) -> anyhow::Result<RopeScaling> {
    let file = cfg.file();
    let number = |key: &str| scaling.number(key)?.with_context(|| format!("{file}: RoPE scaling: {key} is missing"));
    let original = scaling.number("original_max_position_embeddings")?;
    let (new, old) = (scaling.text("rope_type")?, scaling.text("type")?);
    // without its type a factor would be left out in silence
    let typeless = ["factor", "short_factor", "low_freq_factor"].into_iter().find(|key| scaling.get(key).is_some());
    let mut kind = match (new.or(old), typeless) {
        (Some(kind), _) => kind,
        // transformers then takes what the released ones have
        (None, None) if family == Family::GptOss => bail!("{file}: rope_scaling is missing"),
        (None, None) if family == Family::Gemma4 => "proportional",
        (None, None) => "default",
        (None, Some(key)) => bail!("{file}: RoPE scaling: {key} without a rope_type"),
    };
    // what the first Phi-3 files called it
    if family == Family::Phi3 && ["su", "yarn"].contains(&kind) {
        kind = "longrope";
    }
    let factor_of = |original: f64| match scaling.number("factor")? {
        Some(factor) => Ok(factor),
        None => anyhow::Ok(context as f64 / original),
    };
    let attention_factor = scaling.number("attention_factor")?;
    Ok(match kind {
        "proportional" if family == Family::Gemma4 => {
            let (partial, factor) = (scaling.number("partial_rotary_factor")?, scaling.number("factor")?);
            let (partial, factor) = (partial.unwrap_or(0.25), factor.unwrap_or(1.0));
            ensure!(factor == 1.0, "{file}: RoPE scaling: factor is {factor:?}, expected 1");
            let within = partial > 0.0 && partial <= 1.0;
            ensure!(within, "{file}: partial_rotary_factor is {partial:?}, expected above 0 and at most 1");
            RopeScaling::Proportional { pairs: (partial * head_dim as f64 / 2.0) as usize }
        }
        _ if family == Family::Gemma4 => {
            bail!("{file}: RoPE scaling of type {} is not supported (supported: proportional)", cut(kind))
        }
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear(single(number("factor")?)),
        "llama3" => RopeScaling::Llama3 {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            original: number("original_max_position_embeddings")?,
        },
        "yarn" => {
            let original = original.unwrap_or(context as f64);
            let factor = single(factor_of(original)?);
            let usual = yarn_magnitude(factor, 1.0);
            let of = |key: &str| anyhow::Ok(scaling.number(key)?.filter(|v| *v != 0.0));
            let truncate = scaling.flag("truncate")?.unwrap_or(true);
            let rounds = family.rounds_ramp();
            ensure!(
                truncate == rounds,
                "{file}: RoPE scaling: yarn with truncate = {truncate} is not supported (supported: {rounds})"
            );
            RopeScaling::Yarn {
                factor,
                original,
                beta_fast: single(of("beta_fast")?.unwrap_or(32.0)),
                beta_slow: single(of("beta_slow")?.unwrap_or(1.0)),
                ext: 1.0,
                // GGUF keeps how many times the usual factor it is
                magnitude: match (attention_factor, of("mscale")?, of("mscale_all_dim")?) {
                    _ if family == Family::DeepSeek2 => 1.0,
                    (Some(f), ..) => single(f / usual) * usual,
                    (None, Some(m), Some(all)) => {
                        single(yarn_magnitude(factor, m) / yarn_magnitude(factor, all) / usual) * usual
                    }
                    _ => usual,
                },
            }
        }
        "longrope" if family == Family::Phi3 => {
            let original = original
                .or(cfg.number("original_max_position_embeddings")?)
                .with_context(|| format!("{file}: RoPE scaling: longrope needs original_max_position_embeddings"))?;
            let factor = factor_of(original)?;
            let list = |key: &str| -> anyhow::Result<Vec<f64>> {
                let list = scaling.numbers(key)?.with_context(|| format!("{file}: RoPE scaling: {key} is missing"))?;
                Ok(list.into_iter().map(single).collect())
            };
            // transformers and GGUF keep all of them as f32
            RopeScaling::LongRope {
                short: list("short_factor")?,
                long: list("long_factor")?,
                original,
                magnitude: single(match attention_factor {
                    Some(f) => f,
                    None if factor <= 1.0 => 1.0,
                    None => libm::sqrt(1.0 + libm::log(factor) / libm::log(original)),
                }),
            }
        }
        other => bail!(
            "{file}: RoPE scaling of type {} is not supported (supported: default, linear, llama3, yarn{})",
            cut(other),
            if family == Family::Phi3 { ", longrope" } else { "" }
        ),
    })
}
