//! What several subcommands share: opening a model, choosing a device, options of the engine, progress.

use super::interrupt;
use super::names::{self, HubArgs};
use super::notes::BARS;
pub(super) use super::notes::{above_bars, note};
use crate::bench::schema::Kernels;
use crate::cpu::Codebooks;
use crate::engine::{self, Activations, Device as Opened, Model};
use crate::formats::{Container, LoadMode};
use crate::fuse::Fuse;
use crate::generate::SessionOptions;
#[cfg(feature = "gpu")]
use crate::host;
use crate::models::{self, Head, Hyper, PlanError, PlanOptions, Recent};
use crate::ops::cache::CacheType;
use crate::store::{Store, Tune};
use anyhow::{Context, bail, ensure};
use clap::Args;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// No device of that name, or none that is exact: exit 3.
#[derive(Debug)]
pub struct DeviceError(pub String);

impl std::fmt::Display for DeviceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DeviceError {}

/// A whole number of a flag, within bounds.
pub fn whole<const MIN: usize, const MAX: usize>(s: &str) -> Result<usize, String> {
    s.parse().ok().filter(|n| (MIN..=MAX).contains(n)).ok_or_else(|| match MAX {
        usize::MAX => format!("expected a whole number, {MIN} or more"),
        _ => format!("expected a whole number from {MIN} to {MAX}"),
    })
}

/// A whole number of a flag.
pub fn count(s: &str) -> Result<usize, String> {
    whole::<0, { usize::MAX }>(s)
}

/// A cache type of a flag.
pub fn cache_type(s: &str) -> Result<CacheType, String> {
    CacheType::parse(&s.to_lowercase()).ok_or_else(|| {
        let known: Vec<&str> = CacheType::ALL.iter().map(|t| t.name()).collect();
        format!("expected {}", known.join(", "))
    })
}

/// A word that is not empty.
pub fn word(s: &str) -> Result<String, String> {
    if s.trim().is_empty() { Err("expected a word, found none".into()) } else { Ok(s.trim().to_string()) }
}

/// A word that names a device, or several: `gpu+cpu`, or with commas.
pub fn devices(s: &str) -> Result<String, String> {
    // an adapter's full name may have a comma before a space
    let names: Vec<String> = s.split(", ").map(|part| part.replace(',', "+")).collect();
    word(&names.join(", "))
}

/// Layers of each of several devices.
#[derive(Clone, Debug)]
pub struct Counts(Vec<usize>);

/// `20,12`.
pub fn counts(s: &str) -> Result<Counts, String> {
    let counts: Option<Vec<usize>> = s.split([',', '+']).map(|n| n.trim().parse().ok()).collect();
    counts.map(Counts).ok_or_else(|| "expected how many layers each device gets, as in 20,12".into())
}

