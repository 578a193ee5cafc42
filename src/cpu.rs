//! The CPU device: runs a plan with the twins, or with the SIMD code that gives the same bits.

pub mod choice;
mod tune;

use crate::blocks::BlockType;
use crate::blocks::wide::{Packing, Wide};
use crate::ops;
use crate::ops::add::AddParams;
use crate::ops::altup_add::AltupAddParams;
use crate::ops::altup_predict::OTHERS;
use crate::ops::attention::AttentionParams;
use crate::ops::attention_quantize::AttentionQuantizeParams;
use crate::ops::channel_quantize::ChannelQuantizeParams;
use crate::ops::channel_scale::ChannelScaleParams;
use crate::ops::copy_columns::CopyColumnsParams;
use crate::ops::embed::EmbedParams;
use crate::ops::expert_combine::ExpertCombineParams;
use crate::ops::gate_up::GateUpParams;
use crate::ops::linear::{LinearParams, act_words};
use crate::ops::matvec_pair::LinearPairParams;
use crate::ops::places::Places;
use crate::ops::rope::RopeParams;
use crate::ops::scale::ScaleParams;
use crate::ops::softcap::SoftcapParams;
use crate::ops::strands::Strands;
use crate::ops::swiglu_oai::SwigluOaiParams;
use crate::ops::top_k::PAIR;
use crate::ops::types::twins;
use crate::record::{Args, Best, BufId, Command, Device, DeviceInfo, Job, Plan, Stats, Step, WeightSource};
use crate::simd::team::{self, Team};
use crate::simd::{self, Act, Kernel, Level, Words, fused};
use crate::stop::{Interrupted, Stop};
use choice::{Found, Way};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
pub use tune::{Codebooks, Tuning};

/// Tokens from which on a step is one of many: shorter ones run a token at a time.
const MANY: usize = 4;

/// Choices made when the device is made.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// `None` runs the plain twins
    pub level: Option<Level>,
    /// worker threads; 0: one per core
    pub threads: usize,
    /// pretend the binding limit is this many bytes (to test splitting)
    pub max_binding: Option<u64>,
}

impl Default for CpuOptions {
    fn default() -> CpuOptions {
        CpuOptions { level: Some(Level::detect()), threads: 0, max_binding: None }
    }
}

/// The system would not start so many threads.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {threads} worker threads; use fewer")]
pub struct ThreadsError {
    /// how many were to be started; 0: one per core
    pub threads: usize,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl ThreadsError {
    fn new(threads: usize, source: impl std::error::Error + Send + Sync + 'static) -> ThreadsError {
        ThreadsError { threads, source: Box::new(source) }
    }
}

/// How steps run: the twins where there is no kernel.
#[derive(Clone)]
struct Runs {
    kernel: Option<Kernel>,
    team: Arc<Team>,
}

/// The CPU with a loaded plan.
pub struct CpuDevice {
    options: CpuOptions,
    team: Arc<Team>,
    tuning: Tuning,
    /// ways that were asked for
    asked: Option<(Way, Way)>,
    /// what the tuner chose for the plan
    found: Option<Found>,
    /// how steps of few tokens run, and of many
    few: Runs,
    many: Runs,
    plan: Plan,
    buffers: Vec<Words>,
    stats: Stats,
    stop: Stop,
    /// words the step under way selected
    selected: Option<usize>,
    /// the step that is run command by command, without its inputs
    begun: Step,
}

impl CpuDevice {
    /// Starts the worker threads.
    pub fn new(options: CpuOptions) -> anyhow::Result<CpuDevice> {
        let team = Team::new(options.threads).map_err(|e| ThreadsError::new(options.threads, e))?;
        let rule = Runs { kernel: options.level.map(Kernel::from), team: team.clone() };
        Ok(CpuDevice {
            options,
            team,
            tuning: Tuning::default(),
            asked: None,
            found: None,
            few: rule.clone(),
            many: rule,
            plan: Plan::default(),
            buffers: Vec::new(),
            stats: Stats::default(),
            stop: Stop::default(),
            selected: None,
            begun: Step::default(),
        })
    }

    /// The threads that commands run on, for who measures beside them.
    pub fn team(&self) -> &Arc<Team> {
        &self.team
    }

    /// From the next plan on, measures as it says how steps run best. Without, they run as the rules say.
    pub fn tune(&mut self, tuning: Tuning) {
        self.tuning = tuning;
    }

    /// What the tuner chose for the loaded plan; `None` where it was not asked, or there was nothing to choose.
    pub fn found(&self) -> Option<&Found> {
        self.found.as_ref()
    }

    /// From the next plan on, runs steps of few tokens and of many in these ways, whatever is measured. Loading fails where
    /// the threads cannot be started. Panics in a step when this CPU does not have a level.
    pub fn run_as(&mut self, few: Way, many: Way) {
        self.asked = Some((few, many));
    }

    /// Chooses how steps of the loaded plan run.
    fn choose(&mut self) -> anyhow::Result<()> {
        let rule = Runs { kernel: self.options.level.map(Kernel::from), team: self.team.clone() };
        (self.found, self.few, self.many) = (None, rule.clone(), rule.clone());
        let Some(kernel) = rule.kernel else { return Ok(()) };
        let way = Way { kernel, threads: self.team.threads() };
        let mut teams = BTreeMap::from([(way.threads, self.team.clone())]);
        let ways = match self.asked {
            Some(asked) => asked,
            None => {
                let loaded = (&self.plan, &self.buffers[..]);
                self.found = tune::tune(&self.tuning, loaded, way, &mut teams, &self.stop)?;
                self.found.as_ref().map_or((way, way), |found| (found.few.way, found.many.way))
            }
        };
        let mut runs = |way: Way| -> Result<Runs, ThreadsError> {
            let team = match teams.entry(way.threads) {
                Entry::Occupied(team) => team.get().clone(),
                Entry::Vacant(place) => {
                    let team = Team::new(way.threads).map_err(|e| ThreadsError::new(way.threads, e))?;
                    place.insert(team).clone()
                }
            };
            Ok(Runs { kernel: Some(way.kernel), team })
        };
        (self.few, self.many) = (runs(ways.0)?, runs(ways.1)?);
        Ok(())
    }

    /// How a step runs.
    fn runs(&self, step: &Step) -> &Runs {
        if step.n_tokens < MANY { &self.few } else { &self.many }
    }

