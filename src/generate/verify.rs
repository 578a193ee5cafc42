//! Runs one model on several devices side by side and compares every buffer a command writes, after each command; then
//! on each device alone as a user runs it, a submit for each step, and compares what comes back. Of an encoder the prompt is cut
//! into texts, and hidden states take the place of logits.
//!
//! A comparison of nothing must not pass: logits that are not finite, or all zero, are an error, and a [`Report`] says
//! what was covered.

mod whole;

use super::session::{self, Session, SessionOptions, Want};
use super::tokenizer::Tokenizer;
use crate::formats::Container;
use crate::models::{Hyper, RECENT_CHUNK};
use crate::record::{Best, Command, Device, Step};
use anyhow::ensure;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Tokens of the prompt of `isobit verify`: `PIECES`.
pub const PROMPT_TOKENS: usize = 190;

/// Tokens of the steps that a prompt is walked through in, as far as it goes; a longer one begins again. Devices have
/// kernels for one token, for up to 4, for a few (to 15) and for many; one step of each kind and size lies across a
/// multiple of 64 and of 128 positions, where chunks and pages of the cache end.
const PIECES: [usize; 6] = [24, 5, 3, 93, 5, 60];

/// Best logits that every step with logits selects.
const SELECT: usize = 64;

/// A text that any tokeniser turns into varied ids.
const PROMPT: &str = "Once upon a time there was a king who had three sons, and the youngest of them was called Jack. \
    One day the king said: 'Whoever brings me the bird that sings 7 songs in 12 keys shall have the kingdom.' \
    So they went out into the wide world, each by a different road, and did not come home for many years.";

/// The fixed text in the model's own ids, cut or repeated to `len`, or a fixed sequence of ids where the model has no
/// tokeniser that can be used.
pub fn prompt(tokenizer: Option<&Tokenizer>, vocab: usize, len: usize) -> Vec<u32> {
    let ids = tokenizer.and_then(|t| t.encode(PROMPT, t.adds_bos(), false).ok());
    let ids = ids.filter(|ids| !ids.is_empty() && ids.iter().all(|&id| (id as usize) < vocab));
    let ids = ids
        .unwrap_or_else(|| (0..len as u64).map(|i| ((i * i * 7919 + i * 104729 + 13) % vocab as u64) as u32).collect());
    ids.iter().copied().cycle().take(len).collect()
}

/// A word that differs from the reference device's.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// the device that differs
    pub device: String,
    /// command and layer
    pub command: String,
    /// position of the step's first token
    pub pos: usize,
    /// buffer the command wrote
    pub buffer: String,
    /// word of that buffer
    pub word: usize,
    /// the reference's word
    pub expected: u32,
    /// the device's word
    pub found: u32,
}

/// What the steps of a walk reached.
#[derive(Clone, Debug, Default)]
pub struct Covered {
    /// steps, by their number of tokens
    pub steps: BTreeMap<usize, u64>,
    /// positions of the sequence
    pub positions: usize,
    /// pages of the cache that attention read
    pub pages: usize,
    /// each device that has several kernels for an operation, and those that ran (`Device::kernels`)
    pub kernels: Vec<(String, Vec<String>)>,
}

/// The best logits of a device that selects them, a submit for each step.
#[derive(Clone, Debug)]
pub struct Selection {
    /// the device
    pub device: String,
    /// steps under way at once: with 2 the next one begins before its token is known here
    pub ahead: usize,
    /// position of the first selection that differs from the walk's
    pub differs: Option<usize>,
}

/// What was compared, and how it ended.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// commands whose results were compared (per device)
    pub commands: u64,
    /// words compared
    pub words: u64,
    /// words that differ
    pub mismatches: u64,
    /// the first of them
    pub first: Option<Mismatch>,
    /// SHA-256 over the logits of the last prompt position and every generated one, of the reference
    pub digest: String,
    /// (device, prompt fed in pieces of (0: whole), digest) of the runs with a submit for each step
    pub digests: Vec<(String, usize, String)>,
    /// position of the first of their logits that differ
    pub differs: Option<usize>,
    /// the runs in which the device selects
    pub selections: Vec<Selection>,
    /// what the walk reached
    pub covered: Covered,
}

impl Report {
    /// No word differs and every digest is the reference's.
    pub fn ok(&self) -> bool {
        self.mismatches == 0
            && self.digests.iter().all(|(_, _, d)| *d == self.digest)
            && self.selections.iter().all(|s| s.differs.is_none())
    }
}

