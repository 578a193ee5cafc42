//! What several subcommands share: opening a model, choosing a device, options of the engine, progress.

use crate::cpu::{CpuDevice, CpuOptions};
use crate::formats::{Container, ContainerKind, LoadMode};
use crate::generate::SessionOptions;
use crate::generate::tokenizer::Tokenizer;
use crate::models::{Hyper, PlanOptions};
use crate::ops::cache::CacheType;
use crate::record::Device;
use crate::simd::Level;
use anyhow::{Context, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::borrow::Cow;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The story model that is always there.
static EMBEDDED: &[u8] = include_bytes!("../../assets/tiny-stories-Q4_K_M.gguf");

/// No device of that name, or none that is exact: exit 3.
#[derive(Debug)]
pub struct DeviceError(pub String);

impl std::fmt::Display for DeviceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DeviceError {}

#[derive(Args)]
pub struct ModelArgs {
    /// GGUF file, Hugging Face directory, or first shard; without it the embedded story model
    #[arg(env = "ISOBIT_MODEL")]
    pub model: Option<PathBuf>,
    /// The same as MODEL
    #[arg(short = 'm', long = "model", value_name = "MODEL", conflicts_with = "model")]
    pub model_flag: Option<PathBuf>,
    /// How files are read; a mapped file that is truncated while in use kills the process
    #[arg(long, value_enum, default_value = "read", env = "ISOBIT_LOAD_MODE")]
    pub load_mode: Load,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Load {
    /// positioned reads
    Read,
    /// memory mapping
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
    pub fn open(&self) -> anyhow::Result<Container> {
        open(self.model.as_deref().or(self.model_flag.as_deref()), self.load_mode)
    }
}

pub fn open(path: Option<&Path>, mode: Load) -> anyhow::Result<Container> {
    match path {
        None => Ok(Container::from_bytes("<embedded tiny-stories-Q4_K_M>", Cow::Borrowed(EMBEDDED))?),
        Some(p) => Ok(Container::open(p, mode.mode())?),
    }
}

#[derive(Args)]
pub struct EngineArgs {
    /// Positions the cache holds; 0: the model's context, at most 4096
    #[arg(short = 'c', long = "ctx-size", default_value_t = 0, value_name = "CTX", env = "ISOBIT_CTX_SIZE")]
    pub ctx: usize,
    /// Type of cached keys: f32, f16, q8_0, q4_0
    #[arg(long, default_value = "f16", value_name = "TYPE", alias = "cache-type-k", env = "ISOBIT_CTK")]
    pub ctk: String,
    /// Type of cached values: f32, f16, q8_0, q4_0
    #[arg(long, default_value = "f16", value_name = "TYPE", alias = "cache-type-v", env = "ISOBIT_CTV")]
    pub ctv: String,
    /// Tokens computed at once, at most (never changes a bit of the result)
    #[arg(long, default_value_t = 512, value_name = "N", alias = "ubatch-size", env = "ISOBIT_UBATCH")]
    pub ubatch: usize,
    /// Bits of the activations that meet quantised weights: 8 or 16 (two int8 digits)
    #[arg(long, default_value = "8", value_name = "BITS", value_parser = ["8", "16"], env = "ISOBIT_ACTIVATIONS")]
    pub activations: String,
    /// Worker threads of the CPU; 0: one per core
    #[arg(short = 't', long, default_value_t = 0, value_name = "N", env = "ISOBIT_THREADS")]
    pub threads: usize,
    /// Pretend that devices bind at most this many bytes (splits weights and cache as a small device would)
    #[arg(long, hide = true, value_name = "BYTES")]
    pub max_binding: Option<u64>,
}

impl EngineArgs {
    pub fn cache_types(&self) -> anyhow::Result<(CacheType, CacheType)> {
        let parse = |flag: &str, name: &str| {
            CacheType::parse(name).with_context(|| {
                let known: Vec<&str> = CacheType::ALL.iter().map(|t| t.name()).collect();
                format!("{flag} {name}: unknown cache type (known: {})", known.join(", "))
            })
        };
        Ok((parse("--ctk", &self.ctk)?, parse("--ctv", &self.ctv)?))
    }

    /// Options of a session over `n_ctx` positions.
    pub fn session(&self, n_ctx: usize, max_out: usize) -> anyhow::Result<SessionOptions> {
        let (k_type, v_type) = self.cache_types()?;
        ensure!((1..=65535).contains(&self.ubatch), "--ubatch is {}, expected 1..=65535", self.ubatch);
        ensure!(self.threads <= 1024, "--threads is {}, expected at most 1024", self.threads);
        ensure!(n_ctx <= 1 << 28, "a context of {n_ctx} is more than the {} that can be addressed", 1 << 28);
        Ok(SessionOptions {
            plan: PlanOptions {
                n_ctx,
                ubatch: self.ubatch.min(n_ctx),
                max_out,
                digits: if self.activations == "16" { 2 } else { 1 },
                k_type,
                v_type,
                max_binding_words: usize::MAX / 8,
            },
        })
    }

    /// The context: as asked, or the model's own up to 4096.
    pub fn n_ctx(&self, h: &Hyper) -> usize {
        if self.ctx > h.context {
            eprintln!("warning: the model was trained for {} positions, -c asks for {}", h.context, self.ctx);
        }
        if self.ctx > 0 { self.ctx } else { h.context.min(h.window.unwrap_or(usize::MAX)).min(4096) }
    }

    /// The device of a `--device` word.
    pub fn device(&self, spec: &str) -> anyhow::Result<Box<dyn Device>> {
        if spec == "auto" {
            return self.auto();
        }
        if let Some(cpu) = self.cpu(spec)? {
            return Ok(cpu);
        }
        self.gpu(spec)
    }

    /// `cpu` or `cpu:LEVEL`; `None` for anything else.
    pub fn cpu(&self, spec: &str) -> anyhow::Result<Option<Box<dyn Device>>> {
        let level = match spec.split_once(':') {
            _ if spec == "cpu" => Some(Level::detect()),
            Some(("cpu", "scalar")) => None,
            Some(("cpu", name)) => {
                let level = Level::parse(name).filter(|l| Level::available().contains(l));
                let Some(level) = level else {
                    let has: Vec<&str> = Level::available().iter().map(|l| l.name()).collect();
                    bail!(DeviceError(format!("--device {spec}: this CPU has scalar, {}", has.join(", "))));
                };
                Some(level)
            }
            _ => return Ok(None),
        };
        Ok(Some(Box::new(CpuDevice::new(CpuOptions { level, threads: self.threads, max_binding: self.max_binding })?)))
    }

    #[cfg(not(feature = "gpu"))]
    fn auto(&self) -> anyhow::Result<Box<dyn Device>> {
        self.device("cpu")
    }

    #[cfg(not(feature = "gpu"))]
    fn gpu(&self, spec: &str) -> anyhow::Result<Box<dyn Device>> {
        bail!(DeviceError(format!("--device {spec}: this isobit was built without the gpu feature; use --device cpu")))
    }

    /// The first real GPU that is exact, else the CPU.
    #[cfg(feature = "gpu")]
    fn auto(&self) -> anyhow::Result<Box<dyn Device>> {
        use crate::host;
        let mut list = pollster::block_on(host::native_adapters());
        if list.is_empty() {
            list = pollster::block_on(host::adapters());
        }
        let mut why = if list.is_empty() { "no GPU adapter" } else { "no GPU but a software adapter" }.to_string();
        for a in list.iter().filter(|a| !a.report().software) {
            match pollster::block_on(host::connect(a, host::GpuOptions { max_binding: self.max_binding })) {
                Ok((gpu, verdict)) if verdict.exact() => return Ok(Box::new(gpu)),
                Ok((_, v)) => {
                    why = format!("{} is not exact ({} of {} words differ)", a.title(), v.mismatches, v.words)
                }
                Err(e) => why = e.to_string(),
            }
        }
        eprintln!("{why}: running on the CPU");
        self.device("cpu")
    }

    /// `gpu`, an index of `isobit devices`, or part of an adapter's name.
    #[cfg(feature = "gpu")]
    fn gpu(&self, spec: &str) -> anyhow::Result<Box<dyn Device>> {
        use crate::host;
        let list = pollster::block_on(host::adapters());
        let wanted = spec.to_lowercase();
        let matches = |a: &host::Adapter| {
            spec == "gpu"
                || spec.parse() == Ok(a.index)
                || (spec.parse::<usize>().is_err() && a.title().to_lowercase().contains(&wanted))
        };
        let mut why = format!("--device {spec}: no such adapter (isobit devices lists them)");
        for a in list.iter().filter(|a| matches(a)) {
            let (gpu, verdict) =
                match pollster::block_on(host::connect(a, host::GpuOptions { max_binding: self.max_binding })) {
                    Ok(r) => r,
                    Err(e) => {
                        why = e.to_string();
                        continue;
                    }
                };
            if verdict.exact() {
                return Ok(Box::new(gpu));
            }
            why = format!(
                "{}: {} of {} words of the float probe differ, so it is refused for exact work; use --device cpu",
                a.title(),
                verdict.mismatches,
                verdict.words
            );
        }
        bail!(DeviceError(why))
    }
}

/// The tokeniser of a container.
pub fn tokenizer(c: &Container) -> anyhow::Result<Tokenizer> {
    let file = c.files[0].display();
    if c.kind == ContainerKind::Gguf {
        return Tokenizer::from_gguf(&c.meta).with_context(|| format!("{file}: tokeniser"));
    }
    let json = c.tokenizer_json.as_deref().with_context(|| format!("{file}: no tokenizer.json beside it"))?;
    Tokenizer::from_tokenizer_json(json, c.tokenizer_config.as_ref(), c.generation_config.as_ref(), c.config.as_ref())
        .with_context(|| format!("{file}: tokenizer.json"))
}

/// Container, hyperparameters and tokeniser, with the vocabularies checked against each other.
pub fn open_all(args: &ModelArgs) -> anyhow::Result<(Container, Hyper, Tokenizer)> {
    let c = args.open()?;
    let h = Hyper::read(&c)?;
    let t = tokenizer(&c)?;
    ensure!(
        t.vocab_size() <= h.vocab,
        "{}: the tokeniser has {} tokens, the model {}",
        c.files[0].display(),
        t.vocab_size(),
        h.vocab
    );
    Ok((c, h, t))
}

/// A bar on stderr; hidden when stderr is not a terminal or NO_COLOR is set.
pub fn bar(len: u64, template: &str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(len), target).with_style(style)
}

/// The bar shown while weights are loaded.
pub fn load_bar(c: &Container) -> ProgressBar {
    bar(c.total_bytes(), "loading {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}")
}

static STOP: AtomicBool = AtomicBool::new(false);

/// From now on the first Ctrl-C only asks to stop; a second one exits with 130.
pub fn catch_interrupt() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    })
    .context("installing the Ctrl-C handler")
}

/// Whether Ctrl-C was pressed.
pub fn interrupted() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// Reads `-p` or `-f` (`-` for stdin); exactly one of them.
pub fn text(prompt: Option<&str>, file: Option<&Path>) -> anyhow::Result<String> {
    match (prompt, file) {
        (Some(p), None) => Ok(p.to_string()),
        (None, Some(f)) if f.as_os_str() == "-" => {
            std::io::read_to_string(std::io::stdin()).context("stdin is not UTF-8 text")
        }
        (None, Some(f)) => {
            let bytes = std::fs::read(f).with_context(|| format!("{}", f.display()))?;
            String::from_utf8(bytes).map_err(|e| {
                anyhow::anyhow!("{}: not UTF-8 text: byte {} is wrong", f.display(), e.utf8_error().valid_up_to())
            })
        }
        _ => bail!("give a text with -p TEXT or -f FILE"),
    }
}
