//! `*_encode`: f32 rows to Q8_0, Q4_0 and Q8K128 blocks, the bytes of `blocks` made of the shared arithmetic.
//!
//! A unit is a number of blocks that is whole words: two of 32 elements, or one of 128. A unit that holds a block whose
//! largest magnitude lies outside 2^-100..2^18 (and is not 0) is flagged in its last word; its other words are to be
//! encoded by `blocks`, since a scale or its inverse may leave the normal numbers or the f16 range.

use crate::blocks::BlockType;
use crate::ops::exact::{f32_to_f16, fdiv, round_away};
use crate::ops::params::{At, Params, params};
use crate::ops::types::twins;

params! {
    /// Parameters of `*_encode`, in the order of the shader's uniform struct.
    pub struct EncodeParams {
        /// units
        pub n_tokens: u32,
    }
}

impl Params for EncodeParams {
    const FLOAT_STRIDE: Option<usize> = None;

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n })
    }

    fn groups(&self) -> [u32; 2] {
        [self.n_tokens.div_ceil(64), 1]
    }
}

/// Elements of a unit, and its words with the flag; `None` for types without an encoder.
pub fn unit(t: BlockType) -> Option<(usize, usize)> {
    match t {
        BlockType::Q8_0 => Some((64, 18)),
        BlockType::Q4_0 => Some((64, 10)),
        BlockType::Q8K128 => Some((128, 38)),
        _ => None,
    }
}

/// The stem of a type's encoder; `None` where there is none.
pub fn stem(t: BlockType) -> Option<&'static str> {
    unit(t).map(|_| twins(t).stems.encode)
}

/// The first element of the largest magnitude, and that magnitude's bits.
fn peak(x: &[f32]) -> (f32, u32) {
    let (mut value, mut top) = (0.0, 0);
    for v in x {
        let bits = v.to_bits() & 0x7fff_ffff;
        if bits > top {
            (value, top) = (*v, bits);
        }
    }
    (value, top)
}

fn tame(bits: u32) -> bool {
    (27 << 23..145 << 23).contains(&bits)
}

/// `x` `[unit][elements]` to `blocks` `[unit][words and a flag]`.
///
/// # Panics
/// When `t` has no encoder or a length does not fit.
pub fn encode(t: BlockType, p: &EncodeParams, x: &[f32], blocks: &mut [u32]) {
    let (elems, words) = unit(t).unwrap_or_else(|| panic!("{} has no encoder", t.name()));
    for u in 0..p.n_tokens as usize {
        let (x, out) = (&x[u * elems..][..elems], &mut blocks[u * words..][..words]);
        out[words - 1] = match t {
            BlockType::Q8_0 => q8_0(x, out),
            BlockType::Q4_0 => q4_0(x, out),
            _ => q8k128(x, out),
        };
    }
}

/// Half words side by side, low half first.
fn put(halves: &[u32], out: &mut [u32]) {
    for (word, h) in out.iter_mut().zip(halves.chunks(2)) {
        *word = h[0] | (h[1] << 16);
    }
}

fn q8_0(x: &[f32], out: &mut [u32]) -> u32 {
    let (mut halves, mut flag) = ([0u32; 34], 0);
    for b in 0..2 {
        let x = &x[32 * b..][..32];
        let (value, bits) = peak(x);
        let (mut d, mut id) = (0.0, 0.0);
        if tame(bits) {
            d = fdiv(value.abs(), 127.0);
            id = fdiv(1.0, d);
        } else if bits != 0 {
            flag = 1;
        }
        halves[17 * b] = u32::from(f32_to_f16(d));
        for i in 0..16 {
            let code = |v: f32| u32::from(round_away(v * id) as u8);
            halves[17 * b + 1 + i] = code(x[2 * i]) | (code(x[2 * i + 1]) << 8);
        }
    }
    put(&halves, out);
    flag
}

fn q4_0(x: &[f32], out: &mut [u32]) -> u32 {
    let (mut halves, mut flag) = ([0u32; 18], 0);
    for b in 0..2 {
        let x = &x[32 * b..][..32];
        let (value, bits) = peak(x);
        // the scale of zeros is -0, as 0 / -8 has it
        let (mut scale, mut id) = (0x8000, 0.0);
        if tame(bits) {
            let d = value * -0.125;
            scale = u32::from(f32_to_f16(d));
            id = fdiv(1.0, d);
        } else if bits != 0 {
            flag = 1;
        }
        halves[9 * b] = scale;
        let code = |v: f32| ((v * id + 8.5).trunc() as i32).clamp(0, 15) as u32;
        for i in 0..8 {
            let pair = |e: usize| code(x[e]) | (code(x[e + 16]) << 4);
            halves[9 * b + 1 + i] = pair(2 * i) | (pair(2 * i + 1) << 8);
        }
    }
    put(&halves, out);
    flag
}

fn q8k128(x: &[f32], out: &mut [u32]) -> u32 {
    let (value, bits) = peak(x);
    // the scale of zeros is 1
    let (mut d, mut inv, mut flag) = (1.0f32, 0.0, 0);
    if tame(bits) {
        d = fdiv(value.abs(), 127.0);
        inv = fdiv(1.0, d);
    } else if bits != 0 {
        flag = 1;
    }
    out[0] = d.to_bits();
    for pair in 0..4 {
        let mut sums = 0;
        for half in 0..2 {
            let mut sum = 0;
            for w in 0..4 {
                let word = pair * 8 + half * 4 + w;
                let mut codes = 0;
                for i in 0..4 {
                    let c = round_away(x[word * 4 + i] * inv).clamp(-127, 127);
                    sum += c;
                    codes |= u32::from(c as u8) << (8 * i);
                }
                out[1 + word] = codes;
            }
            sums |= u32::from(sum as u16) << (16 * half);
        }
        out[33 + pair] = sums;
    }
    flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_without_a_flag_hold_the_bytes_of_blocks_and_extreme_ones_are_flagged() {
        let x: Vec<f32> = (0..1280)
            .map(|i| match i / 128 {
                0 => 0.0,
                1 => -0.0,
                8 => 1e-35,
                9 => 3e5,
                _ => ((i * 7919 % 1009) as f32 - 504.0) * 0.37,
            })
            .collect();
        for t in [BlockType::Q8_0, BlockType::Q4_0, BlockType::Q8K128] {
            let (elems, words) = unit(t).unwrap();
            let n = x.len() / elems;
            let mut out = vec![0; n * words];
            encode(t, &EncodeParams { n_tokens: n as u32 }, &x, &mut out);
            for (u, (x, out)) in x.chunks(elems).zip(out.chunks(words)).enumerate() {
                let mut want = vec![0; t.row_bytes(elems).unwrap()];
                t.encode_row(x, &mut want);
                let extreme = u * elems / 128 >= 8;
                assert_eq!(out[words - 1], u32::from(extreme), "{} unit {u}", t.name());
                if !extreme {
                    assert_eq!(bytemuck::cast_slice::<u32, u8>(&out[..words - 1]), want, "{} unit {u}", t.name());
                }
            }
        }
    }
}
