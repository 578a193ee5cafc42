//! GLM-4.5 and GLM-4.6 as a plan.
//!
//! A llama layer with biases on queries, keys and values, norms of each head where the file has them, and half of a head
//! rotated, in halves in either kind of file. All layers but the first have experts, which `feed_forward` sees to.

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
    // a GGUF file does not say whether there are biases, but by having them
    if h.qkv_bias.unwrap_or_else(|| b.has("attn_q", "bias")) {
        b.linear_bias("attn_q", &wq, w.q)?;
        b.linear_bias("attn_k", &wk, w.k)?;
        b.linear_bias("attn_v", &wv, w.v)?;
    }
    let (mut q, mut k) = (w.q, w.k);
    if b.has("attn_q_norm", "weight") {
        b.head_norms("attn_q_norm", h.heads, w.q, w.q_normed)?;
        b.head_norms("attn_k_norm", h.kv_heads, w.k, w.k_normed)?;
        (q, k) = (w.q_normed, w.k_normed);
    }
    b.rope("q_rope", h.heads, q);
    b.rope("k_rope", h.kv_heads, k);
    b.attend(q, k, w.v); //                               attended [token][heads][head_dim]
    b.attention_output()?;
    b.feed_forward(|b| Ok([b.matrix("ffn_gate", dim, h.ffn)?, b.matrix("ffn_up", dim, h.ffn)?]))
}
