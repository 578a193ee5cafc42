//! `isobit imatrix`: how much each column of a model's matrices matters, told by a text.
//!
//! The text is cut into windows as `perplexity` cuts it, and the unfused recording is run command by command. What a matrix
//! of a layer meets is then a buffer of f32, and the square of each of its columns is summed up: within a window in f64,
//! token after token, windows one after the other, rounded to f32 once. Buffers are the same on every device, and so is the
//! file, to the byte.

use super::calibrate::input_of;
use super::common::{self, ModelArgs, note};
use super::interrupt;
use crate::engine::{DeviceOptions, Devices};
use crate::formats::imatrix::{self, About, Sums};
use crate::formats::{names, output};
use crate::fuse::Fuse;
use crate::generate::{Session, SessionOptions};
use crate::models::{PlanOptions, Recent};
use crate::ops::cache::CacheType;
use crate::ops::expert_linear::ExpertLinearParams;
use crate::record::{Args as CommandArgs, BufId};
use anyhow::{Context, ensure};
use clap::Args;
use serde_json::json;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit imatrix model-f16.gguf -f text.txt -o model.imatrix.gguf\n  isobit quantize model-f16.gguf small.gguf iq2_m --imatrix model.imatrix.gguf\n\nThe file is the same on every device, to the byte. output.weight and the embedding are not in it."
)]
pub struct ImatrixArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The text
    #[arg(short = 'f', long)]
    file: PathBuf,
    /// The new file
    #[arg(short = 'o', long, value_name = "FILE")]
    output: PathBuf,
    /// Tokens of a window [default: 512, or the model's context where that is less]
    #[arg(short = 'c', long, value_name = "N", value_parser = common::whole::<16, 1000000>)]
    ctx: Option<usize>,
    /// Windows to run, from the start; 0: all
    #[arg(long, default_value = "0", value_name = "N", value_parser = common::count, allow_negative_numbers = true)]
    chunks: usize,
    /// Write llama.cpp's older format (.dat)
    #[arg(long)]
    legacy: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// auto, cpu, cpu:LEVEL, gpu, an index of `isobit devices`, or part of an adapter's name
    #[arg(short = 'd', long, default_value = "auto", env = "ISOBIT_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::word)]
    device: String,
    /// Worker threads of the CPU; 0: one per core
    #[arg(short = 't', long, default_value = "0", value_name = "N", value_parser = common::whole::<0, 1024>)]
    #[arg(env = "ISOBIT_THREADS", hide_env_values = true)]
    threads: usize,
}

/// Tokens of a step, at most.
const STEP: usize = 512;

/// What a matrix met.
#[derive(Default)]
struct Met {
    /// of each column; of experts one matrix after the other
    squares: Vec<f64>,
    /// of each matrix
    tokens: Vec<u32>,
}

