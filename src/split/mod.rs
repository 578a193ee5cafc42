//! Several devices as one: each has layers of its own, and the hidden state goes from one to the next as words.
//!
//! [`Split`] is a [`Device`] that is given the plan of a whole model. It runs the commands of that plan and no other, each
//! on the device that its layer was dealt to, or its layer's experts, so the words of every buffer are those that one device
//! would write.

mod cut;
mod deal;
mod error;

pub use cut::{Cut, Handed, Layers, Part, Turn};
pub use deal::{Loads, well_formed};
pub use error::SplitError;

use crate::blocks::wide::{Packing, Wide};
use crate::record::{Best, BufId, Device, DeviceInfo, Plan, Scattered, Stats, Step, WeightSource};
use crate::stop::Stop;
use anyhow::Context;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use std::ops::Range;

/// Tokens of a piece, at least, where devices work side by side.
const PIECE: usize = 64;

/// Pieces a step is cut into, at most, for each device: how long the others wait for the first and the last of them.
const PIECES: usize = 4;

/// One of the devices.
pub struct Member {
    /// the device
    pub device: Box<dyn Device>,
    /// bytes that it may take of main memory; `None`: its memory is its own, and nobody knows how much it has
    pub memory: Option<u64>,
}

/// Devices that run a model together.
pub struct Split {
    members: Vec<Member>,
    counts: Option<Vec<usize>>,
    /// how many layers' experts the last member has, where it has experts and no layers
    experts: Option<usize>,
    parts: Vec<Running>,
    turns: Vec<Handing>,
    /// by buffer of the whole plan, the parts that have all its words as they were written last, one bit each
    having: Vec<u64>,
    rows: Vec<f32>,
    /// what a step taken by turns has selected, until it is collected
    selected: Option<Vec<u32>>,
    /// steps taken by turns since it was asked
    steps: u64,
}

/// A part of the plan that a member has loaded, and what it is given in a step.
struct Running {
    part: Part,
    step: Step,
    /// by buffer of its own plan, that of the whole plan
    whole: Vec<BufId>,
}

/// A turn, and by what is handed over before it the words.
struct Handing {
    turn: Turn,
    words: Vec<Vec<u32>>,
}

impl Handing {
    /// Its commands in its part's own plan.
    fn own(&self) -> Range<usize> {
        self.turn.first..self.turn.first + self.turn.commands.len()
    }
}

/// What is wanted of the last device.
enum Give<'a> {
    Rows(&'a mut Vec<f32>),
    Selection,
}

impl Split {
    /// Over these devices in order; `counts`: layers of each, or by memory.
    ///
    /// Errors: not a count for each device, a count of 0.
    pub fn new(members: Vec<Member>, counts: Option<Vec<usize>>) -> Result<Split, SplitError> {
        if let Some(counts) = &counts {
            well_formed(counts, members.len())?;
        }
        let (parts, turns, having, rows) = Default::default();
        Ok(Split { members, counts, experts: None, parts, turns, having, rows, selected: None, steps: 0 })
    }

    /// The same, with the experts of the first `layers` that have some on another device, whose memory holds them: they are
    /// most of such a model, and a token needs few of them.
    pub fn with_experts(mut self, member: Member, layers: usize) -> Split {
        self.members.push(member);
        self.experts = Some(layers);
        self
    }

