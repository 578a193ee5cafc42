//! Choosing the next token from a row of logits: the same seed gives the same text on every machine.
//!
//! Everything that could differ between machines is pinned: candidates are put in a total order (logit descending, id
//! ascending) before anything is summed, sums run in that order in binary64, the exponential is `libm`'s (Rust code,
//! no system library), and random numbers come from integers. Nothing here looks at a device, a text or a clock.
//!
//! **Draws by position.** The random number of a token is a function of the seed and of the token's position in the
//! sequence, the prompt counted, and of nothing else: not of how many tokens this sampler has drawn. So a request that is
//! sent again with the tokens it has brought up so far goes on as if nothing had happened, in another process and on
//! another machine, and two sequences that share a seed share their numbers position by position.

use crate::random;
use crate::record::{Best, SELECT_MAX};
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// How to choose. The default is llama.cpp's, with seed 0. A receipt has these fields, in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplerOptions {
    /// divides the logits; 0 takes the greatest logit always
    pub temperature: f32,
    /// keeps this many greatest logits; 0 keeps all
    pub top_k: usize,
    /// keeps the fewest greatest whose probabilities sum to at least this; 1 keeps all
    pub top_p: f32,
    /// keeps those at least this many times as probable as the greatest; 0 keeps all
    pub min_p: f32,
    /// positive logits of recent ids are divided by this, others multiplied; 1 changes nothing
    pub repeat_penalty: f32,
    /// how many of the last ids of the history count as recent; 0 none, `usize::MAX` all
    pub repeat_last_n: usize,
    /// any number
    pub seed: u64,
}

impl Default for SamplerOptions {
    fn default() -> SamplerOptions {
        SamplerOptions {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            seed: 0,
        }
    }
}

/// Draws tokens. What it draws depends on what it is given alone, not on what it drew before.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplerOptions,
    /// memory that is used again for every token
    candidates: Vec<Candidate>,
    spare: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    logit: f32,
    id: u32,
}

/// Lowest for the greatest logit, of equals for the lowest id.
fn rank(c: &Candidate) -> u64 {
    // both zeros are one number
    let bits = (c.logit + 0.0).to_bits();
    // growing with the logit: those of negative numbers grow with their magnitude
    let grows = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(!grows) << 32 | u64::from(c.id)
}

/// Sorts by [`rank`] what is in the order of ids: a vocabulary by three digits of 11 bits each, which leave equal ones in
/// their order.
fn sort(list: &mut Vec<Candidate>, spare: &mut Vec<Candidate>) {
    const DIGITS: usize = 1 << 11;
    if list.len() < DIGITS {
        list.sort_unstable_by_key(rank);
        return;
    }
    spare.clear();
    spare.resize(list.len(), Candidate { logit: 0.0, id: 0 });
    for shift in [32, 43, 54] {
        let digit = |c: &Candidate| (rank(c) >> shift) as usize % DIGITS;
        let mut ends = [0; DIGITS];
        list.iter().for_each(|c| ends[digit(c)] += 1);
        let mut next = 0;
        for end in &mut ends {
            (*end, next) = (next, next + *end);
        }
        for c in &*list {
            let at = &mut ends[digit(c)];
            spare[*at] = *c;
            *at += 1;
        }
        std::mem::swap(list, spare);
    }
}

impl Sampler {
    /// Errors: an option that is not a number, or outside its range.
    pub fn new(options: SamplerOptions) -> Result<Sampler> {
        let SamplerOptions { temperature, top_p, min_p, repeat_penalty, .. } = options;
        ensure!(
            temperature.is_finite() && temperature >= 0.0,
            "temperature is {temperature}: 0 or a positive number expected"
        );
        ensure!(top_p > 0.0 && top_p <= 1.0, "top-p is {top_p}: more than 0 and at most 1 expected");
        ensure!((0.0..=1.0).contains(&min_p), "min-p is {min_p}: between 0 and 1 expected");
        ensure!(
            repeat_penalty.is_finite() && repeat_penalty > 0.0,
            "repeat-penalty is {repeat_penalty}: a positive number expected"
        );
        Ok(Sampler { options, candidates: Vec::new(), spare: Vec::new() })
    }

