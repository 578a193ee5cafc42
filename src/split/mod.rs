//! Several devices as one: each has layers of its own, and the hidden state goes from one to the next as words.
//!
//! [`Split`] is a [`Device`] that is given the plan of a whole model. It runs the commands of that plan and no other, each
//! on the device that its layer was dealt to, so the words of every buffer are those that one device would write.

mod cut;
mod deal;
mod error;

pub use cut::{Handed, Layers, Part};
pub use deal::{Loads, well_formed};
pub use error::SplitError;

use crate::record::{Best, BufId, Device, DeviceInfo, Plan, Role, Scattered, Stats, Step, WeightSource};
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
    parts: Vec<Running>,
    /// the part whose command was run last
    current: usize,
    rows: Vec<f32>,
}

/// A part of the plan that a member has loaded, and what it is given in a step.
struct Running {
    part: Part,
    step: Step,
    /// by what is handed to it, the words
    words: Vec<Vec<u32>>,
}

/// What is wanted of the last device.
enum Give<'a> {
    Rows(&'a mut Vec<f32>),
    Selection,
}

impl Split {
    /// Over these devices in order; `counts`: layers of each, or by memory.
    ///
    /// Errors: not a count for each device, or a count of 0.
    pub fn new(members: Vec<Member>, counts: Option<Vec<usize>>) -> Result<Split, SplitError> {
        if let Some(counts) = &counts {
            well_formed(counts, members.len())?;
        }
        Ok(Split { members, counts, parts: Vec::new(), current: 0, rows: Vec::new() })
    }

