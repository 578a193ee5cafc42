//! `isobit perplexity`: the protocol of llama.cpp's tool.
//!
//! The text is cut into windows of the context, without overlap; where the model wants a beginning-of-text token the
//! first token of each window becomes it; the second half of each window is scored.

use super::common::{self, EngineArgs, ModelArgs, note};
use crate::generate::{Session, Want};
use crate::study::pair::log_softmax;
use anyhow::ensure;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

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
    /// auto, cpu, cpu:LEVEL, gpu, an index of `isobit devices`, or part of an adapter's name
    #[arg(short = 'd', long, default_value = "auto", env = "ISOBIT_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::word)]
    device: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

pub fn run(a: PerplexityArgs) -> anyhow::Result<ExitCode> {
    let (c, h, tok) = common::open_all(&a.model)?;
    let ctx = if a.engine.ctx > 0 { a.engine.n_ctx(&h) } else { h.context.min(512) };
    ensure!(ctx >= 4, "-c is {ctx}, a window needs at least 4 tokens");
    let text = common::text(None, Some(&a.file))?;
    // no further than the windows asked for reach
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
    let mut options = a.engine.session(ctx, ctx);
    let opened = a.engine.devices().open(&a.device)?;
    options.memory = common::share_of_memory(std::slice::from_ref(&opened));
    let mut device = opened.device;
    let device_name = device.info().name;
    let load = common::load_bar(&c);
    let ticking = load.clone();
    let mut session = pollster::block_on(Session::new(device.as_mut(), &c, &h, options, move |n| ticking.inc(n)))?;
    load.finish_and_clear();
    note!("{}: {chunks} windows of {ctx} on {device_name}", c.files[0].display());
    common::catch_interrupt()?;
    let bar = common::bar(chunks as u64, "scoring {bar:30} {pos}/{len} {msg} {eta}");

    let bos = tok.bos().filter(|_| tok.adds_bos());
    // position i predicts token i + 1; ctx/2 .. ctx-1 are scored
    let first = ctx / 2;
    let (mut nll, mut squares, mut tokens) = (0f64, 0f64, 0u64);
    let started = std::time::Instant::now();
    for chunk in 0..chunks {
        if common::interrupted() {
            bar.finish_and_clear();
            note!("interrupted after {chunk} of {chunks} windows: no estimate");
            return Ok(ExitCode::from(130));
        }
        let window = &mut ids[chunk * ctx..][..ctx];
        if let Some(bos) = bos {
            window[0] = bos;
        }
        session.reset();
        pollster::block_on(session.feed(&window[..ctx - 1], Want::From(first), |i, logits| {
            let v = -log_softmax(logits, window[i + 1] as usize);
            nll += v;
            squares += v * v;
            tokens += 1;
            Ok(())
        }))?;
        bar.set_message(format!("PPL {:.4}", libm::exp(nll / tokens as f64)));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mean = nll / tokens as f64;
    let ppl = libm::exp(mean);
    let variance = squares / tokens as f64 - mean * mean;
    let stderr = if tokens > 1 { (variance.max(0.0) / (tokens - 1) as f64).sqrt() * ppl } else { 0.0 };
    let per_second = (chunks * ctx) as f64 / started.elapsed().as_secs_f64();
    let mut out = std::io::stdout().lock();
    if a.json {
        let v = serde_json::json!({"ppl": ppl, "nll": mean, "stderr": stderr, "tokens": tokens, "chunks": chunks, "ctx": ctx,
            "device": device_name, "ctk": a.engine.ctk.name(), "ctv": a.engine.ctv.name(), "kv_recent": a.engine.recent(), "activations": a.engine.activations, "tokens_per_second": per_second});
        writeln!(out, "{v}")?;
    } else {
        writeln!(out, "Final estimate: PPL = {ppl:.4} +/- {stderr:.5}")?;
        note!("{tokens} tokens scored, mean NLL {mean:.6}, {per_second:.0} t/s");
    }
    Ok(ExitCode::SUCCESS)
}
