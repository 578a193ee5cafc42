//! `isobit bench`: speed of models on devices, as llama-bench measures it, with limits and digests beside it.

use super::CheckFailed;
use super::common::{self, About, EngineArgs, Load, note};
use super::system::{self, Energy};
use crate::bench::grid::{self, Test};
use crate::bench::measure::{Bench, DIGEST_TOKENS, Interrupted, Measured, Routine};
use crate::bench::schema::{self, Build, Check, Config, Format, Row, Varied, Writer};
use crate::bench::{Limits, compare, ops, report};
use crate::formats::Container;
use crate::formats::synthetic::Synthetic;
use crate::generate::{Session, SessionOptions};
use crate::models::{Hyper, PlanOptions, Recent};
use crate::ops::cache::CacheType;
use crate::record::Device;
use crate::simd::Level;
use anyhow::{Context, ensure};
use clap::{Args, Parser};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Numbers of one word.
#[derive(Clone, Debug)]
struct Numbers(Vec<usize>);

fn numbers<const MAX: usize>(s: &str) -> Result<Numbers, String> {
    grid::numbers(s, MAX).map(Numbers)
}

fn positive<const MAX: usize>(s: &str) -> Result<Numbers, String> {
    let list = numbers::<MAX>(s)?;
    if list.0.contains(&0) { Err(format!("expected numbers from 1 to {MAX}")) } else { Ok(list) }
}

fn pair(s: &str) -> Result<(usize, usize), String> {
    let list = grid::numbers(s, 1 << 24)?;
    match list[..] {
        [p, g] if p + g > 0 => Ok((p, g)),
        _ => Err("expected two numbers, PROMPT,GENERATED".into()),
    }
}

fn format(s: &str) -> Result<Format, String> {
    Format::parse(s).ok_or_else(|| "expected md, json, jsonl, csv or sql".into())
}

fn level(s: &str) -> Result<String, String> {
    let known = || {
        let names: Vec<&str> = Level::available().into_iter().map(Level::name).collect();
        format!("this CPU has scalar, {}", names.join(", "))
    };
    let word = s.trim().to_lowercase();
    let has = word == "scalar" || Level::parse(&word).is_some_and(Level::is_available);
    if has { Ok(word) } else { Err(known()) }
}

fn on_or_off(s: &str) -> Result<bool, String> {
    match s.to_lowercase().as_str() {
        "1" | "on" | "auto" => Ok(true),
        "0" | "off" => Ok(false),
        _ => Err("expected on, off or auto".into()),
    }
}

