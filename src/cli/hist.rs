//! `isobit hist`: what quantising does to the weights of a model, before hours are spent on perplexity.

use super::CheckFailed;
use super::common::{self, Load, note};
use super::interrupt;
use crate::blocks::BlockType;
use crate::formats::output::replace_file;
use crate::formats::policy::Policy;
use crate::study::errors::{DEFINITIONS, Errors, SPIKY, change};
use crate::study::gate::{Gate, parse_type};
use crate::study::measure::{self, Wanted};
use crate::study::report::{self, Study};
use anyhow::{Context, ensure};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit hist model-f16.gguf -o report\n  isobit hist ./hf-directory --types q8k,q8k128 --policy qkv --fail-if \"qkv.rmse_change > -5%\"\n\nPolicies: off, layer0-qkv, early-qkv, qkv, attn, q8k, all.\nGates: GROUP.METRIC[@TYPE] OP NUMBER[%], GROUP one of qkv, o, gate_up, down, lm_head, embed, model."
)]
pub struct HistArgs {
    /// GGUF or safetensors file, or Hugging Face directory
    input: PathBuf,
    /// Types to compare, the first being the baseline
    #[arg(long, value_delimiter = ',', default_value = "q8k,q8k128,q6k,q4k", value_name = "TYPES", value_parser = block_type)]
    types: Vec<BlockType>,
    /// Which tensors get the other types (the rest keep the baseline); without it every matrix, embeddings too
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    policy: Option<Policy>,
    /// Write report.html, hist.json and three CSV files to this directory
    #[arg(short = 'o', long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Exit 1 if this holds, as in "qkv.rmse_change > -5%"; may be repeated
    #[arg(long, value_name = "EXPR", value_parser = gate)]
    fail_if: Vec<Gate>,
    /// How many times the others of its block an element must be for the block to be spiky
    #[arg(long, default_value_t = SPIKY, value_name = "X", value_parser = threshold)]
    spiky: f64,
    /// List every tensor, however many there are
    #[arg(long)]
    tensors: bool,
    /// How files are read: read or mmap
    #[arg(long, value_enum, default_value = "read", value_name = "MODE", hide_possible_values = true)]
    load_mode: Load,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn block_type(s: &str) -> Result<BlockType, String> {
    parse_type(s.trim()).map_err(|e| e.to_string())
}

fn policy(s: &str) -> Result<Policy, String> {
    Policy::parse(s.trim()).ok_or_else(|| format!("expected one of {}", Policy::NAMES))
}

fn gate(s: &str) -> Result<Gate, String> {
    Gate::parse(s).map_err(|e| e.to_string())
}

fn threshold(s: &str) -> Result<f64, String> {
    s.parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0).ok_or("expected a number above 0".into())
}

/// Up to this many tensors are listed without `--tensors`.
const FEW: usize = 40;

pub fn run(a: HistArgs) -> anyhow::Result<ExitCode> {
    let wanted = Wanted { types: a.types.clone(), policy: a.policy, spiky: a.spiky };
    for (i, t) in wanted.types.iter().enumerate() {
        ensure!(!wanted.types[..i].contains(t), "--types names {} twice", t.name());
    }
    for g in &a.fail_if {
        g.check(&wanted.types).context("--fail-if")?;
    }
    let c = common::open(Some(&a.input), a.load_mode)?;
    let (jobs, skipped) = measure::plan(&c, &wanted)?;
    if let Some(dir) = &a.out {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        common::takes_files(dir).context("-o")?;
    }
    let bar = common::bar(
        jobs.iter().map(measure::Job::bytes).sum(),
        "encoding and comparing {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}",
    );
    let tensors = jobs.iter().map(|j| j.measure(&c, &wanted, |n| bar.inc(n))).collect::<anyhow::Result<Vec<_>>>();
    bar.finish_and_clear();
    let tensors = tensors?;
    let summaries = measure::summarise(&tensors, wanted.types.len());
    let mut gates = Vec::new();
    for g in &a.fail_if {
        let found = g.ask(&summaries, &wanted.types).context("--fail-if")?;
        gates.push((g.text().to_string(), found));
    }
    let study = Study { model: a.input.display().to_string(), wanted, tensors, skipped, summaries, gates };
    // the figures are printed before the report is written, so that a full disk does not hide them
    let mut out = std::io::stdout().lock();
    if a.json {
        writeln!(out, "{}", report::json(&study))?;
    } else {
        print(&study, a.tensors || study.tensors.len() <= FEW, &mut out)?;
    }
    drop(out);
    if let Some(dir) = &a.out {
        interrupt::whole(|| write_all(dir, &study))?;
        note!("written: {}", dir.join("report.html").display());
    }
    let failed: Vec<String> = (study.gates.iter())
        .flat_map(|(text, found)| found.iter().filter(|f| f.fails).map(move |f| (text, f)))
        .map(|(text, f)| format!("{text}: {} has {}", f.ty.name(), f.text()))
        .collect();
    ensure!(failed.is_empty(), CheckFailed(format!("gate failed: {}", failed.join("; "))));
    Ok(ExitCode::SUCCESS)
}