#[derive(Args)]
pub struct ModelArgs {
    /// GGUF or BUMP file, Hugging Face or packed directory, or a name (`isobit models`) [default: the embedded model]
    #[arg(env = "ISOBIT_MODEL", hide_env_values = true)]
    pub model: Option<PathBuf>,
    /// The same as MODEL
    #[arg(short = 'm', long = "model", value_name = "MODEL")]
    pub model_flag: Option<PathBuf>,
    /// A GGUF file or a directory whose tokeniser is taken
    #[arg(long, value_name = "MODEL", help_heading = "Engine")]
    pub tokenizer: Option<PathBuf>,
    /// How files are read: read, mmap
    // a file that is truncated while it is mapped kills the process
    #[arg(long, value_enum, default_value = "read", env = "ISOBIT_LOAD_MODE", hide_env_values = true)]
    #[arg(value_name = "MODE", hide_possible_values = true, help_heading = "Engine")]
    pub load_mode: Load,
    #[command(flatten)]
    pub hub: HubArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum TuneWhen {
    Auto,
    Now,
    Off,
}

/// A variant of `--variant`, checked; nothing to check where there is no GPU.
fn variant(s: &str) -> Result<String, String> {
    #[cfg(feature = "gpu")]
    host::variants::Forced::parse(s)?;
    Ok(s.to_string())
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Load {
    Read,
    Mmap,
}

impl Load {
    pub fn mode(self) -> LoadMode {
        match self {
            Load::Read => LoadMode::Read,
            Load::Mmap => LoadMode::Mmap,
        }
    }
}

impl ModelArgs {
    /// What was named: `-m` goes before the environment, and clap has put that in `model`.
    pub fn path(&self) -> Option<&Path> {
        self.model_flag.as_deref().or(self.model.as_deref())
    }

    /// What was named, to be run.
    pub fn model(&self) -> anyhow::Result<Model> {
        Ok(Model::from_container(self.open()?)?)
    }

    /// What was named, which may be nothing that runs.
    pub fn open(&self) -> anyhow::Result<Container> {
        let from_environment = std::env::var_os("ISOBIT_MODEL");
        if let (Some(flag), Some(model)) = (&self.model_flag, &self.model) {
            ensure!(
                flag == model || from_environment.is_some_and(|e| e == *model.as_os_str()),
                "two models, {} and -m {}: give one",
                model.display(),
                flag.display()
            );
        }
        let mut c = match self.hub.asked(self.path())? {
            true => Container::open(&self.hub.model()?, self.load_mode.mode())?,
            false => open(self.path(), self.load_mode)?,
        };
        if let Some(from) = &self.tokenizer {
            c.take_tokenizer(&names::resolve(from)?)?;
        }
        Ok(c)
    }
}

pub fn open(path: Option<&Path>, mode: Load) -> anyhow::Result<Container> {
    match path {
        None => Ok(Model::embedded_container()),
        Some(p) => Ok(Container::open(&names::resolve(p)?, mode.mode())?),
    }
}

fn fuse(s: &str) -> Result<Fuse, String> {
    match s {
        "on" => Ok(Fuse::On),
        "wide" => Ok(Fuse::Wide),
        "off" => Ok(Fuse::Off),
        _ => Err("expected on, wide or off".into()),
    }
}

fn codebooks(s: &str) -> Result<Codebooks, String> {
    match s {
        "auto" => Ok(Codebooks::Auto),
        "compact" => Ok(Codebooks::Compact),
        "wide" => Ok(Codebooks::Wide),
        _ => Err("expected auto, compact or wide".into()),
    }
}

/// A clap value parser.
pub fn recent(s: &str) -> Result<Recent, String> {
    Recent::parse(s).ok_or_else(|| "expected auto, on or off".into())
}

/// `--ubatch` where it is not given.
pub const DEFAULT_UBATCH: usize = 512;

/// Which kernels run; none of these ever changes a bit of a result.
#[derive(Args, Clone)]
#[command(next_help_heading = "Engine")]
pub struct KernelArgs {
    /// Fewer, larger commands: on, wide (all but gate_up) or off; never changes a bit of the result
    #[arg(long, default_value = "on", hide = true, value_name = "HOW", value_parser = fuse, env = "ISOBIT_FUSE")]
    pub fuse: Fuse,
    /// Measure kernels: auto, now, off
    // auto: at shapes that are new
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN", hide_possible_values = true)]
    #[arg(env = "ISOBIT_TUNE", hide_env_values = true)]
    pub tune: TuneWhen,
    /// Kernels' variant: matmul, or q4k_matvec=matmul
    #[arg(long = "variant", value_name = "[OP=]NAME", value_delimiter = ',', value_parser = variant)]
    #[arg(env = "ISOBIT_VARIANT", hide_env_values = true)]
    pub variants: Vec<String>,
    /// Types with codebooks (IQ1 to IQ3) on the CPU: auto, compact as in the file, or wide, quicker to unpack
    #[arg(long, default_value = "auto", hide = true, value_name = "HOW", value_parser = codebooks)]
    #[arg(env = "ISOBIT_CODEBOOKS", hide_env_values = true)]
    pub codebooks: Codebooks,
    /// Where measurements are kept between runs
    #[arg(long, hide = true, value_name = "DIR", env = "ISOBIT_CACHE_DIR", hide_env_values = true)]
    pub cache_dir: Option<PathBuf>,
}

#[derive(Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// Positions the cache holds; 0: the model's context, at most 4096
    #[arg(short = 'c', long = "ctx-size", default_value = "0", value_name = "N", value_parser = whole::<0, {1 << 28}>)]
    #[arg(env = "ISOBIT_CTX_SIZE", hide_env_values = true, allow_negative_numbers = true)]
    pub ctx: usize,
    /// Type of cached keys (also -ctk): f32, f16, q8_0, q4_0, q8_0r, q4_0r, tq3_0, tq3_1, c8 (model's scales)
    #[arg(long, default_value = "f16", value_name = "TYPE", alias = "cache-type-k", value_parser = cache_type)]
    #[arg(env = "ISOBIT_CTK", hide_env_values = true)]
    pub ctk: CacheType,
    /// Type of cached values (also -ctv)
    #[arg(long, default_value = "f16", value_name = "TYPE", alias = "cache-type-v", value_parser = cache_type)]
    #[arg(env = "ISOBIT_CTV", hide_env_values = true)]
    pub ctv: CacheType,
    /// Read a query's own 64 positions from an f16 copy: auto (with tq3_1), on, off
    #[arg(long, default_value = "auto", value_name = "WHEN", value_parser = recent, env = "ISOBIT_KV_RECENT")]
    #[arg(hide_env_values = true)]
    pub kv_recent: Recent,
    /// Tokens at once, at most (-ub)
    #[arg(long, default_value_t = DEFAULT_UBATCH, value_name = "N", alias = "ubatch-size")]
    #[arg(value_parser = whole::<1, 65535>)]
    #[arg(env = "ISOBIT_UBATCH", hide_env_values = true, allow_negative_numbers = true)]
    pub ubatch: usize,
    /// Bits of the activations: 8 or 16
    #[arg(long, default_value = "8", value_name = "BITS", value_parser = ["8", "16"], hide_possible_values = true)]
    #[arg(env = "ISOBIT_ACTIVATIONS", hide_env_values = true)]
    pub activations: String,
    /// CPU threads; 0: one per core
    #[arg(short = 't', long, default_value = "0", value_name = "N", value_parser = whole::<0, 1024>)]
    #[arg(env = "ISOBIT_THREADS", hide_env_values = true, allow_negative_numbers = true)]
    pub threads: usize,
    /// Layers of each of several devices [default: by memory]
    #[arg(long, value_name = "N,M", value_parser = counts)]
    pub split: Option<Counts>,
    /// Experts on the CPU, in main memory; --n-cpu-moe N: those of N layers
    #[arg(long, conflicts_with = "n_cpu_moe")]
    pub cpu_moe: bool,
    /// The same of the first N layers that have experts
    #[arg(long, hide = true, value_name = "N", default_value_t = 0)]
    pub n_cpu_moe: usize,
    /// The kernels
    #[command(flatten)]
    pub kernels: KernelArgs,
    /// Pretend that devices bind at most this many bytes (splits weights and cache as a small device would)
    #[arg(long, hide = true, value_name = "BYTES")]
    pub max_binding: Option<u64>,
}

impl KernelArgs {
    /// When kernels are measured.
    fn tune(&self) -> Tune {
        match self.tune {
            TuneWhen::Auto => Tune::Auto,
            TuneWhen::Now => Tune::Now,
            TuneWhen::Off => Tune::Off,
        }
    }

