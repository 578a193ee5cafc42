//! Gemma 3n as a plan: its text.
//!
//! A token has four streams. One of them, x, is what layers work on; the others are predicted before a layer, of all four, and
//! corrected after it by what it changed (`altup_predict`, `altup_correct`). In both the coefficients are made of a router's
//! view of one stream. The layer is a Gemma 3's whose values have a norm without weights, with a second way beside attention,
//! two matrices of low rank (LAuReL), and a token's vector for each layer (`per_layer`), which goes to the other streams alone.
//! Gates of the first layers stay only above a bound of their own (`gaussian_topk`). The last layers read keys and values of
//! earlier ones, and are computed for the tokens alone whose logits are wanted.

use super::builder::{Builder, Gemma, Matrix, Streams};
use super::{gemma4, per_layer};
use crate::ops::altup_add::AltupAddParams;
use crate::ops::altup_correct::AltupCorrectParams;
use crate::ops::altup_predict::{AltupPredictParams, OTHERS, STREAMS};
use crate::ops::altup_rescale::AltupRescaleParams;
use crate::ops::copy_columns::CopyColumnsParams;
use crate::ops::expert_combine::ExpertCombineParams;
use crate::ops::gaussian_topk::GaussianTopkParams;
use crate::ops::geglu::GegluParams;
use crate::ops::linear::act_words;
use crate::ops::select_rows::SelectRowsParams;
use crate::ops::softcap::SoftcapParams;
use crate::record::{Args, BufId, Op, Role, Rows};
use anyhow::Context;

/// Makes the buffers and the other streams: Pi · x, as large as x. Before the first layer.
pub(super) fn before(b: &mut Builder) -> anyhow::Result<()> {
    gemma4::before(b)?;
    let (h, w, n) = (b.h, b.work, b.o.ubatch);
    let rank = h.uneven.altup.as_ref().context("a Gemma 3n without its sizes")?.rank;
    let s = Streams {
        others: b.scratch("streams", n * OTHERS * h.dim)?,
        seen: b.scratch("altup_router", n * STREAMS)?,
        shares: b.scratch("altup_coefficients", n * STREAMS * STREAMS)?,
        z: b.scratch("altup_active", n * h.dim)?,
        low: b.scratch("laurel_low", n * rank)?,
        low_act: b.scratch("laurel_low_act", n * act_words(rank, b.o.digits))?,
        laurel: b.scratch("laurel", n * h.dim)?,
        rank,
        merge,
    };
    b.streams = Some(s);
    let all = b.stacked_rows("altup_proj", [h.dim, h.dim, OTHERS], 0..OTHERS)?;
    b.quantize("altup_proj_act", &[&all], w.x, w.normed_act);
    b.linear("altup_proj", &all, w.x, w.normed_act, s.others); //     [token][3][dim]
    rescale(b, w.x, s.others);
    Ok(())
}

