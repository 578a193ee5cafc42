//! What speed to expect of a device that is not here: a range, from what compilers made of the kernels, what a plan asks of
//! them, and published figures of the device. **An estimate, not a measurement**: `docs/bench.md` has the method and where
//! each figure is from.

use super::grid::Test;
use super::measure::{cost, parts_met, products, steps, tokens_of};
use crate::blocks::pack;
use crate::models::Built;
use crate::ops::attention::{CHUNK, SCOPE_OWN};
use crate::record::{Args, Command, Op, Part, Role, Step};
use std::collections::HashMap;
use std::ops::{Add, AddAssign};

/// What is said wherever an estimate is shown.
pub const ESTIMATE: &str = "estimate, not measured";

/// Published and assumed figures of a device; pairs are the better and the worse end.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// what `--predict` calls it
    pub name: &'static str,
    /// whose figures these are
    pub title: &'static str,
    /// parts of the names that adapters of this kind have, in lower case
    adapters: &'static [&'static str],
    /// the column of docs/isa-stats.tsv whose compiler is the nearest
    pub compiler: &'static str,
    /// how near it is; empty: it is the device's own
    nearness: &'static str,
    /// GB/s of memory
    bandwidth: f64,
    /// compute units, Xe cores, cores or multiprocessors
    units: f64,
    /// integer lanes that a unit issues a clock
    lanes: f64,
    /// GHz
    clock: f64,
    /// instructions for a dot product of four bytes
    dot: f64,
    /// lanes and bytes of registers that a unit has room for
    room: (f64, f64),
    /// ns from a load to its data, out of memory and out of a cache
    memory: (f64, f64),
    cache: (f64, f64),
    /// µs between two dispatches of which one needs the other
    gap: (f64, f64),
}

/// The devices there are figures of.
pub const TARGETS: &[Target] = &[
    Target {
        name: "strix-halo",
        title: "AMD Radeon 8060S (Strix Halo)",
        adapters: &["8060s", "strix halo", "strix_halo", "gfx1151"],
        compiler: "gfx1151",
        nearness: "",
        bandwidth: 256.0,
        units: 40.0,
        lanes: 64.0,
        clock: 2.9,
        dot: 1.0,
        room: (2048.0, 393_216.0),
        memory: (500.0, 900.0),
        cache: (120.0, 300.0),
        gap: (3.0, 5.0),
    },
    Target {
        name: "rtx-4090",
        title: "NVIDIA GeForce RTX 4090",
        adapters: &["rtx 4090"],
        compiler: "ga102",
        nearness: "another vendor of the compiler, one generation older",
        bandwidth: 1008.0,
        units: 128.0,
        lanes: 64.0,
        clock: 2.52,
        dot: 1.0,
        room: (1536.0, 262_144.0),
        memory: (450.0, 800.0),
        cache: (150.0, 300.0),
        gap: (1.5, 2.5),
    },
    Target {
        name: "h100",
        title: "NVIDIA H100 SXM",
        adapters: &["h100"],
        compiler: "ga102",
        nearness: "another vendor of the compiler, one generation older",
        bandwidth: 3350.0,
        units: 132.0,
        lanes: 64.0,
        clock: 1.98,
        dot: 1.0,
        room: (2048.0, 262_144.0),
        memory: (500.0, 900.0),
        cache: (200.0, 350.0),
        gap: (1.5, 2.5),
    },
    Target {
        name: "arc-a770",
        title: "Intel Arc A770",
        adapters: &["a770"],
        compiler: "dg2",
        nearness: "",
        bandwidth: 560.0,
        units: 32.0,
        lanes: 128.0,
        clock: 2.1,
        dot: 1.0,
        room: (2048.0, 524_288.0),
        memory: (600.0, 1100.0),
        cache: (200.0, 400.0),
        gap: (5.0, 10.0),
    },
    Target {
        name: "m1",
        title: "Apple M1, 8 cores",
        adapters: &["apple m1"],
        compiler: "m1",
        nearness: "another vendor of the compiler",
        bandwidth: 68.25,
        units: 8.0,
        lanes: 128.0,
        clock: 1.278,
        dot: 9.0,
        room: (1024.0, 212_992.0),
        memory: (500.0, 900.0),
        cache: (150.0, 300.0),
        gap: (2.0, 4.0),
    },
    Target {
        name: "m3-max",
        title: "Apple M3 Max, 40 cores",
        adapters: &["apple m3 max"],
        compiler: "m1",
        nearness: "another vendor of the compiler, two generations older",
        bandwidth: 400.0,
        units: 40.0,
        lanes: 128.0,
        clock: 1.38,
        dot: 9.0,
        room: (1024.0, 212_992.0),
        memory: (500.0, 900.0),
        cache: (150.0, 300.0),
        gap: (2.0, 4.0),
    },
];

