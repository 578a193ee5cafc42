//! `isobit batch`: a file of requests, many at once, to a file of answers in the same order.

use super::common::{self, SpecArgs, note};
use super::many::{self, CHOICES, ManyArgs};
use super::score::Words;
use crate::chat::Template;
#[cfg(feature = "server")]
use crate::engine::Pooling;
use crate::engine::{Ended, Engine, Error, Grammar, Guess, Head, Logprobs, Model, Output, Prompt, Reply, Request};
use crate::generate::breakers::{BREAKERS, breakers};
use crate::generate::sampling::SamplerOptions;
use crate::generate::stops::Stops;
#[cfg(feature = "server")]
use crate::server::{self, App};
use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
#[cfg(feature = "server")]
use std::sync::Arc;
use std::time::Instant;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit batch requests.jsonl answers.jsonl -m model.gguf\n  isobit batch requests.jsonl answers.jsonl --parallel 32 --pool 16384\n\nA line of requests, as OpenAI's batch files have it (of /v1/completions where url is not there; /v1/chat/completions takes\nwhat the server takes; /v1/embeddings in a file of its own):\n  {\"custom_id\": \"a\", \"body\": {\"prompt\": \"Once upon a time\", \"max_tokens\": 32, \"temperature\": 0.8, \"seed\": 7}}\nWhat is not said is OpenAI's default: 16 tokens, temperature 1, all tokens to draw from; the other samplers have\nllama.cpp's names. response_format and grammar say what the text must be. n and best_of make several\ntexts, with the seeds after the request's; logprobs, up to 20, tells how likely the tokens were. An answer depends on its\nrequest and the model alone, so the file is the same on every device and however many run at once. A run that was\nstopped goes on where it was: the answers so far are in OUT.part."
)]
pub struct BatchArgs {
    /// Requests, a JSON object a line; - for stdin
    input: PathBuf,
    /// Answers, a JSON object a line; made when all are there
    output: PathBuf,
    /// A built-in chat template by name, or a file with one, instead of the model's own
    #[arg(long, value_name = "NAME|FILE")]
    chat_template: Option<String>,
    /// Print one JSON object instead of the digest's line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    many: ManyArgs,
    #[command(flatten)]
    spec: SpecArgs,
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
    repeat_penalty: Option<f32>,
    #[serde(default)]
    repeat_last_n: Option<i64>,
    #[serde(default)]
    presence_penalty: Option<f32>,
    #[serde(default)]
    frequency_penalty: Option<f32>,
    #[serde(default)]
    typical_p: Option<f32>,
    #[serde(default)]
    top_n_sigma: Option<f32>,
    #[serde(default)]
    xtc_probability: Option<f32>,
    #[serde(default)]
    xtc_threshold: Option<f32>,
    #[serde(default)]
    dry_multiplier: Option<f32>,
    #[serde(default)]
    dry_base: Option<f32>,
    #[serde(default)]
    dry_allowed_length: Option<usize>,
    #[serde(default)]
    dry_penalty_last_n: Option<i64>,
    #[serde(default)]
    dry_sequence_breakers: Option<Vec<String>>,
    #[serde(default)]
    dynatemp_range: Option<f32>,
    #[serde(default)]
    dynatemp_exponent: Option<f32>,
    #[serde(default)]
    mirostat: Option<u8>,
    #[serde(default)]
    mirostat_tau: Option<f32>,
    #[serde(default)]
    mirostat_eta: Option<f32>,
    #[serde(default)]
    min_keep: Option<usize>,
    #[serde(default)]
    logit_bias: Option<Value>,
    #[serde(default)]
    response_format: Option<Value>,
    #[serde(default)]
    grammar: Option<String>,
    #[serde(default)]
    grammar_type: Option<String>,
    #[serde(default)]
    n: Option<usize>,
    #[serde(default)]
    best_of: Option<usize>,
    #[serde(default)]
    logprobs: Option<usize>,
    #[serde(default)]
    ignore_eos: Option<bool>,
    #[serde(default)]
    stop: Option<Stop>,
    #[serde(default)]
    echo: Option<bool>,
    #[serde(default, rename = "user")]
    _user: Option<String>,
}