#[derive(Args)]
#[command(
    after_help = "Numbers are lists: 512, 128,512, 0-4096+1024, 128-1024*2; flags may be repeated.\n\nExamples:\n  isobit bench model.gguf --device cpu,gpu\n  isobit bench -m model.gguf -p 512 -n 128 -d 0,4096 -ctk f16,q8_0,tq3_1 -ctv f16 -o json > a.json\n  isobit bench --synthetic llama-7b --device gpu --html report.html\n  isobit bench --ops --synthetic llama-1b --simd avx2,avx512\n  isobit bench --compare a.json b.json\n\nExit code 1: digests differ, so one of the speeds is that of a wrong result. Fields: docs/bench.md."
)]
pub struct BenchArgs {
    /// GGUF files or Hugging Face directories [default: the embedded story model]
    #[arg(env = "ISOBIT_MODEL", hide_env_values = true)]
    models: Vec<PathBuf>,
    /// The same as MODEL
    #[arg(short = 'm', long = "model", value_name = "MODEL")]
    model_flags: Vec<PathBuf>,
    /// A model by shape, generated in memory: llama-58m, llama-1b, llama-3b, llama-7b, llama-8b, with :TYPE (q4_k_m,
    /// q4_k, q5_k, q6_k, q8_0, q4_0, f16, bf16, f32)
    #[arg(long, value_name = "SHAPE[:TYPE]", value_delimiter = ',', value_parser = Synthetic::parse)]
    synthetic: Vec<Synthetic>,
    /// cpu, cpu:LEVEL, gpu, auto, an index of `isobit devices`, part of an adapter's name
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "auto", value_parser = common::word)]
    device: Vec<String>,
    /// Levels for `--device cpu`: scalar, portable, avx2, avx512, …
    #[arg(long, value_name = "LEVEL", value_delimiter = ',', value_parser = level)]
    simd: Vec<String>,
    /// Also compute the digest on this device, first (say cpu)
    #[arg(long, value_name = "DEVICE", value_parser = common::word)]
    reference: Option<String>,

    // no default_value: `--ops` must know whether 512 was asked for
    /// Prompt tokens; 0: no such test [default: 512]
    #[arg(short = 'p', long, value_name = "N", value_parser = numbers::<{1 << 24}>)]
    #[arg(help_heading = "Tests")]
    n_prompt: Vec<Numbers>,
    /// Generated tokens; 0: no such test
    #[arg(short = 'n', long, value_name = "N", default_value = "128", value_parser = numbers::<{1 << 24}>)]
    #[arg(help_heading = "Tests")]
    n_gen: Vec<Numbers>,
    /// Prompt and generation in one test (also -pg)
    #[arg(long = "pg", value_name = "PP,TG", value_parser = pair, help_heading = "Tests")]
    pairs: Vec<(usize, usize)>,
    /// Tokens in the cache before a test
    #[arg(short = 'd', long, value_name = "N", default_value = "0", value_parser = numbers::<{1 << 24}>)]
    #[arg(help_heading = "Tests")]
    n_depth: Vec<Numbers>,
    /// Timed repetitions
    #[arg(short = 'r', long, value_name = "N", default_value = "5", value_parser = common::whole::<1, 100_000>)]
    #[arg(help_heading = "Tests")]
    repetitions: usize,
    /// Seconds to wait before each repetition
    #[arg(long, value_name = "S", default_value = "0", value_parser = common::whole::<0, 86400>)]
    #[arg(help_heading = "Tests")]
    delay: usize,
    /// Do not run each test once before it is timed
    #[arg(long, help_heading = "Tests")]
    no_warmup: bool,
    /// Do not measure the devices' limits
    #[arg(long, help_heading = "Tests")]
    no_limits: bool,

    /// Tokens handed over at once
    #[arg(short = 'b', long, value_name = "N", default_value = "2048", value_parser = positive::<{1 << 24}>)]
    #[arg(help_heading = "Engine")]
    batch_size: Vec<Numbers>,
    /// Tokens computed at once (also -ub)
    #[arg(long = "ubatch", value_name = "N", alias = "ubatch-size", default_value = "512")]
    #[arg(value_parser = positive::<65535>, help_heading = "Engine")]
    ubatch: Vec<Numbers>,
    /// Types of cached keys (also -ctk): f32, f16, q8_0, q4_0, q8_0r, q4_0r, tq3_0, tq3_1
    #[arg(long, value_name = "TYPE", alias = "cache-type-k", value_delimiter = ',', default_value = "f16")]
    #[arg(value_parser = common::cache_type, help_heading = "Engine")]
    ctk: Vec<CacheType>,
    /// Types of cached values (also -ctv); `same`: the keys'
    #[arg(long, value_name = "TYPE", alias = "cache-type-v", value_delimiter = ',', default_value = "same")]
    #[arg(value_parser = value_type, help_heading = "Engine")]
    ctv: Vec<ValueType>,
    /// Read the query's own chunk of 64 positions from an f16 copy: auto (where K or V is tq3_1), on, off
    #[arg(long, value_name = "WHEN", value_delimiter = ',', default_value = "auto", value_parser = common::recent)]
    #[arg(help_heading = "Engine")]
    kv_recent: Vec<Recent>,
    /// Bits of the activations: 8, 16
    #[arg(long, value_name = "BITS", value_delimiter = ',', default_value = "8", value_parser = ["8", "16"])]
    #[arg(hide_possible_values = true, help_heading = "Engine")]
    activations: Vec<String>,
    /// Worker threads of the CPU; 0: one per core
    #[arg(short = 't', long, value_name = "N", default_value = "0", value_parser = numbers::<1024>)]
    #[arg(help_heading = "Engine")]
    threads: Vec<Numbers>,
    /// Taken for llama-bench's sake (also -ngl): 0 means the CPU where no --device is given, else nothing
    #[arg(long = "ngl", value_name = "N", alias = "n-gpu-layers", default_value = "99", value_parser = common::count)]
    #[arg(help_heading = "Engine")]
    gpu_layers: usize,
    /// Taken for llama-bench's sake (also -fa): attention is always fused
    #[arg(long = "flash-attn", value_name = "on|off", value_parser = on_or_off, help_heading = "Engine")]
    flash_attn: Option<bool>,

    /// md, json, jsonl, csv, sql
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "md", value_parser = format)]
    #[arg(help_heading = "Output")]
    output: Format,
    /// The same on stderr (also -oe)
    #[arg(long, value_name = "FORMAT", value_parser = format, help_heading = "Output")]
    output_err: Option<Format>,
    /// Say on stderr what runs
    #[arg(long, help_heading = "Output")]
    progress: bool,
    /// Also write one page with charts
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,

    /// Time each operation instead: of the model (`model`), or every case of the case table (`cases`)
    #[arg(long, value_name = "WHAT", num_args = 0..=1, default_missing_value = "model", help_heading = "Instead")]
    #[arg(value_parser = ["model", "cases"], hide_possible_values = true, require_equals = true)]
    ops: Option<String>,
    /// Compare two files of rows (ours or llama-bench's; JSON or JSONL)
    #[arg(long, num_args = 2, value_names = ["A", "B"], help_heading = "Instead")]
    compare: Vec<PathBuf>,
    /// Draw the page of --html from files of rows (JSON or JSONL)
    #[arg(long, value_name = "FILE", requires = "html", help_heading = "Instead")]
    from: Vec<PathBuf>,
    /// Flip a bit of the logits' digest on this device, to see it found
    #[arg(long, hide = true, value_name = "DEVICE")]
    plant_fault: Option<String>,
}