/// The target of a name; the error is one line with the names there are.
pub fn target(name: &str) -> Result<&'static Target, String> {
    let found = TARGETS.iter().find(|t| t.name == name.to_lowercase());
    found.ok_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
        format!("no figures of {name}; there are {}", names.join(", "))
    })
}

/// The target that an adapter's name belongs to.
pub fn of_adapter(adapter: &str) -> Option<&'static Target> {
    let adapter = adapter.to_lowercase();
    TARGETS.iter().find(|t| t.adapters.iter().any(|part| adapter.contains(part)))
}

impl Target {
    /// Which compiler's numbers stand for the device's, in words.
    pub fn compiled_by(&self) -> String {
        let loads = if self.compiler == LOADS_OF { String::new() } else { format!("; loads in flight of {LOADS_OF}") };
        match self.nearness {
            "" => format!("{}{loads}", self.compiler),
            how => format!("{} stands for it ({how}){loads}", self.compiler),
        }
    }

    /// Lanes that have room at once.
    fn resident(&self, stats: &Stats, key: &Key) -> f64 {
        let bytes = if self.compiler == "m1" { 2.0 } else { 4.0 };
        let registers = stats.number(key, self.compiler, "registers").or(stats.number(key, self.compiler, "vgprs"));
        let fitting = registers.map_or(f64::MAX, |r| self.room.1 / (bytes * r.max(1.0)));
        self.units * self.room.0.min(fitting)
    }
}

// ---- what compilers made of the kernels ----

/// The target of which the table has loads in flight and loops, and which all others borrow them of.
const LOADS_OF: &str = "gfx1151";
/// How many times as many loads another compiler may keep in flight, at best: it may unroll what this one does not.
const BORROWED: f64 = 3.0;
/// Issue slots for a dot product with what belongs to it, where the table does not tell.
const DOT_SLOTS: (f64, f64) = (3.0, 12.0);
/// Issue slots for a product and a sum of floats, each with its barrier, and the loads and conversions beside them.
const FLOAT_SLOTS: (f64, f64) = (4.0, 8.0);
/// Share of the peak bandwidth that plain reading reaches.
const READ_SHARE: (f64, f64) = (0.92, 0.75);
/// Share of the issue slots that busy kernels fill.
const ISSUE_SHARE: (f64, f64) = (0.9, 0.5);
/// Clocks an instruction of straight code takes in one wave: branches passed by, and nothing else to issue.
const CLOCKS: (f64, f64) = (0.25, 4.0);
/// Seconds of the host for a dispatch, and for a step.
const HOST: (f64, f64) = (1e-6, 3e-6);
const SUBMIT: (f64, f64) = (50e-6, 200e-6);

/// A shader's stem and its overrides, as the table has them.
type Key = (String, String);

/// The table of docs/isa-stats.tsv.
pub struct Stats {
    columns: HashMap<String, usize>,
    rows: HashMap<Key, Vec<Option<f64>>>,
}

impl Stats {
    /// The table that this program was built with.
    pub fn built_in() -> Stats {
        Stats::parse(include_str!("../../docs/isa-stats.tsv"))
    }

    /// Reads a table: lines of cells between tabs, the first of names; lines with `#` are left out.
    pub fn parse(text: &str) -> Stats {
        let mut lines = text.lines().filter(|l| !l.starts_with('#')).map(|l| l.split('\t').collect::<Vec<_>>());
        let names = lines.next().unwrap_or_default();
        let columns = names.iter().enumerate().map(|(i, name)| (name.to_string(), i)).collect();
        let number = |cell: &&str| cell.parse().ok();
        let rows = lines.filter(|cells| cells.len() > 2);
        let rows = rows.map(|cells| {
            ((cells[0].to_string(), cells[1].to_string()), cells.iter().map(number).collect::<Vec<Option<f64>>>())
        });
        Stats { columns, rows: rows.collect() }
    }

