//! The CPU device: runs a plan with the twins, or with the SIMD code that gives the same bits.

use crate::blocks::BlockType;
use crate::ops;
use crate::record::{Args, BufId, Command, Device, DeviceInfo, Op, Plan, Stats, Step, WeightSource};
use crate::simd::{self, Act, Level, fused};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use rayon::prelude::*;

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

/// The CPU with a loaded plan.
pub struct CpuDevice {
    options: CpuOptions,
    pool: rayon::ThreadPool,
    plan: Plan,
    buffers: Vec<Vec<u32>>,
    stats: Stats,
}

impl CpuDevice {
    /// Starts the worker threads.
    pub fn new(options: CpuOptions) -> anyhow::Result<CpuDevice> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .thread_name(|i| format!("isobit-{i}"))
            .build()
            .map_err(|e| anyhow::anyhow!("cannot start {} worker threads: {e}", options.threads))?;
        Ok(CpuDevice { options, pool, plan: Plan::default(), buffers: Vec::new(), stats: Stats::default() })
    }

    /// Words of all buffers together.
    pub fn words(&self) -> usize {
        self.buffers.iter().map(Vec::len).sum()
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
    }

    fn command(&mut self, index: usize, step: &Step) {
        let command = &self.plan.recording.commands[index];
        let Some(args) = command.args_for(step) else { return };
        let (level, buffers) = (self.options.level, &mut self.buffers);
        self.pool.install(|| run(level, command, &args, buffers));
        self.stats.commands += 1;
    }
}

/// Takes the written buffers out of the list, runs the operation, and puts them back.
fn run(level: Option<Level>, command: &Command, args: &Args, buffers: &mut [Vec<u32>]) {
    let outputs = command.outputs();
    let mut out: Vec<Vec<u32>> = outputs.iter().map(|&id| std::mem::take(&mut buffers[id])).collect();
    let inputs: Vec<&[u32]> =
        command.binds[..command.binds.len() - outputs.len()].iter().map(|&id| buffers[id].as_slice()).collect();
    operation(level, command.op, args, &inputs, &mut out);
    for (&id, words) in outputs.iter().zip(out) {
        buffers[id] = words;
    }
}

fn floats(words: &[u32]) -> &[f32] {
    bytemuck::cast_slice(words)
}

fn operation(level: Option<Level>, op: Op, args: &Args, inputs: &[&[u32]], out: &mut [Vec<u32>]) {
    match (op, args) {
        (Op::Encode(t), Args::Encode(p)) => ops::encode::encode(t, p, floats(inputs[0]), &mut out[0]),
        (Op::Embed(t), Args::Embed(p)) => {
            ops::embed::embed(t, p, inputs[0], inputs[1], bytemuck::cast_slice_mut(&mut out[0]))
        }
        (Op::Matvec(t), Args::Linear(p)) => {
            matvec(level, t, p, inputs[0], inputs[1], bytemuck::cast_slice_mut(&mut out[0]))
        }
        (Op::ActQuantize, Args::ActQuantize(p)) => match level {
            Some(level) => simd::act_quantize(level, p, floats(inputs[0]), &mut out[0]),
            None => ops::act_quantize::act_quantize(p, floats(inputs[0]), &mut out[0]),
        },
        (Op::RmsNorm, Args::RmsNorm(p)) => {
            let (dim, n) = (p.dim as usize, p.n_tokens as usize * p.dim as usize);
            let (x, w) = (floats(inputs[0]), floats(inputs[1]));
            let y: &mut [f32] = &mut bytemuck::cast_slice_mut(&mut out[0])[..n];
            y.par_chunks_mut(dim).zip(x.par_chunks(dim)).for_each(|(y, x)| match level {
                Some(level) => simd::rms_norm_row(level, p, x, w, y),
                None => ops::rms_norm::row(p, x, w, y),
            });
        }
        (Op::Rope, Args::Rope(p)) => ops::rope::rope(p, floats(inputs[0]), bytemuck::cast_slice_mut(&mut out[0])),
        (Op::CacheWriteK(t), Args::CacheWrite(p)) => ops::cache::cache_write_k(t, p, floats(inputs[0]), &mut out[0]),
        (Op::CacheWriteV(t), Args::CacheWrite(p)) => ops::cache::cache_write_v(t, p, floats(inputs[0]), &mut out[0]),
        (Op::Attention(kt, vt), Args::Attention(p)) => {
            let [state, y] = out else { unreachable!("attention writes two buffers") };
            let (q, k, v) = (floats(inputs[0]), inputs[1], inputs[2]);
            let (state, y) = (bytemuck::cast_slice_mut(state), bytemuck::cast_slice_mut(y));
            match level {
                Some(level) => simd::attention(level, (kt, vt), p, q, k, v, state, y),
                None => ops::attention::attention((kt, vt), p, q, k, v, state, y),
            }
        }
        (Op::Swiglu, Args::Swiglu(p)) => {
            let n = (p.n_tokens * p.dim) as usize;
            let y: &mut [f32] = &mut bytemuck::cast_slice_mut(&mut out[0])[..n];
            let (g, u) = (&floats(inputs[0])[..n], &floats(inputs[1])[..n]);
            match level {
                Some(level) => y
                    .par_chunks_mut(4096)
                    .zip(g.par_chunks(4096).zip(u.par_chunks(4096)))
                    .for_each(|(y, (g, u))| simd::swiglu(level, g, u, y)),
                None => ops::swiglu::swiglu(p, g, u, y),
            }
        }
        (Op::Add, Args::Add(p)) => ops::add::add(p, floats(inputs[0]), bytemuck::cast_slice_mut(&mut out[0])),
        (Op::SelectRows, Args::SelectRows(p)) => {
            ops::select_rows::select_rows(p, floats(inputs[0]), bytemuck::cast_slice_mut(&mut out[0]));
        }
        (Op::NormQuantize, Args::NormQuantize(p)) => {
            let (x, w) = (floats(inputs[0]), floats(inputs[1]));
            match level {
                Some(level) => fused::norm_quantize(level, p, x, w, &mut out[0]),
                None => ops::norm_quantize::norm_quantize(p, x, w, &mut out[0]),
            }
        }
        (Op::SwigluQuantize, Args::SwigluQuantize(p)) => match level {
            Some(level) => fused::swiglu_quantize(level, p, floats(inputs[0]), &mut out[0]),
            None => ops::swiglu_quantize::swiglu_quantize(p, floats(inputs[0]), &mut out[0]),
        },
        (Op::RopeCacheWrite(kt, vt), Args::RopeCacheWrite(p)) => {
            let [q, keys, values] = out else { unreachable!("rope_cache_write writes three buffers") };
            let (table, qkv, q) = (floats(inputs[0]), floats(inputs[1]), bytemuck::cast_slice_mut(q));
            match level {
                Some(_) => fused::rope_cache_write((kt, vt), p, table, qkv, q, keys, values),
                None => ops::rope_cache_write::rope_cache_write((kt, vt), p, table, qkv, q, keys, values),
            }
        }
        (Op::MatvecPair(a, b), Args::LinearPair(p)) => {
            let (w, act, y) = (inputs[0], inputs[1], bytemuck::cast_slice_mut(&mut out[0]));
            match (level, a) {
                (Some(level), _) => fused::matvec_pair(level, (a, b), p, w, act, y),
                (None, BlockType::Q5_K) => ops::matvec_pair::q5k_q6k_matvec(p, w, act, y),
                (None, _) => ops::matvec_pair::q4k_q6k_matvec(p, w, act, y),
            }
        }
        (Op::GateUp(t), Args::GateUp(p)) => match level {
            Some(level) => fused::gate_up(level, t, p, inputs[0], inputs[1], &mut out[0]),
            None => ops::gate_up::gate_up(t, p, inputs[0], inputs[1], &mut out[0]),
        },
        (Op::FloatProbe, Args::FloatProbe(p)) => ops::float_probe::float_probe(p, floats(inputs[0]), &mut out[0]),
        (op, args) => panic!("{op:?} with parameters {args:?}"),
    }
}

