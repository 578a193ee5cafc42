//! DeepSeek V2 and V3, Moonlight and GLM-4.7-Flash as a plan: multi-head latent attention.
//!
//! What is cached of a token is one vector for all heads: the rotated part of its key, then the latent vector that keys and
//! values are made of. The matrix that makes a head's key of the latent vector is applied to the head's query instead, so that
//! the query meets what is cached as it is, and the matrix that makes values of it to what attention gives. Both are one
//! matrix for each head: the linears of experts, head h being the expert of slot h of every token.

use super::builder::{Builder, Input, Latent, Matrix};
use super::experts::Chosen;
use super::mla::Mla;
use crate::ops::copy_columns::CopyColumnsParams;
use crate::ops::expert_order::{ExpertOrderParams, order_words};
use crate::ops::linear::act_words;
use crate::record::{Args, BufId, Op, Role};

/// The epsilon of the norms of what queries, keys and values are made of, whatever a file says of the others.
const EPS: f32 = 1e-6;

/// One layer: x += attention(norm(x)), x += feed_forward(norm(x)); x `[token][dim]`.
pub(super) fn layer(b: &mut Builder, m: &Mla) -> anyhow::Result<()> {
    let h = b.h;
    attention(b, m)?;
    b.feed_forward(|b| Ok([b.matrix("ffn_gate", h.dim, h.ffn)?, b.matrix("ffn_up", h.dim, h.ffn)?]))
}

/// x += Wo · values of every head.
fn attention(b: &mut Builder, m: &Mla) -> anyhow::Result<()> {
    let (h, w, t) = (b.h, b.work, buffers(b, m)?);
    let (heads, width) = (h.heads, h.head_dim);
    b.norm("attn_norm", w.x, w.normed)?;
    let [wc, wr] = b.fused("attn_kv_a_mqa", h.dim, [m.rank, m.rope])?;
    let first = if m.query_rank > 0 { ("attn_q_a", m.query_rank) } else { ("attn_q", heads * m.query()) };
    let wq = b.matrix(first.0, h.dim, first.1)?;
    b.quantize("attn_act", &[&wq, &wc, &wr], w.normed, w.normed_act);
    if m.query_rank > 0 {
        b.linear("q_a", &wq, w.normed, w.normed_act, t.low); //           [token][query_rank]
    } else {
        b.linear("q", &wq, w.normed, w.normed_act, t.queries); //         [token][heads][nope, rope]
    }
    b.linear("latent", &wc, w.normed, w.normed_act, t.latent); //         [token][rank]
    b.linear("k_rope", &wr, w.normed, w.normed_act, t.rotated); //        [token][rope]
    if m.query_rank > 0 {
        b.norm_of("attn_q_a_norm", m.query_rank, EPS, [t.low, t.low_normed])?;
        let wq = b.matrix("attn_q_b", m.query_rank, heads * m.query())?;
        b.quantize("q_a_act", &[&wq], t.low_normed, t.low_act);
        b.linear("q", &wq, t.low_normed, t.low_act, t.queries); //        [token][heads][nope, rope]
    }
    b.norm_of("attn_kv_a_norm", m.rank, EPS, [t.latent, t.latent_normed])?;
    // the key: [rope, rank]
    copy(b, "k_rope_copy", 1, m.rope, (t.rotated, m.rope, 0), (w.k, width, 0))?;
    copy(b, "latent_copy", 1, m.rank, (t.latent_normed, m.rank, 0), (w.k, width, m.rope))?;
    // in every layer, so that a layer needs nothing of another's
    let p = ExpertOrderParams { n_tokens: 0, experts: heads as u32 };
    b.rows_of_heads("head_order", heads, Op::ExpertOrder, Args::ExpertOrder(p), vec![t.ids, t.order])?;
    // the query of each head: [rope, rank]
    copy(b, "q_rope_copy", heads, m.rope, (t.queries, m.query(), m.nope), (w.q, width, 0))?;
    copy(b, "q_copy", heads, m.nope, (t.queries, m.query(), 0), (t.plain, m.nope, 0))?;
    let wk = per_head(b, "attn_k_b", [m.nope, m.rank])?;
    of_heads(b, "q_latent", &wk, &t, [t.plain, t.plain_act], (w.q, width, m.rope))?;
    b.rope("q_rope", heads, w.q);
    b.rope("k_rope", 1, w.k);
    // values are what is cached of keys: the rotated part of what attention gives is left
    b.attend(w.q, w.k, w.k); //                                           attended [token][heads][rope, rank]
    copy(b, "attended_copy", heads, m.rank, (w.attended, width, m.rope), (t.given, m.rank, 0))?;
    let wv = per_head(b, "attn_v_b", [m.rank, m.value])?;
    of_heads(b, "values", &wv, &t, [t.given, t.given_act], (t.values, m.value, 0))?;
    let wo = b.matrix("attn_output", heads * m.value, h.dim)?;
    b.quantize("attended_act", &[&wo], t.values, w.attended_act);
    b.linear("attn_output", &wo, t.values, w.attended_act, w.added);
    b.join("attn_residual", "post_attention_norm")
}