/// One layer, as the reference has it; x `[token][dim]`, others `[token][3][dim]`.
pub(super) fn layer(b: &mut Builder) -> anyhow::Result<()> {
    let h = b.h;
    let mut s = b.streams.context("a layer of Gemma 3n before its streams")?;
    let mut vectors = b.gemma.and_then(|g| g.vectors).context("a Gemma 3n without vectors of its tokens")?;
    if b.layer.is_some_and(|l| h.read_of(l).is_some()) && b.base == Rows::Tokens {
        let width = h.layers * h.uneven.embedding;
        let kept = [("wanted_per_layer", width, vectors), ("wanted_streams", OTHERS * h.dim, s.others)];
        let kept = b.go_on_with_wanted(&kept)?;
        (vectors, s.others) = (kept[0], kept[1]);
        (b.streams, b.gemma) = (Some(s), b.gemma.map(|g| Gemma { vectors: Some(vectors), ..g }));
    }
    let w = b.work;
    let router = (b.norm_weights("altup_router_norm", h.dim)?, b.matrix("altup_router", h.dim, STREAMS)?);
    shares(b, "altup_predict", &router, w.x, STREAMS * STREAMS)?;
    let p = AltupPredictParams { n_tokens: 0, dim: h.dim as u32 };
    b.push("altup_predict", Op::AltupPredict, Args::AltupPredict(p), vec![s.shares, w.x, s.others]);

    // z = (x + norm(attention(h)) + h + norm(Lr · Ll · h)) / sqrt(2), h = norm(x)
    b.norm("attn_norm", w.x, w.normed)?;
    laurel(b, &s)?;
    gemma4::attended(b)?;
    b.attention_given()?;
    b.norm("post_attention_norm", w.added, s.z)?;
    b.add("attn_residual", w.x, s.z);
    b.add("laurel_residual", s.laurel, s.z);
    b.scale("laurel_scale", std::f32::consts::FRAC_1_SQRT_2, h.dim, s.z);

    // z += norm(feed_forward(norm(z)))
    b.norm("ffn_norm", s.z, w.normed)?;
    feed_forward(b)?;
    b.norm("post_ffw_norm", w.added, w.normed)?;
    b.add("ffn_residual", w.normed, s.z);

    shares(b, "altup_correct", &router, s.z, STREAMS)?;
    let scale = b.vector("altup_correct_scale", "weight", h.dim)?;
    let p = AltupCorrectParams { n_tokens: 0, dim: h.dim as u32 };
    let binds = vec![s.shares, scale, s.z, w.x, s.others];
    b.push("altup_correct", Op::AltupCorrect, Args::AltupCorrect(p), binds);

    per_layer::given(b, vectors, s.z)?;
    let p = AltupAddParams { n_tokens: 0, dim: h.dim as u32 };
    b.push("per_layer_residual", Op::AltupAdd, Args::AltupAdd(p), vec![w.normed, s.others]);
    Ok(())
}

/// shares = Wc · tanh(Wr · norm(x) / dim), so many of them, `[token][rows]`; the router: weights of its norm, and Wr.
fn shares(b: &mut Builder, what: &str, router: &(BufId, Matrix), x: BufId, rows: usize) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let s = b.streams.context("a router before its buffers")?;
    let (norm, wr) = router;
    b.norm_with(&format!("{what}_norm"), *norm, (h.dim, b.eps()), [x, w.normed]);
    b.quantize(&format!("{what}_act"), &[wr], w.normed, w.normed_act);
    b.linear(&format!("{what}_router"), wr, w.normed, w.normed_act, s.seen);
    // what the reference divides by in front of the matrix
    let p = SoftcapParams { n_tokens: 0, dim: STREAMS as u32, cap: 1.0, inv_cap: (1.0 / h.dim as f64) as f32 };
    b.push(&format!("{what}_tanh"), Op::Softcap, Args::Softcap(p), vec![s.seen]);
    let wc = b.matrix(&format!("{what}_coef"), STREAMS, rows)?;
    b.quantize(&format!("{what}_coef_act"), &[&wc], s.seen, w.normed_act);
    b.linear(&format!("{what}_coef"), &wc, s.seen, w.normed_act, s.shares);
    Ok(())
}

/// laurel = normed + norm(Lr · Ll · normed).
fn laurel(b: &mut Builder, s: &Streams) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let left = b.matrix("laurel_l", h.dim, s.rank)?;
    b.quantize("laurel_l_act", &[&left], w.normed, w.normed_act);
    b.linear("laurel_l", &left, w.normed, w.normed_act, s.low);
    let right = b.matrix("laurel_r", s.rank, h.dim)?;
    b.quantize("laurel_r_act", &[&right], s.low, s.low_act);
    b.linear("laurel_r", &right, s.low, s.low_act, w.added);
    b.norm("laurel_post_norm", w.added, s.laurel)?;
    b.add("laurel", w.normed, s.laurel);
    Ok(())
}

