//! What every decoder's plan is made of: claimed tensors, buffers, commands, cache pages.
//!
//! The models themselves (`llama`, `phi3`, `qwen`, `chatglm`, `normed`, `layernormed`) say in which order; nothing here
//! knows an architecture but the names its tensors have in either kind of file. A [`Builder`] holds the working buffers of a step, `[token][width]` each,
//! and appends commands to one recording.

use super::error::{Cached, PlanError};
use super::family::{Family, HeadNorms};
use super::hyper::{Hyper, LONG_FACTORS, RopeScaling, SHORT_FACTORS};
use super::uneven::Heads;
use super::vector;
use crate::blocks::BlockType;
use crate::formats::names::{self, Spelling};
use crate::formats::{Activations, Container, dense};
use crate::ops::attention::CHUNK;
use crate::ops::cache::CacheType;
use crate::ops::embed::EmbedParams;
use crate::ops::exact::SCALE_MIN;
use crate::ops::linear::act_words;
use crate::ops::places::{TABLES, TOKEN};
use crate::ops::select_rows::SelectRowsParams;
use crate::ops::softcap::{self, SoftcapParams};
use crate::ops::strands;
use crate::ops::top_k::{K_MAX, PAIR, SLICE, TopKParams};
use crate::record::{Args, BufDecl, BufId, Command, Op, Placing, Plan, Recording, Role, Rows};
use anyhow::{bail, ensure};
use std::collections::{HashMap, HashSet};

mod commands;
mod options;
mod tensors;

pub use options::{Built, Head, LayerCache, PlanOptions, RECENT_CHUNK, Recent, positions, recent_positions};

/// Workgroups of one dimension that every adapter dispatches.
const MAX_GROUPS: usize = 65535;

/// Of the states that are asked for, those that a buffer of a layer has room for beside the ones that steps work with.
fn checkpoints(h: &Hyper, o: &PlanOptions) -> usize {
    let widest = (0..h.layers).map(|l| h.state_words(l)).max().unwrap_or(0);
    let most = o.max_binding_words.checked_div(widest).unwrap_or(0);
    o.checkpoints.min(most.saturating_sub(strands::slots(o.sequences, 0)))
}

/// How a container spells the names of its tensors.
fn spelling(c: &Container) -> Spelling {
    if c.kind.is_named_as_gguf() { Spelling::Gguf } else { Spelling::of_directory(|name| c.tensor(name).is_some()) }
}

/// A tensor's name in a file. `what` is GGUF's name without block and suffix; `blk.0.attn_q.weight` is
/// `("attn_q", Some(0), "weight")`. A file that has no name for it gets GGUF's, which it does not have either.
fn tensor_name(spelling: Spelling, arch: &str, what: &str, layer: Option<usize>, suffix: &str) -> String {
    // GGUF has one name for the feed-forward's first matrix, fused or not
    let what = match (what, arch) {
        ("ffn_gate_up", _) => "ffn_up",
        // the one norm there, before the feed-forward
        ("output_norm", "lfm2" | "lfm2moe") => "token_embd_norm",
        ("ffn_norm", "glm4moe" | "gpt-oss" | "qwen35" | "qwen35moe" | "qwen3next") => "post_attention_norm",
        _ => what,
    };
    let name = match layer {
        Some(l) => format!("blk.{l}.{what}.{suffix}"),
        None => format!("{what}.{suffix}"),
    };
    spelling.name(arch, &name).unwrap_or(name)
}

/// The name of a container's output matrix, which it may lack.
pub fn output_name(c: &Container) -> String {
    tensor_name(spelling(c), "llama", "output", None, "weight")
}

/// What a matrix is multiplied with.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Input {
    /// activations as they are
    Floats,
    /// quantised in groups of 128
    Groups,
    /// quantised in whole rows
    Rows(Activations),
}

/// What a product is multiplied with before its bias: the number that files with NVFP4 have beside a matrix.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// 1 where there is none
    One(f32),
    /// of each expert
    Experts(BufId),
}

/// A matrix in one or several buffers of whole row blocks.
#[derive(Clone)]
pub(super) struct Matrix {
    pub ty: BlockType,
    pub input: Input,
    /// columns
    pub k: usize,
    /// of each expert, where it is one for each
    pub rows: usize,
    /// what the file has every product multiplied with
    pub scale: Scale,
    /// (buffer, first row of this matrix, rows), or (buffer, first expert, experts)
    pub parts: Vec<(BufId, usize, usize)>,
}

impl Matrix {
    /// Whether the matrix has its bias within: it is of W8A8 and made for one scale of activations.
    pub fn holds_bias(&self) -> bool {
        matches!(self.input, Input::Rows(Activations::Static { .. }))
    }

