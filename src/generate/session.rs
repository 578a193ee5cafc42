//! A session: one model on one device, one growing sequence.

use super::error::SessionError;
use super::states::{Turns, before_last};
use crate::blocks::wide::{Packing, Wide};
use crate::formats::Container;
use crate::fuse::{self, Fuse};
use crate::models::{self, Built, Head, Hyper, PlanOptions, RECENT_CHUNK, RopeTable, Weights};
use crate::ops::{places, strands};
use crate::record::{Best, BufId, Command, Device, Plan, Role, Step};
use anyhow::{Context, ensure};
use std::collections::VecDeque;

/// Choices of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionOptions {
    /// what shapes the plan; the binding limit is lowered to the device's
    pub plan: PlanOptions,
    /// bytes all buffers of the plan may take together; `None` where nobody knows
    pub memory: Option<u64>,
    /// how far the recording is rewritten into fewer commands; never changes a bit
    pub fuse: Fuse,
}

/// Whose logits to return from [`Session::feed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// the last token's
    Last,
    /// those of the tokens from this index (within the fed ids) on
    From(usize),
}

/// A device that is lent to a session, or its own.
enum Held<'d> {
    Lent(&'d mut dyn Device),
    Own(Box<dyn Device>),
}

impl Held<'_> {
    fn get(&self) -> &dyn Device {
        match self {
            Held::Lent(device) => &**device,
            Held::Own(device) => device.as_ref(),
        }
    }

    fn get_mut(&mut self) -> &mut dyn Device {
        match self {
            Held::Lent(device) => &mut **device,
            Held::Own(device) => device.as_mut(),
        }
    }
}

/// A loaded model and the tokens it has seen.
pub struct Session<'d> {
    device: Held<'d>,
    built: Built,
    /// as many as the step has inputs for, after the ids
    tables: Vec<RopeTable>,
    pos: usize,
    /// where the states of recurrent layers lie
    turns: Turns,
    vocab: usize,
    step: Step,
    logits: Vec<f32>,
    /// tokens of each step that was started and whose selection was not taken yet
    under_way: VecDeque<usize>,
    /// how many logits the last of them selects
    select: usize,
}

