//! The tuner: measures the variants of each operation on the loaded plan's own shapes, and remembers what it found.
//!
//! Variants give the same bits, so a wrong measurement costs time and nothing else. `store` remembers.

use super::device::GpuDevice;
use super::faults::HostError;
use super::options::Tune;
use super::program::Place;
use super::store::Split;
use super::variants::{self, CLASSES};
use crate::record::{Args, Command, Op, Step};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// After this long no other shape is begun: the rest keep the untuned choice and are measured in another run, unless
/// measuring is asked for.
const BUDGET: Duration = Duration::from_secs(4);

/// Commands of one shape that are run in turn for one token, so that their weights do not stay in a cache: at most, and
/// at least where there are as many.
const ROTATION: usize = 32;
const LEAST: usize = 4;

/// How long work that is timed should last, if the options do not say: to submit it and to hear that it is done takes some
/// 0.1 ms.
const ENOUGH: Duration = Duration::from_millis(3);

/// A GPU that did nothing has slow clocks, and raises them when it has had work for a while: an H200 ran at a sixth of its
/// clock for 0.3 s. So work of one kind is run before anything is measured until it was no faster for this long, or has taken
/// as long as is patient.
const STEADY: Duration = Duration::from_millis(400);
const PATIENT: Duration = Duration::from_secs(2);

/// Dispatches of one submit, at most.
const MOST: usize = 512;

/// Timed rounds; the best counts.
const ROUNDS: usize = 3;

/// Positions that attention of one token is measured at, plain and split.
const DEPTHS: [usize; 5] = [256, 512, 1024, 2048, 4096];

/// Positions that attention of many tokens is measured at, where a page has as many.
const PREFILL_DEPTH: usize = 512;

/// What tells shapes apart; `None` where there is one variant only.
fn shape(c: &Command) -> Option<String> {
    let (k, rows, digits) = match c.args {
        _ if variants::of(c.op).len() == 1 => return None,
        Args::Linear(p) => (p.k, p.rows, p.digits),
        Args::LinearPair(p) => (p.k, p.rows, p.digits),
        Args::GateUp(p) => (p.k, p.dim, p.digits),
        Args::ActQuantize(p) => (p.k, 1, p.digits),
        Args::NormQuantize(p) => (p.dim, 1, p.digits),
        Args::SwigluQuantize(p) => (p.dim, 1, p.digits),
        _ => {
            let p = variants::attention_of(&c.args)?;
            let (heads, hd) = (format!("{}/{}", p.heads, p.kv_heads), p.head_dim);
            return Some(format!("{} heads={heads} head_dim={hd} scope={}", c.op.title(), p.scope));
        }
    };
    Some(format!("{} k={k} rows={rows} digits={digits}", c.op.stem()))
}

fn reads_matrix(op: Op) -> bool {
    matches!(op, Op::Matvec(_) | Op::MatvecPair(..) | Op::GateUp(_))
}

impl GpuDevice {
    /// Sets the choices of the loaded plan: remembered ones first, then by measuring.
    pub(super) async fn tune(&mut self) -> Result<(), HostError> {
        if self.options.tune == Tune::Off {
            return Ok(());
        }
        self.warm = !self.capabilities.hardware;
        let program = self.program()?;
        let mut shapes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (i, c) in program.plan.recording.commands.iter().enumerate() {
            if variants::forced(&self.options.variants, c.op).is_none() {
                shape(c).into_iter().for_each(|s| shapes.entry(s).or_default().push(i));
            }
        }
        let op_of = |commands: &[usize]| program.plan.recording.commands[commands[0]].op;
        let mut shapes: Vec<_> = shapes.into_iter().map(|(s, commands)| (s, op_of(&commands), commands)).collect();
        // matrices first: a token is spent on them
        shapes.sort_by_key(|&(_, op, _)| !reads_matrix(op));
        self.make_candidates(&shapes);
        // what compiles between two measurements would let clocks sink again, and counts for neither
        let started = Instant::now();
        let mut news = false;
        for (shape, _, commands) in shapes {
            self.stop.check()?;
            let auto = self.options.tune == Tune::Auto;
            let late = || auto && started.elapsed() > BUDGET;
            news |= self.choose(&shape, &commands, late()).await?;
            news |= self.choose_split(&shape, &commands, late()).await?;
        }
        if news {
            self.clear()?;
            self.memory.save();
        }
        Ok(())
    }

