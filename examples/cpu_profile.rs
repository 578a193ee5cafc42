//! Where the CPU's time goes, and how far from the machine's limits: `cargo run --release --example cpu_profile -- MODEL`.
//!
//! ```text
//! cargo run --release --example synth_model -- --out medium.gguf --preset medium
//! cargo run --release --example cpu_profile -- medium.gguf --levels avx2,avx512
//! ```
//!
//! For each level: prefill of `--prompt` tokens and decode of one, as the sum over the commands of each command's best
//! time in `--rounds` rounds (neighbours that take the cores for a while do not show in it), and decode as whole tokens
//! (best and median). Shares are of the int8 peak of the level and of plain reading, both measured in this process.
//! Prefill counts the multiplications of the layers' matrices, decode the bytes of all weights but the embedding.
//! Also: loading against reading the file, and the peak of resident memory before anything else was measured.

use anyhow::{Context, ensure};
use clap::Parser;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::limits;
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::record::{Args, Command, Op, Rows, Step};
use isobit::internals::simd::Level;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Parser)]
#[command(about = "Prefill and decode on the CPU by command, against the machine's limits")]
struct Cli {
    /// GGUF file
    model: PathBuf,
    /// SIMD levels; the best one unless given
    #[arg(long, value_delimiter = ',', value_parser = level)]
    levels: Vec<Level>,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..=4096))]
    prompt: u32,
    /// Rounds of each command
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Worker threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Print every kind of command
    #[arg(long)]
    commands: bool,
}

fn level(name: &str) -> Result<Level, String> {
    let has = Level::available();
    let known = has.iter().map(|l| l.name()).collect::<Vec<_>>().join(", ");
    Level::parse(name).filter(|l| has.contains(l)).ok_or_else(|| format!("{name} is none of {known}"))
}

