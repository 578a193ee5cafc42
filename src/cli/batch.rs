//! `isobit batch`: a file of requests, many at once, to a file of answers in the same order.

use super::common::{self, EngineArgs, Load, ModelArgs, note};
use crate::engine::{Ended, Engine, EngineOptions, Error, Model, Output, Prompt, Reply, Request, SessionOptions};
use crate::generate::sampling::SamplerOptions;
use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit batch requests.jsonl answers.jsonl -m model.gguf\n  isobit batch requests.jsonl answers.jsonl --parallel 32 --pool 16384\n\nA line of requests, as OpenAI's batch files have it (of /v1/completions):\n  {\"custom_id\": \"a\", \"body\": {\"prompt\": \"Once upon a time\", \"max_tokens\": 32, \"temperature\": 0.8, \"seed\": 7}}\nWhat is not said is OpenAI's default: 16 tokens, temperature 1, all tokens to draw from. An answer depends on its\nrequest and the model alone, so the file is the same on every device and however many run at once. A run that was\nstopped goes on where it was: the answers so far are in OUT.part."
)]
pub struct BatchArgs {
    /// Requests, a JSON object a line; - for stdin
    input: PathBuf,
    /// Answers, a JSON object a line; made when all are there
    output: PathBuf,
    /// GGUF file (the first, of shards), BUMP file, Hugging Face or packed directory [default: the embedded story model]
    #[arg(short = 'm', long, env = "ISOBIT_MODEL", hide_env_values = true)]
    model: Option<PathBuf>,
    /// A GGUF file or a directory whose tokeniser is taken
    #[arg(long, value_name = "MODEL", help_heading = "Engine")]
    tokenizer: Option<PathBuf>,
    /// Where to run: auto, cpu, gpu, an index or a part of a name (see isobit devices)
    #[arg(short = 'd', long, default_value = "auto", env = "ISOBIT_DEVICE", hide_env_values = true)]
    device: String,
    /// Requests at once; never changes an answer
    #[arg(long, default_value = "8", value_name = "N", value_parser = common::whole::<1, 4096>)]
    parallel: usize,
    /// Positions the cache holds for all of them together; 0: the context for each
    #[arg(long, default_value = "0", value_name = "N", value_parser = common::whole::<0, {1 << 28}>)]
    pool: usize,
    /// Print one JSON object instead of the digest's line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

/// A line of requests.
#[derive(Deserialize)]
struct Line {
    custom_id: String,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    url: Option<String>,
    body: Value,
}

/// What is read of a request's body; anything else in it is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    prompt: Words,
    #[serde(default, rename = "model")]
    _model: Option<String>,
    #[serde(default)]
    max_tokens: Option<usize>,
    #[serde(default)]
    temperature: Option<f32>,
    #[serde(default)]
    top_p: Option<f32>,
    #[serde(default)]
    top_k: Option<usize>,
    #[serde(default)]
    min_p: Option<f32>,
    #[serde(default)]
    seed: Option<u64>,
    #[serde(default)]
    n: Option<usize>,
    #[serde(default)]
    ignore_eos: Option<bool>,
}

/// A prompt as text or as token ids.
#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    Text(String),
    Ids(Vec<u32>),
}

/// Answers to one request, at most.
const CHOICES: usize = 128;

impl Body {
    /// A request for each choice: the nth has the seed plus n.
    fn requests(&self) -> anyhow::Result<Vec<Request>> {
        let n = self.n.unwrap_or(1);
        ensure!((1..=CHOICES).contains(&n), "n is {n}: 1 to {CHOICES} expected");
        let prompt = match &self.prompt {
            Words::Text(text) => Prompt::Text(text.clone()),
            Words::Ids(ids) => Prompt::Ids(ids.clone()),
        };
        let one = |i: usize| Request {
            max_tokens: self.max_tokens.unwrap_or(16),
            sampling: SamplerOptions {
                temperature: self.temperature.unwrap_or(1.0),
                top_k: self.top_k.unwrap_or(0),
                top_p: self.top_p.unwrap_or(1.0),
                min_p: self.min_p.unwrap_or(0.0),
                seed: self.seed.unwrap_or(0).wrapping_add(i as u64),
                ..SamplerOptions::default()
            },
            ignore_end: self.ignore_eos.unwrap_or(false),
            ..Request::new(prompt.clone())
        };
        Ok((0..n).map(one).collect())
    }
}

