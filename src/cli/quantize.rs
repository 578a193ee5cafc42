//! `isobit quantize`: one model file into another.

use super::common::{self, EngineArgs, Load, note};
use super::interrupt::{self, Words};
use super::slim::SlimArgs;
use crate::blocks::BlockType;
use crate::engine::check_vocabulary;
use crate::formats::imatrix::Imatrix;
use crate::formats::output::{self, Staged};
use crate::formats::policy::Policy;
use crate::formats::{Container, LoadMode, Tensor};
use crate::generate::tokenizer::Tokenizer;
use crate::models::Hyper;
use crate::quantize::auto::{self, Size};
use crate::quantize::choose::{self, Mix, Pattern};
use crate::quantize::device::DeviceEncoder;
use crate::quantize::kv::Override;
use crate::quantize::slim::Scheme;
use crate::quantize::{self, Damaged, Data, Encoder, Job, Options, Piece, Split, Target, Watch};
use crate::simd::Level;
use crate::stop::Interrupted;
use anyhow::{Context, bail, ensure};
use clap::{Args, Parser};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit quantize model-f16.gguf small.gguf q4_k_m\n  isobit quantize model.gguf small.gguf iq3_m --imatrix model.imatrix.gguf\n  isobit quantize model.gguf small.gguf --auto 3.5 --imatrix model.imatrix.gguf\n  isobit quantize ./hf-directory model.gguf q8_0\n  isobit quantize ./hf-directory packed --to packed --policy qkv\n  isobit quantize model.gguf out.gguf q4_k_m --dry-run --json\n  isobit quantize ./hf-directory slim w8a8 --calibrate text.txt --smooth 0.5\n\nMixes: q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q2_k_s q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m q6_k\niq1_s iq1_m iq2_xxs iq2_xs iq2_s iq2_m iq3_xxs iq3_xs iq3_s iq3_m iq4_xs iq4_nl tq1_0 tq2_0 q2_0\nmxfp4_moe. Types: f32 f16 bf16 q3_k q4_k q5_k mxfp4 nvfp4 q1_0; packed also q8k128 q8k; msModelSlim\nw8a16 w4a16 w8a8 w8a8-dynamic w4a8-dynamic. iq1*, iq2*, iq3_xxs, iq3_xs and q2_k_s need --imatrix."
)]
pub struct QuantizeArgs {
    /// GGUF file (the first, of shards), BUMP file or Hugging Face directory, F32, F16 or BF16
    input: PathBuf,
    /// The new GGUF file, or the new directory of a packed, split or msModelSlim model
    output: PathBuf,
    /// A mix of llama.cpp's, a type, or copy (the list is below) [default: q4_k_m; packed: by --policy]
    #[arg(value_parser = asked, value_name = "TYPE")]
    asked: Option<Asked>,
    /// Worker threads, as -t
    #[arg(value_name = "THREADS", value_parser = common::whole::<1, 1024>, hide = true)]
    nthreads: Option<usize>,
    /// gguf; packed: a directory with packed safetensors; blocks: one with a file per matrix
    #[arg(long, default_value = "gguf", value_name = "LAYOUT", value_parser = target)]
    to: Target,
    /// What a packed model has in Q8K128: off, layer0-qkv, early-qkv, qkv, attn, q8k, all [default: layer0-qkv]
    #[arg(long, value_name = "POLICY", value_parser = policy, env = POLICY, hide_env_values = true)]
    policy: Option<Policy>,
    /// Lines of PATTERN TYPE over tensor names; the first that matches counts (TYPE keep: as it is)
    #[arg(long, value_name = "FILE")]
    policy_file: Option<PathBuf>,
    /// The same as a line of a policy file, before any of them; may be repeated
    #[arg(long, value_name = "RE=TYPE")]
    tensor_type: Vec<String>,
    /// One type for all matrices, none raised
    #[arg(long)]
    pure: bool,
    /// Keep output.weight as it is
    #[arg(long, conflicts_with = "output_tensor_type")]
    leave_output_tensor: bool,
    /// Type of output.weight
    #[arg(long, value_name = "TYPE", value_parser = block)]
    output_tensor_type: Option<BlockType>,
    /// Type of token_embd.weight
    #[arg(long, value_name = "TYPE", value_parser = block)]
    token_embedding_type: Option<BlockType>,
    /// An importance matrix, GGUF or .dat (`isobit imatrix` makes one): how much each column matters
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Choose the types so that a model of this size loses least: bits a weight (3.5), or a file's size (600M, 2G)
    #[arg(long, value_name = "SIZE", value_parser = auto_size, conflicts_with_all = ["pure", "asked"])]
    auto: Option<Size>,
    /// OUTPUT is a directory with as many GGUF files as INPUT has, with the same tensors in each
    #[arg(long, conflicts_with = "split_max_size")]
    keep_split: bool,
    /// OUTPUT is a directory of GGUF files with at most so many bytes of tensors each: 500M, 2G
    #[arg(long, value_name = "SIZE", value_parser = split_size)]
    split_max_size: Option<u64>,
    /// Metadata of one's own (TYPE: int, float, bool, str); may be repeated
    #[arg(long, value_name = "KEY=TYPE:VALUE")]
    override_kv: Vec<String>,
    /// Quantise again what is quantised already
    #[arg(long)]
    allow_requantize: bool,
    /// Write it even where `isobit run` would refuse it (an architecture or a tokeniser that is not known here)
    #[arg(long)]
    unchecked: bool,
    /// Say what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object with every tensor and its type
    #[arg(long)]
    json: bool,
    /// Go on with what an interrupted run left; the result is the same to the byte
    #[arg(long)]
    resume: bool,
    /// Where Q8_0, Q4_0 and Q8K128 are encoded: cpu, cpu:LEVEL, gpu, an index of `isobit devices`
    #[arg(short = 'd', long, default_value = "cpu", env = "ISOBIT_QUANTIZE_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::word)]
    device: String,
    /// Worker threads; 0: one per core
    #[arg(short = 't', long, default_value = "0", value_name = "N", value_parser = common::whole::<0, 1024>)]
    #[arg(env = "ISOBIT_THREADS", hide_env_values = true)]
    threads: usize,
    /// How files are read: read, or mmap (a file truncated while mapped kills the process)
    #[arg(long, value_enum, default_value = "read", value_name = "MODE", hide_possible_values = true)]
    load_mode: Load,
    #[command(flatten)]
    slim: SlimArgs,
}

