//! Directories as Huawei's msModelSlim writes them (AscendV1): codes, scales and offsets of every matrix of the layers in
//! tensors of their own, and a description that says what each tensor is.
//!
//! [`plan`] makes a job of pieces, each of which follows from the rows of one tensor (`linear`), so that nothing larger
//! than a chunk of rows is held, and an interrupted job goes on; for that a matrix is read once for each tensor made of it.
//! The layout is that of the tool's format page and its saver of 2026; `docs/quantize.md` has the formulas.

mod config;
pub mod linear;
pub mod observed;
mod plan;
mod smooth;

pub use plan::{Options, plan};

use crate::formats::{Container, Tensor};
use anyhow::{Context, ensure};

/// Which codes the matrices of the layers become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// codes of 8 bits, with offsets
    W8A16,
    /// codes of 4 bits, with offsets
    W4A16,
    /// codes of 8 bits; activations of 8 bits, whose scale was fixed by a run over a text
    W8A8,
    /// codes of 8 bits; activations of 8 bits with a scale for each token
    W8A8Dynamic,
    /// codes of 4 bits, two rows in a byte; activations of 8 bits with a scale for each token
    W4A8Dynamic,
}

impl Scheme {
    /// Every scheme.
    pub const ALL: [Scheme; 5] = [Scheme::W8A16, Scheme::W4A16, Scheme::W8A8, Scheme::W8A8Dynamic, Scheme::W4A8Dynamic];

    /// By its command-line name; `_` and `-`, capitals and small letters are alike.
    pub fn parse(name: &str) -> Option<Scheme> {
        let name = name.to_lowercase().replace('_', "-");
        Scheme::ALL.into_iter().find(|s| s.name().to_lowercase().replace('_', "-") == name)
    }

    /// As descriptions spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Scheme::W8A16 => "W8A16",
            Scheme::W4A16 => "W4A16",
            Scheme::W8A8 => "W8A8",
            Scheme::W8A8Dynamic => "W8A8_DYNAMIC",
            Scheme::W4A8Dynamic => "W4A8_DYNAMIC",
        }
    }

    /// Whether its codes have 4 bits.
    pub const fn is_four_bits(self) -> bool {
        matches!(self, Scheme::W4A16 | Scheme::W4A8Dynamic)
    }

    /// Whether activations stay as they are: then scales may be of groups, and codes have offsets.
    pub const fn is_weights_alone(self) -> bool {
        matches!(self, Scheme::W8A16 | Scheme::W4A16)
    }
}

/// A vector as f32.
fn floats(c: &Container, t: &Tensor) -> anyhow::Result<Vec<f32>> {
    let file = c.files[t.file].display();
    let ty = t.dtype.block().filter(|ty| ty.is_float() && t.shape.len() == 1);
    let ty =
        ty.with_context(|| format!("{file}: tensor {} is {} {:?}, expected a vector", t.name, t.dtype, t.shape))?;
    let mut bytes = vec![0; t.bytes as usize];
    c.read(t, 0, &mut bytes)?;
    let mut x = vec![0f32; t.elems() as usize];
    ty.decode_row(&bytes, &mut x);
    ensure!(x.iter().all(|v| v.is_finite()), "{file}: tensor {} holds NaN or infinity; the model is damaged", t.name);
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_known_by_their_names_in_either_spelling() {
        for s in Scheme::ALL {
            assert_eq!(Scheme::parse(s.name()), Some(s));
            assert_eq!(Scheme::parse(&s.name().to_lowercase().replace('_', "-")), Some(s));
        }
        assert_eq!(Scheme::parse("w8a8s"), None);
    }
}