    /// The number that every product is multiplied with; 1 where each expert has its own.
    pub fn one_scale(&self) -> f32 {
        if let Scale::One(by) = self.scale { by } else { 1.0 }
    }

    /// Whether the matrix is multiplied with quantised activations.
    pub fn meets_blocks(&self) -> bool {
        self.input != Input::Floats
    }
}

/// The buffers of a step; each is `[token][width]`, the width beside it.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// token ids: 1
    pub ids: BufId,
    /// cos and sin: n_rot; where positions are learned, their rows: dim
    pub rope: BufId,
    /// the same by the table of layers that are rotated by another
    local_rope: BufId,
    /// where tokens and chunks lie (`ops::places`)
    pub places: BufId,
    /// the same for attention; of an encoder, with every token at its text's last position
    seen: BufId,
    /// of an encoder, the same in layers with a window, with what each token sees
    span: BufId,
    /// which tokens are of one sequence, and where its states lie (`ops::strands`)
    pub strands: BufId,
    /// residual stream: dim
    pub x: BufId,
    /// norm of x: dim
    pub normed: BufId,
    /// the same, quantised
    pub normed_act: BufId,
    /// queries: heads · head_dim
    pub q: BufId,
    /// keys: kv_heads · head_dim
    pub k: BufId,
    /// values: kv_heads · head_dim
    pub v: BufId,
    /// queries and keys after a norm of each head, where the model has one; else the buffers of q and k
    pub q_normed: BufId,
    /// see `q_normed`
    pub k_normed: BufId,
    /// what attention gives: heads · head_dim
    pub attended: BufId,
    /// the same, quantised
    pub attended_act: BufId,
    /// what goes to the residual stream: dim
    pub added: BufId,
    /// feed-forward: ffn
    pub gate: BufId,
    /// feed-forward: ffn
    pub up: BufId,
    /// silu(gate) · up, or gelu: ffn
    pub mid: BufId,
    /// the same, quantised
    pub mid_act: BufId,
    /// attention's (m, l, o) between pages
    state: BufId,
}

/// The cache of one layer.
#[derive(Clone, Default)]
struct Pages {
    /// (first position, positions)
    ranges: Vec<(usize, usize)>,
    keys: Vec<BufId>,
    values: Vec<BufId>,
    /// positions of the ring of recent f16 keys and values, 0 for none, and the two buffers
    ring: usize,
    recent: [BufId; 2],
    /// scales and offsets of the channels of keys and of values, where their cache is c8
    channels: [Option<[BufId; 2]>; 2],
}

/// Buffers between the router and what comes out, the same for all layers.
#[derive(Clone, Copy)]
pub struct Mixture {
    /// `[token][expert]`
    pub logits: BufId,
    /// chosen experts, `[token][slot]`
    pub ids: BufId,
    /// their weights, `[token][slot]`
    pub weights: BufId,
    /// pairs by expert (`ops::expert_order`)
    pub order: BufId,
    /// `[token][slot][width]`
    pub gate: BufId,
    /// the same
    pub up: BufId,
    /// the same, of both
    pub mid: BufId,
    /// the same, quantised
    pub mid_act: BufId,
    /// what experts give, `[token][slot][dim]`
    pub given: BufId,
    /// what the shared expert gives, `[token][dim]`
    pub shared: BufId,
    /// how much of it is taken, `[token]`
    pub share: BufId,
}

/// The buffers of latent attention; each is `[token][width]`, the width beside it.
#[derive(Clone, Copy)]
pub struct Latent {
    /// the number of each head: heads
    pub ids: BufId,
    /// pairs of token and head by head (`ops::expert_order`)
    pub order: BufId,
    /// what queries are made of, where that is not a token's own vector: its rank
    pub low: BufId,
    /// its norm: the same
    pub low_normed: BufId,
    /// the same, quantised
    pub low_act: BufId,
    /// queries as the model makes them: heads · (nope + rope)
    pub queries: BufId,
    /// what of them is not rotated: heads · nope
    pub plain: BufId,
    /// the same, quantised head by head
    pub plain_act: BufId,
    /// what keys and values are made of: its rank
    pub latent: BufId,
    /// its norm: the same
    pub latent_normed: BufId,
    /// the part of keys that is rotated: rope
    pub rotated: BufId,
    /// what attention gives of latent vectors: heads · rank
    pub given: BufId,
    /// the same, quantised head by head
    pub given_act: BufId,
    /// values of all heads: heads · value
    pub values: BufId,
}