/// A request that was begun, or what is wrong with it.
struct Asked {
    id: String,
    custom_id: String,
    replies: Result<Vec<Reply>, String>,
}

/// What names a request and its answer: the model, the options that decide logits, and the request itself.
fn id_of(fingerprint: &str, custom_id: &str, body: &Value) -> String {
    let mut hash = Sha256::new();
    for part in [fingerprint, custom_id, &body.to_string()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// The requests, each checked as far as it can be without a model.
fn read(path: &Path) -> anyhow::Result<Vec<Line>> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("stdin")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    }
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let place = || format!("{} line {}", path.display(), i + 1);
        let line: Line = serde_json::from_str(line).with_context(place)?;
        if let Some(method) = line.method.as_deref().filter(|m| *m != "POST") {
            bail!("{}: method {method:?}, POST expected", place());
        }
        if let Some(url) = line.url.as_deref().filter(|u| *u != "/v1/completions") {
            bail!("{}: url {url:?} is not supported, /v1/completions is", place());
        }
        lines.push(line);
    }
    ensure!(!lines.is_empty(), "{} has no requests", path.display());
    Ok(lines)
}

/// How many answers an earlier run has left, and where the last whole one ends.
///
/// Errors: one is of another request, model or option than the one in its place.
fn done(part: &Path, ids: &[String]) -> anyhow::Result<(usize, u64)> {
    let Ok(file) = File::open(part) else { return Ok((0, 0)) };
    let mut reader = BufReader::new(file);
    let (mut n, mut end, mut line) = (0, 0, String::new());
    loop {
        line.clear();
        let read = reader.read_line(&mut line).with_context(|| part.display().to_string())?;
        if read == 0 || !line.ends_with('\n') {
            // the last one may have been cut off
            return Ok((n, end));
        }
        let answer: Value = serde_json::from_str(&line).unwrap_or_default();
        let found = answer["id"].as_str().and_then(|id| id.strip_prefix("batch_req_"));
        ensure!(
            found.is_some() && found == ids.get(n).map(String::as_str),
            "{} line {} answers another request, or is of another model or other options: remove the file to begin anew",
            part.display(),
            n + 1
        );
        (n, end) = (n + 1, end + read as u64);
    }
}

pub fn run(a: BatchArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let lines = read(&a.input)?;
    ensure!(!a.output.exists(), "{} is there already: remove it, or name another file", a.output.display());
    let (tokenizer, load_mode) = (a.tokenizer.clone(), Load::Read);
    let model = ModelArgs { model: a.model.clone(), model_flag: None, tokenizer, load_mode }.model()?;
    let o = &a.engine;
    let fingerprint = o.fingerprint(&model, o.ctk, o.ctv, o.kv_recent)?;
    let ids: Vec<String> = lines.iter().map(|l| id_of(&fingerprint, &l.custom_id, &l.body)).collect();
    let mut name = a.output.clone().into_os_string();
    name.push(".part");
    let part = PathBuf::from(name);
    let (first, end) = done(&part, &ids)?;
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(&part);
    let mut out = open.with_context(|| part.display().to_string())?;
    out.set_len(end).and_then(|()| std::io::Seek::seek(&mut out, std::io::SeekFrom::End(0)))?;
    let tokens = if first < lines.len() { answer(&a, &model, &fingerprint, &lines, &ids, first, &mut out)? } else { 0 };
    out.sync_all().with_context(|| part.display().to_string())?;
    drop(out);
    std::fs::rename(&part, &a.output).with_context(|| a.output.display().to_string())?;
    let digest: String = Sha256::digest(std::fs::read(&a.output)?).iter().map(|b| format!("{b:02x}")).collect();
    let seconds = started.elapsed().as_secs_f64();
    let resumed = if first > 0 { format!(", {first} of them from before") } else { String::new() };
    note!("{} answers{resumed}, {tokens} tokens in {seconds:.1} s", lines.len());
    let line = match a.json {
        true => json!({
            "output": a.output.display().to_string(), "sha256": digest, "answers": lines.len(), "resumed": first,
            "tokens": tokens, "seconds": seconds, "fingerprint": fingerprint,
        })
        .to_string(),
        false => format!("{digest}  {}", a.output.display()),
    };
    writeln!(std::io::stdout(), "{line}")?;
    Ok(ExitCode::SUCCESS)
}