    /// A number of a target's compiler; `None` where it does not tell.
    fn number(&self, key: &Key, compiler: &str, column: &str) -> Option<f64> {
        let place = *self.columns.get(&format!("{compiler}:{column}"))?;
        // pairs of cache types are compiled with each type alone: the row of the same type of keys is the nearest
        let same = |k: &&Key| k.0 == key.0 && k.1.split(' ').next() == key.1.split(' ').next();
        let row = self.rows.get(key).or_else(|| self.rows.get(self.rows.keys().filter(same).min()?))?;
        *row.get(place)?
    }

    /// Bytes that a lane has under way while it waits, of those it reads in bulk.
    fn in_flight(&self, key: &Key) -> f64 {
        let number = |column| self.number(key, LOADS_OF, column).unwrap_or(0.0);
        let (wide, all) = (number("loads16"), number("loads"));
        if wide > 0.0 { 16.0 * wide } else { 4.0 * all.max(1.0) }
    }

    /// Issue slots for each dot product: those of its loop, and at worst as much again for what is around the loop.
    fn dot_slots(&self, key: &Key) -> (f64, f64) {
        let number = |column| self.number(key, LOADS_OF, column).filter(|n| *n > 0.0);
        match (number("loop"), number("loop_dots")) {
            (Some(slots), Some(dots)) => (slots / dots, 2.0 * slots / dots),
            _ => DOT_SLOTS,
        }
    }
}

// ---- what a plan asks of them ----

/// A dispatch as a device would run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// stem of its shader
    pub shader: String,
    /// workgroups
    pub groups: [u32; 3],
    /// lanes of a workgroup
    pub lanes: u32,
}

/// The dispatches of a command for the parameters of a step.
pub type Launches<'a> = &'a dyn Fn(&Command, &Args) -> Vec<Launch>;

/// What a command does in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Work {
    /// bytes out of memory: weights and cache, each once
    bytes: f64,
    /// bytes that lanes ask for, of memory and caches
    asked: f64,
    /// dot products of four bytes
    dots: f64,
    /// products of floats
    floats: f64,
}

/// Float products per token of the matrices in a buffer.
fn float_products(role: &Role) -> u64 {
    let of = |p: &crate::record::Piece| match p.part {
        Part::Rows { t, k, rows, .. } if pack::packed_type(t).is_float() => (rows * k) as u64,
        _ => 0,
    };
    role.pieces().iter().map(of).sum()
}

/// What a command does; `launch` is its last dispatch.
fn work(built: &Built, digits: usize, step: &Step, command: &Command, args: &Args, launch: &Launch) -> Work {
    let n = tokens_of(command, step) as f64;
    let mut w = Work::default();
    // a tile reads what it needs once for all its tokens, in each of its columns of eight lanes
    let tiles = f64::from(launch.groups[1]);
    let asked = if tiles < n { tiles * f64::from(launch.lanes) / 8.0 } else { tiles };
    let attention = match args {
        Args::Attention(p) => Some(*p),
        Args::AttentionQuantize(p) => Some(p.attention()),
        _ => None,
    };
    let mut embedded = false;
    for &id in &command.binds {
        let buffer = &built.plan.buffers[id];
        let bytes = 4.0 * buffer.words as f64;
        match (&buffer.role, command.op) {
            (role, Op::Embed(_)) if role.is_loaded() => {
                // a row per token, wherever the matrix was split
                let row = bytes / role.rows().next_multiple_of(32) as f64;
                w.bytes += if embedded { 0.0 } else { row * n };
                w.asked = w.bytes;
                embedded = true;
            }
            (role, _) if role.is_loaded() => {
                let (read, met) = parts_met(command, n as usize);
                w.bytes += bytes * read;
                w.asked += bytes * if met < 1.0 { read } else { asked };
                w.dots += products(role) as f64 * met * n * digits as f64 / 4.0;
                w.floats += float_products(role) as f64 * met * n;
            }
            (Role::Cache | Role::Recent, _) => {
                let Some(p) = attention else { continue };
                let queries = step.pos..step.pos + step.n_tokens;
                // of this page
                let sees = |q: usize| {
                    let (seen, (from, to)) =
                        (p.sees_from(p.reach_of(q), q), (p.chunk0 as usize, (p.chunk0 + p.chunks) as usize));
                    if p.scope == SCOPE_OWN { seen } else { seen.start.max(from * CHUNK)..seen.end.min(to * CHUNK) }
                };
                let seen = sees(queries.start).start..queries.clone().map(|q| sees(q).end).max().unwrap_or(0);
                let read = bytes * seen.len() as f64 / f64::from(p.page_len);
                w.bytes += read;
                // a tile shares what it has read through workgroup memory
                w.asked += read * tiles * f64::from(p.heads) / f64::from(p.kv_heads.max(1));
                let pairs: usize = queries.map(|q| sees(q).len()).sum();
                w.floats += pairs as f64 * f64::from(p.heads) * f64::from(p.head_dim);
            }
            // one slot is read and one written
            (Role::State, _) => {
                let both = 2.0 * bytes / built.slots as f64;
                (w.bytes, w.asked) = (w.bytes + both, w.asked + both);
            }
            // activations stay in caches, and beside weights they are few
            _ if w.bytes == 0.0 && attention.is_none() => {
                let most = if command.rows.are_outputs() { built.plan.max_out } else { built.plan.max_tokens };
                w.asked += bytes * n / most.max(1) as f64;
            }
            _ => {}
        }
    }
    w
}