/// Buffers of a step that Gemma 4 alone has, `[token][width]` each, the width beside it.
#[derive(Clone, Copy)]
pub struct Gemma {
    /// weights of a norm that has none: elements of a head in layers without a window, and in those with one
    pub ones: [BufId; 2],
    /// values of a layer after their norm: kv_heads · head_dim
    pub v_normed: BufId,
    /// the vectors of a token for each layer, where it has some: layers · embedding
    pub vectors: Option<BufId>,
}

/// Buffers of a step that Gemma 3n alone has, `[token][width]` each, the width beside it.
#[derive(Clone, Copy)]
pub struct Streams {
    /// streams that no layer works on: 3 · dim
    pub others: BufId,
    /// what a router sees of a stream: 4
    pub seen: BufId,
    /// coefficients that are made of it: 16, or 4
    pub shares: BufId,
    /// what a layer makes of its stream: dim
    pub z: BufId,
    /// the way beside attention: its rank
    pub low: BufId,
    /// the same, quantised
    pub low_act: BufId,
    /// what comes out of it: dim
    pub laurel: BufId,
    /// elements of `low`
    pub rank: usize,
    /// makes one of them all, of the rows that a step gives; their x, which it goes to, is the last argument
    pub merge: fn(&mut Builder, &Streams, BufId) -> anyhow::Result<()>,
}

/// The buffers of short convolutions; each is `[token][width]`, the width beside it.
#[derive(Clone, Copy)]
pub struct Gated {
    /// b, c and u: three times the model's width
    pub parts: BufId,
    /// the model's width
    pub mid: BufId,
    /// its blocks
    pub mid_act: BufId,
}

/// Buffers of a step that state space layers alone have, `[token][width]` each, the width beside it; inner: the channels of
/// all heads.
#[derive(Clone, Copy)]
pub struct StateSpace {
    /// gate of what the recurrence gives: inner
    pub z: BufId,
    /// x, B and C before the convolution: channels
    pub mixed: BufId,
    /// steps before they are positive: heads
    pub dt: BufId,
    /// inner
    pub x: BufId,
    /// B and C: 2 · groups · state
    pub bc: BufId,
    /// steps and shares that stay: 2 · heads
    pub gates: BufId,
    /// what the recurrence gives: inner
    pub given: BufId,
    /// silu(z) times that: inner
    pub gated: BufId,
    /// its norm: inner
    pub normed: BufId,
    /// the same, quantised
    pub normed_act: BufId,
    /// weights of a norm that has none, of a model of more than one group: inner / groups
    pub ones: Option<BufId>,
}

/// Buffers of a step that hybrid layers alone have, `[token][width]` each, the width beside it.
#[derive(Clone, Copy)]
pub struct Hybrid {
    /// attention's gate: heads · head_dim
    pub attn_gate: BufId,
    /// queries, keys and values before the convolution: channels
    pub mixed: BufId,
    /// gate of what a delta net gives: values
    pub z: BufId,
    /// what its gates are made of: 2 · heads
    pub ba: BufId,
    /// queries and keys: 2 · keys
    pub qk: BufId,
    /// the same with length 1: 2 · keys
    pub qk_normed: BufId,
    /// values
    pub v: BufId,
    /// beta and gamma: 2 · heads
    pub gates: BufId,
    /// what the rule gives: values
    pub given: BufId,
    /// its norm: values
    pub given_normed: BufId,
    /// silu(z) times that: values
    pub mid: BufId,
    /// the same, quantised
    pub mid_act: BufId,
    /// the weight of the norm of queries and keys: size
    pub unit: BufId,
}

/// Least scale of a channel of a c8 cache (2^-40) and greatest (2^40): quotients and products of stored values by it are
/// neither subnormal nor infinite.
const CHANNEL_SCALES: std::ops::RangeInclusive<f32> = SCALE_MIN..=1.0 / SCALE_MIN;

/// Greatest magnitude of a channel's offset.
const CHANNEL_OFFSET: f32 = 32768.0;

