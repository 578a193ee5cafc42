//! `isobit devices`: adapters, limits, features, whether each is exact, and what a cached token costs.

use super::common::{self, Load};
use super::inspect::{cache_bytes, cells, recent_bytes, size};
use super::one_line;
use super::store;
use crate::cpu::choice::{Chosen, Memory};
use crate::cpu::{CpuDevice, CpuOptions};
use crate::limits::total_memory;
use crate::models::Hyper;
use crate::ops::cache::CacheType;
use crate::record::Device;
use crate::simd::Level;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Cached values that the table without a model counts, in heads of [`TABLE_HEAD`].
const TABLE_VALUES: usize = 1024;
const TABLE_HEAD: usize = 128;

#[derive(Args)]
#[command(after_help = "Examples:\n  isobit devices\n  isobit devices model.gguf --json")]
pub struct DevicesArgs {
    /// Say what a cached token of this model costs, rather than 1024 cached values
    model: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Where measurements are kept between runs
    #[arg(long, hide = true, value_name = "DIR", env = "ISOBIT_CACHE_DIR", hide_env_values = true)]
    cache_dir: Option<PathBuf>,
}

pub fn run(a: DevicesArgs) -> anyhow::Result<ExitCode> {
    let cpu = CpuDevice::new(CpuOptions::default())?.info().name;
    let levels: Vec<&str> = std::iter::once("scalar").chain(Level::available().into_iter().map(Level::name)).collect();
    let hyper = match &a.model {
        Some(path) => Some(Hyper::read(&common::open(Some(path), Load::Read)?)?),
        None => None,
    };
    let cache = match &hyper {
        Some(h) => cache_bytes(Some(h)),
        None => {
            let bytes = |words| words * 4 * TABLE_VALUES / TABLE_HEAD;
            CacheType::ALL.iter().map(|t| (t.name(), t.words(TABLE_HEAD).map(bytes))).collect()
        }
    };
    let tuned = Memory::open(store::open(a.cache_dir.as_deref())).all();
    let adapters = adapters();
    let mut out = std::io::stdout().lock();
    if a.json {
        let side = |c: &Chosen| {
            let against: serde_json::Map<_, _> = c.against.iter().map(|(n, r)| (n.clone(), (*r).into())).collect();
            serde_json::json!({
                "level": c.way.kernel.level.name(),
                "prefetch": c.way.kernel.fetch.name(),
                "threads": c.way.threads,
                "us_per_mib": c.us_per_mib,
                "against": against,
            })
        };
        let tuned: serde_json::Map<_, _> = tuned
            .iter()
            .map(|(kind, f)| (kind.clone(), serde_json::json!({ "few": side(&f.few), "many": side(&f.many) })))
            .collect();
        let cpu = serde_json::json!({ "name": cpu, "levels": levels, "memory": total_memory(), "tuned": tuned });
        let mut v = serde_json::json!({ "cpu": cpu, "adapters": adapters });
        let key = if hyper.is_some() { "cache_bytes_per_token" } else { "cache_bytes_per_1024_values" };
        v[key] = cache.iter().map(|(n, b)| (n.to_string(), (*b).into())).collect::<serde_json::Map<_, _>>().into();
        if let Some(h) = &hyper {
            v["recent_bytes"] = recent_bytes(h).into();
        }
        writeln!(out, "{v}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        out,
        "cpu: {cpu}; levels: {}; memory {}",
        levels.join(", "),
        total_memory().map_or("unknown".into(), size)
    )?;
    for (kind, found) in &tuned {
        writeln!(out, "   measured with {kind}: {}", found.title())?;
    }
    if adapters.is_empty() {
        writeln!(out, "no GPU adapter; --device cpu always works")?;
    }
    for v in &adapters {
        let text = |key: &str| v[key].as_str().unwrap_or("").to_string();
        writeln!(
            out,
            "{}: {} [{}], {}, driver {}",
            v["index"],
            text("name"),
            text("backend"),
            text("device_type"),
            text("driver")
        )?;
        let exact = if v["exact"] == true {
            let subnormals = if v["flushes_subnormals"] == true { "makes them 0" } else { "keeps them" };
            // shown for information: no result depends on it
            format!("exact ({} words of the float probe agree); of subnormals it {subnormals}", v["probe_words"])
        } else if let Some(e) = v["error"].as_str() {
            format!("not usable: {e}")
        } else {
            format!(
                "NOT exact: {} of {} words of the float probe differ; refused",
                v["probe_mismatches"], v["probe_words"]
            )
        };
        writeln!(out, "   {exact}")?;
        if let Some(limits) = v["limits"].as_object() {
            let cells: Vec<String> = limits.iter().map(|(k, v)| format!("{k} {v}")).collect();
            writeln!(out, "   {}", cells.join(", "))?;
        }
        if let Some(features) = v["features"].as_object() {
            let cells: Vec<String> =
                features.iter().map(|(k, v)| format!("{k} {}", if *v == true { "yes" } else { "no" })).collect();
            writeln!(out, "   {}", cells.join(", "))?;
        }
    }
    match &a.model {
        Some(m) => {
            writeln!(out, "cache bytes per token of {}: {}", one_line(&m.to_string_lossy()), cells(&cache))?;
            if let Some(bytes) = hyper.as_ref().and_then(recent_bytes) {
                let ubatch = common::DEFAULT_UBATCH;
                writeln!(out, "f16 copy of its recent positions (--kv-recent): {bytes} bytes with --ubatch {ubatch}")?;
            }
        }
        None => writeln!(out, "cache bytes per {TABLE_VALUES} values (heads of {TABLE_HEAD}): {}", cells(&cache))?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(feature = "gpu"))]
fn adapters() -> Vec<serde_json::Value> {
    vec![]
}

#[cfg(feature = "gpu")]
fn adapters() -> Vec<serde_json::Value> {
    use crate::host;
    let mut list = Vec::new();
    for a in pollster::block_on(host::adapters()) {
        let r = a.report();
        let mut v = serde_json::json!({
            "index": r.index,
            "name": r.name,
            "backend": r.backend,
            "device_type": r.device_type,
            "driver": r.driver,
            "vendor_id": r.ids.0,
            "device_id": r.ids.1,
            "software": r.software,
            // known only of adapters that use main memory
            "memory": if r.main_memory() { total_memory() } else { None },
            "limits": r.limits.iter().map(|(k, v)| (k.to_string(), (*v).into())).collect::<serde_json::Map<_, _>>(),
            "features": r.features.iter().map(|(k, v)| (k.to_string(), (*v).into())).collect::<serde_json::Map<_, _>>(),
        });
        match pollster::block_on(host::connect(&a, host::GpuOptions::default())) {
            Ok((_, verdict)) => {
                v["exact"] = verdict.exact().into();
                v["probe_words"] = verdict.words.into();
                v["probe_mismatches"] = verdict.mismatches.into();
                v["flushes_subnormals"] = verdict.flushes.into();
            }
            Err(e) => v["error"] = e.to_string().into(),
        }
        list.push(v);
    }
    list
}
