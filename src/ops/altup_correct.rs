//! Correction of the streams of a token (`altup_predict`) after a layer.

use crate::ops::altup_predict::{OTHERS, STREAMS};
use crate::ops::exact::canon;
use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `altup_correct`.
    pub struct AltupCorrectParams {
        /// tokens
        pub n_tokens: u32,
        /// elements of a stream
        pub dim: u32,
    }
}

impl Params for AltupCorrectParams {
    const OUTPUTS: usize = 3;

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(256), self.n_tokens]
    }
}

/// `c` `[token][4]`, `scale` `[dim]`. `a` `[token][dim]` is what a layer made of its stream, `x` `[token][dim]` and `others`
/// `[token][3][dim]` the predicted streams, of which stream i becomes X_i + (c_i + 1) (a - x); then a becomes the new x
/// times `scale`.
pub fn altup_correct(
    p: &AltupCorrectParams,
    c: &[f32],
    scale: &[f32],
    a: &mut [f32],
    x: &mut [f32],
    others: &mut [f32],
) {
    let dim = p.dim as usize;
    for t in 0..p.n_tokens as usize {
        let by: Vec<f32> = c[t * STREAMS..][..STREAMS].iter().map(|c| canon(c + 1.0)).collect();
        for e in 0..dim {
            let at = t * dim + e;
            let news = canon(a[at] - x[at]);
            x[at] = canon(x[at] + by[0] * news);
            a[at] = canon(x[at] * scale[e]);
            for i in 1..STREAMS {
                let other = &mut others[(t * OTHERS + i - 1) * dim + e];
                *other = canon(*other + by[i] * news);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_moves_by_its_share_of_what_the_layer_changed() {
        let p = AltupCorrectParams { n_tokens: 1, dim: 2 };
        let (mut a, mut x, mut others) = ([3.0, 5.0], [1.0, 1.0], [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        altup_correct(&p, &[0.5, -1.0, 0.0, 2.0], &[2.0, -1.0], &mut a, &mut x, &mut others);
        assert_eq!((a, x, others), ([8.0, -7.0], [4.0, 7.0], [0.0, 10.0, 22.0, 34.0, 46.0, 62.0]));
    }
}
