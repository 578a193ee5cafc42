//! The tuner: measures on the loaded plan's own weights what no rule decides, within a tenth of a second, and remembers it.
//!
//! What is timed is the matrices, where a step's time goes: for few tokens pieces of them one after the other, so that
//! weights come from where they come from in a token; for many tokens some rows of each. One thing is chosen after the
//! other (hint, distance, level, threads), and what the rule says stays unless something else is clearly faster.
//!
//! How candidates take turns matters: what one leaves in a cache another must not find. A model that is walked through in
//! a millisecond is walked through twice by each, and the second walk counts. In a larger one every piece has its own
//! candidate, so that none is ever read by two; pieces come in runs of one candidate, and the first of a run do not count:
//! while they are read, the caches of the cores still give back what the candidate before left in them, and what hint it
//! used decides where to (measured: piece by piece in turn, the better hint seemed the worse by 4 to 10 %).

use super::choice::{Chosen, Found, Memory, Way};
use crate::blocks::BlockType;
use crate::blocks::pack::{self, packed_words};
use crate::blocks::wide::Wide;
use crate::limits::Cores;
use crate::ops::act_quantize::ActQuantizeParams;
use crate::ops::linear::{ACT_BLOCK_WORDS, GROUP, LinearParams, ROW_BLOCK, act_words};
use crate::record::{Args, BufId, Op, Plan};
use crate::simd::team::Team;
use crate::simd::{self, Act, Fetch, Kernel, Level, Words};
use crate::stop::{Interrupted, Stop};
use crate::store::{Store, Tune};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long each choice may take to measure; together less than 100 ms.
const HINT: Duration = Duration::from_millis(16);
const DISTANCE: Duration = Duration::from_millis(22);
const LEVEL: Duration = Duration::from_millis(13);
const THREADS: Duration = Duration::from_millis(7);
/// And what looking after a remembered choice takes.
const CHECK: Duration = Duration::from_millis(2);

/// A candidate must take less than this part of the time of what the rule says, or the rule stays: medians of one moment
/// differ by that much on a machine that is shared.
const MARGIN: f64 = 0.95;

/// Packed as codes, a type must take less than this part of the time: it takes more memory.
const WORTH: f64 = 0.85;

/// A remembered choice is measured again when the time for its weights differs by more than this factor: the memory of a
/// shared machine changes its speed by 2 from one minute to the next.
const WRONG: f64 = 3.0;

/// Matrices of fewer bytes together leave nothing to gain.
const LEAST: usize = 4 << 20;

/// Bytes of a piece for few and for many tokens, about.
const PIECES: [usize; 2] = [4 << 20, 256 << 10];

/// Bytes a core of its own keeps, about: as many for each thread do not count at the beginning of a run. Many tokens wait
/// for no memory, and there it is one piece.
const OWN: usize = 2 << 20;
/// How many times as many bytes a run has.
const RUNS: [usize; 2] = [6, 2];

/// Tokens that stand for many: eight of the largest tiles.
const MANY: usize = 64;

/// How the types with codebooks (IQ1, IQ2, IQ3) are packed for the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Codebooks {
    /// each as is quicker here
    #[default]
    Auto,
    /// as rows of the codebook, as in the file
    Compact,
    /// as codes, of 1.2 to 1.6 times as many bytes
    Wide,
}

/// What is measured when a plan is loaded.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// whether anything is
    pub when: Tune,
    /// where it is kept
    pub store: Option<Arc<dyn Store>>,
    /// how types with codebooks are packed
    pub codebooks: Codebooks,
    /// the user has named the level
    pub level_is_forced: bool,
    /// the user has named how weights are asked for
    pub fetch_is_forced: bool,
    /// the user has named the number of threads
    pub threads_are_forced: bool,
}

/// Rows of a matrix.
struct Piece<'a> {
    t: BlockType,
    k: usize,
    rows: usize,
    w: &'a [u32],
    /// pieces of one type and shape are of one class
    class: usize,
    /// the run it belongs to, and whether it is among those that count
    run: usize,
    counts: bool,
}

impl Piece<'_> {
    fn mib(&self) -> f64 {
        self.w.len() as f64 * 4.0 / (1 << 20) as f64
    }
}

/// A matrix of the plan: its type, row length and rows, and the words of the buffer from which on it lies there.
type Matrix = (BlockType, usize, usize, BufId, usize);

