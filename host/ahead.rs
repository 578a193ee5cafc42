//! Commands of a token's step, encoded while the device is at work on the step before.
//!
//! What differs between two steps of one token lies in the arena, which is written before a submit: parameters, ids, the
//! RoPE table. So the commands of the next step are known as soon as one is submitted, but for how many workgroups look at
//! the cache. They are encoded for the position after it and used where they turn out to be those of the next step; else
//! they are thrown away.

use super::device::{GpuDevice, WORK_PER_SUBMIT, work_of};
use super::encoded::{Back, Encoded, Shape};
use super::faults::HostError;
use super::program::AHEAD;
use crate::record::{Args, Best, Step};

impl GpuDevice {
    /// The commands of a step that were not submitted yet, as they were encoded ahead or encoded now; counts them.
    pub(super) fn commands_of(
        &mut self,
        step: &Step,
        active: &[(usize, Args)],
        back: Back,
    ) -> Result<wgpu::CommandBuffer, HostError> {
        let program = self.program()?;
        let shape = Shape { dispatches: program.dispatches(active), follow: step.follow, back };
        program.note(&shape.dispatches);
        self.stats.steps += 1;
        self.stats.commands += shape.dispatches.len() as u64;
        if let Some(encoded) = self.encoded.take().filter(|e| e.shape == shape) {
            self.stats.encoded_ahead += 1;
            return Ok(encoded.buffer);
        }
        let mut encoder = self.encode(self.encoder(step.follow)?, active)?;
        self.copy_back(&mut encoder, back)?;
        Ok(encoder.finish())
    }

    /// Encodes the step after one that was just submitted and asks for one row, where that is likely to be one more token.
    pub(super) fn encode_ahead(&mut self, step: &Step) -> Result<(), HostError> {
        self.encoded = None;
        // nobody knows where the tokens of the next will lie
        let token = match self.program()?.plan.logits {
            Some(_) => step.n_out == 1,
            // the layers of a model whose logits another device gives
            None => step.n_tokens == 1,
        };
        if !token || step.scattered.is_some() {
            return Ok(());
        }
        let pos = step.pos + step.n_tokens;
        let (n_tokens, n_out, select, follow) = (1, step.n_out, step.select, step.follow);
        let next = Step { n_tokens, pos, n_out, select, follow, ..Step::default() };
        let program = self.program()?;
        let commands = program.plan.recording.commands.iter().enumerate();
        let active: Vec<(usize, Args)> = commands.filter_map(|(i, c)| Some((i, c.args_for(&next)?))).collect();
        // one that takes more than one submit would be begun here
        if active.iter().map(|(_, args)| work_of(args)).sum::<u64>() >= WORK_PER_SUBMIT {
            return Ok(());
        }
        let back = match next.select {
            0 => Back::logits(next.n_out, program.plan.width),
            k => Back::Selected { slot: self.submitted % AHEAD, words: k * Best::WORDS },
        };
        let shape = Shape { dispatches: self.program()?.dispatches(&active), follow: next.follow, back };
        let mut encoder = self.encode(self.encoder(next.follow)?, &active)?;
        self.copy_back(&mut encoder, back)?;
        self.encoded = Some(Encoded { shape, buffer: encoder.finish() });
        Ok(())
    }

    fn copy_back(&self, encoder: &mut wgpu::CommandEncoder, back: Back) -> Result<(), HostError> {
        let program = self.program()?;
        match back {
            Back::Nothing => {}
            Back::Logits(bytes) => {
                let logits = program.plan.logits.expect("a step that wants logits is of a plan that has them");
                encoder.copy_buffer_to_buffer(program.place(logits).0, 0, &program.logits_staging, 0, bytes);
            }
            Back::Selected { slot, words } => {
                let none = || HostError::Device("the plan selects nothing".into());
                let (from, at) = program.place(program.plan.selected.ok_or_else(none)?);
                encoder.copy_buffer_to_buffer(from, at, &program.selected_staging[slot], 0, words as u64 * 4);
            }
        }
        Ok(())
    }
}
