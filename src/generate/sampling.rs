//! Choosing the next token from a row of logits: the same seed gives the same text on every machine.
//!
//! Everything that could differ between machines is pinned: candidates are put in a total order (logit descending, id
//! ascending) before anything is summed, sums run in that order in binary64, exponential, logarithm and power are `libm`'s
//! (Rust code, no system library), and random numbers come from integers. Nothing here looks at a device, a text or a clock.
//!
//! **The chain** is llama.cpp's, in its default order: biases, penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p,
//! XTC, temperature (`penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature`), one draw. What changes logits is
//! computed in binary64 and rounded to binary32 for each of the first three; top-n-sigma sums in the order of ids. Each
//! sampler sees the candidates that those before it left, and their probabilities before temperature. With mirostat the
//! chain is biases, temperature, mirostat, as in llama.cpp. A temperature of 0 takes the greatest logit after biases,
//! penalties and DRY, whatever else is set (in llama.cpp typical and XTC could still drop that one).
//!
//! **Draws by position.** The random number of a token is a function of the seed and of the token's position in the
//! sequence, the prompt counted, and of nothing else: not of how many tokens this sampler has drawn. So a request that is
//! sent again with the tokens it has brought up so far goes on as if nothing had happened, in another process and on
//! another machine, and two sequences that share a seed share their numbers position by position. XTC has a second number of
//! the same position. Two things do depend on the tokens drawn before: mirostat's `mu` and a [`Constraint`]. Both begin anew
//! with the sampler, so a text that is continued by another request goes on with neither where it was.

mod penalties;
mod steps;

use crate::random;
use crate::record::{Best, SELECT_MAX};
use anyhow::{Result, bail, ensure};
use penalties::Dry;
use serde::{Deserialize, Serialize};

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
    #[serde(with = "counts")]
    pub repeat_last_n: usize,
    /// any number
    pub seed: u64,
    /// added to the logits of these ids before anything else, in this order; minus infinity: the id never comes
    #[serde(with = "biases")]
    pub logit_bias: Vec<(u32, f32)>,
    /// taken from the logits of recent ids; 0 changes nothing
    pub presence_penalty: f32,
    /// taken from the logits of recent ids as often as they came; 0 changes nothing
    pub frequency_penalty: f32,
    /// DRY: taken from the logit of an id that goes on with `dry_allowed_length` ids as they came before, times `dry_base` for
    /// each id more that came before; 0: no DRY
    pub dry_multiplier: f32,
    /// see `dry_multiplier`; 1 or more
    pub dry_base: f32,
    /// how long a sequence may be that comes again for nothing
    pub dry_allowed_length: usize,
    /// how many of the last ids are looked at; 0 none, `usize::MAX` all
    #[serde(with = "counts")]
    pub dry_penalty_last_n: usize,
    /// ids in whose order a sequence is over, so that nothing after them goes on with what was before
    /// ([`breakers`](super::breakers::breakers) makes them of texts)
    pub dry_breakers: Vec<Vec<u32>>,
    /// keeps the logits at least as great as the greatest less so many standard deviations of all logits; 0 or less keeps
    /// all (-1 in llama.cpp)
    pub top_n_sigma: f32,
    /// keeps those whose surprise is nearest to the expected one, up to this probability; 1 keeps all
    pub typical_p: f32,
    /// how likely it is that the greatest are dropped, all but the least of those at least as probable as `xtc_threshold`;
    /// 0: never
    pub xtc_probability: f32,
    /// see `xtc_probability`; above 0.5 none is dropped
    pub xtc_threshold: f32,
    /// the temperature is up to so much lower where one token is certain and higher where all are alike; 0: fixed
    pub dynatemp_range: f32,
    /// how entropy, over the greatest it could be, becomes a temperature: to this power
    pub dynatemp_exponent: f32,
    /// 1 or 2: keeps as many of the greatest as give a surprise of `mirostat_tau` bits in the long run, instead of everything
    /// above but biases and temperature; 0: no mirostat. Its state begins anew with each request: a request that is sent
    /// again with the tokens it brought up goes on in another way than one that was never interrupted
    pub mirostat: u8,
    /// see `mirostat`
    pub mirostat_tau: f32,
    /// how fast mirostat learns
    pub mirostat_eta: f32,
    /// how many candidates top-k, typical, top-p, min-p and XTC leave at least, where there are so many
    pub min_keep: usize,
}

