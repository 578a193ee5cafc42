//! Encoders as a plan: BERT (bge, MiniLM, e5) and nomic-embed-text.
//!
//! Every token of a text sees all of the text, so a step holds whole texts and nothing is kept between them. The operations
//! are those of decoders: keys and values of the whole text are written to the cache first, and attention is given places in
//! which every token is at the last position of its text (`Built::seen`). So sums go over the text's chunks of 64 positions in
//! their order, whatever else is in the step.
//!
//! Norms are layer norms behind the sums: x = norm(x + attention(x)), x = norm(x + feed_forward(x)), and one after the
//! embedding. So x has two buffers, of which each norm reads one and writes the other.

use super::builder::{Builder, Head, Matrix, PlanOptions, Recent, positions};
use super::error::PlanError;
use super::family::{Family, Rotation};
use super::hyper::{Hyper, RopeScaling, cut, single, usual_scale};
use crate::formats::json::Fields;
use crate::formats::{Container, ContainerKind};
use crate::ops::add_bias::AddBiasParams;
use crate::ops::gelu::GeluParams;
use crate::ops::swiglu::SwigluParams;
use crate::record::{Args, Op, Part, Piece, Role};
use anyhow::{Context, bail, ensure};

/// Types of tokens that a file may have rows for; the released ones have 2.
const MAX_TYPES: u64 = 1 << 16;

/// What is made of the rows of a text's tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pooling {
    /// their mean
    #[default]
    Mean,
    /// the first one's, `[CLS]`
    Cls,
    /// the last one's
    Last,
}

impl Pooling {
    /// By its command-line name.
    pub fn parse(name: &str) -> Option<Pooling> {
        [("mean", Pooling::Mean), ("cls", Pooling::Cls), ("last", Pooling::Last)]
            .into_iter()
            .find(|p| p.0 == name)
            .map(|p| p.1)
    }

    /// `mean`, `cls`, `last`.
    pub fn name(self) -> &'static str {
        match self {
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
            Pooling::Last => "last",
        }
    }

    /// GGUF's number.
    pub fn number(self) -> u32 {
        match self {
            Pooling::Mean => 1,
            Pooling::Cls => 2,
            Pooling::Last => 3,
        }
    }

    /// How the states of an encoder's tokens become a vector, where its file says: `pooling_type` of a GGUF file, and of a
    /// directory what sentence-transformers has beside it, which `formats` puts into the config under that name. `None`: it
    /// does not say, or says that nothing is made of them; decoders are not asked.
    ///
    /// Errors: a way that is not known.
    pub fn of(c: &Container, h: &Hyper) -> anyhow::Result<Option<Pooling>> {
        let file = c.described_by().display();
        if !h.family.is_encoder() {
            return Ok(None);
        }
        if c.kind == ContainerKind::HuggingFace {
            let Some(config) = &c.config else { return Ok(None) };
            let said = Fields::of(&file, config)?.text("pooling_type")?.map(str::to_string);
            return match said.as_deref() {
                None | Some("none") => Ok(None),
                Some(word) => Ok(Some(Pooling::parse(word).with_context(|| {
                    format!("{file}: pooling {} is not supported (supported: mean, cls, last)", cut(word))
                })?)),
            };
        }
        let key = format!("{}.pooling_type", h.family.name());
        match c.meta.uint(&key) {
            None if c.meta.get(&key).is_some() => bail!("{file}: {key} is no whole number"),
            None | Some(0) => Ok(None),
            Some(n) => [Pooling::Mean, Pooling::Cls, Pooling::Last]
                .into_iter()
                .find(|p| u64::from(p.number()) == n)
                .map(Some)
                .with_context(|| format!("{file}: {key} is {n}, which is not supported (supported: 0, 1, 2, 3)")),
        }
    }
}

