//! `isobit verify`: one model on several devices, every word compared.
//!
//! There are two passes. In the first the engine is what `run` would have; in the second the cache has several pages, and
//! adapters split the attention of short steps. Both must give one digest.

use super::CheckFailed;
use super::common::{self, EngineArgs, ModelArgs, note};
use crate::engine::{Device as Opened, Devices, Head};
use crate::generate::verify::{PROMPT_TOKENS, Report, Script, prompt, verify_paged};
use crate::record::{Best, BufId, Device, DeviceInfo, Plan, Stats, Step, WeightSource};
use crate::simd::Level;
use anyhow::{bail, ensure};
use clap::Args;
use futures::future::LocalBoxFuture;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

/// Positions of a cache page in the second pass, at most: two chunks of 64.
const PAGE: usize = 128;

/// The variant of adapters in the second pass: attention over chunks that are joined, in steps of up to 4 tokens.
const SPLIT: &str = "split";

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
    /// Tokens to generate after a prompt of 190 [default: 24]
    #[arg(long, value_name = "N", value_parser = common::count, allow_negative_numbers = true)]
    tokens: Option<usize>,
    /// Also feed the prompt in pieces of 1, 3, 7 and 64, and demand one digest; then one device will do
    #[arg(long)]
    batches: bool,
    /// Let a device be compared with itself
    #[arg(long)]
    same_device: bool,
    /// Have a fault, to see it found: the number of a command, of whose result one bit is flipped on the last device; step,
    /// selection: one bit of what a whole step hands back there; nan, zeros: in the logits of all devices
    #[arg(long, hide = true, value_name = "WHAT", value_parser = fault)]
    plant_fault: Option<Fault>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

/// One walk through the script.
struct Pass {
    /// positions of a cache page, at most
    page: usize,
    report: Report,
}