impl<'d> Session<'d> {
    /// Builds the plan, loads the weights. `progress` hears how many file bytes were read.
    ///
    /// Errors: what the plan or the device refuses; a plan that takes more than `options.memory`, before anything is
    /// allocated.
    pub async fn new(
        device: &'d mut dyn Device,
        container: &Container,
        hyper: &Hyper,
        options: SessionOptions,
        progress: impl FnMut(u64) + Send,
    ) -> anyhow::Result<Session<'d>> {
        Session::paged(device, container, hyper, options, usize::MAX, progress).await
    }

    /// As [`Session::new`], with cache pages of at most `page` positions, which changes no bit.
    pub async fn paged(
        device: &'d mut dyn Device,
        container: &Container,
        hyper: &Hyper,
        options: SessionOptions,
        page: usize,
        progress: impl FnMut(u64) + Send,
    ) -> anyhow::Result<Session<'d>> {
        Session::load(Held::Lent(device), container, hyper, options, page, progress).await
    }

    /// As [`Session::new`], with a device that is the session's own.
    pub async fn owning(
        device: Box<dyn Device>,
        container: &Container,
        hyper: &Hyper,
        options: SessionOptions,
        progress: impl FnMut(u64) + Send,
    ) -> anyhow::Result<Session<'static>> {
        Session::load(Held::Own(device), container, hyper, options, usize::MAX, progress).await
    }

    async fn load(
        mut held: Held<'d>,
        container: &Container,
        hyper: &Hyper,
        options: SessionOptions,
        page: usize,
        progress: impl FnMut(u64) + Send,
    ) -> anyhow::Result<Session<'d>> {
        let device = held.get_mut();
        let mut plan = options.plan;
        plan.max_binding_words = plan.max_binding_words.min(device.info().max_binding_words);
        // every row of a step must fit one binding
        let width = if plan.head == Head::Logits { hyper.vocab } else { hyper.dim };
        plan.max_out = plan.max_out.min((plan.max_binding_words / width).max(1));
        check_cache(hyper, &plan, options.memory)?;
        plan.packing = device.packing(codebooks(container));
        let checkpoints = std::mem::take(&mut plan.checkpoints);
        let (mut built, mut map) = planned(container, hyper, &plan, page, options.fuse)?;
        // codes take more memory than rows of a codebook: others want some as well
        let free = options.memory.unwrap_or(u64::MAX) / 4 * 3;
        if plan.packing != Packing::default() && (bytes(&built.plan, |_| true) > free || !device.has_room(&built.plan))
        {
            plan.packing = Packing::default();
            (built, map) = planned(container, hyper, &plan, page, options.fuse)?;
        }
        // as many as there is known to be room for: they save time, and nothing needs them
        plan.checkpoints = if hyper.has_states() { checkpoints } else { 0 };
        while plan.checkpoints > 0 {
            let with = planned(container, hyper, &plan, page, options.fuse)?;
            if check_plan(&with.0.plan, options.memory).is_ok() && device.has_room(&with.0.plan) {
                (built, map) = with;
                break;
            }
            plan.checkpoints /= 2;
        }
        for id in [&mut built.ids, &mut built.rope]
            .into_iter()
            .chain(&mut built.local_rope)
            .chain(built.span.as_mut().map(|(id, _)| id))
            .chain(&mut built.seen)
            .chain(&mut built.strands)
        {
            *id = map[*id].expect("inputs stay");
        }
        for id in built.layers.iter_mut().flat_map(|l| l.pages.iter_mut().flatten()) {
            *id = map[*id].expect("the cache stays");
        }
        check_plan(&built.plan, options.memory)?;
        let tables = models::rope_tables(container, hyper, built.n_ctx)?;
        let mut weights = Weights::new(container, progress).until(device.stop());
        device.load(built.plan.clone(), &mut weights).await?;
        let span = built.span.map(|(id, _)| id);
        let inputs = [built.ids, built.rope].into_iter().chain(built.local_rope).chain(span);
        let inputs = inputs.chain(built.seen).chain(built.strands).map(|id| (id, vec![])).collect();
        let step = Step { inputs, ..Step::default() };
        let (vocab, logits, under_way) = (hyper.vocab, Vec::new(), VecDeque::with_capacity(2));
        let turns = Turns::new(built.checkpoints);
        Ok(Session { device: held, built, tables, pos: 0, turns, vocab, step, logits, under_way, select: 0 })
    }

    /// Positions the cache holds.
    pub fn n_ctx(&self) -> usize {
        self.built.n_ctx
    }

    /// Tokens seen so far.
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// The plan's commands, for verify and tables.
    pub fn commands(&self) -> &[Command] {
        &self.built.plan.recording.commands
    }

    /// The plan and its input buffers.
    pub fn built(&self) -> &Built {
        &self.built
    }

    /// Tokens there are, and logits in a row.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Whether every token of a text sees all of it, so that a text is fed whole, in one step.
    pub fn feeds_whole(&self) -> bool {
        self.built.seen.is_some()
    }

    /// Whether some layers are recurrent: what they remember is that of the last token fed, and there is no way back but to
    /// a checkpoint ([`Session::go_back`]) or the start.
    pub fn is_recurrent(&self) -> bool {
        self.built.strands.is_some()
    }

    /// Words of a row of what a step gives: as many as there are logits, unless the plan gives something else.
    pub fn width(&self) -> usize {
        self.built.plan.width
    }

    /// The rows of the last step.
    pub(super) fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// What a step is written with.
    pub(super) fn writing(&mut self) -> (&[RopeTable], &mut Step) {
        (&self.tables, &mut self.step)
    }

    /// Where the cache lies, and on what.
    pub(super) fn cache(&mut self) -> (&Built, &mut dyn Device) {
        (&self.built, self.device.get_mut())
    }

    /// What runs it.
    pub(super) fn under(&mut self) -> (&mut dyn Device, &Step, &mut Vec<f32>) {
        (self.device.get_mut(), &self.step, &mut self.logits)
    }

    /// The device.
    pub fn device(&mut self) -> &mut dyn Device {
        self.device.get_mut()
    }

    /// Forgets the sequence; the cache is overwritten from the start.
    pub fn reset(&mut self) {
        self.pos = 0;
        self.turns.go_back(0);
    }

    /// Of a recurrent model, goes back to the last checkpoint that is no later than position `most`, or to the start; where
    /// that is. Checkpoints after it are dropped.
    pub fn go_back(&mut self, most: usize) -> usize {
        self.pos = self.turns.go_back(most);
        self.pos
    }

    /// Has checkpoints made, where the plan has room for them: on the way to a prompt of `n` tokens the last that it can be
    /// gone on from, and after `fork` tokens, where it leaves what another prompt has.
    pub fn mark(&mut self, fork: usize, n: usize) {
        self.turns.mark(&[fork / RECENT_CHUNK * RECENT_CHUNK, before_last(n)]);
    }

    /// Checks ids and room before any work is done.
    pub fn check(&self, ids: &[u32]) -> anyhow::Result<()> {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= self.vocab) {
            anyhow::bail!("token id {id} is outside the vocabulary of {}", self.vocab);
        }
        let (tokens, seen, context) = (ids.len(), self.pos, self.built.n_ctx);
        ensure!(seen + tokens <= context, SessionError::Context { tokens, seen, context });
        ensure!(
            seen == 0 || !self.feeds_whole(),
            "a text of an encoder is fed whole, and {seen} tokens were before it"
        );
        Ok(())
    }

    /// The step for `ids` at the current position; the caller advances by running it.
    pub fn prepare(&mut self, ids: &[u32], n_out: usize) -> &Step {
        let n = ids.len();
        let step = &mut self.step;
        let pos = self.pos + self.under_way.iter().sum::<usize>();
        (step.n_tokens, step.pos, step.out_first, step.n_out) = (n, pos, n - n_out, n_out);
        (step.select, step.follow, step.scattered) = (0, None, None);
        step.inputs[0].1.clear();
        step.inputs[0].1.extend_from_slice(ids);
        for (table, (_, words)) in self.tables.iter().zip(&mut step.inputs[1..]) {
            table.words(pos, n, words);
        }
        if let (true, Some((_, words))) = (self.built.strands.is_some(), step.inputs.last_mut()) {
            // every step under way goes on from the one before it
            strands::in_order(n, self.turns.of_step(self.under_way.len(), pos > 0), words);
        }
        if let (true, Some((_, words))) = (self.built.seen.is_some(), step.inputs.last_mut()) {
            places::in_order(pos, n, 0, words);
            places::see_all(n, words, |_| (pos + n - 1) as u32);
        }
        if let (Some((_, side)), [.., (_, words), _]) = (self.built.span, &mut step.inputs[..]) {
            places::in_order(pos, n, 0, words);
            places::see_span(n, words, side, |_| (pos + n - 1) as u32);
        }
        step
    }

    /// Marks `n` tokens as seen, after their step was run command by command. Where the plan has an f16 copy of recent
    /// positions, that copy must hold those of the chunk that is continued: go back to where a chunk begins. After a text of an
    /// encoder the next one begins. Of a recurrent model the tokens are those of one step, and [`Session::go_back`] alone goes
    /// back.
    pub fn advance(&mut self, n: usize) {
        debug_assert!(!self.is_recurrent() || n == self.step.n_tokens, "a step of {} tokens", self.step.n_tokens);
        self.pos += if self.feeds_whole() { 0 } else { n };
        if self.is_recurrent() {
            self.turns.advance(self.pos);
        }
    }

    /// Takes the last `n` tokens back, which were fed in one step. They are written again before anything reads them, as
    /// in [`Session::settle`]; in the ring they took no chunk's place that goes on. Not for a recurrent model, which has no
    /// state from between the tokens of a step.
    pub fn take_back(&mut self, n: usize) {
        debug_assert!(!self.is_recurrent() || n == 0);
        self.pos -= n;
    }

    /// Feeds tokens and hands each wanted logits row to `row(index, logits)`, in order.
    ///
    /// A NaN or infinite logit is an error: it would otherwise become a token.
    pub async fn feed(
        &mut self,
        ids: &[u32],
        want: Want,
        mut row: impl FnMut(usize, &[f32]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let first = self.pos;
        let checked = |i: usize, logits: &[f32]| {
            finite(first + i, logits)?;
            row(i, logits)
        };
        self.feed_any(ids, want, checked).await
    }

    /// As [`Session::feed`], with logits that may be anything: tokens that are only guessed may lead anywhere.
    pub async fn feed_any(
        &mut self,
        ids: &[u32],
        want: Want,
        mut row: impl FnMut(usize, &[f32]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        ensure!(!ids.is_empty(), "no tokens to feed");
        self.settle().await?;
        self.check(ids)?;
        let first_wanted = match want {
            Want::Last => ids.len() - 1,
            Want::From(i) => i,
        };
        let (ubatch, max_out) = (self.built.plan.max_tokens, self.built.plan.max_out);
        let mut done = 0;
        while done < ids.len() {
            // no more wanted rows than one step may return
            let n = ubatch.min(ids.len() - done).min(first_wanted.saturating_sub(done) + max_out);
            let n = self.turns.cut(self.pos, n);
            let n_out = (done + n).saturating_sub(first_wanted.max(done));
            let piece = &ids[done..done + n];
            self.prepare(piece, n_out);
            self.device.get_mut().run_into(&self.step, &mut self.logits).await?;
            for (i, l) in self.logits.chunks_exact(self.built.plan.width).enumerate() {
                row(done + n - n_out + i, l)?;
            }
            self.advance(n);
            done += n;
        }
        Ok(())
    }

    /// How many steps that select may be under way at once; 0: the device, or the plan, does not select.
    pub fn ahead(&self) -> usize {
        let most = if self.is_recurrent() { strands::TURNS - 1 } else { usize::MAX };
        self.device.get().ahead().min(most)
    }

    /// Steps under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Feeds tokens and selects the k best logits of the last, for [`Session::best`] to take: the device may still be at
    /// work when this returns. `k` is rounded up to a power of two.
    pub async fn start(&mut self, ids: &[u32], k: usize) -> anyhow::Result<()> {
        self.settle().await?;
        self.check(ids)?;
        let last = ids.len().saturating_sub(1) / self.built.plan.max_tokens * self.built.plan.max_tokens;
        let last = last.max(self.turns.last(self.pos, ids.len().saturating_sub(1)));
        let (front, ids) = ids.split_at(last);
        if !front.is_empty() {
            self.feed(front, Want::From(last), |_, _| Ok(())).await?;
        }
        ensure!(!ids.is_empty(), "no tokens to feed");
        self.prepare(ids, 1);
        self.submit(k.next_power_of_two()).await
    }

    /// Starts the step after the last one under way, feeding what that finds the best, before anybody knows which it is.
    ///
    /// Errors: those of the device; nothing is under way, or all the device takes; no room in the context.
    pub async fn follow(&mut self) -> anyhow::Result<()> {
        let (n, most) = (self.under_way.len(), self.ahead());
        ensure!(n > 0 && n < most, "{n} steps are under way, of {most}: none can follow");
        ensure!(self.room() > 0, "the context of {} is full", self.built.n_ctx);
        let ids = self.built.ids;
        self.prepare(&[0], 1);
        self.step.follow = Some(ids);
        self.submit(self.select).await
    }

    /// Positions left when all that is under way is done.
    pub fn room(&self) -> usize {
        self.built.n_ctx.saturating_sub(self.pos + self.under_way.iter().sum::<usize>())
    }

    async fn submit(&mut self, k: usize) -> anyhow::Result<()> {
        (self.step.select, self.select) = (k, k);
        self.device.get_mut().submit(&self.step).await?;
        self.under_way.push_back(self.step.n_tokens);
        Ok(())
    }

    /// What the step started first among those under way selected; its tokens count as seen from now on.
    ///
    /// A NaN or infinite logit is an error, as in [`Session::feed`].
    pub async fn best(&mut self, best: &mut Vec<Best>) -> anyhow::Result<()> {
        let n = self.under_way.pop_front().context("no step is under way")?;
        self.device.get_mut().collect(best).await?;
        let first = best.first().context("the device selected nothing")?;
        finite(self.pos + n - 1, &[first.logit])?;
        self.advance(n);
        Ok(())
    }

    /// Throws away what is under way. Its positions of the cache are written again by the tokens that are fed in its place,
    /// before anything reads them: a query sees no position after its own, and a step writes those it feeds first. The
    /// f16 ring of recent positions loses nothing either: a position takes the place of one at least a chunk before it. Of a
    /// recurrent state no step under way writes the slot that the first of them began with, which is where the next one begins.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        let mut thrown = Vec::new();
        while self.under_way.pop_front().is_some() {
            self.device.get_mut().collect(&mut thrown).await?;
        }
        Ok(())
    }
}

