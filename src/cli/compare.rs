//! `isobit compare`: two models over the same windows of a text, and whether they differ.
//!
//! The windows are those of `isobit perplexity`, so its figures come out again, digit for digit. Both models are
//! loaded and walk each window side by side, some tokens at a time, so that logits take little memory. With
//! `--one-at-a-time` A walks them all first, and its logits wait in a file without a name, which the system removes with
//! the process.

use super::common::{self, EngineArgs, Load, note};
use super::interrupt::{self, Words};
use crate::engine::{Device as Opened, Devices, Model};
use crate::formats::output;
use crate::generate::{Session, Want};
use crate::models::Recent;
use crate::ops::cache::CacheType;
use crate::stop::Interrupted;
use crate::study::pair::{Comparison, Estimate, Figures, TokenPair, Verdict};
use crate::study::plot::{self, Lines, Series};
use anyhow::{Context, bail, ensure};
use clap::Args;
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit compare model-f16.gguf model-q4_k_m.gguf -f wiki.test.raw --svg running.svg\n  isobit compare model.gguf model.gguf -f book.txt --ctk-b q4_0 --chunks 20\n\nA is the reference: differences are B minus A, and the KL divergence is of B from A."
)]
pub struct CompareArgs {
    /// The reference: GGUF file (the first, of shards) or Hugging Face directory
    a: PathBuf,
    /// What is compared with it
    b: PathBuf,
    /// The text
    #[arg(short = 'f', long)]
    file: PathBuf,
    /// Windows to score, from the start; 0: all
    #[arg(long, default_value = "0", value_name = "N", value_parser = common::count, allow_negative_numbers = true)]
    chunks: usize,
    /// Draw the running perplexity and difference to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Load B when A is done, for models that do not fit in memory together; A's logits wait in a temporary file
    #[arg(long)]
    one_at_a_time: bool,
    /// Type of A's cached keys, where it is not that of --ctk
    #[arg(long, value_name = "TYPE", value_parser = common::cache_type)]
    ctk_a: Option<CacheType>,
    /// Type of B's cached keys
    #[arg(long, value_name = "TYPE", value_parser = common::cache_type)]
    ctk_b: Option<CacheType>,
    /// Type of A's cached values, where it is not that of --ctv
    #[arg(long, value_name = "TYPE", value_parser = common::cache_type)]
    ctv_a: Option<CacheType>,
    /// Type of B's cached values
    #[arg(long, value_name = "TYPE", value_parser = common::cache_type)]
    ctv_b: Option<CacheType>,
    /// --kv-recent of A, where it is not that of both
    #[arg(long, value_name = "WHEN", value_parser = common::recent)]
    kv_recent_a: Option<Recent>,
    /// --kv-recent of B
    #[arg(long, value_name = "WHEN", value_parser = common::recent)]
    kv_recent_b: Option<Recent>,
    /// auto, cpu, cpu:LEVEL, gpu, an index of `isobit devices`, or part of an adapter's name
    #[arg(short = 'd', long, default_value = "auto", env = "ISOBIT_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::word)]
    device: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// How files are read: read, or mmap
    #[arg(long, value_enum, default_value = "read", env = "ISOBIT_LOAD_MODE", hide_env_values = true)]
    #[arg(value_name = "MODE", hide_possible_values = true, help_heading = "Engine")]
    load_mode: Load,
    #[command(flatten)]
    engine: EngineArgs,
}

/// One of the two models, before it is loaded.
struct Side {
    name: String,
    model: Model,
    ctk: CacheType,
    ctv: CacheType,
    recent: Recent,
    /// for JSON
    fingerprint: Option<String>,
}

impl Side {
    /// `f16, q8_0`, with `+r64` where recent positions are read from an f16 copy.
    fn cache(&self) -> String {
        self.recent.title(self.ctk, self.ctv).replace('/', ", ")
    }
}

/// Logits held of each model at once, in bytes.
const LOGITS: usize = 32 << 20;

