//! Hyperparameters from the metadata of a GGUF file.

use super::{
    Hyper, LONG_FACTORS, MAX_LAYERS, RopeScaling, SHORT_FACTORS, Scales, UNTURNED, caps, cut, from_states, inverse,
    local_rope, periodic, stretch, usual_embedding, usual_scale, yarn_magnitude,
};
use crate::formats::Container;
use crate::formats::meta::Value;
use crate::models::family::{Family, Rotation};
use crate::models::vector::vector;
use crate::models::{delta, encoder_config, mixture, mla, short_conv, ssm, uneven};
use crate::ops::attention::HEAD_MAX;
use anyhow::{Context, bail, ensure};

pub(super) fn read(c: &Container) -> anyhow::Result<Hyper> {
    let m = &c.meta;
    let file = c.described_by().display();
    let text = |key: &str| m.typed::<&str>(key).with_context(|| file.to_string());
    let arch =
        text("general.architecture")?.with_context(|| format!("{file}: no general.architecture: not a model file"))?;
    let family = Family::of_gguf(arch).with_context(|| {
        format!("{file}: architecture {} is not supported (supported: {})", cut(arch), Family::known())
    })?;
    if family.is_state_space() {
        let eps = f64_of(c, &format!("{arch}.{}", family.epsilon_key()))?;
        return Ok(from_states(family, ssm::of_gguf(c, family, gguf_vocab(c, arch)?, eps)?));
    }
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
    let float = |key: &str| f64_of(c, &format!("{arch}.{key}"));
    let (dim, heads) = (need("embedding_length")?, need("attention.head_count")?);
    ensure!(heads > 0, "{file}: {arch}.attention.head_count is 0");
    let head_dim = opt("attention.key_length", dim / heads)?;
    let mla = mla::of_gguf(c, family, opt("rope.dimension_count", head_dim)?)?;
    let value_dim = if mla.is_some() { head_dim } else { opt("attention.value_length", head_dim)? };
    ensure!(head_dim == value_dim, "{file}: key heads of {head_dim} and value heads of {value_dim} are not supported");
    let context = need("context_length")?;
    let vocab = gguf_vocab(c, arch)?;
    let original = opt("rope.scaling.original_context_length", context)? as f64;
    // half a head in every released model: a file that does not say so would be rotated wrongly
    let n_rot =
        if family.turns_part() { need("rope.dimension_count")? } else { opt("rope.dimension_count", head_dim)? };
    ensure!(
        family != Family::Glm4 || n_rot * 2 == head_dim,
        "{file}: {arch}.rope.dimension_count is {n_rot}, expected half of a head of {head_dim}: convert the model again"
    );
    encoder_config::check_keys(c, family)?;
    let (blocks, guessing) = (need("block_count")?, opt("nextn_predict_layers", 0)?);
    let layers = blocks.checked_sub(guessing).filter(|_| guessing == 0 || mixture::may_guess(family));
    let layers = layers.with_context(|| format!("{file}: {arch}.nextn_predict_layers is {guessing}, expected 0"))?;
    // the first files of a Gemma 2 do not say
    let usual = if family == Family::Gemma2 { 4096 } else { 0 };
    let window = Some(opt("attention.sliding_window", usual)?).filter(|w| *w > 0).map(|w| family.window(w));
    ensure!(
        ![Family::Cohere2, Family::Gemma3n, Family::Gemma4].contains(&family) || window.is_some(),
        "{file}: {arch}.attention.sliding_window is missing, which says where layers are rotated"
    );
    let window_layers = gguf_window_layers(c, family, layers.min(MAX_LAYERS), window.is_some())?;
    let uneven = uneven::of_gguf(c, family, &window_layers)?;
    let ffn = match (&uneven, family) {
        (Some((u, _)), _) => u.ffns.iter().copied().max().unwrap_or(0),
        // whose layers all have experts
        (_, Family::Qwen35Moe | Family::Qwen3Next) => opt("feed_forward_length", 1)?,
        _ => need("feed_forward_length")?,
    };
    let rope_base = float("rope.freq_base")?.unwrap_or(10000.0);
    let scales = gguf_scales(c, family, [layers, dim, heads, head_dim])?;
    let (conv, kv_heads) = match short_conv::of_gguf(c, family, layers.min(MAX_LAYERS))? {
        Some((conv, heads)) => (Some(conv), heads),
        None if mla.is_some() => (None, 1),
        None => match &uneven {
            Some((_, kv_heads)) => (None, *kv_heads),
            None => (None, opt("attention.head_count_kv", heads)?),
        },
    };
    let rope_scaling = gguf_scaling(c, family, arch, original)?;
    let attention_scale = mla.as_ref().map_or(scales.attention, |m| m.scale(stretch(&rope_scaling)));
    let h = Hyper {
        family,
        name: text("general.name")?.unwrap_or(arch).to_string(),
        layers,
        dim,
        heads,
        kv_heads,
        head_dim,
        n_rot,
        guessing,
        ffn,
        experts: mixture::of_gguf(c, family, ffn)?,
        delta: delta::of_gguf(c, family, [layers, guessing].map(|n| n.min(MAX_LAYERS)), n_rot)?,
        mla,
        conv,
        ssm: None,
        uneven: uneven.map(|(u, _)| u).unwrap_or_default(),
        vocab,
        context,
        window,
        window_layers,
        silu: gguf_silu(c, family)?,
        eps: float(family.epsilon_key())?
            .with_context(|| format!("{file}: {arch}.{} is missing", family.epsilon_key()))? as f32,
        attention_scale,
        embedding_scale: scales.embedding,
        residual_scale: scales.residual,
        logit_divisor: scales.logits,
        attention_softcap: scales.score_cap,
        logit_softcap: scales.logit_cap,
        rope_base,
        rope_scaling,
        local_rope: local_rope(family, window, rope_base, float("rope.freq_base_swa")?),
        rotations: vec![],
        half_split: family.half_split(true),
        qkv_bias: None,
        tied: None,
        arch: arch.to_string(),
    };
    if family.has_scales() && gguf_flag(c, &format!("{arch}.rope.scaling.finetuned"))? == Some(false) {
        return Ok(Hyper { rotations: vec![Rotation::None; layers.min(MAX_LAYERS)], ..h });
    }
    Ok(Hyper { rotations: h.usual_rotations(), ..h })
}

