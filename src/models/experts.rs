//! The feed-forward of a mixture of experts.
//!
//! A router gives each token some experts and their weights, in the order in which it prefers them; a pair of token and
//! such a slot is a row of everything between. Matrices of experts lie in one buffer, expert after expert, each padded to
//! whole blocks of 32 rows, and in several buffers where one would exceed the binding limit.

use super::builder::{Builder, Input, Matrix, Mixture, Scale};
use super::error::PlanError;
use super::family::Family;
use super::mixture::Experts;
use crate::blocks::wide::Wide;
use crate::blocks::{BlockType, pack};
use crate::ops::expert_bias::ExpertBiasParams;
use crate::ops::expert_combine::ExpertCombineParams;
use crate::ops::expert_linear::ExpertLinearParams;
use crate::ops::expert_order::{ExpertOrderParams, order_words};
use crate::ops::expert_scale::ExpertScaleParams;
use crate::ops::geglu::GegluParams;
use crate::ops::linear::{ROW_BLOCK, act_words};
use crate::ops::sigmoid_gate::SigmoidGateParams;
use crate::ops::swiglu::SwigluParams;
use crate::ops::swiglu_oai::SwigluOaiParams;
use crate::record::{Args, BufId, Op, Part, Piece, Role};
use anyhow::{Context, ensure};

/// Workgroups of one dimension that every adapter dispatches.
const MAX_GROUPS: usize = 65535;

/// Which half of a row that holds gate and up, if of one.
type Half = Option<u32>;

/// Words between two rows that a linear of `rows` rows gives, and where they begin.
fn place(rows: usize, half: Half) -> (u32, u32) {
    let rows = rows as u32;
    half.map_or((rows, 0), |half| (2 * rows, half * rows))
}

/// Which matrix each row of a linear by experts meets.
#[derive(Clone, Copy)]
pub(super) struct Chosen {
    /// experts, `[token][slot]`
    pub ids: BufId,
    /// the pairs of token and slot by expert (`ops::expert_order`)
    pub order: BufId,
    /// slots of a token
    pub used: usize,
    /// experts
    pub count: usize,
}

impl Chosen {
    fn of(m: &Mixture, e: &Experts) -> Chosen {
        Chosen { ids: m.ids, order: m.order, used: e.used, count: e.count }
    }
}

