//! Qwen3.5 and Qwen3-Next, dense or of experts, as a plan.
//!
//! Three layers in four are recurrent: a gated delta net, which remembers a matrix for each value head instead of keys and
//! values of all positions. The fourth is a Qwen3 layer of attention whose result goes through a gate of its own, and of
//! whose heads a quarter is rotated. What a recurrent layer remembers lies in slots of a state (`ops::strands`).

use super::builder::{Builder, Hybrid, Matrix};
use super::delta::Delta;
use super::error::PlanError;
use crate::blocks::{BlockType, pack};
use crate::ops::conv_silu::{ConvSiluParams, KEPT, TAPS};
use crate::ops::delta_rule::DeltaRuleParams;
use crate::ops::gdn_gates::GdnGatesParams;
use crate::ops::linear::{ROW_BLOCK, act_words};
use crate::ops::rms_norm::RmsNormParams;
use crate::ops::sigmoid_gate::SigmoidGateParams;
use crate::ops::swiglu::SwigluParams;
use crate::record::{Args, BufId, Change, Op, Part, Piece, Role};
use anyhow::ensure;
use std::ops::Range;

/// Under the root of a norm of queries and keys: of the sum of squares, not of their mean.
const EPS: f64 = 1e-6;

/// One layer: x += attention or delta net of norm(x), x += feed_forward(norm(x)); x `[token][dim]`.
pub(super) fn layer(b: &mut Builder) -> anyhow::Result<()> {
    let (h, l) = (b.h, b.layer.unwrap_or_default());
    let from = b.norm_before("attn_norm")?;
    match h.delta_of(l) {
        Some(d) => delta_net(b, d, from)?,
        None => attention(b, from)?,
    }
    b.feed_forward(|b| Ok([b.matrix("ffn_gate", h.dim, h.ffn)?, b.matrix("ffn_up", h.dim, h.ffn)?]))
}

/// x += Wo · (attention · sigmoid(gate)), the rows of queries and of gates taking turns in one tensor, head by head.
fn attention(b: &mut Builder, from: BufId) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let m = buffers(b)?;
    let (dim, width, kv_width) = (h.dim, h.heads * h.head_dim, h.kv_heads * h.head_dim);
    let [wq, wg] = turns(b, "attn_q", dim, h.heads, [h.head_dim, h.head_dim])?;
    let wk = b.matrix("attn_k", dim, kv_width)?;
    let wv = b.matrix("attn_v", dim, kv_width)?;
    b.quantize("attn_act", &[&wq, &wg, &wk, &wv], from, w.normed_act);
    b.linear("attn_gate", &wg, from, w.normed_act, m.attn_gate); // [token][heads][head_dim]
    b.linear("q", &wq, from, w.normed_act, w.q); //                 [token][heads][head_dim]
    b.linear("k", &wk, from, w.normed_act, w.k); //                 [token][kv_heads][head_dim]
    b.linear("v", &wv, from, w.normed_act, w.v); //                 [token][kv_heads][head_dim]
    b.head_norms("attn_q_norm", h.heads, w.q, w.q_normed)?;
    b.head_norms("attn_k_norm", h.kv_heads, w.k, w.k_normed)?;
    b.rope("q_rope", h.heads, w.q_normed);
    b.rope("k_rope", h.kv_heads, w.k_normed);
    b.attend(w.q_normed, w.k_normed, w.v); //                       attended [token][heads][head_dim]
    let p = SigmoidGateParams { n_tokens: 0, dim: width as u32, gates: width as u32 };
    b.push("attn_gated", Op::SigmoidGate, Args::SigmoidGate(p), vec![m.attn_gate, w.attended]);
    b.attention_output()
}

