//! What is kept between runs: small files of a [`Store`], and the page of one adapter in it.
//!
//! What is remembered belongs to one adapter, driver, isobit version and set of shaders; anything else found in its place
//! is not used.

use super::shaders::{SHADERS, code};
use super::variants::CLASSES;
pub(super) use crate::store::name;
use crate::store::{Store, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is remembered of one adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Page {
    /// adapter, driver, isobit and its shaders
    about: String,
    /// the float probe found no wrong word
    exact: bool,
    /// the sizes of matrices that the probe found exact
    pub matrices: [bool; 2],
    /// whether its own conversion of f16 gives what integers give
    pub halves: bool,
    /// shape to the names of the variants for one, a few and many tokens, as far as they were measured
    pub choices: BTreeMap<String, [Option<String>; CLASSES.len()]>,
    /// shape of attention to the depth from which it is split
    pub splits: BTreeMap<String, Split>,
}

/// From where attention of a few tokens is split (`variants::splits`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Split {
    /// positions seen of a page from which on it was the faster; `None`: from none of those measured
    pub from: Option<usize>,
    /// positions up to which it was measured
    pub measured: usize,
}

/// The page of one adapter, and where it is kept.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    store: Option<Arc<dyn Store>>,
    name: String,
    pub page: Page,
    /// the user was told the line that is told once
    told: bool,
}

impl Memory {
    /// Reads the page of an adapter. A page that is not what this program writes is left alone until it is replaced.
    pub fn open(adapter: &wgpu::AdapterInfo, store: Option<Arc<dyn Store>>) -> Memory {
        let about = about(adapter);
        let name = name("gpu", &about, "json");
        let fresh = Page {
            about,
            exact: false,
            matrices: [false; 2],
            halves: false,
            choices: BTreeMap::new(),
            splits: BTreeMap::new(),
        };
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

    /// Remembers whether the adapter is exact, and which sizes of its matrices and whether its conversion of f16 are.
    pub fn set_exact(&mut self, exact: bool, matrices: [bool; 2], halves: bool) {
        if (self.page.exact, self.page.matrices, self.page.halves) != (exact, matrices, halves) {
            (self.page.exact, self.page.matrices, self.page.halves) = (exact, matrices, halves);
            self.save();
        }
    }

    /// Tells the user a line, the first time it is called.
    pub fn tell_once(&mut self, line: impl FnOnce() -> String) {
        if let (false, Some(store)) = (self.told, &self.store) {
            store.tell(&line());
        }
        self.told = true;
    }

    /// Keeps the page as it is now.
    pub fn save(&self) {
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
        shaders.update(code(s.source));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kept::Kept;

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
        memory.set_exact(true, [false, true], true);
        assert_eq!(open("1.0").page, memory.page);
        assert!(open("1.0").exact() && !open("1.1").exact());
        assert_eq!(*kept.warnings.lock().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_page_that_is_broken_or_about_another_device_is_ignored_with_one_warning() {
        let kept = Arc::new(Kept::default());
        let open = |driver| Memory::open(&adapter(driver), Some(kept.clone() as Arc<dyn Store>));
        let mut memory = open("1.0");
        memory.set_exact(true, [false, true], true);
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
