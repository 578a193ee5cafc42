//! `isobit chat`: talk to a model, in a terminal or from a script.

mod commands;
mod talk;

use super::common::{self, CheckpointArgs, EngineArgs, ModelArgs, SpecArgs, note};
use super::sampling::SamplingArgs;
use super::store;
use crate::chat::Template;
use crate::engine::{Model, Session, SessionOptions};
use crate::generate::sampling::Sampler;
use anyhow::{Context, bail, ensure};
use clap::Args;
use commands::After;
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use talk::{Shown, Talk};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit chat model.gguf\n  isobit chat model.gguf -sys \"Answer in one sentence.\" --temp 0\n  echo \"Why is the sky blue?\" | isobit chat model.gguf\n  isobit chat model.gguf -p \"Name a river.\" -p \"Where is it?\" --json\n\nWithin a chat: /help lists commands, Ctrl-C stops an answer, Ctrl-D leaves."
)]
pub struct ChatArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// A message, answered without asking for more; may be repeated, and may be a command such as /stats
    #[arg(short = 'p', long = "prompt", value_name = "TEXT", allow_hyphen_values = true)]
    prompts: Vec<String>,
    /// What the model is told before the first message (also -sys)
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,
    /// How messages become a prompt: a name, the model's or a built-in one, or a Jinja file; none: as they are
    #[arg(long, value_name = "NAME|FILE")]
    chat_template: Option<String>,
    /// What else the template asks for, as a JSON object such as {"enable_thinking": false}
    #[arg(long, value_name = "JSON", value_parser = object)]
    chat_template_kwargs: Option<serde_json::Map<String, serde_json::Value>>,
    /// Tokens of an answer; -1: until it ends
    #[arg(short = 'n', long = "predict", default_value = "-1", value_name = "N", value_parser = super::run::predict)]
    #[arg(allow_negative_numbers = true)]
    n: i64,
    /// auto, cpu, cpu:LEVEL, gpu, an index of `isobit devices`, part of a name; A,B: layers on each
    #[arg(short = 'd', long, alias = "devices", default_value = "auto", env = "ISOBIT_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::devices)]
    device: String,
    /// Print one JSON object for each answer instead of streaming
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    checkpoints: CheckpointArgs,
}

/// The long form of a flag that llama.cpp writes with one dash.
pub fn short_form(word: &str) -> Option<&'static str> {
    (word == "-sys").then_some("--system")
}

fn object(s: &str) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    serde_json::from_str(s).map_err(|e| format!("expected a JSON object: {e}"))
}

/// The template, or `None` where messages are continued as they are.
fn template(a: &ChatArgs, model: &Model) -> anyhow::Result<Option<Template>> {
    match a.chat_template.as_deref() {
        Some("none") => Ok(None),
        // the story model has read stories and nothing else
        None if a.model.path().is_none() && model.chat_templates().is_empty() => {
            note!(
                "the embedded model knows stories and no chat: it continues what you write; name a model to talk to one"
            );
            Ok(None)
        }
        None => Ok(Some(model.chat_template(None).context("--chat-template NAME|FILE chooses one")?)),
        Some(name) => Ok(Some(template_of(name, model)?)),
    }
}

/// The template of `--chat-template`: a file, one of the model's, or one of the built-in ones.
pub fn template_of(name: &str, model: &Model) -> anyhow::Result<Template> {
    let place = || format!("--chat-template {name}");
    if Path::new(name).is_file() {
        let source = common::text(None, Some(Path::new(name)))?;
        return model.chat_template_from(&source).with_context(place);
    }
    model.chat_template(Some(name)).with_context(place)
}

