//! The samplers of the chain that work on candidates alone: each on a list in order, or on one in the order of ids.

use super::{Candidate, SamplerOptions};

/// What a candidate's probability is relative to that of the greatest logit.
fn weight(c: &Candidate, top: f64, temperature: f64) -> f64 {
    libm::exp((f64::from(c.logit) - top) / temperature)
}

/// The greatest logit of candidates in order.
fn top(c: &[Candidate]) -> f64 {
    f64::from(c[0].logit)
}

/// The sum of the weights.
pub fn total(c: &[Candidate], temperature: f64) -> f64 {
    c.iter().fold(0.0, |sum, one| sum + weight(one, top(c), temperature))
}

/// Top-n-sigma (Tang et al. 2024): keeps the logits that are at least the greatest less `n` standard deviations of all of
/// them, those of the population. In the order of ids.
pub fn top_n_sigma(c: &mut Vec<Candidate>, n: f32) {
    let count = c.len() as f64;
    let mean = c.iter().fold(0.0, |sum, c| sum + f64::from(c.logit)) / count;
    let square = |c: &Candidate| (f64::from(c.logit) - mean) * (f64::from(c.logit) - mean);
    let deviation = libm::sqrt(c.iter().fold(0.0, |sum, c| sum + square(c)) / count);
    let greatest = c.iter().map(|c| c.logit).fold(f32::MIN, f32::max);
    let least = f64::from(greatest) - f64::from(n) * deviation;
    c.retain(|c| f64::from(c.logit) >= least);
}

/// The entropy of the candidates' probabilities, and the surprise of each, both as natural logarithms.
fn entropy(c: &[Candidate]) -> (f64, impl Fn(&Candidate) -> f64 + use<>) {
    let (top, total) = (top(c), total(c, 1.0));
    let log = libm::log(total);
    let surprise = move |c: &Candidate| log - (f64::from(c.logit) - top);
    let entropy = c.iter().fold(0.0, |sum, c| sum + weight(c, top, 1.0) / total * surprise(c));
    (entropy, surprise)
}

/// Locally typical sampling (Meister et al. 2022): keeps the fewest, in the order of how far their surprise is from the
/// entropy, whose probabilities sum to more than `p`, and `keep` at least. The rest stay in order.
pub fn typical(c: &mut Vec<Candidate>, p: f32, keep: usize, list: &mut Vec<(f64, usize)>) {
    let (entropy, surprise) = entropy(c);
    list.clear();
    list.extend(c.iter().enumerate().map(|(i, c)| (libm::fabs(surprise(c) - entropy), i)));
    list.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (top, enough) = (top(c), f64::from(p) * total(c, 1.0));
    let mut sum = 0.0;
    let last = list.iter().position(|(_, i)| {
        sum += weight(&c[*i], top, 1.0);
        sum > enough
    });
    list.truncate(last.map_or(list.len(), |last| last + 1).max(keep));
    list.sort_unstable_by_key(|(_, i)| *i);
    for (to, (_, from)) in list.iter().enumerate() {
        c[to] = c[*from];
    }
    c.truncate(list.len());
}

/// Nucleus sampling (Holtzman et al. 2020): keeps the fewest of the greatest whose probabilities sum to at least `p`, and
/// `keep` at least.
pub fn top_p(c: &mut Vec<Candidate>, p: f32, keep: usize) {
    let top = top(c);
    let enough = f64::from(p) * total(c, 1.0);
    let mut sum = 0.0;
    let last = c.iter().position(|c| {
        sum += weight(c, top, 1.0);
        sum >= enough
    });
    c.truncate(last.map_or(c.len(), |last| last + 1).max(keep));
}

/// Min-p (Nguyen et al. 2024): keeps those at least `p` times as probable as the greatest, and `keep` at least.
pub fn min_p(c: &mut Vec<Candidate>, p: f32, keep: usize) {
    let top = top(c);
    // The weight of the greatest is 1. Weights never rise along the order, so this is a prefix.
    let kept = c.iter().take_while(|c| weight(c, top, 1.0) >= f64::from(p)).count();
    c.truncate(kept.max(keep).max(1));
}

