//! Runs the tests of one loaded model on one device.
//!
//! The token at position `i` is always the same ([`ids`]), and a result does not depend on how tokens are batched, so the
//! cache holds the same words whoever wrote them: a depth is computed once and serves every test and repetition after it,
//! and every repetition of a test must end with the same logits, on every device. Tokenising and sampling are left out.
//!
//! An encoder generates nothing and keeps nothing: a test is a text of so many tokens, fed whole, and what is compared are the
//! states of all of them.

use super::Limits;
use super::grid::Test;
use crate::blocks::pack;
use crate::generate::verify::{Script, digest_of, hex, prompt};
use crate::generate::{Session, Want};
use crate::models::{Built, RECENT_CHUNK, recent_positions};
use crate::record::{self, Args, Command, Op, Role, Step};
use crate::stop::{Interrupted, Stop};
use anyhow::ensure;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Tokens of the digest's prompt, and tokens generated greedily after it. More than a chunk of 64 positions, so that a cache
/// type whose own chunk is kept in f16 is read too.
pub const DIGEST_TOKENS: (usize, usize) = (72, 8);

/// How a test is repeated.
pub struct Routine<'a> {
    /// timed repetitions
    pub repetitions: usize,
    /// run once before the clock starts
    pub warm_up: bool,
    /// pause before each repetition
    pub delay: Duration,
    /// tokens handed over at once (`-b`); the plan's `ubatch` cuts them further
    pub batch: usize,
    /// looked at between steps and in pauses
    pub stop: &'a Stop,
    /// joules used so far, where the system counts them
    pub energy: &'a dyn Fn() -> Option<f64>,
    /// told what begins, outside the timed part
    pub begin: &'a dyn Fn(Part),
}

/// A part of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// filling the cache up to the test's depth
    Depth,
    /// running the test once before the clock starts
    WarmUp,
    /// a timed repetition, counted from 1
    Repetition(usize),
}

/// What a test gave. Times are in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// each repetition
    pub samples_ns: Vec<u64>,
    /// of each repetition, the prompt up to its last logits; empty where there is no prompt
    pub prompt_ns: Vec<u64>,
    /// each generated token of every repetition
    pub token_ns: Vec<u64>,
    /// SHA-256 of the last logits; of an encoder that of the states of the whole text
    pub last_logits: String,
    /// commands run per token
    pub commands_per_token: f64,
    /// host time per token outside waiting for the device, where the device counts it
    pub host_ns_per_token: Option<f64>,
    /// bytes handed back per token, logits or a selection of them, where the device counts them
    pub read_back_per_token: Option<f64>,
    /// bytes of weights and cache one repetition reads, on average per token
    pub bytes_per_token: f64,
    /// int8 operations per token
    pub ops_per_token: f64,
    /// least time the limits allow one repetition, and whether reading (rather than int8) bounds most of it
    pub limit: Option<(f64, bool)>,
    /// joules per token, where the system tells
    pub joules_per_token: Option<f64>,
}

/// The ids at positions `first..first + n`.
pub fn ids(first: usize, n: usize, vocab: usize) -> Vec<u32> {
    let id = |i: u64| (i.wrapping_mul(i).wrapping_mul(7919).wrapping_add(i * 104_729 + 13)) % vocab as u64;
    (first..first + n).map(|i| id(i as u64) as u32).collect()
}

/// Sleeps, unless it is asked to stop.
fn pause(mut left: Duration, stop: &Stop) -> Result<(), Interrupted> {
    stop.check()?;
    while !left.is_zero() {
        let some = left.min(Duration::from_millis(50));
        std::thread::sleep(some);
        left -= some;
        stop.check()?;
    }
    Ok(())
}

/// A session that knows how far its cache is filled.
pub struct Bench<'d> {
    session: Session<'d>,
    vocab: usize,
    digits: usize,
    filled: usize,
    last: Vec<f32>,
}

