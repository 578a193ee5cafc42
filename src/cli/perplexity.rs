//! `isobit perplexity`: the protocol of llama.cpp's tool.
//!
//! The text is cut into windows of the context, without overlap; where the model wants a beginning-of-text token the
//! first token of each window becomes it; the second half of each window is scored.

use super::common::{self, EngineArgs, ModelArgs, note};
use super::interrupt::{self, Words};
use crate::engine::{self, Session};
use crate::generate::logprobs::log_softmax;
use anyhow::ensure;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit perplexity model.gguf -f wiki.test.raw\n  isobit perplexity -f book.txt -c 256 --chunks 20 --json"
)]
pub struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The text
    #[arg(short = 'f', long)]
    file: PathBuf,
    /// Windows to score, from the start; 0: all
    #[arg(long, default_value = "0", value_name = "N", value_parser = common::count, allow_negative_numbers = true)]
    chunks: usize,
    /// auto, cpu, cpu:LEVEL, gpu, an index of `isobit devices`, part of a name; A,B: layers on each
    #[arg(short = 'd', long, alias = "devices", default_value = "auto", env = "ISOBIT_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::devices)]
    device: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

pub fn run(a: PerplexityArgs) -> anyhow::Result<ExitCode> {
    let model = a.model.model()?;
    common::generates(&model)?;
    let (c, h, tok) = (model.container(), model.hyper(), model.tokenizer()?);
    let ctx = if a.engine.ctx > 0 { a.engine.n_ctx(h) } else { h.context.min(512) };
    ensure!(ctx >= 4, "-c is {ctx}, a window needs at least 4 tokens");
    let text = common::text(None, Some(&a.file))?;
    // the text is not tokenised beyond the windows asked for
    let most = if a.chunks == 0 { usize::MAX } else { a.chunks.saturating_mul(ctx) };
    let mut ids = tok.encode_first(&text, tok.adds_bos(), false, most)?;
    let available = ids.len() / ctx;
    ensure!(
        available > 0,
        "{}: {} tokens do not fill one window of {ctx}; use a longer text or a smaller -c",
        a.file.display(),
        ids.len()
    );
    let chunks = if a.chunks == 0 { available } else { a.chunks.min(available) };
    let o = &a.engine;
    let fingerprint = a.json.then(|| o.fingerprint(&model, ctx, (o.ctk, o.ctv, o.kv_recent))).transpose()?;
    let device = o.devices().open(&a.device)?;
    let load = common::load_bar(c);
    let ticking = load.clone();
    let mut session = Session::new(&model, device, o.options(ctx, ctx), move |n| ticking.inc(n))?;
    let device_name = session.device().to_string();
    load.finish_and_clear();
    note!("{}: {chunks} windows of {ctx} on {device_name}", c.files[0].display());
    let bar = common::bar(chunks as u64, "scoring {bar:30} {pos}/{len} {msg} {eta}");

    let start = if tok.adds_bos() { tok.start() } else { &[] };
    // position i predicts token i + 1; ctx/2 .. ctx-1 are scored
    let first = ctx / 2;
    let (mut sums, done) = (Sums::default(), Arc::new(Mutex::new(Sums::default())));
    let report = Report {
        chunks,
        ctx,
        json: a.json,
        started: Instant::now(),
        device: device_name,
        engine: [a.engine.ctk.name().into(), a.engine.ctv.name().into(), a.engine.activations.clone()],
        recent: a.engine.recent(),
        fingerprint,
    };
    // from here on an interruption prints the windows that are done
    let held = interrupt::hold();
    let (words, so_far) = (report.clone(), done.clone());
    held.words(move || words.words(&lock(&so_far)));
    for chunk in 0..chunks {
        let window = &mut ids[chunk * ctx..][..ctx];
        window[..start.len()].copy_from_slice(start);
        let fed = session.each_logits(&window[..ctx - 1], first, |i, logits| {
            if interrupt::stop().asked() {
                return;
            }
            let v = -log_softmax(logits, window[i + 1] as usize);
            sums.nll += v;
            sums.squares += v * v;
            sums.tokens += 1;
        });
        match fed.and_then(|()| Ok(interrupt::stop().check()?)) {
            // a window that was not finished does not count
            Err(engine::Error::Interrupted(_)) => {
                interrupt::seen();
                bar.finish_and_clear();
                let words = report.words(&lock(&done));
                note!("{}", words.err);
                write!(std::io::stdout(), "{}", words.out)?;
                interrupt::leave();
            }
            other => other?,
        }
        sums.windows += 1;
        *lock(&done) = sums;
        bar.set_message(format!("PPL {:.4}", libm::exp(sums.nll / sums.tokens as f64)));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let words = report.words(&sums);
    write!(std::io::stdout(), "{}", words.out)?;
    if !words.err.is_empty() {
        note!("{}", words.err);
    }
    Ok(ExitCode::SUCCESS)
}

fn lock(sums: &Mutex<Sums>) -> MutexGuard<'_, Sums> {
    sums.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Over the tokens scored.
#[derive(Clone, Copy, Default)]
struct Sums {
    windows: usize,
    tokens: u64,
    nll: f64,
    squares: f64,
}

/// What is printed beside the figures.
#[derive(Clone)]
struct Report {
    chunks: usize,
    ctx: usize,
    json: bool,
    started: Instant,
    device: String,
    /// types of cached keys and values, bits of activations
    engine: [String; 3],
    recent: bool,
    /// for JSON
    fingerprint: Option<String>,
}

impl Report {
    /// The estimate over the windows that are done: all of them, or as many as there were when Ctrl-C was pressed.
    fn words(&self, s: &Sums) -> Words {
        let (windows, chunks, complete) = (s.windows, self.chunks, s.windows == self.chunks);
        let stopped = format!("interrupted after {windows} of {chunks} windows");
        if windows == 0 {
            return Words { out: String::new(), err: format!("{stopped}: no estimate") };
        }
        let (n, mean) = (s.tokens as f64, s.nll / s.tokens as f64);
        let ppl = libm::exp(mean);
        let variance = s.squares / n - mean * mean;
        let stderr = if s.tokens > 1 { (variance.max(0.0) / (n - 1.0)).sqrt() * ppl } else { 0.0 };
        let per_second = (windows * self.ctx) as f64 / self.started.elapsed().as_secs_f64();
        if self.json {
            let [ctk, ctv, activations] = &self.engine;
            let v = serde_json::json!({"ppl": ppl, "nll": mean, "stderr": stderr, "tokens": s.tokens, "chunks": windows,
                "complete": complete, "ctx": self.ctx, "device": self.device, "ctk": ctk, "ctv": ctv, "kv_recent": self.recent,
                "activations": activations, "fingerprint": self.fingerprint, "tokens_per_second": per_second});
            return Words { out: format!("{v}\n"), err: if complete { String::new() } else { stopped } };
        }
        let what =
            if complete { "Final estimate".into() } else { format!("Estimate after {windows} of {chunks} windows") };
        let scored = format!("{} tokens scored, mean NLL {mean:.6}, {per_second:.0} t/s", s.tokens);
        Words {
            out: format!("{what}: PPL = {ppl:.4} +/- {stderr:.5}\n"),
            err: if complete { scored } else { format!("{stopped}: {scored}") },
        }
    }
}
