//! `isobit run`: text from a prompt.

use super::common::{self, EngineArgs, ModelArgs, note};
use super::interrupt::{self, Words};
use crate::engine::Devices;
use crate::generate::generation::Reads;
use crate::generate::sampling::{Sampler, SamplerOptions};
use crate::generate::tokenizer::{StreamDecoder, Tokenizer};
use crate::generate::verify::hex;
use crate::generate::{Generation, Session};
use crate::record::Stats;
use crate::stop::Interrupted;
use anyhow::{bail, ensure};
use clap::Args;
use sha2::{Digest, Sha256};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit run -p \"Once upon a time\"\n  isobit run model.gguf -f prompt.txt -n 64 --temp 0 --device cpu\n  echo Hello | isobit run -f - --seed 7 --json"
)]
pub struct RunArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The prompt, continued as it is: no chat template
    #[arg(short = 'p', long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// A file with the prompt; - for stdin
    #[arg(short = 'f', long)]
    file: Option<PathBuf>,
    /// Replace \n, \t, \\, \" and \xHH in the prompt
    #[arg(short = 'e', long)]
    escape: bool,
    /// Tokens to generate; -1: until the text or the context ends
    #[arg(short = 'n', long = "predict", default_value = "128", value_name = "N", value_parser = predict)]
    #[arg(allow_negative_numbers = true)]
    n: i64,
    /// auto, cpu, cpu:LEVEL, gpu, an index of `isobit devices`, or part of an adapter's name
    #[arg(short = 'd', long, default_value = "auto", env = "ISOBIT_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::word)]
    device: String,
    /// Stream the answer alone, without the prompt in front
    #[arg(long)]
    no_display_prompt: bool,
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
    /// What is read of a token: logits, best, ahead (best, the next token under way) or auto; never changes the text
    // auto: ahead; logits with --json, whose digest needs them, and on software adapters
    #[arg(long, default_value = "auto", value_name = "WHAT", value_parser = ["auto", "logits", "best", "ahead"])]
    #[arg(hide_possible_values = true)]
    read: String,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

#[derive(Args)]
#[command(next_help_heading = "Sampling")]
struct SamplingArgs {
    /// Same seed, same text, on every device; -1: a new one, printed at the end
    #[arg(short = 's', long, default_value = "0", value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    /// Temperature; 0 takes the likeliest token
    #[arg(long, default_value_t = 0.8, value_name = "T", allow_negative_numbers = true)]
    temp: f32,
    /// Sample from the k likeliest; 0: from all
    #[arg(long, default_value = "40", value_name = "K", value_parser = common::count, allow_negative_numbers = true)]
    top_k: usize,
    /// Sample from the likeliest, up to this probability
    #[arg(long, default_value_t = 0.95, value_name = "P", allow_negative_numbers = true)]
    top_p: f32,
    /// Drop tokens less likely than this share of the likeliest
    #[arg(long, default_value_t = 0.05, value_name = "P", allow_negative_numbers = true)]
    min_p: f32,
    /// Divide the logits of recent tokens by this
    #[arg(long, default_value_t = 1.0, value_name = "X", allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// How many tokens count as recent
    #[arg(long, default_value = "64", value_name = "N", value_parser = common::count, allow_negative_numbers = true)]
    repeat_last_n: usize,
}

impl SamplingArgs {
    fn sampler(&self) -> anyhow::Result<Sampler> {
        Sampler::new(SamplerOptions {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n,
            seed: self.seed,
        })
    }
}

fn predict(s: &str) -> Result<i64, String> {
    s.parse().ok().filter(|&n| n >= -1).ok_or_else(|| "expected a whole number, -1 or more".to_string())
}

fn seed(s: &str) -> Result<u64, String> {
    if s == "-1" {
        // the keys of a hash map are the one source of chance in the standard library
        return Ok(RandomState::new().build_hasher().finish() >> 32);
    }
    s.parse().map_err(|_| "expected a whole number, or -1 for a new one".to_string())
}

