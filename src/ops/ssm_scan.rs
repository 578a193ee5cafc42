//! The recurrence of a state space layer with one decay for each head (Mamba-2's state space duality), one token after the
//! other: of each head a matrix of state elements by channels is what is remembered. It fades, the channel's step is added
//! along B, and C is asked of the result; a share of the channel itself is added.

use crate::ops::delta_rule::{PARTS, join};
use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};
use crate::ops::strands::Strands;

/// State elements that are summed by themselves: those of a lane.
pub const SEGMENT: usize = 16;

/// Channels of a workgroup.
pub const COLUMNS: u32 = 32;

params! {
    /// Parameters of `ssm_scan`.
    pub struct SsmScanParams {
        /// tokens
        pub n_tokens: u32,
        /// sequences they are of
        pub strands: u32,
        /// heads
        pub heads: u32,
        /// groups of neighbouring heads, each with a B and a C of its own
        pub groups: u32,
        /// channels of a head
        pub head_dim: u32,
        /// elements of the state of a channel, a multiple of 16
        pub state: u32,
    }
}

impl Params for SsmScanParams {
    const OUTPUTS: usize = 2;

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, strands: step.strands, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [(self.heads * self.head_dim).div_ceil(COLUMNS), self.strands]
    }

    fn replaces(&self, output: usize) -> bool {
        output == 1
    }
}

/// `x` `[token][head][channel]`, `bc` `[token][B, C][group][state]`, `gates` as `ssm_discretize` gives them, `d` `[head]`;
/// `memory` `[slot][head][state][channel]`; `y` `[token][head][channel]`.
pub fn ssm_scan(
    p: &SsmScanParams,
    x: &[f32],
    bc: &[f32],
    gates: &[f32],
    d: &[f32],
    strands: Strands,
    memory: &mut [f32],
    y: &mut [f32],
) {
    let [heads, groups, head_dim, state] = [p.heads, p.groups, p.head_dim, p.state].map(|n| n as usize);
    for strand in strands.take(p.strands) {
        for h in 0..heads {
            let at = |slot: usize| (slot * heads + h) * state * head_dim;
            let (target, group) = (at(strand.target), h / (heads / groups));
            for (i, &t) in strand.tokens.iter().enumerate() {
                let t = t as usize;
                let source = if i == 0 { strand.source.map(at) } else { Some(target) };
                let b = &bc[(t * 2 * groups + group) * state..][..state];
                let c = &bc[(t * 2 * groups + groups + group) * state..][..state];
                let (dt, gamma) = (gates[t * 2 * heads + h], gates[t * 2 * heads + heads + h]);
                for j in 0..head_dim {
                    let own = (t * heads + h) * head_dim + j;
                    let step = canon(x[own] * dt);
                    let mut sum = 0f32;
                    for first in (0..state).step_by(SEGMENT) {
                        let mut parts = [0f32; PARTS];
                        for n in first..first + SEGMENT {
                            let before = source.map_or(0.0, |at| memory[at + n * head_dim + j]);
                            let m = canon(before * gamma + b[n] * step);
                            memory[target + n * head_dim + j] = m;
                            parts[n % PARTS] += m * c[n];
                        }
                        sum = if first == 0 { join(parts) } else { sum + join(parts) };
                    }
                    y[own] = canon(sum + d[h] * x[own]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::strands::{FRESH, in_order};
    use crate::random;

    const P: SsmScanParams = SsmScanParams { n_tokens: 9, strands: 1, heads: 4, groups: 2, head_dim: 5, state: 32 };

    /// What may be wrong with the recurrence.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        /// the state fades after the token was added
        FadesLate,
        /// C is asked of what was before the token
        AskedBefore,
        /// the token is added as it is, whatever its step
        NoStep,
        /// B and C change places
        Swapped,
        /// heads go by turns, not by neighbours
        Turns,
        /// the channel itself is left out
        NoSkip,
    }

    /// The recurrence in f64, as `docs/exactness.md` has it.
    fn formula(x: &[f32], bc: &[f32], gates: &[f32], d: &[f32], fault: Fault) -> Vec<f64> {
        let (heads, groups, hd, state) = (4, 2, 5, 32);
        let mut y = vec![0f64; x.len()];
        for h in 0..heads {
            let group = if fault == Fault::Turns { h % groups } else { h / 2 };
            for j in 0..hd {
                let mut m = [0f64; 32];
                for t in 0..P.n_tokens as usize {
                    let row = |which: usize| &bc[((t * 2 + which) * groups + group) * state..][..state];
                    let (b, c) = if fault == Fault::Swapped { (row(1), row(0)) } else { (row(0), row(1)) };
                    let (dt, gamma) = (f64::from(gates[t * 2 * heads + h]), f64::from(gates[(t * 2 + 1) * heads + h]));
                    let own = (t * heads + h) * hd + j;
                    let value = f64::from(x[own]);
                    let step = if fault == Fault::NoStep { value } else { value * dt };
                    let before = m;
                    for (m, b) in m.iter_mut().zip(b) {
                        let added = f64::from(*b) * step;
                        *m = if fault == Fault::FadesLate { (*m + added) * gamma } else { *m * gamma + added };
                    }
                    let asked = if fault == Fault::AskedBefore { &before } else { &m };
                    let skip = if fault == Fault::NoSkip { 0.0 } else { f64::from(d[h]) * value };
                    y[own] = asked.iter().zip(c).map(|(m, c)| m * f64::from(*c)).sum::<f64>() + skip;
                }
            }
        }
        y
    }

    #[test]
    fn the_twin_follows_the_formula_and_no_other() {
        let mut seed = 7;
        let mut draw = |n: usize, from: f32, to: f32| -> Vec<f32> {
            (0..n).map(|_| from + (to - from) * (random::next(&mut seed) >> 40) as f32 / (1 << 24) as f32).collect()
        };
        let (n, heads, hd, groups, state) = (P.n_tokens as usize, 4, 5, 2, 32);
        let (x, bc) = (draw(n * heads * hd, -1.0, 1.0), draw(n * 2 * groups * state, -0.5, 0.5));
        let (gates, d) = (draw(n * 2 * heads, 0.3, 1.0), draw(heads, 0.5, 1.5));
        let (mut memory, mut y, mut words) = (vec![0f32; 2 * heads * hd * state], vec![0f32; x.len()], vec![]);
        in_order(n, [FRESH, 1], &mut words);
        ssm_scan(&P, &x, &bc, &gates, &d, Strands::new(&words), &mut memory, &mut y);
        let far = |fault: Fault| {
            let want = formula(&x, &bc, &gates, &d, fault);
            want.iter().zip(&y).map(|(w, y)| (w - f64::from(*y)).abs()).fold(0.0, f64::max)
        };
        assert!(far(Fault::None) < 1e-5, "{:e}", far(Fault::None));
        use Fault::{AskedBefore, FadesLate, NoSkip, NoStep, Swapped, Turns};
        for fault in [FadesLate, AskedBefore, NoStep, Swapped, Turns, NoSkip] {
            assert!(far(fault) > 1e-2, "{:e}", far(fault));
        }
        assert!(memory[..heads * hd * state].iter().all(|m| *m == 0.0), "the other slot is not written");
    }
}
