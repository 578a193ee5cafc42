//! Where a step's time goes on a GPU: `cargo run --release --example gpu_profile -- MODEL.gguf`.
//!
//! ```text
//! cargo run --release --example synthetic_file -- llama-7b:q4_k_m 7b.gguf
//! cargo run --release --example gpu_profile -- 7b.gguf --tokens 1,512 --depth 1024
//! ```
//!
//! For each number of tokens: every kind of command of all layers, one after the other in one submit as often as makes
//! about 20 ms, so that each meets weights that the one before did not read; the best of `--rounds`. Beside the time of one
//! command: its share of the sum, GB/s of weights, int8 operations a second. Then the whole step in one submit:
//! what it takes beyond the sum is going from one kernel to another. Nothing is checked here, and what buffers hold is whatever the commands before left.
//!
//! A GPU that did nothing has slow clocks, and takes its time to raise them: whole steps run for `--warm` seconds first, and
//! what they took in the course of that is printed.

use anyhow::{Context, ensure};
use clap::Parser;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::{Session, SessionOptions};
use isobit::internals::host;
use isobit::internals::models::{Hyper, PlanOptions, Recent};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::record::{Args, Command, Op, Step};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// Seconds that are timed at once, about; commands in a submit, at most.
const SECONDS: f64 = 0.02;
const MOST: usize = 2048;

#[derive(Parser)]
#[command(about = "Time of each kind of command of a model on a GPU")]
struct Cli {
    /// GGUF file
    model: PathBuf,
    /// gpu (the first real one), or an index of `isobit devices`
    #[arg(long, default_value = "gpu")]
    device: String,
    /// Tokens of the steps
    #[arg(long, default_value = "1,512", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    tokens: Vec<u32>,
    /// Tokens before each step
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    depth: u32,
    /// Cache types: one, or KEYS/VALUES
    #[arg(long, default_value = "f16", value_parser = Recent::parse_types)]
    types: (CacheType, CacheType, Recent),
    /// Rounds of each kind
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of whole steps before anything is timed
    #[arg(long, default_value_t = 2.0)]
    warm: f64,
    /// Variants to run whatever is measured: matmul, or q4k_matvec=matmul
    #[arg(long, value_delimiter = ',', value_parser = host::variants::Forced::parse)]
    variant: Vec<host::variants::Forced>,
    /// Measure no variants
    #[arg(long)]
    untuned: bool,
}

fn open(cli: &Cli) -> anyhow::Result<host::GpuDevice> {
    let list = pollster::block_on(host::adapters());
    let chosen = match (&cli.device[..], cli.device.parse::<usize>()) {
        ("gpu", _) => list.iter().find(|a| !a.report().software),
        (_, Ok(index)) => list.get(index),
        (other, _) => anyhow::bail!("--device {other}: expected gpu or an index of `isobit devices`"),
    };
    let adapter = chosen.with_context(|| format!("--device: there is none among {} adapters", list.len()))?;
    let tune = if cli.untuned { host::Tune::Off } else { host::Tune::Now };
    let options = host::GpuOptions { variants: cli.variant.clone(), tune, ..Default::default() };
    let (gpu, verdict) = pollster::block_on(host::connect(adapter, options))?;
    ensure!(verdict.exact(), "{}: {} words of the probe differ; not exact", adapter.title(), verdict.mismatches);
    Ok(gpu)
}

/// Seconds of one command of a list, run again and again.
fn timed(s: &mut Session, list: &[usize], rounds: u32) -> anyhow::Result<f64> {
    let mut words: Vec<usize> = list.to_vec();
    let mut best = f64::MAX;
    let mut round = 0;
    while round < rounds {
        pollster::block_on(s.device().read_part(0, 0..1))?;
        let start = Instant::now();
        pollster::block_on(s.device().run_list(&words))?;
        pollster::block_on(s.device().read_part(0, 0..1))?;
        let each = start.elapsed().as_secs_f64() / words.len() as f64;
        let more = ((SECONDS / each / list.len() as f64).ceil() as usize).min(MOST / list.len()).max(1) * list.len();
        if round == 0 && more > words.len() {
            words = list.iter().copied().cycle().take(more).collect();
            // the first run compiles, and lasts too short a while to be counted
            round = 1;
            continue;
        }
        best = best.min(each);
        round += 1;
    }
    Ok(best)
}