/// x += Wout · (norm(rule(conv(Wqkv n))) · silu(Wz n)), n being `from`.
fn delta_net(b: &mut Builder, d: &Delta, from: BufId) -> anyhow::Result<()> {
    let (h, w) = (b.h, b.work);
    let m = buffers(b)?;
    let ([wqkv, wz], (wb, wa)) = (projections(b, d)?, gate_matrices(b, d)?);
    let readers: Vec<&Matrix> = [&wqkv, &wz, &wb].into_iter().chain(wa.as_ref()).collect();
    b.quantize("attn_act", &readers, from, w.normed_act);
    b.linear("qkv", &wqkv, from, w.normed_act, m.mixed); //         [token][channels]
    b.linear("z", &wz, from, w.normed_act, m.z); //                 [token][heads][size]
    // of one matrix b and a take turns, key head by key head
    let group = if wa.is_some() { d.heads } else { d.heads / d.key_heads };
    let mut first = 0;
    for (label, matrix) in [("b", Some(&wb)), ("a", wa.as_ref())] {
        let Some(matrix) = matrix else { continue };
        b.linear_into(label, matrix, [from, w.normed_act, m.ba], 2 * d.heads, first); // [token][b, a][heads]
        first += matrix.rows;
    }
    let (b_scale, a_scale) = (wb.one_scale(), wa.as_ref().unwrap_or(&wb).one_scale());
    mix(b, d, &m)?;
    let (a, dt) = (decay(b, d.heads)?, b.vector("ssm_dt", "bias", d.heads)?);
    let p = GdnGatesParams { n_tokens: 0, heads: d.heads as u32, group: group as u32, b_scale, a_scale };
    b.push("gates", Op::GdnGates, Args::GdnGates(p), vec![m.ba, a, dt, m.gates]); // [token][beta, gamma][heads]
    let state = b.state("memory", d.heads * d.size * d.size)?;
    let p = DeltaRuleParams {
        n_tokens: 0,
        strands: 0,
        heads: d.heads as u32,
        key_heads: d.key_heads as u32,
        size: d.size as u32,
        tiled: d.tiled.into(),
        scale: (1.0 / libm::sqrt(d.size as f64)) as f32,
    };
    let binds = vec![m.qk_normed, m.v, m.gates, w.strands, state, m.given];
    b.push("delta_rule", Op::DeltaRule, Args::DeltaRule(p), binds); // [token][heads][size]
    // of no directory is this one less 1
    let weights = b.vector("ssm_norm", "weight", d.size)?;
    let p = RmsNormParams { n_tokens: 0, dim: d.size as u32, inv_n: (1.0 / d.size as f64) as f32, eps: b.eps() };
    b.rows_of_heads("ssm_norm", d.heads, Op::RmsNorm, Args::RmsNorm(p), vec![m.given, weights, m.given_normed])?;
    let p = SwigluParams { n_tokens: 0, dim: d.values() as u32 };
    b.push("ssm_gated", Op::Swiglu, Args::Swiglu(p), vec![m.z, m.given_normed, m.mid]);
    let wo = b.matrix("ssm_out", d.values(), h.dim)?;
    b.quantize("ssm_act", &[&wo], m.mid, m.mid_act);
    b.linear("ssm_out", &wo, m.mid, m.mid_act, w.added);
    b.join("attn_residual", "post_attention_norm")
}

/// qk_normed and v from what goes through the convolution; queries and keys have length 1.
fn mix(b: &mut Builder, d: &Delta, m: &Hybrid) -> anyhow::Result<()> {
    let name = b.name("ssm_conv1d", "weight");
    // a directory's has one more dimension
    let flat = b.c.tensor(&name).is_none_or(|t| t.shape.len() == 2);
    let shape = if flat { vec![TAPS, d.channels()] } else { vec![TAPS, 1, d.channels()] };
    let (tensor, _) = b.claim(&name, &shape)?;
    let len = TAPS * d.channels();
    let part = Part::Vector { first: 0, len, change: Change::None };
    let taps = b.buffer(&name, len, Role::Weight(vec![Piece { tensor, part }]))?;
    let kept = b.state("kept", KEPT * d.channels())?;
    let (front, channels) = (2 * d.keys() as u32, d.channels() as u32);
    let p = ConvSiluParams { n_tokens: 0, strands: 0, front, channels, biased: 0 };
    let binds = vec![m.mixed, taps, b.work.strands, kept, m.qk, m.v];
    b.push("conv", Op::ConvSilu, Args::ConvSilu(p), binds);
    let n = d.size as f64;
    let p = RmsNormParams { n_tokens: 0, dim: d.size as u32, inv_n: (1.0 / n) as f32, eps: (EPS / n) as f32 };
    b.rows_of_heads("qk_norm", 2 * d.key_heads, Op::RmsNorm, Args::RmsNorm(p), vec![m.qk, m.unit, m.qk_normed])
}

/// Makes the buffers when the first layer asks for them.
fn buffers(b: &mut Builder) -> anyhow::Result<Hybrid> {
    if let Some(m) = b.hybrid {
        return Ok(m);
    }
    let (h, t, digits) = (b.h, b.o.ubatch, b.o.digits);
    let (keys, values, heads, channels, size) =
        h.delta.as_ref().map_or((0, 0, 0, 0, 0), |d| (d.keys(), d.values(), d.heads, d.channels(), d.size));
    let unit = (1.0 / libm::sqrt(size as f64)) as f32;
    let m = Hybrid {
        attn_gate: b.scratch("attn_gate", t * h.heads * h.head_dim)?,
        mixed: b.scratch("qkv_mixed", t * channels)?,
        z: b.scratch("z", t * values)?,
        ba: b.scratch("ba", t * 2 * heads)?,
        qk: b.scratch("qk", t * 2 * keys)?,
        qk_normed: b.scratch("qk_normed", t * 2 * keys)?,
        v: b.scratch("delta_v", t * values)?,
        gates: b.scratch("delta_gates", t * 2 * heads)?,
        given: b.scratch("delta_given", t * values)?,
        given_normed: b.scratch("delta_normed", t * values)?,
        mid: b.scratch("delta_mid", t * values)?,
        mid_act: b.scratch("delta_mid_act", t * act_words(values, digits))?,
        unit: b.buffer("unit", size, Role::Constant(unit))?,
    };
    b.hybrid = Some(m);
    Ok(m)
}