/// Opens both models, each with the cache types asked for it.
fn sides(args: &CompareArgs) -> anyhow::Result<[Side; 2]> {
    type Types = (Option<CacheType>, Option<CacheType>, Option<Recent>);
    let side = |path: &Path, (ctk, ctv, recent): Types| -> anyhow::Result<Side> {
        let model = Model::from_container(common::open(Some(path), args.load_mode)?)?;
        model.tokenizer()?;
        let (ctk, ctv) = (ctk.unwrap_or(args.engine.ctk), ctv.unwrap_or(args.engine.ctv));
        let recent = recent.unwrap_or(args.engine.kv_recent);
        Ok(Side { name: path.display().to_string(), model, ctk, ctv, recent, fingerprint: None })
    };
    Ok([
        side(&args.a, (args.ctk_a, args.ctv_a, args.kv_recent_a))?,
        side(&args.b, (args.ctk_b, args.ctv_b, args.kv_recent_b))?,
    ])
}

pub fn run(args: CompareArgs) -> anyhow::Result<ExitCode> {
    let mut sides = sides(&args)?;
    let longest = sides[0].model.context().min(sides[1].model.context());
    let ctx = if args.engine.ctx > 0 { args.engine.ctx } else { longest.min(512) };
    if ctx > longest {
        note!("warning: one of the models was trained for {longest} positions, -c asks for {ctx}");
    }
    ensure!(ctx >= 4, "-c is {ctx}, a window needs at least 4 tokens");
    let text = common::text(None, Some(&args.file))?;
    // the text is not tokenised beyond the windows asked for
    let most = if args.chunks == 0 { usize::MAX } else { args.chunks.saturating_mul(ctx) };
    let mut ids = same_ids(&sides, &text, most)?;
    let available = ids.len() / ctx;
    ensure!(
        available > 0,
        "{}: {} tokens do not fill one window of {ctx}; use a longer text or a smaller -c",
        args.file.display(),
        ids.len()
    );
    let chunks = if args.chunks == 0 { available } else { args.chunks.min(available) };
    if let Some(svg) = &args.svg {
        common::can_be_written("--svg", svg)?;
    }

    for side in sides.iter_mut().filter(|_| args.json) {
        side.fingerprint = Some(args.engine.fingerprint(&side.model, ctx, (side.ctk, side.ctv, side.recent))?);
    }
    let vocab = sides[0].model.vocabulary();
    let tokenizer = sides[0].model.tokenizer()?;
    let start = if tokenizer.adds_bos() { tokenizer.start() } else { &[] };
    ids.truncate(chunks * ctx);
    ids.chunks_exact_mut(ctx).for_each(|window| window[..start.len()].copy_from_slice(start));
    let windows = Windows { ids, ctx, vocab, at_once: (LOGITS / 4 / vocab).clamp(1, ctx) };
    let devices = args.engine.devices();
    let mut opened = devices.open(&args.device)?;
    let device_name = opened.name();
    let a = load(&args, &sides[0], &mut opened, &windows)?;
    let about = format!("{} against {}: {chunks} windows of {ctx} on {device_name}", sides[1].name, sides[0].name);
    let mut second;
    let (a, b, bar) = if args.one_at_a_time {
        let bytes = chunks as u64 * windows.scored() as u64 * vocab as u64 * 4;
        note!("{about}, one model at a time ({} of logits in a temporary file)", super::inspect::size(bytes));
        let bar = common::bar(2 * chunks as u64, "scoring {bar:30} {pos}/{len} {msg} {eta}");
        let kept = keep(a, &windows, &bar)?;
        drop(opened);
        second = devices.open(&args.device)?;
        (Logits::Kept(kept), load(&args, &sides[1], &mut second, &windows)?, bar)
    } else {
        second = devices.open(&args.device)?;
        let b = load(&args, &sides[1], &mut second, &windows)
            .context("both models are loaded at the same time; --one-at-a-time needs the memory of one")?;
        note!("{about}");
        (Logits::Live(Box::new(a)), b, common::bar(chunks as u64, "scoring {bar:30} {pos}/{len} {msg} {eta}"))
    };
    // until now there is no result; from here on an interruption prints the windows that are done
    let held = interrupt::hold();
    let nothing = format!("interrupted before the first of {chunks} windows was done: nothing is known");
    let so_far = Arc::new(Mutex::new((String::new(), nothing.clone())));
    held.words({
        let so_far = so_far.clone();
        move || {
            let (out, err) = so_far.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Words { out, err }
        }
    });
    let text = |comparison: &Comparison, figures: &Figures, complete: bool| -> anyhow::Result<String> {
        if args.json {
            let about = serde_json::json!({"ctx": ctx, "chunks": chunks, "complete": complete, "device": device_name,
                "activations": args.engine.activations});
            return Ok(format!("{}\n", json(&sides, comparison, figures, about)));
        }
        let mut out = Vec::new();
        print(&sides, figures, &mut out)?;
        Ok(String::from_utf8(out)?)
    };
    let mut sources = [a, Logits::Live(Box::new(b))];
    let mut comparison = Comparison::default();
    let mut stopped = false;
    for window in windows.all() {
        match score(&mut sources, window, &windows) {
            Err(e) if Interrupted::caused(&e) => {
                interrupt::seen();
                stopped = true;
                break;
            }
            tokens => comparison.add(&tokens?),
        }
        if let Some(f) = comparison.figures() {
            bar.set_message(format!("PPL {:.4} / {:.4}", f.ppl[0], f.ppl[1]));
            let said = (text(&comparison, &f, false)?, format!("interrupted after {} of {chunks} windows", f.windows));
            *so_far.lock().unwrap_or_else(PoisonError::into_inner) = said;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let Some(figures) = comparison.figures() else {
        note!("{nothing}");
        interrupt::leave();
    };
    if stopped {
        note!("interrupted after {} of {chunks} windows", figures.windows);
    }
    // the figures are printed before the plot is written, so that a full disk does not hide them
    write!(std::io::stdout(), "{}", text(&comparison, &figures, !stopped)?)?;
    if let Some(path) = &args.svg {
        output::replace_file(path, running_plot(&sides, &comparison)?.as_bytes()).context("--svg")?;
    }
    if stopped {
        interrupt::leave();
    }
    Ok(ExitCode::SUCCESS)
}

/// The text's first `most` ids, the same from both tokenisers; two vocabularies are refused.
fn same_ids(sides: &[Side; 2], text: &str, most: usize) -> anyhow::Result<Vec<u32>> {
    let [a, b] = sides;
    let differ = |how: String| -> anyhow::Error {
        anyhow::anyhow!("{} and {} cannot be compared: {how}; both must have the same vocabulary", a.name, b.name)
    };
    let [of_a, of_b] = [a, b].map(|s| s.model.vocabulary());
    if of_a != of_b {
        bail!(differ(format!("their vocabularies have {of_a} and {of_b} tokens")));
    }
    let (tok_a, tok_b) = (a.model.tokenizer()?, b.model.tokenizer()?);
    let [ids, others] = [tok_a, tok_b].map(|t| t.encode_first(text, t.adds_bos(), false, most));
    let (ids, others) = (ids?, others?);
    if let Some(i) = ids.iter().zip(&others).position(|(x, y)| x != y) {
        bail!(differ(format!("their tokenisers give {} and {} for token {i} of the text", ids[i], others[i])));
    }
    if ids.len() != others.len() {
        bail!(differ(format!("their tokenisers make {} and {} tokens of the text", ids.len(), others.len())));
    }
    let used: BTreeSet<u32> = ids.iter().copied().collect();
    if let Some(id) = used.into_iter().find(|&id| tok_a.piece(id) != tok_b.piece(id)) {
        bail!(differ(format!("token {id} stands for different text")));
    }
    if tok_a.adds_bos() != tok_b.adds_bos() || tok_a.start() != tok_b.start() {
        bail!(differ("they begin a text differently".into()));
    }
    Ok(ids)
}

/// The text as both models are fed it.
struct Windows {
    /// whole windows; each begins with the beginning-of-text token where the models want one
    ids: Vec<u32>,
    ctx: usize,
    vocab: usize,
    /// tokens whose logits are held at once
    at_once: usize,
}

impl Windows {
    fn all(&self) -> impl Iterator<Item = &[u32]> {
        self.ids.chunks_exact(self.ctx)
    }

    /// The first token of a window whose logits are scored: the second half is.
    fn first(&self) -> usize {
        self.ctx / 2
    }

    /// Rows of logits scored in a window. The last token predicts nothing in the window, so it is not fed.
    fn scored(&self) -> usize {
        self.ctx - 1 - self.first()
    }

    /// (from, to, first scored) of the pieces a window is fed in. How it is cut never changes a bit of the logits.
    fn pieces(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let (fed, first) = (self.ctx - 1, self.first());
        (first..fed).step_by(self.at_once).map(move |at| {
            let from = if at == first { 0 } else { at };
            (from, (at + self.at_once).min(fed), at)
        })
    }
}

/// Opens a session over one window.
fn load<'d>(args: &CompareArgs, side: &Side, opened: &'d mut Opened, w: &Windows) -> anyhow::Result<Session<'d>> {
    let mut options = args.engine.session(w.ctx, w.at_once);
    (options.plan.k_type, options.plan.v_type, options.plan.recent) = (side.ctk, side.ctv, side.recent);
    // what the first model took is gone from what the second may take
    options.memory = Devices::share_of_memory(std::slice::from_ref(opened));
    let bar = common::load_bar(side.model.container());
    let ticking = bar.clone();
    let progress = move |n| ticking.inc(n);
    let (c, h) = (side.model.container(), side.model.hyper());
    let new = Session::new(opened.inner.as_mut(), c, h, options, progress);
    let session = pollster::block_on(new).with_context(|| side.name.clone())?;
    bar.finish_and_clear();
    Ok(session)
}