    /// Words of all buffers together.
    pub fn words(&self) -> usize {
        self.buffers.iter().map(|b| b.len()).sum()
    }

    fn write_inputs(&mut self, step: &Step) {
        assert!(
            step.n_tokens <= self.plan.max_tokens,
            "{} tokens in a plan for {}",
            step.n_tokens,
            self.plan.max_tokens
        );
        for (id, words) in &step.inputs {
            self.buffers[*id][..words.len()].copy_from_slice(words);
        }
        if let Some(placing) = self.plan.placing {
            placing.put(step, &mut self.buffers[placing.buffer]);
            if let Some(id) = placing.outputs {
                placing.put_outputs(step, &mut self.buffers[id]);
            }
        }
        if let Some(id) = step.follow {
            let selected = self.plan.selected.expect("a step that follows another asks for a plan that selects");
            self.buffers[id][0] = self.buffers[selected][1];
        }
    }

    fn command(&mut self, index: usize, step: &Step) {
        let command = &self.plan.recording.commands[index];
        if let Some(args) = command.args_for(step) {
            let kernel = if step.n_tokens < MANY { self.few.kernel } else { self.many.kernel };
            run(kernel, command, &args, &mut self.buffers, &self.stop);
            self.stats.commands += 1;
        }
    }

    /// Every command of the step, on the team.
    fn step(&mut self, step: &Step) -> Result<(), Interrupted> {
        self.write_inputs(step);
        self.stats.steps += 1;
        self.commands(0..self.plan.recording.commands.len(), step)
    }

    /// Commands of the step, on the team. Looks at the flag after each: its loops leave tasks out where the flag is up.
    fn commands(&mut self, indices: Range<usize>, step: &Step) -> Result<(), Interrupted> {
        let (team, stop) = (self.runs(step).team.clone(), self.stop.clone());
        team.install_until(&stop, || {
            for i in indices {
                self.command(i, step);
                stop.check()?;
            }
            Ok(())
        })
    }

    fn logits(&self, step: &Step) -> &[f32] {
        let words = self.plan.logits.map_or(&[][..], |id| &self.buffers[id]);
        &floats(words)[..step.n_out * self.plan.width]
    }
}

/// Bindings of a command, at most.
const BINDS: usize = 16;

/// Buffers a command writes, at most.
const OUTPUTS: usize = 4;

/// Takes the written buffers out of the list, runs the operation, and puts them back.
fn run(kernel: Option<Kernel>, command: &Command, args: &Args, buffers: &mut [Words], stop: &Stop) {
    let job = command.op.with(args).unwrap_or_else(|| panic!("{} has {args:?}", command.title()));
    let outputs = command.outputs();
    let read = &command.binds[..command.binds.len() - outputs.len()];
    assert!(read.len() <= BINDS && outputs.len() <= OUTPUTS, "{} binds {}", command.title(), command.binds.len());
    let mut out: [Words; OUTPUTS] = Default::default();
    for (out, &id) in out.iter_mut().zip(outputs) {
        *out = std::mem::take(&mut buffers[id]);
    }
    let mut inputs: [&[u32]; BINDS] = [&[]; BINDS];
    for (input, &id) in inputs.iter_mut().zip(read) {
        *input = &buffers[id];
    }
    let (inputs, written) = (&inputs[..read.len()], &mut out[..outputs.len()]);
    let cut = kernel.is_none() && stop.may_be_asked() && by_token(job, inputs, written, stop);
    if !cut {
        operation(kernel, job, inputs, written);
    }
    for (&id, words) in outputs.iter().zip(out) {
        buffers[id] = words;
    }
}

/// Runs the twin of a command that may take seconds, token by token until it is asked to stop: a twin is one plain loop
/// that looks at no flag. False for every other command, of which nothing is done.
fn by_token(job: Job, inputs: &[&[u32]], out: &mut [Words], stop: &Stop) -> bool {
    let tokens = |n: u32| (0..n).take_while(|_| !stop.asked()).map(|t| (t, t as usize));
    let blocks = |k: u32, digits: u32| act_words(k as usize, digits as usize);
    match job {
        Job::Matvec(t, p) => {
            let words = if t.is_float() { p.k as usize } else { blocks(p.k, p.digits) };
            for (token, at) in tokens(p.n_tokens) {
                let one = LinearParams { n_tokens: 1, y_offset: p.y_offset + token * p.y_stride, ..*p };
                operation(None, Job::Matvec(t, &one), &[inputs[0], &inputs[1][at * words..]], out);
            }
        }
        Job::MatvecPair(a, b, p) => {
            for (token, at) in tokens(p.n_tokens) {
                let one = LinearPairParams { n_tokens: 1, y_offset: p.y_offset + token * p.y_stride, ..*p };
                let act = &inputs[1][at * blocks(p.k, p.digits)..];
                operation(None, Job::MatvecPair(a, b, &one), &[inputs[0], act], out);
            }
        }
        Job::GateUp(t, p) => {
            for (_, at) in tokens(p.n_tokens) {
                let (one, act) = (GateUpParams { n_tokens: 1, ..*p }, &inputs[1][at * blocks(p.k, p.digits)..]);
                ops::gate_up::gate_up(t, &one, inputs[0], act, &mut out[0][at * blocks(p.dim, p.digits)..]);
            }
        }
        Job::Attention(kt, vt, p) => {
            let [state, y] = out else { unreachable!("attention writes two buffers") };
            let row = (p.heads * p.head_dim) as usize;
            for (_, at) in tokens(p.n_tokens) {
                let one = AttentionParams { n_tokens: 1, ..*p };
                let places = Places::new(inputs[3]).from(at);
                let (q, k, v) = (&floats(inputs[0])[at * row..], inputs[1], inputs[2]);
                let (state, y) = (carried(state, p, at), bytemuck::cast_slice_mut(&mut y[at * row..]));
                ops::attention::attention((kt, vt), &one, q, k, v, places, state, y);
            }
        }
        Job::AttentionQuantize(kt, vt, p) => {
            let [state, act] = out else { unreachable!("attention writes two buffers") };
            let (row, words) = ((p.heads * p.head_dim) as usize, blocks(p.heads * p.head_dim, p.digits));
            for (_, at) in tokens(p.n_tokens) {
                let one = AttentionQuantizeParams { n_tokens: 1, ..*p };
                let places = Places::new(inputs[3]).from(at);
                let (q, k, v) = (&floats(inputs[0])[at * row..], inputs[1], inputs[2]);
                let (state, act) = (carried(state, &p.attention(), at), &mut act[at * words..]);
                ops::attention_quantize::attention_quantize((kt, vt), &one, q, k, v, places, state, act);
            }
        }
        _ => return false,
    }
    true
}

/// What attention carries from page to page, from a token on; empty where one page is the whole context.
fn carried<'a>(state: &'a mut Words, p: &AttentionParams, token: usize) -> &'a mut [f32] {
    let at = token * (p.heads * (p.head_dim + 2)) as usize;
    bytemuck::cast_slice_mut(state.get_mut(at..).unwrap_or_default())
}

