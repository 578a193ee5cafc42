//! Every element times one number: x = s · x.

use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `scale`.
    pub struct ScaleParams {
        /// rows
        pub n_tokens: u32,
        /// elements in a row
        pub dim: u32,
        /// the number, a finite one
        pub scale: f32,
    }
}

impl Params for ScaleParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }
}

/// `x`: `[token][dim]`.
pub fn scale(p: &ScaleParams, x: &mut [f32]) {
    for x in &mut x[..(p.n_tokens * p.dim) as usize] {
        *x = canon(*x * p.scale);
    }
}
