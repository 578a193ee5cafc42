//! What a file says of its experts: how many, which a token meets, and how they are weighted.

use super::family::Family;
use crate::formats::Container;
use crate::formats::json::Fields;
use crate::ops::router::{RouterParams, SIGMOID, SOFTMAX, SOFTMAX_CHOSEN};
use anyhow::{Context, ensure};

/// Experts in the place of a feed-forward: a router chooses some for each token, and what they give is added up by its
/// weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// experts of a layer
    pub count: usize,
    /// that a token meets
    pub used: usize,
    /// width of the feed-forward of one
    pub width: usize,
    /// width of that which all tokens meet; 0: there is none
    pub shared: usize,
    /// whether weights are sigmoids of the router's logits rather than their softmax
    pub sigmoid: bool,
    /// whether weights are a softmax over the chosen alone
    pub chosen: bool,
    /// bound of gate and up, where there is one: then linears have biases, and the function is gpt-oss's; 0: there is none
    pub limit: f32,
    /// whether the weights of a token are divided by their sum
    pub normalise: bool,
    /// what weights are multiplied with
    pub scale: f32,
    /// groups of experts, and how many of them are kept; 1 group: there are none
    pub groups: (usize, usize),
    /// layers in front that have none
    pub dense: usize,
}

impl Experts {
    /// The router's parameters, `biased` where a bias is added to what experts are chosen by.
    pub(super) fn router(&self, biased: bool) -> RouterParams {
        RouterParams {
            n_tokens: 0,
            experts: self.count as u32,
            used: self.used as u32,
            kind: match (self.sigmoid, self.chosen) {
                (true, _) => SIGMOID,
                (_, true) => SOFTMAX_CHOSEN,
                _ => SOFTMAX,
            },
            normalise: self.normalise.into(),
            scale: self.scale,
            groups: self.groups.0 as u32,
            groups_used: self.groups.1 as u32,
            biased: biased.into(),
        }
    }

    /// What no plan may be made of. Errors: one line.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let within = |what: &str, v: usize, max: usize| {
            ensure!(v <= max, "{what} is {v}, expected at most {max}");
            Ok(())
        };
        within("the number of experts", self.count, 1 << 20)?;
        within("the number of experts a token meets", self.used, 1 << 20)?;
        within("the number of groups of experts", self.groups.0.max(self.groups.1), 1 << 20)?;
        ensure!(self.width >= 1, "the width of an expert is 0, expected at least 1");
        within("the width of an expert", self.width, 1 << 22)?;
        within("the width of the shared expert", self.shared, 1 << 22)?;
        // far from any model's, and such that products with it are still numbers
        let scale = self.scale;
        ensure!(
            (1e-6..=1e6).contains(&scale),
            "the scale of experts' weights is {scale:?}, expected between 1e-6 and 1e6"
        );
        let fault = self.router(false).fault();
        ensure!(fault.is_none(), "{}", fault.unwrap_or_default());
        Ok(())
    }

    /// Whether a GGUF file of the family runs as these: that weights are normalised, and by what function they are made, its
    /// readers know of most by the architecture alone.
    pub fn usual_in(&self, family: Family) -> bool {
        says_how(family) || self.normalise == normalises(family) && self.scale == 1.0
    }
}

/// Whether a family divides weights by their sum where nothing says so.
fn normalises(family: Family) -> bool {
    !says_how(family) && family != Family::Qwen2Moe
}

/// Whether files of a family say by keys how weights are made.
fn says_how(family: Family) -> bool {
    matches!(family, Family::Glm4Moe | Family::DeepSeek2)
}

/// The bound of gate and up of a family's experts, of which no GGUF file says it; 0: there is none.
fn limit(family: Family) -> f32 {
    if family == Family::GptOss { 7.0 } else { 0.0 }
}

/// Whether a family is one of experts, whatever its files say.
fn always(family: Family) -> bool {
    use Family::{DeepSeek2, Glm4Moe, GptOss, GraniteMoe, Lfm2Moe, Qwen2Moe, Qwen3Moe, Qwen3Next, Qwen35Moe};
    matches!(family, DeepSeek2 | Qwen2Moe | Qwen3Moe | GraniteMoe | Glm4Moe | GptOss | Qwen35Moe | Qwen3Next | Lfm2Moe)
}

/// Whether layers behind those that are computed may follow, for guesses at further tokens.
pub(super) fn may_guess(family: Family) -> bool {
    says_how(family) || family.is_hybrid()
}

