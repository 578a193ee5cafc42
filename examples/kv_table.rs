//! What each cache type costs in quality, as one Markdown table: `cargo run --release --example kv_table`.
//!
//! ```text
//! cargo run --release --example kv_table                         the F16 story model, all windows of 256 and of 512
//! cargo run --release --example kv_table -- --ctx 256 --chunks 8 --pairs q8_0/q8_0,q4_0/f16
//! cargo run --release --example kv_table -- --model big.gguf --text book.txt --ctx 2048 --device gpu
//! ```
//!
//! The protocol is that of `isobit perplexity` (`src/cli/perplexity.rs`): windows without overlap, the
//! beginning-of-text token first in each, the second half scored. Every key and value type is compared with the f32
//! cache at the same scored positions:
//!
//! - change: exp(mean difference of the negative log likelihoods) - 1, in percent
//! - ±: its standard error from those paired differences, taken as independent from token to token. It is far smaller
//!   than the error of a perplexity itself, because both caches score the same tokens
//! - KL: mean over the scored positions of the divergence of the whole softmax from that of the f32 cache, in f64
//! - top-1: how often both caches find the same token the likeliest
//! - recent: whether the query's own chunk of 64 positions is read from an f16 copy (`+r64` in `--pairs`)
//! - bytes: what one token takes in the cache, all layers, keys and values, without that copy
//!
//! f32/f32 is run again as any other pair and must show zeros: it shows that the measure compares what it should.
//! The numbers do not depend on the device or the number of threads. Nothing here is timed.

use anyhow::{Context, bail, ensure};
use clap::Parser;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::tokenizer::Tokenizer;
use isobit::internals::generate::verify::argmax;
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions, Recent};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::record::Device;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The pairs worth having: the plain types, one side at a time, both sides, and fine keys with coarse values.
const PAIRS: &str = "f32/f32,f16/f16,q8_0/q8_0,q8_0r/q8_0r,q4_0/f16,q4_0r/f16,tq3_0/f16,tq3_1/f16,f16/q4_0,f16/tq3_0,\
                     f16/tq3_1,q4_0/q4_0,q4_0r/q4_0r,q8_0r/tq3_1,q4_0r/tq3_1,tq3_0/tq3_0,tq3_1/tq3_1,\
                     q4_0/q4_0+r64,tq3_1/f16+r64,tq3_1/tq3_1+r64";

/// Bytes of reference logits kept at once; more windows are done in several batches.
const REFERENCE_BYTES: usize = 512 << 20;

#[derive(Parser)]
#[command(about = "Quality of every cache type against the f32 cache, as a Markdown table")]
struct Cli {
    /// GGUF file
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/tiny-stories-f16.gguf"))]
    #[arg(hide_default_value = true)]
    model: PathBuf,
    /// The text
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/valid.txt"))]
    #[arg(hide_default_value = true)]
    text: PathBuf,
    /// Window lengths; one table each
    #[arg(long, default_value = "256,512", value_delimiter = ',')]
    ctx: Vec<usize>,
    /// Windows to score, from the start; 0: all
    #[arg(long, default_value_t = 0)]
    chunks: usize,
    /// Key type / value type, `+r64` behind it for the f16 copy of recent positions
    #[arg(long, default_value = PAIRS, value_delimiter = ',', value_parser = Recent::parse_types, hide_default_value = true)]
    pairs: Vec<Pair>,
    /// cpu, gpu (the first real one), or an index of `isobit devices`
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Pairs computed at once on the CPU, one thread each; 0: one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

type Pair = (CacheType, CacheType, Recent);

/// The device named on the command line; on the CPU with one thread, as many of them run side by side.
fn open(spec: &str) -> anyhow::Result<Box<dyn Device>> {
    if spec == "cpu" {
        return Ok(Box::new(CpuDevice::new(CpuOptions { threads: 1, ..CpuOptions::default() })?));
    }
    gpu(spec)
}

#[cfg(not(feature = "gpu"))]
fn gpu(spec: &str) -> anyhow::Result<Box<dyn Device>> {
    bail!("--device {spec}: built without the gpu feature; use --device cpu")
}

#[cfg(feature = "gpu")]
fn gpu(spec: &str) -> anyhow::Result<Box<dyn Device>> {
    use isobit::internals::host;
    let list = pollster::block_on(host::adapters());
    let chosen = match (spec, spec.parse::<usize>()) {
        ("gpu", _) => list.iter().find(|a| !a.report().software),
        (_, Ok(index)) => list.get(index),
        _ => bail!("--device {spec}: expected cpu, gpu or an index of `isobit devices`"),
    };
    let adapter = chosen.with_context(|| format!("--device {spec}: there is none among {} adapters", list.len()))?;
    let (gpu, verdict) = pollster::block_on(host::connect(adapter, host::GpuOptions::default()))?;
    ensure!(verdict.exact(), "{}: {} words of the probe differ; not exact", adapter.title(), verdict.mismatches);
    Ok(Box::new(gpu))
}

/// A model, a text, and how to score it.
struct Task<'a> {
    container: &'a Container,
    hyper: &'a Hyper,
    device: &'a str,
    workers: usize,
    ctx: usize,
}

