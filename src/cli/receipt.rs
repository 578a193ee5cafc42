//! `isobit receipt`: checking what a run was, and keys to sign it with.

use super::CheckFailed;
use super::common::{self, DeviceError, ModelArgs, Status, note};
use super::interrupt;
use crate::engine::{self, DeviceOptions, Devices, Model, Session, SessionOptions};
use crate::formats::output::replace_file;
use crate::receipts::{Checked, Difference, Key, PublicKey, Run, Sample, check};
use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit run -p \"Once upon a time\" --receipt story.json\n  isobit receipt check story.json --device gpu\n  isobit receipt check story.json model.gguf --sample 5% --json\n  isobit receipt key my.key"
)]
pub struct ReceiptArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Compute a run again, on any device, and name the first token that differs
    Check(Box<CheckArgs>),
    /// Make a key that signs receipts
    Key(KeyArgs),
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit receipt check story.json\n  isobit receipt check story.json model.gguf --device cpu --sample 5%\n  isobit receipt check story.json --key my.key.pub --json\n\nExit codes: 0 all that was checked is equal, 1 something differs, 2 a bad file or another signer."
)]
struct CheckArgs {
    /// The receipt, or a run that was kept
    file: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    on: OnArgs,
    /// Check a random share of the tokens, as 5%, in pieces of 16
    #[arg(long, value_name = "SHARE", value_parser = share)]
    sample: Option<f64>,
    /// What chooses the sample [default: random]
    #[arg(long, value_name = "N", requires = "sample")]
    sample_seed: Option<u64>,
    /// The receipt must be signed with this public key: 64 digits, or a file with them
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit receipt key my.key\n  isobit run -p Hello --receipt hello.json --sign my.key\n\nThe file is the secret, one line of 64 hexadecimal digits (the seed of ed25519, RFC 8032), which nobody else may\nread. FILE.pub is the public key, which goes to those who check."
)]
struct KeyArgs {
    /// Where the secret is written; FILE.pub gets the public key
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Where something is computed again.
#[derive(Args)]
pub struct OnArgs {
    /// auto, cpu, cpu:LEVEL, gpu, an index of `isobit devices`, or part of an adapter's name
    #[arg(short = 'd', long, default_value = "auto", env = "ISOBIT_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::word)]
    device: String,
    /// CPU threads; 0: one per core
    #[arg(short = 't', long, default_value = "0", value_name = "N", value_parser = common::whole::<0, 1024>)]
    #[arg(env = "ISOBIT_THREADS", hide_env_values = true, allow_negative_numbers = true)]
    threads: usize,
}

impl OnArgs {
    /// A session of a model.
    pub fn session(&self, model: &Model, options: SessionOptions) -> anyhow::Result<Session> {
        let devices =
            DeviceOptions { threads: self.threads, stop: interrupt::stop().clone(), ..DeviceOptions::default() };
        let device = Devices::new(devices).open(&self.device).map_err(|e| match e {
            engine::Error::Device(cause) => DeviceError(format!("--device {cause}")).into(),
            other => anyhow::Error::from(other),
        })?;
        if let Some(why) = device.instead() {
            note!("{why}: running on the CPU");
        }
        let bar = common::load_bar(model.container());
        let ticking = bar.clone();
        let session = Session::new(model, device, options, move |n| ticking.inc(n))?;
        bar.finish_and_clear();
        Ok(session)
    }
}

/// Rows of logits a step gives at most: each takes the memory of a vocabulary.
pub const ROWS: usize = 64;

/// `5%`, `0.05`.
fn share(s: &str) -> Result<f64, String> {
    let (number, of) = s.strip_suffix('%').map_or((s, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|n| n / of).filter(|n| *n > 0.0 && *n <= 1.0);
    share.ok_or_else(|| "expected a share, more than 0 and at most 100%, as in 5%".to_string())
}

/// A file of a run or a receipt.
pub fn load(file: &Path) -> anyhow::Result<Run> {
    Run::load(file).with_context(|| file.display().to_string())
}

/// A key that signs.
pub fn key(file: &Path) -> anyhow::Result<Key> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Key::parse(&text).with_context(|| file.display().to_string())
}

/// Reads the whole model, which takes a while, and says so.
pub fn digest(model: &Model) -> anyhow::Result<&str> {
    let _status = Status::new("reading the model for its digest");
    Ok(model.digest()?)
}

pub fn run(a: ReceiptArgs) -> anyhow::Result<ExitCode> {
    match a.what {
        What::Check(a) => check_it(&a),
        What::Key(a) => make_key(&a),
    }
}

fn check_it(a: &CheckArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let receipt = load(&a.file)?.receipt;
    let place = || a.file.display().to_string();
    if let Some(key) = &a.key {
        let file = Path::new(key);
        let text =
            if file.exists() { std::fs::read_to_string(file).with_context(|| key.clone())? } else { key.clone() };
        let key = PublicKey::parse(&text).with_context(|| format!("--key {key}"))?;
        receipt.signed_by(&key).with_context(place)?;
    }
    // what JSON readers with binary64 numbers keep
    let chance = || RandomState::new().build_hasher().finish() >> 11;
    let sample = a.sample.map(|share| Sample { share, seed: a.sample_seed.unwrap_or_else(chance) });
    let model = a.model.model()?;
    // of another model nothing needs to be loaded
    let found = digest(&model)?;
    let (checked, device) = if found == receipt.body.model.to_string() {
        let options = SessionOptions { rows: ROWS, ..receipt.body.least(&model).with_context(place)? };
        let mut session = a.on.session(&model, options)?;
        let _status = Status::new("checking the receipt");
        (check(&receipt, &mut session, sample).with_context(place)?, session.device().to_string())
    } else {
        let difference = Some(Difference::Model { expected: receipt.body.model, found: found.into() });
        (Checked { tokens: receipt.body.ids.len(), checked: 0, chunks: None, difference }, String::new())
    };
    let signer = receipt.signature.map(|s| s.key.to_string());
    let Checked { tokens, checked: n, chunks, difference } = &checked;
    if a.json {
        let v = json!({
            "ok": difference.is_none(), "id": receipt.body.id(), "tokens": tokens, "checked": n,
            "chunks": chunks.map(|(chosen, of)| json!({ "checked": chosen, "of": of })),
            "sample_seed": sample.map(|s| s.seed), "signed_by": signer, "device": device,
            "difference": difference.as_ref().map(told), "seconds": started.elapsed().as_secs_f64(),
        });
        writeln!(std::io::stdout(), "{v}")?;
        return Ok(ExitCode::from(u8::from(difference.is_some())));
    }
    if let Some(difference) = difference {
        return Err(CheckFailed(format!("{}: {difference}", a.file.display())).into());
    }
    let part = chunks.map_or(String::new(), |(chosen, of)| format!(", {chosen} of {of} pieces chosen at random"));
    writeln!(std::io::stdout(), "equal: {n} of {}{part}, logits and choice of each", common::tokens(*tokens))?;
    match (signer, sample) {
        (Some(key), _) => note!("signed by {key}"),
        (None, _) => note!("not signed: who made it, and where, is not known"),
    }
    if let Some(sample) = sample {
        note!("--sample-seed {} takes the same pieces again", sample.seed);
    }
    note!("on {device}, {:.1} s", started.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

/// A difference as an object: what it is of, and the sentence.
pub fn told(d: &Difference) -> Value {
    let line = d.to_string();
    match d {
        Difference::Token { index, position, expected, found, link } => json!({
            "what": "token", "index": index, "position": position, "expected": expected, "found": found,
            "logits_equal": link, "line": line,
        }),
        Difference::Logits { index, position, id } => json!({
            "what": "logits", "index": index, "position": position, "expected": id, "found": id, "logits_equal": false,
            "line": line,
        }),
        Difference::Model { .. } => json!({ "what": "model", "line": line }),
        Difference::Fingerprint { .. } => json!({ "what": "fingerprint", "line": line }),
        Difference::Name { .. } => json!({ "what": "name", "line": line }),
        Difference::Text { .. } => json!({ "what": "text", "line": line }),
        Difference::End { .. } => json!({ "what": "ended", "line": line }),
    }
}

fn make_key(a: &KeyArgs) -> anyhow::Result<ExitCode> {
    let mut public = a.file.clone().into_os_string();
    public.push(".pub");
    let public = PathBuf::from(public);
    for file in [&a.file, &public] {
        ensure!(!file.exists(), "{} is there already: a key that is lost cannot be made again", file.display());
    }
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|e| anyhow::anyhow!("the system gives no random bytes: {e}"))?;
    let key = Key::new(seed);
    secret(&a.file, key.text().as_bytes()).with_context(|| a.file.display().to_string())?;
    let digits = key.public().0.to_string();
    replace_file(&public, format!("{digits}\n").as_bytes())?;
    match a.json {
        true => {
            let v = json!({ "key": a.file.display().to_string(), "public": digits });
            writeln!(std::io::stdout(), "{v}")?;
        }
        false => writeln!(std::io::stdout(), "{digits}")?,
    }
    note!("{} is the secret: whoever has it signs in your name", a.file.display());
    Ok(ExitCode::SUCCESS)
}

/// A new file that its owner alone may read, from its first byte on.
fn secret(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = options.open(file)?;
    out.write_all(bytes)?;
    out.sync_all()
}