/// The matrices of a plan that meet quantised activations, each once, and the digits of these.
fn matrices(plan: &Plan) -> (Vec<Matrix>, usize) {
    let (mut list, mut seen, mut digits): (Vec<Matrix>, BTreeSet<(BufId, usize)>, usize) = Default::default();
    let mut add = |t: BlockType, p: &LinearParams, buffer: BufId, at: usize| {
        // short and long steps may have commands of their own for one matrix
        if !t.is_float() && p.rows > 0 && seen.insert((buffer, at)) {
            list.push((t, p.k as usize, p.rows as usize, buffer, at));
            digits = p.digits as usize;
        }
    };
    for c in &plan.recording.commands {
        match (c.op, &c.args) {
            (Op::Matvec(t), Args::Linear(p)) => add(t, p, c.binds[0], 0),
            (Op::GateUp(t), Args::GateUp(p)) => add(t, &p.linear(), c.binds[0], 0),
            (Op::MatvecPair(a, b), Args::LinearPair(p)) => {
                let (first, second, at) = p.parts(a);
                add(a, &first, c.binds[0], 0);
                add(b, &second, c.binds[0], at);
            }
            _ => {}
        }
    }
    (list, digits)
}

/// The matrices cut into pieces of about so many bytes; a run has some bytes, of which the first `lead` do not count.
fn pieces<'a>(
    matrices: &[Matrix],
    buffers: &'a [Words],
    bytes: usize,
    (run_bytes, lead): (usize, usize),
) -> Vec<Piece<'a>> {
    let (mut list, mut before) = (Vec::new(), 0);
    let mut classes: BTreeMap<(BlockType, usize, usize), usize> = BTreeMap::new();
    for &(t, k, rows, buffer, at) in matrices {
        let per_block = packed_words(t, ROW_BLOCK, k);
        let most = (bytes / 4 / per_block.max(1)).max(1) * ROW_BLOCK;
        for first in (0..rows).step_by(most) {
            let rows = most.min(rows - first);
            let from = at + first / ROW_BLOCK * per_block;
            let w = &buffers[buffer][from..from + packed_words(t, rows, k)];
            let next = classes.len();
            let class = *classes.entry((t, k, rows)).or_insert(next);
            let (run, at) = (before / run_bytes, before % run_bytes);
            list.push(Piece { t, k, rows, w, class, run, counts: at >= lead });
            before += w.len() * 4;
        }
    }
    list
}

/// What kind of weights these are, in few words: types by how much there is of them, and how much there is of all to a
/// power of two.
fn kind(matrices: &[Matrix], digits: usize) -> Option<String> {
    let mut types: BTreeMap<BlockType, usize> = BTreeMap::new();
    for &(t, k, rows, ..) in matrices {
        *types.entry(t).or_default() += packed_words(t, rows, k) * 4;
    }
    let all: usize = types.values().sum();
    if all < LEAST {
        return None;
    }
    let mut types: Vec<_> = types.into_iter().filter(|(_, bytes)| bytes * 10 >= all).collect();
    types.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    let names: Vec<String> = types.iter().map(|(t, _)| t.name().to_lowercase()).collect();
    Some(format!("{} of {} MiB, {} bits", names.join(" "), 1 << (all >> 20).ilog2(), 8 * digits))
}

/// What is measured with: pieces, activations, and teams by their threads.
struct Bench<'a> {
    pieces: [Vec<Piece<'a>>; 2],
    /// where the next race begins
    at: usize,
    digits: usize,
    act: Vec<u32>,
    y: Vec<f32>,
    teams: &'a mut BTreeMap<usize, Arc<Team>>,
    stop: &'a Stop,
}

/// Few tokens or many: an index of [`Bench::pieces`].
const KINDS: [usize; 2] = [1, MANY];