    /// The token at `position`, which counts from 0 and from the start of the prompt: an index into `logits`. `history` is
    /// the ids before it, oldest first, or as many of the last as the penalty looks at; ids beyond the logits are passed
    /// over.
    ///
    /// Steps, in llama.cpp's order: repeat penalty, top-k, top-p, min-p, temperature, one draw. The probabilities of
    /// top-p and min-p are those before temperature. A temperature of 0 draws no number.
    ///
    /// Errors: no logits, or one that is not finite (its index is named).
    pub fn sample(&mut self, logits: &[f32], history: &[u32], position: usize) -> Result<u32> {
        ensure!(!logits.is_empty(), "sampling: no logits");
        ensure!(u32::try_from(logits.len()).is_ok(), "sampling: {} logits, fewer than 2^32 expected", logits.len());
        if let Some(at) = logits.iter().position(|l| !l.is_finite()) {
            anyhow::bail!("sampling: logit {at} is {}, a finite number expected", logits[at]);
        }
        let (o, c) = (&self.options, &mut self.candidates);
        c.clear();
        c.extend(logits.iter().zip(0..).map(|(&logit, id)| Candidate { logit, id }));

        if o.repeat_penalty != 1.0 {
            let recent = &history[history.len() - o.repeat_last_n.min(history.len())..];
            let recent: HashSet<u32> = recent.iter().copied().collect();
            for id in recent {
                if let Some(c) = c.get_mut(id as usize) {
                    let changed = if c.logit <= 0.0 { c.logit * o.repeat_penalty } else { c.logit / o.repeat_penalty };
                    // stays finite, so that the order stays total
                    c.logit = changed.clamp(f32::MIN, f32::MAX);
                }
            }
        }

        if o.temperature == 0.0 {
            let mut best = c[0];
            for &other in &c[1..] {
                if other.logit > best.logit {
                    best = other;
                }
            }
            return Ok(best.id);
        }

        if o.top_k > 0 && o.top_k < c.len() {
            c.select_nth_unstable_by_key(o.top_k - 1, rank);
            c.truncate(o.top_k);
            c.sort_unstable_by_key(rank);
        } else {
            sort(c, &mut self.spare);
        }
        Ok(self.draw(position))
    }

    /// How many of the best logits [`Sampler::sample_best`] needs to choose as [`Sampler::sample`] does from all: 1 where
    /// it takes the greatest always. `None`: all of them, or more than a device selects.
    pub fn needs(&self) -> Option<usize> {
        let o = &self.options;
        if o.repeat_penalty != 1.0 && o.repeat_last_n > 0 {
            return None;
        }
        let k = if o.temperature == 0.0 { 1 } else { o.top_k };
        (1..=SELECT_MAX).contains(&k).then_some(k)
    }

    /// The token at `position`, from the [`Sampler::needs`] best logits, the greatest first and of equals the lowest id, or
    /// more: what [`Sampler::sample`] makes of all logits, by the same draw.
    ///
    /// Errors: no logits; the first is not finite.
    pub fn sample_best(&mut self, best: &[Best], position: usize) -> Result<u32> {
        ensure!(!best.is_empty(), "sampling: no logits");
        ensure!(
            best[0].logit.is_finite(),
            "sampling: logit {} is {}, a finite number expected",
            best[0].id,
            best[0].logit
        );
        if self.options.temperature == 0.0 {
            return Ok(best[0].id);
        }
        self.candidates.clear();
        self.candidates.extend(best.iter().take(self.options.top_k).map(|b| Candidate { logit: b.logit, id: b.id }));
        Ok(self.draw(position))
    }

