//! `GpuDevice`: the `Device` trait over wgpu.

use super::capabilities::Capabilities;
use super::encoded::{Back, Encoded};
use super::faults::{Faults, HostError, one_line};
use super::options::{GpuOptions, Tune};
use super::pipeline_cache::PipelineCache;
use super::program::{AHEAD, Place, Program, SLOT};
use super::store::Memory;
use super::variants::{self, Room, Variant};
use crate::ops::attention::{AttentionParams, CHUNK, SCOPE_OWN};
use crate::record::{Args, Best, BufId, Device, DeviceInfo, Op, Plan, Stats, Step, WeightSource};
use crate::stop::Stop;
use anyhow::Context;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::LocalBoxFuture;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Multiply-adds after which a submit is closed, so that no driver's watchdog fires on a long prompt.
pub(super) const WORK_PER_SUBMIT: u64 = 1 << 34;

/// Seconds without an answer after which the device is given up.
const PATIENCE: u64 = 600;

/// How long the device is waited for before the flag that ends waiting is looked at again.
const LOOK: Duration = Duration::from_millis(50);

/// A step that was submitted and not collected.
struct UnderWay {
    /// of `Program::selected_staging`
    slot: usize,
    words: usize,
    index: wgpu::SubmissionIndex,
}

/// A wgpu device with a loaded plan.
pub struct GpuDevice {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) title: String,
    faults: Faults,
    pub(super) capabilities: Capabilities,
    pipelines: Option<PipelineCache>,
    pub(super) options: GpuOptions,
    pub(super) memory: Memory,
    pub(super) program: Option<Program>,
    /// grows to the largest buffer read by `read`
    staging: Option<wgpu::Buffer>,
    pub(super) stats: Stats,
    pub(super) stop: Stop,
    under_way: VecDeque<UnderWay>,
    /// steps that select submitted so far
    pub(super) submitted: usize,
    /// what is likely to be the next step's commands
    pub(super) encoded: Option<Encoded>,
    /// commands of the step that is run one by one, and their parameters
    begun: Vec<(usize, Args)>,
    /// whether it has been given work for its clocks to rise since measuring began
    pub(super) warm: bool,
}

impl GpuDevice {
    /// Whether the device has what a variant needs.
    pub fn offers(&self, variant: &Variant) -> bool {
        variant.runs(self.capabilities.optional)
    }