    /// Makes the pipelines of all variants that are measured; those of software are made when their turn comes.
    fn make_candidates(&self, shapes: &[(String, Op, Vec<usize>)]) {
        let Some(program) = self.program.as_ref().filter(|_| self.capabilities.hardware) else { return };
        let known = |shape: &String| {
            let page = &self.memory.page;
            self.options.tune == Tune::Auto && (page.choices.contains_key(shape) || page.splits.contains_key(shape))
        };
        let optional = self.capabilities.optional;
        let of = |(shape, op, commands): &(String, Op, Vec<usize>)| -> Vec<(usize, usize)> {
            let (list, c) = (variants::of(*op), commands[0]);
            let command = &program.plan.recording.commands[c];
            let given = |&class: &usize| variants::tokens_in(class, self.many(), command, &program.plan).is_some();
            let classes: Vec<usize> = (0..CLASSES.len()).filter(given).collect();
            let measured =
                |v: &usize| list[*v].is_split() || classes.iter().any(|&class| list[*v].is_candidate(class, optional));
            let wanted = (0..list.len()).filter(|v| measured(v) && program.can(c, *v)).map(|v| (c, v));
            if known(shape) { Vec::new() } else { wanted.collect() }
        };
        program.prepare_variants(shapes.iter().flat_map(of), self.capabilities.parallel, &self.stop);
    }

    /// Tokens that many are measured at.
    fn many(&self) -> usize {
        if self.capabilities.hardware { variants::MANY } else { CLASSES[2] }
    }

    /// Runs commands until the device's clocks do not rise any more, the first time it is called.
    async fn warm_up(&mut self, commands: &[(usize, Args)], variant: usize) -> Result<(), HostError> {
        if std::mem::replace(&mut self.warm, true) {
            return Ok(());
        }
        let (started, enough) = (Instant::now(), 3 * self.options.timed.unwrap_or(ENOUGH));
        let steady = self.options.timed.unwrap_or(STEADY);
        let (mut least, mut since) = (self.timed(commands, variant, LEAST).await? / LEAST as u32, Instant::now());
        let first = least;
        while since.elapsed() < steady && started.elapsed() < PATIENT {
            let dispatches = lasting(enough, LEAST, least);
            let each = self.timed(commands, variant, dispatches).await? / dispatches as u32;
            if each < least.mul_f64(0.97) {
                (least, since) = (each, Instant::now());
            }
        }
        let (now, took) = (least.as_secs_f64() * 1e6, started.elapsed().as_secs_f64());
        log::info!(
            "clocks: a dispatch took {:.1} us at first, {now:.1} us after {took:.2} s",
            first.as_secs_f64() * 1e6
        );
        Ok(())
    }

    /// Makes the buffers what they were before anything was measured: zeros, but for the weights, which are only read.
    fn clear(&self) -> Result<(), HostError> {
        let program = self.program()?;
        let mut encoder = self.device.create_command_encoder(&Default::default());
        for (declared, place) in program.plan.buffers.iter().zip(&program.places) {
            if let (false, Place::Own(buffer)) = (declared.role.is_loaded(), place) {
                encoder.clear_buffer(buffer, 0, None);
            }
        }
        self.queue.submit([encoder.finish()]);
        Ok(())
    }

    /// Sets the variants of commands of one shape, class by class: remembered ones, or measured where that is not `late`.
    /// Whether any was measured.
    async fn choose(&mut self, shape: &str, commands: &[usize], late: bool) -> Result<bool, HostError> {
        let program = self.program()?;
        let op = program.plan.recording.commands[commands[0]].op;
        let remembered = self.memory.page.choices.get(shape).cloned().unwrap_or_default();
        // of large heads and of others one name is two variants
        let named = |name: &String, v: usize| variants::of(op)[v].name == name && program.can(commands[0], v);
        let place = |name: &String| (0..variants::of(op).len()).find(|&v| named(name, v));
        let mut found = remembered.each_ref().map(|name| name.as_ref().and_then(place));
        if self.options.tune == Tune::Now {
            found = [None; CLASSES.len()];
        }
        let mut news = false;
        for class in (0..CLASSES.len()).filter(|_| !late) {
            if found[class].is_none() {
                found[class] = self.measure(class, commands).await?;
                news |= found[class].is_some();
            }
        }
        if news {
            let names = found.map(|v| v.map(|v| variants::of(op)[v].name.to_string()));
            log::info!("tuned {shape}: {}", names.each_ref().map(|n| n.as_deref().unwrap_or("-")).join(", "));
            self.memory.page.choices.insert(shape.into(), names);
        }
        let program = self.program.as_mut().expect("tune is called with a plan");
        for &c in commands {
            for (class, v) in found.iter().enumerate().filter_map(|(class, v)| Some((class, (*v)?))) {
                if program.can(c, v) {
                    program.commands[c].choice[class] = v;
                }
            }
        }
        Ok(news)
    }

