//! How likely a model holds its tokens: logarithms of the softmax of its logits, before any choice of a sampler.
//!
//! Everything is computed in f64 from the exact logits, in the order of the vocabulary, so it is the same on every device.

/// Likeliest tokens that are told beside a token, at most.
pub const TOP_MAX: usize = 20;

/// How likely a token was, and what was likeliest in its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logprobs {
    /// the token
    pub id: u32,
    /// natural logarithm of its probability
    pub logprob: f64,
    /// the likeliest tokens and theirs, the likeliest first and of equals the lowest id; as many as were asked for
    pub top: Vec<(u32, f64)>,
    /// whether there is none likelier, and among equals none with a lower id
    pub is_top: bool,
}

impl Logprobs {
    /// Of token `id` in a row of finite logits, with the `top` likeliest.
    pub fn of(logits: &[f32], id: u32, top: usize) -> Logprobs {
        let (max, sum) = softmax(logits);
        let logprob = |id: u32| f64::from(logits[id as usize] - max) - libm::log(sum);
        let best = best(logits, top.max(1));
        let is_top = best.first() == Some(&id);
        Logprobs {
            id,
            logprob: logprob(id),
            top: best.into_iter().take(top).map(|id| (id, logprob(id))).collect(),
            is_top,
        }
    }
}

/// Natural logarithm of the softmax of `logits` at `target`, in f64.
pub fn log_softmax(logits: &[f32], target: usize) -> f64 {
    let (max, sum) = softmax(logits);
    f64::from(logits[target] - max) - libm::log(sum)
}

/// The largest logit, and the sum of the exponentials of what each is below it.
fn softmax(logits: &[f32]) -> (f32, f64) {
    let max = logits.iter().fold(f32::MIN, |m, v| m.max(*v));
    (max, logits.iter().map(|v| libm::exp(f64::from(v - max))).sum())
}

/// The ids of the `n` greatest logits, in order; of equals the lowest id comes first.
fn best(logits: &[f32], n: usize) -> Vec<u32> {
    let mut best: Vec<u32> = Vec::with_capacity(n + 1);
    for (id, logit) in (0..).zip(logits) {
        if best.len() == n && best.last().is_some_and(|last| *logit <= logits[*last as usize]) {
            continue;
        }
        let at = best.partition_point(|b| logits[*b as usize] >= *logit);
        best.insert(at, id);
        best.truncate(n);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_row_and_the_likeliest_come_first() {
        let logits = [1.0, 3.0, -2.0, 3.0, 2.5];
        let l = Logprobs::of(&logits, 4, 3);
        assert_eq!(l.top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 3, 4]);
        assert_eq!((l.logprob, l.is_top), (log_softmax(&logits, 4), false));
        assert_eq!(l.top[2], (4, l.logprob));
        let total: f64 = (0..5).map(|id| libm::exp(log_softmax(&logits, id))).sum();
        assert!((total - 1.0).abs() < 1e-15, "{total}");
        let none = Logprobs::of(&logits, 1, 0);
        assert!(none.is_top && none.top.is_empty());
        assert!(!Logprobs::of(&logits, 3, 0).is_top, "of equals the lowest id is the first");
        assert_eq!(Logprobs::of(&logits, 0, 9).top.len(), 5);
    }

    #[test]
    fn the_greatest_are_those_that_sorting_finds() {
        let mut seed = 7;
        for n in 1..=TOP_MAX {
            let logits: Vec<f32> = (0..200).map(|_| (crate::random::next(&mut seed) % 50) as f32).collect();
            let mut sorted: Vec<u32> = (0..200).collect();
            sorted.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
            assert_eq!(best(&logits, n), sorted[..n]);
        }
    }
}
