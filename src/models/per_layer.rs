//! A vector of each token for each layer: from a table of its own, and from the token's embedding. Behind its feed-forward a
//! layer takes as much of its vector as a gate lets through.

use super::builder::Builder;
use crate::ops::copy_columns::CopyColumnsParams;
use crate::ops::embed::EmbedParams;
use crate::ops::geglu::GegluParams;
use crate::record::{Args, BufId, Op, Role};

/// vectors = (norm(Wp · e / sqrt(dim)) + E\[id\] · sqrt(n)) / sqrt(2), `[token][layer][n]`, n elements each; e `[token][dim]`
/// is the embedding as the first layer meets it.
pub(super) fn vectors(b: &mut Builder) -> anyhow::Result<BufId> {
    let (h, w, n) = (b.h, b.work, b.h.uneven.embedding);
    let width = h.layers * n;
    let [made, projected, all] =
        ["per_layer_made", "per_layer_projected", "per_layer"].map(|name| b.scratch(name, b.o.ubatch * width));
    let (made, projected, all) = (made?, projected?, all?);
    let table = b.matrix("per_layer_token_embd", width, h.uneven.rows.unwrap_or(h.vocab))?;
    let embed = |b: &mut Builder, ids, &(part, row0, rows): &(BufId, usize, usize)| {
        let p = EmbedParams { n_tokens: 0, dim: width as u32, row0: row0 as u32, rows: rows as u32 };
        b.push("per_layer_embed", Op::Embed(table.ty), Args::Embed(p), vec![ids, part, all]);
    };
    if table.rows < h.vocab {
        // tokens that it has no rows for, which are no text's, have those of the first
        let firsts = b.buffer("first_ids", b.o.ubatch, Role::Counting(1))?;
        embed(b, firsts, &table.parts[0]);
    }
    for part in &table.parts {
        embed(b, w.ids, part);
    }
    b.scale("per_layer_token_embd_scale", table.one_scale(), width, all);
    b.scale("per_layer_embed_scale", libm::sqrt(n as f64) as f32, width, all);
    let m = b.matrix("per_layer_model_proj", h.dim, width)?;
    b.quantize("per_layer_act", &[&m], w.x, w.normed_act);
    b.linear("per_layer_model_proj", &m, w.x, w.normed_act, made);
    b.scale("per_layer_model_proj_scale", (1.0 / libm::sqrt(h.dim as f64)) as f32, width, made);
    b.norm_of_rows("per_layer_proj_norm", h.layers, n, [made, projected])?;
    b.add_rows("per_layer_add", width, projected, all);
    b.scale("per_layer_scale", std::f32::consts::FRAC_1_SQRT_2, width, all);
    Ok(all)
}

/// x += norm(Wproj · (gelu(Wgate · x) · v)), v being the layer's vector of `vectors`.
pub(super) fn join(b: &mut Builder, vectors: BufId) -> anyhow::Result<()> {
    let w = b.work;
    given(b, vectors, w.x)?;
    b.add("per_layer_residual", w.normed, w.x);
    Ok(())
}

/// normed = norm(Wproj · (gelu(Wgate · x) · v)); x `[token][dim]`.
pub(super) fn given(b: &mut Builder, vectors: BufId, x: BufId) -> anyhow::Result<()> {
    let (h, w, n) = (b.h, b.work, b.h.uneven.embedding);
    let own = b.layer.unwrap_or(0) * n;
    let gate = b.matrix("inp_gate", h.dim, n)?;
    b.quantize("per_layer_gate_act", &[&gate], x, w.normed_act);
    b.linear("per_layer_gate", &gate, x, w.normed_act, w.gate);
    let [n, own, all] = [n, own, h.layers * n].map(|v| v as u32);
    let p = CopyColumnsParams { n_tokens: 0, n, x_stride: all, x_offset: own, y_stride: n, y_offset: 0 };
    b.push("per_layer_vector", Op::CopyColumns, Args::CopyColumns(p), vec![vectors, w.up]);
    b.push(
        "per_layer_geglu",
        Op::Geglu,
        Args::Geglu(GegluParams { n_tokens: 0, dim: n, erf: 0 }),
        vec![w.gate, w.up, w.mid],
    );
    let proj = b.matrix("proj", n as usize, h.dim)?;
    b.quantize("per_layer_mid_act", &[&proj], w.mid, w.mid_act);
    b.linear("per_layer_proj", &proj, w.mid, w.mid_act, w.added);
    b.norm("post_norm", w.added, w.normed)
}
