//! The command line: one file per subcommand, each parse → check → do → print.
//!
//! Results go to stdout, talk to stderr. The only room that prints.

mod args;
mod batch;
mod bench;
mod calibrate;
mod chat;
mod common;
mod compare;
mod completions;
mod convert;
mod devices;
mod embed;
mod hist;
mod imatrix;
mod inspect;
mod interrupt;
mod many;
mod models;
mod names;
mod notes;
mod perplexity;
mod pull;
mod quantize;
mod receipt;
mod replay;
mod run;
mod sampling;
mod score;
#[cfg(feature = "server")]
mod serve;
#[cfg(feature = "gpu")]
mod shaders;
mod slim;
mod stdout;
mod store;
mod system;
mod tokenize;
mod verify;

use crate::cpu::ThreadsError;
use crate::engine;
use crate::generate::SessionError;
use crate::models::{Cached, PlanError};
use crate::quantize::error::Refused;
use crate::simd::Level;
use crate::split::SplitError;
use crate::stop::Interrupted;
use crate::study::gate::TypesError;
use clap::{CommandFactory, Parser, Subcommand};
use common::note;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// A check failed: exit 1 with this line.
#[derive(Debug)]
pub struct CheckFailed(pub String);

impl std::fmt::Display for CheckFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CheckFailed {}

#[derive(Parser)]
#[command(
    name = "isobit",
    version,
    about = "Runs quantised language models with the same bits on every GPU and CPU",
    after_help = "Examples:\n  isobit run -p \"Once upon a time\"\n  isobit chat model.gguf\n  isobit run model.gguf -p Hello -n 64 --device gpu\n  isobit verify --batches\n  isobit bench model.gguf --device cpu,gpu\n\nExit codes: 0 done, 1 a check failed, 2 bad usage or bad file, 3 device, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    /// Generate text from a prompt
    Run(Box<run::RunArgs>),
    /// Talk to a model
    Chat(Box<chat::ChatArgs>),
    /// Answer a file of requests, many at once
    Batch(Box<batch::BatchArgs>),
    /// Serve OpenAI's API, Ollama's, and a page to chat in
    #[cfg(feature = "server")]
    Serve(Box<serve::ServeArgs>),
    /// Check what a run was, on any device; keys to sign it with
    Receipt(receipt::ReceiptArgs),
    /// Do a kept run again, branch from it, or ask another model for the same
    Replay(Box<replay::ReplayArgs>),
    /// Score continuations of contexts by their log probability
    Score(Box<score::ScoreArgs>),
    /// Turn texts into vectors
    Embed(Box<embed::EmbedArgs>),
    /// List adapters, their limits, and whether each is exact
    Devices(devices::DevicesArgs),
    /// Run a model on several devices and compare every word
    Verify(verify::VerifyArgs),
    /// Turn text into token ids
    Tokenize(tokenize::TokenizeArgs),
    /// Show what a model file holds
    Inspect(inspect::InspectArgs),
    /// List the models that are here by name: Hugging Face's cache, LM Studio, Ollama
    Models(models::ModelsArgs),
    /// Fetch a model of the hub into Hugging Face's cache
    Pull(pull::PullArgs),
    /// Measure speed, as llama-bench does, with limits and digests
    Bench(Box<bench::BenchArgs>),
    /// Measure perplexity over a text
    Perplexity(perplexity::PerplexityArgs),
    /// Compare two models over a text: perplexity, KL divergence, and whether they differ at all
    Compare(compare::CompareArgs),
    /// Measure what quantising does to weights, per tensor, type and group
    Hist(hist::HistArgs),
    /// Find out by a text how much each column of a model's matrices matters, for quantize
    Imatrix(Box<imatrix::ImatrixArgs>),
    /// Quantise or convert a model
    Quantize(quantize::QuantizeArgs),
    /// Turn a GGUF file into a BUMP file, or back, without touching a block
    Convert(convert::ConvertArgs),
    /// Print the completions of a shell
    Completions(completions::CompletionsArgs),
    /// Write the manual pages
    #[command(hide = true)]
    Man(completions::ManArgs),
    /// Write the expanded shaders, for other compilers
    #[cfg(feature = "gpu")]
    #[command(hide = true)]
    Shaders(shaders::ShadersArgs),
}

