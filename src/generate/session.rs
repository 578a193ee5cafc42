//! A session: one model on one device, one growing sequence.

use crate::formats::Container;
use crate::models::{self, Built, Hyper, PlanOptions, RopeTable, Weights};
use crate::record::{Command, Device, Step};
use anyhow::ensure;

/// Choices of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// what shapes the plan; the binding limit is lowered to the device's
    pub plan: PlanOptions,
}

/// Whose logits to return from [`Session::feed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// the last token's
    Last,
    /// those of the tokens from this index (within the fed ids) on
    From(usize),
}

/// A loaded model and the tokens it has seen.
pub struct Session<'d> {
    device: &'d mut dyn Device,
    built: Built,
    table: RopeTable,
    pos: usize,
    vocab: usize,
    step: Step,
}

impl<'d> Session<'d> {
    /// Builds the plan, loads the weights. `progress` hears how many file bytes were read.
    pub async fn new(
        device: &'d mut dyn Device,
        container: &Container,
        hyper: &Hyper,
        options: SessionOptions,
        progress: impl FnMut(u64) + Send,
    ) -> anyhow::Result<Session<'d>> {
        let mut plan = options.plan;
        plan.max_binding_words = plan.max_binding_words.min(device.info().max_binding_words);
        // every logits row of a step must fit one binding
        plan.max_out = plan.max_out.min((plan.max_binding_words / hyper.vocab).max(1));
        let built = models::build(container, hyper, &plan)?;
        let table = models::rope_table(container, hyper)?;
        device.load(built.plan.clone(), &mut Weights::new(container, progress)).await?;
        let step = Step { inputs: vec![(built.ids, vec![]), (built.rope, vec![])], ..Step::default() };
        Ok(Session { device, built, table, pos: 0, vocab: hyper.vocab, step })
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

    /// The device.
    pub fn device(&mut self) -> &mut dyn Device {
        self.device
    }

    /// Forgets the sequence; the cache is overwritten from the start.
    pub fn reset(&mut self) {
        self.pos = 0;
    }

    /// Checks ids and room before any work is done.
    pub fn check(&self, ids: &[u32]) -> anyhow::Result<()> {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= self.vocab) {
            anyhow::bail!("token id {id} is outside the vocabulary of {}", self.vocab);
        }
        let need = self.pos + ids.len();
        ensure!(
            need <= self.built.n_ctx,
            "{} tokens after the {} already seen need a context of {need}, it holds {}; raise -c",
            ids.len(),
            self.pos,
            self.built.n_ctx
        );
        Ok(())
    }

    /// The step for `ids` at the current position; the caller advances by running it.
    pub fn prepare(&mut self, ids: &[u32], n_out: usize) -> &Step {
        let n = ids.len();
        let (step, table) = (&mut self.step, &self.table);
        (step.n_tokens, step.pos, step.out_first, step.n_out) = (n, self.pos, n - n_out, n_out);
        step.inputs[0].1.clear();
        step.inputs[0].1.extend_from_slice(ids);
        table.words(self.pos, n, &mut step.inputs[1].1);
        step
    }

    /// Marks `n` tokens as seen, after their step was run command by command.
    pub fn advance(&mut self, n: usize) {
        self.pos += n;
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
        ensure!(!ids.is_empty(), "no tokens to feed");
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
            let n_out = (done + n).saturating_sub(first_wanted.max(done));
            let piece = &ids[done..done + n];
            self.prepare(piece, n_out);
            let logits = self.device.run(&self.step).await?;
            for (i, l) in logits.chunks_exact(self.vocab).enumerate() {
                if let Some(at) = l.iter().position(|v| !v.is_finite()) {
                    anyhow::bail!(
                        "the logits of position {} hold {} at token {at}: the model overflowed",
                        self.pos + n - n_out + i,
                        l[at]
                    );
                }
                row(done + n - n_out + i, l)?;
            }
            self.pos += n;
            done += n;
        }
        Ok(())
    }
}