/// Tokens of a GGUF file.
fn gguf_vocab(c: &Container, arch: &str) -> anyhow::Result<usize> {
    let (m, file, key) = (&c.meta, c.described_by().display(), format!("{arch}.vocab_size"));
    let tokens: Option<&[String]> = m.typed("tokenizer.ggml.tokens").with_context(|| file.to_string())?;
    let tokens = tokens.map_or(0, <[String]>::len);
    let rows = c.tensor("token_embd.weight").and_then(|t| t.shape.get(1).copied()).unwrap_or(0) as usize;
    let vocab = match m.get(&key) {
        Some(_) => {
            let v = m.uint(&key).with_context(|| format!("{file}: {key} is not a whole number"))?;
            usize::try_from(v).with_context(|| format!("{file}: {key} is {v}"))?
        }
        None if tokens > 0 => tokens,
        None => rows,
    };
    ensure!(rows == vocab || rows == 0, "{file}: token_embd.weight has {rows} rows for a vocabulary of {vocab}");
    Ok(vocab)
}

/// The scales of a GGUF file, in which 0 stands for none; `sizes`: layers, width, heads, elements of a head.
fn gguf_scales(c: &Container, family: Family, sizes: [usize; 4]) -> anyhow::Result<Scales> {
    let file = c.described_by().display();
    let key = |what: &str| f64_of(c, &format!("{}.{what}", family.name()));
    let number = |what: &str, has: bool| anyhow::Ok(key(what)?.filter(|v| has && *v != 0.0).map(|v| v as f32));
    let granite = family.has_scales();
    let [score_cap, logit_cap] = caps(&file, family, key)?;
    let attention = number("attention.scale", granite || family == Family::SmolLm3)?;
    Ok(Scales {
        attention: attention.unwrap_or(usual_scale(family, sizes)),
        embedding: number("embedding_scale", granite)?.unwrap_or(usual_embedding(family, sizes[1])),
        residual: number("residual_scale", granite)?.unwrap_or(1.0),
        logits: match number("logit_scale", granite || family.is_cohere())? {
            // Cohere's is a factor
            Some(scale) if !granite => inverse(scale),
            scale => scale.unwrap_or(1.0),
        },
        score_cap,
        logit_cap,
    })
}

/// Whether the gate of a ModernBERT goes through silu, as files of some say.
fn gguf_silu(c: &Container, family: Family) -> anyhow::Result<bool> {
    if family != Family::ModernBert {
        return Ok(false);
    }
    let (file, key) = (c.described_by().display(), format!("{}.hidden_activation", family.name()));
    let (said, known) = (c.meta.typed::<&str>(&key).with_context(|| file.to_string())?, family.activation().1);
    let said = said.unwrap_or(known[0]);
    ensure!(known.contains(&said), "{file}: {key} {} is not supported (supported: {})", cut(said), known.join(", "));
    Ok(said == "silu")
}

/// True or false of a GGUF file's metadata.
fn gguf_flag(c: &Container, key: &str) -> anyhow::Result<Option<bool>> {
    c.meta.typed(key).with_context(|| c.described_by().display().to_string())
}