/// A type of values, or that of the keys.
#[derive(Clone, Copy)]
struct ValueType(Option<CacheType>);

fn value_type(s: &str) -> Result<ValueType, String> {
    if s == "same" { Ok(ValueType(None)) } else { common::cache_type(s).map(|t| ValueType(Some(t))) }
}

/// What llama-bench's users type in one dash, as `main` rewrites it.
pub fn short_form(word: &str) -> Option<&'static str> {
    Some(match word {
        "-pg" => "--pg",
        "-ngl" => "--ngl",
        "-fa" => "--flash-attn",
        "-oe" => "--output-err",
        _ => return None,
    })
}

impl BenchArgs {
    /// Names of the models, each to be opened when its turn comes.
    fn sources(&self) -> Vec<Source> {
        // a model that only the environment names gives way to -m and --synthetic
        let variable = std::env::var_os("ISOBIT_MODEL");
        let typed = !matches!((&self.models[..], &variable), ([one], Some(v)) if one.as_os_str() == v.as_os_str());
        let others = !self.model_flags.is_empty() || !self.synthetic.is_empty();
        let named = if typed || !others { &self.models[..] } else { &[] };
        let mut list: Vec<Source> = named.iter().chain(&self.model_flags).map(|p| Source::File(p.clone())).collect();
        list.extend(self.synthetic.iter().map(|s| Source::Synthetic(*s)));
        if list.is_empty() {
            list.push(Source::Embedded);
        }
        list
    }

    /// `--device` and `--simd` as words of `--device`.
    fn specs(&self) -> Vec<String> {
        let mut list: Vec<String> = Vec::new();
        for d in &self.device {
            let levels = d.eq_ignore_ascii_case("cpu") || (d == "auto" && !self.simd.is_empty());
            match d.as_str() {
                "auto" if self.gpu_layers == 0 && self.simd.is_empty() => list.push("cpu".into()),
                _ if levels && !self.simd.is_empty() => list.extend(self.simd.iter().map(|l| format!("cpu:{l}"))),
                d => list.push(d.to_string()),
            }
        }
        let mut seen = BTreeSet::new();
        list.retain(|d| seen.insert(d.to_lowercase()));
        list
    }

    fn configs(&self) -> Vec<(Config, CacheType, CacheType)> {
        let flat = |v: &[Numbers]| -> Vec<usize> { v.iter().flat_map(|n| n.0.clone()).collect() };
        let mut list: Vec<(Config, CacheType, CacheType)> = Vec::new();
        for batch in flat(&self.batch_size) {
            for ubatch in flat(&self.ubatch) {
                for &k in &self.ctk {
                    for v in self.ctv.iter().map(|v| v.0.unwrap_or(k)) {
                        for (activations, recent) in
                            self.kv_recent.iter().flat_map(|r| self.activations.iter().map(move |a| (a, r)))
                        {
                            let activations = if activations == "16" { 16 } else { 8 };
                            let names = (k.name().to_string(), v.name().to_string());
                            let recent = recent.applies(k, v);
                            let config = Config {
                                batch,
                                ubatch,
                                activations,
                                k: names.0,
                                v: names.1,
                                recent,
                                ..Config::default()
                            };
                            if !list.iter().any(|(c, ..)| *c == config) {
                                list.push((config, k, v));
                            }
                        }
                    }
                }
            }
        }
        list
    }

    fn tests(&self) -> Vec<Test> {
        let flat = |v: &[Numbers]| -> Vec<usize> { v.iter().flat_map(|n| n.0.clone()).collect() };
        let prompts = if self.n_prompt.is_empty() { vec![512] } else { flat(&self.n_prompt) };
        grid::tests(&prompts, &flat(&self.n_gen), &self.pairs, &flat(&self.n_depth))
    }

    /// The prompt of `--ops`: 64 tokens unless `-p` says otherwise, as the twin computes every one of them.
    fn ops_tokens(&self) -> usize {
        self.n_prompt.iter().flat_map(|n| n.0.clone()).filter(|&n| n > 0).min().unwrap_or(64)
    }