/// Numbers of ids in JSON: -1 stands for all of them, whatever `usize` is.
mod counts {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(n: &usize, to: S) -> Result<S::Ok, S::Error> {
        i64::try_from(*n).unwrap_or(-1).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
        i64::deserialize(from).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
    }
}

/// Biases in JSON, which has no number for minus infinity: `null` stands for it.
mod biases {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(list: &[(u32, f32)], to: S) -> Result<S::Ok, S::Error> {
        let list: Vec<(u32, Option<f32>)> =
            list.iter().map(|&(id, b)| (id, Some(b).filter(|b| b.is_finite()))).collect();
        list.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(u32, f32)>, D::Error> {
        let list = Vec::<(u32, Option<f32>)>::deserialize(from)?;
        Ok(list.into_iter().map(|(id, b)| (id, b.unwrap_or(f32::NEG_INFINITY))).collect())
    }
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
            logit_bias: Vec::new(),
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: usize::MAX,
            dry_breakers: Vec::new(),
            top_n_sigma: -1.0,
            typical_p: 1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            min_keep: 0,
        }
    }
}

impl SamplerOptions {
    /// Errors: an option that is not a number, or outside its range.
    pub fn check(&self) -> Result<()> {
        let SamplerOptions { temperature, top_p, min_p, repeat_penalty, .. } = *self;
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
        let typical_p = self.typical_p;
        ensure!(typical_p > 0.0 && typical_p <= 1.0, "typical is {typical_p}: more than 0 and at most 1 expected");
        for (name, share) in [("xtc-probability", self.xtc_probability), ("xtc-threshold", self.xtc_threshold)] {
            ensure!((0.0..=1.0).contains(&share), "{name} is {share}: between 0 and 1 expected");
        }
        for (name, number) in [
            ("presence-penalty", self.presence_penalty),
            ("frequency-penalty", self.frequency_penalty),
            ("top-nsigma", self.top_n_sigma),
        ] {
            ensure!(number.is_finite(), "{name} is {number}: a number expected");
        }
        for (name, number) in [
            ("dry-multiplier", self.dry_multiplier),
            ("dynatemp-range", self.dynatemp_range),
            ("dynatemp-exp", self.dynatemp_exponent),
            ("mirostat-ent", self.mirostat_tau),
            ("mirostat-lr", self.mirostat_eta),
        ] {
            ensure!(number.is_finite() && number >= 0.0, "{name} is {number}: 0 or a positive number expected");
        }
        ensure!(self.dry_base.is_finite() && self.dry_base >= 1.0, "dry-base is {}: 1 or more expected", self.dry_base);
        ensure!(self.dry_breakers.iter().all(|b| !b.is_empty()), "a sequence breaker of DRY has no tokens");
        ensure!(self.mirostat <= 2, "mirostat is {}: 0, 1 or 2 expected", self.mirostat);
        let wrong = self.logit_bias.iter().find(|(_, bias)| !(bias.is_finite() || *bias == f32::NEG_INFINITY));
        if let Some((id, bias)) = wrong {
            bail!("the bias of token {id} is {bias}: a number or minus infinity expected");
        }
        Ok(())
    }

    /// Whether ids that came before lose anything.
    fn penalises(&self) -> bool {
        let changes = self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0;
        changes && self.repeat_last_n > 0
    }

    fn is_dry(&self) -> bool {
        self.dry_multiplier != 0.0 && self.dry_penalty_last_n > 0
    }
}

/// What may come next, by something that follows the text: a grammar.
pub trait Constraint: Send {
    /// A bit for each id, 32 in a word, the lowest first: whether it may come. Ids beyond the words may not.
    ///
    /// Errors: the constraint's own, such as a bound on its work; asked again it says the same.
    fn allowed(&mut self) -> Result<&[u32]>;