/// RoPE scaling of a GGUF file trained for `original` positions before it was stretched.
fn gguf_scaling(c: &Container, family: Family, arch: &str, original: f64) -> anyhow::Result<RopeScaling> {
    let file = c.described_by().display();
    let float = |key: &str| f64_of(c, &format!("{arch}.{key}"));
    let kind: Option<&str> = c.meta.typed(&format!("{arch}.rope.scaling.type")).with_context(|| file.to_string())?;
    let factor = match float("rope.scaling.factor")? {
        Some(factor) => factor,
        None => float("rope.scale_linear")?.unwrap_or(1.0),
    };
    let attn_factor = float("rope.scaling.attn_factor")?.unwrap_or(1.0);
    let mut rope_scaling = match kind.unwrap_or("linear") {
        "none" => RopeScaling::None,
        "linear" if factor == 1.0 => RopeScaling::None,
        "linear" => RopeScaling::Linear(factor),
        "yarn" => {
            // a negative one stands for the default
            let ext = float("rope.scaling.yarn_ext_factor")?.filter(|e| *e >= 0.0).unwrap_or(1.0);
            RopeScaling::Yarn {
                factor,
                original,
                beta_fast: float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                ext,
                magnitude: match family {
                    // whose factor is one on scores alone
                    Family::DeepSeek2 => 1.0,
                    _ => attn_factor * if ext != 0.0 { yarn_magnitude(factor, 1.0) } else { 1.0 },
                },
            }
        }
        // a phi3 file need not say so: its factor tensors do
        "longrope" if family == Family::Phi3 && c.tensor(LONG_FACTORS).is_none() => {
            bail!("{file}: {arch}.rope.scaling.type is longrope, but tensor {LONG_FACTORS} is missing")
        }
        "longrope" if family == Family::Phi3 => RopeScaling::None,
        other => {
            let longrope = if family == Family::Phi3 { ", longrope" } else { "" };
            bail!("{file}: {arch}.rope.scaling.type is {}, expected none, linear, yarn{longrope}", cut(other))
        }
    };
    if family == Family::Gemma4 {
        ensure!(
            rope_scaling == RopeScaling::None,
            "{file}: {arch}.rope.scaling.type is not supported (supported: none)"
        );
        rope_scaling = proportional(c)?;
    }
    if family == Family::Phi3 && (c.tensor(LONG_FACTORS).is_some() || c.tensor(SHORT_FACTORS).is_some()) {
        let read = |name: &str| -> anyhow::Result<Vec<f64>> {
            let t = c.tensor(name).with_context(|| format!("{file}: tensor {name} is missing"))?;
            ensure!(t.shape.len() == 1, "{file}: tensor {name} has {} dimensions, expected 1", t.shape.len());
            Ok(vector(c, t)?.into_iter().map(f64::from).collect())
        };
        rope_scaling = RopeScaling::LongRope {
            short: read(SHORT_FACTORS)?,
            long: read(LONG_FACTORS)?,
            original,
            magnitude: attn_factor,
        };
    }
    Ok(rope_scaling)
}

/// What a GGUF file's divisors say: of pairs that are not rotated they are huge.
///
/// Errors: there are none; they are neither 1 and then huge.
fn proportional(c: &Container) -> anyhow::Result<RopeScaling> {
    let file = c.files[0].display();
    let name = "rope_freqs.weight";
    let t = c.tensor(name).with_context(|| format!("{file}: tensor {name} is missing, which says what is rotated"))?;
    ensure!(
        t.elems() <= HEAD_MAX as u64,
        "{file}: tensor {name} has {} elements, expected at most {HEAD_MAX}",
        t.elems()
    );
    let divisors = vector(c, t)?;
    let pairs = divisors.iter().take_while(|d| **d == 1.0).count();
    ensure!(
        divisors[pairs..].iter().all(|d| *d >= UNTURNED),
        "{file}: tensor {name} is not supported (supported: 1 for pairs that are rotated, then {UNTURNED:e} or more)"
    );
    Ok(RopeScaling::Proportional { pairs })
}

/// Which layers of a GGUF file have the sliding window; empty where all have it, or there is none.
fn gguf_window_layers(c: &Container, family: Family, layers: usize, window: bool) -> anyhow::Result<Vec<bool>> {
    let file = c.described_by().display();
    let pattern = format!("{}.attention.sliding_window_pattern", family.name());
    Ok(match (c.meta.get(&pattern), family.window_period()) {
        (None, None) => vec![],
        (_, Some(_)) if !window => vec![],
        (None, Some(period)) => periodic(family, period, layers),
        (Some(Value::Array(list)), _) => list
            .iter()
            .map(|v| if let Value::Bool(b) = v { Some(*b) } else { None })
            .collect::<Option<Vec<bool>>>()
            .with_context(|| format!("{file}: {pattern} is no list of true and false"))?,
        (Some(v), Some(_)) => {
            let period = c.meta.uint(&pattern).and_then(|n| usize::try_from(n).ok());
            let expected =
                || format!("{file}: {pattern} is of type {}, expected an array of bool or a period", v.type_name());
            periodic(family, period.with_context(expected)?, layers)
        }
        // a period, as some architectures have it, is not one of these
        (Some(v), None) => bail!("{file}: {pattern} is of type {}, expected an array of bool", v.type_name()),
    })
}

/// A number of the metadata that need not be whole.
fn f64_of(c: &Container, key: &str) -> anyhow::Result<Option<f64>> {
    c.meta.typed(key).with_context(|| c.described_by().display().to_string())
}
