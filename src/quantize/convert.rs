//! The metadata of a GGUF file made from a Hugging Face directory: config keys, and the permutation of Q and K.
//!
//! config.json is read by `models`, as when the directory is run; keys are written from what it understood. Their names
//! are those of llama.cpp's converter. What is not known is refused rather than left out: a file without it would run, and
//! run wrongly.

use super::{Damaged, vocab};
use crate::formats::meta::{Meta, Value};
use crate::formats::{Container, Tensor};
use crate::models::hyper::{inverse, usual_caps, usual_scale, yarn_magnitude};
use crate::models::{
    Delta, Dense, Experts, Family, Hyper, Mla, Pooling, Ssm, hyper::RopeScaling, output_name, rope_divisors,
};
use crate::ops::altup_predict::STREAMS;
use crate::ops::conv_silu::TAPS;
use crate::ops::short_conv;
use anyhow::{Context, ensure};

/// What a directory becomes besides its weights.
#[derive(Debug)]
pub struct Converted {
    /// GGUF's name of the architecture
    pub arch: &'static str,
    /// every key, without `general.file_type`
    pub meta: Meta,
    /// what was read
    pub hyper: Hyper,
    /// whether norms are kept less 1, which a GGUF file's are not
    pub norms_less_one: bool,
    /// heads of q and of k whose rows are permuted (GGUF pairs neighbours where the directory pairs halves)
    pub permuted: Option<(usize, usize)>,
    /// `rope_freqs.weight`: divisors of the frequencies (Llama 3.1 and later)
    pub rope_freqs: Option<Vec<f32>>,
    /// `rope_factors_long.weight` and `rope_factors_short.weight` (longrope)
    pub rope_factors: Option<(Vec<f32>, Vec<f32>)>,
}

impl Converted {
    /// These keys, and weights that stay as they are.
    fn plain(h: &Hyper, entries: Vec<(String, Value)>) -> Converted {
        Converted {
            arch: h.family.name(),
            meta: Meta { entries },
            hyper: h.clone(),
            norms_less_one: false,
            permuted: None,
            rope_freqs: None,
            rope_factors: None,
        }
    }
}

/// Reads config and tokeniser of a Hugging Face container.
pub fn convert(c: &Container) -> anyhow::Result<Converted> {
    let dir = c.files[0].parent().map(|d| d.display().to_string()).unwrap_or_default();
    let h = Hyper::read(c)?;
    let head = output_name(c);
    ensure!(
        h.tied != Some(false) || c.tensor(&head).is_some(),
        "{dir}: tensor {head} is missing, and tie_word_embeddings is false"
    );
    let cfg = c.config.as_ref().with_context(|| format!("{dir}: no config.json"))?;
    let mut out = keys(&h).with_context(|| format!("{dir}/config.json"))?;
    let mut put = |key: &str, v| out.meta.entries.push((format!("{}.{key}", out.arch), v));
    let pooling = Pooling::of(c, &h)?;
    if h.family.is_encoder() {
        put("attention.causal", Value::Bool(false));
    }
    if h.family.is_encoder() || pooling.is_some() {
        put("pooling_type", Value::U32(pooling.map_or(0, Pooling::number)));
    }
    let dense = Dense::of(c, &h)?;
    ensure!(
        dense.len() <= 2 && dense.iter().all(Dense::is_plain),
        "{dir}: layers behind pooling with biases or functions, or more than two, have no place in a GGUF file; run the \
         directory itself"
    );
    for (i, layer) in dense.iter().enumerate() {
        put(&format!("dense_{}_feat_in", i + 2), whole(layer.width)?);
        put(&format!("dense_{}_feat_out", i + 2), whole(layer.rows())?);
    }
    vocab::convert(c, cfg, h.vocab, &mut out.meta.entries).with_context(|| format!("{dir}: tokeniser"))?;
    Ok(out)
}