    /// The name of the variant that a command with these parameters of a step runs with before anything is measured, in a plan
    /// whose steps have `max_tokens` at most.
    pub fn starts_with(&self, op: Op, args: &Args, max_tokens: usize) -> &'static str {
        let room = Room { capabilities: self.capabilities, max_tokens, max_binding: self.max_binding() };
        let forced = &self.options.variants;
        let choice = variants::initial(forced, op, args, room);
        variants::of(op)[variants::taken(op, args, &choice, variants::split_from(forced, op))].name
    }

    pub(super) fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        title: String,
        faults: Faults,
        capabilities: Capabilities,
        memory: Memory,
        pipelines: Option<PipelineCache>,
    ) -> GpuDevice {
        let (options, stats, stop) = (GpuOptions::default(), Stats::default(), Stop::default());
        let (under_way, submitted) = (VecDeque::with_capacity(AHEAD), 0);
        let (program, staging) = (None, None);
        GpuDevice {
            device,
            queue,
            title,
            faults,
            capabilities,
            pipelines,
            options,
            memory,
            program,
            staging,
            stats,
            stop,
            under_way,
            submitted,
            encoded: None,
            begun: Vec::new(),
            warm: false,
        }
    }

    /// Bytes one binding may have: the device's limit, or a smaller one that was asked for.
    fn max_binding(&self) -> u64 {
        let limits = self.device.limits();
        let own = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        own.min(self.options.max_binding.unwrap_or(u64::MAX))
    }

    /// Frees everything a plan holds.
    pub fn unload(&mut self) {
        self.program = None;
        self.staging = None;
        self.under_way.clear();
        self.encoded = None;
        self.begun.clear();
    }

    /// Bytes of compiled pipelines that the store gave the driver when the device was opened.
    pub fn pipelines_read(&self) -> usize {
        self.pipelines.as_ref().map_or(0, |p| p.read)
    }

    /// Makes the device lost, as a driver reset would (for tests).
    pub fn destroy(&mut self) {
        self.device.destroy();
    }

    pub(super) fn program(&self) -> Result<&Program, HostError> {
        self.program.as_ref().ok_or_else(|| HostError::Device("no plan is loaded".into()))
    }

    async fn load_plan(&mut self, plan: Plan, weights: &mut dyn WeightSource) -> anyhow::Result<()> {
        self.unload();
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let cache = self.pipelines.as_ref().map(PipelineCache::handle);
        let (forced, tuned) = (&self.options.variants, self.options.tune != Tune::Off);
        let program =
            Program::new(&self.device, plan, self.max_binding(), forced, tuned, self.capabilities, cache.cloned());
        if let Some(e) = memory.pop().await {
            anyhow::bail!(HostError::OutOfMemory(one_line(&e.to_string())));
        }
        let program = program?;
        self.faults.check()?;
        self.program = Some(program);
        let ready = self.make_ready(weights).await;
        if ready.is_err() {
            self.unload();
        }
        ready
    }

    /// Chooses the plan's variants, writes every weight into its place and compiles what is not yet compiled.
    async fn make_ready(&mut self, weights: &mut dyn WeightSource) -> anyhow::Result<()> {
        // before the weights are there: what is measured takes no care of what buffers hold
        self.tune().await?;
        self.upload(weights).await?;
        let started = std::time::Instant::now();
        self.program()?.prepare(self.capabilities.parallel, &self.stop);
        self.faults.check()?;
        self.stop.check()?;
        log::info!("pipelines made in {:.3} s", started.elapsed().as_secs_f64());
        if let Some(pipelines) = &mut self.pipelines {
            pipelines.save();
        }
        Ok(())
    }

    /// Writes parameters and inputs of a step: one write. Returns the active commands.
    pub(super) fn write_arena(&mut self, step: &Step) -> Result<Vec<(usize, Args)>, HostError> {
        let program = self.program.as_mut().ok_or_else(|| HostError::Device("no plan is loaded".into()))?;
        assert!(
            step.n_tokens <= program.plan.max_tokens,
            "{} tokens in a plan for {}",
            step.n_tokens,
            program.plan.max_tokens
        );
        assert!(
            step.n_out <= program.plan.max_out.max(step.n_tokens),
            "{} logits rows in a plan for {}",
            step.n_out,
            program.plan.max_out
        );
        let mut active = Vec::with_capacity(program.commands.len());
        for (i, c) in program.plan.recording.commands.iter().enumerate() {
            if let Some(args) = c.args_for(step) {
                args.encode(&mut program.arena_bytes[i * SLOT..][..SLOT]);
                active.push((i, args));
            }
        }
        for (id, words) in &step.inputs {
            let Place::Arena(at) = program.places[*id] else {
                panic!("buffer {} is not an input", program.plan.buffers[*id].name);
            };
            let bytes: &[u8] = bytemuck::cast_slice(words);
            assert!(
                words.len() <= program.plan.buffers[*id].words,
                "{} words for an input of {}",
                words.len(),
                program.plan.buffers[*id].words
            );
            program.arena_bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        if let Some(placing) = program.plan.placing {
            for (id, outputs) in [(Some(placing.buffer), false), (placing.outputs, true)] {
                let Some(id) = id else { continue };
                let Place::Arena(at) = program.places[id] else {
                    panic!("buffer {} is not an input", program.plan.buffers[id].name);
                };
                let bytes = &mut program.arena_bytes[at as usize..][..program.plan.buffers[id].words * 4];
                let words = bytemuck::cast_slice_mut(bytes);
                if outputs { placing.put_outputs(step, words) } else { placing.put(step, words) }
            }
        }
        self.queue.write_buffer(&program.arena, 0, &program.arena_bytes);
        Ok(active)
    }

    /// A new encoder. For a step that follows another, the best id of that one is copied over its own first.
    pub(super) fn encoder(&self, follow: Option<BufId>) -> Result<wgpu::CommandEncoder, HostError> {
        let program = self.program()?;
        let mut encoder = self.device.create_command_encoder(&Default::default());
        if let Some(id) = follow {
            let selected = program.plan.selected.expect("a step that follows another asks for a plan that selects");
            let ((from, best), (to, at)) = (program.place(selected), program.place(id));
            encoder.copy_buffer_to_buffer(from, best + 4, to, at, 4);
        }
        Ok(encoder)
    }

    /// Encodes commands into as few submits as the work cap allows; the encoder left open is returned.
    pub(super) fn encode(
        &self,
        mut encoder: wgpu::CommandEncoder,
        active: &[(usize, Args)],
    ) -> Result<wgpu::CommandEncoder, HostError> {
        let program = self.program()?;
        let mut rest = active;
        while !rest.is_empty() {
            let mut work = 0;
            let mut n = 0;
            while n < rest.len() && (n == 0 || work < WORK_PER_SUBMIT) {
                work += work_of(&rest[n].1);
                n += 1;
            }
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                program.dispatches(&rest[..n]).iter().for_each(|d| program.encode(&mut pass, d));
            }
            rest = &rest[n..];
            if !rest.is_empty() {
                self.stop.check()?;
                self.queue.submit([encoder.finish()]);
                encoder = self.device.create_command_encoder(&Default::default());
            }
        }
        Ok(encoder)
    }

    async fn run_step(&mut self, step: &Step) -> anyhow::Result<Vec<f32>> {
        let started = std::time::Instant::now();
        let active = self.write_arena(step)?;
        let back = Back::logits(step.n_out, self.program()?.plan.width);
        let buffer = self.commands_of(step, &active, back)?;
        self.queue.submit([buffer]);
        self.stats.host += started.elapsed();
        let Back::Logits(bytes) = back else {
            self.wait().await?;
            return Ok(Vec::new());
        };
        self.encode_ahead(step)?;
        self.stats.read_back += bytes;
        let words = self.map(&self.program()?.logits_staging, bytes, None).await?;
        Ok(words.into_iter().map(f32::from_bits).collect())
    }

    async fn start_step(&mut self, step: &Step) -> anyhow::Result<()> {
        let started = std::time::Instant::now();
        assert!(step.n_out == 0, "{} rows asked of a step that hands none back", step.n_out);
        let active = self.write_arena(step)?;
        let buffer = self.commands_of(step, &active, Back::Nothing)?;
        self.queue.submit([buffer]);
        self.stats.host += started.elapsed();
        Ok(self.encode_ahead(step)?)
    }

    async fn submit_step(&mut self, step: &Step) -> anyhow::Result<()> {
        let started = std::time::Instant::now();
        assert!(self.under_way.len() < AHEAD, "{} steps are under way, at most {AHEAD}", self.under_way.len() + 1);
        assert!(step.n_out == 1 && step.select > 0, "{} of {} rows selected", step.select, step.n_out);
        let active = self.write_arena(step)?;
        let (slot, words) = (self.submitted % AHEAD, step.select * Best::WORDS);
        let buffer = self.commands_of(step, &active, Back::Selected { slot, words })?;
        let index = self.queue.submit([buffer]);
        self.under_way.push_back(UnderWay { slot, words, index });
        self.submitted += 1;
        self.stats.host += started.elapsed();
        Ok(self.encode_ahead(step)?)
    }

    async fn collect_step(&mut self, best: &mut Vec<Best>) -> anyhow::Result<()> {
        let UnderWay { slot, words, index } = self.under_way.pop_front().context("no step is under way")?;
        let bytes = words as u64 * 4;
        self.stats.read_back += bytes;
        let words = self.map(&self.program()?.selected_staging[slot], bytes, Some(index)).await?;
        best.clear();
        best.extend(Best::read(&words));
        Ok(())
    }

    async fn begin_step(&mut self, step: &Step) -> anyhow::Result<()> {
        self.begun = self.write_arena(step)?;
        if step.follow.is_some() {
            self.queue.submit([self.encoder(step.follow)?.finish()]);
        }
        Ok(())
    }

    /// Submits those of these commands that the step that was begun has. Returns how many dispatches they are.
    fn submit_range(&mut self, commands: Range<usize>) -> Result<usize, HostError> {
        let place = |command: usize| self.begun.partition_point(|(i, _)| *i < command);
        self.submit_some(&self.begun[place(commands.start)..place(commands.end)])
    }

    /// Submits commands of the step that was begun. Returns how many dispatches they are.
    fn submit_some(&self, some: &[(usize, Args)]) -> Result<usize, HostError> {
        let encoder = self.encode(self.device.create_command_encoder(&Default::default()), some)?;
        let program = self.program()?;
        let dispatches = program.dispatches(some);
        program.note(&dispatches);
        self.queue.submit([encoder.finish()]);
        Ok(dispatches.len())
    }

    async fn run_command(&mut self, command: usize) -> anyhow::Result<()> {
        self.submit_range(command..command + 1)?;
        Ok(self.wait().await?)
    }

    /// Words of parts of buffers, one after the other.
    async fn read_buffers(&mut self, parts: &[(BufId, Range<usize>)]) -> anyhow::Result<Vec<u32>> {
        let bytes = parts.iter().map(|(_, part)| part.len() as u64 * 4).sum();
        if self.staging.as_ref().is_none_or(|s| s.size() < bytes) {
            self.staging = Some(self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("read-back"),
                size: bytes.max(16),
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            }));
        }
        let staging = self.staging.as_ref().expect("made above");
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut to = 0;
        for (id, part) in parts {
            let ((buffer, at), bytes) = (self.program()?.place(*id), part.len() as u64 * 4);
            encoder.copy_buffer_to_buffer(buffer, at + part.start as u64 * 4, staging, to, bytes);
            to += bytes;
        }
        self.queue.submit([encoder.finish()]);
        Ok(self.map(staging, bytes, None).await?)
    }

    /// The first `bytes` of a staging buffer, once a submission, or all work before, is done.
    pub(super) async fn map(
        &self,
        staging: &wgpu::Buffer,
        bytes: u64,
        after: Option<wgpu::SubmissionIndex>,
    ) -> Result<Vec<u32>, HostError> {
        let slice = staging.slice(..bytes);
        let (tx, rx) = oneshot::channel();
        slice.map_async(wgpu::MapMode::Read, move |r| {
            // the receiver is gone only when the future was dropped
            let _ = tx.send(r);
        });
        self.poll(after)?;
        let mapped = rx.await;
        // a failed launch reads as zeros: what the device reported comes first
        self.faults.check()?;
        match mapped {
            Ok(Ok(())) => {}
            Ok(Err(e)) => {
                // a loss is reported only when nothing is left to wait for
                self.poll(None)?;
                return Err(HostError::Device(format!("reading back: {e}")));
            }
            Err(_) => return Err(HostError::Lost("the read-back was dropped".into())),
        }
        let words = {
            let view = slice.get_mapped_range().map_err(|e| HostError::Device(format!("reading back: {e}")))?;
            bytemuck::pod_collect_to_vec::<u8, u32>(&view)
        };
        staging.unmap();
        Ok(words)
    }

    /// Until everything submitted is done.
    pub(super) async fn wait(&self) -> Result<(), HostError> {
        let (tx, rx) = oneshot::channel();
        self.queue.on_submitted_work_done(move || {
            let _ = tx.send(());
        });
        self.poll(None)?;
        let done = rx.await;
        self.faults.check()?;
        done.map_err(|_| HostError::Lost("the queue was dropped".into()))
    }

    /// Drives callbacks where the platform does not (in a browser this is a no-op and the event loop does).
    pub(super) fn poll(&self, submission_index: Option<wgpu::SubmissionIndex>) -> Result<(), HostError> {
        let (started, patience) = (Instant::now(), Duration::from_secs(PATIENCE));
        loop {
            self.stop.check()?;
            let timeout = Some(if self.stop.may_be_asked() { LOOK } else { patience });
            match self.device.poll(wgpu::PollType::Wait { submission_index: submission_index.clone(), timeout }) {
                Ok(_) => return self.faults.check(),
                Err(wgpu::PollError::Timeout) if started.elapsed() < patience => {}
                Err(wgpu::PollError::Timeout) => return Err(HostError::Timeout(PATIENCE)),
                Err(e) => {
                    self.faults.check()?;
                    return Err(HostError::Device(e.to_string()));
                }
            }
        }
    }
}

