//! Embedding lookup: one row of a packed matrix, decoded to f32, per token id.

use crate::blocks::{BlockType, pack};
use crate::ops::exact::{canon, f16_to_f32};

/// Parameters of every `embed_*`.
#[derive(Clone, Copy, Debug, PartialEq, encase::ShaderType)]
pub struct EmbedParams {
    /// token ids
    pub n_tokens: u32,
    /// elements in a row
    pub dim: u32,
    /// vocabulary id of row 0 of this part
    pub row0: u32,
    /// rows in this part; ids outside `row0..row0 + rows` are left alone
    pub rows: u32,
}

/// `ids`: `[token]`; `w`: packed rows (`docs/exactness.md` section 3); `x`: `[token][dim]`.
pub fn embed(t: BlockType, p: &EmbedParams, ids: &[u32], w: &[u32], x: &mut [f32]) {
    let dim = p.dim as usize;
    let words = pack::words_per_row(t, dim);
    for (i, &id) in ids[..p.n_tokens as usize].iter().enumerate() {
        let row = id.wrapping_sub(p.row0);
        if row >= p.rows {
            continue;
        }
        let base = (row as usize / 32) * words * 32 + row as usize % 32;
        let word = |i: usize| w[base + i * 32];
        for e in 0..dim {
            x[i * dim + e] = canon(element(t, &word, e));
        }
    }
}

fn byte(word: &dyn Fn(usize) -> u32, first: usize, i: usize) -> u32 {
    (word(first + i / 4) >> (8 * (i % 4))) & 255
}

/// Code of element `e` of a group of Q5_0 or Q5_1 whose fifth bits start at word `high`; the nibbles follow.
fn five_bits(word: &dyn Fn(usize) -> u32, high: usize, e: usize) -> u32 {
    let (b, e) = (e / 32, e % 32);
    let nibble = byte(word, high + 4 + 4 * b, e % 16) >> (4 * (e / 16)) & 15;
    nibble | (word(high + b) >> (8 * (e % 4) + e / 4) & 1) << 4
}

/// Element `e` of a row given by its packed words, with the format's own decode arithmetic.
fn element(t: BlockType, word: &dyn Fn(usize) -> u32, e: usize) -> f32 {
    match t {
        BlockType::F32 => f32::from_bits(word(e)),
        BlockType::F16 => f16_to_f32((word(e / 2) >> (16 * (e % 2))) as u16),
        BlockType::BF16 => f32::from_bits((word(e / 2) >> (16 * (e % 2)) & 0xffff) << 16),
        BlockType::Q8_0 => {
            let (g, b, i) = (e / 128 * 34, e % 128 / 32, e % 128);
            let d = f16_to_f32((word(g + b / 2) >> (16 * (b % 2))) as u16);
            f32::from(byte(word, g + 2, i) as u8 as i8) * d
        }
        BlockType::Q4_0 => {
            let (g, b, i) = (e / 128 * 18, e % 128 / 32, e % 32);
            let d = f16_to_f32((word(g + b / 2) >> (16 * (b % 2))) as u16);
            let q = byte(word, g + 2 + 4 * b, i % 16) >> (4 * (i / 16)) & 15;
            (q as f32 - 8.0) * d
        }
        BlockType::Q5_0 => {
            let (g, b) = (e / 128 * 22, e % 128 / 32);
            let d = f16_to_f32((word(g + b / 2) >> (16 * (b % 2))) as u16);
            (five_bits(word, g + 2, e % 128) as f32 - 16.0) * d
        }
        BlockType::Q5_1 => {
            let g = e / 128 * 24;
            let head = word(g + e % 128 / 32);
            five_bits(word, g + 4, e % 128) as f32 * f16_to_f32(head as u16) + f16_to_f32((head >> 16) as u16)
        }
        BlockType::Q4_K | BlockType::Q5_K => {
            let s = e / 256 * if t == BlockType::Q4_K { 36 } else { 44 };
            let (j, l, g) = (e % 256 / 32, e % 32, e % 256 / 64);
            let d = f16_to_f32((word(s)) as u16);
            let dmin = f16_to_f32((word(s) >> 16) as u16);
            let (u0, u1, u2) = (word(s + 1), word(s + 2), word(s + 3));
            let (sc, m) = if j < 4 {
                (u0 & 0x3f3f3f3f, u1 & 0x3f3f3f3f)
            } else {
                (
                    (u2 & 0x0f0f0f0f) | ((u0 >> 6) & 0x03030303) << 4,
                    ((u2 >> 4) & 0x0f0f0f0f) | ((u1 >> 6) & 0x03030303) << 4,
                )
            };
            let (sc, m) = (sc >> (8 * (j % 4)) & 255, m >> (8 * (j % 4)) & 255);
            let qs = if t == BlockType::Q4_K { s + 4 } else { s + 12 };
            let mut q = byte(word, qs, 32 * g + l) >> (4 * (j % 2)) & 15;
            if t == BlockType::Q5_K {
                q += (byte(word, s + 4, l) >> j & 1) << 4;
            }
            (d * sc as f32) * q as f32 - dmin * m as f32
        }
        BlockType::Q6_K => {
            let s = e / 256 * 53;
            let (h, t4, l) = (e % 256 / 128, e % 128 / 32, e % 32);
            let d = f16_to_f32((word(s)) as u16);
            let sc = byte(word, s + 1, e % 256 / 16) as u8 as i8;
            let lo = byte(word, s + 5, 64 * h + l + 32 * (t4 % 2)) >> (4 * (t4 / 2)) & 15;
            let hi = byte(word, s + 37, 32 * h + l) >> (2 * t4) & 3;
            (d * f32::from(sc)) * ((lo | hi << 4) as f32 - 32.0)
        }
        BlockType::Q8K128 => {
            let g = e / 128 * 33;
            f32::from_bits(word(g)) * f32::from(byte(word, g + 1, e % 128) as u8 as i8)
        }
        BlockType::Q8_K => unreachable!("Q8_K is packed as Q8K128"),
    }
}