/// The prompt. A model that is no file is most likely a prompt without its -p.
fn prompt_text(a: &RunArgs) -> anyhow::Result<String> {
    if let (None, None, Some(m)) = (&a.prompt, &a.file, a.model.path())
        && !m.exists()
    {
        bail!("no prompt, and no file {0:?}: if that is the prompt, write -p {0:?}", m.display().to_string());
    }
    let text = common::text(a.prompt.as_deref(), a.file.as_deref())?;
    if a.escape { common::unescape(&text) } else { Ok(text) }
}

pub fn run(a: RunArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let text = prompt_text(&a)?;
    let sampler = a.sampling.sampler()?;
    let model = a.model.model()?;
    let (c, h, tok) = (model.container(), model.hyper(), model.tokenizer()?);
    let n_ctx = a.engine.n_ctx(h);
    let mut options = a.engine.session(n_ctx, 1);
    let ubatch = options.plan.ubatch;
    // tokenising takes far more memory than reading did; of a few pages the exact number is more use
    let least = if text.len() > 1 << 16 { tok.least_ids(&text) } else { 0 };
    ensure!(
        least <= n_ctx,
        "the prompt has {} bytes, {least} tokens at least, the context holds {n_ctx}; raise -c or shorten the prompt",
        text.len()
    );
    let prompt = tok.encode(&text, !a.no_bos && tok.adds_bos(), a.special)?;
    ensure!(!prompt.is_empty(), "the prompt has no tokens; write something, or leave out --no-bos");
    ensure!(
        prompt.len() <= n_ctx,
        "the prompt has {}, the context holds {n_ctx}; raise -c or shorten the prompt",
        common::tokens(prompt.len())
    );
    // the context ends it in any case
    let wanted = if a.n < 0 { usize::MAX } else { a.n as usize };

    let o = &a.engine;
    let fingerprint = a.json.then(|| o.fingerprint(&model, o.ctk, o.ctv, o.kv_recent)).transpose()?;
    let opened = a.engine.devices().open(&a.device)?;
    options.memory = Devices::share_of_memory(std::slice::from_ref(&opened));
    let (mut device, software) = (opened.inner, opened.software);
    let device_name = device.info().name;
    let bar = common::load_bar(c);
    let ticking = bar.clone();
    let mut session = pollster::block_on(Session::new(device.as_mut(), c, h, options, move |n| ticking.inc(n)))?;
    bar.finish_and_clear();
    let load = started.elapsed();
    if !a.json {
        note!("{}: {} on {device_name}", c.files[0].display(), common::cut(&h.name));
    }
    // from here on there is text to end, and a line to say how it ended
    let held = interrupt::hold();
    let (generated, count) = (Arc::new(AtomicUsize::new(0)), common::tokens(prompt.len()));
    let (seed, load_seconds, stream, so_far) = (a.sampling.seed, load.as_secs_f64(), !a.json, generated.clone());
    held.words(move || Words {
        out: if stream { "\n".into() } else { String::new() },
        err: format!(
            "[interrupted; seed {seed}; load {load_seconds:.2} s; prompt {count}; generated {}]",
            common::tokens(so_far.load(Ordering::Relaxed))
        ),
    });

    let mut out = Output { tok, decoder: StreamDecoder::continuing(), text: String::new(), stream: !a.json };
    let reads = match a.read.as_str() {
        "logits" => Reads::Logits,
        "best" => Reads::Best,
        // a rasteriser takes longer to select than to hand over what lies in main memory anyway
        "auto" if a.json || software => Reads::Logits,
        _ => Reads::Ahead,
    };
    let mut generation = Generation::new(&mut session, sampler, reads);
    let prompt_started = Instant::now();
    let bar = common::bar(prompt.len() as u64, "reading the prompt {bar:30} {pos}/{len} tokens {eta}");
    // step by step, so that Ctrl-C is heard in a long prompt
    let mut fed = 0;
    let mut interrupted = false;
    while fed < prompt.len() && !interrupted {
        let piece = &prompt[fed..prompt.len().min(fed + ubatch)];
        let last = fed + piece.len() == prompt.len();
        interrupted = or_interrupted(pollster::block_on(generation.prompt(piece, last)))?.is_none();
        fed += if interrupted { 0 } else { piece.len() };
        bar.set_position(fed as u64);
    }
    let prompt_time = prompt_started.elapsed();
    bar.finish_and_clear();
    // only now: minutes may pass before the answer begins, and a book on the screen would hide how many
    if !a.json && !a.no_display_prompt {
        out.echo(&text)?;
    }

    generation.session().device().take_stats();
    let decode_started = Instant::now();
    let mut hash = Sha256::new();
    let mut ids = Vec::new();
    let mut stop = if interrupted { "interrupted" } else { "length" };
    while ids.len() < wanted && !interrupted {
        let more = ids.len() + 1 < wanted && generation.pos() + 1 < n_ctx;
        let next = or_interrupted(pollster::block_on(generation.next(more)))?;
        let Some(id) = next.filter(|_| !interrupt::stop().asked()) else {
            (interrupted, stop) = (true, "interrupted");
            break;
        };
        hash.update(bytemuck::cast_slice::<f32, u8>(generation.logits()));
        ids.push(id);
        generated.store(ids.len(), Ordering::Relaxed);
        if !a.ignore_eos && tok.eos().contains(&id) {
            stop = "eos";
            break;
        }
        out.push(id)?;
        if ids.len() == wanted {
            break;
        }
        if generation.pos() == n_ctx {
            stop = "context full";
            break;
        }
    }
    let decode_time = decode_started.elapsed();
    if interrupted {
        interrupt::seen();
    }
    let digest = (!generation.logits().is_empty()).then(|| hex(&hash.finalize()));
    // what is under way on a device that was interrupted is nobody's any more
    let stats = match interrupted {
        true => Stats::default(),
        false => pollster::block_on(generation.end())?.device().take_stats(),
    };
    out.finish()?;
    let rate = |n: usize, t: std::time::Duration| if t.is_zero() { 0.0 } else { n as f64 / t.as_secs_f64() };
    // the first token comes out of the prompt's logits
    let steps = ids.len().saturating_sub(1);
    // a command is a dispatch on a GPU; devices that submit work elsewhere count what the host itself spends
    let per_step = |v: f64| if stats.steps > 0 { Some(v / stats.steps as f64) } else { None };
    if a.json {
        let v = serde_json::json!({
            "model": c.files[0].display().to_string(),
            "device": device_name,
            "prompt_ids": prompt,
            "ids": ids,
            "text": out.text,
            "stop": stop,
            "seed": a.sampling.seed,
            "fingerprint": fingerprint,
            "logits_sha256": digest,
            "timings": {
                "load_ms": load.as_secs_f64() * 1e3,
                "prompt_n": prompt.len(),
                "prompt_ms": prompt_time.as_secs_f64() * 1e3,
                "prompt_per_second": rate(fed, prompt_time),
                "predicted_n": ids.len(),
                "predicted_ms": decode_time.as_secs_f64() * 1e3,
                "predicted_per_second": rate(steps, decode_time),
                "commands_per_token": per_step(stats.commands as f64),
                "read_back_bytes_per_token": per_step(stats.read_back as f64).filter(|bytes| *bytes > 0.0),
                "host_us_per_token": per_step(stats.host.as_secs_f64() * 1e6).filter(|us| *us > 0.0),
            },
        });
        writeln!(std::io::stdout(), "{v}")?;
    } else {
        let speed = |n: usize, t| if n > 0 { format!(", {:.1} t/s", rate(n, t)) } else { String::new() };
        note!(
            "[{stop}; seed {}; load {:.2} s; prompt {}{}; generated {}{}]",
            a.sampling.seed,
            load.as_secs_f64(),
            common::tokens(prompt.len()),
            speed(fed, prompt_time),
            common::tokens(ids.len()),
            speed(steps, decode_time)
        );
    }
    if interrupted {
        interrupt::leave();
    }
    Ok(ExitCode::SUCCESS)
}

/// `None` in the place of an interruption.
fn or_interrupted<T>(result: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match result {
        Err(e) if Interrupted::caused(&e) => Ok(None),
        other => other.map(Some),
    }
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
