//! Rows and their five formats: Markdown, JSON, JSONL, CSV, SQL.
//!
//! The first columns are llama-bench's, in its order and under its names, so that what reads its files reads ours; ours
//! come after. A row that failed has zeros for times and says why in `error`.

use super::grid::Test;
use super::measure::Measured;
use super::{Limits, deviation, mean, percentile};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A format of results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// a Markdown table
    Md,
    /// one JSON array
    Json,
    /// a JSON object a line
    Jsonl,
    /// comma-separated values
    Csv,
    /// statements that make and fill a table `llama_bench`
    Sql,
}

impl Format {
    /// By name; `None` for another word.
    pub fn parse(s: &str) -> Option<Format> {
        Some(match s.to_lowercase().as_str() {
            "md" => Format::Md,
            "json" => Format::Json,
            "jsonl" => Format::Jsonl,
            "csv" => Format::Csv,
            "sql" => Format::Sql,
            _ => return None,
        })
    }
}

/// The program and the machine.
#[derive(Clone, Debug, Default)]
pub struct Build {
    /// commit, or the version where it was not told
    pub commit: String,
    /// isobit's version
    pub version: String,
    /// wgpu's version; empty without GPUs
    pub wgpu: String,
    /// the CPU's name
    pub cpu: String,
}

/// The model that ran.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// file, or what stands for one
    pub filename: String,
    /// architecture, size class and type: `llama 1B Q4_K - Medium`
    pub kind: String,
    /// bytes of all tensors
    pub size: u64,
    /// elements of all tensors
    pub params: u64,
    /// whether it makes vectors of texts: an encoder
    pub embeddings: bool,
}

/// The device that ran it.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// as `--device` named it
    pub spec: String,
    /// as it names itself
    pub title: String,
    /// layers whose experts the CPU has
    pub cpu_experts: usize,
    /// adapter; empty for the CPU
    pub adapter: String,
    /// `CPU`, `Vulkan`, `Metal`, …
    pub backend: String,
    /// driver and version; empty for the CPU
    pub driver: String,
    /// what it can do, where that was measured
    pub limits: Option<Limits>,
}

/// The options that ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `-b`
    pub batch: usize,
    /// `-ub`
    pub ubatch: usize,
    /// `-t`, as it came out
    pub threads: usize,
    /// type of keys
    pub k: String,
    /// type of values
    pub v: String,
    /// whether a query's own chunk is read from an f16 copy
    pub recent: bool,
    /// `-ngl` as given; 0 on the CPU
    pub gpu_layers: usize,
    /// bits of the activations
    pub activations: usize,
    /// positions of the cache
    pub n_ctx: usize,
    /// which kernels
    pub kernels: Kernels,
}

/// What decides which kernels run. None of it changes a bit of a result, all of it changes speeds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernels {
    /// `on`, `wide`, `off`
    pub fuse: String,
    /// the variants forced, `matmul` or `q4k_matvec=matmul`, separated by commas; empty: none
    pub variant: String,
    /// when kernels are measured against each other: `auto`, `now`, `off`
    pub tune: String,
}

impl Kernels {
    /// As columns; null for what is empty.
    pub fn columns(&self) -> [Column; 3] {
        let text = |s: &str| if s.is_empty() { Value::Null } else { json!(s) };
        [
            ("fuse", "TEXT", text(&self.fuse)),
            ("variant", "TEXT", text(&self.variant)),
            ("tune", "TEXT", text(&self.tune)),
        ]
    }
}

/// How a digest compares with the first one of its task in the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Check {
    /// no other device has made one yet
    None,
    /// the same as this other device's
    Same(String),
    /// not the same as this device's: this speed is of a wrong result
    Different(String),
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Check::None => f.write_str("not compared"),
            Check::Same(by) => write!(f, "same as {by}"),
            Check::Different(by) => write!(f, "DIFFERENT from {by}"),
        }
    }
}

