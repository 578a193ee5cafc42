//! `isobit run`: text from a prompt.

use super::common::{self, EngineArgs, ModelArgs, note};
use super::interrupt::{self, Words};
use super::names;
use super::sampling::{self, GrammarArgs, SamplingArgs};
use crate::engine::{self, Advance, Compiled, Ended, Generating, Guess, Model, Reads, Request, Session};
use crate::formats::ContainerKind;
use crate::formats::output::{replace_file, replace_file_by};
use crate::generate::logprobs::{Logprobs, TOP_MAX};
use crate::generate::sampling::SamplerOptions;
use crate::generate::tokenizer::Tokenizer;
use crate::generate::verify::hex;
use crate::models::RECENT_CHUNK as CHUNK;
use crate::receipts::{self, Extras, Key, Run};
use crate::record::Stats;
use anyhow::{Context, bail, ensure};
use clap::Args;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Args)]
#[command(
    after_help = format!("Examples:\n  isobit run -p \"Once upon a time\"\n  isobit run model.gguf -f prompt.txt -n 64 --temp 0 --device cpu\n{}", sampling::REST)
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
    /// The prompt as token ids, as in 1,2,3; needs no tokeniser
    #[arg(long, value_name = "IDS", conflicts_with_all = ["prompt", "file", "escape", "no_bos", "special"])]
    #[arg(value_parser = ids)]
    ids: Option<Ids>,
    /// Replace \n, \t, \\, \" and \xHH in the prompt
    #[arg(short = 'e', long)]
    escape: bool,
    /// Tokens to generate; -1: until the text ends
    #[arg(short = 'n', long = "predict", default_value = "128", value_name = "N", value_parser = predict)]
    #[arg(allow_negative_numbers = true)]
    n: i64,
    /// auto, cpu, cpu:LEVEL, gpu, an index of `isobit devices`, part of a name; A,B: layers on each
    #[arg(short = 'd', long, alias = "devices", default_value = "auto", env = "ISOBIT_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::devices)]
    device: String,
    /// Stream the answer alone, without the prompt in front
    #[arg(long)]
    no_display_prompt: bool,
    /// Do not stop at an end-of-text token
    #[arg(long)]
    ignore_eos: bool,
    /// Do not put the beginning-of-text token, or tokens, in front
    #[arg(long)]
    no_bos: bool,
    /// Read texts such as <|eot_id|> in the prompt as control tokens
    #[arg(long)]
    special: bool,
    /// Print one JSON object instead of streaming
    #[arg(long)]
    json: bool,
    /// What of the logits is read: logits, best, ahead, auto
    // ahead: best, with the next token under way; auto: ahead; logits with --json, whose digest needs them, and on software adapters
    #[arg(long, default_value = "auto", value_name = "WHAT", value_parser = ["auto", "logits", "best", "ahead"])]
    #[arg(hide = true)]
    read: String,
    /// Guess tokens ahead: off, ngram; the text stays the same
    // several are checked in a step: those that followed the last ones when they came before
    #[arg(long, default_value = "off", value_name = "HOW", value_parser = ["off", "ngram"], hide_possible_values = true)]
    spec: String,
    /// A smaller model that guesses ahead; the text stays the same
    #[arg(long, value_name = "MODEL", conflicts_with = "spec")]
    draft: Option<PathBuf>,
    /// Go on from this file, where it is there, and leave all in it
    #[arg(long, value_name = "FILE")]
    prompt_cache: Option<PathBuf>,
    /// Write what the run was, for `isobit receipt check`
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Keep the run in this directory, for `isobit replay`
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Sign the receipt with this key, of `isobit receipt key`
    #[arg(long, value_name = "KEY", hide = true)]
    sign: Option<PathBuf>,
    /// Keep the log probabilities of so many of the likeliest tokens with the run
    #[arg(long, value_name = "N", hide = true, requires = "record")]
    #[arg(value_parser = common::whole::<0, { TOP_MAX }>)]
    record_top: Option<usize>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    grammar: GrammarArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