/// The keys that `models` reads back as the same hyperparameters.
fn keys(h: &Hyper) -> anyhow::Result<Converted> {
    let arch = h.family.name();
    let mut entries: Vec<(String, Value)> = Vec::new();
    let mut put = |key: &str, v: Value| entries.push((key.replace("{a}", arch), v));
    put("general.architecture", Value::Str(arch.into()));
    put("general.type", Value::Str("model".into()));
    put("general.name", Value::Str(h.name.clone()));
    put("{a}.context_length", whole(h.context)?);
    put("{a}.embedding_length", whole(h.dim)?);
    put("{a}.block_count", whole(h.layers)?);
    if let Some(s) = &h.ssm {
        state_space(h, s, &mut put)?;
        return Ok(Converted::plain(h, entries));
    }
    put("{a}.feed_forward_length", ffn(h)?);
    put("{a}.attention.head_count", whole(h.heads)?);
    put("{a}.attention.head_count_kv", kv_heads(h)?);
    let follows = [Family::Llama, Family::Phi3, Family::Qwen2, Family::Qwen2Moe, Family::ChatGlm].contains(&h.family);
    if let Some(m) = &h.mla {
        latent(m, &mut put)?;
    } else if h.head_dim * h.heads != h.dim || !follows {
        put("{a}.attention.key_length", whole(h.head_dim)?);
        put("{a}.attention.value_length", whole(h.head_dim)?);
    }
    put("{a}.rope.dimension_count", whole(h.n_rot)?);
    uneven(h, &mut put)?;
    put("{a}.vocab_size", whole(h.vocab)?);
    put(&format!("{{a}}.{}", h.family.epsilon_key()), Value::F32(h.eps));
    if h.family.is_cohere() {
        put("{a}.logit_scale", Value::F32(inverse(h.logit_divisor)));
    }
    if let Some(w) = h.window {
        put("{a}.attention.sliding_window", whole(h.family.said_window(w))?);
        if !h.window_layers.is_empty() {
            let list = h.window_layers.iter().map(|w| Value::Bool(*w)).collect();
            put("{a}.attention.sliding_window_pattern", Value::Array(list));
        }
    } else if h.family == Family::Gemma2 {
        // without the key it has one
        put("{a}.attention.sliding_window", whole(0)?);
    }
    put("{a}.rope.freq_base", Value::F32(h.rope_base as f32));
    let caps = [h.attention_softcap, h.logit_softcap];
    for ((key, cap), usual) in
        ["attn_logit_softcapping", "final_logit_softcapping"].into_iter().zip(caps).zip(usual_caps(h.family))
    {
        if cap != 0.0 || usual != 0.0 {
            put(&format!("{{a}}.{key}"), Value::F32(cap));
        }
    }
    if let (true, Some((base, _))) = (h.family.has_own_base(), &h.local_rope) {
        put("{a}.rope.freq_base_swa", Value::F32(*base as f32));
    }
    if h.family == Family::ModernBert {
        put("{a}.hidden_activation", Value::Str(if h.silu { "silu" } else { "gelu" }.into()));
    }
    if let Some(e) = &h.experts {
        experts(h.family, e, &mut put)?;
    }
    if let Some(d) = &h.delta {
        delta(h, d, &mut put)?;
    }
    if h.conv.is_some() {
        put("{a}.shortconv.l_cache", whole(short_conv::TAPS)?);
    }
    if h.family.has_scales() {
        put("{a}.attention.scale", Value::F32(h.attention_scale));
        put("{a}.embedding_scale", Value::F32(h.embedding_scale));
        put("{a}.residual_scale", Value::F32(h.residual_scale));
        put("{a}.logit_scale", Value::F32(h.logit_divisor));
    } else {
        ensure!(
            h.mla.is_some() || h.attention_scale == usual_scale(h.family, [h.layers, h.dim, h.heads, h.head_dim]),
            "its scores are multiplied with {}, and no {arch} model in a GGUF file says by what; run the directory itself",
            h.attention_scale
        );
    }
    let mut rope_factors = None;
    match &h.rope_scaling {
        RopeScaling::None => {}
        // its divisors are a tensor
        RopeScaling::Llama3 { .. } | RopeScaling::Proportional { .. } => {}
        RopeScaling::Linear(factor) => {
            put("{a}.rope.scaling.type", Value::Str("linear".into()));
            put("{a}.rope.scaling.factor", Value::F32(*factor as f32));
        }
        &RopeScaling::Yarn { factor, original, beta_fast, beta_slow, ext, magnitude } => {
            put("{a}.rope.scaling.type", Value::Str("yarn".into()));
            put("{a}.rope.scaling.factor", Value::F32(factor as f32));
            put("{a}.rope.scaling.original_context_length", position(original)?);
            // of latent attention the key would be taken for one of scores
            let usual = if h.mla.is_some() { magnitude } else { yarn_magnitude(factor, 1.0) };
            let attention = (magnitude / usual) as f32;
            for (key, v, usual) in [
                ("yarn_beta_fast", beta_fast as f32, 32.0),
                ("yarn_beta_slow", beta_slow as f32, 1.0),
                ("yarn_ext_factor", ext as f32, 1.0),
                ("attn_factor", attention, 1.0),
            ] {
                if v != usual {
                    put(&format!("{{a}}.rope.scaling.{key}"), Value::F32(v));
                }
            }
        }
        RopeScaling::LongRope { short, long, original, magnitude } => {
            let single = |list: &[f64]| list.iter().map(|v| *v as f32).collect();
            rope_factors = Some((single(long), single(short)));
            put("{a}.rope.scaling.original_context_length", position(*original)?);
            put("{a}.rope.scaling.attn_factor", Value::F32(*magnitude as f32));
        }
    }
    put("general.quantization_version", Value::U32(2));
    // the rows of a family that turns neighbours in both forms stay where they are
    let permuted = h.family.is_permuted().then_some((h.heads, h.kv_heads));
    ensure!(
        h.rotations == h.usual_rotations(),
        "its layers are rotated as no {arch} model in a GGUF file is, which has no key for that; run the directory itself"
    );
    let norms_less_one = h.family.norms_less_one();
    let meta = Meta { entries };
    Ok(Converted { arch, meta, hyper: h.clone(), norms_less_one, permuted, rope_freqs: rope_divisors(h), rope_factors })
}

