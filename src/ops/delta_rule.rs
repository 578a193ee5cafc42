//! The gated delta rule, one token after the other: of each value head a matrix of keys by values is what is remembered. It
//! fades, what it gives for the key is compared with the value, the difference is added along the key, and the query is
//! asked of the result.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};
use crate::ops::strands::Strands;

/// Partial sums over keys, element i going to sum i mod this.
pub const PARTS: usize = 4;

params! {
    /// Parameters of `delta_rule`.
    pub struct DeltaRuleParams {
        /// tokens
        pub n_tokens: u32,
        /// sequences they are of
        pub strands: u32,
        /// value heads
        pub heads: u32,
        /// key heads, each of which so many value heads share
        pub key_heads: u32,
        /// elements of a head, a multiple of 32
        pub size: u32,
        /// 1: value head h goes by key head h mod key_heads; 0: neighbours share one
        pub tiled: u32,
        /// what results are multiplied with
        pub scale: f32,
    }
}

impl Params for DeltaRuleParams {
    const OUTPUTS: usize = 2;

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, strands: step.strands, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.heads * (self.size / 32), self.strands]
    }

    fn replaces(&self, output: usize) -> bool {
        output == 1
    }
}

impl DeltaRuleParams {
    /// The key head of a value head.
    pub fn key_head(&self, head: usize) -> usize {
        let keys = self.key_heads as usize;
        if self.tiled == 1 { head % keys } else { head / (self.heads as usize / keys) }
    }
}

/// `qk` `[token][queries, keys][key head][size]`, `v` `[token][head][size]`, `gates` as `gdn_gates` gives them; `state`
/// `[slot][head][key element][value element]`; `o` `[token][head][size]`.
pub fn delta_rule(
    p: &DeltaRuleParams,
    qk: &[f32],
    v: &[f32],
    gates: &[f32],
    strands: Strands,
    state: &mut [f32],
    o: &mut [f32],
) {
    let (heads, keys, size) = (p.heads as usize, p.key_heads as usize, p.size as usize);
    for strand in strands.take(p.strands) {
        for h in 0..heads {
            let at = |slot: usize| (slot * heads + h) * size * size;
            let (target, key_head) = (at(strand.target), p.key_head(h));
            for (n, &t) in strand.tokens.iter().enumerate() {
                let t = t as usize;
                let source = if n == 0 { strand.source.map(at) } else { Some(target) };
                let q = &qk[(t * 2 * keys + key_head) * size..][..size];
                let k = &qk[(t * 2 * keys + keys + key_head) * size..][..size];
                let (beta, gamma) = (gates[t * 2 * heads + h], gates[t * 2 * heads + heads + h]);
                for j in 0..size {
                    let mut parts = [0f32; PARTS];
                    for i in 0..size {
                        let m = source.map_or(0.0, |at| state[at + i * size + j]);
                        let m = canon(m * gamma);
                        state[target + i * size + j] = m;
                        parts[i % PARTS] += m * k[i];
                    }
                    let row = (t * heads + h) * size;
                    let d = canon(canon(v[row + j] - join(parts)) * beta);
                    let mut parts = [0f32; PARTS];
                    for i in 0..size {
                        let m = &mut state[target + i * size + j];
                        *m = canon(*m + k[i] * d);
                        parts[i % PARTS] += *m * q[i];
                    }
                    o[row + j] = canon(join(parts) * p.scale);
                }
            }
        }
    }
}

/// The sum of the partial sums.
#[inline(always)]
pub fn join([a, b, c, d]: [f32; PARTS]) -> f32 {
    (a + c) + (b + d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::strands::{FRESH, in_order};
    use crate::random;

    const P: DeltaRuleParams =
        DeltaRuleParams { n_tokens: 9, strands: 1, heads: 4, key_heads: 2, size: 32, tiled: 0, scale: 0.17677669 };

    /// What may be wrong with the rule.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        /// the state fades after it was read
        FadesLate,
        /// the query is asked of what was before the token
        AskedBefore,
        /// the difference is not taken: what is new is added as it is
        NoDifference,
        /// keys and queries change places
        Swapped,
        /// another key head
        Tiled,
    }

    /// The rule in f64, as `docs/exactness.md` has it.
    fn formula(qk: &[f32], v: &[f32], gates: &[f32], fault: Fault) -> Vec<f64> {
        let (heads, keys, size, n) = (4, 2, 32, P.n_tokens as usize);
        let mut o = vec![0f64; n * heads * size];
        for h in 0..heads {
            let key_head = if fault == Fault::Tiled { h % keys } else { h / 2 };
            let mut m = vec![[0f64; 32]; size];
            for t in 0..n {
                let row = |which: usize| &qk[((t * 2 + which) * keys + key_head) * size..][..size];
                let (q, k) = if fault == Fault::Swapped { (row(1), row(0)) } else { (row(0), row(1)) };
                let (beta, gamma) = (f64::from(gates[t * 2 * heads + h]), f64::from(gates[(t * 2 + 1) * heads + h]));
                let fade = |m: &mut Vec<[f64; 32]>| m.iter_mut().flatten().for_each(|m| *m *= gamma);
                let asked = |m: &Vec<[f64; 32]>, with: &[f32], j: usize| -> f64 {
                    m.iter().zip(with).map(|(m, w)| m[j] * f64::from(*w)).sum()
                };
                if fault != Fault::FadesLate {
                    fade(&mut m);
                }
                let before = m.clone();
                for j in 0..size {
                    let given = if fault == Fault::NoDifference { 0.0 } else { asked(&before, k, j) };
                    let d: f64 = beta * (f64::from(v[(t * heads + h) * size + j]) - given);
                    m.iter_mut().zip(k).for_each(|(m, k)| m[j] += f64::from(*k) * d);
                }
                if fault == Fault::FadesLate {
                    fade(&mut m);
                }
                let asked_of = if fault == Fault::AskedBefore { &before } else { &m };
                for j in 0..size {
                    o[(t * heads + h) * size + j] = asked(asked_of, q, j) * f64::from(P.scale);
                }
            }
        }
        o
    }

    #[test]
    fn the_twin_follows_the_formula_and_no_other() {
        let mut seed = 5;
        let mut draw = |n: usize, from: f32, to: f32| -> Vec<f32> {
            (0..n).map(|_| from + (to - from) * (random::next(&mut seed) >> 40) as f32 / (1 << 24) as f32).collect()
        };
        let (n, heads, size) = (P.n_tokens as usize, 4, 32);
        // of length 1, about
        let (qk, v) = (draw(n * 4 * size, -0.3, 0.3), draw(n * heads * size, -1.0, 1.0));
        let gates = draw(n * 2 * heads, 0.3, 1.0);
        let (mut state, mut o, mut words) = (vec![0f32; 2 * heads * size * size], vec![0f32; v.len()], vec![]);
        in_order(n, [FRESH, 1], &mut words);
        delta_rule(&P, &qk, &v, &gates, Strands::new(&words), &mut state, &mut o);
        let far = |fault: Fault| {
            let want = formula(&qk, &v, &gates, fault);
            want.iter().zip(&o).map(|(w, o)| (w - f64::from(*o)).abs()).fold(0.0, f64::max)
        };
        assert!(far(Fault::None) < 1e-6, "{:e}", far(Fault::None));
        for fault in [Fault::FadesLate, Fault::AskedBefore, Fault::NoDifference, Fault::Swapped, Fault::Tiled] {
            assert!(far(fault) > 1e-3, "{:e}", far(fault));
        }
        assert!(state[..heads * size * size].iter().all(|m| *m == 0.0), "the other slot is not written");
    }
}
