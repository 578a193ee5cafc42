//! The tuner: measures the variants of each operation on the loaded plan's own shapes, and remembers what it found.
//!
//! Variants give the same bits, so a wrong measurement costs time and nothing else. What is remembered belongs to one
//! adapter, driver, isobit version and set of shaders; anything else found in its place is not used.

use super::device::GpuDevice;
use super::faults::HostError;
use super::program::Place;
use super::shaders::SHADERS;
use super::variants::{self, CLASSES};
use crate::record::{Args, Command, Op, Step};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whether variants are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tune {
    /// neither measured nor read from the store
    #[default]
    Off,
    /// measured anew
    Now,
    /// measured where the store does not know the shape
    Auto,
}

/// Keeps small files between runs of the program; the command line gives one that writes to the user's cache directory.
pub trait Store: fmt::Debug + Send + Sync {
    /// The bytes of a name, if there are any.
    fn get(&self, name: &str) -> Option<Vec<u8>>;
    /// Replaces the bytes of a name, at once or not at all. What cannot be written is lost, with a warning.
    fn put(&self, name: &str, bytes: &[u8]);
    /// Warns the user in one line.
    fn warn(&self, line: &str);
    /// Tells the user in one line what takes time now.
    fn tell(&self, line: &str);
}

/// What is remembered of one adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Page {
    /// adapter, driver, isobit and its shaders
    about: String,
    /// the float probe found no wrong word
    exact: bool,
    /// shape to the names of the variants for one, a few and many tokens, as far as they were measured
    choices: BTreeMap<String, [Option<String>; CLASSES.len()]>,
    /// shape of attention to the depth from which it is split
    splits: BTreeMap<String, Split>,
}

/// From where attention of a few tokens is split (`variants::splits`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Split {
    /// positions seen of a page from which on it was the faster; `None`: from none of those measured
    from: Option<usize>,
    /// positions up to which it was measured
    measured: usize,
}

/// The page of one adapter, and where it is kept.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    store: Option<Arc<dyn Store>>,
    name: String,
    page: Page,
    /// the user was told that measuring takes time
    told: bool,
}

impl Memory {
    /// Reads the page of an adapter. A page that is not what this program writes is left alone until it is replaced.
    pub fn open(adapter: &wgpu::AdapterInfo, store: Option<Arc<dyn Store>>) -> Memory {
        let about = about(adapter);
        let name = name("gpu", &about, "json");
        let fresh = Page { about, exact: false, choices: BTreeMap::new(), splits: BTreeMap::new() };
        let mut memory = Memory { store, name, page: fresh, told: false };
        let found = memory.store.as_ref().and_then(|s| s.get(&memory.name));
        match found.map(|text| serde_json::from_slice::<Page>(&text)) {
            Some(Ok(page)) if page.about == memory.page.about => memory.page = page,
            None => {}
            Some(other) => {
                let why = other.err().map_or("it is about another device".into(), |e| e.to_string());
                if let Some(store) = &memory.store {
                    store.warn(&format!("warning: {} in the cache is not used: {why}", memory.name));
                }
            }
        }
        memory
    }

    /// Whether the adapter was found exact before.
    pub fn exact(&self) -> bool {
        self.page.exact
    }

    /// Remembers whether the adapter is exact.
    pub fn set_exact(&mut self, exact: bool) {
        if self.page.exact != exact {
            self.page.exact = exact;
            self.save();
        }
    }

    /// Tells the user once that variants are measured, which takes seconds.
    fn tell(&mut self, title: &str, tune: Tune) {
        if let (false, Some(store)) = (self.told, &self.store) {
            let how_long = match tune {
                Tune::Now => "all of them".to_string(),
                _ => format!("{} s and the shape in hand", BUDGET.as_secs()),
            };
            store.tell(&format!("measuring variants of kernels on {title} ({how_long})"));
        }
        self.told = true;
    }

    fn save(&self) {
        if let Some(store) = &self.store {
            let text = serde_json::to_string_pretty(&self.page).expect("strings and a flag make JSON");
            store.put(&self.name, text.as_bytes());
        }
    }
}

/// Adapter, driver, isobit and its shaders, in one line: what is remembered holds for these alone.
pub(super) fn about(adapter: &wgpu::AdapterInfo) -> String {
    let mut shaders = Sha256::new();
    for s in SHADERS {
        shaders.update(s.name);
        shaders.update(s.source);
    }
    format!(
        "{} [{:?} {:04x}:{:04x}], driver {} {}, isobit {}, shaders {}",
        adapter.name,
        adapter.backend,
        adapter.vendor,
        adapter.device,
        adapter.driver,
        adapter.driver_info,
        env!("CARGO_PKG_VERSION"),
        &hex(&shaders.finalize())[..16],
    )
}

