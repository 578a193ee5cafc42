//! The llama architecture (Llama 2/3, Mistral, TinyLlama, SmolLM) as a plan; and SmolLM3, which does not rotate queries and
//! keys in every fourth layer; and Granite, which multiplies embedding, scores, what is added to x, and logits by numbers.
//!
//! Read `layer` top to bottom: it is the model, shapes beside every step.

use super::builder::Builder;

/// One layer: x += attention(norm(x)), x += feed_forward(norm(x)); x `[token][dim]`.
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
    // few have them: those of which a bias was made where outliers were shifted before the model was quantised
    b.optional_bias("attn_q", &wq, w.q)?;
    b.optional_bias("attn_k", &wk, w.k)?;
    b.optional_bias("attn_v", &wv, w.v)?;
    b.rope("q_rope", h.heads, w.q);
    b.rope("k_rope", h.kv_heads, w.k);
    b.attend(w.q, w.k, w.v); //                           attended [token][heads][head_dim]
    b.attention_output()?;
    b.feed_forward(|b| Ok([b.matrix("ffn_gate", dim, h.ffn)?, b.matrix("ffn_up", dim, h.ffn)?]))
}
