//! Mamba-2 as a plan.
//!
//! Every layer is a mixer of state spaces: one matrix makes a gate z, the channels x, B and C, and a step of each head; x, B
//! and C go through a causal convolution over four tokens; the recurrence remembers of each head a matrix of state elements
//! by channels; what it gives goes through the gate and a norm of each group of heads. There is no attention, no
//! feed-forward and no cache: what a layer remembers lies in slots of a state (`ops::strands`).

use super::builder::{Builder, StateSpace};
use super::ssm::Ssm;
use crate::ops::channel_scale::ChannelScaleParams;
use crate::ops::conv_silu::{ConvSiluParams, KEPT, TAPS};
use crate::ops::linear::act_words;
use crate::ops::rms_norm::RmsNormParams;
use crate::ops::ssm_discretize::SsmDiscretizeParams;
use crate::ops::ssm_scan::SsmScanParams;
use crate::ops::swiglu::SwigluParams;
use crate::record::{Args, BufId, Change, Op, Part, Piece, Role};

/// One layer: x += Wout · norm(silu(z) · scan(conv(\[x, B, C\]))), \[z, x, B, C, dt\] = Win · norm(x); x `[token][dim]`.
pub(super) fn layer(b: &mut Builder, s: &Ssm) -> anyhow::Result<()> {
    let (h, w, m) = (b.h, b.work, buffers(b, s)?);
    let (inner, heads) = (s.inner(), s.heads as u32);
    b.norm("attn_norm", w.x, w.normed)?;
    let [wz, wx, wdt] = b.fused("ssm_in", h.dim, [inner, s.channels(), s.heads])?;
    b.quantize("attn_act", &[&wz, &wx, &wdt], w.normed, w.normed_act);
    b.linear("z", &wz, w.normed, w.normed_act, m.z); //        [token][inner]
    b.linear("xbc", &wx, w.normed, w.normed_act, m.mixed); //  [token][x, B, C]
    b.linear("dt", &wdt, w.normed, w.normed_act, m.dt); //     [token][head]
    let taps = taps(b, s)?;
    let kept = b.state("kept", KEPT * s.channels())?;
    let (front, channels) = (inner as u32, s.channels() as u32);
    let p = ConvSiluParams { n_tokens: 0, strands: 0, front, channels, biased: s.biased.into() };
    b.push("conv", Op::ConvSilu, Args::ConvSilu(p), vec![m.mixed, taps, w.strands, kept, m.x, m.bc]);
    let (a, dt_bias) = (by_head(b, s, "ssm_a", Change::Fading)?, b.vector("ssm_dt", "bias", s.heads)?);
    let [least, most] = s.steps;
    let p = SsmDiscretizeParams { n_tokens: 0, heads, least, most };
    let binds = vec![m.dt, a, dt_bias, m.gates];
    b.push("discretize", Op::SsmDiscretize, Args::SsmDiscretize(p), binds); // [token][dt, gamma][head]
    let d = by_head(b, s, "ssm_d", Change::None)?;
    let memory = b.state("memory", inner * s.state)?;
    let [groups, head_dim, state] = [s.groups, s.head_dim, s.state].map(|n| n as u32);
    let p = SsmScanParams { n_tokens: 0, strands: 0, heads, groups, head_dim, state };
    let binds = vec![m.x, m.bc, m.gates, d, w.strands, memory, m.given];
    b.push("scan", Op::SsmScan, Args::SsmScan(p), binds); //   [token][inner]
    let p = SwigluParams { n_tokens: 0, dim: inner as u32 };
    b.push("ssm_gated", Op::Swiglu, Args::Swiglu(p), vec![m.z, m.given, m.gated]);
    norm(b, s, &m)?;
    let wo = b.matrix("ssm_out", inner, h.dim)?;
    b.quantize("ssm_act", &[&wo], m.normed, m.normed_act);
    b.linear("ssm_out", &wo, m.normed, m.normed_act, w.added);
    b.join("attn_residual", "post_attention_norm")
}

