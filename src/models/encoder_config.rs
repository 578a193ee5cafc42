//! What a file says of an encoder: the config.json of a directory, and keys of a GGUF file that would make it something else.

use super::family::Family;
use crate::formats::Container;
use crate::formats::json::Fields;
use anyhow::{Context, ensure};

/// Text from a file, cut to a length that fits an error line.
fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

/// The shape of a directory's encoder.
pub(super) struct EncoderShape {
    pub name: String,
    pub layers: usize,
    pub dim: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub ffn: usize,
    pub vocab: usize,
    pub context: usize,
    pub eps: f64,
    /// of one that rotates
    pub rope_base: Option<f64>,
}

/// Refuses a GGUF file of an encoder that says it is something else.
pub(super) fn check_keys(c: &Container, family: Family) -> anyhow::Result<()> {
    let file = c.described_by().display();
    if !family.is_encoder() {
        return Ok(());
    }
    let key = format!("{}.attention.causal", family.name());
    let causal: Option<bool> = c.meta.typed(&key).with_context(|| file.to_string())?;
    ensure!(causal != Some(true), "{file}: {key} is true, which is not supported (supported: false)");
    let experts = format!("{}.expert_count", family.name());
    ensure!(
        c.meta.uint(&experts).unwrap_or(0) == 0,
        "{file}: {experts}: encoders with experts are not supported (supported: none)"
    );
    Ok(())
}

/// The config.json of a BertModel, of a RobertaModel (whose positions `formats` has counted), or of a NomicBertModel: as
/// transformers has it, or as nomic's own code.
pub(super) fn of_config(cfg: &Fields, family: Family) -> anyhow::Result<EncoderShape> {
    let file = cfg.file();
    let nomic = family == Family::NomicBert;
    let opt = |keys: &[&str]| -> anyhow::Result<Option<usize>> {
        for key in keys {
            if let Some(n) = cfg.size(key)? {
                return Ok(Some(n));
            }
        }
        Ok(None)
    };
    let need = |keys: &[&str]| opt(keys)?.with_context(|| format!("{file}: {} is missing", keys[0]));
    check_fields(cfg, nomic)?;
    let (dim, heads) = (need(&["hidden_size", "n_embd"])?, need(&["num_attention_heads", "n_head"])?);
    ensure!(heads > 0, "{file}: num_attention_heads is 0");
    let head_dim = opt(&["head_dim"])?.filter(|_| nomic).unwrap_or(dim / heads);
    let layers = need(&["num_hidden_layers", "n_layer"])?;
    let context = need(&["max_position_embeddings", "n_positions"])?;
    // nomic's own code knows how to go further than it was trained, which the vectors lose by
    let trained = opt(&["max_trained_positions"])?.filter(|n| nomic && *n > 0).unwrap_or(context);
    let ffn = match opt(&["intermediate_size", "n_inner"])? {
        None if nomic => dim.saturating_mul(4),
        ffn => ffn.with_context(|| format!("{file}: intermediate_size is missing"))?,
    };
    let rope = cfg.object("rope_parameters")?.unwrap_or(Fields::none(file));
    let kind = rope.text("rope_type")?.unwrap_or("default");
    ensure!(kind == "default", "{file}: RoPE scaling of type {} is not supported (supported: default)", cut(kind));
    let base = match (rope.number("rope_theta")?, cfg.number("rotary_emb_base")?) {
        _ if !nomic => None,
        (Some(base), _) | (None, Some(base)) => Some(base),
        // as transformers has it
        (None, None) => Some(1000.0),
    };
    let eps = match cfg.number("layer_norm_eps")? {
        None => cfg.number("layer_norm_epsilon")?,
        eps => eps,
    };
    Ok(EncoderShape {
        name: cfg.text("_name_or_path")?.filter(|s| !s.is_empty()).unwrap_or(family.name()).to_string(),
        layers,
        dim,
        heads,
        head_dim,
        ffn,
        vocab: need(&["vocab_size"])?,
        context: context.min(trained),
        eps: eps.unwrap_or(1e-12),
        rope_base: base,
    })
}

/// Refuses what a config turns on that no released model of these has.
fn check_fields(cfg: &Fields, nomic: bool) -> anyhow::Result<()> {
    let file = cfg.file();
    for (key, wanted, default) in [
        ("is_decoder", false, false),
        ("add_cross_attention", false, false),
        ("prenorm", false, false),
        ("causal", false, false),
        ("rotary_emb_interleaved", false, false),
        ("use_rms_norm", false, false),
        ("parallel_block", false, false),
    ] {
        let found = cfg.flag(key)?.unwrap_or(default);
        ensure!(found == wanted, "{file}: {key} = {found} is not supported (supported: {wanted})");
    }
    let positions = cfg.text("position_embedding_type")?.unwrap_or("absolute");
    ensure!(
        positions == "absolute",
        "{file}: position_embedding_type {} is not supported (supported: absolute)",
        cut(positions)
    );
    for (key, known) in [
        ("rotary_emb_fraction", 1.0),
        ("rotary_emb_scale_base", 0.0),
        ("num_experts", 0.0),
        ("moe_every_n_layers", 0.0),
    ] {
        let found = cfg.number(key)?.unwrap_or(known);
        ensure!(found == known, "{file}: {key} = {found:?} is not supported (supported: {known:?})");
    }
    let (key, known): (&str, &[&str]) = match (nomic, cfg.get("activation_function").is_some()) {
        (true, true) => ("activation_function", &["swiglu"]),
        (true, false) => ("hidden_act", &["silu"]),
        (false, _) => ("hidden_act", &["gelu"]),
    };
    let act = cfg.text(key)?.unwrap_or(known[0]);
    ensure!(known.contains(&act), "{file}: {key} {} is not supported (supported: {})", cut(act), known.join(", "));
    Ok(())
}