/// One result.
#[derive(Clone, Debug)]
pub struct Row {
    /// program and machine
    pub build: Build,
    /// model
    pub model: Model,
    /// device
    pub device: Device,
    /// options
    pub config: Config,
    /// what ran
    pub test: Test,
    /// when, `2026-11-21T14:00:00Z`
    pub time: String,
    /// what came out; `None` with an error
    pub measured: Option<Measured>,
    /// why nothing came out
    pub error: Option<String>,
    /// milliseconds of loading the model
    pub load_ms: f64,
    /// most bytes of main memory in use since loading began, where the system tells
    pub peak_memory: Option<u64>,
    /// where joules come from
    pub energy_source: Option<String>,
    /// what decides the logits, in one line; empty where nobody asked for it
    pub fingerprint: String,
    /// SHA-256 of the logits of the fixed sequence
    pub digest: String,
    /// that digest against the first of its task
    pub digest_check: Check,
    /// that of the last logits, likewise
    pub logits_check: Check,
    /// what puts the figures into question, in sentences
    pub warnings: Vec<String>,
}

/// A column: its name, its SQL type, and its value. Those of type `JSON` are left out of CSV and SQL.
pub type Column = (&'static str, &'static str, Value);

impl Row {
    /// Whether a digest is another than the first of its task.
    pub fn wrong(&self) -> bool {
        [&self.digest_check, &self.logits_check].into_iter().any(|c| matches!(c, Check::Different(_)))
    }

    /// Both checks in few words.
    fn checks(&self) -> String {
        match (&self.digest_check, &self.logits_check) {
            (digest, logits) if digest == logits || self.measured.is_none() => digest.to_string(),
            (digest, logits) => format!("{digest}; last logits {logits}"),
        }
    }

    /// Share of the limit reached, in percent.
    pub fn percent(&self) -> Option<f64> {
        let m = self.measured.as_ref()?;
        let samples: Vec<f64> = m.samples_ns.iter().map(|&n| n as f64).collect();
        m.limit.map(|(ns, _)| 100.0 * ns / super::median(&samples))
    }

    /// Tokens a second of each repetition.
    pub fn speeds(&self) -> Vec<f64> {
        let samples = self.measured.iter().flat_map(|m| &m.samples_ns);
        samples.map(|&n| 1e9 * self.test.tokens() as f64 / n as f64).collect()
    }