    /// Where that is kept.
    fn store(&self) -> Option<Arc<dyn Store>> {
        match self.tune {
            TuneWhen::Off => None,
            _ => super::store::open(self.cache_dir.as_deref()),
        }
    }

    /// For rows of a benchmark.
    pub fn row(&self) -> Kernels {
        let fuse = match self.fuse {
            Fuse::On => "on",
            Fuse::Wide => "wide",
            Fuse::Off => "off",
        };
        let tune = match self.tune {
            TuneWhen::Auto => "auto",
            TuneWhen::Now => "now",
            TuneWhen::Off => "off",
        };
        Kernels { fuse: fuse.into(), variant: self.variants.join(","), tune: tune.into() }
    }
}

impl EngineArgs {
    /// Options of a session of the engine over `context` positions, of which a step may return `rows` rows of logits. It keeps
    /// no checkpoints: where texts are to be gone on from, [`CheckpointArgs`] say how many.
    pub fn options(&self, context: usize, rows: usize) -> engine::SessionOptions {
        engine::SessionOptions {
            context,
            ubatch: self.ubatch,
            rows,
            activations: self.activations(),
            k_type: self.ctk,
            v_type: self.ctv,
            recent: self.kv_recent,
            fuse: self.kernels.fuse,
            checkpoints: 0,
            ..engine::SessionOptions::default()
        }
    }

