//! `isobit replay`: a run again, a branch of it, or the same request to another model.

use super::CheckFailed;
use super::common::{self, Load, note};
use super::receipt::{self, OnArgs, ROWS, told};
use crate::engine::{Model, Output, SessionOptions};
use crate::generate::sampling::SamplerOptions;
use crate::receipts::{self, Compared, Extras, Parent, Run, compare};
use anyhow::{Context, ensure};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit run -p \"Once upon a time\" --record runs\n  isobit replay runs/0123456789abcdef.json --device cpu\n  isobit replay runs/0123456789abcdef.json --from 10 --text \" dragon\" --temp 0 --record runs\n  isobit replay runs/0123456789abcdef.json model-Q8_0.gguf --model model-Q4_0.gguf --json\n\nExit codes: 0 equal, or a branch or a comparison is done, 1 a token differs, 2 a bad file."
)]
pub struct ReplayArgs {
    /// The run, or a receipt
    run: PathBuf,
    /// The model that made it [default: the embedded story model]
    #[arg(value_name = "MODEL", env = "ISOBIT_MODEL", hide_env_values = true)]
    own: Option<PathBuf>,
    /// Ask this model for the same, and show where the choices part
    #[arg(short = 'm', long, value_name = "OTHER", conflicts_with = "from")]
    model: Option<PathBuf>,
    #[command(flatten)]
    on: OnArgs,
    /// Go on from the first N tokens of the answer, with what else is given
    #[arg(long, value_name = "N")]
    from: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    changes: Changes,
}

/// What is changed in a branch; all else stays as it was.
#[derive(Args)]
#[command(next_help_heading = "Branch")]
struct Changes {
    /// Tokens after these N, as in 1,2,3
    #[arg(long, value_name = "IDS", requires = "from", conflicts_with = "text", value_delimiter = ',')]
    ids: Vec<u32>,
    /// A text after these N
    #[arg(long, value_name = "TEXT", requires = "from", allow_hyphen_values = true)]
    text: Option<String>,
    /// Tokens to generate [default: as many as were to come]
    #[arg(short = 'n', long = "predict", value_name = "N", requires = "from")]
    n: Option<usize>,
    /// Another seed
    #[arg(short = 's', long, value_name = "SEED", requires = "from")]
    seed: Option<u64>,
    /// Another temperature
    #[arg(long, value_name = "T", requires = "from")]
    temp: Option<f32>,
    /// Another number of likeliest tokens; 0: all
    #[arg(long, value_name = "K", requires = "from")]
    top_k: Option<usize>,
    /// Another probability of the likeliest
    #[arg(long, value_name = "P", requires = "from")]
    top_p: Option<f32>,
    /// Another share of the likeliest
    #[arg(long, value_name = "P", requires = "from")]
    min_p: Option<f32>,
    /// Another penalty of recent tokens
    #[arg(long, value_name = "X", requires = "from")]
    repeat_penalty: Option<f32>,
    /// Another number of recent tokens
    #[arg(long, value_name = "N", requires = "from")]
    repeat_last_n: Option<usize>,
    /// Keep the branch in this directory
    #[arg(long, value_name = "DIR", requires = "from")]
    record: Option<PathBuf>,
}

impl Changes {
    fn apply(&self, o: &mut SamplerOptions) {
        let SamplerOptions { temperature, top_k, top_p, min_p, repeat_penalty, repeat_last_n, seed, .. } = o;
        *seed = self.seed.unwrap_or(*seed);
        *temperature = self.temp.unwrap_or(*temperature);
        *top_k = self.top_k.unwrap_or(*top_k);
        *top_p = self.top_p.unwrap_or(*top_p);
        *min_p = self.min_p.unwrap_or(*min_p);
        *repeat_penalty = self.repeat_penalty.unwrap_or(*repeat_penalty);
        *repeat_last_n = self.repeat_last_n.unwrap_or(*repeat_last_n);
    }
}

fn open(path: Option<&PathBuf>) -> anyhow::Result<Model> {
    Ok(Model::from_container(common::open(path.map(PathBuf::as_path), Load::Read)?)?)
}

