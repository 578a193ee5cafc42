//! `isobit verify`: one model on several devices, every word compared.

use super::CheckFailed;
use super::common::{self, EngineArgs, ModelArgs, note};
use crate::generate::tokenizer::Tokenizer;
use crate::generate::verify::{PROMPT_TOKENS, Report, Script, prompt, verify};
use crate::models::Hyper;
use crate::record::{BufId, Device, DeviceInfo, Plan, Step, WeightSource};
use crate::simd::Level;
use anyhow::ensure;
use clap::Args;
use futures::future::LocalBoxFuture;
use std::io::Write;
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit verify\n  isobit verify model.gguf --devices cpu,0 --tokens 32\n  isobit verify --devices cpu --batches\n\nExit code 1: some word differs."
)]
pub struct VerifyArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Devices, the first being the reference: cpu, cpu:scalar, cpu:LEVEL, an adapter's index or name
    /// [default: the CPU at every level (models over 256 MiB: at its best), then every adapter]
    #[arg(short = 'd', long, visible_alias = "device", value_delimiter = ',', value_name = "A,B")]
    #[arg(value_parser = common::word)]
    devices: Vec<String>,
    /// Tokens to generate after a prompt of 64 [default: 64]
    #[arg(long, value_name = "N", value_parser = common::count, allow_negative_numbers = true)]
    tokens: Option<usize>,
    /// Also feed the prompt whole and in pieces of 1, 3, 7 and 64, and demand one digest; then one device will do
    #[arg(long)]
    batches: bool,
    /// Flip one bit of what this command writes on the last device, to see it found
    #[arg(long, hide = true, value_name = "COMMAND")]
    plant_fault: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

pub fn run(a: VerifyArgs) -> anyhow::Result<ExitCode> {
    let c = a.model.open()?;
    let h = Hyper::read(&c)?;
    let prompt_len = PROMPT_TOKENS.min((h.context / 2).max(1));
    let room = h.context.saturating_sub(prompt_len);
    let tokens = a.tokens.unwrap_or(64.min(room));
    ensure!(
        tokens <= room,
        "--tokens is {tokens}, but {room} fit after the prompt in the model's {} positions",
        h.context
    );
    let n_ctx = if a.engine.ctx > 0 { a.engine.ctx } else { prompt_len + tokens };
    ensure!(n_ctx >= prompt_len + tokens, "-c is {n_ctx}, the prompt and {tokens} tokens need {}", prompt_len + tokens);
    let mut options = a.engine.session(n_ctx, 1);
    options.plan.ubatch = options.plan.ubatch.min(prompt_len);
    let script = Script {
        prompt: prompt(Tokenizer::read(&c).ok().as_ref(), h.vocab, prompt_len),
        generate: tokens,
        batches: if a.batches { vec![0, 1, 3, 7, 64] } else { vec![] },
    };
    let found = a.engine.devices();
    let specs =
        if a.devices.is_empty() { default_devices(found.adapters(), c.total_bytes()) } else { a.devices.clone() };
    let opened = specs.iter().map(|s| found.open(s)).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(
        opened.len() >= 2 || a.batches,
        "verify compares two devices, only {} is named; name two with --devices A,B, or add --batches",
        specs.join(",")
    );
    options.memory = common::share_of_memory(&opened);
    let mut devices: Vec<_> = opened.into_iter().map(|o| o.device).collect();
    if let Some(command) = a.plant_fault
        && let Some(inner) = devices.pop()
    {
        devices.push(Box::new(Faulty { inner, command, buffer: None }));
    }
    let names: Vec<String> = devices.iter().map(|d| d.info().name).collect();
    note!("{}: {prompt_len} tokens of prompt, {tokens} generated, on {}", c.files[0].display(), names.join(", "));
    let steps = 1 + tokens + script.batches.len() * devices.len();
    let bar = common::bar(steps as u64, "verifying {bar:30} {pos}/{len} {eta}");
    let report = pollster::block_on(verify(&mut devices, &c, &h, options, &script, || bar.inc(1)))?;
    bar.finish_and_clear();
    print(&a, &names, &report)?;
    if !report.ok() {
        anyhow::bail!(CheckFailed(match &report.first {
            Some(m) => format!("{} words differ, the first on {} in {}", report.mismatches, m.device, m.command),
            None => "the digests of different batches or devices differ".to_string(),
        }));
    }
    Ok(ExitCode::SUCCESS)
}