    /// The fastest variant for commands of one shape in a class; `None` where there is no choice, or no step gives any of
    /// them so many tokens.
    async fn measure(&mut self, class: usize, commands: &[usize]) -> Result<Option<usize>, HostError> {
        let program = self.program()?;
        let all = &program.plan.recording.commands;
        let many = self.many();
        let Some(n) = commands.iter().find_map(|&c| variants::tokens_in(class, many, &all[c], &program.plan)) else {
            return Ok(None);
        };
        let list = variants::of(all[commands[0]].op);
        let optional = self.capabilities.optional;
        let is_candidate = |&v: &usize| list[v].is_candidate(class, optional) && program.can(commands[0], v);
        let candidates: Vec<usize> = (0..list.len()).filter(is_candidate).collect();
        if candidates.len() < 2 {
            return Ok(None);
        }
        let pos = program.positions(commands).min(PREFILL_DEPTH).saturating_sub(n);
        let times = self.times(commands, &candidates, n, pos).await?;
        Ok(candidates.into_iter().zip(times).min_by_key(|(_, time)| *time).map(|(v, _)| v))
    }

    /// Sets the depth from which commands of one shape of attention are split, as [`choose`](Self::choose) does.
    async fn choose_split(&mut self, shape: &str, commands: &[usize], late: bool) -> Result<bool, HostError> {
        let program = self.program()?;
        let list = variants::of(program.plan.recording.commands[commands[0]].op);
        let splits = |&v: &usize| list[v].is_split() && program.can(commands[0], v);
        let Some(variant) = (0..list.len()).find(splits) else {
            return Ok(false);
        };
        let deepest = DEPTHS.into_iter().rfind(|&depth| depth <= program.positions(commands));
        let known = |s: &&Split| s.from.is_some() || deepest.is_none_or(|depth| depth <= s.measured);
        let remembered = self.memory.page.splits.get(shape).filter(known).copied();
        let mut found = remembered.filter(|_| self.options.tune == Tune::Auto);
        let mut news = false;
        if let (None, Some(deepest), false) = (found, deepest, late) {
            found = self.measure_split(commands, variant, deepest).await?;
            news = found.is_some();
        }
        let Some(split) = found else { return Ok(false) };
        if news {
            log::info!("tuned {shape}: split from {:?} positions, of up to {}", split.from, split.measured);
            self.memory.page.splits.insert(shape.into(), split);
        }
        let program = self.program.as_mut().expect("tune is called with a plan");
        for &c in commands {
            let command = &program.plan.recording.commands[c];
            let first = variants::first(command.op, &command.args);
            let variant = if split.from.is_some() && program.can(c, variant) { variant } else { first };
            let many = program.commands[c].choice[CLASSES.len() - 1];
            program.commands[c].choice = [variant, variant, many];
            program.commands[c].split_from = split.from.unwrap_or(usize::MAX);
        }
        Ok(news)
    }

    /// The least of [`DEPTHS`] from which splitting one token's attention is faster than the plain form, at it and at all
    /// deeper ones up to `deepest`.
    async fn measure_split(
        &mut self,
        commands: &[usize],
        variant: usize,
        deepest: usize,
    ) -> Result<Option<Split>, HostError> {
        let c = &self.program()?.plan.recording.commands[commands[0]];
        let plain = variants::first(c.op, &c.args);
        let mut from = None;
        for depth in DEPTHS.into_iter().rev().filter(|&depth| depth <= deepest) {
            let [whole, split] = self.times(commands, &[plain, variant], 1, depth - 1).await?[..] else {
                return Ok(None);
            };
            if split >= whole {
                break;
            }
            from = Some(depth);
        }
        Ok(Some(Split { from, measured: deepest }))
    }