    /// Top-p, min-p, temperature and one draw from the candidates, which are in order.
    fn draw(&mut self, position: usize) -> u32 {
        let (o, c) = (&self.options, &mut self.candidates);
        let top = f64::from(c[0].logit);
        let weight = |c: &Candidate, temperature: f64| libm::exp((f64::from(c.logit) - top) / temperature);
        if o.top_p < 1.0 {
            let enough = f64::from(o.top_p) * c.iter().fold(0.0, |sum, c| sum + weight(c, 1.0));
            let mut sum = 0.0;
            let last = c.iter().position(|c| {
                sum += weight(c, 1.0);
                sum >= enough
            });
            c.truncate(last.map_or(c.len(), |last| last + 1));
        }
        if o.min_p > 0.0 {
            // The weight of the greatest is 1. Weights never rise along the order, so this is a prefix.
            let kept = c.iter().take_while(|c| weight(c, 1.0) >= f64::from(o.min_p)).count();
            c.truncate(kept.max(1));
        }

        let temperature = f64::from(o.temperature);
        let total = c.iter().fold(0.0, |sum, c| sum + weight(c, temperature));
        let target = random::unit(random::at(o.seed, position as u64)) * total;
        let mut sum = 0.0;
        let hit = c.iter().find(|c| {
            sum += weight(c, temperature);
            sum > target
        });
        // Rounding cannot lift the target to the total (both sums run alike), but the last is right if it did.
        hit.unwrap_or(&c[c.len() - 1]).id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::mix;

    fn greedy() -> SamplerOptions {
        SamplerOptions { temperature: 0.0, ..SamplerOptions::default() }
    }

    /// Everything off but temperature 1.
    fn plain() -> SamplerOptions {
        SamplerOptions { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerOptions::default() }
    }

    /// Which ids the draws at 4000 positions bring up.
    fn seen(options: SamplerOptions, logits: &[f32]) -> Vec<usize> {
        let mut sampler = Sampler::new(options).unwrap();
        let mut counts = vec![0; logits.len()];
        for position in 0..4000 {
            counts[sampler.sample(logits, &[], position).unwrap() as usize] += 1;
        }
        counts
    }

    #[test]
    fn draws_are_those_of_an_independent_implementation() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tokenizer/sampling_golden.json");
        let cases: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let cases = cases.as_array().unwrap();
        assert_eq!(cases.len(), 12);
        for case in cases {
            let o = &case["options"];
            let float = |key: &str| o[key].as_f64().unwrap() as f32;
            let count = |key: &str| o[key].as_u64().unwrap();
            let options = SamplerOptions {
                temperature: float("temperature"),
                top_k: count("top_k") as usize,
                top_p: float("top_p"),
                min_p: float("min_p"),
                repeat_penalty: float("repeat_penalty"),
                repeat_last_n: count("repeat_last_n") as usize,
                seed: count("seed"),
            };
            let n = case["vocab"].as_u64().unwrap();
            let want: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
            let mut sampler = Sampler::new(options.clone()).unwrap();
            let prompt = count("prompt");
            let mut history: Vec<u32> = (0..prompt).map(|i| (i * 37 % n) as u32).collect();
            for step in 0..want.len() as u64 {
                let salt = options.seed.wrapping_add(step);
                let logits: Vec<f32> =
                    (0..n).map(|i| ((mix((i * 7919).wrapping_add(salt)) >> 40) % 1024) as f32 / 64.0 - 8.0).collect();
                history.push(sampler.sample(&logits, &history, history.len()).unwrap());
            }
            assert_eq!(history[prompt as usize..], want, "{options:?}");
        }
    }