/// The norm of each group. Of more than one each has weights of its own, which no norm of rows has: they come behind it.
fn norm(b: &mut Builder, s: &Ssm, m: &StateSpace) -> anyhow::Result<()> {
    let (inner, group) = (s.inner(), s.inner() / s.groups);
    let name = b.name("ssm_norm", "weight");
    let flat = b.c.tensor(&name).is_none_or(|t| t.shape.len() == 1);
    let weights = vector(b, &name, if flat { vec![inner] } else { vec![group, s.groups] }, Change::None)?;
    let p = RmsNormParams { n_tokens: 0, dim: group as u32, inv_n: (1.0 / group as f64) as f32, eps: b.eps() };
    let Some(ones) = m.ones else {
        b.push("ssm_norm", Op::RmsNorm, Args::RmsNorm(p), vec![m.gated, weights, m.normed]);
        return Ok(());
    };
    b.rows_of_heads("ssm_norm", s.groups, Op::RmsNorm, Args::RmsNorm(p), vec![m.gated, ones, m.normed])?;
    let groups = s.groups as u32;
    let p = ChannelScaleParams { n_tokens: 0, heads: groups, kv_heads: groups, head_dim: group as u32, less_offset: 0 };
    // offsets are not looked at
    b.push("ssm_norm_weights", Op::ChannelScale, Args::ChannelScale(p), vec![weights, weights, m.normed]);
    Ok(())
}

/// The convolution's weights, and its biases behind them.
fn taps(b: &mut Builder, s: &Ssm) -> anyhow::Result<BufId> {
    let channels = s.channels();
    let whole = |len: usize| Part::Vector { first: 0, len, change: Change::None };
    let name = b.name("ssm_conv1d", "weight");
    let (tensor, _) = b.claim(&name, &[TAPS, channels])?;
    let mut pieces = vec![Piece { tensor, part: whole(TAPS * channels) }];
    if s.biased {
        let (tensor, _) = b.claim(&b.name("ssm_conv1d", "bias"), &[channels])?;
        pieces.push(Piece { tensor, part: whole(channels) });
    }
    let words = pieces.iter().map(|p| p.part.words().0).sum();
    b.buffer(&name, words, Role::Weight(pieces))
}

/// A number of each head, which a GGUF file has in a column under a name without a suffix; `change`: what a directory's
/// numbers need.
fn by_head(b: &mut Builder, s: &Ssm, what: &str, change: Change) -> anyhow::Result<BufId> {
    let own = b.name(what, "weight");
    match own.strip_suffix(&format!("{what}.weight")) {
        Some(layer) => {
            let name = format!("{layer}{what}");
            let flat = b.c.tensor(&name).is_some_and(|t| t.shape.len() == 1);
            vector(b, &name, if flat { vec![s.heads] } else { vec![1, s.heads] }, Change::None)
        }
        None => vector(b, &own, vec![s.heads], change),
    }
}

/// All elements of a tensor of this shape.
fn vector(b: &mut Builder, name: &str, shape: Vec<usize>, change: Change) -> anyhow::Result<BufId> {
    let (tensor, _) = b.claim(name, &shape)?;
    let len = shape.iter().product();
    b.buffer(name, len, Role::Weight(vec![Piece { tensor, part: Part::Vector { first: 0, len, change } }]))
}

/// Makes the buffers when the first layer asks for them.
fn buffers(b: &mut Builder, s: &Ssm) -> anyhow::Result<StateSpace> {
    if let Some(m) = b.state_space {
        return Ok(m);
    }
    let (t, inner) = (b.o.ubatch, s.inner());
    let m = StateSpace {
        z: b.scratch("z", t * inner)?,
        mixed: b.scratch("xbc_mixed", t * s.channels())?,
        dt: b.scratch("dt", t * s.heads)?,
        x: b.scratch("ssm_x", t * inner)?,
        bc: b.scratch("ssm_bc", t * s.bc())?,
        gates: b.scratch("ssm_gates", t * 2 * s.heads)?,
        given: b.scratch("ssm_given", t * inner)?,
        gated: b.scratch("ssm_gated", t * inner)?,
        normed: b.scratch("ssm_normed", t * inner)?,
        normed_act: b.scratch("ssm_normed_act", t * act_words(inner, b.o.digits))?,
        ones: match s.groups {
            1 => None,
            n => Some(b.buffer("ones", inner / n, Role::Constant(1.0))?),
        },
    };
    b.state_space = Some(m);
    Ok(m)
}