    /// The text goes on with this id, which was allowed.
    ///
    /// Errors: it was not, or the constraint's own.
    fn accept(&mut self, id: u32) -> Result<()>;
}

/// Draws tokens. What it draws depends on what it is given alone, not on what it drew before; but for mirostat and for a
/// constraint, which follow the tokens drawn.
pub struct Sampler {
    options: SamplerOptions,
    dry: Dry,
    constraint: Option<Box<dyn Constraint>>,
    /// mirostat's bound on the surprise of a token, in bits
    mu: f64,
    /// memory that is used again for every token
    candidates: Vec<Candidate>,
    spare: Vec<Candidate>,
    recent: Vec<u32>,
    typical: Vec<(f64, usize)>,
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Sampler").field("options", &self.options).field("mu", &self.mu).finish_non_exhaustive()
    }
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
        options.check()?;
        let (dry, mu) = (Dry::new(&options.dry_breakers), 2.0 * f64::from(options.mirostat_tau));
        let (candidates, spare, recent, typical) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Sampler { options, dry, constraint: None, mu, candidates, spare, recent, typical })
    }

    /// From here on only what a constraint allows is drawn, and the constraint is told of every token. It stands where the
    /// text does: what was drawn before is not told.
    pub fn constrain(&mut self, constraint: Box<dyn Constraint>) {
        self.constraint = Some(constraint);
    }

    /// The seed of its draws.
    #[cfg(test)]
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// Whether only what a constraint allows is drawn.
    pub fn is_constrained(&self) -> bool {
        self.constraint.is_some()
    }

    /// The token at `position`, which counts from 0 and from the start of the prompt: an index into `logits`. `history` is
    /// the ids before it, oldest first, or as many of the last as the penalties look at; ids beyond the logits are passed
    /// over. Tokens must be asked for in order, each once, where there is a constraint or mirostat.
    ///
    /// What a constraint does not allow is dropped first; the rest is the chain above. A temperature of 0 draws no number.
    ///
    /// Errors: no logits, or one that is not finite (its index is named); no token is allowed; those of the constraint. After
    /// an error the sampler is as it was.
    pub fn sample(&mut self, logits: &[f32], history: &[u32], position: usize) -> Result<u32> {
        check(logits)?;
        match &mut self.constraint {
            None => gather(&mut self.candidates, logits),
            Some(constraint) => gather_allowed(&mut self.candidates, logits, constraint.allowed()?),
        }
        let (id, mu) = self.choose(history, position, logits.len())?;
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(id)?;
        }
        self.mu = mu;
        Ok(id)
    }

    /// What [`Sampler::sample`] would draw at `position` from other logits, without a constraint: a guess, which leaves the
    /// sampler as it was.
    ///
    /// Errors: those of `sample`.
    pub fn guess(&mut self, logits: &[f32], history: &[u32], position: usize) -> Result<u32> {
        check(logits)?;
        gather(&mut self.candidates, logits);
        Ok(self.choose(history, position, logits.len())?.0)
    }

    /// The candidate that is drawn, and what `mu` becomes with it. `vocabulary`: how many logits there were.
    fn choose(&mut self, history: &[u32], position: usize, vocabulary: usize) -> Result<(u32, f64)> {
        let (o, c) = (&self.options, &mut self.candidates);
        penalties::bias(c, &o.logit_bias);
        ensure!(!c.is_empty(), "sampling: no token is allowed at position {position}");
        if o.mirostat == 0 {
            if o.penalises() {
                penalties::recent(c, o, history, &mut self.recent);
            }
            if o.is_dry() {
                self.dry.apply(c, o, history);
            }
        }

        if o.temperature == 0.0 {
            let mut best = c[0];
            for &other in &c[1..] {
                if other.logit > best.logit {
                    best = other;
                }
            }
            return Ok((best.id, self.mu));
        }

        if o.mirostat > 0 {
            sort(c, &mut self.spare);
            let temperature = f64::from(o.temperature);
            steps::mirostat(c, o.mirostat, self.mu, temperature, vocabulary);
            let at = steps::pick(c, temperature, number(o.seed, position));
            return Ok((c[at].id, steps::mirostat_next(c, at, temperature, self.mu, o)));
        }
        if o.top_n_sigma > 0.0 {
            steps::top_n_sigma(c, o.top_n_sigma);
        }
        let k = o.top_k.max(o.min_keep);
        if o.top_k > 0 && k < c.len() {
            c.select_nth_unstable_by_key(k - 1, rank);
            c.truncate(k);
            c.sort_unstable_by_key(rank);
        } else {
            sort(c, &mut self.spare);
        }
        Ok((self.draw(position), self.mu))
    }

    /// How many of the best logits [`Sampler::sample_best`] needs to choose as [`Sampler::sample`] does from all: 1 where
    /// it takes the greatest always. `None`: all of them, or more than a device selects.
    pub fn needs(&self) -> Option<usize> {
        let o = &self.options;
        let changes = !o.logit_bias.is_empty() || o.penalises() || o.is_dry() || o.mirostat > 0;
        let spreads = o.top_n_sigma > 0.0 && o.temperature != 0.0;
        if changes || spreads || self.constraint.is_some() {
            return None;
        }
        let k = match o.top_k {
            _ if o.temperature == 0.0 => 1,
            0 => return None,
            k => k.max(o.min_keep),
        };
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
        let o = &self.options;
        if o.temperature == 0.0 {
            return Ok(best[0].id);
        }
        let k = o.top_k.max(o.min_keep);
        self.candidates.clear();
        self.candidates.extend(best.iter().take(k).map(|b| Candidate { logit: b.logit, id: b.id }));
        Ok(self.draw(position))
    }

    /// What comes after top-k, and one draw from the candidates, which are in order.
    fn draw(&mut self, position: usize) -> u32 {
        let (o, c) = (&self.options, &mut self.candidates);
        if o.typical_p < 1.0 {
            steps::typical(c, o.typical_p, o.min_keep, &mut self.typical);
        }
        if o.top_p < 1.0 {
            steps::top_p(c, o.top_p, o.min_keep);
        }
        if o.min_p > 0.0 {
            steps::min_p(c, o.min_p, o.min_keep);
        }
        if o.xtc_probability > 0.0
            && o.xtc_threshold <= 0.5
            && second_number(o.seed, position) < f64::from(o.xtc_probability)
        {
            steps::xtc(c, o.xtc_threshold, o.min_keep);
        }
        c[steps::pick(c, steps::temperature(c, o), number(o.seed, position))].id
    }
}

