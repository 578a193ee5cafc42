//! `*_gate_up`: gate and up rows of a feed-forward block times the same activations, SwiGLU, and the result quantised.
//!
//! For few tokens: a workgroup owns 128 gate rows and the 128 up rows beside them, so nothing goes through memory.

use crate::blocks::BlockType;
use crate::ops::linear::LinearParams;
use crate::ops::swiglu_quantize::{SwigluQuantizeParams, swiglu_quantize};
use crate::ops::{
    q4_0_matvec, q4k_matvec, q5_0_matvec, q5_1_matvec, q5k_matvec, q6k_matvec, q8_0_matvec, q8k128_matvec,
};

/// The types that have kernels.
pub const TYPES: [BlockType; 8] = [
    BlockType::Q8_0,
    BlockType::Q4_0,
    BlockType::Q5_0,
    BlockType::Q5_1,
    BlockType::Q4_K,
    BlockType::Q5_K,
    BlockType::Q6_K,
    BlockType::Q8K128,
];

/// Parameters of every `*_gate_up`, in the order of the shaders' uniform struct.
#[derive(Clone, Copy, Debug, PartialEq, encase::ShaderType)]
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
    match t {
        BlockType::Q8_0 => q8_0_matvec::q8_0_matvec(&l, w, act, &mut y),
        BlockType::Q4_0 => q4_0_matvec::q4_0_matvec(&l, w, act, &mut y),
        BlockType::Q5_0 => q5_0_matvec::q5_0_matvec(&l, w, act, &mut y),
        BlockType::Q5_1 => q5_1_matvec::q5_1_matvec(&l, w, act, &mut y),
        BlockType::Q4_K => q4k_matvec::q4k_matvec(&l, w, act, &mut y),
        BlockType::Q5_K => q5k_matvec::q5k_matvec(&l, w, act, &mut y),
        BlockType::Q6_K => q6k_matvec::q6k_matvec(&l, w, act, &mut y),
        BlockType::Q8_K | BlockType::Q8K128 => q8k128_matvec::q8k128_matvec(&l, w, act, &mut y),
        t => panic!("gate_up of {} weights", t.name()),
    }
    swiglu_quantize(&p.swiglu(), &y, mid);
}
