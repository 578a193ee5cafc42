//! Two models over the same text: what their logits say about each token, added up by window.
//!
//! A is the reference, B what it is compared with. Everything is computed in f64 from the exact logits, in the order
//! of the tokens, so a comparison gives the same figures on every device; of a model with itself every difference is
//! exactly zero.

use crate::stats::student95;

fn largest(logits: &[f32]) -> f32 {
    logits.iter().fold(f32::MIN, |m, v| m.max(*v))
}

/// The index of the largest logit, the lowest among equals.
fn top(logits: &[f32]) -> usize {
    let max = largest(logits);
    logits.iter().position(|v| *v == max).unwrap_or(0)
}

/// Both models at one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenPair {
    /// minus the log probability of the right token: A's, B's
    pub nll: [f64; 2],
    /// Kullback-Leibler divergence of B's distribution from A's, in nats: sum of p_a (ln p_a - ln p_b)
    pub kl: f64,
    /// whether both give the same token the largest logit
    pub same_top: bool,
}

impl TokenPair {
    /// Compares two rows of logits; `target` is the token that came.
    ///
    /// # Panics
    /// When the rows have different lengths or do not reach `target`.
    pub fn new(a: &[f32], b: &[f32], target: usize) -> TokenPair {
        assert_eq!(a.len(), b.len(), "rows of logits of different lengths");
        let (max_a, max_b) = (largest(a), largest(b));
        let (mut sum_a, mut sum_b) = (0.0f64, 0.0f64);
        // sum of e^(a - max_a) times the difference of the shifted logits
        let mut cross = 0.0f64;
        for (&x, &y) in a.iter().zip(b) {
            let (x, y) = (f64::from(x - max_a), f64::from(y - max_b));
            let e = libm::exp(x);
            sum_a += e;
            sum_b += libm::exp(y);
            cross += e * (x - y);
        }
        let (log_a, log_b) = (libm::log(sum_a), libm::log(sum_b));
        let kl = cross / sum_a + (log_b - log_a);
        TokenPair {
            nll: [log_a - f64::from(a[target] - max_a), log_b - f64::from(b[target] - max_b)],
            // never negative but by rounding; what is not a number stays so
            kl: if kl < 0.0 { 0.0 } else { kl },
            same_top: top(a) == top(b),
        }
    }
}

/// One scored window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// scored tokens
    pub tokens: u64,
    /// mean NLL per token: A's, B's
    pub nll: [f64; 2],
    /// mean KL divergence
    pub kl: f64,
    /// share of tokens with the same top choice
    pub same_top: f64,
}

/// A mean over windows and its standard error; the error is `None` for a single window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// the mean
    pub mean: f64,
    /// its standard error: sample standard deviation over the root of the number of windows
    pub error: Option<f64>,
}

impl Estimate {
    /// Of one value per window.
    pub fn of(values: &[f64]) -> Estimate {
        let n = values.len() as f64;
        let mean = if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / n };
        let error = (values.len() > 1).then(|| {
            let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
            (squares / (n - 1.0) / n).sqrt()
        });
        Estimate { mean, error }
    }
}

/// Everything known so far of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    windows: Vec<Window>,
    kl: Vec<f64>,
    /// sums over tokens: NLL and its square, A's and B's
    nll: [f64; 2],
    squares: [f64; 2],
    /// sums of p_b - p_a of the right token, and of its square
    delta_p: [f64; 2],
    same_top: u64,
}

/// The figures of a comparison.
#[derive(Clone, Debug)]
pub struct Figures {
    /// scored tokens
    pub tokens: u64,
    /// scored windows
    pub windows: usize,
    /// perplexity, A's and B's
    pub ppl: [f64; 2],
    /// its standard error over tokens, as `isobit perplexity` gives it
    pub ppl_error: [f64; 2],
    /// mean NLL per token, A's and B's
    pub nll: [f64; 2],
    /// mean over windows of B's mean NLL minus A's
    pub nll_difference: Estimate,
    /// B's perplexity minus A's, the error from the paired windows to first order
    pub ppl_difference: Estimate,
    /// mean KL divergence per token, nats
    pub kl: Estimate,
    /// largest KL divergence of a token
    pub kl_max: f64,
    /// KL divergence at 50, 90 and 99 % of the tokens (the value that many are not above)
    pub kl_quantiles: [f64; 3],
    /// mean of p_b - p_a of the right token
    pub delta_p: f64,
    /// root mean square of the same
    pub delta_p_rms: f64,
    /// share of tokens with the same top choice
    pub same_top: Estimate,
}

impl Comparison {
    /// Adds a window's tokens. An empty window is not counted.
    pub fn add(&mut self, tokens: &[TokenPair]) {
        if tokens.is_empty() {
            return;
        }
        let n = tokens.len() as f64;
        let mut w = Window { tokens: tokens.len() as u64, ..Window::default() };
        for t in tokens {
            for i in 0..2 {
                w.nll[i] += t.nll[i];
                self.nll[i] += t.nll[i];
                self.squares[i] += t.nll[i] * t.nll[i];
            }
            let d = libm::exp(-t.nll[1]) - libm::exp(-t.nll[0]);
            self.delta_p[0] += d;
            self.delta_p[1] += d * d;
            w.kl += t.kl;
            w.same_top += f64::from(u8::from(t.same_top));
            self.same_top += u64::from(t.same_top);
            self.kl.push(t.kl);
        }
        w.nll = w.nll.map(|v| v / n);
        w.kl /= n;
        w.same_top /= n;
        self.windows.push(w);
    }