/// What to feed.
#[derive(Clone, Debug)]
pub struct Script {
    /// prompt ids
    pub prompt: Vec<u32>,
    /// tokens generated greedily after it
    pub generate: usize,
    /// pieces the prompt is also fed in (0: whole), a submit for each step, one digest demanded for each
    pub batches: Vec<usize>,
}

/// The tokens of each step of a prompt of `len`, none of more than `ubatch`.
fn pieces(len: usize, ubatch: usize) -> Vec<usize> {
    let mut left = len;
    let mut cut = Vec::new();
    for piece in PIECES.into_iter().cycle() {
        let piece = piece.min(left);
        cut.extend((0..piece).step_by(ubatch).map(|first| ubatch.min(piece - first)));
        left -= piece;
        if left == 0 {
            break;
        }
    }
    cut
}

/// The first device is the reference. `tick` hears of every step of the walk and of every run after it.
pub async fn verify(
    devices: &mut [Box<dyn Device>],
    container: &Container,
    hyper: &Hyper,
    options: SessionOptions,
    script: &Script,
    tick: impl FnMut(),
) -> anyhow::Result<Report> {
    verify_paged(devices, container, hyper, options, usize::MAX, script, tick).await
}

/// As [`verify`], with cache pages of at most `page` positions.
///
/// Errors: those of the devices; logits that are not finite, or all zero, on every device alike, with the position and the
/// first operation that wrote something not finite.
pub async fn verify_paged(
    devices: &mut [Box<dyn Device>],
    container: &Container,
    hyper: &Hyper,
    mut options: SessionOptions,
    page: usize,
    script: &Script,
    mut tick: impl FnMut(),
) -> anyhow::Result<Report> {
    ensure!(devices.len() >= 2 || !script.batches.is_empty(), "verify needs two devices");
    // one plan for all: the smallest binding limit decides how matrices are split
    for d in devices.iter() {
        options.plan.max_binding_words = options.plan.max_binding_words.min(d.info().max_binding_words);
    }
    let names: Vec<String> = devices.iter().map(|d| d.info().name).collect();
    let mut sessions = Vec::new();
    for d in devices.iter_mut() {
        sessions.push(Session::paged(d.as_mut(), container, hyper, options, page, |_| {}).await?);
    }
    if sessions[0].feeds_whole() {
        return whole::verify(sessions, &names, script, tick).await;
    }
    let mut walk = Walk::default();
    let (mut logits, mut selected) = (Prefixes::default(), Prefixes::default());
    let mut steps = pieces(script.prompt.len(), sessions[0].built().plan.max_tokens).into_iter();
    let mut pending = script.prompt.clone();
    let mut left = script.generate;
    while !pending.is_empty() {
        let piece: Vec<u32> = pending.drain(..steps.next().unwrap_or(1)).collect();
        let wanted = usize::from(pending.is_empty());
        let found = walk.step(&mut sessions, &names, &piece, wanted).await?;
        tick();
        if wanted == 0 {
            continue;
        }
        let row: &[f32] = bytemuck::cast_slice(&found.logits);
        if let Err(e) = worth_comparing(sessions[0].pos() - 1, row) {
            // a device that differs is the greater news, and after this there is nothing to go on with
            if walk.report.mismatches == 0 {
                return Err(walk.blamed(e));
            }
            walk.report.digest = logits.digest();
            return Ok(walk.report);
        }
        logits.push_row(row);
        selected.push_best(&found.best);
        if left > 0 {
            left -= 1;
            pending.push(argmax(row));
        }
    }
    let mut report = walk.report;
    report.digest = logits.digest();
    report.covered.positions = sessions[0].pos();
    report.covered.pages = walk.pages.len();
    for (s, name) in sessions.iter_mut().zip(&names) {
        for &pieces in &script.batches {
            s.reset();
            let run = logits_of(s, script, pieces).await?;
            report.differs = report.differs.or(logits.differ(&run, script));
            report.digests.push((name.clone(), pieces, run.digest()));
            tick();
        }
        if s.ahead() > 0 && !script.batches.is_empty() {
            // the cache has the prompt; its last chunk is fed again
            let from = (script.prompt.len() - 1) / RECENT_CHUNK * RECENT_CHUNK;
            // a recurrent model has no way back there
            let from = if s.is_recurrent() { 0 } else { from };
            s.reset();
            if from > 0 {
                s.advance(from);
            }
            let (ahead, run) = (s.ahead(), selections_of(s, &script.prompt[from..], script.generate).await?);
            report.selections.push(Selection { device: name.clone(), ahead, differs: selected.differ(&run, script) });
            tick();
        }
        let kernels = s.device().kernels();
        if !kernels.is_empty() {
            report.covered.kernels.push((name.clone(), kernels));
        }
    }
    Ok(report)
}