fn print(a: &VerifyArgs, names: &[String], r: &Report) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if a.json {
        let first = r.first.as_ref().map(|m| {
            serde_json::json!({"device": m.device, "command": m.command, "pos": m.pos, "buffer": m.buffer, "word": m.word,
                "expected": format!("{:08x}", m.expected), "found": format!("{:08x}", m.found)})
        });
        let digests: Vec<_> =
            r.digests.iter().map(|(d, n, h)| serde_json::json!({"device": d, "pieces": n, "digest": h})).collect();
        let v = serde_json::json!({
            "ok": r.ok(), "devices": names, "ctk": a.engine.ctk.name(), "ctv": a.engine.ctv.name(), "kv_recent": a.engine.recent(), "activations": a.engine.activations,
            "commands_compared": r.commands, "words_compared": r.words, "mismatches": r.mismatches,
            "first_mismatch": first, "digest": r.digest, "digests": digests,
        });
        return Ok(writeln!(out, "{v}")?);
    }
    writeln!(out, "commands compared: {}", r.commands)?;
    writeln!(out, "words compared:    {}", r.words)?;
    writeln!(out, "mismatches:        {}", r.mismatches)?;
    if let Some(m) = &r.first {
        writeln!(
            out,
            "first mismatch:    {} at position {}, {}, buffer {} word {}: expected {:08x} ({:e}), found {:08x} ({:e})",
            m.device,
            m.pos,
            m.command,
            m.buffer,
            m.word,
            m.expected,
            f32::from_bits(m.expected),
            m.found,
            f32::from_bits(m.found)
        )?;
    }
    writeln!(out, "digest:            {}", r.digest)?;
    for (device, pieces, digest) in &r.digests {
        let how = if *pieces == 0 { "whole".to_string() } else { format!("in pieces of {pieces}") };
        let verdict = if *digest == r.digest { "same" } else { "DIFFERENT" };
        writeln!(
            out,
            "prompt {how} on {device}: {verdict}{}",
            if *digest == r.digest { String::new() } else { format!(" {digest}") }
        )?;
    }
    Ok(())
}

/// Above this many bytes of tensors the slow levels are left out unless named: the plain twins would take hours.
const SLOW_LEVELS_UP_TO: u64 = 256 << 20;

fn default_devices(adapters: usize, model_bytes: u64) -> Vec<String> {
    let levels = Level::available();
    let mut list = Vec::new();
    if model_bytes <= SLOW_LEVELS_UP_TO {
        list.push("cpu:scalar".to_string());
        list.extend(levels.iter().map(|l| format!("cpu:{}", l.name())));
    } else {
        list.push("cpu".to_string());
        // with no adapter there would be nothing to compare with
        list.extend(levels.iter().rev().nth(1).filter(|_| adapters == 0).map(|l| format!("cpu:{}", l.name())));
    }
    list.extend((0..adapters).map(|i| i.to_string()));
    list
}

/// A device that gets one bit wrong.
struct Faulty {
    inner: Box<dyn Device>,
    /// index of the command whose result is spoilt
    command: usize,
    /// what that command writes
    buffer: Option<BufId>,
}

impl Device for Faulty {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn load<'a>(&'a mut self, plan: Plan, weights: &'a mut dyn WeightSource) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.buffer = plan.recording.commands.get(self.command).and_then(|c| c.outputs().first().copied());
        self.inner.load(plan, weights)
    }

    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>> {
        self.inner.run(step)
    }

    fn run_one<'a>(&'a mut self, command: usize, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        let buffer = self.buffer.filter(|_| command == self.command);
        Box::pin(async move {
            self.inner.run_one(command, step).await?;
            if let Some(buffer) = buffer {
                let mut words = self.inner.read(buffer).await?;
                words[0] ^= 1;
                self.inner.write(buffer, &words).await?;
            }
            Ok(())
        })
    }

    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        self.inner.read(buffer)
    }

    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.write(buffer, words)
    }
}
