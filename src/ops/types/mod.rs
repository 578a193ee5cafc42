//! The packed weight types as kernels read them: one file per type, with the value of an element and the value of a group
//! times activations (`docs/exactness.md` sections 3 and 4). Every operation over weights is made of these two.
//!
//! The list in this file is the one place of the room that ties a [`BlockType`] to its file.

use crate::blocks::BlockType;
use crate::ops::embed::{self, EmbedParams};
use crate::ops::linear::{self, LinearParams};
use crate::ops::packed::{Quantised, Weight};

pub mod floats;
mod four_blocks;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod nvfp4;
pub mod q1_0;
pub mod q2_0;
pub mod q2k;
pub mod q3k;
pub mod q4_0;
pub mod q4_1;
pub mod q4k;
pub mod q5_0;
pub mod q5_1;
pub mod q5k;
pub mod q6k;
pub mod q8_0;
pub mod q8k128;
mod scaled;
pub mod tq2_0;
pub mod w4a16;
pub mod w8a16;
pub mod w8a8;
pub mod wide;

/// Names of a type's operations: stems of shaders, labels, words of `--variant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stems {
    /// the type's own: `q4k`
    pub name: &'static str,
    /// `embed_q4k`
    pub embed: &'static str,
    /// `q4k_matvec`
    pub matvec: &'static str,
    /// `q4k_gate_up`; there is none of float types and of W8A8
    pub gate_up: &'static str,
    /// `q4k_expert`
    pub expert: &'static str,
    /// `q4k_encode`; there is one of three types only
    pub encode: &'static str,
}

macro_rules! stems {
    ($name:literal) => {
        Stems {
            name: $name,
            embed: concat!("embed_", $name),
            matvec: concat!($name, "_matvec"),
            gate_up: concat!($name, "_gate_up"),
            expert: concat!($name, "_expert"),
            encode: concat!($name, "_encode"),
        }
    };
}

/// The twins of a weight type.
pub struct Twins {
    /// what the type's operations are called
    pub stems: Stems,
    /// y = W x: packed rows; activation blocks, or the bits of f32 activations where the type is a float; y
    pub matvec: fn(p: &LinearParams, w: &[u32], act: &[u32], y: &mut [f32]),
    /// rows of token ids, decoded: ids; packed rows; x
    pub embed: fn(p: &EmbedParams, ids: &[u32], w: &[u32], x: &mut [f32]),
}

impl Twins {
    const fn quantised<T: Quantised>(stems: Stems) -> Twins {
        Twins { stems, matvec: linear::quantised::<T>, embed: embed::rows::<T> }
    }

    const fn rows(stems: Stems) -> Twins {
        Twins { stems, matvec: w8a8::matvec, embed: embed::rows::<w8a8::W8A8> }
    }

    const fn floats<T: Weight>(stems: Stems) -> Twins {
        Twins { stems, matvec: linear::floats::<T>, embed: embed::rows::<T> }
    }
}

/// The twins of a type; Q8_K and TQ1_0 have those of the type they are packed as.
pub const fn twins(t: BlockType) -> &'static Twins {
    match t {
        BlockType::F32 => &const { Twins::floats::<floats::F32>(stems!("f32")) },
        BlockType::F16 => &const { Twins::floats::<floats::F16>(stems!("f16")) },
        BlockType::BF16 => &const { Twins::floats::<floats::BF16>(stems!("bf16")) },
        BlockType::Q8_0 => &const { Twins::quantised::<q8_0::Q8_0>(stems!("q8_0")) },
        BlockType::Q4_0 => &const { Twins::quantised::<q4_0::Q4_0>(stems!("q4_0")) },
        BlockType::Q4_1 => &const { Twins::quantised::<q4_1::Q4_1>(stems!("q4_1")) },
        BlockType::Q5_0 => &const { Twins::quantised::<q5_0::Q5_0>(stems!("q5_0")) },
        BlockType::Q5_1 => &const { Twins::quantised::<q5_1::Q5_1>(stems!("q5_1")) },
        BlockType::Q4_K => &const { Twins::quantised::<q4k::Q4K>(stems!("q4k")) },
        BlockType::Q5_K => &const { Twins::quantised::<q5k::Q5K>(stems!("q5k")) },
        BlockType::Q6_K => &const { Twins::quantised::<q6k::Q6K>(stems!("q6k")) },
        BlockType::Q2_K => &const { Twins::quantised::<q2k::Q2K>(stems!("q2k")) },
        BlockType::Q3_K => &const { Twins::quantised::<q3k::Q3K>(stems!("q3k")) },
        BlockType::IQ4_NL => &const { Twins::quantised::<iq4_nl::IQ4_NL>(stems!("iq4_nl")) },
        BlockType::IQ4_XS => &const { Twins::quantised::<iq4_xs::IQ4_XS>(stems!("iq4_xs")) },
        BlockType::IQ3_S => &const { Twins::quantised::<iq3_s::IQ3_S>(stems!("iq3_s")) },
        BlockType::IQ3_XXS => &const { Twins::quantised::<iq3_xxs::IQ3_XXS>(stems!("iq3_xxs")) },
        BlockType::IQ2_S => &const { Twins::quantised::<iq2_s::IQ2_S>(stems!("iq2_s")) },
        BlockType::IQ2_XS => &const { Twins::quantised::<iq2_xs::IQ2_XS>(stems!("iq2_xs")) },
        BlockType::IQ2_XXS => &const { Twins::quantised::<iq2_xxs::IQ2_XXS>(stems!("iq2_xxs")) },
        BlockType::IQ1_S => &const { Twins::quantised::<iq1_s::IQ1_S>(stems!("iq1_s")) },
        BlockType::IQ1_M => &const { Twins::quantised::<iq1_m::IQ1_M>(stems!("iq1_m")) },
        BlockType::TQ1_0 | BlockType::TQ2_0 => &const { Twins::quantised::<tq2_0::TQ2_0>(stems!("tq2_0")) },
        BlockType::MXFP4 => &const { Twins::quantised::<mxfp4::MXFP4>(stems!("mxfp4")) },
        BlockType::NVFP4 => &const { Twins::quantised::<nvfp4::NVFP4>(stems!("nvfp4")) },
        BlockType::Q1_0 => &const { Twins::quantised::<q1_0::Q1_0>(stems!("q1_0")) },
        BlockType::Q2_0 => &const { Twins::quantised::<q2_0::Q2_0>(stems!("q2_0")) },
        BlockType::W8A16 => &const { Twins::quantised::<w8a16::W8A16>(stems!("w8a16")) },
        BlockType::W4A16 => &const { Twins::quantised::<w4a16::W4A16>(stems!("w4a16")) },
        BlockType::W8A8 => &const { Twins::rows(stems!("w8a8")) },
        BlockType::Wide1 => &const { Twins::quantised::<wide::Wide1>(stems!("wide1")) },
        BlockType::Wide2 => &const { Twins::quantised::<wide::Wide2>(stems!("wide2")) },
        BlockType::Wide3 => &const { Twins::quantised::<wide::Wide3>(stems!("wide3")) },
        BlockType::Wide3S => &const { Twins::quantised::<wide::Wide3S>(stems!("wide3s")) },
        BlockType::Q8_K | BlockType::Q8K128 => &const { Twins::quantised::<q8k128::Q8K128>(stems!("q8k128")) },
    }
}