/// Errors: logits that are not finite; logits that are all zero, as those of a kernel that never ran.
fn worth_comparing(pos: usize, logits: &[f32]) -> anyhow::Result<()> {
    session::finite(pos, logits)?;
    ensure!(
        logits.iter().any(|&l| l != 0.0),
        "the logits of position {pos} are all zero: to compare them shows nothing; is the model's output matrix zero?"
    );
    Ok(())
}

/// Digests of one row after another, each over all rows so far.
#[derive(Default)]
struct Prefixes {
    hash: Sha256,
    rows: Vec<String>,
}

impl Prefixes {
    fn push_row(&mut self, logits: &[f32]) {
        self.hash.update(bytemuck::cast_slice::<f32, u8>(logits));
        self.rows.push(hex(&self.hash.clone().finalize()));
    }

    fn push_best(&mut self, best: &[Best]) {
        best.iter().for_each(|b| self.hash.update(bytemuck::cast_slice(&[b.logit.to_bits(), b.id])));
        self.rows.push(hex(&self.hash.clone().finalize()));
    }

    /// Over all rows.
    fn digest(&self) -> String {
        hex(&self.hash.clone().finalize())
    }

    /// Position of the first row that differs from those of a run of the same script.
    fn differ(&self, run: &Prefixes, script: &Script) -> Option<usize> {
        let first = self.rows.iter().zip(&run.rows).position(|(a, b)| a != b);
        let short = (self.rows.len() != run.rows.len()).then(|| self.rows.len().min(run.rows.len()));
        first.or(short).map(|row| script.prompt.len() - 1 + row)
    }
}

/// The first value that is not finite.
struct NotFinite {
    command: String,
    pos: usize,
    buffer: String,
    word: usize,
    bits: u32,
}

/// What a step of the walk gave, on the reference.
struct Found {
    /// words of the wanted logits
    logits: Vec<u32>,
    /// the best of them, where the plan selects
    best: Vec<Best>,
}

/// Devices side by side, command by command.
#[derive(Default)]
struct Walk {
    report: Report,
    pages: BTreeSet<u32>,
    not_finite: Option<NotFinite>,
}

