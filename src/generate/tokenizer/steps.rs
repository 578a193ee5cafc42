//! The steps a `tokenizer.json` prepares text with, run by the `tokenizers` crate one at a time under watch.
//!
//! A step may make its text longer, so a list of them can make three bytes into gigabytes: eight that each replace one
//! letter by ten take a few hundred bytes of file. Lists are therefore flattened before the crate sees them, a single step
//! may write at most sixteen bytes for one, and after each step the text is measured: what has grown beyond all use is an
//! error that names the step. The largest growth of any use is that of NFKD, eleven bytes for one, and ByteLevel, two for
//! one. Whatever the crate adds to its steps one day is measured too.
//!
//! The crate swallows errors of a normaliser in one place and panics in others: both end up in [`guarded`].

use anyhow::{Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use tokenizers::tokenizer::pre_tokenizer::{OffsetType, PreTokenizedString};
use tokenizers::{
    NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential, PreTokenizer, PreTokenizerWrapper,
};

/// Steps of one kind that a file may have; known files have at most six.
const MOST_STEPS: usize = 64;
/// Bytes one step may write for each that it replaces.
const MOST_WRITTEN: usize = 16;
/// Bytes one step may put before a text.
const MOST_PREPENDED: usize = 64;

/// The longest text that steps may make of one of `len` bytes.
fn allowed(len: usize) -> usize {
    len.saturating_mul(32).saturating_add(256)
}

thread_local! {
    /// what a step did that no error of the crate reports
    static FAULT: RefCell<Option<String>> = const { RefCell::new(None) };
    /// whether panics of this thread are caught and need no report
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Runs the crate. Its state after a panic is not used again except through the same guard, and holds no locks of ours.
///
/// A panic of this thread prints nothing, since it becomes an error; those of other threads are reported as ever.
pub(super) fn guarded<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !SILENT.try_with(Cell::get).unwrap_or(false) {
                before(panic);
            }
        }));
    });
    FAULT.take();
    let outer = SILENT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(run));
    SILENT.set(outer);
    if let Some(fault) = FAULT.take() {
        bail!(fault);
    }
    match done {
        Ok(done) => done.map_err(|e| anyhow!("{e}")),
        Err(_) => bail!("the tokenizers library failed on this file"),
    }
}

/// The steps under `key`, a single one or a `Sequence` with a `list`, sequences inside sequences laid out flat, which
/// changes nothing of what they do.
///
/// Errors: too many steps; a step that writes too much for what it reads.
pub(super) fn flatten(step: &Value, key: &str, list: &str) -> Result<Vec<Value>> {
    fn walk(step: &Value, list: &str, out: &mut Vec<Value>) {
        match step[list].as_array() {
            // files of old leave the type out
            Some(parts) if step["type"].is_null() || step["type"] == "Sequence" => {
                parts.iter().for_each(|part| walk(part, list, out));
            }
            _ => out.push(step.clone()),
        }
    }
    let mut steps = Vec::new();
    if !step.is_null() {
        walk(step, list, &mut steps);
    }
    ensure!(steps.len() <= MOST_STEPS, "{key}: {} steps, expected at most {MOST_STEPS}", steps.len());
    for (i, step) in steps.iter().enumerate() {
        check(step).map_err(|e| anyhow!("{key} {}: {e}", title(i, step)))?;
    }
    Ok(steps)
}

/// `step 3 (Replace)`.
fn title(i: usize, step: &Value) -> String {
    let name: String = step["type"].as_str().unwrap_or("?").chars().take(40).collect();
    format!("step {} ({name})", i + 1)
}

