//! What commands share that hand a file of work to an engine of many texts.

use super::common::{self, CheckpointArgs, EngineArgs, Load, ModelArgs};
use super::names::HubArgs;
use crate::engine::{Engine, EngineOptions, Head, Model, Prompt, SessionOptions};
use anyhow::{Context, ensure};
use clap::Args;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Answers that a request may ask for, at most.
pub const CHOICES: usize = 128;

/// An engine whose thread has ended when this is gone: a program that ends before it unloads a driver that is in use, and some
/// drivers of OpenGL end it with a signal then.
pub struct Working(Engine);

impl std::ops::Deref for Working {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.0
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[derive(Args)]
pub struct ManyArgs {
    /// GGUF or BUMP file, Hugging Face or packed directory, or a name (`isobit models`) [default: the embedded model]
    #[arg(short = 'm', long, env = "ISOBIT_MODEL", hide_env_values = true)]
    model: Option<PathBuf>,
    /// A GGUF file or a directory whose tokeniser is taken
    #[arg(long, value_name = "MODEL", help_heading = "Engine")]
    tokenizer: Option<PathBuf>,
    /// auto, cpu, cpu:LEVEL, gpu, an index of `isobit devices`, part of a name; A,B: layers on each
    #[arg(short = 'd', long, alias = "devices", default_value = "auto", env = "ISOBIT_DEVICE", hide_env_values = true)]
    #[arg(value_parser = common::devices)]
    device: String,
    /// Texts at once; never changes a result
    #[arg(long, default_value = "8", value_name = "N", value_parser = common::whole::<1, 4096>)]
    pub parallel: usize,
    /// Positions the cache holds for all of them together; 0: the context for each
    #[arg(long, default_value = "0", value_name = "N", value_parser = common::whole::<0, {1 << 28}>)]
    pool: usize,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    checkpoints: CheckpointArgs,
    #[command(flatten)]
    hub: HubArgs,
}

impl ManyArgs {
    /// The model.
    pub fn model(&self) -> anyhow::Result<Model> {
        let (model, tokenizer) = (self.model.clone(), self.tokenizer.clone());
        ModelArgs { model, model_flag: None, tokenizer, load_mode: Load::Read, hub: self.hub.clone() }.model()
    }

    /// The line that says what decides results.
    pub fn fingerprint(&self, model: &Model) -> anyhow::Result<String> {
        let o = &self.engine;
        o.fingerprint(model, self.context(model), (o.ctk, o.ctv, o.kv_recent))
    }

    /// Tokens a text may have.
    pub fn context(&self, model: &Model) -> usize {
        self.engine.n_ctx(model.hyper())
    }

    /// Requests that may be with the engine at once: as many wait as are at work, so that nobody has nothing to do, and no
    /// more, since answers wait for those before them.
    pub fn most(&self) -> usize {
        2 * self.parallel
    }

    /// An engine whose steps give `rows` rows, or more.
    pub fn engine(&self, model: &Model, rows: usize, head: Head) -> anyhow::Result<Working> {
        let context = self.context(model);
        let options = self.engine.options(context, rows.max(self.parallel));
        let checkpoints = self.checkpoints.ctx_checkpoints;
        let session = SessionOptions { sequences: self.parallel, pool: self.pool, head, checkpoints, ..options };
        // the last request begun may have many choices
        let (devices, queue) = (self.engine.device_options(), self.most() + CHOICES);
        let o = EngineOptions { device: self.engine.device(&self.device), devices, session, queue };
        Ok(Working(Engine::start(model, o)?))
    }

    /// Tokens of a step.
    pub fn ubatch(&self) -> usize {
        self.engine.ubatch
    }

    /// Gives each of a list to the engine, as many ahead as keeps it busy, and takes the answers in order.
    pub fn in_order<T, R>(
        &self,
        list: &[T],
        mut ask: impl FnMut(&T) -> anyhow::Result<R>,
        mut take: impl FnMut(usize, R) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut asked = VecDeque::new();
        let mut taken = 0;
        for one in list {
            if asked.len() == self.most()
                && let Some(answer) = asked.pop_front()
            {
                take(taken, answer)?;
                taken += 1;
            }
            asked.push_back(ask(one)?);
        }
        for answer in asked {
            take(taken, answer)?;
            taken += 1;
        }
        Ok(())
    }
}

/// Whether the context holds a prompt of ids.
pub fn fits(prompt: &Prompt, context: usize) -> anyhow::Result<()> {
    let Prompt::Ids(ids) = prompt else { return Ok(()) };
    ensure!(
        (1..=context).contains(&ids.len()),
        "{}, the context holds {context}: raise -c, or leave the line out",
        common::tokens(ids.len())
    );
    Ok(())
}

/// The lines of a file of JSON objects (`-`: stdin), with their numbers; empty lines are passed over.
///
/// Errors: a line that is none of these, by its number; there are none.
pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<(usize, T)>> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("stdin")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    }
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let place = || format!("{} line {}", path.display(), i + 1);
        lines.push((i + 1, serde_json::from_str(line).with_context(place)?));
    }
    ensure!(!lines.is_empty(), "{} has no lines", path.display());
    Ok(lines)
}
