//! Tensors of one dimension: what both the hyperparameters and the weights need of a file.

use crate::formats::{Container, Tensor};
use anyhow::{Context, bail, ensure};
use std::ops::Range;

/// File and tensor, for messages.
pub(super) fn place(c: &Container, t: &Tensor) -> String {
    format!("{}: tensor {}", c.files[t.file].display(), t.name)
}

/// A one-dimensional tensor as f32; NaN and infinity are refused.
pub(super) fn vector(c: &Container, t: &Tensor) -> anyhow::Result<Vec<f32>> {
    range(c, t, 0..t.elems() as usize)
}

/// As [`vector`], of these elements.
pub(super) fn range(c: &Container, t: &Tensor, elements: Range<usize>) -> anyhow::Result<Vec<f32>> {
    let ty = t.dtype.block().filter(|ty| ty.is_float());
    let ty = ty.with_context(|| format!("{} is {}, expected F32, F16 or BF16", place(c, t), t.dtype.name()))?;
    let known = t.elems() as usize;
    ensure!(elements.end <= known, "{} has {known} elements, expected {}", place(c, t), elements.end);
    let mut bytes = vec![0u8; elements.len() * ty.bytes()];
    c.read(t, (elements.start * ty.bytes()) as u64, &mut bytes)?;
    let mut values = vec![0f32; elements.len()];
    ty.decode_row(&bytes, &mut values);
    if let Some(i) = values.iter().position(|v| !v.is_finite()) {
        bail!("{} holds {} at element {}", place(c, t), values[i], elements.start + i);
    }
    Ok(values)
}
