//! ChatGLM2, ChatGLM3 (6B) and GLM-4 (9B), and GLM-4-0414, as a plan.
//!
//! A llama layer with biases on queries, keys and values, of which few key-value heads serve many queries. Query, key and
//! value matrices lie in one tensor, and so do gate and up, each cut by rows when the weights are loaded (transformers'
//! form has the first three apart). Of a head the first half is rotated, in neighbouring pairs, in either kind of file.
//! GLM-4-0414 has norms behind attention and the feed-forward as well, and its matrices may be apart or not.

use super::builder::Builder;

/// One layer: x += attention(norm(x)), x += feed_forward(norm(x)); x `[token][dim]`.
pub(super) fn layer(b: &mut Builder) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let (dim, width, kv_width) = (h.dim, h.heads * h.head_dim, h.kv_heads * h.head_dim);
    let (rows, apart) = ([width, kv_width, kv_width], b.has("attn_q", "weight"));
    b.norm("attn_norm", w.x, w.normed)?;
    let [wq, wk, wv] = if apart {
        [b.matrix("attn_q", dim, width)?, b.matrix("attn_k", dim, kv_width)?, b.matrix("attn_v", dim, kv_width)?]
    } else {
        // rows: the queries of all heads, then the keys, then the values
        b.fused("attn_qkv", dim, rows)?
    };
    b.quantize("attn_act", &[&wq, &wk, &wv], w.normed, w.normed_act);
    b.linear("q", &wq, w.normed, w.normed_act, w.q); //   [token][heads][head_dim]
    b.linear("k", &wk, w.normed, w.normed_act, w.k); //   [token][kv_heads][head_dim]
    b.linear("v", &wv, w.normed, w.normed_act, w.v); //   [token][kv_heads][head_dim]
    // a GGUF file does not say whether there are biases, but by having them
    match (h.qkv_bias.unwrap_or_else(|| b.has(if apart { "attn_q" } else { "attn_qkv" }, "bias")), apart) {
        (false, _) => {}
        (true, false) if wq.holds_bias() => b.leave_bias("attn_qkv"),
        (true, false) => b.fused_bias("attn_qkv", rows, [w.q, w.k, w.v])?,
        (true, true) => {
            b.linear_bias("attn_q", &wq, w.q)?;
            b.linear_bias("attn_k", &wk, w.k)?;
            b.linear_bias("attn_v", &wv, w.v)?;
        }
    }
    b.rope("q_rope", h.heads, w.q);
    b.rope("k_rope", h.kv_heads, w.k);
    b.attend(w.q, w.k, w.v); //                           attended [token][heads][head_dim]
    b.attention_output()?;
    // rows: gate, then up
    b.feed_forward(|b| b.fused("ffn_gate_up", dim, [h.ffn, h.ffn]))
}