    /// What each device has of the loaded plan, in order; nothing before one is loaded. A device without layers and experts,
    /// as of a model that has no experts, has no part.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().map(|r| &r.part)
    }

    /// Who runs what of the loaded plan, in its order.
    pub fn turns(&self) -> impl Iterator<Item = &Turn> {
        self.turns.iter().map(|h| &h.turn)
    }

    fn deal(&self, plan: &Plan) -> Result<Cut, SplitError> {
        if self.members.len() > u64::BITS as usize {
            return Err(SplitError::Plan(format!("{} devices are more than {}", self.members.len(), u64::BITS)));
        }
        let layers = Layers::of(plan)?;
        let apart = self.experts.map_or_else(Vec::new, |n| layers.experts(plan, n));
        let layered = &self.members[..self.members.len() - usize::from(self.experts.is_some())];
        let counts = match &self.counts {
            Some(counts) => deal::asked(counts, layered.len(), layers.count())?,
            None => {
                let memory: Vec<Option<u64>> = layered.iter().map(|m| m.memory).collect();
                deal::by_memory(&layers.loads(plan, &apart), &memory)?
            }
        };
        let cut = layers.cut(plan, &counts, &apart)?;
        self.check_memory(&cut.parts)?;
        Ok(cut)
    }

    /// Before anything is allocated.
    fn check_memory(&self, parts: &[Part]) -> Result<(), SplitError> {
        let (mut bytes, mut free, mut told) = (0, 0, Vec::new());
        for (m, part) in self.members.iter().zip(parts) {
            if let Some(memory) = m.memory {
                bytes += part.plan.buffers.iter().map(|b| b.words as u64 * 4).sum::<u64>();
                free += memory;
                told.push((part.layers.clone(), m.device.info().name));
            }
        }
        if bytes > free { Err(SplitError::Memory { bytes, parts: told, free }) } else { Ok(()) }
    }

    async fn load_parts(&mut self, plan: Plan, weights: &mut dyn WeightSource) -> anyhow::Result<()> {
        self.parts.clear();
        self.turns.clear();
        let cut = self.deal(&plan)?;
        let layered = self.members.len() - usize::from(self.experts.is_some());
        if self.experts.is_some() && cut.parts.len() == layered {
            log::warn!("the model has no experts: {} does nothing", self.members[layered].device.info().name);
        }
        for (i, part) in cut.parts.into_iter().enumerate() {
            let device = &mut self.members[i].device;
            device.load(part.plan.clone(), &mut *weights).await?;
            let what = if i < layered { "" } else { "experts of " };
            let (first, last) = (part.layers.start, part.layers.end - 1);
            log::info!("{what}layers {first} to {last} on {}", device.info().name);
            let whole = (0..part.own.len()).filter(|&id| part.own[id].is_some()).collect();
            self.parts.push(Running { part, step: Step::default(), whole });
        }
        let handing = |turn: Turn| Handing { words: vec![Vec::new(); turn.handed.len()], turn };
        self.turns = cut.turns.into_iter().map(handing).collect();
        // nothing is in any of them
        self.having = vec![u64::MAX; plan.buffers.len()];
        Ok(())
    }

    /// Whether some part has more turns than one: the others wait then.
    fn takes_turns(&self) -> bool {
        self.turns.len() > self.parts.len()
    }

    /// The tokens of a piece of a step. Those of one sequence in order may be cut anywhere.
    fn piece(&self, step: &Step) -> usize {
        let overlap = self.members.len() > 1 && self.members.iter().any(|m| m.device.overlaps());
        let even = step.inputs.iter().all(|(_, words)| words.len().is_multiple_of(step.n_tokens.max(1)));
        // a recurrent layer's words are of the whole step
        let recurrent = self.parts().any(|p| p.plan.strands.is_some());
        if !overlap || step.scattered.is_some() || recurrent || !even || self.takes_turns() {
            return step.n_tokens.max(1);
        }
        let piece = step.n_tokens.div_ceil(PIECES * self.members.len()).next_multiple_of(PIECE);
        // a selection is of the last piece's rows
        let last = step.n_tokens.saturating_sub(1) / piece * piece;
        if step.select > 0 && step.out_first < last { step.n_tokens } else { piece }
    }

    /// Runs a step piece by piece. In each round every device has a piece of its own, the one after that of the device that
    /// comes after it; those that return before they are done begin first.
    async fn pass(&mut self, step: &Step, mut give: Give<'_>) -> anyhow::Result<()> {
        anyhow::ensure!(!self.parts.is_empty(), "no plan is loaded");
        if self.takes_turns() {
            return self.take_turns(step, give).await;
        }
        let (n, parts) = (self.piece(step), self.parts.len());
        let pieces = step.n_tokens.div_ceil(n).max(1);
        if let Give::Rows(rows) = &mut give {
            rows.clear();
        }
        for round in 0..pieces + parts - 1 {
            let at = |p: usize| round.checked_sub(p).filter(|piece| *piece < pieces);
            for first in [true, false] {
                for p in (0..parts).rev() {
                    let Some(piece) = at(p) else { continue };
                    let tokens = piece * n..(piece * n + n).min(step.n_tokens);
                    let last = p + 1 == parts;
                    // what the step gives is there when it returns, and nothing is under way any more
                    let waits = last && (piece + 1 == pieces || piece_outputs(step, &tokens).1 > 0);
                    if (self.members[p].device.overlaps() && !waits) != first {
                        continue;
                    }
                    self.parts[p].prepare(step, tokens, last);
                    for i in 0..self.turns[p].turn.handed.len() {
                        self.hand_over(p, i).await?;
                    }
                    self.run_part(p, waits, &mut give, pieces > 1).await?;
                    self.written(p, self.turns[p].own());
                }
            }
            for p in 0..parts - 1 {
                if at(p).is_none() {
                    continue;
                }
                let mut from = Vec::new();
                for (i, handed) in self.turns[p + 1].turn.handed.iter().enumerate() {
                    // who is at another piece has written it since
                    let mut before = (0..=p).rev();
                    let found = before.find_map(|q| Some((q, self.parts[q].part.own[handed.buffer]?)));
                    let (q, own) = found.context("what a part goes on from has been written before it")?;
                    from.push((i, q, own));
                }
                self.take(p + 1, &from).await?;
            }
        }
        Ok(())
    }

    /// Runs what was prepared on one device; where it is waited for, what it gives is added to what there is.
    async fn run_part(&mut self, p: usize, waits: bool, give: &mut Give<'_>, cut: bool) -> anyhow::Result<()> {
        let (device, step) = (&mut self.members[p].device, &self.parts[p].step);
        match give {
            _ if !waits => device.start(step).await,
            Give::Selection => device.submit(step).await,
            Give::Rows(rows) if cut => {
                device.run_into(step, &mut self.rows).await?;
                rows.extend_from_slice(&self.rows);
                Ok(())
            }
            Give::Rows(rows) => device.run_into(step, rows).await,
        }
    }

    /// Runs a step turn by turn, all of its tokens at once.
    async fn take_turns(&mut self, step: &Step, mut give: Give<'_>) -> anyhow::Result<()> {
        self.begin_parts(step).await?;
        self.steps += 1;
        for t in 0..self.turns.len() {
            let p = self.turns[t].turn.part;
            let mut from = Vec::new();
            for (i, handed) in self.turns[t].turn.handed.iter().enumerate() {
                if !self.has(p, handed.buffer) {
                    let (q, own) = self.holder(handed.buffer)?;
                    from.push((i, q, own));
                }
            }
            self.take(t, &from).await?;
            for (i, ..) in from {
                self.hand_over(t, i).await?;
            }
            let range = self.turns[t].own();
            self.members[p].device.run_range(range.clone()).await?;
            self.written(p, range);
        }
        let last = self.last();
        let (plan, device) = (&self.parts[last].part.plan, &mut self.members[last].device);
        match &mut give {
            Give::Rows(rows) => {
                rows.clear();
                if let (Some(logits), true) = (plan.logits, step.n_out > 0) {
                    let words = device.read_part(logits, 0..step.n_out * plan.width).await?;
                    rows.extend(words.into_iter().map(f32::from_bits));
                }
            }
            Give::Selection => {
                let selected = plan.selected.context("the plan does not select")?;
                self.selected = Some(device.read_part(selected, 0..step.select * Best::WORDS).await?);
            }
        }
        Ok(())
    }

    /// The part whose commands are the last.
    fn last(&self) -> usize {
        self.turns.last().map_or(0, |h| h.turn.part)
    }

    /// Whether a part has all words of a buffer as they were written last.
    fn has(&self, p: usize, buffer: BufId) -> bool {
        self.having[buffer] & (1 << p) != 0
    }

    /// Notes what commands of a part's own plan have written in the step that was prepared for it: nobody else has that.
    fn written(&mut self, p: usize, own: Range<usize>) {
        let Running { part, step, whole } = &self.parts[p];
        let active = part.plan.recording.commands[own].iter().filter(|c| c.args_for(step).is_some());
        for &output in active.flat_map(|c| c.outputs()) {
            self.having[whole[output]] = 1 << p;
        }
    }

    /// Reads back what a turn goes on from, of the tokens that there are: of each its place among what is handed over, the part
    /// that has it, and its buffer there.
    async fn take(&mut self, t: usize, from: &[(usize, usize, BufId)]) -> anyhow::Result<()> {
        for of_one in from.chunk_by(|a, b| a.1 == b.1) {
            let q = of_one[0].1;
            let words = |&(i, _, own): &(usize, usize, BufId)| match self.turns[t].turn.handed[i].row {
                Some(row) => (own, 0..row * self.parts[q].step.n_tokens),
                None => (own, 0..self.parts[q].part.plan.buffers[own].words),
            };
            let parts: Vec<_> = of_one.iter().map(words).collect();
            let found = self.members[q].device.read_parts(&parts).await?;
            for (&(i, ..), words) in of_one.iter().zip(found) {
                self.turns[t].words[i] = words;
            }
        }
        Ok(())
    }

    /// Writes what was read back for a turn.
    async fn hand_over(&mut self, t: usize, i: usize) -> anyhow::Result<()> {
        let Handing { turn, words } = &self.turns[t];
        let own = self.parts[turn.part].part.own[turn.handed[i].buffer].context("a part has what it goes on from")?;
        self.members[turn.part].device.write_part(own, 0, &words[i]).await
    }

    async fn begin_parts(&mut self, step: &Step) -> anyhow::Result<()> {
        let last = self.last();
        for (p, running) in self.parts.iter_mut().enumerate() {
            running.prepare(step, 0..step.n_tokens, p == last);
            self.members[p].device.begin(&running.step).await?;
        }
        Ok(())
    }

    /// Runs a command where it belongs, which is first given what others have written of all that it binds, to the last word:
    /// whoever runs commands one by one compares also those that no command of the step has written.
    async fn run_command(&mut self, command: usize) -> anyhow::Result<()> {
        let turn = self.turns().find(|t| t.commands.contains(&command)).context("no such command")?;
        let (p, own) = (turn.part, turn.first + command - turn.commands.start);
        for i in 0..self.parts[p].part.plan.recording.commands[own].binds.len() {
            let mine = self.parts[p].part.plan.recording.commands[own].binds[i];
            let id = self.parts[p].whole[mine];
            if !self.has(p, id) {
                let (q, theirs) = self.holder(id)?;
                let words = self.members[q].device.read(theirs).await?;
                self.members[p].device.write(mine, &words).await?;
                self.having[id] |= 1 << p;
            }
        }
        self.members[p].device.run_one(own).await?;
        self.written(p, own..own + 1);
        Ok(())
    }

    /// A part that has all words of a buffer, and what it calls it.
    fn holder(&self, buffer: BufId) -> anyhow::Result<(usize, BufId)> {
        let mut having = (0..self.parts.len()).rev().filter(|&p| self.has(p, buffer));
        let found = having.find_map(|p| Some((p, self.parts[p].part.own[buffer]?)));
        found.with_context(|| format!("buffer {buffer} is on no device"))
    }

    async fn write_all(&mut self, buffer: BufId, first: usize, words: &[u32]) -> anyhow::Result<()> {
        let (p, own) = self.holder(buffer)?;
        if words.len() == self.parts[p].part.plan.buffers[own].words {
            self.having[buffer] = u64::MAX;
        }
        for (m, running) in self.members.iter_mut().zip(&self.parts) {
            if let Some(own) = running.part.own[buffer] {
                m.device.write_part(own, first, words).await?;
            }
        }
        Ok(())
    }
}