/// Runs the program; `args` includes the program's name.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    env_logger::Builder::from_env(
        env_logger::Env::default().default_filter_or("warn,wgpu_hal=off,wgpu_core=error,naga=error"),
    )
    .format(|out, record| writeln!(out, "[{:<5} {}] {}", record.level(), record.target(), plain(record.args())))
    .init();
    if stdout::was_closed() {
        return refuse("stdout is closed: the result would be lost (>/dev/null throws it away)");
    }
    let args = match args::rewrite(args.collect(), &Cli::command()) {
        Ok(args) => args,
        Err(line) => return refuse(&line),
    };
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(e) => return usage_error(&e, &args),
    };
    if let Err(e) = Level::asked() {
        return refuse(&format!("{e} (from the environment)"));
    }
    if let Err(e) = interrupt::catch() {
        note!("warning: {}", chain(&e));
    }
    let result = match cli.command {
        Cmd::Run(a) => run::run(*a),
        Cmd::Chat(a) => chat::run(*a),
        Cmd::Batch(a) => batch::run(*a),
        #[cfg(feature = "server")]
        Cmd::Serve(a) => serve::run(*a),
        Cmd::Receipt(a) => receipt::run(a),
        Cmd::Replay(a) => replay::run(*a),
        Cmd::Score(a) => score::run(*a),
        Cmd::Embed(a) => embed::run(*a),
        Cmd::Devices(a) => devices::run(a),
        Cmd::Verify(a) => verify::run(a),
        Cmd::Tokenize(a) => tokenize::run(a),
        Cmd::Inspect(a) => inspect::run(a),
        Cmd::Models(a) => models::run(a),
        Cmd::Pull(a) => pull::run(a),
        Cmd::Bench(a) => bench::run(*a),
        Cmd::Perplexity(a) => perplexity::run(a),
        Cmd::Compare(a) => compare::run(a),
        Cmd::Hist(a) => hist::run(a),
        Cmd::Imatrix(a) => imatrix::run(*a),
        Cmd::Quantize(a) => quantize::run(a),
        Cmd::Convert(a) => convert::run(a),
        Cmd::Completions(a) => completions::run(a, Cli::command()),
        Cmd::Man(a) => completions::man(a, Cli::command()),
        #[cfg(feature = "gpu")]
        Cmd::Shaders(a) => shaders::run(a),
    };
    // a last line without its newline is still in the buffer
    match result.and_then(|code| std::io::stdout().flush().map(|()| code).map_err(Into::into)) {
        Ok(code) => code,
        Err(e) if Interrupted::caused(&e) => {
            interrupt::seen();
            note!("interrupted");
            interrupt::leave()
        }
        Err(e) if is_closed_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            note!("error: {}", chain(&e));
            exit_code(&e)
        }
    }
}

/// Bad usage: one line.
fn refuse(line: &str) -> ExitCode {
    note!("error: {line}");
    ExitCode::from(2)
}

