//! Qwen2, Qwen2.5 and Qwen3, dense or of experts, as a plan.
//!
//! Qwen2 is a llama layer with biases on queries, keys and values. Qwen3 has no biases, but an RMS norm over each head
//! of queries and keys before they are rotated, and heads whose width is not tied to the model's. Both rotate in halves
//! in either kind of file.

use super::builder::Builder;
use super::family::Family;

/// One layer: x += attention(norm(x)), x += feed_forward(norm(x)); x `[token][dim]`.
pub(super) fn layer(b: &mut Builder) -> anyhow::Result<()> {
    attention(b)?;
    let h = b.h;
    b.feed_forward(|b| Ok([b.matrix("ffn_gate", h.dim, h.ffn)?, b.matrix("ffn_up", h.dim, h.ffn)?]))
}

/// x += attention(norm(x)); x `[token][dim]`.
pub(super) fn attention(b: &mut Builder) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let (dim, width, kv_width) = (h.dim, h.heads * h.head_dim, h.kv_heads * h.head_dim);
    b.norm("attn_norm", w.x, w.normed)?;
    let wq = b.matrix("attn_q", dim, width)?;
    let wk = b.matrix("attn_k", dim, kv_width)?;
    let wv = b.matrix("attn_v", dim, kv_width)?;
    b.quantize("attn_act", &[&wq, &wk, &wv], w.normed, w.normed_act);
    b.linear("q", &wq, w.normed, w.normed_act, w.q); //   [token][heads][head_dim]
    b.linear("k", &wk, w.normed, w.normed_act, w.k); //   [token][kv_heads][head_dim]
    b.linear("v", &wv, w.normed, w.normed_act, w.v); //   [token][kv_heads][head_dim]
    if matches!(h.family, Family::Qwen2 | Family::Qwen2Moe) {
        b.linear_bias("attn_q", &wq, w.q)?;
        b.linear_bias("attn_k", &wk, w.k)?;
        b.linear_bias("attn_v", &wv, w.v)?;
    } else {
        b.head_norms("attn_q_norm", h.heads, w.q, w.q_normed)?;
        b.head_norms("attn_k_norm", h.kv_heads, w.k, w.k_normed)?;
    }
    b.rope("q_rope", h.heads, w.q_normed);
    b.rope("k_rope", h.kv_heads, w.k_normed);
    b.attend(w.q_normed, w.k_normed, w.v); //             attended [token][heads][head_dim]
    b.attention_output()
}
