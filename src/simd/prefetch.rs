//! How weights that will be needed are asked for on x86-64. Changes no bit, only how long a token takes.
//!
//! Every weight is read once a token, so the hint for data that is read once (`prefetchnta`) looks right. What it does is
//! the CPU's affair. Measured, decode of 58 M and 1.1 B parameters: 2 to 5 % faster than `prefetcht0` on AMD Zen 5; on
//! Zen 4 no slower, as far as a noisy machine could tell; two to four times slower on an Intel Xeon with a large shared
//! cache that is not inclusive, where every token then reads memory (`docs/performance.md`). So AMD's recent families use
//! it, and nobody else.

use std::sync::atomic::{AtomicU8, Ordering};

/// AMD's families of Zen 4 (and Zen 3, which was not measured) and Zen 5.
const ZEN: [u32; 2] = [0x19, 0x1a];

/// Whether weights are asked for as data that is read once. `ISOBIT_PREFETCH=once|near` forces it, for measuring.
#[inline(always)]
pub(super) fn once() -> bool {
    /// 0: not known yet, 1: near, 2: once
    static CHOSEN: AtomicU8 = AtomicU8::new(0);
    #[cold]
    #[inline(never)]
    fn find() -> bool {
        let once = choose(std::env::var("ISOBIT_PREFETCH").ok().as_deref(), cpu());
        CHOSEN.store(if once { 2 } else { 1 }, Ordering::Relaxed);
        once
    }
    match CHOSEN.load(Ordering::Relaxed) {
        0 => find(),
        chosen => chosen == 2,
    }
}

/// The vendor's name, and the family as `cpuid` counts it.
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

fn choose(asked: Option<&str>, (vendor, family): ([u8; 12], u32)) -> bool {
    match asked {
        Some("once") => true,
        Some("near") => false,
        _ => &vendor == b"AuthenticAMD" && ZEN.contains(&family),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_asked_for_as_read_once_only_where_that_was_measured_to_help() {
        assert!(choose(None, (*b"AuthenticAMD", 0x1a)));
        assert!(choose(None, (*b"AuthenticAMD", 0x19)));
        assert!(!choose(None, (*b"AuthenticAMD", 0x17)));
        assert!(!choose(None, (*b"GenuineIntel", 6)));
        assert!(!choose(None, ([0; 12], 0)));
        assert!(!choose(Some("near"), (*b"AuthenticAMD", 0x1a)));
        assert!(choose(Some("once"), (*b"GenuineIntel", 6)));
    }
}