/// The random number of a position, in [0, 1).
fn number(seed: u64, position: usize) -> f64 {
    random::unit(random::at(seed, position as u64))
}

/// Another one: that of the sequence whose seed the first one is.
fn second_number(seed: u64, position: usize) -> f64 {
    random::unit(random::at(random::at(seed, position as u64), 0))
}

fn check(logits: &[f32]) -> Result<()> {
    ensure!(!logits.is_empty(), "sampling: no logits");
    ensure!(u32::try_from(logits.len()).is_ok(), "sampling: {} logits, fewer than 2^32 expected", logits.len());
    if let Some(at) = logits.iter().position(|l| !l.is_finite()) {
        bail!("sampling: logit {at} is {}, a finite number expected", logits[at]);
    }
    Ok(())
}

/// All candidates, in the order of ids.
fn gather(c: &mut Vec<Candidate>, logits: &[f32]) {
    c.clear();
    c.extend(logits.iter().zip(0..).map(|(&logit, id)| Candidate { logit, id }));
}

/// Those that a constraint allows, in the order of ids.
fn gather_allowed(c: &mut Vec<Candidate>, logits: &[f32], allowed: &[u32]) {
    c.clear();
    for (word, first) in allowed.iter().zip((0..).step_by(32)) {
        let mut left = *word;
        while left != 0 {
            let id = first + left.trailing_zeros();
            if let Some(&logit) = logits.get(id as usize) {
                c.push(Candidate { logit, id });
            }
            left &= left - 1;
        }
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
                ..SamplerOptions::default()
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
                let more = few.sample_best(&best(&logits, k.next_power_of_two()), position).unwrap();
                let fewer = few.sample_best(&best(&logits, k.div_ceil(2)), position).unwrap();
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
    fn the_whole_chain_draws_as_an_independent_implementation_does() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tokenizer/sampling_chain_golden.json");
        let cases: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let cases = cases.as_array().unwrap();
        assert!(cases.len() >= 60, "{}", cases.len());
        for case in cases {
            let o = &case["options"];
            let float = |key: &str| o[key].as_f64().unwrap() as f32;
            let count = |key: &str| o[key].as_u64().unwrap();
            // -1 stands for all
            let many = |key: &str| usize::try_from(o[key].as_i64().unwrap()).unwrap_or(usize::MAX);
            let bias: Vec<(u32, Option<f32>)> = serde_json::from_value(o["logit_bias"].clone()).unwrap();
            let options = SamplerOptions {
                temperature: float("temperature"),
                top_k: many("top_k"),
                top_p: float("top_p"),
                min_p: float("min_p"),
                repeat_penalty: float("repeat_penalty"),
                repeat_last_n: many("repeat_last_n"),
                seed: count("seed"),
                logit_bias: bias.iter().map(|(id, b)| (*id, b.unwrap_or(f32::NEG_INFINITY))).collect(),
                presence_penalty: float("presence_penalty"),
                frequency_penalty: float("frequency_penalty"),
                dry_multiplier: float("dry_multiplier"),
                dry_base: float("dry_base"),
                dry_allowed_length: many("dry_allowed_length"),
                dry_penalty_last_n: many("dry_penalty_last_n"),
                dry_breakers: serde_json::from_value(o["dry_breakers"].clone()).unwrap(),
                top_n_sigma: float("top_n_sigma"),
                typical_p: float("typical_p"),
                xtc_probability: float("xtc_probability"),
                xtc_threshold: float("xtc_threshold"),
                dynatemp_range: float("dynatemp_range"),
                dynatemp_exponent: float("dynatemp_exponent"),
                mirostat: count("mirostat") as u8,
                mirostat_tau: float("mirostat_tau"),
                mirostat_eta: float("mirostat_eta"),
                min_keep: many("min_keep"),
            };
            let n = case["vocab"].as_u64().unwrap();
            let want: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
            let mut sampler = Sampler::new(options.clone()).unwrap();
            let mut history: Vec<u32> = serde_json::from_value(case["prompt"].clone()).unwrap();
            let (prompt, scale) = (history.len(), case["scale"].as_f64().unwrap() as f32);
            for step in 0..want.len() as u64 {
                let salt = options.seed.wrapping_add(step / case["hold"].as_u64().unwrap());
                let logits: Vec<f32> = (0..n)
                    .map(|i| (((mix((i * 7919).wrapping_add(salt)) >> 40) % 1024) as f32 / 64.0 - 8.0) * scale)
                    .collect();
                let guessed = sampler.guess(&logits, &history, history.len()).unwrap();
                history.push(sampler.sample(&logits, &history, history.len()).unwrap());
                assert_eq!(history.last(), Some(&guessed), "a guess is the token, and leaves the sampler as it was");
            }
            assert_eq!(history[prompt..], want, "{options:?}");
        }
    }

    /// Allows what its list says, and remembers what came.
    struct Allows(Vec<Vec<u32>>, std::sync::Arc<std::sync::Mutex<Vec<u32>>>);

    impl Constraint for Allows {
        fn allowed(&mut self) -> Result<&[u32]> {
            let done = self.1.lock().unwrap().len();
            Ok(&self.0[done % self.0.len()])
        }

        fn accept(&mut self, id: u32) -> Result<()> {
            self.1.lock().unwrap().push(id);
            Ok(())
        }
    }

    #[test]
    fn a_constraint_leaves_what_it_allows_and_is_told_what_came() {
        let told = std::sync::Arc::default();
        let mut s = Sampler::new(SamplerOptions { min_p: 0.3, ..plain() }).unwrap();
        assert_eq!(s.needs(), None);
        // the words end before the ids do, and a bit stands for no id
        let allowed = vec![vec![1 << 2 | 1 << 5], vec![0, 1 | 1 << 31], vec![0], vec![1 << 3]];
        s.constrain(Box::new(Allows(allowed, std::sync::Arc::clone(&told))));
        assert_eq!(s.needs(), None);
        let mut logits = vec![9.0; 40];
        (logits[2], logits[5], logits[32]) = (1.0, 0.9, -50.0);
        let first = s.sample(&logits, &[], 0).unwrap();
        assert!(first == 2 || first == 5);
        assert_eq!(s.guess(&logits, &[], 1).unwrap(), s.guess(&logits, &[], 1).unwrap());
        assert_eq!(s.sample(&logits, &[], 1).unwrap(), 32);
        let error = s.sample(&logits, &[], 2).unwrap_err().to_string();
        assert!(error.contains("no token is allowed at position 2"), "{error}");
        logits[7] = f32::NAN;
        assert!(s.sample(&logits, &[], 2).unwrap_err().to_string().contains("logit 7"));
        assert_eq!(*told.lock().unwrap(), [first, 32]);
    }

    #[test]
    fn a_bias_of_minus_infinity_is_never_and_none_left_is_an_error() {
        let never = |ids: &[u32]| ids.iter().map(|id| (*id, f32::NEG_INFINITY)).collect::<Vec<_>>();
        let options = SamplerOptions { logit_bias: never(&[1, 2, 9]), ..plain() };
        let counts = seen(options, &[0.0, 50.0, 50.0, 0.0]);
        assert!(counts[0] > 1800 && counts[3] > 1800 && counts[1] + counts[2] == 0, "{counts:?}");
        for temperature in [0.0, 1.0] {
            let options = SamplerOptions { temperature, logit_bias: never(&[1, 0]), ..plain() };
            let error = Sampler::new(options).unwrap().sample(&[0.0, 1.0], &[], 7).unwrap_err().to_string();
            assert!(error.contains("no token is allowed at position 7"), "{error}");
        }
        let list = vec![(0, 3.0), (0, f32::NEG_INFINITY), (0, 3.0), (1, f32::MAX), (1, f32::MAX)];
        let mut s = Sampler::new(SamplerOptions { logit_bias: list, ..greedy() }).unwrap();
        assert_eq!(s.sample(&[1.0, 0.0], &[], 0).unwrap(), 1);
    }

    #[test]
    fn top_choices_are_dropped_by_a_number_of_their_own() {
        let l = [3f32.ln(), 3f32.ln(), 2f32.ln(), 0.0];
        let xtc = |p| SamplerOptions { xtc_probability: p, xtc_threshold: 0.2, ..plain() };
        // at least 0.2 are the first three; the least of them stays
        let counts = seen(xtc(1.0), &l);
        assert!(counts[0] + counts[1] == 0 && counts[2] > 2500 && counts[3] > 1200, "{counts:?}");
        let half = seen(xtc(0.5), &l);
        // half of the time 3/9, else nothing
        assert!((600..740).contains(&half[0]), "{half:?}");
        // whether they are dropped says nothing of the draw: half of those draws that take the second half of the weight
        let drops = |i| second_number(0, i) < 0.5;
        let high = |i| number(0, i) < 0.5;
        let both = (0..4000).filter(|i| drops(*i) && high(*i)).count();
        assert!((930..1070).contains(&both), "{both}");
    }

    #[test]
    fn mirostat_holds_the_surprise_it_is_told_to() {
        let logits: Vec<f32> = (0..500).map(|i| -1.1 * (1.0 + i as f32).ln()).collect();
        let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        for (version, tau) in [(1, 3.0), (1, 4.0), (2, 3.0), (2, 5.0)] {
            let options =
                SamplerOptions { mirostat: version, mirostat_tau: tau, mirostat_eta: 0.1, temperature: 1.0, ..plain() };
            let mut s = Sampler::new(options).unwrap();
            let (mut sum, n) = (0.0, 3000);
            for i in 0..n {
                let top = s.candidates.len();
                let id = s.sample(&logits, &[], i).unwrap();
                let _ = top;
                // the surprise among those that were kept
                let kept: f64 = s.candidates.iter().map(|c| f64::from(c.logit).exp()).sum();
                assert!(kept <= total * 1.001);
                sum -= (f64::from(logits[id as usize]).exp() / kept).log2();
            }
            let mean = sum / n as f64;
            assert!((mean - f64::from(tau)).abs() < 0.2, "{version}: {mean} bits, {tau} wanted");
        }
    }

    #[test]
    fn samplers_that_look_at_all_logits_or_at_tokens_need_all() {
        let needs = |o| Sampler::new(o).unwrap().needs();
        let base = SamplerOptions::default;
        for all in [
            SamplerOptions { presence_penalty: 0.1, ..base() },
            SamplerOptions { frequency_penalty: -0.1, ..base() },
            SamplerOptions { logit_bias: vec![(3, 1.0)], ..greedy() },
            SamplerOptions { dry_multiplier: 0.8, ..greedy() },
            SamplerOptions { mirostat: 2, ..base() },
            SamplerOptions { top_n_sigma: 1.0, ..base() },
            SamplerOptions { min_keep: 200, ..base() },
        ] {
            assert_eq!(needs(all.clone()), None, "{all:?}");
        }
        assert_eq!(needs(SamplerOptions { top_n_sigma: 1.0, ..greedy() }), Some(1));
        assert_eq!(needs(SamplerOptions { min_keep: 60, ..base() }), Some(60));
        assert_eq!(needs(SamplerOptions { xtc_probability: 0.5, typical_p: 0.5, ..base() }), Some(40));
        assert_eq!(needs(SamplerOptions { dynatemp_range: 0.5, min_keep: 3, ..base() }), Some(40));
    }

    #[test]
    fn no_value_of_any_option_breaks_a_draw() {
        let mut state = 5;
        let mut any = |values: &[f32]| values[random::next(&mut state) as usize % values.len()];
        for round in 0..3000 {
            let options = SamplerOptions {
                temperature: any(&[0.0, 1e-45, 0.8, f32::MAX]),
                top_k: any(&[0.0, 1.0, 3.0]) as usize,
                typical_p: any(&[1e-45, 0.5, 1.0]),
                top_p: any(&[1e-45, 0.9, 1.0]),
                min_p: any(&[0.0, 0.5, 1.0]),
                xtc_probability: any(&[0.0, 1.0]),
                xtc_threshold: any(&[0.0, 0.1, 0.5, 1.0]),
                top_n_sigma: any(&[-1.0, 1e-45, 1.0, f32::MAX]),
                dynatemp_range: any(&[0.0, 0.5, f32::MAX]),
                dynatemp_exponent: any(&[0.0, 1.0, f32::MAX]),
                dry_multiplier: any(&[0.0, 1.0, f32::MAX]),
                dry_base: any(&[1.0, 1.75, f32::MAX]),
                dry_allowed_length: any(&[0.0, 1.0, 5.0]) as usize,
                presence_penalty: any(&[f32::MIN, 0.0, f32::MAX]),
                frequency_penalty: any(&[f32::MIN, 0.0, f32::MAX]),
                mirostat: any(&[0.0, 0.0, 1.0, 2.0]) as u8,
                mirostat_tau: any(&[0.0, 5.0, f32::MAX]),
                mirostat_eta: any(&[0.0, 0.1, f32::MAX]),
                min_keep: any(&[0.0, 2.0, 100.0]) as usize,
                ..SamplerOptions::default()
            };
            let mut s = Sampler::new(options.clone()).unwrap();
            for n in [1, 2, 7] {
                let logits: Vec<f32> = (0..n).map(|_| any(&[f32::MIN, -1.0, 0.0, 1.0, 1.0, f32::MAX])).collect();
                let id = s.sample(&logits, &[0, 1, 2, 0, 1, 2, 0], round).unwrap();
                assert!((id as usize) < n, "{options:?}");
            }
        }
    }

    #[test]
    fn what_goes_on_with_what_was_said_before_is_dry() {
        let dry = |breakers: &[&[u32]], allowed| SamplerOptions {
            dry_multiplier: 1.0,
            dry_base: 2.0,
            dry_allowed_length: allowed,
            dry_breakers: breakers.iter().map(|b| b.to_vec()).collect(),
            ..greedy()
        };
        let lost = |options: SamplerOptions, history: &[u32], id: u32| {
            // how much better it has to be than another
            let mut s = Sampler::new(options).unwrap();
            (0..200).map(|i| i as f32 / 8.0).find(|by| {
                let mut logits = vec![0.0; 9];
                logits[id as usize] = *by + 0.01;
                s.sample(&logits, history, 0).unwrap() == id
            })
        };
        // 1 2 3 came before, so 4 would go on with three
        let history = [1, 2, 3, 4, 0, 1, 2, 3];
        assert_eq!(lost(dry(&[], 2), &history, 4), Some(2.0));
        assert_eq!(lost(dry(&[], 3), &history, 4), Some(1.0));
        assert_eq!(lost(dry(&[], 4), &history, 4), Some(0.0));
        assert_eq!(lost(dry(&[], 2), &history, 0), Some(0.0));
        // nothing goes on over a breaker, of one id or of two
        assert_eq!(lost(dry(&[&[2]], 1), &history, 4), Some(1.0));
        assert_eq!(lost(dry(&[&[2]], 2), &history, 4), Some(0.0));
        assert_eq!(lost(dry(&[&[1, 2]], 1), &history, 4), Some(1.0));
        assert_eq!(lost(dry(&[&[2, 1], &[3, 4]], 2), &history, 4), Some(2.0));
        // a breaker itself loses nothing
        assert_eq!(lost(dry(&[&[4]], 2), &history, 4), Some(0.0));
        // of two that came before, the longer
        assert_eq!(lost(dry(&[], 2), &[3, 4, 1, 2, 3, 4, 0, 1, 2, 3], 4), Some(2.0));
        assert_eq!(lost(SamplerOptions { dry_penalty_last_n: 5, ..dry(&[], 2) }, &history, 4), Some(0.0));
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
            (SamplerOptions { presence_penalty: f32::NAN, ..base() }, "presence-penalty"),
            (SamplerOptions { frequency_penalty: f32::INFINITY, ..base() }, "frequency-penalty"),
            (SamplerOptions { typical_p: 0.0, ..base() }, "typical"),
            (SamplerOptions { xtc_probability: 1.5, ..base() }, "xtc-probability"),
            (SamplerOptions { xtc_threshold: f32::NAN, ..base() }, "xtc-threshold"),
            (SamplerOptions { top_n_sigma: f32::NAN, ..base() }, "top-nsigma"),
            (SamplerOptions { dynatemp_range: -1.0, ..base() }, "dynatemp-range"),
            (SamplerOptions { dynatemp_exponent: f32::NAN, ..base() }, "dynatemp-exp"),
            (SamplerOptions { dry_multiplier: -1.0, ..base() }, "dry-multiplier"),
            (SamplerOptions { dry_base: 0.5, ..base() }, "dry-base"),
            (SamplerOptions { dry_breakers: vec![vec![]], ..base() }, "sequence breaker"),
            (SamplerOptions { mirostat: 3, ..base() }, "mirostat"),
            (SamplerOptions { mirostat_tau: f32::NAN, ..base() }, "mirostat-ent"),
            (SamplerOptions { mirostat_eta: -0.1, ..base() }, "mirostat-lr"),
            (SamplerOptions { logit_bias: vec![(3, f32::INFINITY)], ..base() }, "token 3"),
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
