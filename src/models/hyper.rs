//! Hyperparameters from GGUF metadata or config.json, with every range checked before anything is allocated.
//!
//! The one reader of config.json: `quantize` writes a GGUF file's keys from what it gives. Numbers that GGUF keeps as f32
//! are rounded to f32 here too, so that a directory and the file made from it give the same bits.

use super::delta::{self, Delta};
use super::encoder_config;
use super::family::{Family, Rotation};
use super::mixture::{self, Experts};
use super::mla::{self, Mla};
use super::short_conv::{self, ShortConv};
use super::ssm::{self, Ssm};
use super::uneven::{self, Heads, Uneven};
use super::vector::vector;
use crate::formats::json::Fields;
use crate::formats::meta::Value as MetaValue;
use crate::formats::{Container, ContainerKind, names};
use crate::ops::attention::HEAD_MAX;
use crate::ops::cache::CacheType;
use crate::ops::conv_silu;
use crate::ops::places::CHUNK;
use crate::ops::short_conv::TAPS;
use anyhow::{Context, bail, ensure};

/// Layers a model may have.
const MAX_LAYERS: usize = 1024;

/// GGUF's tensor of longrope divisors for sequences beyond the original context.
pub const LONG_FACTORS: &str = "rope_factors_long.weight";
/// GGUF's tensor of longrope divisors for sequences within it.
pub const SHORT_FACTORS: &str = "rope_factors_short.weight";

/// The divisor of a pair that is not rotated, or less than it.
pub(super) const UNTURNED: f32 = 1e20;

/// Text from a file, cut to a length that fits an error line.
pub(super) fn cut(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// How positions are scaled before rotation.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// not at all
    None,
    /// every angle divided by the factor
    Linear(f64),
    /// Llama 3.1: low frequencies divided, high ones kept, a ramp between (config.json; GGUF files carry the divisors)
    Llama3 {
        /// divisor of low frequencies
        factor: f64,
        /// original / wavelength below this: divided
        low: f64,
        /// above this: kept
        high: f64,
        /// context the model was first trained with
        original: f64,
    },
    /// YaRN
    Yarn {
        /// divisor of interpolated angles
        factor: f64,
        /// context the model was first trained with
        original: f64,
        /// ramp ends
        beta_fast: f64,
        /// ramp ends
        beta_slow: f64,
        /// share of extrapolation
        ext: f64,
        /// factor on cos and sin
        magnitude: f64,
    },
    /// the first pairs of a head alone are rotated, by angles as if all were (Gemma 4; GGUF files carry divisors)
    Proportional {
        /// how many
        pairs: usize,
    },
    /// LongRoPE: every pair has a divisor of its own, from one of two sets
    LongRope {
        /// divisors for sessions of at most `original` positions
        short: Vec<f64>,
        /// divisors for longer ones
        long: Vec<f64>,
        /// context the model was first trained with
        original: f64,
        /// factor on cos and sin, whichever set is used
        magnitude: f64,
    },
}

/// Shape of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Hyper {
    /// what the layers are made of
    pub family: Family,
    /// architecture name in the file
    pub arch: String,
    /// model name, for tables
    pub name: String,
    /// decoder layers
    pub layers: usize,
    /// width of the residual stream
    pub dim: usize,
    /// query heads
    pub heads: usize,
    /// key-value heads
    pub kv_heads: usize,
    /// elements in a head
    pub head_dim: usize,
    /// rotated elements in a head
    pub n_rot: usize,
    /// layers behind them, which guess at further tokens: they are not computed
    pub guessing: usize,
    /// width of the feed-forward layer
    pub ffn: usize,
    /// what most layers have in the place of that feed-forward
    pub experts: Option<Experts>,
    /// what some layers have in the place of attention
    pub delta: Option<Delta>,
    /// what attention is where one vector is cached for all heads
    pub mla: Option<Mla>,
    /// layers with a short convolution in the place of attention
    pub conv: Option<ShortConv>,
    /// what all layers are of a model without attention, whose heads, feed-forward and rotation are then of no meaning
    pub ssm: Option<Ssm>,
    /// what differs from layer to layer beside the window and the rotation
    pub uneven: Uneven,
    /// logits
    pub vocab: usize,
    /// positions the model was trained for
    pub context: usize,
    /// how many positions a query sees, the last being its own, in the layers where the model limits it
    pub window: Option<usize>,
    /// for each layer, whether the window limits it; empty: all of them
    pub window_layers: Vec<bool>,
    /// epsilon of the norms
    pub eps: f32,
    /// what products of queries and keys are multiplied with
    pub attention_scale: f32,
    /// what the embedding is multiplied with
    pub embedding_scale: f32,
    /// what is added to the residual stream is multiplied with this
    pub residual_scale: f32,
    /// what logits are divided by
    pub logit_divisor: f32,
    /// cap of products of queries and keys: s becomes cap · tanh(s / cap); 0: none
    pub attention_softcap: f32,
    /// the same of logits, after they are divided
    pub logit_softcap: f32,
    /// RoPE base
    pub rope_base: f64,
    /// RoPE scaling
    pub rope_scaling: RopeScaling,
    /// RoPE base and scaling of layers whose rotation is `Local`
    pub local_rope: Option<(f64, RopeScaling)>,
    /// for each layer, how it is rotated; empty: all by the model's table
    pub rotations: Vec<Rotation>,
    /// pairs (i, i + n_rot/2), as in Hugging Face files, rather than (2i, 2i+1)
    pub half_split: bool,
    /// whether queries, keys and values have biases, of a family that has models of both kinds and where the file says
    pub qkv_bias: Option<bool>,
    /// whether the embedding is the output matrix, where the file says
    pub tied: Option<bool>,
}

impl Hyper {
    /// Reads and checks the hyperparameters of a container.
    pub fn read(c: &Container) -> anyhow::Result<Hyper> {
        let h = match c.kind {
            ContainerKind::Gguf | ContainerKind::Bump => from_gguf(c)?,
            ContainerKind::HuggingFace => {
                let file = c.described_by().display();
                let config = c.config.as_ref().with_context(|| format!("{file}: missing"))?;
                let config = Fields::of(file, config)?;
                match config.text("model_type")?.and_then(Family::of_config) {
                    _ if config.text("model_type")? == Some("chatglm") => from_chatglm(&config)?,
                    Some(family) if family.is_encoder() => from_encoder(&config, family)?,
                    Some(family) if family.is_state_space() => {
                        config_flags(&config, family)?;
                        from_states(family, ssm::of_config(&config, family)?)
                    }
                    _ => from_config(&config)?,
                }
            }
            ContainerKind::Safetensors => bail!(
                "{}: a lone safetensors file has no config; give the directory that holds config.json",
                c.files[0].display()
            ),
        };
        h.check().with_context(|| format!("{}: hyperparameters", c.described_by().display()))?;
        Ok(h)
    }

    fn check(&self) -> anyhow::Result<()> {
        let within = |what: &str, v: usize, max: usize| {
            ensure!(v >= 1 && v <= max, "{what} is {v}, expected 1..={max}");
            Ok(())
        };
        within("the number of layers", self.layers, MAX_LAYERS)?;
        self.experts.as_ref().map_or(Ok(()), Experts::check)?;
        self.delta.as_ref().map_or(Ok(()), |d| d.check(self.layers, self.head_dim))?;
        self.conv.as_ref().map_or(Ok(()), |c| c.check(self.layers))?;
        self.ssm.as_ref().map_or(Ok(()), Ssm::check)?;
        within("the embedding length", self.dim, 1 << 20)?;
        within("the number of heads", self.heads, 4096)?;
        within("the number of key-value heads", self.kv_heads, self.heads)?;
        self.mla.as_ref().map_or(Ok(()), |m| m.check(self.heads))?;
        within("the head dimension", self.head_dim, HEAD_MAX)?;
        within("the feed-forward length", self.ffn, 1 << 22)?;
        within("the vocabulary", self.vocab, 1 << 24)?;
        within("the context length", self.context, 1 << 30)?;
        ensure!(
            self.window_layers.is_empty() || self.window_layers.len() == self.layers,
            "{} layers are said to have a sliding window or none, and there are {}",
            self.window_layers.len(),
            self.layers
        );
        ensure!(
            self.heads.is_multiple_of(self.kv_heads),
            "{} heads cannot share {} key-value heads evenly",
            self.heads,
            self.kv_heads
        );
        ensure!(
            self.head_dim.is_multiple_of(2),
            "the head dimension is {}, expected an even number up to {HEAD_MAX}",
            self.head_dim
        );
        ensure!(
            self.n_rot.is_multiple_of(2) && self.n_rot >= 2 && self.n_rot <= self.head_dim,
            "{} rotated dimensions do not fit a head of {}",
            self.n_rot,
            self.head_dim
        );
        ensure!(
            self.eps.is_finite() && self.eps > 0.0 && self.eps < 1.0,
            "the norms' epsilon is {:?}, expected between 0 and 1",
            self.eps
        );
        ensure!(
            self.rotations.is_empty() || self.rotations.len() == self.layers,
            "{} layers are said to be rotated or not, and there are {}",
            self.rotations.len(),
            self.layers
        );
        for (what, scale) in [
            ("attention scale", self.attention_scale),
            ("embedding scale", self.embedding_scale),
            ("residual scale", self.residual_scale),
            ("logits' divisor", self.logit_divisor),
        ] {
            // far from any model's, and such that products with it are still numbers
            ensure!((1e-6..=1e6).contains(&scale), "the {what} is {scale:?}, expected between 1e-6 and 1e6");
        }
        for (what, cap) in [("scores", self.attention_softcap), ("logits", self.logit_softcap)] {
            ensure!(
                cap == 0.0 || (1e-6..=1e6).contains(&cap),
                "the cap of {what} is {cap:?}, expected between 1e-6 and 1e6"
            );
        }
        self.uneven.check(self.layers, &self.window_layers, self.heads, HEAD_MAX)?;
        self.check_rope(self.rope_base, &self.rope_scaling)?;
        self.local_rope.as_ref().map_or(Ok(()), |(base, scaling)| self.check_rope(*base, scaling))
    }

