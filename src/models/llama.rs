//! The llama architecture (Llama 2/3, Mistral, TinyLlama, SmolLM) as a plan.
//!
//! Read `layer` top to bottom: it is the model, shapes beside every step.

use super::hyper::Hyper;
use crate::blocks::{BlockType, pack};
use crate::formats::{Container, ContainerKind, Tensor};
use crate::ops::act_quantize::ActQuantizeParams;
use crate::ops::add::AddParams;
use crate::ops::attention::AttentionParams;
use crate::ops::cache::{CacheType, CacheWriteParams};
use crate::ops::embed::EmbedParams;
use crate::ops::linear::{LinearParams, act_words};
use crate::ops::rms_norm::RmsNormParams;
use crate::ops::rope::RopeParams;
use crate::ops::select_rows::SelectRowsParams;
use crate::ops::swiglu::SwigluParams;
use crate::record::{Args, BufDecl, BufId, Command, Op, Plan, Recording, Role, Rows};
use anyhow::{Context, bail, ensure};
use std::collections::HashSet;

/// Choices that shape a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// positions in the cache
    pub n_ctx: usize,
    /// tokens in a step, at most
    pub ubatch: usize,
    /// logits rows in a step, at most
    pub max_out: usize,
    /// digits of the activations: 1 (8 bits) or 2 (`--activations 16`)
    pub digits: usize,
    /// type of cached keys
    pub k_type: CacheType,
    /// type of cached values
    pub v_type: CacheType,
    /// largest buffer the device can bind, in words
    pub max_binding_words: usize,
}

/// A plan and the buffers the host writes.
#[derive(Clone, Debug)]
pub struct Built {
    /// the plan
    pub plan: Plan,
    /// token ids `[token]`
    pub ids: BufId,
    /// RoPE table `[token][n_rot/2][cos, sin]`
    pub rope: BufId,
    /// positions in the cache (`n_ctx` rounded up to whole chunks)
    pub n_ctx: usize,
    /// words of all cache pages together
    pub cache_words: usize,
}

/// Tensor names of one kind of file.
struct Names {
    gguf: bool,
}

impl Names {
    fn global(&self, what: &str) -> String {
        match (self.gguf, what) {
            (true, "embed") => "token_embd.weight",
            (true, "norm") => "output_norm.weight",
            (true, _) => "output.weight",
            (false, "embed") => "model.embed_tokens.weight",
            (false, "norm") => "model.norm.weight",
            (false, _) => "lm_head.weight",
        }
        .to_string()
    }

    fn layer(&self, l: usize, what: &str) -> String {
        if self.gguf {
            return format!("blk.{l}.{what}.weight");
        }
        let hf = match what {
            "attn_norm" => "input_layernorm",
            "attn_q" => "self_attn.q_proj",
            "attn_k" => "self_attn.k_proj",
            "attn_v" => "self_attn.v_proj",
            "attn_output" => "self_attn.o_proj",
            "ffn_norm" => "post_attention_layernorm",
            "ffn_gate" => "mlp.gate_proj",
            "ffn_up" => "mlp.up_proj",
            _ => "mlp.down_proj",
        };
        format!("model.layers.{l}.{hf}.weight")
    }
}

/// A matrix in one or several buffers of whole row blocks.
#[derive(Clone)]
struct Matrix {
    ty: BlockType,
    k: usize,
    rows: usize,
    parts: Vec<(BufId, usize, usize)>,
}

struct Builder<'a> {
    c: &'a Container,
    h: &'a Hyper,
    o: &'a PlanOptions,
    buffers: Vec<BufDecl>,
    commands: Vec<Command>,
    claimed: HashSet<String>,
    layer: Option<usize>,
    rows: Rows,
}

