//! The benchmark harness: what is run and timed, what a result says, and how results are compared and drawn.
//!
//! `isobit bench` runs what llama-bench runs, under the same names, and writes the same columns with its own after them.
//! A result carries the digest of the logits it was measured with, so that no speed is quoted for a wrong result.
//! `docs/bench.md` says what each field is.
//!
//! - [`grid`]: tests and lists of numbers, as the flags name them
//! - [`measure`]: runs the tests of one loaded model on one device
//! - [`schema`]: rows and their five formats
//! - [`ops`]: one operation at a time, checked and timed
//! - [`predict`]: what to expect of a device that is not here
//! - [`compare`]: two files of rows against each other
//! - `report`: rows as one page of HTML (feature `cli`)
//!
//! Nothing here prints, opens files or devices, or knows a system: all that comes from `cli`.

pub mod compare;
pub mod grid;
pub mod measure;
pub mod ops;
pub mod predict;
#[cfg(feature = "cli")]
pub mod report;
pub mod schema;

/// What a device can do at best, measured on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// bytes a second of plain reads from a buffer far beyond its caches
    pub read: f64,
    /// int8 operations a second (a multiply-add counts as two)
    pub int8: f64,
}

/// Mean of some values; 0 of none.
pub fn mean(v: &[f64]) -> f64 {
    if v.is_empty() { 0.0 } else { v.iter().sum::<f64>() / v.len() as f64 }
}

/// Standard deviation of a sample (n - 1); 0 of fewer than two values.
pub fn deviation(v: &[f64]) -> f64 {
    if v.len() < 2 {
        return 0.0;
    }
    let m = mean(v);
    (v.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / (v.len() - 1) as f64).sqrt()
}

/// The middle value, or the mean of the middle two; 0 of none.
pub fn median(v: &[f64]) -> f64 {
    let mut v = v.to_vec();
    v.sort_by(f64::total_cmp);
    if v.is_empty() { 0.0 } else { (v[(v.len() - 1) / 2] + v[v.len() / 2]) / 2.0 }
}

/// The smallest value that `p` percent of the values do not exceed (nearest rank); `None` of none.
pub fn percentile(v: &[u64], p: f64) -> Option<u64> {
    let mut v = v.to_vec();
    v.sort_unstable();
    let rank = (p / 100.0 * v.len() as f64).ceil() as usize;
    v.get(rank.clamp(1, v.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_small_samples_are_those_of_a_pencil() {
        assert_eq!((mean(&[]), median(&[]), deviation(&[4.0])), (0.0, 0.0, 0.0));
        assert_eq!((mean(&[1.0, 2.0, 6.0]), median(&[6.0, 1.0, 2.0]), median(&[4.0, 1.0])), (3.0, 2.0, 2.5));
        assert!((deviation(&[1.0, 2.0, 6.0]) - 7f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let v: Vec<u64> = (1..=100).rev().collect();
        assert_eq!([50.0, 90.0, 99.0, 100.0].map(|p| percentile(&v, p)), [Some(50), Some(90), Some(99), Some(100)]);
        assert_eq!(
            (percentile(&[7], 50.0), percentile(&[7, 9], 99.0), percentile(&[], 50.0)),
            (Some(7), Some(9), None)
        );
    }
}