/// A future that is done: without state, so that boxing it takes no memory.
struct Done;

impl std::future::Future for Done {
    type Output = anyhow::Result<()>;

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context) -> std::task::Poll<Self::Output> {
        std::task::Poll::Ready(Ok(()))
    }
}

fn floats(words: &[u32]) -> &[f32] {
    bytemuck::cast_slice(words)
}

/// Elements of an operation element by element that are worth a task.
const ELEMENTS: usize = 2048;

/// The rows a command writes: `n` of `width`.
fn rows_mut(words: &mut [u32], n: u32, width: u32) -> &mut [f32] {
    bytemuck::cast_slice_mut(&mut words[..n as usize * width as usize])
}

#[expect(clippy::too_many_lines, reason = "one arm for each operation")]
fn operation(kernel: Option<Kernel>, job: Job, inputs: &[&[u32]], out: &mut [Words]) {
    let level = kernel.map(|k| k.level);
    match job {
        Job::Encode(t, p) => ops::encode::encode(t, p, floats(inputs[0]), &mut out[0]),
        Job::Embed(t, p) => {
            let (dim, x) = (p.dim as usize, rows_mut(&mut out[0], p.n_tokens, p.dim));
            team::chunks_mut(x, dim, 1, |first, x| {
                let n_tokens = (x.len() / dim) as u32;
                (twins(t).embed)(&EmbedParams { n_tokens, ..*p }, &inputs[0][first..], inputs[1], x);
            });
        }
        Job::Matvec(t, p) => matvec(kernel, t, p, inputs[0], inputs[1], bytemuck::cast_slice_mut(&mut out[0])),
        Job::ActQuantize(p) => match level {
            Some(level) => simd::act_quantize(level, p, floats(inputs[0]), &mut out[0]),
            None => ops::act_quantize::act_quantize(p, floats(inputs[0]), &mut out[0]),
        },
        Job::RowQuantize(p) => match level {
            Some(level) => simd::row_quantize(level, p, floats(inputs[0]), &mut out[0]),
            None => ops::row_quantize::row_quantize(p, floats(inputs[0]), &mut out[0]),
        },
        Job::RmsNorm(p) => {
            let (dim, x, w) = (p.dim as usize, floats(inputs[0]), floats(inputs[1]));
            team::chunks_mut(rows_mut(&mut out[0], p.n_tokens, p.dim), dim, 1, |first, y| {
                for (y, x) in y.chunks_exact_mut(dim).zip(x[first * dim..].chunks_exact(dim)) {
                    match level {
                        Some(level) => simd::rms_norm_row(level, p, x, w, y),
                        None => ops::rms_norm::row(p, x, w, y),
                    }
                }
            });
        }
        Job::HeadNorms(p) => {
            let (dim, w) = (p.dim as usize, floats(inputs[0]));
            team::chunks_mut(
                rows_mut(&mut out[0], p.n_tokens, p.width()),
                dim,
                ELEMENTS.div_ceil(8 * dim),
                |first, x| {
                    for (i, x) in (first..).zip(x.chunks_exact_mut(dim)) {
                        match (ops::head_norms::weights(p, i, w), level) {
                            (Some(w), Some(level)) => simd::rms_norm_in_place(level, &p.norm(), w, x),
                            (Some(w), None) => ops::head_norms::one(p, w, x),
                            (None, _) => {}
                        }
                    }
                },
            );
        }
        Job::Rope(p) => {
            let (width, table) = ((p.heads * p.head_dim) as usize, floats(inputs[0]));
            let x = rows_mut(&mut out[0], p.n_tokens, p.heads * p.head_dim);
            team::chunks_mut(x, width, 1, |first, x| {
                let p = RopeParams { n_tokens: (x.len() / width) as u32, ..*p };
                let table = &table[first * p.n_rot as usize..];
                match level {
                    Some(level) => simd::rope(level, &p, table, x),
                    None => ops::rope::rope(&p, table, x),
                }
            });
        }
        Job::CacheWriteK(t, p) => {
            let (k, v, places) = (floats(inputs[0]), floats(inputs[1]), Places::new(inputs[2]));
            match level {
                Some(level) => simd::cache_write_k(level, t, p, places, k, v, &mut out[0]),
                None => ops::cache::cache_write_k(t, p, places, k, v, &mut out[0]),
            }
        }
        Job::CacheWriteV(t, p) => {
            let (v, places) = (floats(inputs[0]), Places::new(inputs[1]));
            match level {
                Some(level) => simd::cache_write_v(level, t, p, places, v, &mut out[0]),
                None => ops::cache::cache_write_v(t, p, places, v, &mut out[0]),
            }
        }
        Job::Attention(kt, vt, p) => {
            let [state, y] = out else { unreachable!("attention writes two buffers") };
            let (q, k, v, places) = (floats(inputs[0]), inputs[1], inputs[2], Places::new(inputs[3]));
            let (state, y) = (bytemuck::cast_slice_mut(state), bytemuck::cast_slice_mut(y));
            match level {
                Some(level) => simd::attention(level, (kt, vt), p, q, k, v, places, state, y),
                None => ops::attention::attention((kt, vt), p, q, k, v, places, state, y),
            }
        }
        Job::AttentionQuantize(kt, vt, p) => {
            let [state, blocks] = out else { unreachable!("attention writes two buffers") };
            let (q, k, v, places) = (floats(inputs[0]), inputs[1], inputs[2], Places::new(inputs[3]));
            let state = bytemuck::cast_slice_mut(state);
            match level {
                Some(level) => fused::attention_quantize(level, (kt, vt), p, q, k, v, places, state, blocks),
                None => ops::attention_quantize::attention_quantize((kt, vt), p, q, k, v, places, state, blocks),
            }
        }
        Job::AttentionSinks(p) => {
            ops::attention_sinks::attention_sinks(p, floats(inputs[0]), bytemuck::cast_slice_mut(&mut out[0]));
        }
        Job::Swiglu(p) => {
            let y = rows_mut(&mut out[0], p.n_tokens, p.dim);
            let (g, u) = (&floats(inputs[0])[..y.len()], &floats(inputs[1])[..y.len()]);
            match level {
                Some(level) => team::chunks_mut(y, 1, ELEMENTS, |first, y| {
                    simd::swiglu(level, &g[first..][..y.len()], &u[first..][..y.len()], y)
                }),
                None => ops::swiglu::swiglu(p, g, u, y),
            }
        }
        Job::Geglu(p) => {
            let y = rows_mut(&mut out[0], p.n_tokens, p.dim);
            let (g, u) = (&floats(inputs[0])[..y.len()], &floats(inputs[1])[..y.len()]);
            match level {
                Some(level) => team::chunks_mut(y, 1, ELEMENTS, |first, y| {
                    simd::geglu(level, p.erf == 1, &g[first..][..y.len()], &u[first..][..y.len()], y)
                }),
                None => ops::geglu::geglu(p, g, u, y),
            }
        }
        Job::Gelu(p) => {
            let y = rows_mut(&mut out[0], p.n_tokens, p.dim);
            let x = &floats(inputs[0])[..y.len()];
            match level {
                Some(level) => team::chunks_mut(y, 1, ELEMENTS, |first, y| {
                    simd::gelu(level, p.erf == 1, &x[first..][..y.len()], y)
                }),
                None => ops::gelu::gelu(p, x, y),
            }
        }
        Job::LayerNorm(p) => {
            let (dim, [x, w, b]) = (p.dim as usize, [0, 1, 2].map(|i| floats(inputs[i])));
            team::chunks_mut(rows_mut(&mut out[0], p.n_tokens, p.dim), dim, 1, |first, y| {
                for (r, y) in (first..).zip(y.chunks_exact_mut(dim)) {
                    let (x, w) = (&x[r * dim..][..dim], p.of_row(r, w));
                    let b = if p.biased == 1 { p.of_row(r, b) } else { &[] };
                    match level {
                        Some(level) => simd::layer_norm_row(level, p, x, w, b, y),
                        None => ops::layer_norm::row(p, x, w, b, y),
                    }
                }
            });
        }
        Job::Scale(p) => {
            team::chunks_mut(rows_mut(&mut out[0], p.n_tokens, p.dim), 1, ELEMENTS, |_, x| {
                ops::scale::scale(&ScaleParams { n_tokens: 1, dim: x.len() as u32, ..*p }, x);
            });
        }
        Job::Softcap(p) => {
            team::chunks_mut(rows_mut(&mut out[0], p.n_tokens, p.dim), 1, ELEMENTS, |_, x| match level {
                Some(level) => simd::softcap(level, p.cap, p.inv_cap, x),
                None => ops::softcap::softcap(&SoftcapParams { n_tokens: 1, dim: x.len() as u32, ..*p }, x),
            });
        }
        Job::Add(p) => {
            let y = floats(inputs[0]);
            team::chunks_mut(rows_mut(&mut out[0], p.n_tokens, p.dim), 1, ELEMENTS, |first, x| {
                ops::add::add(&AddParams { n_tokens: 1, dim: x.len() as u32 }, &y[first..], x);
            });
        }
        Job::AddBias(p) => {
            ops::add_bias::add_bias(p, floats(inputs[0]), bytemuck::cast_slice_mut(&mut out[0]));
        }
        Job::ChannelQuantize(p) => {
            let (dim, scale, offset) = (p.dim as usize, floats(inputs[0]), floats(inputs[1]));
            team::chunks_mut(rows_mut(&mut out[0], p.n_tokens, p.dim), dim, ELEMENTS.div_ceil(dim), |_, x| {
                let p = ChannelQuantizeParams { n_tokens: (x.len() / dim) as u32, ..*p };
                ops::channel_quantize::channel_quantize(&p, scale, offset, x);
            });
        }
        Job::ChannelScale(p) => {
            let (scale, offset) = (floats(inputs[0]), floats(inputs[1]));
            let width = (p.heads * p.head_dim) as usize;
            let x = rows_mut(&mut out[0], p.n_tokens, p.heads * p.head_dim);
            team::chunks_mut(x, width, ELEMENTS.div_ceil(width), |_, x| {
                let p = ChannelScaleParams { n_tokens: (x.len() / width) as u32, ..*p };
                ops::channel_scale::channel_scale(&p, scale, offset, x);
            });
        }
        Job::CopyColumns(p) => {
            let (x, width) = (floats(inputs[0]), p.y_stride as usize);
            team::chunks_mut(
                rows_mut(&mut out[0], p.n_tokens, p.y_stride),
                width,
                ELEMENTS.div_ceil(width),
                |first, y| {
                    let p = CopyColumnsParams { n_tokens: (y.len() / width) as u32, ..*p };
                    ops::copy_columns::copy_columns(&p, &x[first * p.x_stride as usize..], y);
                },
            );
        }
        Job::SelectRows(p) => {
            ops::select_rows::select_rows(p, floats(inputs[0]), bytemuck::cast_slice_mut(&mut out[0]));
        }
        Job::TopK(p) => match level {
            Some(_) => simd::top_k(p, inputs[0], &mut out[0]),
            None => ops::top_k::top_k(p, inputs[0], &mut out[0]),
        },
        Job::NormQuantize(p) => {
            let (x, w) = (floats(inputs[0]), floats(inputs[1]));
            match level {
                Some(level) => fused::norm_quantize(level, p, x, w, &mut out[0]),
                None => ops::norm_quantize::norm_quantize(p, x, w, &mut out[0]),
            }
        }
        Job::SwigluQuantize(p) => match level {
            Some(level) => fused::swiglu_quantize(level, p, floats(inputs[0]), &mut out[0]),
            None => ops::swiglu_quantize::swiglu_quantize(p, floats(inputs[0]), &mut out[0]),
        },
        Job::RopeCacheWrite(kt, vt, p) => {
            let [q, keys, values] = out else { unreachable!("rope_cache_write writes three buffers") };
            let (table, qkv, q) = (floats(inputs[0]), floats(inputs[1]), bytemuck::cast_slice_mut(q));
            let (t, places) = ((kt, vt), Places::new(inputs[2]));
            match level {
                Some(level) => fused::rope_cache_write(level, t, p, table, qkv, places, q, keys, values),
                None => ops::rope_cache_write::rope_cache_write(t, p, table, qkv, places, q, keys, values),
            }
        }
        Job::RopeChannelCacheWrite(kt, vt, p) => {
            let [q, keys, values] = out else { unreachable!("rope_channel_cache_write writes three buffers") };
            let (table, channels, qkv) = (floats(inputs[0]), floats(inputs[1]), floats(inputs[2]));
            let (t, places, q) = ((kt, vt), Places::new(inputs[3]), bytemuck::cast_slice_mut(q));
            match level {
                Some(level) => {
                    fused::rope_channel_cache_write(level, t, p, table, channels, qkv, places, q, keys, values)
                }
                None => {
                    let twin = ops::rope_channel_cache_write::rope_channel_cache_write;
                    twin(t, p, table, channels, qkv, places, q, keys, values);
                }
            }
        }
        Job::MatvecPair(a, b, p) => {
            let (w, act, y) = (inputs[0], inputs[1], bytemuck::cast_slice_mut(&mut out[0]));
            match kernel {
                Some(kernel) => fused::matvec_pair(kernel, (a, b), p, w, act, y),
                None => ops::matvec_pair::matvec_pair((a, b), p, w, act, y),
            }
        }
        Job::GateUp(t, p) => match kernel {
            Some(kernel) => fused::gate_up(kernel, t, p, inputs[0], inputs[1], &mut out[0]),
            None => ops::gate_up::gate_up(t, p, inputs[0], inputs[1], &mut out[0]),
        },
        Job::Router(p) => {
            let [ids, weights] = out else { unreachable!("router writes two buffers") };
            let (logits, bias, weights) = (floats(inputs[0]), floats(inputs[1]), bytemuck::cast_slice_mut(weights));
            match level {
                Some(_) => simd::router(p, logits, bias, ids, weights),
                None => ops::router::router(p, logits, bias, ids, weights),
            }
        }
        Job::ExpertOrder(p) => match level {
            Some(_) => simd::expert_order(p, inputs[0], &mut out[0]),
            None => ops::expert_order::expert_order(p, inputs[0], &mut out[0]),
        },
        Job::ExpertMatvec(t, p) => {
            let (w, act, y) = (inputs[0], inputs[1], bytemuck::cast_slice_mut(&mut out[0]));
            let x = if t.is_float() { Act::Floats(floats(act)) } else { Act::Blocks(act) };
            match kernel {
                Some(kernel) => simd::expert_matvec(kernel, t, p, w, x, inputs[2], inputs[3], y),
                None => ops::expert_linear::expert_linear(t, p, w, act, inputs[2], y),
            }
        }
        // one look at few numbers
        Job::ExpertBias(p) => {
            ops::expert_bias::expert_bias(p, floats(inputs[0]), inputs[1], bytemuck::cast_slice_mut(&mut out[0]));
        }
        Job::ExpertScale(p) => {
            ops::expert_scale::expert_scale(p, floats(inputs[0]), inputs[1], bytemuck::cast_slice_mut(&mut out[0]));
        }
        Job::ExpertCombine(p) => {
            let (y, weights) = (floats(inputs[0]), floats(inputs[1]));
            match level {
                Some(level) => combine(level, p, y, weights, rows_mut(&mut out[0], p.n_tokens, p.dim)),
                None => ops::expert_combine::expert_combine(p, y, weights, bytemuck::cast_slice_mut(&mut out[0])),
            }
        }
        Job::SigmoidGate(p) => {
            let (g, y) = (floats(inputs[0]), rows_mut(&mut out[0], p.n_tokens, p.dim));
            match level {
                Some(level) if p.gates == p.dim => team::chunks_mut(y, 1, ELEMENTS, |first, y| {
                    simd::sigmoid_gate(level, &g[first..][..y.len()], y);
                }),
                _ => ops::sigmoid_gate::sigmoid_gate(p, g, y),
            }
        }
        Job::SwigluOai(p) => {
            let (dim, x) = (p.dim as usize, floats(inputs[0]));
            team::chunks_mut(rows_mut(&mut out[0], p.n_tokens, p.dim), dim, 1, |first, y| {
                let (p, x) = (SwigluOaiParams { n_tokens: (y.len() / dim) as u32, ..*p }, &x[2 * first * dim..]);
                match level {
                    Some(level) => {
                        for (y, x) in y.chunks_exact_mut(dim).zip(x.chunks_exact(2 * dim)) {
                            simd::swiglu_oai(level, &x[..dim], &x[dim..], p.limit, y);
                        }
                    }
                    None => ops::swiglu_oai::swiglu_oai(&p, x, y),
                }
            });
        }
        Job::ConvSilu(p) => {
            let [state, qk, v] = out else { unreachable!("conv_silu writes three buffers") };
            let (u, w, strands) = (floats(inputs[0]), floats(inputs[1]), Strands::new(inputs[2]));
            let [state, qk, v] = [state, qk, v].map(|b| bytemuck::cast_slice_mut(b));
            match level {
                Some(level) => simd::conv_silu(level, p, u, w, strands, state, qk, v),
                None => ops::conv_silu::conv_silu(p, u, w, strands, state, qk, v),
            }
        }
        Job::GdnGates(p) => {
            let ([ba, a, dt], gates) = ([0, 1, 2].map(|i| floats(inputs[i])), bytemuck::cast_slice_mut(&mut out[0]));
            match level {
                Some(level) => simd::gdn_gates(level, p, ba, a, dt, gates),
                None => ops::gdn_gates::gdn_gates(p, ba, a, dt, gates),
            }
        }
        Job::DeltaRule(p) => {
            let [state, o] = out else { unreachable!("delta_rule writes two buffers") };
            let ([qk, v, gates], strands) = ([0, 1, 2].map(|i| floats(inputs[i])), Strands::new(inputs[3]));
            let (state, o) = (bytemuck::cast_slice_mut(state), bytemuck::cast_slice_mut(o));
            match level {
                Some(level) => simd::delta_rule(level, p, qk, v, gates, strands, state, o),
                None => ops::delta_rule::delta_rule(p, qk, v, gates, strands, state, o),
            }
        }
        Job::ShortConv(p) => {
            let [state, y] = out else { unreachable!("short_conv writes two buffers") };
            let (x, w, strands) = (floats(inputs[0]), floats(inputs[1]), Strands::new(inputs[2]));
            let (state, y) = (bytemuck::cast_slice_mut(state), bytemuck::cast_slice_mut(y));
            match level {
                Some(level) => simd::short_conv(level, p, x, w, strands, state, y),
                None => ops::short_conv::short_conv(p, x, w, strands, state, y),
            }
        }
        Job::SsmDiscretize(p) => {
            let ([x, a, bias], gates) = ([0, 1, 2].map(|i| floats(inputs[i])), bytemuck::cast_slice_mut(&mut out[0]));
            match level {
                Some(level) => simd::ssm_discretize(level, p, x, a, bias, gates),
                None => ops::ssm_discretize::ssm_discretize(p, x, a, bias, gates),
            }
        }
        Job::SsmScan(p) => {
            let [memory, y] = out else { unreachable!("ssm_scan writes two buffers") };
            let ([x, bc, gates, d], strands) = ([0, 1, 2, 3].map(|i| floats(inputs[i])), Strands::new(inputs[4]));
            let (memory, y) = (bytemuck::cast_slice_mut(memory), bytemuck::cast_slice_mut(y));
            match level {
                Some(level) => simd::ssm_scan(level, p, x, bc, gates, d, strands, memory, y),
                None => ops::ssm_scan::ssm_scan(p, x, bc, gates, d, strands, memory, y),
            }
        }
        Job::AltupRescale(p) => {
            let (x, dim) = (floats(inputs[0]), p.dim as usize);
            team::chunks_mut(rows_mut(&mut out[0], p.n_tokens, OTHERS as u32 * p.dim), dim, 1, |first, others| {
                for (i, other) in (first..).zip(others.chunks_exact_mut(dim)) {
                    let x = &x[i / OTHERS * dim..][..dim];
                    match level {
                        Some(level) => simd::altup_rescale(level, p, x, other),
                        None => ops::altup_rescale::rescale(p, x, other),
                    }
                }
            });
        }
        Job::AltupPredict(p) => {
            let [x, others] = out else { unreachable!("altup_predict writes two buffers") };
            let (c, x, others) = (floats(inputs[0]), bytemuck::cast_slice_mut(x), bytemuck::cast_slice_mut(others));
            match level {
                Some(level) => simd::altup_predict(level, p, c, x, others),
                None => ops::altup_predict::altup_predict(p, c, x, others),
            }
        }
        Job::AltupCorrect(p) => {
            let [a, x, others] = out else { unreachable!("altup_correct writes three buffers") };
            let (c, scale) = (floats(inputs[0]), floats(inputs[1]));
            let [a, x, others] = [a, x, others].map(|b| bytemuck::cast_slice_mut(b));
            match level {
                Some(level) => simd::altup_correct(level, p, c, scale, a, x, others),
                None => ops::altup_correct::altup_correct(p, c, scale, a, x, others),
            }
        }
        Job::AltupAdd(p) => {
            let (y, dim) = (floats(inputs[0]), p.dim as usize);
            let rows = rows_mut(&mut out[0], p.n_tokens, OTHERS as u32 * p.dim);
            team::chunks_mut(rows, OTHERS * dim, 1, |first, others| {
                let p = AltupAddParams { n_tokens: (others.len() / (OTHERS * dim)) as u32, ..*p };
                ops::altup_add::altup_add(&p, &y[first * dim..], others);
            });
        }
        Job::GaussianTopk(p) => {
            let dim = p.dim as usize;
            team::chunks_mut(rows_mut(&mut out[0], p.n_tokens, p.dim), dim, 1, |_, x| {
                x.chunks_exact_mut(dim).for_each(|row| match level {
                    Some(level) => simd::gaussian_topk_row(level, p, row),
                    None => ops::gaussian_topk::rest_of_row(p, row),
                });
            });
        }
        Job::FloatProbe(p) => ops::float_probe::float_probe(p, floats(inputs[0]), &mut out[0]),
    }
}

