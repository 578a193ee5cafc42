//! The model run over a text, its recording command by command, to see what its activations are.
//!
//! The recording is unfused, so that every input of a matrix is a buffer of f32 of its own. What is seen depends on the
//! model and the text alone, on no device and no number of threads.

use super::{common, interrupt};
use crate::engine::{DeviceOptions, Devices, check_vocabulary};
use crate::formats::Container;
use crate::fuse::Fuse;
use crate::generate::tokenizer::Tokenizer;
use crate::generate::{Session, SessionOptions};
use crate::models::{Hyper, PlanOptions, Recent};
use crate::ops::cache::CacheType;
use crate::quantize::slim::observed::Observed;
use crate::record::{Args, BufId, Command, Op};
use anyhow::{Context, bail, ensure};
use std::path::Path;

/// Positions of a window, at most.
const WINDOW: usize = 512;

/// Runs the first `tokens` tokens of a text, in windows without overlap, and gives what was seen.
///
/// Errors: what the model or the tokeniser refuses; a text of fewer than 16 tokens; activations that are not finite.
pub fn observe(c: &Container, file: &Path, tokens: usize, threads: usize) -> anyhow::Result<Observed> {
    let h = Hyper::read(c)?;
    let tokenizer = Tokenizer::read(c)?;
    check_vocabulary(c, &h, &tokenizer)?;
    let text = common::text(None, Some(file))?;
    let ids = tokenizer.encode_first(&text, tokenizer.adds_bos(), false, tokens)?;
    let ids = &ids[..ids.len().min(tokens)];
    ensure!(ids.len() >= 16, "{}: {} tokens, expected at least 16", file.display(), ids.len());
    let window = WINDOW.min(h.context);
    let plan = PlanOptions {
        n_ctx: window,
        ubatch: window,
        k_type: CacheType::F32,
        v_type: CacheType::F32,
        recent: Recent::Off,
        ..PlanOptions::default()
    };
    let stop = interrupt::stop().clone();
    let mut device = Devices::new(DeviceOptions { threads, stop, ..DeviceOptions::default() }).open("cpu")?;
    let memory = Devices::share_of_memory(std::slice::from_ref(&device));
    let options = SessionOptions { plan, memory, fuse: Fuse::Off };
    let load = common::load_bar(c);
    let opening = Session::new(device.inner.as_mut(), c, &h, options, |n| load.inc(n));
    let mut session = pollster::block_on(opening)?;
    load.finish_and_clear();
    let bar = common::bar(ids.len() as u64, "observing {bar:30} {pos}/{len} tokens {eta}");
    let mut observed = Observed::default();
    let start = if tokenizer.adds_bos() { tokenizer.start() } else { &[] };
    for ids in ids.chunks(window) {
        let mut ids = ids.to_vec();
        if start.len() < ids.len() {
            ids[..start.len()].copy_from_slice(start);
        }
        session.reset();
        pollster::block_on(see(&mut session, &h, &ids, &mut observed))?;
        bar.inc(ids.len() as u64);
    }
    bar.finish_and_clear();
    Ok(observed)
}

/// One window.
async fn see(session: &mut Session<'_>, h: &Hyper, ids: &[u32], observed: &mut Observed) -> anyhow::Result<()> {
    let step = session.prepare(ids, 1).clone();
    session.device().begin(&step).await?;
    let n = ids.len();
    for index in 0..session.commands().len() {
        let command = session.commands()[index].clone();
        let seen = match (&command.args, command.layer) {
            (_, None) => None,
            (Args::Linear(p), _) => Some((p.k as usize, input_of(session.commands(), index)?)),
            (Args::CacheWrite(_), _) => Some((h.kv_heads * h.head_dim, command.binds[0])),
            _ => None,
        };
        if let (Some((width, buffer)), Some(layer)) = (seen, command.layer) {
            let words = session.device().read(buffer).await?;
            let x: &[f32] = bytemuck::cast_slice(words.get(..n * width).context("a buffer shorter than its tokens")?);
            let bad = x.iter().position(|v| !v.is_finite());
            ensure!(bad.is_none(), "{}: the model's activations overflowed", command.title());
            match command.op {
                Op::CacheWriteK(_) => observed.keys.entry(layer).or_default().see(x, width),
                Op::CacheWriteV(_) => observed.values.entry(layer).or_default().see(x, width),
                _ => {
                    for piece in session.built().plan.buffers[command.binds[0]].role.pieces() {
                        observed.inputs.entry(piece.tensor).or_default().see(x, width);
                    }
                }
            }
        }
        session.device().run_one(index).await?;
    }
    session.advance(n);
    observed.tokens += n;
    Ok(())
}

/// The f32 buffer that a linear reads, or that what it reads was quantised from.
pub fn input_of(commands: &[Command], index: usize) -> anyhow::Result<BufId> {
    let linear = &commands[index];
    let (Op::Matvec(t) | Op::ExpertMatvec(t)) = linear.op else { bail!("{} is no linear", linear.title()) };
    let read = linear.binds[1];
    if t.is_float() {
        return Ok(read);
    }
    let made = commands[..index].iter().rev().find(|c| c.outputs().contains(&read));
    let made = made.with_context(|| format!("{} reads what no command writes", linear.title()))?;
    Ok(made.binds[0])
}