    /// The columns of the Markdown table that tell rows of this run apart.
    fn varied(&self, specs: &[String], threads: &[usize]) -> Varied {
        let configs = self.configs();
        let differ =
            |f: &dyn Fn(&Config) -> String| configs.iter().map(|(c, ..)| f(c)).collect::<BTreeSet<_>>().len() > 1;
        let default = Config { batch: 2048, ubatch: 512, activations: 8, ..Config::default() };
        let f16 = |s: &str| s != "f16";
        let mut v = BTreeSet::new();
        let mut add = |name, when| v.extend(Some(name).filter(|_| when));
        add("device", specs.len() > 1);
        add("threads", threads.len() > 1);
        add("n_batch", differ(&|c| c.batch.to_string()) || configs.iter().any(|(c, ..)| c.batch != default.batch));
        add("n_ubatch", differ(&|c| c.ubatch.to_string()) || configs.iter().any(|(c, ..)| c.ubatch != default.ubatch));
        add("type_k", configs.iter().any(|(c, ..)| f16(&c.k)));
        add("type_v", configs.iter().any(|(c, ..)| f16(&c.v)));
        add("kv_recent", configs.iter().any(|(c, ..)| c.recent));
        add("activations", configs.iter().any(|(c, ..)| c.activations != default.activations));
        Varied(v)
    }
}

/// Where a model comes from.
enum Source {
    Embedded,
    File(PathBuf),
    Synthetic(Synthetic),
}

impl Source {
    fn open(&self) -> anyhow::Result<Container> {
        match self {
            Source::Embedded => common::open(None, Load::Read),
            Source::File(p) => common::open(Some(p), Load::Read),
            Source::Synthetic(s) => Ok(s.container()?),
        }
    }

    fn name(&self) -> String {
        match self {
            Source::Embedded => "<embedded tiny-stories-Q4_K_M>".into(),
            Source::File(p) => p.display().to_string(),
            Source::Synthetic(s) => format!("<synthetic {}>", s.name()),
        }
    }
}

/// Engine options with this number of threads, all else as it is by default.
fn engine(threads: usize) -> anyhow::Result<EngineArgs> {
    #[derive(Parser)]
    struct Wrap {
        #[command(flatten)]
        engine: EngineArgs,
    }
    Ok(Wrap::try_parse_from(["isobit", "-t", &threads.to_string()])?.engine)
}

/// Files of rows, JSON or JSONL.
fn read_rows(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = common::text(None, Some(path))?;
    compare::parse(&text).with_context(|| path.display().to_string())
}

/// Writes a file under a temporary name beside it, which becomes `path` when it is complete.
fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // the first error is the one to report; the file may not even exist
        let _ = std::fs::remove_file(&temporary);
    }
    written.with_context(|| format!("--html {}", path.display()))
}

pub fn run(a: BenchArgs) -> anyhow::Result<ExitCode> {
    if let [first, second] = &a.compare[..] {
        return compare_files(first, second);
    }
    if let (false, Some(page)) = (a.from.is_empty(), &a.html) {
        let rows = a.from.iter().map(|p| read_rows(p)).collect::<anyhow::Result<Vec<_>>>()?.concat();
        write_whole(page, &report::page(&rows))?;
        note!("{}: {} rows drawn", page.display(), rows.len());
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        a.ops.is_some() || !a.tests().is_empty(),
        "nothing to run: -p, -n and --pg are all 0; give one of them a number"
    );
    // headers only: a wrong name or file ends the run before anything is measured
    for source in a.sources() {
        Hyper::read(&source.open()?)?;
    }
    common::catch_interrupt()?;
    if a.flash_attn == Some(false) {
        note!("warning: -fa off: attention is always fused, the flag changes nothing");
    }
    let mut session = Run::new(&a)?;
    if let Some(what) = &a.ops {
        return session.ops(what == "cases");
    }
    session.grid()
}

fn compare_files(first: &Path, second: &Path) -> anyhow::Result<ExitCode> {
    let c = compare::compare(&read_rows(first)?, &read_rows(second)?);
    ensure!(
        !c.pairs.is_empty(),
        "no row of {} matches one of {}: rows match by model, test, cache types and activations",
        first.display(),
        second.display()
    );
    write!(std::io::stdout().lock(), "{}", c.text(&first.display().to_string(), &second.display().to_string()))?;
    let wrong = c.pairs.iter().filter(|p| p.digests_differ).count();
    if wrong > 0 {
        anyhow::bail!(CheckFailed(format!(
            "the digests of {wrong} of {} pairs DIFFER: these speeds are not of the same result (another model file, another \
             version of isobit, or a wrong result)",
            c.pairs.len()
        )));
    }
    Ok(ExitCode::SUCCESS)
}

/// One device at one number of threads.
struct Place {
    spec: String,
    threads: usize,
    engine: EngineArgs,
    facts: schema::Device,
    main_memory: bool,
}

