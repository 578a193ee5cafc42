//! The bytes of a tensor, by its name and their place alone.

use super::{Role, Tensor};
use crate::blocks::{BlockType, f32_to_bf16, f32_to_f16, nvfp4};
use crate::random;
use rayon::prelude::*;

/// Makes the bytes of one tensor.
pub(super) struct Generator {
    ty: BlockType,
    /// of divisors of a rotation, how many are 1
    turned: Option<u32>,
    pub len: u64,
    noise: Noise,
    /// scales of quantised blocks, a little apart; and the minimum that goes with each
    scales: [(f32, f32); 32],
}

/// Nearly Gaussian noise of one tensor, by integer operations and one multiplication: the same on every machine.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    key: u64,
    /// what one unit of the integer sum is worth
    unit: f32,
    mean: f32,
}

impl Noise {
    /// Of the tensor of this name, with this mean and standard deviation; another seed gives other noise.
    pub fn new(seed: u64, name: &str, mean: f32, std: f64) -> Noise {
        // FNV-1a over the name, so that tensors are independent
        let name = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        // the sum of four uniform 16-bit numbers has this deviation: sqrt(4 * (2^32 - 1) / 12)
        let sigma = (((1u64 << 32) - 1) as f64 / 3.0).sqrt();
        Noise { key: random::mix(random::mix(seed) ^ name), unit: (std / sigma) as f32, mean }
    }

    /// 64 random bits, of place `i`.
    fn word(&self, i: u64) -> u64 {
        random::mix(self.key.wrapping_add(i.wrapping_add(1).wrapping_mul(random::GAMMA)))
    }

    /// 64 random bits of a second series, for choices about the tensor.
    pub fn choice(&self, i: u64) -> u64 {
        random::mix(self.key ^ i.wrapping_add(1))
    }

    /// Element `index`, within 3.5 standard deviations of the mean.
    pub fn at(&self, index: u64) -> f32 {
        const HALVES: u64 = 0x0000_ffff_0000_ffff;
        let h = self.word(index);
        let pairs = (h & HALVES) + ((h >> 16) & HALVES);
        let sum = (pairs as u32) as i32 + (pairs >> 32) as i32 - 2 * 65535;
        self.mean + sum as f32 * self.unit
    }
}

/// The divisor of pair `i` of a rotation, of which so many are turned.
pub fn divisor(turned: u32, i: u64) -> f32 {
    if i < turned.into() { 1.0 } else { 1e30 }
}

impl Generator {
    pub fn new(t: &Tensor, ty: BlockType) -> Generator {
        // deviation of the codes (uniform), times the root mean square of the sub-block scales; the middle code
        let (spread, middle) = match ty {
            BlockType::Q4_K => (4.61 * 48.4, 7.5),
            BlockType::Q5_K => (9.23 * 48.4, 15.5),
            BlockType::Q6_K => (18.47 * 97.2, 0.0),
            BlockType::Q8_0 => (73.9, 0.0),
            BlockType::Q4_0 => (4.61, 0.0),
            BlockType::Q5_0 => (9.23, 0.0),
            BlockType::Q4_1 => (4.61, -7.5),
            BlockType::Q5_1 => (9.23, -15.5),
            BlockType::W8A16 => (73.9, 0.0),
            BlockType::W4A16 => (4.64, 0.0),
            BlockType::Q2_K => (1.118 * 11.73, 1.5),
            BlockType::Q3_K => (2.345 * 18.48, 0.0),
            BlockType::IQ4_NL => (67.44, 0.0),
            BlockType::IQ4_XS => (67.44 * 18.48, 0.0),
            // all rows of the codebook alike, times odd scales to 31, of IQ1 to 15
            BlockType::IQ3_S => (7.594 * 18.47, 0.0),
            BlockType::IQ3_XXS => (30.85 * 18.47 / 4.0, 0.0),
            BlockType::IQ2_S => (24.43 * 18.47 / 8.0, 0.0),
            BlockType::IQ2_XS => (24.22 * 18.47 / 8.0, 0.0),
            BlockType::IQ2_XXS => (23.12 * 18.47 / 8.0, 0.0),
            BlockType::IQ1_S | BlockType::IQ1_M => (6.247 * 9.22 / 8.0, 0.0),
            BlockType::TQ1_0 => (0.8173, 0.0),
            BlockType::TQ2_0 | BlockType::Q2_0 => (1.225, 0.0),
            BlockType::MXFP4 | BlockType::NVFP4 => (5.852, 0.0),
            _ => (1.0, 0.0),
        };
        let d = (t.std / spread) as f32;
        let scales = std::array::from_fn(|i| {
            let d = d * (0.9 + i as f32 * (0.2 / 31.0));
            (d, d * middle)
        });
        let noise = Noise::new(1, &t.name, t.role.mean(), t.std);
        let turned = if let Role::Turns(n) = t.role { Some(n) } else { None };
        Generator { ty, turned, len: t.rows * t.cols / ty.elems() as u64 * ty.bytes() as u64, noise, scales }
    }

