//! Encoders as a plan: BERT (bge, MiniLM, e5), RoBERTa and nomic-embed-text. Of others, whose layers are those of decoders
//! (ModernBERT in `layernormed`, EmbeddingGemma in `normed`), what follows holds but for the norms.
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
use super::hyper::{Hyper, cut};
use crate::formats::json::Fields;
use crate::formats::{Container, ContainerKind};
use crate::ops::add_bias::AddBiasParams;
use crate::ops::gelu::GeluParams;
use crate::ops::swiglu::SwigluParams;
use crate::record::{Args, Change, Op, Part, Piece, Role};
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

    /// How the states of a model's tokens become a vector, where its file says: `pooling_type` of a GGUF file, and of a
    /// directory what sentence-transformers has beside it, which `formats` puts into the config under that name. `None`: it
    /// does not say, or says that nothing is made of them.
    ///
    /// Errors: a way that is not known.
    pub fn of(c: &Container, h: &Hyper) -> anyhow::Result<Option<Pooling>> {
        let file = c.described_by().display();
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
        let key = format!("{}.pooling_type", h.arch);
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
        let part = Part::Vector { first: 0, len: dim, change: Change::None };
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
    if h.family.is_gated() {
        let wg: Matrix = b.matrix("ffn_gate", h.dim, h.ffn)?;
        let wu = b.matrix("ffn_up", h.dim, h.ffn)?;
        b.quantize("ffn_act", &[&wg, &wu], w.normed, w.normed_act);
        b.linear("ffn_gate", &wg, w.normed, w.normed_act, w.gate);
        b.linear("ffn_up", &wu, w.normed, w.normed_act, w.up);
        b.optional_bias("ffn_gate", &wg, w.gate)?;
        b.optional_bias("ffn_up", &wu, w.up)?;
        let p = SwigluParams { n_tokens: 0, dim: h.ffn as u32 };
        b.push("swiglu", Op::Swiglu, Args::Swiglu(p), vec![w.gate, w.up, w.mid]);
    } else {
        let wu = b.matrix("ffn_up", h.dim, h.ffn)?;
        b.quantize("ffn_act", &[&wu], w.normed, w.normed_act);
        b.linear("ffn_up", &wu, w.normed, w.normed_act, w.up);
        b.optional_bias("ffn_up", &wu, w.up)?;
        let p = GeluParams { n_tokens: 0, dim: h.ffn as u32, erf: h.family.has_erf().into() };
        b.push("gelu", Op::Gelu, Args::Gelu(p), vec![w.up, w.mid]);
    }
    let wd = b.matrix("ffn_down", h.ffn, h.dim)?;
    b.quantize("mid_act", &[&wd], w.mid, w.mid_act);
    b.linear("ffn_down", &wd, w.mid, w.mid_act, w.added);
    b.optional_bias("ffn_down", &wd, w.added)
}