    /// What each device has of the loaded plan, in order; nothing before one is loaded.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().map(|r| &r.part)
    }

    fn deal(&self, plan: &Plan) -> Result<Vec<Part>, SplitError> {
        let layers = Layers::of(plan)?;
        let counts = match &self.counts {
            Some(counts) => deal::asked(counts, self.members.len(), layers.count())?,
            None => {
                let memory: Vec<Option<u64>> = self.members.iter().map(|m| m.memory).collect();
                deal::by_memory(&layers.loads(plan), &memory)?
            }
        };
        let parts = layers.cut(plan, &counts)?;
        self.check_memory(&parts)?;
        Ok(parts)
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
        self.current = 0;
        for (i, part) in self.deal(&plan)?.into_iter().enumerate() {
            let device = &mut self.members[i].device;
            device.load(part.plan.clone(), &mut *weights).await?;
            log::info!("layers {} to {} on {}", part.layers.start, part.layers.end - 1, device.info().name);
            let words = vec![Vec::new(); part.handed.len()];
            self.parts.push(Running { part, step: Step::default(), words });
        }
        Ok(())
    }

    /// The tokens of a piece of a step. Those of one sequence in order may be cut anywhere.
    fn piece(&self, step: &Step) -> usize {
        let overlap = self.members.len() > 1 && self.members.iter().any(|m| m.device.overlaps());
        let even = step.inputs.iter().all(|(_, words)| words.len().is_multiple_of(step.n_tokens.max(1)));
        // a recurrent layer's words are of the whole step
        let recurrent = self.parts().any(|p| p.plan.strands.is_some());
        if !overlap || step.scattered.is_some() || recurrent || !even {
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
        let (n, parts) = (self.piece(step), self.parts.len());
        anyhow::ensure!(parts > 0, "no plan is loaded");
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
                    self.hand_over(p).await?;
                    self.run_part(p, waits, &mut give, pieces > 1).await?;
                }
            }
            for p in 0..parts - 1 {
                if at(p).is_some() {
                    self.take_from(p + 1).await?;
                }
            }
        }
        self.current = parts - 1;
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

    /// Reads back what a part goes on from, from the parts before it.
    async fn take_from(&mut self, p: usize) -> anyhow::Result<()> {
        for i in 0..self.parts[p].part.handed.len() {
            let handed = self.parts[p].part.handed[i];
            let before = self.parts[..p].iter().enumerate().rev();
            let found = before.filter_map(|(q, r)| Some((q, r.part.own[handed.buffer]?))).next();
            let (q, own) = found.context("what a part goes on from has been written before it")?;
            let words = match handed.row {
                Some(row) => row * self.parts[q].step.n_tokens,
                None => self.parts[q].part.plan.buffers[own].words,
            };
            self.parts[p].words[i] = self.members[q].device.read_part(own, 0..words).await?;
        }
        Ok(())
    }

    /// Writes what was read back for a part.
    async fn hand_over(&mut self, p: usize) -> anyhow::Result<()> {
        let Running { part, words, .. } = &self.parts[p];
        for (handed, words) in part.handed.iter().zip(words) {
            let own = part.own[handed.buffer].context("a part has what it goes on from")?;
            self.members[p].device.write_part(own, 0, words).await?;
        }
        Ok(())
    }

    async fn begin_parts(&mut self, step: &Step) -> anyhow::Result<()> {
        let last = self.parts.len().saturating_sub(1);
        for (p, running) in self.parts.iter_mut().enumerate() {
            running.prepare(step, 0..step.n_tokens, p == last);
            self.members[p].device.begin(&running.step).await?;
        }
        self.current = 0;
        Ok(())
    }

    async fn run_command(&mut self, command: usize) -> anyhow::Result<()> {
        let p = self.parts.iter().position(|r| r.part.commands.contains(&command)).context("no such command")?;
        let start = self.parts[p].part.commands.start;
        if command == start {
            self.take_all(p).await?;
        }
        self.current = p;
        self.members[p].device.run_one(command - start).await
    }

    /// Gives a part what the others have left in the buffers that it shares with them, to the last word: whoever runs
    /// commands one by one compares also those that no command of the step has written.
    async fn take_all(&mut self, p: usize) -> anyhow::Result<()> {
        let n = self.parts.len();
        let others: Vec<usize> = (1..n).map(|back| (p + n - back) % n).collect();
        for id in 0..self.parts[p].part.own.len() {
            let Some(own) = self.parts[p].part.own[id] else { continue };
            let scratch = self.parts[p].part.plan.buffers[own].role == Role::Scratch;
            let from = others.iter().find_map(|&q| Some((q, self.parts[q].part.own[id]?)));
            if let (true, Some((q, theirs))) = (scratch, from) {
                let words = self.members[q].device.read(theirs).await?;
                self.members[p].device.write(own, &words).await?;
            }
        }
        Ok(())
    }

    /// Where the words of a buffer are: on the device that ran last, if it has it, else on the last that has it.
    fn holder(&self, buffer: BufId) -> anyhow::Result<(usize, BufId)> {
        let all = (0..self.parts.len()).rev();
        let mut having = [self.current].into_iter().chain(all).filter(|p| *p < self.parts.len());
        let found = having.find_map(|p| Some((p, self.parts[p].part.own[buffer]?)));
        found.with_context(|| format!("buffer {buffer} is on no device"))
    }

    async fn write_all(&mut self, buffer: BufId, first: usize, words: &[u32]) -> anyhow::Result<()> {
        self.holder(buffer)?;
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
        DeviceInfo {
            name: all().map(|i| i.name).collect::<Vec<_>>().join(" + "),
            max_binding_words: all().map(|i| i.max_binding_words).min().unwrap_or(usize::MAX / 8),
        }
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
        let last = if self.parts.is_empty() { None } else { self.members.last() };
        last.map_or(0, |m| m.device.ahead().min(1))
    }

    fn submit<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.pass(step, Give::Selection).boxed_local()
    }

    fn collect<'a>(&'a mut self, best: &'a mut Vec<Best>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        match self.members.last_mut() {
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
            steps: all.last().map_or(0, |s| s.steps),
            commands: all.iter().map(|s| s.commands).sum(),
            read_back: all.iter().map(|s| s.read_back).sum(),
            encoded_ahead: all.last().map_or(0, |s| s.encoded_ahead),
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