/// Errors: a logit that is not finite. Whoever reads logits of a position says it with this sentence.
pub fn finite(pos: usize, logits: &[f32]) -> anyhow::Result<()> {
    match logits.iter().find(|l| !l.is_finite()) {
        Some(&value) => Err(SessionError::Overflow { position: pos, value }.into()),
        None => Ok(()),
    }
}

/// The cache alone, before the plan is made: an absurd context would make an absurd number of pages.
fn check_cache(hyper: &Hyper, plan: &PlanOptions, memory: Option<u64>) -> anyhow::Result<()> {
    // types that do not fit the heads are for the plan to refuse
    let bytes = plan.n_ctx as u64 * hyper.cache_bytes(plan.k_type, plan.v_type).unwrap_or(0) as u64;
    let free = memory.unwrap_or(u64::MAX);
    ensure!(bytes <= free, SessionError::Cache { positions: plan.n_ctx, bytes, free });
    Ok(())
}

/// The types with codebooks that a container's tensors have.
fn codebooks(c: &Container) -> Wide {
    let types = c.tensors.iter().filter_map(|t| t.dtype.block());
    types.fold(Wide::NONE, |all, t| all.or(Wide::only(t)))
}

/// A plan with joined commands, and the new number of every buffer.
fn planned(
    container: &Container,
    hyper: &Hyper,
    o: &PlanOptions,
    page: usize,
    how: Fuse,
) -> anyhow::Result<(Built, Vec<Option<BufId>>)> {
    let mut built = models::build_paged(container, hyper, o, page)?;
    let map = fuse::fuse(&mut built.plan, how, o.max_binding_words);
    Ok((built, map))
}

