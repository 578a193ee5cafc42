//! `isobit convert`: one file form into another, every block as it is.

use super::common::{self, Load, note};
use super::interrupt;
use crate::formats::bump::write::{self, Job, Lose, Options};
use crate::formats::bump::{self, Codes, Version};
use crate::formats::output::{self, Staged};
use crate::formats::{Container, Dtype, LoadMode};
use crate::models::Hyper;
use crate::quantize::choose::Mix;
use crate::quantize::{self, Split, Target, Watch};
use crate::simd::Level;
use crate::stop::Interrupted;
use anyhow::{Context, bail, ensure};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit convert model.gguf model.bump\n  isobit convert model.gguf GGUF_OUT --to bump-v3\n  isobit convert model.bump back.gguf --tokenizer model.gguf"
)]
pub struct ConvertArgs {
    /// GGUF file (the first, of shards), BUMP file, or the directory of one
    input: PathBuf,
    /// NAME.gguf, NAME.bump (JSON files go beside it), or a new directory with weights.bump and its JSON files
    output: PathBuf,
    /// gguf, bump-v3, bump-v4 or bump-v5 [default: by OUTPUT's name: gguf, or bump-v5]
    #[arg(long, value_name = "FORMAT", value_parser = form)]
    to: Option<Form>,
    /// Type codes of bump-v3: first (Q4_K is 6) or later (7)
    #[arg(long, default_value = "first", value_name = "TABLE", value_parser = codes)]
    codes: Codes,
    /// What may be left out where FORMAT cannot hold it: output, biases, or both with a comma
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = ["output", "biases"])]
    #[arg(hide_possible_values = true)]
    lose: Vec<String>,
    /// Take the tokeniser of another model: a GGUF file, or a directory with tokenizer.json
    #[arg(long, value_name = "MODEL")]
    tokenizer: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// How files are read: read, or mmap (a file truncated while mapped kills the process)
    #[arg(long, value_enum, default_value = "read", value_name = "MODE", hide_possible_values = true)]
    load_mode: Load,
}

/// A file form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Gguf,
    Bump(Version),
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Gguf => "gguf",
            Form::Bump(Version::V3) => "bump-v3",
            Form::Bump(Version::V4) => "bump-v4",
            Form::Bump(Version::V5) => "bump-v5",
        }
    }
}

fn form(s: &str) -> Result<Form, String> {
    let all = [Form::Gguf, Form::Bump(Version::V3), Form::Bump(Version::V4), Form::Bump(Version::V5)];
    all.into_iter()
        .find(|f| f.name() == s.to_lowercase())
        .ok_or_else(|| "expected gguf, bump-v3, bump-v4 or bump-v5".into())
}

fn codes(s: &str) -> Result<Codes, String> {
    match s {
        "first" => Ok(Codes::First),
        "later" => Ok(Codes::Later),
        _ => Err("expected first or later".into()),
    }
}

impl ConvertArgs {
    /// The form, from `--to` or OUTPUT's name.
    fn form(&self) -> anyhow::Result<Form> {
        let ending = self.output.extension().and_then(|e| e.to_str()).unwrap_or("");
        match (self.to, ending) {
            (Some(form), _) => Ok(form),
            (None, "gguf") => Ok(Form::Gguf),
            (None, "bump") => Ok(Form::Bump(Version::V5)),
            _ => bail!(
                "--to is missing: OUTPUT {} ends neither in .gguf nor in .bump; add --to bump-v3, bump-v4, bump-v5 or gguf",
                self.output.display()
            ),
        }
    }

    /// Refuses options that the form has no use for.
    fn refuse_idle(&self, form: Form) -> anyhow::Result<()> {
        let v3 = form == Form::Bump(Version::V3);
        ensure!(v3 || self.codes == Codes::First, "--codes has no effect here: it is for bump-v3");
        let early = matches!(form, Form::Bump(Version::V3 | Version::V4));
        ensure!(early || self.lose.is_empty(), "--lose has no effect here: {} leaves nothing out", form.name());
        let biases = self.lose.iter().any(|l| l == "biases");
        ensure!(v3 || !biases, "--lose biases has no effect here: {} has them", form.name());
        Ok(())
    }
}

