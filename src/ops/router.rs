//! The router of a mixture of experts: which experts a token meets, best first, and with what weights.

use crate::ops::exact::{canon, fdiv, fexp, sigmoid, tree_sum};
use crate::ops::params::{At, Params, params};
use crate::ops::top_k::logit_key;

/// Experts of a layer, at most.
pub const EXPERTS_MAX: u32 = 512;

/// Weights are the probabilities of a softmax over all experts.
pub const SOFTMAX: u32 = 0;
/// Weights are sigmoids of the logits.
pub const SIGMOID: u32 = 1;
/// Weights are the probabilities of a softmax over the experts that were chosen.
pub const SOFTMAX_CHOSEN: u32 = 2;

/// What the sum of sigmoids counts as at least: 2^-14.
pub const SUM_MIN: f32 = f32::from_bits((127 - 14) << 23);

params! {
    /// Parameters of `router`.
    pub struct RouterParams {
        /// tokens
        pub n_tokens: u32,
        /// experts, at most [`EXPERTS_MAX`]
        pub experts: u32,
        /// experts that a token meets, at most those there are in the groups kept
        pub used: u32,
        /// what weights are: [`SOFTMAX`], [`SIGMOID`] or [`SOFTMAX_CHOSEN`]
        pub kind: u32,
        /// 1: weights are divided by their sum; of [`SOFTMAX_CHOSEN`] they have the sum 1 anyway
        pub normalise: u32,
        /// what weights are multiplied with at the end, of a magnitude between 1e-6 and 1e6; 1 changes nothing
        pub scale: f32,
        /// groups of neighbouring experts of which some are kept; 0 or 1: there are none. More only of [`SIGMOID`], with at
        /// least two experts each
        pub groups: u32,
        /// groups kept
        pub groups_used: u32,
        /// 1: experts are chosen by the sum of sigmoid and bias, only of [`SIGMOID`]; 0: the bias is not read
        pub biased: u32,
    }
}

impl Params for RouterParams {
    const OUTPUTS: usize = 2;

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [1, self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

impl RouterParams {
    /// What is wrong with parameters that no model may ask for; `None` where all fits together.
    pub fn fault(&self) -> Option<String> {
        let (e, groups) = (self.experts, self.groups.max(1));
        let kept = if groups > 1 { e / groups * self.groups_used } else { e };
        if e == 0 || e > EXPERTS_MAX {
            return Some(format!("{e} experts, expected 1 to {EXPERTS_MAX}"));
        }
        if groups > 1 && (self.kind != SIGMOID || !e.is_multiple_of(groups) || e / groups < 2) {
            return Some(format!(
                "{groups} groups of {e} experts, expected equal groups of two at least, with sigmoids"
            ));
        }
        if self.biased == 1 && self.kind != SIGMOID {
            return Some("a bias of the choice of experts, which is for weights that are sigmoids".into());
        }
        if groups > 1 && (self.groups_used == 0 || self.groups_used > groups) {
            return Some(format!("{} of {groups} groups of experts, expected 1 to all", self.groups_used));
        }
        (self.used == 0 || self.used > kept).then(|| format!("{} of {kept} experts, expected 1 to all", self.used))
    }
}

/// Places of entries in the order of their keys, the greatest first and of equals the one in front.
fn ranks(keys: &[u32]) -> Vec<usize> {
    let before = |i: usize, j: usize| keys[j] > keys[i] || keys[j] == keys[i] && j < i;
    (0..keys.len()).map(|i| (0..keys.len()).filter(|&j| before(i, j)).count()).collect()
}

/// Keys of what experts are chosen by, 0 of those in groups that are not kept.
fn keys(p: &RouterParams, score: &[f32]) -> Vec<u32> {
    let mut keys: Vec<u32> = score.iter().map(|v| logit_key(v.to_bits())).collect();
    if p.groups > 1 {
        let size = (p.experts / p.groups) as usize;
        let sums: Vec<u32> = score
            .chunks_exact(size)
            .zip(keys.chunks_exact(size))
            .map(|(score, keys)| {
                let places = ranks(keys);
                let at = |rank| score[places.iter().position(|&r| r == rank).expect("two experts at least")];
                logit_key((at(0) + at(1)).to_bits())
            })
            .collect();
        for (keys, rank) in keys.chunks_exact_mut(size).zip(ranks(&sums)) {
            if rank >= p.groups_used as usize {
                keys.fill(0);
            }
        }
    }
    keys
}

/// `logits` `[token][expert]`, `bias` `[expert]` (anything where there is none); `ids` and `weights` `[token][slot]`, the
/// expert chosen first in front. An id is that of an expert whatever the logits are.
pub fn router(p: &RouterParams, logits: &[f32], bias: &[f32], ids: &mut [u32], weights: &mut [f32]) {
    let (n, used) = (p.experts as usize, p.used as usize);
    for t in 0..p.n_tokens as usize {
        let (ids, weights) = (&mut ids[t * used..][..used], &mut weights[t * used..][..used]);
        row(p, &logits[t * n..][..n], bias, ids, weights);
    }
}

/// One token.
fn row(p: &RouterParams, l: &[f32], bias: &[f32], ids: &mut [u32], weights: &mut [f32]) {
    let value: Vec<f32> = l.iter().map(|&l| if p.kind == SIGMOID { canon(sigmoid(l)) } else { l }).collect();
    let score = |e: usize| if p.biased == 1 { canon(value[e] + bias[e]) } else { value[e] };
    let score: Vec<f32> = (0..l.len()).map(score).collect();
    for (e, rank) in ranks(&keys(p, &score)).into_iter().enumerate() {
        if rank < ids.len() {
            ids[rank] = e as u32;
        }
    }
    // of softmax the first is the greatest
    let most = l[ids[0] as usize];
    let part = |l: f32| canon(fexp(l - most));
    for (w, &id) in weights.iter_mut().zip(&*ids) {
        *w = if p.kind == SIGMOID { value[id as usize] } else { part(l[id as usize]) };
    }
    let mut chosen = 0.0;
    for w in &*weights {
        chosen += w;
    }
    let sum = match p.kind {
        SIGMOID if p.normalise == 0 => None,
        SIGMOID => Some(at_least(chosen)),
        SOFTMAX if p.normalise == 0 => {
            let mut all: Vec<f32> = l.iter().map(|&l| part(l)).collect();
            all.resize(l.len().next_power_of_two(), 0.0);
            Some(tree_sum(&mut all))
        }
        _ => Some(chosen),
    };
    for w in weights {
        if let Some(sum) = sum {
            *w = canon(fdiv(*w, sum));
        }
        *w = canon(*w * p.scale);
    }
}

/// A sum of sigmoids, [`SUM_MIN`] at least; by the bits, so that a NaN stays one.
fn at_least(sum: f32) -> f32 {
    f32::from_bits(sum.to_bits().max(SUM_MIN.to_bits()))
}