    /// The k best by sorting.
    fn best(logits: &[f32], k: usize) -> Vec<Best> {
        let mut list: Vec<Best> = logits.iter().zip(0..).map(|(&logit, id)| Best { logit, id }).collect();
        list.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id)));
        list.truncate(k);
        list
    }

    #[test]
    fn the_best_logits_give_the_tokens_that_all_of_them_give() {
        let base = SamplerOptions::default;
        let mut told = 0;
        for seed in 0..200 {
            let options = match seed % 5 {
                0 => greedy(),
                1 => SamplerOptions { seed, ..base() },
                2 => SamplerOptions { seed, top_k: 1 + seed as usize % 128, top_p: 1.0, min_p: 0.0, ..base() },
                3 => SamplerOptions {
                    seed,
                    temperature: 3.0,
                    top_p: 0.7,
                    repeat_last_n: 0,
                    repeat_penalty: 2.0,
                    ..base()
                },
                _ => SamplerOptions { seed, temperature: 0.3, min_p: 0.2, top_k: 128, ..base() },
            };
            let (mut all, mut few) = (Sampler::new(options.clone()).unwrap(), Sampler::new(options.clone()).unwrap());
            let k = all.needs().unwrap();
            for step in 0..20 {
                // few values, so that many are equal where the k best end; sometimes fewer logits than k
                let n = if step % 4 == 0 { 30 } else { 500 };
                let logits: Vec<f32> =
                    (0..n).map(|i| (mix(i * 31 + seed * 7 + step) % 40) as f32 / 4.0 - 5.0).collect();
                let position = 3 * step as usize;
                let want = all.sample(&logits, &[1, 2], position).unwrap();
                // a device selects a power of two
                let more = few.clone().sample_best(&best(&logits, k.next_power_of_two()), position).unwrap();
                let fewer = few.clone().sample_best(&best(&logits, k.div_ceil(2)), position).unwrap();
                assert_eq!(more, want, "{options:?}");
                assert_eq!(few.sample_best(&best(&logits, k), position).unwrap(), want, "{options:?}");
                told += usize::from(fewer != want);
            }
        }
        assert!(told > 100, "half as many would do as well: {told}");
    }

    #[test]
    fn a_vocabulary_is_sorted_as_comparing_sorts_it() {
        let mut seed = 3;
        for n in [1, 100, 2047, 2048, 40_000] {
            let one = |id| {
                // few values, both zeros among them, and many
                let x = (random::next(&mut seed) % 2001) as f32 - 1000.0;
                let logit = if id % 3 == 0 { (x / 300.0).trunc() * -0.5 } else { x * 0.37 * x };
                Candidate { logit, id }
            };
            let mut list: Vec<Candidate> = (0..n).map(one).collect();
            let mut want = list.clone();
            want.sort_by(|a, b| b.logit.partial_cmp(&a.logit).unwrap().then(a.id.cmp(&b.id)));
            sort(&mut list, &mut Vec::new());
            let ids = |list: &[Candidate]| list.iter().map(|c| c.id).collect::<Vec<_>>();
            assert_eq!(ids(&list), ids(&want), "{n}");
        }
    }

    #[test]
    fn penalties_and_wide_choices_need_all_logits() {
        let needs = |o| Sampler::new(o).unwrap().needs();
        let base = SamplerOptions::default;
        assert_eq!(needs(base()), Some(40));
        assert_eq!(needs(greedy()), Some(1));
        assert_eq!(needs(SamplerOptions { top_k: 0, ..greedy() }), Some(1));
        assert_eq!(needs(SamplerOptions { top_k: 128, ..base() }), Some(128));
        assert_eq!(needs(SamplerOptions { top_k: 129, ..base() }), None);
        assert_eq!(needs(SamplerOptions { top_k: 0, ..base() }), None);
        assert_eq!(needs(SamplerOptions { repeat_penalty: 1.1, ..base() }), None);
        assert_eq!(needs(SamplerOptions { repeat_penalty: 1.1, ..greedy() }), None);
        assert_eq!(needs(SamplerOptions { repeat_penalty: 1.1, repeat_last_n: 0, ..greedy() }), Some(1));
    }

    #[test]
    fn greedy_takes_the_lowest_of_equal_ids() {
        let mut s = Sampler::new(greedy()).unwrap();
        assert_eq!(s.sample(&[1.0, 3.0, 2.0, 3.0], &[], 0).unwrap(), 1);
        assert_eq!(s.sample(&[-0.0, 0.0], &[], 0).unwrap(), 0);
        assert_eq!(s.sample(&[-5.0], &[], 0).unwrap(), 0);
    }

    #[test]
    fn top_k_of_one_is_greedy_at_any_temperature() {
        let options = SamplerOptions { top_k: 1, temperature: 100.0, ..plain() };
        assert_eq!(seen(options, &[0.0, 1.0, 1.0, 0.5]), [0, 4000, 0, 0]);
    }

    #[test]
    fn top_k_keeps_the_lowest_ids_of_equal_logits() {
        let options = SamplerOptions { top_k: 2, ..plain() };
        let counts = seen(options, &[0.0, 1.0, 1.0, 1.0]);
        assert!(counts[1] > 1800 && counts[2] > 1800 && counts[0] + counts[3] == 0, "{counts:?}");
    }

    #[test]
    fn top_p_keeps_the_fewest_that_reach_it() {
        // probabilities 0.5, 0.25, 0.25
        let l = [2f32.ln(), 0.0, 0.0];
        let at = |top_p| seen(SamplerOptions { top_p, ..plain() }, &l);
        assert_eq!(at(0.49), [4000, 0, 0]);
        let two = at(0.7);
        assert!(two[0] > 2500 && two[1] > 1200 && two[2] == 0, "{two:?}");
        assert!(at(0.8)[2] > 900);
    }

    #[test]
    fn min_p_drops_what_is_too_unlikely_beside_the_greatest() {
        let l = [0.0, (0.2f32).ln(), (0.05f32).ln()];
        let counts = seen(SamplerOptions { min_p: 0.1, ..plain() }, &l);
        assert!(counts[1] > 500 && counts[2] == 0, "{counts:?}");
        assert_eq!(seen(SamplerOptions { min_p: 1.0, ..plain() }, &l), [4000, 0, 0]);
    }

    #[test]
    fn frequencies_follow_the_probabilities() {
        let counts = seen(plain(), &[3f32.ln(), 0.0]);
        assert!((2900..3100).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn the_repeat_penalty_divides_positive_and_multiplies_negative_logits_of_recent_ids() {
        let options = SamplerOptions { repeat_penalty: 2.0, repeat_last_n: 2, ..greedy() };
        let mut s = Sampler::new(options).unwrap();
        assert_eq!(s.sample(&[4.0, 3.0, 1.0], &[], 0).unwrap(), 0);
        assert_eq!(s.sample(&[4.0, 3.0, 1.0], &[0], 0).unwrap(), 1);
        assert_eq!(s.sample(&[4.0, 3.0, 1.0], &[0, 0, 2, 2], 0).unwrap(), 0, "only the last two count");
        assert_eq!(s.sample(&[4.0, 3.0, 1.0], &[0, 0], 0).unwrap(), 1, "an id counts once");
        assert_eq!(s.sample(&[-2.0, -3.0], &[0], 0).unwrap(), 1);
        assert_eq!(s.sample(&[1.0, 0.5], &[7, u32::MAX], 0).unwrap(), 0, "ids beyond the logits are passed over");
        assert_eq!(s.sample(&[f32::MIN, f32::MIN], &[0], 0).unwrap(), 0, "a penalty does not overflow");
    }

    #[test]
    fn a_draw_depends_on_its_position_and_not_on_the_draws_before_it() {
        let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32).collect();
        let mut s = Sampler::new(plain()).unwrap();
        let all: Vec<u32> = (0..100).map(|i| s.sample(&logits, &[], i).unwrap()).collect();
        for from in [0, 1, 50, 99] {
            let mut fresh = Sampler::new(plain()).unwrap();
            let rest: Vec<u32> = (from..100).map(|i| fresh.sample(&logits, &[], i).unwrap()).collect();
            assert_eq!(rest, all[from..]);
            assert_eq!(s.sample(&logits, &[], from).unwrap(), all[from], "again");
        }
        assert!(all.windows(2).any(|w| w[0] != w[1]));
    }

    #[test]
    fn the_same_seed_draws_the_same_and_another_seed_does_not() {
        let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32).collect();
        let run = |seed| {
            let mut s = Sampler::new(SamplerOptions { seed, ..plain() }).unwrap();
            (0..50).map(|i| s.sample(&logits, &[], i).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn a_logit_that_is_not_finite_is_an_error_naming_it() {
        let mut s = Sampler::new(greedy()).unwrap();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = s.sample(&[0.0, 1.0, bad], &[], 0).unwrap_err().to_string();
            assert!(error.contains("logit 2 is "), "{error}");
        }
        assert!(s.sample(&[], &[], 0).is_err());
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let base = SamplerOptions::default;
        for (bad, word) in [
            (SamplerOptions { temperature: -0.1, ..base() }, "temperature"),
            (SamplerOptions { temperature: f32::NAN, ..base() }, "temperature"),
            (SamplerOptions { temperature: f32::INFINITY, ..base() }, "temperature"),
            (SamplerOptions { top_p: 0.0, ..base() }, "top-p"),
            (SamplerOptions { top_p: 1.1, ..base() }, "top-p"),
            (SamplerOptions { top_p: f32::NAN, ..base() }, "top-p"),
            (SamplerOptions { min_p: -0.1, ..base() }, "min-p"),
            (SamplerOptions { min_p: f32::NAN, ..base() }, "min-p"),
            (SamplerOptions { repeat_penalty: 0.0, ..base() }, "repeat-penalty"),
            (SamplerOptions { repeat_penalty: f32::NAN, ..base() }, "repeat-penalty"),
        ] {
            let error = Sampler::new(bad).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn extreme_temperatures_and_logits_still_give_an_answer() {
        for temperature in [f32::MIN_POSITIVE, 1e-45, f32::MAX] {
            let mut s = Sampler::new(SamplerOptions { temperature, ..plain() }).unwrap();
            assert!(s.sample(&[f32::MIN, f32::MAX, 0.0], &[], 0).unwrap() < 3);
        }
    }
}
