//! `isobit quantize`: one model file into another.

use super::common::{self, EngineArgs, Load, note};
use crate::blocks::BlockType;
use crate::formats::output::Staged;
use crate::formats::policy::Policy;
use crate::formats::{Container, Tensor};
use crate::quantize::choose::{self, Mix, Pattern};
use crate::quantize::device::DeviceEncoder;
use crate::quantize::{self, Data, Encoder, Job, Options, Piece, Stopped, Target, Watch};
use crate::simd::Level;
use anyhow::{Context, ensure};
use clap::{Args, Parser};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit quantize model-f16.gguf small.gguf q4_k_m\n  isobit quantize ./hf-directory model.gguf q8_0\n  isobit quantize ./hf-directory packed --to packed --policy qkv\n  isobit quantize model.gguf out.gguf q4_k_m --dry-run"
)]
pub struct QuantizeArgs {
    /// GGUF file (the first, of shards) or Hugging Face directory, F32, F16 or BF16
    input: PathBuf,
    /// The new GGUF file, or the new directory of a packed model
    output: PathBuf,
    /// f32, f16, bf16, q8_0, q4_0, q4_k, q5_k, q6_k, q4_k_m, q5_k_m, copy; packed also q8k128, q8k [default: q4_k_m; packed: by --policy]
    #[arg(value_parser = mix, value_name = "TYPE")]
    mix: Option<Mix>,
    /// Worker threads, as -t
    #[arg(value_name = "THREADS", value_parser = common::whole::<1, 1024>, hide = true)]
    nthreads: Option<usize>,
    /// gguf; packed: a directory with packed safetensors; blocks: one with a file per matrix
    #[arg(long, default_value = "gguf", value_name = "LAYOUT", value_parser = target)]
    to: Target,
    /// What a packed model has in Q8K128: off, layer0-qkv, early-qkv, qkv, attn, q8k, all
    #[arg(long, default_value = "layer0-qkv", value_name = "POLICY", value_parser = policy)]
    #[arg(env = "ISOBIT_Q8K128_POLICY", hide_env_values = true)]
    policy: Policy,
    /// Lines of PATTERN TYPE over tensor names; the first that matches counts (TYPE keep: as it is)
    #[arg(long, value_name = "FILE")]
    policy_file: Option<PathBuf>,
    /// The same as a line of a policy file, before any of them; may be repeated
    #[arg(long, value_name = "RE=TYPE")]
    tensor_type: Vec<String>,
    /// One type for all matrices, none raised
    #[arg(long)]
    pure: bool,
    /// Keep output.weight as it is
    #[arg(long)]
    leave_output_tensor: bool,
    /// Type of output.weight
    #[arg(long, value_name = "TYPE", value_parser = block)]
    output_tensor_type: Option<BlockType>,
    /// Type of token_embd.weight
    #[arg(long, value_name = "TYPE", value_parser = block)]
    token_embedding_type: Option<BlockType>,
    /// Quantise again what is quantised already
    #[arg(long)]
    allow_requantize: bool,
    /// Say what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Go on with what an interrupted run left; the result is the same to the byte
    #[arg(long)]
    resume: bool,
    /// Where Q8_0, Q4_0 and Q8K128 are encoded: cpu, cpu:LEVEL, gpu, an index of `isobit devices`
    #[arg(short = 'd', long, default_value = "cpu", env = "ISOBIT_QUANTIZE_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::word)]
    device: String,
    /// Worker threads; 0: one per core
    #[arg(short = 't', long, default_value = "0", value_name = "N", value_parser = common::whole::<0, 1024>)]
    #[arg(env = "ISOBIT_THREADS", hide_env_values = true)]
    threads: usize,
    /// How files are read: read, or mmap (a file truncated while mapped kills the process)
    #[arg(long, value_enum, default_value = "read", value_name = "MODE", hide_possible_values = true)]
    load_mode: Load,
}

fn mix(s: &str) -> Result<Mix, String> {
    Mix::parse(s).ok_or_else(|| format!("expected one of {}", choose::MIXES))
}