/// Strings that end a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Several(Vec<String>),
}

/// Stop strings of a request, and bytes of one, at most.
const STOPS: usize = 16;
const STOP_BYTES: usize = 1024;

/// What a line may ask for.
const COMPLETIONS: &str = "/v1/completions";
const CHATS: &str = "/v1/chat/completions";
const VECTORS: &str = "/v1/embeddings";

impl Line {
    fn path(&self) -> &str {
        self.url.as_deref().unwrap_or(COMPLETIONS)
    }
}

impl Body {
    /// A request for each text that is made: the nth has the seed plus n.
    fn requests(self, model: &Model, guess: Guess) -> anyhow::Result<(Shown, Vec<Request>)> {
        let n = self.n.unwrap_or(1);
        let made = self.best_of.unwrap_or(n);
        ensure!((1..=CHOICES).contains(&n), "n is {n}: 1 to {CHOICES} expected");
        ensure!((n..=CHOICES).contains(&made), "best_of is {made}: n, which is {n}, to {CHOICES} expected");
        let sampling = self.sampling(model)?;
        let own = self.grammar.as_deref().map(|text| Grammar::named(self.grammar_type.as_deref(), text)).transpose()?;
        let grammar = Grammar::of_request(self.response_format.as_ref(), own)?;
        let grammar = grammar.map(|g| model.grammar(&g)).transpose()?;
        let stops = match self.stop {
            None => Vec::new(),
            // nothing is made that could end
            _ if self.max_tokens == Some(0) => Vec::new(),
            Some(Stop::One(text)) => vec![text],
            Some(Stop::Several(list)) => list,
        };
        ensure!(stops.len() <= STOPS, "stop has {} strings: {STOPS} at most expected", stops.len());
        ensure!(stops.iter().all(|s| s.len() <= STOP_BYTES), "stop: strings of {STOP_BYTES} bytes at most expected");
        let prompt: Prompt = self.prompt.into();
        let echo = match (self.echo.unwrap_or(false), &prompt) {
            (false, _) => String::new(),
            (true, _) if self.logprobs.is_some() => {
                bail!("echo with logprobs is not supported in a batch: `isobit score` tells how likely a text is")
            }
            (true, Prompt::Text(text)) => text.clone(),
            (true, Prompt::Ids(ids)) => model.tokenizer()?.decode(ids),
        };
        let one = |i: usize| Request {
            max_tokens: self.max_tokens.unwrap_or(16),
            sampling: SamplerOptions { seed: sampling.seed.wrapping_add(i as u64), ..sampling.clone() },
            grammar: grammar.clone(),
            guess,
            ignore_end: self.ignore_eos.unwrap_or(false),
            // the best are chosen by them
            logprobs: self.logprobs.or((made > n).then_some(0)),
            ..Request::new(prompt.clone())
        };
        let shown = Shown { n, logprobs: self.logprobs.is_some(), stops, echo };
        Ok((shown, (0..made).map(one).collect()))
    }