/// Rows of `n` elements, so many of a token, from where they lie in rows of x to where they belong in those of y; each buffer
/// with the words of its rows and the first of these.
fn copy(
    b: &mut Builder,
    label: &str,
    heads: usize,
    n: usize,
    (x, x_stride, x_offset): (BufId, usize, usize),
    (y, y_stride, y_offset): (BufId, usize, usize),
) -> anyhow::Result<()> {
    let [n, x_stride, x_offset, y_stride, y_offset] = [n, x_stride, x_offset, y_stride, y_offset].map(|v| v as u32);
    let p = CopyColumnsParams { n_tokens: 0, n, x_stride, x_offset, y_stride, y_offset };
    b.rows_of_heads(label, heads, Op::CopyColumns, Args::CopyColumns(p), vec![x, y])
}

/// The matrices `what` of all heads, `[head][rows][k]`.
fn per_head(b: &mut Builder, what: &str, [k, rows]: [usize; 2]) -> anyhow::Result<Matrix> {
    b.stack(what, [k, rows], b.h.heads, b.o.packing.layers)
}

/// y = the matrix of each head · x, x `[token][head][k]`, with room for its blocks.
fn of_heads(
    b: &mut Builder,
    label: &str,
    m: &Matrix,
    t: &Latent,
    [x, act]: [BufId; 2],
    (y, stride, first): (BufId, usize, usize),
) -> anyhow::Result<()> {
    if m.input != Input::Floats {
        b.rows = b.base.heads(b.h.heads);
        b.quantize_for(&format!("{label}_act"), m, x, act);
        b.rows = b.base;
    }
    let chosen = Chosen { ids: t.ids, order: t.order, used: b.h.heads, count: b.h.heads };
    b.expert_linear(label, m, [x, act], chosen, (y, stride as u32, first as u32), 1);
    Ok(())
}

/// Makes the buffers when the first layer asks for them.
fn buffers(b: &mut Builder, m: &Mla) -> anyhow::Result<Latent> {
    if let Some(t) = b.latent {
        return Ok(t);
    }
    let (n, heads, digits) = (b.o.ubatch, b.h.heads, b.o.digits);
    let pairs = n * heads;
    let low = m.query_rank.max(1);
    let t = Latent {
        ids: b.buffer("heads", pairs, Role::Counting(heads as u32))?,
        order: b.scratch("head_order", order_words(heads, pairs))?,
        low: b.scratch("q_low", n * low)?,
        low_normed: b.scratch("q_low_normed", n * low)?,
        low_act: b.scratch("q_low_act", n * act_words(low, digits))?,
        queries: b.scratch("queries", pairs * m.query())?,
        plain: b.scratch("q_plain", pairs * m.nope)?,
        plain_act: b.scratch("q_plain_act", pairs * act_words(m.nope, digits))?,
        latent: b.scratch("latent", n * m.rank)?,
        latent_normed: b.scratch("latent_normed", n * m.rank)?,
        rotated: b.scratch("k_rotated", n * m.rope)?,
        given: b.scratch("attended_latent", pairs * m.rank)?,
        given_act: b.scratch("attended_latent_act", pairs * act_words(m.rank, digits))?,
        values: b.scratch("head_values", pairs * m.value)?,
    };
    b.latent = Some(t);
    Ok(t)
}
