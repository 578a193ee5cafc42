//! `isobit bench`: speed of models on devices, as llama-bench measures it, with limits and digests beside it.

mod args;
mod checks;
mod ops;
#[cfg(feature = "gpu")]
mod predict;

pub use args::{BenchArgs, short_form};

use super::CheckFailed;
use super::common::{self, EngineArgs, KernelArgs, Load, Status, note};
use super::interrupt::{self, Words};
use super::system::{self, Energy};
use crate::bench::grid::Test;
use crate::bench::measure::{Bench, DIGEST_TOKENS, Measured, Part, Routine};
use crate::bench::schema::{self, Build, Check, Config, Format, Kernels, Row, Writer};
use crate::bench::{Limits, compare, report};
use crate::engine::{About, Activations, Devices, fingerprint};
use crate::formats::synthetic::Synthetic;
use crate::formats::{Container, output};
use crate::generate::{Session, SessionOptions};
use crate::models::{Head, Hyper, PlanOptions, Recent};
use crate::ops::cache::CacheType;
use crate::simd::Level;
use crate::stop::Interrupted;
use anyhow::{Context, ensure};
use checks::{Digests, Maker};
use clap::Parser;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// If plain reading changes by more than this share during a test, the test's percentage of the limit is not trusted.
const UNSTEADY: f64 = 0.15;

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

/// Engine options with this number of threads and these kernels, all else as it is by default.
fn engine(threads: usize, kernels: &KernelArgs) -> anyhow::Result<EngineArgs> {
    #[derive(Parser)]
    struct Wrap {
        #[command(flatten)]
        engine: EngineArgs,
    }
    let engine = Wrap::try_parse_from(["isobit", "-t", &threads.to_string()])?.engine;
    Ok(EngineArgs { kernels: kernels.clone(), ..engine })
}

/// Files of rows, JSON or JSONL.
fn read_rows(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = common::text(None, Some(path))?;
    compare::parse(&text).with_context(|| path.display().to_string())
}

/// Prints a warning and returns it, for the rows that it concerns.
fn warn(text: String) -> String {
    note!("warning: {text}");
    text
}

/// Gives a row the mean of plain reading before and after it, and a warning where they are far apart.
fn set_read_limit(row: &mut Row, before: f64, after: f64) {
    let Some(limits) = &mut row.device.limits else { return };
    limits.read = 2.0 / (1.0 / before + 1.0 / after);
    if (after / before - 1.0).abs() > UNSTEADY {
        let (test, before, after) = (row.test, before / 1e9, after / 1e9);
        row.warnings.push(warn(format!(
            "{test}: plain reading went from {before:.1} to {after:.1} GB/s meanwhile: {}",
            report::UNSTEADY
        )));
    }
}

/// Writes the page of `--html`.
fn write_page(path: &Path, rows: &[Value]) -> anyhow::Result<()> {
    output::replace_file(path, report::page(rows).as_bytes()).context("--html")
}

pub fn run(a: BenchArgs) -> anyhow::Result<ExitCode> {
    if let [first, second] = &a.compare[..] {
        return compare_files(first, second, a.format() == Format::Json);
    }
    if let Some(page) = &a.html {
        ensure!(a.ops.is_none(), "--html draws the rows of tests; --ops has none (use -o)");
        common::can_be_written("--html", page)?;
    }
    if let (false, Some(page)) = (a.from.is_empty(), &a.html) {
        let rows = a.from.iter().map(|p| read_rows(p)).collect::<anyhow::Result<Vec<_>>>()?.concat();
        write_page(page, &rows)?;
        note!("{}: {} rows drawn", page.display(), rows.len());
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        a.ops.is_some() || !a.tests().is_empty(),
        "nothing to run: -p, -n and --pg are all 0; give one of them a number"
    );
    // headers only: a wrong name or file ends the run before anything is measured
    for source in a.sources() {
        let h = Hyper::read(&source.open()?)?;
        tests_of(&a, &h).with_context(|| source.name())?;
    }
    #[cfg(feature = "gpu")]
    if !a.predict.is_empty() {
        for source in a.sources() {
            common::has_logits(&Hyper::read(&source.open()?)?)?;
        }
        ensure!(a.ops.is_none() && a.html.is_none(), "--predict has neither operations nor a page");
        return predict::run(&a);
    }
    let mut session = Run::new(&a)?;
    if a.flash_attn == Some(false) {
        session.warnings.push(warn("-fa off: attention is always fused, the flag changes nothing".into()));
    }
    if let Some(what) = &a.ops {
        return session.ops(what == "cases");
    }
    session.grid()
}