    /// Every column, in order.
    fn columns(&self) -> Vec<Column> {
        let (b, m, d, c) = (&self.build, &self.model, &self.device, &self.config);
        let default = Measured::default();
        let r = self.measured.as_ref().unwrap_or(&default);
        let ns: Vec<f64> = r.samples_ns.iter().map(|&n| n as f64).collect();
        let ts = self.speeds();
        let some = |v: Option<f64>| v.map_or(Value::Null, |v| json!(rounded(v)));
        let measured = |v: f64| if self.measured.is_some() { json!(rounded(v)) } else { Value::Null };
        let text = |s: &str| if s.is_empty() { Value::Null } else { json!(s) };
        let latency = |p| json!(percentile(&r.token_ns, p));
        let prompt: Vec<f64> = r.prompt_ns.iter().map(|&n| n as f64).collect();
        let check = |c: &Check, of: &str| if of.is_empty() { Value::Null } else { json!(c.to_string()) };
        let mut list = vec![
            ("build_commit", "TEXT", json!(b.commit)),
            ("build_number", "INTEGER", json!(0)),
            ("cpu_info", "TEXT", json!(b.cpu)),
            ("gpu_info", "TEXT", json!(d.adapter)),
            ("backends", "TEXT", json!(d.backend)),
            ("model_filename", "TEXT", json!(m.filename)),
            ("model_type", "TEXT", json!(m.kind)),
            ("model_size", "INTEGER", json!(m.size)),
            ("model_n_params", "INTEGER", json!(m.params)),
            ("n_batch", "INTEGER", json!(c.batch)),
            ("n_ubatch", "INTEGER", json!(c.ubatch)),
            ("n_threads", "INTEGER", json!(c.threads)),
            ("cpu_mask", "TEXT", json!("0x0")),
            ("cpu_strict", "BOOL", json!(false)),
            ("poll", "INTEGER", json!(0)),
            ("type_k", "TEXT", json!(c.k)),
            ("type_v", "TEXT", json!(c.v)),
            ("n_gpu_layers", "INTEGER", json!(c.gpu_layers)),
            ("n_cpu_moe", "INTEGER", json!(d.cpu_experts)),
            ("split_mode", "TEXT", json!("none")),
            ("main_gpu", "INTEGER", json!(0)),
            ("no_kv_offload", "BOOL", json!(false)),
            ("flash_attn", "INTEGER", json!(1)),
            ("devices", "TEXT", json!(d.spec)),
            ("tensor_split", "TEXT", json!("0.00")),
            ("tensor_buft_overrides", "TEXT", json!("none")),
            ("use_mmap", "BOOL", json!(false)),
            ("use_direct_io", "BOOL", json!(false)),
            ("embeddings", "BOOL", json!(m.embeddings)),
            ("no_op_offload", "INTEGER", json!(0)),
            ("no_host", "BOOL", json!(false)),
            ("repack", "BOOL", json!(true)),
            ("fit_target", "INTEGER", json!(0)),
            ("fit_min_ctx", "INTEGER", json!(0)),
            ("n_prompt", "INTEGER", json!(self.test.prompt)),
            ("n_gen", "INTEGER", json!(self.test.generate)),
            ("n_depth", "INTEGER", json!(self.test.depth)),
            ("test_time", "TEXT", json!(self.time)),
            ("avg_ns", "INTEGER", json!(mean(&ns).round() as u64)),
            ("stddev_ns", "INTEGER", json!(deviation(&ns).round() as u64)),
            ("avg_ts", "REAL", json!(rounded(mean(&ts)))),
            ("stddev_ts", "REAL", json!(rounded(deviation(&ts)))),
            ("samples_ns", "JSON", json!(r.samples_ns)),
            ("samples_ts", "JSON", json!(ts.iter().copied().map(rounded).collect::<Vec<f64>>())),
            // ours
            ("error", "TEXT", json!(self.error)),
            ("isobit_version", "TEXT", json!(b.version)),
            ("wgpu_version", "TEXT", text(&b.wgpu)),
            ("device", "TEXT", json!(d.title)),
            ("adapter", "TEXT", text(&d.adapter)),
            ("driver", "TEXT", text(&d.driver)),
            ("activations", "INTEGER", json!(c.activations)),
            ("kv_recent", "BOOL", json!(c.recent)),
            ("n_ctx", "INTEGER", json!(c.n_ctx)),
            ("digest", "TEXT", text(&self.digest)),
            ("last_logits", "TEXT", text(&r.last_logits)),
            ("digest_check", "TEXT", check(&self.digest_check, &self.digest)),
            ("logits_check", "TEXT", check(&self.logits_check, &r.last_logits)),
            ("limit_read_gbs", "REAL", some(d.limits.map(|l| l.read / 1e9))),
            ("limit_int8_gops", "REAL", some(d.limits.map(|l| l.int8 / 1e9))),
            ("limit_percent", "REAL", some(self.percent())),
            ("limit_by", "TEXT", json!(r.limit.map(|(_, read)| if read { "read" } else { "int8" }))),
            ("bytes_per_token", "REAL", measured(r.bytes_per_token)),
            ("int8_ops_per_token", "REAL", measured(r.ops_per_token)),
            ("dispatches_per_token", "REAL", measured(r.commands_per_token)),
            ("host_us_per_token", "REAL", some(r.host_ns_per_token.map(|n| n / 1e3))),
            ("read_back_per_token", "REAL", some(r.read_back_per_token)),
            ("ttft_ns", "INTEGER", if prompt.is_empty() { Value::Null } else { json!(super::median(&prompt) as u64) }),
            ("p50_ns", "INTEGER", latency(50.0)),
            ("p90_ns", "INTEGER", latency(90.0)),
            ("p99_ns", "INTEGER", latency(99.0)),
            ("load_ms", "REAL", measured(self.load_ms)),
            ("peak_memory", "INTEGER", json!(self.peak_memory)),
            ("joules_per_token", "REAL", some(r.joules_per_token)),
            ("energy_source", "TEXT", json!(self.energy_source)),
            ("fingerprint", "TEXT", text(&self.fingerprint)),
            ("warnings", "JSON", json!(self.warnings)),
        ];
        list.extend(c.kernels.columns());
        list
    }

    /// The row as one JSON object in one line.
    pub fn to_json(&self) -> String {
        object(&self.columns(), "")
    }
}