/// The experts of a GGUF file; `ffn` is its feed-forward's width.
pub(super) fn of_gguf(c: &Container, family: Family, ffn: usize) -> anyhow::Result<Option<Experts>> {
    let (m, file, arch) = (&c.meta, c.described_by().display().to_string(), family.name());
    let whole = |key: &str| -> anyhow::Result<Option<usize>> {
        let key = format!("{arch}.{key}");
        if m.get(&key).is_none() {
            return Ok(None);
        }
        let v = m.uint(&key).and_then(|v| usize::try_from(v).ok());
        let what = || format!("{file}: {key} is not a whole number (per-layer arrays are not supported)");
        Ok(Some(v.with_context(what)?))
    };
    let need = |key: &str| whole(key)?.with_context(|| format!("{file}: {arch}.{key} is missing"));
    let count = whole("expert_count")?.unwrap_or(0);
    if count == 0 {
        ensure!(!always(family), "{file}: {arch}.expert_count is missing, or 0");
        return Ok(None);
    }
    ensure!(
        always(family) || [Family::Llama, Family::Gemma4].contains(&family),
        "{file}: {arch}.expert_count is {count}: experts are not supported in {arch} models"
    );
    let used = need("expert_used_count")?;
    let share = ffn.checked_div(used).unwrap_or(0);
    let width = match family {
        Family::Llama | Family::GraniteMoe | Family::GptOss => ffn,
        _ => share,
    };
    let width = whole("expert_feed_forward_length")?.filter(|w| *w > 0).unwrap_or(width);
    let shared = match family {
        Family::Glm4Moe | Family::DeepSeek2 => whole("expert_shared_count")?.unwrap_or(0).saturating_mul(width),
        Family::Qwen2Moe => whole("expert_shared_feed_forward_length")?.filter(|w| *w > 0).unwrap_or(ffn),
        Family::GraniteMoe | Family::Qwen35Moe | Family::Qwen3Next => {
            whole("expert_shared_feed_forward_length")?.unwrap_or(0)
        }
        _ => 0,
    };
    let usual = match family {
        Family::Glm4Moe | Family::Lfm2Moe => 2,
        Family::GptOss => 3,
        _ => 1,
    };
    let gating = whole("expert_gating_func")?.filter(|f| *f > 0).unwrap_or(usual);
    let known: &[usize] = if says_how(family) { &[1, 2] } else { &[usual] };
    ensure!(
        known.contains(&gating),
        "{file}: {arch}.expert_gating_func is {gating}, which is not supported (supported: {known:?})"
    );
    let flag: Option<bool> = m.typed(&format!("{arch}.expert_weights_norm")).with_context(|| file.clone())?;
    let scale: Option<f64> = m.typed(&format!("{arch}.expert_weights_scale")).with_context(|| file.clone())?;
    let groups = match whole("expert_group_count")? {
        // DeepSeek-V2 and V2.5, whose files of 2024 do not say that these are in groups
        None if family == Family::DeepSeek2 && gating == 1 && count == 160 => (8, 3),
        said => match said.unwrap_or(1).max(1) {
            1 => (1, 1),
            groups => (groups, need("expert_group_used_count")?),
        },
    };
    let dense = whole("leading_dense_block_count")?.unwrap_or(0);
    Ok(Some(Experts {
        count,
        used,
        width,
        shared,
        sigmoid: gating == 2,
        chosen: gating == 3,
        limit: limit(family),
        normalise: flag.unwrap_or(normalises(family)),
        scale: scale.filter(|s| *s != 0.0).unwrap_or(1.0) as f32,
        groups,
        dense,
    }))
}