/// added = Wd · (gelu(g) · Wu · normed), g = Wg · normed, of which in some layers what is above a bound stays.
fn feed_forward(b: &mut Builder) -> anyhow::Result<()> {
    let (h, w, l) = (b.h, b.work, b.layer.unwrap_or(0));
    let (ffn, bound) = (h.ffn_of(l), h.uneven.altup.as_ref().and_then(|a| a.bounds.get(l).copied().flatten()));
    let Some(factor) = bound else {
        b.gated(w.normed, false, |b| Ok([b.matrix("ffn_gate", h.dim, ffn)?, b.matrix("ffn_up", h.dim, ffn)?]))?;
        return b.down();
    };
    let (wg, wu) = (b.matrix("ffn_gate", h.dim, ffn)?, b.matrix("ffn_up", h.dim, ffn)?);
    b.quantize("ffn_act", &[&wg, &wu], w.normed, w.normed_act);
    b.linear("ffn_gate", &wg, w.normed, w.normed_act, w.gate);
    b.linear("ffn_up", &wu, w.normed, w.normed_act, w.up);
    let p = GaussianTopkParams { n_tokens: 0, dim: ffn as u32, inv_n: (1.0 / ffn as f64) as f32, factor };
    b.push("ffn_topk", Op::GaussianTopk, Args::GaussianTopk(p), vec![w.gate]);
    let p = GegluParams { n_tokens: 0, dim: ffn as u32, erf: 0 };
    b.push("geglu", Op::Geglu, Args::Geglu(p), vec![w.gate, w.up, w.mid]);
    b.down()
}

/// Makes the others as large as x.
fn rescale(b: &mut Builder, x: BufId, others: BufId) {
    let dim = b.h.dim;
    let p = AltupRescaleParams { n_tokens: 0, dim: dim as u32, inv_n: (1.0 / dim as f64) as f32 };
    b.push("altup_rescale", Op::AltupRescale, Args::AltupRescale(p), vec![x, others]);
}

/// chosen = the mean of x and Ui · others, made as large as x, of the rows that a step gives; chosen holds x of these.
fn merge(b: &mut Builder, s: &Streams, chosen: BufId) -> anyhow::Result<()> {
    let (h, r, width) = (b.h, b.o.max_out, OTHERS * b.h.dim);
    let (merged, one) = (b.scratch("merged_streams", r * width)?, b.scratch("chosen_stream", r * h.dim)?);
    let act = b.scratch("chosen_stream_act", r * act_words(h.dim, b.o.digits))?;
    let mut others = s.others;
    if b.base == Rows::Tokens {
        others = b.scratch("chosen_streams", r * width)?;
        let p = SelectRowsParams { n_tokens: 0, dim: width as u32, first: 0 };
        b.push("select_streams", Op::SelectRows, Args::SelectRows(p), vec![s.others, others]);
    }
    let mut scale = 1.0;
    for i in 0..OTHERS {
        let [n, x_stride, x_offset] = [h.dim, width, i * h.dim].map(|v| v as u32);
        let p = CopyColumnsParams { n_tokens: 0, n, x_stride, x_offset, y_stride: n, y_offset: 0 };
        b.push("stream", Op::CopyColumns, Args::CopyColumns(p), vec![others, one]);
        let m = b.stacked_rows("altup_unembd_proj", [h.dim, h.dim, OTHERS], i..i + 1)?;
        b.quantize("altup_unembd_proj_act", &[&m], one, act);
        b.linear_into("altup_unembd_proj", &m, [one, act, merged], width, i * h.dim);
        scale = m.one_scale();
    }
    b.scale("altup_unembd_proj_scale", scale, width, merged);
    rescale(b, chosen, merged);
    let ones = b.buffer("stream_weights", r * OTHERS, Role::Constant(1.0))?;
    let p = ExpertCombineParams { n_tokens: 0, dim: h.dim as u32, used: OTHERS as u32, residual: 1 };
    b.push("merge_streams", Op::ExpertCombine, Args::ExpertCombine(p), vec![merged, ones, chosen]);
    b.scale("mean_of_streams", 1.0 / STREAMS as f32, h.dim, chosen);
    Ok(())
}