// ---- times ----

/// Seconds, at best and at worst, and of those at best how many each limit takes.
#[derive(Clone, Copy, Debug, Default)]
struct Time {
    best: f64,
    worst: f64,
    /// memory, loads in flight, arithmetic, launching
    by: [f64; 4],
}

/// The names of the limits, in the order of `Time::by`.
const LIMITS: [&str; 4] = ["memory", "loads in flight", "arithmetic", "launching"];

impl Add for Time {
    type Output = Time;
    fn add(self, o: Time) -> Time {
        let by = std::array::from_fn(|i| self.by[i] + o.by[i]);
        Time { best: self.best + o.best, worst: self.worst + o.worst, by }
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, o: Time) {
        *self = *self + o;
    }
}

/// The time of a dispatch that does `w`.
fn dispatch(target: &Target, stats: &Stats, overrides: &str, launch: &Launch, w: &Work) -> Time {
    let key = (launch.shader.clone(), overrides.to_string());
    let lanes = launch.groups.iter().map(|&n| f64::from(n)).product::<f64>() * f64::from(launch.lanes);
    let resident = lanes.min(target.resident(stats, &key));
    let clock = target.clock * 1e9;
    let rate = target.units * target.lanes * clock;
    let own = if target.compiler == LOADS_OF { 1.0 } else { BORROWED };
    let dots = stats.dot_slots(&key);
    // values that did not fit are stored and loaded again
    let spilled = stats.number(&key, target.compiler, "spills").is_some_and(|n| n > 0.0);
    let code = stats.number(&key, target.compiler, "instructions").unwrap_or(0.0);
    let end = |pick: fn((f64, f64)) -> f64, in_flight: f64, busy: f64, spill: f64| {
        let memory = w.bytes / (target.bandwidth * 1e9 * pick(READ_SHARE));
        let cached = (w.asked - w.bytes).max(0.0);
        let waiting = (w.bytes * pick(target.memory) + cached * pick(target.cache)) * 1e-9;
        let flight = waiting / (resident * stats.in_flight(&key) * in_flight);
        let slots = w.dots * (pick(dots) + target.dot - 1.0) + w.floats * pick(FLOAT_SLOTS);
        let issued = (resident / (target.units * target.lanes * busy)).min(1.0) * pick(ISSUE_SHARE);
        let first = pick(if w.bytes > 0.0 { target.memory } else { target.cache }) * 1e-9;
        [memory, flight, slots * spill / (rate * issued), first + code * pick(CLOCKS) / clock]
    };
    let best = end(|p| p.0, own, 1.0, 1.0);
    let worst = end(|p| p.1, 1.0, 4.0, if spilled { 2.0 } else { 1.0 });
    let most = |t: [f64; 4]| t.into_iter().fold(0.0, f64::max);
    let mut by = [0.0; 4];
    by[best.iter().position(|t| *t == most(best)).unwrap_or(0)] = most(best);
    // at worst nothing is computed while loads are awaited
    Time { best: most(best), worst: worst[0].max(worst[1]).max(worst[3]) + worst[2], by }
}

