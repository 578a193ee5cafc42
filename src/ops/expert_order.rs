//! Which (token, slot) pairs an expert meets: a stable sort by expert, so that a weight is read once for many tokens.

use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `expert_order`.
    pub struct ExpertOrderParams {
        /// pairs of token and slot
        pub n_tokens: u32,
        /// experts
        pub experts: u32,
    }
}

impl Params for ExpertOrderParams {
    const FLOAT_STRIDE: Option<usize> = None;

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.experts, 1]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

/// Words of the result for so many pairs.
pub fn order_words(experts: usize, pairs: usize) -> usize {
    experts + 1 + pairs
}

/// `ids` `[pair]`; `order`: where the pairs of each expert begin among all of them, `[expert + 1]`, then the pairs, `[pair]`,
/// those of the first expert in front and of one expert in their own order.
pub fn expert_order(p: &ExpertOrderParams, ids: &[u32], order: &mut [u32]) {
    let (pairs, experts) = (p.n_tokens as usize, p.experts as usize);
    let (first, order) = order.split_at_mut(experts + 1);
    let mut at = 0;
    for (e, first) in first.iter_mut().take(experts).enumerate() {
        *first = at as u32;
        for pair in (0..pairs).filter(|&pair| ids[pair] as usize == e) {
            order[at] = pair as u32;
            at += 1;
        }
    }
    first[experts] = at as u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_sorted_stably() {
        let mut order = vec![9; order_words(4, 6)];
        expert_order(&ExpertOrderParams { n_tokens: 6, experts: 4 }, &[3, 1, 1, 0, 3, 1], &mut order);
        assert_eq!(order, [0, 1, 4, 4, 6, 3, 1, 2, 5, 0, 4]);
    }
}