fn write_all(dir: &Path, s: &Study) -> anyhow::Result<()> {
    let files = [
        ("tensors.csv", report::tensors_csv(s)?),
        ("groups.csv", report::groups_csv(s)?),
        ("histogram.csv", report::histogram_csv(s)?),
        ("hist.json", format!("{}\n", report::json(s))),
        ("report.html", report::html(s)?),
    ];
    files.iter().try_for_each(|(name, text)| Ok(replace_file(&dir.join(name), text.as_bytes())?))
}

fn print(s: &Study, all: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let line = |s: &str| super::one_line(s);
    writeln!(
        out,
        "{}: {} tensors, {} weights, stored as {}",
        line(&s.model),
        s.tensors.len(),
        s.elements(),
        s.sources()
    )?;
    writeln!(out, "{}", s.scope())?;
    if let Some(caveat) = s.caveat() {
        writeln!(out, "{caveat}")?;
    }
    for k in &s.skipped {
        writeln!(out, "left out: {}: {}", line(&k.name), line(&k.why))?;
    }
    if all {
        writeln!(out)?;
        let width = s.tensors.iter().map(|t| t.name.chars().count()).max().unwrap_or(0).clamp(6, 64);
        writeln!(out, "{:width$} {:7} {HEAD}", "tensor", "type")?;
        for t in &s.tensors {
            for (i, e) in t.types.iter().enumerate() {
                let name = if i == 0 { line(&t.name) } else { String::new() };
                writeln!(out, "{name:width$} {:7} {}", s.wanted.types[i].name(), figures(&t.types[0], e, i == 0))?;
            }
        }
    }
    writeln!(out, "\n{:8} {:>7} {:7} {HEAD} {:>9}", "group", "tensors", "type", "improved")?;
    for g in &s.summaries {
        for (i, t) in g.types.iter().enumerate() {
            let (name, n) = if i == 0 { (g.name(), g.tensors.to_string()) } else { ("", String::new()) };
            let improved = if i == 0 { String::new() } else { format!("{}/{}", t.improved, t.layers) };
            let row = figures(&g.types[0].errors, &t.errors, i == 0);
            writeln!(
                out,
                "{}",
                format!("{name:8} {n:>7} {:7} {row} {improved:>9}", s.wanted.types[i].name()).trim_end()
            )?;
        }
    }
    writeln!(out)?;
    for sentence in report::sentences(s) {
        writeln!(out, "{sentence}")?;
    }
    if !all {
        writeln!(out, "{} tensors: --tensors lists them, -o DIR writes them to tensors.csv", s.tensors.len())?;
    }
    for (text, found) in &s.gates {
        for f in found {
            let verdict = if f.fails { "FAILS" } else { "passes" };
            writeln!(out, "gate {text}: {} {} {verdict}", f.ty.name(), f.text())?;
        }
    }
    writeln!(out, "\nDefinitions (threshold of spiky: {}):", s.wanted.spiky)?;
    DEFINITIONS.iter().try_for_each(|(name, text)| writeln!(out, "  {name:8} {text}"))?;
    Ok(())
}

const HEAD: &str = "      rmse    change       mae       max   nrmse     rel  collapse     spiky";

fn figures(base: &Errors, e: &Errors, is_base: bool) -> String {
    let change = if is_base { "-".to_string() } else { format!("{:+.2}%", change(base.rmse(), e.rmse())) };
    let spiky = if e.blocks == 0 { "-".to_string() } else { e.spiky.to_string() };
    format!(
        "{:10.4e} {change:>9} {:9.3e} {:9.3e} {:6.3}% {:6.3}% {:9} {spiky:>9}",
        e.rmse(),
        e.mae(),
        e.max,
        e.nrmse() * 100.0,
        e.rel() * 100.0,
        e.collapsed
    )
}
