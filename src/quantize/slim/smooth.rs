//! Smooth quant: large channels of the activations made smaller, and the columns that meet them larger.
//!
//! Between a norm and the matrices that read it alone (queries, keys and values; gate and up), channel c of the
//! activations is divided by s = a^α / w^(1-α), where a is the greatest magnitude the channel had over a text and w the
//! greatest of the columns c of those matrices; the columns are multiplied by it. The division is the norm's: its weight
//! becomes m = weight / s in the type it has in the file, and what the columns are multiplied by is weight / m, so that
//! the rounding of m changes nothing. A channel whose s is no positive number stays as it is.

use crate::blocks::BlockType;
use crate::formats::{Container, Tensor};
use crate::quantize::decode_row;
use crate::simd::Level;
use anyhow::Context;
use rayon::prelude::*;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// A norm's new weight and what columns are multiplied by.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Smoothed {
    /// as it is written: bytes of the norm's type
    pub norm: Vec<u8>,
    /// one a column
    pub factors: Vec<f32>,
}

/// The greatest magnitude of each column of matrices with rows of `k`.
pub(super) fn column_peaks(c: &Container, matrices: &[&Tensor], k: usize) -> anyhow::Result<Vec<f32>> {
    let join = |mut a: Vec<f32>, b: Vec<f32>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a = a.max(b));
        a
    };
    let mut peaks = vec![0f32; k];
    for t in matrices {
        let ty = t.dtype.block().with_context(|| format!("tensor {} is {}", t.name, t.dtype))?;
        let row = ty.row_bytes(k).with_context(|| format!("tensor {}: rows of {k} are not whole blocks", t.name))?;
        let rows = t.bytes as usize / row.max(1);
        let at_once = (CHUNK / row.max(1)).max(1);
        let found = (0..rows.div_ceil(at_once)).into_par_iter().map(|i| -> anyhow::Result<Vec<f32>> {
            let n = at_once.min(rows - i * at_once);
            let mut bytes = vec![0; n * row];
            c.read(t, (i * at_once * row) as u64, &mut bytes)?;
            let (mut x, mut peaks) = (vec![0f32; k], vec![0f32; k]);
            for (r, bytes) in bytes.chunks_exact(row).enumerate() {
                decode_row(c, t, Level::detect(), bytes, ((i * at_once + r) * k) as u64, &mut x)?;
                peaks.iter_mut().zip(&x).for_each(|(p, v)| *p = p.max(v.abs()));
            }
            Ok(peaks)
        });
        let found = found.try_reduce(|| vec![0f32; k], |a, b| Ok(join(a, b)))?;
        peaks = join(peaks, found);
    }
    Ok(peaks)
}

/// The norm `weight` (of type `ty`) and the factors of the columns that read it; `seen` and `peaks` are the greatest
/// magnitudes of each channel of the activations and of the columns.
pub(super) fn smooth(weight: &[f32], ty: BlockType, seen: &[f32], peaks: &[f32], alpha: f64) -> Smoothed {
    let mut out = Smoothed { norm: Vec::with_capacity(weight.len() * ty.bytes()), factors: vec![] };
    for ((&w, &a), &p) in weight.iter().zip(seen).zip(peaks) {
        let s = libm::pow(f64::from(a), alpha) / libm::pow(f64::from(p), 1.0 - alpha);
        let mut bytes = vec![0; ty.bytes()];
        ty.encode_row(&[(f64::from(w) / s) as f32], &mut bytes);
        let mut m = [0f32];
        ty.decode_row(&bytes, &mut m);
        let factor = (f64::from(w) / f64::from(m[0])) as f32;
        let sound = a > 0.0 && p > 0.0 && m[0].is_normal() && factor.is_normal() && factor > 0.0;
        if !sound {
            ty.encode_row(&[w], &mut bytes);
        }
        out.norm.extend(bytes);
        out.factors.push(if sound { factor } else { 1.0 });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_times_factor_is_the_norm_again_whatever_its_type() {
        let (weight, seen, peaks) =
            ([0.5f32, 1.25, -2.0, 1.0, 0.0], [8.0, 0.5, 2.0, 0.0, 1.0], [0.25, 0.5, 2.0, 1.0, 1.0]);
        for ty in [BlockType::F32, BlockType::F16, BlockType::BF16] {
            let s = smooth(&weight, ty, &seen, &peaks, 0.5);
            let mut m = [0f32; 5];
            ty.decode_row(&s.norm, &mut m);
            for i in 0..5 {
                assert!((m[i] * s.factors[i] - weight[i]).abs() <= 1e-6 * weight[i].abs(), "{ty:?} {i}");
            }
            // sqrt(8 / 0.25), but for the rounding of the norm
            assert!((s.factors[0] / 32f32.sqrt() - 1.0).abs() < 0.005, "{}", s.factors[0]);
            assert_eq!(s.factors[1..], [1.0; 4]);
        }
    }
}