impl<'d> Bench<'d> {
    /// `vocab` and `digits` are the session's: tokens there are, and int8 digits of the activations.
    pub fn new(session: Session<'d>, vocab: usize, digits: usize) -> Bench<'d> {
        Bench { session, vocab, digits, filled: 0, last: Vec::new() }
    }

    /// SHA-256 of the logits of a fixed sequence: a prompt of 72 tokens and 8 greedy ones, a row of logits each. Of an encoder
    /// that of the states of a text of the 72.
    pub async fn digest(&mut self) -> anyhow::Result<String> {
        let (n, generate) = DIGEST_TOKENS;
        self.filled = 0;
        if self.session.feeds_whole() {
            let text = prompt(None, self.vocab, n);
            self.text(&text).await?;
            return Ok(self.last_logits());
        }
        self.session.reset();
        let script = Script { prompt: prompt(None, self.vocab, n), generate, batches: vec![] };
        digest_of(&mut self.session, &script, 0).await
    }

    /// SHA-256 of the logits after so many tokens of the sequence that tests walk: with what a test of as many positions
    /// ends, whatever of it was prompt. Only forward: as many tokens as the call before, or more. Of an encoder the states of a
    /// text of as many.
    pub async fn logits_after(&mut self, n: usize, batch: usize, stop: &Stop) -> anyhow::Result<String> {
        if self.session.feeds_whole() {
            self.feed(0, n, n, stop).await?;
            return Ok(self.last_logits());
        }
        ensure!(n > 0 && n >= self.filled, "logits after {n} tokens, of which {} are computed", self.filled);
        self.fill(n, batch, stop).await?;
        Ok(self.last_logits())
    }

    fn last_logits(&self) -> String {
        hex(&Sha256::digest(bytemuck::cast_slice::<f32, u8>(&self.last)))
    }

    /// Makes the f16 copy of recent positions what it was when positions up to `first` were computed for the first time:
    /// those of the chunk that `first` continues, computed again. Without a copy there is nothing to do. What a recurrent model
    /// remembers is that of its last token: from another the way to `first` begins at the start.
    async fn go_back(&mut self, first: usize, stop: &Stop) -> anyhow::Result<()> {
        if self.session.is_recurrent() {
            if self.session.pos() != first {
                self.session.reset();
                self.feed(0, first, first, stop).await?;
            }
            return Ok(());
        }
        let begun = first % RECENT_CHUNK;
        if self.session.built().recent_words > 0 && begun > 0 {
            self.feed(first - begun, begun, begun, stop).await?;
        }
        Ok(())
    }

    /// Feeds a text whole to an encoder; the states of its tokens are kept.
    async fn text(&mut self, ids: &[u32]) -> anyhow::Result<()> {
        self.session.reset();
        let last = &mut self.last;
        last.clear();
        let keep = |_: usize, row: &[f32]| {
            last.extend_from_slice(row);
            Ok(())
        };
        self.session.feed(ids, Want::From(0), keep).await
    }

    /// Feeds the tokens of positions `first..first + n`, at most `batch` at once (an encoder's are a text, from position 0 on);
    /// the last logits are kept. A recurrent model must be at `first`.
    async fn feed(&mut self, first: usize, n: usize, batch: usize, stop: &Stop) -> anyhow::Result<()> {
        if self.session.feeds_whole() {
            ensure!(first == 0, "a text of an encoder that begins at position {first}");
            stop.check()?;
            return self.text(&ids(0, n, self.vocab)).await;
        }
        if self.session.is_recurrent() {
            ensure!(self.session.pos() == first, "position {first} after {} tokens", self.session.pos());
        } else {
            self.session.reset();
            self.session.advance(first);
        }
        let list = ids(first, n, self.vocab);
        for piece in list.chunks(batch.max(1)) {
            stop.check()?;
            let last = &mut self.last;
            let keep = |_: usize, row: &[f32]| {
                last.clear();
                last.extend_from_slice(row);
                Ok(())
            };
            self.session.feed(piece, Want::Last, keep).await?;
        }
        Ok(())
    }

    /// Computes positions up to `depth`, unless they are there.
    async fn fill(&mut self, depth: usize, batch: usize, stop: &Stop) -> anyhow::Result<()> {
        if self.filled < depth {
            self.go_back(self.filled, stop).await?;
            self.feed(self.filled, depth - self.filled, batch, stop).await?;
            self.filled = depth;
        }
        Ok(())
    }

    /// Runs a test; [`Measured::limit`] is left to [`Bench::limit`]. Errors: those of the device; repetitions that end with
    /// different logits.
    pub async fn run(&mut self, test: &Test, r: &Routine<'_>) -> anyhow::Result<Measured> {
        let Test { prompt, generate, depth } = *test;
        if self.filled < depth {
            (r.begin)(Part::Depth);
        }
        self.fill(depth, r.batch, r.stop).await?;
        if r.warm_up {
            (r.begin)(Part::WarmUp);
            self.go_back(depth, r.stop).await?;
            if prompt > 0 {
                self.feed(depth, prompt, r.batch, r.stop).await?;
            } else {
                self.feed(depth, 1, 1, r.stop).await?;
            }
        }
        let mut m = Measured::default();
        let (mut host, mut commands, mut read_back, mut joules) = (Duration::ZERO, 0, 0, Some(0.0));
        for repetition in 1..=r.repetitions {
            (r.begin)(Part::Repetition(repetition));
            pause(r.delay, r.stop)?;
            self.go_back(depth, r.stop).await?;
            self.session.device().take_stats();
            let before = (r.energy)();
            let start = Instant::now();
            if prompt > 0 {
                self.feed(depth, prompt, r.batch, r.stop).await?;
                m.prompt_ns.push(start.elapsed().as_nanos() as u64);
            }
            let mut at = Instant::now();
            for i in 0..generate {
                self.feed(depth + prompt + i, 1, 1, r.stop).await?;
                let now = Instant::now();
                m.token_ns.push((now - at).as_nanos() as u64);
                at = now;
            }
            m.samples_ns.push((start.elapsed().as_nanos() as u64).max(1));
            joules = match (joules, before, (r.energy)()) {
                (Some(sum), Some(a), Some(b)) if b >= a => Some(sum + b - a),
                _ => None,
            };
            let stats = self.session.device().take_stats();
            host += stats.host;
            commands += stats.commands;
            read_back += stats.read_back;
            let logits = self.last_logits();
            if m.last_logits.is_empty() {
                m.last_logits.clone_from(&logits);
            }
            ensure!(
                m.last_logits == logits,
                "two repetitions of {test} ended with different logits: a fault of the device or of isobit"
            );
        }
        self.account(test, r.batch, &mut m);
        let tokens = (r.repetitions * test.tokens()) as f64;
        if commands > 0 {
            m.commands_per_token = commands as f64 / tokens;
            // a device that does not count it leaves zero
            m.host_ns_per_token = (!host.is_zero()).then(|| host.as_nanos() as f64 / tokens);
            m.read_back_per_token = (read_back > 0).then(|| read_back as f64 / tokens);
        }
        m.joules_per_token = joules.map(|j| j / tokens);
        Ok(m)
    }

    /// What each step of one repetition must do at least, from the plan.
    fn costs(&self, test: &Test, batch: usize) -> Vec<Cost> {
        let built = self.session.built();
        let steps = match self.session.feeds_whole() {
            true => vec![Step { n_tokens: test.prompt, n_out: test.prompt, ..Step::default() }],
            false => steps(test, batch, built.plan.max_tokens),
        };
        steps.iter().map(|step| cost(built, self.digits, step)).collect()
    }

    /// Bytes, operations and commands of one repetition, per token.
    fn account(&self, test: &Test, batch: usize, m: &mut Measured) {
        let (costs, tokens) = (self.costs(test, batch), test.tokens() as f64);
        m.bytes_per_token = costs.iter().map(|c| c.bytes as f64).sum::<f64>() / tokens;
        m.ops_per_token = costs.iter().map(|c| c.ops as f64).sum::<f64>() / tokens;
        m.commands_per_token = costs.iter().map(|c| c.commands).sum::<u64>() as f64 / tokens;
    }

    /// The least time in nanoseconds the limits allow one repetition of a test, and whether reading (rather than int8)
    /// bounds most of it.
    pub fn limit(&self, test: &Test, batch: usize, limits: Limits) -> (f64, bool) {
        let (mut ns, mut reading) = (0.0, 0.0);
        for c in self.costs(test, batch) {
            let (read, compute) = (c.bytes as f64 / limits.read * 1e9, c.ops as f64 / limits.int8 * 1e9);
            ns += read.max(compute);
            reading += if read >= compute { read } else { 0.0 };
        }
        (ns, reading * 2.0 >= ns)
    }
}

/// The steps of one repetition: positions, tokens and outputs, without inputs.
pub(super) fn steps(test: &Test, batch: usize, ubatch: usize) -> Vec<Step> {
    let mut list = Vec::new();
    let mut pos = test.depth;
    let mut left = test.prompt;
    while left > 0 {
        let piece = left.min(batch.max(1));
        for first in (0..piece).step_by(ubatch.max(1)) {
            let n = ubatch.max(1).min(piece - first);
            let n_out = usize::from(first + n == piece);
            list.push(Step { n_tokens: n, pos: pos + first, out_first: n - n_out, n_out, ..Step::default() });
        }
        pos += piece;
        left -= piece;
    }
    list.extend((0..test.generate).map(|i| Step { n_tokens: 1, pos: pos + i, n_out: 1, ..Step::default() }));
    list
}

/// What a step must do at least.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// weights, each part once, and the cache up to the step's last position, each word once
    pub bytes: u64,
    /// int8 operations of the linear commands with quantised weights; attention is left out
    pub ops: u64,
    /// commands that have something to do
    pub commands: u64,
}

