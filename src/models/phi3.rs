//! Phi-3 and Phi-3.5 (mini, medium), and Phi-4 files of the same architecture, as a plan.
//!
//! A llama layer whose query, key and value matrices lie in one tensor, and so do gate and up. They are cut by rows
//! when the weights are loaded, so everything after it is as in `llama`. Rotation is of the first `n_rot` elements of
//! a head (all of them but in Phi-4-mini), in halves, by the longrope table where the file has its factors.

use super::builder::Builder;

/// One layer: x += attention(norm(x)), x += feed_forward(norm(x)); x `[token][dim]`.
pub(super) fn layer(b: &mut Builder) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let (dim, width, kv_width) = (h.dim, h.heads * h.head_dim, h.kv_heads * h.head_dim);
    b.norm("attn_norm", w.x, w.normed)?;
    // rows: the queries of all heads, then the keys, then the values
    let [wq, wk, wv] = b.fused("attn_qkv", dim, [width, kv_width, kv_width])?;
    b.quantize("attn_act", &[&wq, &wk, &wv], w.normed, w.normed_act);
    b.linear("q", &wq, w.normed, w.normed_act, w.q); //   [token][heads][head_dim]
    b.linear("k", &wk, w.normed, w.normed_act, w.k); //   [token][kv_heads][head_dim]
    b.linear("v", &wv, w.normed, w.normed_act, w.v); //   [token][kv_heads][head_dim]
    b.rope("q_rope", h.heads, w.q);
    b.rope("k_rope", h.kv_heads, w.k);
    b.attend(w.q, w.k, w.v); //                           attended [token][heads][head_dim]
    b.attention_output()?;
    // rows: gate, then up
    b.feed_forward(|b| b.fused("ffn_gate_up", dim, [h.ffn, h.ffn]))
}
