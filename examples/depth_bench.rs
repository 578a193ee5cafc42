//! Decode speed by cache type and depth: `cargo run --release --example depth_bench -- --model m.gguf`.
//!
//! ```text
//! cargo run --release --example synth_model -- --out 100m.gguf --preset 100m
//! cargo run --release --example depth_bench -- --model 100m.gguf --device gpu
//! cargo run --release --example depth_bench -- --model 100m.gguf --types f16,q8_0r/tq3_1 --depths 0,8192
//! ```
//!
//! Each type has a session and a device of its own, all open at once, and takes its turn in every round, so that a busy
//! machine slows all of them alike: look at the ratios first. A long prompt is not computed. Instead every page of the
//! cache is filled with valid rows (512 positions of noise through `cache_write_*`, repeated through the page), and the
//! session is told that it has seen as many tokens as the depth says. A turn feeds two tokens to warm up, then `--n`
//! tokens one by one, each with its logits read back, and only these are timed: whole tokens, host and device together.
//! `Session::feed` refuses logits that are not finite, so a broken cache cannot pass as a fast one.
//!
//! - tokens/s: median of the rounds, with the slowest and the fastest
//! - ratio: median over the rounds of this type's speed over the first type's in the same round, at the same depth,
//!   with the lowest and the highest. Name a type twice to see how far two equal rows lie apart
//! - MB/token: keys and values of the positions attended to, each counted once (the mean over the timed tokens)
//! - GB/s: those bytes over the whole time of a token, the model's weights left out
//! - GB/s added: the bytes more than at the first depth over the time more than there: what attention alone reads, or a
//!   dash where the noise is larger than the difference

use anyhow::{Context, ensure};
use clap::Parser;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions, Recent};
use isobit::internals::ops::cache::{CacheType, CacheWriteParams, cache_write_k, cache_write_v};
use isobit::internals::ops::places::{self, Places};
use isobit::internals::record::{Args, Device, Op};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Positions of noise that a page repeats: a multiple of the 32 that keys are grouped by.
const SAMPLE: usize = 512;

/// Tokens fed before the clock starts.
const WARM_UP: usize = 2;

