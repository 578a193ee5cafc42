//! `isobit models`: what is there by name, and whether it runs.

use super::common::{self, note};
use super::inspect::size;
use crate::formats::{Container, ContainerKind, LoadMode, Tensor};
use crate::hub::{Entry, Folders, Listing, quantisation};
use crate::models::Hyper;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit models\n  isobit run user/model:Q4_K_M -p Hello\n  isobit run llama3.2:1b -p Hello\n  isobit models --json\n\nLooked in: Hugging Face's cache (HF_HUB_CACHE, HF_HOME), LM Studio's and Ollama's (OLLAMA_MODELS) folders.\nNothing is fetched and no weight is read; `isobit pull` fetches."
)]
pub struct ModelsArgs {
    /// Show only names that contain this
    filter: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What a file's header tells.
struct About {
    ty: String,
    arch: String,
    params: u64,
    context: Option<usize>,
    /// why it does not run
    why_not: Option<String>,
}

impl About {
    fn of(entry: &Entry) -> anyhow::Result<About> {
        let c = Container::open(&entry.path, LoadMode::Read)?;
        let hyper = Hyper::read(&c).and_then(|h| common::check_weights(&c, &h).map(|()| h));
        let arch = match c.kind {
            ContainerKind::Gguf | ContainerKind::Bump => c.meta.str("general.architecture"),
            _ => c.config.as_ref().and_then(|v| v["model_type"].as_str()),
        };
        let mut types: BTreeMap<&str, u64> = BTreeMap::new();
        for t in &c.tensors {
            *types.entry(t.dtype.name()).or_default() += t.bytes;
        }
        let most = types.into_iter().max_by_key(|(_, bytes)| *bytes).map_or("?", |(name, _)| name);
        let context = c.meta.uint(&format!("{}.context_length", arch.unwrap_or_default()));
        let context = hyper.as_ref().ok().map(|h| h.context).or(context.and_then(|n| usize::try_from(n).ok()));
        Ok(About {
            ty: quantisation(&entry.file).unwrap_or(most).to_uppercase(),
            arch: common::cut(&super::one_line(arch.unwrap_or("?"))),
            params: c.tensors.iter().map(Tensor::elems).fold(0, u64::saturating_add),
            context,
            why_not: hyper.err().map(|e| super::one_line(&format!("{e:#}"))),
        })
    }
}

/// `1.24 B`, `15.2 M`.
fn parameters(n: u64) -> String {
    let of = |unit: f64| n as f64 / unit;
    match n {
        1_000_000_000.. => format!("{:.2} B", of(1e9)),
        1_000_000.. => format!("{:.1} M", of(1e6)),
        _ => format!("{:.0} k", of(1e3)),
    }
}

pub fn run(a: ModelsArgs) -> anyhow::Result<ExitCode> {
    let folders = Folders::from_env();
    let listing = Listing::read(&folders);
    let filter = a.filter.as_deref().unwrap_or_default().to_lowercase();
    let mut shown = Vec::new();
    for entry in &listing.entries {
        let name = listing.name_of(entry).unwrap_or_else(|| entry.path.display().to_string());
        if name.to_lowercase().contains(&filter) {
            let about = About::of(entry).unwrap_or_else(|e| About {
                ty: "?".into(),
                arch: "?".into(),
                params: 0,
                context: None,
                why_not: Some(super::one_line(&format!("{e:#}"))),
            });
            shown.push((name, entry, about));
        }
    }
    let mut out = std::io::stdout().lock();
    if a.json {
        writeln!(out, "{}", object(&listing, &shown))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<[String; 8]> = shown.iter().map(|(name, entry, about)| row(name, entry, about)).collect();
    table(&rows, &mut out)?;
    for p in listing.passed.iter().filter(|p| p.what.to_lowercase().contains(&filter)) {
        writeln!(out, "passed over: {} ({}): {}", super::one_line(&p.what), p.place.name(), super::one_line(&p.why))?;
    }
    if rows.is_empty() {
        note!("no models found; `isobit pull user/model` fetches one, and any command takes a file by its path");
    }
    for (place, dir, there) in &listing.folders {
        note!("looked in {} ({}){}", dir.display(), place.name(), if *there { "" } else { ": not there" });
    }
    Ok(ExitCode::SUCCESS)
}

fn row(name: &str, entry: &Entry, about: &About) -> [String; 8] {
    let unknown = || "-".to_owned();
    [
        super::one_line(name),
        size(entry.bytes),
        about.ty.clone(),
        about.arch.clone(),
        if about.params > 0 { parameters(about.params) } else { unknown() },
        about.context.map_or_else(unknown, |n| n.to_string()),
        about.why_not.as_ref().map_or("yes".to_owned(), |why| format!("no: {}", common::cut(why))),
        entry.place.name().to_owned(),
    ]
}

fn table(rows: &[[String; 8]], out: &mut impl Write) -> std::io::Result<()> {
    const HEAD: [&str; 8] = ["name", "size", "type", "architecture", "parameters", "context", "runs", "in"];
    if rows.is_empty() {
        return Ok(());
    }
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).chain([HEAD[i].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    let head = HEAD.map(str::to_owned);
    for row in std::iter::once(&head).chain(rows) {
        let cells = row.iter().zip(&widths).map(|(cell, w)| format!("{cell:w$}", w = *w));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn object(listing: &Listing, shown: &[(String, &Entry, About)]) -> Value {
    let models: Vec<Value> = shown
        .iter()
        .map(|(name, e, a)| {
            json!({
                "name": name, "place": e.place.name(), "repository": e.repo, "file": e.file,
                "path": e.path.display().to_string(), "directory": e.is_dir, "bytes": e.bytes, "type": a.ty,
                "architecture": a.arch, "parameters": a.params, "context": a.context,
                "runs": a.why_not.is_none(), "why_not": a.why_not,
            })
        })
        .collect();
    let passed: Vec<Value> = listing
        .passed
        .iter()
        .map(|p| json!({"name": p.what, "place": p.place.name(), "path": p.path.display().to_string(), "why": p.why}))
        .collect();
    let folders: Vec<Value> = listing
        .folders
        .iter()
        .map(|(place, dir, there)| json!({"place": place.name(), "path": dir.display().to_string(), "there": there}))
        .collect();
    json!({"models": models, "passed_over": passed, "folders": folders})
}
