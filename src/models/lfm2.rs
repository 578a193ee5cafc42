//! LFM2 as a plan, dense or of experts.
//!
//! Most layers are short convolutions: of three parts that one matrix makes of a token, the product of two goes through a
//! causal convolution over three tokens, and the result is multiplied with the third. The others are Qwen3's attention.
//! What a convolution remembers, two rows of its width, lies in slots of a state (`ops::strands`).

use super::builder::{Builder, Gated};
use super::qwen;
use crate::ops::linear::act_words;
use crate::ops::short_conv::{KEPT, ShortConvParams, TAPS};
use crate::record::{Args, Change, Op, Part, Piece, Role};

/// One layer: x += attention or convolution of norm(x), x += feed_forward(norm(x)); x `[token][dim]`.
pub(super) fn layer(b: &mut Builder) -> anyhow::Result<()> {
    let h = b.h;
    if b.layer.is_some_and(|l| h.is_recurrent(l)) {
        convolution(b)?;
    } else {
        qwen::attention(b)?;
    }
    b.feed_forward(|b| Ok([b.matrix("ffn_gate", h.dim, h.ffn)?, b.matrix("ffn_up", h.dim, h.ffn)?]))
}

/// x += Wout · (c · conv(b · u)), \[b, c, u\] = Win · norm(x).
fn convolution(b: &mut Builder) -> anyhow::Result<()> {
    let (h, w, g) = (b.h, b.work, buffers(b)?);
    b.norm("attn_norm", w.x, w.normed)?;
    let win = b.matrix("shortconv.in_proj", h.dim, 3 * h.dim)?;
    b.quantize("attn_act", &[&win], w.normed, w.normed_act);
    b.linear("conv_parts", &win, w.normed, w.normed_act, g.parts); //   [token][b, c, u][dim]
    let (tensor, _) = b.claim(&b.name("shortconv.conv", "weight"), &[TAPS, h.dim])?;
    let len = TAPS * h.dim;
    let part = Part::Vector { first: 0, len, change: Change::None };
    let taps = b.buffer(&b.name("shortconv.conv", "weight"), len, Role::Weight(vec![Piece { tensor, part }]))?;
    let kept = b.state("kept", KEPT * h.dim)?;
    let p = ShortConvParams { n_tokens: 0, strands: 0, dim: h.dim as u32 };
    let binds = vec![g.parts, taps, w.strands, kept, g.mid];
    b.push("conv", Op::ShortConv, Args::ShortConv(p), binds); //        [token][dim]
    let wout = b.matrix("shortconv.out_proj", h.dim, h.dim)?;
    b.quantize("conv_act", &[&wout], g.mid, g.mid_act);
    b.linear("conv_out", &wout, g.mid, g.mid_act, w.added);
    b.join("attn_residual", "post_attention_norm")
}

/// Makes the buffers when the first layer asks for them.
fn buffers(b: &mut Builder) -> anyhow::Result<Gated> {
    if let Some(g) = b.gated {
        return Ok(g);
    }
    let (dim, t) = (b.h.dim, b.o.ubatch);
    let g = Gated {
        parts: b.scratch("conv_parts", t * 3 * dim)?,
        mid: b.scratch("conv_mid", t * dim)?,
        mid_act: b.scratch("conv_mid_act", t * act_words(dim, b.o.digits))?,
    };
    b.gated = Some(g);
    Ok(g)
}
