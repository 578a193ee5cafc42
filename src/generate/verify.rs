//! Runs one model on several devices side by side and compares every buffer a command writes, after each command.

use super::session::{Session, SessionOptions, Want};
use super::tokenizer::Tokenizer;
use crate::formats::Container;
use crate::models::Hyper;
use crate::record::Device;
use anyhow::ensure;
use sha2::{Digest, Sha256};

/// Tokens of the prompt of `isobit verify`.
pub const PROMPT_TOKENS: usize = 64;

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
    /// (device, prompt fed in pieces of, digest) of the runs that are not compared word by word
    pub digests: Vec<(String, usize, String)>,
}

impl Report {
    /// No word differs and every digest is the reference's.
    pub fn ok(&self) -> bool {
        self.mismatches == 0 && self.digests.iter().all(|(_, _, d)| *d == self.digest)
    }
}

/// What to feed.
#[derive(Clone, Debug)]
pub struct Script {
    /// prompt ids
    pub prompt: Vec<u32>,
    /// tokens generated greedily after it
    pub generate: usize,
    /// pieces the prompt is also fed in (0: whole), one digest demanded for each
    pub batches: Vec<usize>,
}

/// The first device is the reference. `tick` hears of every step.
pub async fn verify(
    devices: &mut [Box<dyn Device>],
    container: &Container,
    hyper: &Hyper,
    mut options: SessionOptions,
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
        sessions.push(Session::new(d.as_mut(), container, hyper, options, |_| {}).await?);
    }
    let mut report = Report::default();
    let mut hash = Sha256::new();
    let mut pending = script.prompt.clone();
    let mut left = script.generate;
    let ubatch = sessions[0].built().plan.max_tokens;
    loop {
        let n = pending.len().min(ubatch);
        let piece: Vec<u32> = pending.drain(..n).collect();
        let wanted = usize::from(pending.is_empty());
        let logits = compare_step(&mut sessions, &names, &piece, wanted, &mut report).await?;
        tick();
        if wanted == 0 {
            continue;
        }
        hash.update(bytemuck::cast_slice::<u32, u8>(&logits));
        if left == 0 {
            break;
        }
        left -= 1;
        pending.push(argmax(bytemuck::cast_slice(&logits)));
    }
    report.digest = hex(&hash.finalize());
    for &pieces in &script.batches {
        for (s, name) in sessions.iter_mut().zip(&names) {
            s.reset();
            let digest = digest_of(s, script, pieces).await?;
            report.digests.push((name.clone(), pieces, digest));
            tick();
        }
    }
    Ok(report)
}

async fn compare_step(
    sessions: &mut [Session<'_>],
    names: &[String],
    ids: &[u32],
    n_out: usize,
    report: &mut Report,
) -> anyhow::Result<Vec<u32>> {
    for s in sessions.iter() {
        s.check(ids)?;
    }
    let mut steps: Vec<_> = sessions.iter_mut().map(|s| s.prepare(ids, n_out).clone()).collect();
    if n_out == 1 && sessions.iter().all(|s| s.built().plan.selected.is_some()) {
        steps.iter_mut().for_each(|s| s.select = SELECT);
    }
    for index in 0..sessions[0].commands().len() {
        let command = sessions[0].commands()[index].clone();
        for (s, step) in sessions.iter_mut().zip(&steps) {
            s.device().run_one(index, step).await?;
        }
        if command.args_for(&steps[0]).is_none() {
            continue;
        }
        for &buffer in command.outputs() {
            let expected = sessions[0].device().read(buffer).await?;
            for (s, name) in sessions[1..].iter_mut().zip(&names[1..]) {
                let found = s.device().read(buffer).await?;
                ensure!(
                    found.len() == expected.len(),
                    "{name}: {} words read back, expected {}",
                    found.len(),
                    expected.len()
                );
                report.words += expected.len() as u64;
                for (word, (e, f)) in expected.iter().zip(&found).enumerate() {
                    if e != f {
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
        }
        report.commands += sessions.len() as u64 - 1;
    }
    for s in sessions.iter_mut() {
        s.advance(ids.len());
    }
    let built = sessions[0].built();
    let (logits, vocab) = (built.plan.logits, built.plan.vocab);
    let mut words = if n_out == 0 { vec![] } else { sessions[0].device().read(logits).await? };
    words.truncate(n_out * vocab);
    Ok(words)
}

/// The digest of the same script run step by step without reading anything but logits.
pub async fn digest_of(session: &mut Session<'_>, script: &Script, pieces: usize) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    let mut last = Vec::new();
    let size = if pieces == 0 { script.prompt.len() } else { pieces };
    let count = script.prompt.len().div_ceil(size);
    for (i, piece) in script.prompt.chunks(size).enumerate() {
        session
            .feed(piece, Want::Last, |_, l| {
                if i + 1 == count {
                    hash.update(bytemuck::cast_slice::<f32, u8>(l));
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
                hash.update(bytemuck::cast_slice::<f32, u8>(l));
                last.copy_from_slice(l);
                Ok(())
            })
            .await?;
    }
    Ok(hex(&hash.finalize()))
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
