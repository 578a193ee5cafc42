//! What every decoder's plan is made of: claimed tensors, buffers, commands, cache pages.
//!
//! The models themselves (`llama`, `phi3`, `qwen`, `chatglm`, `normed`, `layernormed`) say in which order; nothing here
//! knows an architecture but the names its tensors have in either kind of file. A [`Builder`] holds the working buffers of a step, `[token][width]` each,
//! and appends commands to one recording.

use super::error::{Cached, PlanError};
use super::family::{Family, HeadNorms, Norms, Rotation};
use super::hyper::{Hyper, LONG_FACTORS, RopeScaling, SHORT_FACTORS};
use super::vector;
use crate::blocks::{BlockType, pack};
use crate::formats::names::{self, Spelling};
use crate::formats::{Activations, Container};
use crate::ops::act_quantize::ActQuantizeParams;
use crate::ops::add::AddParams;
use crate::ops::add_bias::AddBiasParams;
use crate::ops::attention::{AttentionParams, CHUNK, SCOPE_ALL, SCOPE_OLDER, SCOPE_OWN};
use crate::ops::attention_sinks::AttentionSinksParams;
use crate::ops::cache::{CacheType, CacheWriteParams};
use crate::ops::channel_quantize::ChannelQuantizeParams;
use crate::ops::channel_scale::ChannelScaleParams;
use crate::ops::embed::EmbedParams;
use crate::ops::exact::{SCALE_MIN, flush};
use crate::ops::geglu::GegluParams;
use crate::ops::layer_norm::LayerNormParams;
use crate::ops::linear::ROW_BLOCK;
use crate::ops::linear::{LinearParams, act_words};
use crate::ops::places::{TABLES, TOKEN};
use crate::ops::rms_norm::RmsNormParams;
use crate::ops::rope::RopeParams;
use crate::ops::row_quantize::RowQuantizeParams;
use crate::ops::scale::ScaleParams;
use crate::ops::select_rows::SelectRowsParams;
use crate::ops::softcap::{self, SoftcapParams};
use crate::ops::strands;
use crate::ops::swiglu::SwigluParams;
use crate::ops::top_k::{K_MAX, PAIR, SLICE, TopKParams};
use crate::record::{Args, BufDecl, BufId, Change, Command, Op, Part, Piece, Placing, Plan, Recording, Role, Rows};
use anyhow::{Context, bail, ensure};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Workgroups of one dimension that every adapter dispatches.
const MAX_GROUPS: usize = 65535;

/// Choices that shape a plan. By default a context of 512, one row of logits a step, activations of 8 bits and an f16 cache,
/// on a device that binds buffers of any size.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// positions a sequence may have
    pub n_ctx: usize,
    /// sequences that a step may have tokens of
    pub sequences: usize,
    /// positions the cache has for all sequences together; `None`: `n_ctx`
    pub pool: Option<usize>,
    /// tokens in a step, at most
    pub ubatch: usize,
    /// rows that a step gives, at most
    pub max_out: usize,
    /// digits of the activations: 1 (8 bits) or 2 (16)
    pub digits: usize,
    /// type of cached keys
    pub k_type: CacheType,
    /// type of cached values
    pub v_type: CacheType,
    /// whether a query reads its own chunk from an f16 copy
    pub recent: Recent,
    /// what a step gives for a token
    pub head: Head,
    /// largest buffer the device can bind, in words
    pub max_binding_words: usize,
}

/// What a step gives for a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Head {
    /// logits, `[vocab]`
    #[default]
    Logits,
    /// what the output matrix would be multiplied with, the norm of what the last layer leaves: `[dim]`
    Hidden,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions {
            n_ctx: 512,
            sequences: 1,
            pool: None,
            ubatch: 512,
            max_out: 1,
            digits: 1,
            k_type: CacheType::F16,
            v_type: CacheType::F16,
            recent: Recent::Auto,
            head: Head::Logits,
            // in bytes it is still a number of a usize
            max_binding_words: usize::MAX / 8,
        }
    }
}

/// Whether a query reads the keys and values of its own chunk of 64 positions from an f16 copy rather than from the cache
/// (`docs/exactness.md` section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recent {
    /// where keys or values are tq3_1, and neither are c8
    #[default]
    Auto,
    /// always
    On,
    /// never
    Off,
}

impl Recent {
    /// By its command-line name.
    pub fn parse(name: &str) -> Option<Recent> {
        [("auto", Recent::Auto), ("on", Recent::On), ("off", Recent::Off)]
            .into_iter()
            .find(|r| r.0 == name)
            .map(|r| r.1)
    }

    /// Whether a cache of these types has the copy.
    pub fn applies(self, k: CacheType, v: CacheType) -> bool {
        match self {
            Recent::Auto => [k, v].contains(&CacheType::TQ3_1) && ![k, v].contains(&CacheType::C8),
            on => on == Recent::On,
        }
    }

    /// What a word like `tq3_1/f16+r64` asks for: types of keys and values (`f16` is `f16/f16`), and whether with the copy.
    /// Errors: a type that is none, in one line.
    pub fn parse_types(word: &str) -> Result<(CacheType, CacheType, Recent), String> {
        let known = || CacheType::ALL.map(CacheType::name).join(", ");
        let one = |name: &str| CacheType::parse(name).ok_or_else(|| format!("{name} is none of {}", known()));
        let (types, recent) = word.strip_suffix("+r64").map_or((word, Recent::Off), |types| (types, Recent::On));
        let (k, v) = types.split_once('/').unwrap_or((types, types));
        Ok((one(k)?, one(v)?, recent))
    }