/// What TYPE names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    /// types of a GGUF or packed model
    Mix(Mix),
    /// what the matrices of an msModelSlim directory are
    Slim(Scheme),
}

const INTERRUPTED: &str = "interrupted: what is finished is kept; the same command with --resume goes on";

/// The variable that stands for `--policy`.
const POLICY: &str = "ISOBIT_Q8K128_POLICY";

fn asked(s: &str) -> Result<Asked, String> {
    // some of these are names of block types too, which no GGUF file holds
    let found = Scheme::parse(s).map(Asked::Slim).or(Mix::parse(s).map(Asked::Mix));
    let schemes = Scheme::ALL.map(|s| s.name().to_lowercase().replace('_', "-")).join(", ");
    found.ok_or_else(|| format!("expected one of {}; directories: {schemes}", choose::MIXES))
}

fn policy(s: &str) -> Result<Policy, String> {
    Policy::parse(s).ok_or_else(|| format!("expected one of {}", Policy::NAMES))
}

/// As llama.cpp's tool counts: M is a million.
fn split_size(s: &str) -> Result<u64, String> {
    let upper = s.to_uppercase();
    let unit = if upper.ends_with('G') { 1_000_000_000 } else { 1_000_000 };
    let number = upper.strip_suffix(['M', 'G']).and_then(|n| n.parse::<u64>().ok());
    number.filter(|n| *n > 0).and_then(|n| n.checked_mul(unit)).ok_or_else(|| "expected a size like 500M or 2G".into())
}

/// Bits a weight, or the size of a file.
fn auto_size(s: &str) -> Result<Size, String> {
    let bits = s.parse::<f64>().ok().filter(|bits| (1.0..=16.0).contains(bits));
    let size = bits.map(Size::Bits).or_else(|| split_size(s).ok().map(Size::Bytes));
    size.ok_or_else(|| "expected bits a weight from 1 to 16, as 3.5, or a size like 600M or 2G".into())
}

