//! A plan in parts: the commands of a range of layers, and the buffers they bind.

use super::deal::Loads;
use super::error::SplitError;
use crate::record::{Args, BufId, Command, Placing, Plan, Recording, Role, Rows};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Where the layers of a plan begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layers {
    /// by layer, its first command
    starts: Vec<usize>,
    /// the first command after all layers
    end: usize,
}

/// A buffer that is read back from one part and written to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    /// in the whole plan
    pub buffer: BufId,
    /// words of each token of the step; `None`: all its words are handed over
    pub row: Option<usize>,
}

/// What one device runs.
#[derive(Clone, Debug)]
pub struct Part {
    /// its layers, or those whose experts it has
    pub layers: Range<usize>,
    /// its own plan
    pub plan: Plan,
    /// by buffer of the whole plan, its own
    pub own: Vec<Option<BufId>>,
}

/// Commands that follow each other, all of one part.
#[derive(Clone, Debug)]
pub struct Turn {
    /// whose they are
    pub part: usize,
    /// in the whole plan
    pub commands: Range<usize>,
    /// the first of them in the part's own plan
    pub first: usize,
    /// what they go on from
    pub handed: Vec<Handed>,
}

/// A plan for several devices.
#[derive(Clone, Debug)]
pub struct Cut {
    /// what each device has, in order; the experts that were asked for are the last
    pub parts: Vec<Part>,
    /// who runs what, in the order of the plan: of layers alone a turn for each part
    pub turns: Vec<Turn>,
}