/// Prints help and version as clap formats them, and any other error as one line.
fn usage_error(e: &clap::Error, args: &[OsString]) -> ExitCode {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if !e.use_stderr() || e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return match e.print().and_then(|()| std::io::stdout().flush()) {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => refuse(&format!("writing to stdout: {e}")),
            _ => ExitCode::from(if e.use_stderr() { 2 } else { 0 }),
        };
    }
    let first = args.get(1).and_then(|a| a.to_str()).unwrap_or_default();
    if let (ErrorKind::InvalidSubcommand, Some(answer)) = (e.kind(), args::answer(first)) {
        return refuse(answer);
    }
    let text = e.render().to_string();
    let mut line = String::new();
    for part in text.lines().map(str::trim) {
        if part.starts_with("Usage:") || part.starts_with("For more information") {
            break;
        }
        // clap suggests names that have little in common with the word
        if part.starts_with("tip:") {
            continue;
        }
        line.push_str(if part.is_empty() || line.is_empty() { "" } else { " " });
        line.push_str(part);
    }
    if let Some(near) = suggestion(e, first) {
        line.push_str(&format!("; did you mean '{near}'?"));
    }
    // if nobody typed the value, it came from an environment variable
    if let (ErrorKind::ValueValidation | ErrorKind::InvalidValue, Some(ContextValue::String(value))) =
        (e.kind(), e.get(ContextKind::InvalidValue))
        && !args.iter().any(|a| a == value.as_str() || (!value.is_empty() && a.to_string_lossy().ends_with(value)))
        && let Some(ContextValue::String(option)) = e.get(ContextKind::InvalidArg)
        && let Some(variable) = variable(args, option)
    {
        line.push_str(&format!(" (from the environment: {variable})"));
    }
    let known = |a: &&OsString| a.to_str().is_some_and(|a| Cli::command().find_subcommand(a).is_some());
    let subcommand = args.get(1).filter(known).map(|a| format!("{} ", a.to_string_lossy())).unwrap_or_default();
    note!("{line}; see isobit {subcommand}--help");
    ExitCode::from(2)
}

/// The variable that stands for an option of the subcommand, where it has one that is set.
fn variable(args: &[OsString], option: &str) -> Option<String> {
    let mut cli = Cli::command();
    // only a built command spells its options as clap's errors do
    cli.build();
    let mut options = cli.find_subcommand(args.get(1)?)?.get_arguments();
    let variable = options.find(|o| o.to_string() == option)?.get_env()?;
    std::env::var_os(variable).map(|_| variable.to_string_lossy().into_owned())
}

/// The command or flag that was probably meant.
fn suggestion(e: &clap::Error, first: &str) -> Option<String> {
    use clap::error::{ContextKind, ContextValue};
    let typed = |kind| match e.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    let cli = Cli::command();
    if let Some(word) = typed(ContextKind::InvalidSubcommand) {
        return args::near(word, cli.get_subcommands().map(|c| c.get_name())).map(str::to_string);
    }
    let word = typed(ContextKind::InvalidArg).filter(|_| e.kind() == clap::error::ErrorKind::UnknownArgument)?;
    let command = cli.find_subcommand(first)?;
    let names = command.get_arguments().filter(|a| !a.is_hide_set()).filter_map(|a| a.get_long());
    args::near(word, names).map(|name| format!("--{name}"))
}