fn matvec(level: Option<Level>, t: BlockType, p: &ops::linear::LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    let float = matches!(t, BlockType::F32 | BlockType::F16 | BlockType::BF16);
    if let Some(level) = level {
        let act = if float { Act::Floats(floats(act)) } else { Act::Blocks(act) };
        return simd::matvec(level, t, p, w, act, y);
    }
    twin_matvec(t, p, w, act, y)
}

fn twin_matvec(t: BlockType, p: &ops::linear::LinearParams, w: &[u32], act: &[u32], y: &mut [f32]) {
    match t {
        BlockType::F32 => ops::f32_matvec::f32_matvec(p, w, floats(act), y),
        BlockType::F16 => ops::f16_matvec::f16_matvec(p, w, floats(act), y),
        BlockType::BF16 => ops::bf16_matvec::bf16_matvec(p, w, floats(act), y),
        BlockType::Q8_0 => ops::q8_0_matvec::q8_0_matvec(p, w, act, y),
        BlockType::Q4_0 => ops::q4_0_matvec::q4_0_matvec(p, w, act, y),
        BlockType::Q4_K => ops::q4k_matvec::q4k_matvec(p, w, act, y),
        BlockType::Q5_K => ops::q5k_matvec::q5k_matvec(p, w, act, y),
        BlockType::Q6_K => ops::q6k_matvec::q6k_matvec(p, w, act, y),
        BlockType::Q8_K | BlockType::Q8K128 => ops::q8k128_matvec::q8k128_matvec(p, w, act, y),
    }
}

impl Device for CpuDevice {
    fn info(&self) -> DeviceInfo {
        let level = self.options.level.map_or("scalar", Level::name);
        DeviceInfo {
            name: format!("CPU ({level}, {} threads)", self.pool.current_num_threads()),
            max_binding_words: self.options.max_binding.map_or(usize::MAX / 8, |b| (b / 4) as usize),
        }
    }

    fn load<'a>(&'a mut self, plan: Plan, weights: &'a mut dyn WeightSource) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        async move {
            self.buffers = Vec::new();
            for b in &plan.buffers {
                let mut words = vec![0u32; b.words];
                if b.role.is_weight() {
                    self.pool.install(|| weights.fill(b, &mut words))?;
                }
                self.buffers.push(words);
            }
            self.plan = plan;
            Ok(())
        }
        .boxed_local()
    }

    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>> {
        async move {
            self.write_inputs(step);
            self.stats.steps += 1;
            for i in 0..self.plan.recording.commands.len() {
                self.command(i, step);
            }
            let n = step.n_out * self.plan.vocab;
            Ok(floats(&self.buffers[self.plan.logits])[..n].to_vec())
        }
        .boxed_local()
    }

    fn run_one<'a>(&'a mut self, command: usize, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        async move {
            if command == 0 {
                self.write_inputs(step);
            }
            self.command(command, step);
            Ok(())
        }
        .boxed_local()
    }

    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        futures::future::ready(Ok(self.buffers[buffer].clone())).boxed_local()
    }

    fn take_stats(&mut self) -> Stats {
        std::mem::take(&mut self.stats)
    }

    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.buffers[buffer][..words.len()].copy_from_slice(words);
        futures::future::ready(Ok(())).boxed_local()
    }
}
