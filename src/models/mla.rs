//! What a file says of multi-head latent attention (DeepSeek V2 and V3): keys and values of all heads are made of one latent
//! vector of a token, which is all that is cached, with the rotated part of its one key.

use super::family::Family;
use crate::formats::Container;
use crate::formats::json::Fields;
use crate::ops::attention::HEAD_MAX;
use crate::ops::router::EXPERTS_MAX;
use anyhow::{Context, bail, ensure};

/// Latent attention. A query is as long as what is cached of a token: `rope` elements that are rotated, then `rank`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mla {
    /// elements of the vector that queries are made of; 0: they are made of a token's own
    pub query_rank: usize,
    /// elements of the latent vector
    pub rank: usize,
    /// elements of a head's query and key that are not rotated
    pub nope: usize,
    /// elements of a head's query, and of the key of all heads, that are rotated
    pub rope: usize,
    /// elements of a head's value
    pub value: usize,
    /// what YaRN adds to a factor on queries and on keys for each e-fold of the context, GGUF's `yarn_log_multiplier`; 0: nothing
    pub log_multiplier: f32,
}

impl Mla {
    /// Elements of a query, as it meets what is cached.
    pub fn head_dim(&self) -> usize {
        self.rank.saturating_add(self.rope)
    }

    /// Elements of a head of queries as the model makes them.
    pub fn query(&self) -> usize {
        self.nope + self.rope
    }

    /// What scores are multiplied with where positions are stretched by `factor`.
    pub fn scale(&self, factor: f64) -> f32 {
        let stretch = if factor > 1.0 { 1.0 + f64::from(self.log_multiplier) * libm::log(factor) } else { 1.0 };
        (stretch * stretch / libm::sqrt(self.query() as f64)) as f32
    }

    /// What no plan may be made of. Errors: one line.
    pub(super) fn check(&self, heads: usize) -> anyhow::Result<()> {
        let within = |what: &str, v: usize, max: usize| {
            ensure!((1..=max).contains(&v), "{what} is {v}, expected 1..={max}");
            Ok(())
        };
        within("the rank of keys and values", self.rank, HEAD_MAX)?;
        within("the rotated part of a head", self.rope, HEAD_MAX)?;
        within("what is cached of a token", self.head_dim(), HEAD_MAX)?;
        within("the part of a head that is not rotated", self.nope, 4096)?;
        within("a head of values", self.value, 4096)?;
        ensure!(self.query_rank <= 1 << 20, "the rank of queries is {}, expected at most {}", self.query_rank, 1 << 20);
        within("the number of heads", heads, EXPERTS_MAX as usize)?;
        let by = self.log_multiplier;
        ensure!((0.0..=10.0).contains(&by), "YaRN's multiplier of a logarithm is {by:?}, expected between 0 and 10");
        Ok(())
    }
}