fn policy(s: &str) -> Result<Policy, String> {
    Policy::parse(s).ok_or_else(|| format!("expected one of {}", Policy::NAMES))
}

fn block(s: &str) -> Result<BlockType, String> {
    BlockType::parse(s).ok_or_else(|| format!("expected one of {}", choose::MIXES))
}

fn target(s: &str) -> Result<Target, String> {
    Ok(match s.to_lowercase().as_str() {
        "gguf" => Target::Gguf,
        "packed" => Target::Packed,
        "blocks" => Target::Blocks,
        _ => return Err("expected gguf, packed or blocks".into()),
    })
}

impl QuantizeArgs {
    fn options(&self) -> anyhow::Result<Options> {
        let mut patterns = Vec::new();
        for flag in &self.tensor_type {
            patterns.push(Pattern::flag(flag).context("--tensor-type")?);
        }
        let mut words = format!("{:?} {:?} {:?} {:?}", self.mix, self.policy, self.tensor_type, self.allow_requantize);
        if let Some(path) = &self.policy_file {
            let text = common::text(None, Some(path))?;
            patterns.extend(Pattern::file(&text).with_context(|| path.display().to_string())?);
            words += &text;
        }
        Ok(Options {
            target: self.to,
            mix: self.mix,
            policy: self.policy,
            patterns,
            pure: self.pure,
            leave_output: self.leave_output_tensor,
            output_type: self.output_tensor_type,
            embedding_type: self.token_embedding_type,
            requantize: self.allow_requantize,
            words,
        })
    }

    /// What encodes, where that is not this process's own SIMD code.
    fn level(&self) -> anyhow::Result<Option<Level>> {
        let word = self.device.to_lowercase();
        Ok(Some(match word.split_once(':') {
            _ if word == "cpu" => Level::detect(),
            Some(("cpu", name)) => {
                let level = Level::parse(name).filter(|l| l.is_available());
                let has: Vec<&str> = Level::available().iter().map(|l| l.name()).collect();
                level.with_context(|| format!("--device {}: this CPU has {}", self.device, has.join(", ")))?
            }
            _ => return Ok(None),
        }))
    }
}

pub fn run(a: QuantizeArgs) -> anyhow::Result<ExitCode> {
    let options = a.options()?;
    let c = common::open(Some(&a.input), a.load_mode)?;
    refuse_same(&c, &a.input, &a.output)?;
    let job = quantize::plan(&c, &options)?;
    let threads = a.nthreads.unwrap_or(a.threads);
    if a.dry_run {
        let mut out = std::io::stdout().lock();
        let all: Vec<&Piece> = job.pieces.iter().filter(|p| p.source(&c).is_some()).collect();
        for (i, p) in all.iter().enumerate() {
            writeln!(out, "{}", line(i + 1, all.len(), p, &c))?;
        }
        writeln!(out, "{}", summary(&job, &c))?;
        return Ok(ExitCode::SUCCESS);
    }
    let level = a.level()?;
    let mut encoder: Option<Box<dyn Encoder>> = match level {
        Some(_) => None,
        None => Some(device_encoder(&a.device)?),
    };
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().context("starting threads")?;
    common::catch_interrupt()?;
    if !a.resume && Staged::waiting(&a.output) {
        note!("warning: {} holds an unfinished model: starting anew (--resume goes on)", a.output.display());
    }
    let (mut staged, noted) = Staged::begin(&a.output, &job.layout, a.resume)?;
    let level = level.unwrap_or_else(Level::detect);
    let result = write(&job, &c, &mut staged, &noted, level, &mut encoder);
    match result {
        Ok(()) => {
            staged.commit()?;
            note!("{}: {}", a.output.display(), summary(&job, &c));
            Ok(ExitCode::SUCCESS)
        }
        Err(e) if e.is::<Stopped>() => {
            note!("interrupted: what is finished is kept; the same command with --resume goes on");
            Ok(ExitCode::from(130))
        }
        Err(e) => {
            // a full disk or a lost device can be mended, a damaged model cannot
            if !e.chain().any(|c| c.is::<std::io::Error>()) {
                staged.discard()?;
            }
            Err(e)
        }
    }
}

