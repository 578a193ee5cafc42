//! What a slow core costs: `cargo run --release --example uneven -- MODEL [--threads N] [--times 2,3]`.
//!
//! One worker is made to take 2 or 3 times as long for everything (it spins after each task), and whole steps of one token
//! and of many are timed with it and without, in turn. "lost share" is what the time must be when threads of such speeds
//! share the work evenly: with two threads, one of them twice slower, 2 / 1.5 of the time.

use clap::Parser;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::synthetic::Synthetic;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions};
use std::path::PathBuf;
use std::time::Instant;

#[derive(Parser)]
struct Cli {
    /// GGUF file, or a synthetic model as llama-58m
    model: String,
    /// Worker threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=256))]
    threads: u32,
    /// How many times slower one of them is made
    #[arg(long, default_value = "2,3", value_delimiter = ',')]
    times: Vec<f64>,
    /// Tokens of the prompt; 0 leaves it out
    #[arg(long, default_value_t = 512)]
    prompt: u32,
    /// Steps of one token in a round; 0 leaves them out
    #[arg(long, default_value_t = 16)]
    tokens: u32,
    /// Rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

/// The value below which this part of some values lies.
fn at(values: &[f64], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * part).round() as usize]
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let path = PathBuf::from(&cli.model);
    let container = match Synthetic::parse(&cli.model) {
        Ok(shape) if !path.exists() => shape.container()?,
        _ => Container::open(&path, LoadMode::Read)?,
    };
    let hyper = Hyper::read(&container)?;
    let n_ctx = (cli.prompt + cli.tokens).max(8) as usize;
    let plan = PlanOptions { n_ctx, ubatch: (cli.prompt as usize).clamp(1, n_ctx), ..PlanOptions::default() };
    let mut device = CpuDevice::new(CpuOptions { threads: cli.threads as usize, ..CpuOptions::default() })?;
    let team = device.team().clone();
    let options = SessionOptions { plan, memory: None, fuse: Fuse::default() };
    let mut session = pollster::block_on(Session::new(&mut device, &container, &hyper, options, |_| ()))?;

    // seconds of a prompt and of the tokens after it
    let mut round = || -> anyhow::Result<[f64; 2]> {
        session.reset();
        let ids: Vec<u32> = (0..cli.prompt).map(|i| i % 97).collect();
        let start = Instant::now();
        if cli.prompt > 0 {
            pollster::block_on(session.feed(&ids, Want::Last, |_, _| Ok(())))?;
        }
        let prompt = start.elapsed().as_secs_f64();
        for i in 0..cli.tokens {
            pollster::block_on(session.feed(&[i % 97], Want::Last, |_, _| Ok(())))?;
        }
        Ok([prompt, start.elapsed().as_secs_f64() - prompt])
    };
    for _ in 0..2 {
        round()?;
    }
    println!("| slow by | step | even, ms | slow, ms | ratio (quartiles) | lost share |\n|--:|---|--:|--:|--:|--:|");
    for &times in &cli.times {
        let mut runs = Vec::new();
        for _ in 0..cli.rounds {
            let even = round()?;
            team.slow(1, times);
            let slow = round();
            team.slow(1, 1.0);
            runs.push((even, slow?));
        }
        let threads = f64::from(cli.threads);
        let lost = threads / (threads - 1.0 + 1.0 / times);
        for (i, (step, steps)) in [("prompt", cli.prompt.min(1)), ("token", cli.tokens)].into_iter().enumerate() {
            if steps == 0 {
                continue;
            }
            let even: Vec<f64> = runs.iter().map(|(even, _)| even[i]).collect();
            let slow: Vec<f64> = runs.iter().map(|(_, slow)| slow[i]).collect();
            let ratios: Vec<f64> = even.iter().zip(&slow).map(|(even, slow)| slow / even).collect();
            let ms = 1e3 / f64::from(steps);
            println!(
                "| {times} | {step} | {:.3} | {:.3} | {:.3} ({:.3} to {:.3}) | {lost:.3} |",
                at(&even, 0.5) * ms,
                at(&slow, 0.5) * ms,
                at(&ratios, 0.5),
                at(&ratios, 0.25),
                at(&ratios, 0.75),
            );
        }
    }
    Ok(())
}
