//! Hyperparameters from GGUF metadata or config.json, with every range checked before anything is allocated.
//!
//! The one reader of config.json: `quantize` writes a GGUF file's keys from what it gives. Numbers that GGUF keeps as f32
//! are rounded to f32 here too, so that a directory and the file made from it give the same bits.

mod of_config;
mod of_gguf;

use super::delta::Delta;
use super::family::{Family, Rotation};
use super::mixture::Experts;
use super::mla::Mla;
use super::short_conv::ShortConv;
use super::ssm::{self, Ssm};
use super::uneven::{Heads, Uneven};
use crate::formats::json::Fields;
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
    /// whether the feed-forward's gate goes through silu where it is gelu in other models of the family (`Family::activation`)
    pub silu: bool,
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
            ContainerKind::Gguf | ContainerKind::Bump => of_gguf::read(c)?,
            ContainerKind::HuggingFace => {
                let file = c.described_by().display();
                let config = c.config.as_ref().with_context(|| format!("{file}: missing"))?;
                of_config::read(&Fields::of(file, config)?)?
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
        let sides = if self.family.is_encoder() { "±" } else { "" };
        self.window.map(|w| format!("{sides}{}{some}", if sides.is_empty() { w } else { w - 1 }))
    }

    /// Bytes of what all layers remember of a sequence in the place of keys and values, one slot's.
    pub fn state_bytes(&self) -> usize {
        (0..self.layers).map(|l| self.state_words(l)).sum::<usize>() * 4
    }

    /// Words of what this layer remembers of a sequence.
    pub fn state_words(&self, layer: usize) -> usize {
        let of_net = |d: &Delta| d.heads * d.size * d.size + conv_silu::KEPT * d.channels();
        let of_space = |s: &Ssm| s.inner() * s.state + conv_silu::KEPT * s.channels();
        match (self.delta_of(layer), &self.ssm) {
            (Some(d), _) => of_net(d),
            (None, Some(s)) => of_space(s),
            (None, None) if self.is_recurrent(layer) => (TAPS - 1) * self.dim,
            (None, None) => 0,
        }
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
        silu: false,
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

/// A factor on logits as a divisor of them, and back.
pub fn inverse(scale: f32) -> f32 {
    (1.0 / f64::from(scale)) as f32
}

/// What layers with a window are rotated by, in a family in which that is another table: the model's base without its
/// scaling, or a base of their own.
fn local_rope(family: Family, window: Option<usize>, base: f64, own: Option<f64>) -> Option<(f64, RopeScaling)> {
    window?;
    match family {
        family if family.has_own_base() => Some((own.unwrap_or(10000.0), RopeScaling::None)),
        family if family.turns_windows() => Some((base, RopeScaling::None)),
        _ => None,
    }
}

/// Whether each of so many layers has a window, one in `period` having none; of 0 all.
fn periodic(family: Family, period: usize, layers: usize) -> Vec<bool> {
    let whole = if family.sees_all_first() { 1 } else { period };
    (1..=layers).map(|l| period == 0 || l % period != whole % period).collect()
}

/// YaRN's factor on cos and sin, with its `mscale`.
pub fn yarn_magnitude(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 1.0 + 0.1 * mscale * libm::log(factor) }
}