impl Builder<'_> {
    /// x += sum over slots of weight · expert(n) + shared(n), n = norm(x); expert(n) = Wdown · (silu(Wgate n) · Wup n).
    pub fn experts(&mut self, e: &Experts) -> anyhow::Result<()> {
        let (h, w, m) = (self.h, self.work, self.buffers_of(e)?);
        let from = self.norm_before("ffn_norm")?;
        let router = self.matrix("ffn_gate_inp", h.dim, e.count)?;
        let [wg, wu] = self.gate_up_of(e)?;
        let wd = self.stack("ffn_down_exps", [e.width, h.dim], e.count, self.of_experts())?;
        let shared = self.shared_matrices(e)?;
        let readers: Vec<&Matrix> = [&wg, &wu, &router].into_iter().chain(shared.iter().flatten()).collect();
        self.quantize("ffn_act", &readers, from, w.normed_act);
        self.linear("router_logits", &router, from, w.normed_act, m.logits); //  [token][expert]
        if e.limit > 0.0 {
            self.bias("ffn_gate_inp", e.count, m.logits)?;
        }
        self.route(e, &m)?;
        self.sum_of_experts(e, [&wg, &wu, &wd], [from, w.normed_act], &m)?;
        if let Some([wg, wu, wd]) = &shared {
            self.shared_expert([wg, wu, wd], &m, from)?;
            self.add("shared_add", m.shared, w.added);
        }
        self.expert_layers += 1;
        self.join("ffn_residual", "post_ffw_norm")
    }

    /// added = sum over slots of weight · Wdown · (silu(Wgate n) · Wup n), or of gelu, by the experts that were chosen, n being
    /// `x` with its blocks.
    pub(super) fn sum_of_experts(
        &mut self,
        e: &Experts,
        [wg, wu, wd]: [&Matrix; 3],
        x: [BufId; 2],
        m: &Mixture,
    ) -> anyhow::Result<()> {
        let (h, w) = (self.h, self.work);
        if e.limit > 0.0 {
            self.clamped_mid([wg, wu], x, m, e)?;
        } else {
            let (by, rows) = (Chosen::of(m, e), e.width as u32);
            self.expert_linear("expert_gate", wg, x, by, (m.gate, rows, 0), e.used);
            self.expert_linear("expert_up", wu, x, by, (m.up, rows, 0), e.used);
            self.rows = self.base.heads(e.used);
            let (n_tokens, dim) = (0, e.width as u32);
            let (label, op, args) = if h.family.has_gelu() {
                ("expert_geglu", Op::Geglu, Args::Geglu(GegluParams { n_tokens, dim, erf: 0 }))
            } else {
                ("expert_swiglu", Op::Swiglu, Args::Swiglu(SwigluParams { n_tokens, dim }))
            };
            self.push(label, op, args, vec![m.gate, m.up, m.mid]);
        }
        self.rows = self.base.heads(e.used);
        if wd.input != Input::Floats {
            self.quantize_for("expert_mid_act", wd, m.mid, m.mid_act);
        }
        self.rows = self.base;
        self.expert_linear("expert_down", wd, [m.mid, m.mid_act], Chosen::of(m, e), (m.given, h.dim as u32, 0), 1);
        if e.limit > 0.0 {
            self.expert_bias("ffn_down_exps", wd, m, (m.given, None), e)?;
        }
        let p = ExpertCombineParams { n_tokens: 0, dim: h.dim as u32, used: e.used as u32, residual: 0 };
        let binds = vec![m.given, m.weights, w.added];
        self.push("expert_combine", Op::ExpertCombine, Args::ExpertCombine(p), binds); //  [token][dim]
        Ok(())
    }

    /// mid = gpt-oss's function of gate and up, both with biases and clamped, which lie in one row for it.
    fn clamped_mid(&mut self, [wg, wu]: [&Matrix; 2], x: [BufId; 2], m: &Mixture, e: &Experts) -> anyhow::Result<()> {
        for (label, what, w, half) in [("expert_gate", "ffn_gate_exps", wg, 0), ("expert_up", "ffn_up_exps", wu, 1)] {
            let (y_stride, y_offset) = place(w.rows, Some(half));
            self.expert_linear(label, w, x, Chosen::of(m, e), (m.gate, y_stride, y_offset), e.used);
            self.expert_bias(what, w, m, (m.gate, Some(half)), e)?;
        }
        self.rows = self.base.heads(e.used);
        let p = SwigluOaiParams { n_tokens: 0, dim: e.width as u32, limit: e.limit };
        self.push("expert_swiglu", Op::SwigluOai, Args::SwigluOai(p), vec![m.gate, m.mid]);
        Ok(())
    }

    /// y += the bias of the expert of each pair; `y` as [`Builder::expert_linear`] has it.
    fn expert_bias(
        &mut self,
        what: &str,
        w: &Matrix,
        m: &Mixture,
        (y, half): (BufId, Half),
        e: &Experts,
    ) -> anyhow::Result<()> {
        let b = self.vectors(what, "bias", [w.rows, e.count])?;
        let (y_stride, y_offset) = place(w.rows, half);
        let p = ExpertBiasParams { n_tokens: 0, dim: w.rows as u32, y_stride, y_offset };
        self.rows = self.base.heads(e.used);
        self.push(&format!("{what}_bias"), Op::ExpertBias, Args::ExpertBias(p), vec![b, m.ids, y]);
        self.rows = self.base;
        Ok(())
    }

    /// Makes the buffers when the first layer asks for them.
    pub(super) fn buffers_of(&mut self, e: &Experts) -> anyhow::Result<Mixture> {
        if let Some(m) = self.mixture {
            return Ok(m);
        }
        let (t, dim) = (self.o.ubatch, self.h.dim);
        let pairs = t.saturating_mul(e.used);
        ensure!(pairs <= MAX_GROUPS, PlanError::Slots { tokens: t, used: e.used, pairs: MAX_GROUPS });
        // what a feed-forward beside the experts gives
        let beside = self.h.family == Family::Gemma4;
        let m = Mixture {
            logits: self.scratch("router_logits", t * e.count)?,
            ids: self.scratch("expert_ids", pairs)?,
            weights: self.scratch("expert_weights", pairs)?,
            order: self.scratch("expert_order", order_words(e.count, pairs))?,
            gate: self.scratch("expert_gate", pairs * e.width * if e.limit > 0.0 { 2 } else { 1 })?,
            up: if e.limit > 0.0 { 0 } else { self.scratch("expert_up", pairs * e.width)? },
            mid: self.scratch("expert_mid", pairs * e.width)?,
            mid_act: self.scratch("expert_mid_act", pairs * act_words(e.width, self.o.digits))?,
            given: self.scratch("expert_given", pairs * dim)?,
            shared: if e.shared > 0 || beside { self.scratch("shared_expert", t * dim)? } else { 0 },
            share: if e.shared > 0 { self.scratch("shared_expert_gate", t)? } else { 0 },
        };
        self.mixture = Some(m);
        Ok(m)
    }

    /// ids and weights of each token's experts, and the pairs by expert.
    pub(super) fn route(&mut self, e: &Experts, m: &Mixture) -> anyhow::Result<()> {
        let biased = e.sigmoid && self.has("exp_probs_b", "bias");
        // without one the operation reads nothing there
        let bias = if biased { self.vector("exp_probs_b", "bias", e.count)? } else { m.logits };
        let binds = vec![m.logits, bias, m.ids, m.weights];
        self.push("router", Op::Router, Args::Router(e.router(biased)), binds);
        let p = ExpertOrderParams { n_tokens: 0, experts: e.count as u32 };
        self.rows = self.base.heads(e.used);
        self.push("expert_order", Op::ExpertOrder, Args::ExpertOrder(p), vec![m.ids, m.order]);
        self.rows = self.base;
        Ok(())
    }

    /// Gate and up of all experts: two tensors, or one in which each expert's rows of gate stand before those of up.
    pub(super) fn gate_up_of(&mut self, e: &Experts) -> anyhow::Result<[Matrix; 2]> {
        let dim = self.h.dim;
        if !self.has("ffn_gate_up_exps", "weight") {
            let wide = self.of_experts();
            return Ok([
                self.stack("ffn_gate_exps", [dim, e.width], e.count, wide)?,
                self.stack("ffn_up_exps", [dim, e.width], e.count, wide)?,
            ]);
        }
        let name = self.name("ffn_gate_up_exps", "weight");
        let found = self.claim(&name, &[dim, 2 * e.width, e.count])?;
        let [gate, up] =
            [0, 1].map(|which| self.stack_of(found, [dim, e.width], (which, 2), e.count, self.of_experts()));
        Ok([gate?, up?])
    }

    /// Which of them this layer's experts have packed as codes.
    pub(super) fn of_experts(&self) -> Wide {
        let packing = &self.o.packing;
        if self.expert_layers < packing.of_experts { packing.experts } else { packing.layers }
    }

    /// The matrices of all experts, of which there are `count`, `[expert][rows][k]`; `wide` are packed as codes.
    pub(super) fn stack(
        &mut self,
        what: &str,
        [k, rows]: [usize; 2],
        count: usize,
        wide: Wide,
    ) -> anyhow::Result<Matrix> {
        let name = self.name(what, "weight");
        let found = self.claim(&name, &[k, rows, count])?;
        self.stack_of(found, [k, rows], (0, 1), count, wide)
    }

    /// As [`Builder::stack`], of a tensor in which each expert has `of` matrices, of which this is number `which`.
    fn stack_of(
        &mut self,
        (tensor, t): (usize, BlockType),
        [k, rows]: [usize; 2],
        (which, of): (usize, usize),
        count: usize,
        wide: Wide,
    ) -> anyhow::Result<Matrix> {
        let (name, ty) = (self.c.tensors[tensor].name.clone(), wide.packed(t));
        let words = pack::packed_words(ty, rows, k);
        let (most, limit) = (self.o.max_binding_words / words.max(1), self.o.max_binding_words * 4);
        ensure!(most > 0, PlanError::Binding { what: format!("the rows of an expert of tensor {name}"), limit });
        let whole = of == 1 && rows.is_multiple_of(ROW_BLOCK);
        let mut parts = Vec::new();
        for first in (0..count).step_by(most) {
            let n = most.min(count - first);
            let piece = |row0, rows| Piece { tensor, part: Part::Rows { t, packed: ty, k, row0, rows } };
            let pieces = if whole {
                vec![piece(first * rows, n * rows)]
            } else {
                (first..first + n).map(|i| piece((i * of + which) * rows, rows)).collect()
            };
            let half = if of == 1 { String::new() } else { format!(", part {which}") };
            let label = if n == count {
                format!("{name}{half}")
            } else {
                format!("{name} experts {first}..{}{half}", first + n)
            };
            let held = words.checked_mul(n).with_context(|| format!("tensor {name} is larger than memory"))?;
            parts.push((self.buffer(&label, held, Role::Weight(pieces))?, first, n));
        }
        // of gate and up in one tensor nobody says which rows a scale would be of
        let scale = if of == 1 { self.scale_of(tensor, Some(count))? } else { Scale::One(1.0) };
        Ok(Matrix { ty, input: self.input_of(tensor, ty)?, k, rows, scale, parts })
    }

    /// y = m of the expert of each pair · x; `from` are x and its blocks, `[token]` where `share` slots have a row together,
    /// `[token][slot]` where that is 1. `y` is where it goes, with the words of a row there and its first of them.
    pub(super) fn expert_linear(
        &mut self,
        label: &str,
        m: &Matrix,
        [x, act]: [BufId; 2],
        by: Chosen,
        (y, y_stride, y_offset): (BufId, u32, u32),
        share: usize,
    ) {
        let input = self.met_by(label, m, x, act);
        self.rows = self.base.heads(by.used);
        for &(w, expert0, held) in &m.parts {
            let p = ExpertLinearParams {
                n_tokens: 0,
                k: m.k as u32,
                rows: m.rows as u32,
                digits: if m.input == Input::Groups { self.o.digits as u32 } else { 1 },
                y_stride,
                y_offset,
                used: by.used as u32,
                share: share as u32,
                experts: by.count as u32,
                expert0: expert0 as u32,
                held: held as u32,
            };
            let binds = vec![w, input, by.ids, by.order, y];
            self.push(label, Op::ExpertMatvec(m.ty), Args::ExpertLinear(p), binds);
        }
        if let Scale::Experts(scale) = m.scale {
            let p = ExpertScaleParams { n_tokens: 0, dim: m.rows as u32, y_stride, y_offset };
            self.push(&format!("{label}_scale"), Op::ExpertScale, Args::ExpertScale(p), vec![scale, by.ids, y]);
        }
        self.rows = self.base;
    }

    /// Gate, up and down of the expert that all tokens meet, where there is one.
    fn shared_matrices(&mut self, e: &Experts) -> anyhow::Result<Option<[Matrix; 3]>> {
        if e.shared == 0 {
            return Ok(None);
        }
        let wg = self.matrix("ffn_gate_shexp", self.h.dim, e.shared)?;
        let wu = self.matrix("ffn_up_shexp", self.h.dim, e.shared)?;
        Ok(Some([wg, wu, self.matrix("ffn_down_shexp", e.shared, self.h.dim)?]))
    }

    /// shared = Wdown · (silu(Wgate n) · Wup n), times sigmoid(ws · n) where the file has that, n being `from`.
    fn shared_expert(&mut self, [wg, wu, wd]: [&Matrix; 3], m: &Mixture, from: BufId) -> anyhow::Result<()> {
        let (h, w) = (self.h, self.work);
        self.linear("shared_gate", wg, from, w.normed_act, w.gate);
        self.linear("shared_up", wu, from, w.normed_act, w.up);
        let p = SwigluParams { n_tokens: 0, dim: wg.rows as u32 };
        self.push("shared_swiglu", Op::Swiglu, Args::Swiglu(p), vec![w.gate, w.up, w.mid]);
        self.quantize("shared_mid_act", &[wd], w.mid, w.mid_act);
        self.linear("shared_down", wd, w.mid, w.mid_act, m.shared);
        if h.family == Family::Qwen2Moe || h.family.is_hybrid() {
            // one row: a GGUF file has it as a vector
            let ws = self.row("ffn_gate_inp_shexp", h.dim)?;
            self.linear("shared_share", &ws, from, w.normed_act, m.share);
            let p = SigmoidGateParams { n_tokens: 0, dim: h.dim as u32, gates: 1 };
            self.push("shared_sigmoid", Op::SigmoidGate, Args::SigmoidGate(p), vec![m.share, m.shared]);
        }
        Ok(())
    }

    /// A matrix of one row, which may be a tensor of one dimension.
    fn row(&mut self, what: &str, k: usize) -> anyhow::Result<Matrix> {
        let name = self.name(what, "weight");
        let is_vector = self.c.tensor(&name).is_some_and(|t| t.shape.len() == 1);
        let shape = if is_vector { vec![k] } else { vec![k, 1] };
        let (tensor, t) = self.claim(&name, &shape)?;
        self.rows_of(tensor, t, k, 0..1, true)
    }
}