/// Where a model's logits come from.
enum Logits<'d> {
    Live(Box<Session<'d>>),
    /// in the order of the windows and their pieces
    Kept(BufReader<File>),
}

impl Logits<'_> {
    /// The logits of the scored tokens of a piece; the first piece of a window begins anew.
    fn rows(
        &mut self,
        window: &[u32],
        (from, to, scored): (usize, usize, usize),
        vocab: usize,
        rows: &mut Vec<f32>,
    ) -> anyhow::Result<()> {
        match self {
            Logits::Live(session) => {
                if from == 0 {
                    session.reset();
                }
                rows.clear();
                pollster::block_on(session.feed(&window[from..to], Want::From(scored - from), |_, logits| {
                    rows.extend_from_slice(logits);
                    Ok(())
                }))
            }
            Logits::Kept(file) => {
                rows.resize((to - scored) * vocab, 0.0);
                file.read_exact(bytemuck::cast_slice_mut(rows)).context("reading A's logits from their temporary file")
            }
        }
    }
}

/// Walks every window with the first model and keeps its logits.
fn keep(session: Session, w: &Windows, bar: &indicatif::ProgressBar) -> anyhow::Result<BufReader<File>> {
    let place = std::env::temp_dir();
    let context = || format!("keeping A's logits in {} (TMPDIR names another place)", place.display());
    let mut file = BufWriter::new(tempfile::tempfile().with_context(context)?);
    let mut logits = Logits::Live(Box::new(session));
    let mut rows = Vec::new();
    for window in w.all() {
        for piece in w.pieces() {
            logits.rows(window, piece, w.vocab, &mut rows)?;
            file.write_all(bytemuck::cast_slice(&rows)).with_context(context)?;
        }
        bar.inc(1);
    }
    let mut file = file.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(context)?;
    file.rewind().with_context(context)?;
    Ok(BufReader::new(file))
}