pub fn run(a: ConvertArgs) -> anyhow::Result<ExitCode> {
    let form = a.form()?;
    a.refuse_idle(form)?;
    let mut c = common::open(Some(&a.input), a.load_mode)?;
    if let Some(from) = &a.tokenizer {
        c.take_tokenizer(from)?;
    }
    let mut sources = c.files.clone();
    sources.push(c.described_by().to_path_buf());
    output::refuse_sources(&a.output, &sources)?;
    let (line, lost) = match form {
        Form::Gguf => (to_gguf(&a, &c)?, vec![]),
        Form::Bump(version) => {
            let lose = |what: &str| a.lose.iter().any(|l| l == what);
            let lose = Lose { output: lose("output"), biases: lose("biases") };
            let o = Options { codes: a.codes, lose, ..Options::new(version) };
            let job = write::plan(&c, &o)?;
            to_bump(&a, &c, &job)?;
            (shown(&a, &job, version), job.lost)
        }
    };
    for what in &lost {
        note!("warning: left out: {what}");
    }
    if a.json {
        let v = json!({"input": a.input.display().to_string(), "output": a.output.display().to_string(),
            "format": form.name(), "tensors": c.tensors.len(), "lost": lost});
        writeln!(std::io::stdout(), "{v}")?;
    } else {
        writeln!(std::io::stdout(), "{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The line that C-Kernel-Engine's tool ends with.
fn shown(a: &ConvertArgs, job: &Job, version: Version) -> String {
    let d = &job.dims;
    format!(
        "[gguf->bump] version={} arch={} layers={} hidden={} heads={}/{} ff={} vocab={} ctx={} -> {}",
        version.number(),
        super::one_line(&job.arch),
        d.layers,
        d.embed,
        d.heads,
        d.kv_heads,
        d.ffn,
        d.vocab,
        d.context,
        a.output.display()
    )
}

/// Ends a staged model: it gets its name, or nothing of it is left.
fn settle<T>(
    staged: Staged,
    done: anyhow::Result<T>,
    before: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<T> {
    let ended = done.and_then(|v| before().map(|()| v));
    match ended {
        Ok(v) => interrupt::whole(|| staged.commit()).map(|()| v).map_err(Into::into),
        Err(e) => {
            if let Err(left) = staged.discard() {
                // the first error is the one to end with
                note!("warning: what was written is left: {left}");
            }
            Err(e)
        }
    }
}

/// Writes a BUMP file and those beside it: in a new directory all at once; beside `NAME.bump` the others come first.
fn to_bump(a: &ConvertArgs, c: &Container, job: &Job) -> anyhow::Result<()> {
    let directory = a.output.extension().is_none_or(|e| e != "bump");
    let name = if directory { "weights.bump" } else { "" };
    let (staged, _) = Staged::begin(&a.output, &job.layout(c, directory, name), false)?;
    let bar = common::bar(job.len, "converting {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
    let fill = || -> anyhow::Result<()> {
        let progress = |n| {
            bar.inc(n);
            !interrupt::stop().asked()
        };
        ensure!(job.write(c, &staged, name, progress)?, Interrupted);
        let path = if directory { staged.path().join(name) } else { staged.path().to_path_buf() };
        look_at(c, job, &path)?;
        if directory {
            for (what, bytes) in &job.side {
                staged.put(if *what == "manifest.json" { "weights_manifest.json" } else { what }, bytes)?;
            }
        }
        Ok(())
    };
    let _held = interrupt::hold();
    let done = fill();
    bar.finish_and_clear();
    settle(staged, done, || {
        for (what, bytes) in job.side.iter().filter(|_| !directory) {
            output::replace_file(&bump::beside_name(&a.output, what), bytes)?;
        }
        Ok(())
    })
}

/// Opens what was written before it has its name, and compares every tensor with its origin.
fn look_at(c: &Container, job: &Job, path: &Path) -> anyhow::Result<()> {
    let check = || {
        let json = |what: &str| -> anyhow::Result<Option<(String, serde_json::Value)>> {
            let found = job.side.iter().find(|(name, _)| *name == what);
            found.map(|(_, bytes)| Ok((what.to_string(), serde_json::from_slice(bytes)?))).transpose()
        };
        let beside = bump::Beside { config: json("config.json")?, manifest: json("manifest.json")?, metadata: None };
        let new = Container::open_bump(path, LoadMode::Read, &beside)?;
        let h = Hyper::read(&new)?;
        common::check_weights(&new, &h)?;
        for t in &new.tensors {
            // what became f32, and what was to be left out, is another
            let lost = !job.lost.is_empty() && t.name.ends_with(".bias");
            let Some(old) = c.tensor(&t.name).filter(|old| old.dtype == t.dtype && !lost) else { continue };
            ensure!(same(c, old, &new, t)?, "tensor {} is another than in {}", t.name, c.files[old.file].display());
        }
        Ok(())
    };
    check().context("the new file")
}

/// Whether two tensors have the same bytes.
fn same(a: &Container, t: &crate::formats::Tensor, b: &Container, u: &crate::formats::Tensor) -> anyhow::Result<bool> {
    const AT_ONCE: u64 = 1 << 20;
    if t.bytes != u.bytes || t.shape != u.shape {
        return Ok(false);
    }
    let (mut x, mut y) = (vec![0u8; t.bytes.min(AT_ONCE) as usize], vec![0u8; t.bytes.min(AT_ONCE) as usize]);
    for at in (0..t.bytes).step_by(AT_ONCE as usize) {
        let n = (t.bytes - at).min(AT_ONCE) as usize;
        a.read(t, at, &mut x[..n])?;
        b.read(u, at, &mut y[..n])?;
        if x[..n] != y[..n] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes a GGUF file with the same blocks.
fn to_gguf(a: &ConvertArgs, c: &Container) -> anyhow::Result<String> {
    ensure!(
        c.kind.is_named_as_gguf(),
        "{} is neither a GGUF nor a BUMP file; isobit quantize converts directories",
        a.input.display()
    );
    let o = quantize::Options {
        target: Target::Gguf,
        mix: Some(Mix::Copy),
        policy: crate::formats::policy::Policy::Off,
        patterns: vec![],
        pure: false,
        leave_output: false,
        output_type: None,
        embedding_type: None,
        importances: None,
        chosen: None,
        requantize: false,
        split: Split::No,
        overrides: vec![],
        words: "convert".into(),
    };
    let mut job = quantize::plan(c, &o)?;
    if c.meta.get("tokenizer.ggml.model").is_none() {
        note!(
            "warning: {} has no tokeniser, and so has the new file; --tokenizer MODEL takes another's",
            a.input.display()
        );
    }
    let h = Hyper::read(c)?;
    common::check_weights(c, &h)?;
    job.layout.sources.push(c.described_by().to_path_buf());
    let bar = common::bar(job.bytes_in(c), "converting {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
    let (mut staged, _) = Staged::begin(&a.output, &job.layout, false)?;
    let _held = interrupt::hold();
    let watch = Watch { begin: &|_| {}, progress: &|n| bar.inc(n), stop: &|| interrupt::stop().asked() };
    let done = quantize::run(&job, c, &mut staged, &[], Level::detect(), None, &watch);
    bar.finish_and_clear();
    settle(staged, done, || Ok(()))?;
    let types: std::collections::BTreeSet<Dtype> = c.tensors.iter().map(|t| t.dtype).collect();
    let types: Vec<&str> = types.into_iter().map(Dtype::name).collect();
    Ok(format!("[->gguf] tensors={} types={} -> {}", c.tensors.len(), types.join(","), a.output.display()))
}