/// The tests that a model takes, and in words those that it does not: an encoder takes whole texts alone.
///
/// Errors: none is left.
fn tests_of(a: &BenchArgs, h: &Hyper) -> anyhow::Result<(Vec<Test>, String)> {
    let takes = |t: &Test| !h.family.is_encoder() || t.generate == 0 && t.depth == 0;
    let (tests, left): (Vec<Test>, Vec<Test>) = a.tests().into_iter().partition(takes);
    let left = left.iter().map(Test::to_string).collect::<Vec<_>>().join(", ");
    let arch = h.family.name();
    ensure!(a.ops.is_some() || !tests.is_empty(), "a {arch} model makes vectors of whole texts: no {left}; give it -p");
    Ok((tests, left))
}

fn compare_files(first: &Path, second: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let c = compare::compare(&read_rows(first)?, &read_rows(second)?);
    ensure!(
        !c.pairs.is_empty(),
        "no row of {} matches one of {}: rows match by model, test, cache types, kv_recent and activations",
        first.display(),
        second.display()
    );
    let [a, b] = [first, second].map(|p| p.display().to_string());
    let text = if json { format!("{}\n", c.json(&a, &b)) } else { c.text(&a, &b) };
    std::io::stdout().lock().write_all(text.as_bytes())?;
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
    maker: Maker,
    kernels: Kernels,
    main_memory: bool,
    /// warnings that concern every figure of this device
    warnings: Vec<String>,
}

/// What `--reference` names.
struct Reference {
    spec: String,
    engine: EngineArgs,
    maker: Maker,
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
    reference: Option<Reference>,
    digests: Digests,
    /// warnings that concern every row
    warnings: Vec<String>,
    wrong: usize,
    failed: Option<anyhow::Error>,
    /// rows that were written
    emitted: Arc<AtomicUsize>,
}

