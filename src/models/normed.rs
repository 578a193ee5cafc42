//! OLMo 2 and 3, EXAONE 4, Gemma 2 and 3 as a plan.
//!
//! A llama layer with norms of queries and keys before they are rotated (of all heads together, or of each; none in Gemma 2), whose own
//! norms are behind attention and the feed-forward, of Gemma before them too. Some layers have a window; which of them are
//! rotated, and by which table, follows from that (`family::Family::rotations`).

use super::builder::Builder;

/// One layer: x += norm(attention(x)), x += norm(feed_forward(x)); x `[token][dim]`.
pub(super) fn layer(b: &mut Builder) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let (dim, width, kv_width) = (h.dim, h.heads * h.head_dim, h.kv_heads * h.head_dim);
    let from = b.norm_before("attn_norm")?; //            [token][dim]
    let wq = b.matrix("attn_q", dim, width)?;
    let wk = b.matrix("attn_k", dim, kv_width)?;
    let wv = b.matrix("attn_v", dim, kv_width)?;
    b.quantize("attn_act", &[&wq, &wk, &wv], from, w.normed_act);
    b.linear("q", &wq, from, w.normed_act, w.q); //       [token][heads][head_dim]
    b.linear("k", &wk, from, w.normed_act, w.k); //       [token][kv_heads][head_dim]
    b.linear("v", &wv, from, w.normed_act, w.v); //       [token][kv_heads][head_dim]
    b.optional_bias("attn_q", &wq, w.q)?;
    b.optional_bias("attn_k", &wk, w.k)?;
    b.optional_bias("attn_v", &wv, w.v)?;
    b.head_norms("attn_q_norm", h.heads, w.q, w.q_normed)?;
    b.head_norms("attn_k_norm", h.kv_heads, w.k, w.k_normed)?;
    b.rope("q_rope", h.heads, w.q_normed);
    b.rope("k_rope", h.kv_heads, w.k_normed);
    b.attend(w.q_normed, w.k_normed, w.v); //             attended [token][heads][head_dim]
    b.attention_output()?;
    b.feed_forward(|b| Ok([b.matrix("ffn_gate", dim, h.ffn)?, b.matrix("ffn_up", dim, h.ffn)?]))
}
