//! `isobit run`: text from a prompt.

use super::common::{self, EngineArgs, ModelArgs};
use crate::generate::sampling::{Sampler, SamplerOptions};
use crate::generate::tokenizer::{StreamDecoder, Tokenizer};
use crate::generate::verify::hex;
use crate::generate::{Session, Want};
use anyhow::ensure;
use clap::Args;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The prompt
    #[arg(short = 'p', long, conflicts_with = "file")]
    prompt: Option<String>,
    /// A file with the prompt; - for stdin
    #[arg(short = 'f', long)]
    file: Option<PathBuf>,
    /// Tokens to generate; -1: until the text or the context ends
    #[arg(short = 'n', long = "predict", default_value_t = 128, value_name = "N", allow_negative_numbers = true)]
    n: i64,
    /// auto, cpu, cpu:LEVEL, gpu, an index of `isobit devices`, or part of an adapter's name
    #[arg(long, default_value = "auto", env = "ISOBIT_DEVICE")]
    device: String,
    /// Temperature; 0 takes the likeliest token
    #[arg(long, default_value_t = 0.8)]
    temp: f32,
    /// Sample from the k likeliest; 0: from all
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    /// Sample from the likeliest tokens that sum to this probability
    #[arg(long, default_value_t = 0.95)]
    top_p: f32,
    /// Drop tokens less likely than this share of the likeliest
    #[arg(long, default_value_t = 0.05)]
    min_p: f32,
    /// Divide the logits of recent tokens by this
    #[arg(long, default_value_t = 1.0)]
    repeat_penalty: f32,
    /// How many tokens count as recent
    #[arg(long, default_value_t = 64)]
    repeat_last_n: usize,
    /// Same seed, same text, everywhere
    #[arg(short = 's', long, default_value_t = 0)]
    seed: u64,
    /// Do not stop at an end-of-text token
    #[arg(long)]
    ignore_eos: bool,
    /// Do not put the beginning-of-text token in front
    #[arg(long)]
    no_bos: bool,
    /// Read texts such as <|eot_id|> in the prompt as control tokens
    #[arg(long)]
    special: bool,
    /// Print one JSON object instead of streaming
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

pub fn run(a: RunArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let text = common::text(a.prompt.as_deref(), a.file.as_deref())?;
    let mut sampler = Sampler::new(SamplerOptions {
        temperature: a.temp,
        top_k: a.top_k,
        top_p: a.top_p,
        min_p: a.min_p,
        repeat_penalty: a.repeat_penalty,
        repeat_last_n: a.repeat_last_n,
        seed: a.seed,
    })?;
    let (c, h, tok) = common::open_all(&a.model)?;
    let n_ctx = a.engine.n_ctx(&h);
    let options = a.engine.session(n_ctx, 1)?;
    let prompt = tok.encode(&text, !a.no_bos && tok.adds_bos(), a.special)?;
    ensure!(!prompt.is_empty(), "the prompt has no tokens");
    ensure!(
        prompt.len() <= n_ctx,
        "the prompt has {} tokens, the context holds {n_ctx}; raise -c or shorten the prompt",
        prompt.len()
    );
    ensure!(a.n >= -1, "-n is {}, expected -1 or more", a.n);
    let room = n_ctx - prompt.len() + 1;
    let wanted = if a.n < 0 { room } else { a.n as usize };

    let mut device = a.engine.device(&a.device)?;
    let device_name = device.info().name;
    let bar = common::load_bar(&c);
    let ticking = bar.clone();
    let mut session = pollster::block_on(Session::new(device.as_mut(), &c, &h, options, move |n| ticking.inc(n)))?;
    bar.finish_and_clear();
    let load = started.elapsed();
    if !a.json {
        eprintln!("{}: {} on {device_name}", c.files[0].display(), h.name);
    }
    common::catch_interrupt()?;

    let mut out = Output { tok: &tok, decoder: StreamDecoder::continuing(), text: String::new(), stream: !a.json };
    if !a.json {
        out.echo(&text)?;
    }
    let mut history = prompt.clone();
    let mut logits = Vec::new();
    let prompt_started = Instant::now();
    pollster::block_on(session.feed(&prompt, Want::Last, |_, l| {
        logits = l.to_vec();
        Ok(())
    }))?;
    let prompt_time = prompt_started.elapsed();

    let decode_started = Instant::now();
    let mut hash = Sha256::new();
    let mut ids = Vec::new();
    let mut stop = "length";
    while ids.len() < wanted {
        if common::interrupted() {
            stop = "interrupted";
            break;
        }
        hash.update(bytemuck::cast_slice::<f32, u8>(&logits));
        let id = sampler.sample(&logits, &history)?;
        ids.push(id);
        history.push(id);
        if !a.ignore_eos && tok.eos().contains(&id) {
            stop = "eos";
            break;
        }
        out.push(id)?;
        if ids.len() == wanted {
            break;
        }
        if session.pos() == n_ctx {
            stop = "context full";
            break;
        }
        pollster::block_on(session.feed(&[id], Want::Last, |_, l| {
            logits.copy_from_slice(l);
            Ok(())
        }))?;
    }
    let decode_time = decode_started.elapsed();
    out.finish()?;
    let rate = |n: usize, t: std::time::Duration| if t.is_zero() { 0.0 } else { n as f64 / t.as_secs_f64() };
    // the first token comes out of the prompt's logits
    let steps = ids.len().saturating_sub(1);
    if a.json {
        let v = serde_json::json!({
            "model": c.files[0].display().to_string(),
            "device": device_name,
            "prompt_ids": prompt,
            "ids": ids,
            "text": out.text,
            "stop": stop,
            "seed": a.seed,
            "logits_sha256": hex(&hash.finalize()),
            "timings": {
                "load_ms": load.as_secs_f64() * 1e3,
                "prompt_n": prompt.len(),
                "prompt_ms": prompt_time.as_secs_f64() * 1e3,
                "prompt_per_second": rate(prompt.len(), prompt_time),
                "predicted_n": ids.len(),
                "predicted_ms": decode_time.as_secs_f64() * 1e3,
                "predicted_per_second": rate(steps, decode_time),
            },
        });
        writeln!(std::io::stdout(), "{v}")?;
    } else {
        eprintln!(
            "[{stop}; load {:.2} s; prompt {} tokens, {:.1} t/s; generated {} tokens, {:.1} t/s]",
            load.as_secs_f64(),
            prompt.len(),
            rate(prompt.len(), prompt_time),
            ids.len(),
            rate(steps, decode_time)
        );
    }
    Ok(if stop == "interrupted" { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

struct Output<'a> {
    tok: &'a Tokenizer,
    decoder: StreamDecoder,
    text: String,
    stream: bool,
}

impl Output<'_> {
    fn echo(&self, prompt: &str) -> anyhow::Result<()> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(prompt.as_bytes())?;
        Ok(stdout.flush()?)
    }

    fn push(&mut self, id: u32) -> anyhow::Result<()> {
        let piece = self.decoder.push(self.tok, id);
        self.write(&piece)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let rest = self.decoder.finish();
        self.write(&rest)?;
        if self.stream {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(b"\n")?;
            stdout.flush()?;
        }
        Ok(())
    }

    fn write(&mut self, piece: &str) -> anyhow::Result<()> {
        self.text.push_str(piece);
        if self.stream && !piece.is_empty() {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(piece.as_bytes())?;
            stdout.flush()?;
        }
        Ok(())
    }
}
