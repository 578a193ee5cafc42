//! What a CPU device chooses, and the page of it in a store.
//!
//! A page belongs to one CPU, its levels and threads, and one version of isobit; anything else found in its place is not
//! used. No choice changes a bit of a result, so a wrong one costs time and nothing else.

use crate::limits::{self, Cores};
use crate::simd::{Fetch, Kernel, Level, cpu_title};
use crate::store::{Store, name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How steps of a kind run: of few tokens, or of many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// instruction set, and how weights are asked for
    pub kernel: Kernel,
    /// threads
    pub threads: usize,
}

impl Way {
    /// `avx512, once:12, 2 threads`.
    pub fn title(&self) -> String {
        let Way { kernel: Kernel { level, fetch }, threads } = self;
        let asking = if Fetch::is_a_choice() { format!(", {}", fetch.name()) } else { String::new() };
        format!("{}{asking}, {threads} {}", level.name(), if *threads == 1 { "thread" } else { "threads" })
    }
}

/// A way as a page has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Written {
    level: String,
    prefetch: String,
    threads: usize,
    /// microseconds for a MiB of weights
    us_per_mib: f64,
    /// what else was measured, and its time as a ratio to that of the way
    against: Vec<(String, f64)>,
}

/// A way, and what it was chosen by.
#[derive(Clone, PartialEq, Debug)]
pub struct Chosen {
    /// the way
    pub way: Way,
    /// microseconds for a MiB of weights, when it was measured
    pub us_per_mib: f64,
    /// what else was measured, and its time as a ratio to that of the way
    pub against: Vec<(String, f64)>,
}

impl Chosen {
    fn written(&self) -> Written {
        let Way { kernel, threads } = self.way;
        Written {
            level: kernel.level.name().into(),
            prefetch: kernel.fetch.name(),
            threads,
            us_per_mib: self.us_per_mib,
            against: self.against.clone(),
        }
    }

    /// The way a page names, or what in it is not there.
    fn read(w: &Written, threads: usize) -> Result<Chosen, String> {
        let short = |s: &str| s.chars().take(40).collect::<String>();
        let level = Level::parse(&w.level).filter(|l| l.is_available());
        let level = level.ok_or_else(|| format!("this CPU has no level {:?}", short(&w.level)))?;
        let fetch = Fetch::parse(&w.prefetch).ok_or_else(|| format!("{:?} asks for nothing", short(&w.prefetch)))?;
        if !(1..=threads).contains(&w.threads) {
            return Err(format!("{} threads, and there are {threads}", w.threads));
        }
        if !w.us_per_mib.is_finite() || w.us_per_mib <= 0.0 {
            return Err(format!("a MiB in {} us", w.us_per_mib));
        }
        let way = Way { kernel: Kernel { level, fetch }, threads: w.threads };
        Ok(Chosen { way, us_per_mib: w.us_per_mib, against: w.against.clone() })
    }

    /// `avx512, once:12, 2 threads (near:12 +2 %, once:24 +0 %)`.
    pub fn title(&self) -> String {
        let percent = |ratio: f64| format!("{:+.0} %", (ratio - 1.0) * 100.0);
        let against: Vec<String> = self.against.iter().map(|(name, r)| format!("{name} {}", percent(*r))).collect();
        let against = if against.is_empty() { String::new() } else { format!(" ({})", against.join(", ")) };
        format!("{}{against}", self.way.title())
    }
}

/// What was chosen for steps of few tokens and of many.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// one token to three
    pub few: Chosen,
    /// more
    pub many: Chosen,
}

impl Found {
    /// In one line.
    pub fn title(&self) -> String {
        format!("a token: {}; a prompt: {}", self.few.title(), self.many.title())
    }
}

/// What is remembered of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Page {
    /// CPU, its levels and threads, and isobit
    about: String,
    /// kinds of weights to the ways for few and many tokens
    choices: BTreeMap<String, [Written; 2]>,
    /// types with codebooks, level and threads to how many times as long a token takes where they are packed as codes
    #[serde(default)]
    wide: BTreeMap<String, f64>,
}

/// The page of this CPU, and where it is kept.
pub struct Memory {
    store: Option<Arc<dyn Store>>,
    name: String,
    page: Page,
    threads: usize,
}

impl Memory {
    /// Reads the page of this CPU. A page that is not what this program writes is left alone until it is replaced.
    pub fn open(store: Option<Arc<dyn Store>>) -> Memory {
        let cores = Cores::find();
        Memory::of(about(cores), cores.threads, store)
    }

    fn of(about: String, threads: usize, store: Option<Arc<dyn Store>>) -> Memory {
        let name = name("cpu", &about, "json");
        let mut memory =
            Memory { store, name, page: Page { about, choices: BTreeMap::new(), wide: BTreeMap::new() }, threads };
        let found = memory.store.as_ref().and_then(|s| s.get(&memory.name));
        match found.map(|text| serde_json::from_slice::<Page>(&text)) {
            Some(Ok(page)) if page.about == memory.page.about => memory.page = page,
            None => {}
            Some(other) => memory.warn(&other.err().map_or("it is about another CPU".into(), |e| e.to_string())),
        }
        memory
    }

    fn warn(&self, why: &str) {
        if let Some(store) = &self.store {
            let why: String = why.split_whitespace().collect::<Vec<_>>().join(" ");
            store.warn(&format!("warning: {} in the cache is not used: {why}", self.name));
        }
    }