/// Columns as a JSON object, in order; with an indent a column a line.
fn object(columns: &[Column], indent: &str) -> String {
    let cells: Vec<String> = columns.iter().map(|(name, _, v)| format!("{}: {v}", json!(name))).collect();
    match indent {
        "" => format!("{{{}}}", cells.join(", ")),
        _ => {
            let between = format!(",\n{indent}{indent}");
            format!("{indent}{{\n{indent}{indent}{}\n{indent}}}", cells.join(&between))
        }
    }
}

/// A record; before the first come names or the table's statement.
pub fn record(format: Format, table: &str, first: bool, columns: &[Column]) -> String {
    let flat = || columns.iter().filter(|c| c.1 != "JSON");
    let names: Vec<&str> = flat().map(|c| c.0).collect();
    match format {
        Format::Json => format!("{}{}", if first { "" } else { ",\n" }, object(columns, "  ")),
        Format::Jsonl => format!("{}\n", object(columns, "")),
        Format::Csv => {
            let text = |v: &Value| v.as_str().map_or_else(|| plain(v), str::to_string);
            let cells: Vec<String> = flat().map(|(_, _, v)| text(v)).collect();
            let head = if first { format!("{}\n", names.join(",")) } else { String::new() };
            head + &csv_line(&cells)
        }
        Format::Sql => {
            let types: Vec<String> = flat().map(|(n, t, _)| format!("  {n} {t}")).collect();
            let head = format!("CREATE TABLE IF NOT EXISTS {table} (\n{}\n);\n\n", types.join(",\n"));
            let quoted = |v: &Value| match v {
                Value::Null => "NULL".to_string(),
                Value::String(s) => format!("'{}'", s.replace('\'', "''")),
                other => plain(other),
            };
            let values: Vec<String> = flat().map(|(_, _, v)| quoted(v)).collect();
            let insert = format!("INSERT INTO {table} ({}) VALUES ({});\n", names.join(", "), values.join(", "));
            if first { head + &insert } else { insert }
        }
        Format::Md => {
            let text = |v: &Value| match v {
                Value::Null => "-".to_string(),
                Value::String(s) => s.replace('|', "\\|"),
                other => plain(other),
            };
            let cells: Vec<String> = flat().map(|(_, _, v)| text(v)).collect();
            let rule: Vec<&str> = flat().map(|c| if c.1 == "TEXT" { "---" } else { "---:" }).collect();
            let head = format!("| {} |\n| {} |\n", names.join(" | "), rule.join(" | "));
            format!("{}| {} |\n", if first { &head } else { "" }, cells.join(" | "))
        }
    }
}

/// Nine significant digits: what a clock of nanoseconds can tell, and files of one width.
fn rounded(v: f64) -> f64 {
    if v.is_finite() { format!("{v:.8e}").parse().unwrap_or(v) } else { 0.0 }
}

