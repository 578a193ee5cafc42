//! The shapes that drivers are known to rewrite, and the shared arithmetic: what a device must get right to be called exact.

use crate::ops::exact::{
    canon, f16_to_f32, f32_to_f16, fdiv, fexp, fsqrt, ftanh, greater, i2f, round_away, sigmoid, sticky,
};
use crate::ops::params::{At, Params, params};
use crate::ops::{geglu, gelu, softcap};

/// Floats read per row.
pub const INPUTS: usize = 16;

/// Words written per row.
pub const WORDS: usize = 53;

params! {
    /// Parameters of `float_probe`.
    pub struct FloatProbeParams {
        /// rows
        pub n_tokens: u32,
    }
}

impl Params for FloatProbeParams {
    const FLOAT_STRIDE: Option<usize> = None;

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n })
    }

    fn groups(&self) -> [u32; 2] {
        [self.n_tokens.div_ceil(64), 1]
    }
}

fn sum_of(v: f32, shift: u32) -> i32 {
    (v.to_bits() << shift) as i32 >> 7
}

fn half_of(v: f32) -> f32 {
    f16_to_f32((v.to_bits() >> 3 & 0x7bff) as u16)
}

fn two_digits(v: f32) -> f32 {
    i2f(sum_of(v, 3)) * 128.0 + i2f(sum_of(v, 11))
}

fn blocks(first: &[f32], second: &[f32]) -> f32 {
    let mut t = 0.0;
    for b in 0..4 {
        t += half_of(first[b]) * two_digits(second[b]);
    }
    t
}

fn blocks_with_minima(x: &[f32]) -> f32 {
    let mut t = 0.0;
    for b in 0..4 {
        let s = half_of(x[b]) * i2f(sum_of(x[4 + b], 5));
        let m = half_of(x[8 + b]) * i2f(sum_of(x[12 + b], 6));
        t += s + m;
    }
    t
}

fn segments_of(x: &[f32]) -> f32 {
    let mut total = 0f32;
    for s in 0..2 {
        let mut acc = 0f32;
        for g in 0..3 {
            let i = 3 * s + g;
            acc += x[i] * half_of(x[i + 7]);
        }
        total += acc;
    }
    canon(total)
}

fn four_rows(x: &[f32]) -> [f32; 4] {
    let mut acc = [0f32; 4];
    for i in 0..3 {
        let codes = [sum_of(x[i], 4), sum_of(x[i], 8), sum_of(x[i], 2), -7];
        for (acc, c) in acc.iter_mut().zip(codes) {
            let v = i2f(c) * 128.0 + i2f(c >> 9);
            *acc += x[4 + i] * v;
        }
    }
    acc
}

fn parts_less_minima(x: &[f32]) -> f32 {
    let mut t = 0f32;
    for part in 0..2 {
        let u = (half_of(x[part]) * 0.125) * i2f(sum_of(x[2 + part], 1));
        t += u - half_of(x[4 + part]) * i2f(sum_of(x[6 + part], 7));
    }
    t
}

fn combined(x: &[f32], before: f32) -> f32 {
    let mut acc = 0f32;
    for s in 0..3 {
        acc += x[s] * x[4 + s];
    }
    canon(before + canon(acc))
}

/// What came with later models: activations, caps, norms with a mean, experts, blocks of parts.
fn later(r: &[f32]) -> [f32; 9] {
    let [a, b, c, d, e, f, g, h] = *r.first_chunk().expect("a row has more");
    let gate = f.clamp(-80.0, 80.0);
    let centred = canon(r[8] - r[9]);
    let tanh = ftanh(d).to_bits() ^ softcap::element(e, 30.0, 0.033333335).to_bits() << 1;
    [
        geglu::element(false, a, c),
        gelu::element(true, b),
        f32::from_bits(tanh),
        canon((gate * sigmoid(1.702 * gate)) * (h + 1.0)),
        canon(canon((centred * r[10]) * r[11]) + g),
        canon(b + canon(h * r[13])),
        i2f(sum_of(h, 4)) * r[12] * r[14] + c,
        parts_less_minima(&r[8..]),
        combined(&r[8..], d),
    ]
}