/// Whether a word names a type, ours or one of those that only llama.cpp has.
fn is_type(word: &str) -> bool {
    let upper = word.to_uppercase();
    let rest = ["IQ", "TQ", "Q", "MXFP"].into_iter().find_map(|start| upper.strip_prefix(start));
    let theirs = rest.is_some_and(|r| {
        r.starts_with(|c: char| c.is_ascii_digit()) && r.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    });
    theirs || asked(word).is_ok()
}

fn block(s: &str) -> Result<BlockType, String> {
    BlockType::parse(s).ok_or_else(|| format!("expected one of {}", choose::MIXES))
}

fn target(s: &str) -> Result<Target, String> {
    Ok(match s.to_lowercase().as_str() {
        "gguf" => Target::Gguf,
        "packed" => Target::Packed,
        "blocks" => Target::Blocks,
        _ => return Err("expected gguf, packed or blocks".into()),
    })
}

impl QuantizeArgs {
    /// The types of a GGUF or packed model.
    fn mix(&self) -> Option<Mix> {
        match self.asked {
            Some(Asked::Mix(mix)) => Some(mix),
            _ => None,
        }
    }

    /// The codes of an msModelSlim directory.
    fn scheme(&self) -> Option<Scheme> {
        match self.asked {
            Some(Asked::Slim(scheme)) => Some(scheme),
            _ => None,
        }
    }

    /// Refuses options that have no effect on the kind of output asked for.
    fn refuse_idle(&self) -> anyhow::Result<()> {
        let packed = self.to != Target::Gguf;
        let copy = self.mix() == Some(Mix::Copy);
        // an environment variable is set for every run, so only the flag is refused where it has no effect
        let set = std::env::var(POLICY).ok().and_then(|v| Policy::parse(&v));
        let policy = self.policy.is_some() && self.policy != set;
        let chosen = !self.tensor_type.is_empty() || self.policy_file.is_some();
        if let Some(scheme) = self.scheme() {
            for (given, flag) in [
                (packed, "--to"),
                (self.pure, "--pure"),
                (self.token_embedding_type.is_some(), "--token-embedding-type"),
                (self.output_tensor_type.is_some(), "--output-tensor-type"),
                (self.leave_output_tensor, "--leave-output-tensor"),
                (policy, "--policy"),
                (chosen, "--tensor-type and --policy-file"),
                (self.keep_split, "--keep-split"),
                (self.imatrix.is_some(), "--imatrix"),
                (self.split_max_size.is_some(), "--split-max-size"),
                (!self.override_kv.is_empty(), "--override-kv"),
            ] {
                let name = scheme.name();
                ensure!(!given, "{flag} has no effect here: {name} is a directory whose matrices are all alike");
            }
            return Ok(());
        }
        if let Some(flag) = self.slim.given() {
            bail!("{flag} has no effect here: it is for w8a16, w4a16, w8a8, w8a8-dynamic and w4a8-dynamic");
        }
        for (given, flag, idle, why) in [
            (self.pure, "--pure", packed, "a packed model has no mixes to leave out"),
            (
                self.token_embedding_type.is_some(),
                "--token-embedding-type",
                packed,
                "a packed model keeps its embedding",
            ),
            (policy, "--policy", !packed, "it says what a packed model has; add --to packed"),
            (self.keep_split, "--keep-split", packed, "it is for GGUF files"),
            (self.imatrix.is_some(), "--imatrix", packed, "it is for GGUF files"),
            (self.auto.is_some(), "--auto", packed, "it is for GGUF files"),
            (self.imatrix.is_some(), "--imatrix", copy, "copy changes no type"),
            (self.split_max_size.is_some(), "--split-max-size", packed, "it is for GGUF files"),
            (!self.override_kv.is_empty(), "--override-kv", packed, "it is for GGUF files"),
            (policy, "--policy", self.mix().is_some(), "TYPE says the same; give one of them"),
            (self.pure, "--pure", copy, "copy changes no type"),
            (chosen, "--tensor-type and --policy-file", copy, "copy changes no type"),
            (self.output_tensor_type.is_some(), "--output-tensor-type", copy, "copy changes no type"),
            (self.token_embedding_type.is_some(), "--token-embedding-type", copy, "copy changes no type"),
            (self.leave_output_tensor, "--leave-output-tensor", copy, "copy changes no type"),
        ] {
            ensure!(!(given && idle), "{flag} has no effect here: {why}");
        }
        Ok(())
    }