#[derive(Parser)]
#[command(about = "Decode speed of the cache types at several depths, as a Markdown table")]
struct Cli {
    /// GGUF file
    #[arg(long)]
    model: PathBuf,
    /// cpu, gpu (the first real one), or an index of `isobit devices`
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Tokens in the cache before the first one timed
    #[arg(long, default_value = "0,2048,8192,16384", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1 << 24))]
    depths: Vec<u32>,
    /// Cache types, or KEYS/VALUES; ratios are to the first
    #[arg(long, default_value = "f16,q8_0,q4_0,q4_0r,tq3_0,tq3_1", value_delimiter = ',', value_parser = Recent::parse_types)]
    types: Vec<Pair>,
    /// Tokens timed in a turn
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    n: u32,
    /// Turns of each type at each depth
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Worker threads of the CPU; 0: one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

type Pair = (CacheType, CacheType, Recent);

fn title((k, v, recent): Pair) -> String {
    let types = if k == v { k.name().to_string() } else { format!("{}/{}", k.name(), v.name()) };
    format!("{types}{}", if recent.applies(k, v) { "+r64" } else { "" })
}

fn open(cli: &Cli) -> anyhow::Result<Box<dyn Device>> {
    if cli.device == "cpu" {
        return Ok(Box::new(CpuDevice::new(CpuOptions { threads: cli.threads, ..CpuOptions::default() })?));
    }
    gpu(&cli.device)
}

#[cfg(not(feature = "gpu"))]
fn gpu(spec: &str) -> anyhow::Result<Box<dyn Device>> {
    anyhow::bail!("--device {spec}: built without the gpu feature; use --device cpu")
}

#[cfg(feature = "gpu")]
fn gpu(spec: &str) -> anyhow::Result<Box<dyn Device>> {
    use isobit::internals::host;
    let list = pollster::block_on(host::adapters());
    let chosen = match (spec, spec.parse::<usize>()) {
        ("gpu", _) => list.iter().find(|a| !a.report().software),
        (_, Ok(index)) => list.get(index),
        _ => anyhow::bail!("--device {spec}: expected cpu, gpu or an index of `isobit devices`"),
    };
    let adapter = chosen.with_context(|| format!("--device {spec}: there is none among {} adapters", list.len()))?;
    let (gpu, verdict) = pollster::block_on(host::connect(adapter, host::GpuOptions::default()))?;
    ensure!(verdict.exact(), "{}: {} words of the probe differ; not exact", adapter.title(), verdict.mismatches);
    Ok(Box::new(gpu))
}

/// Noise in -1..1 that depends only on the seed and the place.
fn noise(n: usize, seed: u64) -> Vec<f32> {
    let value = |i: usize| {
        let mut z = (seed << 32).wrapping_add(i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 31)).wrapping_mul(0x9E6C_63D0_676A_9A99);
        (z >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..n).map(value).collect()
}

/// The words of a page: `rows` (`[position][kv_heads][head_dim]`, `SAMPLE` positions) again and again. Keys and values
/// alike lie head by head, 32 neighbouring positions of a head together, so the words of a head repeat as a whole. The
/// values beside keys are the same rows.
fn page_of(op: Op, p: &CacheWriteParams, rows: &[f32]) -> anyhow::Result<Vec<u32>> {
    let (Op::CacheWriteK(t) | Op::CacheWriteV(t)) = op else { anyhow::bail!("{} writes no cache", op.title()) };
    let (heads, head_dim) = (p.kv_heads as usize, p.head_dim as usize);
    let words = t.words(head_dim).with_context(|| format!("{} cannot hold a head of {head_dim}", t.name()))?;
    let once = CacheWriteParams { n_tokens: SAMPLE as u32, page_first: 0, page_len: SAMPLE as u32, ..*p };
    let mut at = Vec::new();
    places::in_order(0, SAMPLE, 0, &mut at);
    let at = Places::new(&at);
    let mut sample = vec![0; heads * SAMPLE * words];
    match op {
        Op::CacheWriteK(_) => cache_write_k(t, &once, at, rows, rows, &mut sample),
        _ => cache_write_v(t, &once, at, rows, &mut sample),
    }
    let mut page = Vec::with_capacity(heads * p.page_len as usize * words);
    for head in sample.chunks_exact(SAMPLE * words) {
        page.extend(head.iter().cycle().take(p.page_len as usize * words));
    }
    Ok(page)
}

/// Fills every page of the cache, each layer alike.
async fn fill(session: &mut Session<'_>) -> anyhow::Result<()> {
    let writes: Vec<_> = session
        .commands()
        .iter()
        .flat_map(|c| match (c.op, c.args, c.outputs()) {
            (_, Args::CacheWrite(p), &[page]) => vec![(c.op, p, page)],
            (
                Op::RopeCacheWrite(k, v) | Op::RopeChannelCacheWrite(k, v),
                Args::RopeCacheWrite(p),
                &[_, keys, values],
            ) => {
                vec![(Op::CacheWriteK(k), p.write(0), keys), (Op::CacheWriteV(v), p.write(0), values)]
            }
            _ => vec![],
        })
        .collect();
    ensure!(!writes.is_empty(), "the plan writes no cache");
    let mut known: Vec<(Op, u32, Vec<u32>)> = Vec::new();
    for (op, p, buffer) in writes {
        if !known.iter().any(|(o, len, _)| (*o, *len) == (op, p.page_len)) {
            let seed = 1 + u64::from(matches!(op, Op::CacheWriteK(_)));
            let rows = noise(SAMPLE * (p.kv_heads * p.head_dim) as usize, seed);
            known.push((op, p.page_len, page_of(op, &p, &rows)?));
        }
        let page = known.iter().find(|(o, len, _)| (*o, *len) == (op, p.page_len)).context("made above")?;
        session.device().write(buffer, &page.2).await?;
    }
    Ok(())
}

/// Tokens a second after `depth` tokens.
async fn turn(session: &mut Session<'_>, depth: usize, n: usize, vocab: usize) -> anyhow::Result<f64> {
    session.reset();
    session.advance(depth);
    let mut start = Instant::now();
    for i in 0..WARM_UP + n {
        if i == WARM_UP {
            start = Instant::now();
        }
        let mut rows = 0;
        let id = ((depth + i) * 7919 % vocab) as u32;
        session
            .feed(&[id], Want::Last, |_, _| {
                rows += 1;
                Ok(())
            })
            .await?;
        ensure!(rows == 1, "{rows} rows of logits for one token");
    }
    Ok(n as f64 / start.elapsed().as_secs_f64())
}

fn median(values: &[f64]) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    (v[(v.len() - 1) / 2] + v[v.len() / 2]) / 2.0
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, 0f64), |(low, high), &v| (low.min(v), high.max(v)))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let container = Container::open(&cli.model, LoadMode::Read)?;
    let hyper = Hyper::read(&container)?;
    let n = cli.n as usize;
    let deepest = cli.depths.iter().copied().max().context("--depths is empty")? as usize;
    let mut devices = Vec::new();
    for _ in &cli.types {
        devices.push(open(&cli)?);
    }
    let name = devices.first().context("--types is empty")?.info().name;
    let mut sessions = Vec::new();
    for (device, &(k_type, v_type, recent)) in devices.iter_mut().zip(&cli.types) {
        let plan = PlanOptions { n_ctx: deepest + n + 64, ubatch: 1, k_type, v_type, recent, ..PlanOptions::default() };
        let options = SessionOptions { plan, memory: None, fuse: Fuse::On };
        let session = pollster::block_on(async {
            let mut s = Session::new(device.as_mut(), &container, &hyper, options, |_| {}).await?;
            fill(&mut s).await?;
            anyhow::Ok(s)
        });
        sessions.push(session.with_context(|| title((k_type, v_type, recent)))?);
        eprintln!("{} loaded and filled", title((k_type, v_type, recent)));
    }

    let command: Vec<String> = std::env::args().skip(1).collect();
    println!("`depth_bench {}`\n", command.join(" "));
    println!("{name}; {n} tokens timed after {WARM_UP}, {} rounds interleaved by type.\n", cli.rounds);
    let first = title(cli.types[0]);
    println!("| depth | cache | tokens/s | range | ratio to {first} | ratio range | MB/token | GB/s | GB/s added |");
    println!("|---:|---|---:|---:|---:|---:|---:|---:|---:|");
    let mut shallow = vec![None; sessions.len()];
    for &depth in &cli.depths {
        let depth = depth as usize;
        let mut speeds = vec![Vec::new(); sessions.len()];
        for round in 0..cli.rounds as usize {
            // another type begins each round: none always follows the same one
            for i in 0..cli.types.len() {
                let i = (round + i) % cli.types.len();
                let speed = pollster::block_on(turn(&mut sessions[i], depth, n, hyper.vocab))
                    .with_context(|| format!("{} at depth {depth}", title(cli.types[i])))?;
                speeds[i].push(speed);
                eprintln!("depth {depth} round {round} {}: {speed:.2} tokens/s", title(cli.types[i]));
            }
        }
        for (i, (found, &(k, v, recent))) in speeds.iter().zip(&cli.types).enumerate() {
            // token i of n attends to depth + WARM_UP + i + 1 positions
            let positions = (depth + WARM_UP) as f64 + (n + 1) as f64 / 2.0;
            let bytes = positions * hyper.cache_bytes(k, v).unwrap_or(0) as f64;
            let speed = median(found);
            let ratios: Vec<f64> = found.iter().zip(&speeds[0]).map(|(a, b)| a / b).collect();
            let (low, high) = range(found);
            let (ratio_low, ratio_high) = range(&ratios);
            let (bytes_before, speed_before) = *shallow[i].get_or_insert((bytes, speed));
            let added = (bytes - bytes_before) / (1.0 / speed - 1.0 / speed_before) / 1e9;
            let added = if added.is_finite() && added > 0.0 { format!("{added:.2}") } else { "-".to_string() };
            let (name, range) = (title((k, v, recent)), format!("{low:.2}-{high:.2}"));
            let ratio = format!("{:.2} | {ratio_low:.2}-{ratio_high:.2}", median(&ratios));
            let (megabytes, rate) = (bytes / 1e6, bytes * speed / 1e9);
            println!("| {depth} | {name} | {speed:.2} | {range} | {ratio} | {megabytes:.3} | {rate:.2} | {added} |");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_page_is_the_page_that_writing_every_position_gives() {
        let (len, row) = (2 * SAMPLE + 64, 3 * 64);
        let once = noise(SAMPLE * row, 5);
        let all: Vec<f32> = once.iter().copied().cycle().take(len * row).collect();
        let (n, page_first) = (len as u32, 128);
        let p = CacheWriteParams { n_tokens: n, kv_heads: 3, head_dim: 64, page_first, page_len: n, ring: 0, table: 0 };
        let mut at = Vec::new();
        places::in_order(page_first as usize, len, 0, &mut at);
        let at = Places::new(&at);
        for t in CacheType::ALL {
            let words = len * 3 * t.words(64).expect("a head of 64");
            let (mut k, mut v) = (vec![0; words], vec![0; words]);
            cache_write_k(t, &p, at, &all, &all, &mut k);
            cache_write_v(t, &p, at, &all, &mut v);
            assert!(page_of(Op::CacheWriteK(t), &p, &once).expect("keys") == k, "keys {}", t.name());
            assert!(page_of(Op::CacheWriteV(t), &p, &once).expect("values") == v, "values {}", t.name());
            assert!(k != v, "{}", t.name());
        }
    }
}