    fn check_rope(&self, base: f64, scaling: &RopeScaling) -> anyhow::Result<()> {
        ensure!(base.is_finite() && base > 1.0, "the RoPE base is {base:?}, expected above 1");
        // far beyond any model on either side, and such that every angle stays a number
        let within = |what: &str, v: f64| {
            ensure!((1e-6..=1e9).contains(&v), "RoPE scaling: {what} is {v:?}, expected between 1e-6 and 1e9");
            Ok(())
        };
        match scaling {
            RopeScaling::None => {}
            RopeScaling::Linear(factor) => within("the factor", *factor)?,
            &RopeScaling::Llama3 { factor, low, high, original } => {
                within("the factor", factor)?;
                within("the original context", original)?;
                ensure!(
                    low > 0.0 && high > low && high.is_finite(),
                    "llama3 RoPE scaling needs 0 < low_freq_factor < high_freq_factor, found {low:?} and {high:?}"
                );
            }
            &RopeScaling::Yarn { factor, original, beta_fast, beta_slow, ext, magnitude } => {
                within("the factor", factor)?;
                within("the original context", original)?;
                within("beta_fast", beta_fast)?;
                within("beta_slow", beta_slow)?;
                within("the factor on cos and sin", magnitude)?;
                ensure!(ext <= 1.0, "RoPE scaling: the extrapolation factor is {ext:?}, expected at most 1");
            }
            &RopeScaling::Proportional { pairs } => {
                let all = self.n_rot / 2;
                ensure!((1..=all).contains(&pairs), "{pairs} of {all} pairs of a head are rotated, expected 1..={all}");
            }
            RopeScaling::LongRope { short, long, original, magnitude } => {
                ensure!(*original > 1.0, "RoPE scaling: the original context is {original:?}, expected above 1");
                within("the factor on cos and sin", *magnitude)?;
                for (name, list) in [("short", short), ("long", long)] {
                    ensure!(
                        list.len() == self.n_rot / 2,
                        "RoPE scaling: {} {name} factors for {} rotated pairs",
                        list.len(),
                        self.n_rot / 2
                    );
                    for (i, f) in list.iter().enumerate() {
                        within(&format!("{name} factor {i}"), *f)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// How positions are rotated, for tables: `128 of 128 dims, base 10000, longrope from 4096, none in 9 of 36 layers`.
    pub fn rope_text(&self) -> String {
        let name = |scaling: &RopeScaling| match scaling {
            RopeScaling::None => String::new(),
            RopeScaling::Linear(factor) => format!(", linear by {factor}"),
            RopeScaling::Llama3 { factor, original, .. } => format!(", llama3 by {factor} from {original}"),
            RopeScaling::Yarn { factor, original, .. } => format!(", yarn by {factor} from {original}"),
            RopeScaling::LongRope { original, .. } => format!(", longrope from {original}"),
            RopeScaling::Proportional { pairs } => format!(", the first {pairs} pairs"),
        };
        let main =
            format!("{} of {} dims, base {}{}", self.n_rot, self.head_dim, self.rope_base, name(&self.rope_scaling));
        let count = |which| self.rotations.iter().filter(|r| **r == which).count();
        let local = match (&self.local_rope, count(Rotation::Local)) {
            (Some((base, scaling)), n) if n > 0 => {
                format!(", base {base}{} in {n} of {} layers", name(scaling), self.layers)
            }
            _ => String::new(),
        };
        let none = match count(Rotation::None) {
            0 => String::new(),
            n => format!(", none in {n} of {} layers", self.layers),
        };
        format!("{main}{local}{none}")
    }

    /// The experts of this layer; `None`: it has a feed-forward as it is.
    pub fn experts_of(&self, layer: usize) -> Option<&Experts> {
        self.experts.as_ref().filter(|e| layer >= e.dense)
    }

    /// What this layer has in the place of attention; `None`: it has attention.
    pub fn delta_of(&self, layer: usize) -> Option<&Delta> {
        self.delta.as_ref().filter(|d| d.layers.get(layer) == Some(&true))
    }

    /// Whether this layer remembers a state in the place of keys and values.
    pub fn is_recurrent(&self, layer: usize) -> bool {
        self.delta_of(layer).is_some()
            || self.ssm.is_some()
            || self.conv.as_ref().is_some_and(|c| c.layers.get(layer) == Some(&true))
    }

    /// Whether some layers remember states, which are not positions of a cache.
    pub fn has_states(&self) -> bool {
        self.delta.is_some() || self.conv.is_some() || self.ssm.is_some()
    }

    /// The heads of this layer's attention.
    pub fn heads_of(&self, layer: usize) -> Heads {
        let all = Heads { kv_heads: self.kv_heads, head_dim: self.head_dim, n_rot: self.n_rot };
        self.uneven.local.filter(|_| self.window_of(layer).is_some()).unwrap_or(all)
    }

    /// Elements of the largest head.
    pub fn widest_head(&self) -> usize {
        self.uneven.local.map_or(0, |l| l.head_dim).max(self.head_dim)
    }

    /// Elements of the keys, or of the values, of a token in the layer that has most.
    pub fn widest_kv(&self) -> usize {
        (0..self.layers).map(|l| self.heads_of(l)).map(|s| s.kv_heads * s.head_dim).max().unwrap_or(0)
    }

    /// Elements of a head that layers with a window rotate.
    pub fn local_rot(&self) -> usize {
        self.uneven.local.map_or(self.n_rot, |l| l.n_rot)
    }

    /// Width of this layer's feed-forward.
    pub fn ffn_of(&self, layer: usize) -> usize {
        self.uneven.ffns.get(layer).copied().unwrap_or(self.ffn)
    }

    /// The earlier layer whose keys and values this layer reads; `None`: it has its own.
    pub fn read_of(&self, layer: usize) -> Option<usize> {
        let own = self.layers - self.uneven.sharing;
        let has = |l: usize| self.window_of(l).is_some();
        (layer >= own).then(|| (0..own).rev().find(|l| has(*l) == has(layer))).flatten()
    }

    /// Whether this layer keeps keys and values of a sequence.
    pub fn keeps_cache(&self, layer: usize) -> bool {
        !self.is_recurrent(layer) && self.read_of(layer).is_none()
    }

    /// Whether some layers are of attention: then there is a cache.
    pub fn has_attention(&self) -> bool {
        self.ssm.is_none()
    }

    /// The greatest width of a feed-forward that every token goes through; 1 where there is none.
    pub fn plain_ffn(&self) -> usize {
        match &self.experts {
            // whose experts stand beside it
            Some(_) if self.family == Family::Gemma4 => self.ffn,
            Some(e) if e.dense == 0 => e.shared.max(1),
            Some(e) => e.shared.max(self.ffn),
            None => self.ffn,
        }
    }

    /// Whether a tensor belongs to layers that are not computed.
    pub fn is_guessing(&self, tensor: &str) -> bool {
        let behind = names::layer_of(tensor).is_some_and(|l| l >= self.layers && l - self.layers < self.guessing);
        behind || self.guessing > 0 && tensor.starts_with("mtp.")
    }

    /// Words of a token in the table of positions: cos and sin, or a row that was learned.
    pub fn table_width(&self) -> usize {
        if self.family.learns_positions() { self.dim } else { self.n_rot }
    }

    /// By which table a layer is rotated.
    pub fn rotation_of(&self, layer: usize) -> Rotation {
        self.rotations.get(layer).copied().unwrap_or(Rotation::Main)
    }

    /// What `rotations` is where nothing says otherwise.
    pub fn usual_rotations(&self) -> Vec<Rotation> {
        self.family.rotations(self.layers.min(MAX_LAYERS), &self.windows())
    }

    /// For each layer whether the window limits it; empty where there is no window.
    fn windows(&self) -> Vec<bool> {
        if self.window.is_none() {
            return vec![];
        }
        (0..self.layers.min(MAX_LAYERS)).map(|l| self.window_of(l).is_some()).collect()
    }

    /// Whether a session of `n_ctx` positions takes longrope's long factors: then its logits are others from the first
    /// position on.
    pub fn takes_long_factors(&self, n_ctx: usize) -> bool {
        // a session has whole chunks of positions
        let positions = n_ctx.next_multiple_of(CHUNK) as f64;
        matches!(&self.rope_scaling, RopeScaling::LongRope { original, .. } if positions > *original)
    }

    /// How many positions a query of this layer sees at most, the last being its own.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| self.window_layers.get(layer).is_none_or(|w| *w))
    }

    /// The recurrent layers, for tables: `3 of 4 layers, 2 heads of keys and 6 of values, of 32`, or nothing.
    pub fn recurrent_text(&self) -> Option<String> {
        if let Some(c) = &self.conv {
            let n = c.layers.iter().filter(|r| **r).count();
            return Some(format!("{n} of {} layers, convolutions over {TAPS} tokens", self.layers));
        }
        if let Some(s) = &self.ssm {
            let (layers, groups) = (self.layers, if s.groups == 1 { "group" } else { "groups" });
            return Some(format!(
                "{layers} of {layers} layers, state spaces, {} heads of {} in {} {groups}, states of {}",
                s.heads, s.head_dim, s.groups, s.state
            ));
        }
        let d = self.delta.as_ref()?;
        let n = d.layers.iter().filter(|r| **r).count();
        let (layers, keys, heads, size) = (self.layers, d.key_heads, d.heads, d.size);
        Some(format!("{n} of {layers} layers, {keys} heads of keys and {heads} of values, of {size}"))
    }

    /// The window, for tables: `2047`, `4096 in 4 of 28 layers`, or nothing.
    pub fn window_text(&self) -> Option<String> {
        let n = self.window_layers.iter().filter(|w| **w).count();
        let some =
            if n < self.window_layers.len() { format!(" in {n} of {} layers", self.layers) } else { String::new() };
        self.window.map(|w| format!("{w}{some}"))
    }

    /// Bytes of what all layers remember of a sequence in the place of keys and values, one slot's.
    pub fn state_bytes(&self) -> usize {
        let of_net = |d: &Delta| d.heads * d.size * d.size + conv_silu::KEPT * d.channels();
        let of_space = |s: &Ssm| s.inner() * s.state + conv_silu::KEPT * s.channels();
        let of = |l: usize| match (self.delta_of(l), &self.ssm) {
            (Some(d), _) => of_net(d),
            (None, Some(s)) => of_space(s),
            (None, None) if self.is_recurrent(l) => (TAPS - 1) * self.dim,
            (None, None) => 0,
        };
        (0..self.layers).map(of).sum::<usize>() * 4
    }

    /// Cached bytes of one position by the types of keys and values; `None` where one does not fit the heads.
    pub fn cache_bytes(&self, k: CacheType, v: CacheType) -> Option<usize> {
        let of = |l: usize| {
            let Heads { kv_heads, head_dim, .. } = self.heads_of(l);
            Some((k.words(head_dim)? + v.words(head_dim)?) * 4 * kv_heads)
        };
        if !self.has_attention() {
            return Some(0);
        }
        (0..self.layers).filter(|l| self.keeps_cache(*l)).map(of).sum()
    }
}

fn from_gguf(c: &Container) -> anyhow::Result<Hyper> {
    let m = &c.meta;
    let file = c.described_by().display();
    let text = |key: &str| m.typed::<&str>(key).with_context(|| file.to_string());
    let arch =
        text("general.architecture")?.with_context(|| format!("{file}: no general.architecture: not a model file"))?;
    let family = Family::of_gguf(arch).with_context(|| {
        format!("{file}: architecture {} is not supported (supported: {})", cut(arch), Family::known())
    })?;
    if family.is_state_space() {
        let eps = f64_of(c, &format!("{arch}.{}", family.epsilon_key()))?;
        return Ok(from_states(family, ssm::of_gguf(c, family, gguf_vocab(c, arch)?, eps)?));
    }
    let need = |key: &str| -> anyhow::Result<usize> {
        let key = format!("{arch}.{key}");
        let v = m.uint(&key).with_context(|| match m.get(&key) {
            Some(_) => format!("{file}: {key} is not a whole number (per-layer arrays are not supported)"),
            None => format!("{file}: {key} is missing"),
        })?;
        usize::try_from(v).with_context(|| format!("{file}: {key} is {v}"))
    };
    let opt = |key: &str, default: usize| -> anyhow::Result<usize> {
        if m.get(&format!("{arch}.{key}")).is_some() { need(key) } else { Ok(default) }
    };
    let float = |key: &str| f64_of(c, &format!("{arch}.{key}"));
    let (dim, heads) = (need("embedding_length")?, need("attention.head_count")?);
    ensure!(heads > 0, "{file}: {arch}.attention.head_count is 0");
    let head_dim = opt("attention.key_length", dim / heads)?;
    let mla = mla::of_gguf(c, family, opt("rope.dimension_count", head_dim)?)?;
    let value_dim = if mla.is_some() { head_dim } else { opt("attention.value_length", head_dim)? };
    ensure!(head_dim == value_dim, "{file}: key heads of {head_dim} and value heads of {value_dim} are not supported");
    let context = need("context_length")?;
    let vocab = gguf_vocab(c, arch)?;
    let original = opt("rope.scaling.original_context_length", context)? as f64;
    // half a head in every released model: a file that does not say so would be rotated wrongly
    let n_rot =
        if family.turns_part() { need("rope.dimension_count")? } else { opt("rope.dimension_count", head_dim)? };
    ensure!(
        family != Family::Glm4 || n_rot * 2 == head_dim,
        "{file}: {arch}.rope.dimension_count is {n_rot}, expected half of a head of {head_dim}: convert the model again"
    );
    encoder_config::check_keys(c, family)?;
    let (blocks, guessing) = (need("block_count")?, opt("nextn_predict_layers", 0)?);
    let layers = blocks.checked_sub(guessing).filter(|_| guessing == 0 || mixture::may_guess(family));
    let layers = layers.with_context(|| format!("{file}: {arch}.nextn_predict_layers is {guessing}, expected 0"))?;
    // the first files of a Gemma 2 do not say
    let usual = if family == Family::Gemma2 { 4096 } else { 0 };
    let window = Some(opt("attention.sliding_window", usual)?).filter(|w| *w > 0);
    ensure!(
        ![Family::Cohere2, Family::Gemma3n, Family::Gemma4].contains(&family) || window.is_some(),
        "{file}: {arch}.attention.sliding_window is missing, which says where layers are rotated"
    );
    let window_layers = gguf_window_layers(c, family, layers.min(MAX_LAYERS), window.is_some())?;
    let uneven = uneven::of_gguf(c, family, &window_layers)?;
    let ffn = match (&uneven, family) {
        (Some((u, _)), _) => u.ffns.iter().copied().max().unwrap_or(0),
        // whose layers all have experts
        (_, Family::Qwen35Moe | Family::Qwen3Next) => opt("feed_forward_length", 1)?,
        _ => need("feed_forward_length")?,
    };
    let rope_base = float("rope.freq_base")?.unwrap_or(10000.0);
    let scales = gguf_scales(c, family, [layers, dim, heads, head_dim])?;
    let (conv, kv_heads) = match short_conv::of_gguf(c, family, layers.min(MAX_LAYERS))? {
        Some((conv, heads)) => (Some(conv), heads),
        None if mla.is_some() => (None, 1),
        None => match &uneven {
            Some((_, kv_heads)) => (None, *kv_heads),
            None => (None, opt("attention.head_count_kv", heads)?),
        },
    };
    let rope_scaling = gguf_scaling(c, family, arch, original)?;
    let attention_scale = mla.as_ref().map_or(scales.attention, |m| m.scale(stretch(&rope_scaling)));
    let h = Hyper {
        family,
        name: text("general.name")?.unwrap_or(arch).to_string(),
        layers,
        dim,
        heads,
        kv_heads,
        head_dim,
        n_rot,
        guessing,
        ffn,
        experts: mixture::of_gguf(c, family, ffn)?,
        delta: delta::of_gguf(c, family, [layers, guessing].map(|n| n.min(MAX_LAYERS)), n_rot)?,
        mla,
        conv,
        ssm: None,
        uneven: uneven.map(|(u, _)| u).unwrap_or_default(),
        vocab,
        context,
        window,
        window_layers,
        eps: float(family.epsilon_key())?
            .with_context(|| format!("{file}: {arch}.{} is missing", family.epsilon_key()))? as f32,
        attention_scale,
        embedding_scale: scales.embedding,
        residual_scale: scales.residual,
        logit_divisor: scales.logits,
        attention_softcap: scales.score_cap,
        logit_softcap: scales.logit_cap,
        rope_base,
        rope_scaling,
        local_rope: local_rope(family, window, rope_base, float("rope.freq_base_swa")?),
        rotations: vec![],
        half_split: family.half_split(true),
        qkv_bias: None,
        tied: None,
        arch: arch.to_string(),
    };
    if family.has_scales() && gguf_flag(c, &format!("{arch}.rope.scaling.finetuned"))? == Some(false) {
        return Ok(Hyper { rotations: vec![Rotation::None; layers.min(MAX_LAYERS)], ..h });
    }
    Ok(Hyper { rotations: h.usual_rotations(), ..h })
}

/// Tokens of a GGUF file.
fn gguf_vocab(c: &Container, arch: &str) -> anyhow::Result<usize> {
    let (m, file, key) = (&c.meta, c.described_by().display(), format!("{arch}.vocab_size"));
    let tokens: Option<&[String]> = m.typed("tokenizer.ggml.tokens").with_context(|| file.to_string())?;
    let tokens = tokens.map_or(0, <[String]>::len);
    let rows = c.tensor("token_embd.weight").and_then(|t| t.shape.get(1).copied()).unwrap_or(0) as usize;
    let vocab = match m.get(&key) {
        Some(_) => {
            let v = m.uint(&key).with_context(|| format!("{file}: {key} is not a whole number"))?;
            usize::try_from(v).with_context(|| format!("{file}: {key} is {v}"))?
        }
        None if tokens > 0 => tokens,
        None => rows,
    };
    ensure!(rows == vocab || rows == 0, "{file}: token_embd.weight has {rows} rows for a vocabulary of {vocab}");
    Ok(vocab)
}

/// A model of state space layers alone. What other layers would be made of is as small as can be.
fn from_states(family: Family, s: ssm::Sizes) -> Hyper {
    Hyper {
        family,
        arch: family.name().into(),
        name: s.name,
        layers: s.layers,
        dim: s.dim,
        heads: 1,
        kv_heads: 1,
        head_dim: 2,
        n_rot: 2,
        guessing: 0,
        ffn: 1,
        experts: None,
        delta: None,
        mla: None,
        conv: None,
        ssm: Some(s.ssm),
        uneven: Uneven::default(),
        vocab: s.vocab,
        context: s.context,
        window: None,
        window_layers: vec![],
        eps: s.eps as f32,
        attention_scale: usual_scale(family, [s.layers, s.dim, 1, 2]),
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_divisor: 1.0,
        attention_softcap: 0.0,
        logit_softcap: 0.0,
        rope_base: 10000.0,
        rope_scaling: RopeScaling::None,
        local_rope: None,
        rotations: family.rotations(s.layers.min(MAX_LAYERS), &[]),
        half_split: true,
        qkv_bias: None,
        tied: s.tied,
    }
}

/// By how much positions are stretched, of YaRN; 1 of any other.
fn stretch(scaling: &RopeScaling) -> f64 {
    if let RopeScaling::Yarn { factor, .. } = scaling { *factor } else { 1.0 }
}

/// Numbers that a family multiplies with.
struct Scales {
    attention: f32,
    embedding: f32,
    residual: f32,
    /// a divisor
    logits: f32,
    /// caps of scores and of logits; 0: none
    score_cap: f32,
    logit_cap: f32,
}

/// What products of queries and keys are multiplied with where nothing says otherwise: 1/sqrt(head_dim), rounded once; of
/// the largest Gemma 2 and 3, which are told by their layers, the width of a head as the model's width has it; of Gemma 3n
/// and 4 it is 1.
pub fn usual_scale(family: Family, [layers, dim, heads, head_dim]: [usize; 4]) -> f32 {
    if matches!(family, Family::Gemma3n | Family::Gemma4) {
        return 1.0;
    }
    let largest = matches!((family, layers), (Family::Gemma2, 46) | (Family::Gemma3, 62));
    let n = if largest { dim as f64 / heads as f64 } else { head_dim as f64 };
    (1.0 / libm::sqrt(n)) as f32
}

/// The norms' epsilon where config.json does not say.
fn usual_eps(family: Family, model_type: &str) -> f64 {
    match family {
        family if family.has_layer_norm() => 1e-5,
        Family::Phi3 | Family::Olmo2 | Family::Exaone4 | Family::Glm4Moe | Family::GptOss => 1e-5,
        Family::Llama if model_type == "mixtral" => 1e-5,
        Family::DeepSeek2 if model_type == "glm4_moe_lite" => 1e-5,
        family if family.is_lfm2() => 1e-5,
        Family::ChatGlm | Family::Glm4 => 1.5625e-7,
        _ => 1e-6,
    }
}

/// What the embedding of a family is multiplied with where nothing says otherwise.
fn usual_embedding(family: Family, dim: usize) -> f32 {
    if family.is_gemma() { libm::sqrt(dim as f64) as f32 } else { 1.0 }
}

/// The caps of scores and of logits of a family where nothing says otherwise; 0: none.
pub fn usual_caps(family: Family) -> [f32; 2] {
    match family {
        Family::Gemma2 => [50.0, 30.0],
        Family::Gemma3n => [0.0, 30.0],
        _ => [0.0; 2],
    }
}

/// The caps of scores and of logits that a file says, `said` being what it has under these keys.
///
/// Errors: one of scores in a Gemma 3, for which llama.cpp and transformers have the key and no formula.
fn caps(
    file: impl std::fmt::Display,
    family: Family,
    said: impl Fn(&str) -> anyhow::Result<Option<f64>>,
) -> anyhow::Result<[f32; 2]> {
    let mut caps = usual_caps(family);
    if family.is_gemma() {
        for (cap, key) in caps.iter_mut().zip(["attn_logit_softcapping", "final_logit_softcapping"]) {
            *cap = said(key)?.map_or(*cap, |v| v as f32);
        }
    }
    ensure!(
        family == Family::Gemma2 || caps[0] == 0.0,
        "{file}: attn_logit_softcapping of a {} is {:?}, which is not supported (supported: none)",
        family.name(),
        caps[0]
    );
    Ok(caps)
}

/// The scales of a GGUF file, in which 0 stands for none; `sizes`: layers, width, heads, elements of a head.
fn gguf_scales(c: &Container, family: Family, sizes: [usize; 4]) -> anyhow::Result<Scales> {
    let file = c.described_by().display();
    let key = |what: &str| f64_of(c, &format!("{}.{what}", family.name()));
    let number = |what: &str, has: bool| anyhow::Ok(key(what)?.filter(|v| has && *v != 0.0).map(|v| v as f32));
    let granite = family.has_scales();
    let [score_cap, logit_cap] = caps(&file, family, key)?;
    let attention = number("attention.scale", granite || family == Family::SmolLm3)?;
    Ok(Scales {
        attention: attention.unwrap_or(usual_scale(family, sizes)),
        embedding: number("embedding_scale", granite)?.unwrap_or(usual_embedding(family, sizes[1])),
        residual: number("residual_scale", granite)?.unwrap_or(1.0),
        logits: match number("logit_scale", granite || family.is_cohere())? {
            // Cohere's is a factor
            Some(scale) if !granite => inverse(scale),
            scale => scale.unwrap_or(1.0),
        },
        score_cap,
        logit_cap,
    })
}

/// A factor on logits as a divisor of them, and back.
pub fn inverse(scale: f32) -> f32 {
    (1.0 / f64::from(scale)) as f32
}

/// The scales of config.json.
fn config_scales(cfg: &Fields, family: Family, sizes: [usize; 4]) -> anyhow::Result<Scales> {
    let file = cfg.file();
    let of_granite = |key: &str| anyhow::Ok(cfg.number(key)?.unwrap_or(1.0) as f32);
    // null is none
    let [score_cap, logit_cap] =
        caps(file, family, |key| if cfg.is_null(key) { Ok(Some(0.0)) } else { Ok(cfg.number(key)?) })?;
    let mut scales = Scales {
        attention: usual_scale(family, sizes),
        embedding: usual_embedding(family, sizes[1]),
        residual: 1.0,
        logits: 1.0,
        score_cap,
        logit_cap,
    };
    if family.has_scales() {
        scales = Scales {
            attention: of_granite("attention_multiplier")?,
            embedding: of_granite("embedding_multiplier")?,
            residual: of_granite("residual_multiplier")?,
            logits: of_granite("logits_scaling")?,
            ..scales
        };
    }
    if family.is_cohere() {
        scales.logits = inverse(cfg.number("logit_scale")?.unwrap_or(0.0625) as f32);
    }
    if family == Family::Gemma4 {
        let both = cfg.get("use_bidirectional_attention").is_some_and(|v| v.as_str() != Some("vision"));
        ensure!(!both, "{file}: use_bidirectional_attention is not supported (supported: null, and vision, of images)");
    } else if family.is_gemma() && family != Family::Gemma3n {
        let both = cfg.flag("use_bidirectional_attention")?.unwrap_or(false);
        ensure!(!both, "{file}: use_bidirectional_attention = true is not supported (supported: false)");
        let scalar = cfg.number("query_pre_attn_scalar")?.unwrap_or(256.0);
        ensure!(scalar > 0.0, "{file}: query_pre_attn_scalar is {scalar:?}, expected above 0");
        scales.attention = (1.0 / libm::sqrt(scalar)) as f32;
    }
    Ok(scales)
}

/// True or false of a GGUF file's metadata.
fn gguf_flag(c: &Container, key: &str) -> anyhow::Result<Option<bool>> {
    c.meta.typed(key).with_context(|| c.described_by().display().to_string())
}

/// What layers with a window are rotated by, in a family in which that is another table: the model's base without its
/// scaling, or a base of their own.
fn local_rope(family: Family, window: Option<usize>, base: f64, own: Option<f64>) -> Option<(f64, RopeScaling)> {
    window?;
    match family {
        Family::Olmo2 => Some((base, RopeScaling::None)),
        Family::Gemma3 | Family::Gemma3n | Family::Gemma4 => Some((own.unwrap_or(10000.0), RopeScaling::None)),
        _ => None,
    }
}

/// Whether each of so many layers has a window, one in `period` having none; of 0 all.
fn periodic(period: usize, layers: usize) -> Vec<bool> {
    (0..layers).map(|l| period == 0 || l % period + 1 < period).collect()
}

/// RoPE scaling of a GGUF file trained for `original` positions before it was stretched.
fn gguf_scaling(c: &Container, family: Family, arch: &str, original: f64) -> anyhow::Result<RopeScaling> {
    let file = c.described_by().display();
    let float = |key: &str| f64_of(c, &format!("{arch}.{key}"));
    let kind: Option<&str> = c.meta.typed(&format!("{arch}.rope.scaling.type")).with_context(|| file.to_string())?;
    let factor = match float("rope.scaling.factor")? {
        Some(factor) => factor,
        None => float("rope.scale_linear")?.unwrap_or(1.0),
    };
    let attn_factor = float("rope.scaling.attn_factor")?.unwrap_or(1.0);
    let mut rope_scaling = match kind.unwrap_or("linear") {
        "none" => RopeScaling::None,
        "linear" if factor == 1.0 => RopeScaling::None,
        "linear" => RopeScaling::Linear(factor),
        "yarn" => {
            // a negative one stands for the default
            let ext = float("rope.scaling.yarn_ext_factor")?.filter(|e| *e >= 0.0).unwrap_or(1.0);
            RopeScaling::Yarn {
                factor,
                original,
                beta_fast: float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                ext,
                magnitude: match family {
                    // whose factor is one on scores alone
                    Family::DeepSeek2 => 1.0,
                    _ => attn_factor * if ext != 0.0 { yarn_magnitude(factor, 1.0) } else { 1.0 },
                },
            }
        }
        // a phi3 file need not say so: its factor tensors do
        "longrope" if family == Family::Phi3 && c.tensor(LONG_FACTORS).is_none() => {
            bail!("{file}: {arch}.rope.scaling.type is longrope, but tensor {LONG_FACTORS} is missing")
        }
        "longrope" if family == Family::Phi3 => RopeScaling::None,
        other => {
            let longrope = if family == Family::Phi3 { ", longrope" } else { "" };
            bail!("{file}: {arch}.rope.scaling.type is {}, expected none, linear, yarn{longrope}", cut(other))
        }
    };
    if family == Family::Gemma4 {
        ensure!(
            rope_scaling == RopeScaling::None,
            "{file}: {arch}.rope.scaling.type is not supported (supported: none)"
        );
        rope_scaling = proportional(c)?;
    }
    if family == Family::Phi3 && (c.tensor(LONG_FACTORS).is_some() || c.tensor(SHORT_FACTORS).is_some()) {
        let read = |name: &str| -> anyhow::Result<Vec<f64>> {
            let t = c.tensor(name).with_context(|| format!("{file}: tensor {name} is missing"))?;
            ensure!(t.shape.len() == 1, "{file}: tensor {name} has {} dimensions, expected 1", t.shape.len());
            Ok(vector(c, t)?.into_iter().map(f64::from).collect())
        };
        rope_scaling = RopeScaling::LongRope {
            short: read(SHORT_FACTORS)?,
            long: read(LONG_FACTORS)?,
            original,
            magnitude: attn_factor,
        };
    }
    Ok(rope_scaling)
}

/// What a GGUF file's divisors say: of pairs that are not rotated they are huge.
///
/// Errors: there are none; they are neither 1 and then huge.
fn proportional(c: &Container) -> anyhow::Result<RopeScaling> {
    let file = c.files[0].display();
    let name = "rope_freqs.weight";
    let t = c.tensor(name).with_context(|| format!("{file}: tensor {name} is missing, which says what is rotated"))?;
    ensure!(
        t.elems() <= HEAD_MAX as u64,
        "{file}: tensor {name} has {} elements, expected at most {HEAD_MAX}",
        t.elems()
    );
    let divisors = vector(c, t)?;
    let pairs = divisors.iter().take_while(|d| **d == 1.0).count();
    ensure!(
        divisors[pairs..].iter().all(|d| *d >= UNTURNED),
        "{file}: tensor {name} is not supported (supported: 1 for pairs that are rotated, then {UNTURNED:e} or more)"
    );
    Ok(RopeScaling::Proportional { pairs })
}

/// Which layers of a GGUF file have the sliding window; empty where all have it, or there is none.
fn gguf_window_layers(c: &Container, family: Family, layers: usize, window: bool) -> anyhow::Result<Vec<bool>> {
    let file = c.described_by().display();
    let pattern = format!("{}.attention.sliding_window_pattern", family.name());
    Ok(match (c.meta.get(&pattern), family.window_period()) {
        (None, None) => vec![],
        (_, Some(_)) if !window => vec![],
        (None, Some(period)) => periodic(period, layers),
        (Some(MetaValue::Array(list)), _) => list
            .iter()
            .map(|v| if let MetaValue::Bool(b) = v { Some(*b) } else { None })
            .collect::<Option<Vec<bool>>>()
            .with_context(|| format!("{file}: {pattern} is no list of true and false"))?,
        (Some(v), Some(_)) => {
            let period = c.meta.uint(&pattern).and_then(|n| usize::try_from(n).ok());
            let expected =
                || format!("{file}: {pattern} is of type {}, expected an array of bool or a period", v.type_name());
            periodic(period.with_context(expected)?, layers)
        }
        // a period, as some architectures have it, is not one of these
        (Some(v), None) => bail!("{file}: {pattern} is of type {}, expected an array of bool", v.type_name()),
    })
}

/// A number of the metadata that need not be whole.
fn f64_of(c: &Container, key: &str) -> anyhow::Result<Option<f64>> {
    c.meta.typed(key).with_context(|| c.described_by().display().to_string())
}

/// `v` as GGUF keeps it.
fn single(v: f64) -> f64 {
    f64::from(v as f32)
}

/// Tokens of a Gemma whose config.json does not say: transformers' defaults.
fn usual_vocab(family: Family) -> usize {
    match family {
        Family::Gemma3 => 262_208,
        Family::Gemma3n => 262_400,
        Family::Gemma4 => 262_144,
        _ => 256_000,
    }
}

/// Key-value heads where config.json does not say: transformers' defaults.
fn usual_kv_heads(family: Family, heads: usize) -> usize {
    match family {
        Family::Gemma3n => 2,
        family if family.is_gemma() => 4,
        _ => heads,
    }
}

fn from_config(cfg: &Fields) -> anyhow::Result<Hyper> {
    let file = cfg.file();
    let model_type = cfg.text("model_type")?.unwrap_or("");
    let family = Family::of_config(model_type).with_context(|| {
        format!(
            "{file}: model_type {:?} is not supported (supported: {}, mistral, mixtral, glm, olmo3; also by \
             transformers' names of these)",
            cut(model_type),
            Family::known()
        )
    })?;
    let opt = |key: &str| cfg.size(family.config_key(key));
    let need = |key: &str| opt(key)?.with_context(|| format!("{file}: {} is missing", family.config_key(key)));
    ensure!(
        cfg.get("text_config").is_none(),
        "{file}: text_config: models of text and images are not supported; give the text model alone"
    );
    config_flags(cfg, family)?;
    // what transformers takes for a Gemma that does not say, as the text of a larger Gemma 3 does not
    let usual = |key: &str, of_gemma: usize| -> anyhow::Result<usize> {
        if family.is_gemma() { Ok(opt(key)?.unwrap_or(of_gemma)) } else { need(key) }
    };
    let (dim, heads) = (need("hidden_size")?, usual("num_attention_heads", 8)?);
    ensure!(heads > 0, "{file}: num_attention_heads is 0");
    let (scaling, local) = rope_fields(cfg)?;
    let mla = mla::of_config(cfg, &scaling, family)?;
    let head_dim = match mla.as_ref().map_or_else(|| opt("head_dim"), |m| Ok(Some(m.head_dim())))? {
        Some(n) => n,
        // transformers' default for these does not follow from the width
        None if [Family::Qwen3, Family::ChatGlm, Family::Glm4, Family::Glm4Moe].contains(&family) => 128,
        None if family.is_gemma() || family.is_hybrid() => 256,
        None if family == Family::GptOss => 64,
        None => dim / heads,
    };
    let newer = [Family::Gemma3, Family::Gemma4].contains(&family);
    let context = match opt("max_position_embeddings")? {
        // transformers' default
        None if family == Family::Falcon => 2048,
        None if family == Family::Gemma3n => 32_768,
        _ => usual("max_position_embeddings", if newer { 131_072 } else { 8192 })?,
    };
    let partial = config_partial(cfg, &scaling, family)?;
    let layers = need("num_hidden_layers")?;
    let ffn = config_ffn(cfg, family, dim)?;
    let rotated = config_rotated(cfg, family, layers.min(MAX_LAYERS))?;
    let (window, window_layers) = config_windows(cfg, family, layers.min(MAX_LAYERS))?;
    let kv_heads = if mla.is_some() { Some(1) } else { config_kv_heads(cfg, family)?.or(opt("num_key_value_heads")?) }
        .unwrap_or_else(|| usual_kv_heads(family, heads));
    let uneven = uneven::of_config(cfg, family, &window_layers, (kv_heads, head_dim), ffn)?;
    let (uneven, kv_heads, head_dim) = match uneven {
        Some((uneven, wide)) => (uneven, wide.kv_heads, wide.head_dim),
        None => (Uneven::default(), kv_heads, head_dim),
    };
    let ffn = uneven.ffns.iter().copied().max().unwrap_or(ffn);
    let rope_scaling = config_scaling(family, cfg, &scaling, (context, head_dim))?;
    let rotations = match rotated {
        Some(list) => list.into_iter().map(|r| if r { Rotation::Main } else { Rotation::None }).collect(),
        None => family.rotations(layers.min(MAX_LAYERS), if window.is_some() { &window_layers } else { &[] }),
    };
    // a window that no layer has; that there could be one says how layers are rotated all the same
    let window = window.filter(|_| window_layers.is_empty() || window_layers.contains(&true));
    let rope_base = config_base(cfg, &scaling, family, local.is_some())?;
    let own_base = match (&local, family) {
        (Some(local), _) => local.number("rope_theta")?.map(single),
        (None, Family::Gemma3 | Family::Gemma3n) => cfg.number("rope_local_base_freq")?.map(single),
        _ => None,
    };
    local.as_ref().map_or(Ok(()), |local| check_local(family, local, rope_base, own_base))?;
    let scales = config_scales(cfg, family, [layers, dim, heads, head_dim])?;
    let attention_scale = mla.as_ref().map_or(scales.attention, |m| m.scale(stretch(&rope_scaling)));
    let eps = cfg.number(family.config_key("rms_norm_eps"))?.unwrap_or(usual_eps(family, model_type));
    Ok(Hyper {
        family,
        arch: model_type.to_string(),
        name: cfg.text("_name_or_path")?.filter(|s| !s.is_empty()).unwrap_or(model_type).to_string(),
        layers,
        dim,
        heads,
        kv_heads,
        head_dim,
        n_rot: mla.as_ref().map_or((head_dim as f64 * partial) as usize, |m| m.rope),
        // config.json names none of their tensors: those that are there are passed over
        guessing: if mixture::may_guess(family) { MAX_LAYERS } else { 0 },
        ffn,
        experts: mixture::of_config(cfg, family, ffn)?,
        delta: delta::of_config(cfg, family, layers.min(MAX_LAYERS))?,
        mla,
        conv: short_conv::of_config(cfg, family, layers.min(MAX_LAYERS))?,
        ssm: None,
        uneven,
        vocab: usual("vocab_size", usual_vocab(family))?,
        context,
        window,
        window_layers,
        eps: eps as f32,
        attention_scale,
        embedding_scale: scales.embedding,
        residual_scale: scales.residual,
        logit_divisor: scales.logits,
        attention_softcap: scales.score_cap,
        logit_softcap: scales.logit_cap,
        rope_base,
        rope_scaling,
        local_rope: local_rope(family, window, rope_base, own_base),
        rotations,
        half_split: family.half_split(false),
        qkv_bias: config_bias(cfg, family)?,
        tied: match family {
            family if family.is_lfm2() => cfg.flag("tie_embedding")?.or(cfg.flag("tie_word_embeddings")?),
            _ => cfg.flag("tie_word_embeddings")?,
        },
    })
}

/// Refuses a rotation of layers with a window that a GGUF file has no keys for.
fn check_local(family: Family, local: &Fields, rope_base: f64, own_base: Option<f64>) -> anyhow::Result<()> {
    let file = local.file();
    // what a GGUF file has no keys for
    let kind = local.text("rope_type")?.unwrap_or("default");
    let free = [Family::Gemma3, Family::Gemma3n, Family::Gemma4].contains(&family);
    let base = free || own_base.is_none_or(|base| base == rope_base);
    ensure!(
        base && kind == "default",
        "{file}: rope_parameters.sliding_attention is not supported (supported: {} unscaled)",
        if free { "any base," } else { "the base of full_attention," }
    );
    Ok(())
}

/// Width of the feed-forward of a model of width `dim`.
fn config_ffn(cfg: &Fields, family: Family, dim: usize) -> anyhow::Result<usize> {
    let file = cfg.file();
    let opt = |key: &str| cfg.size(family.config_key(key));
    // which goes before the other
    let older = if family == Family::Lfm2 { opt("block_ff_dim")? } else { None };
    // one for each layer, which `uneven` reads
    let listed = family == Family::Gemma3n && cfg.get("intermediate_size").is_some_and(serde_json::Value::is_array);
    let older = if listed { Some(1) } else { older };
    let ffn = match older.map_or_else(|| opt("intermediate_size"), |n| Ok(Some(n)))? {
        None if [Family::Gpt2, Family::Falcon].contains(&family) => dim.saturating_mul(4),
        None if family == Family::Gemma3n => 16_384,
        // whose layers all have experts
        None if [Family::Qwen35Moe, Family::Qwen3Next].contains(&family) => 1,
        Some(n) => n,
        None => bail!("{file}: {} is missing", family.config_key("intermediate_size")),
    };
    short_conv::feed_forward(cfg, family, ffn)
}

/// Key-value heads where a Falcon's config says so otherwise than by their number.
fn config_kv_heads(cfg: &Fields, family: Family) -> anyhow::Result<Option<usize>> {
    let flag = |key: &str, default| anyhow::Ok(cfg.flag(key)?.unwrap_or(default));
    if family != Family::Falcon || flag("new_decoder_architecture", false)? {
        return Ok(None);
    }
    let file = cfg.file();
    let parallel = flag("parallel_attn", true)?;
    ensure!(parallel, "{file}: parallel_attn = false is not supported (supported: true)");
    let one = flag("multi_query", true)?;
    let heads = cfg.whole("num_attention_heads")?.and_then(|n| usize::try_from(n).ok());
    Ok(if one { Some(1) } else { heads })
}

/// Refuses what a config turns on that no released model of the family has, and another function of the feed-forward.
fn config_flags(cfg: &Fields, family: Family) -> anyhow::Result<()> {
    let file = cfg.file();
    let (key, known) = family.activation();
    let act = cfg.text(key)?.unwrap_or(known[0]);
    ensure!(known.contains(&act), "{file}: {key} {} is not supported (supported: {})", cut(act), known.join(", "));
    for (key, wanted, default) in family.flags() {
        let found = cfg.flag(key)?.unwrap_or(*default);
        ensure!(found == *wanted, "{file}: {key} = {found} is not supported (supported: {wanted})");
    }
    Ok(())
}

/// The share of a head that is rotated.
fn config_partial(cfg: &Fields, scaling: &Fields, family: Family) -> anyhow::Result<f64> {
    if family == Family::Gemma4 {
        // of which the scaling speaks
        return Ok(1.0);
    }
    let file = cfg.file();
    let (inner, outer) = (scaling.number("partial_rotary_factor")?, cfg.number("partial_rotary_factor")?);
    let partial = inner.or(outer).unwrap_or(match family {
        Family::StableLm => 0.25,
        family if family.is_hybrid() => 0.25,
        family if family.turns_part() => 0.5,
        _ => 1.0,
    });
    let may_be_partial = family.is_hybrid()
        || [Family::Phi3, Family::ChatGlm, Family::StableLm, Family::Phi2, Family::Glm4Moe].contains(&family);
    let expected = match family {
        Family::Glm4 => "0.5",
        _ if may_be_partial => "above 0 and at most 1",
        _ => "1",
    };
    let fits = if family == Family::Glm4 { partial == 0.5 } else { partial == 1.0 };
    ensure!(
        fits || (may_be_partial && partial > 0.0 && partial < 1.0),
        "{file}: partial_rotary_factor is {partial:?}, expected {expected}"
    );
    Ok(partial)
}

/// The base of the rotation; `apart`: layers with a window have fields of their own.
fn config_base(cfg: &Fields, scaling: &Fields, family: Family, apart: bool) -> anyhow::Result<f64> {
    let (outer, inner) = (cfg.number("rope_theta")?, scaling.number("rope_theta")?);
    let told = if apart { inner.or(outer) } else { outer.or(inner) };
    Ok(single(told.unwrap_or(match family {
        Family::SmolLm3 => 2e6,
        Family::Gemma3 | Family::Gemma3n | Family::Gemma4 => 1e6,
        Family::Olmo2 if cfg.text("model_type")? == Some("olmo3") => 5e5,
        Family::Llama if cfg.text("model_type")? == Some("mixtral") => 1e6,
        Family::CommandR => 5e5,
        family if family.is_lfm2() => 1e6,
        _ => 10000.0,
    })))
}

/// Whether queries, keys and values have biases, of a family whose config says so.
fn config_bias(cfg: &Fields, family: Family) -> anyhow::Result<Option<bool>> {
    Ok(match family {
        Family::ChatGlm | Family::Glm4 => Some(cfg.flag("attention_bias")?.unwrap_or(true)),
        Family::Phi2 | Family::Gpt2 => Some(true),
        _ => match family.bias_flag() {
            Some((key, usual)) => Some(cfg.flag(key)?.unwrap_or(usual)),
            None => None,
        },
    })
}

/// What config.json says of rotation: newer files keep everything about it in `rope_parameters`, and some of these apart
/// for layers that see everything and for those with a window.
fn rope_fields<'a>(cfg: &Fields<'a>) -> anyhow::Result<(Fields<'a>, Option<Fields<'a>>)> {
    let Some(all) = cfg.object("rope_parameters")? else {
        return Ok((cfg.object("rope_scaling")?.unwrap_or(Fields::none(cfg.file())), None));
    };
    Ok(match all.object("full_attention")? {
        Some(full) => (full, all.object("sliding_attention")?),
        None => (all, None),
    })
}

/// For each layer whether it is rotated at all, of a family where the config says so.
fn config_rotated(cfg: &Fields, family: Family, layers: usize) -> anyhow::Result<Option<Vec<bool>>> {
    if family != Family::SmolLm3 {
        return Ok(None);
    }
    if let Some(list) = cfg.numbers("no_rope_layers")? {
        // 1: it is, whatever the field's name says
        return Ok(Some(list.into_iter().map(|v| v != 0.0).collect()));
    }
    let interval = cfg.whole("no_rope_layer_interval")?;
    ensure!(interval != Some(0), "{}: no_rope_layer_interval is 0, expected at least 1", cfg.file());
    Ok(interval.map(|n| (1..=layers as u64).map(|l| l % n != 0).collect()))
}

/// The window, and for each layer whether it has it: empty where all have it.
fn config_windows(cfg: &Fields, family: Family, layers: usize) -> anyhow::Result<(Option<usize>, Vec<bool>)> {
    let file = cfg.file();
    let size = |key: &str| cfg.size(key);
    // of OLMo 2 and 3 the second alone has windows
    let may_have = match family {
        Family::ChatGlm | Family::Glm4 | Family::Glm4Moe => false,
        // whose `layer_types` say something else
        family if family.is_hybrid() || family.is_lfm2() => return Ok((None, vec![])),
        family if family.has_layer_norm() => matches!(family, Family::StarCoder2 | Family::Cohere2),
        _ if family.has_scales() => false,
        Family::Olmo2 => cfg.text("model_type")? == Some("olmo3"),
        _ => true,
    };
    let always = family.window_period().is_some();
    let sliding = match (family, cfg.flag("use_sliding_window")?) {
        _ if !may_have => None,
        (_, Some(false))
        | (Family::Qwen2 | Family::Qwen3 | Family::Qwen2Moe | Family::Qwen3Moe | Family::SmolLm3, None) => None,
        // transformers' default
        _ if always && cfg.get("sliding_window").is_none() && !cfg.is_null("sliding_window") => {
            Some(if [Family::Gemma3n, Family::Gemma4].contains(&family) { 512 } else { 4096 })
        }
        _ => size("sliding_window")?.filter(|w| *w > 0),
    };
    let one = |kind: &serde_json::Value| match kind.as_str() {
        Some("sliding_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => bail!("{file}: layer_types has {}, expected sliding_attention or full_attention", cut(&kind.to_string())),
    };
    let said =
        cfg.list("layer_types")?.map(|list| list.iter().map(one).collect::<anyhow::Result<Vec<bool>>>()).transpose()?;
    if sliding.is_none() {
        // the layers without one are not rotated
        ensure!(
            ![Family::Cohere2, Family::Gemma3n, Family::Gemma4].contains(&family),
            "{file}: sliding_window is null, which is not supported for {}",
            family.name()
        );
        return Ok((None, vec![]));
    }
    let mut list = match (said, family) {
        (Some(list), _) => list,
        // a Qwen's layers from max_window_layers on
        (None, Family::Qwen2 | Family::Qwen3 | Family::Qwen2Moe | Family::Qwen3Moe) => {
            let from = size("max_window_layers")?.unwrap_or(28);
            (0..layers).map(|l| l >= from).collect()
        }
        (None, Family::SmolLm3) => bail!("{file}: use_sliding_window needs layer_types"),
        (None, Family::Exaone4) if cfg.get("sliding_window_pattern").is_some_and(serde_json::Value::is_string) => {
            let pattern = cfg.text("sliding_window_pattern")?.unwrap_or_default().as_bytes();
            ensure!(
                !pattern.is_empty() && pattern.iter().all(|c| b"LG".contains(c)),
                "{file}: sliding_window_pattern: expected letters L and G"
            );
            (0..layers).map(|l| pattern[l % pattern.len()] == b'L').collect()
        }
        (None, _) => match family.window_period() {
            Some(usual) => periodic(size("sliding_window_pattern")?.unwrap_or(usual), layers),
            // all of a Phi-3 or Mistral
            None => vec![],
        },
    };
    if let (Family::Gemma4, Some(last)) = (family, list.last_mut()) {
        // whatever the list says
        *last = false;
    }
    Ok((sliding, list))
}

/// The config.json of ChatGLM's own code: ChatGLM2, ChatGLM3 and GLM-4 as they were published first. What its fields may
/// turn on and no released model has is refused by name.
fn from_chatglm(cfg: &Fields) -> anyhow::Result<Hyper> {
    let file = cfg.file();
    let opt = |key: &str| cfg.size(key);
    let need = |key: &str| opt(key)?.with_context(|| format!("{file}: {key} is missing"));
    ensure!(
        cfg.flag("position_encoding_2d")? != Some(true) && cfg.get("inner_hidden_size").is_none(),
        "{file}: the first ChatGLM-6B is not supported (supported: ChatGLM2, ChatGLM3, GLM-4)"
    );
    // (field, what it must be, what stands where it is missing)
    for (key, wanted, default) in [
        ("original_rope", true, true),
        ("rmsnorm", true, true),
        ("post_layer_norm", true, true),
        ("multi_query_attention", true, false),
        ("add_bias_linear", false, false),
        ("apply_residual_connection_post_layernorm", false, false),
    ] {
        let found = cfg.flag(key)?.unwrap_or(default);
        ensure!(found == wanted, "{file}: {key} = {found} is not supported (supported: {wanted})");
    }
    // of four bits `formats` has made Q4_0 already
    for (key, known) in [("quantization_bit", &[0, 4][..]), ("pre_seq_len", &[0])] {
        let found = opt(key)?.unwrap_or(0);
        ensure!(known.contains(&found), "{file}: {key} = {found} is not supported (supported: {known:?})");
    }
    let (dim, heads) = (need("hidden_size")?, need("num_attention_heads")?);
    ensure!(heads > 0, "{file}: num_attention_heads is 0");
    let head_dim = opt("kv_channels")?.unwrap_or(dim / heads);
    let name = cfg.text("_name_or_path")?.filter(|s| !s.is_empty()).unwrap_or("chatglm").to_string();
    let ratio = cfg.number("rope_ratio")?.unwrap_or(1.0);
    // from the third on it multiplies the base; before it, the positions are divided by it
    ensure!(
        ratio == 1.0 || !name.to_lowercase().contains("chatglm2"),
        "{file}: rope_ratio = {ratio:?} of a ChatGLM2 is not supported (supported: 1)"
    );
    Ok(Hyper {
        family: Family::ChatGlm,
        arch: "chatglm".into(),
        name,
        layers: need("num_layers")?,
        dim,
        heads,
        kv_heads: need("multi_query_group_num")?,
        head_dim,
        n_rot: head_dim / 2,
        guessing: 0,
        ffn: need("ffn_hidden_size")?,
        experts: None,
        delta: None,
        mla: None,
        conv: None,
        ssm: None,
        uneven: Uneven::default(),
        vocab: match opt("padded_vocab_size")? {
            Some(n) => n,
            None => need("vocab_size")?,
        },
        context: need("seq_length")?,
        window: None,
        window_layers: vec![],
        eps: cfg.number("layernorm_epsilon")?.unwrap_or(1e-5) as f32,
        attention_scale: usual_scale(Family::ChatGlm, [0, dim, heads, head_dim]),
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_divisor: 1.0,
        attention_softcap: 0.0,
        logit_softcap: 0.0,
        rope_base: single(10000.0 * ratio),
        rope_scaling: RopeScaling::None,
        local_rope: None,
        rotations: vec![],
        half_split: false,
        qkv_bias: Some(cfg.flag("add_qkv_bias")?.unwrap_or(false)),
        tied: Some(cfg.flag("tie_word_embeddings")?.unwrap_or(false)),
    })
}

/// The config.json of an encoder.
fn from_encoder(cfg: &Fields, family: Family) -> anyhow::Result<Hyper> {
    let s = encoder_config::of_config(cfg, family)?;
    let h = Hyper {
        family,
        arch: cfg.text("model_type")?.unwrap_or(family.name()).to_string(),
        name: s.name,
        layers: s.layers,
        dim: s.dim,
        heads: s.heads,
        kv_heads: s.heads,
        head_dim: s.head_dim,
        n_rot: s.head_dim,
        guessing: 0,
        ffn: s.ffn,
        experts: None,
        delta: None,
        mla: None,
        conv: None,
        ssm: None,
        uneven: Uneven::default(),
        vocab: s.vocab,
        context: s.context,
        window: None,
        window_layers: vec![],
        eps: s.eps as f32,
        attention_scale: usual_scale(family, [s.layers, s.dim, s.heads, s.head_dim]),
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_divisor: 1.0,
        attention_softcap: 0.0,
        logit_softcap: 0.0,
        rope_base: single(s.rope_base.unwrap_or(10000.0)),
        rope_scaling: RopeScaling::None,
        local_rope: None,
        rotations: vec![],
        half_split: true,
        qkv_bias: None,
        tied: None,
    };
    Ok(Hyper { rotations: h.usual_rotations(), ..h })
}

/// YaRN's factor on cos and sin, with its `mscale`.
pub fn yarn_magnitude(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 1.0 + 0.1 * mscale * libm::log(factor) }
}

/// RoPE scaling of config.json as transformers reads it; `scaling` is its `rope_parameters` or `rope_scaling`.
fn config_scaling(
    family: Family,
    cfg: &Fields,
    scaling: &Fields,
    (context, head_dim): (usize, usize),
) -> anyhow::Result<RopeScaling> {
    let file = cfg.file();
    let number = |key: &str| scaling.number(key)?.with_context(|| format!("{file}: RoPE scaling: {key} is missing"));
    let original = scaling.number("original_max_position_embeddings")?;
    let (new, old) = (scaling.text("rope_type")?, scaling.text("type")?);
    // without its type a factor would be left out in silence
    let typeless = ["factor", "short_factor", "low_freq_factor"].into_iter().find(|key| scaling.get(key).is_some());
    let mut kind = match (new.or(old), typeless) {
        (Some(kind), _) => kind,
        // transformers then takes what the released ones have
        (None, None) if family == Family::GptOss => bail!("{file}: rope_scaling is missing"),
        (None, None) if family == Family::Gemma4 => "proportional",
        (None, None) => "default",
        (None, Some(key)) => bail!("{file}: RoPE scaling: {key} without a rope_type"),
    };
    // what the first Phi-3 files called it
    if family == Family::Phi3 && ["su", "yarn"].contains(&kind) {
        kind = "longrope";
    }
    let factor_of = |original: f64| match scaling.number("factor")? {
        Some(factor) => Ok(factor),
        None => anyhow::Ok(context as f64 / original),
    };
    let attention_factor = scaling.number("attention_factor")?;
    Ok(match kind {
        "proportional" if family == Family::Gemma4 => {
            let (partial, factor) = (scaling.number("partial_rotary_factor")?, scaling.number("factor")?);
            let (partial, factor) = (partial.unwrap_or(0.25), factor.unwrap_or(1.0));
            ensure!(factor == 1.0, "{file}: RoPE scaling: factor is {factor:?}, expected 1");
            let within = partial > 0.0 && partial <= 1.0;
            ensure!(within, "{file}: partial_rotary_factor is {partial:?}, expected above 0 and at most 1");
            RopeScaling::Proportional { pairs: (partial * head_dim as f64 / 2.0) as usize }
        }
        _ if family == Family::Gemma4 => {
            bail!("{file}: RoPE scaling of type {} is not supported (supported: proportional)", cut(kind))
        }
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear(single(number("factor")?)),
        "llama3" => RopeScaling::Llama3 {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            original: number("original_max_position_embeddings")?,
        },
        "yarn" => {
            let original = original.unwrap_or(context as f64);
            let factor = single(factor_of(original)?);
            let usual = yarn_magnitude(factor, 1.0);
            let of = |key: &str| anyhow::Ok(scaling.number(key)?.filter(|v| *v != 0.0));
            let truncate = scaling.flag("truncate")?.unwrap_or(true);
            let rounds = family.rounds_ramp();
            ensure!(
                truncate == rounds,
                "{file}: RoPE scaling: yarn with truncate = {truncate} is not supported (supported: {rounds})"
            );
            RopeScaling::Yarn {
                factor,
                original,
                beta_fast: single(of("beta_fast")?.unwrap_or(32.0)),
                beta_slow: single(of("beta_slow")?.unwrap_or(1.0)),
                ext: 1.0,
                // GGUF keeps how many times the usual factor it is
                magnitude: match (attention_factor, of("mscale")?, of("mscale_all_dim")?) {
                    _ if family == Family::DeepSeek2 => 1.0,
                    (Some(f), ..) => single(f / usual) * usual,
                    (None, Some(m), Some(all)) => {
                        single(yarn_magnitude(factor, m) / yarn_magnitude(factor, all) / usual) * usual
                    }
                    _ => usual,
                },
            }
        }
        "longrope" if family == Family::Phi3 => {
            let original = original
                .or(cfg.number("original_max_position_embeddings")?)
                .with_context(|| format!("{file}: RoPE scaling: longrope needs original_max_position_embeddings"))?;
            let factor = factor_of(original)?;
            let list = |key: &str| -> anyhow::Result<Vec<f64>> {
                let list = scaling.numbers(key)?.with_context(|| format!("{file}: RoPE scaling: {key} is missing"))?;
                Ok(list.into_iter().map(single).collect())
            };
            // transformers and GGUF keep all of them as f32
            RopeScaling::LongRope {
                short: list("short_factor")?,
                long: list("long_factor")?,
                original,
                magnitude: single(match attention_factor {
                    Some(f) => f,
                    None if factor <= 1.0 => 1.0,
                    None => libm::sqrt(1.0 + libm::log(factor) / libm::log(original)),
                }),
            }
        }
        other => bail!(
            "{file}: RoPE scaling of type {} is not supported (supported: default, linear, llama3, yarn{})",
            cut(other),
            if family == Family::Phi3 { ", longrope" } else { "" }
        ),
    })
}