/// That of a GGUF file whose heads have `n_rot` rotated elements.
///
/// Errors: sizes that do not fit each other; YaRN without a word of how scores are scaled.
pub(super) fn of_gguf(c: &Container, family: Family, n_rot: usize) -> anyhow::Result<Option<Mla>> {
    if family != Family::DeepSeek2 {
        return Ok(None);
    }
    let (m, file, arch) = (&c.meta, c.described_by().display(), family.name());
    let opt = |key: &str| -> anyhow::Result<Option<usize>> {
        let key = format!("{arch}.{key}");
        let Some(found) = m.get(&key) else { return Ok(None) };
        let v = m.uint(&key).and_then(|v| usize::try_from(v).ok());
        v.map(Some).with_context(|| format!("{file}: {key} is of type {}, expected a whole number", found.type_name()))
    };
    let need = |key: &str| opt(key)?.with_context(|| format!("{file}: {arch}.{key} is missing"));
    // files of old conversions were given it when they were opened (`formats::latent`)
    let query = opt("attention.key_length_mla")?.with_context(|| {
        format!("{file}: {arch}.attention.key_length_mla is missing, and no attn_kv_b of an old conversion fits the other sizes")
    })?;
    let (rank, width) = (need("attention.kv_lora_rank")?, need("attention.key_length")?);
    ensure!(
        rank.checked_add(n_rot) == Some(width) && query > n_rot,
        "{file}: {arch}: a latent vector of {rank} and {n_rot} rotated elements, where keys of {width} are cached and of {query} made"
    );
    let heads = opt("attention.head_count_kv")?;
    ensure!(
        heads.is_none_or(|n| n == 1),
        "{file}: {arch}.attention.head_count_kv is {}, expected 1",
        heads.unwrap_or_default()
    );
    // what Mistral's models have, whose scores no other program's page explains
    let warm: Option<f64> =
        m.typed(&format!("{arch}.attention.temperature_scale")).with_context(|| file.to_string())?;
    ensure!(
        warm.is_none_or(|scale| scale == 0.0),
        "{file}: {arch}.attention.temperature_scale is {:?}, which is not supported (supported: none)",
        warm.unwrap_or_default()
    );
    let text = |key: &str| m.typed::<&str>(key).with_context(|| file.to_string());
    let by: Option<f64> =
        m.typed(&format!("{arch}.rope.scaling.yarn_log_multiplier")).with_context(|| file.to_string())?;
    let stretched = text(&format!("{arch}.rope.scaling.type"))? == Some("yarn");
    ensure!(
        !stretched || by.is_some_and(|by| by != 0.0),
        "{file}: {arch}.rope.scaling.yarn_log_multiplier is missing, by which scores of a stretched model are scaled"
    );
    Ok(Some(Mla {
        query_rank: opt("attention.q_lora_rank")?.unwrap_or(0),
        rank,
        nope: query - n_rot,
        rope: n_rot,
        value: need("attention.value_length_mla")?,
        log_multiplier: by.filter(|_| stretched).unwrap_or(0.0) as f32,
    }))
}

/// That of config.json; `scaling`: what it says of rotation.
///
/// Errors: what no released model has; YaRN whose factor on cos and sin is not 1.
pub(super) fn of_config(cfg: &Fields, scaling: &Fields, family: Family) -> anyhow::Result<Option<Mla>> {
    if family != Family::DeepSeek2 {
        return Ok(None);
    }
    let file = cfg.file();
    let opt = |key: &str| cfg.size(key);
    let need = |key: &str| opt(key)?.with_context(|| format!("{file}: {key} is missing"));
    let (heads, kv_heads) = (need("num_attention_heads")?, opt("num_key_value_heads")?);
    ensure!(
        kv_heads.is_none_or(|n| n == heads),
        "{file}: num_key_value_heads is {}, expected {heads} as num_attention_heads",
        kv_heads.unwrap_or_default()
    );
    let kind = scaling.text("rope_type")?.or(scaling.text("type")?).unwrap_or("default");
    let mut log_multiplier = 0.0;
    if kind == "yarn" {
        let said = (scaling.number("mscale")?, scaling.number("mscale_all_dim")?);
        let (Some(one), Some(all)) = said else {
            bail!("{file}: RoPE scaling: yarn without mscale and mscale_all_dim is not supported");
        };
        ensure!(
            one == all && all != 0.0 && scaling.get("attention_factor").is_none(),
            "{file}: RoPE scaling: yarn with mscale {one:?} and mscale_all_dim {all:?} is not supported (supported: one number)"
        );
        log_multiplier = (0.1 * all) as f32;
    } else {
        ensure!(
            kind == "default",
            "{file}: RoPE scaling of type {kind:.60} is not supported (supported: default, yarn)"
        );
    }
    Ok(Some(Mla {
        query_rank: opt("q_lora_rank")?.unwrap_or(0),
        rank: need("kv_lora_rank")?,
        nope: need("qk_nope_head_dim")?,
        rope: need("qk_rope_head_dim")?,
        value: need("v_head_dim")?,
        log_multiplier,
    }))
}
