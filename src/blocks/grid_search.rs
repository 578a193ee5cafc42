//! The search of the IQ2, IQ3 and IQ1 encoders for scales and rows of a codebook.

use super::{f16_to_f32, f32_to_f16};

/// What a block of 256 elements is put together from.
pub(super) struct Parts {
    /// the scale of the scales, binary16
    pub d: u16,
    /// the stored scales of up to sixteen sub-blocks
    pub scales: [u8; 16],
    /// the row of the codebook of each eight (IQ3: four) elements
    pub rows: [u16; 64],
    /// a bit for each of eight elements; of IQ1 only bit 0, the shift
    pub signs: [u8; 32],
}

impl Parts {
    /// The word of four times seven signs and a scale above, of sub-block `j` of 32.
    pub fn signs_and_scale(&self, j: usize) -> u32 {
        let signs = (0..4).fold(0, |w, l| w | ((self.signs[4 * j + l] & 127) as u32) << (7 * l));
        signs | (self.scales[j] as u32) << 28
    }

    /// The scales, two to a byte.
    pub fn nibbles<const N: usize>(&self) -> [u8; N] {
        std::array::from_fn(|i| self.scales[2 * i] | self.scales[2 * i + 1] << 4)
    }
}

/// How a type stores signs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Signs {
    /// a bit for each element
    Free,
    /// seven bits for eight elements, whose number of minus signs is even
    Even,
    /// none: the codebook has both
    None,
}

pub(super) fn crude<const W: usize>(grid: &[[u32; W]], sub: usize, unit: f32, signs: Signs, x: &[f32; 256]) -> Parts {
    let value = |row: usize, i: usize| {
        let v = grid[row][i / 4].to_le_bytes()[i % 4] as i8;
        if signs == Signs::None { 8.0 * v as f32 + 1.0 } else { v as f32 }
    };
    let (top, fields) = match (W, signs) {
        (_, Signs::None) => (9.0, 7.0),
        (2, _) => (43.0, 15.0),
        _ => (value(0, 0).max(if unit == 1.0 { 15.0 } else { 62.0 }), 15.0),
    };
    let amax = |x: &[f32]| x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let d = f32_to_f16(amax(x) / (top * unit * (2.0 * fields + 1.0)));
    let step = f16_to_f32(d) * unit;
    let mut parts = Parts { d, scales: [0; 16], rows: [0; 64], signs: [0; 32] };
    for (j, x) in x.chunks_exact(sub).enumerate() {
        let field = if step > 0.0 { (0.5 * (amax(x) / (top * step) - 1.0)).round().clamp(0.0, fields) } else { 0.0 };
        parts.scales[j] = field as u8;
        let step = step * (2.0 * field + 1.0);
        let mut x = x.to_vec();
        if signs != Signs::None {
            for (k, x) in x.chunks_exact_mut(8).enumerate() {
                let mut minus = (0..8).fold(0u8, |m, i| m | ((x[i] < 0.0) as u8) << i);
                x.iter_mut().for_each(|v| *v = v.abs());
                if signs == Signs::Even && minus.count_ones() % 2 == 1 {
                    let i = (0..8).fold(0, |b, i| if x[i] < x[b] { i } else { b });
                    minus ^= 1 << i;
                    x[i] = -x[i];
                }
                parts.signs[j * sub / 8 + k] = minus;
            }
        }
        for (k, x) in x.chunks_exact(4 * W).enumerate() {
            let error = |row: usize| (0..4 * W).map(|i| (x[i] - step * value(row, i)).powi(2)).sum::<f32>();
            let mut best = (f32::INFINITY, 0);
            for row in 0..grid.len() {
                let e = error(row);
                if e < best.0 {
                    best = (e, row);
                }
            }
            parts.rows[j * sub / (4 * W) + k] = best.1 as u16;
        }
    }
    parts
}