    /// The windows so far.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// The figures so far; `None` before the first window.
    pub fn figures(&self) -> Option<Figures> {
        let tokens = self.kl.len();
        if tokens == 0 {
            return None;
        }
        let n = tokens as f64;
        let nll = self.nll.map(|v| v / n);
        let ppl = nll.map(libm::exp);
        let ppl_error = [0, 1].map(|i| {
            let variance = (self.squares[i] / n - nll[i] * nll[i]).max(0.0);
            if tokens > 1 { (variance / (n - 1.0)).sqrt() * ppl[i] } else { 0.0 }
        });
        let each = |f: &dyn Fn(&Window) -> f64| Estimate::of(&self.windows.iter().map(f).collect::<Vec<_>>());
        let mut sorted = self.kl.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let quantile = |q: f64| sorted[((q * n).ceil() as usize).clamp(1, tokens) - 1];
        Some(Figures {
            tokens: tokens as u64,
            windows: self.windows.len(),
            ppl,
            ppl_error,
            nll,
            nll_difference: each(&|w| w.nll[1] - w.nll[0]),
            ppl_difference: Estimate {
                mean: ppl[1] - ppl[0],
                error: each(&|w| ppl[1] * w.nll[1] - ppl[0] * w.nll[0]).error,
            },
            kl: each(&|w| w.kl),
            kl_max: sorted[tokens - 1],
            kl_quantiles: [0.5, 0.9, 0.99].map(quantile),
            delta_p: self.delta_p[0] / n,
            delta_p_rms: (self.delta_p[1] / n).sqrt(),
            same_top: Estimate { mean: self.same_top as f64 / n, ..each(&|w| w.same_top) },
        })
    }

    /// After each window: perplexity of A and B so far, and the difference of mean NLL with its standard error.
    pub fn running(&self) -> Vec<([f64; 2], Estimate)> {
        let (mut tokens, mut sums) = (0.0, [0.0f64; 2]);
        let mut differences = Vec::with_capacity(self.windows.len());
        self.windows
            .iter()
            .map(|w| {
                tokens += w.tokens as f64;
                sums = [0, 1].map(|i| sums[i] + w.nll[i] * w.tokens as f64);
                differences.push(w.nll[1] - w.nll[0]);
                (sums.map(|s| libm::exp(s / tokens)), Estimate::of(&differences))
            })
            .collect()
    }
}

/// What can be said about the difference of two models.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// every difference is exactly zero
    Same,
    /// one window has no standard error
    Unknown,
    /// a figure is not a number, as a logit must have been
    Broken,
    /// the difference is farther from zero than the windows scatter
    Distinguishable {
        /// how many windows already would be enough
        enough: u64,
    },
    /// it is not
    Indistinguishable {
        /// how many windows a difference of this size would need; `None` when it is exactly zero on average
        needed: Option<u64>,
    },
}

/// Judges a paired difference at 95 %: it is distinguishable when zero lies outside mean ± t standard errors, t being
/// Student's quantile for the number of windows. Windows are taken as independent.
pub fn verdict(difference: Estimate, windows: usize, identical: bool) -> Verdict {
    if identical {
        return Verdict::Same;
    }
    if !difference.mean.is_finite() || difference.error.is_some_and(f64::is_nan) {
        return Verdict::Broken;
    }
    let Some(error) = difference.error else { return Verdict::Unknown };
    let deviation = error * (windows as f64).sqrt();
    let reaches = |n: u64| student95((n - 1) as f64) * deviation < difference.mean.abs() * (n as f64).sqrt();
    // the normal quantile gives a lower bound; Student's moves it up by a few
    let needed = || {
        let first = (1.96 * deviation / difference.mean).powi(2).ceil();
        (first < 1e15).then(|| (first.max(2.0) as u64..).find(|n| reaches(*n)).unwrap_or(u64::MAX))
    };
    if reaches(windows as u64) {
        Verdict::Distinguishable { enough: needed().unwrap_or(2) }
    } else {
        Verdict::Indistinguishable { needed: needed() }
    }
}

impl Figures {
    /// Whether nothing differs at all.
    pub fn identical(&self) -> bool {
        self.kl_max == 0.0 && self.delta_p_rms == 0.0 && self.nll[0] == self.nll[1]
    }