/// One call of the command.
struct Run<'a> {
    a: &'a BenchArgs,
    build: Build,
    places: Vec<Place>,
    energy: Option<Energy>,
    rows: Vec<Row>,
    out: Writer,
    err: Option<Writer>,
    /// digests by what they are of; the first device's counts
    digests: HashMap<String, String>,
    wrong: usize,
    failed: Option<anyhow::Error>,
}

/// The CPU's level of a word of `--device`; `None` runs the twins.
fn level_of(spec: &str) -> Option<Level> {
    match spec.to_lowercase().split_once(':') {
        Some((_, "scalar")) => None,
        Some((_, name)) => Level::parse(name),
        None => Some(Level::detect()),
    }
}

impl<'a> Run<'a> {
    /// Opens every device once, so that a wrong name ends the run before anything is measured.
    fn new(a: &'a BenchArgs) -> anyhow::Result<Run<'a>> {
        let version = env!("CARGO_PKG_VERSION");
        #[cfg(feature = "gpu")]
        let wgpu = crate::host::WGPU_VERSION.to_string();
        #[cfg(not(feature = "gpu"))]
        let wgpu = String::new();
        let build = Build {
            commit: option_env!("ISOBIT_COMMIT").map_or(format!("v{version}"), str::to_string),
            version: version.into(),
            wgpu,
            cpu: system::cpu_name(),
        };
        let mut threads: Vec<usize> = a.threads.iter().flat_map(|n| n.0.clone()).collect();
        threads.dedup();
        let specs = a.specs();
        let mut places = Vec::new();
        for spec in &specs {
            for (i, &t) in threads.iter().enumerate() {
                let engine = engine(t)?;
                let opened = engine.devices().open(spec)?;
                if opened.about.is_some() && i > 0 {
                    // threads are the CPU's alone
                    continue;
                }
                places.push(Run::place(
                    a,
                    spec,
                    t,
                    engine,
                    opened.device.info().name,
                    opened.about,
                    opened.main_memory,
                )?);
            }
        }
        let energy = Energy::find();
        if energy.is_none() {
            note!("energy: this system has no counter that may be read (powercap, battery); joules_per_token is null");
        }
        let varied = a.varied(&specs, &threads);
        let out = Writer::new(a.output, varied.clone());
        let err = a.output_err.map(|f| Writer::new(f, varied));
        Ok(Run { a, build, places, energy, rows: vec![], out, err, digests: HashMap::new(), wrong: 0, failed: None })
    }

    fn place(
        a: &BenchArgs,
        spec: &str,
        threads: usize,
        engine: EngineArgs,
        title: String,
        about: Option<About>,
        main_memory: bool,
    ) -> anyhow::Result<Place> {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = if threads == 0 { cores } else { threads };
        let measured = match &about {
            _ if a.no_limits => None,
            Some(about) => Some(engine.devices().adapter_limits(about.index)).transpose().unwrap_or_else(|e| {
                note!("warning: {title}: its limits could not be measured: {e:#}");
                None
            }),
            // the twins have no vector instructions: the portable level's rate is the nearest
            None => {
                let level = level_of(spec).unwrap_or(Level::Portable);
                Some((crate::limits::read_bandwidth(threads), crate::limits::int8_rate(level, threads)))
            }
        };
        let limits = measured.map(|(read, int8)| Limits { read, int8 });
        if let Some(l) = limits {
            note!("{title}: reads {:.1} GB/s, int8 {:.0} GOP/s", l.read / 1e9, l.int8 / 1e9);
        }
        let facts = match about {
            Some(about) => schema::Device {
                spec: spec.into(),
                title,
                adapter: about.name,
                backend: about.backend,
                driver: about.driver,
                limits,
            },
            None => {
                let backend = "CPU".to_string();
                schema::Device { spec: spec.into(), title, backend, limits, ..schema::Device::default() }
            }
        };
        Ok(Place { spec: spec.into(), threads, engine, facts, main_memory })
    }

    /// Every model on every device with every option.
    fn grid(&mut self) -> anyhow::Result<ExitCode> {
        let tests = self.a.tests();
        self.emit(|w| w.head())?;
        let ended = self.models(&tests);
        // what was begun is ended, whatever happened
        let build = self.build.clone();
        self.emit(|w| w.foot(&build))?;
        if let Some(page) = &self.a.html {
            let rows: Vec<Value> =
                self.rows.iter().map(|r| serde_json::from_str(&r.to_json())).collect::<Result<_, _>>()?;
            write_whole(page, &report::page(&rows))?;
        }
        match ended {
            Err(e) if e.is::<Interrupted>() => {
                note!("interrupted after {} rows", self.rows.len());
                return Ok(ExitCode::from(130));
            }
            other => other?,
        }
        if self.wrong > 0 {
            anyhow::bail!(CheckFailed(format!(
                "{} rows have digests that DIFFER from another device's: these speeds are of a wrong result",
                self.wrong
            )));
        }
        match self.failed.take() {
            Some(e) => Err(e),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    fn models(&mut self, tests: &[Test]) -> anyhow::Result<()> {
        for source in self.a.sources() {
            let c = source.open()?;
            let h = Hyper::read(&c)?;
            if let Some(reference) = &self.a.reference {
                self.reference(reference, &c, &h, tests)?;
            }
            for i in 0..self.places.len() {
                for (config, k, v) in self.a.configs() {
                    self.group(i, &source, &c, &h, config, (k, v), tests)?;
                }
            }
        }
        Ok(())
    }

    /// `--ops`: each operation on each device, checked against the twin, then timed.
    fn ops(&mut self, table: bool) -> anyhow::Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        let format = self.a.output;
        write!(out, "{}", if format == Format::Json { "[\n" } else { "" })?;
        let mut rows = 0;
        let ended = self.each_op(table, &mut |columns| {
            write!(out, "{}", schema::record(format, "isobit_ops", rows == 0, &columns))?;
            rows += 1;
            Ok(out.flush()?)
        });
        write!(std::io::stdout().lock(), "{}", if format == Format::Json { "\n]\n" } else { "" })?;
        match ended {
            Err(e) if e.is::<Interrupted>() => return Ok(ExitCode::from(130)),
            other => other?,
        }
        if self.wrong > 0 {
            anyhow::bail!(CheckFailed(format!(
                "{} operations gave words that are not the twin's; they were not timed",
                self.wrong
            )));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn each_op(
        &mut self,
        table: bool,
        put: &mut dyn FnMut(Vec<schema::Column>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let one = engine(1)?;
        let mut twin = one.devices().open("cpu:scalar")?.device;
        let mut devices = Vec::new();
        for p in &self.places {
            devices.push(p.engine.devices().open(&p.spec)?.device);
        }
        if table {
            for op in crate::cases::ops() {
                self.pieces(ops::table(op), twin.as_mut(), &mut devices, put)?;
            }
            return Ok(());
        }
        let tokens = self.a.ops_tokens();
        let depth = self.a.n_depth.iter().flat_map(|n| n.0.clone()).max().unwrap_or(0);
        for source in self.a.sources() {
            let c = source.open()?;
            let h = Hyper::read(&c)?;
            for (mut config, k, v) in self.a.configs() {
                config.ubatch = tokens;
                let opened = engine(0)?.devices().open("cpu")?;
                let memory = common::share_of_memory(std::slice::from_ref(&opened));
                let mut plan = Run::plan(&config, (k, v), depth.max(tokens) + 1, 1);
                // matrices are split as the tightest device needs
                for d in &devices {
                    plan.max_binding_words = plan.max_binding_words.min(d.info().max_binding_words);
                }
                let mut device = opened.device;
                let pieces = pollster::block_on(async {
                    let options = SessionOptions { plan, memory, fuse: one.fuse };
                    let mut session = Session::new(device.as_mut(), &c, &h, options, |_| {}).await?;
                    ops::of_model(&mut session, &c, h.vocab, plan.digits, depth).await
                })?;
                drop(device);
                self.pieces(pieces, twin.as_mut(), &mut devices, put)?;
            }
        }
        Ok(())
    }

    fn pieces(
        &mut self,
        list: Vec<ops::Piece>,
        twin: &mut dyn Device,
        devices: &mut [Box<dyn Device>],
        put: &mut dyn FnMut(Vec<schema::Column>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for piece in list {
            ensure!(!common::interrupted(), Interrupted);
            let expected = pollster::block_on(ops::expected(twin, &piece))?;
            for (device, place) in devices.iter_mut().zip(&self.places) {
                let title = &place.facts.title;
                match pollster::block_on(ops::time(device.as_mut(), &piece, &expected))? {
                    Ok(timed) => put(ops::columns(title, &piece, &timed, place.facts.limits))?,
                    Err(words) => {
                        note!("error: {title}: {}: {words} words are not the twin's; not timed", piece.case.name);
                        self.wrong += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn plan(config: &Config, (k_type, v_type): (CacheType, CacheType), n_ctx: usize, max_out: usize) -> PlanOptions {
        let digits = if config.activations == 16 { 2 } else { 1 };
        let ubatch = config.ubatch.min(n_ctx);
        let recent = if config.recent { Recent::On } else { Recent::Off };
        PlanOptions { n_ctx, ubatch, max_out, digits, k_type, v_type, recent, max_binding_words: usize::MAX / 8 }
    }

    /// The digest of every configuration on the device of `--reference`.
    fn reference(&mut self, spec: &str, c: &Container, h: &Hyper, tests: &[Test]) -> anyhow::Result<()> {
        let engine = engine(0)?;
        let n_ctx = positions(tests);
        for (config, k, v) in self.a.configs() {
            let opened = engine.devices().open(spec)?;
            let memory = common::share_of_memory(std::slice::from_ref(&opened));
            let options = SessionOptions { plan: Run::plan(&config, (k, v), n_ctx, 1), memory, fuse: engine.fuse };
            let mut device = opened.device;
            let digest = pollster::block_on(async {
                let session = Session::new(device.as_mut(), c, h, options, |_| {}).await?;
                Bench::new(session, c, h.vocab, options.plan.digits).digest().await
            })?;
            self.digests.insert(key(c, &config, ""), digest);
        }
        Ok(())
    }

    /// Loads a model on a device and runs every test. An error of the device is a row, and the next group goes on.
    fn group(
        &mut self,
        place: usize,
        source: &Source,
        c: &Container,
        h: &Hyper,
        mut config: Config,
        types: (CacheType, CacheType),
        tests: &[Test],
    ) -> anyhow::Result<()> {
        let p = &self.places[place];
        config.threads = p.threads;
        config.gpu_layers = if p.facts.adapter.is_empty() { 0 } else { self.a.gpu_layers };
        config.n_ctx = positions(tests);
        let base = Row {
            build: self.build.clone(),
            model: describe(source, c, h),
            device: p.facts.clone(),
            config: config.clone(),
            test: Test { prompt: 0, generate: 0, depth: 0 },
            time: String::new(),
            measured: None,
            error: None,
            load_ms: 0.0,
            peak_memory: None,
            energy_source: None,
            digest: String::new(),
            check: Check::First,
        };
        let plan = Run::plan(&config, types, config.n_ctx, 1);
        system::forget_peak();
        let opened = match p.engine.devices().open(&p.spec) {
            Ok(o) => o,
            Err(e) => return self.all_failed(&base, tests, e),
        };
        // a package's counter does not see a card with memory of its own
        let counts = self.energy.as_ref().is_some_and(|e| p.main_memory || e.whole_machine());
        let memory = common::share_of_memory(std::slice::from_ref(&opened));
        let options = SessionOptions { plan, memory, fuse: p.engine.fuse };
        let mut device = opened.device;
        let bar = common::load_bar(c);
        let ticking = bar.clone();
        let start = Instant::now();
        let loaded = pollster::block_on(Session::new(device.as_mut(), c, h, options, move |n| ticking.inc(n)));
        bar.finish_and_clear();
        let session = match loaded {
            Ok(s) => s,
            Err(e) => return self.all_failed(&base, tests, e),
        };
        let load_ms = start.elapsed().as_secs_f64() * 1e3;
        let mut bench = Bench::new(session, c, h.vocab, plan.digits);
        let mut base = Row { load_ms, ..base };
        match pollster::block_on(bench.digest()) {
            Ok(digest) => base.digest = digest,
            Err(e) => return self.all_failed(&base, tests, e),
        }
        if self.a.plant_fault.as_ref().is_some_and(|d| *d == base.device.spec) {
            base.digest.replace_range(..1, if base.digest.starts_with('0') { "1" } else { "0" });
        }
        for (i, test) in tests.iter().enumerate() {
            ensure!(!common::interrupted(), Interrupted);
            if self.a.progress {
                note!("{} of {}: {test} of {} on {}", i + 1, tests.len(), base.model.kind, base.device.title);
            }
            let time = system::utc();
            let measured = self.measure(&mut bench, test, &base, counts);
            let mut row = Row { test: *test, time, ..base.clone() };
            row.peak_memory = system::peak_memory();
            row.energy_source = self.energy.as_ref().filter(|_| counts).map(|e| e.name().to_string());
            match measured {
                Ok(m) => {
                    row.check = self.check(c, &row, &m);
                    row.measured = Some(m);
                    self.push(row)?;
                }
                Err(e) if e.is::<Interrupted>() => return Err(e),
                Err(e) => self.fail(row, e)?,
            }
        }
        Ok(())
    }

    fn measure(&self, bench: &mut Bench, test: &Test, base: &Row, counts: bool) -> anyhow::Result<Measured> {
        let routine = Routine {
            repetitions: self.a.repetitions,
            warm_up: !self.a.no_warmup,
            delay: Duration::from_secs(self.a.delay as u64),
            batch: base.config.batch,
            stop: &common::interrupted,
            energy: &|| self.energy.as_ref().filter(|_| counts).and_then(Energy::joules),
        };
        pollster::block_on(bench.run(test, &routine, base.device.limits))
    }

    /// Compares a row's digests with those of the first device that had the same task.
    fn check(&mut self, c: &Container, row: &Row, m: &Measured) -> Check {
        let last = key(c, &row.config, &row.test.to_string());
        let mut verdict = Check::First;
        for (key, digest) in [(key(c, &row.config, ""), &row.digest), (last, &m.last_logits)] {
            match self.digests.get(&key) {
                None => {
                    self.digests.insert(key, digest.clone());
                }
                // tests of one device share a digest: the same says nothing there
                Some(known) if known == digest => {
                    let other = self.places.len() > 1 || self.a.reference.is_some();
                    if other && verdict == Check::First && self.is_another(row) {
                        verdict = Check::Same;
                    }
                }
                Some(_) => verdict = Check::Different,
            }
        }
        self.wrong += usize::from(verdict == Check::Different);
        verdict
    }

    /// Whether some device before this row's had the same model and options.
    fn is_another(&self, row: &Row) -> bool {
        let same = |r: &&Row| {
            r.model.filename == row.model.filename
                && (&r.config.k, &r.config.v, r.config.activations)
                    == (&row.config.k, &row.config.v, row.config.activations)
                && (&r.device.spec, r.config.threads) != (&row.device.spec, row.config.threads)
        };
        self.a.reference.is_some() || self.rows.iter().any(|r| same(&r))
    }

    fn push(&mut self, row: Row) -> anyhow::Result<()> {
        self.emit(|w| w.row(&row))?;
        self.rows.push(row);
        Ok(())
    }

    fn fail(&mut self, row: Row, e: anyhow::Error) -> anyhow::Result<()> {
        let text = super::chain(&e);
        note!("warning: {} on {}: {text}", row.test, row.device.title);
        self.push(Row { error: Some(text), ..row })?;
        self.failed.get_or_insert(e);
        Ok(())
    }

    /// A row of error for every test; the error itself ends the run when all else is done.
    fn all_failed(&mut self, base: &Row, tests: &[Test], e: anyhow::Error) -> anyhow::Result<()> {
        let text = super::chain(&e);
        note!("warning: {}: {text}", base.device.title);
        for test in tests {
            self.push(Row { test: *test, time: system::utc(), error: Some(text.clone()), ..base.clone() })?;
        }
        self.failed.get_or_insert(e);
        Ok(())
    }

    /// Writes on stdout, and on stderr what `-oe` asks for.
    fn emit(&mut self, text: impl Fn(&mut Writer) -> String) -> anyhow::Result<()> {
        if let Some(w) = &mut self.err {
            let text = text(w);
            std::io::stderr().write_all(text.as_bytes())?;
        }
        let text = text(&mut self.out);
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

/// Positions the cache needs for the tests and for the digest.
fn positions(tests: &[Test]) -> usize {
    let most = tests.iter().map(Test::positions).max().unwrap_or(0);
    most.max(DIGEST_TOKENS.0 + DIGEST_TOKENS.1)
}

/// What a digest is of: the model's name and size, what changes logits, and the test (none: the fixed sequence).
fn key(c: &Container, config: &Config, test: &str) -> String {
    let name = c.files[0].display();
    let Config { k, v, recent, activations, .. } = config;
    format!("{name} {} {k} {v} {recent} {activations} {test}", c.total_bytes())
}

/// `llama 1B Q4_K - Medium`, as llama-bench names models.
fn describe(source: &Source, c: &Container, h: &Hyper) -> schema::Model {
    let params = c.tensors.iter().map(crate::formats::Tensor::elems).sum::<u64>();
    let class = match params as f64 {
        p if p < 1e9 => format!("{:.0}M", p / 1e6),
        p => format!("{:.1}B", p / 1e9).replace(".0B", "B"),
    };
    let most = c.tensors.iter().max_by_key(|t| {
        let same = |o: &&crate::formats::Tensor| o.dtype == t.dtype;
        c.tensors.iter().filter(same).map(|t| t.bytes).sum::<u64>()
    });
    let ty = most.map_or("?", |t| t.dtype.name());
    let ty = match c.meta.uint("general.file_type") {
        Some(15) => "Q4_K - Medium",
        Some(17) => "Q5_K - Medium",
        _ => ty,
    };
    schema::Model { filename: source.name(), kind: format!("{} {class} {ty}", h.arch), size: c.total_bytes(), params }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parsed(words: &[&str]) -> BenchArgs {
        Line::try_parse_from([&["bench"], words].concat()).unwrap_or_else(|e| panic!("{e}")).bench
    }

    #[test]
    fn a_prompt_of_512_tokens_is_a_default_of_the_tests_and_a_wish_for_operations() {
        let prompts = |a: &BenchArgs| a.tests().iter().map(|t| t.prompt).filter(|&p| p > 0).collect::<Vec<_>>();
        for (words, tests, ops) in [
            (&[][..], &[512][..], 64),
            (&["-p", "512"], &[512], 512),
            (&["-p", "0"], &[], 64),
            (&["-p", "128,0,32"], &[128, 32], 32),
        ] {
            let a = parsed(words);
            assert_eq!((prompts(&a), a.ops_tokens()), (tests.to_vec(), ops), "{words:?}");
        }
    }
}