/// `expert_combine`, whole rows of many tokens or runs of elements of one.
fn combine(level: Level, p: &ExpertCombineParams, y: &[f32], weights: &[f32], x: &mut [f32]) {
    let (dim, used) = (p.dim as usize, p.used as usize);
    let token = |t: usize, first: usize, x: &mut [f32]| {
        simd::combine(level, p, &y[t * used * dim..][..used * dim], &weights[t * used..][..used], first, x);
    };
    match p.n_tokens {
        1 => team::chunks_mut(x, 1, ELEMENTS, |first, x| token(0, first, x)),
        _ => team::chunks_mut(x, dim, 1, |first, x| {
            (first..).zip(x.chunks_exact_mut(dim)).for_each(|(t, x)| token(t, 0, x))
        }),
    }
}

fn matvec(kernel: Option<Kernel>, t: BlockType, p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    match kernel {
        Some(kernel) if t.is_float() => simd::matvec(kernel, t, p, w, Act::Floats(floats(act)), y),
        Some(kernel) => simd::matvec(kernel, t, p, w, Act::Blocks(act), y),
        None => (twins(t).matvec)(p, w, act, y),
    }
}

/// Threads for a while. rayon's pool does not wait for its own to end, and a thread that ends beside the token loop takes
/// memory and a core; these are gone when it is dropped.
struct Packers {
    pool: Option<rayon::ThreadPool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Packers {
    fn new(n: usize) -> Result<Packers, rayon::ThreadPoolBuildError> {
        let mut threads = Vec::with_capacity(n);
        let start = |thread: rayon::ThreadBuilder| {
            threads.push(std::thread::Builder::new().name("isobit-pack".into()).spawn(|| thread.run())?);
            Ok(())
        };
        let pool = Some(rayon::ThreadPoolBuilder::new().num_threads(n).spawn_handler(start).build()?);
        Ok(Packers { pool, threads })
    }

    fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(f),
            None => f(),
        }
    }
}