/// The keys about latent attention: what is cached of a token as if it were a key and a value of one head, and the heads that
/// the model has.
fn latent(m: &Mla, put: &mut impl FnMut(&str, Value)) -> anyhow::Result<()> {
    if m.query_rank > 0 {
        put("{a}.attention.q_lora_rank", whole(m.query_rank)?);
    }
    put("{a}.attention.kv_lora_rank", whole(m.rank)?);
    put("{a}.attention.key_length", whole(m.head_dim())?);
    put("{a}.attention.value_length", whole(m.rank)?);
    put("{a}.attention.key_length_mla", whole(m.query())?);
    put("{a}.attention.value_length_mla", whole(m.value)?);
    if m.log_multiplier != 0.0 {
        put("{a}.rope.scaling.yarn_log_multiplier", Value::F32(m.log_multiplier));
    }
    Ok(())
}

/// The keys about state spaces. llama.cpp's converter writes a feed-forward and heads of 0, and its loader asks for both.
fn state_space(h: &Hyper, s: &Ssm, put: &mut impl FnMut(&str, Value)) -> anyhow::Result<()> {
    ensure!(
        s.is_free(),
        "time_step_limit is {:?} to {:?}, and no key of a GGUF file says so; run the directory itself",
        s.steps[0],
        s.steps[1]
    );
    put("{a}.feed_forward_length", whole(0)?);
    put("{a}.attention.head_count", whole(0)?);
    put("{a}.vocab_size", whole(h.vocab)?);
    put("{a}.ssm.conv_kernel", whole(TAPS)?);
    put("{a}.ssm.inner_size", whole(s.inner())?);
    put("{a}.ssm.state_size", whole(s.state)?);
    put("{a}.ssm.time_step_rank", whole(s.heads)?);
    put("{a}.ssm.group_count", whole(s.groups)?);
    put(&format!("{{a}}.{}", h.family.epsilon_key()), Value::F32(h.eps));
    put("general.quantization_version", Value::U32(2));
    Ok(())
}

/// Key-value heads; where some layers have a convolution in their place, of each layer, 0 for those.
fn kv_heads(h: &Hyper) -> anyhow::Result<Value> {
    if h.uneven.local.is_some_and(|l| l.kv_heads != h.kv_heads) {
        return by_layer(h, |l| h.heads_of(l).kv_heads);
    }
    let Some(conv) = &h.conv else { return whole(h.kv_heads) };
    let n = i32::try_from(h.kv_heads).context("its key-value heads")?;
    Ok(Value::I32Array(conv.layers.iter().map(|c| if *c { 0 } else { n }).collect()))
}

/// The width of the feed-forward, where it differs of each layer.
fn ffn(h: &Hyper) -> anyhow::Result<Value> {
    if h.uneven.ffns.iter().any(|n| *n != h.ffn) { by_layer(h, |l| h.ffn_of(l)) } else { whole(h.ffn) }
}

/// The keys about what differs from layer to layer.
fn uneven(h: &Hyper, put: &mut impl FnMut(&str, Value)) -> anyhow::Result<()> {
    if let Some(local) = &h.uneven.local {
        put("{a}.attention.key_length_swa", whole(local.head_dim)?);
        put("{a}.attention.value_length_swa", whole(local.head_dim)?);
        put("{a}.rope.dimension_count_swa", whole(local.n_rot)?);
    }
    if matches!(h.family, Family::Gemma3n | Family::Gemma4) {
        put("{a}.attention.shared_kv_layers", whole(h.uneven.sharing)?);
        put("{a}.embedding_length_per_layer_input", whole(h.uneven.embedding)?);
    }
    if let Some(a) = &h.uneven.altup {
        put("{a}.altup.num_inputs", whole(STREAMS)?);
        put("{a}.altup.active_idx", whole(0)?);
        // the quantile of what drops nothing
        let bounds = a.bounds.iter().map(|b| b.unwrap_or(f32::NEG_INFINITY)).collect();
        put("{a}.activation_sparsity_scale", Value::F32Array(bounds));
    }
    Ok(())
}