/// Of the rows that a step asks for, those of a piece: the first, counted from the piece's first token, and how many.
fn piece_outputs(step: &Step, tokens: &Range<usize>) -> (usize, usize) {
    let first = step.out_first.max(tokens.start);
    let end = (step.out_first + step.n_out).min(tokens.end);
    (first.saturating_sub(tokens.start), end.saturating_sub(first))
}

impl Running {
    /// Makes the part's own step of a piece of the whole one. Vectors are kept, so that a token takes no memory for them.
    fn prepare(&mut self, step: &Step, tokens: Range<usize>, last: bool) {
        let own = &mut self.step;
        let whole = tokens.len() == step.n_tokens;
        (own.n_tokens, own.pos, own.follow) = (tokens.len(), step.pos + tokens.start, None);
        (own.out_first, own.n_out) = if last { piece_outputs(step, &tokens) } else { (0, 0) };
        own.select = if own.n_out > 0 { step.select } else { 0 };
        copy_places(&mut own.scattered, step.scattered.as_ref());
        let mut n = 0;
        for (id, words) in &step.inputs {
            let Some(id) = self.part.own[*id] else { continue };
            let row = words.len() / step.n_tokens.max(1);
            let words = if whole { &words[..] } else { &words[tokens.start * row..tokens.end * row] };
            if own.inputs.len() == n {
                own.inputs.push((id, Vec::new()));
            }
            let to = &mut own.inputs[n];
            to.0 = id;
            to.1.clear();
            to.1.extend_from_slice(words);
            n += 1;
        }
        own.inputs.truncate(n);
    }
}