/// A rough count of multiply-adds.
pub(super) fn work_of(args: &Args) -> u64 {
    match args {
        Args::Linear(p) => u64::from(p.rows) * u64::from(p.k) * u64::from(p.n_tokens) * u64::from(p.digits),
        Args::LinearPair(p) => u64::from(p.rows) * u64::from(p.k) * u64::from(p.n_tokens) * u64::from(p.digits),
        Args::GateUp(p) => 2 * u64::from(p.dim) * u64::from(p.k) * u64::from(p.n_tokens) * u64::from(p.digits),
        Args::Attention(p) => work_of_attention(p),
        Args::AttentionQuantize(p) => work_of_attention(&p.attention()),
        // token after token, and more is done with each product than to add it up
        Args::DeltaRule(p) => 16 * u64::from(p.n_tokens) * u64::from(p.heads) * u64::from(p.size).pow(2),
        Args::SsmScan(p) => 8 * u64::from(p.n_tokens) * u64::from(p.heads) * u64::from(p.head_dim) * u64::from(p.state),
        _ => 1 << 16,
    }
}

fn work_of_attention(p: &AttentionParams) -> u64 {
    // of the last token, and more for a window's chunks that are not whole
    let most = if p.scope == SCOPE_OWN { CHUNK as u32 } else { p.page_len };
    let reach = if p.window == 0 { u32::MAX } else { p.window.saturating_add(p.n_tokens.min(32) + CHUNK as u32) };
    let positions = u64::from(most.min(p.chunks * CHUNK as u32).min(reach));
    u64::from(p.n_tokens) * u64::from(p.heads) * u64::from(p.head_dim) * 2 * positions
}