    /// The types for messages: `tq3_1/tq3_1`, with `+r64` where a cache of them has the copy.
    pub fn title(self, k: CacheType, v: CacheType) -> String {
        format!("{}/{}{}", k.name(), v.name(), if self.applies(k, v) { "+r64" } else { "" })
    }
}

/// Positions of a chunk: a sequence may be taken up again where one begins without what came before in the f16 copy.
pub const RECENT_CHUNK: usize = CHUNK;

/// Positions in the f16 copy's ring: the chunks that a step of `ubatch` tokens may touch, and one for each sequence besides
/// the first, whose last chunk stays there between steps.
pub fn recent_positions(ubatch: usize, sequences: usize) -> usize {
    (CHUNK - 1 + ubatch).next_multiple_of(CHUNK) + (sequences - 1) * CHUNK
}

/// A plan and the buffers the host writes.
#[derive(Clone, Debug)]
pub struct Built {
    /// the plan
    pub plan: Plan,
    /// token ids `[token]`
    pub ids: BufId,
    /// RoPE table `[token][n_rot/2][cos, sin]`; where positions are learned, their rows `[token][dim]`
    pub rope: BufId,
    /// the same by another table, where some layers are rotated by one
    pub local_rope: Option<BufId>,
    /// of an encoder, what attention goes by in the place of the plan's `placing`: the same words (`ops::places`), every token
    /// being at the last position of its text, so that it sees all of it
    pub seen: Option<BufId>,
    /// of a model with recurrent layers, the words of the step's strands (`ops::strands`)
    pub strands: Option<BufId>,
    /// sequences that a step may have tokens of
    pub sequences: usize,
    /// positions a sequence may have: [`positions`] of what was asked for
    pub n_ctx: usize,
    /// by table (`ops::places`), the chunks of each page of the pool of the layers that go by it; none where no layer does
    pub pages: [Vec<usize>; TABLES],
    /// positions that queries of layers of the second table see; 0: there are none
    pub window: usize,
    /// by layer, where its cache lies
    pub layers: Vec<LayerCache>,
    /// words of all cache pages together
    pub cache_words: usize,
    /// words of all f16 copies of recent positions together, the same for every context; 0 where there are none
    pub recent_words: usize,
}

/// Where the cache of a layer lies.
#[derive(Clone, Debug, Default)]
pub struct LayerCache {
    /// the table it goes by
    pub table: usize,
    /// key-value heads
    pub heads: usize,
    /// by page, the buffers of keys and of values: `[head][position][word]`, of keys with 32 positions side by side
    pub pages: [Vec<BufId>; 2],
    /// words of a key and of a value of one head
    pub words: [usize; 2],
}

