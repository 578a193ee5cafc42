//! What reading less buys: tokens a second with all logits read, with the best read, and with the next token under way.
//!
//! `cargo run --release --example reads -- --device 0 --model llama-58m` (a synthetic shape or a file). One model is
//! loaded once; the three ways take turns, a round each, and every round begins at the same position, so that the ratios
//! hold on a machine with other work. Greedy. The ids are compared before anything is printed.

use anyhow::{Context, ensure};
use clap::Parser;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::synthetic::Synthetic;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::generation::Reads;
use isobit::internals::generate::sampling::{Sampler, SamplerOptions};
use isobit::internals::generate::verify::prompt;
use isobit::internals::generate::{Generation, Session, SessionOptions};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::record::Device;
use std::time::Instant;

#[derive(Parser)]
struct Cli {
    /// cpu, or an index of `isobit devices`
    #[arg(long, default_value = "cpu")]
    device: String,
    /// a file, or a shape of `isobit bench --synthetic`
    #[arg(long, default_value = "llama-58m")]
    model: String,
    /// tokens a round
    #[arg(short, default_value_t = 24)]
    n: usize,
    #[arg(short, long, default_value_t = 9)]
    rounds: usize,
}

fn open(device: &str) -> anyhow::Result<Box<dyn Device>> {
    if device == "cpu" {
        return Ok(Box::new(CpuDevice::new(CpuOptions::default())?));
    }
    #[cfg(feature = "gpu")]
    {
        use isobit::internals::host::{GpuOptions, adapters, connect};
        let list = pollster::block_on(adapters());
        let index: usize = device.parse().context("--device is cpu or an index")?;
        let adapter = list.get(index).context("there is no such adapter")?;
        Ok(Box::new(pollster::block_on(connect(adapter, GpuOptions::default()))?.0))
    }
    #[cfg(not(feature = "gpu"))]
    anyhow::bail!("this build has no gpu feature")
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let c = match Synthetic::parse(&cli.model) {
        Ok(s) => s.container()?,
        Err(_) => Container::open(cli.model.as_ref(), LoadMode::Read)?,
    };
    let h = Hyper::read(&c)?;
    let plan = PlanOptions { n_ctx: cli.n + 64, ubatch: 16, ..PlanOptions::default() };
    let options = SessionOptions { plan, memory: None, fuse: Fuse::On };
    let mut device = open(&cli.device)?;
    println!("{} on {}, {} tokens, {} rounds", cli.model, device.info().name, cli.n, cli.rounds);
    pollster::block_on(async {
        let mut session = Session::new(device.as_mut(), &c, &h, options, |_| {}).await?;
        let greedy = SamplerOptions { temperature: 0.0, ..SamplerOptions::default() };
        let prompt = prompt(None, h.vocab, 16);
        let ways = [
            ("all logits", Reads::Logits, greedy.clone()),
            ("the best", Reads::Best, greedy.clone()),
            ("ahead", Reads::Ahead, greedy),
            ("top-k 40, all logits", Reads::Logits, SamplerOptions::default()),
            ("top-k 40, the best", Reads::Best, SamplerOptions::default()),
        ];
        let mut seconds = vec![Vec::new(); ways.len()];
        let mut texts = vec![Vec::new(); ways.len()];
        // the first round warms up
        for round in 0..=cli.rounds {
            for i in (0..ways.len()).map(|i| (i + round) % ways.len()) {
                session.reset();
                let mut g = Generation::new(&mut session, Sampler::new(ways[i].2.clone())?, ways[i].1);
                g.prompt(&prompt, true).await?;
                texts[i].clear();
                let start = Instant::now();
                for left in (0..cli.n).rev() {
                    texts[i].push(g.next(left > 0).await?);
                }
                let taken = start.elapsed().as_secs_f64();
                g.end().await?;
                if round > 0 {
                    seconds[i].push(taken);
                }
            }
        }
        ensure!(texts[0] == texts[1] && texts[0] == texts[2] && texts[3] == texts[4], "the ids differ: {texts:?}");
        let of_round = |i: usize, base: usize| {
            let mut ratios: Vec<f64> = seconds[base].iter().zip(&seconds[i]).map(|(b, s)| b / s).collect();
            ratios.sort_by(f64::total_cmp);
            (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1])
        };
        for (i, way) in ways.iter().enumerate() {
            let base = if i < 3 { 0 } else { 3 };
            let (low, middle, high) = of_round(i, base);
            let best = seconds[i].iter().copied().fold(f64::INFINITY, f64::min);
            // a round of n tokens runs n - 1 steps
            let rate = (cli.n - 1) as f64 / best;
            println!(
                "{:22} best {rate:7.1} t/s; ratio to {}: {middle:.3} ({low:.3} to {high:.3})",
                way.0, ways[base].0
            );
        }
        Ok(())
    })
}