fn write(
    job: &Job,
    c: &Container,
    staged: &mut Staged,
    noted: &[(usize, u128)],
    level: Level,
    encoder: &mut Option<Box<dyn Encoder>>,
) -> anyhow::Result<()> {
    let done = quantize::check(job, c, staged, noted)?;
    let bar = common::bar(job.bytes_in(c), "{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} {msg}");
    let tensors: Vec<usize> = (0..job.pieces.len()).filter(|i| job.pieces[*i].source(c).is_some()).collect();
    let begin = |i: usize| {
        if let Ok(n) = tensors.binary_search(&i) {
            let line = line(n + 1, tensors.len(), &job.pieces[i], c);
            // above the bar where there is one
            bar.suspend(|| note!("{line}"));
        }
    };
    for (piece, _) in job.pieces.iter().zip(&done).filter(|(_, done)| **done) {
        bar.inc(piece.source(c).map_or(0, |t| t.bytes));
    }
    let watch = Watch { begin: &begin, progress: &|n| bar.inc(n), stop: &common::interrupted };
    let encoder = encoder.as_mut().map(|e| e.as_mut() as &mut dyn Encoder);
    quantize::run(job, c, staged, &done, level, encoder, &watch)?;
    for (name, bytes) in &job.side {
        staged.put(name, bytes)?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// `[ 12/ 290] blk.0.attn_q.weight - [2048, 2048], type = F16, converting to Q4_K .. size = 8.00 -> 2.25 MiB`.
fn line(i: usize, n: usize, p: &Piece, c: &Container) -> String {
    let Some(t) = p.source(c) else { return String::new() };
    let width = n.to_string().len();
    let shape: Vec<String> = t.shape.iter().map(u64::to_string).collect();
    let mib = |bytes: u64| format!("{:.2}", bytes as f64 / f64::from(1 << 20));
    let what = match (&p.data, p.dtype(c)) {
        (Data::Tensor { to: Some(_), .. }, Some(to)) => {
            format!("converting to {to} .. size = {} -> {} MiB", mib(t.bytes), mib(p.bytes))
        }
        _ => format!("kept, size = {} MiB", mib(t.bytes)),
    };
    let note = p.note.as_deref().map_or(String::new(), |n| format!(" ({n})"));
    format!("[{i:>width$}/{n:>width$}] {} - [{}], type = {}, {what}{note}", p.name, shape.join(", "), t.dtype)
}

/// `7.01 MiB -> 2.27 MiB, 4.95 bits per weight`.
fn summary(job: &Job, c: &Container) -> String {
    let (from, to) = (job.bytes_in(c), job.bytes_out());
    let elems: u64 = job.pieces.iter().filter_map(|p| p.source(c)).map(Tensor::elems).sum();
    let bits = to as f64 * 8.0 / elems.max(1) as f64;
    format!("{} -> {}, {bits:.2} bits per weight", super::inspect::size(from), super::inspect::size(to))
}

/// A model is never written over itself, whatever its path is called.
fn refuse_same(c: &Container, input: &Path, output: &Path) -> anyhow::Result<()> {
    let real = |p: &Path| std::fs::canonicalize(p).ok();
    let Some(out) = real(output) else { return Ok(()) };
    let same = c.files.iter().map(PathBuf::as_path).chain([input]).any(|f| real(f).as_deref() == Some(&out));
    ensure!(!same, "{}: the output is the input; give another name", output.display());
    Ok(())
}

/// The engine's options with nothing typed: what opening a device asks for.
#[derive(clap::Parser)]
struct Alone {
    #[command(flatten)]
    engine: EngineArgs,
}

/// The device's encoder; what it does not know is encoded on the CPU.
fn device_encoder(device: &str) -> anyhow::Result<Box<dyn Encoder>> {
    let engine = Alone::try_parse_from(["isobit"]).context("options of the engine")?.engine;
    let opened = engine.devices().open(device)?;
    note!("encoding on {}", opened.device.info().name);
    Ok(Box::new(DeviceEncoder::new(opened.device)))
}