pub fn run(a: VerifyArgs) -> anyhow::Result<ExitCode> {
    let model = a.model.model()?;
    let (c, h) = (model.container(), model.hyper());
    let prompt_len = PROMPT_TOKENS.min((h.context / 2).max(1));
    let room = h.context.saturating_sub(prompt_len);
    // an encoder generates none
    let encoder = model.is_encoder();
    let tokens = a.tokens.unwrap_or(if encoder { 0 } else { 24.min(room) });
    ensure!(
        !encoder || tokens == 0,
        "--tokens is {tokens}, but a {} model generates none; leave it out",
        h.family.name()
    );
    ensure!(
        tokens <= room,
        "--tokens is {tokens}, but {room} fit after the prompt in the model's {} positions",
        h.context
    );
    let n_ctx = if a.engine.ctx > 0 { a.engine.ctx } else { prompt_len + tokens };
    ensure!(n_ctx >= prompt_len + tokens, "-c is {n_ctx}, the prompt and {tokens} tokens need {}", prompt_len + tokens);
    let mut options = a.engine.session(n_ctx, 1);
    options.plan.ubatch = options.plan.ubatch.min(prompt_len);
    if encoder {
        options.plan.head = Head::Hidden;
    }
    let script = Script {
        prompt: prompt(model.tokenizer().ok(), h.vocab, prompt_len),
        generate: tokens,
        batches: if a.batches { vec![0, 1, 3, 7, 64] } else { vec![0] },
    };
    let mut found = a.engine.devices();
    let specs =
        if a.devices.is_empty() { default_devices(found.adapters(), c.total_bytes()) } else { a.devices.clone() };
    let mut passes: Vec<Pass> = Vec::new();
    let mut names = Vec::new();
    for page in [usize::MAX, PAGE.min((prompt_len + tokens - 1) / 64 * 64)] {
        if page == 0 {
            // one chunk is all there is, and one page holds it
            break;
        }
        found.fall_back_on((page < usize::MAX).then_some(SPLIT));
        let opened = specs.iter().map(|s| found.open(s)).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(
            opened.len() >= 2 || a.batches,
            "verify compares two devices, only {} is named; name two with --devices A,B, or add --batches",
            specs.join(",")
        );
        ensure!(
            a.same_device || twice(&opened).is_none(),
            "--devices names {} twice, and a device agrees with itself; name another, or add --same-device",
            twice(&opened).unwrap_or_default()
        );
        options.memory = Devices::share_of_memory(&opened);
        let mut devices: Vec<_> = opened.into_iter().map(|o| o.inner).collect();
        if let Some(fault) = a.plant_fault {
            devices = plant(devices, fault);
        }
        if passes.is_empty() {
            names = devices.iter().map(|d| d.info().name).collect();
            note!(
                "{}: {prompt_len} tokens of prompt, {tokens} generated, on {}",
                c.files[0].display(),
                names.join(", ")
            );
        }
        let bar = common::bar((8 + tokens) as u64, "verifying {bar:30} {pos}/{len} {eta}");
        bar.inc_length((devices.len() * (script.batches.len() + 1)) as u64);
        let report = pollster::block_on(verify_paged(&mut devices, c, h, options, page, &script, || bar.inc(1)))?;
        bar.finish_and_clear();
        let failed = !report.ok();
        passes.push(Pass { page, report });
        if failed {
            break;
        }
    }
    let failed = failure(&passes);
    let o = &a.engine;
    let fingerprint = a.json.then(|| o.fingerprint(&model, n_ctx, (o.ctk, o.ctv, o.kv_recent))).transpose()?;
    print(&a, &names, &passes, failed.is_none(), fingerprint)?;
    match failed {
        Some(why) => bail!(CheckFailed(why)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The name of a device that is there twice.
fn twice(opened: &[Opened]) -> Option<String> {
    // two adapters may have one name
    let keys: Vec<_> = opened.iter().map(|o| (o.adapter().map(|a| a.index), o.name())).collect();
    keys.iter().enumerate().find(|(i, key)| keys[..*i].contains(key)).map(|(_, (_, name))| name.clone())
}

/// What is wrong, in one line.
fn failure(passes: &[Pass]) -> Option<String> {
    for r in passes.iter().map(|p| &p.report) {
        if let Some(m) = &r.first {
            return Some(format!("{} words differ, the first on {} in {}", r.mismatches, m.device, m.command));
        }
        if let Some((device, pieces, _)) = r.digests.iter().find(|d| d.2 != r.digest) {
            let pos = r.differs.unwrap_or_default();
            return Some(format!(
                "every word of every command agrees, but a submit for each step, the prompt {}, gives other logits on \
                 {device}, first at position {pos}",
                how(*pieces)
            ));
        }
        if let Some((s, pos)) = r.selections.iter().find_map(|s| Some((s, s.differs?))) {
            return Some(format!(
                "every word of every command agrees, but {} selects other logits in whole steps, first at position {pos}",
                s.device
            ));
        }
    }
    let one = passes.iter().all(|p| p.report.digest == passes[0].report.digest);
    (!one).then(|| "the digests differ by the pages of the cache".to_string())
}

fn how(pieces: usize) -> String {
    if pieces == 0 { "whole".to_string() } else { format!("in pieces of {pieces}") }
}

/// `1 page`, `2 pages of 128 positions at most`.
fn pages(p: &Pass) -> String {
    match p.report.covered.pages {
        1 => "1 page".into(),
        n if p.page == usize::MAX => format!("{n} pages"),
        n => format!("{n} pages of at most {} positions", p.page),
    }
}

fn print(
    a: &VerifyArgs,
    names: &[String],
    passes: &[Pass],
    ok: bool,
    fingerprint: Option<String>,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let sum = |of: fn(&Report) -> u64| passes.iter().map(|p| of(&p.report)).sum::<u64>();
    let (commands, words, mismatches) = (sum(|r| r.commands), sum(|r| r.words), sum(|r| r.mismatches));
    let first = passes.iter().find_map(|p| p.report.first.as_ref());
    let digest = &passes[0].report.digest;
    if a.json {
        let first = first.map(|m| {
            json!({"device": m.device, "command": m.command, "pos": m.pos, "buffer": m.buffer, "word": m.word,
                "expected": format!("{:08x}", m.expected), "found": format!("{:08x}", m.found)})
        });
        let all = |of: fn(&Pass) -> Vec<serde_json::Value>| passes.iter().flat_map(of).collect::<Vec<_>>();
        let digests = all(|p| {
            let cut = (p.page < usize::MAX).then_some(p.page);
            let each = p.report.digests.iter();
            each.map(|(d, n, h)| json!({"device": d, "pieces": n, "page": cut, "digest": h})).collect()
        });
        let selections = all(|p| {
            let cut = (p.page < usize::MAX).then_some(p.page);
            let each = p.report.selections.iter();
            each.map(|s| json!({"device": s.device, "ahead": s.ahead, "page": cut, "first_difference": s.differs}))
                .collect()
        });
        let covered = all(|p| {
            let c = &p.report.covered;
            let kernels: serde_json::Map<_, _> = c.kernels.iter().map(|(d, k)| (d.clone(), json!(k))).collect();
            vec![json!({"positions": c.positions, "pages": c.pages, "steps": c.steps, "commands": p.report.commands,
                "words": p.report.words, "kernels": kernels})]
        });
        let v = json!({
            "ok": ok, "devices": names, "fingerprint": fingerprint, "ctk": a.engine.ctk.name(), "ctv": a.engine.ctv.name(), "kv_recent": a.engine.recent(), "activations": a.engine.activations,
            "commands_compared": commands, "words_compared": words, "mismatches": mismatches,
            "first_mismatch": first, "digest": digest, "digests": digests, "selections": selections, "covered": covered,
        });
        return Ok(writeln!(out, "{v}")?);
    }
    writeln!(out, "commands compared: {commands}")?;
    writeln!(out, "words compared:    {words}")?;
    writeln!(out, "mismatches:        {mismatches}")?;
    if let Some(m) = first {
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
    writeln!(out, "digest:            {digest}")?;
    for p in passes {
        let (r, c) = (&p.report, &p.report.covered);
        if !r.digests.is_empty() || !r.selections.is_empty() {
            writeln!(out, "a submit for each step, the cache in {}:", pages(p))?;
        }
        for (device, pieces, found) in &r.digests {
            let verdict = if *found == r.digest { "same".to_string() } else { format!("DIFFERENT {found}") };
            writeln!(out, "  prompt {} on {device}: {verdict}", how(*pieces))?;
        }
        for s in &r.selections {
            let ahead = if s.ahead > 1 { "the next step begun before" } else { "step by step" };
            let verdict = s.differs.map_or("same".into(), |pos| format!("DIFFERENT from position {pos}"));
            writeln!(out, "  selection, {ahead}, on {}: {verdict}", s.device)?;
        }
        if c.positions > 0 {
            let steps: Vec<String> = c.steps.iter().map(|(tokens, n)| format!("{n} of {tokens}")).collect();
            let steps = steps.join(", ");
            writeln!(out, "covered, the cache in {}: {} positions; steps by tokens: {steps}", pages(p), c.positions)?;
        }
        for (device, kernels) in &c.kernels {
            writeln!(out, "  kernels of {device}: {}", kernels.join(" "))?;
        }
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

/// What to get wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// a bit of what this command writes, in the walk
    Command(usize),
    /// a bit of the logits that a whole step hands back
    Step,
    /// a bit of the best logit that a whole step selects
    Selection,
    /// these bits in the first of the logits, in the walk
    Logit(u32),
    /// all logits, in the walk
    Zeros,
}

fn fault(s: &str) -> Result<Fault, String> {
    match s {
        "step" => Ok(Fault::Step),
        "selection" => Ok(Fault::Selection),
        "nan" => Ok(Fault::Logit(f32::NAN.to_bits())),
        "zeros" => Ok(Fault::Zeros),
        _ => s.parse().map(Fault::Command).map_err(|_| "expected a number, step, selection, nan or zeros".into()),
    }
}

/// Devices with a fault: all of them where they shall agree on it, else the last.
fn plant(devices: Vec<Box<dyn Device>>, fault: Fault) -> Vec<Box<dyn Device>> {
    let (last, all) = (devices.len() - 1, matches!(fault, Fault::Logit(_) | Fault::Zeros));
    let faulty = |inner| -> Box<dyn Device> { Box::new(Faulty { inner, fault, outputs: vec![], logits: None }) };
    devices.into_iter().enumerate().map(|(i, d)| if all || i == last { faulty(d) } else { d }).collect()
}

/// A device that gets something wrong.
struct Faulty {
    inner: Box<dyn Device>,
    fault: Fault,
    /// the first buffer that each command writes
    outputs: Vec<Option<BufId>>,
    logits: Option<BufId>,
}

impl Device for Faulty {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn load<'a>(&'a mut self, plan: Plan, weights: &'a mut dyn WeightSource) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.outputs = plan.recording.commands.iter().map(|c| c.outputs().first().copied()).collect();
        self.logits = plan.logits;
        self.inner.load(plan, weights)
    }

    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>> {
        Box::pin(async move {
            let mut logits = self.inner.run(step).await?;
            if let (Fault::Step, Some(logit)) = (self.fault, logits.first_mut()) {
                *logit = f32::from_bits(logit.to_bits() ^ 1);
            }
            Ok(logits)
        })
    }

    fn ahead(&self) -> usize {
        self.inner.ahead()
    }

    fn submit<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.submit(step)
    }

    fn collect<'a>(&'a mut self, best: &'a mut Vec<Best>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            self.inner.collect(best).await?;
            if let (Fault::Selection, Some(best)) = (self.fault, best.first_mut()) {
                best.logit = f32::from_bits(best.logit.to_bits() ^ 1);
            }
            Ok(())
        })
    }

    fn begin<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.begin(step)
    }

    fn run_one(&mut self, command: usize) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            self.inner.run_one(command).await?;
            let Some(&Some(buffer)) = self.outputs.get(command) else { return Ok(()) };
            let logits = Some(buffer) == self.logits;
            let mut words = match self.fault {
                Fault::Command(n) if n == command => self.inner.read(buffer).await?,
                Fault::Logit(_) | Fault::Zeros if logits => self.inner.read(buffer).await?,
                _ => return Ok(()),
            };
            match self.fault {
                Fault::Logit(bits) => words[0] = bits,
                Fault::Zeros => words.fill(0),
                _ => words[0] ^= 1,
            }
            self.inner.write(buffer, &words).await
        })
    }

    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        self.inner.read(buffer)
    }

    fn take_stats(&mut self) -> Stats {
        self.inner.take_stats()
    }

    fn kernels(&self) -> Vec<String> {
        self.inner.kernels()
    }

    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.write(buffer, words)
    }
}