/// The options of a plan as an encoder needs them: a step holds a whole text and gives a row for each of its tokens.
///
/// Errors: logits are asked for; a copy of recent positions is.
pub(super) fn options(h: &Hyper, o: PlanOptions) -> Result<PlanOptions, PlanError> {
    if !h.family.is_encoder() {
        return Ok(o);
    }
    if o.head == Head::Logits {
        return Err(PlanError::Encoder { arch: h.family.name() });
    }
    if o.recent == Recent::On {
        return Err(PlanError::RecentWhole);
    }
    let ubatch = o.ubatch.max(positions(o.n_ctx));
    Ok(PlanOptions { ubatch, max_out: ubatch, recent: Recent::Off, ..o })
}

/// x = norm(x + row 0 of the types of tokens), x being what the builder has made of ids and positions.
pub(super) fn embedding(b: &mut Builder) -> anyhow::Result<()> {
    let (dim, x) = (b.h.dim, b.work.x);
    if b.has("token_types", "weight") {
        let name = b.name("token_types", "weight");
        let types = b.c.tensor(&name).and_then(|t| t.shape.get(1).copied()).unwrap_or(1);
        ensure!(types <= MAX_TYPES, "tensor {name} has {types} rows, expected at most {MAX_TYPES}");
        let flat = b.c.tensor(&name).is_some_and(|t| t.shape.len() == 1);
        let shape = [dim, types as usize];
        let (tensor, _) = b.claim(&name, if flat { &shape[..1] } else { &shape })?;
        let part = Part::Vector { first: 0, len: dim, less_one: false };
        let row = b.buffer(&format!("{name} row 0"), dim, Role::Weight(vec![Piece { tensor, part }]))?;
        let p = AddBiasParams { n_tokens: 0, dim: dim as u32 };
        b.push("token_types", Op::AddBias, Args::AddBias(p), vec![row, x]);
    }
    b.norm("token_embd_norm", x, b.work.normed)?;
    std::mem::swap(&mut b.work.x, &mut b.work.normed);
    Ok(())
}

/// One layer; x `[token][dim]`: n = norm(x + attention(x)), x = norm(n + feed_forward(n)).
pub(super) fn layer(b: &mut Builder) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let (dim, width) = (h.dim, h.heads * h.head_dim);
    let fused = b.has("attn_qkv", "weight");
    let [wq, wk, wv] = if fused {
        // rows: the queries of all heads, then the keys, then the values
        b.fused("attn_qkv", dim, [width; 3])?
    } else {
        [b.matrix("attn_q", dim, width)?, b.matrix("attn_k", dim, width)?, b.matrix("attn_v", dim, width)?]
    };
    b.quantize("attn_act", &[&wq, &wk, &wv], w.x, w.normed_act);
    b.linear("q", &wq, w.x, w.normed_act, w.q); //   [token][heads][head_dim]
    b.linear("k", &wk, w.x, w.normed_act, w.k);
    b.linear("v", &wv, w.x, w.normed_act, w.v);
    if fused && b.has("attn_qkv", "bias") {
        b.fused_bias("attn_qkv", [width; 3], [w.q, w.k, w.v])?;
    } else {
        b.optional_bias("attn_q", &wq, w.q)?;
        b.optional_bias("attn_k", &wk, w.k)?;
        b.optional_bias("attn_v", &wv, w.v)?;
    }
    b.rope("q_rope", h.heads, w.q);
    b.rope("k_rope", h.kv_heads, w.k);
    b.attend(w.q, w.k, w.v); //                      attended [token][heads][head_dim]
    let wo = b.matrix("attn_output", width, dim)?;
    b.quantize("attended_act", &[&wo], w.attended, w.attended_act);
    b.linear("attn_output", &wo, w.attended, w.attended_act, w.added);
    b.optional_bias("attn_output", &wo, w.added)?;
    b.add("attn_residual", w.added, w.x);
    b.norm("attn_output_norm", w.x, w.normed)?;

    feed_forward(b)?;
    b.add("ffn_residual", w.added, w.normed);
    b.norm("layer_output_norm", w.normed, w.x)
}

