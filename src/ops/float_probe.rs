//! The shapes that drivers are known to rewrite, and the shared arithmetic: what a device must get right to be called exact.

use crate::ops::exact::{canon, f16_to_f32, f32_to_f16, fdiv, fexp, fsqrt, i2f, round_away, sigmoid};

/// Words written per row.
pub const WORDS: usize = 24;

/// Parameters of `float_probe`.
#[derive(Clone, Copy, Debug, PartialEq, encase::ShaderType)]
pub struct FloatProbeParams {
    /// rows
    pub n_tokens: u32,
}

/// `x`: `[row][4]`; `out`: `[row][WORDS]`.
pub fn float_probe(p: &FloatProbeParams, x: &[f32], out: &mut [u32]) {
    for row in 0..p.n_tokens as usize {
        let r = &x[row * 4..][..4];
        let (a, b, c, d) = (r[0], r[1], r[2], r[3]);
        let mut acc = 0f32;
        for v in r {
            acc += v * b;
        }
        let two_sum = a + b;
        let bb = two_sum - a;
        let dot: i32 = a
            .to_bits()
            .to_le_bytes()
            .iter()
            .zip(b.to_bits().to_le_bytes())
            .map(|(x, y)| i32::from(*x as i8) * i32::from(y as i8))
            .sum();
        let words = [
            (a + b).to_bits(),
            (a * b).to_bits(),
            (a * b + c).to_bits(),
            (a * b - c * d).to_bits(),
            (a * b + a * c).to_bits(),
            ((a + b) - a).to_bits(),
            ((a * 1.1) * 1.3).to_bits(),
            ((a + 1.1) + 1.3).to_bits(),
            ((a + 12582912.0) - 12582912.0).to_bits(),
            acc.to_bits(),
            (((a + b) + c) + d).to_bits(),
            ((a - (two_sum - bb)) + (b - bb)).to_bits(),
            fdiv(a, b).to_bits(),
            fsqrt(c.abs()).to_bits(),
            fexp(d.clamp(-100.0, 100.0)).to_bits(),
            sigmoid(a.clamp(-100.0, 100.0)).to_bits(),
            f32_to_f16(a).into(),
            f16_to_f32((b.to_bits() & 0x7bff) as u16).to_bits(),
            i2f((a.to_bits() ^ (b.to_bits() << 3)) as i32).to_bits(),
            dot as u32,
            round_away((c * 3.0).clamp(-30000.0, 30000.0)) as u32,
            c.clamp(-30000.0, 30000.0).round_ties_even().to_bits(),
            canon(a).to_bits(),
            (a * d).max(b.min(c)).to_bits(),
        ];
        out[row * WORDS..][..WORDS].copy_from_slice(&words);
    }
}

/// Rows of chosen and random inputs in the range the engine computes in; no subnormal, no zero divisor, and no
/// sum that cancels to a subnormal.
pub fn inputs(rows: usize) -> Vec<f32> {
    let chosen = [
        1.0f32,
        -1.0,
        3.0,
        0.1,
        -0.3,
        16777216.0,
        16777215.0,
        1.0e-9,
        -7.25,
        0.5,
        1.5,
        2.5,
        65504.0,
        65519.9,
        0.333_333_34,
        1.0e9,
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u32
    };
    (0..rows * 4)
        .map(|i| {
            if i % 3 == 0 {
                return chosen[next() as usize % chosen.len()];
            }
            // sign and significand random, exponent 2^-20 .. 2^20
            let r = next();
            f32::from_bits((r & 0x8000_0000 | r << 31) | (107 + next() % 41) << 23 | (next() & 0x7f_ffff))
        })
        .collect()
}