/// Columns of the Markdown table that show only when they vary in a run, or when a device of it counts them.
#[derive(Clone, Debug, Default)]
pub struct Varied(pub BTreeSet<&'static str>);

/// Writes rows in a format, as text: a head, each row as it comes, a foot.
pub struct Writer {
    format: Format,
    varied: Varied,
    rows: usize,
}

impl Writer {
    /// `varied` names the columns a Markdown table has beside the usual ones.
    pub fn new(format: Format, varied: Varied) -> Writer {
        Writer { format, varied, rows: 0 }
    }

    /// What goes before the first row.
    pub fn head(&self) -> String {
        match self.format {
            Format::Json => "[\n".into(),
            Format::Md => {
                let cells = self.md_columns();
                let rule: Vec<&str> = cells.iter().map(|(_, right)| if *right { "---:" } else { "---" }).collect();
                let names: Vec<&str> = cells.iter().map(|(name, _)| *name).collect();
                format!("| {} |\n| {} |\n", names.join(" | "), rule.join(" | "))
            }
            _ => String::new(),
        }
    }

    /// One row.
    pub fn row(&mut self, row: &Row) -> String {
        self.rows += 1;
        match self.format {
            Format::Md => self.md_row(row),
            format => record(format, "llama_bench", self.rows == 1, &row.columns()),
        }
    }

    /// What goes after the last row.
    pub fn foot(&self, build: &Build) -> String {
        match self.format {
            Format::Json => format!("{}]\n", if self.rows == 0 { "" } else { "\n" }),
            Format::Md => format!("\nbuild: {} (0)\n", build.commit),
            _ => String::new(),
        }
    }

    /// Names, and whether numbers stand in them.
    fn md_columns(&self) -> Vec<(&'static str, bool)> {
        let mut list = vec![("model", false), ("size", true), ("params", true), ("backend", false), ("ngl", true)];
        // names, and whether their cells are ranged right
        let optional = [
            ("device", false),
            ("threads", true),
            ("n_batch", true),
            ("n_ubatch", true),
            ("type_k", true),
            ("type_v", true),
            ("kv_recent", true),
            ("activations", true),
            ("fuse", false),
            ("variant", false),
            ("tune", false),
        ];
        list.extend(optional.into_iter().filter(|(n, _)| self.varied.0.contains(n)));
        list.extend([("test", true), ("t/s", true), ("% of limit", true), ("p50 ms", true), ("p99 ms", true)]);
        list.extend([("read back B", true)].into_iter().filter(|(n, _)| self.varied.0.contains(n)));
        list.push(("digest", false));
        list
    }

    fn md_row(&self, row: &Row) -> String {
        let m = row.measured.as_ref();
        let ts = row.speeds();
        let milli = |p| {
            let ns = m.and_then(|m| percentile(&m.token_ns, p));
            ns.map_or("-".to_string(), |n| format!("{:.3}", n as f64 / 1e6))
        };
        let cell = |name: &str| match name {
            "model" => row.model.kind.clone(),
            "size" if row.model.size < 1 << 30 => format!("{:.2} MiB", row.model.size as f64 / (1u64 << 20) as f64),
            "size" => format!("{:.2} GiB", row.model.size as f64 / (1u64 << 30) as f64),
            "params" if row.model.params < 1_000_000_000 => format!("{:.2} M", row.model.params as f64 / 1e6),
            "params" => format!("{:.2} B", row.model.params as f64 / 1e9),
            "backend" => row.device.backend.clone(),
            "ngl" => row.config.gpu_layers.to_string(),
            "device" => row.device.title.clone(),
            "threads" => row.config.threads.to_string(),
            "n_batch" => row.config.batch.to_string(),
            "n_ubatch" => row.config.ubatch.to_string(),
            "type_k" => row.config.k.clone(),
            "type_v" => row.config.v.clone(),
            "kv_recent" => if row.config.recent { "r64" } else { "-" }.to_string(),
            "activations" => row.config.activations.to_string(),
            "test" => row.test.to_string(),
            "t/s" => match &row.error {
                Some(e) => format!("error: {e}"),
                None => format!("{:.2} ± {:.2}", mean(&ts), deviation(&ts)),
            },
            "% of limit" => row.percent().map_or("-".into(), |p| format!("{p:.1}")),
            "p50 ms" => milli(50.0),
            "p99 ms" => milli(99.0),
            "read back B" => m.and_then(|m| m.read_back_per_token).map_or("-".into(), |b| format!("{b:.0}")),
            "fuse" => row.config.kernels.fuse.clone(),
            "variant" => row.config.kernels.variant.clone(),
            "tune" => row.config.kernels.tune.clone(),
            _ if row.digest.is_empty() => "-".into(),
            _ => format!("{} {}", &row.digest[..12], row.checks()),
        };
        let cells: Vec<String> = self.md_columns().iter().map(|(n, _)| cell(n).replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    }
}

/// A value that is no text, as SQL and CSV have it: booleans as 0 and 1, nothing as nothing.
fn plain(v: &Value) -> String {
    match v {
        Value::Null => String::new(),
        Value::Bool(b) => u8::from(*b).to_string(),
        other => other.to_string(),
    }
}

/// A line of cells, every one in quotes, as llama-bench writes them.
fn csv_line<S: AsRef<str>>(cells: &[S]) -> String {
    let cells: Vec<String> = cells.iter().map(|c| format!("\"{}\"", c.as_ref().replace('"', "\"\""))).collect();
    format!("{}\n", cells.join(","))
}