pub fn run(a: ImatrixArgs) -> anyhow::Result<ExitCode> {
    let model = a.model.model()?;
    common::generates(&model)?;
    let (c, h, tok) = (model.container(), model.hyper(), model.tokenizer()?);
    output::refuse_sources(&a.output, &c.files)?;
    common::can_be_written("-o", &a.output)?;
    let ctx = a.ctx.unwrap_or(h.context.min(512));
    ensure!(ctx <= h.context, "-c is {ctx}, the model's context {}", h.context);
    let text = common::text(None, Some(&a.file))?;
    let most = if a.chunks == 0 { usize::MAX } else { a.chunks.saturating_mul(ctx) };
    let mut ids = tok.encode_first(&text, tok.adds_bos(), false, most)?;
    let (tokens, available) = (ids.len(), ids.len() / ctx);
    ensure!(
        available > 0,
        "{}: {tokens} tokens do not fill one window of {ctx}; use a longer text or a smaller -c",
        a.file.display()
    );
    let chunks = if a.chunks == 0 { available } else { a.chunks.min(available) };
    let counted = u32::try_from(chunks * ctx).ok().filter(|n| *n <= 1 << 24);
    ensure!(counted.is_some(), "{chunks} windows of {ctx} tokens are more than the format counts; add --chunks");
    let plan = PlanOptions {
        n_ctx: ctx,
        ubatch: ctx.min(STEP),
        k_type: CacheType::F32,
        v_type: CacheType::F32,
        recent: Recent::Off,
        ..PlanOptions::default()
    };
    let stop = interrupt::stop().clone();
    let mut device =
        Devices::new(DeviceOptions { threads: a.threads, stop, ..DeviceOptions::default() }).open(&a.device)?;
    if let Some(why) = device.instead() {
        note!("{why}: running on the CPU");
    }
    let name = device.name().to_string();
    let memory = Devices::share_of_memory(std::slice::from_ref(&device));
    let load = common::load_bar(c);
    let options = SessionOptions { plan, memory, fuse: Fuse::Off };
    let opening = Session::new(device.inner.as_mut(), c, h, options, |n| load.inc(n));
    let mut session = pollster::block_on(opening)?;
    load.finish_and_clear();
    note!("{}: {chunks} windows of {ctx} on {name}", c.files[0].display());
    let bar = common::bar(chunks as u64, "observing {bar:30} {pos}/{len} windows {eta}");
    let start = if tok.adds_bos() { tok.start() } else { &[] };
    let mut met: BTreeMap<usize, Met> = BTreeMap::new();
    for chunk in 0..chunks {
        let window = &mut ids[chunk * ctx..][..ctx];
        window[..start.len()].copy_from_slice(start);
        session.reset();
        for ids in window.chunks(STEP) {
            session.check(ids)?;
            pollster::block_on(see(&mut session, ids, &mut met))?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    // names as GGUF has them
    let met = met
        .into_iter()
        .map(|(tensor, met)| {
            let name = &c.tensors[tensor].name;
            let gguf = if c.kind.is_named_as_gguf() { None } else { names::to_gguf(h.family.name(), name) };
            (gguf.unwrap_or_else(|| name.clone()), met)
        })
        .collect();
    write(&a, met, chunks as u32, ctx as u32)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a piece of a window and adds what the matrices of the layers met.
async fn see(session: &mut Session<'_>, ids: &[u32], met: &mut BTreeMap<usize, Met>) -> anyhow::Result<()> {
    let n = ids.len();
    let step = session.prepare(ids, 0).clone();
    session.device().begin(&step).await?;
    // a matrix in several parts, or with several readers, meets a token once
    let mut seen = BTreeSet::new();
    // the sums of a buffer until it is written again
    let mut sums: BTreeMap<BufId, Vec<f64>> = BTreeMap::new();
    for index in 0..session.commands().len() {
        interrupt::stop().check()?;
        let command = session.commands()[index].clone();
        if let (CommandArgs::Linear(p), Some(_)) = (&command.args, command.layer) {
            let buffer = input_of(session.commands(), index)?;
            if let Entry::Vacant(entry) = sums.entry(buffer) {
                let words = session.device().read(buffer).await?;
                let width = p.k as usize;
                let x: &[f32] =
                    bytemuck::cast_slice(words.get(..n * width).context("a buffer shorter than its tokens")?);
                entry.insert(squares(x, width));
            }
            let finite = sums[&buffer].iter().all(|v| v.is_finite());
            ensure!(finite, "{}: the model's activations overflowed", command.title());
            for piece in session.built().plan.buffers[command.binds[0]].role.pieces() {
                if seen.insert(piece.tensor) {
                    let all = met.entry(piece.tensor).or_default();
                    all.squares.resize(p.k as usize, 0.0);
                    all.squares.iter_mut().zip(&sums[&buffer]).for_each(|(sum, s)| *sum += s);
                    all.tokens.resize(1, 0);
                    all.tokens[0] += n as u32;
                }
            }
        }
        if let CommandArgs::ExpertLinear(p) = &command.args {
            let all = of_experts(session, index, p, n).await?;
            ensure!(
                all.squares.iter().all(|v| v.is_finite()),
                "{}: the model's activations overflowed",
                command.title()
            );
            for piece in session.built().plan.buffers[command.binds[0]].role.pieces() {
                if seen.insert(piece.tensor) {
                    met.entry(piece.tensor).or_default().add(&all);
                }
            }
        }
        session.device().run_one(index).await?;
        for written in command.outputs() {
            sums.remove(written);
        }
    }
    session.advance(n);
    Ok(())
}

impl Met {
    fn add(&mut self, other: &Met) {
        self.squares.resize(other.squares.len(), 0.0);
        self.tokens.resize(other.tokens.len(), 0);
        self.squares.iter_mut().zip(&other.squares).for_each(|(sum, s)| *sum += s);
        self.tokens.iter_mut().zip(&other.tokens).for_each(|(sum, n)| *sum += n);
    }
}

/// What the experts of a command are about to meet in a step of `n` tokens, each the tokens that chose it.
async fn of_experts(session: &mut Session<'_>, index: usize, p: &ExpertLinearParams, n: usize) -> anyhow::Result<Met> {
    let (x, chosen) = (input_of(session.commands(), index)?, session.commands()[index].binds[2]);
    let (x, ids) = (session.device().read(x).await?, session.device().read(chosen).await?);
    let (width, experts, share) = (p.k as usize, p.experts as usize, p.share as usize);
    let mut met = Met { squares: vec![0.0; width * experts], tokens: vec![0; experts] };
    for (pair, &id) in ids.iter().take(n * p.used as usize).enumerate() {
        let row =
            x.get(pair / share * width..).and_then(|x| x.get(..width)).context("a buffer shorter than its tokens")?;
        let (sums, row) = (met.squares.get_mut(id as usize * width..), bytemuck::cast_slice::<u32, f32>(row));
        for (sum, v) in sums.context("an expert that is none")?.iter_mut().zip(row) {
            // a product of two f32 is exact in f64
            *sum += f64::from(*v) * f64::from(*v);
        }
        met.tokens[id as usize] += 1;
    }
    Ok(met)
}

/// Over rows, one after the other, the square of each column.
fn squares(x: &[f32], width: usize) -> Vec<f64> {
    let mut sums = vec![0f64; width];
    for row in x.chunks_exact(width) {
        for (sum, v) in sums.iter_mut().zip(row) {
            // a product of two f32 is exact in f64
            *sum += f64::from(*v) * f64::from(*v);
        }
    }
    sums
}

fn write(a: &ImatrixArgs, met: BTreeMap<String, Met>, chunks: u32, ctx: u32) -> anyhow::Result<()> {
    let mut sums = BTreeMap::new();
    for (name, met) in met {
        let in_sum2: Vec<f32> = met.squares.iter().map(|v| *v as f32).collect();
        ensure!(in_sum2.iter().all(|v| v.is_finite()), "{name}: the squares of its activations overflowed");
        sums.insert(name, Sums { in_sum2, counts: met.tokens });
    }
    // the name alone, so that the file does not depend on where the text lies
    let text = a.file.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
    let about = About { datasets: vec![text], chunks, chunk_size: ctx };
    let bytes = match a.legacy {
        true => imatrix::to_legacy(&about, &sums),
        false => imatrix::to_gguf(&a.output.display().to_string(), &about, &sums)?,
    };
    interrupt::whole(|| output::replace_file(&a.output, &bytes))?;
    let file = a.output.display().to_string();
    if a.json {
        let v = json!({"output": file, "tensors": sums.len(), "windows": chunks, "window_tokens": ctx});
        writeln!(std::io::stdout(), "{v}")?;
    } else {
        note!("{file}: {} tensors, {chunks} windows of {ctx} tokens", sums.len());
    }
    Ok(())
}