    /// How tokens are chosen.
    fn sampling(&self, model: &Model) -> anyhow::Result<SamplerOptions> {
        let base = SamplerOptions::default();
        // -1 in llama.cpp
        let last = |n: Option<i64>, usual: usize| n.map_or(usual, |n| usize::try_from(n).unwrap_or(usize::MAX));
        // an object of numbers, as OpenAI has it
        let bias: Option<BTreeMap<u32, f32>> =
            self.logit_bias.clone().map(serde_json::from_value).transpose().context("logit_bias")?;
        let logit_bias = bias.into_iter().flatten().collect();
        let dry_multiplier = self.dry_multiplier.unwrap_or(base.dry_multiplier);
        let dry_breakers = match (&self.dry_sequence_breakers, model.tokenizer()) {
            _ if dry_multiplier == 0.0 => Vec::new(),
            (_, Err(_)) => Vec::new(),
            (None, Ok(t)) => breakers(t, &BREAKERS)?,
            (Some(texts), Ok(t)) => breakers(t, texts)?,
        };
        let options = SamplerOptions {
            temperature: self.temperature.unwrap_or(1.0),
            top_k: self.top_k.unwrap_or(0),
            top_p: self.top_p.unwrap_or(1.0),
            min_p: self.min_p.unwrap_or(0.0),
            seed: self.seed.unwrap_or(0),
            repeat_penalty: self.repeat_penalty.unwrap_or(base.repeat_penalty),
            repeat_last_n: last(self.repeat_last_n, base.repeat_last_n),
            presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
            typical_p: self.typical_p.unwrap_or(base.typical_p),
            top_n_sigma: self.top_n_sigma.unwrap_or(base.top_n_sigma),
            xtc_probability: self.xtc_probability.unwrap_or(base.xtc_probability),
            xtc_threshold: self.xtc_threshold.unwrap_or(base.xtc_threshold),
            dry_multiplier,
            dry_base: self.dry_base.unwrap_or(base.dry_base),
            dry_allowed_length: self.dry_allowed_length.unwrap_or(base.dry_allowed_length),
            dry_penalty_last_n: last(self.dry_penalty_last_n, base.dry_penalty_last_n),
            dry_breakers,
            dynatemp_range: self.dynatemp_range.unwrap_or(base.dynatemp_range),
            dynatemp_exponent: self.dynatemp_exponent.unwrap_or(base.dynatemp_exponent),
            mirostat: self.mirostat.unwrap_or(base.mirostat),
            mirostat_tau: self.mirostat_tau.unwrap_or(base.mirostat_tau),
            mirostat_eta: self.mirostat_eta.unwrap_or(base.mirostat_eta),
            min_keep: self.min_keep.unwrap_or(base.min_keep),
            logit_bias,
        };
        options.check()?;
        Ok(options)
    }
}

/// A request that was begun, or what is wrong with it.
struct Asked {
    id: String,
    custom_id: String,
    work: Work,
}

/// What is under way for a line.
enum Work {
    /// texts of the engine's, or what is wrong with the line
    Texts(Shown, Result<Vec<Reply>, String>),
    /// what the server's routes answer: status and body
    #[cfg(feature = "server")]
    Served(tokio::task::JoinHandle<(u16, Value)>),
}

/// What of the choices is shown.
#[derive(Clone, Default)]
struct Shown {
    /// how many of them: those of the greatest log probability a token
    n: usize,
    logprobs: bool,
    /// strings that end a text, and are not shown
    stops: Vec<String>,
    /// what is shown before it
    echo: String,
}

impl Shown {
    /// A text, up to a stop string where there is one; it is broken off there, and whether it was.
    fn text(&self, reply: Reply) -> Result<(Output, bool), Error> {
        if self.stops.is_empty() {
            return Ok((reply.wait()?, false));
        }
        let (mut stops, mut out, mut stopped) = (Stops::new(self.stops.clone()), Output::default(), false);
        let mut first = None;
        for piece in reply {
            let piece = piece?;
            first.get_or_insert(piece.position);
            let (text, hit) = stops.push(&piece.text);
            out.text += &text;
            out.ids.push(piece.id);
            out.logprobs.extend(piece.logprobs);
            out.ended = piece.ended.unwrap_or(out.ended);
            stopped = hit;
            if hit {
                break;
            }
        }
        if !stopped {
            out.text += &stops.finish();
        }
        // which tokens those were nobody asks, only how many
        out.prompt = vec![0; first.unwrap_or(0)];
        Ok((out, stopped))
    }
}