/// Makes a plan step by step. Weights are claimed where they are used.
pub(super) struct Builder<'a> {
    pub c: &'a Container,
    pub h: &'a Hyper,
    pub o: &'a PlanOptions,
    spelling: Spelling,
    buffers: Vec<BufDecl>,
    commands: Vec<Command>,
    claimed: HashSet<String>,
    pub layer: Option<usize>,
    /// what the number of rows of commands follows that are recorded now
    pub rows: Rows,
    /// the tokens that are computed now: all, or those whose logits are wanted
    pub base: Rows,
    pub work: Work,
    /// buffers of the experts' results, from the first layer on that has any
    pub mixture: Option<Mixture>,
    /// layers so far that have experts
    pub expert_layers: usize,
    /// buffers of hybrid layers, from the first on
    pub hybrid: Option<Hybrid>,
    /// those of short convolutions
    pub gated: Option<Gated>,
    /// those of state spaces
    pub state_space: Option<StateSpace>,
    /// those of latent attention
    pub latent: Option<Latent>,
    /// those of Gemma 4
    pub gemma: Option<Gemma>,
    /// those of Gemma 3n
    pub streams: Option<Streams>,
    /// places of the tokens whose logits are wanted, where some layers compute no others
    late_places: Option<BufId>,
    /// states that may be kept
    checkpoints: usize,
    /// the rotation's tables of a step, as the host gives them
    tables: [BufId; 2],
    embed: Matrix,
    /// how what lies in a buffer of quantised activations was quantised
    quantised: HashMap<BufId, Input>,
    pages: Pages,
    /// pages of layers that later ones read
    read: HashMap<usize, Pages>,
    /// positions that layers of the second table see; 0 where there are none
    window: usize,
    /// pages by table: (first position in the pool, positions)
    ranges: [Vec<(usize, usize)>; TABLES],
    layers: Vec<LayerCache>,
    cache_words: usize,
    recent_words: usize,
}