pub fn run(a: ReplayArgs) -> anyhow::Result<ExitCode> {
    let run = receipt::load(&a.run)?;
    let digest = run.receipt.body.model.to_string();
    let mut own = open(a.own.as_ref())?;
    let mut other = a.model.as_ref().map(|path| open(Some(path))).transpose()?;
    if receipt::digest(&own)? != digest
        && let Some(model) = &other
        && receipt::digest(model)? == digest
    {
        // the run's own model, under the name of the other one
        (own, other) = (model.clone(), None);
    }
    let found = receipt::digest(&own)?;
    if found != digest {
        let line =
            format!("{} is of the model {digest}, {} is {found}: name its model as MODEL", a.run.display(), name(&own));
        return Err(CheckFailed(line).into());
    }
    match (other, a.from) {
        (Some(other), _) => beside(&a, &run, &own, &other),
        (None, Some(from)) => branch(&a, &run, &own, from),
        (None, None) => again(&a, &run, &own),
    }
}

fn name(model: &Model) -> String {
    if model.name().is_empty() { model.file().display().to_string() } else { common::cut(model.name()) }
}

/// Bit for bit.
fn again(a: &ReplayArgs, run: &Run, own: &Model) -> anyhow::Result<ExitCode> {
    let body = &run.receipt.body;
    let mut session = a.on.session(own, body.least(own)?)?;
    let mut broken = None;
    let checked = receipts::replay(&run.receipt, &mut session, |piece| {
        let shown = if a.json { Ok(()) } else { stream(&piece.text) };
        match shown {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                broken = Some(e);
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(e) = broken {
        return Err(e.into());
    }
    let difference = checked.difference.as_ref();
    if a.json {
        let v = json!({
            "ok": difference.is_none(), "id": run.id(), "tokens": checked.tokens, "checked": checked.checked,
            "device": session.device(), "text": body.text, "difference": difference.map(told),
        });
        writeln!(std::io::stdout(), "{v}")?;
        return Ok(ExitCode::from(u8::from(difference.is_some())));
    }
    writeln!(std::io::stdout())?;
    match difference {
        Some(d) => Err(CheckFailed(format!("{}: {d}", a.run.display())).into()),
        None => {
            note!("[equal: {}, on {}]", common::tokens(checked.tokens), session.device());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn stream(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Other tokens or options from some token on.
fn branch(a: &ReplayArgs, run: &Run, own: &Model, from: usize) -> anyhow::Result<ExitCode> {
    let body = &run.receipt.body;
    let then = match &a.changes.text {
        Some(text) => own.tokenizer()?.encode(text, false, false)?,
        None => a.changes.ids.clone(),
    };
    if let Some(dir) = &a.changes.record {
        std::fs::create_dir_all(dir).with_context(|| format!("--record {}", dir.display()))?;
        common::takes_files(dir)?;
    }
    let mut request = body.branch(own, from, &then).with_context(|| a.run.display().to_string())?;
    a.changes.apply(&mut request.sampling);
    request.max_tokens = a.changes.n.unwrap_or(request.max_tokens);
    let mut session = a.on.session(own, body.options()?)?;
    // what both have, then what is new
    let context = body.context;
    let begun = Output::of(own, context, &body.request(own)?, &body.prompt, &body.ids[..from]);
    let begun = begun.map_or(String::new(), |o| o.text) + &own.tokenizer().map_or(String::new(), |t| t.decode(&then));
    if !a.json {
        stream(&begun)?;
    }
    let mut broken = None;
    let out = session.generate(request.clone(), |piece| match if a.json { Ok(()) } else { stream(&piece.text) } {
        Ok(()) => ControlFlow::Continue(()),
        Err(e) => {
            broken = Some(e);
            ControlFlow::Break(())
        }
    })?;
    if let Some(e) = broken {
        return Err(e.into());
    }
    let parent = Some(Parent { run: run.id(), from });
    let made = Run {
        receipt: receipts::make(&session, &request, &out)?,
        extras: Extras { prompt: None, parent, top: Vec::new() },
    };
    let file = a.changes.record.as_ref().map(|dir| made.save(dir)).transpose()?;
    let file = file.map(|f| f.display().to_string());
    if a.json {
        let v = json!({
            "id": made.id(), "parent": { "run": run.id(), "from": from }, "prompt_ids": out.prompt, "ids": out.ids,
            "text": out.text, "stop": made.receipt.body.ended.name(), "device": session.device(), "file": file,
        });
        writeln!(std::io::stdout(), "{v}")?;
    } else {
        writeln!(std::io::stdout())?;
        let kept = file.map_or(String::new(), |f| format!("; kept as {f}"));
        note!("[{} from token {from} of {}; {} new{kept}]", made.id(), run.id(), common::tokens(out.ids.len()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The same request to another model.
fn beside(a: &ReplayArgs, run: &Run, own: &Model, other: &Model) -> anyhow::Result<ExitCode> {
    let body = &run.receipt.body;
    ensure!(
        body.prompt.iter().chain(&body.ids).all(|id| (*id as usize) < own.vocabulary()),
        "{}: a token is outside the vocabulary",
        a.run.display()
    );
    let options = SessionOptions { rows: ROWS, ..body.least(own)? };
    let mut first = a.on.session(own, options)?;
    let mut second = a.on.session(other, options)?;
    let c = compare(&run.receipt, &mut first, &mut second)?;
    let fingerprint = second.fingerprint()?;
    let mut out = std::io::stdout().lock();
    if a.json {
        writeln!(out, "{}", comparison(run, own, other, &fingerprint, &c))?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |name: &str, x: &str, y: &str| format!("{name:<14} {x:<44} {y}\n");
    let mut text = row("", "run", "other");
    text += &row("model", &name(own), &name(other));
    text += &row("digest", &own.digest()?[..16], &other.digest()?[..16]);
    let count = |n: usize, how: &str| format!("{} ({how})", common::tokens(n));
    text += &row(
        "answer",
        &count(body.ids.len(), body.ended.name()),
        &count(c.ids.len(), receipts::Ending::from(c.ended).name()),
    );
    if let Some((x, y)) = c.parted {
        let show = |id: Option<u32>| id.map_or("the end".into(), |id| format!("{id} {:?}", piece(own, &[id])));
        text += &row(&format!("token {}", c.same), &show(x), &show(y));
        let tail =
            |ids: &[u32]| format!("{:?}", piece(own, &ids[c.same.min(ids.len())..ids.len().min(c.same + AROUND)]));
        text += &row("goes on", &tail(&body.ids), &tail(&c.ids));
        text += &format!("before both     {:?}\n", before(own, body, &c));
    }
    text += &format!(
        "the first {} are the same; over {} the logits differ by {:.6} at most, KL {:.6} nats a token (at most {:.6}), \
         same likeliest token {:.1} %\n",
        common::tokens(c.same),
        common::tokens(c.rows.len()),
        c.max_abs(),
        c.mean_kl(),
        c.rows.iter().map(|r| r.kl).fold(0.0, f64::max),
        100.0 * c.same_top()
    );
    out.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Tokens that are shown beside the first that differs.
const AROUND: usize = 8;

fn piece(model: &Model, ids: &[u32]) -> String {
    model.tokenizer().map_or(String::new(), |t| t.decode(ids))
}

/// The last tokens that both have had.
fn before(model: &Model, body: &receipts::Body, c: &Compared) -> String {
    let ids: Vec<u32> = body.prompt.iter().chain(&body.ids[..c.same]).copied().collect();
    piece(model, &ids[ids.len().saturating_sub(AROUND)..])
}

fn comparison(run: &Run, own: &Model, other: &Model, fingerprint: &str, c: &Compared) -> Value {
    let body = &run.receipt.body;
    let around = |ids: &[u32]| piece(own, &ids[c.same.min(ids.len())..ids.len().min(c.same + AROUND)]);
    let parted = c.parted.map(|(x, y)| {
        json!({
            "index": c.same, "position": body.prompt.len() + c.same, "run": x, "other": y,
            "before": before(own, body, c), "run_goes_on": around(&body.ids), "other_goes_on": around(&c.ids),
        })
    });
    let rows: Vec<Value> =
        c.rows.iter().map(|r| json!({ "max_abs": r.max_abs, "kl": r.kl, "same_top": r.same_top })).collect();
    json!({
        "id": run.id(), "model": name(own), "other": name(other), "fingerprint": body.fingerprint,
        "other_fingerprint": fingerprint, "same": c.same, "parted": parted, "ids": c.ids, "text": c.text,
        "stop": receipts::Ending::from(c.ended).name(), "max_abs": c.max_abs(), "mean_kl": c.mean_kl(),
        "same_top": c.same_top(), "tokens": rows,
    })
}