    /// llama.cpp's tool makes up the name of OUTPUT where it is left out.
    fn refuse_type_as_output(&self) -> anyhow::Result<()> {
        let word = self.output.to_str().unwrap_or_default();
        if self.asked.is_none() && is_type(word) {
            let (input, stem) = (self.input.display(), self.input.file_stem().unwrap_or_default().to_string_lossy());
            bail!(
                "OUTPUT is {word}, which is a type: write INPUT OUTPUT TYPE, as in `isobit quantize {input} {stem}-{word}.gguf \
                 {word}` (./{word} is a file of that name)"
            );
        }
        Ok(())
    }

    /// A pattern that matches nothing is most likely mistyped. A file of them may be meant for several models.
    fn refuse_idle_patterns(&self, patterns: &[Pattern]) -> anyhow::Result<()> {
        let (flags, lines) = patterns.split_at(self.tensor_type.len());
        let idle: Vec<&str> = flags.iter().filter(|p| !p.met()).map(Pattern::said).collect();
        let input = self.input.display();
        ensure!(
            idle.is_empty(),
            "--tensor-type {}: no tensor of {input} is called so that could have another type; `isobit inspect {input} \
             --tensors` lists them",
            idle.join(", ")
        );
        for line in lines.iter().filter(|p| !p.met()) {
            let file = self.policy_file.as_deref().unwrap_or(Path::new("")).display();
            note!("warning: {file}: {}: matches no tensor of {input} that could have another type", line.said());
        }
        Ok(())
    }

    fn options(&self) -> anyhow::Result<Options> {
        self.refuse_idle()?;
        let policy = self.policy.unwrap_or(Policy::Layer0Qkv);
        let mut patterns = Vec::new();
        for flag in &self.tensor_type {
            patterns.push(Pattern::flag(flag).context("--tensor-type")?);
        }
        let mut overrides = Vec::new();
        for text in &self.override_kv {
            overrides.push(Override::parse(text).context("--override-kv")?);
        }
        // shards are called after the directory, which may be called after the model
        let name = self.output.file_name().map_or("model".into(), |n| n.to_string_lossy());
        let prefix = name.strip_suffix(".gguf").unwrap_or(&name).to_string();
        let split = match self.split_max_size {
            Some(most) => Split::Max(prefix, most),
            None if self.keep_split => Split::Keep(prefix),
            None => Split::No,
        };
        let mut words = format!("{:?} {:?} {:?} {:?}", self.mix(), policy, self.tensor_type, self.allow_requantize);
        if let Some(path) = &self.policy_file {
            let text = common::text(None, Some(path))?;
            patterns.extend(Pattern::file(&text).with_context(|| path.display().to_string())?);
            words += &text;
        }
        let importances = self.imatrix.as_deref().map(Imatrix::open).transpose()?.map(Arc::new);
        Ok(Options {
            target: self.to,
            mix: self.mix(),
            policy,
            patterns,
            pure: self.pure,
            leave_output: self.leave_output_tensor,
            output_type: self.output_tensor_type,
            embedding_type: self.token_embedding_type,
            importances,
            chosen: None,
            requantize: self.allow_requantize,
            split,
            overrides,
            words,
        })
    }

    /// The SIMD level that `--device` names; `None` where it names an adapter.
    fn level(&self) -> anyhow::Result<Option<Level>> {
        let word = self.device.to_lowercase();
        Ok(Some(match word.split_once(':') {
            _ if word == "cpu" => Level::detect(),
            Some(("cpu", name)) => {
                let level = Level::parse(name).filter(|l| l.is_available());
                let has: Vec<&str> = Level::available().iter().map(|l| l.name()).collect();
                level.with_context(|| format!("--device {}: this CPU has {}", self.device, has.join(", ")))?
            }
            _ => return Ok(None),
        }))
    }
}