/// The time of a step.
fn step_time(
    target: &Target,
    stats: &Stats,
    built: &Built,
    digits: usize,
    launches: Launches<'_>,
    step: &Step,
) -> Time {
    let mut sum = Time::default();
    let waits = |n: f64| {
        let best = n * (target.gap.0 * 1e-6 + HOST.0);
        Time { best, worst: n * (target.gap.1 * 1e-6 + HOST.1), by: [0.0, 0.0, 0.0, best] }
    };
    for command in &built.plan.recording.commands {
        let Some(args) = command.args_for(step) else { continue };
        let overrides: Vec<String> = command.op.constants().iter().map(|(name, v)| format!("{name}={v}")).collect();
        let list = launches(command, &args);
        // the pass that reads the cache is the first of two where it is split into chunks, else the last
        let parts = list.iter().position(|l| l.groups[1] > args.groups()[1]).unwrap_or(list.len() - 1);
        for (i, launch) in list.iter().enumerate() {
            let w = if i == parts {
                let whole = Launch { groups: args.groups(), ..launch.clone() };
                let tiled = launch.groups[1] < args.groups()[1];
                work(built, digits, step, command, &args, if tiled { launch } else { &whole })
            } else {
                Work::default()
            };
            sum += dispatch(target, stats, &overrides.join(" "), launch, &w) + waits(1.0);
        }
    }
    sum + Time { best: SUBMIT.0, worst: SUBMIT.1, by: [0.0, 0.0, 0.0, SUBMIT.0] }
}

/// Tokens a second to expect of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// at worst
    pub low: f64,
    /// at best
    pub high: f64,
    /// what the published bandwidth allows at most
    pub memory_limit: f64,
    /// share of the published bandwidth that weights and cache take, at worst and at best
    pub bandwidth_share: (f64, f64),
    /// what takes most of the time at best
    pub bound_by: &'static str,
    /// bytes of weights and cache, per token
    pub bytes_per_token: f64,
    /// dispatches per token
    pub dispatches_per_token: f64,
}