fn copy_places(to: &mut Option<Scattered>, from: Option<&Scattered>) {
    match (to, from) {
        (Some(to), Some(from)) => {
            to.words.clone_from(&from.words);
            (to.end, to.touches, to.strands) = (from.end, from.touches, from.strands);
        }
        (to, from) => *to = from.cloned(),
    }
}

impl Device for Split {
    fn info(&self) -> DeviceInfo {
        let all = || self.members.iter().map(|m| m.device.info());
        let mut names: Vec<String> = all().map(|i| i.name).collect();
        let experts = names.pop_if(|_| self.experts.is_some()).map(|name| format!(", experts on {name}"));
        DeviceInfo {
            name: names.join(" + ") + &experts.unwrap_or_default(),
            max_binding_words: all().map(|i| i.max_binding_words).min().unwrap_or(usize::MAX / 8),
        }
    }

    fn packing(&mut self, has: Wide) -> Packing {
        let apart = self.experts;
        let all: Vec<Wide> = self.members.iter_mut().map(|m| m.device.packing(has).layers).collect();
        let layered = &all[..all.len() - usize::from(apart.is_some())];
        let layers = layered.iter().fold(has, |both, wide| both.and(*wide));
        match (apart, all.last()) {
            (Some(of_experts), Some(&experts)) => Packing { layers, experts, of_experts },
            _ => Packing::of_all(layers),
        }
    }

