//! `isobit quantize` to the directories of msModelSlim: options, what they may be beside, and the job.

use super::calibrate;
use super::common::{self, note};
use crate::formats::Container;
use crate::quantize::Job;
use crate::quantize::slim::{self, Scheme};
use anyhow::ensure;
use clap::Args;
use std::path::{Path, PathBuf};

/// Bytes of a file of weights, as msModelSlim cuts them.
const FILE: u64 = 4 << 30;
/// Tokens that are run where nobody says how many.
const TOKENS: usize = 2048;

#[derive(Args, Debug)]
#[command(next_help_heading = "msModelSlim directories (w8a16, w4a16, w8a8, w8a8-dynamic, w4a8-dynamic)")]
pub struct SlimArgs {
    /// Columns that share a scale, of w8a16 and w4a16: a multiple of 32 [default: those of a row]
    #[arg(long, value_name = "N", value_parser = group)]
    group: Option<usize>,
    /// Codes of 0 are 0, of w8a16 and w4a16: no offsets
    #[arg(long)]
    symmetric: bool,
    /// Smooth quant, of the other three: how much of the activations' spread the matrices take over, 0 to 1; needs --calibrate
    #[arg(long, value_name = "ALPHA", value_parser = alpha, requires = "calibrate")]
    smooth: Option<f64>,
    /// A text that the model is run over, to see what its activations are; w8a8 needs it
    #[arg(long, value_name = "FILE")]
    calibrate: Option<PathBuf>,
    /// Tokens of it, from the start [default: 2048]
    #[arg(long, value_name = "N", value_parser = common::whole::<16, 1000000>, requires = "calibrate")]
    calibrate_tokens: Option<usize>,
    /// c8: scales for a cache of 8 bits too; needs --calibrate
    #[arg(long, value_name = "TYPE", value_parser = ["c8"], requires = "calibrate")]
    kv: Option<String>,
}

fn group(s: &str) -> Result<usize, String> {
    let n = s.parse::<usize>().ok().filter(|n| *n > 0 && n.is_multiple_of(32) && *n <= 1 << 20);
    n.ok_or_else(|| "expected a multiple of 32".into())
}

fn alpha(s: &str) -> Result<f64, String> {
    let v = s.parse::<f64>().ok().filter(|v| (0.0..=1.0).contains(v));
    v.ok_or_else(|| "expected a number from 0 to 1".into())
}

impl SlimArgs {
    /// The first flag that is for these directories alone.
    pub fn given(&self) -> Option<&'static str> {
        [
            (self.group.is_some(), "--group"),
            (self.symmetric, "--symmetric"),
            (self.smooth.is_some(), "--smooth"),
            (self.calibrate.is_some(), "--calibrate"),
            (self.kv.is_some(), "--kv"),
        ]
        .into_iter()
        .find_map(|(given, flag)| given.then_some(flag))
    }

    /// Refuses what has no effect on a scheme, or that it lacks.
    fn refuse(&self, scheme: Scheme, output: &Path) -> anyhow::Result<()> {
        let (name, alone) = (scheme.name(), scheme.is_weights_alone());
        for (given, flag) in [(self.group.is_some(), "--group"), (self.symmetric, "--symmetric")] {
            ensure!(alone || !given, "{flag} has no effect here: {name} has a scale for each row and no offsets");
        }
        ensure!(!alone || self.smooth.is_none(), "--smooth has no effect here: {name} quantises no activations");
        let used = scheme == Scheme::W8A8 || self.smooth.is_some() || self.kv.is_some();
        ensure!(
            used || self.calibrate.is_none(),
            "--calibrate has no effect here: {name} fixes no scale of activations (w8a8, --smooth and --kv do)"
        );
        ensure!(
            scheme != Scheme::W8A8 || self.calibrate.is_some(),
            "W8A8 fixes the scales of activations by a text: give one with --calibrate FILE, or choose w8a8-dynamic"
        );
        let extension = output.extension().and_then(|e| e.to_str()).unwrap_or_default().to_lowercase();
        ensure!(
            !["gguf", "safetensors", "bump"].contains(&&extension[..]),
            "{}: {name} is written as a directory, and this is the name of a file",
            output.display()
        );
        Ok(())
    }

    /// Observes the model where that is needed, and plans the directory.
    pub fn plan(
        &self,
        scheme: Scheme,
        c: &Container,
        output: &Path,
        requantize: bool,
        threads: usize,
    ) -> anyhow::Result<Job> {
        self.refuse(scheme, output)?;
        let tokens = self.calibrate_tokens.unwrap_or(TOKENS);
        let mut words = format!("{scheme:?} {self:?} {requantize}");
        let mut options = slim::Options {
            scheme,
            group: self.group,
            symmetric: self.symmetric,
            smooth: self.smooth,
            cache: self.kv.is_some(),
            observed: None,
            requantize,
            file: FILE,
            words: String::new(),
        };
        if let Some(file) = &self.calibrate {
            // what would be refused is refused before the model is run
            let alone = Scheme::W8A8Dynamic;
            let first = if scheme == Scheme::W8A8 { alone } else { scheme };
            slim::plan(c, &slim::Options { scheme: first, smooth: None, cache: false, ..options.clone() })?;
            let observed = calibrate::observe(c, file, tokens, threads)?;
            words += &format!(" {}", observed.tokens);
            options.observed = Some(observed);
        }
        let job = slim::plan(c, &slim::Options { words, ..options })?;
        if c.tokenizer_json.is_none() && c.kind.is_named_as_gguf() {
            note!("the tokeniser is kept as metadata.gguf, which other programs than isobit do not read");
        }
        Ok(job)
    }
}