    /// Options of a session that is measured or compared, over `n_ctx` positions on the devices that were opened.
    pub fn session(&self, n_ctx: usize, max_out: usize) -> SessionOptions {
        SessionOptions {
            plan: PlanOptions {
                n_ctx,
                ubatch: self.ubatch.min(n_ctx),
                max_out,
                digits: self.activations().digits(),
                k_type: self.ctk,
                v_type: self.ctv,
                recent: self.kv_recent,
                ..PlanOptions::default()
            },
            memory: None,
            fuse: self.kernels.fuse,
        }
    }

    /// Bits of the activations.
    pub fn activations(&self) -> Activations {
        if self.activations == "16" { Activations::Bits16 } else { Activations::Bits8 }
    }

    /// The line that says what decides the logits, for a JSON object: reads the whole model.
    pub fn fingerprint(
        &self,
        model: &Model,
        n_ctx: usize,
        (k, v, recent): (CacheType, CacheType, Recent),
    ) -> anyhow::Result<String> {
        let _status = Status::new("reading the model for its fingerprint");
        let long = model.hyper().takes_long_factors(n_ctx);
        Ok(engine::fingerprint(model.digest()?, long, self.activations(), k, v, recent))
    }

    /// Whether plans have an f16 copy of recent positions.
    pub fn recent(&self) -> bool {
        self.kv_recent.applies(self.ctk, self.ctv)
    }

    /// The context: as asked, or the model's own up to 4096.
    pub fn n_ctx(&self, h: &Hyper) -> usize {
        // where positions are learned, a plan for more is refused
        if self.ctx > h.context && !h.family.learns_positions() {
            note!("warning: the model was trained for {} positions, -c asks for {}", h.context, self.ctx);
        }
        if self.ctx > 0 { self.ctx } else { h.context.min(4096) }
    }

    /// How devices are opened.
    pub fn device_options(&self) -> engine::DeviceOptions {
        engine::DeviceOptions {
            threads: self.threads,
            max_binding: self.max_binding,
            cpu_experts: if self.cpu_moe { usize::MAX } else { self.n_cpu_moe },
            stop: interrupt::stop().clone(),
            tune: self.kernels.tune(),
            codebooks: self.kernels.codebooks,
            store: self.kernels.store(),
            #[cfg(feature = "gpu")]
            gpu: self.gpu(None),
        }
    }

    /// A word of a device as the engine takes it, with the layers of each where that was asked for.
    pub fn device(&self, word: &str) -> String {
        match &self.split {
            None => word.to_string(),
            Some(Counts(counts)) => {
                let counts: Vec<String> = counts.iter().map(ToString::to_string).collect();
                format!("{word}@{}", counts.join("+"))
            }
        }
    }