/// Seconds of `f`.
fn seconds<T>(f: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(f64, T)> {
    let start = Instant::now();
    let result = f()?;
    Ok((start.elapsed().as_secs_f64(), result))
}

fn options(prompt: usize) -> SessionOptions {
    let plan = PlanOptions { n_ctx: prompt + 64, ubatch: prompt, ..PlanOptions::default() };
    SessionOptions { plan, memory: None, fuse: Fuse::default() }
}

/// Multiplications of the matrices with every token of a step.
fn products(s: &Session, step: &Step) -> f64 {
    let of = |c: &Command| match c.args_for(step)? {
        Args::Linear(p) => Some(p.rows as f64 * p.k as f64),
        Args::LinearPair(p) => Some(p.rows as f64 * p.k as f64),
        Args::GateUp(p) => Some(2.0 * p.dim as f64 * p.k as f64),
        _ => None,
    };
    s.commands().iter().filter(|c| c.rows != Rows::Outputs).filter_map(of).sum()
}

/// The best time of every command over some rounds of a step.
fn commands(s: &mut Session, step: &Step, rounds: u32) -> anyhow::Result<Vec<f64>> {
    let mut best = vec![f64::MAX; s.commands().len()];
    for _ in 0..rounds {
        pollster::block_on(s.device().begin(step))?;
        for (i, best) in best.iter_mut().enumerate() {
            *best = best.min(seconds(|| pollster::block_on(s.device().run_one(i)))?.0);
        }
    }
    Ok(best)
}

fn print_commands(s: &Session, best: &[f64]) {
    let mut kinds: BTreeMap<String, (f64, usize)> = BTreeMap::new();
    for (c, t) in s.commands().iter().zip(best) {
        let kind = kinds.entry(format!("{} {}", c.op.title(), c.label)).or_default();
        *kind = (kind.0 + t, kind.1 + 1);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    let total: f64 = best.iter().sum();
    for (kind, (t, n)) in kinds {
        println!("    {:5.1} % {:10.1} us {n:3} x {kind}", 100.0 * t / total, t * 1e6);
    }
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let levels = if cli.levels.is_empty() { vec![Level::detect()] } else { cli.levels };
    let (prompt, threads) = (cli.prompt as usize, cli.threads as usize);
    let container = Container::open(&cli.model, LoadMode::Read)?;
    let hyper = Hyper::read(&container)?;
    let ids: Vec<u32> = (0..prompt).map(|i| ((i * 7919) % hyper.vocab) as u32).collect();
    let mut limit = None;
    for level in levels {
        let cpu = CpuOptions { level: Some(level), threads, max_binding: None };
        let mut device = CpuDevice::new(cpu)?;
        let loading = Session::new(&mut device, &container, &hyper, options(prompt), |_| ());
        let (load, mut s) = seconds(|| pollster::block_on(loading))?;
        let (many, one) = (s.prepare(&ids, 1).clone(), s.prepare(&ids[..1], 1).clone());
        let prefill = commands(&mut s, &many, cli.rounds)?;
        let decode = commands(&mut s, &one, 5 * cli.rounds)?;
        let mut tokens = Vec::new();
        for round in 0..cli.rounds {
            s.reset();
            for (i, id) in ids.iter().take(34).enumerate() {
                let fed = seconds(|| pollster::block_on(s.feed(&[*id], Want::Last, |_, _| Ok(()))))?.0;
                // the first ones wake the workers up
                if i >= 2 || (round, prompt) == (0, 2) {
                    tokens.push(fed);
                }
            }
        }
        tokens.sort_by(f64::total_cmp);
        let (best, median) = (tokens[0], tokens[tokens.len() / 2]);

        // the embedding gives one row to a token, unless it is the output matrix as well
        let read = |id: usize| s.commands().iter().any(|c| !matches!(c.op, Op::Embed(_)) && c.binds.contains(&id));
        let weights = s.built().plan.buffers.iter().enumerate().filter(|(i, b)| b.role.is_loaded() && read(*i));
        let bytes: f64 = weights.map(|(_, b)| b.words as f64 * 4.0).sum();

        if limit.is_none() {
            if let Some(peak) = peak_memory() {
                println!(
                    "peak of resident memory {peak:.0} MiB, file {:.0} MiB",
                    container.total_bytes() as f64 / 1048576.0
                );
            }
            let (whole, _) = seconds(|| Ok(std::fs::read(&cli.model).context("reading the model")?.len()))?;
            println!("load {load:.2} s, reading the file into memory {whole:.2} s");
            let read = limits::read_bandwidth(threads, &isobit::internals::stop::Stop::default())
                .expect("nobody asks it to stop");
            println!("plain read {:.1} GB/s with {threads} threads", read * 1e-9);
            limit = Some(read);
        }
        let read = limit.context("the limit was measured above")?;
        let peak = limits::int8_rate(level, threads);
        let (p, d): (f64, f64) = (prefill.iter().sum(), decode.iter().sum());
        ensure!(p > 0.0 && d > 0.0, "the clock stood still");
        let rate = 2.0 * products(&s, &many) * prompt as f64 / p;
        println!(
            "{:8} prefill {prompt}: {:.1} t/s, {:.0} GOP/s = {:.1} % of {:.0}",
            level.name(),
            prompt as f64 / p,
            rate * 1e-9,
            100.0 * rate / peak,
            peak * 1e-9
        );
        if cli.commands {
            print_commands(&s, &prefill);
        }
        let share = |t: f64| 100.0 * bytes / t / read;
        println!(
            "{:8} decode: sum of commands {:.1} t/s = {:.1} % of plain read; tokens best {:.1} t/s = {:.1} %, median {:.1} t/s = \
             {:.1} %; {:.1} MB and {} commands a token",
            "",
            1.0 / d,
            share(d),
            1.0 / best,
            share(best),
            1.0 / median,
            share(median),
            bytes * 1e-6,
            s.commands().iter().filter(|c| c.args_for(&one).is_some()).count()
        );
        if cli.commands {
            print_commands(&s, &decode);
        }
    }
    Ok(())
}

/// Peak of resident memory in MiB, where the system tells.
fn peak_memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}
