//! The commands of a step: norms, linears, rotation, attention over pages of the cache, feed-forward layers.

use super::{Builder, Heads, Input, MAX_GROUPS, Matrix, Pages, positions};
use crate::formats::Activations;
use crate::models::error::PlanError;
use crate::models::family::{HeadNorms, Norms, Rotation};
use crate::ops::act_quantize::ActQuantizeParams;
use crate::ops::add::AddParams;
use crate::ops::add_bias::AddBiasParams;
use crate::ops::attention::{AttentionParams, SCOPE_ALL, SCOPE_OLDER, SCOPE_OWN, SPAN};
use crate::ops::attention_sinks::AttentionSinksParams;
use crate::ops::cache::{CacheType, CacheWriteParams};
use crate::ops::channel_quantize::ChannelQuantizeParams;
use crate::ops::channel_scale::ChannelScaleParams;
use crate::ops::geglu::GegluParams;
use crate::ops::layer_norm::LayerNormParams;
use crate::ops::linear::LinearParams;
use crate::ops::rms_norm::RmsNormParams;
use crate::ops::rope::RopeParams;
use crate::ops::row_quantize::RowQuantizeParams;
use crate::ops::scale::ScaleParams;
use crate::ops::softcap;
use crate::ops::swiglu::SwigluParams;
use crate::record::{Args, BufId, Change, Command, Op, Part, Piece, Role};
use anyhow::ensure;

/// A stretch of the cache: types of keys and values, its first position and how many, what of it queries read, and the two
/// buffers.
type Stretch = ((CacheType, CacheType), (usize, usize), u32, BufId, BufId);