/// Matrices of queries, keys and values, and of z: two tensors, or one whose rows are those of one key head after the other.
fn projections(b: &mut Builder, d: &Delta) -> anyhow::Result<[Matrix; 2]> {
    if !b.has("ssm_in", "weight") {
        return Ok([b.matrix("attn_qkv", b.h.dim, d.channels())?, b.matrix("attn_gate", b.h.dim, d.values())?]);
    }
    let (dim, keys, each) = (b.h.dim, d.key_heads, d.values() / d.key_heads);
    let row = 2 * d.size + 2 * each;
    let found = b.claim(&b.name("ssm_in", "weight"), &[dim, keys * row])?;
    let runs = |first: usize, n: usize| (0..keys).map(move |k| k * row + first..k * row + first + n);
    let qkv: Vec<_> = runs(0, d.size).chain(runs(d.size, d.size)).chain(runs(2 * d.size, each)).collect();
    let z: Vec<_> = runs(2 * d.size + each, each).collect();
    Ok([gathered(b, found, dim, &qkv, ", qkv")?, gathered(b, found, dim, &z, ", z")?])
}

/// Matrices of beta and of alpha; the second is none where the first has the rows of both.
fn gate_matrices(b: &mut Builder, d: &Delta) -> anyhow::Result<(Matrix, Option<Matrix>)> {
    if b.has("ssm_ba", "weight") {
        return Ok((b.matrix("ssm_ba", b.h.dim, 2 * d.heads)?, None));
    }
    Ok((b.matrix("ssm_beta", b.h.dim, d.heads)?, Some(b.matrix("ssm_alpha", b.h.dim, d.heads)?)))
}

/// The tensor `what` as two matrices, of whose rows `n` runs of each take turns.
fn turns(b: &mut Builder, what: &str, k: usize, n: usize, rows: [usize; 2]) -> anyhow::Result<[Matrix; 2]> {
    let row = rows[0] + rows[1];
    let found = b.claim(&b.name(what, "weight"), &[k, n * row])?;
    let runs = |first: usize, rows: usize| -> Vec<Range<usize>> {
        (0..n).map(|i| i * row + first..i * row + first + rows).collect()
    };
    Ok([
        gathered(b, found, k, &runs(0, rows[0]), ", part 0")?,
        gathered(b, found, k, &runs(rows[0], rows[1]), ", part 1")?,
    ])
}

/// Rows of a tensor that lie in several runs as one matrix. Every run has whole blocks of 32.
fn gathered(
    b: &mut Builder,
    (tensor, t): (usize, BlockType),
    k: usize,
    runs: &[Range<usize>],
    label: &str,
) -> anyhow::Result<Matrix> {
    debug_assert!(runs.iter().all(|r| r.len().is_multiple_of(ROW_BLOCK)));
    let (name, ty) = (b.c.tensors[tensor].name.clone(), b.o.packing.layers.packed(t));
    let (most, limit) = (b.rows_bound(ty, k), b.o.max_binding_words * 4);
    ensure!(most > 0, PlanError::Binding { what: format!("32 rows of tensor {name}"), limit });
    // (first row of the matrix, rows, pieces)
    let mut parts: Vec<(usize, usize, Vec<Piece>)> = Vec::new();
    let mut rows = 0;
    for run in runs {
        let mut row0 = run.start;
        while row0 < run.end {
            if parts.last().is_none_or(|(_, held, _)| *held == most) {
                parts.push((rows, 0, vec![]));
            }
            let Some((_, held, pieces)) = parts.last_mut() else { unreachable!("one was pushed") };
            let n = (run.end - row0).min(most - *held);
            pieces.push(Piece { tensor, part: Part::Rows { t, packed: ty, k, row0, rows: n } });
            (*held, row0, rows) = (*held + n, row0 + n, rows + n);
        }
    }
    let mut list = Vec::with_capacity(parts.len());
    for (first, n, pieces) in parts {
        let words = pack::packed_words(ty, n, k);
        list.push((
            b.buffer(&format!("{name}{label}, rows {first}..{}", first + n), words, Role::Weight(pieces))?,
            first,
            n,
        ));
    }
    Ok(Matrix { ty, input: b.input_of(tensor, ty)?, k, rows, scale: b.scale_of(tensor, None)?, parts: list })
}

/// -exp(A_log), `[heads]`: what a GGUF file has under a name without a suffix.
fn decay(b: &mut Builder, heads: usize) -> anyhow::Result<BufId> {
    let own = b.name("ssm_a", "weight");
    let (name, change) = match own.strip_suffix("ssm_a.weight") {
        Some(layer) => (format!("{layer}ssm_a"), Change::None),
        None => (own, Change::Fading),
    };
    let (tensor, _) = b.claim(&name, &[heads])?;
    let part = Part::Vector { first: 0, len: heads, change };
    b.buffer(&name, heads, Role::Weight(vec![Piece { tensor, part }]))
}