pub fn run(a: ChatArgs) -> anyhow::Result<ExitCode> {
    // what it would refuse is refused before a model is read
    Sampler::new(a.sampling.options())?;
    let piped = a.prompts.is_empty() && !std::io::stdin().is_terminal();
    let message = if piped { Some(common::text(None, Some(Path::new("-")))?) } else { None };
    ensure!(message.as_ref().is_none_or(|m| !m.trim().is_empty()), "stdin has no message");
    let model = a.model.model()?;
    common::generates(&model)?;
    model.tokenizer()?;
    let template = template(&a, &model)?;
    let (c, n_ctx) = (model.container(), a.engine.n_ctx(model.hyper()));
    let device = a.engine.devices().open(&a.device)?;
    let bar = common::load_bar(c);
    let ticking = bar.clone();
    let checkpoints = a.checkpoints.ctx_checkpoints;
    let options = SessionOptions { checkpoints, ..a.engine.options(n_ctx, a.spec.rows(1)) };
    let session = Session::new(&model, device, options, move |n| ticking.inc(n))?;
    bar.finish_and_clear();
    note!("{}: {} on {}", c.files[0].display(), common::cut(&model.hyper().name), session.device());
    let shown = match () {
        () if a.json => Shown::Json,
        () if !std::io::stdout().is_terminal() => Shown::Plain,
        () if std::env::var_os("NO_COLOR").is_some() => Shown::Terminal { color: false },
        () => Shown::Terminal { color: true },
    };
    let sampling = a.sampling.options_for(&model)?;
    let most = if a.n < 0 { usize::MAX } else { usize::try_from(a.n).unwrap_or(usize::MAX) };
    let mut talk = Talk::new(session, template, sampling, most, shown);
    talk.guess = a.spec.guess();
    talk.set_system(a.system.clone());
    talk.kwargs = a.chat_template_kwargs.clone().unwrap_or_default();
    if let Some(text) = message {
        talk.say(text.trim_end_matches(['\n', '\r']))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !a.prompts.is_empty() {
        for line in &a.prompts {
            if let After::Leave = commands::obey(&mut talk, line)? {
                break;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    interactive(&mut talk, store::dir(a.engine.kernels.cache_dir.as_deref()))
}

/// Asks for messages until there are no more.
fn interactive(talk: &mut Talk, dir: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    const HISTORY: &str = "chat_history";

    let config = Config::builder().auto_add_history(false).max_history_size(1000)?.build();
    let mut editor = DefaultEditor::with_config(config)?;
    let history = dir.map(|d| d.join(HISTORY));
    if let Some(file) = history.as_ref().filter(|f| f.is_file()) {
        // a file that is broken is written anew at the end
        let _ = editor.load_history(file);
    }
    note!("/help lists commands; Ctrl-C stops an answer, Ctrl-D leaves");
    let mut pressed = false;
    loop {
        let line = match message(&mut editor) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) if !pressed => {
                note!("Ctrl-C once more, Ctrl-D or /bye leaves");
                pressed = true;
                continue;
            }
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => break,
            Err(e) => bail!("reading a line: {e}"),
        };
        pressed = false;
        if line.trim().is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(&line);
        match commands::obey(talk, &line) {
            Ok(After::Leave) => break,
            Ok(After::More) => {}
            Err(e) if talk.goes_on(&e) => note!("error: {}", super::chain(&e)),
            Err(e) => return Err(e),
        }
    }
    if let Some(file) = history
        && let Some(Err(e)) = file.parent().map(|d| {
            std::fs::create_dir_all(d)?;
            editor.save_history(&file).map_err(std::io::Error::other)
        })
    {
        note!("warning: {}: the lines typed here were not kept: {e}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// A line, or several between `"""` and `"""`.
fn message(editor: &mut DefaultEditor) -> Result<String, ReadlineError> {
    const QUOTES: &str = "\"\"\"";

    let first = editor.readline("> ")?;
    let Some(begun) = first.trim_start().strip_prefix(QUOTES) else { return Ok(first) };
    let mut text = begun.to_string();
    loop {
        if let Some(whole) = text.trim_end().strip_suffix(QUOTES) {
            return Ok(whole.trim_matches('\n').to_string());
        }
        text.push('\n');
        text.push_str(&editor.readline(". ")?);
    }
}