    /// Fills `out` with the bytes from `at` on.
    pub fn read(&self, at: u64, out: &mut [u8]) {
        let block = self.ty.bytes() as u64;
        let (first, skip) = (at / block, (at % block) as usize);
        if skip > 0 || !(out.len() as u64).is_multiple_of(block) {
            // not whole blocks: what tests of a file's reader ask for
            let mut whole = vec![0; (skip + out.len()).next_multiple_of(block as usize)];
            self.blocks(first, &mut whole);
            return out.copy_from_slice(&whole[skip..][..out.len()]);
        }
        self.blocks(first, out);
    }

    fn blocks(&self, first: u64, out: &mut [u8]) {
        const AT_ONCE: usize = 4096;
        let size = self.ty.bytes();
        out.par_chunks_mut(AT_ONCE * size).enumerate().for_each(|(i, part)| {
            let first = first + (i * AT_ONCE) as u64;
            for (j, block) in part.chunks_exact_mut(size).enumerate() {
                self.block(first + j as u64, block);
            }
        });
    }

    fn block(&self, index: u64, out: &mut [u8]) {
        if self.ty.elems() == 1 {
            let v = match self.turned {
                Some(n) => divisor(n, index),
                None => self.noise.at(index),
            };
            match self.ty {
                BlockType::F16 => out.copy_from_slice(&f32_to_f16(v).to_le_bytes()),
                BlockType::BF16 => out.copy_from_slice(&f32_to_bf16(v).to_le_bytes()),
                _ => out.copy_from_slice(&v.to_le_bytes()),
            }
            return;
        }
        // 64 words a block: more than the largest takes
        let word = |i: u64| self.noise.word(index.wrapping_mul(64).wrapping_add(i));
        for (i, part) in out.chunks_mut(8).enumerate() {
            part.copy_from_slice(&word(i as u64).to_le_bytes()[..part.len()]);
        }
        let h = word(63);
        let (scale, minimum) = self.scales[(h & 31) as usize];
        let (d, dmin) = (f32_to_f16(scale), f32_to_f16(minimum));
        let coin = (h >> 5) as u16 & 1;
        match self.ty {
            BlockType::Q4_K | BlockType::Q5_K => {
                out[..2].copy_from_slice(&d.to_le_bytes());
                out[2..4].copy_from_slice(&dmin.to_le_bytes());
                // six-bit scales of 32 to 63, and minima alike, so that every sub-block has mean zero
                let sc: [u8; 8] = std::array::from_fn(|i| 32 | (out[4 + i] & 31));
                for i in 0..4 {
                    let high = sc[i + 4] >> 4 << 6;
                    (out[4 + i], out[8 + i]) = (sc[i] | high, sc[i] | high);
                    out[12 + i] = (sc[i + 4] & 15) * 0x11;
                }
            }
            BlockType::Q6_K => {
                // magnitudes of 64 to 127, both signs
                out[192..208].iter_mut().for_each(|s| {
                    let magnitude = 64 | (*s & 63) as i8;
                    *s = (if *s & 64 == 0 { magnitude } else { -magnitude }) as u8;
                });
                out[208..].copy_from_slice(&d.to_le_bytes());
            }
            BlockType::Q4_1 | BlockType::Q5_1 => {
                out[..2].copy_from_slice(&d.to_le_bytes());
                out[2..4].copy_from_slice(&dmin.to_le_bytes());
            }
            // the middle of the codes lies between two of them: offsets are either
            BlockType::W8A16 | BlockType::W4A16 => {
                let middle = if self.ty == BlockType::W8A16 { 0 } else { 8 };
                out[..4].copy_from_slice(&scale.to_le_bytes());
                out[4] = (middle - coin as i8) as u8;
            }
            BlockType::Q2_K => {
                // scales of 8 to 15, and minima alike
                out[..16].iter_mut().for_each(|s| *s = (8 | *s & 7) * 0x11);
                out[80..82].copy_from_slice(&d.to_le_bytes());
                out[82..].copy_from_slice(&dmin.to_le_bytes());
            }
            // the scales that there are: of the two beside the one that is meant now this and now that
            BlockType::MXFP4 => {
                out[0] = beside(scale, (scale.to_bits() >> 23) as u8 + 1, |e| 2f32.powi(i32::from(e) - 128), h >> 8);
            }
            BlockType::NVFP4 => {
                let below = (0..0x7e).rev().find(|&byte| nvfp4::scale(byte) <= scale).unwrap_or(0);
                for (i, s) in out[..4].iter_mut().enumerate() {
                    *s = beside(scale, below, nvfp4::scale, h >> (8 + 14 * i));
                }
            }
            BlockType::IQ1_M => {
                let d = d | coin << 15;
                for (i, s) in out[48..].iter_mut().skip(1).step_by(2).enumerate() {
                    *s = *s & 15 | ((d >> (4 * i)) as u8) << 4;
                }
            }
            // codes lie half a step below zero, or nobody knows where, so scales have both signs
            _ => {
                let at = self.ty.format().numbers[0].at;
                out[at..at + 2].copy_from_slice(&(d | coin << 15).to_le_bytes());
            }
        }
    }
}

/// The byte `below` or the next, so often either that their scales squared are `scale` squared in the mean; `h` has 14 random
/// bits.
fn beside(scale: f32, below: u8, value: impl Fn(u8) -> f32, h: u64) -> u8 {
    let [low, high] = [below, below + 1].map(|byte| value(byte) * value(byte));
    let share = (scale * scale - low) / (high - low);
    below + u8::from(((h & 0x3fff) as f32) < share * 16384.0)
}