/// What a step's fields say of how much it may write.
fn check(step: &Value) -> Result<()> {
    if let (Some(content), Some(pattern)) = (step["content"].as_str(), step["pattern"].as_object()) {
        // an expression may match a single byte
        let least = pattern.get("String").and_then(Value::as_str).map_or(1, str::len);
        ensure!(least > 0, "an empty pattern");
        ensure!(
            content.len() <= MOST_WRITTEN * least,
            "it writes {} bytes for {least}, expected at most {MOST_WRITTEN} for each",
            content.len()
        );
    }
    if let (Some("Precompiled"), Some(map)) = (step["type"].as_str(), step["precompiled_charsmap"].as_str()) {
        // the crate sets aside what the first word says
        let head =
            STANDARD.decode(map.get(..8).unwrap_or("")).ok().and_then(|b| Some(u32::from_le_bytes(*b.first_chunk()?)));
        let most = map.len() as u64 / 4 * 3;
        ensure!(
            head.is_some_and(|n| u64::from(n) <= most),
            "a map of characters that is shorter than its first word says"
        );
    }
    let prepended = step["prepend"].as_str().map_or(0, str::len);
    ensure!(prepended <= MOST_PREPENDED, "it prepends {prepended} bytes, expected at most {MOST_PREPENDED}");
    Ok(())
}

/// Steps in their order, each with its title.
#[derive(Clone, Debug)]
pub(super) struct Steps<W> {
    kind: &'static str,
    steps: Vec<(String, W)>,
}

/// The steps that change text before it is cut.
pub(super) type Normalizers = Steps<NormalizerWrapper>;
/// The steps that cut text, of which some change it too.
pub(super) type PreTokenizers = Steps<PreTokenizerWrapper>;

/// A step as the crate has it.
pub(super) trait Wrapper: DeserializeOwned {
    /// the key in the file
    const KIND: &'static str;
    /// whether it is a list of steps, which could not be watched
    fn is_list(&self) -> bool;
}

impl Wrapper for NormalizerWrapper {
    const KIND: &'static str = "normalizer";
    fn is_list(&self) -> bool {
        matches!(self, NormalizerWrapper::Sequence(_))
    }
}

impl Wrapper for PreTokenizerWrapper {
    const KIND: &'static str = "pre_tokenizer";
    fn is_list(&self) -> bool {
        matches!(self, PreTokenizerWrapper::Sequence(_))
    }
}

impl<'de, W: Wrapper> Deserialize<'de> for Steps<W> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Steps<W>, D::Error> {
        let list = Vec::<Value>::deserialize(deserializer)?;
        let mut steps = Vec::with_capacity(list.len());
        for (i, value) in list.into_iter().enumerate() {
            let title = title(i, &value);
            let step = serde_json::from_value::<W>(value)
                .map_err(|e| D::Error::custom(format_args!("{} {title}: {e}", W::KIND)))?;
            if step.is_list() {
                return Err(D::Error::custom(format_args!("{} {title}: a list of steps under another name", W::KIND)));
            }
            steps.push((title, step));
        }
        Ok(Steps { kind: W::KIND, steps })
    }
}

impl<W> Steps<W> {
    /// Runs all of them over a text of `before` bytes; `run` gives its length after the step.
    fn watched(&self, before: usize, mut run: impl FnMut(&W) -> tokenizers::Result<usize>) -> tokenizers::Result<()> {
        for (title, step) in &self.steps {
            let fault = match run(step) {
                Ok(len) if len <= allowed(before) => continue,
                Ok(len) => format!("{} {title}: a text of {before} bytes has become one of {len}", self.kind),
                Err(e) => format!("{} {title}: {e}", self.kind),
            };
            FAULT.set(Some(fault.clone()));
            return Err(fault.into());
        }
        Ok(())
    }
}

impl Normalizer for Normalizers {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        self.watched(text.len(), |step| step.normalize(text).map(|()| text.len()))
    }
}

impl PreTokenizer for PreTokenizers {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        // an error of the normaliser that the crate has swallowed
        if FAULT.with_borrow(Option::is_some) {
            return Err("the text could not be normalised".into());
        }
        let len = |text: &PreTokenizedString| {
            let splits = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
            splits.iter().map(|(part, ..)| part.len()).sum()
        };
        self.watched(len(text), |step| step.pre_tokenize(text).map(|()| len(text)))
    }
}
