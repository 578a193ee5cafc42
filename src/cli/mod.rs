//! The command line: one file per subcommand, each parse → check → do → print.
//!
//! Results go to stdout, talk to stderr. The only room that prints.

mod bench;
mod common;
mod compare;
mod devices;
mod hist;
mod inspect;
mod perplexity;
mod quantize;
mod run;
#[cfg(feature = "gpu")]
mod shaders;
#[cfg(feature = "gpu")]
mod store;
mod system;
mod tokenize;
mod verify;

use clap::{CommandFactory, Parser, Subcommand};
use common::note;
use std::ffi::OsString;
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
    after_help = "Examples:\n  isobit run -p \"Once upon a time\"\n  isobit run model.gguf -p Hello -n 64 --device gpu\n  isobit verify --batches\n  isobit bench model.gguf --device cpu,gpu\n\nExit codes: 0 done, 1 a check failed, 2 bad usage or bad file, 3 device, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    /// Generate text from a prompt
    Run(run::RunArgs),
    /// List adapters, their limits, and whether each is exact
    Devices(devices::DevicesArgs),
    /// Run a model on several devices and compare every word
    Verify(verify::VerifyArgs),
    /// Turn text into token ids
    Tokenize(tokenize::TokenizeArgs),
    /// Show what a model file holds
    Inspect(inspect::InspectArgs),
    /// Measure speed, as llama-bench does, with limits and digests
    Bench(Box<bench::BenchArgs>),
    /// Measure perplexity over a text
    Perplexity(perplexity::PerplexityArgs),
    /// Compare two models over a text: perplexity, KL divergence, and whether they differ at all
    Compare(compare::CompareArgs),
    /// Measure what quantising does to weights, per tensor, type and group
    Hist(hist::HistArgs),
    /// Quantise or convert a model
    Quantize(quantize::QuantizeArgs),
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
    .format_timestamp(None)
    .init();
    // the short forms llama.cpp's users type
    let args: Vec<OsString> = args.collect();
    let bench = args.get(1).is_some_and(|a| a == "bench");
    let args = args.into_iter().map(|a| match a.to_str() {
        Some(word) if bench && bench::short_form(word).is_some() => bench::short_form(word).unwrap_or(word).into(),
        Some("-ctk") => "--ctk".into(),
        Some("-ctv") => "--ctv".into(),
        Some("-ub") => "--ubatch".into(),
        Some("-dev") => "--device".into(),
        _ => a,
    });
    let args: Vec<OsString> = args.collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(e) => return usage_error(&e, &args),
    };
    let result = match cli.command {
        Cmd::Run(a) => run::run(a),
        Cmd::Devices(a) => devices::run(a),
        Cmd::Verify(a) => verify::run(a),
        Cmd::Tokenize(a) => tokenize::run(a),
        Cmd::Inspect(a) => inspect::run(a),
        Cmd::Bench(a) => bench::run(*a),
        Cmd::Perplexity(a) => perplexity::run(a),
        Cmd::Compare(a) => compare::run(a),
        Cmd::Hist(a) => hist::run(a),
        Cmd::Quantize(a) => quantize::run(a),
        #[cfg(feature = "gpu")]
        Cmd::Shaders(a) => shaders::run(a),
    };
    match result {
        Ok(code) => code,
        Err(e) if is_closed_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            note!("error: {}", chain(&e));
            exit_code(&e)
        }
    }
}

/// Help and version as they are; anything else as one line.
fn usage_error(e: &clap::Error, args: &[OsString]) -> ExitCode {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if !e.use_stderr() || e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = e.print();
        return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
    }
    let text = e.render().to_string();
    let mut line = String::new();
    for part in text.lines().map(str::trim) {
        if part.starts_with("Usage:") || part.starts_with("For more information") {
            break;
        }
        let tip = part.starts_with("tip:");
        line.push_str(if part.is_empty() || line.is_empty() {
            ""
        } else if tip {
            "; "
        } else {
            " "
        });
        line.push_str(part.strip_prefix("tip: ").unwrap_or(part));
    }
    // a value that nobody typed came from a variable
    if let (ErrorKind::ValueValidation | ErrorKind::InvalidValue, Some(ContextValue::String(value))) =
        (e.kind(), e.get(ContextKind::InvalidValue))
        && !args.iter().any(|a| a == value.as_str() || (!value.is_empty() && a.to_string_lossy().ends_with(value)))
    {
        line.push_str(" (from the environment: ISOBIT_...)");
    }
    let known = |a: &&OsString| a.to_str().is_some_and(|a| Cli::command().find_subcommand(a).is_some());
    let subcommand = args.get(1).filter(known).map(|a| format!("{} ", a.to_string_lossy())).unwrap_or_default();
    note!("{line}; see isobit {subcommand}--help");
    ExitCode::from(2)
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
    // every read says which file; what says nothing is a result that could not be written
    if e.chain().count() == 1 && e.is::<std::io::Error>() { format!("writing to stdout: {line}") } else { line }
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
    if e.chain().any(|c| c.is::<common::DeviceError>()) {
        return ExitCode::from(3);
    }
    ExitCode::from(2)
}