/// Scores one window; [`Interrupted`] when Ctrl-C was pressed before it was done. The models take turns.
fn score(sources: &mut [Logits; 2], window: &[u32], w: &Windows) -> anyhow::Result<Vec<TokenPair>> {
    let mut tokens = Vec::with_capacity(w.scored());
    let mut rows: [Vec<f32>; 2] = Default::default();
    for piece in w.pieces() {
        for (source, rows) in sources.iter_mut().zip(&mut rows) {
            interrupt::stop().check()?;
            source.rows(window, piece, w.vocab, rows)?;
        }
        let [a, b] = &rows;
        let pairs = a.par_chunks_exact(w.vocab).zip(b.par_chunks_exact(w.vocab)).enumerate();
        tokens.par_extend(pairs.map(|(i, (a, b))| TokenPair::new(a, b, window[piece.2 + i + 1] as usize)));
    }
    Ok(tokens)
}

/// The plot has no band for the first windows, this many.
const UNCERTAIN: usize = 4;

fn running_plot(sides: &[Side; 2], c: &Comparison) -> anyhow::Result<String> {
    let running = c.running();
    let line = |name: &str, values: Vec<f64>| Series {
        name: name.into(),
        points: values.into_iter().enumerate().map(|(i, v)| ((i + 1) as f64, v)).collect(),
    };
    let name = |i: usize| {
        let path = Path::new(&sides[i].name);
        format!("{}: {}", ["A", "B"][i], path.file_name().unwrap_or(path.as_os_str()).to_string_lossy())
    };
    let ppl = [0, 1].map(|i| line(&name(i), running.iter().map(|r| r.0[i]).collect()));
    let difference = [line("B - A", running.iter().map(|r| r.1.mean).collect())];
    // the first errors are those of two or three windows, so wide that the rest would look flat
    let band: Vec<(f64, f64, f64)> = (running.iter().enumerate().skip(UNCERTAIN))
        .filter_map(|(i, r)| r.1.error.map(|e| ((i + 1) as f64, r.1.mean - 2.0 * e, r.1.mean + 2.0 * e)))
        .collect();
    let why = match band.len() {
        0 | 1 => format!("No band: of fewer than {} windows the error itself is too uncertain.", UNCERTAIN + 2),
        _ => format!(
            "Band: two standard errors to either side, from window {} on: the error of fewer is too uncertain.",
            UNCERTAIN + 1
        ),
    };
    plot::two_panels(
        &Lines {
            title: "Perplexity so far",
            note: "",
            x: "windows",
            y: "perplexity",
            series: &ppl,
            band: &[],
            mark: None,
        },
        &Lines {
            title: "Mean NLL of B minus A so far",
            note: &why,
            x: "windows",
            y: "nats per token",
            series: &difference,
            band: &band,
            mark: Some(0.0),
        },
    )
}

