//! Fewer commands for the same bits: rewrites a plan's recording by looking at neighbouring commands.
//!
//! Models write plain commands, one operation each. [`fuse`] replaces runs of them by operations that do the same
//! arithmetic in the same order with less traffic and fewer dispatches:
//!
//! - projections of queries, keys and values write one buffer, and their biases become one, or the norms of heads of queries
//!   and keys one `head_norms`; rope and cache writes become one `rope_cache_write`, or with the codes of a c8 cache between
//!   one `rope_channel_cache_write`
//! - gate and up projections write one buffer; `swiglu` and `act_quantize` become `swiglu_quantize`
//! - `rms_norm` and `act_quantize` become `norm_quantize`
//! - attention over every page and the `act_quantize` of its result become `attention_quantize`
//! - a linear and the `add` after it become a linear with a residual, and so do the sum of what experts give and its `add`
//! - gate and up of all experts become one matrix, each expert's rows of up after those of gate; `swiglu` and
//!   `act_quantize` of their pairs `swiglu_quantize`
//! - neighbouring linears over the same activations become one, their weights stacked in one buffer; a pair of types
//!   that has a kernel too
//! - for few tokens, a stacked gate and up projection and `swiglu_quantize` become `gate_up`
//!
//! A rewrite happens only when it is proved safe: a buffer that would no longer be written is Scratch, is not the
//! logits, and no command outside the run reads what the run wrote to it. Anything unknown is left as it stands.

use crate::ops::add_bias::AddBiasParams;
use crate::ops::attention_quantize::AttentionQuantizeParams;
use crate::ops::cache::CacheType;
use crate::ops::channel_scale::ChannelScaleParams;
use crate::ops::expert_combine::ExpertCombineParams;
use crate::ops::expert_linear::ExpertLinearParams;
use crate::ops::gate_up::GateUpParams;
use crate::ops::head_norms::HeadNormsParams;
use crate::ops::linear::{LinearParams, ROW_BLOCK};
use crate::ops::matvec_pair::{self, LinearPairParams};
use crate::ops::norm_quantize::NormQuantizeParams;
use crate::ops::rope_cache_write::RopeCacheWriteParams;
use crate::ops::swiglu_quantize::SwigluQuantizeParams;
use crate::record::{Args, BufDecl, BufId, Command, Op, Part, Piece, Placing, Plan, Role, Rows};
use std::ops::Range;

/// Tokens up to which `gate_up` is used: beyond, a weight read once for many tokens is worth more than a dispatch.
pub const FEW_TOKENS: usize = 4;

/// How far to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fuse {
    /// not at all
    Off,
    /// all but `gate_up`, whose one workgroup for 128 results leaves the widest devices idle
    Wide,
    /// everything
    #[default]
    On,
}

/// Rewrites the recording, and renumbers the buffers without those nobody uses any more.
///
/// No buffer it makes has more than `max_binding_words`. Gives the new number of every old buffer, `None` for those
/// that are gone; inputs and logits stay.
pub fn fuse(plan: &mut Plan, how: Fuse, max_binding_words: usize) -> Vec<Option<BufId>> {
    if how == Fuse::Off {
        return (0..plan.buffers.len()).map(Some).collect();
    }
    let mut f = Fuser { plan, max_binding_words };
    let mut at = 0;
    while at < f.commands().len() {
        let done = f.rope_cache_write(at)
            || f.attention_quantize(at)
            || f.swiglu_quantize(at)
            || f.experts_swiglu_quantize(at)
            || f.norm_quantize(at)
            || f.residual(at)
            || f.combine_residual(at);
        // what a rewrite left may be the start of another; three biases that became one, before the place it was found at
        at = if done { at.saturating_sub(2) } else { at + 1 };
    }
    let mut at = 0;
    while at < f.commands().len() {
        at += usize::from(!f.stack(at));
    }
    let mut at = 0;
    while how == Fuse::On && at < f.commands().len() {
        at += if f.gate_up(at) { 3 } else { 1 };
    }
    drop_unused(plan)
}

/// Norms of the heads of queries and keys.
struct HeadNorms {
    /// what they are of
    of: [BufId; 2],
    weights: [BufId; 2],
    params: HeadNormsParams,
}