/// Makes the plan of a llama model; every tensor of the file is claimed once or named in the error.
pub fn build(c: &Container, h: &Hyper, o: &PlanOptions) -> anyhow::Result<Built> {
    ensure!(o.n_ctx >= 1 && o.ubatch >= 1 && o.max_out >= 1, "context, ubatch and output rows must be at least 1");
    if let Some(w) = h.window {
        ensure!(
            o.n_ctx <= w,
            "the model attends {w} positions back and a context of {} needs more; use -c {w} or less",
            o.n_ctx
        );
    }
    let mut b = Builder {
        c,
        h,
        o,
        buffers: vec![],
        commands: vec![],
        claimed: HashSet::new(),
        layer: None,
        rows: Rows::Tokens,
    };
    let names = Names { gguf: c.kind == ContainerKind::Gguf };
    let (t, dim, width, kv_width) = (o.ubatch, h.dim, h.heads * h.head_dim, h.kv_heads * h.head_dim);
    let (kw, vw) = (cache_words(o.k_type, h.head_dim, "--ctk")?, cache_words(o.v_type, h.head_dim, "--ctv")?);

    let ids = b.buffer("ids", t, Role::Input)?;
    let rope = b.buffer("rope", t * h.n_rot, Role::Input)?;
    let x = b.scratch("x", t * dim)?;
    let normed = b.scratch("normed", t * dim)?;
    let normed_act = b.scratch("normed_act", t * act_words(dim, o.digits))?;
    let q = b.scratch("q", t * width)?;
    let k = b.scratch("k", t * kv_width)?;
    let v = b.scratch("v", t * kv_width)?;
    let attended = b.scratch("attended", t * width)?;
    let attended_act = b.scratch("attended_act", t * act_words(width, o.digits))?;
    let added = b.scratch("added", t * dim)?;
    let gate = b.scratch("gate", t * h.ffn)?;
    let up = b.scratch("up", t * h.ffn)?;
    let mid = b.scratch("mid", t * h.ffn)?;
    let mid_act = b.scratch("mid_act", t * act_words(h.ffn, o.digits))?;

    // positions per cache page: whole chunks, as many as one binding holds
    let n_ctx = o.n_ctx.next_multiple_of(64);
    let page_limit = o.max_binding_words / (h.kv_heads * kw.max(vw)) / 64 * 64;
    ensure!(
        page_limit > 0,
        "64 cached positions do not fit the device's binding limit of {} bytes",
        o.max_binding_words * 4
    );
    let page = n_ctx.min(page_limit);
    let pages: Vec<(usize, usize)> = (0..n_ctx).step_by(page).map(|first| (first, page.min(n_ctx - first))).collect();
    let state_words = if pages.len() > 1 { t * h.heads * (h.head_dim + 2) } else { 4 };
    let state = b.scratch("attention_state", state_words)?;

    let embed = b.matrix(&names.global("embed"), dim, h.vocab)?;
    b.embed(&embed, ids, x);
    let mut cache_total = 0;
    for l in 0..h.layers {
        b.layer = Some(l);
        let mut key_pages = Vec::new();
        let mut value_pages = Vec::new();
        for (i, &(_, len)) in pages.iter().enumerate() {
            key_pages.push(b.buffer(&format!("layer {l} keys page {i}"), h.kv_heads * len * kw, Role::Cache)?);
            value_pages.push(b.buffer(&format!("layer {l} values page {i}"), h.kv_heads * len * vw, Role::Cache)?);
            cache_total += h.kv_heads * len * (kw + vw);
        }

        // attention: x += Wo · attend(rope(Wq n), rope(Wk n), Wv n), n = norm(x)
        let weight = b.vector(&names.layer(l, "attn_norm"), dim)?;
        b.norm("attn_norm", x, weight, normed);
        let (wq, wk, wv) = (
            b.matrix(&names.layer(l, "attn_q"), dim, width)?,
            b.matrix(&names.layer(l, "attn_k"), dim, kv_width)?,
            b.matrix(&names.layer(l, "attn_v"), dim, kv_width)?,
        );
        b.quantize("attn_act", &[&wq, &wk, &wv], dim, normed, normed_act);
        b.linear("q", &wq, normed, normed_act, q); //   [token][heads][head_dim]
        b.linear("k", &wk, normed, normed_act, k); //   [token][kv_heads][head_dim]
        b.linear("v", &wv, normed, normed_act, v);
        b.rope("q_rope", h.heads, rope, q);
        b.rope("k_rope", h.kv_heads, rope, k);
        for (i, &(first, len)) in pages.iter().enumerate() {
            b.cache_write("k_cache", Op::CacheWriteK(o.k_type), k, key_pages[i], first, len);
            b.cache_write("v_cache", Op::CacheWriteV(o.v_type), v, value_pages[i], first, len);
        }
        for (i, &(first, len)) in pages.iter().enumerate() {
            b.attention(q, key_pages[i], value_pages[i], state, attended, first, len);
        }
        let wo = b.matrix(&names.layer(l, "attn_output"), width, dim)?;
        b.quantize("attended_act", &[&wo], width, attended, attended_act);
        b.linear("attn_output", &wo, attended, attended_act, added);
        b.add("attn_residual", added, x);

        // feed-forward: x += Wdown · (silu(Wgate n) * Wup n), n = norm(x)
        let weight = b.vector(&names.layer(l, "ffn_norm"), dim)?;
        b.norm("ffn_norm", x, weight, normed);
        let (wg, wu) =
            (b.matrix(&names.layer(l, "ffn_gate"), dim, h.ffn)?, b.matrix(&names.layer(l, "ffn_up"), dim, h.ffn)?);
        b.quantize("ffn_act", &[&wg, &wu], dim, normed, normed_act);
        b.linear("ffn_gate", &wg, normed, normed_act, gate);
        b.linear("ffn_up", &wu, normed, normed_act, up);
        b.swiglu(gate, up, mid);
        let wd = b.matrix(&names.layer(l, "ffn_down"), h.ffn, dim)?;
        b.quantize("mid_act", &[&wd], h.ffn, mid, mid_act);
        b.linear("ffn_down", &wd, mid, mid_act, added);
        b.add("ffn_residual", added, x);
    }
    b.layer = None;

    // logits of the wanted rows
    let r = o.max_out;
    let chosen = b.scratch("chosen", r * dim)?;
    let out_normed = b.scratch("out_normed", r * dim)?;
    let out_act = b.scratch("out_act", r * act_words(dim, o.digits))?;
    let logits = b.scratch("logits", r * h.vocab)?;
    b.rows = Rows::Outputs;
    b.push(
        "select",
        Op::SelectRows,
        Args::SelectRows(SelectRowsParams { n_tokens: 0, dim: dim as u32, first: 0 }),
        vec![x, chosen],
    );
    let weight = b.vector(&names.global("norm"), dim)?;
    b.norm("output_norm", chosen, weight, out_normed);
    let head = names.global("output");
    let output = if c.tensor(&head).is_some() { b.matrix(&head, dim, h.vocab)? } else { embed };
    b.quantize("out_act", &[&output], dim, out_normed, out_act);
    b.linear("logits", &output, out_normed, out_act, logits);

    b.check_unclaimed()?;
    let plan = Plan {
        buffers: b.buffers,
        recording: Recording { commands: b.commands },
        logits,
        vocab: h.vocab,
        max_tokens: t,
        max_out: r,
    };
    Ok(Built { plan, ids, rope, n_ctx, cache_words: cache_total })
}