/// A number of each layer.
fn by_layer(h: &Hyper, of: impl Fn(usize) -> usize) -> anyhow::Result<Value> {
    let one = |l| i32::try_from(of(l)).with_context(|| format!("{} is more than a GGUF key holds", of(l)));
    Ok(Value::I32Array((0..h.layers).map(one).collect::<anyhow::Result<_>>()?))
}

/// The keys about experts.
fn experts(family: Family, e: &Experts, put: &mut impl FnMut(&str, Value)) -> anyhow::Result<()> {
    ensure!(
        e.usual_in(family),
        "norm_topk_prob is {} and the scale of experts' weights {}, and no key of a {} model in a GGUF file says so; run the \
         directory itself",
        e.normalise,
        e.scale,
        family.name()
    );
    put("{a}.expert_count", whole(e.count)?);
    put("{a}.expert_used_count", whole(e.used)?);
    let of_layers = [
        Family::Qwen2Moe,
        Family::Qwen3Moe,
        Family::Glm4Moe,
        Family::DeepSeek2,
        Family::GptOss,
        Family::Lfm2Moe,
        Family::Gemma4,
    ];
    if of_layers.contains(&family) || family.is_hybrid() {
        put("{a}.expert_feed_forward_length", whole(e.width)?);
    }
    if matches!(family, Family::Glm4Moe | Family::DeepSeek2) {
        put("{a}.expert_shared_count", whole(e.shared / e.width)?);
        put("{a}.leading_dense_block_count", whole(e.dense)?);
        put("{a}.expert_weights_scale", Value::F32(e.scale));
        put("{a}.expert_weights_norm", Value::Bool(e.normalise));
        put("{a}.expert_gating_func", Value::U32(if e.sigmoid { 2 } else { 1 }));
        put("{a}.expert_group_count", whole(e.groups.0)?);
        put("{a}.expert_group_used_count", whole(e.groups.1)?);
    } else if family == Family::Lfm2Moe {
        put("{a}.leading_dense_block_count", whole(e.dense)?);
        put("{a}.expert_gating_func", Value::U32(2));
    } else if e.shared > 0 {
        put("{a}.expert_shared_feed_forward_length", whole(e.shared)?);
    }
    Ok(())
}