impl Drop for Packers {
    fn drop(&mut self) {
        // they are told to end
        self.pool = None;
        for thread in self.threads.drain(..) {
            // what panics in a pool is passed on to who asked for it
            let _ = thread.join();
        }
    }
}

impl Device for CpuDevice {
    fn info(&self) -> DeviceInfo {
        let level = |runs: &Runs| runs.kernel.map_or("scalar", |k| k.level.name());
        let apart = if level(&self.few) == level(&self.many) {
            String::new()
        } else {
            format!(" for one token, {} for many", level(&self.many))
        };
        DeviceInfo {
            name: format!("CPU ({}{apart}, {} threads)", level(&self.few), self.team.threads()),
            max_binding_words: self.options.max_binding.map_or(usize::MAX / 8, |b| (b / 4) as usize),
        }
    }

    fn packing(&mut self, has: Wide) -> Packing {
        let Some(level) = self.options.level else { return Packing::default() };
        Packing::of_all(tune::wide(&self.tuning, has, Kernel::from(level), &self.team))
    }

    fn set_stop(&mut self, stop: Stop) {
        self.stop = stop;
    }

    fn stop(&self) -> Stop {
        self.stop.clone()
    }

    fn load<'a>(&'a mut self, plan: Plan, weights: &'a mut dyn WeightSource) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        async move {
            (self.buffers, self.selected) = (Vec::new(), None);
            // The loader packs with rayon; these threads end with it. A WebAssembly module starts none.
            let pool = (!cfg!(target_family = "wasm"))
                .then(|| Packers::new(self.team.threads()))
                .transpose()
                .map_err(|e| ThreadsError::new(self.team.threads(), e))?;
            // all are mapped before any is written: a huge page may then lie across the end of one
            let mut buffers: Vec<Words> = plan.buffers.iter().map(|b| Words::zeroed(b.words)).collect();
            for (b, words) in plan.buffers.iter().zip(&mut buffers).filter(|(b, _)| b.role.is_loaded()) {
                self.stop.check()?;
                match &pool {
                    Some(pool) => pool.install(|| weights.fill(b, words)),
                    None => weights.fill(b, words),
                }?;
            }
            self.buffers = buffers;
            self.plan = plan;
            self.choose()
        }
        .boxed_local()
    }

    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>> {
        let done = self.step(step);
        futures::future::ready(done.map(|()| self.logits(step).to_vec()).map_err(Into::into)).boxed_local()
    }

    fn run_into<'a>(&'a mut self, step: &'a Step, logits: &'a mut Vec<f32>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        if let Err(e) = self.step(step) {
            return futures::future::ready(Err(e.into())).boxed_local();
        }
        logits.clear();
        logits.extend_from_slice(self.logits(step));
        Box::pin(Done)
    }

    fn ahead(&self) -> usize {
        // a second step would wait for the first
        usize::from(self.plan.selected.is_some())
    }

    fn submit<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        if let Err(e) = self.step(step) {
            return futures::future::ready(Err(e.into())).boxed_local();
        }
        self.selected = Some(step.select * PAIR);
        Box::pin(Done)
    }

    fn collect<'a>(&'a mut self, best: &'a mut Vec<Best>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        let (Some(words), Some(id)) = (self.selected.take(), self.plan.selected) else {
            return futures::future::ready(Err(anyhow::anyhow!("no step is under way"))).boxed_local();
        };
        best.clear();
        best.extend(Best::read(&self.buffers[id][..words]));
        Box::pin(Done)
    }

    fn begin<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.write_inputs(step);
        self.begun = Step { inputs: vec![], ..step.clone() };
        Box::pin(Done)
    }

    fn run_one(&mut self, command: usize) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        self.run_range(command..command + 1)
    }

    fn run_range(&mut self, commands: Range<usize>) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        let step = std::mem::take(&mut self.begun);
        let done = self.commands(commands, &step);
        self.begun = step;
        match done {
            Ok(()) => Box::pin(Done),
            Err(e) => futures::future::ready(Err(e.into())).boxed_local(),
        }
    }

    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        futures::future::ready(Ok(self.buffers[buffer].to_vec())).boxed_local()
    }

    fn read_part(&mut self, buffer: BufId, part: Range<usize>) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        futures::future::ready(Ok(self.buffers[buffer][part].to_vec())).boxed_local()
    }

    fn take_stats(&mut self) -> Stats {
        std::mem::take(&mut self.stats)
    }

    fn write_part<'a>(
        &'a mut self,
        buffer: BufId,
        first: usize,
        words: &'a [u32],
    ) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.buffers[buffer][first..first + words.len()].copy_from_slice(words);
        futures::future::ready(Ok(())).boxed_local()
    }

    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.buffers[buffer][..words.len()].copy_from_slice(words);
        futures::future::ready(Ok(())).boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::synthetic::Synthetic;
    use crate::fuse::Fuse;
    use crate::generate::{Session, SessionOptions, Want};
    use crate::models::{Hyper, PlanOptions};
    use crate::ops::cache::CacheType;
    use crate::record::{BufDecl, Role};
    use crate::store::kept::Kept;
    use crate::store::{Store, Tune};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    static ENDED: AtomicU32 = AtomicU32::new(0);

    /// A thread that has one takes its time to end.
    struct Slow;

    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(100));
            ENDED.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Source;

    impl WeightSource for Source {
        fn fill(&mut self, _: &BufDecl, _: &mut [u32]) -> anyhow::Result<()> {
            thread_local! {
                static SLOW: Slow = const { Slow };
            }
            rayon::broadcast(|_| SLOW.with(|_| ()));
            Ok(())
        }
    }

    #[test]
    fn the_threads_that_pack_weights_have_ended_when_a_plan_is_loaded() {
        let mut device = CpuDevice::new(CpuOptions { threads: 3, ..CpuOptions::default() }).unwrap();
        let role = Role::Given(0);
        let plan = Plan { buffers: vec![BufDecl { name: String::new(), words: 1, role }], ..Plan::default() };
        pollster::block_on(device.load(plan, &mut Source)).unwrap();
        assert_eq!(ENDED.load(Ordering::SeqCst), 3);
    }

    /// Logits of the last two of `n` tokens, and of one more, on a device of two threads; commands run.
    fn logits(
        model: &str,
        level: Option<Level>,
        stop: Stop,
        cache: CacheType,
        n: u32,
    ) -> anyhow::Result<(Vec<u32>, u64)> {
        let mut device = CpuDevice::new(CpuOptions { level, threads: 2, max_binding: None })?;
        logits_on(&mut device, model, stop, cache, n)
    }

    /// [`logits`] on a device.
    fn logits_on(
        device: &mut CpuDevice,
        model: &str,
        stop: Stop,
        cache: CacheType,
        n: u32,
    ) -> anyhow::Result<(Vec<u32>, u64)> {
        let c = Synthetic::parse(model).map_err(anyhow::Error::msg)?.container()?;
        let h = Hyper::read(&c)?;
        let (k_type, v_type, ubatch, max_binding_words) = (cache, cache, n as usize, 1 << 16);
        let plan =
            PlanOptions { n_ctx: 128, ubatch, max_out: 2, k_type, v_type, max_binding_words, ..PlanOptions::default() };
        let options = SessionOptions { plan, memory: None, fuse: Fuse::On };
        futures::executor::block_on(async {
            let mut session = Session::new(device, &c, &h, options, |_| ()).await?;
            session.device().set_stop(stop);
            let mut words = Vec::new();
            for (ids, from) in [((0..n).collect::<Vec<u32>>(), n as usize - 2), (vec![7], 0)] {
                let fed = session.feed(&ids, Want::From(from), |_, row| {
                    words.extend(row.iter().map(|v| v.to_bits()));
                    Ok(())
                });
                fed.await?;
            }
            let commands = session.device().take_stats().commands;
            Ok((words, commands))
        })
    }

    #[test]
    fn a_device_that_may_be_asked_to_stop_gives_the_same_bits() {
        let (f16, tq3) = (CacheType::F16, CacheType::TQ3_1);
        for (model, cache, n, level) in [
            ("llama-tiny:q4_k_m", f16, 9, None),
            ("llama-tiny:q5_k", f16, 9, None),
            ("llama-tiny:f16", f16, 9, None),
            ("qwen2-tiny:q8_0", f16, 9, None),
            ("phi3-tiny:bf16", f16, 9, None),
            // more than a chunk, so that attention goes on from page to page and has a ring of recent positions
            ("llama-tiny:q8_0", tq3, 70, None),
            ("llama-tiny:q4_k_m", f16, 70, Some(Level::Portable)),
        ] {
            let of = |stop| logits(model, level, stop, cache, n).unwrap_or_else(|e| panic!("{model}: {e:#}"));
            assert_eq!(of(Stop::new()), of(Stop::default()), "{model} {cache:?} {level:?}");
        }
    }

    #[test]
    fn what_the_tuner_found_is_used_until_it_is_plainly_wrong_and_changes_no_bit() {
        let kept = Arc::new(Kept::default());
        // 8 MB of weights and more
        let model = "llama-58m:q4_0";
        let run = |when, level_is_forced| {
            let mut device = CpuDevice::new(CpuOptions { threads: 2, ..CpuOptions::default() }).unwrap();
            let store = Some(kept.clone() as Arc<dyn Store>);
            device.tune(Tuning { when, store, level_is_forced, threads_are_forced: true, ..Tuning::default() });
            let got = logits_on(&mut device, model, Stop::default(), CacheType::F16, 9).unwrap();
            (got, device.found().cloned())
        };
        let pages = || kept.texts.lock().unwrap().clone();
        let (want, none) = run(Tune::Off, false);
        assert_eq!((none, pages().len()), (None, 0));
        let others = Level::available().into_iter().filter(|l| *l != Level::Portable).count().saturating_sub(1);
        // the neighbours of a test may leave it too little time, and slow a load down by more than it allows
        let complete = |found: &Option<Found>| found.as_ref().is_some_and(|f| f.many.against.len() == others);
        let first = (0..9).map(|_| run(Tune::Now, false)).find(|(_, found)| complete(found));
        let (got, first) = first.expect("every level is measured");
        assert!(first.is_some() && pages().len() == 1);
        assert_eq!(got, want);
        // a load that measures leaves another page
        let load = |_| (pages(), run(Tune::Auto, false));
        let again = (0..9).map(load).find(|(before, _)| *before == pages());
        let (_, (got, found)) = again.expect("what is remembered is used");
        assert!(found.is_some());
        assert_eq!(got, want);
        // another time than the weights take
        let (name, bytes) = pages().pop_first().unwrap();
        let mut wrong: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let kinds = wrong["choices"].as_object_mut().unwrap();
        for side in kinds.values_mut().flat_map(|sides| sides.as_array_mut().unwrap()) {
            side["us_per_mib"] = 1e9.into();
            side["level"] = "portable".into();
        }
        kept.put(&name, &serde_json::to_vec(&wrong).unwrap());
        let (got, found) = (0..5).map(|_| run(Tune::Auto, false)).find(|(_, found)| found.is_some()).unwrap();
        assert_eq!(got, want);
        assert!(found.unwrap().many.us_per_mib < 1e8);
        assert!(!String::from_utf8(pages()[&name].clone()).unwrap().contains("1000000000"));
        // what is forced has a place of its own in the page
        let (got, forced) = (0..5).map(|_| run(Tune::Now, true)).find(|(_, found)| found.is_some()).unwrap();
        assert_eq!((got, forced.unwrap().few.way.kernel.level), (want, Level::detect()));
        let text = String::from_utf8(pages()[&name].clone()).unwrap();
        assert_eq!(text.matches(" MiB, 8 bits").count(), 2, "{text}");
        assert_eq!(*kept.warnings.lock().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_small_model_is_not_measured() {
        let mut device = CpuDevice::new(CpuOptions { threads: 2, ..CpuOptions::default() }).unwrap();
        device.tune(Tuning { when: Tune::Now, ..Tuning::default() });
        logits_on(&mut device, "llama-tiny", Stop::default(), CacheType::F16, 9).unwrap();
        assert_eq!(device.found(), None);
    }

    #[test]
    fn a_device_that_was_asked_to_stop_runs_no_second_command() {
        for level in [None, Some(Level::detect())] {
            let stop = Stop::new();
            stop.ask();
            let error = logits("llama-tiny", level, stop, CacheType::F16, 9).unwrap_err();
            assert!(Interrupted::caused(&error), "{error:#}");
        }
    }
}