impl Layers {
    /// Of a plan whose commands are what stands before the layers, one layer after the other, and what stands after them.
    ///
    /// Errors: it is not of that form, or has no layer.
    pub fn of(plan: &Plan) -> Result<Layers, SplitError> {
        let commands = &plan.recording.commands;
        let (mut starts, mut end) = (Vec::new(), None);
        for (i, c) in commands.iter().enumerate() {
            let (ended, n) = (end.is_some(), starts.len());
            match c.layer {
                Some(l) if !ended && l == n => starts.push(i),
                Some(l) if !ended && l + 1 == n => {}
                None if n == 0 || ended => {}
                None => end = Some(i),
                Some(_) => return Err(SplitError::Plan(format!("{} stands between other layers", c.title()))),
            }
        }
        if starts.is_empty() {
            return Err(SplitError::Plan("its plan has no layers".into()));
        }
        Ok(Layers { starts, end: end.unwrap_or(commands.len()) })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// Bytes of weights and of the cache that come with each, without those of commands in `apart`. What two of them bind
    /// counts for both.
    pub fn loads(&self, plan: &Plan, apart: &[Range<usize>]) -> Loads {
        let bytes = |range: Range<usize>| -> u64 {
            let here = range.filter(|i| !apart.iter().any(|r| r.contains(i)));
            let bound: BTreeSet<BufId> = here.flat_map(|i| plan.recording.commands[i].binds.iter().copied()).collect();
            let kept = bound.into_iter().map(|id| &plan.buffers[id]).filter(|b| b.role.is_loaded() || lasts(&b.role));
            kept.map(|b| b.words as u64 * 4).sum()
        };
        let ends = self.starts[1..].iter().chain([&self.end]);
        // the first layer and the last that bind what is kept
        let mut kept: BTreeMap<BufId, (usize, usize)> = BTreeMap::new();
        for (l, (&a, &b)) in self.starts.iter().zip(ends.clone()).enumerate() {
            for &id in plan.recording.commands[a..b].iter().flat_map(|c| &c.binds) {
                if lasts(&plan.buffers[id].role) {
                    kept.entry(id).or_insert((l, l)).1 = l;
                }
            }
        }
        let bound = |l: usize| kept.values().any(|(first, last)| (first + 1..=*last).contains(&l));
        Loads {
            bound: (0..self.count()).map(bound).collect(),
            before: bytes(0..self.starts[0]),
            layers: self.starts.iter().zip(ends).map(|(&a, &b)| bytes(a..b)).collect(),
            after: bytes(self.end..plan.recording.commands.len()),
        }
    }

    /// The commands of experts in each of the first `layers` that have some: behind their router from the order of their slots,
    /// which nobody else reads, to the sum of what they give.
    pub fn experts(&self, plan: &Plan, layers: usize) -> Vec<Range<usize>> {
        let ends = self.starts.iter().skip(1).chain([&self.end]);
        let of_layer = |(&start, &end): (&usize, &usize)| {
            let theirs = |i: &usize| {
                let args = &plan.recording.commands[*i].args;
                matches!(args, Args::ExpertOrder(_) | Args::ExpertLinear(_) | Args::ExpertCombine(_))
            };
            // what comes before may be linears of heads, which are made as those of experts are
            let router = |i: &usize| matches!(plan.recording.commands[*i].args, Args::Router(_));
            let start = (start..end).find(router)?;
            Some((start..end).find(theirs)?..(start..end).rfind(theirs)? + 1)
        };
        self.starts.iter().zip(ends).filter_map(of_layer).take(layers).collect()
    }

    /// The parts of a plan: of so many layers each, which are all of them, and where there are `apart` these commands, which
    /// lie within layers, as the last.
    ///
    /// Errors: two parts keep something in one buffer.
    pub fn cut(&self, plan: &Plan, counts: &[usize], apart: &[Range<usize>]) -> Result<Cut, SplitError> {
        let mut layered = Vec::with_capacity(counts.len());
        let mut first = 0;
        for (i, n) in counts.iter().enumerate() {
            let layers = first..first + n;
            let start = if i == 0 { 0 } else { self.starts[first] };
            let last = layers.end == self.count();
            let end = if last { plan.recording.commands.len() } else { self.starts[layers.end] };
            first = layers.end;
            layered.push((layers, start..end));
        }
        // whose each run of commands is
        let mut runs: Vec<(usize, Range<usize>)> = Vec::new();
        for (p, (_, range)) in layered.iter().enumerate() {
            let mut at = range.start;
            for theirs in apart.iter().filter(|r| range.contains(&r.start)) {
                runs.push((p, at..theirs.start));
                runs.push((layered.len(), theirs.clone()));
                at = theirs.end;
            }
            runs.push((p, at..range.end));
        }
        runs.retain(|(_, r)| !r.is_empty());
        let layers = layered.iter().map(|(layers, _)| layers.clone());
        let layer_of = |command: usize| self.starts.partition_point(|&start| start <= command);
        let theirs = apart.first().map(|a| layer_of(a.start) - 1..layer_of(apart[apart.len() - 1].start));
        let of = |p: usize| runs.iter().filter(move |(part, _)| *part == p).map(|(_, r)| r.clone());
        let parts: Vec<Part> =
            layers.chain(theirs).enumerate().map(|(p, layers)| part(plan, layers, of(p).collect())).collect();
        let mut kept = BTreeMap::new();
        for (i, p) in parts.iter().enumerate() {
            for (id, b) in plan.buffers.iter().enumerate().filter(|(id, b)| lasts(&b.role) && p.own[*id].is_some()) {
                if let Some(other) = kept.insert(id, i) {
                    return Err(SplitError::Plan(format!("{} is used by parts {} and {}", b.name, other + 1, i + 1)));
                }
            }
        }
        let mut done = vec![0; parts.len()];
        let turns = runs.into_iter().map(|(part, commands)| {
            let first = done[part];
            done[part] += commands.len();
            let handed = if commands.start == 0 { Vec::new() } else { handed(plan, &commands) };
            Turn { part, commands, first, handed }
        });
        let turns = turns.collect();
        Ok(Cut { parts, turns })
    }
}

/// Whether a buffer's words live as long as the session.
fn lasts(role: &Role) -> bool {
    matches!(role, Role::Cache | Role::Recent | Role::State)
}

/// The commands of some runs, and the buffers they bind.
fn part(plan: &Plan, layers: Range<usize>, runs: Vec<Range<usize>>) -> Part {
    let commands: Vec<&Command> = runs.iter().flat_map(|r| &plan.recording.commands[r.clone()]).collect();
    let last = runs.last().is_some_and(|r| r.end == plan.recording.commands.len());
    let given_back = [plan.logits, plan.selected].into_iter().flatten().filter(|_| last);
    let bound: BTreeSet<BufId> = commands.iter().flat_map(|c| c.binds.iter().copied()).chain(given_back).collect();
    let mut own = vec![None; plan.buffers.len()];
    bound.iter().enumerate().for_each(|(i, &id)| own[id] = Some(i));
    let mine = |id: BufId| own[id].expect("every buffer that is bound has a place");
    let commands: Vec<Command> = commands
        .into_iter()
        .map(|c| Command { binds: c.binds.iter().map(|&id| mine(id)).collect(), ..c.clone() })
        .collect();
    let plan = Plan {
        buffers: bound.iter().map(|&id| plan.buffers[id].clone()).collect(),
        recording: Recording { commands },
        placing: plan
            .placing
            .and_then(|p| Some(Placing { buffer: own[p.buffer]?, outputs: p.outputs.and_then(|id| own[id]), ..p })),
        strands: plan.strands.and_then(|id| own[id]),
        logits: plan.logits.filter(|_| last).map(mine),
        selected: plan.selected.filter(|_| last).map(mine),
        ..*plan
    };
    Part { layers, plan, own }
}

/// What commands of a range read before they have written it, in a step of any length: what those before them leave.
fn handed(plan: &Plan, range: &Range<usize>) -> Vec<Handed> {
    let commands = &plan.recording.commands;
    // every class of lengths that some command tells apart
    let limits = commands.iter().filter_map(|c| match c.rows {
        Rows::TokensUpTo(n) | Rows::TokensAbove(n) => Some(n),
        _ => None,
    });
    let lengths: BTreeSet<usize> = limits.flat_map(|n| [n, n + 1]).chain([1, plan.max_tokens]).collect();
    let mut live = BTreeSet::new();
    for n in lengths {
        let active = |c: &&Command| match c.rows {
            Rows::TokensUpTo(most) => n <= most,
            Rows::TokensAbove(few) => n > few,
            _ => true,
        };
        let mut anew = BTreeSet::new();
        for c in commands[range.clone()].iter().filter(active) {
            for &id in &c.binds {
                let scratch = plan.buffers[id].role == Role::Scratch;
                if scratch && !anew.contains(&id) && c.reads(id) && !begins(c, id) {
                    live.insert(id);
                }
            }
            // a step may leave out a page, or the logits
            anew.extend(c.outputs().iter().copied());
        }
    }
    let written = |id: &BufId| commands[..range.start].iter().any(|c| c.outputs().contains(id));
    live.into_iter().filter(written).map(|buffer| Handed { buffer, row: row(plan, buffer) }).collect()
}

/// Words of a token of a buffer in which those of the first token lie first, then those of the next; `None`: nothing says that
/// they do. There may be fewer, never more.
fn row(plan: &Plan, id: BufId) -> Option<usize> {
    let commands = &plan.recording.commands;
    let words = plan.buffers[id].words;
    let dim = commands.iter().find_map(|c| if let Args::Embed(p) = &c.args { Some(p.dim as usize) } else { None });
    // blocks of activations, and who is to work on each token
    let by_token = |c: &Command| {
        let of_rows = matches!(
            c.args,
            Args::ActQuantize(_)
                | Args::NormQuantize(_)
                | Args::SwigluQuantize(_)
                | Args::AttentionQuantize(_)
                | Args::RmsNorm(_)
                | Args::Router(_)
                | Args::Linear(_)
                | Args::Embed(_)
                | Args::Scale(_)
                | Args::Add(_)
                | Args::AltupRescale(_)
                | Args::AltupPredict(_)
                | Args::AltupCorrect(_)
                | Args::AltupAdd(_)
        );
        of_rows && matches!(c.rows, Rows::Tokens | Rows::TokensUpTo(_) | Rows::TokensAbove(_))
    };
    let writers = || commands.iter().filter(|c| c.outputs().contains(&id));
    let rows = dim.is_some_and(|dim| words == plan.max_tokens * dim) || writers().all(by_token);
    (rows && words.is_multiple_of(plan.max_tokens)).then(|| words / plan.max_tokens)
}

/// Whether a command that writes a part of a buffer begins its life all the same, and others write the rest: what attention
/// carries from page to page, queries that are rotated page by page, the results of experts whose matrices are several
/// buffers, and heads that are put together of parts.
fn begins(c: &Command, id: BufId) -> bool {
    let partly = matches!(
        c.args,
        Args::Attention(_)
            | Args::AttentionQuantize(_)
            | Args::AttentionSinks(_)
            | Args::RopeCacheWrite(_)
            | Args::ExpertLinear(_)
            | Args::CopyColumns(_)
    );
    partly && c.outputs().contains(&id) && !c.inputs().contains(&id)
}
