//! What decides a result, in one line.

use super::options::Activations;
use crate::models::Recent;
use crate::ops::cache::CacheType;

/// The version of the arithmetic: a number that changes whenever some result does. It grows when the order of an operation,
/// the layout of a cache type or the sampler's draws change, and with it the golden digests; `tests/engine.rs` holds the
/// hash over all of these beside it, and fails where one changes without the other.
pub const ARITHMETIC: u32 = 1;

/// Hexadecimal digits of the model's digest in a fingerprint: 128 bits.
const DIGITS: usize = 32;

/// `isobit-1:5d41402abc4b2a76b9719d911017c592:a8:f16/f16`: the arithmetic's version, the model's content, the bits of
/// activations, the types of cached keys and values, with `+r64` where a query reads its own chunk from an f16 copy, and
/// `:long` where the session's length makes a longrope model take its long factors.
///
/// Two results under one fingerprint are of the same function: for the same tokens they have the same bits, whatever
/// device, thread count, batch size or kernels made them.
pub fn fingerprint(
    digest: &str,
    long: bool,
    activations: Activations,
    k: CacheType,
    v: CacheType,
    recent: Recent,
) -> String {
    let digest = digest.get(..DIGITS).unwrap_or(digest);
    let long = if long { ":long" } else { "" };
    format!("isobit-{ARITHMETIC}:{digest}:a{}:{}{long}", activations.bits(), recent.title(k, v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_changes_a_result_changes_the_line() {
        let (f16, tq3) = (CacheType::F16, CacheType::TQ3_1);
        let of = |digest: &str, a, k, v, recent| fingerprint(&digest.repeat(64), false, a, k, v, recent);
        let plain = of("a", Activations::Bits8, f16, f16, Recent::Auto);
        assert_eq!(plain, format!("isobit-1:{}:a8:f16/f16", "a".repeat(32)));
        for other in [
            of("b", Activations::Bits8, f16, f16, Recent::Auto),
            of("a", Activations::Bits16, f16, f16, Recent::Auto),
            of("a", Activations::Bits8, tq3, f16, Recent::Off),
            of("a", Activations::Bits8, f16, tq3, Recent::Off),
        ] {
            assert_ne!(other, plain);
        }
        let long = fingerprint(&"a".repeat(64), true, Activations::Bits8, f16, f16, Recent::Auto);
        assert_eq!(long, format!("{plain}:long"));
        // by what is done, not by the word that asked for it
        assert_eq!(
            of("a", Activations::Bits8, tq3, tq3, Recent::Auto),
            of("a", Activations::Bits8, tq3, tq3, Recent::On)
        );
        assert_eq!(plain, of("a", Activations::Bits8, f16, f16, Recent::Off));
    }
}
