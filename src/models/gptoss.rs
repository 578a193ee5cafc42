//! gpt-oss as a plan.
//!
//! A llama layer with biases everywhere, rotated in halves in either kind of file, whose heads have sinks, and every other of
//! which, from the first on, has a window. All layers have experts, which `feed_forward` sees to.

use super::builder::Builder;

/// One layer: x += attention(norm(x)), x += experts(norm(x)); x `[token][dim]`.
pub(super) fn layer(b: &mut Builder) -> anyhow::Result<()> {
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
    if h.qkv_bias.unwrap_or_else(|| b.has("attn_q", "bias")) {
        b.linear_bias("attn_q", &wq, w.q)?;
        b.linear_bias("attn_k", &wk, w.k)?;
        b.linear_bias("attn_v", &wv, w.v)?;
    }
    b.rope("q_rope", h.heads, w.q);
    b.rope("k_rope", h.kv_heads, w.k);
    b.sinks()?;
    b.attend(w.q, w.k, w.v); //                           attended [token][heads][head_dim]
    b.attention_output()?;
    b.feed_forward(|b| Ok([b.matrix("ffn_gate", dim, h.ffn)?, b.matrix("ffn_up", dim, h.ffn)?]))
}