/// added = Wdown · gelu(Wup n), or Wdown · (silu(Wgate n) · Wup n).
fn feed_forward(b: &mut Builder) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let p = |dim: usize| (0, dim as u32);
    if h.family.is_gated() {
        let wg: Matrix = b.matrix("ffn_gate", h.dim, h.ffn)?;
        let wu = b.matrix("ffn_up", h.dim, h.ffn)?;
        b.quantize("ffn_act", &[&wg, &wu], w.normed, w.normed_act);
        b.linear("ffn_gate", &wg, w.normed, w.normed_act, w.gate);
        b.linear("ffn_up", &wu, w.normed, w.normed_act, w.up);
        b.optional_bias("ffn_gate", &wg, w.gate)?;
        b.optional_bias("ffn_up", &wu, w.up)?;
        let (n_tokens, dim) = p(h.ffn);
        b.push("swiglu", Op::Swiglu, Args::Swiglu(SwigluParams { n_tokens, dim }), vec![w.gate, w.up, w.mid]);
    } else {
        let wu = b.matrix("ffn_up", h.dim, h.ffn)?;
        b.quantize("ffn_act", &[&wu], w.normed, w.normed_act);
        b.linear("ffn_up", &wu, w.normed, w.normed_act, w.up);
        b.optional_bias("ffn_up", &wu, w.up)?;
        let (n_tokens, dim) = p(h.ffn);
        let gelu = GeluParams { n_tokens, dim, erf: h.family.has_erf().into() };
        b.push("gelu", Op::Gelu, Args::Gelu(gelu), vec![w.up, w.mid]);
    }
    let wd = b.matrix("ffn_down", h.ffn, h.dim)?;
    b.quantize("mid_act", &[&wd], w.mid, w.mid_act);
    b.linear("ffn_down", &wd, w.mid, w.mid_act, w.added);
    b.optional_bias("ffn_down", &wd, w.added)
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

/// The config.json of a BertModel, or of a NomicBertModel: as transformers has it, or as nomic's own code.
pub(super) fn of_config(cfg: &Fields, family: Family) -> anyhow::Result<Hyper> {
    let file = cfg.file();
    let nomic = family == Family::NomicBert;
    let opt = |keys: &[&str]| -> anyhow::Result<Option<usize>> {
        for key in keys {
            if let Some(n) = cfg.whole(key)? {
                let n = usize::try_from(n);
                return Ok(Some(n.with_context(|| format!("{file}: {key} is more than this machine counts"))?));
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
    Ok(Hyper {
        family,
        arch: cfg.text("model_type")?.unwrap_or(family.name()).to_string(),
        name: cfg.text("_name_or_path")?.filter(|s| !s.is_empty()).unwrap_or(family.name()).to_string(),
        layers,
        dim,
        heads,
        kv_heads: heads,
        head_dim,
        n_rot: head_dim,
        guessing: 0,
        ffn,
        experts: None,
        vocab: need(&["vocab_size"])?,
        context: context.min(trained),
        window: None,
        window_layers: vec![],
        eps: eps.unwrap_or(1e-12) as f32,
        attention_scale: usual_scale(family, [layers, dim, heads, head_dim]),
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_divisor: 1.0,
        attention_softcap: 0.0,
        logit_softcap: 0.0,
        rope_base: single(base.unwrap_or(10000.0)),
        rope_scaling: RopeScaling::None,
        local_rope: None,
        rotations: if nomic { vec![] } else { vec![Rotation::None; layers.min(1 << 16)] },
        half_split: true,
        qkv_bias: None,
        tied: None,
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
    for (key, known) in
        [("rotary_emb_fraction", 1.0), ("rotary_emb_scale_base", 0.0), ("num_experts", 0.0), ("moe_every_n_layers", 0.0)]
    {
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