/// The CPU's level of a word of `--device`; `None` runs the twins.
pub(super) fn level_of(spec: &str) -> Option<Level> {
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
                let engine = EngineArgs { n_cpu_moe: a.cpu_experts, ..engine(t, &a.kernels)? };
                let opened = engine.devices().open(spec)?;
                if opened.about.is_some() && i > 0 {
                    // threads are the CPU's alone
                    continue;
                }
                places.push(Run::place(a, spec, t, engine, opened.name(), opened.about, opened.main_memory)?);
            }
        }
        let energy = Energy::find();
        if energy.is_none() {
            note!("energy: this system has no counter that may be read (powercap, battery); joules_per_token is null");
        }
        let open = |spec: &String| Run::open_reference(spec, &a.kernels, &mut places);
        let reference = a.reference.as_ref().map(open).transpose()?;
        let varied = a.varied(&specs, &threads, &a.kernels.row());
        let out = Writer::new(a.format(), varied.clone());
        let err = a.output_err.map(|f| Writer::new(f, varied));
        let digests = Digests::default();
        Ok(Run {
            a,
            build,
            places,
            energy,
            rows: vec![],
            warnings: vec![],
            out,
            err,
            reference,
            digests,
            wrong: 0,
            failed: None,
            emitted: Arc::default(),
        })
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
        let mut warnings = Vec::new();
        let status = (!a.no_limits).then(|| Status::new(&format!("measuring the limits of {title}")));
        let measured = match &about {
            // what several devices do together follows from the slowest
            _ if a.no_limits || spec.contains('+') || a.cpu_experts > 0 => None,
            Some(about) => Some(engine.devices().adapter_limits(about.index)).transpose().unwrap_or_else(|e| {
                warnings.push(warn(format!("{title}: its limits could not be measured: {}", super::chain(&e))));
                None
            }),
            // the twins have no vector instructions: the portable level's rate is the nearest
            None => {
                let level = level_of(spec).unwrap_or(Level::Portable);
                Some((
                    crate::limits::read_bandwidth(threads, interrupt::stop())?,
                    crate::limits::int8_rate(level, threads),
                ))
            }
        };
        drop(status);
        let limits = measured.map(|(read, int8)| Limits { read, int8 });
        if let Some(l) = limits {
            note!("{title}: reads {:.1} GB/s, int8 {:.0} GOP/s", l.read / 1e9, l.int8 / 1e9);
        }
        let maker = Maker::new(&title, about.as_ref());
        let mut kernels = engine.kernels.row();
        if about.is_none() {
            // variants are a GPU's
            kernels.variant = Default::default();
        }
        let facts = match about {
            Some(about) => schema::Device {
                spec: spec.into(),
                title,
                adapter: about.name,
                backend: about.backend,
                driver: about.driver,
                limits,
                cpu_experts: a.cpu_experts,
            },
            None => {
                let backend = "CPU".to_string();
                let cpu_experts = a.cpu_experts;
                schema::Device { spec: spec.into(), title, backend, limits, cpu_experts, ..schema::Device::default() }
            }
        };
        Ok(Place { spec: spec.into(), threads, engine, facts, maker, kernels, main_memory, warnings })
    }

    /// Every model on every device with every option.
    fn grid(&mut self) -> anyhow::Result<ExitCode> {
        // the output is completed, and the page drawn, even after an error
        let held = interrupt::hold();
        self.emit(|w| w.head())?;
        let (emitted, foot) = (self.emitted.clone(), self.out.foot(&self.build));
        held.words(move || {
            let rows = emitted.load(Ordering::SeqCst);
            Words { out: foot.clone(), err: format!("interrupted after {rows} rows") }
        });
        let ended = self.models();
        if ended.as_ref().is_err_and(Interrupted::caused) {
            interrupt::seen();
        }
        // what was begun (a JSON list, a table) is completed even after an error
        let build = self.build.clone();
        self.emit(|w| w.foot(&build))?;
        if let Some(page) = &self.a.html {
            let rows: Vec<Value> =
                self.rows.iter().map(|r| serde_json::from_str(&r.to_json())).collect::<Result<_, _>>()?;
            write_page(page, &rows)?;
        }
        match ended {
            Err(e) if Interrupted::caused(&e) => {
                note!("interrupted after {} rows", self.rows.len());
                interrupt::leave();
            }
            other => other?,
        }
        if self.wrong > 0 {
            anyhow::bail!(CheckFailed(format!(
                "{} rows have digests that DIFFER from those computed before them: these speeds are of a wrong result",
                self.wrong
            )));
        }
        match self.failed.take() {
            Some(e) => Err(e),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    fn models(&mut self) -> anyhow::Result<()> {
        for source in self.a.sources() {
            let c = source.open()?;
            let h = Hyper::read(&c)?;
            let (tests, left) = tests_of(self.a, &h)?;
            if !left.is_empty() {
                note!("{}: a {} model makes vectors of whole texts: {left} left out", source.name(), h.family.name());
            }
            // a table shows none, and it takes reading the whole model
            let shown = [Some(self.a.format()), self.a.output_err].into_iter().flatten().any(|f| f != Format::Md);
            let digest = (shown || self.a.html.is_some()).then(|| c.digest(|_| {})).transpose()?;
            self.refer(&c, &h, &tests)?;
            for i in 0..self.places.len() {
                for (config, k, v) in self.a.configs() {
                    self.group(i, &source, (&c, digest.as_deref()), &h, config, (k, v), &tests)?;
                }
            }
        }
        Ok(())
    }

    fn fingerprint(digest: &str, h: &Hyper, config: &Config, (k, v): (CacheType, CacheType)) -> String {
        let activations = if config.activations == 16 { Activations::Bits16 } else { Activations::Bits8 };
        let (long, recent) = (h.takes_long_factors(config.n_ctx), if config.recent { Recent::On } else { Recent::Off });
        fingerprint(digest, long, activations, k, v, recent)
    }

    fn plan(h: &Hyper, config: &Config, (k_type, v_type): (CacheType, CacheType), n_ctx: usize) -> PlanOptions {
        let digits = if config.activations == 16 { 2 } else { 1 };
        let ubatch = config.ubatch.min(n_ctx);
        let recent = if config.recent { Recent::On } else { Recent::Off };
        let head = if h.family.is_encoder() { Head::Hidden } else { Head::Logits };
        PlanOptions { n_ctx, ubatch, max_out: 1, digits, k_type, v_type, recent, head, ..PlanOptions::default() }
    }

    /// A row of a model on a device before anything is measured.
    fn unmeasured(&self, p: &Place, model: schema::Model, config: Config) -> Row {
        Row {
            build: self.build.clone(),
            model,
            device: p.facts.clone(),
            config,
            test: Test { prompt: 0, generate: 0, depth: 0 },
            time: String::new(),
            measured: None,
            error: None,
            load_ms: 0.0,
            peak_memory: None,
            energy_source: None,
            fingerprint: String::new(),
            digest: String::new(),
            digest_check: Check::None,
            logits_check: Check::None,
            warnings: self.warnings.iter().chain(&p.warnings).cloned().collect(),
        }
    }

    /// Loads a model on a device and runs every test. An error of the device is a row, and the next group goes on.
    fn group(
        &mut self,
        place: usize,
        source: &Source,
        (c, digest): (&Container, Option<&str>),
        h: &Hyper,
        mut config: Config,
        types: (CacheType, CacheType),
        tests: &[Test],
    ) -> anyhow::Result<()> {
        let p = &self.places[place];
        config.threads = p.threads;
        config.gpu_layers = if p.facts.adapter.is_empty() { 0 } else { self.a.gpu_layers };
        config.n_ctx = positions(tests);
        config.kernels = p.kernels.clone();
        let fingerprint = digest.map_or_else(String::new, |d| Run::fingerprint(d, h, &config, types));
        let base = Row { fingerprint, ..self.unmeasured(p, describe(source, c, h), config.clone()) };
        let plan = Run::plan(h, &config, types, config.n_ctx);
        system::forget_peak();
        let opened = match p.engine.devices().open(&p.spec) {
            Ok(o) => o,
            Err(e) => return self.all_failed(&base, tests, e),
        };
        // a package's counter does not see a card with memory of its own
        let counts = self.energy.as_ref().is_some_and(|e| p.main_memory || e.whole_machine());
        let memory = Devices::share_of_memory(std::slice::from_ref(&opened));
        let options = SessionOptions { plan, memory, fuse: p.engine.kernels.fuse };
        let mut device = opened.inner;
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
        let mut bench = Bench::new(session, h.vocab, plan.digits);
        let mut base = Row { load_ms, ..base };
        let what = format!("{} on {}", base.model.kind, base.device.title);
        let status = Status::new(&format!("{what}: digest"));
        match pollster::block_on(bench.digest()) {
            Ok(digest) => base.digest = digest,
            Err(e) => return self.all_failed(&base, tests, e),
        }
        let planted = self.a.plant_fault.as_ref().is_some_and(|d| *d == base.device.spec);
        let spoil = |digest: &mut String| digest.replace_range(..1, if digest.starts_with('0') { "1" } else { "0" });
        if planted {
            spoil(&mut base.digest);
        }
        base.digest_check = self.digests.check(checks::task(c, &config, None), &base.digest, &self.places[place].maker);
        let mut peak = None;
        let mut before = self.read_again(place, &mut peak)?;
        for (i, test) in tests.iter().enumerate() {
            interrupt::stop().check()?;
            let line = format!("{} of {}: {test}", i + 1, tests.len());
            if self.a.progress {
                note!("{line} of {what}");
            }
            let time = system::utc();
            let n = self.a.repetitions;
            // a thread that redraws would take time from what is measured
            let begin = |part| match part {
                Part::Depth => status.set(&format!("{line}, filling the cache, of {what}")),
                Part::WarmUp => status.set(&format!("{line}, once before it is timed, of {what}")),
                Part::Repetition(i) => status.set(&format!("{line}, repetition {i} of {n}, of {what}")),
            };
            let measured = self.measure(&mut bench, test, &base, counts, &begin);
            let mut row = Row { test: *test, time, ..base.clone() };
            row.peak_memory = peak.max(system::peak_memory());
            let after = match measured {
                Err(e) if Interrupted::caused(&e) => return Err(e),
                // a row that was measured is printed, even when Ctrl-C leaves no time to read again
                _ => self.read_again(place, &mut peak).ok().flatten(),
            };
            if let (Some(a), Some(b)) = (before, after) {
                set_read_limit(&mut row, a, b);
            }
            before = after;
            row.energy_source = self.energy.as_ref().filter(|_| counts).map(|e| e.name().to_string());
            match measured {
                Ok(mut m) => {
                    m.limit = row.device.limits.map(|l| bench.limit(test, config.batch, l));
                    if planted {
                        spoil(&mut m.last_logits);
                    }
                    let task = checks::task(c, &config, Some(test));
                    row.logits_check = self.digests.check(task, &m.last_logits, &self.places[place].maker);
                    row.measured = Some(m);
                    self.push(row)?;
                }
                Err(e) => self.fail(row, e)?,
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        bench: &mut Bench,
        test: &Test,
        base: &Row,
        counts: bool,
        begin: &dyn Fn(Part),
    ) -> anyhow::Result<Measured> {
        let routine = Routine {
            repetitions: self.a.repetitions,
            warm_up: !self.a.no_warmup,
            delay: Duration::from_secs(self.a.delay as u64),
            batch: base.config.batch,
            stop: interrupt::stop(),
            energy: &|| self.energy.as_ref().filter(|_| counts).and_then(Energy::joules),
            begin,
        };
        pollster::block_on(bench.run(test, &routine))
    }

    /// Plain reading as it is now, for a CPU whose limits are wanted: where memory is shared, its speed changes within
    /// seconds. Reading takes memory of its own, so the peak until now goes to `peak` first and is then forgotten.
    fn read_again(&self, place: usize, peak: &mut Option<u64>) -> Result<Option<f64>, Interrupted> {
        let p = &self.places[place];
        if p.facts.limits.is_none() || !p.facts.adapter.is_empty() {
            return Ok(None);
        }
        *peak = (*peak).max(system::peak_memory());
        let read = crate::limits::read_bandwidth(p.threads, interrupt::stop())?;
        system::forget_peak();
        Ok(Some(read))
    }

    fn push(&mut self, row: Row) -> anyhow::Result<()> {
        self.emit(|w| w.row(&row))?;
        self.emitted.fetch_add(1, Ordering::SeqCst);
        self.wrong += usize::from(row.wrong());
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

    /// Writes a row with the error for every test; the run ends with that error after all other groups.
    fn all_failed(&mut self, base: &Row, tests: &[Test], e: anyhow::Error) -> anyhow::Result<()> {
        if Interrupted::caused(&e) {
            return Err(e);
        }
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
        let err = self.err.as_mut().map(&text).unwrap_or_default();
        let text = text(&mut self.out);
        common::above_bars(|| {
            std::io::stderr().write_all(err.as_bytes())?;
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            Ok(out.flush()?)
        })
    }
}

/// Positions the cache needs for the tests and for the digest.
fn positions(tests: &[Test]) -> usize {
    let most = tests.iter().map(Test::positions).max().unwrap_or(0);
    most.max(DIGEST_TOKENS.0 + DIGEST_TOKENS.1)
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
    let kind = format!("{} {class} {ty}", h.arch);
    let embeddings = h.family.is_encoder();
    schema::Model { filename: source.name(), kind, size: c.total_bytes(), params, embeddings }
}