    /// Opens devices; adapters are looked for when the first is asked for.
    pub fn devices(&self) -> Devices<'_> {
        Devices { engine: self, inner: engine::Devices::new(self.device_options()) }
    }

    /// Options of a GPU device.
    #[cfg(feature = "gpu")]
    fn gpu(&self, fallback: Option<&str>) -> host::GpuOptions {
        // of several words the last that serves is taken
        let words = fallback.into_iter().chain(self.kernels.variants.iter().map(String::as_str));
        let variants = words.filter_map(|s| host::variants::Forced::parse(s).ok()).collect();
        let (tune, store) = (self.kernels.tune(), self.kernels.store());
        // for finding out what is wrong with a driver, and for measuring
        let upload = match std::env::var("ISOBIT_UPLOAD").as_deref() {
            Ok("staged") => host::Upload::Staged,
            Ok("in-place") => host::Upload::InPlace,
            _ => host::Upload::Auto,
        };
        let loops = match std::env::var("ISOBIT_LOOPS").as_deref() {
            Ok("counted") => Some(host::Loops::Counted),
            Ok("plain") => Some(host::Loops::Plain),
            Ok("unrolled") => Some(host::Loops::Unrolled),
            _ => None,
        };
        let unpack = std::env::var("ISOBIT_HALVES").as_deref() != Ok("integers");
        host::GpuOptions { variants, tune, store, upload, loops, unpack, ..host::GpuOptions::default() }
    }
}

/// The devices of `--device` words, as the engine opens them; here is what to say of them.
pub struct Devices<'a> {
    engine: &'a EngineArgs,
    inner: engine::Devices,
}

impl Devices<'_> {
    /// Opens a device. That `auto` took the CPU is said, and an error names the flag.
    pub fn open(&self, spec: &str) -> anyhow::Result<Opened> {
        self.open_word(&self.engine.device(spec))
    }

    fn open_word(&self, word: &str) -> anyhow::Result<Opened> {
        let opened = self.inner.open(word).map_err(|e| match e {
            engine::Error::Device(cause) => DeviceError(format!("--device {cause}")).into(),
            other => anyhow::Error::from(other),
        })?;
        if let Some(why) = opened.instead() {
            note!("{why}: running on the CPU");
        }
        Ok(opened)
    }

    /// Opens the first of several devices.
    pub fn open_first(&self, spec: &str) -> anyhow::Result<Opened> {
        let first = spec.split('+').next().unwrap_or(spec);
        self.open_word(first)
    }

    /// Adapters opened from now on use this variant, where `--variant` asks for none that serves.
    #[cfg_attr(not(feature = "gpu"), allow(unused_variables, reason = "only adapters have variants"))]
    pub fn fall_back_on(&mut self, variant: Option<&str>) {
        #[cfg(feature = "gpu")]
        {
            self.inner.options().gpu = self.engine.gpu(variant);
        }
    }

    /// How many adapters there are.
    pub fn adapters(&self) -> usize {
        self.inner.adapters()
    }

    /// Bytes a second of plain reads and int8 operations a second of an adapter, measured now on a device of its own.
    pub fn adapter_limits(&self, index: usize) -> anyhow::Result<(f64, f64)> {
        Ok(self.inner.adapter_limits(index)?)
    }
}

/// Refuses a model that generates nothing, before anything is asked for.
pub fn generates(model: &Model) -> anyhow::Result<()> {
    has_logits(model.hyper())
}

/// The same, of its shape alone.
pub fn has_logits(h: &Hyper) -> anyhow::Result<()> {
    ensure!(!h.family.is_encoder(), PlanError::Encoder { arch: h.family.name() });
    Ok(())
}