impl Bench<'_> {
    /// Microseconds of a way for a MiB of a piece.
    fn time(&mut self, many: usize, way: &Way, piece: usize) -> f64 {
        let (piece, n) = (&self.pieces[many][piece], KINDS[many]);
        let p = LinearParams {
            n_tokens: n as u32,
            k: piece.k as u32,
            rows: piece.rows as u32,
            digits: self.digits as u32,
            y_stride: piece.rows as u32,
            y_offset: 0,
            residual: 0,
        };
        let act = Act::Blocks(&self.act[..n * act_words(piece.k, self.digits)]);
        let start = Instant::now();
        self.teams[&way.threads].install(|| simd::matvec(way.kernel, piece.t, &p, piece.w, act, &mut self.y));
        start.elapsed().as_secs_f64() * 1e6 / piece.mib()
    }

    /// [`scores`] of some ways.
    fn race(&mut self, many: usize, ways: &[Way], budget: Duration) -> Result<Vec<f64>, Interrupted> {
        for way in ways {
            if let Entry::Vacant(place) = self.teams.entry(way.threads) {
                // threads that cannot be started are no choice
                let Ok(team) = Team::new(way.threads) else { return Ok(vec![f64::INFINITY; ways.len()]) };
                place.insert(team);
            }
        }
        let list = self.pieces[many].len();
        let classes = self.pieces[many].iter().map(|p| p.class + 1).max().unwrap_or(0);
        let mut samples = vec![vec![Vec::new(); ways.len()]; classes];
        // threads wake up, and how long a walk takes
        let mib: f64 = self.pieces[many].iter().map(Piece::mib).sum();
        let mut walk = 0.0f64;
        for way in ways {
            let least = (0..3).map(|_| self.time(many, way, self.at % list)).fold(f64::INFINITY, f64::min);
            walk = walk.max(least * mib);
        }
        let runs = self.pieces[many].last().map_or(0, |p| p.run + 1);
        let start = Instant::now();
        if runs < 2 * ways.len() || walk * 4.0 * ways.len() as f64 <= budget.as_micros() as f64 {
            // a walk that turns out to be long is not taken again, and candidates that had none stay unknown
            while start.elapsed() < budget {
                for (i, way) in ways.iter().enumerate().filter(|_| start.elapsed() < budget * 3 / 2) {
                    self.stop.check()?;
                    for (walked, piece) in (0..list).chain(0..list).enumerate() {
                        let class = self.pieces[many][piece].class;
                        let time = self.time(many, way, piece);
                        if walked >= list {
                            samples[class][i].push(time);
                        }
                    }
                }
            }
        } else {
            let mut done = vec![0; ways.len()];
            while start.elapsed() < budget || done.iter().any(|n| *n < 4) && start.elapsed() < budget * 3 / 2 {
                self.stop.check()?;
                let piece = self.at % list;
                let Piece { class, run, counts, .. } = self.pieces[many][piece];
                let i = run % ways.len();
                let time = self.time(many, &ways[i], piece);
                if counts {
                    samples[class][i].push(time);
                    done[i] += 1;
                }
                self.at += 1;
            }
        }
        let mut bytes = vec![0.0; classes];
        self.pieces[many].iter().for_each(|p| bytes[p.class] += p.mib());
        Ok(scores(&samples, &bytes))
    }

    /// Replaces the way of `chosen` by the fastest of some, which are named; the rule's stays unless one is clearly
    /// faster.
    fn choose(
        &mut self,
        many: usize,
        chosen: &mut Chosen,
        others: Vec<(String, Way)>,
        budget: Duration,
    ) -> Result<(), Interrupted> {
        let now = others.iter().find(|(_, way)| *way == chosen.way).map_or("rule", |(name, _)| name);
        let mut named = vec![(now.to_string(), chosen.way)];
        named.extend(others.into_iter().filter(|(_, way)| *way != chosen.way));
        let ways: Vec<Way> = named.iter().map(|(_, way)| *way).collect();
        let times = self.race(many, &ways, budget)?;
        let best = (0..ways.len()).min_by(|&a, &b| times[a].total_cmp(&times[b])).unwrap_or(0);
        let best = if times[best] < MARGIN * times[0] { best } else { 0 };
        if !times[best].is_finite() {
            return Ok(());
        }
        let against = named.iter().zip(&times).enumerate().filter(|(i, _)| *i != best);
        chosen.against.extend(against.map(|(_, ((name, _), time))| (name.clone(), time / times[best])));
        (chosen.way, chosen.us_per_mib) = (ways[best], times[best]);
        Ok(())
    }
}

