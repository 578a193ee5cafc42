//! `isobit verify`: one model on several devices, every word compared.

use super::CheckFailed;
use super::common::{self, EngineArgs, ModelArgs};
use crate::generate::verify::{Report, Script, verify};
use crate::models::Hyper;
use crate::simd::Level;
use anyhow::ensure;
use clap::Args;
use std::io::Write;
use std::process::ExitCode;

/// Tokens of the prompt, cut or repeated to length.
const PROMPT_TOKENS: usize = 64;

/// A prompt that any tokeniser turns into varied ids.
const PROMPT: &str = "Once upon a time there was a king who had three sons, and the youngest of them was called Jack. \
    One day the king said: 'Whoever brings me the bird that sings 7 songs in 12 keys shall have the kingdom.' \
    So they went out into the wide world, each by a different road, and did not come home for many years.";

#[derive(Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Devices, the first being the reference: cpu, cpu:scalar, cpu:LEVEL, an adapter's index or name
    /// [default: the CPU at every level, then every adapter]
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    devices: Vec<String>,
    /// Tokens to generate after a prompt of 64
    #[arg(long, default_value_t = 64, value_name = "N")]
    tokens: usize,
    /// Also feed the prompt whole and in pieces of 1, 3, 7 and 64, and demand one digest
    #[arg(long)]
    batches: bool,
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
    let tokens = a.tokens.min(h.context - prompt_len.min(h.context));
    let n_ctx = if a.engine.ctx > 0 { a.engine.ctx } else { prompt_len + tokens };
    ensure!(n_ctx >= prompt_len + tokens, "-c is {n_ctx}, the prompt and {tokens} tokens need {}", prompt_len + tokens);
    let mut options = a.engine.session(n_ctx, 1)?;
    options.plan.ubatch = options.plan.ubatch.min(prompt_len);
    let script = Script {
        prompt: prompt(&c, &h, prompt_len),
        generate: tokens,
        batches: if a.batches { vec![0, 1, 3, 7, 64] } else { vec![] },
    };
    let mut devices = Vec::new();
    for spec in if a.devices.is_empty() { default_devices() } else { a.devices.clone() } {
        devices.push(a.engine.device(&spec)?);
    }
    ensure!(devices.len() >= 2, "verify needs two devices, {} found; name them with --devices A,B", devices.len());
    let names: Vec<String> = devices.iter().map(|d| d.info().name).collect();
    eprintln!("{}: {} tokens of prompt, {tokens} generated, on {}", c.files[0].display(), prompt_len, names.join(", "));
    let steps = 1 + tokens + script.batches.len() * devices.len();
    let bar = common::bar(steps as u64, "verifying {bar:30} {pos}/{len} {eta}");
    let report = pollster::block_on(verify(&mut devices, &c, &h, options, &script, || bar.inc(1)))?;
    bar.finish_and_clear();
    print(&a, &names, &report)?;
    if !report.ok() {
        anyhow::bail!(CheckFailed(match &report.first {
            Some(m) =>
                format!("{} words differ", report.mismatches).to_string()
                    + &format!(", the first on {} in {}", m.device, m.command),
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
            "ok": r.ok(), "devices": names, "ctk": a.engine.ctk, "ctv": a.engine.ctv, "activations": a.engine.activations,
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

fn default_devices() -> Vec<String> {
    let mut list = vec!["cpu:scalar".to_string()];
    list.extend(Level::available().into_iter().map(|l| format!("cpu:{}", l.name())));
    #[cfg(feature = "gpu")]
    list.extend(pollster::block_on(crate::host::adapters()).iter().map(|a| a.index.to_string()));
    list
}

/// The fixed text in the model's own ids, or a fixed sequence of ids where it has no usable tokeniser.
fn prompt(c: &crate::formats::Container, h: &Hyper, len: usize) -> Vec<u32> {
    let ids = common::tokenizer(c).ok().and_then(|t| t.encode(PROMPT, t.adds_bos(), false).ok());
    let ids = ids.filter(|ids| !ids.is_empty() && ids.iter().all(|&id| (id as usize) < h.vocab));
    let ids = ids.unwrap_or_else(|| {
        (0..len as u64).map(|i| ((i * i * 7919 + i * 104729 + 13) % h.vocab as u64) as u32).collect()
    });
    ids.iter().copied().cycle().take(len).collect()
}