pub(super) fn predict(s: &str) -> Result<i64, String> {
    s.parse().ok().filter(|&n| n >= -1).ok_or_else(|| "expected a whole number, -1 or more".to_string())
}

/// Token ids of `--ids`.
#[derive(Clone, Debug)]
struct Ids(Vec<u32>);

fn ids(s: &str) -> Result<Ids, String> {
    let list: Result<Vec<u32>, _> = s.split(',').map(|id| id.trim().parse()).collect();
    list.map(Ids).map_err(|_| "expected whole numbers with commas between them, as in 1,2,3".to_string())
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
    let text = if a.ids.is_some() { String::new() } else { prompt_text(&a)? };
    // what it would refuse is refused before a model is read
    a.sampling.options().check()?;
    a.grammar.grammar()?;
    if let Some(path) = &a.prompt_cache {
        common::can_be_written("--prompt-cache", path)?;
    }
    let key = writable(&a)?;
    let model = a.model.model()?;
    common::generates(&model)?;
    let draft = a.draft.as_deref().map(names::resolve).transpose()?;
    let draft = draft.map(Model::open).transpose()?;
    let (c, h, o) = (model.container(), model.hyper(), &a.engine);
    ensure!(
        a.prompt_cache.is_none() || !h.has_states(),
        "--prompt-cache: sequences of a recurrent model are not saved: its states are no positions"
    );
    let n_ctx = o.n_ctx(h);
    let prompt = match &a.ids {
        Some(Ids(list)) => list.clone(),
        None => {
            let found = model.tokenizer().map_err(anyhow::Error::from);
            // of this kind of file it is nothing unusual
            let none = c.kind == ContainerKind::Bump && c.meta.get("tokenizer.ggml.model").is_none();
            let tok = match found {
                Err(e) if none => {
                    return Err(e.context("--tokenizer MODEL takes another model's tokeniser, --ids does without"));
                }
                other => other?,
            };
            prompt_ids(&a, &text, tok, n_ctx)?
        }
    };
    let sampling = a.sampling.options_for(&model)?;
    let grammar = a.grammar.compiled(&model)?;
    let fingerprint =
        (a.json || a.chain()).then(|| o.fingerprint(&model, n_ctx, (o.ctk, o.ctv, o.kv_recent))).transpose()?;
    let device = o.devices().open(&a.device)?;
    let bar = common::load_bar(c);
    let ticking = bar.clone();
    let mut session = Session::new(&model, device, o.options(n_ctx, a.rows()), move |n| ticking.inc(n))?;
    bar.finish_and_clear();
    let load = started.elapsed();
    let device = session.device().to_string();
    if let Some(draft) = &draft {
        // the other is dealt to all of them; what guesses is small
        session.set_draft(draft, o.devices().open_first(&a.device)?)?;
    }
    let known = restore(&a, &mut session)?;
    if !a.json {
        note!("{}: {} on {device}", c.files[0].display(), common::cut(&h.name));
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
    let how = (sampling, grammar);
    let told = generate(&a, &mut session, &text, prompt, how.clone(), &generated)?;
    if a.json {
        let v = told.json(&a, &c.files[0].display().to_string(), &device, fingerprint.as_deref(), load);
        writeln!(std::io::stdout(), "{v}")?;
    } else {
        note!("{}", told.line(&a, load));
    }
    keep(&a, &session, &text, &told, how, key.as_ref())?;
    if told.interrupted() {
        interrupt::leave();
    }
    save(&a, &mut session, &known)?;
    Ok(ExitCode::SUCCESS)
}

/// Takes up what an earlier run has left; its tokens.
fn restore(a: &RunArgs, session: &mut Session) -> anyhow::Result<Vec<u32>> {
    let Some(path) = a.prompt_cache.as_ref().filter(|p| p.exists()) else { return Ok(Vec::new()) };
    let place = || format!("--prompt-cache {}", path.display());
    let n = session.restore(BufReader::new(File::open(path).with_context(place)?)).with_context(place)?;
    note!("{}: {} taken up", path.display(), common::tokens(n));
    Ok(session.cached().to_vec())
}

/// Leaves what is in the cache for a later run, where it is not what the file has.
fn save(a: &RunArgs, session: &mut Session, known: &[u32]) -> anyhow::Result<()> {
    let Some(path) = &a.prompt_cache else { return Ok(()) };
    let whole = session.position() / CHUNK * CHUNK;
    if whole == 0 || known.starts_with(&session.cached()[..whole]) {
        return Ok(());
    }
    let write = |out: &mut BufWriter<File>| Ok::<_, anyhow::Error>(session.save(out).map(drop)?);
    replace_file_by(path, write).with_context(|| format!("--prompt-cache {}", path.display()))
}

/// Refuses receipts and folders that could not be written; the key that signs.
fn writable(a: &RunArgs) -> anyhow::Result<Option<Key>> {
    if let Some(path) = &a.receipt {
        common::can_be_written("--receipt", path)?;
    }
    if let Some(dir) = &a.record {
        let place = || format!("--record {}", dir.display());
        std::fs::create_dir_all(dir).with_context(place)?;
        common::takes_files(dir).with_context(place)?;
    }
    ensure!(a.sign.is_none() || a.chain(), "--sign signs a receipt: add --receipt FILE or --record DIR");
    a.sign.as_deref().map(super::receipt::key).transpose()
}

/// Writes the receipt, and the run where it is kept.
fn keep(
    a: &RunArgs,
    session: &Session,
    text: &str,
    told: &Told,
    how: (SamplerOptions, Option<Arc<Compiled>>),
    key: Option<&Key>,
) -> anyhow::Result<()> {
    if !a.chain() {
        return Ok(());
    }
    let request = a.request(&told.prompt, how.0, how.1);
    let (prompt, ids, chain) = (told.prompt.clone(), told.ids.clone(), told.chain.clone());
    let output = engine::Output { prompt, ids, chain, ..engine::Output::default() };
    let mut receipt = receipts::make(session, &request, &output)?;
    if let Some(key) = key {
        receipt.sign(key);
    }
    if let Some(path) = &a.receipt {
        replace_file(path, &receipt.to_bytes()).context("--receipt")?;
    }
    if let Some(dir) = &a.record {
        let prompt = a.ids.is_none().then(|| text.to_string());
        let run = Run { receipt, extras: Extras { prompt, parent: None, top: told.top.clone() } };
        note!("kept as {}", run.save(dir).context("--record")?.display());
    }
    Ok(())
}

impl RunArgs {
    /// Whether the chain over logits is wanted.
    fn chain(&self) -> bool {
        self.receipt.is_some() || self.record.is_some()
    }

    fn request(&self, prompt: &[u32], sampling: SamplerOptions, grammar: Option<Arc<Compiled>>) -> Request {
        let reads = match self.read.as_str() {
            "logits" => Some(Reads::Logits),
            "best" => Some(Reads::Best),
            "ahead" => Some(Reads::Ahead),
            _ => self.json.then_some(Reads::Logits),
        };
        Request {
            // the context ends it in any case
            max_tokens: if self.n < 0 { usize::MAX } else { self.n as usize },
            sampling,
            grammar,
            ignore_end: self.ignore_eos,
            reads,
            guess: self.guess(),
            logprobs: self.record_top,
            chain: self.chain(),
            ..Request::new(prompt)
        }
    }

    fn guess(&self) -> Guess {
        match self.spec.as_str() {
            _ if self.draft.is_some() => Guess::Draft,
            "ngram" => Guess::Ngram,
            _ => Guess::Off,
        }
    }

    /// Rows of logits that a step returns.
    fn rows(&self) -> usize {
        if self.guess() == Guess::Off { 1 } else { Guess::ROWS }
    }
}

/// The prompt's tokens, which the context holds.
fn prompt_ids(a: &RunArgs, text: &str, tok: &Tokenizer, n_ctx: usize) -> anyhow::Result<Vec<u32>> {
    // tokenising takes far more memory than reading did; of a few pages the exact number is more use
    let least = if text.len() > 1 << 16 { tok.least_ids(text) } else { 0 };
    ensure!(
        least <= n_ctx,
        "the prompt has {} bytes, {least} tokens at least, the context holds {n_ctx}; raise -c or shorten the prompt",
        text.len()
    );
    let prompt = tok.encode(text, !a.no_bos && tok.adds_bos(), a.special)?;
    ensure!(!prompt.is_empty(), "the prompt has no tokens; write something, or leave out --no-bos");
    ensure!(
        prompt.len() <= n_ctx,
        "the prompt has {}, the context holds {n_ctx}; raise -c or shorten the prompt",
        common::tokens(prompt.len())
    );
    Ok(prompt)
}

/// What a run has to tell when its text has ended.
struct Told {
    prompt: Vec<u32>,
    /// tokens of the prompt that were read
    fed: usize,
    prompt_time: Duration,
    ids: Vec<u32>,
    text: String,
    /// why it ended
    stop: &'static str,
    decode_time: Duration,
    /// of all logits that tokens were chosen of; `None`: they did not leave the device
    digest: Option<String>,
    /// links of the chain, and the likeliest in place of each token, where they were asked for
    chain: Vec<[u8; 32]>,
    top: Vec<Vec<(u32, f64)>>,
    stats: Stats,
}

/// Reads the prompt, then streams token after token; `generated` counts them for whoever interrupts.
fn generate(
    a: &RunArgs,
    session: &mut Session,
    text: &str,
    prompt: Vec<u32>,
    (sampling, grammar): (SamplerOptions, Option<Arc<Compiled>>),
    generated: &AtomicUsize,
) -> anyhow::Result<Told> {
    let request = a.request(&prompt, sampling, grammar);
    let mut out = Output { text: String::new(), stream: !a.json };
    // with a prompt of ids there may be no text to print
    let bare = a.ids.is_some() && session.model().tokenizer().is_err();
    let mut generating = session.stream(request)?;
    let prompt_started = Instant::now();
    let bar = common::bar(prompt.len() as u64, "reading the prompt {bar:30} {pos}/{len} tokens {eta}");
    let (mut fed, mut stop) = (0, None);
    // step by step, so that Ctrl-C is heard in a long prompt
    while fed < prompt.len() && stop.is_none() {
        match advance(&mut generating)? {
            Ok(Advance::Prompt { done, .. }) => fed = done,
            Ok(_) => unreachable!("a prompt that is not read gives no token"),
            Err(Stopped) => stop = Some(INTERRUPTED),
        }
        bar.set_position(fed as u64);
    }
    let prompt_time = prompt_started.elapsed();
    bar.finish_and_clear();
    // only now: minutes may pass before the answer begins, and a book on the screen would hide how many
    if !a.json && !a.no_display_prompt {
        out.write(text)?;
    }

    generating.take_stats();
    let decode_started = Instant::now();
    let (mut hash, mut ids, mut chain, mut top) = (Sha256::new(), Vec::new(), Vec::new(), Vec::new());
    while stop.is_none() {
        let piece = match advance(&mut generating)? {
            Ok(Advance::Piece(piece)) if !interrupt::stop().asked() => piece,
            Ok(Advance::End(ended)) => {
                stop = Some(word_for(ended));
                break;
            }
            _ => {
                stop = Some(INTERRUPTED);
                break;
            }
        };
        hash.update(bytemuck::cast_slice::<f32, u8>(generating.logits()));
        ids.push(piece.id);
        chain.extend(piece.chain);
        top.extend(piece.logprobs.as_ref().map(|l: &Logprobs| l.top.clone()));
        generated.store(ids.len(), Ordering::Relaxed);
        match bare {
            true if ids.len() == 1 => out.answer(&piece.id.to_string())?,
            true => out.answer(&format!(" {}", piece.id))?,
            false => out.answer(&piece.text)?,
        }
        stop = piece.ended.map(word_for);
    }
    let (decode_time, stop) = (decode_started.elapsed(), stop.unwrap_or(INTERRUPTED));
    if stop == INTERRUPTED {
        interrupt::seen();
        out.answer(&generating.rest())?;
    }
    let digest = (!generating.logits().is_empty()).then(|| hex(&hash.finalize()));
    // what is under way on a device that was interrupted is nobody's any more
    let stats = if stop == INTERRUPTED { Stats::default() } else { pollster::block_on(generating.end())? };
    out.finish()?;
    Ok(Told { prompt, fed, prompt_time, ids, text: out.text, stop, decode_time, digest, chain, top, stats })
}

impl Told {
    fn interrupted(&self) -> bool {
        self.stop == INTERRUPTED
    }

    /// Tokens a second of the prompt, and of those after the first, which comes out of the prompt's logits.
    fn rates(&self) -> (f64, f64) {
        let rate = |n: usize, t: Duration| if t.is_zero() { 0.0 } else { n as f64 / t.as_secs_f64() };
        (rate(self.fed, self.prompt_time), rate(self.ids.len().saturating_sub(1), self.decode_time))
    }

    fn json(&self, a: &RunArgs, model: &str, device: &str, fingerprint: Option<&str>, load: Duration) -> Value {
        // a command is a dispatch on a GPU; devices that submit work elsewhere count what the host itself spends
        let per_step = |v: f64| if self.stats.steps > 0 { Some(v / self.stats.steps as f64) } else { None };
        let (prompt_rate, decode_rate) = self.rates();
        serde_json::json!({
            "model": model,
            "device": device,
            "prompt_ids": self.prompt,
            "ids": self.ids,
            "text": self.text,
            "stop": self.stop,
            "seed": a.sampling.seed,
            "fingerprint": fingerprint,
            "logits_sha256": self.digest,
            "timings": {
                "load_ms": load.as_secs_f64() * 1e3,
                "prompt_n": self.prompt.len(),
                "prompt_ms": self.prompt_time.as_secs_f64() * 1e3,
                "prompt_per_second": prompt_rate,
                "predicted_n": self.ids.len(),
                "predicted_ms": self.decode_time.as_secs_f64() * 1e3,
                "predicted_per_second": decode_rate,
                "commands_per_token": per_step(self.stats.commands as f64),
                "read_back_bytes_per_token": per_step(self.stats.read_back as f64).filter(|bytes| *bytes > 0.0),
                "host_us_per_token": per_step(self.stats.host.as_secs_f64() * 1e6).filter(|us| *us > 0.0),
            },
        })
    }

    fn line(&self, a: &RunArgs, load: Duration) -> String {
        let (prompt_rate, decode_rate) = self.rates();
        let speed = |n: usize, rate: f64| if n > 0 { format!(", {rate:.1} t/s") } else { String::new() };
        format!(
            "[{}; seed {}; load {:.2} s; prompt {}{}; generated {}{}]",
            self.stop,
            a.sampling.seed,
            load.as_secs_f64(),
            common::tokens(self.prompt.len()),
            speed(self.fed, prompt_rate),
            common::tokens(self.ids.len()),
            speed(self.ids.len().saturating_sub(1), decode_rate)
        )
    }
}

/// The word for a text that Ctrl-C ended.
const INTERRUPTED: &str = "interrupted";

/// Ctrl-C was pressed.
struct Stopped;

/// The next piece of work, or that it was interrupted.
fn advance(generating: &mut Generating) -> anyhow::Result<Result<Advance, Stopped>> {
    match pollster::block_on(generating.advance()) {
        Err(engine::Error::Interrupted(_)) => Ok(Err(Stopped)),
        other => Ok(Ok(other?)),
    }
}

/// Why a text ended, as it is printed.
fn word_for(ended: Ended) -> &'static str {
    match ended {
        Ended::EndOfText => "eos",
        Ended::Length => "length",
        Ended::Context => "context full",
        Ended::BrokenOff => INTERRUPTED,
    }
}

/// What is generated: kept, and where it is streamed shown at once.
struct Output {
    text: String,
    stream: bool,
}

impl Output {
    fn answer(&mut self, piece: &str) -> anyhow::Result<()> {
        self.text.push_str(piece);
        if self.stream { self.write(piece) } else { Ok(()) }
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        if self.stream { self.write("\n") } else { Ok(()) }
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }
}