/// Bytes of the buffers that are wanted.
fn bytes(plan: &Plan, wanted: fn(&Role) -> bool) -> u64 {
    plan.buffers.iter().filter(|b| wanted(&b.role)).map(|b| b.words as u64 * 4).sum()
}

/// Every buffer of the plan.
fn check_plan(plan: &Plan, memory: Option<u64>) -> anyhow::Result<()> {
    let bytes = |wanted| bytes(plan, wanted);
    let (weights, cache) = (bytes(Role::is_loaded), bytes(|r| *r == Role::Cache));
    let (recent, states) = (bytes(|r| *r == Role::Recent), bytes(|r| *r == Role::State));
    let total = bytes(|_| true);
    let (work, free) = (total - weights - cache - recent - states, memory.unwrap_or(u64::MAX));
    ensure!(total <= free, SessionError::Memory { weights, cache, recent, states, work, free });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BufDecl;

    #[test]
    fn a_plan_is_refused_by_one_byte_and_the_message_names_the_parts() {
        let buffer = |words, role| BufDecl { name: String::new(), words, role };
        let weight = Role::Given(0);
        let buffers = vec![buffer(1 << 28, weight), buffer(2 << 28, Role::Cache), buffer(3 << 28, Role::Scratch)];
        let plan = Plan { buffers, ..Plan::default() };
        assert!(check_plan(&plan, None).is_ok());
        assert!(check_plan(&plan, Some(6 << 30)).is_ok());
        let error = check_plan(&plan, Some((6 << 30) - 1)).unwrap_err().to_string();
        assert!(
            error.contains("6.00 GiB of memory are needed (weights 1.00 GiB, cache 2.00 GiB, work 3.00 GiB)"),
            "{error}"
        );
    }

    #[test]
    fn there_are_as_many_checkpoints_as_memory_and_a_binding_have_room_for() {
        use crate::cpu::{CpuDevice, CpuOptions};
        use crate::formats::synthetic::Synthetic;
        let container = Synthetic::parse("qwen35-tiny:q8_0").expect("a shape").container().expect("a model");
        let hyper = Hyper::read(&container).expect("its hyperparameters");
        let widest = (0..hyper.layers).map(|l| hyper.state_words(l)).max().expect("layers");
        let load = |checkpoints: usize, memory: Option<u64>, limit: Option<usize>| {
            let max_binding_words = limit.unwrap_or(PlanOptions::default().max_binding_words);
            let plan = PlanOptions {
                n_ctx: 64,
                ubatch: 8,
                sequences: 2,
                checkpoints,
                max_binding_words,
                ..Default::default()
            };
            let options = CpuOptions { level: None, threads: 1, max_binding: None };
            let mut device = CpuDevice::new(options).expect("there is a CPU");
            let o = SessionOptions { plan, memory, fuse: Fuse::default() };
            let session = pollster::block_on(Session::new(&mut device, &container, &hyper, o, |_| {}))?;
            let built = session.built();
            assert_eq!(built.slots, 4 + built.checkpoints);
            anyhow::Ok((built.checkpoints, bytes(&built.plan, |_| true)))
        };
        let found = |memory: u64| load(8, Some(memory), None).map(|(n, _)| n);
        let (all, none) = (load(8, None, None).expect("loads"), load(0, None, None).expect("loads"));
        assert_eq!((all.0, all.1 - none.1), (8, 8 * hyper.state_bytes() as u64));
        let sizes = [all.1, all.1 - 1, none.1 + hyper.state_bytes() as u64, none.1];
        assert_eq!(sizes.map(|memory| found(memory).expect("loads")), [8, 4, 1, 0]);
        assert!(found(none.1 - 1).is_err());
        // a plan whose buffers have room for seven slots of the largest state, where each is bound
        let limit = (7 * widest).max(hyper.vocab * hyper.dim);
        let most = (limit / widest - 4).min(64);
        assert_eq!(load(64, None, Some(limit)).expect("loads").0, most);
    }
}
