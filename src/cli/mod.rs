//! The command line: one file per subcommand, each parse → check → do → print.
//!
//! Results go to stdout, talk to stderr. The only room that prints.

mod common;
mod devices;
mod inspect;
mod perplexity;
mod run;
mod tokenize;
mod verify;

use clap::{Parser, Subcommand};
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
    after_help = "Examples:\n  isobit run -p \"Once upon a time\"\n  isobit run model.gguf -p Hello -n 64 --device gpu\n  isobit verify --batches\n\nExit codes: 0 done, 1 a check failed, 2 bad usage or bad file, 3 device, 130 interrupted."
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
    /// Measure perplexity over a text
    Perplexity(perplexity::PerplexityArgs),
}

/// Runs the program; `args` includes the program's name.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    env_logger::Builder::from_env(
        env_logger::Env::default().default_filter_or("warn,wgpu_hal=off,wgpu_core=error,naga=error"),
    )
    .format_timestamp(None)
    .init();
    // the short forms llama.cpp's users type
    let args = args.map(|a| match a.to_str() {
        Some("-ctk") => "--ctk".into(),
        Some("-ctv") => "--ctv".into(),
        Some("-ub") => "--ubatch".into(),
        _ => a,
    });
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let result = match cli.command {
        Cmd::Run(a) => run::run(a),
        Cmd::Devices(a) => devices::run(a),
        Cmd::Verify(a) => verify::run(a),
        Cmd::Tokenize(a) => tokenize::run(a),
        Cmd::Inspect(a) => inspect::run(a),
        Cmd::Perplexity(a) => perplexity::run(a),
    };
    match result {
        Ok(code) => code,
        Err(e) if is_closed_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {}", chain(&e));
            exit_code(&e)
        }
    }
}

/// `cause: cause`, on one line.
fn chain(e: &anyhow::Error) -> String {
    e.chain().map(|c| c.to_string().replace('\n', " ")).collect::<Vec<_>>().join(": ")
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
