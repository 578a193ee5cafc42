//! One operation at a time: the commands of a model, or the case table, checked against the twins and then timed.
//!
//! A model's command is taken out of its plan with the words its buffers hold when its turn comes, and becomes a
//! [`Case`] like those of the table. A device runs a case once and its words are compared with the twin's; only then it
//! runs a plan of many copies of the command, so that what surrounds a step is spread over many.

use super::Limits;
use super::measure::{ids, parts_met, positions_read, products, tokens_of};
use crate::cases::{Access, Batch, Case, CaseBuffer};
use crate::generate::{Session, Want};
use crate::models::{Built, recent_positions};
use crate::record::{Args, Command, Device, Op, Role, Step};
use anyhow::ensure;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Instant;

/// Best logits that a step of the pieces selects: enough for the sampling that `isobit run` begins with.
const SELECT: usize = 64;

/// Seconds a timed run lasts, about; copies of a command in it, at most; runs.
const SECONDS: f64 = 0.02;
const COPIES: usize = 256;
const RUNS: usize = 7;

/// A case, and what it must move and compute at least.
#[derive(Clone, Debug)]
pub struct Piece {
    /// what runs, over which words
    pub case: Case,
    /// what it makes in the model; empty for the table's
    pub label: String,
    /// tokens
    pub tokens: usize,
    /// bytes read and written, each once
    pub bytes: u64,
    /// int8 operations; 0 where the operation has none
    pub ops: u64,
}

/// The case table's pieces of an operation.
pub fn table(op: Op) -> Vec<Piece> {
    let piece = |case: Case| {
        let words = case.buffers.iter().map(|b| b.words.len() as u64).sum::<u64>();
        let ops = match (op, case.args) {
            (Op::Matvec(t), Args::Linear(p)) if t.elems() > 1 => {
                2 * u64::from(p.rows) * u64::from(p.k) * u64::from(p.digits) * case.step.n_tokens as u64
            }
            _ => 0,
        };
        Piece { label: String::new(), tokens: case.step.n_tokens, bytes: words * 4, ops, case }
    };
    crate::cases::of(op).into_iter().map(piece).collect()
}

/// Every distinct command of a model with a prompt of the plan's `ubatch` tokens, and with one token after `depth` more.
/// The session must be on a device whose buffers read cheaply (the CPU).
pub async fn of_model(
    session: &mut Session<'_>,
    vocab: usize,
    digits: usize,
    depth: usize,
) -> anyhow::Result<Vec<Piece>> {
    let n = session.built().plan.max_tokens;
    let mut list = Vec::new();
    let mut seen = HashSet::new();
    capture(session, &ids(0, n, vocab), digits, &mut seen, &mut list).await?;
    if depth > n && !session.feeds_whole() {
        session.feed(&ids(n, depth - n, vocab), Want::Last, |_, _| Ok(())).await?;
    }
    let pos = session.pos();
    if n > 1 {
        capture(session, &ids(pos, 1, vocab), digits, &mut seen, &mut list).await?;
    }
    Ok(list)
}

