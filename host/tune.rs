//! The tuner: measures the variants of each operation on the loaded plan's own shapes, and remembers what it found.
//!
//! Variants give the same bits, so a wrong measurement costs time and nothing else. What is remembered belongs to one
//! adapter, driver, isobit version and set of shaders; anything else found in its place is not used.

use super::device::GpuDevice;
use super::faults::HostError;
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
    /// Tells the user in one line.
    fn warn(&self, line: &str);
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
}

/// The page of one adapter, and where it is kept.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    store: Option<Arc<dyn Store>>,
    name: String,
    page: Page,
}

impl Memory {
    /// Reads the page of an adapter. A page that is not what this program writes is left alone until it is replaced.
    pub fn open(adapter: &wgpu::AdapterInfo, store: Option<Arc<dyn Store>>) -> Memory {
        let about = about(adapter);
        let name = name("gpu", &about, "json");
        let fresh = Page { about, exact: false, choices: BTreeMap::new() };
        let mut memory = Memory { store, name, page: fresh };
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
        _ => return None,
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
        for (shape, op, commands) in shapes {
            let remembered = self.memory.page.choices.get(&shape).cloned().unwrap_or_default();
            let subgroups = self.nature.subgroups;
            let place = |name: &String| variants::of(op).iter().position(|v| v.name == name && v.runs(subgroups));
            let mut found = remembered.each_ref().map(|name| name.as_ref().and_then(place));
            if self.options.tune == Tune::Now {
                found = [None; CLASSES.len()];
            }
            let plan = &self.program()?.plan;
            let asked = (0..CLASSES.len()).map(|class| {
                let met = |&&c: &&usize| variants::tokens_in(class, &plan.recording.commands[c], plan).is_some();
                found[class].is_none() && commands.iter().any(|c| met(&c))
            });
            let asked: Vec<bool> = asked.collect();
            let late = self.options.tune == Tune::Auto && started.elapsed() > BUDGET;
            if asked.contains(&true) && !late {
                for class in (0..CLASSES.len()).filter(|&class| asked[class]) {
                    found[class] = self.measure(class, &commands).await?;
                }
                let names = found.map(|v| v.map(|v| variants::of(op)[v].name.to_string()));
                log::info!("tuned {shape}: {}", names.each_ref().map(|n| n.as_deref().unwrap_or("-")).join(", "));
                self.memory.page.choices.insert(shape, names);
                news = true;
            }
            let program = self.program.as_mut().expect("tune is called with a plan");
            for &c in &commands {
                let choice = &mut program.commands[c].choice;
                choice.iter_mut().zip(found).for_each(|(choice, found)| *choice = found.unwrap_or(*choice));
            }
        }
        if news {
            self.memory.save();
        }
        Ok(())
    }

    /// The fastest variant for commands of one shape in a class; `None` where no step gives any of them so many tokens.
    async fn measure(&mut self, class: usize, commands: &[usize]) -> Result<Option<usize>, HostError> {
        let plan = &self.program()?.plan;
        let all = &plan.recording.commands;
        let Some(n) = commands.iter().find_map(|&c| variants::tokens_in(class, &all[c], plan)) else {
            return Ok(None);
        };
        let op = all[commands[0]].op;
        let n_out = n.min(plan.max_out);
        let active = self.write_arena(&Step { n_tokens: n, n_out, ..Step::default() })?;
        let chosen: Vec<_> = active
            .into_iter()
            .filter(|(i, _)| commands.contains(i))
            .take(if class == 0 { ROTATION } else { 1 })
            .collect();
        if chosen.is_empty() {
            return Ok(None);
        }
        // one dispatch of what reads no matrix takes less than submitting it
        let times = if reads_matrix(op) { 1 } else { CLASSES[CLASSES.len() - 1].div_ceil(n) };
        let mut best = vec![Duration::MAX; variants::of(op).len()];
        // the first round compiles and is not counted
        for round in 0..=ROUNDS {
            let leader = best.iter().min().copied().unwrap_or(Duration::MAX);
            for (variant, best) in best.iter_mut().enumerate() {
                // no hope: another shape of step, or twice the time of another
                if !variants::of(op)[variant].hopes(class, self.nature.subgroups)
                    || round > 1 && *best > leader.saturating_mul(2)
                {
                    continue;
                }
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
        Ok((0..best.len()).min_by_key(|&v| best[v]))
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