    fn has_room(&self, plan: &Plan) -> bool {
        !matches!(self.deal(plan), Err(SplitError::Memory { .. }))
    }

    fn set_stop(&mut self, stop: Stop) {
        self.members.iter_mut().for_each(|m| m.device.set_stop(stop.clone()));
    }

    fn stop(&self) -> Stop {
        self.members.first().map_or_else(Stop::default, |m| m.device.stop())
    }

    fn load<'a>(&'a mut self, plan: Plan, weights: &'a mut dyn WeightSource) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.load_parts(plan, weights).boxed_local()
    }

    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>> {
        async move {
            let mut rows = Vec::new();
            self.pass(step, Give::Rows(&mut rows)).await?;
            Ok(rows)
        }
        .boxed_local()
    }

    fn run_into<'a>(&'a mut self, step: &'a Step, logits: &'a mut Vec<f32>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.pass(step, Give::Rows(logits)).boxed_local()
    }

    fn ahead(&self) -> usize {
        // the id that a second step would begin with is on the last device, and the embedding on the first
        let last = if self.parts.is_empty() { None } else { self.members.get(self.last()) };
        last.map_or(0, |m| m.device.ahead().min(1))
    }

    fn submit<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.pass(step, Give::Selection).boxed_local()
    }

    fn collect<'a>(&'a mut self, best: &'a mut Vec<Best>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        let last = self.last();
        if let Some(words) = self.selected.take() {
            best.clear();
            best.extend(Best::read(&words));
            return futures::future::ready(Ok(())).boxed_local();
        }
        match self.members.get_mut(last) {
            Some(m) => m.device.collect(best),
            None => futures::future::ready(Err(anyhow::anyhow!("no step is under way"))).boxed_local(),
        }
    }

    fn begin<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.begin_parts(step).boxed_local()
    }

    fn run_one(&mut self, command: usize) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        self.run_command(command).boxed_local()
    }

    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        async move {
            let (p, own) = self.holder(buffer)?;
            self.members[p].device.read(own).await
        }
        .boxed_local()
    }

    fn read_part(&mut self, buffer: BufId, part: Range<usize>) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        async move {
            let (p, own) = self.holder(buffer)?;
            self.members[p].device.read_part(own, part).await
        }
        .boxed_local()
    }

    fn take_stats(&mut self) -> Stats {
        let all: Vec<Stats> = self.members.iter_mut().map(|m| m.device.take_stats()).collect();
        Stats {
            steps: all.get(self.last()).map_or(0, |s| s.steps) + std::mem::take(&mut self.steps),
            commands: all.iter().map(|s| s.commands).sum(),
            read_back: all.iter().map(|s| s.read_back).sum(),
            encoded_ahead: all.get(self.last()).map_or(0, |s| s.encoded_ahead),
            host: all.iter().map(|s| s.host).sum(),
        }
    }

    fn kernels(&self) -> Vec<String> {
        let mut all: Vec<String> = self.members.iter().flat_map(|m| m.device.kernels()).collect();
        all.sort();
        all.dedup();
        all
    }

    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.write_all(buffer, 0, words).boxed_local()
    }

    fn write_part<'a>(
        &'a mut self,
        buffer: BufId,
        first: usize,
        words: &'a [u32],
    ) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.write_all(buffer, first, words).boxed_local()
    }
}
