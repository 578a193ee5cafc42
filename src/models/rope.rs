//! The RoPE table: cos and sin per position and pair, in f64 with the pure-Rust libm, rounded once to f32. Of models that
//! learn positions it holds their rows instead.

use super::hyper::{Hyper, RopeScaling};
use crate::ops::exact::{POISON, canon};

/// Frequencies of one model.
#[derive(Clone, Debug)]
pub struct RopeTable {
    /// radians per position, by pair
    frequencies: Vec<f64>,
    /// factor on cos and sin
    magnitude: f64,
    /// instead of both: rows of this width, of each position
    learned: Option<(Vec<f32>, usize)>,
}

/// Radians per position of pair `i`, before any scaling.
fn frequency(h: &Hyper, i: usize) -> f64 {
    libm::pow(h.rope_base, -2.0 * i as f64 / h.n_rot as f64)
}

/// What a GGUF file has for a pair that is not rotated.
const NEVER: f32 = 1e30;

/// The divisors of a scaling that GGUF files keep in `rope_freqs.weight`, one per pair; `None` for other scalings.
pub fn rope_divisors(h: &Hyper) -> Option<Vec<f32>> {
    match h.rope_scaling {
        RopeScaling::Proportional { pairs } => {
            Some((0..h.n_rot / 2).map(|i| if i < pairs { 1.0 } else { NEVER }).collect())
        }
        _ => llama3_divisors(h),
    }
}

/// Those of llama3's scaling: f32, which a directory's table takes too, so that both forms of a model give the same bits.
fn llama3_divisors(h: &Hyper) -> Option<Vec<f32>> {
    let RopeScaling::Llama3 { factor, low, high, original } = h.rope_scaling else { return None };
    let divisor = |i: usize| {
        let turns = original * frequency(h, i) / std::f64::consts::TAU;
        if turns < low {
            factor
        } else if turns > high {
            1.0
        } else {
            let smooth = (turns - low) / (high - low);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    Some((0..h.n_rot / 2).map(|i| divisor(i) as f32).collect())
}

impl RopeTable {
    /// `divisors`: the `rope_freqs.weight` tensor, one per pair, where the file has one. `n_ctx`: positions a sequence
    /// of the session may have; of longrope's two factor sets it chooses the long one when that is more than the model
    /// was first trained for. So the choice is made once per session, as llama.cpp makes it, and a sequence never
    /// changes its angles half way; transformers chooses by the sequence's present length.
    ///
    /// Formulas: the papers of RoPE, YaRN and LongRoPE as transformers' `modeling_rope_utils` and ggml have them.
    pub fn new(h: &Hyper, divisors: Option<&[f32]>, n_ctx: usize) -> RopeTable {
        let n = h.n_rot as f64;
        let magnitude = match h.rope_scaling {
            RopeScaling::Yarn { magnitude, .. } | RopeScaling::LongRope { magnitude, .. } => magnitude,
            _ => 1.0,
        };
        let llama3 = llama3_divisors(h).unwrap_or_default();
        let frequencies = (0..h.n_rot / 2)
            .map(|i| {
                let f = frequency(h, i) / divisors.map_or(1.0, |d| f64::from(d[i]));
                match &h.rope_scaling {
                    RopeScaling::None => f,
                    RopeScaling::Linear(factor) => f / factor,
                    &RopeScaling::Proportional { pairs } if i < pairs => f,
                    RopeScaling::Proportional { .. } => 0.0,
                    RopeScaling::Llama3 { .. } => f / f64::from(llama3[i]),
                    &RopeScaling::Yarn { factor, original, beta_fast, beta_slow, ext, .. } => {
                        let corr = |r: f64| {
                            n * libm::log(original / (std::f64::consts::TAU * r)) / (2.0 * libm::log(h.rope_base))
                        };
                        let (low, high) = (corr(beta_fast), corr(beta_slow));
                        let whole = h.family.rounds_ramp();
                        let low = if whole { libm::floor(low) } else { low }.max(0.0);
                        let high = if whole { libm::ceil(high) } else { high }.min(n - 1.0);
                        let ramp = (1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)) * ext;
                        f / factor * (1.0 - ramp) + f * ramp
                    }
                    RopeScaling::LongRope { short, long, .. } => {
                        f / if h.takes_long_factors(n_ctx) { long[i] } else { short[i] }
                    }
                }
            })
            .collect();
        RopeTable { frequencies, magnitude, learned: None }
    }

    /// Rows of `width` words for each position. A position beyond them, which no plan is made for, has what is no number.
    pub fn learned(rows: Vec<f32>, width: usize) -> RopeTable {
        RopeTable { frequencies: vec![], magnitude: 1.0, learned: Some((rows, width)) }
    }

    /// The table of layers that are rotated by another than the model's, where there are any.
    pub fn local(h: &Hyper, n_ctx: usize) -> Option<RopeTable> {
        let (rope_base, rope_scaling) = h.local_rope.clone()?;
        Some(RopeTable::new(&Hyper { rope_base, rope_scaling, n_rot: h.local_rot(), ..h.clone() }, None, n_ctx))
    }

    /// Words of the table for positions `pos..pos + n`: `[position][pair][cos, sin]`.
    pub fn words(&self, pos: usize, n: usize, out: &mut Vec<u32>) {
        out.clear();
        (pos..pos + n).for_each(|p| self.append(p, out));
    }

    /// Words of the table for one position, after those there are.
    pub fn append(&self, pos: usize, out: &mut Vec<u32>) {
        if let Some((rows, width)) = &self.learned {
            match rows.get(pos * width..).and_then(|rest| rest.get(..*width)) {
                Some(row) => out.extend(row.iter().map(|v| canon(*v).to_bits())),
                None => out.extend(std::iter::repeat_n(POISON.to_bits(), *width)),
            }
            return;
        }
        for f in &self.frequencies {
            let angle = pos as f64 * f;
            for v in [libm::cos(angle), libm::sin(angle)] {
                out.push(canon((v * self.magnitude) as f32).to_bits());
            }
        }
    }
}