impl Builder<'_> {
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
        self.norm_of(what, self.h.dim, self.eps(), [x, y])?;
        if self.has(what, "bias") {
            self.bias(what, self.h.dim, y)?;
        }
        Ok(())
    }

    /// y = norm(x) · w over rows of `dim`, w being the tensor `what`, `[dim]`.
    pub fn norm_of(&mut self, what: &str, dim: usize, eps: f32, [x, y]: [BufId; 2]) -> anyhow::Result<()> {
        let w = self.norm_weights(what, dim)?;
        self.norm_with(what, w, (dim, eps), [x, y]);
        Ok(())
    }

    /// As [`Builder::norm_of`], by the weights in a buffer.
    pub fn norm_with(&mut self, label: &str, w: BufId, (dim, eps): (usize, f32), [x, y]: [BufId; 2]) {
        let p = RmsNormParams { n_tokens: 0, dim: dim as u32, inv_n: (1.0 / dim as f64) as f32, eps };
        self.push(label, Op::RmsNorm, Args::RmsNorm(p), vec![x, w, y]);
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
    pub fn scale(&mut self, label: &str, by: f32, dim: usize, x: BufId) {
        if by != 1.0 {
            let p = ScaleParams { n_tokens: 0, dim: dim as u32, scale: by };
            self.push(label, Op::Scale, Args::Scale(p), vec![x]);
        }
    }

    /// y = norm(x) · w as the family norms queries and keys, nothing where it does not; w being the tensor `what`, `[head_dim]` or
    /// `[heads][head_dim]`; x, y `[token][heads][head_dim]`.
    pub fn head_norms(&mut self, what: &str, heads: usize, x: BufId, y: BufId) -> anyhow::Result<()> {
        let dim = self.heads().head_dim;
        match self.h.family.head_norms() {
            HeadNorms::None if !self.h.family.has_layer_norm() => return Ok(()),
            HeadNorms::Whole => return self.norm_of(what, heads * dim, self.eps(), [x, y]),
            _ => {}
        }
        if !self.h.family.has_layer_norm() {
            return self.norm_of_rows(what, heads, dim, [x, y]);
        }
        self.check_rows(heads)?;
        self.layer_norm(what, [dim, heads], x, y)?;
        if let Some(c) = self.commands.last_mut() {
            c.rows = self.base.heads(heads);
        }
        Ok(())
    }

    /// y = norm(x) · w over so many rows of `dim` of every token, w being the tensor `what`, `[dim]`.
    pub fn norm_of_rows(&mut self, what: &str, rows: usize, dim: usize, xy: [BufId; 2]) -> anyhow::Result<()> {
        let w = self.norm_weights(what, dim)?;
        self.norm_by(what, w, (rows, dim), xy)
    }

    /// As [`Builder::norm_of_rows`], by the weights in a buffer.
    pub fn norm_by(
        &mut self,
        label: &str,
        w: BufId,
        (rows, dim): (usize, usize),
        [x, y]: [BufId; 2],
    ) -> anyhow::Result<()> {
        let p = RmsNormParams { n_tokens: 0, dim: dim as u32, inv_n: (1.0 / dim as f64) as f32, eps: self.eps() };
        self.rows_of_heads(label, rows, Op::RmsNorm, Args::RmsNorm(p), vec![x, w, y])
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
        self.rows = self.base.heads(heads);
        self.push(label, op, args, binds);
        self.rows = self.base;
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
        self.linear_into(label, m, [x, act, y], m.rows, 0);
        self.scale(&format!("{label}_scale"), m.one_scale(), m.rows, y);
    }

    /// `linear` as a part of a row of `stride` elements, from element `first` of it on, and without the scale of `m`.
    pub fn linear_into(&mut self, label: &str, m: &Matrix, [x, act, y]: [BufId; 3], stride: usize, first: usize) {
        let input = self.met_by(label, m, x, act);
        for &(w, row0, rows) in &m.parts {
            let p = LinearParams {
                n_tokens: 0,
                k: m.k as u32,
                rows: rows as u32,
                digits: self.digits_of(m),
                y_stride: stride as u32,
                y_offset: (first + row0) as u32,
                residual: 0,
            };
            self.push(label, Op::Matvec(m.ty), Args::Linear(p), vec![w, input, y]);
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
            head_dim: self.heads().head_dim as u32,
            n_rot: self.heads().n_rot as u32,
            half_split: self.h.half_split.into(),
        };
        self.push(label, Op::Rope, Args::Rope(p), vec![table, x]);
    }

    /// Has attention begin with the sinks of the query heads, `attn_sinks` `[heads]`, in a family that has them.
    pub fn sinks(&mut self) -> anyhow::Result<()> {
        let sinks = self.vector("attn_sinks", "weight", self.h.heads)?;
        let (heads, head_dim) = (self.h.heads as u32, self.heads().head_dim as u32);
        let p = AttentionSinksParams { n_tokens: 0, heads, head_dim };
        self.push("attn_sinks", Op::AttentionSinks, Args::AttentionSinks(p), vec![sinks, self.work.state]);
        Ok(())
    }

    /// Writes k and v to the cache; then attended = softmax(scale · q · K) · V over all positions so far: those of
    /// each page, or the older chunks of each page and then the query's own chunk from the ring.
    pub fn attend(&mut self, q: BufId, k: BufId, v: BufId) {
        let (w, pages) = (self.work, std::mem::take(&mut self.pages));
        self.codes(&pages, q, k, v);
        let (Heads { kv_heads, head_dim, .. }, table) = (self.heads(), self.table_of_layer());
        for ((kt, vt), (first, len), scope, keys, values) in self.stretches(&pages) {
            let p = CacheWriteParams {
                n_tokens: 0,
                kv_heads: kv_heads as u32,
                head_dim: head_dim as u32,
                page_first: first as u32,
                page_len: len as u32,
                ring: u32::from(scope == SCOPE_OWN),
                table,
            };
            self.push("k_cache", Op::CacheWriteK(kt), Args::CacheWrite(p), vec![k, v, w.places, keys]);
            self.push("v_cache", Op::CacheWriteV(vt), Args::CacheWrite(p), vec![v, w.places, values]);
        }
        self.look(&pages, q);
        self.pages = pages;
    }

    /// As [`Builder::attend`], in a layer that reads what an earlier one has written.
    pub fn attend_earlier(&mut self, q: BufId) {
        let pages = std::mem::take(&mut self.pages);
        if let Some(channels) = pages.channels[0] {
            self.channel_scale("q_scale", channels, q, false);
        }
        self.look(&pages, q);
        self.pages = pages;
    }

    /// attended = softmax(scale · q · K) · V over what lies in these pages.
    fn look(&mut self, pages: &Pages, q: BufId) {
        let (h, w) = (self.h, self.work);
        let (window, places) = match self.layer.and_then(|l| self.window_of(l)) {
            Some(_) if h.family.is_encoder() => (SPAN, w.span),
            window => (window.unwrap_or(0) as u32, w.seen),
        };
        let (Heads { kv_heads, head_dim, .. }, table) = (self.heads(), self.table_of_layer());
        for ((kt, vt), (first, len), scope, keys, values) in self.stretches(pages) {
            let p = AttentionParams {
                n_tokens: 0,
                chunk0: 0,
                chunks: 0,
                heads: h.heads as u32,
                kv_heads: kv_heads as u32,
                head_dim: head_dim as u32,
                page_first: first as u32,
                page_len: len as u32,
                scale: h.attention_scale,
                scope,
                window,
                table,
                softcap: h.attention_softcap,
                inv_softcap: softcap::inverse(h.attention_softcap),
                sinks: h.family.has_sinks().into(),
            };
            let binds = vec![q, keys, values, places, w.state, w.attended];
            self.push("attention", Op::Attention(kt, vt), Args::Attention(p), binds);
        }
        if let Some(channels) = pages.channels[1] {
            self.channel_scale("attended_scale", channels, w.attended, true);
        }
    }

    /// What attention goes over, in its order: each page, then the ring where there is one.
    fn stretches(&self, pages: &Pages) -> Vec<Stretch> {
        let (types, ring) = ((self.o.k_type, self.o.v_type), pages.ring > 0);
        let scope = if ring { SCOPE_OLDER } else { SCOPE_ALL };
        let mut list: Vec<Stretch> =
            pages.ranges.iter().enumerate().map(|(i, &r)| (types, r, scope, pages.keys[i], pages.values[i])).collect();
        if ring {
            let [keys, values] = pages.recent;
            list.push(((CacheType::F16, CacheType::F16), (0, pages.ring), SCOPE_OWN, keys, values));
        }
        list
    }

    /// The table that the layer goes by which is recorded.
    fn table_of_layer(&self) -> u32 {
        self.layer.map_or(0, |l| self.table(l)) as u32
    }

    /// How many positions queries of a layer see, where that is less than there may be: a window that reaches back to the
    /// first position from everywhere limits nothing.
    pub(super) fn window_of(&self, layer: usize) -> Option<usize> {
        self.h.window_of(layer).filter(|w| *w < positions(self.o.n_ctx))
    }

    /// Whether any layer has a window.
    pub(super) fn has_windows(&self) -> bool {
        (0..self.h.layers).any(|l| self.window_of(l).is_some())
    }

    /// Which table a layer goes by: those of the first window met by one of their own. Layers of another window, if there are
    /// any, keep their chunks as those without do.
    pub(super) fn table(&self, layer: usize) -> usize {
        self.window_of(layer).is_some_and(|w| w == self.window).into()
    }

    /// Where the cache is c8: keys and values become its integers, and queries take the scales of the keys.
    fn codes(&mut self, pages: &Pages, q: BufId, k: BufId, v: BufId) {
        let dim = (self.heads().kv_heads * self.heads().head_dim) as u32;
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
            kv_heads: self.heads().kv_heads as u32,
            head_dim: self.heads().head_dim as u32,
            less_offset: less_offset.into(),
        };
        self.push(label, Op::ChannelScale, Args::ChannelScale(p), vec![scale, offset, x]);
    }

    /// x += Wo · attended, behind a norm where the family has one there.
    pub fn attention_output(&mut self) -> anyhow::Result<()> {
        self.attention_given()?;
        self.join("attn_residual", "post_attention_norm")
    }

    /// added = Wo · attended.
    pub fn attention_given(&mut self) -> anyhow::Result<()> {
        let (h, w) = (self.h, self.work);
        let wo = self.matrix("attn_output", h.heads * self.heads().head_dim, h.dim)?;
        self.quantize("attended_act", &[&wo], w.attended, w.attended_act);
        self.linear("attn_output", &wo, w.attended, w.attended_act, w.added);
        self.optional_bias("attn_output", &wo, w.added)
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
        self.gated(from, known, gate_up)?;
        self.feed_forward_down()
    }

    /// mid = silu(Wgate from) · Wup from, or gelu in the place of silu.
    pub fn gated(
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
        let (n_tokens, dim) = (0, wg.rows as u32);
        let (label, op, args) = if h.family.has_gelu() && !h.silu {
            ("geglu", Op::Geglu, Args::Geglu(GegluParams { n_tokens, dim, erf: h.family.has_erf().into() }))
        } else {
            ("swiglu", Op::Swiglu, Args::Swiglu(SwigluParams { n_tokens, dim }))
        };
        self.push(label, op, args, vec![w.gate, w.up, w.mid]);
        Ok(())
    }

    /// x += Wdown · mid, behind a norm where the family has one there.
    pub fn feed_forward_down(&mut self) -> anyhow::Result<()> {
        self.down()?;
        self.join("ffn_residual", "post_ffw_norm")
    }

    /// added = Wdown · mid.
    pub fn down(&mut self) -> anyhow::Result<()> {
        let (h, w) = (self.h, self.work);
        let wd = self.matrix("ffn_down", h.ffn_of(self.layer.unwrap_or(0)), h.dim)?;
        self.quantize("mid_act", &[&wd], w.mid, w.mid_act);
        self.linear("ffn_down", &wd, w.mid, w.mid_act, w.added);
        self.optional_bias("ffn_down", &wd, w.added)
    }

    /// x += y, rows of the model's width.
    pub fn add(&mut self, label: &str, y: BufId, x: BufId) {
        self.add_rows(label, self.h.dim, y, x);
    }

    /// x += y, rows of `dim`.
    pub fn add_rows(&mut self, label: &str, dim: usize, y: BufId, x: BufId) {
        let p = AddParams { n_tokens: 0, dim: dim as u32 };
        self.push(label, Op::Add, Args::Add(p), vec![y, x]);
    }
}