impl Device for GpuDevice {
    fn set_stop(&mut self, stop: Stop) {
        self.stop = stop;
    }

    fn stop(&self) -> Stop {
        self.stop.clone()
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: self.title.clone(), max_binding_words: (self.max_binding() / 4) as usize }
    }

    fn load<'a>(&'a mut self, plan: Plan, weights: &'a mut dyn WeightSource) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.load_plan(plan, weights).boxed_local()
    }

    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>> {
        self.run_step(step).boxed_local()
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn start<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.start_step(step).boxed_local()
    }

    fn ahead(&self) -> usize {
        if self.program.as_ref().is_some_and(|p| p.plan.selected.is_some()) { AHEAD } else { 0 }
    }

    fn submit<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.submit_step(step).boxed_local()
    }

    fn collect<'a>(&'a mut self, best: &'a mut Vec<Best>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.collect_step(best).boxed_local()
    }

    fn begin<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.begin_step(step).boxed_local()
    }

    fn run_one(&mut self, command: usize) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        self.run_command(command).boxed_local()
    }

    fn run_range(&mut self, commands: Range<usize>) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        let started = Instant::now();
        let submitted = self.submit_range(commands);
        self.stats.host += started.elapsed();
        self.stats.commands += submitted.as_ref().map_or(0, |n| *n as u64);
        futures::future::ready(submitted.map(drop).map_err(Into::into)).boxed_local()
    }

    fn run_list<'a>(&'a mut self, commands: &'a [usize]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        let of = |&command: &usize| self.begun.iter().find(|(i, _)| *i == command).copied();
        let some: Vec<_> = commands.iter().filter_map(of).collect();
        futures::future::ready(self.submit_some(&some).map(drop).map_err(Into::into)).boxed_local()
    }

    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        async move {
            let words = self.program()?.plan.buffers[buffer].words;
            self.read_buffers(&[(buffer, 0..words)]).await
        }
        .boxed_local()
    }

    fn read_part(&mut self, buffer: BufId, part: Range<usize>) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        async move { self.read_buffers(&[(buffer, part)]).await }.boxed_local()
    }

    fn read_parts<'a>(
        &'a mut self,
        parts: &'a [(BufId, Range<usize>)],
    ) -> LocalBoxFuture<'a, anyhow::Result<Vec<Vec<u32>>>> {
        async move {
            let mut words = self.read_buffers(parts).await?.into_iter();
            Ok(parts.iter().map(|(_, part)| words.by_ref().take(part.len()).collect()).collect())
        }
        .boxed_local()
    }

    fn take_stats(&mut self) -> Stats {
        std::mem::take(&mut self.stats)
    }

    fn kernels(&self) -> Vec<String> {
        self.program.as_ref().map_or_else(Vec::new, Program::ran)
    }

    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.write_part(buffer, 0, words)
    }

    fn write_part<'a>(
        &'a mut self,
        buffer: BufId,
        first: usize,
        words: &'a [u32],
    ) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        async move {
            let (target, at) = self.program()?.place(buffer);
            self.queue.write_buffer(target, at + first as u64 * 4, bytemuck::cast_slice(words));
            self.queue.submit([]);
            Ok(self.faults.check()?)
        }
        .boxed_local()
    }
}