    /// What was chosen for weights of a kind, where it names what is there.
    pub fn get(&self, kind: &str) -> Option<Found> {
        let [few, many] = self.page.choices.get(kind)?;
        match (Chosen::read(few, self.threads), Chosen::read(many, self.threads)) {
            (Ok(few), Ok(many)) => Some(Found { few, many }),
            (Err(why), _) | (_, Err(why)) => {
                self.warn(&format!("{kind}: {why}"));
                None
            }
        }
    }

    /// Keeps what was chosen for weights of a kind.
    pub fn put(&mut self, kind: &str, found: &Found) {
        self.page.choices.insert(kind.into(), [found.few.written(), found.many.written()]);
        self.keep();
    }

    /// How many times as long a token takes with a type packed as codes, where that was measured.
    pub fn wide(&self, kind: &str) -> Option<f64> {
        self.page.wide.get(kind).copied().filter(|ratio| ratio.is_finite() && *ratio > 0.0)
    }

    /// Keeps that.
    pub fn put_wide(&mut self, kind: &str, ratio: f64) {
        self.page.wide.insert(kind.into(), ratio);
        self.keep();
    }

    fn keep(&self) {
        if let Some(store) = &self.store {
            let text = serde_json::to_string_pretty(&self.page).expect("strings and numbers make JSON");
            store.put(&self.name, text.as_bytes());
        }
    }

    /// Everything that is remembered, by kinds of weights.
    pub fn all(&self) -> Vec<(String, Found)> {
        self.page.choices.keys().filter_map(|kind| Some((kind.clone(), self.get(kind)?))).collect()
    }
}

/// CPU, its levels and threads, and isobit, in one line: what is remembered holds for these alone.
fn about(cores: Cores) -> String {
    let (title, levels) = (cpu_title(), Level::available().iter().map(|l| l.name()).collect::<Vec<_>>().join(" "));
    let title = if title.is_empty() { limits::kinds() } else { title };
    let Cores { threads, cores, fast } = cores;
    format!(
        "{} {title}, {levels}, {threads} threads, {cores} cores, {fast} fast, isobit {}",
        std::env::consts::ARCH,
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kept::Kept;

    fn found() -> Found {
        let kernel = Kernel { level: Level::Portable, fetch: Fetch { once: true, ahead: 24 << 10 } };
        let few = Chosen { way: Way { kernel, threads: 3 }, us_per_mib: 20.5, against: vec![("near:24".into(), 1.25)] };
        Found { many: Chosen { us_per_mib: 1000.0, against: vec![], ..few.clone() }, few }
    }

    #[test]
    fn what_was_chosen_is_found_again_and_only_for_the_same_cpu() {
        let kept = Arc::new(Kept::default());
        let open = |about: &str| Memory::of(about.into(), 4, Some(kept.clone() as Arc<dyn Store>));
        open("a").put("q4_k", &found());
        assert_eq!(open("a").get("q4_k"), Some(found()));
        assert_eq!(open("a").all(), [("q4_k".to_string(), found())]);
        assert_eq!((open("a").get("q8_0"), open("b").get("q4_k")), (None, None));
        assert_eq!(*kept.warnings.lock().unwrap(), Vec::<String>::new());
        let (few, prefetch) = (found().few.title(), if Fetch::is_a_choice() { ", once:24" } else { "" });
        assert_eq!(few, format!("portable{prefetch}, 3 threads (near:24 +25 %)"));
    }

    #[test]
    fn a_page_that_is_broken_of_another_cpu_or_names_what_is_not_there_is_one_warning_and_not_used() {
        let kept = Arc::new(Kept::default());
        let open = || Memory::of("about a".into(), 4, Some(kept.clone() as Arc<dyn Store>));
        open().put("q4_k", &found());
        let file = open().name.clone();
        let good = String::from_utf8(kept.get(&file).unwrap()).unwrap();
        let bad = [
            String::new(),
            "{".into(),
            "[]".into(),
            good[..good.len() / 2].to_string(),
            good.replace("about a", "about b"),
            good.replace("portable", "sse9"),
            good.replace("once:24", "later"),
            good.replace("\"threads\": 3", "\"threads\": 5"),
            good.replace("\"threads\": 3", "\"threads\": 0"),
            good.replace("20.5", "-1.0"),
            good.replace("20.5", "1e999"),
        ];
        for bad in bad {
            assert_ne!(bad, good);
            kept.put(&file, bad.as_bytes());
            kept.warnings.lock().unwrap().clear();
            assert_eq!(open().get("q4_k"), None, "{bad}");
            let warnings = kept.warnings.lock().unwrap();
            assert!(warnings.len() == 1 && !warnings[0].contains('\n'), "{bad}: {warnings:?}");
        }
        // and it is replaced
        open().put("q4_k", &found());
        assert_eq!(open().get("q4_k"), Some(found()));
    }

    #[test]
    fn this_cpu_has_a_name_of_one_line() {
        let about = about(Cores::find());
        assert!(about.contains(env!("CARGO_PKG_VERSION")) && !about.contains('\n'), "{about}");
        if cfg!(target_arch = "x86_64") {
            assert!(about.contains('['), "{about}");
        }
    }
}