/// Whether a session could begin with these weights: every tensor there, of a type and shape that the hyperparameters ask
/// for, and the factors of its positions sound. Reads no matrix.
pub fn check_weights(c: &Container, h: &Hyper) -> anyhow::Result<()> {
    let n_ctx = h.context.min(64);
    let head = if h.family.is_encoder() { Head::Hidden } else { Head::Logits };
    let plan = PlanOptions { n_ctx, ubatch: 1, recent: Recent::Off, head, ..PlanOptions::default() };
    models::build(c, h, &plan)?;
    models::rope_table(c, h, n_ctx)?;
    Ok(())
}

/// `12s left`; nothing before there is something to reckon with.
fn left(done: u64, elapsed: Duration, eta: Duration) -> String {
    let known = done > 0 && elapsed >= Duration::from_secs(1) && !eta.is_zero();
    if known { format!("{:#} left", HumanDuration(eta)) } else { String::new() }
}

/// A bar on stderr, shown at once. `{eta}` in the template is the time left, once that is known.
pub fn bar(len: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let eta = |s: &ProgressState, w: &mut dyn std::fmt::Write| {
        // a string takes whatever is written
        let _ = w.write_str(&left(s.pos(), s.elapsed(), s.eta()));
    };
    let bar = BARS.add(ProgressBar::new(len).with_style(style.with_key("eta", eta)));
    // also where bars before it have used up what is drawn in a second
    bar.force_draw();
    bar
}

/// A line on stderr that says what goes on, gone when this is dropped.
pub struct Status(ProgressBar);

impl Status {
    /// Shows a line.
    pub fn new(text: &str) -> Status {
        let status = Status(bar(0, "{wide_msg}"));
        status.set(text);
        status
    }

    /// Replaces the line, at once: what it tells of may take minutes. What a terminal has no room for is cut.
    pub fn set(&self, text: &str) {
        self.0.set_message(super::one_line(text));
        self.0.force_draw();
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The bar shown while weights are loaded.
pub fn load_bar(c: &Container) -> ProgressBar {
    bar(c.total_bytes(), "loading {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}")
}

/// The most bytes of text that are read.
const TEXT_LIMIT: u64 = 256 << 20;

/// Reads `-p` or `-f` (`-` for stdin); exactly one of them.
pub fn text(prompt: Option<&str>, file: Option<&Path>) -> anyhow::Result<String> {
    let (name, bytes) = match (prompt, file) {
        (Some(p), None) => return Ok(p.to_string()),
        (None, Some(f)) if f.as_os_str() == "-" => ("stdin".to_string(), limited(std::io::stdin())),
        (None, Some(f)) => (f.display().to_string(), std::fs::File::open(f).and_then(limited)),
        _ => bail!("no text: give one with -p TEXT or -f FILE (-f - reads stdin)"),
    };
    let bytes = bytes.with_context(|| name.clone())?;
    ensure!(bytes.len() as u64 <= TEXT_LIMIT, "{name}: more than {} MiB of text", TEXT_LIMIT >> 20);
    String::from_utf8(bytes)
        .map_err(|e| anyhow::anyhow!("{name}: not UTF-8 text: byte {} is wrong", e.utf8_error().valid_up_to()))
}

/// Refuses a file that could not be written: hours of work must not end there.
pub fn can_be_written(flag: &str, file: &Path) -> anyhow::Result<()> {
    let dir = file.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ensure!(dir.is_dir(), "{flag} {}: no directory {}", file.display(), dir.display());
    ensure!(!file.is_dir(), "{flag} {}: a directory is in the way", file.display());
    ensure!(file.is_file() || !file.exists(), "{flag} {}: a device or pipe; give the name of a file", file.display());
    takes_files(dir).with_context(|| format!("{flag} {}", file.display()))
}

/// Refuses a directory in which no file can be made.
pub fn takes_files(dir: &Path) -> anyhow::Result<()> {
    tempfile::tempfile_in(dir).map(drop).with_context(|| format!("the directory {} cannot be written", dir.display()))
}

/// All bytes, or one more than is allowed.
fn limited(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(TEXT_LIMIT + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces `\n`, `\r`, `\t`, `\\`, `\"`, `\'` and `\xHH` (a byte); anything else after a backslash stays as it is.
///
/// Errors: `\x` without two hexadecimal digits; bytes that are no text.
pub fn unescape(text: &str) -> anyhow::Result<String> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, used) = match (first, tail) {
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [c @ (b'\\' | b'"' | b'\''), ..]) => (*c, 2),
            (b'\\', [b'x', digits @ ..]) => match digits.first_chunk().map(|d| d.map(digit)) {
                Some([Some(hi), Some(lo)]) => ((hi << 4) | lo, 4),
                _ => {
                    let found: String = String::from_utf8_lossy(rest).chars().take(4).collect();
                    bail!(
                        "--escape: {found} at byte {} is no byte: two hexadecimal digits follow \\x (a backslash is \\\\)",
                        text.len() - rest.len()
                    );
                }
            },
            (c, _) => (*c, 1),
        };
        out.push(byte);
        rest = &rest[used..];
    }
    String::from_utf8(out).context("--escape: the bytes written as \\xHH do not make UTF-8 text")
}