async fn capture(
    session: &mut Session<'_>,
    ids: &[u32],
    digits: usize,
    seen: &mut HashSet<String>,
    list: &mut Vec<Piece>,
) -> anyhow::Result<()> {
    session.check(ids)?;
    let rows = if session.feeds_whole() { ids.len() } else { 1 };
    let mut step = session.prepare(ids, rows).clone();
    if session.built().plan.selected.is_some() {
        step.select = SELECT;
    }
    session.device().begin(&step).await?;
    for index in 0..session.commands().len() {
        let command = session.commands()[index].clone();
        // layers differ in nothing but their words
        let args = command.args_for(&step);
        let new = args.is_some_and(|a| seen.insert(format!("{} {a:?}", command.op.title())));
        if new {
            let (bytes, ops) = work(session.built(), digits, &command, &step);
            let mut buffers = Vec::new();
            for &id in &command.binds {
                let decl = session.built().plan.buffers[id].clone();
                let words = session.device().read(id).await?;
                let access = match decl.role {
                    Role::Input => Access::Input,
                    _ if command.outputs().contains(&id) => Access::Write(std::iter::once(0..words.len()).collect()),
                    _ => Access::Read,
                };
                buffers.push(CaseBuffer { name: "of the model", words, access });
            }
            let case = Case {
                name: command.title(),
                op: command.op,
                args: command.args,
                step: Step { inputs: vec![], ..step.clone() },
                rows: command.rows,
                buffers,
            };
            let tokens = tokens_of(&command, &step);
            list.push(Piece { case, label: command.label.clone(), tokens, bytes, ops });
        }
        session.device().run_one(index).await?;
    }
    session.advance(ids.len());
    Ok(())
}

/// Bytes and int8 operations of one command in one step.
fn work(built: &Built, digits: usize, command: &Command, step: &Step) -> (u64, u64) {
    let plan = &built.plan;
    let most = if command.rows.are_outputs() { plan.max_out } else { plan.max_tokens } as u64;
    let n = tokens_of(command, step) as u64;
    let (cached, own) = positions_read(built, step);
    let (mut bytes, mut ops) = (0, 0);
    let (read, met) = parts_met(command, n as usize);
    for &id in &command.binds {
        let b = &plan.buffers[id];
        let size = b.words as u64 * 4;
        let products = if matches!(command.op, Op::Embed(_)) { 0 } else { products(&b.role) };
        ops += (2.0 * products as f64 * met) as u64 * n * digits as u64;
        bytes += match &b.role {
            role if role.is_loaded() && matches!(command.op, Op::Embed(_)) => {
                size / role.rows().next_multiple_of(32) as u64 * n
            }
            role if role.is_loaded() => (size as f64 * read) as u64,
            // written: the step's positions
            Role::Cache if command.outputs().contains(&id) => size * n / built.n_ctx as u64,
            Role::Cache => size * cached as u64 / built.n_ctx as u64,
            Role::Recent if command.outputs().contains(&id) => size * n / recent_positions(plan.max_tokens, 1) as u64,
            Role::Recent => size * own as u64 / recent_positions(plan.max_tokens, 1) as u64,
            // one slot is read and one written
            Role::State => 2 * size / built.slots as u64,
            _ => size * n / most,
        };
    }
    (bytes, ops)
}

/// A piece timed on a device.
#[derive(Clone, Debug)]
pub struct Timed {
    /// words compared with the twin's
    pub words: usize,
    /// seconds of one command, each run
    pub seconds: Vec<f64>,
}

async fn outputs(device: &mut dyn Device, case: &Case) -> anyhow::Result<Vec<Vec<u32>>> {
    let list = std::slice::from_ref(case);
    let (plan, mut batch) = Batch::new(list);
    device.load(plan, &mut batch).await?;
    let step = batch.step(0);
    device.begin(&step).await?;
    device.run_one(0).await?;
    let mut all = Vec::new();
    for (b, buffer) in case.buffers.iter().enumerate() {
        if matches!(buffer.access, Access::Write(_)) {
            all.push(device.read(batch.buffer(0, b)).await?);
        }
    }
    Ok(all)
}

/// What the twin leaves in the written buffers.
pub async fn expected(twin: &mut dyn Device, piece: &Piece) -> anyhow::Result<Vec<Vec<u32>>> {
    outputs(twin, &piece.case).await
}

