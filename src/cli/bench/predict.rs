//! `bench --predict`: what to expect of devices that are not here, beside what was measured where there is such a file.

use super::args::Asked;
use super::{BenchArgs, Run, describe, positions, read_rows};
use crate::bench::grid::Test;
use crate::bench::predict::{self, ESTIMATE, Estimate, Launch, Stats, Target};
use crate::bench::schema::{self, Column, Config, Format};
use crate::cli::common::note;
use crate::fuse;
use crate::host::{shaders, variants};
use crate::models::{self, Built, Hyper, PlanOptions};
use crate::record::{Args, Command};
use anyhow::ensure;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

/// The targets asked for; none, with a line on stderr, where the adapter that was measured is none of them.
fn targets(a: &BenchArgs, rows: &[Value]) -> anyhow::Result<Vec<&'static Target>> {
    let mut list: Vec<&'static Target> = Vec::new();
    for asked in &a.predict {
        match asked {
            Asked::All => list.extend(predict::TARGETS),
            Asked::One(t) => list.push(t),
            Asked::Measured => {
                ensure!(!rows.is_empty(), "--predict auto takes the adapter from the rows of --measured");
                let adapter = rows.iter().find_map(|r| r["adapter"].as_str()).unwrap_or("CPU");
                match predict::of_adapter(adapter) {
                    Some(t) => list.push(t),
                    None => note!("no figures of {adapter}, so nothing is predicted"),
                }
            }
        }
    }
    let mut seen = Vec::new();
    list.retain(|t| {
        !seen.contains(&t.name) && {
            seen.push(t.name);
            true
        }
    });
    Ok(list)
}

/// The dispatches of a command on a GPU that has measured nothing.
fn launches(command: &Command, args: &Args, max_tokens: usize) -> Vec<Launch> {
    let passes = variants::unmeasured(command.op, args, max_tokens);
    let launch = |p: variants::Pass| {
        let shader = shaders::find(&p.shader).expect("every variant has a shader");
        Launch { lanes: shader.workgroup_size.iter().product(), shader: p.shader, groups: p.groups }
    };
    passes.into_iter().map(launch).collect()
}

/// The measured row of the same test of the same configuration, on an adapter of this kind.
fn measured<'r>(rows: &'r [Value], target: &Target, row: &[Column]) -> Option<&'r Value> {
    let same = |name: &str, found: &Value| row.iter().any(|(n, _, v)| *n == name && v == found);
    let names = ["model_type", "n_prompt", "n_gen", "n_depth", "type_k", "type_v", "activations"];
    rows.iter().find(|r| {
        let adapter = r["adapter"].as_str().and_then(predict::of_adapter);
        r["error"].is_null() && adapter.is_some_and(|t| t.name == target.name) && names.iter().all(|n| same(n, &r[*n]))
    })
}

fn round(v: f64) -> Value {
    // two digits more than such an estimate has
    json!(format!("{v:.3e}").parse::<f64>().unwrap_or(v))
}

/// A row without what was measured.
fn columns(target: &Target, model: &schema::Model, config: &Config, test: &Test, e: &Estimate) -> Vec<Column> {
    vec![
        ("figure", "TEXT", json!(ESTIMATE)),
        ("target", "TEXT", json!(target.name)),
        ("device", "TEXT", json!(target.title)),
        ("compiler", "TEXT", json!(target.compiled_by())),
        ("model_type", "TEXT", json!(model.kind)),
        ("type_k", "TEXT", json!(config.k)),
        ("type_v", "TEXT", json!(config.v)),
        ("activations", "INTEGER", json!(config.activations)),
        ("n_prompt", "INTEGER", json!(test.prompt)),
        ("n_gen", "INTEGER", json!(test.generate)),
        ("n_depth", "INTEGER", json!(test.depth)),
        ("low_ts", "REAL", round(e.low)),
        ("high_ts", "REAL", round(e.high)),
        ("memory_limit_ts", "REAL", round(e.memory_limit)),
        ("low_percent", "REAL", round(100.0 * e.bandwidth_share.0)),
        ("high_percent", "REAL", round(100.0 * e.bandwidth_share.1)),
        ("bound_by", "TEXT", json!(e.bound_by)),
        ("bytes_per_token", "REAL", round(e.bytes_per_token)),
        ("dispatches_per_token", "REAL", round(e.dispatches_per_token)),
    ]
}

/// The plan as a session would make it for a device that binds buffers of any size.
fn plan(a: &BenchArgs, c: &crate::formats::Container, h: &Hyper, options: &PlanOptions) -> anyhow::Result<Built> {
    let mut built = models::build(c, h, options)?;
    fuse::fuse(&mut built.plan, a.kernels.fuse, options.max_binding_words);
    Ok(built)
}

pub(super) fn run(a: &BenchArgs) -> anyhow::Result<ExitCode> {
    let rows = a.measured.as_ref().map(|p| read_rows(p)).transpose()?.unwrap_or_default();
    let (targets, tests, stats) = (targets(a, &rows)?, a.tests(), Stats::built_in());
    let format = a.format();
    let mut out = std::io::stdout().lock();
    if !targets.is_empty() {
        note!("these speeds are an {ESTIMATE}: docs/bench.md says how far to trust them");
    }
    let mut first = true;
    write!(out, "{}", if format == Format::Json { "[\n" } else { "" })?;
    for source in a.sources() {
        let c = source.open()?;
        let h = Hyper::read(&c)?;
        let model = describe(&source, &c, &h);
        for (config, k, v) in a.configs() {
            let options = Run::plan(&h, &config, (k, v), positions(&tests));
            let built = plan(a, &c, &h, &options)?;
            for target in &targets {
                for test in &tests {
                    let launches = |c: &Command, args: &Args| launches(c, args, built.plan.max_tokens);
                    let e = predict::estimate(target, &stats, (&built, options.digits), &launches, test, config.batch);
                    let mut row = columns(target, &model, &config, test, &e);
                    if a.measured.is_some() {
                        let found = measured(&rows, target, &row);
                        row.push(("measured_ts", "REAL", found.map_or(Value::Null, |r| r["avg_ts"].clone())));
                    }
                    write!(out, "{}", schema::record(format, "isobit_predict", first, &row))?;
                    first = false;
                }
            }
        }
    }
    write!(out, "{}", if format == Format::Json { "\n]\n" } else { "" })?;
    Ok(ExitCode::SUCCESS)
}