/// A name from a file, cut to a length that fits a line.
pub fn cut(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// `1 token`, `2 tokens`.
pub fn tokens(n: usize) -> String {
    if n == 1 { "1 token".into() } else { format!("{n} tokens") }
}

/// What of texts is kept for others.
#[derive(clap::Args)]
pub struct CheckpointArgs {
    /// States of recurrent layers kept for each text at once: prompts go on from them
    #[arg(long, default_value_t = engine::SessionOptions::default().checkpoints, value_name = "N", value_parser = whole::<0, 4096>)]
    #[arg(help_heading = "Engine", env = "ISOBIT_CTX_CHECKPOINTS", hide_env_values = true)]
    pub ctx_checkpoints: usize,
}

/// Whether tokens are guessed ahead.
#[derive(clap::Args)]
pub struct SpecArgs {
    /// Guess tokens ahead: off, ngram; the text stays the same
    #[arg(long, default_value = "off", value_name = "HOW", value_parser = ["off", "ngram"], help_heading = "Engine")]
    spec: String,
}

impl SpecArgs {
    /// How they are guessed.
    pub fn guess(&self) -> engine::Guess {
        if self.spec == "ngram" { engine::Guess::Ngram } else { engine::Guess::Off }
    }

    /// Rows of logits of a step of so many texts: of a few of them guesses have rows too.
    pub fn rows(&self, texts: usize) -> usize {
        const GUESSING: usize = 8;
        match self.guess() {
            engine::Guess::Off => texts,
            _ => texts + texts.min(GUESSING) * engine::Guess::ROWS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{left, unescape};
    use std::time::Duration;

    #[test]
    fn the_time_left_is_said_once_it_is_known() {
        let s = Duration::from_secs;
        assert_eq!(left(0, s(9), s(0)), "", "nothing is done yet");
        assert_eq!(left(1, Duration::from_millis(300), s(7)), "", "too early to reckon");
        assert_eq!(left(5, s(2), s(0)), "", "done");
        assert_eq!((left(1, s(2), s(12)).as_str(), left(1, s(2), s(180)).as_str()), ("12s left", "3m left"));
    }

    #[test]
    fn escapes_are_replaced_and_other_backslashes_stay() {
        assert_eq!(unescape(r"a\nb\t\\ \q\").unwrap(), "a\nb\t\\ \\q\\");
        assert_eq!(unescape(r"\xc3\xbc").unwrap(), "\u{fc}");
        assert_eq!(unescape("日本").unwrap(), "日本");
        assert!(unescape(r"\xff").is_err());
        for (bad, named) in [(r"ab\xZZ!", r"\xZZ at byte 2"), (r"\x4", r"\x4 at byte 0"), (r"\x", r"\x at byte 0")] {
            let error = unescape(bad).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
