//! Random numbers that are the same on every machine: SplitMix64 (Steele, Lea and Flood 2014).
//!
//! The one generator of the crate: for sampling, synthetic models, the case table, tests and examples. It is integers only.
//! Its numbers are no secrets: whoever sees one can compute those after it.

/// What the state grows by for each number: 2^64 over the golden ratio, made odd.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser: of states that differ in one bit it makes numbers that differ in about half of their bits.
pub fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The next number of a sequence; its seed is the first state.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GAMMA);
    mix(*state)
}

/// Number `index` of a seed, without those before it: that of the sequence that begins with the mixed seed, so that
/// neighbouring seeds have nothing in common.
pub fn at(seed: u64, index: u64) -> u64 {
    mix(mix(seed).wrapping_add(index.wrapping_add(1).wrapping_mul(GAMMA)))
}

/// A multiple of 2^-53 in [0, 1), from the upper bits of a number.
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_published_ones_by_sequence_and_by_index() {
        // of Vigna's program in C, seed 1234567
        let mut state = 1_234_567;
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(published.map(|_| next(&mut state)), published);
        let mut state = mix(7);
        assert_eq!([0, 1, 2, 3].map(|i| at(7, i)), [(); 4].map(|()| next(&mut state)));
        assert_ne!(at(7, 0), at(8, 0));
        assert_eq!((unit(0), unit(u64::MAX)), (0.0, 1.0 - 1.0 / (1u64 << 53) as f64));
    }
}
