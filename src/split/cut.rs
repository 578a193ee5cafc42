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
    /// its layers
    pub layers: Range<usize>,
    /// its commands in the whole plan
    pub commands: Range<usize>,
    /// its own plan
    pub plan: Plan,
    /// by buffer of the whole plan, its own
    pub own: Vec<Option<BufId>>,
    /// what it goes on from
    pub handed: Vec<Handed>,
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

    /// Bytes of weights and of the cache that come with each. What two of them bind counts for both.
    pub fn loads(&self, plan: &Plan) -> Loads {
        let bytes = |commands: &[Command]| -> u64 {
            let bound: BTreeSet<BufId> = commands.iter().flat_map(|c| c.binds.iter().copied()).collect();
            let kept = bound.into_iter().map(|id| &plan.buffers[id]).filter(|b| b.role.is_loaded() || lasts(&b.role));
            kept.map(|b| b.words as u64 * 4).sum()
        };
        let commands = &plan.recording.commands;
        let ends = self.starts[1..].iter().chain([&self.end]);
        Loads {
            before: bytes(&commands[..self.starts[0]]),
            layers: self.starts.iter().zip(ends).map(|(&a, &b)| bytes(&commands[a..b])).collect(),
            after: bytes(&commands[self.end..]),
        }
    }

    /// The parts of a plan, of so many layers each, which are all of them.
    ///
    /// Errors: two parts keep something in one buffer.
    pub fn cut(&self, plan: &Plan, counts: &[usize]) -> Result<Vec<Part>, SplitError> {
        let mut parts = Vec::with_capacity(counts.len());
        let mut first = 0;
        for (i, n) in counts.iter().enumerate() {
            let layers = first..first + n;
            let start = if i == 0 { 0 } else { self.starts[first] };
            let last = layers.end == self.count();
            let end = if last { plan.recording.commands.len() } else { self.starts[layers.end] };
            first = layers.end;
            parts.push(part(plan, layers, start..end, last));
        }
        let mut kept = BTreeMap::new();
        for (i, p) in parts.iter().enumerate() {
            for (id, b) in plan.buffers.iter().enumerate().filter(|(id, b)| lasts(&b.role) && p.own[*id].is_some()) {
                if let Some(other) = kept.insert(id, i) {
                    return Err(SplitError::Plan(format!("{} is used by parts {} and {}", b.name, other + 1, i + 1)));
                }
            }
        }
        Ok(parts)
    }
}

/// Whether a buffer's words live as long as the session.
fn lasts(role: &Role) -> bool {
    matches!(role, Role::Cache | Role::Recent | Role::State)
}

fn part(plan: &Plan, layers: Range<usize>, range: Range<usize>, last: bool) -> Part {
    let commands = &plan.recording.commands[range.clone()];
    let given_back = [plan.logits, plan.selected].into_iter().flatten().filter(|_| last);
    let bound: BTreeSet<BufId> = commands.iter().flat_map(|c| c.binds.iter().copied()).chain(given_back).collect();
    let mut own = vec![None; plan.buffers.len()];
    bound.iter().enumerate().for_each(|(i, &id)| own[id] = Some(i));
    let mine = |id: BufId| own[id].expect("every buffer that is bound has a place");
    let commands: Vec<Command> =
        commands.iter().map(|c| Command { binds: c.binds.iter().map(|&id| mine(id)).collect(), ..c.clone() }).collect();
    let handed = if range.start == 0 { Vec::new() } else { handed(plan, &range) };
    let plan = Plan {
        buffers: bound.iter().map(|&id| plan.buffers[id].clone()).collect(),
        recording: Recording { commands },
        placing: plan.placing.and_then(|p| Some(Placing { buffer: own[p.buffer]?, ..p })),
        strands: plan.strands.and_then(|id| own[id]),
        logits: plan.logits.filter(|_| last).map(mine),
        selected: plan.selected.filter(|_| last).map(mine),
        ..*plan
    };
    Part { layers, commands: range, plan, own, handed }
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
    let dim = commands.iter().find_map(|c| if let Args::Embed(p) = &c.args { Some(p.dim as usize) } else { None });
    let row = |id: BufId| dim.filter(|dim| plan.buffers[id].words == plan.max_tokens * dim);
    live.into_iter().filter(written).map(|buffer| Handed { buffer, row: row(buffer) }).collect()
}

/// Whether a command that writes a part of a buffer begins its life all the same, and others write the rest: what attention
/// carries from page to page, queries that are rotated page by page, and the results of experts whose matrices are several
/// buffers.
fn begins(c: &Command, id: BufId) -> bool {
    let partly = matches!(
        c.args,
        Args::Attention(_)
            | Args::AttentionQuantize(_)
            | Args::AttentionSinks(_)
            | Args::RopeCacheWrite(_)
            | Args::ExpertLinear(_)
    );
    partly && c.outputs().contains(&id) && !c.inputs().contains(&id)
}