/// What the difference means, in one sentence.
fn sentence(f: &Figures) -> String {
    let d = f.nll_difference.mean;
    let worse = if d > 0.0 { "worse" } else { "better" };
    let by = || format!("{:.3} %", (libm::exp(d) - 1.0).abs() * 100.0);
    let windows = |n: u64| if n == 1 { "1 window".to_string() } else { format!("{n} windows") };
    match f.verdict() {
        Verdict::Same => "The two give exactly the same probabilities: every difference is zero.".into(),
        Verdict::Unknown => {
            "One window has no standard error: nothing can be said about the difference; score more windows.".into()
        }
        Verdict::Broken => {
            "A logit of one of the two is not a finite number: nothing can be said about the difference.".into()
        }
        Verdict::Distinguishable { enough } => format!(
            "B is {worse} than A: its perplexity differs by {}, which is distinguishable from zero (95 %, {}; {} would have been enough).",
            by(),
            windows(f.windows as u64),
            windows(enough)
        ),
        Verdict::Indistinguishable { needed } => format!(
            "The difference is not distinguishable from zero (95 %, {}): {}.",
            windows(f.windows as u64),
            match needed {
                Some(n) => format!("to tell one of this size ({}, B {worse}) about {n} windows would be needed", by()),
                None => "it is zero on average".into(),
            }
        ),
    }
}

fn error(e: Option<f64>, digits: usize) -> String {
    e.map_or("(one window: no error)".into(), |e| format!("+/- {e:.digits$}"))
}