/// Runs a piece once and demands the twin's words, then times it. `Ok(Err(words))`: so many words are not the twin's.
pub async fn time(
    device: &mut dyn Device,
    piece: &Piece,
    expected: &[Vec<u32>],
) -> anyhow::Result<Result<Timed, usize>> {
    let found = outputs(device, &piece.case).await?;
    ensure!(found.len() == expected.len(), "{} written buffers, expected {}", found.len(), expected.len());
    let (mut words, mut wrong) = (0, 0);
    for (e, f) in expected.iter().zip(&found) {
        words += e.len();
        wrong += e.iter().zip(f).filter(|(a, b)| a != b).count() + e.len().abs_diff(f.len());
    }
    if wrong > 0 {
        return Ok(Err(wrong));
    }
    let once = run(device, piece, 1, 2).await?.into_iter().fold(f64::INFINITY, f64::min);
    let copies = ((SECONDS / once) as usize).clamp(1, COPIES);
    // the first run warms up
    let seconds = run(device, piece, copies, RUNS + 1).await?.split_off(1);
    Ok(Ok(Timed { words, seconds }))
}

/// Seconds of one command in each of several runs of so many copies.
async fn run(device: &mut dyn Device, piece: &Piece, copies: usize, runs: usize) -> anyhow::Result<Vec<f64>> {
    let list = std::slice::from_ref(&piece.case);
    let (mut plan, mut batch) = Batch::new(list);
    let command = plan.recording.commands[0].clone();
    plan.recording.commands = vec![command; copies];
    device.load(plan, &mut batch).await?;
    let step = batch.step(0);
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        device.run(&step).await?;
        times.push(start.elapsed().as_secs_f64() / copies as f64);
    }
    Ok(times)
}

/// The columns of a piece on a device: names, types, values.
pub fn columns(device: &str, piece: &Piece, t: &Timed, limits: Option<Limits>) -> Vec<super::schema::Column> {
    let s = super::median(&t.seconds);
    let (low, high) = t.seconds.iter().fold((f64::INFINITY, 0f64), |(l, h), &v| (l.min(v), h.max(v)));
    let digits = |v: f64| json!(format!("{v:.4e}").parse::<f64>().unwrap_or(v));
    let bound = limits.map(|l| (piece.bytes as f64 / l.read, piece.ops as f64 / l.int8));
    let name = if piece.label.is_empty() { piece.case.name.clone() } else { piece.label.clone() };
    vec![
        ("device", "TEXT", json!(device)),
        ("op", "TEXT", json!(piece.case.op.title())),
        ("name", "TEXT", json!(name)),
        ("n_tokens", "INTEGER", json!(piece.tokens)),
        ("words_checked", "INTEGER", json!(t.words)),
        ("us", "REAL", digits(s * 1e6)),
        ("us_min", "REAL", digits(low * 1e6)),
        ("us_max", "REAL", digits(high * 1e6)),
        ("gb_per_s", "REAL", digits(piece.bytes as f64 / s / 1e9)),
        ("gop_per_s", "REAL", if piece.ops == 0 { Value::Null } else { digits(piece.ops as f64 / s / 1e9) }),
        ("limit_percent", "REAL", bound.map_or(Value::Null, |(r, c)| digits(100.0 * r.max(c) / s))),
        ("limit_by", "TEXT", bound.map_or(Value::Null, |(r, c)| json!(if r >= c { "read" } else { "int8" }))),
    ]
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::blocks::BlockType;
    use crate::cpu::{CpuDevice, CpuOptions};

    #[test]
    fn one_flipped_bit_is_found_and_nothing_is_timed() {
        let mut twin = CpuDevice::new(CpuOptions { level: None, threads: 1, max_binding: None }).unwrap();
        let piece = table(Op::Matvec(BlockType::Q4_K)).swap_remove(0);
        pollster::block_on(async {
            let mut words = expected(&mut twin, &piece).await.unwrap();
            let timed = time(&mut twin, &piece, &words).await.unwrap().expect("the twin agrees with itself");
            assert_eq!(timed.words, words.iter().map(Vec::len).sum::<usize>());
            words[0][0] ^= 1;
            assert_eq!(time(&mut twin, &piece, &words).await.unwrap().unwrap_err(), 1);
        });
    }
}
