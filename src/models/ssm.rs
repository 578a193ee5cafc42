//! What a file says of a model of state space layers alone (Mamba-2), which has neither attention nor feed-forwards.

use super::family::Family;
use crate::formats::Container;
use crate::formats::json::Fields;
use crate::ops::conv_silu::TAPS;
use crate::ops::exact::{CANON_MAX, flush};
use crate::ops::ssm_scan::SEGMENT;
use anyhow::{Context, ensure};
use serde_json::Value;

/// Positions where nothing says how many: nothing in such a model counts them. llama.cpp's converter writes as many.
const CONTEXT: usize = 1 << 20;

/// State space layers: of each head a matrix of state elements by channels is what is remembered.
#[derive(Clone, Debug, PartialEq)]
pub struct Ssm {
    /// heads
    pub heads: usize,
    /// channels of a head
    pub head_dim: usize,
    /// elements of the state of a channel
    pub state: usize,
    /// groups of neighbouring heads, each with a B and a C of its own, and a norm
    pub groups: usize,
    /// whether the convolution has biases
    pub biased: bool,
    /// least and greatest step; what is greater than any is the greatest f32
    pub steps: [f32; 2],
}

impl Ssm {
    /// Channels of all heads.
    pub fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of B and of C of all groups.
    pub fn bc(&self) -> usize {
        2 * self.groups * self.state
    }

    /// Channels of the convolution.
    pub fn channels(&self) -> usize {
        self.inner() + self.bc()
    }

    /// Whether steps have no bounds, as in every released model.
    pub fn is_free(&self) -> bool {
        self.steps == FREE
    }

    /// What no plan may be made of. Errors: one line.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Ssm { heads, head_dim, state, groups, .. } = *self;
        ensure!((1..=4096).contains(&heads), "the number of heads is {heads}, expected 1..=4096");
        ensure!((1..=1024).contains(&head_dim), "the head dimension is {head_dim}, expected 1..=1024");
        ensure!(
            state.is_multiple_of(SEGMENT) && (SEGMENT..=1024).contains(&state),
            "a state of {state} is not supported (supported: multiples of {SEGMENT}, 1024 at most)"
        );
        ensure!(groups >= 1 && heads.is_multiple_of(groups), "{heads} heads cannot make {groups} groups evenly");
        Ok(())
    }
}

/// No bounds of steps.
const FREE: [f32; 2] = [0.0, f32::MAX];

/// What a model of such layers is, beside what its family says.
pub(super) struct Sizes {
    pub name: String,
    pub layers: usize,
    pub dim: usize,
    pub vocab: usize,
    pub context: usize,
    pub eps: f64,
    pub tied: Option<bool>,
    pub ssm: Ssm,
}

/// Those of a GGUF file of so many tokens, which calls the number of heads `ssm.time_step_rank`; `eps`: of the norms, where it
/// says so.
pub(super) fn of_gguf(c: &Container, family: Family, vocab: usize, eps: Option<f64>) -> anyhow::Result<Sizes> {
    let (m, file, arch) = (&c.meta, c.described_by().display(), family.name());
    let need = |key: &str| -> anyhow::Result<usize> {
        let key = format!("{arch}.{key}");
        let found = m.get(&key).with_context(|| format!("{file}: {key} is missing"))?;
        let v = m.uint(&key).and_then(|v| usize::try_from(v).ok());
        v.with_context(|| format!("{file}: {key} is of type {}, expected a whole number", found.type_name()))
    };
    let taps = need("ssm.conv_kernel")?;
    ensure!(taps == TAPS, "{file}: {arch}.ssm.conv_kernel is {taps}, which is not supported (supported: {TAPS})");
    let (heads, inner) = (need("ssm.time_step_rank")?, need("ssm.inner_size")?);
    ensure!(
        heads > 0 && inner.is_multiple_of(heads),
        "{file}: {arch}.ssm.inner_size is {inner}, expected whole heads, of which there are {heads}"
    );
    let name: Option<&str> = m.typed("general.name").with_context(|| file.to_string())?;
    Ok(Sizes {
        name: name.unwrap_or(arch).to_string(),
        layers: need("block_count")?,
        dim: need("embedding_length")?,
        vocab,
        context: need("context_length")?,
        eps: eps.with_context(|| format!("{file}: {arch}.{} is missing", family.epsilon_key()))?,
        tied: None,
        ssm: Ssm {
            heads,
            head_dim: inner / heads,
            state: need("ssm.state_size")?,
            groups: need("ssm.group_count")?,
            biased: c.tensor("blk.0.ssm_conv1d.bias").is_some(),
            steps: FREE,
        },
    })
}

/// Those of config.json, and transformers' defaults.
pub(super) fn of_config(cfg: &Fields, family: Family) -> anyhow::Result<Sizes> {
    let file = cfg.file();
    let opt = |key: &str| cfg.size(key);
    let need = |key: &str| opt(key)?.with_context(|| format!("{file}: {key} is missing"));
    let taps = opt("conv_kernel")?.unwrap_or(TAPS);
    ensure!(taps == TAPS, "{file}: conv_kernel = {taps} is not supported (supported: {TAPS})");
    let (dim, expand) = (need("hidden_size")?, opt("expand")?.unwrap_or(2));
    let (heads, head_dim) = (opt("num_heads")?.unwrap_or(128), opt("head_dim")?.unwrap_or(64));
    ensure!(
        heads.checked_mul(head_dim).is_some_and(|inner| dim.checked_mul(expand) == Some(inner)),
        "{file}: {heads} heads of {head_dim} are not {expand} times hidden_size, which is {dim}"
    );
    let model_type = cfg.text("model_type")?.unwrap_or(family.name());
    Ok(Sizes {
        name: cfg.text("_name_or_path")?.filter(|s| !s.is_empty()).unwrap_or(model_type).to_string(),
        layers: need("num_hidden_layers")?,
        dim,
        vocab: need("vocab_size")?,
        context: opt("max_position_embeddings")?.unwrap_or(CONTEXT),
        eps: cfg.number("layer_norm_epsilon")?.unwrap_or(1e-5),
        tied: cfg.flag("tie_word_embeddings")?,
        ssm: Ssm {
            heads,
            head_dim,
            state: opt("state_size")?.unwrap_or(128),
            groups: opt("n_groups")?.unwrap_or(8),
            biased: cfg.flag("use_conv_bias")?.unwrap_or(true),
            steps: steps(cfg)?,
        },
    })
}

/// Bounds of steps: two numbers, of which the second may be infinite.
fn steps(cfg: &Fields) -> anyhow::Result<[f32; 2]> {
    let Some(list) = cfg.list("time_step_limit")? else { return Ok(FREE) };
    let number = |v: &Value| match v["__float__"].as_str() {
        Some("Infinity") => Some(f64::INFINITY),
        Some(_) => None,
        None => v.as_f64(),
    };
    let expected = || format!("{}: time_step_limit: expected two numbers, 0 or more, the greater one last", cfg.file());
    let [least, most] = list else { anyhow::bail!(expected()) };
    let (least, most) = number(least).zip(number(most)).with_context(expected)?;
    ensure!((0.0..f64::from(CANON_MAX)).contains(&least) && most > least, expected());
    // as they are stored
    let most = if most < f64::from(CANON_MAX) { most as f32 } else { f32::MAX };
    Ok([flush(least as f32), most])
}