/// `x`: `[row][INPUTS]`; `out`: `[row][WORDS]`.
pub fn float_probe(p: &FloatProbeParams, x: &[f32], out: &mut [u32]) {
    for row in 0..p.n_tokens as usize {
        let r = &x[row * INPUTS..][..INPUTS];
        let [a, b, c, d, e, f, g, h] = *r.first_chunk().expect("a row has more");
        let mut acc = 0f32;
        for i in 0..4 {
            acc += r[i] * r[8 + i];
        }
        let two_sum = a + h;
        let rest = two_sum - a;
        let dot: i32 = a
            .to_bits()
            .to_le_bytes()
            .iter()
            .zip(b.to_bits().to_le_bytes())
            .map(|(x, y)| i32::from(*x as i8) * i32::from(y as i8))
            .sum();
        let rows = four_rows(&r[8..]).map(f32::to_bits);
        let mut squares = 0f32;
        for v in &r[8..] {
            squares += v * v;
        }
        let weight = fexp(f.clamp(-30.0, 0.0));
        let bounded = h.clamp(-80.0, 80.0);
        let large = (h.abs() + 1.0) * 3.0e38;
        let infinite = large * 1.0e10;
        let no_number = infinite - large * 2.0e10;
        let words = [
            (a + b).to_bits(),
            (a * b).to_bits(),
            (c * d + e).to_bits(),
            (e * f - g * h).to_bits(),
            (a * c + a * d).to_bits(),
            ((f + g) - f).to_bits(),
            ((b * 1.1) * 1.3).to_bits(),
            ((c + 1.1) + 1.3).to_bits(),
            ((d + 12582912.0) - 12582912.0).to_bits(),
            acc.to_bits(),
            (((b + c) + d) + e).to_bits(),
            ((a - (two_sum - rest)) + (h - rest)).to_bits(),
            fdiv(a, b).to_bits(),
            fsqrt(c.abs()).to_bits(),
            fexp(d.clamp(-100.0, 100.0)).to_bits(),
            sigmoid(e.clamp(-100.0, 100.0)).to_bits(),
            f32_to_f16(f).into(),
            f16_to_f32((g.to_bits() & 0x7bff) as u16).to_bits(),
            i2f((a.to_bits() ^ (b.to_bits() << 3)) as i32).to_bits(),
            dot as u32,
            round_away((h * 3.0).clamp(-30000.0, 30000.0)) as u32,
            c.clamp(-30000.0, 30000.0).round_ties_even().to_bits(),
            canon(a).to_bits(),
            (a * e).max(b.min(c)).to_bits(),
            (b * d + e).to_bits(),
            (b * e + f).to_bits(),
            (b * f + g).to_bits(),
            blocks(r, &r[9..]).to_bits(),
            blocks_with_minima(r).to_bits(),
            (half_of(c) * two_digits(f) - half_of(d) * two_digits(g)).to_bits(),
            segments_of(r).to_bits(),
            rows[0] ^ rows[1] << 1 ^ rows[2] << 2 ^ rows[3] << 3,
            squares.to_bits(),
            canon((c * g) * h).to_bits(),
            canon(a * f - b * g).to_bits(),
            ((a + c) - (b + d)).to_bits(),
            (canon(a * weight) + canon(e * g)).to_bits(),
            canon((bounded * sigmoid(bounded)) * g).to_bits(),
            canon(infinite).to_bits(),
            canon(no_number).to_bits(),
            canon(no_number * 0.0).to_bits(),
            fexp(no_number).to_bits()
                ^ fdiv(a, no_number).to_bits() << 1
                ^ fsqrt(infinite).to_bits() << 2
                ^ fexp(-infinite).to_bits() << 3,
            greater(greater(a, b), greater(c, d)).to_bits(),
            greater(greater(e, sticky(no_number)), f).to_bits(),
        ];
        let out = &mut out[row * WORDS..][..WORDS];
        out[..words.len()].copy_from_slice(&words);
        out[words.len()..].copy_from_slice(&later(r).map(f32::to_bits));
    }
}

/// Rows of chosen and random inputs in the range the engine computes in; no subnormal, no zero divisor, and no
/// sum that cancels to a subnormal: devices may differ there, and [`faint_inputs`] asks how.
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
    (0..rows * INPUTS)
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

/// One more row, whose word 1 is the product of 2^-126 and 1/2: the number below 2^-126 where the device keeps subnormals,
/// 0 where it flushes them. Not compared: no operation makes one whose bits are looked at.
pub fn faint_inputs() -> [f32; INPUTS] {
    let mut row = [1.0; INPUTS];
    (row[0], row[1]) = (f32::MIN_POSITIVE, 0.5);
    row
}