/// Text of files, drivers and arguments may hold anything; an error is one line without control characters.
fn one_line(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        match c {
            '\n' | '\r' | '\t' => out.push(' '),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Talk is one line, and a name from a file may have any length: long words lose their middle, and a long line its end.
fn short_line(s: &str) -> String {
    const WORD: usize = 300;
    const LINE: usize = 2000;

    let cut = |word: &str| {
        let n = word.chars().count();
        if n <= WORD {
            return word.to_string();
        }
        let (start, end) = (word.chars().take(200), word.chars().skip(n - 60));
        format!("{}…{}", start.collect::<String>(), end.collect::<String>())
    };
    let line = one_line(s).split(' ').map(cut).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LINE) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// `cause: cause`, on one line; a cause that the line above it already ends with is not said twice.
fn chain(e: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in e.chain().map(|c| one_line(&c.to_string())) {
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    // errors of reading name their file; an error without a file is a result that could not be written
    if e.chain().count() == 1 && e.is::<std::io::Error>() {
        return format!("writing to stdout: {line}");
    }
    match advice(e) {
        Some(flags) => format!("{line} ({flags})"),
        None => line,
    }
}

/// The error of a type that another comes from, also where the engine has told it already.
fn cause<T: std::error::Error + 'static>(e: &anyhow::Error) -> Option<&T> {
    e.chain().find_map(|c| c.downcast_ref().or_else(|| c.downcast_ref::<engine::Error>()?.cause()))
}

/// The flags by which a user changes what an error is about. The rooms below know no flags.
fn advice(e: &anyhow::Error) -> Option<String> {
    let memory = || Some("-c, --ctk, --ctv".to_string());
    if let Some(e) = cause::<PlanError>(e) {
        return Some(match e {
            PlanError::CacheType { what: Cached::Keys, ty, .. } => format!("--ctk {}", ty.name()),
            PlanError::CacheType { what: Cached::Values, ty, .. } => format!("--ctv {}", ty.name()),
            PlanError::CacheType { what: Cached::Recent, .. } => "--kv-recent".into(),
            PlanError::Channels { what: Cached::Values, .. } => "--ctv".into(),
            PlanError::Channels { .. } => "--ctk".into(),
            PlanError::RecentCodes => "--kv-recent off".into(),
            PlanError::Buffer { .. } => "--ubatch".into(),
            PlanError::Slots { used, pairs, .. } => format!("--ubatch {}", pairs / used),
            PlanError::Rows { heads, rows, .. } => format!("--ubatch {}", rows / heads),
            PlanError::Positions { .. } => "-c".into(),
            PlanError::Encoder { .. } => "isobit embed, or isobit serve --embeddings".into(),
            PlanError::RecentWhole => "--kv-recent off".into(),
            PlanError::Zero | PlanError::Binding { .. } => return None,
        });
    }
    if let Some(e) = cause::<SessionError>(e) {
        return match e {
            SessionError::Context { .. } => Some("-c".into()),
            SessionError::Cache { .. } => memory(),
            SessionError::Memory { .. } => Some("-c, --ctk, --ctv, --ubatch".into()),
            SessionError::Overflow { .. } => None,
        };
    }
    if cause::<ThreadsError>(e).is_some() {
        return Some("-t".into());
    }
    if let Some(e) = cause::<SplitError>(e) {
        return match e {
            SplitError::Plan(_) | SplitError::Devices { .. } => Some("--device".into()),
            SplitError::Memory { .. } => Some("--split, -c".into()),
            SplitError::Counts { .. } | SplitError::Empty { .. } | SplitError::Sum { .. } => Some("--split".into()),
        };
    }
    if let Some(e) = cause::<Refused>(e) {
        return Some(match e {
            Refused::Requantize(_) => "--allow-requantize".into(),
            Refused::NotInGguf(_) => "--to packed".into(),
            Refused::NotPacked(_) => "--to gguf".into(),
            Refused::Mix => "--policy".into(),
            Refused::Importances(_) => "--imatrix FILE, which `isobit imatrix MODEL -f TEXT -o FILE` makes".into(),
            Refused::Override(_) => "--override-kv".into(),
        });
    }
    if cause::<TypesError>(e).is_some() {
        return Some("--types".into());
    }
    #[cfg(feature = "gpu")]
    {
        use crate::host::HostError;
        match cause::<HostError>(e) {
            Some(HostError::Lost(_)) => return Some("--device cpu".into()),
            Some(HostError::Timeout(_)) => return Some("--ubatch".into()),
            Some(HostError::OutOfMemory(_)) => return memory(),
            _ => {}
        }
    }
    None
}

fn is_closed_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|c| c.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe))
}

fn exit_code(e: &anyhow::Error) -> ExitCode {
    if e.chain().any(|c| c.is::<CheckFailed>()) {
        return ExitCode::from(1);
    }
    #[cfg(feature = "gpu")]
    if e.chain().any(|c| c.is::<crate::host::HostError>()) {
        return ExitCode::from(3);
    }
    let of_device = |e: &engine::Error| matches!(e, engine::Error::Device(_) | engine::Error::Lost(_));
    if e.chain().any(|c| c.is::<common::DeviceError>() || c.downcast_ref().is_some_and(of_device)) {
        return ExitCode::from(3);
    }
    ExitCode::from(2)
}
/// A message in one line, whatever strangers put into it: control characters as escapes.
fn plain(message: &std::fmt::Arguments<'_>) -> String {
    let text = message.to_string();
    if !text.chars().any(char::is_control) {
        return text;
    }
    let one = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(one).collect()
}