pub fn run(a: QuantizeArgs) -> anyhow::Result<ExitCode> {
    a.refuse_type_as_output()?;
    let mut options = a.options()?;
    let c = common::open(Some(&a.input), a.load_mode)?;
    output::refuse_sources(&a.output, &c.files)?;
    let threads = a.nthreads.unwrap_or(a.threads);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().context("starting threads")?;
    if let Some(size) = a.auto {
        options.chosen = Some(chosen(&c, &options, size)?);
    }
    let job = match a.scheme() {
        Some(scheme) => {
            output::refuse_target(&a.output, true)?;
            a.slim.plan(scheme, &c, &a.output, a.allow_requantize, threads)?
        }
        None => quantize::plan(&c, &options)?,
    };
    a.refuse_idle_patterns(&options.patterns)?;
    if !a.unchecked {
        refuse_unrunnable(&a, &c, &job)?;
    }
    if a.dry_run {
        let mut out = std::io::stdout().lock();
        if a.json {
            writeln!(out, "{}", json(&a, &job, &c))?;
            return Ok(ExitCode::SUCCESS);
        }
        let all: Vec<&Piece> = job.pieces.iter().filter(|p| p.tensor(&c).is_some()).collect();
        for (i, p) in all.iter().enumerate() {
            writeln!(out, "{}", line(i + 1, all.len(), p, &c))?;
        }
        writeln!(out, "{}", summary(&job, &c))?;
        return Ok(ExitCode::SUCCESS);
    }
    let level = a.level()?;
    let mut encoder: Option<Box<dyn Encoder>> = match level {
        Some(_) => None,
        None => Some(device_encoder(&a.device)?),
    };
    if !a.resume && Staged::waiting(&a.output) {
        note!("warning: {} holds an unfinished model: starting anew (--resume goes on)", a.output.display());
    }
    let (mut staged, noted) = Staged::begin(&a.output, &job.layout, a.resume)?;
    let level = level.unwrap_or_else(Level::detect);
    let written = write(&job, &c, &mut staged, &noted, level, &mut encoder);
    let result = written.and_then(|()| if a.unchecked { Ok(()) } else { look_at(&a, &staged) });
    match result {
        Ok(()) => {
            interrupt::whole(|| staged.commit())?;
            note!("{}: {}", a.output.display(), summary(&job, &c));
            if a.json {
                writeln!(std::io::stdout(), "{}", json(&a, &job, &c))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(e) if Interrupted::caused(&e) => {
            interrupt::seen();
            note!("{INTERRUPTED}");
            interrupt::leave()
        }
        Err(e) => {
            settle(staged, &e);
            Err(e)
        }
    }
}

/// The types of `--auto`.
fn chosen(c: &Container, o: &Options, size: Size) -> anyhow::Result<BTreeMap<String, BlockType>> {
    let bar = common::bar(c.tensors.len() as u64, "trying types {bar:30} {pos}/{len} tensors {eta}");
    let made = auto::choose(c, o, size, interrupt::stop(), &|| bar.inc(1)).context("--auto")?;
    bar.finish_and_clear();
    let mut of: BTreeMap<&str, usize> = BTreeMap::new();
    made.types.values().for_each(|ty| *of.entry(ty.name()).or_default() += 1);
    let list: Vec<String> = of.iter().map(|(ty, n)| format!("{ty} {n}")).collect();
    note!("chosen: {:.3} bits a weight; tensors of {}", made.bits, list.join(", "));
    Ok(made.types)
}

/// What an error of a model that would not run begins with.
fn unrunnable(a: &QuantizeArgs) -> String {
    format!("{}: `isobit run` would refuse it (--unchecked writes it all the same)", a.output.display())
}

/// Refuses, before anything is written, what makes a model that this program would not run: what the source lacks the
/// result will lack.
fn refuse_unrunnable(a: &QuantizeArgs, c: &Container, job: &Job) -> anyhow::Result<()> {
    if !a.override_kv.is_empty() {
        // the result may have what the source lacks, so it is checked when it is written
        return Ok(());
    }
    let check = || {
        let h = Hyper::read(c)?;
        common::check_weights(c, &h)?;
        let tokenizer = match &job.meta {
            Some(meta) => {
                let made = Tokenizer::from_gguf(meta);
                made.with_context(|| format!("{}: the tokeniser made of it", c.described_by().display()))?
            }
            None => Tokenizer::read(c)?,
        };
        check_vocabulary(c, &h, &tokenizer)
    };
    check().with_context(|| unrunnable(a))
}

/// Opens what was written as `isobit run` would, before it has its name.
fn look_at(a: &QuantizeArgs, staged: &Staged) -> anyhow::Result<()> {
    let check = || {
        let c = Container::open(staged.path(), LoadMode::Read)?;
        let h = Hyper::read(&c)?;
        check_vocabulary(&c, &h, &Tokenizer::read(&c)?)?;
        common::check_weights(&c, &h)
    };
    check().map_err(|e| match e.chain().any(|cause| cause.is::<std::io::Error>()) {
        true => e,
        // making it again would give the same file
        false => anyhow::Error::new(Damaged::new(format!("{}: {e:#}", unrunnable(a)))),
    })
}

/// What becomes of finished work after an error: a full disk or a lost device can be mended, a damaged model cannot.
fn settle(staged: Staged, error: &anyhow::Error) {
    if !error.chain().any(|c| c.is::<Damaged>()) {
        note!("what is finished is kept; the same command with --resume goes on");
    } else if let Err(e) = staged.discard() {
        // the first error is the one to end with
        note!("warning: what was written is left: {e}");
    }
}

fn write(
    job: &Job,
    c: &Container,
    staged: &mut Staged,
    noted: &[(usize, u128)],
    level: Level,
    encoder: &mut Option<Box<dyn Encoder>>,
) -> anyhow::Result<()> {
    let done = quantize::check(job, c, staged, noted)?;
    let bar = common::bar(job.bytes_in(c), "quantising {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
    let tensors: Vec<usize> = (0..job.pieces.len()).filter(|i| job.pieces[*i].tensor(c).is_some()).collect();
    let begin = |i: usize| {
        if let Ok(n) = tensors.binary_search(&i) {
            note!("{}", line(n + 1, tensors.len(), &job.pieces[i], c));
        }
    };
    let kept: Vec<&Piece> = job.pieces.iter().zip(&done).filter(|(_, done)| **done).map(|(p, _)| p).collect();
    bar.inc(kept.iter().filter_map(|p| p.source(c)).fold(0, |n, t| n.saturating_add(t.bytes)));
    if !noted.is_empty() {
        let kept = kept.iter().filter(|p| p.tensor(c).is_some()).count();
        note!("resuming: {kept} of {} tensors are finished", tensors.len());
    }
    // from here on work is finished or noted in the journal; before this a later run loses nothing
    let held = interrupt::hold();
    held.words(|| Words { out: String::new(), err: INTERRUPTED.into() });
    let watch = Watch { begin: &begin, progress: &|n| bar.inc(n), stop: &|| interrupt::stop().asked() };
    let encoder = encoder.as_mut().map(|e| e.as_mut() as &mut dyn Encoder);
    quantize::run(job, c, staged, &done, level, encoder, &watch)?;
    for (name, bytes) in &job.side {
        staged.put(name, bytes)?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// `[ 12/ 290] blk.0.attn_q.weight - [2048, 2048], type = F16, converting to Q4_K .. size = 8.00 -> 2.25 MiB`.
fn line(i: usize, n: usize, p: &Piece, c: &Container) -> String {
    let Some(t) = p.source(c) else { return String::new() };
    let width = n.to_string().len();
    let shape: Vec<String> = t.shape.iter().map(u64::to_string).collect();
    let mib = |bytes: u64| format!("{:.2}", bytes as f64 / f64::from(1 << 20));
    let what = match (&p.data, p.dtype(c)) {
        (Data::Tensor { to: Some(_), .. }, Some(to)) => {
            format!("converting to {to} .. size = {} -> {} MiB", mib(t.bytes), mib(p.bytes))
        }
        (Data::Made { made, .. }, _) => {
            let to = made.linear.scheme.name();
            format!("converting to {to} .. size = {} -> {} MiB", mib(t.bytes), mib(p.bytes))
        }
        _ => format!("kept, size = {} MiB", mib(t.bytes)),
    };
    let note = p.note.as_deref().map_or(String::new(), |n| format!(" ({n})"));
    format!("[{i:>width$}/{n:>width$}] {} - [{}], type = {}, {what}{note}", p.name, shape.join(", "), t.dtype)
}

/// Bits of the new model per element of its tensors.
fn bits(job: &Job, c: &Container) -> f64 {
    let elems = job.pieces.iter().filter_map(|p| p.tensor(c)).map(Tensor::elems).fold(0, u64::saturating_add);
    job.bytes_out() as f64 * 8.0 / elems.max(1) as f64
}

/// `7.01 MiB -> 2.27 MiB, 4.95 bits per weight`.
fn summary(job: &Job, c: &Container) -> String {
    let [from, to] = [job.bytes_of_source(c), job.bytes_out()].map(super::inspect::size);
    format!("{from} -> {to}, {:.2} bits per weight", bits(job, c))
}

/// What was written, or with `--dry-run` would be.
fn json(a: &QuantizeArgs, job: &Job, c: &Container) -> serde_json::Value {
    let tensor = |p: &Piece| {
        let t = p.tensor(c)?;
        let kept = !matches!(p.data, Data::Tensor { to: Some(_), .. } | Data::Made { .. });
        let to = p.dtype(c).filter(|_| !kept).unwrap_or(t.dtype);
        Some(serde_json::json!({"name": p.name, "shape": t.shape, "from": t.dtype.name(), "to": to.name(),
            "kept": kept, "bytes_in": t.bytes, "bytes_out": p.bytes, "note": p.note}))
    };
    serde_json::json!({
        "input": a.input.display().to_string(),
        "output": a.output.display().to_string(),
        "dry_run": a.dry_run,
        "bytes_in": job.bytes_of_source(c),
        "bytes_out": job.bytes_out(),
        "bits_per_weight": bits(job, c),
        "tensors": job.pieces.iter().filter_map(tensor).collect::<Vec<_>>(),
    })
}

/// The engine's options with nothing typed: what opening a device asks for.
#[derive(clap::Parser)]
struct Alone {
    #[command(flatten)]
    engine: EngineArgs,
}

/// The device's encoder; types it does not have are encoded on the CPU.
fn device_encoder(device: &str) -> anyhow::Result<Box<dyn Encoder>> {
    let engine = Alone::try_parse_from(["isobit"]).context("options of the engine")?.engine;
    let opened = engine.devices().open(device)?;
    note!("encoding on {}", opened.name());
    Ok(Box::new(DeviceEncoder::new(opened.inner)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::gguf_write::{self, Entry};
    use crate::formats::meta::Meta;

    /// A device that is lost after some rows.
    struct Lost {
        left: usize,
        error: fn() -> anyhow::Error,
    }

    impl Encoder for Lost {
        fn takes(&self, ty: BlockType) -> bool {
            ty == BlockType::Q8_0
        }

        fn encode(&mut self, ty: BlockType, x: &[f32], out: &mut [u8]) -> anyhow::Result<()> {
            if self.left == 0 {
                bail!((self.error)());
            }
            self.left -= 1;
            ty.encode_row(x, out);
            Ok(())
        }
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: QuantizeArgs,
    }

    fn parse(words: &[&str]) -> QuantizeArgs {
        Line::parse_from([&["quantize"], words].concat()).args
    }

    #[test]
    fn what_is_finished_when_a_device_is_lost_is_there_for_the_next_run() {
        let input = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/tiny-stories-f16.gguf");
        let errors: &[fn() -> anyhow::Error] = &[
            #[cfg(feature = "gpu")]
            || crate::host::HostError::Lost("unplugged".into()).into(),
            || common::DeviceError("no answer".into()).into(),
            || anyhow::anyhow!("no answer"),
        ];
        for &error in errors {
            let dir = tempfile::tempdir().unwrap();
            let out = dir.path().join("m.gguf");
            let a = parse(&[input, out.to_str().unwrap(), "q8_0"]);
            let c = Container::open(&a.input, LoadMode::Read).unwrap();
            let job = quantize::plan(&c, &a.options().unwrap()).unwrap();
            let (mut staged, noted) = Staged::begin(&out, &job.layout, true).unwrap();
            let mut encoder: Option<Box<dyn Encoder>> = Some(Box::new(Lost { left: 5, error }));
            let e = write(&job, &c, &mut staged, &noted, Level::detect(), &mut encoder).unwrap_err();
            settle(staged, &e);
            let (staged, noted) = Staged::begin(&out, &job.layout, true).unwrap();
            let done = quantize::check(&job, &c, &staged, &noted).unwrap();
            let kept = done.iter().zip(&job.pieces).filter(|(done, p)| **done && p.source(&c).is_some()).count();
            assert!(kept >= 5, "{kept} tensors kept after {e}");
            settle(staged, &anyhow::Error::new(Damaged::new("bad")).context("tensor x"));
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "of a damaged model nothing is kept");
        }
    }

    #[test]
    fn a_device_is_asked_for_no_rows_of_a_tensor_without_elements() {
        let dir = tempfile::tempdir().unwrap();
        let (input, out) = (dir.path().join("in.gguf"), dir.path().join("m.gguf"));
        let dtype = crate::formats::Dtype::from_block(BlockType::F16).unwrap();
        let entry = |name: &str, shape: &[u64]| Entry { name: name.into(), dtype, shape: shape.to_vec() };
        let entries = [entry("blk.0.attn_q.weight", &[0, 1 << 60]), entry("blk.0.attn_k.weight", &[1 << 40, 0])];
        std::fs::write(&input, gguf_write::head("in", &Meta::default(), &entries).unwrap().bytes).unwrap();
        let a = parse(&[input.to_str().unwrap(), out.to_str().unwrap(), "q8_0"]);
        let c = Container::open(&a.input, LoadMode::Read).unwrap();
        let job = quantize::plan(&c, &a.options().unwrap()).unwrap();
        let (mut staged, noted) = Staged::begin(&out, &job.layout, false).unwrap();
        let lost = Lost { left: 0, error: || anyhow::anyhow!("asked") };
        let mut encoder: Option<Box<dyn Encoder>> = Some(Box::new(lost));
        write(&job, &c, &mut staged, &noted, Level::detect(), &mut encoder).unwrap();
        staged.commit().unwrap();
        assert_eq!(Container::open(&out, LoadMode::Read).unwrap().tensors[0].shape, [0, 1 << 60]);
    }

    #[test]
    fn sizes_of_files_are_millions_and_thousands_of_them() {
        let sizes = ["500M", "2g", "1G"].map(|s| split_size(s).unwrap());
        assert_eq!(sizes, [500_000_000, 2_000_000_000, 1_000_000_000]);
        for bad in ["", "G", "2", "0G", "-1G", "2K", "1.5G", "99999999999G", "18446744073709551615M"] {
            assert!(split_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn options_that_would_say_nothing_are_refused() {
        for (words, flag) in [
            (&["a", "b", "--to", "packed", "--pure"][..], "--pure"),
            (&["a", "b", "--to", "blocks", "--token-embedding-type", "q8_0"], "--token-embedding-type"),
            (&["a", "b", "--policy", "qkv"], "--policy"),
            (&["a", "b", "q8k", "--to", "packed", "--policy", "qkv"], "--policy"),
            (&["a", "b", "--to", "packed", "--keep-split"], "--keep-split"),
            (&["a", "b", "--to", "packed", "--split-max-size", "2G"], "--split-max-size"),
            (&["a", "b", "--to", "packed", "--override-kv", "a=int:1"], "--override-kv"),
            (&["a", "b", "copy", "--pure"], "--pure"),
            (&["a", "b", "copy", "--tensor-type", "x=q8_0"], "--tensor-type"),
            (&["a", "b", "copy", "--output-tensor-type", "q8_0"], "--output-tensor-type"),
            (&["a", "b", "copy", "--leave-output-tensor"], "--leave-output-tensor"),
        ] {
            let error = parse(words).options().unwrap_err().to_string();
            assert!(error.starts_with(flag) && error.contains("has no effect here"), "{error}");
        }
        for words in [&["a", "b", "--to", "packed", "--policy", "qkv"][..], &["a", "b", "q4_k_m", "--pure"]] {
            parse(words).options().unwrap();
        }
    }
}