/// Microseconds for a MiB of all pieces, of each candidate, from samples by class and candidate and the bytes of classes.
/// Infinite where some candidate has no class in common with the others.
///
/// A sample is taken as a ratio to what its class takes (the middle one of the candidate that has the least), and of a
/// candidate's ratios the greatest quarter does not count: where a neighbour has a core for some milliseconds, it is all
/// samples of one candidate in one class that last many times as long.
fn scores(samples: &[Vec<Vec<f64>>], bytes: &[f64]) -> Vec<f64> {
    let candidates = samples.first().map_or(0, Vec::len);
    let known: Vec<usize> = (0..samples.len()).filter(|&c| samples[c].iter().all(|s| !s.is_empty())).collect();
    if known.is_empty() {
        return vec![f64::INFINITY; candidates];
    }
    let middle = |times: &Vec<f64>| {
        let mut times = times.clone();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let least = |class: usize| samples[class].iter().map(middle).fold(f64::INFINITY, f64::min);
    let all: f64 = known.iter().map(|&c| bytes[c]).sum();
    let usual = known.iter().map(|&c| bytes[c] * least(c)).sum::<f64>() / all;
    let ratio = |i: usize| {
        let ratios = known.iter().flat_map(|&c| samples[c][i].iter().map(move |time| time / least(c)));
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let kept = &ratios[..(ratios.len() * 3).div_ceil(4)];
        kept.iter().sum::<f64>() / kept.len() as f64
    };
    (0..candidates).map(|i| usual * ratio(i)).collect()
}

/// Chooses the ways of a loaded plan: `rule` is what is done unmeasured, `teams` has the team of its threads, and gets
/// those of the ways. `None`: nothing was to be chosen.
pub(super) fn tune(
    tuning: &Tuning,
    (plan, buffers): (&Plan, &[Words]),
    rule: Way,
    teams: &mut BTreeMap<usize, Arc<Team>>,
    stop: &Stop,
) -> Result<Option<Found>, Interrupted> {
    let (list, digits) = matrices(plan);
    let (Some(mut kind), false) = (kind(&list, digits), tuning.when == Tune::Off) else { return Ok(None) };
    let forced = [
        (tuning.level_is_forced, rule.kernel.level.name().to_string()),
        (tuning.fetch_is_forced, rule.kernel.fetch.name()),
        (tuning.threads_are_forced, format!("{} threads", rule.threads)),
    ];
    forced.iter().filter(|(is, _)| *is).for_each(|(_, name)| kind += &format!(", {name}"));
    let mut memory = Memory::open(tuning.store.clone());
    let groups = list.iter().map(|&(_, k, ..)| act_words(k, digits)).max().unwrap_or(0) / ACT_BLOCK_WORDS / digits;
    let leads = [OWN * rule.threads, PIECES[1]];
    let pieces = [0, 1].map(|many| pieces(&list, buffers, PIECES[many], (RUNS[many] * leads[many], leads[many])));
    let rows = pieces.iter().zip(KINDS).flat_map(|(p, n)| p.iter().map(move |p| p.rows * n)).max().unwrap_or(0);
    let mut act = vec![0; MANY * groups * digits * ACT_BLOCK_WORDS];
    let x: Vec<f32> = (0..MANY * groups * GROUP).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
    let p = ActQuantizeParams { n_tokens: 1, k: x.len() as u32, digits: digits as u32 };
    simd::act_quantize(rule.kernel.level, &p, &x, &mut act);
    let mut bench = Bench { pieces, at: 0, digits, act, y: vec![0.0; rows], teams, stop };

    let started = Instant::now();
    if tuning.when == Tune::Auto
        && let Some(found) = memory.get(&kind)
    {
        let (few, many) = (bench.is_as_remembered(0, &found.few)?, bench.is_as_remembered(1, &found.many)?);
        if few && many {
            log::info!("tuned before, looked after in {:.1} ms: {kind}: {}", ms(started), found.title());
            return Ok(Some(found));
        }
        log::info!("{kind}: weights take another time than when they were measured; measured again");
    }
    let found = bench.measure(tuning, rule)?;
    if !(found.few.us_per_mib.is_finite() && found.many.us_per_mib.is_finite()) {
        log::info!("{kind}: not measured: {:.1} ms were too little", ms(started));
        return Ok(None);
    }
    log::info!("tuned in {:.1} ms: {kind}: {}", ms(started), found.title());
    memory.put(&kind, &found);
    Ok(Some(found))
}

/// Which of the types are better packed as codes for `kernel`. Where rows of a codebook are looked up one by one, all; where
/// they are found in registers, it is more bytes against more work, and measured: once, within some 40 ms a type.
pub fn wide(tuning: &Tuning, has: Wide, kernel: Kernel, team: &Arc<Team>) -> Wide {
    match tuning.codebooks {
        Codebooks::Compact => return Wide::NONE,
        Codebooks::Auto if has != Wide::NONE && kernel.level.finds_rows_in_registers() => {}
        Codebooks::Wide | Codebooks::Auto => return has,
    }
    let is_quicker = |t: BlockType, memory: &mut Memory| {
        if tuning.when == Tune::Off {
            // the rows of IQ1 take the most look-ups
            return pack::wide_type(t) == BlockType::Wide1;
        }
        let kind = format!("{}, {}, {} threads", t.name().to_lowercase(), kernel.level.name(), team.threads());
        let known = memory.wide(&kind).filter(|_| tuning.when == Tune::Auto);
        let ratio = known.unwrap_or_else(|| {
            let started = Instant::now();
            let ratio = as_codes(t, kernel, team);
            log::info!("measured in {:.1} ms: {kind}: packed as codes {ratio:.2} times as long", ms(started));
            memory.put_wide(&kind, ratio);
            ratio
        });
        // it has to be worth its memory
        ratio < WORTH
    };
    let mut memory = Memory::open(tuning.store.clone());
    has.types().filter(|&t| is_quicker(t, &mut memory)).fold(Wide::NONE, |all, t| all.or(Wide::only(t)))
}

/// How many times as long a token takes where a type is packed as codes.
fn as_codes(t: BlockType, kernel: Kernel, team: &Arc<Team>) -> f64 {
    /// Bytes as codes: more than most caches.
    const BYTES: usize = 48 << 20;
    const K: usize = 4096;
    /// Finite as an f16, whichever bits make it.
    const WORD: u32 = 0x2c2c_2c2c;

    let rows = BYTES / 4 / pack::words_per_row(pack::wide_type(t), K) / ROW_BLOCK * ROW_BLOCK;
    let mut act = vec![0; act_words(K, 1)];
    let x: Vec<f32> = (0..K).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
    simd::act_quantize(kernel.level, &ActQuantizeParams { n_tokens: 1, k: K as u32, digits: 1 }, &x, &mut act);
    let (k, rows_of) = (K as u32, rows as u32);
    let p = LinearParams { n_tokens: 1, k, rows: rows_of, digits: 1, y_stride: rows_of, y_offset: 0, residual: 0 };
    let mut y = vec![0.0; rows];
    let [compact, wide] = [pack::packed_type(t), pack::wide_type(t)].map(|packed| {
        let mut w = Words::zeroed(packed_words(packed, rows, K));
        team.install(|| simd::team::chunks_mut(&mut w, packed_words(packed, ROW_BLOCK, K), 1, |_, w| w.fill(WORD)));
        // the first finds the threads asleep
        let times = [(); 4].map(|()| {
            let start = Instant::now();
            team.install(|| simd::matvec(kernel, packed, &p, &w, Act::Blocks(&act), &mut y));
            start.elapsed().as_secs_f64()
        });
        times[1..].iter().copied().fold(f64::INFINITY, f64::min)
    });
    wide / compact
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

impl Bench<'_> {
    /// Whether the weights take about as long as when a way was chosen; a busy moment is given a second chance.
    fn is_as_remembered(&mut self, many: usize, chosen: &Chosen) -> Result<bool, Interrupted> {
        for _ in 0..2 {
            let ratio = self.race(many, &[chosen.way], CHECK)?[0] / chosen.us_per_mib;
            if (1.0 / WRONG..=WRONG).contains(&ratio) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Measures one thing after the other.
    fn measure(&mut self, tuning: &Tuning, rule: Way) -> Result<Found, Interrupted> {
        let unmeasured = Chosen { way: rule, us_per_mib: f64::INFINITY, against: Vec::new() };
        let mut found = Found { few: unmeasured.clone(), many: unmeasured };
        let few = &mut found.few;
        if Fetch::is_a_choice() && !tuning.fetch_is_forced {
            let asking = |way: Way, fetch: Fetch| (fetch.name(), Way { kernel: Kernel { fetch, ..way.kernel }, ..way });
            let now = few.way.kernel.fetch;
            let hints = [true, false].map(|once| asking(few.way, Fetch { once, ..now })).to_vec();
            self.choose(0, few, hints, HINT)?;
            let (way, now) = (few.way, few.way.kernel.fetch);
            let distances = Fetch::DISTANCES.map(|kib| asking(way, Fetch { ahead: kib << 10, ..now })).to_vec();
            self.choose(0, few, distances, DISTANCE)?;
        }
        for (many, chosen) in [&mut found.few, &mut found.many].into_iter().enumerate() {
            let way = chosen.way;
            if !tuning.level_is_forced {
                // what differs in tiles alone is the same for few tokens
                let rule = way.kernel.level;
                let same = |l: Level| many == 0 && l != rule && l.vectors() == rule.vectors();
                let levels = Level::available().into_iter().filter(|&l| l != Level::Portable && !same(l));
                let levels = levels
                    .map(|level| (level.name().to_string(), Way { kernel: Kernel { level, ..way.kernel }, ..way }));
                self.choose(many, chosen, levels.collect(), LEVEL)?;
            }
            if !tuning.threads_are_forced {
                let way = chosen.way;
                let counts = Cores::find().choices().into_iter();
                let counts = counts.map(|threads| (format!("{threads} threads"), Way { threads, ..way }));
                self.choose(many, chosen, counts.collect(), THREADS)?;
            }
            if !chosen.us_per_mib.is_finite() {
                // nothing was free
                chosen.us_per_mib = self.race(many, &[chosen.way], CHECK)?[0];
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codebooks_are_packed_as_asked_for_or_as_was_measured_once() {
        let team = Team::new(2).expect("two threads");
        let has = Wide::only(BlockType::IQ2_XS).or(Wide::only(BlockType::IQ1_S));
        let packed = |codebooks, when, store: Option<Arc<dyn Store>>, level: Level| {
            wide(&Tuning { codebooks, when, store, ..Tuning::default() }, has, level.into(), &team)
        };
        for level in Level::available() {
            assert_eq!(packed(Codebooks::Compact, Tune::Off, None, level), Wide::NONE);
            assert_eq!(packed(Codebooks::Wide, Tune::Off, None, level), has);
            let auto = packed(Codebooks::Auto, Tune::Off, None, level);
            if !level.finds_rows_in_registers() {
                assert_eq!((auto, packed(Codebooks::Auto, Tune::Now, None, level)), (has, has));
                continue;
            }
            assert_eq!(auto, Wide::only(BlockType::IQ1_S));
            // measured, and then as it is remembered
            let kept = Arc::new(crate::store::kept::Kept::default());
            let store = || Some(kept.clone() as Arc<dyn Store>);
            let found = packed(Codebooks::Auto, Tune::Auto, store(), level);
            let kind = |ty: &str| format!("{ty}, {}, 2 threads", level.name());
            let mut memory = Memory::open(store());
            for ty in ["iq2_xs", "iq1_s"] {
                let ratio = memory.wide(&kind(ty)).expect("it was measured");
                let t = BlockType::parse(ty).expect("a type");
                assert_eq!(found.and(Wide::only(t)) == Wide::only(t), ratio < WORTH, "{ty}: {ratio}");
            }
            memory.put_wide(&kind("iq2_xs"), 0.5);
            memory.put_wide(&kind("iq1_s"), 1.5);
            assert_eq!(packed(Codebooks::Auto, Tune::Auto, store(), level), Wide::only(BlockType::IQ2_XS));
        }
    }

    #[test]
    fn a_neighbour_that_takes_a_core_for_a_while_does_not_decide() {
        // two classes, of which the second has twice the bytes; the second candidate takes a tenth longer
        let times = |scale: f64| vec![vec![10.0 * scale; 12], vec![11.0 * scale; 12]];
        let mut samples = vec![times(1.0), times(2.0), vec![vec![9.0; 2], vec![9.9; 2]]];
        let bytes = [1.0, 2.0, 0.1];
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.05;
        let quiet = scores(&samples, &bytes);
        assert!(near(quiet[1] / quiet[0], 1.1) && near(quiet[0], 16.5), "{quiet:?}");
        samples[2][0] = vec![5000.0; 2];
        samples[0][0][3] = 900.0;
        let busy = scores(&samples, &bytes);
        assert!(busy[0] < busy[1] && busy[1] < 1.2 * busy[0], "{busy:?}");
        // nothing in common
        assert_eq!(scores(&[vec![vec![1.0], vec![]]], &[1.0]), [f64::INFINITY; 2]);
        assert_eq!(scores(&[], &[]), Vec::<f64>::new());
    }
}
