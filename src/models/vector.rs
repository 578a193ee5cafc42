//! Tensors of one dimension, read whole: what both the hyperparameters and the weights need of a file.

use crate::formats::{Container, Tensor};
use anyhow::{Context, bail};

/// File and tensor, for messages.
pub(super) fn place(c: &Container, t: &Tensor) -> String {
    format!("{}: tensor {}", c.files[t.file].display(), t.name)
}

/// A one-dimensional tensor as f32; NaN and infinity are refused.
pub(super) fn vector(c: &Container, t: &Tensor) -> anyhow::Result<Vec<f32>> {
    let ty = t.dtype.block().filter(|ty| ty.is_float());
    let ty = ty.with_context(|| format!("{} is {}, expected F32, F16 or BF16", place(c, t), t.dtype.name()))?;
    let mut bytes = vec![0u8; t.bytes as usize];
    c.read(t, 0, &mut bytes)?;
    let mut values = vec![0f32; t.elems() as usize];
    ty.decode_row(&bytes, &mut values);
    if let Some(i) = values.iter().position(|v| !v.is_finite()) {
        bail!("{} holds {} at element {i}", place(c, t), values[i]);
    }
    Ok(values)
}