/// Positions a session asked for `n_ctx` has: whole chunks of 64. A window limits what a query sees of them, not how many
/// there are: the cache keeps them all.
pub fn positions(n_ctx: usize) -> usize {
    n_ctx.next_multiple_of(CHUNK)
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
#[derive(Default)]
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
    pub work: Work,
    /// buffers of the experts' results, from the first layer on that has any
    pub mixture: Option<Mixture>,
    /// buffers of hybrid layers, from the first on
    pub hybrid: Option<Hybrid>,
    embed: Matrix,
    /// how what lies in a buffer of quantised activations was quantised
    quantised: HashMap<BufId, Input>,
    pages: Pages,
    /// words of a cached key and value, per head
    cached: (usize, usize),
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
        let words = |ty, what| cache_words(ty, h.head_dim, what);
        let cached = (words(o.k_type, Cached::Keys)?, words(o.v_type, Cached::Values)?);
        let codes = [o.k_type, o.v_type].contains(&CacheType::C8);
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
            work: Work {
                ids: 0,
                rope: 0,
                local_rope: 0,
                places: 0,
                seen: 0,
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
            hybrid: None,
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
            cached,
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
        if let Scale::One(by) = b.embed.scale {
            b.scale("token_embd_scale", by, h.dim, b.work.x);
        }
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
        let (width, kv_width) = (h.heads * h.head_dim, h.kv_heads * h.head_dim);
        self.work.ids = self.buffer("ids", t, Role::Input)?;
        self.work.rope = self.buffer("rope", t * h.table_width(), Role::Input)?;
        if h.local_rope.is_some() {
            self.work.local_rope = self.buffer("local_rope", t * h.n_rot, Role::Input)?;
        }
        let n_ctx = positions(o.n_ctx);
        let tables = o.sequences * (TABLES * (n_ctx / CHUNK) + 1);
        self.work.places = self.buffer("places", t * TOKEN + tables, Role::Input)?;
        self.work.seen = self.work.places;
        if h.family.is_encoder() {
            self.work.seen = self.buffer("seen", t * TOKEN + tables, Role::Input)?;
        }
        if h.delta.is_some() {
            self.work.strands = self.buffer("strands", strands::words(t, o.sequences), Role::Input)?;
        }
        self.work.x = self.scratch("x", t * h.dim)?;
        self.work.normed = self.scratch("normed", t * h.dim)?;
        self.work.normed_act = self.scratch("normed_act", t * act_words(h.dim, o.digits))?;
        self.work.q = self.scratch("q", t * width)?;
        self.work.k = self.scratch("k", t * kv_width)?;
        self.work.v = self.scratch("v", t * kv_width)?;
        (self.work.q_normed, self.work.k_normed) = (self.work.q, self.work.k);
        if h.family.head_norms() != HeadNorms::None || self.has_layer_norms_of_heads() {
            self.work.q_normed = self.scratch("q_normed", t * width)?;
            self.work.k_normed = self.scratch("k_normed", t * kv_width)?;
        }
        self.work.attended = self.scratch("attended", t * width)?;
        self.work.attended_act = self.scratch("attended_act", t * act_words(width, o.digits))?;
        self.work.added = self.scratch("added", t * h.dim)?;
        let ffn = h.plain_ffn();
        self.work.gate = self.scratch("gate", t * ffn)?;
        self.work.up = self.scratch("up", t * ffn)?;
        self.work.mid = self.scratch("mid", t * ffn)?;
        self.work.mid_act = self.scratch("mid_act", t * act_words(ffn, o.digits))?;
        // positions per cache page: whole chunks, as many as one binding holds
        let pool = o.pool.map_or(n_ctx, positions).max(n_ctx);
        let page_limit = o.max_binding_words / (h.kv_heads * self.cached.0.max(self.cached.1)) / CHUNK * CHUNK;
        ensure!(
            page_limit > 0,
            PlanError::Binding { what: "64 cached positions".into(), limit: o.max_binding_words * 4 }
        );
        // of layers that go by the other table a sequence holds what its window and a step reach over
        self.window = (0..h.layers).find_map(|l| self.window_of(l)).unwrap_or(0);
        let held = positions(self.window + t + CHUNK).saturating_mul(o.sequences);
        // and never less than one sequence may have, so that it may lie in order
        let pools = [pool, if o.pool.is_some() { pool.min(held.max(n_ctx)) } else { pool }];
        for (ranges, pool) in self.ranges.iter_mut().zip(pools) {
            let page = pool.min(page_limit).min((page / CHUNK * CHUNK).max(CHUNK));
            *ranges = (0..pool).step_by(page).map(|first| (first, page.min(pool - first))).collect();
        }
        if o.recent.applies(o.k_type, o.v_type) {
            self.pages.ring = recent_positions(t, o.sequences);
        }
        let carries = self.ranges.iter().any(|r| r.len() > 1) || self.pages.ring > 0 || h.family.has_sinks();
        let state_words = if carries { t * h.heads * (h.head_dim + 2) } else { 4 };
        self.work.state = self.scratch("attention_state", state_words)?;
        Ok(())
    }

    /// Everything recorded from now on belongs to layer `l`, whose cache is declared here.
    pub fn start_layer(&mut self, l: usize) -> anyhow::Result<()> {
        self.layer = Some(l);
        let sides = [("attn_k", Cached::Keys, self.o.k_type), ("attn_v", Cached::Values, self.o.v_type)];
        for (i, (what, cached, ty)) in sides.into_iter().enumerate() {
            self.pages.channels[i] = self.channels(what, cached, ty)?;
        }
        (self.pages.keys, self.pages.values) = (vec![], vec![]);
        if self.h.delta_of(l).is_some() {
            self.layers.push(LayerCache::default());
            return Ok(());
        }
        self.pages.ranges = self.ranges[self.table(l)].clone();
        for (i, (_, len)) in self.pages.ranges.clone().into_iter().enumerate() {
            let words = (self.h.kv_heads * len * self.cached.0, self.h.kv_heads * len * self.cached.1);
            let keys = self.buffer(&format!("layer {l} keys page {i}"), words.0, Role::Cache)?;
            let values = self.buffer(&format!("layer {l} values page {i}"), words.1, Role::Cache)?;
            self.pages.keys.push(keys);
            self.pages.values.push(values);
            self.cache_words += words.0 + words.1;
        }
        let pages = [self.pages.keys.clone(), self.pages.values.clone()];
        let (table, heads, words) = (self.table(l), self.h.kv_heads, self.cached.into());
        self.layers.push(LayerCache { table, heads, pages, words });
        if self.pages.ring > 0 {
            let words =
                self.h.kv_heads * self.pages.ring * cache_words(CacheType::F16, self.h.head_dim, Cached::Recent)?;
            for (id, what) in ["keys", "values"].into_iter().enumerate() {
                self.pages.recent[id] = self.buffer(&format!("layer {l} {what} recent"), words, Role::Recent)?;
                self.recent_words += words;
            }
        }
        Ok(())
    }

    /// Scales and offsets of the channels of keys or values, `[kv_heads][head_dim]` each, where the cache is c8. Where it is
    /// not, a file may have them all the same, and they are claimed.
    ///
    /// Errors: they are missing; of another length; values that are not finite or out of bounds.
    fn channels(&mut self, what: &str, cached: Cached, ty: CacheType) -> anyhow::Result<Option<[BufId; 2]>> {
        let width = self.h.kv_heads * self.h.head_dim;
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
        let chosen = self.scratch("chosen", r * h.dim)?;
        let out_normed = self.scratch("out_normed", r * h.dim)?;
        self.rows = Rows::Outputs;
        let p = SelectRowsParams { n_tokens: 0, dim: h.dim as u32, first: 0 };
        self.push("select", Op::SelectRows, Args::SelectRows(p), vec![self.work.x, chosen]);
        if !h.family.is_encoder() {
            self.norm("output_norm", chosen, out_normed)?;
        }
        let (rows, width, selected) = match self.o.head {
            // what the last layer leaves is normed
            Head::Hidden if h.family.is_encoder() => (chosen, h.dim, None),
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
        let plan = Plan {
            buffers: self.buffers,
            recording: Recording { commands: self.commands },
            placing: Some(Placing { buffer: self.work.places, ring: self.pages.ring / CHUNK }),
            strands: h.delta.as_ref().map(|_| self.work.strands),
            logits: Some(rows),
            selected,
            width,
            max_tokens: self.o.ubatch,
            max_out: r,
        };
        let (ids, rope, layers) = (self.work.ids, self.work.rope, self.layers);
        let local_rope = h.local_rope.is_some().then_some(self.work.local_rope);
        let seen = h.family.is_encoder().then_some(self.work.seen);
        let (strands, sequences, n_ctx) = (plan.strands, self.o.sequences, positions(self.o.n_ctx));
        let (window, cache_words, recent_words) = (self.window, self.cache_words, self.recent_words);
        Ok(Built {
            plan,
            ids,
            rope,
            local_rope,
            seen,
            strands,
            sequences,
            n_ctx,
            pages,
            window,
            layers,
            cache_words,
            recent_words,
        })
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

    /// The tensor's index and type.
    pub fn claim(&mut self, name: &str, shape: &[usize]) -> anyhow::Result<(usize, BlockType)> {
        let file = self.c.files[0].display();
        let index = self.c.index_of(name).with_context(|| format!("{file}: tensor {name} is missing"))?;
        let t = &self.c.tensors[index];
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
        Ok((index, ty))
    }

    /// The name in the file of `what.suffix` of this layer.
    pub fn name(&self, what: &str, suffix: &str) -> String {
        tensor_name(self.spelling, self.h.family.name(), what, self.layer, suffix)
    }

    /// Whether the file has `what.suffix` of this layer.
    pub fn has(&self, what: &str, suffix: &str) -> bool {
        self.c.tensor(&self.name(what, suffix)).is_some()
    }

    /// Whether heads of queries and keys have layer norms of their own, which some models of a family have and others not.
    pub fn has_layer_norms_of_heads(&self) -> bool {
        let family = self.h.family;
        let name = tensor_name(self.spelling, family.name(), "attn_q_norm", Some(self.layer.unwrap_or(0)), "weight");
        family.has_layer_norm() && self.c.tensor(&name).is_some()
    }

    /// Refuses a file that has no `what.suffix` of this layer.
    pub fn need(&self, what: &str, suffix: &str) -> anyhow::Result<()> {
        let (file, name) = (self.c.files[0].display(), self.name(what, suffix));
        ensure!(self.has(what, suffix), "{file}: tensor {name} is missing");
        Ok(())
    }

    /// A vector of f32, converted when loaded: `what.suffix` of this layer, `[len]`.
    pub fn vector(&mut self, what: &str, suffix: &str, len: usize) -> anyhow::Result<BufId> {
        let [v] = self.fused_vector(what, suffix, [len])?;
        Ok(v)
    }

    /// The same of every expert, `[expert][len]`, as one.
    pub fn vectors(&mut self, what: &str, suffix: &str, [len, count]: [usize; 2]) -> anyhow::Result<BufId> {
        let name = self.name(what, suffix);
        let (tensor, _) = self.claim(&name, &[len, count])?;
        let part = Part::Vector { first: 0, len: len * count, change: Change::None };
        self.buffer(&name, len * count, Role::Weight(vec![Piece { tensor, part }]))
    }

    /// The weights of the norm `what`, `[len]`.
    fn norm_weights(&mut self, what: &str, len: usize) -> anyhow::Result<BufId> {
        let id = self.vector(what, "weight", len)?;
        let less = self.h.family.norms_less_one() && self.spelling != Spelling::Gguf;
        if let (true, Role::Weight(pieces)) = (less, &mut self.buffers[id].role) {
            for p in pieces {
                if let Part::Vector { change, .. } = &mut p.part {
                    *change = Change::PlusOne;
                }
            }
        }
        Ok(id)
    }

    /// A vector that holds several one after the other, `[len\[0\] + len\[1\] + …]`, as vectors of their own.
    fn fused_vector<const N: usize>(
        &mut self,
        what: &str,
        suffix: &str,
        lens: [usize; N],
    ) -> anyhow::Result<[BufId; N]> {
        let name = self.name(what, suffix);
        let total = lens.iter().sum();
        let (tensor, _) = self.claim(&name, &[total])?;
        let (mut list, mut first) = ([0; N], 0);
        for (id, len) in list.iter_mut().zip(lens) {
            let label = if len == total { name.clone() } else { format!("{name} elements {first}..{}", first + len) };
            *id = self.buffer(
                &label,
                len,
                Role::Weight(vec![Piece { tensor, part: Part::Vector { first, len, change: Change::None } }]),
            )?;
            first += len;
        }
        Ok(list)
    }

    /// A matrix of this layer, `[rows][k]`, split where it exceeds the binding limit.
    pub fn matrix(&mut self, what: &str, k: usize, rows: usize) -> anyhow::Result<Matrix> {
        let [m] = self.fused(what, k, [rows])?;
        Ok(m)
    }

    /// A matrix that holds several below each other, `[rows\[0\] + rows\[1\] + …][k]`, as matrices of their own.
    pub fn fused<const N: usize>(&mut self, what: &str, k: usize, rows: [usize; N]) -> anyhow::Result<[Matrix; N]> {
        let name = self.name(what, "weight");
        let total = rows.iter().sum();
        let (tensor, ty) = self.claim(&name, &[k, total])?;
        let mut first = 0;
        let mut list = Vec::with_capacity(N);
        for n in rows {
            list.push(self.rows_of(tensor, ty, k, first..first + n, n == total)?);
            first += n;
        }
        Ok(list.try_into().unwrap_or_else(|_| unreachable!("one matrix for each of {N}")))
    }

    /// Rows of a tensor as a matrix; `whole`: of all its rows.
    pub fn rows_of(
        &mut self,
        tensor: usize,
        t: BlockType,
        k: usize,
        range: Range<usize>,
        whole: bool,
    ) -> anyhow::Result<Matrix> {
        let (name, ty) = (&self.c.tensors[tensor].name, pack::packed_type(t));
        let part_rows = self.rows_bound(ty, k);
        ensure!(
            part_rows > 0,
            PlanError::Binding { what: format!("32 rows of tensor {name}"), limit: self.o.max_binding_words * 4 }
        );
        let mut parts = Vec::new();
        for row0 in range.clone().step_by(part_rows) {
            let n = part_rows.min(range.end - row0);
            let label =
                if whole && n == range.len() { name.to_string() } else { format!("{name} rows {row0}..{}", row0 + n) };
            let role = Role::Weight(vec![Piece { tensor, part: Part::Rows { t, k, row0, rows: n } }]);
            parts.push((self.buffer(&label, pack::packed_words(ty, n, k), role)?, row0 - range.start, n));
        }
        let scale = self.scale_of(tensor, None)?;
        Ok(Matrix { ty, input: self.input_of(tensor, ty)?, k, rows: range.len(), scale, parts })
    }

    /// What the file has beside a matrix to multiply its products with, as conversions to NVFP4 leave it: `X.scale`, one number,
    /// or one for each of the `experts`, of `X.weight`. The scale of activations beside that is for their quantising to fp4.
    pub fn scale_of(&mut self, tensor: usize, experts: Option<usize>) -> anyhow::Result<Scale> {
        let name = &self.c.tensors[tensor].name;
        let Some(stem) = name.strip_suffix(".weight").filter(|_| self.spelling == Spelling::Gguf) else {
            return Ok(Scale::One(1.0));
        };
        let (name, input, n) = (format!("{stem}.scale"), format!("{stem}.input_scale"), experts.unwrap_or(1));
        if self.c.tensor(&input).is_some() {
            self.claim(&input, &[n])?;
        }
        if self.c.tensor(&name).is_none() {
            return Ok(Scale::One(1.0));
        }
        let (tensor, _) = self.claim(&name, &[n])?;
        if experts.is_none() {
            return Ok(Scale::One(flush(vector::vector(self.c, &self.c.tensors[tensor])?[0])));
        }
        let part = Part::Vector { first: 0, len: n, change: Change::None };
        Ok(Scale::Experts(self.buffer(&name, n, Role::Weight(vec![Piece { tensor, part }]))?))
    }

    /// Rows of `k` elements that one binding holds, whole blocks of them.
    pub fn rows_bound(&self, ty: BlockType, k: usize) -> usize {
        self.o.max_binding_words / pack::words_per_row(ty, k) / ROW_BLOCK * ROW_BLOCK
    }

    /// What a matrix of packed type `ty` is multiplied with.
    pub fn input_of(&self, tensor: usize, ty: BlockType) -> anyhow::Result<Input> {
        Ok(match self.c.activations(&self.c.tensors[tensor].name) {
            _ if ty.is_float() => Input::Floats,
            Some(how) if ty.meets_rows() => Input::Rows(how),
            None if ty.meets_rows() => {
                bail!("{}: nothing says how its activations are quantised", self.c.tensors[tensor].name)
            }
            _ => Input::Groups,
        })
    }

    /// Appends a command for every token, or every row that the step gives.
    pub fn push(&mut self, label: &str, op: Op, args: Args, binds: Vec<BufId>) {
        self.commands.push(Command { op, args, binds, rows: self.rows, layer: self.layer, label: label.to_string() });
    }

    /// y = norm(x) · w, w being the tensor `what`, `[dim]`; plus its bias, where the file has one (models whose outliers were
    /// shifted before they were quantised).
    pub fn norm(&mut self, what: &str, x: BufId, y: BufId) -> anyhow::Result<()> {
        if self.h.family.has_layer_norm() {
            return self.layer_norm(what, [self.h.dim, 1], x, y);
        }
        self.norm_of(what, self.h.dim, x, y)?;
        if self.has(what, "bias") {
            self.bias(what, self.h.dim, y)?;
        }
        Ok(())
    }

    /// y = norm(x) · w over rows of `dim`, w being the tensor `what`, `[dim]`.
    fn norm_of(&mut self, what: &str, dim: usize, x: BufId, y: BufId) -> anyhow::Result<()> {
        let w = self.norm_weights(what, dim)?;
        let p = RmsNormParams { n_tokens: 0, dim: dim as u32, inv_n: (1.0 / dim as f64) as f32, eps: self.eps() };
        self.push(what, Op::RmsNorm, Args::RmsNorm(p), vec![x, w, y]);
        Ok(())
    }

    /// y = layer norm of x over rows of `dim`, whose weights are the tensor `what`, `[w_rows][dim]`: row r goes by row r mod
    /// w_rows. One row of them has a bias, in the families that have them.
    fn layer_norm(&mut self, what: &str, [dim, w_rows]: [usize; 2], x: BufId, y: BufId) -> anyhow::Result<()> {
        let (name, len) = (self.name(what, "weight"), dim * w_rows);
        let flat = self.c.tensor(&name).is_none_or(|t| t.shape.len() < 2);
        let (tensor, _) = if flat { self.claim(&name, &[len])? } else { self.claim(&name, &[dim, w_rows])? };
        let part = Part::Vector { first: 0, len, change: Change::None };
        let w = self.buffer(&name, len, Role::Weight(vec![Piece { tensor, part }]))?;
        let biased = w_rows == 1 && self.h.family.has_norm_bias();
        let b = if biased { self.vector(what, "bias", dim)? } else { w };
        let p = LayerNormParams {
            n_tokens: 0,
            dim: dim as u32,
            inv_n: (1.0 / dim as f64) as f32,
            eps: self.eps(),
            w_rows: w_rows as u32,
            biased: biased.into(),
        };
        self.push(what, Op::LayerNorm, Args::LayerNorm(p), vec![x, w, b, y]);
        Ok(())
    }

    /// What attention or the feed-forward starts from: the norm `what` of x, or x itself in a family without it.
    pub fn norm_before(&mut self, what: &str) -> anyhow::Result<BufId> {
        if self.h.family.norms() == Norms::After {
            return Ok(self.work.x);
        }
        self.norm(what, self.work.x, self.work.normed)?;
        Ok(self.work.normed)
    }

    /// x += added, or the norm `what` of it in a family that has one there.
    pub fn join(&mut self, label: &str, what: &str) -> anyhow::Result<()> {
        let w = self.work;
        let mut y = w.added;
        if self.h.family.norms() != Norms::Before {
            self.norm(what, w.added, w.normed)?;
            y = w.normed;
        }
        self.scale(&format!("{label}_scale"), self.h.residual_scale, self.h.dim, y);
        self.add(label, y, w.x);
        Ok(())
    }

    /// x, rows of `dim`, times a number; nothing where that is 1.
    fn scale(&mut self, label: &str, by: f32, dim: usize, x: BufId) {
        if by != 1.0 {
            let p = ScaleParams { n_tokens: 0, dim: dim as u32, scale: by };
            self.push(label, Op::Scale, Args::Scale(p), vec![x]);
        }
    }

    /// y = norm(x) · w as the family norms queries and keys, nothing where it does not; w being the tensor `what`, `[head_dim]` or
    /// `[heads][head_dim]`; x, y `[token][heads][head_dim]`.
    pub fn head_norms(&mut self, what: &str, heads: usize, x: BufId, y: BufId) -> anyhow::Result<()> {
        let dim = self.h.head_dim;
        match self.h.family.head_norms() {
            HeadNorms::None if !self.h.family.has_layer_norm() => return Ok(()),
            HeadNorms::Whole => return self.norm_of(what, heads * dim, x, y),
            _ => {}
        }
        self.check_rows(heads)?;
        if self.h.family.has_layer_norm() {
            self.layer_norm(what, [dim, heads], x, y)?;
        } else {
            self.norm_of(what, dim, x, y)?;
        }
        if let Some(c) = self.commands.last_mut() {
            c.rows = Rows::Heads(heads as u32);
        }
        Ok(())
    }

    /// Refuses steps of more rows than a norm of so many heads of a token takes.
    fn check_rows(&self, heads: usize) -> anyhow::Result<()> {
        let tokens = self.o.ubatch;
        ensure!(tokens * heads <= MAX_GROUPS, PlanError::Rows { tokens, heads, rows: MAX_GROUPS });
        Ok(())
    }

    /// As [`Builder::push`], for so many heads of every token.
    pub fn rows_of_heads(
        &mut self,
        label: &str,
        heads: usize,
        op: Op,
        args: Args,
        binds: Vec<BufId>,
    ) -> anyhow::Result<()> {
        self.check_rows(heads)?;
        self.rows = Rows::Heads(heads as u32);
        self.push(label, op, args, binds);
        self.rows = Rows::Tokens;
        Ok(())
    }

    /// Quantises new activations, unless every reader has float weights: as the first of the others asks for.
    pub fn quantize(&mut self, label: &str, readers: &[&Matrix], x: BufId, act: BufId) {
        if let Some(m) = readers.iter().find(|m| m.input != Input::Floats) {
            self.quantize_for(label, m, x, act);
        }
    }

    /// act = x, quantised as `m` asks for.
    pub fn quantize_for(&mut self, label: &str, m: &Matrix, x: BufId, act: BufId) {
        let k = m.k as u32;
        let rows = |limit, scale, offset| RowQuantizeParams { n_tokens: 0, k, limit, scale, offset };
        let (op, args) = match m.input {
            Input::Floats => return,
            Input::Groups => {
                let p = ActQuantizeParams { n_tokens: 0, k, digits: self.o.digits as u32 };
                (Op::ActQuantize, Args::ActQuantize(p))
            }
            Input::Rows(Activations::Dynamic { limit }) => (Op::RowQuantize, Args::RowQuantize(rows(limit, 0.0, 0.0))),
            Input::Rows(Activations::Static { scale, offset }) => {
                (Op::RowQuantize, Args::RowQuantize(rows(0, scale, offset)))
            }
        };
        self.push(label, op, args, vec![x, act]);
        self.quantised.insert(act, m.input);
    }

    /// y = m · x, from x itself or from its blocks `act`, as the weights ask for. Where these were made in another way for
    /// the reader before, they are made anew.
    pub fn linear(&mut self, label: &str, m: &Matrix, x: BufId, act: BufId, y: BufId) {
        let input = self.met_by(label, m, x, act);
        for &(w, row0, rows) in &m.parts {
            let p = LinearParams {
                n_tokens: 0,
                k: m.k as u32,
                rows: rows as u32,
                digits: self.digits_of(m),
                y_stride: m.rows as u32,
                y_offset: row0 as u32,
                residual: 0,
            };
            self.push(label, Op::Matvec(m.ty), Args::Linear(p), vec![w, input, y]);
        }
        if let Scale::One(by) = m.scale {
            self.scale(&format!("{label}_scale"), by, m.rows, y);
        }
    }

    /// Digits of the activations that `m` is multiplied with.
    pub fn digits_of(&self, m: &Matrix) -> u32 {
        if m.input == Input::Groups { self.o.digits as u32 } else { 1 }
    }

    /// What `m` is multiplied with: x itself, or its blocks `act`, made anew where they are not as `m` asks for.
    pub fn met_by(&mut self, label: &str, m: &Matrix, x: BufId, act: BufId) -> BufId {
        if m.input == Input::Floats {
            return x;
        }
        if self.quantised.get(&act) != Some(&m.input) {
            self.quantize_for(&format!("{label}_act"), m, x, act);
        }
        act
    }

    /// The norms' epsilon; a subnormal one, which some devices read as 0, is 0.
    pub fn eps(&self) -> f32 {
        if self.h.eps.is_subnormal() { 0.0 } else { self.h.eps }
    }

    /// y += the bias of the linear `what`, `[len]`, unless the matrix holds it.
    pub fn linear_bias(&mut self, what: &str, m: &Matrix, y: BufId) -> anyhow::Result<()> {
        if m.holds_bias() {
            self.leave_bias(what);
            return Ok(());
        }
        self.bias(what, m.rows, y)
    }

    /// Has a place for the bias of the tensor `what` in a model whose matrices hold it.
    pub fn leave_bias(&mut self, what: &str) {
        self.claimed.insert(self.name(what, "bias"));
    }

    /// y += the bias of the linear `what`, where the file has one.
    pub fn optional_bias(&mut self, what: &str, m: &Matrix, y: BufId) -> anyhow::Result<()> {
        if self.has(what, "bias") { self.linear_bias(what, m, y) } else { Ok(()) }
    }

    /// y += the bias of the tensor `what`, `[len]`.
    pub fn bias(&mut self, what: &str, len: usize, y: BufId) -> anyhow::Result<()> {
        self.fused_bias(what, [len], [y])
    }

    /// Each of the `ys` += its part of the bias of the tensor `what`, `[len\[0\] + len\[1\] + …]`.
    pub fn fused_bias<const N: usize>(&mut self, what: &str, lens: [usize; N], ys: [BufId; N]) -> anyhow::Result<()> {
        let parts = self.fused_vector(what, "bias", lens)?;
        for ((b, len), y) in parts.into_iter().zip(lens).zip(ys) {
            let p = AddBiasParams { n_tokens: 0, dim: len as u32 };
            self.push(&format!("{what}_bias"), Op::AddBias, Args::AddBias(p), vec![b, y]);
        }
        Ok(())
    }

    /// Rotates x `[token][heads][head_dim]` by its positions, by the table of this layer; in a layer without one x stays.
    pub fn rope(&mut self, label: &str, heads: usize, x: BufId) {
        let table = match self.layer.map_or(Rotation::Main, |l| self.h.rotation_of(l)) {
            Rotation::None => return,
            Rotation::Main => self.work.rope,
            Rotation::Local => self.work.local_rope,
        };
        let p = RopeParams {
            n_tokens: 0,
            heads: heads as u32,
            head_dim: self.h.head_dim as u32,
            n_rot: self.h.n_rot as u32,
            half_split: self.h.half_split.into(),
        };
        self.push(label, Op::Rope, Args::Rope(p), vec![table, x]);
    }

    /// Has attention begin with the sinks of the query heads, `attn_sinks` `[heads]`, in a family that has them.
    pub fn sinks(&mut self) -> anyhow::Result<()> {
        let sinks = self.vector("attn_sinks", "weight", self.h.heads)?;
        let (heads, head_dim) = (self.h.heads as u32, self.h.head_dim as u32);
        let p = AttentionSinksParams { n_tokens: 0, heads, head_dim };
        self.push("attn_sinks", Op::AttentionSinks, Args::AttentionSinks(p), vec![sinks, self.work.state]);
        Ok(())
    }

    /// Writes k and v to the cache; then attended = softmax(scale · q · K) · V over all positions so far: those of
    /// each page, or the older chunks of each page and then the query's own chunk from the ring.
    pub fn attend(&mut self, q: BufId, k: BufId, v: BufId) {
        let (h, w, pages) = (self.h, self.work, std::mem::take(&mut self.pages));
        let (types, ring) = ((self.o.k_type, self.o.v_type), pages.ring > 0);
        let scope = if ring { SCOPE_OLDER } else { SCOPE_ALL };
        self.codes(&pages, q, k, v);
        let window = self.layer.and_then(|l| self.window_of(l)).unwrap_or(0);
        let table = self.layer.map_or(0, |l| self.table(l)) as u32;
        let mut list: Vec<_> =
            pages.ranges.iter().enumerate().map(|(i, &r)| (types, r, scope, pages.keys[i], pages.values[i])).collect();
        if ring {
            let [keys, values] = pages.recent;
            list.push(((CacheType::F16, CacheType::F16), (0, pages.ring), SCOPE_OWN, keys, values));
        }
        for &((kt, vt), (first, len), scope, keys, values) in &list {
            let p = CacheWriteParams {
                n_tokens: 0,
                kv_heads: h.kv_heads as u32,
                head_dim: h.head_dim as u32,
                page_first: first as u32,
                page_len: len as u32,
                ring: u32::from(scope == SCOPE_OWN),
                table,
            };
            self.push("k_cache", Op::CacheWriteK(kt), Args::CacheWrite(p), vec![k, v, w.places, keys]);
            self.push("v_cache", Op::CacheWriteV(vt), Args::CacheWrite(p), vec![v, w.places, values]);
        }
        for ((kt, vt), (first, len), scope, keys, values) in list {
            let p = AttentionParams {
                n_tokens: 0,
                chunk0: 0,
                chunks: 0,
                heads: h.heads as u32,
                kv_heads: h.kv_heads as u32,
                head_dim: h.head_dim as u32,
                page_first: first as u32,
                page_len: len as u32,
                scale: h.attention_scale,
                scope,
                window: window as u32,
                table,
                softcap: h.attention_softcap,
                inv_softcap: softcap::inverse(h.attention_softcap),
                sinks: h.family.has_sinks().into(),
            };
            let binds = vec![q, keys, values, w.seen, w.state, w.attended];
            self.push("attention", Op::Attention(kt, vt), Args::Attention(p), binds);
        }
        if let Some(channels) = pages.channels[1] {
            self.channel_scale("attended_scale", channels, w.attended, true);
        }
        self.pages = pages;
    }

    /// How many positions queries of a layer see, where that is less than there may be: a window that reaches back to the
    /// first position from everywhere limits nothing.
    fn window_of(&self, layer: usize) -> Option<usize> {
        self.h.window_of(layer).filter(|w| *w < positions(self.o.n_ctx))
    }

    /// Which table a layer goes by: those of the first window met by one of their own. Layers of another window, if there are
    /// any, keep their chunks as those without do.
    fn table(&self, layer: usize) -> usize {
        self.window_of(layer).is_some_and(|w| w == self.window).into()
    }

    /// Where the cache is c8: keys and values become its integers, and queries take the scales of the keys.
    fn codes(&mut self, pages: &Pages, q: BufId, k: BufId, v: BufId) {
        let dim = (self.h.kv_heads * self.h.head_dim) as u32;
        for ((channels, x), label) in pages.channels.into_iter().zip([k, v]).zip(["k_codes", "v_codes"]) {
            if let Some([scale, offset]) = channels {
                let p = ChannelQuantizeParams { n_tokens: 0, dim };
                self.push(label, Op::ChannelQuantize, Args::ChannelQuantize(p), vec![scale, offset, x]);
            }
        }
        if let Some(channels) = pages.channels[0] {
            self.channel_scale("q_scale", channels, q, false);
        }
    }

    /// x `[token][heads][head_dim]` times the scale of each channel, where asked less its offset first.
    fn channel_scale(&mut self, label: &str, [scale, offset]: [BufId; 2], x: BufId, less_offset: bool) {
        let p = ChannelScaleParams {
            n_tokens: 0,
            heads: self.h.heads as u32,
            kv_heads: self.h.kv_heads as u32,
            head_dim: self.h.head_dim as u32,
            less_offset: less_offset.into(),
        };
        self.push(label, Op::ChannelScale, Args::ChannelScale(p), vec![scale, offset, x]);
    }

    /// x += Wo · attended, behind a norm where the family has one there.
    pub fn attention_output(&mut self) -> anyhow::Result<()> {
        let (h, w) = (self.h, self.work);
        let wo = self.matrix("attn_output", h.heads * h.head_dim, h.dim)?;
        self.quantize("attended_act", &[&wo], w.attended, w.attended_act);
        self.linear("attn_output", &wo, w.attended, w.attended_act, w.added);
        self.optional_bias("attn_output", &wo, w.added)?;
        self.join("attn_residual", "post_attention_norm")
    }

    /// x += Wdown · (silu(Wgate n) · Wup n), n = norm(x); `gate_up` are the two matrices `[ffn][dim]`. Norms are where the
    /// family has them, and silu may be gelu.
    pub fn feed_forward(
        &mut self,
        gate_up: impl FnOnce(&mut Self) -> anyhow::Result<[Matrix; 2]>,
    ) -> anyhow::Result<()> {
        let h = self.h;
        if let Some(e) = self.layer.and_then(|l| h.experts_of(l)) {
            return self.experts(e);
        }
        let from = self.norm_before("ffn_norm")?;
        self.feed_forward_of(from, false, gate_up)
    }

    /// The same from what was normed before; `known`: it was quantised as these matrices ask for, or one of them will see
    /// that it was not.
    pub fn feed_forward_of(
        &mut self,
        from: BufId,
        known: bool,
        gate_up: impl FnOnce(&mut Self) -> anyhow::Result<[Matrix; 2]>,
    ) -> anyhow::Result<()> {
        let (h, w) = (self.h, self.work);
        let [wg, wu] = gate_up(self)?;
        if !known {
            self.quantize("ffn_act", &[&wg, &wu], from, w.normed_act);
        }
        self.linear("ffn_gate", &wg, from, w.normed_act, w.gate);
        self.linear("ffn_up", &wu, from, w.normed_act, w.up);
        self.optional_bias("ffn_gate", &wg, w.gate)?;
        self.optional_bias("ffn_up", &wu, w.up)?;
        let (n_tokens, dim) = (0, h.ffn as u32);
        let (label, op, args) = if h.family.has_gelu() {
            ("geglu", Op::Geglu, Args::Geglu(GegluParams { n_tokens, dim }))
        } else {
            ("swiglu", Op::Swiglu, Args::Swiglu(SwigluParams { n_tokens, dim }))
        };
        self.push(label, op, args, vec![w.gate, w.up, w.mid]);
        self.feed_forward_down()
    }

    /// x += Wdown · mid, behind a norm where the family has one there.
    pub fn feed_forward_down(&mut self) -> anyhow::Result<()> {
        let (h, w) = (self.h, self.work);
        let wd = self.matrix("ffn_down", h.ffn, h.dim)?;
        self.quantize("mid_act", &[&wd], w.mid, w.mid_act);
        self.linear("ffn_down", &wd, w.mid, w.mid_act, w.added);
        self.optional_bias("ffn_down", &wd, w.added)?;
        self.join("ffn_residual", "post_ffw_norm")
    }

    /// x += y, rows of the model's width.
    pub fn add(&mut self, label: &str, y: BufId, x: BufId) {
        let p = AddParams { n_tokens: 0, dim: self.h.dim as u32 };
        self.push(label, Op::Add, Args::Add(p), vec![y, x]);
    }

    /// A tensor nobody asked for means the model is not what the config says.
    fn check_unclaimed(&self) -> anyhow::Result<()> {
        for t in &self.c.tensors {
            let known = match t.name.as_str() {
                "rope_freqs.weight" => true,
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
