//! Layers that stand behind pooling, where a model for vectors has some: sentence-transformers' `Dense`, in GGUF files
//! `dense_2` and `dense_3` (EmbeddingGemma).
//!
//! They take one vector a text, so the host computes them, in f64 and in the order of the elements: the same bits whatever the
//! device.

use super::hyper::Hyper;
use super::vector;
use crate::formats::json::Fields;
use crate::formats::{Container, ContainerKind, dense};
use anyhow::{Context, bail, ensure};

/// y = W · x + b, or its tanh.
#[derive(Debug)]
pub struct Dense {
    /// elements of x
    pub width: usize,
    /// W, `[out][width]`
    weights: Vec<f32>,
    /// b, `[out]`; none of it is added where there is none
    bias: Option<Vec<f32>>,
    tanh: bool,
}

impl Dense {
    /// The layers of a model in their order; none for most.
    ///
    /// Errors: a shape that does not follow from the one before; a function other than these; values that are not finite.
    pub fn of(c: &Container, h: &Hyper) -> anyhow::Result<Vec<Dense>> {
        let file = c.described_by().display().to_string();
        let none = serde_json::Value::Object(Default::default());
        let config = Fields::of(&file, c.config.as_ref().unwrap_or(&none))?;
        let functions = config.list(dense::FUNCTIONS)?.unwrap_or_default();
        let (mut layers, mut width): (Vec<Dense>, usize) = (Vec::new(), h.dim);
        while let Some(t) = c.tensor(&dense::name(layers.len(), "weight")) {
            let rows = match t.shape[..] {
                [cols, rows] if cols == width as u64 && rows > 0 => rows as usize,
                _ => bail!("{} has shape {:?}, expected rows of {width}", vector::place(c, t), t.shape),
            };
            let ty = t.dtype.block().with_context(|| format!("{} is {}", vector::place(c, t), t.dtype.name()))?;
            ensure!(width.is_multiple_of(ty.elems()), "{} has rows of {width}, no whole blocks", vector::place(c, t));
            let mut bytes = vec![0; usize::try_from(t.bytes)?];
            c.read(t, 0, &mut bytes)?;
            let mut weights = vec![0f32; rows * width];
            ty.decode_row(&bytes, &mut weights);
            let finite = weights.iter().all(|w| w.is_finite());
            ensure!(finite, "{} holds values that are not finite", vector::place(c, t));
            let bias = match c.tensor(&dense::name(layers.len(), "bias")) {
                Some(b) => {
                    ensure!(
                        b.elems() == rows as u64,
                        "{} has shape {:?}, expected {rows}",
                        vector::place(c, b),
                        b.shape
                    );
                    Some(vector::vector(c, b)?)
                }
                None => None,
            };
            let tanh = match functions.get(layers.len()).and_then(serde_json::Value::as_str) {
                None if c.kind != ContainerKind::HuggingFace => false,
                Some("Identity") => false,
                None | Some("Tanh") => true,
                Some(other) => bail!(
                    "{file}: {other} behind a dense layer is not supported (supported: Identity, Tanh)",
                    other = super::hyper::cut(other)
                ),
            };
            layers.push(Dense { width, weights, bias, tanh });
            width = rows;
        }
        Ok(layers)
    }

    /// Elements of y.
    pub fn rows(&self) -> usize {
        self.weights.len() / self.width
    }

    /// Whether it is a matrix alone, as those that GGUF files have.
    pub fn is_plain(&self) -> bool {
        self.bias.is_none() && !self.tanh
    }

    /// y; each of its elements is summed from the first element of x to the last.
    pub fn apply(&self, x: &[f64]) -> Vec<f64> {
        let rows = self.weights.chunks_exact(self.width).enumerate();
        rows.map(|(i, w)| {
            let sum = w.iter().zip(x).fold(0.0, |sum, (w, x)| sum + f64::from(*w) * x);
            let y = sum + self.bias.as_ref().map_or(0.0, |b| f64::from(b[i]));
            if self.tanh { libm::tanh(y) } else { y }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_a_matrix_a_bias_and_a_function() {
        let (weights, bias) = (vec![1.0, 2.0, -3.0, 0.5], Some(vec![0.25, -1.0]));
        let layer = Dense { width: 2, weights: weights.clone(), bias, tanh: true };
        assert_eq!(layer.apply(&[2.0, 4.0]), [libm::tanh(10.25), libm::tanh(-5.0)]);
        let plain = Dense { width: 2, weights, bias: None, tanh: false };
        assert_eq!((plain.apply(&[2.0, 4.0]), plain.rows()), (vec![10.0, -4.0], 2));
        assert!(plain.is_plain() && !layer.is_plain());
    }
}
