//! Gemma 4 as a plan: its text.
//!
//! A Gemma 3 layer whose heads are of one size in layers with a window and of another in those without, with a norm of values
//! that has no weights. The last layers of the small models have no keys and values of their own and read those of an earlier
//! layer, so that they are computed for the tokens alone whose logits are wanted; a token has a vector for each layer there
//! (`per_layer`). In the model of experts these stand beside the feed-forward: each starts from a norm of its own of x, and
//! what they give is added up behind another.

use super::builder::{Builder, Gemma};
use super::mixture::Experts;
use super::per_layer;
use crate::record::{Role, Rows};
use anyhow::Context;

/// One layer: x += norm(attention(norm(x))), x += norm(feed_forward(norm(x))), x += its part of the token's vector; then x
/// times the layer's number. x `[token][dim]`.
pub(super) fn layer(b: &mut Builder) -> anyhow::Result<()> {
    let (h, l) = (b.h, b.layer.unwrap_or(0));
    let mut t = b.gemma.context("a layer of Gemma 4 before its buffers")?;
    if h.read_of(l).is_some() && b.base == Rows::Tokens {
        let vectors = t.vectors.map(|id| ("wanted_per_layer", h.layers * h.uneven.embedding, id));
        t.vectors = b.go_on_with_wanted(vectors.as_slice())?.pop();
        b.gemma = Some(t);
    }
    b.norm("attn_norm", b.work.x, b.work.normed)?;
    attended(b)?;
    b.attention_output()?;
    match h.experts_of(l) {
        None => {
            feed_forward(b)?;
            b.feed_forward_down()?;
        }
        Some(e) => experts_beside(b, e)?,
    }
    if let Some(vectors) = b.gemma.and_then(|t| t.vectors) {
        per_layer::join(b, vectors)?;
    }
    if let Some(by) = b.number("layer_output_scale")? {
        b.scale("layer_output_scale", by, h.dim, b.work.x);
    }
    Ok(())
}

/// attended = attention(normed), of a layer that has keys and values of its own or reads those of an earlier one.
pub(super) fn attended(b: &mut Builder) -> anyhow::Result<()> {
    let (h, w, own) = (b.h, b.work, b.heads());
    let t = b.gemma.context("a layer of Gemma 4 before its buffers")?;
    let (width, kv_width) = (h.heads * own.head_dim, own.kv_heads * own.head_dim);
    let wq = b.matrix("attn_q", h.dim, width)?;
    if b.layer.is_some_and(|l| h.read_of(l).is_some()) {
        b.quantize("attn_act", &[&wq], w.normed, w.normed_act);
        b.linear("q", &wq, w.normed, w.normed_act, w.q); //    [token][heads][head_dim]
        b.head_norms("attn_q_norm", h.heads, w.q, w.q_normed)?;
        b.rope("q_rope", h.heads, w.q_normed);
        // a file may have them all the same
        for what in ["attn_k", "attn_k_norm", "attn_v"] {
            b.leave(what);
        }
        b.attend_earlier(w.q_normed); //                       attended [token][heads][head_dim]
        return Ok(());
    }
    let wk = b.matrix("attn_k", h.dim, kv_width)?;
    // values may be the keys before their norm
    let wv = if b.has("attn_v", "weight") { Some(b.matrix("attn_v", h.dim, kv_width)?) } else { None };
    let readers: Vec<_> = [&wq, &wk].into_iter().chain(&wv).collect();
    b.quantize("attn_act", &readers, w.normed, w.normed_act);
    b.linear("q", &wq, w.normed, w.normed_act, w.q); //        [token][heads][head_dim]
    b.linear("k", &wk, w.normed, w.normed_act, w.k); //        [token][kv_heads][head_dim]
    if let Some(wv) = &wv {
        b.linear("v", wv, w.normed, w.normed_act, w.v); //     [token][kv_heads][head_dim]
    }
    b.head_norms("attn_q_norm", h.heads, w.q, w.q_normed)?;
    b.head_norms("attn_k_norm", own.kv_heads, w.k, w.k_normed)?;
    let values = if wv.is_some() { w.v } else { w.k };
    let ones = t.ones[usize::from(b.layer.is_some_and(|l| h.window_of(l).is_some()))];
    b.norm_by("attn_v_norm", ones, (own.kv_heads, own.head_dim), [values, t.v_normed])?;
    b.rope("q_rope", h.heads, w.q_normed);
    b.rope("k_rope", own.kv_heads, w.k_normed);
    b.attend(w.q_normed, w.k_normed, t.v_normed); //           attended [token][heads][head_dim]
    Ok(())
}

/// mid = gelu(Wgate n) · Wup n, n = norm(x).
fn feed_forward(b: &mut Builder) -> anyhow::Result<()> {
    let (h, ffn) = (b.h, b.h.ffn_of(b.layer.unwrap_or(0)));
    let from = b.norm_before("ffn_norm")?;
    b.gated(from, false, |b| Ok([b.matrix("ffn_gate", h.dim, ffn)?, b.matrix("ffn_up", h.dim, ffn)?]))
}

/// x += norm(norm(feed_forward(norm(x))) + norm(experts(norm(x)))); the router goes by a norm of x without weights, times a
/// vector and 1/sqrt(dim).
fn experts_beside(b: &mut Builder, e: &Experts) -> anyhow::Result<()> {
    let (h, w, m) = (b.h, b.work, b.buffers_of(e)?);
    feed_forward(b)?;
    b.down()?;
    b.norm("post_ffw_norm_1", w.added, m.shared)?;
    let scale = b.vector("ffn_gate_inp", "scale", h.dim)?;
    b.norm_with("router_norm", scale, (h.dim, b.eps()), [w.x, w.normed]);
    b.scale("router_scale", (1.0 / libm::sqrt(h.dim as f64)) as f32, h.dim, w.normed);
    let router = b.matrix("ffn_gate_inp", h.dim, e.count)?;
    b.quantize("router_act", &[&router], w.normed, w.normed_act);
    b.linear("router_logits", &router, w.normed, w.normed_act, m.logits); //  [token][expert]
    b.route(e, &m)?;
    let [wg, wu] = b.gate_up_of(e)?;
    let wd = b.stack("ffn_down_exps", [e.width, h.dim], e.count, b.of_experts())?;
    b.norm("pre_ffw_norm_2", w.x, w.normed)?;
    b.quantize("ffn_act", &[&wg, &wu], w.normed, w.normed_act);
    b.sum_of_experts(e, [&wg, &wu, &wd], [w.normed, w.normed_act], &m)?;
    b.norm("post_ffw_norm_2", w.added, w.normed)?;
    b.add("expert_add", w.normed, m.shared); //                                [token][dim]
    b.norm("post_ffw_norm", m.shared, w.normed)?;
    b.add("ffn_residual", w.normed, w.x);
    b.expert_layers += 1;
    Ok(())
}

/// Makes the buffers and, where a token has a vector for each layer, these. Before the first layer.
pub(super) fn before(b: &mut Builder) -> anyhow::Result<()> {
    let (h, n) = (b.h, b.o.ubatch);
    let local_dim = h.uneven.local.map_or(h.head_dim, |l| l.head_dim);
    let ones = [
        b.buffer("ones", h.head_dim, Role::Constant(1.0))?,
        b.buffer("ones_of_windows", local_dim, Role::Constant(1.0))?,
    ];
    b.gemma = Some(Gemma {
        ones,
        v_normed: b.scratch("v_normed", n * h.widest_kv())?,
        vectors: if h.uneven.embedding > 0 { Some(per_layer::vectors(b)?) } else { None },
    });
    Ok(())
}