/// The range for one test of a plan; `batch` and `digits` as everywhere in the bench.
pub fn estimate(
    target: &Target,
    stats: &Stats,
    (built, digits): (&Built, usize),
    launches: Launches<'_>,
    test: &Test,
    batch: usize,
) -> Estimate {
    let (mut sum, mut bytes, mut dispatches) = (Time::default(), 0.0, 0);
    for step in steps(test, batch, built.plan.max_tokens) {
        sum += step_time(target, stats, built, digits, launches, &step);
        bytes += cost(built, digits, &step).bytes as f64;
        let active = built.plan.recording.commands.iter().filter_map(|c| Some((c, c.args_for(&step)?)));
        dispatches += active.map(|(c, args)| launches(c, &args).len()).sum::<usize>();
    }
    let tokens = test.tokens() as f64;
    let memory_limit = tokens / (bytes / (target.bandwidth * 1e9));
    let most = (0..LIMITS.len()).max_by(|&a, &b| sum.by[a].total_cmp(&sum.by[b])).unwrap_or(0);
    // a window leaves positions unread that the limit counts
    let high = (tokens / sum.best).min(memory_limit);
    let low = (tokens / sum.worst).min(high);
    Estimate {
        low,
        high,
        memory_limit,
        bandwidth_share: (low / memory_limit, high / memory_limit),
        bound_by: LIMITS[most],
        bytes_per_token: bytes / tokens,
        dispatches_per_token: dispatches as f64 / tokens,
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::formats::synthetic::Synthetic;
    use crate::models::{self, Hyper, PlanOptions};

    fn plan() -> Built {
        let model = Synthetic::parse("llama-1b:q4_k_m").expect("a shape").container().expect("a model");
        let hyper = Hyper::read(&model).expect("its hyperparameters");
        let options = PlanOptions { n_ctx: 4224, ..PlanOptions::default() };
        models::build(&model, &hyper, &options).expect("a plan")
    }

    /// Every command by the shader of its own name.
    fn plain(c: &Command, args: &Args) -> Vec<Launch> {
        vec![Launch { shader: c.op.stem().into(), groups: args.groups(), lanes: 64 }]
    }

    const TESTS: [Test; 4] = [
        Test { prompt: 0, generate: 4, depth: 0 },
        Test { prompt: 0, generate: 4, depth: 4096 },
        Test { prompt: 512, generate: 0, depth: 0 },
        Test { prompt: 64, generate: 4, depth: 100 },
    ];

    #[test]
    fn a_range_is_in_order_below_what_memory_allows_and_rises_with_bandwidth() {
        let (built, stats) = (plan(), Stats::built_in());
        for t in TARGETS {
            for test in TESTS {
                let of = |t: &Target| estimate(t, &stats, (&built, 1), &plain, &test, 2048);
                let e = of(t);
                assert!(0.0 < e.low && e.low <= e.high && e.high <= e.memory_limit, "{} {test}: {e:?}", t.name);
                let used = |rate: f64| rate * e.bytes_per_token / (t.bandwidth * 1e9);
                for (share, rate) in [(e.bandwidth_share.0, e.low), (e.bandwidth_share.1, e.high)] {
                    assert!((share - used(rate)).abs() < 1e-9, "{} {test}: {e:?}", t.name);
                }
                let mut before = of(&Target { bandwidth: t.bandwidth / 64.0, ..*t });
                // so slow a memory is what bounds generation
                assert!(test.prompt > 0 || before.high < e.high, "{} {test}: {before:?} {e:?}", t.name);
                for factor in [0.125, 0.5, 1.0, 4.0, 64.0] {
                    let now = of(&Target { bandwidth: t.bandwidth * factor, ..*t });
                    assert!(now.low >= before.low && now.high >= before.high, "{} {test} times {factor}", t.name);
                    assert!(now.memory_limit > before.memory_limit);
                    before = now;
                }
            }
        }
    }

    #[test]
    fn depth_digits_and_loads_in_flight_tell() {
        let (built, stats) = (plan(), Stats::built_in());
        let halo = target("Strix-Halo").unwrap();
        let of = |stats: &Stats, digits, test| estimate(halo, stats, (&built, digits), &plain, &test, 2048);
        let [shallow, deep, prompt, _] = TESTS.map(|test| of(&stats, 1, test));
        assert!(deep.high < shallow.high && deep.low < shallow.low && shallow.low < prompt.low);
        assert!(deep.bytes_per_token > shallow.bytes_per_token && shallow.bytes_per_token > prompt.bytes_per_token);
        assert!(of(&stats, 2, TESTS[2]).high < prompt.high, "twice the dot products");
        let table = |loads: u32| {
            let row = |stem: &str| format!("{stem}\t\t{loads}\t{loads}\t40\n");
            let head = "shader\toverrides\tgfx1151:loads16\tgfx1151:loads\tgfx1151:vgprs\n";
            Stats::parse(&["# a comment\n", head, &row("q4k_matvec"), &row("q6k_matvec")].concat())
        };
        let [few, many] = [1, 16].map(|loads| of(&table(loads), 1, TESTS[0]));
        assert!(many.high > few.high && many.low > few.low, "{few:?} {many:?}");
    }

    #[test]
    fn every_target_has_a_name_of_its_own_and_numbers_in_the_table() {
        let stats = Stats::built_in();
        for t in TARGETS {
            assert!(target(t.name).unwrap().title == t.title && !t.adapters.is_empty());
            let key = ("q4k_matvec4".to_string(), String::new());
            assert!(stats.number(&key, t.compiler, "instructions").is_some_and(|n| n > 100.0), "{}", t.name);
            assert!(t.resident(&stats, &key) >= 64.0 && t.compiled_by().starts_with(t.compiler));
        }
        assert!(stats.in_flight(&("q4k_matvec4".into(), String::new())) >= 16.0);
        let line = target("voodoo2").unwrap_err();
        assert!(TARGETS.iter().all(|t| line.contains(t.name)) && line.contains("voodoo2"), "{line}");
        assert_eq!(of_adapter("NVIDIA GeForce RTX 4090").map(|t| t.name), Some("rtx-4090"));
        assert_eq!(of_adapter("AMD Radeon 8060S (RADV GFX1151)").map(|t| t.name), Some("strix-halo"));
        assert!(of_adapter("llvmpipe (LLVM 15.0.6, 256 bits)").is_none());
    }
}