/// Multiplications of a command with each of its tokens, times two.
fn operations(c: &Command, step: &Step) -> f64 {
    match c.args_for(step) {
        Some(Args::Linear(p)) => 2.0 * f64::from(p.rows) * f64::from(p.k) * f64::from(p.n_tokens),
        Some(Args::LinearPair(p)) => 2.0 * f64::from(p.rows) * f64::from(p.k) * f64::from(p.n_tokens),
        Some(Args::GateUp(p)) => 4.0 * f64::from(p.dim) * f64::from(p.k) * f64::from(p.n_tokens),
        _ => 0.0,
    }
}

/// Whole steps for some seconds; prints milliseconds of one, as they were from window to window.
fn warm(s: &mut Session, seconds: f64) -> anyhow::Result<()> {
    let all: Vec<usize> = (0..s.commands().len()).collect();
    let start = Instant::now();
    let (mut window, mut steps, mut said) = (Instant::now(), 0, Vec::new());
    while start.elapsed().as_secs_f64() < seconds {
        pollster::block_on(s.device().run_list(&all))?;
        pollster::block_on(s.device().read_part(0, 0..1))?;
        steps += 1;
        if window.elapsed().as_secs_f64() > 0.05 {
            let at = start.elapsed().as_secs_f64();
            said.push(format!("{:.2} at {at:.2} s", window.elapsed().as_secs_f64() * 1e3 / f64::from(steps)));
            (window, steps) = (Instant::now(), 0);
        }
    }
    println!("a step, ms: {}", said.join(", "));
    Ok(())
}

fn profile(s: &mut Session, step: &Step, rounds: u32) -> anyhow::Result<()> {
    let mut kinds: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (i, c) in s.commands().iter().enumerate().filter(|(_, c)| c.args_for(step).is_some()) {
        kinds.entry(format!("{} {}", c.op.title(), c.label)).or_default().push(i);
    }
    let mut rows = Vec::new();
    for (name, list) in kinds {
        let each = timed(s, &list, rounds.max(2))?;
        let first = &s.commands()[list[0]];
        let buffers = &s.built().plan.buffers;
        let loaded = |c: &Command| -> usize {
            let of = |&id: &usize| if buffers[id].role.is_loaded() { buffers[id].words } else { 0 };
            if matches!(c.op, Op::Embed(_)) { 0 } else { c.binds.iter().map(of).sum() }
        };
        rows.push((
            each * list.len() as f64,
            each,
            list.len(),
            name,
            loaded(first) as f64 * 4.0,
            operations(first, step),
        ));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let sum: f64 = rows.iter().map(|r| r.0).sum();
    for (total, each, n, name, bytes, ops) in rows {
        println!(
            "{:5.1} % {:9.2} us {n:3} x {name:48} {:7.0} GB/s {:8.2} TOP/s",
            100.0 * total / sum,
            each * 1e6,
            bytes / each * 1e-9,
            ops / each * 1e-12
        );
    }
    let all: Vec<usize> = (0..s.commands().len()).collect();
    let whole = timed(s, &all, rounds.max(2))? * all.len() as f64;
    println!("sum {:.1} us, the whole step {:.1} us\n", sum * 1e6, whole * 1e6);
    Ok(())
}

fn main() -> anyhow::Result<()> {
    env_logger::init();
    let cli = Cli::parse();
    let container = Container::open(&cli.model, LoadMode::Read)?;
    let hyper = Hyper::read(&container)?;
    let most = cli.tokens.iter().copied().max().context("--tokens is empty")? as usize;
    let (k_type, v_type, recent) = cli.types;
    let n_ctx = cli.depth as usize + most + 64;
    let plan = PlanOptions { n_ctx, ubatch: most, k_type, v_type, recent, ..PlanOptions::default() };
    let mut gpu = open(&cli)?;
    let options = SessionOptions { plan, memory: None, fuse: Fuse::On };
    let loading = Session::new(&mut gpu, &container, &hyper, options, |_| ());
    let mut s = pollster::block_on(loading)?;
    println!("{}, depth {}", s.device().info().name, cli.depth);
    s.advance(cli.depth as usize);
    for &n in &cli.tokens {
        let ids: Vec<u32> = (0..n).map(|i| i * 7919 % hyper.vocab as u32).collect();
        let step = s.prepare(&ids, 1).clone();
        pollster::block_on(s.device().begin(&step))?;
        println!("\n{n} tokens");
        warm(&mut s, cli.warm)?;
        profile(&mut s, &step, cli.rounds)?;
    }
    println!("{}", s.device().kernels().join(" "));
    Ok(())
}