/// The keys about recurrent layers, and of a rotation in sections that cover all pairs in turns.
fn delta(h: &Hyper, d: &Delta, put: &mut impl FnMut(&str, Value)) -> anyhow::Result<()> {
    put("{a}.ssm.conv_kernel", whole(TAPS)?);
    put("{a}.ssm.state_size", whole(d.size)?);
    put("{a}.ssm.group_count", whole(d.key_heads)?);
    put("{a}.ssm.time_step_rank", whole(d.heads)?);
    put("{a}.ssm.inner_size", whole(d.values())?);
    put("{a}.attention.recurrent_layers", Value::Array(d.layers.iter().map(|r| Value::Bool(*r)).collect()));
    // for readers that know no list
    let every = d.layers.iter().position(|r| !r).map_or(0, |first| first + 1);
    put("{a}.full_attention_interval", whole(every)?);
    if h.family != Family::Qwen3Next {
        let pairs = i32::try_from(h.n_rot / 2).context("its rotation")?;
        put("{a}.rope.dimension_sections", Value::I32Array(vec![(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0]));
    }
    Ok(())
}

/// What a directory keeps in another form than GGUF: a norm less 1, or the logarithm of a decay, which becomes -exp of it.
///
/// Errors: a tensor of another type than floats; what cannot be read; NaN and infinity.
pub fn other_form(c: &Container, t: &Tensor, change: fn(f32) -> f32) -> anyhow::Result<Vec<f32>> {
    let place = || format!("{}: tensor {}", c.files[t.file].display(), t.name);
    let ty = t.dtype.block().filter(|ty| ty.is_float() && t.shape.len() == 1);
    let ty = ty.with_context(|| format!("{} is no vector of F32, F16 or BF16", place()))?;
    let mut bytes = vec![0; usize::try_from(t.bytes)?];
    c.read(t, 0, &mut bytes)?;
    let mut values = vec![0f32; bytes.len() / ty.bytes()];
    ty.decode_row(&bytes, &mut values);
    if let Some(i) = values.iter().position(|v| !v.is_finite()) {
        return Err(
            Damaged::new(format!("{} holds NaN or infinity in element {i}; the model is damaged", place())).into()
        );
    }
    Ok(values.into_iter().map(change).collect())
}

/// A number as GGUF keeps sizes.
fn whole(v: usize) -> anyhow::Result<Value> {
    Ok(Value::U32(u32::try_from(v).with_context(|| format!("{v} is more than a GGUF key holds"))?))
}

/// A number of positions, which config.json may write as any number.
fn position(v: f64) -> anyhow::Result<Value> {
    let whole = v as u32;
    ensure!(f64::from(whole) == v, "original_max_position_embeddings is {v}, a GGUF key holds whole numbers");
    Ok(Value::U32(whole))
}

/// The source row of output row `r` of a head of `n` rows, when halves become neighbours.
pub fn permuted_row(r: usize, n: usize) -> usize {
    (r % 2) * (n / 2) + r / 2
}

/// The source row of output row `r` of a head of `n` rows, when neighbours become halves.
pub fn restored_row(r: usize, n: usize) -> usize {
    let half = (n / 2).max(1);
    r % half * 2 + r / half
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Uneven;

    #[test]
    fn halves_become_neighbours_and_halves_again() {
        let rows: Vec<usize> = (0..8).map(|r| permuted_row(r, 8)).collect();
        assert_eq!(rows, [0, 4, 1, 5, 2, 6, 3, 7]);
        assert!((0..8).all(|r| rows[restored_row(r, 8)] == r));
    }

    /// Shapes of Llama 3.2 1B, the scaling aside.
    fn llama(rope_scaling: RopeScaling) -> Hyper {
        Hyper {
            family: Family::Llama,
            arch: "llama".into(),
            name: "x".into(),
            layers: 16,
            dim: 2048,
            heads: 32,
            kv_heads: 8,
            head_dim: 64,
            n_rot: 64,
            guessing: 0,
            ffn: 8192,
            experts: None,
            delta: None,
            mla: None,
            conv: None,
            ssm: None,
            uneven: Uneven::default(),
            vocab: 128_256,
            context: 131_072,
            window: None,
            window_layers: vec![],
            silu: false,
            eps: 1e-5,
            attention_scale: 0.125,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_divisor: 1.0,
            attention_softcap: 0.0,
            logit_softcap: 0.0,
            rope_base: 500_000.0,
            rope_scaling,
            local_rope: None,
            rotations: vec![],
            half_split: true,
            qkv_bias: None,
            tied: Some(true),
        }
    }

    #[test]
    fn llama3_scaling_becomes_divisors_between_one_and_the_factor() {
        let h = llama(RopeScaling::Llama3 { factor: 32.0, low: 1.0, high: 4.0, original: 8192.0 });
        let c = keys(&h).unwrap();
        let d = c.rope_freqs.unwrap();
        assert_eq!((d.len(), d[0], d[31]), (32, 1.0, 32.0));
        assert!(d.windows(2).all(|w| w[0] <= w[1]), "{d:?}");
        assert_eq!(c.permuted, Some((32, 8)));
        assert_eq!(c.meta.uint("llama.attention.head_count_kv"), Some(8));
    }

    #[test]
    fn what_a_key_cannot_hold_is_refused_by_name() {
        let scaling = |original| RopeScaling::Yarn {
            factor: 4.0,
            original,
            beta_fast: 32.0,
            beta_slow: 1.0,
            ext: 1.0,
            magnitude: 1.0,
        };
        for original in [4096.5, 1e12] {
            let error = format!("{:#}", keys(&llama(scaling(original))).unwrap_err());
            assert!(error.contains("original_max_position_embeddings is"), "{error}");
        }
        assert!(keys(&llama(scaling(4096.0))).is_ok());
    }

    #[test]
    fn a_window_is_written_with_the_layers_that_have_it() {
        let window = |h: &Hyper| {
            let meta = keys(h).unwrap().meta;
            let key = |what: &str| format!("llama.attention.{what}");
            (meta.uint(&key("sliding_window")), meta.get(&key("sliding_window_pattern")).cloned())
        };
        let mut h = llama(RopeScaling::None);
        assert_eq!(window(&h), (None, None));
        h.window = Some(40);
        assert_eq!(window(&h), (Some(40), None));
        h.window_layers = vec![false, true];
        assert_eq!(window(&h), (Some(40), Some(Value::Array(vec![Value::Bool(false), Value::Bool(true)]))));
    }
}