    /// The verdict on the difference of mean NLL.
    pub fn verdict(&self) -> Verdict {
        verdict(self.nll_difference, self.windows, self.identical())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::logprobs::log_softmax;

    const LN2: f64 = std::f64::consts::LN_2;

    #[test]
    fn two_tokens_of_even_odds_against_three_to_one() {
        let t = TokenPair::new(&[1.0, 1.0], &[3.0f32.ln(), 0.0], 1);
        assert!((t.nll[0] - LN2).abs() < 1e-15 && (t.nll[1] - 2.0 * LN2).abs() < 1e-7, "{t:?}");
        // 1/2 ln(1/2 : 3/4) + 1/2 ln(1/2 : 1/4) = 1/2 ln(4/3)
        assert!((t.kl - 0.5 * (4.0f64 / 3.0).ln()).abs() < 1e-7, "{t:?}");
        assert!(t.same_top, "of equals the first");
        assert!(!TokenPair::new(&[1.0, 1.0], &[0.0, 1.0], 1).same_top);
    }

    #[test]
    fn a_row_against_itself_is_exactly_zero_and_agrees_with_log_softmax() {
        let row: Vec<f32> = (0..2048).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
        let t = TokenPair::new(&row, &row, 77);
        assert_eq!((t.kl, t.same_top, t.nll[0]), (0.0, true, t.nll[1]));
        assert_eq!(t.nll[0], -log_softmax(&row, 77));
    }

    fn pair(a: f64, b: f64, kl: f64) -> TokenPair {
        TokenPair { nll: [a, b], kl, same_top: kl < 0.25 }
    }

    #[test]
    fn figures_of_two_windows_are_those_made_by_hand() {
        let mut c = Comparison::default();
        assert!(c.figures().is_none());
        c.add(&[pair(0.0, LN2, 0.1), pair(LN2, LN2, 0.2)]);
        c.add(&[pair(LN2, 0.0, 0.3), pair(0.0, 2.0 * LN2, 0.4)]);
        let f = c.figures().unwrap();
        assert_eq!((f.tokens, f.windows), (4, 2));
        assert!((f.nll[0] - LN2 / 2.0).abs() < 1e-15 && (f.nll[1] - LN2).abs() < 1e-15);
        // each window's mean difference is ln(2) / 2
        assert!((f.nll_difference.mean - LN2 / 2.0).abs() < 1e-15 && f.nll_difference.error.unwrap() < 1e-15);
        assert!((f.ppl_difference.mean - (2.0 - 2.0f64.sqrt())).abs() < 1e-15);
        assert_eq!(f.kl_quantiles, [0.2, 0.4, 0.4]);
        assert_eq!(f.kl_max, 0.4);
        // window means 0.15 and 0.35: deviation 0.1 sqrt(2), error 0.1
        assert!((f.kl.mean - 0.25).abs() < 1e-15 && (f.kl.error.unwrap() - 0.1).abs() < 1e-15);
        // p_b - p_a: -1/2, 0, 1/2, -3/4
        assert!((f.delta_p + 0.1875).abs() < 1e-15);
        assert!((f.delta_p_rms - (1.0625f64 / 4.0).sqrt()).abs() < 1e-15);
        assert_eq!(f.same_top.mean, 0.5);
        let running = c.running();
        assert!((running[0].0[0] - 2.0f64.sqrt()).abs() < 1e-15 && (running[1].0[1] - 2.0).abs() < 1e-15);
        assert_eq!((running[0].1.error, running[1].1), (None, f.nll_difference));
    }

    #[test]
    fn a_logit_that_is_not_a_number_does_not_look_like_no_divergence() {
        let good = [0.5f32, 1.0, -2.0];
        for bad in [[0.5, f32::NAN, -2.0], [f32::NAN; 3]] {
            assert!(TokenPair::new(&good, &bad, 0).kl.is_nan() && TokenPair::new(&bad, &good, 0).kl.is_nan());
        }
        assert_eq!(TokenPair::new(&good, &good, 0).kl, 0.0);
    }

    #[test]
    fn the_verdict_turns_where_the_difference_leaves_the_scatter() {
        let of = |mean, error| Estimate { mean, error: Some(error) };
        // 30 windows: t is 2.045
        assert_eq!(verdict(of(2.0, 1.0), 30, false), Verdict::Indistinguishable { needed: Some(32) });
        assert!(matches!(verdict(of(-2.1, 1.0), 30, false), Verdict::Distinguishable { enough } if enough <= 30));
        assert_eq!(verdict(of(0.0, 1.0), 30, false), Verdict::Indistinguishable { needed: None });
        assert_eq!(verdict(of(0.0, 0.0), 30, true), Verdict::Same);
        assert_eq!(verdict(of(f64::NAN, 1.0), 30, false), Verdict::Broken);
        assert_eq!(verdict(of(f64::INFINITY, f64::NAN), 30, false), Verdict::Broken);
        assert_eq!(verdict(Estimate::of(&[0.5]), 1, false), Verdict::Unknown);
        // the number asked for is enough, and one fewer is not
        let deviation = 30f64.sqrt();
        let reaches = |n: f64| student95(n - 1.0) * deviation / n.sqrt() < 0.4;
        let Verdict::Indistinguishable { needed: Some(n) } = verdict(of(0.4, 1.0), 30, false) else { panic!() };
        assert!(reaches(n as f64) && !reaches(n as f64 - 1.0), "{n}");
    }
}