/// What a store calls the file of a kind that is about something.
pub(super) fn name(kind: &str, about: &str, ending: &str) -> String {
    format!("{kind}-{}.{ending}", &hex(&Sha256::digest(about))[..16])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// After this long no other shape is begun: the rest keep the untuned choice and are measured in another run, unless
/// measuring is asked for.
const BUDGET: Duration = Duration::from_secs(4);

/// Commands of one shape that a round runs for one token, so that their weights do not stay in a cache.
const ROTATION: usize = 4;

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
        let started = Instant::now();
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

    /// Makes the buffers what they were before anything was measured: zeros, but for the weights, which are only read.
    fn clear(&self) -> Result<(), HostError> {
        let program = self.program()?;
        let mut encoder = self.device.create_command_encoder(&Default::default());
        for (declared, place) in program.plan.buffers.iter().zip(&program.places) {
            if let (false, Place::Own(buffer)) = (declared.role.is_weight(), place) {
                encoder.clear_buffer(buffer, 0, None);
            }
        }
        self.queue.submit([encoder.finish()]);
        Ok(())
    }

    /// Sets the variants of commands of one shape, class by class: remembered ones, or measured where that is not `late`.
    /// Whether any was measured.
    async fn choose(&mut self, shape: &str, commands: &[usize], late: bool) -> Result<bool, HostError> {
        let op = self.program()?.plan.recording.commands[commands[0]].op;
        let remembered = self.memory.page.choices.get(shape).cloned().unwrap_or_default();
        let place = |name: &String| variants::of(op).iter().position(|v| v.name == name);
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
        let Some(n) = commands.iter().find_map(|&c| variants::tokens_in(class, &all[c], &program.plan)) else {
            return Ok(None);
        };
        let list = variants::of(all[commands[0]].op);
        let hopes = |&v: &usize| list[v].hopes(class, self.nature.subgroups) && program.can(commands[0], v);
        let candidates: Vec<usize> = (0..list.len()).filter(hopes).collect();
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
        let Some(variant) = list.iter().position(|v| v.is_split()).filter(|&v| program.can(commands[0], v)) else {
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
            let variant = if split.from.is_some() && program.can(c, variant) { variant } else { 0 };
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
        let mut from = None;
        for depth in DEPTHS.into_iter().rev().filter(|&depth| depth <= deepest) {
            let [plain, split] = self.times(commands, &[0, variant], 1, depth - 1).await?[..] else { return Ok(None) };
            if split >= plain {
                break;
            }
            from = Some(depth);
        }
        Ok(Some(Split { from, measured: deepest }))
    }

    /// The best time of each of some variants, which the commands of one shape can run, in a step of `n` tokens from `pos`
    /// on. None where that step has none of the commands.
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
        self.memory.tell(&self.title, self.options.tune);
        let program = self.program()?;
        // one dispatch of what reads no matrix takes less than submitting it, but attention's on a rasteriser
        let op = program.plan.recording.commands[commands[0]].op;
        let times = match op {
            _ if reads_matrix(op) => 1,
            Op::Attention(..) | Op::AttentionQuantize(..) if self.nature.hardware => 16usize.div_ceil(n),
            Op::Attention(..) | Op::AttentionQuantize(..) => 1,
            _ => CLASSES[CLASSES.len() - 1].div_ceil(n),
        };
        let mut best = vec![Duration::MAX; candidates.len()];
        // the first round compiles and is not counted
        for round in 0..=ROUNDS {
            let leader = best.iter().min().copied().unwrap_or(Duration::MAX);
            for (&variant, best) in candidates.iter().zip(&mut best) {
                // no hope: twice the time of another
                if round > 1 && *best > leader.saturating_mul(2) {
                    continue;
                }
                self.stop.check()?;
                let start = Instant::now();
                let mut encoder = self.device.create_command_encoder(&Default::default());
                {
                    let mut pass = encoder.begin_compute_pass(&Default::default());
                    for (i, args) in chosen.iter().cycle().take(times * chosen.len()) {
                        self.program()?.dispatch_variant(&mut pass, *i, args, variant);
                    }
                }
                self.queue.submit([encoder.finish()]);
                self.wait().await?;
                if round > 0 {
                    *best = start.elapsed().min(*best);
                }
            }
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct Kept {
        texts: Mutex<BTreeMap<String, Vec<u8>>>,
        warnings: Mutex<Vec<String>>,
    }

    impl Store for Kept {
        fn get(&self, name: &str) -> Option<Vec<u8>> {
            self.texts.lock().unwrap().get(name).cloned()
        }
        fn put(&self, name: &str, bytes: &[u8]) {
            self.texts.lock().unwrap().insert(name.into(), bytes.into());
        }
        fn warn(&self, line: &str) {
            self.warnings.lock().unwrap().push(line.into());
        }
        fn tell(&self, _: &str) {}
    }

    fn adapter(driver: &str) -> wgpu::AdapterInfo {
        let mut info = wgpu::AdapterInfo::new(wgpu::DeviceType::Cpu, wgpu::Backend::Vulkan);
        info.driver_info = driver.into();
        info
    }

    #[test]
    fn what_is_remembered_is_found_again_and_only_for_the_same_driver() {
        let kept = Arc::new(Kept::default());
        let open = |driver| Memory::open(&adapter(driver), Some(kept.clone() as Arc<dyn Store>));
        let mut memory = open("1.0");
        assert!(!memory.exact());
        memory.page.choices.insert("x".into(), [Some("matvec".into()), None, Some("matmul".into())]);
        memory.page.splits.insert("y".into(), Split { from: Some(512), measured: 4096 });
        memory.page.splits.insert("z".into(), Split { from: None, measured: 1024 });
        memory.set_exact(true);
        assert_eq!(open("1.0").page, memory.page);
        assert!(open("1.0").exact() && !open("1.1").exact());
        assert_eq!(*kept.warnings.lock().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_page_that_is_broken_or_about_another_device_is_ignored_with_one_warning() {
        let kept = Arc::new(Kept::default());
        let open = |driver| Memory::open(&adapter(driver), Some(kept.clone() as Arc<dyn Store>));
        let mut memory = open("1.0");
        memory.set_exact(true);
        let good = String::from_utf8(kept.get(&memory.name).unwrap()).unwrap();
        for bad in ["", "{", "[]", &good[..good.len() / 2], &good.replace("1.0", "9.9")] {
            kept.put(&memory.name, bad.as_bytes());
            kept.warnings.lock().unwrap().clear();
            assert!(!open("1.0").exact(), "{bad}");
            let warnings = kept.warnings.lock().unwrap();
            assert!(warnings.len() == 1 && !warnings[0].contains('\n'), "{bad}: {warnings:?}");
        }
    }
}
