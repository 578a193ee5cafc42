//! Decoders with layer norms as a plan: StarCoder2, StableLM, Command R and R7B (Cohere), Phi-2, GPT-2 and Falcon; and
//! ModernBERT, an encoder whose layers are of this kind: the first has no norm before attention, since the embedding has one,
//! and gate and up are one tensor.
//!
//! They differ in whether attention and feed-forward follow each other or go side by side from the same norm (or each from
//! one of its own, Falcon 40B), in biases, in whether the feed-forward has a gate, and in how positions are told: by
//! rotation of all or of a part of a head, in some layers, or by a row added to the embedding (`Builder::new`).

use super::builder::{Builder, Matrix};
use super::family::Family;
use crate::ops::gelu::GeluParams;
use crate::record::{Args, Op};

/// One layer; x `[token][dim]`. Side by side: x += attention(n) + feed_forward(n), n = norm(x); else each from a norm of x,
/// which the first changes.
pub(super) fn layer(b: &mut Builder) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let (dim, width, kv_width) = (h.dim, h.heads * h.head_dim, h.kv_heads * h.head_dim);
    let two = h.family == Family::Falcon && b.has("attn_norm_2", "weight");
    let bare = h.family == Family::ModernBert && b.layer == Some(0) && !b.has("attn_norm", "weight");
    if !bare {
        b.norm(if two { "attn_norm_2" } else { "attn_norm" }, w.x, w.normed)?;
    }
    let from = if bare { w.x } else { w.normed };
    let rows = [width, kv_width, kv_width];
    let fused = b.has("attn_qkv", "weight");
    let [wq, wk, wv] = if fused {
        // rows: the queries of all heads, then the keys, then the values
        b.fused("attn_qkv", dim, rows)?
    } else {
        [b.matrix("attn_q", dim, width)?, b.matrix("attn_k", dim, kv_width)?, b.matrix("attn_v", dim, kv_width)?]
    };
    b.quantize("attn_act", &[&wq, &wk, &wv], from, w.normed_act);
    b.linear("q", &wq, from, w.normed_act, w.q); //       [token][heads][head_dim]
    b.linear("k", &wk, from, w.normed_act, w.k); //       [token][kv_heads][head_dim]
    b.linear("v", &wv, from, w.normed_act, w.v); //       [token][kv_heads][head_dim]
    let first = if fused { "attn_qkv" } else { "attn_q" };
    match (h.qkv_bias.unwrap_or_else(|| b.has(first, "bias")), fused) {
        (false, _) => {}
        (true, true) => b.fused_bias("attn_qkv", rows, [w.q, w.k, w.v])?,
        (true, false) => {
            b.linear_bias("attn_q", &wq, w.q)?;
            b.linear_bias("attn_k", &wk, w.k)?;
            b.linear_bias("attn_v", &wv, w.v)?;
        }
    }
    let (mut q, mut k) = (w.q, w.k);
    if b.has_layer_norms_of_heads() {
        b.head_norms("attn_q_norm", h.heads, q, w.q_normed)?;
        b.head_norms("attn_k_norm", h.kv_heads, k, w.k_normed)?;
        (q, k) = (w.q_normed, w.k_normed);
    }
    b.rope("q_rope", h.heads, q);
    b.rope("k_rope", h.kv_heads, k);
    b.attend(q, k, w.v); //                               attended [token][heads][head_dim]
    let parallel = match h.family {
        Family::StableLm => !b.has("ffn_norm", "weight"),
        family => family.is_parallel(),
    };
    if two {
        // of x as it was before attention
        b.norm("attn_norm", w.x, w.normed)?;
    }
    if h.qkv_bias == Some(true) && !h.family.is_gated() {
        // those of all linears, which are looked for one by one below
        b.need("attn_output", "bias")?;
        b.need("ffn_down", "bias")?;
    }
    b.attention_output()?;
    if !parallel {
        b.norm("ffn_norm", w.x, w.normed)?;
    }
    // what attention had quantised serves the feed-forward too
    let known = parallel && !two && [&wq, &wk, &wv].iter().any(|m| m.meets_blocks());
    if h.family == Family::ModernBert {
        return b.feed_forward_of(w.normed, known, |b| b.fused("ffn_gate_up", dim, [h.ffn, h.ffn]));
    }
    if h.family.is_gated() {
        let (up, gate) = ("ffn_up", "ffn_gate");
        return b.feed_forward_of(w.normed, known, |b| Ok([b.matrix(gate, dim, h.ffn)?, b.matrix(up, dim, h.ffn)?]));
    }
    feed_forward(b, known)
}

/// x += Wdown · gelu(Wup n), n being the norm that was made last.
fn feed_forward(b: &mut Builder, known: bool) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let wu: Matrix = b.matrix("ffn_up", h.dim, h.ffn)?;
    if !known {
        b.quantize("ffn_act", &[&wu], w.normed, w.normed_act);
    }
    b.linear("ffn_up", &wu, w.normed, w.normed_act, w.up);
    bias(b, "ffn_up", &wu, w.up)?;
    let p = GeluParams { n_tokens: 0, dim: h.ffn as u32, erf: u32::from(h.family.has_erf()) };
    b.push("gelu", Op::Gelu, Args::Gelu(p), vec![w.up, w.mid]);
    b.feed_forward_down()
}

/// y += the bias of the linear `what`: that of queries, keys and values says whether there is one.
fn bias(b: &mut Builder, what: &str, m: &Matrix, y: usize) -> anyhow::Result<()> {
    match b.h.qkv_bias {
        Some(true) => b.linear_bias(what, m, y),
        _ => b.optional_bias(what, m, y),
    }
}
