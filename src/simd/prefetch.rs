//! How weights that will be needed are asked for, and which CPU it is asked of. Changes no bit, only how long a token takes.
//!
//! Every weight is read once a token, so the hint for data that is read once (`prefetchnta`) looks right. What it does is
//! the CPU's affair. Measured, decode of 58 M and 1.1 B parameters: 2 to 5 % faster than `prefetcht0` on AMD Zen 5; on
//! Zen 4 no slower, as far as a noisy machine could tell; two to four times slower on an Intel Xeon with a large shared
//! cache that is not inclusive, where every token then reads memory (`docs/performance.md`). So as a rule AMD's recent
//! families use it, and nobody else; `cpu::tune` measures. The levels of x86-64 do as they are told here, those of other
//! architectures ask in one way.
//!
//! Where a kernel reads lines in the order they lie, the prefetchers of a Zen 4 get all that memory gives if nothing is asked
//! for ahead of them, measured too; of others that is not known, and the tuner's affair.

use super::Level;
use super::lanes::AHEAD;
use std::sync::OnceLock;

/// AMD's families of Zen 4 (and Zen 3, which was not measured) and Zen 5.
const ZEN: [u32; 2] = [0x19, 0x1a];

/// The environment variable that forces how weights are asked for.
const VARIABLE: &str = "ISOBIT_PREFETCH";

/// How weights that will be needed are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// as data that is read once, not as data like any other
    pub once: bool,
    /// bytes between the weights in use and those asked for; 0: a kernel that reads in order asks for its own lines, others 12 KiB
    /// ahead
    pub ahead: usize,
}

impl Fetch {
    /// Distances worth trying, in KiB.
    pub const DISTANCES: [usize; 6] = [0, 3, 6, 12, 24, 48];

    /// What the rule says for this CPU, or `ISOBIT_PREFETCH`: `once` or `near`, and a distance in KiB behind a colon where
    /// it is not to be 12. The answer does not change while the process lives.
    pub fn detect() -> Fetch {
        static CHOSEN: OnceLock<Fetch> = OnceLock::new();
        *CHOSEN.get_or_init(|| Fetch::asked().unwrap_or_else(|| rule(cpu(), Level::Avx512.is_available())))
    }

    /// Whether `ISOBIT_PREFETCH` forces it.
    pub fn is_forced() -> bool {
        Fetch::asked().is_some()
    }

    fn asked() -> Option<Fetch> {
        Fetch::parse(&std::env::var(VARIABLE).ok()?)
    }

    /// `once`, `near:24`.
    pub fn parse(word: &str) -> Option<Fetch> {
        let (hint, ahead) = match word.split_once(':') {
            Some((hint, kib)) => (hint, kib.parse::<usize>().ok().filter(|kib| (0..=1024).contains(kib))? << 10),
            None => (word, AHEAD),
        };
        match hint {
            "once" => Some(Fetch { once: true, ahead }),
            "near" => Some(Fetch { once: false, ahead }),
            _ => None,
        }
    }

    /// As `ISOBIT_PREFETCH` takes it.
    pub fn name(self) -> String {
        format!("{}:{}", if self.once { "once" } else { "near" }, self.ahead >> 10)
    }

    /// Whether this architecture's levels do as they are told.
    pub fn is_a_choice() -> bool {
        cfg!(target_arch = "x86_64")
    }
}

/// The vendor's name, and the family as `cpuid` counts it.
#[cfg(target_arch = "x86_64")]
fn cpu() -> ([u8; 12], u32) {
    use std::arch::x86_64::__cpuid;
    let (vendor, signature) = (__cpuid(0), __cpuid(1).eax);
    let mut name = [0; 12];
    for (part, word) in name.chunks_exact_mut(4).zip([vendor.ebx, vendor.edx, vendor.ecx]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    let base = signature >> 8 & 15;
    (name, if base == 15 { base + (signature >> 20 & 255) } else { base })
}

/// Nobody's.
#[cfg(not(target_arch = "x86_64"))]
fn cpu() -> ([u8; 12], u32) {
    ([0; 12], 0)
}

/// What this CPU calls itself: vendor, family, model and stepping, and its brand. Empty where the architecture does not tell
/// programs.
#[cfg(target_arch = "x86_64")]
pub fn cpu_title() -> String {
    use std::arch::x86_64::__cpuid;
    let ((vendor, family), signature) = (cpu(), __cpuid(1).eax);
    let model = signature >> 4 & 15 | signature >> 12 & 0xf0;
    let mut brand = Vec::new();
    if __cpuid(0x8000_0000).eax >= 0x8000_0004 {
        for leaf in 0x8000_0002..=0x8000_0004u32 {
            let r = __cpuid(leaf);
            brand.extend([r.eax, r.ebx, r.ecx, r.edx].into_iter().flat_map(u32::to_le_bytes));
        }
    }
    let text = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect::<String>()
    };
    format!("{} {family}.{model}.{} [{}]", text(&vendor), signature & 15, text(&brand).trim())
}

/// What this CPU calls itself: nothing that a program is told.
#[cfg(not(target_arch = "x86_64"))]
pub fn cpu_title() -> String {
    String::new()
}

/// `wide`: it has AVX-512.
fn rule((vendor, family): ([u8; 12], u32), wide: bool) -> Fetch {
    let once = &vendor == b"AuthenticAMD" && ZEN.contains(&family);
    let zen4 = once && family == ZEN[0] && wide;
    Fetch { once, ahead: if zen4 { 0 } else { AHEAD } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_asked_for_as_read_once_only_where_that_was_measured_to_help() {
        let rule = |vendor: &[u8; 12], family, wide| rule((*vendor, family), wide);
        assert!(rule(b"AuthenticAMD", 0x1a, true).once);
        assert!(rule(b"AuthenticAMD", 0x19, true).once);
        assert!(!rule(b"AuthenticAMD", 0x17, false).once);
        assert!(!rule(b"GenuineIntel", 6, true).once);
        assert!(!rule(&[0; 12], 0, true).once);
        // nothing ahead where that was measured: on Zen 4, which is not the Zen 3 of its family
        assert_eq!(rule(b"AuthenticAMD", 0x19, true).ahead, 0);
        for (family, wide) in [(0x19, false), (0x1a, true), (0x17, true)] {
            assert_eq!(rule(b"AuthenticAMD", family, wide).ahead, AHEAD);
        }
        assert_eq!(rule(b"GenuineIntel", 0x19, true).ahead, AHEAD);
    }

    #[test]
    fn a_way_of_asking_has_a_name_that_parses_back() {
        for once in [true, false] {
            for kib in Fetch::DISTANCES {
                let fetch = Fetch { once, ahead: kib << 10 };
                assert_eq!(Fetch::parse(&fetch.name()), Some(fetch));
            }
        }
        assert_eq!(Fetch::parse("near"), Some(Fetch { once: false, ahead: AHEAD }));
        for bad in ["", "far", "once:", "once:x", "once:99999999999", "near:-1"] {
            assert_eq!(Fetch::parse(bad), None, "{bad}");
        }
    }
}
