//! Decode against plain reading, in turn: `cargo bench --bench decode -- [--threads N] [--tokens N] MODEL.gguf`.
//!
//! On a shared machine the memory's speed changes by half and more within seconds, and a limit measured before the tokens
//! says little about them. Here every token of depth 0 lies between two plain reads of 64 MiB by the same threads, its
//! share is of the mean of both, and it counts only where they agree within 6 %. The reads go through 1 GiB, so a token
//! finds the caches full of something else, as it does where weights are larger than they are. Medians, apart for every
//! 15 GB/s of what plain reading got: a memory that is shared has several speeds.

use anyhow::{Context, ensure};
use clap::Parser;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::record::Op;
use isobit::internals::simd::team::for_each;
use isobit::internals::simd::{Words, peak};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

/// Words of 64 bits that are walked through, those of one read, and the tasks it is cut into.
const FAR: usize = 1 << 27;
const READ: usize = 1 << 23;
const TASKS: usize = 32;

/// How far two reads may lie apart, and how far rows of the table do, in GB/s.
const AGREE: f64 = 0.06;
const ROW: f64 = 15.0;

#[derive(Parser)]
struct Cli {
    /// GGUF file, larger than the caches
    model: PathBuf,
    /// Worker threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Tokens timed
    #[arg(long, default_value_t = 400)]
    tokens: usize,
    /// What cargo bench hands to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let container = Container::open(&cli.model, LoadMode::Read)?;
    let hyper = Hyper::read(&container)?;
    let plan = PlanOptions { n_ctx: 64, ubatch: 1, ..PlanOptions::default() };
    let mut device = CpuDevice::new(CpuOptions { threads: cli.threads, ..CpuOptions::default() })?;
    let team = device.team().clone();
    let options = SessionOptions { plan, memory: None, fuse: Fuse::default() };
    let mut session = pollster::block_on(Session::new(&mut device, &container, &hyper, options, |_| ()))?;

    // of the embedding a token takes one row, unless it is the output matrix too
    let read_by = |id| session.commands().iter().any(|c| !matches!(c.op, Op::Embed(_)) && c.binds.contains(&id));
    let buffers = session.built().plan.buffers.iter().enumerate();
    let bytes: usize = buffers.filter(|(id, b)| b.role.is_loaded() && read_by(*id)).map(|(_, b)| b.words * 4).sum();

    let mut far = Words::zeroed(2 * FAR);
    far.fill(1);
    let far: &[u64] = bytemuck::cast_slice(&far);
    let mut turn = 0;
    let mut read = || {
        let from = &far[turn % (FAR / READ) * READ..][..READ];
        turn += 1;
        let start = Instant::now();
        team.install(|| {
            for_each(TASKS, |i| {
                black_box(peak::read(&from[i * (READ / TASKS)..][..READ / TASKS]));
            })
        });
        READ as f64 * 8e-9 / start.elapsed().as_secs_f64()
    };
    let mut token = || -> anyhow::Result<f64> {
        session.reset();
        let start = Instant::now();
        pollster::block_on(session.feed(&[0], Want::Last, |_, _| Ok(())))?;
        Ok(bytes as f64 * 1e-9 / start.elapsed().as_secs_f64())
    };

    // until the system has given each thread a core of its own
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < 1.5 {
        token()?;
        read();
    }
    let mut rows = BTreeMap::<usize, Vec<(f64, f64)>>::new();
    let mut before = read();
    for _ in 0..cli.tokens {
        let speed = token()?;
        let after = read();
        if (after / before - 1.0).abs() < AGREE {
            let limit = (before + after) / 2.0;
            rows.entry((limit / ROW) as usize).or_default().push((speed, limit));
        }
        before = after;
    }
    ensure!(!rows.is_empty(), "no token lay between two reads that agree: the machine is too busy");
    println!("{} MB a token, {} threads", bytes / 1_000_000, cli.threads);
    println!("| plain read GB/s | tokens | token GB/s | tokens/s | share | p10 | p90 |\n|--:|--:|--:|--:|--:|--:|--:|");
    for list in rows.values() {
        let column = |of: &dyn Fn(&(f64, f64)) -> f64, part: f64| {
            let mut v: Vec<f64> = list.iter().map(of).collect();
            v.sort_by(f64::total_cmp);
            v[((v.len() - 1) as f64 * part).round() as usize]
        };
        let (speed, limit) = (column(&|r| r.0, 0.5), column(&|r| r.1, 0.5));
        let share = |part| 100.0 * column(&|r| r.0 / r.1, part);
        println!(
            "| {limit:.1} | {} | {speed:.1} | {:.1} | {:.1} % | {:.1} | {:.1} |",
            list.len(),
            speed * 1e9 / bytes as f64,
            share(0.5),
            share(0.1),
            share(0.9)
        );
    }
    let model = cli.model.file_name().context("the model has a file name")?;
    println!("\n{}, depth 0, f16 cache", model.to_string_lossy());
    Ok(())
}