/// Tokens of the step that a command works on.
pub(super) fn tokens_of(command: &Command, step: &Step) -> usize {
    if command.rows.are_outputs() { step.n_out } else { step.n_tokens }
}

/// Multiplications of int8 codes per token of the quantised matrices in a buffer; 0 for any other buffer.
pub(super) fn products(role: &Role) -> u64 {
    let of = |p: &record::Piece| match p.part {
        record::Part::Rows { t, k, rows, .. } if !pack::packed_type(t).is_float() => (rows * k) as u64,
        _ => 0,
    };
    role.pieces().iter().map(of).sum()
}

/// Of the weights a command binds, what part it reads at most and what part a token meets: all, but for experts.
pub(super) fn parts_met(command: &Command, n_tokens: usize) -> (f64, f64) {
    match command.args {
        Args::ExpertLinear(p) => {
            let met = f64::from(p.used) / f64::from(p.experts);
            ((met * n_tokens as f64).min(1.0), met)
        }
        _ => (1.0, 1.0),
    }
}

/// Positions of the cache that a step reads: all up to its last, or, where it has an f16 copy of recent ones, those before
/// the last token's own chunk; and the positions of the copy: the own chunks of its tokens.
pub(super) fn positions_read(built: &Built, step: &Step) -> (usize, usize) {
    let (last, chunk_of) = (step.pos + step.n_tokens, |pos: usize| pos / RECENT_CHUNK * RECENT_CHUNK);
    match built.recent_words {
        0 => (last, 0),
        _ => (chunk_of(last - 1), last - chunk_of(step.pos)),
    }
}