/// What names a request and its answer: the model, the options that decide logits, and the request itself.
fn id_of(fingerprint: &str, line: &Line, template: &str) -> String {
    let mut hash = Sha256::new();
    let (url, body) = (line.path(), line.body.to_string());
    // what a completion was called before there were others
    let of_url: &[&str] = match url {
        COMPLETIONS => &[],
        CHATS => &[url, template],
        _ => &[url],
    };
    for part in [fingerprint, &line.custom_id, &body].into_iter().chain(of_url.iter().copied()) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// The requests, each checked as far as it can be without a model.
fn read(path: &Path) -> anyhow::Result<Vec<Line>> {
    let lines: Vec<(usize, Line)> = many::read(path)?;
    for (i, line) in &lines {
        let place = || format!("{} line {i}", path.display());
        if let Some(method) = line.method.as_deref().filter(|m| *m != "POST") {
            bail!("{}: method {method:?}, POST expected", place());
        }
        let url = line.path();
        if ![COMPLETIONS, CHATS, VECTORS].contains(&url) {
            bail!("{}: url {url:?} is not supported: {COMPLETIONS}, {CHATS} and {VECTORS} are", place());
        }
        if cfg!(not(feature = "server")) && url != COMPLETIONS {
            bail!("{}: url {url:?}: this isobit was built without the server feature", place());
        }
        if (url == VECTORS) != (lines[0].1.path() == VECTORS) {
            bail!("{}: {VECTORS} in a file with other requests: write them to a file of their own", place());
        }
        for field in ["stream", "receipt", "digest"] {
            if url != COMPLETIONS && line.body.get(field).is_some_and(|v| *v == true) {
                bail!("{}: {field} is nothing a batch can do", place());
            }
        }
        if line.body.get("seed").and_then(Value::as_i64).is_some_and(|seed| seed < 0) {
            bail!("{}: a seed below 0 asks for another answer each time, and a batch is the same every time", place());
        }
    }
    Ok(lines.into_iter().map(|(_, line)| line).collect())
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
    let model = a.many.model()?;
    common::generates(&model)?;
    let fingerprint = a.many.fingerprint(&model)?;
    let template = a.chat_template.as_ref().map(|name| super::chat::template_of(name, &model)).transpose()?;
    let source = template.as_ref().map_or("", |t| t.source()).to_owned();
    let ids: Vec<String> = lines.iter().map(|l| id_of(&fingerprint, l, &source)).collect();
    let mut name = a.output.clone().into_os_string();
    name.push(".part");
    let part = PathBuf::from(name);
    let (first, end) = done(&part, &ids)?;
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(&part);
    let mut out = open.with_context(|| part.display().to_string())?;
    out.set_len(end).and_then(|()| std::io::Seek::seek(&mut out, std::io::SeekFrom::End(0)))?;
    let tokens = if first < lines.len() {
        answer(&a, template, &model, &fingerprint, &lines, &ids, first, &mut out)?
    } else {
        0
    };
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
    template: Option<Template>,
    model: &Model,
    fingerprint: &str,
    lines: &[Line],
    ids: &[String],
    first: usize,
    out: &mut File,
) -> anyhow::Result<usize> {
    let vectors = lines.iter().any(|l| l.path() == VECTORS);
    let head = if vectors { Head::Hidden } else { Head::Logits };
    let (engine, most) = (a.many.engine(model, a.spec.rows(a.many.parallel), head)?, a.many.most());
    let served = Served::new(model, &engine, template, (a.many.parallel, a.spec.guess()), lines)?;
    let bar = common::bar(lines.len() as u64, "answering {bar:30} {pos}/{len} requests {eta}");
    bar.inc(first as u64);
    let (mut next, mut tokens, mut begun) = (first, 0, 0);
    let mut asked: VecDeque<(Asked, usize)> = VecDeque::new();
    while next < lines.len() || !asked.is_empty() {
        while next < lines.len() && begun < most {
            let (one, texts) = match lines[next].path() {
                COMPLETIONS => ask(&engine, model, a.spec.guess(), &lines[next], &ids[next])?,
                _ => served.ask(&lines[next], &ids[next])?,
            };
            begun += texts;
            asked.push_back((one, texts));
            next += 1;
        }
        let Some((Asked { id, custom_id, work }, texts)) = asked.pop_front() else { continue };
        begun -= texts;
        let mut answer = match work {
            Work::Texts(_, Err(line)) => refused(&line),
            Work::Texts(shown, Ok(replies)) => {
                let outputs: Result<Vec<(Output, bool)>, Error> = replies.into_iter().map(|r| shown.text(r)).collect();
                match outputs {
                    Ok(outputs) => {
                        tokens += outputs.iter().map(|(o, _)| o.ids.len()).sum::<usize>();
                        answered(&id, model, fingerprint, &shown, outputs)
                    }
                    // of this request alone
                    Err(e @ (Error::Options(_) | Error::Overflow { .. })) => refused(&e.to_string()),
                    Err(e) => return Err(anyhow::Error::from(e).context(GOES_ON)),
                }
            }
            #[cfg(feature = "server")]
            Work::Served(task) => {
                let (status, body) = served.runtime()?.block_on(task)?;
                // what is not of this request alone ends the batch
                let message = body["error"]["message"].as_str().unwrap_or("no answer").to_owned();
                ensure!(status < 500 || status == 501, anyhow::anyhow!(message).context(GOES_ON));
                tokens += body["usage"]["completion_tokens"].as_u64().unwrap_or(0) as usize;
                match status {
                    200 => json!({ "response": { "status_code": 200, "request_id": id, "body": body }, "error": null }),
                    _ => json!({ "response": { "status_code": status, "body": body }, "error": null }),
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

/// What to do about an answer that did not come.
const GOES_ON: &str = "the answers so far are kept: the same command goes on";

/// Begins a request; how many texts those are.
fn ask(engine: &Engine, model: &Model, guess: Guess, line: &Line, id: &str) -> anyhow::Result<(Asked, usize)> {
    let body: Result<Body, _> = serde_json::from_value(line.body.clone());
    let requests = body.map_err(anyhow::Error::from).and_then(|body| body.requests(model, guess));
    let (shown, replies) = match requests {
        Err(e) => (Shown::default(), Err(format!("{e:#}"))),
        Ok((shown, requests)) => {
            let replies = requests.into_iter().map(|r| engine.generate(r)).collect::<Result<_, Error>>()?;
            (shown, Ok(replies))
        }
    };
    let texts = replies.as_ref().map_or(0, Vec::len);
    Ok((Asked { id: id.into(), custom_id: line.custom_id.clone(), work: Work::Texts(shown, replies) }, texts))
}

/// What answers lines of chats and of vectors: the server's routes, without a socket.
#[cfg(feature = "server")]
struct Served(Option<(tokio::runtime::Runtime, Arc<App>)>);

#[cfg(feature = "server")]
impl Served {
    fn new(
        model: &Model,
        engine: &Engine,
        template: Option<Template>,
        (parallel, guess): (usize, Guess),
        lines: &[Line],
    ) -> anyhow::Result<Served> {
        if lines.iter().all(|l| l.path() == COMPLETIONS) {
            return Ok(Served(None));
        }
        let session = engine.options();
        // OpenAI's defaults, as for completions
        let base = SamplerOptions { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerOptions::default() };
        let options = server::Options {
            alias: model.name().into(),
            hosts: Vec::new(),
            origins: Vec::new(),
            addresses: false,
            api_key: None,
            sampling: base,
            max_tokens: usize::MAX,
            parallel,
            session,
            template: template.map(Arc::new),
            embeddings: session.head == Head::Hidden,
            pooling: if session.head == Head::Hidden { model.pooling()? } else { Pooling::default() },
            record: None,
            limit: None,
            guess,
            body: usize::MAX,
        };
        let engine = engine.clone();
        let app = App::new(model.clone(), options, Box::new(move || Ok(engine.clone())));
        app.load()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Served(Some((runtime, app))))
    }

    fn runtime(&self) -> anyhow::Result<&tokio::runtime::Runtime> {
        self.0.as_ref().map(|(runtime, _)| runtime).context("nothing is served")
    }

    /// Begins a request; how many texts those are at most.
    fn ask(&self, line: &Line, id: &str) -> anyhow::Result<(Asked, usize)> {
        let (runtime, app) = self.0.as_ref().context("nothing is served")?;
        let (app, path, body, name) =
            (app.clone(), line.path().to_owned(), line.body.clone(), format!("chatcmpl-{id}"));
        let texts = body["n"].as_u64().map_or(1, |n| n.clamp(1, CHOICES as u64) as usize);
        let task = runtime.spawn(async move { server::batch::answer(app, &path, &body, &name).await });
        Ok((Asked { id: id.into(), custom_id: line.custom_id.clone(), work: Work::Served(task) }, texts))
    }
}

/// Nothing answers them.
#[cfg(not(feature = "server"))]
struct Served;

#[cfg(not(feature = "server"))]
impl Served {
    fn new(_: &Model, _: &Engine, _: Option<Template>, _: (usize, Guess), _: &[Line]) -> anyhow::Result<Served> {
        Ok(Served)
    }

    fn ask(&self, line: &Line, _: &str) -> anyhow::Result<(Asked, usize)> {
        bail!("url {:?}: this isobit was built without the server feature", line.path())
    }
}

fn refused(line: &str) -> Value {
    let error = json!({ "message": line, "type": "invalid_request_error" });
    json!({ "response": { "status_code": 400, "body": { "error": error } }, "error": null })
}

fn answered(id: &str, model: &Model, fingerprint: &str, shown: &Shown, outputs: Vec<(Output, bool)>) -> Value {
    let prompt = outputs.first().map_or(0, |(o, _)| o.prompt.len());
    let made: usize = outputs.iter().map(|(o, _)| o.ids.len()).sum();
    let mut best = outputs;
    if best.len() > shown.n {
        let mean = |(o, _): &(Output, bool)| o.logprob() / o.ids.len().max(1) as f64;
        // of equals the one that was made first
        best.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
        best.truncate(shown.n);
    }
    let choice = |(i, (o, stopped)): (usize, &(Output, bool))| {
        let reason = if *stopped || o.ended == Ended::EndOfText { "stop" } else { "length" };
        let logprobs = shown.logprobs.then(|| logprobs(model, &o.logprobs));
        let text = format!("{}{}", shown.echo, o.text);
        json!({ "index": i, "text": text, "ids": o.ids, "finish_reason": reason, "logprobs": logprobs })
    };
    let choices: Vec<Value> = best.iter().enumerate().map(choice).collect();
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

/// Log probabilities as OpenAI's completions have them: a list of tokens, theirs, and those of the likeliest in their place.
fn logprobs(model: &Model, list: &[Logprobs]) -> Value {
    let tokenizer = model.tokenizer().ok();
    let text = |id: u32| match tokenizer {
        Some(t) => String::from_utf8_lossy(&t.piece(id)).into_owned(),
        None => id.to_string(),
    };
    let tops: Vec<serde_json::Map<String, Value>> =
        list.iter().map(|l| l.top.iter().map(|&(id, p)| (text(id), p.into())).collect()).collect();
    json!({
        "tokens": list.iter().map(|l| text(l.id)).collect::<Vec<_>>(),
        "token_logprobs": list.iter().map(|l| l.logprob).collect::<Vec<_>>(),
        "top_logprobs": tops,
    })
}
