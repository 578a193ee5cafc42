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
        /// groups of neighbouring experts, two at least in each, of which some are kept: of [`SIGMOID`] those whose two best
        /// have the greatest sum, of [`SOFTMAX`] those with the best experts. 0 or 1: there are none
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
        if groups > 1 && (self.kind == SOFTMAX_CHOSEN || !e.is_multiple_of(groups) || e / groups < 2) {
            return Some(format!(
                "{groups} groups of {e} experts, expected equal groups of two at least, with sigmoids or a softmax over all"
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
        let of_groups: Vec<u32> = score
            .chunks_exact(size)
            .zip(keys.chunks_exact(size))
            .map(|(score, keys)| {
                let places = ranks(keys);
                let at = |rank| places.iter().position(|&r| r == rank).expect("two experts at least");
                if p.kind == SIGMOID { logit_key((score[at(0)] + score[at(1)]).to_bits()) } else { keys[at(0)] }
            })
            .collect();
        for (keys, rank) in keys.chunks_exact_mut(size).zip(ranks(&of_groups)) {
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
    weigh(p, l, &value, ids, weights);
}

/// Weights of the experts chosen: `l` the logits of a token, `value` these or their sigmoids, `ids` by slot.
pub fn weigh(p: &RouterParams, l: &[f32], value: &[f32], ids: &[u32], weights: &mut [f32]) {
    // of softmax the first is the greatest
    let most = l[ids[0] as usize];
    let part = |l: f32| canon(fexp(l - most));
    for (w, &id) in weights.iter_mut().zip(ids) {
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
            let mut all = [0.0; EXPERTS_MAX as usize];
            for (all, &l) in all.iter_mut().zip(l) {
                *all = part(l);
            }
            Some(tree_sum(&mut all[..l.len().next_power_of_two()]))
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

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: RouterParams = RouterParams {
        n_tokens: 1,
        experts: 6,
        used: 3,
        kind: SOFTMAX,
        normalise: 1,
        scale: 1.0,
        groups: 0,
        groups_used: 0,
        biased: 0,
    };

    fn of(p: &RouterParams, logits: &[f32], bias: &[f32]) -> (Vec<u32>, Vec<f32>) {
        assert_eq!(p.fault(), None);
        let (mut ids, mut weights) = (vec![u32::MAX; p.used as usize], vec![f32::NAN; p.used as usize]);
        router(p, logits, bias, &mut ids, &mut weights);
        (ids, weights)
    }

    #[test]
    fn the_lowest_expert_among_equals_goes_first() {
        assert_eq!(of(&PLAIN, &[-1.0, 2.0, 0.0, 2.0, -0.0, 2.0], &[]).0, [1, 3, 5]);
        assert_eq!(of(&PLAIN, &[-1.0, -3.0, 0.0, -2.0, -0.0, 1.0], &[]).0, [5, 2, 4]);
    }

    #[test]
    fn weights_are_what_each_kind_says() {
        let l = [0.5f32, -1.0, 2.0, 0.25, -3.0, 1.0];
        let exp = |x: f32| f64::from(x).exp();
        let near = |found: &[f32], want: &[f64]| {
            for (f, w) in found.iter().zip(want) {
                assert!((f64::from(*f) - w).abs() < 1e-6, "{found:?} {want:?}");
            }
        };
        let all: f64 = l.iter().map(|&x| exp(x)).sum();
        let chosen = exp(2.0) + exp(1.0) + exp(0.5);
        let over = |sum: f64| [exp(2.0) / sum, exp(1.0) / sum, exp(0.5) / sum];
        let (ids, w) = of(&PLAIN, &l, &[]);
        assert_eq!(ids, [2, 5, 0]);
        near(&w, &over(chosen));
        near(&of(&RouterParams { kind: SOFTMAX_CHOSEN, normalise: 0, ..PLAIN }, &l, &[]).1, &over(chosen));
        near(&of(&RouterParams { normalise: 0, scale: 2.5, ..PLAIN }, &l, &[]).1, &over(all / 2.5));
        let s = |x: f32| 1.0 / (1.0 + exp(-x));
        let sum = s(2.0) + s(1.0) + s(0.5);
        let p = RouterParams { kind: SIGMOID, ..PLAIN };
        near(&of(&p, &l, &[]).1, &[s(2.0) / sum, s(1.0) / sum, s(0.5) / sum]);
        near(&of(&RouterParams { normalise: 0, ..p }, &l, &[]).1, &[s(2.0), s(1.0), s(0.5)]);
        // tiny sigmoids are divided by 2^-14
        near(&of(&p, &[-20.0; 6], &[]).1, &[s(-20.0) * 16384.0; 3]);
    }

    #[test]
    fn a_bias_chooses_and_does_not_weigh_and_groups_go_by_their_two_best() {
        let p = RouterParams { kind: SIGMOID, normalise: 0, biased: 1, used: 2, ..PLAIN };
        let l = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let (ids, w) = of(&p, &l, &[9.0, 0.0, 0.0, 8.0, 0.0, 0.0]);
        assert_eq!(ids, [0, 3]);
        assert_eq!(w, [canon(sigmoid(0.0)), canon(sigmoid(3.0))]);
        // the group of the best expert is not that of the best two
        let p = RouterParams { biased: 1, groups: 2, groups_used: 1, ..p };
        assert_eq!(of(&p, &[0.0; 6], &[0.0, 0.9, 0.0, 0.5, 0.5, 0.4]).0, [3, 4]);
        assert_eq!(of(&RouterParams { groups_used: 2, ..p }, &[0.0; 6], &[0.0, 0.9, 0.0, 0.5, 0.5, 0.4]).0, [1, 3]);
    }

    #[test]
    fn groups_go_by_their_best_where_weights_are_a_softmax_over_all() {
        let p = RouterParams { normalise: 0, used: 2, groups: 3, groups_used: 1, ..PLAIN };
        // the best expert's group, though another's two have the greater sum
        let l = [1.0f32, 1.5, 2.0, -4.0, 0.0, 0.5];
        let (ids, w) = of(&p, &l, &[]);
        assert_eq!(ids, [2, 3]);
        // shares of all, those of other groups among them
        let all: f64 = l.iter().map(|&x| f64::from(x).exp()).sum();
        assert!((f64::from(w[0]) - 2f64.exp() / all).abs() < 1e-6, "{w:?}");
        assert_eq!(of(&RouterParams { groups_used: 2, ..p }, &l, &[]).0, [2, 1]);
        assert_eq!(of(&RouterParams { groups_used: 3, used: 4, ..p }, &l, &[]).0, [2, 1, 0, 5]);
        // of equal groups the one in front
        assert_eq!(of(&p, &[0.0, 1.0, 1.0, 0.5, 1.0, 1.0], &[]).0, [1, 0]);
    }

    #[test]
    fn what_is_not_finite_stays_and_ids_are_those_of_experts() {
        let l = [0.5, 1.0, f32::NAN, 2.0, f32::NAN, 9.0];
        for (kind, normalise) in [(SOFTMAX, 0), (SOFTMAX, 1), (SOFTMAX_CHOSEN, 0), (SIGMOID, 0), (SIGMOID, 1)] {
            let (ids, w) = of(&RouterParams { kind, normalise, ..PLAIN }, &l, &[]);
            assert_eq!(ids, [2, 4, 5], "{kind} {normalise}");
            assert!(w[0].is_nan(), "{kind} {normalise}: {w:?}");
        }
    }

    #[test]
    fn parameters_that_do_not_fit_are_named() {
        let fault = |p: RouterParams| p.fault().unwrap_or_default();
        assert!(fault(RouterParams { experts: 513, ..PLAIN }).contains("513 experts"));
        assert!(fault(RouterParams { used: 7, ..PLAIN }).contains("7 of 6"));
        assert!(fault(RouterParams { kind: SOFTMAX_CHOSEN, groups: 2, groups_used: 1, ..PLAIN }).contains("groups"));
        assert!(fault(RouterParams { groups: 4, groups_used: 1, ..PLAIN }).contains("4 groups of 6"));
        assert!(fault(RouterParams { biased: 1, ..PLAIN }).contains("bias"));
        let p = RouterParams { kind: SIGMOID, groups: 3, groups_used: 1, ..PLAIN };
        assert!(fault(p).contains("3 of 2"));
        assert!(fault(RouterParams { groups_used: 4, used: 2, ..p }).contains("4 of 3 groups"));
    }
}