fn cache_words(t: CacheType, head_dim: usize, flag: &str) -> anyhow::Result<usize> {
    t.words(head_dim).with_context(|| {
        format!("{flag} {}: blocks of 32 do not divide a head of {head_dim}; use f16 or f32", t.name())
    })
}

impl Builder<'_> {
    fn buffer(&mut self, name: &str, words: usize, role: Role) -> anyhow::Result<BufId> {
        ensure!(
            words <= self.o.max_binding_words,
            "buffer {name} needs {} bytes, the device binds at most {}; use a smaller --ubatch",
            words * 4,
            self.o.max_binding_words * 4
        );
        self.buffers.push(BufDecl { name: name.to_string(), words, role });
        Ok(self.buffers.len() - 1)
    }

    fn scratch(&mut self, name: &str, words: usize) -> anyhow::Result<BufId> {
        self.buffer(name, words, Role::Scratch)
    }

    fn claim(&mut self, name: &str, shape: &[usize]) -> anyhow::Result<(BlockType, &Tensor)> {
        let file = self.c.files[0].display();
        let t = self.c.tensor(name).with_context(|| format!("{file}: tensor {name} is missing"))?;
        let found: Vec<usize> = t.shape.iter().map(|&d| d as usize).collect();
        ensure!(found == shape, "{file}: tensor {name} has shape {found:?}, the config asks for {shape:?}");
        let ty = t.dtype.block().with_context(|| {
            let known: Vec<&str> = BlockType::ALL.iter().map(|t| t.name()).collect();
            format!(
                "{file}: tensor {name} is {}, which is not supported (supported: {})",
                t.dtype.name(),
                known.join(", ")
            )
        })?;
        self.claimed.insert(name.to_string());
        Ok((ty, t))
    }

    /// A vector of f32, converted when loaded.
    fn vector(&mut self, name: &str, len: usize) -> anyhow::Result<BufId> {
        self.claim(name, &[len])?;
        self.buffer(name, len, Role::Weight { tensor: name.to_string(), row0: 0, rows: 1 })
    }

    /// A matrix of `rows` rows of `k` elements, split where it exceeds the binding limit.
    fn matrix(&mut self, name: &str, k: usize, rows: usize) -> anyhow::Result<Matrix> {
        let (ty, _) = self.claim(name, &[k, rows])?;
        let ty = pack::packed_type(ty);
        let words = pack::words_per_row(ty, k);
        let part_rows = self.o.max_binding_words / words / 32 * 32;
        ensure!(
            part_rows > 0,
            "32 rows of tensor {name} do not fit the device's binding limit of {} bytes",
            self.o.max_binding_words * 4
        );
        let mut parts = Vec::new();
        for row0 in (0..rows).step_by(part_rows) {
            let n = part_rows.min(rows - row0);
            let label = if n == rows { name.to_string() } else { format!("{name} rows {row0}..{}", row0 + n) };
            let role = Role::Weight { tensor: name.to_string(), row0, rows: n };
            parts.push((self.buffer(&label, pack::packed_words(ty, n, k), role)?, row0, n));
        }
        Ok(Matrix { ty, k, rows, parts })
    }

    fn push(&mut self, label: &str, op: Op, args: Args, binds: Vec<BufId>) {
        self.commands.push(Command { op, args, binds, rows: self.rows, layer: self.layer, label: label.to_string() });
    }

    fn embed(&mut self, m: &Matrix, ids: BufId, x: BufId) {
        for &(w, row0, rows) in &m.parts {
            let p = EmbedParams { n_tokens: 0, dim: m.k as u32, row0: row0 as u32, rows: rows as u32 };
            self.push("embed", Op::Embed(m.ty), Args::Embed(p), vec![ids, w, x]);
        }
    }

    fn norm(&mut self, label: &str, x: BufId, w: BufId, y: BufId) {
        let dim = self.h.dim;
        let p = RmsNormParams { n_tokens: 0, dim: dim as u32, inv_n: (1.0 / dim as f64) as f32, eps: self.h.eps };
        self.push(label, Op::RmsNorm, Args::RmsNorm(p), vec![x, w, y]);
    }

    /// Quantises the activations, unless every reader has float weights.
    fn quantize(&mut self, label: &str, readers: &[&Matrix], k: usize, x: BufId, act: BufId) {
        if readers.iter().any(|m| !is_float(m.ty)) {
            let p = ActQuantizeParams { n_tokens: 0, k: k as u32, digits: self.o.digits as u32 };
            self.push(label, Op::ActQuantize, Args::ActQuantize(p), vec![x, act]);
        }
    }

    fn linear(&mut self, label: &str, m: &Matrix, x: BufId, act: BufId, y: BufId) {
        for &(w, row0, rows) in &m.parts {
            let p = LinearParams {
                n_tokens: 0,
                k: m.k as u32,
                rows: rows as u32,
                digits: if is_float(m.ty) { 1 } else { self.o.digits as u32 },
                y_stride: m.rows as u32,
                y_offset: row0 as u32,
                residual: 0,
            };
            let input = if is_float(m.ty) { x } else { act };
            self.push(label, Op::Matvec(m.ty), Args::Linear(p), vec![w, input, y]);
        }
    }

    fn rope(&mut self, label: &str, heads: usize, table: BufId, x: BufId) {
        let p = RopeParams {
            n_tokens: 0,
            heads: heads as u32,
            head_dim: self.h.head_dim as u32,
            n_rot: self.h.n_rot as u32,
            half_split: self.h.half_split.into(),
        };
        self.push(label, Op::Rope, Args::Rope(p), vec![table, x]);
    }

    fn cache_write(&mut self, label: &str, op: Op, x: BufId, page: BufId, first: usize, len: usize) {
        let p = CacheWriteParams {
            n_tokens: 0,
            pos: 0,
            kv_heads: self.h.kv_heads as u32,
            head_dim: self.h.head_dim as u32,
            page_first: first as u32,
            page_len: len as u32,
        };
        self.push(label, op, Args::CacheWrite(p), vec![x, page]);
    }

    fn attention(&mut self, q: BufId, k: BufId, v: BufId, state: BufId, out: BufId, first: usize, len: usize) {
        let p = AttentionParams {
            n_tokens: 0,
            pos: 0,
            heads: self.h.heads as u32,
            kv_heads: self.h.kv_heads as u32,
            head_dim: self.h.head_dim as u32,
            page_first: first as u32,
            page_len: len as u32,
            scale: (1.0 / libm::sqrt(self.h.head_dim as f64)) as f32,
        };
        self.push(
            "attention",
            Op::Attention(self.o.k_type, self.o.v_type),
            Args::Attention(p),
            vec![q, k, v, state, out],
        );
    }

    fn swiglu(&mut self, gate: BufId, up: BufId, y: BufId) {
        let p = SwigluParams { n_tokens: 0, dim: self.h.ffn as u32 };
        self.push("swiglu", Op::Swiglu, Args::Swiglu(p), vec![gate, up, y]);
    }

    fn add(&mut self, label: &str, y: BufId, x: BufId) {
        let p = AddParams { n_tokens: 0, dim: self.h.dim as u32 };
        self.push(label, Op::Add, Args::Add(p), vec![y, x]);
    }

    /// A tensor nobody asked for means the model is not what the config says.
    fn check_unclaimed(&self) -> anyhow::Result<()> {
        for t in &self.c.tensors {
            let known = t.name == "rope_freqs.weight" || t.name.ends_with("rotary_emb.inv_freq");
            if !known && !self.claimed.contains(&t.name) {
                bail!(
                    "{}: tensor {} has no place in a llama model (biases and adapters are not supported)",
                    self.c.files[0].display(),
                    t.name
                );
            }
        }
        Ok(())
    }
}

fn is_float(t: BlockType) -> bool {
    matches!(t, BlockType::F32 | BlockType::F16 | BlockType::BF16)
}