/// One scored position of the f32 cache.
struct Reference {
    logits: Vec<f32>,
    /// log of the sum of exponentials of `logits`
    lse: f64,
}

/// Sums over the scored positions of one pair.
#[derive(Clone, Copy, Default)]
struct Score {
    tokens: u64,
    nll: f64,
    change: f64,
    change_squares: f64,
    kl: f64,
    agreeing: u64,
}

impl Task<'_> {
    /// Position i predicts token i + 1, and those from here on are scored.
    fn first(&self) -> usize {
        self.ctx / 2
    }

    /// Positions scored in a window.
    fn rows(&self) -> usize {
        self.ctx - 1 - self.first()
    }

    /// Runs `job(device, 0..jobs)` on as many devices as there are workers; results in order.
    fn spread<T: Send>(
        &self,
        jobs: usize,
        job: impl Fn(&mut dyn Device, usize) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let work = || -> anyhow::Result<()> {
                let mut device = open(self.device)?;
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= jobs {
                        return Ok(());
                    }
                    let found = job(device.as_mut(), i)?;
                    done.lock().expect("no worker panics with the list").push((i, found));
                }
            };
            let handles: Vec<_> = (0..self.workers.min(jobs)).map(|_| scope.spawn(work)).collect();
            handles.into_iter().try_for_each(|h| h.join().expect("a worker panicked"))
        })?;
        let mut done = done.into_inner().expect("no worker panicked");
        done.sort_by_key(|(i, _)| *i);
        Ok(done.into_iter().map(|(_, found)| found).collect())
    }

    /// Feeds each window to a fresh session and hands `row(scored position, its target, logits)` over, in order.
    fn feed(
        &self,
        device: &mut dyn Device,
        (k_type, v_type, recent): Pair,
        windows: &[Vec<u32>],
        mut row: impl FnMut(usize, u32, &[f32]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let plan = PlanOptions {
            n_ctx: self.ctx,
            ubatch: self.ctx.min(512),
            max_out: self.rows(),
            k_type,
            v_type,
            recent,
            ..PlanOptions::default()
        };
        let options = SessionOptions { plan, memory: None, fuse: Fuse::On };
        let mut at = 0;
        pollster::block_on(async {
            let mut session = Session::new(device, self.container, self.hyper, options, |_| {}).await?;
            for window in windows {
                session.reset();
                let scored = session.feed(&window[..self.ctx - 1], Want::From(self.first()), |i, logits| {
                    at += 1;
                    row(at - 1, window[i + 1], logits)
                });
                scored.await?;
            }
            Ok(())
        })
    }

    /// The f32 cache's logits of these windows.
    fn reference(&self, windows: &[Vec<u32>]) -> anyhow::Result<Vec<Reference>> {
        let share: Vec<&[Vec<u32>]> = windows.chunks(windows.len().div_ceil(self.workers)).collect();
        let parts = self.spread(share.len(), |device, i| {
            let mut found = Vec::with_capacity(share[i].len() * self.rows());
            self.feed(device, (CacheType::F32, CacheType::F32, Recent::Off), share[i], |_, _, l| {
                found.push(Reference { logits: l.to_vec(), lse: lse(l) });
                Ok(())
            })?;
            Ok(found)
        })?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// One pair against the reference on the same windows.
    fn score(
        &self,
        device: &mut dyn Device,
        pair: Pair,
        windows: &[Vec<u32>],
        reference: &[Reference],
    ) -> anyhow::Result<Score> {
        let mut s = Score::default();
        self.feed(device, pair, windows, |at, target, l| {
            let (r, lse, target) = (&reference[at], lse(l), target as usize);
            let nll = lse - f64::from(l[target]);
            let change = nll - (r.lse - f64::from(r.logits[target]));
            // sum of p (ln p - ln q), the two normalisations taken out of the sum
            let moved: f64 = r
                .logits
                .iter()
                .zip(l)
                .map(|(p, q)| {
                    let p = f64::from(*p);
                    libm::exp(p - r.lse) * (p - f64::from(*q))
                })
                .sum();
            s.tokens += 1;
            s.nll += nll;
            s.change += change;
            s.change_squares += change * change;
            s.kl += moved + (lse - r.lse);
            s.agreeing += u64::from(argmax(&r.logits) == argmax(l));
            Ok(())
        })?;
        ensure!(s.tokens as usize == reference.len(), "{} positions scored, {} expected", s.tokens, reference.len());
        Ok(s)
    }
}

impl Score {
    fn add(&mut self, o: &Score) {
        self.tokens += o.tokens;
        self.nll += o.nll;
        self.change += o.change;
        self.change_squares += o.change_squares;
        self.kl += o.kl;
        self.agreeing += o.agreeing;
    }

    fn mean(&self, sum: f64) -> f64 {
        sum / self.tokens as f64
    }

    fn perplexity(&self) -> f64 {
        libm::exp(self.mean(self.nll))
    }

    /// Change of the perplexity and its standard error, in percent.
    fn change_percent(&self) -> (f64, f64) {
        let mean = self.mean(self.change);
        let variance = (self.mean(self.change_squares) - mean * mean).max(0.0);
        let error = (variance / (self.tokens.max(2) - 1) as f64).sqrt();
        (100.0 * libm::expm1(mean), 100.0 * libm::exp(mean) * error)
    }
}

/// Log of the sum of the exponentials, in f64.
fn lse(logits: &[f32]) -> f64 {
    let max = logits.iter().fold(f32::MIN, |m, v| m.max(*v));
    let sum: f64 = logits.iter().map(|v| libm::exp(f64::from(v - max))).sum();
    f64::from(max) + libm::log(sum)
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
    let tokenizer = Tokenizer::from_gguf(&container.meta)?;
    let text = std::fs::read_to_string(&cli.text).with_context(|| format!("cannot read {}", cli.text.display()))?;
    let ids = tokenizer.encode(&text, tokenizer.adds_bos(), false)?;
    let start = if tokenizer.adds_bos() { tokenizer.start() } else { &[] };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let workers = match (cli.device.as_str(), cli.threads) {
        ("cpu", 0) => cores,
        ("cpu", n) => n,
        _ => 1,
    };
    for &ctx in &cli.ctx {
        ensure!(ctx >= 4, "--ctx {ctx}: a window needs at least 4 tokens");
        let mut windows: Vec<Vec<u32>> = ids.chunks_exact(ctx).map(<[u32]>::to_vec).collect();
        ensure!(!windows.is_empty(), "{}: {} tokens do not fill one window of {ctx}", cli.text.display(), ids.len());
        if cli.chunks > 0 {
            windows.truncate(cli.chunks);
        }
        windows.iter_mut().for_each(|w| w[..start.len()].copy_from_slice(start));
        let task = Task { container: &container, hyper: &hyper, device: &cli.device, workers, ctx };
        table(&task, &cli, &windows)?;
    }
    Ok(())
}

fn table(task: &Task, cli: &Cli, windows: &[Vec<u32>]) -> anyhow::Result<()> {
    let ctx = task.ctx;
    let batch = (REFERENCE_BYTES / (task.rows() * task.hyper.vocab * 4)).max(1);
    let mut scores = vec![Score::default(); cli.pairs.len()];
    let started = std::time::Instant::now();
    let seconds = || started.elapsed().as_secs();
    for (b, windows) in windows.chunks(batch).enumerate() {
        eprintln!("ctx {ctx}: batch {b} of {} windows, f32 cache", windows.len());
        let reference = task.reference(windows)?;
        let found = task.spread(cli.pairs.len(), |device, i| {
            let (k, v, recent) = cli.pairs[i];
            let s = task.score(device, cli.pairs[i], windows, &reference)?;
            eprintln!("ctx {ctx}: {} perplexity {:.4}, {} s", recent.title(k, v), s.perplexity(), seconds());
            Ok(s)
        })?;
        scores.iter_mut().zip(&found).for_each(|(sum, s)| sum.add(s));
    }
    let tokens = scores.first().map_or(0, |s| s.tokens);
    println!("Context {ctx}: {} windows, {tokens} tokens scored.\n", windows.len());
    println!("| K | V | recent | bytes/token | perplexity | change % | ± | KL | top-1 % |");
    println!("|---|---|---|---:|---:|---:|---:|---:|---:|");
    for (&(k, v, recent), s) in cli.pairs.iter().zip(&scores) {
        let (change, error) = s.change_percent();
        println!(
            "| {} | {} | {} | {} | {:.4} | {change:+.4} | {error:.4} | {:.2e} | {:.2} |",
            k.name(),
            v.name(),
            if recent.applies(k, v) { "f16" } else { "" },
            task.hyper.cache_bytes(k, v).unwrap_or(0),
            s.perplexity(),
            s.mean(s.kl),
            100.0 * s.mean(s.agreeing as f64),
        );
    }
    println!();
    Ok(())
}
