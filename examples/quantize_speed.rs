//! What quantising costs beside copying the file, and what the encoders reach on one core.
//!
//! ```text
//! cargo run --release --example synth_model -- --out small.gguf --preset small --type f16
//! cargo run --release --example quantize_speed -- small.gguf
//! ```
//!
//! Every round copies the file (`std::fs::copy`, then flushed to the disk) and makes each of the types from it with the
//! library's own calls (flushed as well), one after the other, so that what else the machine does meets all alike. Printed
//! are the best of the rounds and the ratio copy / quantise: 1 is as fast as copying. On Linux also the processor time of
//! all threads, which other programs disturb less. The second table encodes 64 KiB of F32 in the cache on one thread at
//! every SIMD level.

use anyhow::{Context, Result};
use clap::Parser;
use isobit::internals::blocks::BlockType;
use isobit::internals::formats::output::Staged;
use isobit::internals::formats::policy::Policy;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::quantize::choose::Mix;
use isobit::internals::quantize::{self, Options, Target, Watch};
use isobit::internals::simd::{Level, encode};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "Measure quantising against copying")]
struct Args {
    /// GGUF file in F16
    model: PathBuf,
    /// Rounds; the best counts
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Leave the first table out
    #[arg(long)]
    rows_only: bool,
}

fn options(target: Target, mix: Mix) -> Options {
    Options {
        target,
        mix: Some(mix),
        policy: Policy::Off,
        patterns: vec![],
        pure: true,
        leave_output: false,
        output_type: None,
        embedding_type: None,
        importances: None,
        chosen: None,
        requantize: false,
        split: isobit::internals::quantize::Split::No,
        overrides: vec![],
        words: String::new(),
    }
}

/// Processor time of all threads of this process, where the system tells it.
fn cpu() -> Option<Duration> {
    let mut total = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        total += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(total))
}

/// Wall time and processor time of `work`.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<[Duration; 2]> {
    let (start, before) = (Instant::now(), cpu().unwrap_or_default());
    work()?;
    Ok([start.elapsed(), cpu().unwrap_or_default().saturating_sub(before)])
}

fn least(best: &mut [Duration; 2], t: [Duration; 2]) {
    *best = [best[0].min(t[0]), best[1].min(t[1])];
}

fn make(c: &Container, o: &Options, out: &Path) -> Result<()> {
    let job = quantize::plan(c, o)?;
    let (mut staged, _) = Staged::begin(out, &job.layout, false)?;
    let watch = Watch { begin: &|_| (), progress: &|_| (), stop: &|| false };
    quantize::run(&job, c, &mut staged, &[], Level::detect(), None, &watch)?;
    for (name, bytes) in &job.side {
        staged.put(name, bytes)?;
    }
    staged.commit()?;
    Ok(())
}

fn remove(path: &Path) {
    // what is not there need not be removed
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_dir_all(path);
}

fn files(a: &Args) -> Result<()> {
    let c = Container::open(&a.model, LoadMode::Read)?;
    let dir = tempfile::tempdir_in(a.model.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    let plain = |t| (Target::Gguf, Mix::Plain(t));
    let jobs = [
        ("Q8_0", plain(BlockType::Q8_0)),
        ("Q8K128", (Target::Packed, Mix::Plain(BlockType::Q8K128))),
        ("Q4_0", plain(BlockType::Q4_0)),
        ("Q4_K", plain(BlockType::Q4_K)),
        ("Q6_K", plain(BlockType::Q6_K)),
    ];
    let size = std::fs::metadata(&a.model)?.len();
    let mut copy = [Duration::MAX; 2];
    let mut best = [[Duration::MAX; 2]; 5];
    for _ in 0..a.rounds {
        let out = dir.path().join("copy");
        least(
            &mut copy,
            timed(|| {
                std::fs::copy(&a.model, &out)?;
                Ok(std::fs::File::open(&out)?.sync_all()?)
            })?,
        );
        remove(&out);
        for ((_, (target, mix)), best) in jobs.iter().zip(&mut best) {
            let out = dir.path().join("made");
            least(best, timed(|| make(&c, &options(*target, *mix), &out))?);
            remove(&out);
        }
    }
    let mb = |t: Duration| size as f64 / t.as_secs_f64() / 1e6;
    println!("{} MB of F16, best of {} rounds, {}", size / 1_000_000, a.rounds, Level::detect().name());
    let line = |name: &str, t: [Duration; 2]| {
        let [wall, cpu] = t.map(|t| t.as_secs_f64());
        let [of_wall, of_cpu] = [copy[0].as_secs_f64() / wall, copy[1].as_secs_f64() / cpu];
        let rate = mb(t[0]);
        println!(
            "{name:>8} {wall:>7.3} s, {rate:>5.0} MB/s of the source, {of_wall:.2} of copying; {cpu:.3} s of processor, {of_cpu:.2}"
        );
    };
    line("copy", copy);
    for ((name, _), t) in jobs.iter().zip(best) {
        line(name, t);
    }
    Ok(())
}

fn rows(rounds: usize) {
    // numbers in +-1, by a linear congruence; short enough that some round is not interrupted
    let mut state = 1u32;
    let x: Vec<f32> = (0..1 << 14)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
        })
        .collect();
    println!("MB/s of F32 input on one thread, best of {rounds}");
    for level in Level::available() {
        let mut cells = Vec::new();
        for ty in &BlockType::ALL[3..] {
            let mut out = vec![0; ty.row_bytes(x.len()).unwrap_or(0)];
            let mut best = Duration::MAX;
            for _ in 0..rounds {
                let start = Instant::now();
                encode::encode_row(level, *ty, &x, &mut out);
                best = best.min(start.elapsed());
            }
            cells.push(format!("{} {:.0}", ty.name(), x.len() as f64 * 4.0 / best.as_secs_f64() / 1e6));
        }
        println!("{:>8}: {}", level.name(), cells.join(", "));
    }
}

fn main() -> Result<()> {
    let a = Args::parse();
    if !a.rows_only {
        files(&a).with_context(|| a.model.display().to_string())?;
    }
    rows(100 * a.rounds);
    Ok(())
}