/// The experts of config.json.
pub(super) fn of_config(cfg: &Fields, family: Family, ffn: usize) -> anyhow::Result<Option<Experts>> {
    let file = cfg.file();
    let whole = |key: &str| cfg.size(key);
    let need = |keys: &[&str]| -> anyhow::Result<usize> {
        for key in keys {
            if let Some(v) = whole(key)? {
                return Ok(v);
            }
        }
        anyhow::bail!("{file}: {} is missing", keys[0])
    };
    let beside = family == Family::Gemma4 && cfg.flag("enable_moe_block")?.unwrap_or(false);
    if !always(family) && !beside && cfg.text("model_type")? != Some("mixtral") {
        return Ok(None);
    }
    // layers without experts here and there, which no GGUF file can express
    let step = whole("decoder_sparse_step")?.unwrap_or(1);
    ensure!(step == 1, "{file}: decoder_sparse_step = {step} is not supported (supported: 1)");
    let dense = cfg.list("mlp_only_layers")?.unwrap_or_default();
    ensure!(dense.is_empty(), "{file}: mlp_only_layers: layers without experts are not supported");
    if family == Family::GptOss {
        let (found, known) = (cfg.number("swiglu_limit")?, f64::from(limit(family)));
        ensure!(
            found.is_none_or(|v| v == known),
            "{file}: swiglu_limit is {:?}, which is not supported (supported: {known})",
            found.unwrap_or_default()
        );
    }
    let flag = |key: &str, usual: bool| anyhow::Ok(cfg.flag(key)?.unwrap_or(usual));
    let (glm, lfm) = (says_how(family), family == Family::Lfm2Moe);
    // DeepSeek V2 alone has a softmax, and its sum is left
    let v2 = cfg.text("model_type")? == Some("deepseek_v2");
    if family == Family::DeepSeek2 {
        check_deepseek(cfg, v2)?;
    }
    let width = match family {
        Family::Llama | Family::GraniteMoe | Family::GptOss => ffn,
        _ => need(&["moe_intermediate_size"])?,
    };
    let shared = match family {
        Family::Glm4Moe | Family::DeepSeek2 => need(&["n_shared_experts"])?.saturating_mul(width),
        Family::Qwen2Moe | Family::Qwen35Moe | Family::Qwen3Next => need(&["shared_expert_intermediate_size"])?,
        Family::GraniteMoe => whole("shared_intermediate_size")?.unwrap_or(0),
        _ => 0,
    };
    let in_groups = glm && (!v2 || cfg.text("topk_method")? == Some(BY_GROUPS));
    let groups = if in_groups { whole("n_group")?.unwrap_or(1).max(1) } else { 1 };
    let experts = Experts {
        count: need(&["num_experts", "num_local_experts", "n_routed_experts"])?,
        used: need(&["num_experts_per_tok", "experts_per_token", "top_k_experts"])?,
        width,
        shared,
        sigmoid: glm && !v2 || lfm,
        chosen: family == Family::GptOss,
        limit: limit(family),
        normalise: match family {
            Family::Qwen2Moe | Family::Qwen3Moe => flag("norm_topk_prob", false)?,
            Family::Glm4Moe | Family::Qwen35Moe | Family::Qwen3Next | Family::Lfm2Moe => flag("norm_topk_prob", true)?,
            Family::DeepSeek2 => !v2 && flag("norm_topk_prob", true)?,
            _ => true,
        },
        scale: if glm || lfm { cfg.number("routed_scaling_factor")?.unwrap_or(1.0) as f32 } else { 1.0 },
        groups: if groups > 1 { (groups, need(&["topk_group"])?) } else { (1, 1) },
        dense: match family {
            Family::Glm4Moe => need(&["first_k_dense_replace"])?,
            Family::DeepSeek2 => dense_in_front(cfg)?,
            Family::Lfm2Moe => whole("num_dense_layers")?.unwrap_or(2),
            _ => 0,
        },
    };
    Ok(Some(experts))
}

/// `topk_method` of DeepSeek-V2: experts of the groups with the best ones.
const BY_GROUPS: &str = "group_limited_greedy";

/// What no released model of the family has, or has in a way that no page describes.
fn check_deepseek(cfg: &Fields, v2: bool) -> anyhow::Result<()> {
    let file = cfg.file();
    let methods: &[&str] = if v2 { &["greedy", BY_GROUPS] } else { &["noaux_tc"] };
    for (key, known) in [("topk_method", methods), ("scoring_func", &[if v2 { "softmax" } else { "sigmoid" }])] {
        let found = cfg.text(key)?.unwrap_or(known[0]);
        ensure!(
            known.contains(&found),
            "{file}: {key} = {found:.60} is not supported (supported: {})",
            known.join(", ")
        );
    }
    let sum = cfg.flag("norm_topk_prob")?.unwrap_or(false);
    ensure!(!v2 || !sum, "{file}: norm_topk_prob = true is not supported (supported: false)");
    let every = cfg.whole("moe_layer_freq")?.unwrap_or(1);
    ensure!(every == 1, "{file}: moe_layer_freq = {every} is not supported (supported: 1)");
    Ok(())
}

/// Layers in front without experts: a number, or a list with a word for each layer.
fn dense_in_front(cfg: &Fields) -> anyhow::Result<usize> {
    let file = cfg.file();
    let Some(list) = cfg.list("mlp_layer_types")? else {
        let n =
            cfg.whole("first_k_dense_replace")?.with_context(|| format!("{file}: first_k_dense_replace is missing"))?;
        return usize::try_from(n).with_context(|| format!("{file}: first_k_dense_replace is {n}"));
    };
    let dense = list.iter().take_while(|kind| kind.as_str() == Some("dense")).count();
    let others = list[dense..].iter().all(|kind| kind.as_str() == Some("sparse"));
    ensure!(others, "{file}: mlp_layer_types: layers without experts behind such with them are not supported");
    Ok(dense)
}