/// Exclude top choices: of the candidates whose probability is at least `threshold` only the least stays, where several
/// are, and where as many as `keep` are left then.
pub fn xtc(c: &mut Vec<Candidate>, threshold: f32, keep: usize) {
    let top = top(c);
    let least = f64::from(threshold) * total(c, 1.0);
    let above = c.iter().take_while(|c| weight(c, top, 1.0) >= least).count();
    if above > 1 && c.len() - (above - 1) >= keep {
        c.drain(..above - 1);
    }
}

/// The temperature that candidates are drawn at: the one there is; or, with a range, one between it less the range and it
/// plus the range, the higher the more even the probabilities are.
pub fn temperature(c: &[Candidate], o: &SamplerOptions) -> f64 {
    let (temperature, range) = (f64::from(o.temperature), f64::from(o.dynatemp_range));
    if range <= 0.0 || c.len() < 2 {
        return temperature;
    }
    let (least, most) = ((temperature - range).max(0.0), temperature + range);
    let even = entropy(c).0 / libm::log(c.len() as f64);
    // rounding may lift it a little above 1, or below 0
    least + (most - least) * libm::pow(even.clamp(0.0, 1.0), f64::from(o.dynatemp_exponent))
}

/// The first candidate at which the sum of the weights passes this part of all of them.
pub fn pick(c: &[Candidate], temperature: f64, part: f64) -> usize {
    // at a temperature of 0 all weight is the greatest's
    if temperature <= 0.0 {
        return 0;
    }
    let top = top(c);
    let target = part * total(c, temperature);
    let mut sum = 0.0;
    let hit = c.iter().position(|c| {
        sum += weight(c, top, temperature);
        sum > target
    });
    // Rounding cannot lift the target to the total (both sums run alike), but the last is right if it did.
    hit.unwrap_or(c.len() - 1)
}

/// The surprise of a candidate, in bits.
fn bits(c: &[Candidate], i: usize, temperature: f64) -> f64 {
    let less = (top(c) - f64::from(c[i].logit)) / temperature;
    less / std::f64::consts::LN_2 + libm::log2(total(c, temperature))
}

/// Mirostat (Basu et al. 2021), the part before the draw: how many of the candidates are kept for a surprise of at most
/// `mu` bits. `vocabulary`: how many there were.
pub fn mirostat(c: &mut Vec<Candidate>, version: u8, mu: f64, temperature: f64, vocabulary: usize) {
    /// Candidates that the exponent of Zipf's law is estimated from.
    const ESTIMATED: usize = 100;

    if version == 2 {
        let all = libm::log2(total(c, temperature));
        let top = top(c);
        let surprise = |c: &Candidate| (top - f64::from(c.logit)) / temperature / std::f64::consts::LN_2 + all;
        let kept = c.iter().take_while(|c| surprise(c) <= mu).count();
        c.truncate(kept.max(1));
        return;
    }
    let (mut products, mut squares) = (0.0, 0.0);
    for (i, two) in c.windows(2).take(ESTIMATED - 1).enumerate() {
        let t = libm::log((i + 2) as f64 / (i + 1) as f64);
        let b = (f64::from(two[0].logit) - f64::from(two[1].logit)) / temperature;
        products += t * b;
        squares += t * t;
    }
    let s = products / squares;
    let epsilon = s - 1.0;
    let rest = 1.0 - libm::pow(vocabulary as f64, -epsilon);
    // where the exponent is 1 the quotient has a limit
    let quotient = if epsilon == 0.0 { 1.0 / libm::log(vocabulary as f64) } else { epsilon / rest };
    let k = libm::pow(quotient * libm::pow(2.0, mu), 1.0 / s);
    // what is no number, of one candidate, becomes 0
    c.truncate((k as usize).max(1));
}

/// `mu` after the draw of candidate `i`.
pub fn mirostat_next(c: &[Candidate], i: usize, temperature: f64, mu: f64, o: &SamplerOptions) -> f64 {
    mu - f64::from(o.mirostat_eta) * (bits(c, i, temperature) - f64::from(o.mirostat_tau))
}