struct Fuser<'a> {
    plan: &'a mut Plan,
    max_binding_words: usize,
}

/// The parameters of a plain linear.
fn linear(c: &Command) -> Option<LinearParams> {
    match (c.op, c.args) {
        (Op::Matvec(_), Args::Linear(p)) => Some(p),
        _ => None,
    }
}

/// A piece in pieces of so many rows; `None` where it has none, or others.
fn by_rows(piece: &Piece, rows: usize) -> Option<Vec<Piece>> {
    let Part::Rows { t, packed, k, row0, rows: all } = piece.part else { return None };
    let part = |row0| Piece { part: Part::Rows { t, packed, k, row0, rows }, ..*piece };
    all.is_multiple_of(rows).then(|| (row0..row0 + all).step_by(rows).map(part).collect())
}

/// Whether two commands run for the same tokens of the same layer.
fn alike(a: &Command, b: &Command) -> bool {
    a.rows == b.rows && a.layer == b.layer
}

impl Fuser<'_> {
    fn commands(&self) -> &[Command] {
        &self.plan.recording.commands
    }

    fn replace(&mut self, run: Range<usize>, with: Vec<Command>) {
        self.plan.recording.commands.splice(run, with);
    }

    /// A scratch buffer of this name and length, made when there is none; `None` when it cannot be bound.
    fn scratch(&mut self, name: &str, words: usize) -> Option<BufId> {
        if words > self.max_binding_words {
            return None;
        }
        let buffers = &mut self.plan.buffers;
        let found = buffers.iter().position(|b| b.name == name && b.words == words && b.role == Role::Scratch);
        Some(found.unwrap_or_else(|| {
            buffers.push(BufDecl { name: name.to_string(), words, role: Role::Scratch });
            buffers.len() - 1
        }))
    }

    /// Whether one command alone binds a buffer.
    fn once(&self, id: BufId) -> bool {
        self.commands().iter().filter(|c| c.binds.contains(&id)).count() == 1
    }

    /// Whether what the commands `run` write to a buffer is read by nobody outside the run: followed around the end of
    /// the recording, since a scratch buffer lives from step to step.
    fn private(&self, id: BufId, run: &Range<usize>) -> bool {
        if self.plan.buffers[id].role != Role::Scratch || Some(id) == self.plan.logits {
            return false;
        }
        let all = self.commands();
        // for which steps the buffer has been written anew: heads of every token are every token
        let steps = |rows: Rows| match rows {
            Rows::Heads(_) => Rows::Tokens,
            Rows::OutputHeads(_) => Rows::Outputs,
            other => other,
        };
        let mut anew = Vec::new();
        for c in (run.end..all.len()).chain(0..run.start).map(|i| &all[i]) {
            if c.reads(id) && !anew.contains(&steps(c.rows)) {
                return false;
            }
            // a linear that starts at row 0 or attention over the first page begins a new life of the buffer; the other
            // parts and pages follow
            let begins = match c.args {
                Args::Linear(p) => p.y_offset == 0,
                Args::Attention(p) => p.page_first == 0,
                Args::CopyColumns(p) => p.y_offset == 0,
                Args::ExpertLinear(p) => p.y_offset == 0 && p.held == p.experts,
                _ => true,
            };
            if c.outputs().contains(&id) && begins {
                anew.push(steps(c.rows));
            }
            if anew.contains(&steps(all[run.start].rows)) {
                return true;
            }
        }
        true
    }

    /// The linears that end before command `end` and write `y` completely, part after part.
    fn linears_into(&self, y: BufId, end: usize) -> Option<Range<usize>> {
        let all = self.commands();
        let mut start = end;
        loop {
            start = start.checked_sub(1)?;
            let (c, last) = (&all[start], &all[end - 1]);
            let p = linear(c)?;
            let next = if start + 1 == end { p.y_stride } else { linear(&all[start + 1])?.y_offset };
            if c.outputs() != [y] || !alike(c, last) || p.residual != 0 || p.y_offset + p.rows != next {
                return None;
            }
            if p.y_offset == 0 {
                return Some(start..end);
            }
        }
    }

    /// The same linears with another place for their results.
    fn moved(&self, run: Range<usize>, y: BufId, stride: u32, offset: u32) -> impl Iterator<Item = Command> + '_ {
        self.commands()[run].iter().map(move |c| {
            let mut c = c.clone();
            if let Args::Linear(p) = &mut c.args {
                (p.y_stride, p.y_offset) = (stride, p.y_offset + offset);
            }
            *c.binds.last_mut().expect("a linear binds its result") = y;
            c
        })
    }

    /// The bias vectors added to q, k and v by the three commands before `end`, where they are used nowhere else.
    fn biases(&self, to: [(BufId, u32); 3], end: usize) -> Option<[BufId; 3]> {
        let run = &self.commands()[end.checked_sub(3)?..=end];
        let mut found = [0; 3];
        for ((c, (y, dim)), bias) in run.iter().zip(to).zip(&mut found) {
            let (Args::AddBias(p), &[b, out]) = (c.args, &c.binds[..]) else { return None };
            if out != y || p.dim != dim || !alike(c, &run[3]) || !self.once(b) {
                return None;
            }
            *bias = b;
        }
        Some(found)
    }

    /// The norms of each head of queries and keys by the two commands before the rotations at `end`, which give `q` and `k`:
    /// what they are of, and one operation for both with its weights, which are used nowhere else.
    fn head_norms(&self, [q, k]: [BufId; 2], (heads, kv_heads): (u32, u32), end: usize) -> Option<HeadNorms> {
        let [a, b, rope] = &self.commands()[end.checked_sub(2)?..=end] else { return None };
        let (Args::RmsNorm(p), Args::RmsNorm(pk)) = (a.args, b.args) else { return None };
        let (&[of_q, wq, to_q], &[of_k, wk, to_k]) = (&a.binds[..], &b.binds[..]) else { return None };
        let rows = (a.rows, b.rows) == (rope.rows.heads(heads as usize), rope.rows.heads(kv_heads as usize));
        let here = a.layer == rope.layer && b.layer == rope.layer;
        let fits = p == pk && (to_q, to_k) == (q, k) && of_q != of_k && wq != wk && self.once(wq) && self.once(wk);
        let params = HeadNormsParams { n_tokens: 0, heads, kv_heads, dim: p.dim, inv_n: p.inv_n, eps: p.eps };
        (rows && here && fits).then_some(HeadNorms { of: [of_q, of_k], weights: [wq, wk], params })
    }

    /// What stands between the rotations and the cache writes at command `at` where a side is c8: k and v to codes, q times
    /// the keys' scales. How many commands, and the scales and offsets of the sides that are c8; `None` where only a part of
    /// it is there.
    fn channels(
        &self,
        at: usize,
        [q, k, v]: [BufId; 3],
        (heads, kv_heads, head_dim): (u32, u32, u32),
    ) -> Option<(usize, Vec<BufId>)> {
        let all = &self.commands()[at..];
        let of = |i: usize, x: BufId| match (all.get(i)?.args, &all[i].binds[..]) {
            (Args::ChannelQuantize(p), &[scale, offset, to]) if to == x && p.dim == kv_heads * head_dim => {
                Some([scale, offset])
            }
            _ => None,
        };
        let of_keys = of(0, k);
        let of_values = of(usize::from(of_keys.is_some()), v);
        let mut n = of_keys.iter().chain(&of_values).count();
        if let Some([scale, offset]) = of_keys {
            let c = all.get(n)?;
            let shape = ChannelScaleParams { n_tokens: 0, heads, kv_heads, head_dim, less_offset: 0 };
            let queries = matches!(c.args, Args::ChannelScale(p) if p == shape);
            if !queries || c.binds != [scale, offset, q] {
                return None;
            }
            n += 1;
        }
        let same = all[..n].iter().all(|c| alike(c, &self.commands()[at - 1]));
        same.then(|| (n, of_keys.into_iter().chain(of_values).flatten().collect()))
    }

    /// linears to q, k, v, perhaps their biases or the norms of q's and k's heads; rope q, rope k; where a side is c8, their
    /// codes; cache writes of each page: at the first rope.
    fn rope_cache_write(&mut self, at: usize) -> bool {
        let all = self.commands();
        let [a, b, ..] = &all[at..] else { return false };
        let (Args::Rope(pq), Args::Rope(pk)) = (a.args, b.args) else { return false };
        let same = (pq.head_dim, pq.n_rot, pq.half_split) == (pk.head_dim, pk.n_rot, pk.half_split);
        // larger heads have no place in the shader's arrays
        let same = same && pq.head_dim <= 256;
        let (q, k) = (a.outputs()[0], b.outputs()[0]);
        if !same || a.binds[0] != b.binds[0] || q == k || !alike(a, b) || a.rows != Rows::Tokens {
            return false;
        }
        let writes = all[at + 2..].iter().position(|c| matches!(c.op, Op::CacheWriteK(_)));
        let Some((at_writes, of_v)) = writes.and_then(|i| Some((at + 2 + i, *all.get(at + 3 + i)?.binds.first()?)))
        else {
            return false;
        };
        let Some((n_channels, channels)) = self.channels(at + 2, [q, k, of_v], (pq.heads, pk.heads, pq.head_dim))
        else {
            return false;
        };
        if at_writes != at + 2 + n_channels {
            return false;
        }
        // pages: a write of keys, then one of values
        let mut pages = Vec::new();
        let mut v = None;
        for pair in all[at_writes..].chunks_exact(2) {
            let (Op::CacheWriteK(kt), Op::CacheWriteV(vt)) = (pair[0].op, pair[1].op) else { break };
            let (Args::CacheWrite(p), Args::CacheWrite(other)) = (pair[0].args, pair[1].args) else { break };
            let from = *v.get_or_insert(pair[1].binds[0]);
            let &[of_k, beside, places, keys] = &pair[0].binds[..] else { break };
            let &[of_v, again, values] = &pair[1].binds[..] else { break };
            let same = p == other && (of_k, beside, of_v, again) == (k, from, from, places);
            if !same || !pair.iter().all(|c| alike(a, c)) {
                break;
            }
            pages.push((kt, vt, p, places, keys, values));
        }
        let (Some(v), Some(first)) = (v, pages.first()) else { return false };
        // every position must lie in one page beside the ring, or a query would not be rotated
        let mut plain = pages.iter().filter(|p| p.2.ring == 0);
        let whole = plain.try_fold(0, |end, p| (p.2.page_first == end).then(|| end + p.2.page_len)).filter(|&n| n > 0);
        let (width, kv_width) = (pq.heads * pq.head_dim, pk.heads * pk.head_dim);
        if whole.is_none() || first.2.kv_heads != pk.heads || first.2.head_dim != pk.head_dim {
            return false;
        }
        // a ring beside codes is nothing a model asks for
        let coded = [pages.iter().all(|p| p.0 == CacheType::C8), pages.iter().all(|p| p.1 == CacheType::C8)];
        let coded = 2 * coded.into_iter().filter(|all| *all).count();
        if !channels.is_empty() && (coded != channels.len() || pages.iter().any(|p| p.2.ring == 1)) {
            return false;
        }
        let biases = self.biases([(q, width), (k, kv_width), (v, kv_width)], at);
        let norms = self.head_norms([q, k], (pq.heads, pk.heads), at).filter(|n| n.params.dim == pq.head_dim);
        let linears_end = at - if biases.is_some() { 3 } else { 2 * usize::from(norms.is_some()) };
        // what linears write, of which q and k may be norms
        let [of_q, of_k] = norms.as_ref().map_or([q, k], |n| n.of);
        let Some(vs) = self.linears_into(v, linears_end) else { return false };
        let Some(ks) = self.linears_into(of_k, vs.start) else { return false };
        let Some(qs) = self.linears_into(of_q, ks.start) else { return false };
        let run = qs.start..at_writes + 2 * pages.len();
        let widths = [(&qs, width), (&ks, kv_width), (&vs, kv_width)];
        let fits = widths.iter().all(|(r, w)| linear(&all[r.start]).is_some_and(|p| p.y_stride == *w));
        let raw = [of_q, of_k].into_iter().filter(|id| ![q, k].contains(id));
        if !fits || !alike(&all[qs.start], a) || ![k, v].into_iter().chain(raw).all(|id| self.private(id, &run)) {
            return false;
        }
        let (table, template, stride) = (a.binds[0], a.clone(), width + 2 * kv_width);
        let Some(qkv) = self.scratch("qkv", self.plan.max_tokens * stride as usize) else { return false };
        // the first vector becomes all of them, whose beginning it still is for whoever else reads it
        let joined = if channels.is_empty() { None } else { self.stacked(&channels) };
        if joined.is_none() && !channels.is_empty() {
            return false;
        }
        let mut list: Vec<Command> = self.moved(qs, qkv, stride, 0).collect();
        list.extend(self.moved(ks, qkv, stride, width));
        list.extend(self.moved(vs, qkv, stride, width + kv_width));
        if let Some(biases) = biases {
            let Some(bias) = self.stacked(&biases) else { return false };
            list.push(Command {
                op: Op::AddBias,
                args: Args::AddBias(AddBiasParams { n_tokens: 0, dim: stride }),
                binds: vec![bias, qkv],
                label: "qkv_bias".into(),
                ..template.clone()
            });
        }
        if let Some(norms) = norms {
            let Some(weights) = self.stacked(&norms.weights) else { return false };
            list.push(Command {
                op: Op::HeadNorms,
                args: Args::HeadNorms(norms.params),
                binds: vec![weights, qkv],
                label: "qk_norms".into(),
                ..template.clone()
            });
        }
        list.extend(pages.into_iter().map(|(kt, vt, p, places, keys, values)| Command {
            op: if joined.is_some() { Op::RopeChannelCacheWrite(kt, vt) } else { Op::RopeCacheWrite(kt, vt) },
            args: Args::RopeCacheWrite(RopeCacheWriteParams {
                n_tokens: 0,
                heads: pq.heads,
                kv_heads: pk.heads,
                head_dim: pq.head_dim,
                n_rot: pq.n_rot,
                half_split: pq.half_split,
                page_first: p.page_first,
                page_len: p.page_len,
                ring: p.ring,
                table: p.table,
            }),
            binds: [table].into_iter().chain(joined).chain([qkv, places, q, keys, values]).collect(),
            label: "rope_cache".into(),
            ..template.clone()
        }));
        self.replace(run, list);
        true
    }

    /// linears to gate and up, swiglu, act_quantize: at the swiglu.
    fn swiglu_quantize(&mut self, at: usize) -> bool {
        let all = self.commands();
        let [s, quant, ..] = &all[at..] else { return false };
        let (Args::Swiglu(p), Args::ActQuantize(aq)) = (s.args, quant.args) else { return false };
        let (&[gate, up, mid], &[from, act]) = (&s.binds[..], &quant.binds[..]) else { return false };
        if mid != from || gate == up || aq.k != p.dim || !alike(s, quant) {
            return false;
        }
        let Some(ups) = self.linears_into(up, at) else { return false };
        let Some(gates) = self.linears_into(gate, ups.start) else { return false };
        let run = gates.start..at + 2;
        let fits = [&gates, &ups].iter().all(|r| linear(&all[r.start]).is_some_and(|l| l.y_stride == p.dim));
        if !fits || !alike(&all[gates.start], s) || ![gate, up, mid].iter().all(|&id| self.private(id, &run)) {
            return false;
        }
        let template = s.clone();
        let Some(both) = self.scratch("gate_up", self.plan.max_tokens * 2 * p.dim as usize) else { return false };
        let mut list: Vec<Command> = self.moved(gates, both, 2 * p.dim, 0).collect();
        list.extend(self.moved(ups, both, 2 * p.dim, p.dim));
        list.push(Command {
            op: Op::SwigluQuantize,
            args: Args::SwigluQuantize(SwigluQuantizeParams { n_tokens: 0, dim: p.dim, digits: aq.digits }),
            binds: vec![both, act],
            ..template
        });
        self.replace(run, list);
        true
    }

    /// linears of experts to gate and up, swiglu, act_quantize: at the swiglu.
    fn experts_swiglu_quantize(&mut self, at: usize) -> bool {
        let Some([a, b, s, quant]) = at.checked_sub(2).and_then(|first| self.commands().get(first..at + 2)) else {
            return false;
        };
        let (Op::ExpertMatvec(ta), Op::ExpertMatvec(tb)) = (a.op, b.op) else { return false };
        let (Args::ExpertLinear(pa), Args::ExpertLinear(pb)) = (a.args, b.args) else { return false };
        let (Args::Swiglu(p), Args::ActQuantize(aq)) = (s.args, quant.args) else { return false };
        let (&[wa, xa, ids, order, gate], &[wb, xb, ids_b, order_b, up]) = (&a.binds[..], &b.binds[..]) else {
            return false;
        };
        let (&[of_gate, of_up, mid], &[from, act]) = (&s.binds[..], &quant.binds[..]) else { return false };
        let same = (ta, pa, xa, ids, order) == (tb, pb, xb, ids_b, order_b) && gate != up && wa != wb;
        let linked = (gate, up, mid) == (of_gate, of_up, from) && aq.k == p.dim;
        // all experts in one buffer, whose rows fill their blocks
        let whole = (pa.expert0, pa.held, pa.y_offset) == (0, pa.experts, 0)
            && (pa.rows, pa.y_stride) == (p.dim, p.dim)
            && pa.rows.is_multiple_of(ROW_BLOCK as u32);
        let run = at - 2..at + 2;
        let safe =
            [b, s, quant].iter().all(|c| alike(a, c)) && [gate, up, mid].iter().all(|&id| self.private(id, &run));
        if !same || !linked || !whole || !safe {
            return false;
        }
        let (mut linear, mut swiglu) = (a.clone(), s.clone());
        let pairs = self.plan.buffers[gate].words / p.dim as usize;
        let Some(both) = self.scratch("expert_gate_up", pairs * 2 * p.dim as usize) else { return false };
        if self.interleaved([wa, wb], pa.rows as usize).is_none() {
            return false;
        }
        linear.label = format!("{}+{}", linear.label, self.commands()[at - 1].label);
        linear.args = Args::ExpertLinear(ExpertLinearParams { rows: 2 * pa.rows, y_stride: 2 * pa.rows, ..pa });
        linear.binds = vec![wa, xa, ids, order, both];
        swiglu.op = Op::SwigluQuantize;
        swiglu.args = Args::SwigluQuantize(SwigluQuantizeParams { n_tokens: 0, dim: p.dim, digits: aq.digits });
        swiglu.binds = vec![both, act];
        self.replace(run, vec![linear, swiglu]);
        true
    }

    /// rms_norm, act_quantize.
    fn norm_quantize(&mut self, at: usize) -> bool {
        let [n, quant, ..] = &self.commands()[at..] else { return false };
        let (Args::RmsNorm(p), Args::ActQuantize(aq)) = (n.args, quant.args) else { return false };
        let (&[x, w, y], &[from, act]) = (&n.binds[..], &quant.binds[..]) else { return false };
        if y != from || aq.k != p.dim || !alike(n, quant) || !self.private(y, &(at..at + 2)) {
            return false;
        }
        let args = NormQuantizeParams { n_tokens: 0, dim: p.dim, inv_n: p.inv_n, eps: p.eps, digits: aq.digits };
        let c = Command { op: Op::NormQuantize, args: Args::NormQuantize(args), binds: vec![x, w, act], ..n.clone() };
        self.replace(at..at + 2, vec![c]);
        true
    }

    /// attention over each page, act_quantize: at the first page. A row is finished, and quantised, by the page that holds
    /// its position.
    fn attention_quantize(&mut self, at: usize) -> bool {
        let all = self.commands();
        let same = |c: &&Command| {
            matches!(c.op, Op::Attention(..)) && alike(c, &all[at]) && c.binds.last() == all[at].binds.last()
        };
        let n = all[at..].iter().take_while(same).count();
        let (true, Some(quant)) = (n > 0, all.get(at + n)) else { return false };
        let (Args::ActQuantize(aq), &[from, act]) = (quant.args, &quant.binds[..]) else { return false };
        let run = at..at + n + 1;
        if all[at].binds.last() != Some(&from) || !alike(&all[at], quant) || !self.private(from, &run) {
            return false;
        }
        let mut end = 0;
        let mut list = Vec::new();
        for c in &all[at..at + n] {
            let (Op::Attention(kt, vt), Args::Attention(p)) = (c.op, c.args) else { return false };
            let Some(args) = AttentionQuantizeParams::new(&p, aq.digits) else { return false };
            if p.page_first != end || p.heads * p.head_dim != aq.k {
                return false;
            }
            end += p.page_len;
            let mut c = Command { op: Op::AttentionQuantize(kt, vt), args: Args::AttentionQuantize(args), ..c.clone() };
            *c.binds.last_mut().expect("attention binds its result") = act;
            list.push(c);
        }
        self.replace(run, list);
        true
    }

    /// linears to y, add of y to x: at the add.
    fn residual(&mut self, at: usize) -> bool {
        let c = &self.commands()[at];
        let (Args::Add(p), &[y, x]) = (c.args, &c.binds[..]) else { return false };
        let Some(run) = self.linears_into(y, at) else { return false };
        let all = self.commands();
        let reads_x = all[run.clone()].iter().any(|l| l.inputs().contains(&x));
        let fits = linear(&all[run.start]).is_some_and(|l| l.y_stride == p.dim);
        if reads_x || !fits || !alike(&all[run.start], c) || !self.private(y, &(run.start..at + 1)) {
            return false;
        }
        let mut list: Vec<Command> = self.moved(run.clone(), x, p.dim, 0).collect();
        for l in &mut list {
            if let Args::Linear(p) = &mut l.args {
                p.residual = 1;
            }
        }
        self.replace(run.start..at + 1, list);
        true
    }

    /// The sum of what experts give, add of it to x: at the add.
    fn combine_residual(&mut self, at: usize) -> bool {
        let Some([sum, add]) = at.checked_sub(1).and_then(|first| self.commands().get(first..=at)) else {
            return false;
        };
        let (Args::ExpertCombine(p), Args::Add(ap)) = (sum.args, add.args) else { return false };
        let (&[given, weights, y], &[from, x]) = (&sum.binds[..], &add.binds[..]) else { return false };
        let fits = y == from && p.dim == ap.dim && p.residual == 0 && ![given, weights, y].contains(&x);
        if !fits || !alike(sum, add) || !self.private(y, &(at - 1..at + 1)) {
            return false;
        }
        let args = Args::ExpertCombine(ExpertCombineParams { residual: 1, ..p });
        let c = Command { args, binds: vec![given, weights, x], ..sum.clone() };
        self.replace(at - 1..at + 1, vec![c]);
        true
    }

    /// Two linears over the same activations whose rows of y adjoin.
    fn stack(&mut self, at: usize) -> bool {
        let [a, b, ..] = &self.commands()[at..] else { return false };
        let (Some(pa), Some(pb)) = (linear(a), linear(b)) else { return false };
        let (Op::Matvec(ta), Op::Matvec(tb)) = (a.op, b.op) else { return false };
        let (&[wa, xa, ya], &[wb, xb, yb]) = (&a.binds[..], &b.binds[..]) else { return false };
        let adjoin = LinearParams { rows: pb.rows, y_offset: pa.y_offset + pa.rows, ..pa } == pb;
        let pair = matvec_pair::stem(ta, tb).is_some();
        if (xa, ya) != (xb, yb) || !adjoin || !pa.rows.is_multiple_of(32) || !(ta == tb || pair) || !alike(a, b) {
            return false;
        }
        // same elements, same walk: two parts of one matrix would only be put together again when they fit one binding
        let words = self.plan.buffers[wa].words + self.plan.buffers[wb].words;
        if wa == wb || words > self.max_binding_words || !self.once(wa) || !self.once(wb) {
            return false;
        }
        let mut c = a.clone();
        c.label = format!("{}+{}", a.label, b.label);
        if ta == tb {
            c.args = Args::Linear(LinearParams { rows: pa.rows + pb.rows, ..pa });
        } else {
            c.op = Op::MatvecPair(ta, tb);
            c.args = Args::LinearPair(LinearPairParams {
                n_tokens: 0,
                k: pa.k,
                rows: pa.rows + pb.rows,
                digits: pa.digits,
                y_stride: pa.y_stride,
                y_offset: pa.y_offset,
                residual: pa.residual,
                border: pa.rows,
            });
        }
        if self.stacked(&[wa, wb]).is_none() {
            return false;
        }
        self.replace(at..at + 2, vec![c]);
        true
    }

    /// One weight buffer for several, in the place of the first, so that a file is still read from front to back.
    fn stacked(&mut self, ids: &[BufId]) -> Option<BufId> {
        let all = &self.plan.buffers;
        let words = ids.iter().map(|&id| all[id].words).sum();
        let pieces = ids.iter().map(|&id| all[id].role.pieces()).collect::<Vec<_>>();
        if words > self.max_binding_words || pieces.iter().any(|p| p.is_empty()) {
            return None;
        }
        let pieces = pieces.concat();
        let name = ids.iter().map(|&id| all[id].name.as_str()).collect::<Vec<_>>().join(" + ");
        self.plan.buffers[ids[0]] = BufDecl { name, words, role: Role::Weight(pieces) };
        Some(ids[0])
    }

    /// One weight buffer for two of as many experts each, in the place of the first: of each expert the rows of the first, then
    /// those of the second. Each expert has `rows` rows in either.
    fn interleaved(&mut self, ids: [BufId; 2], rows: usize) -> Option<BufId> {
        let all = &self.plan.buffers;
        let words: usize = ids.iter().map(|&id| all[id].words).sum();
        if words > self.max_binding_words || !ids.into_iter().all(|id| self.once(id)) {
            return None;
        }
        let [first, second] = ids.map(|id| all[id].role.pieces().iter().map(|piece| by_rows(piece, rows)).collect());
        let (first, second): (Option<Vec<_>>, Option<Vec<_>>) = (first, second);
        let (first, second) = (first?.concat(), second?.concat());
        if first.is_empty() || first.len() != second.len() {
            return None;
        }
        let pieces = first.into_iter().zip(second).flat_map(|(a, b)| [a, b]).collect();
        let name = format!("{} + {}", all[ids[0]].name, all[ids[1]].name);
        self.plan.buffers[ids[0]] = BufDecl { name, words, role: Role::Weight(pieces) };
        Some(ids[0])
    }

    /// A stacked gate and up linear, swiglu_quantize: at the linear. The two stay for many tokens.
    fn gate_up(&mut self, at: usize) -> bool {
        let [l, s, ..] = &self.commands()[at..] else { return false };
        let (Some(p), Args::SwigluQuantize(sq), Op::Matvec(t)) = (linear(l), s.args, l.op) else { return false };
        let (&[w, x, y], &[from, act]) = (&l.binds[..], &s.binds[..]) else { return false };
        let whole = p.rows == 2 * sq.dim && p.y_stride == p.rows && p.residual == 0;
        let known = !t.is_float() && sq.dim.is_multiple_of(32) && p.digits == sq.digits;
        if y != from || !whole || !known || !alike(l, s) || l.rows != Rows::Tokens || !self.private(y, &(at..at + 2)) {
            return false;
        }
        let few = Command {
            op: Op::GateUp(t),
            args: Args::GateUp(GateUpParams { n_tokens: 0, k: p.k, dim: sq.dim, digits: p.digits }),
            binds: vec![w, x, act],
            rows: Rows::TokensUpTo(FEW_TOKENS),
            ..l.clone()
        };
        let many = |c: &Command| Command { rows: Rows::TokensAbove(FEW_TOKENS), ..c.clone() };
        let list = vec![few, many(l), many(s)];
        self.replace(at..at + 2, list);
        true
    }
}

/// Renumbers the buffers without those that no command binds.
fn drop_unused(plan: &mut Plan) -> Vec<Option<BufId>> {
    let mut used: Vec<bool> = plan.buffers.iter().map(|b| b.role == Role::Input).collect();
    plan.logits.into_iter().for_each(|id| used[id] = true);
    plan.placing.into_iter().for_each(|p| used[p.buffer] = true);
    plan.recording.commands.iter().flat_map(|c| &c.binds).for_each(|&id| used[id] = true);
    let mut n = 0..;
    let map: Vec<Option<BufId>> = used.iter().map(|u| u.then(|| n.next().expect("endless"))).collect();
    let mut keep = used.iter();
    plan.buffers.retain(|_| *keep.next().expect("one for each"));
    let new = |id: BufId| map[id].expect("it is used");
    plan.logits = plan.logits.map(new);
    plan.selected = plan.selected.map(new);
    plan.strands = plan.strands.map(new);
    plan.placing = plan.placing.map(|p| Placing { buffer: new(p.buffer), outputs: p.outputs.map(new), ..p });
    plan.recording.commands.iter_mut().flat_map(|c| &mut c.binds).for_each(|id| *id = new(*id));
    map
}