/// Answers the requests from `first` on; how many tokens that took.
fn answer(
    a: &BatchArgs,
    model: &Model,
    fingerprint: &str,
    lines: &[Line],
    ids: &[String],
    first: usize,
    out: &mut File,
) -> anyhow::Result<usize> {
    let context = a.engine.n_ctx(model.hyper());
    let session =
        SessionOptions { sequences: a.parallel, pool: a.pool, ..a.engine.options(context, a.parallel.max(1)) };
    // as many wait as are at work, so that nobody has nothing to do, and no more, since answers wait for those before them;
    // the last one begun may have many choices
    let (most, queue) = (2 * a.parallel, 2 * a.parallel + CHOICES);
    let devices = a.engine.device_options();
    let engine = Engine::start(model, EngineOptions { device: a.device.clone(), devices, session, queue })?;
    let bar = common::bar(lines.len() as u64, "answering {bar:30} {pos}/{len} requests {eta}");
    bar.inc(first as u64);
    let (mut next, mut tokens, mut begun) = (first, 0, 0);
    let mut asked: VecDeque<Asked> = VecDeque::new();
    while next < lines.len() || !asked.is_empty() {
        while next < lines.len() && begun < most {
            let one = ask(&engine, &lines[next], &ids[next])?;
            begun += one.replies.as_ref().map_or(0, Vec::len);
            asked.push_back(one);
            next += 1;
        }
        let Some(Asked { id, custom_id, replies }) = asked.pop_front() else { continue };
        let mut answer = match replies {
            Err(line) => refused(&line),
            Ok(replies) => {
                begun -= replies.len();
                let outputs: Result<Vec<Output>, Error> = replies.into_iter().map(Reply::wait).collect();
                match outputs {
                    Ok(outputs) => {
                        tokens += outputs.iter().map(|o| o.ids.len()).sum::<usize>();
                        answered(&id, model, fingerprint, &outputs)
                    }
                    // of this request alone
                    Err(e @ (Error::Options(_) | Error::Overflow { .. })) => refused(&e.to_string()),
                    Err(e) => {
                        let hint = "the answers so far are kept: the same command goes on";
                        return Err(anyhow::Error::from(e).context(hint));
                    }
                }
            }
        };
        answer["id"] = format!("batch_req_{id}").into();
        answer["custom_id"] = custom_id.into();
        writeln!(out, "{answer}").context("writing answers")?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(tokens)
}

/// Begins a request.
fn ask(engine: &Engine, line: &Line, id: &str) -> anyhow::Result<Asked> {
    let body: Result<Body, _> = serde_json::from_value(line.body.clone());
    let requests = body.map_err(anyhow::Error::from).and_then(|body| body.requests());
    let replies = match requests {
        Err(e) => Err(format!("{e:#}")),
        Ok(requests) => Ok(requests.into_iter().map(|r| engine.generate(r)).collect::<Result<_, Error>>()?),
    };
    Ok(Asked { id: id.into(), custom_id: line.custom_id.clone(), replies })
}

fn refused(line: &str) -> Value {
    let error = json!({ "message": line, "type": "invalid_request_error" });
    json!({ "response": { "status_code": 400, "body": { "error": error } }, "error": null })
}

fn answered(id: &str, model: &Model, fingerprint: &str, outputs: &[Output]) -> Value {
    let choice = |(i, o): (usize, &Output)| {
        let reason = if o.ended == Ended::EndOfText { "stop" } else { "length" };
        json!({ "index": i, "text": o.text, "ids": o.ids, "finish_reason": reason, "logprobs": null })
    };
    let choices: Vec<Value> = outputs.iter().enumerate().map(choice).collect();
    let prompt = outputs.first().map_or(0, |o| o.prompt.len());
    let made: usize = outputs.iter().map(|o| o.ids.len()).sum();
    json!({
        "response": {
            "status_code": 200,
            "request_id": id,
            "body": {
                "id": format!("cmpl-{id}"),
                "object": "text_completion",
                "model": model.name(),
                "system_fingerprint": fingerprint,
                "choices": choices,
                "usage": { "prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made },
            },
        },
        "error": null,
    })
}