    /// The best time of a dispatch of each of some variants, which the commands of one shape can run, in a step of `n`
    /// tokens from `pos` on. None where that step has none of the commands.
    async fn times(
        &mut self,
        commands: &[usize],
        candidates: &[usize],
        n: usize,
        pos: usize,
    ) -> Result<Vec<Duration>, HostError> {
        let n_out = n.min(self.program()?.plan.max_out);
        let active = self.write_arena(&Step { n_tokens: n, n_out, pos, ..Step::default() })?;
        let program = self.program()?;
        let can = |c| candidates.iter().all(|&v| program.can(c, v));
        let chosen: Vec<_> = active
            .into_iter()
            .filter(|(i, _)| commands.contains(i) && can(*i))
            .take(if n == 1 { ROTATION } else { 1 })
            .collect();
        if chosen.is_empty() {
            return Ok(vec![]);
        }
        let (title, tune) = (&self.title, self.options.tune);
        self.memory.tell_once(|| {
            let how_long = match tune {
                Tune::Now => "all of them".to_string(),
                _ => format!("{} s and the shape in hand", BUDGET.as_secs()),
            };
            format!("measuring variants of kernels on {title} ({how_long})")
        });
        // the first run of each compiles where that is not done yet
        for &variant in candidates {
            self.timed(&chosen, variant, 1).await?;
        }
        self.warm_up(&chosen, candidates[0]).await?;
        // times of one dispatch
        let mut best = vec![Duration::MAX; candidates.len()];
        let (mut dispatches, mut rounds) = (LEAST.min(chosen.len()), 0);
        while rounds < ROUNDS {
            let leader = best.iter().min().copied().unwrap_or(Duration::MAX);
            for (&variant, best) in candidates.iter().zip(&mut best) {
                // one that took twice the time of another is not run again
                if *best == Duration::MAX || *best <= leader.saturating_mul(2) {
                    let time = self.timed(&chosen, variant, dispatches).await?;
                    *best = (time / dispatches as u32).min(*best);
                }
            }
            rounds += 1;
            let fastest = best.iter().min().copied().unwrap_or(Duration::MAX);
            let more = lasting(self.options.timed.unwrap_or(ENOUGH), dispatches, fastest);
            if rounds == 1 && more > dispatches {
                // what took too little time is measured anew, unless it is far behind
                (dispatches, rounds) = (more, 0);
                best.iter_mut().filter(|t| **t <= fastest.saturating_mul(2)).for_each(|t| *t = Duration::MAX);
            }
        }
        Ok(best)
    }

    /// The time of a number of dispatches of a variant, the commands in turn, from their encoding until they are done.
    async fn timed(
        &self,
        commands: &[(usize, Args)],
        variant: usize,
        dispatches: usize,
    ) -> Result<Duration, HostError> {
        self.stop.check()?;
        let start = Instant::now();
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            let program = self.program()?;
            for (i, args) in commands.iter().cycle().take(dispatches) {
                program.dispatches_of(*i, args, variant, |d| program.encode(&mut pass, &d));
            }
        }
        self.queue.submit([encoder.finish()]);
        self.wait().await?;
        Ok(start.elapsed())
    }
}

/// Dispatches that last as long as is `enough`, where one takes a time; no fewer than some, and at most [`MOST`].
fn lasting(enough: Duration, least: usize, each: Duration) -> usize {
    let dispatches = (enough.as_secs_f64() / each.as_secs_f64().max(1e-9)).ceil() as usize;
    dispatches.clamp(least, MOST.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_repeated_until_it_lasts() {
        let of = |least, micros| lasting(ENOUGH, least, Duration::from_micros(micros));
        assert_eq!(of(4, 1000), 4);
        assert_eq!(of(4, 90_000), 4);
        assert_eq!(of(4, 100), 30);
        assert_eq!(of(4, 99), 31);
        assert_eq!(of(32, 1), MOST);
        assert_eq!(of(1, 0), MOST);
        assert_eq!(of(2 * MOST, 1), 2 * MOST);
        assert_eq!(lasting(Duration::ZERO, 4, Duration::from_micros(1)), 4);
    }
}
