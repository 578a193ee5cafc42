//! `*_gate_up`: gate and up rows of a feed-forward block times the same activations, SwiGLU, and the result quantised.
//!
//! For few tokens: a workgroup owns 128 gate rows and the 128 up rows beside them, so nothing goes through memory.

use crate::blocks::BlockType;
use crate::ops::linear::ACT_BLOCK_WORDS;
use crate::ops::linear::LinearParams;
use crate::ops::params::{At, Params, params};
use crate::ops::swiglu_quantize::{SwigluQuantizeParams, swiglu_quantize};
use crate::ops::types::twins;

/// The types that have kernels: all whose codes meet activations quantised in groups, since the result is.
pub fn types() -> impl Iterator<Item = BlockType> {
    BlockType::with_kernels().filter(|t| stem(*t).is_some())
}

/// The stem of a type's kernel; `None` where there is none.
pub fn stem(t: BlockType) -> Option<&'static str> {
    (!t.is_float() && !t.meets_rows()).then_some(twins(t).stems.gate_up)
}

params! {
    /// Parameters of every `*_gate_up`, in the order of the shaders' uniform struct.
    pub struct GateUpParams {
        /// tokens
        pub n_tokens: u32,
        /// elements of one weight row
        pub k: u32,
        /// gate rows, a multiple of 32; as many up rows follow
        pub dim: u32,
        /// digits of one activation, of those read and those written: 1 or 2
        pub digits: u32,
    }
}

impl Params for GateUpParams {
    const FLOAT_STRIDE: Option<usize> = Some(ACT_BLOCK_WORDS);

    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.dim.div_ceil(128), self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        true
    }
}

impl GateUpParams {
    /// The matrix of gate and up rows.
    pub fn linear(&self) -> LinearParams {
        LinearParams {
            n_tokens: self.n_tokens,
            k: self.k,
            rows: 2 * self.dim,
            digits: self.digits,
            y_stride: 2 * self.dim,
            y_offset: 0,
            residual: 0,
        }
    }

    /// What follows it.
    pub fn swiglu(&self) -> SwigluQuantizeParams {
        SwigluQuantizeParams { n_tokens: self.n_tokens, dim: self.dim, digits: self.digits }
    }
}

/// `w` packed gate rows, then up rows; `act` blocks of `act_quantize`; `mid` the same of `dim` elements.
pub fn gate_up(t: BlockType, p: &GateUpParams, w: &[u32], act: &[u32], mid: &mut [u32]) {
    let l = p.linear();
    let mut y = vec![0f32; (p.n_tokens * l.y_stride) as usize];
    assert!(!t.is_float(), "gate_up of {} weights", t.name());
    (twins(t).matvec)(&l, w, act, &mut y);
    swiglu_quantize(&p.swiglu(), &y, mid);
}