impl Walk {
    async fn step(
        &mut self,
        sessions: &mut [Session<'_>],
        names: &[String],
        ids: &[u32],
        n_out: usize,
    ) -> anyhow::Result<Found> {
        for s in sessions.iter() {
            s.check(ids)?;
        }
        let mut steps: Vec<_> = sessions.iter_mut().map(|s| s.prepare(ids, n_out).clone()).collect();
        let selected = sessions[0].built().plan.selected.filter(|_| n_out == 1);
        if selected.is_some() {
            steps.iter_mut().for_each(|s| s.select = SELECT);
        }
        let report = &mut self.report;
        *report.covered.steps.entry(ids.len()).or_default() += 1;
        for (s, step) in sessions.iter_mut().zip(&steps) {
            s.device().begin(step).await?;
        }
        for index in 0..sessions[0].commands().len() {
            let command = sessions[0].commands()[index].clone();
            for s in sessions.iter_mut() {
                s.device().run_one(index).await?;
            }
            let Some(args) = command.args_for(&steps[0]) else { continue };
            self.pages.extend(args.page_first());
            for &buffer in command.outputs() {
                let expected = sessions[0].device().read(buffer).await?;
                let built = sessions[0].built();
                let decl = &built.plan.buffers[buffer];
                let rows = if command.rows.are_outputs() { built.plan.max_out } else { built.plan.max_tokens };
                if self.not_finite.is_none() {
                    self.not_finite = not_finite(&command, &steps[0], &expected, command.float_stride(buffer), rows)
                        .map(|n| NotFinite { buffer: decl.name.clone(), ..n });
                }
                for (s, name) in sessions[1..].iter_mut().zip(&names[1..]) {
                    let found = s.device().read(buffer).await?;
                    ensure!(
                        found.len() == expected.len(),
                        "{name}: {} words read back, expected {}",
                        found.len(),
                        expected.len()
                    );
                    report.words += expected.len() as u64;
                    if found == expected {
                        continue;
                    }
                    for (word, (e, f)) in expected.iter().zip(&found).enumerate().filter(|(_, (e, f))| e != f) {
                        report.mismatches += 1;
                        report.first.get_or_insert_with(|| Mismatch {
                            device: name.clone(),
                            command: command.title(),
                            pos: steps[0].pos,
                            buffer: s.built().plan.buffers[buffer].name.clone(),
                            word,
                            expected: *e,
                            found: *f,
                        });
                    }
                }
            }
            report.commands += sessions.len() as u64 - 1;
        }
        for s in sessions.iter_mut() {
            s.advance(ids.len());
        }
        let built = sessions[0].built();
        let (logits, vocab) = (built.plan.logits, built.plan.width);
        let mut words = match logits {
            Some(id) if n_out > 0 => sessions[0].device().read(id).await?,
            _ => vec![],
        };
        words.truncate(n_out * vocab);
        let best = match selected {
            Some(id) => Best::read(&sessions[0].device().read(id).await?[..SELECT * Best::WORDS]).collect(),
            None => vec![],
        };
        Ok(Found { logits: words, best })
    }

    /// The error, with the operation that first wrote something not finite.
    fn blamed(&self, e: anyhow::Error) -> anyhow::Error {
        match &self.not_finite {
            None => e,
            Some(n) => anyhow::anyhow!(
                "{e}; the first value that is not finite is of {}, position {}: buffer {} word {}, {:08x} ({:e})",
                n.command,
                n.pos,
                n.buffer,
                n.word,
                n.bits,
                f32::from_bits(n.bits)
            ),
        }
    }
}

/// The first of a command's floats, `stride` words apart, whose exponent is 255. The buffer has `rows` rows.
fn not_finite(c: &Command, step: &Step, words: &[u32], stride: Option<usize>, rows: usize) -> Option<NotFinite> {
    let exponent = 0x7f80_0000;
    let word = words.iter().step_by(stride?).position(|w| w & exponent == exponent)? * stride?;
    let first = if c.rows.are_outputs() { step.out_first } else { 0 };
    let pos = step.pos + first + word / (words.len() / rows).max(1);
    Some(NotFinite { command: c.title(), pos, buffer: String::new(), word, bits: words[word] })
}

/// The digest of the same script run step by step without reading anything but logits; the prompt in pieces of so many
/// (0: whole).
pub async fn digest_of(session: &mut Session<'_>, script: &Script, pieces: usize) -> anyhow::Result<String> {
    Ok(logits_of(session, script, pieces).await?.digest())
}

async fn logits_of(session: &mut Session<'_>, script: &Script, pieces: usize) -> anyhow::Result<Prefixes> {
    let mut rows = Prefixes::default();
    let mut last = Vec::new();
    let size = if pieces == 0 { script.prompt.len() } else { pieces };
    let count = script.prompt.len().div_ceil(size);
    for (i, piece) in script.prompt.chunks(size).enumerate() {
        session
            .feed(piece, Want::Last, |_, l| {
                if i + 1 == count {
                    rows.push_row(l);
                    last = l.to_vec();
                }
                Ok(())
            })
            .await?;
    }
    for _ in 0..script.generate {
        let id = argmax(&last);
        session
            .feed(&[id], Want::Last, |_, l| {
                rows.push_row(l);
                last.copy_from_slice(l);
                Ok(())
            })
            .await?;
    }
    Ok(rows)
}

/// The best logits of a prompt's last token and of those generated greedily after it, as the device selects them, with as
/// many steps under way as it takes.
async fn selections_of(session: &mut Session<'_>, prompt: &[u32], generate: usize) -> anyhow::Result<Prefixes> {
    let mut rows = Prefixes::default();
    let mut best = Vec::new();
    session.start(prompt, SELECT).await?;
    session.best(&mut best).await?;
    rows.push_best(&best);
    for i in 0..generate {
        if session.under_way() == 0 {
            session.start(&[best[0].id], SELECT).await?;
        }
        if session.ahead() > 1 && i + 1 < generate {
            session.follow().await?;
        }
        session.best(&mut best).await?;
        rows.push_best(&best);
    }
    Ok(rows)
}

/// Index of the largest value, the lowest among equals.
pub fn argmax(v: &[f32]) -> u32 {
    let mut best = 0;
    for (i, x) in v.iter().enumerate() {
        if *x > v[best] {
            best = i;
        }
    }
    best as u32
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