/// The cost of one step of a plan, from its buffers. `digits`: int8 digits of the activations.
pub fn cost(built: &Built, digits: usize, step: &Step) -> Cost {
    let mut c = Cost::default();
    let mut seen = HashSet::new();
    let mut embedded = None;
    for command in &built.plan.recording.commands {
        if command.args_for(step).is_none() {
            continue;
        }
        c.commands += 1;
        let n = tokens_of(command, step) as u64;
        for &id in &command.binds {
            let buffer = &built.plan.buffers[id];
            if !buffer.role.is_loaded() {
                continue;
            }
            if let Op::Embed(_) = command.op {
                let rows = buffer.role.rows().next_multiple_of(32);
                // a row per token of each table, wherever that was split
                let of = command.outputs().first().copied();
                c.bytes += if embedded == of { 0 } else { (buffer.words / rows) as u64 * 4 * n };
                embedded = of;
                continue;
            }
            let (read, met) = parts_met(command, n as usize);
            if seen.insert(id) {
                c.bytes += (buffer.words as f64 * 4.0 * read) as u64;
            }
            c.ops += (2.0 * products(&buffer.role) as f64 * met) as u64 * n * digits as u64;
        }
    }
    let (cached, own) = positions_read(built, step);
    // every page holds the same words for a position, and so does the copy
    c.bytes += (built.cache_words / built.n_ctx.max(1)) as u64 * 4 * cached as u64;
    c.bytes += (built.recent_words / recent_positions(built.plan.max_tokens, 1)) as u64 * 4 * own as u64;
    c
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::formats::{Container, LoadMode};
    use crate::models::{self, Hyper, PlanOptions, Recent};
    use crate::ops::cache::CacheType;

    #[test]
    fn positions_of_a_tokens_own_chunk_are_read_from_the_cache_or_from_its_copy_and_not_from_both() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/tiny-stories-Q4_K_M.gguf");
        let c = Container::open(&file, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
        let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
        // bytes of a step's cache in positions of the cache and of the copy: (pos, tokens) to (cached, own)
        for (recent, steps) in [
            (Recent::Off, [(0, 1, 1, 0), (63, 1, 64, 0), (69, 1, 70, 0), (62, 3, 65, 0)]),
            (Recent::On, [(0, 1, 0, 1), (63, 1, 0, 64), (69, 1, 64, 6), (62, 3, 64, 65)]),
        ] {
            let (k_type, v_type) = (CacheType::Q8_0, CacheType::Q8_0);
            let o = PlanOptions { n_ctx: 128, ubatch: 8, k_type, v_type, recent, ..PlanOptions::default() };
            let built = models::build(&c, &h, &o).unwrap_or_else(|e| panic!("{e:#}"));
            let bytes = |pos, n_tokens| {
                let step = Step { n_tokens, pos, n_out: 1, ..Step::default() };
                cost(&built, 1, &step).bytes as usize
            };
            let position = built.cache_words / built.n_ctx * 4;
            let own_position = built.recent_words / recent_positions(8, 1) * 4;
            assert!(position > 0 && (own_position > 0) == (recent == Recent::On));
            // without its cache a step of so many tokens costs the same everywhere
            let weights = |n| bytes(0, n) - if recent == Recent::On { n * own_position } else { n * position };
            for (pos, n, cached, own) in steps {
                let found = bytes(pos, n) - weights(n);
                assert_eq!(found, cached * position + own * own_position, "{recent:?}: {n} tokens at {pos}");
            }
        }
    }

    #[test]
    fn steps_follow_the_batch_and_the_ubatch() {
        let list = steps(&Test { prompt: 10, generate: 2, depth: 5 }, 6, 4);
        let found: Vec<_> = list.iter().map(|s| (s.pos, s.n_tokens, s.out_first, s.n_out)).collect();
        assert_eq!(found, [(5, 4, 4, 0), (9, 2, 1, 1), (11, 4, 3, 1), (15, 1, 0, 1), (16, 1, 0, 1)]);
    }

    #[test]
    fn ids_depend_on_the_position_alone() {
        let all = ids(0, 100, 333);
        assert!(all.iter().all(|&i| i < 333) && all[1..] != all[..99]);
        assert_eq!(ids(40, 10, 333), all[40..50]);
    }
}