impl<'a> Builder<'a> {
    /// Checks the options, makes the working buffers, and records the embedding: x = E\[ids\].
    ///
    /// Errors: cache types that do not fit the heads; buffers beyond the
    /// binding limit; an embedding that is missing or has another shape.
    pub fn new(c: &'a Container, h: &'a Hyper, o: &'a PlanOptions, page: usize) -> anyhow::Result<Builder<'a>> {
        ensure!(o.n_ctx >= 1 && o.ubatch >= 1 && o.max_out >= 1 && o.sequences >= 1, PlanError::Zero);
        let codes = h.has_attention() && [o.k_type, o.v_type].contains(&CacheType::C8);
        ensure!(!codes || !o.recent.applies(o.k_type, o.v_type), PlanError::RecentCodes);
        let mut b = Builder {
            c,
            h,
            o,
            spelling: spelling(c),
            buffers: vec![],
            commands: vec![],
            claimed: HashSet::new(),
            layer: None,
            rows: Rows::Tokens,
            base: Rows::Tokens,
            late_places: None,
            checkpoints: checkpoints(h, o),
            tables: [0; 2],
            work: Work {
                ids: 0,
                rope: 0,
                local_rope: 0,
                places: 0,
                seen: 0,
                span: 0,
                strands: 0,
                x: 0,
                normed: 0,
                normed_act: 0,
                q: 0,
                k: 0,
                v: 0,
                q_normed: 0,
                k_normed: 0,
                attended: 0,
                attended_act: 0,
                added: 0,
                gate: 0,
                up: 0,
                mid: 0,
                mid_act: 0,
                state: 0,
            },
            mixture: None,
            expert_layers: 0,
            hybrid: None,
            gated: None,
            state_space: None,
            latent: None,
            gemma: None,
            streams: None,
            embed: Matrix {
                ty: BlockType::F32,
                input: Input::Floats,
                k: 0,
                rows: 0,
                scale: Scale::One(1.0),
                parts: vec![],
            },
            quantised: HashMap::new(),
            pages: Pages::default(),
            read: HashMap::new(),
            window: 0,
            ranges: Default::default(),
            layers: vec![],
            cache_words: 0,
            recent_words: 0,
        };
        b.lay_out(page)?;
        b.embed = b.matrix("token_embd", h.dim, h.vocab)?;
        ensure!(
            !b.embed.ty.meets_rows(),
            "{}: the embedding is {}, which only linears may be",
            c.files[0].display(),
            b.embed.ty.name()
        );
        for (w, row0, rows) in b.embed.parts.clone() {
            let p = EmbedParams { n_tokens: 0, dim: h.dim as u32, row0: row0 as u32, rows: rows as u32 };
            b.push("embed", Op::Embed(b.embed.ty), Args::Embed(p), vec![b.work.ids, w, b.work.x]);
        }
        b.scale("token_embd_scale", b.embed.one_scale(), h.dim, b.work.x);
        b.scale("embed_scale", h.embedding_scale, h.dim, b.work.x);
        if h.family.learns_positions() {
            let (asked, context) = (o.n_ctx, h.context);
            ensure!(asked <= context, PlanError::Positions { asked, context });
            // the host gives the rows of a step's positions, as it gives cos and sin to others
            b.claim(&b.name("position_embd", "weight"), &[h.dim, context])?;
            b.add("position_embd", b.work.rope, b.work.x);
        }
        Ok(b)
    }

    /// Declares the working buffers and cuts the cache into pages of at most `page` positions.
    fn lay_out(&mut self, page: usize) -> anyhow::Result<()> {
        let (h, o, t) = (self.h, self.o, self.o.ubatch);
        self.work.ids = self.buffer("ids", t, Role::Input)?;
        self.work.rope = self.buffer("rope", t * h.table_width(), Role::Input)?;
        if h.local_rope.is_some() {
            self.work.local_rope = self.buffer("local_rope", t * h.local_rot(), Role::Input)?;
        }
        self.tables = [self.work.rope, self.work.local_rope];
        let n_ctx = positions(o.n_ctx);
        let tables = o.sequences * (TABLES * (n_ctx / CHUNK) + 1);
        self.work.places = self.buffer("places", t * TOKEN + tables, Role::Input)?;
        self.work.seen = self.work.places;
        if h.family.is_encoder() {
            self.work.seen = self.buffer("seen", t * TOKEN + tables, Role::Input)?;
        }
        if h.family.is_encoder() && self.has_windows() {
            self.work.span = self.buffer("span", t * TOKEN + tables, Role::Input)?;
        }
        if h.has_states() {
            self.work.strands = self.buffer("strands", strands::words(t, o.sequences), Role::Input)?;
        }
        self.work.x = self.scratch("x", t * h.dim)?;
        self.work.normed = self.scratch("normed", t * h.dim)?;
        self.work.normed_act = self.scratch("normed_act", t * act_words(h.dim, o.digits))?;
        self.work.added = self.scratch("added", t * h.dim)?;
        if h.has_attention() {
            self.lay_out_layers()?;
        }
        // positions per cache page: whole chunks, as many as one binding holds
        let pool = o.pool.map_or(n_ctx, positions).max(n_ctx);
        let mut widest = 0;
        for l in (0..h.layers).filter(|l| h.keeps_cache(*l)) {
            let (keys, values) = self.cached(l)?;
            widest = widest.max(h.heads_of(l).kv_heads * keys.max(values));
        }
        let page_limit = o.max_binding_words / widest.max(1) / CHUNK * CHUNK;
        ensure!(
            page_limit > 0,
            PlanError::Binding { what: "64 cached positions".into(), limit: o.max_binding_words * 4 }
        );
        // of layers that go by the other table a sequence holds what its window and a step reach over; a text is whole
        let causal = (0..h.layers).filter(|_| !h.family.is_encoder());
        self.window = causal.into_iter().find_map(|l| self.window_of(l)).unwrap_or(0);
        let held = positions(self.window + t + CHUNK).saturating_mul(o.sequences);
        // and never less than one sequence may have, so that it may lie in order
        let pools = [pool, if o.pool.is_some() { pool.min(held.max(n_ctx)) } else { pool }];
        for (ranges, pool) in self.ranges.iter_mut().zip(pools) {
            let page = pool.min(page_limit).min((page / CHUNK * CHUNK).max(CHUNK));
            *ranges = (0..pool).step_by(page).map(|first| (first, page.min(pool - first))).collect();
        }
        if h.has_attention() && o.recent.applies(o.k_type, o.v_type) {
            self.pages.ring = recent_positions(t, o.sequences);
        }
        let carries = self.ranges.iter().any(|r| r.len() > 1) || self.pages.ring > 0 || h.family.has_sinks();
        let state_words = if carries { t * h.heads * (h.widest_head() + 2) } else { 4 };
        if h.has_attention() {
            self.work.state = self.scratch("attention_state", state_words)?;
        }
        Ok(())
    }

    /// Declares the buffers of attention and of the feed-forward.
    fn lay_out_layers(&mut self) -> anyhow::Result<()> {
        let (h, o, t) = (self.h, self.o, self.o.ubatch);
        let width = h.heads * h.widest_head();
        self.work.q = self.scratch("q", t * width)?;
        self.work.k = self.scratch("k", t * h.widest_kv())?;
        self.work.v = self.scratch("v", t * h.widest_kv())?;
        (self.work.q_normed, self.work.k_normed) = (self.work.q, self.work.k);
        if h.family.head_norms() != HeadNorms::None || self.has_layer_norms_of_heads() {
            self.work.q_normed = self.scratch("q_normed", t * width)?;
            self.work.k_normed = self.scratch("k_normed", t * h.widest_kv())?;
        }
        self.work.attended = self.scratch("attended", t * width)?;
        let values = h.mla.as_ref().map_or(width, |m| h.heads * m.value);
        self.work.attended_act = self.scratch("attended_act", t * act_words(values, o.digits))?;
        let ffn = h.plain_ffn().max(h.uneven.embedding);
        self.work.gate = self.scratch("gate", t * ffn)?;
        self.work.up = self.scratch("up", t * ffn)?;
        self.work.mid = self.scratch("mid", t * ffn)?;
        self.work.mid_act = self.scratch("mid_act", t * act_words(ffn, o.digits))?;
        Ok(())
    }

    /// Everything recorded from now on belongs to layer `l`, whose cache is declared here.
    pub fn start_layer(&mut self, l: usize) -> anyhow::Result<()> {
        self.layer = Some(l);
        (self.pages.keys, self.pages.values) = (vec![], vec![]);
        if !self.h.keeps_cache(l) {
            self.layers.push(LayerCache::default());
            if let Some(read) = self.h.read_of(l).and_then(|own| self.read.get(&own)) {
                self.pages = read.clone();
            }
            return Ok(());
        }
        let (kv_heads, cached) = (self.heads().kv_heads, self.cached(l)?);
        let sides = [("attn_k", Cached::Keys, self.o.k_type), ("attn_v", Cached::Values, self.o.v_type)];
        for (i, (what, cached, ty)) in sides.into_iter().enumerate() {
            self.pages.channels[i] = self.channels(what, cached, ty)?;
        }
        self.pages.ranges = self.ranges[self.table(l)].clone();
        for (i, (_, len)) in self.pages.ranges.clone().into_iter().enumerate() {
            let words = (kv_heads * len * cached.0, kv_heads * len * cached.1);
            let keys = self.buffer(&format!("layer {l} keys page {i}"), words.0, Role::Cache)?;
            let values = self.buffer(&format!("layer {l} values page {i}"), words.1, Role::Cache)?;
            self.pages.keys.push(keys);
            self.pages.values.push(values);
            self.cache_words += words.0 + words.1;
        }
        let pages = [self.pages.keys.clone(), self.pages.values.clone()];
        let (table, heads, words) = (self.table(l), kv_heads, cached.into());
        self.layers.push(LayerCache { table, heads, pages, words });
        if self.pages.ring > 0 {
            let words =
                kv_heads * self.pages.ring * cache_words(CacheType::F16, self.heads().head_dim, Cached::Recent)?;
            for (id, what) in ["keys", "values"].into_iter().enumerate() {
                self.pages.recent[id] = self.buffer(&format!("layer {l} {what} recent"), words, Role::Recent)?;
                self.recent_words += words;
            }
        }
        if (l + 1..self.h.layers).any(|later| self.h.read_of(later) == Some(l)) {
            self.read.insert(l, self.pages.clone());
        }
        Ok(())
    }

    /// The heads of the layer that is recorded.
    pub fn heads(&self) -> Heads {
        self.h.heads_of(self.layer.unwrap_or(0))
    }

    /// Words of a cached key and value of layer `l`, per head.
    fn cached(&self, l: usize) -> Result<(usize, usize), PlanError> {
        let head_dim = self.h.heads_of(l).head_dim;
        Ok((cache_words(self.o.k_type, head_dim, Cached::Keys)?, cache_words(self.o.v_type, head_dim, Cached::Values)?))
    }

    /// Scales and offsets of the channels of keys or values, `[kv_heads][head_dim]` each, where the cache is c8. Where it is
    /// not, a file may have them all the same, and they are claimed.
    ///
    /// Errors: they are missing; of another length; values that are not finite or out of bounds.
    fn channels(&mut self, what: &str, cached: Cached, ty: CacheType) -> anyhow::Result<Option<[BufId; 2]>> {
        let width = self.heads().kv_heads * self.heads().head_dim;
        let mut list = [0; 2];
        for (id, suffix) in list.iter_mut().zip(["kv_cache_scale", "kv_cache_offset"]) {
            let name = self.name(what, suffix);
            if ty != CacheType::C8 {
                if self.c.tensor(&name).is_some() {
                    self.claim(&name, &[width])?;
                }
                continue;
            }
            let Some(t) = self.c.tensor(&name) else {
                bail!(PlanError::Channels { what: cached, tensor: name });
            };
            *id = self.vector(what, suffix, width)?;
            let values = vector::vector(self.c, t)?;
            let (fits, bounds): (fn(f32) -> bool, _) = match suffix {
                "kv_cache_scale" => (|v| CHANNEL_SCALES.contains(&v), "from 2^-40 to 2^40"),
                _ => (|v| v.abs() <= CHANNEL_OFFSET, "of magnitude 32768 at most"),
            };
            if let Some(i) = values.iter().position(|v| !fits(*v)) {
                bail!("{} holds {} at element {i}, expected numbers {bounds}", vector::place(self.c, t), values[i]);
            }
        }
        Ok((ty == CacheType::C8).then_some(list))
    }

    /// The rows a step gives: norm(x), or logits of it.
    pub fn finish(mut self) -> anyhow::Result<Built> {
        let (h, r) = (self.h, self.o.max_out);
        self.layer = None;
        let chosen = match self.base {
            Rows::Outputs => self.work.x,
            _ => self.wanted("select", h.dim, self.work.x)?,
        };
        let out_normed = self.scratch("out_normed", r * h.dim)?;
        self.rows = Rows::Outputs;
        if let Some(s) = self.streams {
            (s.merge)(&mut self, &s, chosen)?;
        }
        if !h.family.is_bert() {
            self.norm("output_norm", chosen, out_normed)?;
        }
        let (rows, width, selected) = match self.o.head {
            // what the last layer leaves is normed
            Head::Hidden if h.family.is_bert() => (chosen, h.dim, None),
            Head::Hidden => {
                self.claimed.insert(output_name(self.c));
                (out_normed, h.dim, None)
            }
            Head::Logits => {
                let logits = self.logits(out_normed)?;
                (logits, h.vocab, self.select(logits)?)
            }
        };
        let pages = std::array::from_fn(|t| {
            let used = (0..h.layers).any(|l| self.table(l) == t);
            self.ranges[t].iter().filter(|_| used).map(|(_, len)| len / CHUNK).collect()
        });
        self.check_unclaimed()?;
        let side = h.window.filter(|_| h.family.is_encoder() && self.has_windows()).map(|w| w as u32 - 1);
        let span = side.map(|side| (self.work.span, side));
        let plan = Plan {
            buffers: self.buffers,
            recording: Recording { commands: self.commands },
            placing: Some(Placing {
                buffer: self.work.places,
                ring: self.pages.ring / CHUNK,
                outputs: self.late_places,
            }),
            strands: h.has_states().then_some(self.work.strands),
            logits: Some(rows),
            selected,
            width,
            max_tokens: self.o.ubatch,
            max_out: r,
        };
        let (ids, [rope, local_rope], layers) = (self.work.ids, self.tables, self.layers);
        let local_rope = h.local_rope.is_some().then_some(local_rope);
        let seen = h.family.is_encoder().then_some(self.work.seen);
        let (strands, sequences, n_ctx) = (plan.strands, self.o.sequences, positions(self.o.n_ctx));
        let slots = if h.has_states() { strands::slots(sequences, self.checkpoints) } else { 0 };
        let (window, cache_words, recent_words) = (self.window, self.cache_words, self.recent_words);
        Ok(Built {
            plan,
            ids,
            rope,
            local_rope,
            seen,
            span,
            strands,
            sequences,
            slots,
            checkpoints: self.checkpoints,
            n_ctx,
            pages,
            window,
            layers,
            cache_words,
            recent_words,
        })
    }

    /// The rows of x, `[token][dim]`, of the tokens whose logits are wanted.
    fn wanted(&mut self, label: &str, dim: usize, x: BufId) -> anyhow::Result<BufId> {
        let y = self.scratch(if label == "select" { "chosen" } else { label }, self.o.max_out * dim)?;
        let p = SelectRowsParams { n_tokens: 0, dim: dim as u32, first: 0 };
        let rows = std::mem::replace(&mut self.rows, Rows::Outputs);
        self.push(label, Op::SelectRows, Args::SelectRows(p), vec![x, y]);
        self.rows = rows;
        Ok(y)
    }

    /// From here on only the tokens are computed whose logits are wanted: the layers left write no keys and values that others
    /// would read. Gives their rows of the buffers `kept`, each with its width.
    pub fn go_on_with_wanted(&mut self, kept: &[(&str, usize, BufId)]) -> anyhow::Result<Vec<BufId>> {
        let (h, w) = (self.h, self.work);
        self.work.x = self.wanted("wanted_x", h.dim, w.x)?;
        self.work.rope = self.wanted("wanted_rope", h.table_width(), w.rope)?;
        if h.local_rope.is_some() {
            self.work.local_rope = self.wanted("wanted_local_rope", h.local_rot(), w.local_rope)?;
        }
        let words = self.buffers[w.places].words;
        self.work.seen = self.buffer("wanted_places", words, Role::Input)?;
        self.late_places = Some(self.work.seen);
        let kept = kept.iter().map(|&(name, dim, x)| self.wanted(name, dim, x)).collect::<anyhow::Result<_>>()?;
        (self.base, self.rows) = (Rows::Outputs, Rows::Outputs);
        Ok(kept)
    }

    /// W · x, `[row][vocab]`, W being the output matrix, or the embedding where the file has none.
    fn logits(&mut self, x: BufId) -> anyhow::Result<BufId> {
        let (h, r) = (self.h, self.o.max_out);
        let act = self.scratch("out_act", r * act_words(h.dim, self.o.digits))?;
        let logits = self.scratch("logits", r * h.vocab)?;
        let head = output_name(self.c);
        let output = if self.c.tensor(&head).is_some() {
            self.matrix("output", h.dim, h.vocab)?
        } else {
            ensure!(
                h.tied != Some(false),
                "{}: tensor {head} is missing, and tie_word_embeddings is false",
                self.c.files[0].display()
            );
            self.embed.clone()
        };
        self.quantize("out_act", &[&output], x, act);
        self.linear("logits", &output, x, act, logits);
        if h.family == Family::Phi2 {
            self.bias("output", h.vocab, logits)?;
        }
        self.scale("logit_scale", (1.0 / f64::from(h.logit_divisor)) as f32, h.vocab, logits);
        if h.logit_softcap != 0.0 {
            let (cap, inv_cap) = (h.logit_softcap, softcap::inverse(h.logit_softcap));
            let p = SoftcapParams { n_tokens: 0, dim: h.vocab as u32, cap, inv_cap };
            self.push("logit_softcap", Op::Softcap, Args::Softcap(p), vec![logits]);
        }
        Ok(logits)
    }

    /// The best logits of one row: of each slice of the vocabulary, then of those lists, for steps that ask for it. `None`
    /// where the lists do not fit a binding.
    fn select(&mut self, logits: BufId) -> anyhow::Result<Option<BufId>> {
        let (vocab, most) = (self.h.vocab as u32, K_MAX as usize * PAIR);
        let lists = vocab.div_ceil(SLICE);
        if lists as usize * most > self.o.max_binding_words {
            return Ok(None);
        }
        let best_of_slices = self.scratch("best_of_slices", lists as usize * most)?;
        let selected = self.scratch("selected", most)?;
        let p = TopKParams { n_tokens: 0, n: vocab, k: 1, slice: SLICE, lists: 0 };
        self.push("best_of_slices", Op::TopK, Args::TopK(p), vec![logits, best_of_slices]);
        // entries in a row follow k, which belongs to the step
        let p = TopKParams { n: 0, slice: 0, lists, ..p };
        self.push("selected", Op::TopK, Args::TopK(p), vec![best_of_slices, selected]);
        Ok(Some(selected))
    }

    /// A buffer, which the device can bind.
    pub fn buffer(&mut self, name: &str, words: usize, role: Role) -> anyhow::Result<BufId> {
        ensure!(
            words <= self.o.max_binding_words,
            PlanError::Buffer { name: name.into(), bytes: words * 4, limit: self.o.max_binding_words * 4 }
        );
        self.buffers.push(BufDecl { name: name.to_string(), words, role });
        Ok(self.buffers.len() - 1)
    }

    /// An intermediate buffer.
    pub fn scratch(&mut self, name: &str, words: usize) -> anyhow::Result<BufId> {
        self.buffer(name, words, Role::Scratch)
    }

    /// A state of this layer, in slots of `words`.
    pub fn state(&mut self, what: &str, words: usize) -> anyhow::Result<BufId> {
        let (slots, limit) = (strands::slots(self.o.sequences, self.checkpoints), self.o.max_binding_words);
        let (l, all) = (self.layer.unwrap_or_default(), words.saturating_mul(slots));
        let what_is = || format!("the states of {} sequences", self.o.sequences);
        ensure!(all <= limit, PlanError::Binding { what: what_is(), limit: limit * 4 });
        self.buffer(&format!("layer {l} {what}"), all, Role::State)
    }

    /// A tensor nobody asked for means the model is not what the config says.
    fn check_unclaimed(&self) -> anyhow::Result<()> {
        for t in &self.c.tensors {
            let known = match t.name.as_str() {
                "rope_freqs.weight" => true,
                // a ModernBERT's head over pooled states, in llama.cpp's files
                "cls.weight" | "cls.norm.weight" => self.h.family == Family::ModernBert,
                // `Dense` reads them
                name if dense::is_one(name) => true,
                LONG_FACTORS | SHORT_FACTORS => matches!(self.h.rope_scaling, RopeScaling::LongRope { .. }),
                name => names::is_frequencies(name) || self.h.is_guessing(name),
            };
            if !known && !self.claimed.contains(&t.name) {
                bail!(
                    "{}: tensor {} has no place in a {} model (other biases and adapters are not supported)",
                    self.c.files[0].display(),
                    t.name,
                    self.h.family.name()
                );
            }
        }
        Ok(())
    }
}

fn cache_words(ty: CacheType, head_dim: usize, what: Cached) -> Result<usize, PlanError> {
    ty.words(head_dim).ok_or(PlanError::CacheType { what, ty, head_dim })
}