fn print(sides: &[Side; 2], f: &Figures, out: &mut impl Write) -> anyhow::Result<()> {
    let line = |s: &str| super::one_line(s);
    for (i, (s, letter)) in sides.iter().zip(["A", "B"]).enumerate() {
        writeln!(out, "{letter}: {} (cache {})", line(&s.name), s.cache())?;
        writeln!(out, "   PPL = {:.4} +/- {:.5}, mean NLL {:.6}", f.ppl[i], f.ppl_error[i], f.nll[i])?;
    }
    let (nll, ppl, kl) = (f.nll_difference, f.ppl_difference, f.kl);
    let ratio = libm::exp(nll.mean);
    writeln!(out, "B minus A, {} windows, {} tokens, paired:", f.windows, f.tokens)?;
    writeln!(out, "   mean NLL       {:+.6} {}", nll.mean, error(nll.error, 6))?;
    writeln!(out, "   PPL            {:+.5} {}", ppl.mean, error(ppl.error, 5))?;
    writeln!(out, "   PPL ratio      {ratio:.6} {}", error(nll.error.map(|e| e * ratio), 6))?;
    let [median, p90, p99] = f.kl_quantiles;
    writeln!(
        out,
        "   KL divergence  {:.6} {} nats; median {median:.6}, 90 % {p90:.6}, 99 % {p99:.6}, max {:.6}",
        kl.mean,
        error(kl.error, 6),
        f.kl_max
    )?;
    writeln!(out, "   delta p        mean {:+.4} %, RMS {:.4} %", f.delta_p * 100.0, f.delta_p_rms * 100.0)?;
    let percent = Estimate { mean: f.same_top.mean * 100.0, error: f.same_top.error.map(|e| e * 100.0) };
    writeln!(out, "   same top-1     {:.3} {} %", percent.mean, error(percent.error, 3))?;
    writeln!(out, "{}", sentence(f))?;
    Ok(())
}

fn json(sides: &[Side; 2], c: &Comparison, f: &Figures, about: serde_json::Value) -> serde_json::Value {
    let side = |i: usize| {
        let s = &sides[i];
        serde_json::json!({"model": s.name, "ctk": s.ctk.name(), "ctv": s.ctv.name(),
            "kv_recent": s.recent.applies(s.ctk, s.ctv), "fingerprint": s.fingerprint, "ppl": f.ppl[i],
            "ppl_stderr": f.ppl_error[i], "nll": f.nll[i]})
    };
    let estimate = |e: Estimate| serde_json::json!({"mean": e.mean, "stderr": e.error});
    let (verdict, windows) = match f.verdict() {
        Verdict::Same => ("identical", None),
        Verdict::Unknown => ("unknown", None),
        Verdict::Broken => ("not a number", None),
        Verdict::Distinguishable { enough } => ("distinguishable", Some(enough)),
        Verdict::Indistinguishable { needed } => ("indistinguishable", needed),
    };
    let rows: Vec<serde_json::Value> = (c.windows().iter())
        .map(|w| serde_json::json!({"tokens": w.tokens, "nll_a": w.nll[0], "nll_b": w.nll[1], "kl": w.kl, "same_top": w.same_top}))
        .collect();
    let mut v = serde_json::json!({
        "a": side(0),
        "b": side(1),
        "tokens": f.tokens,
        "windows": f.windows,
        "nll_difference": estimate(f.nll_difference),
        "ppl_difference": estimate(f.ppl_difference),
        "ppl_ratio": libm::exp(f.nll_difference.mean),
        "kl": {"mean": f.kl.mean, "stderr": f.kl.error, "median": f.kl_quantiles[0], "p90": f.kl_quantiles[1],
            "p99": f.kl_quantiles[2], "max": f.kl_max},
        "delta_p": {"mean": f.delta_p, "rms": f.delta_p_rms},
        "same_top": estimate(f.same_top),
        "verdict": verdict,
        "windows_needed": windows,
        "sentence": sentence(f),
        "per_window": rows,
    });
    if let (Some(v), serde_json::Value::Object(about)) = (v.as_object_mut(), about) {
        v.extend(about);
    }
    v
}
